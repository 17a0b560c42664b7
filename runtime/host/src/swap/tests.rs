//! What each state does with the events that matter, and the times and limits of the policy.

use jiff::Timestamp;

use super::model::{COMPONENTS, Fate, Model, Quality, digest, minutes, release};
use super::*;

/// A leader and a standby. Component 0 is active, proven, and served by both.
fn settled(next: Quality) -> Model {
    let mut model = Model::new(2, [Quality::Good; COMPONENTS]);
    model.qualities[1] = next;
    model.settle(0);
    assert_eq!(active(&model), Some(release(0, 0)));
    model
}

/// A settled model whose tag has moved to component 1, up to the rest without time.
fn moved(next: Quality) -> Model {
    let mut model = settled(next);
    swap_to(&mut model, 1);
    model
}

fn swap_to(model: &mut Model, component: usize) {
    model.tag = component;
    model.pass(minutes(12 * 60));
    model.settle(0);
}

fn active(model: &Model) -> Option<Release> {
    model.status().active.map(|version| version.release)
}

fn previous(model: &Model) -> Option<Release> {
    model.status().previous.map(|version| version.release)
}

fn phase(model: &Model) -> Option<Phase> {
    model.status().candidate.map(|candidate| candidate.phase)
}

fn rejected(model: &Model) -> Vec<Release> {
    model.status().rejected.iter().map(|version| version.release).collect()
}

fn condition(model: &Model, kind: ConditionKind) -> bool {
    model.status().conditions.iter().any(|condition| condition.kind == kind && condition.holds)
}

fn is_canary(model: &Model) -> bool {
    matches!(phase(model), Some(Phase::Canary { .. }))
}

fn pass(model: &mut Model, time: i64) {
    model.measure(0);
    model.pass(minutes(time));
    model.settle(0);
}

fn order(model: &mut Model, kind: OrderKind) {
    model.order(kind);
    model.settle(0);
}

fn change(model: &mut Model, change: impl FnOnce(&mut Spec)) {
    model.change_spec(change);
    model.settle(0);
}

#[test]
fn a_good_candidate_passes_canary_and_observation() {
    let mut model = moved(Quality::Good);
    assert!(is_canary(&model));
    assert_eq!(active(&model), Some(release(0, 0)), "the canary is not active");
    pass(&mut model, 4);
    assert!(is_canary(&model));
    pass(&mut model, 1);
    assert_eq!((active(&model), previous(&model)), (Some(release(1, 0)), Some(release(0, 0))));
    assert!(model.status().observing.is_some());
    pass(&mut model, 9);
    assert!(model.status().observing.is_some());
    pass(&mut model, 1);
    assert_eq!(model.status().observing, None);
    assert!(condition(&model, ConditionKind::Ready) && !condition(&model, ConditionKind::Degraded));
    assert_eq!(model.serving(1), Some(release(1, 0)), "the standby follows");
}

#[test]
fn a_spec_that_can_not_be_used_is_said_and_the_one_before_stays() {
    let mut model = settled(Quality::Good);
    let message = |model: &Model| {
        let conditions = model.status().conditions;
        let degraded = conditions.into_iter().find(|condition| condition.kind == ConditionKind::Degraded);
        degraded.filter(|condition| condition.holds).map(|condition| condition.message)
    };
    let said = Some("the spec is invalid and not in use: spec.grants: wrong".to_owned());
    let invalid = || Event::InvalidSpec("spec.grants: wrong".to_owned());
    for index in [0, 1] {
        model.send(index, invalid());
    }
    let generation = model.status().observed_generation;
    let written = model.revision;
    while !model.replicas[0].pending.is_empty() {
        model.carry_out(0, 0, Fate::Succeeds);
        model.deliver_status(0);
    }
    assert_eq!((message(&model), model.revision), (said.clone(), written + 1), "one write");
    assert_eq!((model.status().observed_generation, active(&model)), (generation, Some(release(0, 0))));

    // A leader that knows no other spec continues what runs, tries again to say why, and says nothing else.
    model.restart(0);
    model.send(0, invalid());
    model.lead(0);
    assert_eq!(message(&model), said);
    while !model.replicas[0].pending.is_empty() {
        model.carry_out(0, 0, Fate::Succeeds);
        model.deliver_status(0);
    }
    assert_eq!((message(&model), model.revision), (said, written + 1));
    assert_eq!(model.serving(0), Some(release(0, 0)));
    model.change_spec(|_| {});
    model.settle(0);
    assert_eq!((message(&model), active(&model)), (None, Some(release(0, 0))));
    assert_eq!(model.status().observed_generation, generation + 1);
}

