//! Who leads: what one of several candidates does next about the Lease that they compete for.
//!
//! The semantics are client-go's: a holder renews each retry period and gives up after the renew deadline; the others
//! take over when they have seen the record unchanged for the lease duration that stands in it, by their own clocks, as
//! the times in it are for people; every write names the version that it rests on, so that of two the API server refuses
//! one. What is stricter, since people and other programs write Leases too:
//!
//! - A candidate leads by a write of its own that was accepted, never because its name stands in the Lease.
//! - Only a Lease that was released in due form (no holder, a duration of 1 s, as client-go writes it) is taken at once.
//!   One that was emptied or deleted is waited out like one that is held, as its holder may not know yet.
//! - A duration shorter than the candidate's own is taken for its own, one of over an hour for an hour.
//! - A holder whose Lease is deleted makes a new one; one that finds another name in it is no longer the leader.
//!
//! One case remains: a candidate knows nothing of a Lease whose whole life it has missed, and takes one that isn't there
//! at once if it has never seen it. Whoever deletes a Lease and starts a replica within the round trip that its holder
//! needs to make a new one gets two leaders, until the old one hears of it.

use jiff::Timestamp;

use super::observation::{Candidate, Lease, Observation, RELEASED, Record};
use super::tenure::Time;

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing until then.
    Wait(Time),
    /// Look at the Lease.
    Read,
    /// Make the Lease.
    Create(Record),
    /// Replace what stands in this version of the Lease.
    Update {
        /// The version that it rests on.
        version: String,
        /// What will stand in it.
        record: Record,
    },
    /// Lead no longer.
    StepDown(Loss),
}

/// Why the leader leads no longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Loss {
    /// It wasn't renewed in time.
    Expired,
    /// Another name stands in the Lease, or none.
    Taken(String),
}

/// What a candidate does next, at this moment of its own clock. `wall` is only written down.
pub(crate) fn decide(observation: &Observation, candidate: &Candidate, now: Time, wall: Timestamp) -> Action {
    match observation.led_since {
        Some(sent) => renew(observation, candidate, sent, now, wall),
        None => acquire(observation, candidate, now, wall),
    }
}

fn renew(known: &Observation, candidate: &Candidate, sent: Time, now: Time, wall: Timestamp) -> Action {
    let end = sent + candidate.renew_deadline;
    if now >= end {
        return Action::StepDown(Loss::Expired);
    }
    match &known.lease {
        Lease::Present { record, .. } if record.holder != candidate.identity => {
            Action::StepDown(Loss::Taken(record.holder.clone()))
        }
        _ if now < known.due => Action::Wait(known.due.min(end)),
        _ if known.is_stale => Action::Read,
        Lease::Present { version, record } => {
            let seconds = candidate.seconds();
            let record = Record { seconds, renewed: Some(wall), ..record.clone() };
            Action::Update { version: version.clone(), record }
        }
        Lease::Unknown | Lease::Absent | Lease::Gone(_) => Action::Create(candidate.record(0, wall)),
    }
}

fn acquire(known: &Observation, candidate: &Candidate, now: Time, wall: Timestamp) -> Action {
    if now < known.due {
        return Action::Wait(known.due);
    }
    if known.is_stale || now < known.free_from(candidate) {
        return Action::Read;
    }
    match &known.lease {
        Lease::Unknown => Action::Read,
        Lease::Absent | Lease::Gone(_) => Action::Create(candidate.record(0, wall)),
        Lease::Present { version, record } => {
            let record = candidate.record(record.transitions.saturating_add(1), wall);
            Action::Update { version: version.clone(), record }
        }
    }
}

