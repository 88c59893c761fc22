//! Running tasks are looked at, and the energy of steps is read.

use super::*;
use crate::shepherd::LookedAt;
use garrick_model::usage::TaskSample;

fn timer(secs: u64) -> ShepherdEffect {
    ShepherdEffect::SetTimer { timer: ShepherdTimer::Look, after: Duration::from_secs(secs) }
}

fn timers(effects: &[ShepherdEffect]) -> Vec<&ShepherdEffect> {
    effects.iter().filter(|effect| matches!(effect, ShepherdEffect::SetTimer { .. })).collect()
}

fn every(secs: u64) -> Rig {
    let mut rig = Rig::new();
    rig.core.config.look_every = Some(Duration::from_secs(secs));
    rig
}

const fn at(token: u64, rank: u32, pid: Option<u32>) -> LookedAt {
    LookedAt { token, step: step(), rank, pid, recorded: false }
}

fn sample(rss: u64, vsize: u64) -> TaskSample {
    TaskSample { rss, vsize, ..TaskSample::default() }
}

/// What a task's end is told with.
fn told(effects: &[ShepherdEffect]) -> TaskUsage {
    match effects {
        [ShepherdEffect::ToManager(ShepherdToStepMgr::TaskExited { end, .. })] => end.usage,
        other => panic!("{other:?}"),
    }
}

#[test]
fn running_tasks_are_looked_at_as_often_as_the_site_or_the_step_says() {
    let mut rig = every(30);
    assert_eq!(timers(&rig.launch(|_, _| {}, 2)), [&timer(1)], "early for the first time");
    rig.spawned(1);
    let look = |tasks| ShepherdEffect::Look { tasks };
    let first = rig.tell(ShepherdInput::Timer(ShepherdTimer::Look));
    assert_eq!(first, [look(vec![at(1, 0, Some(101)), at(2, 1, None)]), timer(30)]);
    let seen = vec![(1, sample(7 << 20, 90 << 20)), (2, sample(1 << 20, 5 << 20)), (9, sample(1, 1))];
    assert_eq!(rig.tell(ShepherdInput::Looked { seen }), []);
    assert_eq!(rig.tell(ShepherdInput::Looked { seen: vec![(1, sample(3 << 20, 4 << 20))] }), []);
    let end = told(&rig.exited(1, 0));
    assert_eq!((end.max_rss_kib, end.max_vm_kib), (7 << 10, 90 << 10));
    // What comes later is of no use any more.
    assert_eq!(rig.tell(ShepherdInput::Looked { seen: vec![(1, sample(9, 9))] }), []);
    assert_eq!(rig.tell(ShepherdInput::Timer(ShepherdTimer::Look)), [look(vec![at(2, 1, None)]), timer(30)]);
    assert_eq!(told(&rig.exited(2, 0)).max_vm_kib, 5 << 10);
    assert_eq!(rig.tell(ShepherdInput::Timer(ShepherdTimer::Look)), [], "until something starts again");
    assert_eq!(timers(&rig.launch(|launch, _| launch.sample_secs = Some(7), 1)), [&timer(1)]);
    let own = rig.tell(ShepherdInput::Timer(ShepherdTimer::Look));
    assert_eq!(own, [look(vec![at(3, 0, None)]), timer(7)]);
}

#[test]
fn steps_that_are_not_to_be_looked_at_set_no_timer() {
    let mut rig = every(30);
    assert!(timers(&rig.launch(|launch, _| launch.sample_secs = Some(0), 1)).is_empty());
    assert_eq!(rig.tell(ShepherdInput::Timer(ShepherdTimer::Look)), []);
    let mut never = Rig::new();
    assert!(timers(&never.launch(|_, _| {}, 1)).is_empty());
    // What is looked at for somebody counts all the same.
    let tasks = vec![TaskSample { rank: 0, ..sample(2 << 20, 8 << 20) }];
    let said = never.tell(ShepherdInput::Sampled { step: step(), query: 3, tasks: tasks.clone() });
    assert_eq!(said, [ShepherdEffect::ToManager(ShepherdToStepMgr::Sampled { step: step(), query: 3, tasks })]);
    assert_eq!(told(&never.exited(1, 0)).max_vm_kib, 8 << 10);
}

#[test]
fn a_step_that_is_looked_at_more_often_brings_the_next_look_forward() {
    let mut rig = every(30);
    rig.launch(|_, _| {}, 1);
    rig.tell(ShepherdInput::Timer(ShepherdTimer::Look));
    let mut launch = launch();
    launch.sample_secs = Some(5);
    let other = StepId::new(JobId(502), StepNum::Number(4));
    let start = StepStart { step: other, ..start(Arc::new(launch), share(), 1) };
    let effects = rig.manager(StepMgrToShepherd::Launch(Box::new(start)));
    assert_eq!(timers(&effects), [&timer(5)]);
    let both = rig.tell(ShepherdInput::Timer(ShepherdTimer::Look));
    let tasks = vec![at(1, 0, None), LookedAt { step: other, ..at(2, 0, None) }];
    assert_eq!(both, [ShepherdEffect::Look { tasks }, timer(5)]);
}

#[test]
fn the_energy_of_a_step_is_told_with_its_last_task() {
    let mut rig = Rig::new();
    rig.core.config.meters_energy = true;
    let launched = rig.launch(|_, _| {}, 2);
    let start = launched.iter().position(|effect| *effect == ShepherdEffect::StartMeter { step: step() }).unwrap();
    let spawn = launched.iter().position(|effect| !spawns(std::slice::from_ref(effect)).is_empty()).unwrap();
    assert!(start < spawn);
    assert_eq!(timers(&launched), [&timer(1)], "counters overflow if nobody reads them");
    assert_eq!(told(&rig.exited(2, 0)).energy_joules, 0);
    let last = rig.tell(ended(1, ExitStatus::SUCCESS, false));
    assert_eq!(last, [ShepherdEffect::ReadMeter { token: 1, step: step() }]);
    let read = rig.ends(1, ShepherdInput::MeterRead { token: 1, joules: 40 });
    assert_eq!(told(&read).energy_joules, 40);
}