#[test]
fn an_invalid_spec_is_said_before_any_spec_was_read_also_after_a_failed_write() {
    let mut model = Model::new(1, [Quality::Good; COMPONENTS]);
    model.lead(0);
    model.send(0, Event::InvalidSpec("wrong".to_owned()));
    model.carry_out(0, 0, Fate::Fails);
    assert!(!condition(&model, ConditionKind::Degraded));
    let state = &model.replicas[0].state;
    let again = state.wake_at(model.now).expect("it is tried again");
    model.now = again;
    model.send(0, Event::Woke);
    model.carry_out(0, 0, Fate::Succeeds);
    assert!(condition(&model, ConditionKind::Degraded));
    assert_eq!(model.status().observed_generation, 0);
}

#[test]
fn a_provider_whose_claims_are_refused_is_not_ready_and_says_why() {
    let mut model = settled(Quality::Good);
    let since = model.revision;
    for refusal in [Some("an older provider claims the same".to_owned()), None] {
        model.send(0, Event::Refused(refusal.clone()));
        model.send(1, Event::Refused(refusal.clone()));
        model.settle(0);
        assert_eq!(condition(&model, ConditionKind::Ready), refusal.is_none());
        assert_eq!(condition(&model, ConditionKind::Degraded), refusal.is_some());
        let conditions = model.status().conditions;
        let ready = conditions.iter().find(|condition| condition.kind == ConditionKind::Ready).unwrap();
        assert_eq!(refusal.is_some(), Some(&ready.message) == refusal.as_ref());
    }
    assert_eq!(model.revision, since + 2, "one write for each change");
}

#[test]
fn each_defect_ends_where_it_shows_and_the_active_release_stays() {
    let rows = [
        (Quality::Untrusted, "Verify refuses it", false),
        (Quality::Incompatible, "Check refuses it", false),
        (Quality::TrapsAsCanary, "rejected as canary: 50 of 100 lookups and changes trapped", true),
        (Quality::TrapsWhenActive, "rolled back: 50 of 100 lookups and changes trapped", true),
    ];
    for (quality, why, serves) in rows {
        let mut model = moved(quality);
        assert_eq!(is_canary(&model), serves, "{quality:?}");
        for _ in 0..20 {
            pass(&mut model, 1);
        }
        assert_eq!(active(&model), Some(release(0, 0)), "{quality:?}");
        assert_eq!(rejected(&model), [release(1, 0)], "{quality:?}");
        let status = model.status();
        assert!(status.rejected[0].why.starts_with(why), "{quality:?}: {}", status.rejected[0].why);
        assert!(status.last_error.unwrap().message.contains(why), "{quality:?}");
        assert!(condition(&model, ConditionKind::Degraded), "{quality:?}");

        order(&mut model, OrderKind::SwapNow);
        assert_eq!(active(&model), Some(release(0, 0)), "no order activates what is rejected: {quality:?}");
        assert_eq!(model.status().swap_now, None, "{quality:?}");
        model.qualities[1] = Quality::Good;
        model.run(0, minutes(24 * 60));
        assert_eq!(active(&model), Some(release(0, 0)), "nor does time: {quality:?}");
        change(&mut model, |spec| spec.policy.drain = minutes(3));
        model.run(0, minutes(60));
        assert_eq!(active(&model), Some(release(1, 0)), "but a change of the spec does: {quality:?}");
    }
}

#[test]
fn differences_hold_the_candidate_unless_the_policy_or_an_order_lets_it_go_on() {
    for (quality, lookups, writes) in [(Quality::LooksUpDifferently, 1, 0), (Quality::Writes, 0, 1)] {
        let mut model = moved(quality);
        model.run(0, minutes(24 * 60));
        assert_eq!(phase(&model), Some(Phase::Held));
        let found = model.status().candidate.unwrap().differences.unwrap();
        assert_eq!((found.lookups, found.writes, found.shown.len()), (lookups, writes, 1));
        assert!(!condition(&model, ConditionKind::Progressing));
        order(&mut model, OrderKind::SwapNow);
        assert_eq!(active(&model), Some(release(1, 0)), "the order accepts what is shown");

        let mut model = moved(quality);
        change(&mut model, |spec| {
            spec.policy.lookups = OnDifference::Proceed;
            spec.policy.writes = OnDifference::Proceed;
        });
        assert!(is_canary(&model), "the policy accepts it");
        assert_eq!(model.status().candidate.unwrap().differences, Some(found), "and shows it");

        let mut model = settled(quality);
        model.tag = 1;
        pass(&mut model, 1);
        order(&mut model, OrderKind::SwapNow);
        assert_eq!(phase(&model), Some(Phase::Held), "an order from before accepts nothing");
    }
}

