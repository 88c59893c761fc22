#![allow(clippy::unwrap_used)]
use super::*;
use crate::{
    event::{ControllerEvent, Replayed},
    records::{
        job::{Afterwards, End},
        job_event::JobEvent,
    },
    testing::{cancelled, record},
};
use garrick_model::{
    ids::{JobId, Sluid},
    node_shape::NodeShare,
    resources::MemoryMib,
    state::{JobState, Reason},
    testing::{allocated, spec},
    time::TimeLimit,
    view::Allocation,
};
use proptest::prelude::*;

const DAY: i64 = 86_400;

fn secs(at: i64) -> Timestamp {
    Timestamp::from_secs(at)
}

fn who(user: &str) -> Who {
    Who { account: "physics".to_owned(), user: user.to_owned(), partition: None }
}

/// A run of one node with so many CPUs and as many GiB.
fn run(user: &str, cpus: u32, billing: u64, factor: f64, start: Timestamp) -> Run {
    let share = NodeShare {
        cpus: (0..cpus).collect(),
        memory: Some(MemoryMib(1024 * u64::from(cpus))),
        ..NodeShare::default()
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
    let factor_millionths = (factor * MILLION).round() as u64;
    let charge = Charge {
        who: Some(who(user)),
        qos: ["normal".to_owned(), "free".to_owned()].into(),
        billing,
        factor_millionths,
    };
    Run {
        allocation: Arc::new(Allocation {
            nodes: vec![allocated("n1", 0, share)],
            partition: "main".to_owned(),
            exclusive: false,
            licenses: Default::default(),
            reservation: None,
        }),
        addresses: vec![String::new()],
        start,
        time_limit: TimeLimit::Unlimited,
        started: None,
        door: String::new(),
        released: [].into(),
        ending: None,
        kept: [].into(),
        lost: [].into(),
        epilog_failed: false,
        after_failure: None,
        continued: false,
        preempted: None,
        leave_by: None,
        suspended: None,
        parts: Vec::new(),
        booting: [].into(),
        requeue: None,
        awaits_prolog: false,
        awaits_epilog: false,
        charge: Some(Arc::new(charge)),
        sluid: None,
        backfilled: false,
        waited_for: Reason::None,
        chosen_qos: None,
    }
}

fn ended(at: Timestamp) -> JobEvent {
    JobEvent::Ended(End { state: JobState::Completed, at, then: Afterwards::Over, ..cancelled() })
}

fn of(job: u32, event: JobEvent) -> ControllerEvent {
    ControllerEvent::Job { job: JobId(job), event: Box::new(event) }
}

fn rules(at: Timestamp, half_life_secs: u64, next_reset: Option<Timestamp>) -> ControllerEvent {
    let rules = UsageRules { half_life_secs, next_reset, no_decay: ["free".to_owned()].into() };
    ControllerEvent::Usage(Box::new(UsageEvent::Rules { at, rules }))
}

fn begun(job: u32) -> ControllerEvent {
    let mut record = record(job, spec());
    record.sluid = Sluid(u64::from(job));
    of(job, JobEvent::Submitted(Box::new(record)))
}

fn used(state: &Replayed, user: &str, now: Timestamp) -> Used {
    state.usage.used_by_users(now).find(|(of, _)| **of == who(user)).map(|(_, used)| used).unwrap_or_default()
}

fn in_qos(state: &Replayed, name: &str, now: Timestamp) -> Used {
    state.usage.used_by_qos(now).find(|(of, _)| *of == name).map(|(_, used)| used).unwrap_or_default()
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * (1.0 + a.abs().max(b.abs()))
}

#[test]
fn usage_halves_in_a_half_life_and_is_the_closed_form_while_a_job_runs() {
    let mut state = Replayed::default();
    let life = 7 * DAY;
    for event in [
        rules(secs(0), life.unsigned_abs(), None),
        begun(1),
        of(1, JobEvent::Allocated(Box::new(run("alice", 4, 6, 1.0, secs(1000))))),
    ] {
        state.apply(&event).unwrap();
    }
    // In a time that is short for the half-life, just the product.
    let short = used(&state, "alice", secs(1010));
    assert!((short.billed() - 60.0).abs() < 0.001 && (short.tres["cpu"] - 40.0).abs() < 0.001, "{short:?}");
    assert!((short.wall_secs - 10.0).abs() < 0.001 && (short.tres["mem"] - 40_960.0).abs() < 1.0, "{short:?}");
    // A job that runs for ever comes to rate * H / ln 2.
    let most = 4.0 * 604_800.0 / LN_2;
    assert!(near(used(&state, "alice", secs(1000 + 400 * DAY)).tres["cpu"], most));
    state.apply(&of(1, ended(secs(1000 + DAY)))).unwrap();
    let at_end = used(&state, "alice", secs(1000 + DAY));
    let later = used(&state, "alice", secs(1000 + DAY + life));
    assert!(near(at_end.tres["cpu"], 2.0 * later.tres["cpu"]) && near(at_end.billed(), 2.0 * later.billed()));
    let (_, meter) = state.usage.users().next().unwrap();
    assert_eq!((meter.running, meter.tres["cpu"].rate), (0, 0.0));
    // NoDecay.
    assert!(near(in_qos(&state, "free", secs(1000 + 9 * life)).tres["cpu"], 4.0 * 86_400.0));
    assert!(near(in_qos(&state, "normal", secs(1000 + DAY + life)).tres["cpu"], later.tres["cpu"]));
}

#[test]
fn jobs_that_are_suspended_or_charged_to_nobody_use_nothing() {
    let mut state = Replayed::default();
    let mut nobody = run("bob", 8, 8, 1.0, secs(100));
    nobody.charge = None;
    let stopped = |at| JobEvent::Stopped { at: secs(at), by_admin: true, yielded: None, waits_turn: false };
    for event in [
        rules(secs(0), 0, None),
        begun(1),
        begun(2),
        of(1, JobEvent::Allocated(Box::new(run("alice", 2, 2, 0.5, secs(100))))),
        of(2, JobEvent::Allocated(Box::new(nobody))),
        of(1, JobEvent::Started { at: secs(100), door: String::new() }),
        of(1, stopped(110)),
        of(1, JobEvent::Continued { at: secs(150) }),
        of(1, ended(secs(160))),
    ] {
        state.apply(&event).unwrap();
    }
    let used = used(&state, "alice", secs(1000));
    assert!(near(used.billed(), 20.0) && near(used.wall_secs, 20.0), "{used:?}");
    assert_eq!(state.usage.users().count(), 1);
}

#[test]
fn who_is_set_to_0_begins_anew_and_the_others_go_on() {
    let mut state = Replayed::default();
    let reset = |at, user: &str| {
        let event = UsageEvent::Reset { at: secs(at), users: vec![who(user)], qos: Vec::new(), asked: None };
        ControllerEvent::Usage(Box::new(event))
    };
    for event in [
        rules(secs(0), 0, None),
        begun(1),
        begun(2),
        of(1, JobEvent::Allocated(Box::new(run("alice", 2, 2, 1.0, secs(100))))),
        of(2, JobEvent::Allocated(Box::new(run("bob", 2, 2, 1.0, secs(100))))),
        reset(150, "alice"),
        reset(150, "carol"),
    ] {
        state.apply(&event).unwrap();
    }
    assert!(near(used(&state, "alice", secs(160)).billed(), 20.0));
    assert!(near(used(&state, "bob", secs(160)).billed(), 120.0));
    let (_, meter) = state.usage.users().next().unwrap();
    assert!(meter.is_older_than(secs(151)) && !meter.is_older_than(secs(150)));
}

/// One job of a made-up history: who, CPUs, factor in quarters, start, and how long it runs, stands, and runs again.
type Made = (u8, u32, u32, i64, i64, i64, i64);

fn user(number: u8) -> &'static str {
    ["alice", "bob", "carol"][usize::from(number % 3)]
}

