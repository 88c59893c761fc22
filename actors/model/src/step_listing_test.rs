#![allow(clippy::unwrap_used)]
use super::*;
use crate::{
    cpu_freq::{CpuFreq, Frequency, Governor},
    ids::{JobId, StepKey},
    resources::MemoryMib,
    spec::ArraySpec,
    state::{ExitStatus, Reason},
    step_selector::WhichSteps,
    testing::step,
    time::{TimeLimit, Timestamp},
    usage::TaskUsage,
};

fn view(number: u32, state: StepState) -> StepView {
    StepView {
        name: "a".into(),
        state,
        uid: 0,
        partition: "p".into(),
        end_time: (state == StepState::Completed).then_some(Timestamp(i64::from(number))),
        ..step(StepId::of(JobId(5), StepKey::number(number)))
    }
}

fn numbers(steps: &[StepView]) -> Vec<u32> {
    steps.iter().filter_map(|s| s.id.step.number()).collect()
}

#[test]
fn estimates_are_not_below_what_travels() {
    let mut large = view(u32::MAX, StepState::Failed);
    large.id = StepId::of(JobId(u32::MAX), StepKey::task(u32::MAX, u32::MAX));
    large.reason = Reason::Other("because".repeat(10));
    large.start_time = Some(Timestamp(i64::MAX));
    large.end_time = Some(Timestamp(i64::MAX));
    large.time_limit = TimeLimit::Secs(u32::MAX.into());
    (large.uid, large.nodes, large.cpus, large.tasks) = (u32::MAX, u32::MAX, u32::MAX, u32::MAX);
    (large.attempt, large.priority) = (u32::MAX, i32::MIN);
    large.exit = ExitStatus { code: 255, signal: Some(64) };
    large.usage = TaskUsage {
        user_us: u64::MAX,
        system_us: u64::MAX,
        max_rss_kib: u64::MAX,
        rss_is_bound: true,
        max_vm_kib: u64::MAX,
        pages: u64::MAX,
        read: u64::MAX,
        written: u64::MAX,
        energy_joules: u64::MAX,
        gpu_memory_kib: u64::MAX,
        gpu_percent: u64::MAX,
        frequency_khz: u64::MAX,
    };
    large.memory = MemoryMib(u64::MAX);
    large.cpu_freq = Some(CpuFreq::Range(Frequency::Khz(u32::MAX), Frequency::Khz(u32::MAX), Governor::Conservative));
    large.srun = Some(("host".repeat(9), u32::MAX));
    large.submit_line = "x".repeat(70_000);
    let ranges = vec![(u32::MAX - 1, u32::MAX, u32::MAX); 100];
    large.waiting = Some(WhichSteps::Tasks { step: u32::MAX, tasks: ArraySpec { ranges, limit: Some(u32::MAX) } });
    for view in [view(0, StepState::Pending), large] {
        let travels = rmp_serde::to_vec_named(&view).unwrap().len();
        assert!(frame_bytes(&view) >= travels, "{} < {travels}", frame_bytes(&view));
    }
}

#[test]
fn what_fits_is_all_there_in_order() {
    let mut list = StepListing::default();
    list.add([view(3, StepState::Pending), view(1, StepState::Completed)], 0);
    list.add([view(2, StepState::Running)], 0);
    let (steps, left_out) = list.finish();
    assert_eq!((numbers(&steps), left_out), (vec![1, 2, 3], 0));
}

#[test]
fn without_room_running_steps_stay_then_waiting_ones_then_the_newest_that_ended() {
    let room = 4 * (FIXED_BYTES + 2);
    let mut list = StepListing::with_room(room);
    list.add((0..10).map(|n| view(n, StepState::Completed)), 7);
    list.add([view(20, StepState::Pending), view(30, StepState::Running)], 0);
    let (steps, left_out) = list.finish();
    assert_eq!((numbers(&steps), left_out), (vec![8, 9, 20, 30], 8 + 7));
}

#[test]
fn gathering_from_many_holds_little() {
    let mut list = StepListing::with_room(10_000);
    for node in 0..1000 {
        list.add((0..50).map(|n| view(node * 50 + n, StepState::Pending)), 0);
        assert!(list.bytes <= 20_000 && list.steps.len() < 50, "{} views", list.steps.len());
    }
    let (steps, left_out) = list.finish();
    assert_eq!(steps.len() as u64 + left_out, 50_000);
    assert_eq!(numbers(&steps)[..3], [0, 1, 2]);
}

#[test]
fn a_step_that_is_there_twice_shows_its_end_or_its_next_try() {
    let mut list = StepListing::default();
    list.add([view(1, StepState::Completed), view(2, StepState::Failed)], 0);
    let again = StepView { attempt: 1, ..view(2, StepState::Pending) };
    list.add([view(1, StepState::Running), again], 0);
    let (steps, _) = list.finish();
    let shown: Vec<_> = steps.iter().map(|s| (s.id.step.number(), s.state, s.attempt)).collect();
    assert_eq!(shown, [(Some(1), StepState::Completed, 0), (Some(2), StepState::Pending, 1)]);
}