#[test]
fn a_swap_begins_in_its_window_or_by_order() {
    // The model is at 12:00.
    let window = TimeWindow { opens_minute: 13 * 60, lasts_minutes: 1 };
    let mut model = settled(Quality::Good);
    change(&mut model, |spec| spec.policy.window = Some(window));
    swap_to(&mut model, 1);
    assert_eq!(phase(&model), Some(Phase::Waiting));
    let wake = model.replicas[0].state.wake_at(model.now);
    assert_eq!(wake, Some("2026-01-01T13:00:00Z".parse::<Timestamp>().unwrap()));
    pass(&mut model, 60);
    assert!(is_canary(&model));
    pass(&mut model, 5);
    assert_eq!(active(&model), Some(release(1, 0)), "what has begun ends after the window");

    model.tag = 2;
    pass(&mut model, 5);
    order(&mut model, OrderKind::SwapNow);
    assert_eq!(active(&model), Some(release(2, 0)), "no window, canary or observation delays it");
    assert_eq!(previous(&model), Some(release(0, 0)), "a rollback skips what hasn't proven itself");
    assert_eq!(model.status().swap_now, None);
}

#[test]
fn a_pause_stops_swaps_but_not_the_rollback() {
    let mut model = settled(Quality::Good);
    order(&mut model, OrderKind::Pause);
    swap_to(&mut model, 1);
    model.run(0, minutes(60));
    assert_eq!((active(&model), phase(&model)), (Some(release(0, 0)), None));
    order(&mut model, OrderKind::Resume);
    assert!(is_canary(&model));

    for (quality, time) in [(Quality::TrapsAsCanary, 0), (Quality::TrapsWhenActive, 5)] {
        let mut model = moved(quality);
        if time > 0 {
            pass(&mut model, time);
        }
        order(&mut model, OrderKind::Pause);
        pass(&mut model, 1);
        pass(&mut model, 1);
        assert_eq!(rejected(&model), [release(1, 0)], "{quality:?}");
        assert_eq!(active(&model), Some(release(0, 0)), "{quality:?}");
    }
}

#[test]
fn the_order_to_roll_back_ends_a_canary_or_returns_to_the_previous_release_once() {
    let mut model = settled(Quality::Good);
    order(&mut model, OrderKind::Rollback);
    assert_eq!(active(&model), Some(release(0, 0)));
    assert!(model.status().last_error.unwrap().message.contains("no previous release"));
    swap_to(&mut model, 1);
    order(&mut model, OrderKind::Rollback);
    assert_eq!((active(&model), phase(&model)), (Some(release(0, 0)), None));
    assert_eq!(rejected(&model), [release(1, 0)]);

    swap_to(&mut model, 2);
    model.run(0, minutes(60));
    assert_eq!(active(&model), Some(release(2, 0)));
    order(&mut model, OrderKind::Rollback);
    assert_eq!((active(&model), previous(&model)), (Some(release(0, 0)), None));
    assert_eq!(rejected(&model), [release(1, 0), release(2, 0)]);

    swap_to(&mut model, 3);
    model.restart(0);
    model.run(1, minutes(60));
    assert_eq!(active(&model), Some(release(3, 0)), "the order isn't carried out again");
}

#[test]
fn new_settings_are_verified_and_checked_but_neither_fetched_nor_compiled() {
    let mut model = settled(Quality::Good);
    model.change_spec(|spec| spec.settings = digest("settings", 1));
    model.deliver(0);
    model.carry_out(0, 0, Fate::Succeeds);
    let mut stages = Vec::new();
    let stage_of = |action: &Action| match action {
        Action::Prepare { stage, .. } => Some(*stage),
        _ => None,
    };
    while let Some(chosen) = model.replicas[0].pending.iter().position(|action| stage_of(action).is_some()) {
        stages.extend(stage_of(&model.replicas[0].pending[chosen]));
        model.carry_out(0, chosen, Fate::Succeeds);
    }
    assert_eq!(stages, [Stage::Verify, Stage::Check]);
    model.run(0, minutes(60));
    assert_eq!((active(&model), previous(&model)), (Some(release(0, 1)), Some(release(0, 0))));
    order(&mut model, OrderKind::Rollback);
    assert_eq!((active(&model), rejected(&model)), (Some(release(0, 0)), vec![release(0, 1)]));
}

