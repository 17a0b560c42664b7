//! How urgent a call is, and what follows for whose turn it is. The closed set of the controllers' work, not a number:
//! who compares numbers of two controllers compares nothing.

/// How urgent a call is. All of its requests are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Urgency {
    /// A user waits for it: a load balancer or a route that is ensured or deleted.
    User,
    /// A node waits for it and takes no Pods before.
    Initialise,
    /// Nobody waits for it: refreshes and audits.
    #[default]
    Background,
}

/// How many tokens in a row may pass a less urgent request by.
pub(crate) const FAIR_SHARE: u32 = 16;

impl Urgency {
    pub(crate) const ALL: [Self; 3] = [Self::User, Self::Initialise, Self::Background];

    /// The value of the `urgency` label in metrics, and what pages call it.
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

    /// Which token from now on is for the next one of this urgency, where so many wait already: behind all that are as
    /// urgent or more, but never behind more than a share's worth for each of its own.
    pub(crate) fn position(&self, urgency: Urgency) -> f64 {
        let before = Urgency::ALL.into_iter().filter(|other| *other <= urgency);
        let last: u32 = before.map(|other| self.of(other)).sum();
        let by_share = (f64::from(self.of(urgency)) + 1.0) * f64::from(FAIR_SHARE + 1);
        (f64::from(last) + 1.0).min(by_share)
    }
}