/// The integral of decayed usage of a rate between two moments, as of `now`.
fn integral(rate: f64, from: i64, to: i64, now: i64, half_life: u64, since: i64) -> f64 {
    let (from, to) = (from.max(since), to.min(now));
    if from >= to {
        return 0.0;
    }
    let ago = |at: i64| f64::from(i32::try_from(now - at).unwrap());
    if half_life == 0 {
        return rate * f64::from(i32::try_from(to - from).unwrap());
    }
    let life = wide(half_life);
    rate * life / LN_2 * ((-ago(to) / life).exp2() - (-ago(from) / life).exp2())
}

/// What a user used, straight from the records.
fn recomputed(jobs: &[Made], name: &str, now: i64, half_life: u64, since: i64) -> f64 {
    let of_user = jobs.iter().filter(|job| user(job.0) == name);
    of_user
        .map(|&(_, cpus, quarters, start, first, stands, second)| {
            let rate = f64::from(cpus * 2) * f64::from(quarters) / 4.0;
            let again = start + first + stands;
            integral(rate, start, start + first, now, half_life, since)
                + integral(rate, again, again + second, now, half_life, since)
        })
        .sum()
}

/// The events of that history in the order in which they happen.
fn history(jobs: &[Made]) -> Vec<(i64, ControllerEvent)> {
    let mut events = Vec::new();
    for (number, &(name, cpus, quarters, start, first, stands, second)) in jobs.iter().enumerate() {
        let job = u32::try_from(number).unwrap() + 1;
        let run = run(user(name), cpus, u64::from(cpus) * 2, f64::from(quarters) / 4.0, secs(start));
        let stopped = JobEvent::Stopped { at: secs(start + first), by_admin: false, yielded: None, waits_turn: false };
        let again = start + first + stands;
        events.push((start, begun(job)));
        events.push((start, of(job, JobEvent::Allocated(Box::new(run)))));
        events.push((start, of(job, JobEvent::Started { at: secs(start), door: String::new() })));
        events.push((start + first, of(job, stopped)));
        events.push((again, of(job, JobEvent::Continued { at: secs(again) })));
        events.push((again + second, of(job, ended(secs(again + second)))));
    }
    events.sort_by_key(|(at, _)| *at);
    events
}