#[test]
fn a_newer_candidate_takes_the_place_of_an_older_one() {
    let mut model = moved(Quality::Good);
    change(&mut model, |spec| spec.follow = Follow::Digest(digest("component", 2)));
    assert!(is_canary(&model));
    assert_eq!(model.status().candidate.unwrap().release, release(2, 0), "{:?}", model.status());
    assert_eq!(rejected(&model), []);
}

#[test]
fn failures_that_may_pass_are_tried_again_after_growing_delays() {
    let mut model = Model::new(1, [Quality::Good; COMPONENTS]);
    model.lead(0);
    model.deliver(0);
    let mut delays = Vec::new();
    for _ in 0..9 {
        model.carry_out(0, 0, Fate::Fails);
        while matches!(model.replicas[0].pending.first(), Some(Action::WriteStatus { .. })) {
            model.carry_out(0, 0, Fate::Succeeds);
        }
        let wake = model.replicas[0].state.wake_at(model.now).unwrap();
        delays.push(wake.duration_since(model.now).as_secs());
        model.pass(wake.duration_since(model.now));
    }
    assert_eq!(delays, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
    assert!(condition(&model, ConditionKind::Degraded));
    model.settle(0);
    assert_eq!(active(&model), Some(release(0, 0)));
    assert!(!condition(&model, ConditionKind::Degraded));
}

#[test]
fn calls_of_a_replaced_release_are_aborted_at_the_deadline_and_it_stays_loaded_for_a_rollback() {
    let mut model = moved(Quality::Good);
    model.measure(0);
    model.pass(minutes(5));
    let is_drain = |action: &Action| matches!(action, Action::Drain { .. });
    while let Some(chosen) = model.replicas[0].pending.iter().position(|action| !is_drain(action)) {
        model.carry_out(0, chosen, Fate::Succeeds);
    }
    let drain = Action::Drain { release: release(0, 0), deadline: model.now + minutes(2) };
    assert_eq!(model.replicas[0].pending, [drain]);
    let state = model.replicas[0].state.clone();
    let (_, actions) = step(state.clone(), Event::Woke, model.now + minutes(2));
    assert_eq!(actions, [Action::Abort(release(0, 0))]);
    let (state, actions) = step(state, Event::Drained(release(0, 0)), model.now);
    assert_eq!(actions, []);
    assert_eq!(step(state, Event::Woke, model.now + minutes(2)).1, []);
}

#[test]
fn a_new_leader_that_holds_another_release_answers_lookups_but_changes_nothing() {
    let mut model = moved(Quality::Good);
    // The standby has lost what it had prepared of the candidate.
    model.restart(1);
    model.send(1, Event::Spec(model.spec.clone()));
    let mut old = model.status();
    old.candidate = None;
    model.send(1, Event::Status { revision: model.revision, status: old });
    while !model.replicas[1].pending.is_empty() {
        model.carry_out(1, 0, Fate::Succeeds);
    }
    assert_eq!(model.serving(1), Some(release(0, 0)));
    pass_leader_alone(&mut model);
    assert_eq!(active(&model), Some(release(1, 0)));
    model.send(0, Event::Follows);
    model.lead(1);
    assert_eq!(model.serving(1), None, "changes wait for the active release");
    let lookup = model.replicas[1].state.roles().release_for(Call::Lookup { node: "a" });
    assert_eq!(lookup, Some(release(0, 0)), "lookups don't");
    model.settle(1);
    assert_eq!(model.serving(1), Some(release(1, 0)));
}

fn pass_leader_alone(model: &mut Model) {
    model.measure(0);
    model.now += minutes(5);
    model.send(0, Event::Woke);
    while !model.replicas[0].pending.is_empty() {
        model.carry_out(0, 0, Fate::Succeeds);
    }
}

#[test]
fn a_write_that_was_stored_but_reported_as_failed_is_not_repeated_over_a_newer_one() {
    let mut model = settled(Quality::Good);
    model.order(OrderKind::Pause);
    model.deliver(0);
    model.carry_out(0, 0, Fate::IsLost);
    let revision = model.revision;
    assert!(model.status().paused);
    model.settle(0);
    assert_eq!(model.revision, revision, "the replica reads that its write was stored");
}

#[test]
fn the_canary_gets_its_share_of_the_nodes() {
    let model = moved(Quality::Good);
    let names: Vec<_> = (0..5000).map(|index| format!("node-{index}")).collect();
    let served = names.iter().filter(|node| {
        model.replicas[0].state.roles().release_for(Call::Lookup { node }) == Some(release(1, 0))
    });
    let count = served.count();
    assert!((900..1100).contains(&count), "{count} of 5000");
    assert_eq!(model.serving(0), Some(release(0, 0)));
}

#[test]
fn a_standby_that_refused_a_candidate_tries_it_again_once_it_is_active() {
    let mut model = settled(Quality::Good);
    model.tag = 1;
    model.pass(minutes(12 * 60));
    while !matches!(model.replicas[1].pending.first(), Some(Action::Prepare { .. })) {
        model.carry_out(0, 0, Fate::Succeeds);
        model.deliver_status(1);
        assert!(model.replicas[0].pending.len() + model.replicas[1].pending.len() > 0);
    }
    model.replicas[1].pending.clear();
    let failure = Failure { message: "the disk is full".to_owned(), is_permanent: true };
    let ended = Ended { release: release(1, 0), stage: Stage::Fetch, result: Err(failure) };
    model.send(1, Event::Prepared(ended));
    model.settle(0);
    pass(&mut model, 5);
    assert_eq!(active(&model), Some(release(1, 0)));
    assert_eq!(model.serving(1), None);
    pass(&mut model, 1);
    assert_eq!(model.serving(1), Some(release(1, 0)));
}

#[test]
fn a_candidate_takes_the_place_of_a_release_that_is_lost_only_by_order_and_is_compared_otherwise() {
    for comes_back in [false, true] {
        let mut model = settled(Quality::Good);
        model.missing = Some(0);
        (0..2).for_each(|index| model.restart(index));
        model.tag = 1;
        model.run(0, minutes(60));
        assert_eq!((active(&model), model.serving(0)), (Some(release(0, 0)), None));
        let problem = model.status().last_error.unwrap().message;
        assert!(problem.contains("doesn't have it") && problem.contains("order to swap"), "{problem}");
        let candidate = model.replicas[0].state.replica.holding(release(1, 0)).unwrap();
        assert_eq!(candidate.stage, Stage::Check, "it isn't checked beside nothing");
        if comes_back {
            model.missing = None;
            model.run(0, minutes(120));
            let found = model.status().previous.map(|version| version.release);
            assert_eq!((active(&model), found), (Some(release(1, 0)), Some(release(0, 0))));
        } else {
            order(&mut model, OrderKind::SwapNow);
            assert_eq!((active(&model), model.serving(1)), (Some(release(1, 0)), Some(release(1, 0))));
            assert!(model.status().active.unwrap().why.contains("can't be prepared"));
            // There is nothing to return to, so that the next release isn't held up.
            model.qualities[1] = Quality::TrapsWhenActive;
            model.run(0, minutes(60));
            assert!(model.status().last_error.unwrap().message.contains("no release to return to"));
            swap_to(&mut model, 2);
            model.run(0, minutes(60));
            assert_eq!(active(&model), Some(release(2, 0)));
        }
    }
}

#[test]
fn an_order_to_swap_ends_with_a_pause_a_hold_and_the_candidate_that_it_was_about() {
    let mut model = settled(Quality::Good);
    model.missing = Some(1);
    swap_to(&mut model, 1);
    order(&mut model, OrderKind::SwapNow);
    assert!(model.status().swap_now.is_some(), "the candidate can't be fetched yet");
    order(&mut model, OrderKind::Pause);
    model.missing = None;
    model.run(0, minutes(60));
    assert_eq!((active(&model), model.status().swap_now), (Some(release(0, 0)), None));

    let mut model = settled(Quality::Writes);
    model.tag = 1;
    pass(&mut model, 1);
    order(&mut model, OrderKind::SwapNow);
    assert_eq!((phase(&model), model.status().swap_now), (Some(Phase::Held), None));
    swap_to(&mut model, 2);
    assert!(is_canary(&model), "the order was about the release before");

    let mut model = settled(Quality::Good);
    model.missing = Some(1);
    model.tag = 1;
    pass(&mut model, 1);
    model.order(OrderKind::SwapNow);
    model.deliver(0);
    // The registry takes a minute to name the component that the order is about.
    pass(&mut model, 1);
    assert!(model.status().swap_now.is_some());
    swap_to(&mut model, 2);
    assert!(is_canary(&model), "the order was about the release before");
}

#[test]
fn a_clock_that_was_set_back_delays_no_job_and_no_comparison() {
    let mut model = settled(Quality::Good);
    model.missing = Some(1);
    swap_to(&mut model, 1);
    model.now -= minutes(24 * 60);
    model.missing = None;
    pass(&mut model, 0);
    assert!(is_canary(&model), "the fetch is tried again at once");
    model.now -= minutes(24 * 60);
    pass(&mut model, 4);
    assert!(is_canary(&model));
    pass(&mut model, 1);
    assert_eq!(active(&model), Some(release(1, 0)), "the canary began again when the clock changed");
    model.now -= minutes(24 * 60);
    pass(&mut model, 10);
    assert_eq!(model.status().observing, None);
    model.tag = 2;
    model.now -= minutes(24 * 60);
    pass(&mut model, 0);
    assert!(is_canary(&model), "the tag is resolved again at once");
}

#[test]
fn the_status_remembers_the_last_50_rejections() {
    let mut status = Status::default();
    let facts = |model: &Model| model.replicas[0].state.clone();
    let model = settled(Quality::Good);
    let State { spec: Some(spec), replica, leader: Some(leader), .. } = &facts(&model) else { panic!() };
    let facts =
        lead::Facts { spec, order: None, invalid_spec: None, refusal: None, replica, leader, now: model.now };
    for index in 0..60 {
        facts.reject(&mut status, release(index, 0), "it traps".to_owned());
    }
    assert_eq!(status.rejected.len(), 50);
    assert_eq!(status.rejected.last().map(|version| version.release), Some(release(59, 0)));
}

#[test]
fn an_order_accepts_only_the_differences_of_the_candidate_that_the_operator_saw() {
    let mut model = settled(Quality::Writes);
    model.qualities[2] = Quality::Writes;
    swap_to(&mut model, 1);
    let order = Order { number: 1, kind: OrderKind::SwapNow, seen: Some(digest("component", 1)) };
    swap_to(&mut model, 2);
    assert_eq!(phase(&model), Some(Phase::Held));
    model.order = Some(order);
    pass(&mut model, 1);
    assert_eq!((active(&model), phase(&model)), (Some(release(0, 0)), Some(Phase::Held)));
    model.order = Some(Order { number: 2, seen: Some(digest("component", 2)), ..order });
    pass(&mut model, 1);
    assert_eq!(active(&model), Some(release(2, 0)));
}

#[test]
fn no_text_makes_a_status_too_large() {
    let endless = "ä".repeat(40_000);
    let mut model = settled(Quality::Good);
    model.tag = 1;
    model.pass(minutes(12 * 60));
    model.carry_out(0, 0, Fate::Succeeds);
    model.carry_out(0, 0, Fate::Succeeds);
    let failure = Failure { message: endless.clone(), is_permanent: true };
    let ended = Ended { release: release(1, 0), stage: Stage::Fetch, result: Err(failure) };
    model.send(0, Event::Prepared(ended));
    model.settle(0);
    assert_eq!(rejected(&model), [release(1, 0)]);
    let text = serde_json::to_string(&model.status()).unwrap();
    assert!(text.len() < 10_000, "{}", text.len());

    let found = vec![Difference::Write(endless); 100];
    let mut dry = settled(Quality::Good);
    dry.tag = 1;
    dry.pass(minutes(12 * 60));
    while dry.replicas[0].pending.iter().all(|action| !matches!(action, Action::Compare { .. })) {
        dry.carry_out(0, 0, Fate::Succeeds);
        dry.deliver_status(0);
    }
    let compared = Event::Compared { candidate: release(1, 0), active: release(0, 0), result: Ok(found) };
    dry.send(0, compared);
    dry.settle(0);
    let differences = dry.status().candidate.unwrap().differences.unwrap();
    assert_eq!((differences.writes, differences.shown.len()), (100, 20));
    assert!(differences.shown.iter().all(|words| words.len() < 1100));
}
