//! Time series of steps are collected at their times.

use super::*;
use crate::shepherd::series::SeriesConfig;
use garrick_model::{
    profile::{Profiling, Series, SeriesSet},
    sampling::Periods,
};

fn set(words: &str) -> SeriesSet {
    SeriesSet::parse(words).unwrap()
}

/// A site that can collect all series but of file systems, and none without being asked.
fn site() -> Rig {
    let mut rig = Rig::new();
    rig.core.config.look_every = Some(Duration::from_secs(30));
    let periods = Periods { energy: Some(2), ..Periods::default() };
    rig.core.config.series =
        Some(SeriesConfig { usual: SeriesSet::default(), there: set("energy,network,task"), periods });
    rig
}

fn asked(words: &str, network: Option<u32>) -> Profiling {
    Profiling { series: Some(set(words)), periods: Periods { network, ..Periods::default() } }
}

/// Only what is about time series.
fn collected(effects: &[ShepherdEffect]) -> Vec<&ShepherdEffect> {
    let is_about = |effect: &&ShepherdEffect| {
        matches!(
            effect,
            ShepherdEffect::Record { .. }
                | ShepherdEffect::RecordEnd { .. }
                | ShepherdEffect::SetTimer { timer: ShepherdTimer::Series, .. }
        )
    };
    effects.iter().filter(is_about).collect()
}

fn record(series: &[Series], last: bool) -> ShepherdEffect {
    ShepherdEffect::Record { step: step(), series: series.to_vec().into(), last }
}

fn timer(secs: u64) -> ShepherdEffect {
    ShepherdEffect::SetTimer { timer: ShepherdTimer::Series, after: Duration::from_secs(secs) }
}

/// The timer has run out so many seconds later.
fn later(rig: &mut Rig, secs: u64) -> Vec<ShepherdEffect> {
    rig.now = rig.now.plus(Duration::from_secs(secs));
    rig.tell(ShepherdInput::Timer(ShepherdTimer::Series))
}

#[test]
fn the_node_is_sampled_at_the_times_of_each_series_while_the_step_runs() {
    let mut rig = site();
    let begun = rig.launch(|launch, _| launch.profiling = asked("all", Some(3)), 1);
    let both = [Series::Energy, Series::Network];
    assert_eq!(collected(&begun), [&record(&both, false), &timer(2)]);
    assert_eq!(later(&mut rig, 2), [record(&[Series::Energy], false), timer(1)]);
    assert_eq!(later(&mut rig, 1), [record(&[Series::Network], false), timer(1)]);
    assert_eq!(later(&mut rig, 1), [record(&[Series::Energy], false), timer(2)]);
    // Late: both, and the next ones a whole period later.
    assert_eq!(later(&mut rig, 9), [record(&both, false), timer(2)]);
    let ended = rig.exited(1, 0);
    let [end, last] = collected(&ended)[..] else { panic!("{ended:?}") };
    assert!(matches!(end, ShepherdEffect::RecordEnd { rank: 0, .. }), "{end:?}");
    assert_eq!(last, &record(&both, true));
    assert_eq!(later(&mut rig, 2), [], "nothing runs");
}

#[test]
fn what_is_not_asked_for_is_not_collected_and_zero_is_never() {
    let mut rig = site();
    let begun = rig.launch(|_, _| {}, 1);
    assert_eq!(collected(&begun), Vec::<&ShepherdEffect>::new());
    let mut rig = site();
    // File systems cannot be sampled here.
    let begun = rig.launch(|launch, _| launch.profiling = asked("filesystem,network", Some(0)), 1);
    assert_eq!(collected(&begun), Vec::<&ShepherdEffect>::new());
    let mut rig = site();
    let begun = rig.launch(|launch, _| launch.profiling = asked("network", None), 1);
    assert_eq!(collected(&begun), [&record(&[Series::Network], false), &timer(30)], "as often as tasks");
    let mut rig = Rig::new();
    let begun = rig.launch(|launch, _| launch.profiling = asked("all", Some(1)), 1);
    assert_eq!(collected(&begun), Vec::<&ShepherdEffect>::new(), "the site collects nothing");
    assert_eq!(collected(&rig.exited(1, 0)), Vec::<&ShepherdEffect>::new());
}

#[test]
fn looks_say_whose_samples_are_recorded_and_labels_what_to_go_on_with() {
    let mut rig = site();
    let effects = rig.launch(|launch, _| launch.profiling = asked("task", None), 1);
    let spawned = spawns(&effects)[0].label;
    assert_eq!(spawned.profiling.series, Some(set("task")));
    let looked = rig.tell(ShepherdInput::Timer(ShepherdTimer::Look));
    let ShepherdEffect::Look { tasks } = &looked[0] else { panic!("{looked:?}") };
    assert!(tasks[0].recorded);
    // Another `stepd` adopts the task.
    let mut next = site();
    let held = TaskHeld { token: 1, pid: 101, label: spawned, error_path: None };
    next.tell(ShepherdInput::Adopted { tasks: vec![held], ended: Vec::new(), complete: true });
    let looked = next.tell(ShepherdInput::Timer(ShepherdTimer::Look));
    let ShepherdEffect::Look { tasks } = &looked[0] else { panic!("{looked:?}") };
    assert!(tasks[0].recorded);
}