proptest! {
    /// Whatever happens, the usage is the integral over what the records say, and a controller that starts again in between, from a
    /// snapshot and what follows it, has exactly the same.
    #[test]
    fn usage_is_that_of_the_records(
        jobs in proptest::collection::vec((0..3_u8, 1..64_u32, 0..8_u32, 1..40 * DAY, 1..DAY, 0..DAY, 1..5 * DAY), 1..20),
        half_life in prop_oneof![Just(0), 60..30 * 86_400_u64],
        reset in proptest::option::of(1..40 * DAY),
        cut in 0..100_usize,
    ) {
        let mut state = Replayed::default();
        let mut events = vec![(0, rules(secs(0), half_life, reset.map(secs)))];
        events.extend(history(&jobs));
        let cut = cut * events.len() / 100;
        for (number, (_, event)) in events.iter().enumerate() {
            if number == cut {
                let mut again = Replayed::default();
                state.clone().into_events().for_each(|event| again.apply(&event).unwrap());
                prop_assert_eq!(&again, &state);
                state = again;
            }
            state.apply(event).unwrap();
        }
        for now in [50 * DAY, 60 * DAY] {
            for name in ["alice", "bob", "carol"] {
                let (want, got) = (recomputed(&jobs, name, now, half_life, reset.unwrap_or(0)), used(&state, name, secs(now)).billed());
                prop_assert!(near(want, got), "{} {} {}", name, want, got);
            }
        }
        let all: f64 = ["alice", "bob", "carol"].iter().map(|name| recomputed(&jobs, name, 50 * DAY, 0, 0)).sum();
        prop_assert!(near(in_qos(&state, "free", secs(50 * DAY)).billed(), all));
    }

    /// Events about a moment that is past count the same as if they had come in time.
    #[test]
    fn late_events_count_from_when_it_happened(
        jobs in proptest::collection::vec((0..1_u8, 1..64_u32, 1..8_u32, 100..40 * DAY, 1..DAY, 0..DAY, 1..DAY), 2..8),
        half_life in prop_oneof![Just(0), 60..30 * 86_400_u64],
    ) {
        let mut state = Replayed::default();
        let mut events = vec![(0, rules(secs(0), half_life, None))];
        // The first job is there from the beginning: before its start, nobody has a meter.
        let first = (0, 1, 4, 1, 1, 0, 1);
        let jobs: Vec<Made> = [first].into_iter().chain(jobs).collect();
        // Job by job, not by time.
        for (number, job) in jobs.iter().enumerate() {
            let mut own = history(&jobs[..=number]);
            own.retain(|(_, event)| matches!(event, ControllerEvent::Job { job, .. } if job.0 as usize == number + 1));
            let _ = job;
            events.extend(own);
        }
        events.iter().for_each(|(_, event)| state.apply(event).unwrap());
        let (want, got) = (recomputed(&jobs, "alice", 60 * DAY, half_life, 0), used(&state, "alice", secs(60 * DAY)).billed());
        prop_assert!(near(want, got), "{} {}", want, got);
    }
}
