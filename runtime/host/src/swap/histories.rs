//! Random histories: replicas restart, lead and lose the lead at any point, answers are late or lost, and the spec
//! changes. The model checks each step; afterward all must come to rest at one release.

use proptest::prelude::*;

use super::model::{COMPONENTS, Fate, Model, NODES, Quality, digest, minutes, release};
use super::*;

const REPLICAS: usize = 3;

#[derive(Debug, Clone, Copy)]
enum Incident {
    CarryOut(usize, usize, Fate),
    /// Everything that is due, on one leader.
    Run(usize, i64),
    Deliver(usize),
    DeliverStatus(usize),
    DeliverOldStatus(usize, usize),
    Pass(i64),
    Measure(usize),
    Restart(usize),
    Lead(usize),
    Follow(usize),
    MoveTag(usize),
    Follows(Option<usize>),
    Settings(usize),
    Differences(OnDifference),
    Canary(u8),
    Window(Option<TimeWindow>),
    Order(OrderKind),
}

fn incident() -> impl Strategy<Value = Incident> {
    use Incident as I;
    let fate = prop_oneof![6 => Just(Fate::Succeeds), 1 => Just(Fate::Fails), 1 => Just(Fate::IsLost)];
    let order = prop_oneof![
        Just(OrderKind::Pause),
        Just(OrderKind::Resume),
        Just(OrderKind::Rollback),
        Just(OrderKind::SwapNow)
    ];
    let window = (0..1440_u16, 1..300_u16)
        .prop_map(|(opens_minute, lasts_minutes)| TimeWindow { opens_minute, lasts_minutes });
    prop_oneof![
        20 => (0..REPLICAS, 0..8_usize, fate).prop_map(|(index, chosen, fate)| I::CarryOut(index, chosen, fate)),
        6 => (0..REPLICAS, 0..40_i64).prop_map(|(leader, minutes)| I::Run(leader, minutes)),
        6 => (0..REPLICAS).prop_map(I::Deliver),
        6 => (0..REPLICAS).prop_map(I::DeliverStatus),
        2 => (0..REPLICAS, 0..100_usize).prop_map(|(index, chosen)| I::DeliverOldStatus(index, chosen)),
        4 => (0..8_i64).prop_map(I::Pass),
        4 => (0..REPLICAS).prop_map(I::Measure),
        2 => (0..REPLICAS).prop_map(I::Restart),
        4 => (0..REPLICAS).prop_map(I::Lead),
        2 => (0..REPLICAS).prop_map(I::Follow),
        3 => (0..COMPONENTS).prop_map(I::MoveTag),
        1 => prop::option::of(0..COMPONENTS).prop_map(I::Follows),
        1 => (0..2_usize).prop_map(I::Settings),
        1 => prop_oneof![Just(OnDifference::Hold), Just(OnDifference::Proceed)].prop_map(I::Differences),
        1 => (0..100_u8).prop_map(I::Canary),
        1 => prop::option::of(window).prop_map(I::Window),
        2 => order.prop_map(I::Order),
    ]
}

fn qualities() -> impl Strategy<Value = [Quality; COMPONENTS]> {
    let quality = prop_oneof![
        3 => Just(Quality::Good),
        1 => Just(Quality::Untrusted),
        1 => Just(Quality::Incompatible),
        1 => Just(Quality::Particular),
        1 => Just(Quality::LooksUpDifferently),
        1 => Just(Quality::Writes),
        1 => Just(Quality::TrapsAsCanary),
        1 => Just(Quality::TrapsWhenActive),
    ];
    prop::array::uniform(quality)
}

impl Model {
    fn apply(&mut self, incident: Incident) {
        match incident {
            Incident::CarryOut(index, chosen, fate) => self.carry_out(index, chosen, fate),
            Incident::Run(leader, time) => self.run(leader, minutes(time)),
            Incident::Deliver(index) => self.deliver(index),
            Incident::DeliverStatus(index) => self.deliver_status(index),
            Incident::DeliverOldStatus(index, chosen) => self.deliver_old_status(index, chosen),
            Incident::Pass(time) => self.pass(minutes(time)),
            Incident::Measure(index) => self.measure(index),
            Incident::Restart(index) => self.restart(index),
            Incident::Lead(index) => self.lead(index),
            Incident::Follow(index) => self.send(index, Event::Follows),
            Incident::MoveTag(component) => self.tag = component,
            Incident::Follows(component) => {
                let tag = || Follow::Tag("stable".to_owned());
                let pin = |index| Follow::Digest(digest("component", index));
                self.change_spec(|spec| spec.follow = component.map_or_else(tag, pin));
            }
            Incident::Settings(index) => {
                self.change_spec(|spec| spec.settings = digest("settings", index));
            }
            Incident::Differences(choice) => self.change_spec(|spec| {
                spec.policy.lookups = choice;
                spec.policy.writes = choice;
            }),
            Incident::Canary(share) => self.change_spec(|spec| spec.policy.canary.share = share),
            Incident::Window(window) => self.change_spec(|spec| spec.policy.window = window),
            Incident::Order(kind) => self.order(kind),
        }
    }

    /// What the spec asks for, resolved now.
    fn wanted(&self) -> Release {
        let component = match &self.spec.follow {
            Follow::Digest(component) => *component,
            _ => digest("component", self.tag),
        };
        Release { component, settings: self.spec.settings }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn every_history_ends_with_one_active_release_on_all_replicas(
        qualities in qualities(),
        history in prop::collection::vec(incident(), 0..120),
        leader in 0..REPLICAS,
    ) {
        let mut model = Model::new(REPLICAS, qualities);
        for incident in history {
            model.apply(incident);
        }
        // Nothing fails any more. Windows open once a day.
        model.run(leader, minutes(3 * 24 * 60));
        let (rest, written) = (model.status(), model.written);
        model.run(leader, minutes(2 * 24 * 60));
        prop_assert_eq!(&rest, &model.status(), "the status rests");
        prop_assert_eq!(written, model.written, "nothing is written");

        let active = rest.active.as_ref().map(|version| version.release);
        let wanted = model.wanted();
        for index in 0..REPLICAS {
            prop_assert_eq!(model.serving(index), active, "every replica runs what is active");
            let others = NODES.iter().filter(|node| {
                model.replicas[index].state.roles().release_for(Call::Lookup { node }) != active
            });
            prop_assert!(rest.paused || others.count() == 0, "only a pause keeps a canary");
        }
        let is_rejected = rest.rejected.iter().any(|known| known.release == wanted);
        let is_held = rest.candidate.as_ref().is_some_and(|candidate| candidate.phase == Phase::Held);
        prop_assert!(active == Some(wanted) || is_rejected || is_held || rest.paused, "{rest:?}");
        prop_assert!(rest.paused || rest.observing.is_none());
    }
}

#[test]
fn a_model_with_a_good_component_ends_at_it() {
    let mut model = Model::new(REPLICAS, [Quality::Good; COMPONENTS]);
    model.run(1, minutes(5));
    model.tag = 3;
    model.run(2, minutes(120));
    for index in 0..REPLICAS {
        assert_eq!(model.serving(index), Some(release(3, 0)));
    }
    assert_eq!(model.status().previous.map(|version| version.release), Some(release(0, 0)));
}