/// What a leader that has stopped writing does with the Lease, if it may still be its own.
pub(crate) fn release(known: &Observation, candidate: &Candidate, wall: Timestamp) -> Option<Action> {
    match &known.lease {
        Lease::Present { version, record }
            if known.led_since.is_some() && record.holder == candidate.identity =>
        {
            let record = Record {
                holder: String::new(),
                seconds: RELEASED,
                acquired: Some(wall),
                renewed: Some(wall),
                transitions: record.transitions,
            };
            Some(Action::Update { version: version.clone(), record })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const HOUR: u64 = 3_600_000;

    fn at(milliseconds: u64) -> Time {
        Time(Duration::from_millis(milliseconds))
    }

    fn candidate(identity: &str) -> Candidate {
        Candidate {
            identity: identity.to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    fn held(holder: &str, seconds: i32) -> Record {
        Record { holder: holder.to_owned(), seconds, transitions: 7, ..Record::default() }
    }

    /// What `a` knows that has read this at 1 s, with no jitter.
    fn read(found: Option<Record>) -> Observation {
        let mut known = Observation::none(at(0));
        known.read(found.map(|record| ("5".to_owned(), record)), &candidate("a"), at(1_000), 0.0);
        known
    }

    /// What `a` knows that has become leader by a write that it sent at 1 s.
    fn leader() -> Observation {
        let mut known = read(None);
        known.wrote(at(1_000), "6".to_owned(), held("a", 15), &candidate("a"));
        known
    }

    fn next(known: &Observation, now: u64) -> Action {
        decide(known, &candidate("a"), at(now), Timestamp::UNIX_EPOCH)
    }

    /// The moments at which `a` would take the Lease without looking again, at the earliest, by this observation.
    fn takes_from(known: &Observation) -> Time {
        known.free_from(&candidate("a"))
    }

    fn took(transitions: i32) -> Record {
        let epoch = Some(Timestamp::UNIX_EPOCH);
        Record { acquired: epoch, renewed: epoch, transitions, ..held("a", 15) }
    }

    #[test]
    fn a_candidate_looks_first_and_takes_what_is_free() {
        let update = |transitions| Action::Update { version: "5".to_owned(), record: took(transitions) };
        assert_eq!(next(&Observation::none(at(0)), 0), Action::Read);
        assert_eq!(next(&read(None), 1_000), Action::Create(took(0)));
        assert_eq!(next(&read(Some(held("", 1))), 1_000), update(8), "released in due form");
        for (name, record, free) in [
            ("held by another", held("b", 15), 16_000),
            ("held for longer by another", held("b", 60), 61_000),
            ("held by somebody of the same name, as a person may write it", held("a", 15), 16_000),
            ("emptied by hand", held("", 15), 16_000),
            ("with a duration that is too short", held("b", 1), 16_000),
            ("with a duration of nothing", held("b", 0), 16_000),
            ("with a negative duration", held("b", -5), 16_000),
            ("without anything in it", Record::default(), 16_000),
            ("with a duration of years", held("b", i32::MAX), 1_000 + HOUR),
        ] {
            let known = read(Some(record.clone()));
            assert_eq!(takes_from(&known), at(free), "{name}");
            assert_eq!(next(&known, 1_000), Action::Wait(at(3_000)), "{name}");
            assert_eq!(next(&known, 3_000), Action::Read, "{name}: a look each retry period");
            assert_eq!(next(&known, free - 1), Action::Read, "{name}");
            assert_eq!(next(&known, free), update(record.transitions + 1), "{name}");
        }
    }

    #[test]
    fn only_a_change_of_what_stands_there_counts_as_a_sign_of_life() {
        let candidate = candidate("a");
        let mut known = read(Some(held("b", 15)));
        known.read(Some(("6".to_owned(), held("b", 15))), &candidate, at(9_000), 0.0);
        assert_eq!(takes_from(&known), at(16_000), "only its metadata have changed");
        let renewed = Record { renewed: Some(Timestamp::UNIX_EPOCH), ..held("b", 15) };
        known.read(Some(("7".to_owned(), renewed)), &candidate, at(9_000), 0.0);
        assert_eq!(takes_from(&known), at(24_000));
        known.watched("8", None, &candidate, at(10_000), 0.0);
        assert_eq!(takes_from(&known), at(25_000), "one that was deleted is waited out");
        assert_eq!(next(&known, 25_000), Action::Create(took(0)));
    }

    #[test]
    fn a_release_is_noticed_at_once_and_a_watch_that_lags_is_not_believed() {
        let candidate = candidate("a");
        let mut known = read(Some(held("b", 15)));
        for stale in ["4", "5"] {
            known.watched(stale, Some(held("", 1)), &candidate, at(1_500), 0.5);
        }
        assert_eq!(takes_from(&known), at(16_000));
        known.watched("6", Some(held("", 1)), &candidate, at(2_000), 0.5);
        assert_eq!(next(&known, 2_000), Action::Wait(at(2_100)), "spread over a tenth of a retry period");
        assert!(matches!(next(&known, 2_100), Action::Update { .. }));
    }

    #[test]
    fn a_leader_renews_each_retry_period_and_gives_up_after_the_renew_deadline() {
        let candidate = candidate("a");
        let mut known = leader();
        assert_eq!(next(&known, 1_000), Action::Wait(at(3_000)));
        let record = Record { renewed: Some(Timestamp::UNIX_EPOCH), ..held("a", 15) };
        let renewal = Action::Update { version: "6".to_owned(), record };
        assert_eq!(next(&known, 3_000), renewal, "neither acquire time nor transitions change");
        known.failed(&candidate, at(3_000), 1.0);
        assert_eq!(next(&known, 3_000), Action::Wait(at(5_000)), "without jitter");
        assert_eq!(next(&known, 5_000), Action::Read);
        known.failed(&candidate, at(10_000), 1.0);
        assert_eq!(next(&known, 10_000), Action::Wait(at(11_000)), "not beyond its end");
        assert_eq!(next(&known, 10_999), Action::Wait(at(11_000)));
        assert_eq!(next(&known, 11_000), Action::StepDown(Loss::Expired), "counted from the sending");
    }

    #[test]
    fn a_leader_steps_down_where_another_name_stands_and_makes_a_lost_lease_anew() {
        let candidate = candidate("a");
        for name in ["b", ""] {
            let mut known = leader();
            known.watched("7", Some(held(name, 15)), &candidate, at(1_500), 0.0);
            assert_eq!(next(&known, 1_500), Action::StepDown(Loss::Taken(name.to_owned())));
        }
        let mut known = leader();
        known.watched("7", None, &candidate, at(1_500), 0.0);
        assert_eq!(next(&known, 1_500), Action::Create(took(0)));
        let mut known = leader();
        known.watched("7", Some(held("a", 1)), &candidate, at(1_500), 0.0);
        let record = Record { renewed: Some(Timestamp::UNIX_EPOCH), ..held("a", 15) };
        assert_eq!(
            next(&known, 1_500),
            Action::Update { version: "7".to_owned(), record },
            "put right at once"
        );
        known.conflicted();
        assert_eq!(next(&known, 1_500), Action::Read);
    }

    #[test]
    fn a_release_keeps_the_transitions_and_only_a_leader_releases() {
        let candidate = candidate("a");
        let Some(Action::Update { version, record }) = release(&leader(), &candidate, Timestamp::UNIX_EPOCH)
        else {
            panic!("a leader releases")
        };
        let epoch = Some(Timestamp::UNIX_EPOCH);
        assert_eq!(
            (version.as_str(), record),
            ("6", Record { acquired: epoch, renewed: epoch, ..held("", 1) })
        );
        assert_eq!(release(&read(Some(held("a", 15))), &candidate, Timestamp::UNIX_EPOCH), None);
        let mut taken = leader();
        taken.watched("7", Some(held("b", 15)), &candidate, at(1_500), 0.0);
        assert_eq!(release(&taken, &candidate, Timestamp::UNIX_EPOCH), None);
    }

    /// A request between a candidate and the API server.
    #[derive(Debug, Clone)]
    struct Request {
        action: Action,
        sent: Time,
        /// What the API server has answered, once it has.
        answer: Option<Answer>,
    }

    #[derive(Debug, Clone)]
    enum Answer {
        Found(Option<(String, Record)>),
        Wrote(String, Record),
        Conflict,
    }

    /// The API server, and what it has told watches.
    #[derive(Debug, Default)]
    struct Server {
        lease: Option<(u64, Record)>,
        versions: u64,
        events: Vec<(u64, Option<Record>)>,
    }

    impl Server {
        fn store(&mut self, record: Option<Record>) -> u64 {
            self.versions += 1;
            self.lease = record.clone().map(|record| (self.versions, record));
            self.events.push((self.versions, record));
            self.versions
        }

        fn serve(&mut self, request: &Request) -> Answer {
            let present = self.lease.as_ref().map(|(version, _)| version.to_string());
            match &request.action {
                Action::Read => Answer::Found(
                    self.lease.as_ref().map(|(version, record)| (version.to_string(), record.clone())),
                ),
                Action::Create(record) if present.is_none() => {
                    Answer::Wrote(self.store(Some(record.clone())).to_string(), record.clone())
                }
                Action::Update { version, record } if present.as_ref() == Some(version) => {
                    Answer::Wrote(self.store(Some(record.clone())).to_string(), record.clone())
                }
                _ => Answer::Conflict,
            }
        }
    }

    #[derive(Debug)]
    struct Elector {
        candidate: Candidate,
        known: Observation,
        request: Option<Request>,
        /// How many of the events it has been told.
        told: usize,
        has_stepped_down: bool,
    }

    impl Elector {
        fn may_write(&self, now: Time) -> bool {
            let end = self.known.led_since.map(|sent| sent + self.candidate.renew_deadline);
            !self.has_stepped_down && end.is_some_and(|end| now < end)
        }
    }

    #[derive(Debug)]
    struct World {
        now: Time,
        server: Server,
        electors: Vec<Elector>,
        /// Requests that nobody waits for any more, and that may arrive all the same.
        astray: Vec<Request>,
        lead_changes: usize,
        is_deleted: bool,
    }

    /// What happens next. Who isn't named is stopped, or cut off, or slow.
    #[derive(Debug, Clone)]
    enum Step {
        Pass(u64),
        /// An elector sends what it decides on.
        Send(usize),
        /// The API server carries out what was sent.
        Serve(usize),
        /// The answer arrives; or the elector gives up, whether it was carried out, is or will be.
        Answer(usize, bool, f64),
        /// All of that at once, as when nothing is wrong.
        Run(usize, f64),
        /// The watch tells so many changes.
        Tell(usize, usize, f64),
        Astray(usize),
        Release(usize),
        Delete,
        SetHolder(&'static str),
        SetSeconds(i32),
    }

    impl World {
        fn new() -> Self {
            let elector = |name: &&str| Elector {
                candidate: candidate(name),
                known: Observation::none(at(0)),
                request: None,
                told: 0,
                has_stepped_down: false,
            };
            let electors = ["a", "b", "c"].iter().map(elector).collect();
            Self {
                now: at(0),
                server: Server::default(),
                electors,
                astray: Vec::new(),
                lead_changes: 0,
                is_deleted: false,
            }
        }

        fn leaders(&self) -> Vec<&str> {
            let leaders = self.electors.iter().filter(|elector| elector.may_write(self.now));
            leaders.map(|elector| elector.candidate.identity.as_str()).collect()
        }

        fn step(&mut self, step: &Step) {
            match *step {
                Step::Pass(milliseconds) => self.now = self.now + Duration::from_millis(milliseconds),
                Step::Send(who) => self.send(who),
                Step::Serve(who) => {
                    if let Some(request) = &mut self.electors[who].request
                        && request.answer.is_none()
                    {
                        request.answer = Some(self.server.serve(request));
                    }
                }
                Step::Answer(who, arrives, jitter) => self.answer(who, arrives, jitter),
                Step::Run(who, jitter) => {
                    for _ in 0..3 {
                        self.step(&Step::Send(who));
                        self.step(&Step::Serve(who));
                        self.step(&Step::Answer(who, true, jitter));
                    }
                }
                Step::Tell(who, count, jitter) => {
                    let Elector { candidate, known, told, .. } = &mut self.electors[who];
                    for (version, record) in self.server.events.iter().skip(*told).take(count) {
                        known.watched(&version.to_string(), record.clone(), candidate, self.now, jitter);
                        *told += 1;
                    }
                }
                Step::Astray(index) => {
                    if index < self.astray.len() {
                        let request = self.astray.remove(index);
                        self.server.serve(&request);
                    }
                }
                Step::Release(who) => self.release(who),
                Step::Delete => {
                    // Once, and of a Lease that all have seen: none may miss the whole life of one.
                    let has_seen_it =
                        |elector: &Elector| !matches!(elector.known.lease, Lease::Unknown | Lease::Absent);
                    if !self.is_deleted
                        && self.server.lease.is_some()
                        && self.electors.iter().all(has_seen_it)
                    {
                        self.server.store(None);
                        self.is_deleted = true;
                    }
                }
                Step::SetHolder(name) => self.edit(|record| name.clone_into(&mut record.holder)),
                Step::SetSeconds(seconds) => self.edit(|record| record.seconds = seconds),
            }
        }

        fn edit(&mut self, edit: impl Fn(&mut Record)) {
            let Some((_, mut record)) = self.server.lease.clone() else { return };
            edit(&mut record);
            // Whoever forges a release has to know that nobody leads.
            if !(record.holder.is_empty() && record.seconds == 1) {
                self.server.store(Some(record));
            }
        }

        fn send(&mut self, who: usize) {
            let Elector { candidate, known, request, has_stepped_down, .. } = &mut self.electors[who];
            if request.is_some() || *has_stepped_down {
                return;
            }
            match decide(known, candidate, self.now, wall(self.now)) {
                Action::Wait(_) => {}
                Action::StepDown(_) => *has_stepped_down = true,
                action => *request = Some(Request { action, sent: self.now, answer: None }),
            }
        }

        fn answer(&mut self, who: usize, arrives: bool, jitter: f64) {
            let Elector { candidate, known, request, has_stepped_down, .. } = &mut self.electors[who];
            let Some(request) = request.take() else { return };
            match (request.answer.clone(), arrives) {
                (Some(Answer::Found(found)), true) => known.read(found, candidate, self.now, jitter),
                (Some(Answer::Wrote(version, record)), true) => {
                    self.lead_changes += usize::from(known.led_since.is_none() && !*has_stepped_down);
                    known.wrote(request.sent, version, record, candidate);
                }
                (Some(Answer::Conflict), true) => known.conflicted(),
                (answer, _) => {
                    known.failed(candidate, self.now, jitter);
                    if answer.is_none() {
                        self.astray.push(request);
                    }
                }
            }
        }

        fn release(&mut self, who: usize) {
            let Elector { candidate, known, request, has_stepped_down, .. } = &mut self.electors[who];
            if known.led_since.is_none() || request.is_some() || *has_stepped_down {
                return;
            }
            *has_stepped_down = true;
            if let Some(action) = release(known, candidate, wall(self.now)) {
                self.astray.push(Request { action, sent: self.now, answer: None });
            }
        }
    }

    fn wall(now: Time) -> Timestamp {
        Timestamp::from_millisecond(i64::try_from(now.0.as_millis()).unwrap()).unwrap()
    }

    fn step() -> impl Strategy<Value = Step> {
        let (who, jitter) = (0..3_usize, 0.0..=1.0);
        prop_oneof![
            6 => (0..3_000_u64).prop_map(Step::Pass),
            2 => (0..20_000_u64).prop_map(Step::Pass),
            8 => (who.clone(), jitter.clone()).prop_map(|(who, jitter)| Step::Run(who, jitter)),
            4 => who.clone().prop_map(Step::Send),
            4 => who.clone().prop_map(Step::Serve),
            4 => (who.clone(), any::<bool>(), jitter.clone())
                .prop_map(|(who, arrives, jitter)| Step::Answer(who, arrives, jitter)),
            4 => (who.clone(), 1..4_usize, jitter).prop_map(|(who, count, jitter)| Step::Tell(who, count, jitter)),
            1 => (0..3_usize).prop_map(Step::Astray),
            1 => who.prop_map(Step::Release),
            1 => Just(Step::Delete),
            1 => prop_oneof![Just("a"), Just("b"), Just(""), Just("stranger")].prop_map(Step::SetHolder),
            1 => prop_oneof![Just(0), Just(1), Just(-5), Just(60), Just(i32::MAX)].prop_map(Step::SetSeconds),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn never_may_two_write_and_in_the_end_one_does(steps in prop::collection::vec(step(), 1..150)) {
            let mut world = World::new();
            for (index, step) in steps.iter().enumerate() {
                world.step(step);
                prop_assert!(world.leaders().len() <= 1, "{:?} after {index}: {world:#?}", world.leaders());
            }
            // Everything works again, and nobody meddles. An hour is what an absurd duration costs.
            let start = world.now;
            for _ in 0..62 * 30 { // 62 minutes
                if world.now.since(start) > Duration::from_mins(1) && world.leaders().len() == 1 {
                    break;
                }
                for who in 0..3 {
                    world.step(&Step::Answer(who, false, 0.5));
                    world.step(&Step::Tell(who, usize::MAX, 0.5));
                    world.step(&Step::Run(who, 0.5));
                    prop_assert!(world.leaders().len() <= 1, "{:?}: {world:#?}", world.leaders());
                }
                world.step(&Step::Pass(2_000));
            }
            let alive = world.electors.iter().filter(|elector| !elector.has_stepped_down).count();
            prop_assert_eq!(world.leaders().len(), alive.min(1), "{:#?}", world);
        }
    }

    #[test]
    fn the_lead_changes_hands_in_the_model_by_release_by_death_and_by_deletion() {
        let mut world = World::new();
        let run = |world: &mut World, who: usize, seconds: u64| {
            for _ in 0..seconds {
                world.step(&Step::Pass(1_000));
                world.step(&Step::Tell(who, usize::MAX, 0.0));
                world.step(&Step::Run(who, 0.0));
            }
        };
        for who in 0..3 {
            run(&mut world, who, 1);
        }
        assert_eq!(world.leaders(), ["a"]);
        world.step(&Step::Release(0));
        world.step(&Step::Astray(0));
        run(&mut world, 1, 1);
        assert_eq!(world.leaders(), ["b"], "as soon as it was told");
        run(&mut world, 2, 20);
        assert_eq!(world.leaders(), ["c"], "b was silent for longer than its lease lasts");
        world.step(&Step::Delete);
        run(&mut world, 2, 1);
        assert_eq!((world.leaders(), world.lead_changes), (vec!["c"], 3), "it made the lease anew");
        assert!(world.server.lease.is_some());
    }
}
