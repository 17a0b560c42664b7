//! How urgent a call is, and its place among others. A closed set rather than a number: numbers of two controllers
//! could not be compared.

/// How urgent a call is, with all of its requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Urgency {
    /// A user waits for it: a load balancer or a route is ensured or deleted.
    User,
    /// A node waits for it, and takes no Pods before.
    Initialise,
    /// Background work: refreshes and audits.
    #[default]
    Background,
}

/// How many tokens in a row may pass by a less urgent request.
pub(crate) const FAIR_SHARE: u32 = 16;

impl Urgency {
    pub(crate) const ALL: [Self; 3] = [Self::User, Self::Initialise, Self::Background];

    /// The value of the `urgency` label in metrics, and its name in pages.
    pub fn label(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Initialise => "initialise",
            Self::Background => "background",
        }
    }
}

/// A number for each urgency.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct UrgencyCounts {
    user: u32,
    initialise: u32,
    background: u32,
}

impl UrgencyCounts {
    pub(crate) fn of(&self, urgency: Urgency) -> u32 {
        match urgency {
            Urgency::User => self.user,
            Urgency::Initialise => self.initialise,
            Urgency::Background => self.background,
        }
    }

    pub(crate) fn of_mut(&mut self, urgency: Urgency) -> &mut u32 {
        match urgency {
            Urgency::User => &mut self.user,
            Urgency::Initialise => &mut self.initialise,
            Urgency::Background => &mut self.background,
        }
    }

    /// The number of the token that the next request of this urgency gets, where this many wait already. It comes
    /// behind all that are as urgent or more, but at most a fair share behind each request of its own urgency.
    pub(crate) fn position(&self, urgency: Urgency) -> f64 {
        let before = Urgency::ALL.into_iter().filter(|other| *other <= urgency);
        let last: u32 = before.map(|other| self.of(other)).sum();
        let by_share = (f64::from(self.of(urgency)) + 1.0) * f64::from(FAIR_SHARE + 1);
        (f64::from(last) + 1.0).min(by_share)
    }
}
