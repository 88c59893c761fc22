//! Tests of the owner of triggers.
#![allow(clippy::unwrap_used)]

use super::{
    core::{INTERVAL, Seen, TriggerAsk, TriggerEffect, TriggerErrand, TriggerInput, TriggersCore},
    marks::is_idle,
};
use crate::{
    job::fixtures::CountingIds,
    owner::{Effect, Owner as _},
};
use garrick_events::event::ControllerEvent;
use garrick_model::{
    ids::JobId,
    refusal::Refusal,
    state::{JobState, NodeFlags, NodePower},
    testing,
    time::Timestamp,
    trigger::{MOST, TriggerAbout, TriggerEvent, TriggerRequest, TriggerSelector},
    view::NodeView,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

struct Rig {
    core: TriggersCore,
    now: Timestamp,
}

impl Rig {
    fn new() -> Self {
        let mut rig = Self { core: TriggersCore::default(), now: Timestamp::from_secs(1_000_000) };
        rig.look(Seen::default());
        rig
    }

    fn handle(&mut self, input: TriggerInput) -> Vec<TriggerEffect> {
        let mut out = Vec::new();
        self.core.handle(self.now, &mut CountingIds { job: 0, sluid: 0 }, input, &mut out);
        out
    }

    /// Programs that run when it looks the next time.
    fn look(&mut self, seen: Seen) -> Vec<(String, String)> {
        self.now = self.now.plus(INTERVAL);
        let runs = |effect| match effect {
            Effect::Do(TriggerErrand::Run { program, argument, .. }) => Some((program, argument)),
            _ => None,
        };
        self.handle(TriggerInput::Seen(Box::new(seen))).into_iter().filter_map(runs).collect()
    }

    fn ask(&mut self, ask: TriggerAsk) -> Result<(), Refusal> {
        let out = self.handle(TriggerInput::Asked { request: 1, ask });
        let answers = out.into_iter().filter_map(|effect| match effect {
            Effect::Answer { answer, .. } => Some(answer),
            _ => None,
        });
        answers.last().unwrap()
    }

    fn set(&mut self, request: TriggerRequest) -> Result<(), Refusal> {
        self.ask(TriggerAsk::Set { uid: 7, most: 100, request })
    }
}

fn on(events: &[TriggerEvent], about: TriggerAbout) -> TriggerRequest {
    let events = events.iter().copied().collect();
    TriggerRequest { events, about, offset_secs: 0, program: "/bin/x".to_owned(), permanent: false }
}

fn nodes(happened: &[(&str, TriggerEvent)]) -> Seen {
    let mut nodes: BTreeMap<String, BTreeSet<TriggerEvent>> = BTreeMap::new();
    for (node, event) in happened {
        nodes.entry((*node).to_owned()).or_default().insert(*event);
    }
    Seen { nodes, ..Seen::default() }
}

fn idle(names: &[&str]) -> Seen {
    Seen { idle: names.iter().map(|name| (*name).to_owned()).collect(), ..Seen::default() }
}

fn job(state: JobState, end_in_secs: i64, now: Timestamp) -> Seen {
    let mut view = testing::job(5, testing::spec());
    view.state = state;
    view.end_time = Some(Timestamp(now.0 + 1000 * end_in_secs));
    Seen { jobs: BTreeMap::from([(JobId(5), Arc::new(view))]), ..Seen::default() }
}

fn ran(argument: &str) -> Vec<(String, String)> {
    vec![("/bin/x".to_owned(), argument.to_owned())]
}

const ANY: TriggerAbout = TriggerAbout::Nodes(Vec::new());

#[test]
fn a_program_runs_once_with_the_nodes_to_which_it_happened() {
    let mut rig = Rig::new();
    rig.set(on(&[TriggerEvent::Down], ANY)).unwrap();
    rig.set(TriggerRequest { permanent: true, ..on(&[TriggerEvent::Up], TriggerAbout::Nodes(vec!["n2".into()])) })
        .unwrap();
    assert_eq!(rig.look(nodes(&[("n1", TriggerEvent::Up)])), []);
    assert_eq!(rig.look(nodes(&[("n1", TriggerEvent::Down), ("n2", TriggerEvent::Down)])), ran("n[1-2]"));
    assert_eq!(rig.look(nodes(&[("n1", TriggerEvent::Down)])), [], "it is gone");
    for _ in 0..2 {
        assert_eq!(rig.look(nodes(&[("n1", TriggerEvent::Up), ("n2", TriggerEvent::Up)])), ran("n2"), "it stays");
    }
}

#[test]
fn it_is_gone_from_the_journal_before_its_program_runs() {
    let mut rig = Rig::new();
    rig.set(on(&[TriggerEvent::Down], ANY)).unwrap();
    let out = rig.handle(TriggerInput::Seen(Box::new(nodes(&[("n1", TriggerEvent::Down)]))));
    let run = out.iter().position(|effect| matches!(effect, Effect::Do(TriggerErrand::Run { .. }))).unwrap();
    let gone = Effect::Save(ControllerEvent::Trigger { trigger: 1, saved: None });
    assert!(out[..run].contains(&gone), "{out:?}");
}

#[test]
fn an_offset_puts_a_program_off() {
    let mut rig = Rig::new();
    rig.set(TriggerRequest { offset_secs: 20, ..on(&[TriggerEvent::Down], ANY) }).unwrap();
    assert_eq!(rig.look(nodes(&[("n1", TriggerEvent::Down)])), []);
    assert_eq!(rig.look(Seen::default()), []);
    assert_eq!(rig.look(Seen::default()), ran("n1"));
}

#[test]
fn nodes_that_stay_idle_are_told_once_each() {
    let mut rig = Rig::new();
    let request = on(&[TriggerEvent::Idle], ANY);
    rig.set(TriggerRequest { offset_secs: 30, permanent: true, ..request }).unwrap();
    assert_eq!(rig.look(idle(&["n1"])), []);
    assert_eq!(rig.look(idle(&["n1", "n2"])), []);
    assert_eq!(rig.look(idle(&["n1", "n2"])), ran("n1"));
    assert_eq!(rig.look(idle(&["n1", "n2"])), ran("n2"));
    assert_eq!(rig.look(idle(&["n1"])), []);
    assert_eq!(rig.look(idle(&["n1", "n2"])), []);
    assert_eq!(rig.look(idle(&["n1", "n2"])), []);
    assert_eq!(rig.look(idle(&["n1", "n2"])), ran("n2"), "it was busy in between");
}

#[test]
fn a_job_is_told_of_before_its_limit_and_at_its_end() {
    let mut rig = Rig::new();
    let of_job = TriggerAbout::Job(JobId(5));
    rig.set(TriggerRequest { offset_secs: -60, ..on(&[TriggerEvent::Time], of_job.clone()) }).unwrap();
    rig.set(on(&[TriggerEvent::Fini], of_job.clone())).unwrap();
    rig.set(on(&[TriggerEvent::Down], of_job)).unwrap();
    let now = rig.now;
    assert_eq!(rig.look(job(JobState::Running, 100, now)), []);
    let now = rig.now;
    assert_eq!(rig.look(job(JobState::Running, 70, now)), ran("5"));
    let now = rig.now;
    assert_eq!(rig.look(job(JobState::Completed, 0, now)), ran("5"));
    let all = TriggerSelector::default();
    assert_eq!(rig.ask(TriggerAsk::Clear { uid: 7, admin: true, which: all }), Err(Refusal::NoTrigger), "none is left");
}

#[test]
fn the_configuration_controllers_and_accounting_have_events() {
    let mut rig = Rig::new();
    rig.set(on(&[TriggerEvent::Reconfig], ANY)).unwrap();
    let of_cluster =
        |event, program: &str| TriggerRequest { program: program.into(), ..on(&[event], TriggerAbout::Controller) };
    rig.set(of_cluster(TriggerEvent::PrimaryResumed, "/bin/y")).unwrap();
    let stays = of_cluster(TriggerEvent::SlurmdbdFailed, "/bin/z");
    rig.set(TriggerRequest { permanent: true, ..stays }).unwrap();
    assert_eq!(rig.look(Seen::default()), []);
    assert_eq!(rig.look(Seen { configurations: 1, ..Seen::default() }), ran("*"));
    let mut see = |events: &[TriggerEvent]| {
        rig.look(Seen { configurations: 1, others: events.iter().copied().collect(), ..Seen::default() })
    };
    let ran = |program: &str| vec![(program.to_owned(), "*".to_owned())];
    assert_eq!(see(&[TriggerEvent::BackupFailed, TriggerEvent::DatabaseFailed]), []);
    assert_eq!(see(&[TriggerEvent::PrimaryFailed, TriggerEvent::PrimaryResumed]), ran("/bin/y"));
    assert_eq!(see(&[TriggerEvent::PrimaryResumed]), [], "it is gone");
    for _ in 0..2 {
        assert_eq!(see(&[TriggerEvent::SlurmdbdFailed]), ran("/bin/z"), "it stays");
    }
}

#[test]
fn a_program_runs_as_who_set_the_trigger_and_a_user_has_so_many() {
    let mut rig = Rig::new();
    let set = |rig: &mut Rig, program: &str| {
        let request = TriggerRequest { program: program.into(), ..on(&[TriggerEvent::Fail], ANY) };
        rig.ask(TriggerAsk::Set { uid: 9, most: 1, request })
    };
    set(&mut rig, "/bin/x").unwrap();
    assert!(matches!(set(&mut rig, "/bin/y"), Err(Refusal::Full { .. })));
    let out = rig.handle(TriggerInput::Seen(Box::new(nodes(&[("n1", TriggerEvent::Fail)]))));
    let argument = "n1".to_owned();
    let run = Effect::Do(TriggerErrand::Run { uid: 9, program: "/bin/x".to_owned(), argument });
    assert!(out.contains(&run), "{out:?}");
}

#[test]
fn users_triggers_leave_room_for_those_of_slurm_user() {
    let mut rig = Rig::new();
    let set = |rig: &mut Rig, uid, most, program: String| {
        let request = TriggerRequest { program, ..on(&[TriggerEvent::Fail], ANY) };
        rig.ask(TriggerAsk::Set { uid, most, request })
    };
    for n in 0..u32::try_from(MOST).unwrap() {
        set(&mut rig, 1000 + n, 1, "/bin/x".to_owned()).unwrap();
    }
    assert!(matches!(set(&mut rig, 9, 1, "/bin/x".to_owned()), Err(Refusal::Full { .. })));
    assert_eq!(set(&mut rig, 7, MOST, "/bin/y".to_owned()), Ok(()));
}

#[test]
fn what_happened_before_a_trigger_was_set_does_not_run_it() {
    let mut rig = Rig::new();
    rig.set(on(&[TriggerEvent::Down], ANY)).unwrap();
    let request = TriggerRequest { program: "/bin/y".to_owned(), ..on(&[TriggerEvent::Down], ANY) };
    let out = rig.handle(TriggerInput::Asked { request: 1, ask: TriggerAsk::Set { uid: 7, most: 100, request } });
    let look = out.iter().position(|e| matches!(e, Effect::Do(TriggerErrand::Look { before: 2, .. }))).unwrap();
    assert!(matches!(out[look + 1..], [Effect::Answer { answer: Ok(()), .. }]), "it looks before it answers: {out:?}");
    let before = Seen { before: Some(2), ..nodes(&[("n1", TriggerEvent::Down)]) };
    assert_eq!(rig.look(before), ran("n1"));
    assert_eq!(rig.look(nodes(&[("n2", TriggerEvent::Down)])), [("/bin/y".to_owned(), "n2".to_owned())]);
}

#[test]
fn a_trigger_stays_due_until_its_users_name_is_known() {
    let mut rig = Rig::new();
    rig.set(on(&[TriggerEvent::Down], ANY)).unwrap();
    let unknown = |seen| Seen { unknown: [7].into(), ..seen };
    assert_eq!(rig.look(unknown(nodes(&[("n1", TriggerEvent::Down)]))), []);
    assert_eq!(rig.look(unknown(Seen::default())), []);
    assert_eq!(rig.look(Seen::default()), ran("n1"));
    assert_eq!(rig.look(Seen::default()), [], "it is gone");
}

#[test]
fn a_node_that_fails_and_one_that_is_set_back_are_seen() {
    use super::marks::between;
    let node = testing::node(0, 4);
    let failing = NodeView { flags: NodeFlags { fail: true, ..node.flags }, ..node.clone() };
    assert_eq!(between(&node, &failing), [TriggerEvent::Fail].into());
    assert_eq!(between(&failing, &node), [TriggerEvent::Resume].into());
    assert!(!is_idle(&failing));
}

#[test]
fn only_root_and_who_set_it_remove_a_trigger() {
    let mut rig = Rig::new();
    let request = on(&[TriggerEvent::Down], ANY);
    assert_eq!(rig.set(request.clone()), Ok(()));
    assert_eq!(rig.set(request), Err(Refusal::TriggerExists));
    let clear = |uid, admin, id| {
        let which = TriggerSelector { id: Some(id), ..TriggerSelector::default() };
        TriggerAsk::Clear { uid, admin, which }
    };
    assert_eq!(rig.ask(clear(7, false, 2)), Err(Refusal::NoTrigger));
    assert_eq!(rig.ask(clear(8, false, 1)), Err(Refusal::AccessDenied));
    assert_eq!(rig.ask(clear(7, false, 1)), Ok(()));
}

#[test]
fn a_machine_that_is_off_silent_or_being_rebooted_is_not_idle() {
    let node = testing::node(0, 4);
    assert!(is_idle(&node));
    let off = NodeFlags { power: NodePower::PoweredDown, ..node.flags };
    let silent = NodeFlags { not_responding: true, ..node.flags };
    let boots = NodeFlags { reboot_issued: true, ..node.flags };
    let drained = NodeFlags { drain: true, ..node.flags };
    assert!([off, silent, boots, drained].into_iter().all(|flags| !is_idle(&NodeView { flags, ..node.clone() })));
}
