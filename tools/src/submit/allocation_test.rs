use super::*;
use garrick_render::testing::job_view;

const JOB: JobId = JobId(513);

fn seen(allocation: &mut Allocation, state: JobState, reason: Reason) -> (Progress, Vec<String>) {
    let mut view = job_view(513, state);
    view.reason = reason;
    let mut say = Vec::new();
    let progress = allocation.view(&Arc::new(view), &mut say);
    (progress, say)
}

#[test]
fn an_allocation_that_starts_at_once_is_granted_and_ready() {
    let mut salloc = Allocation::new(JOB, Speaker::Salloc, false);
    assert_eq!(seen(&mut salloc, JobState::Pending, Reason::None), (Progress::Waiting, vec![]));
    assert_eq!(
        seen(&mut salloc, JobState::Configuring, Reason::None),
        (Progress::Granted, vec!["Granted job allocation 513".to_owned()])
    );
    let (progress, say) = seen(&mut salloc, JobState::Running, Reason::None);
    assert!(matches!(progress, Progress::Ready(_)));
    assert_eq!(say, ["Nodes n[1-2] are ready for job"]);
}

#[test]
fn srun_says_nothing_when_it_need_not_wait() {
    let mut srun = Allocation::new(JOB, Speaker::Srun, false);
    let (progress, say) = seen(&mut srun, JobState::Running, Reason::None);
    assert!(matches!(progress, Progress::Ready(_)) && say.is_empty());
}

#[test]
fn a_queued_allocation_says_so_once_and_when_it_gets_its_nodes() {
    let mut salloc = Allocation::new(JOB, Speaker::Salloc, false);
    let (_, say) = seen(&mut salloc, JobState::Pending, Reason::Resources);
    assert_eq!(say, ["Pending job allocation 513", "job 513 queued and waiting for resources"]);
    assert!(seen(&mut salloc, JobState::Pending, Reason::Priority).1.is_empty());
    let (_, say) = seen(&mut salloc, JobState::Running, Reason::None);
    assert_eq!(
        say,
        ["job 513 has been allocated resources", "Granted job allocation 513", "Nodes n[1-2] are ready for job"]
    );
}

#[test]
fn a_request_that_the_partition_cannot_meet_is_named_first() {
    let mut srun = Allocation::new(JOB, Speaker::Srun, false);
    let (_, say) = seen(&mut srun, JobState::Pending, Reason::PartitionNodeLimit);
    assert_eq!(
        say,
        ["Requested partition configuration not available now", "job 513 queued and waiting for resources"]
    );
    let (progress, say) = seen(&mut srun, JobState::Cancelled, Reason::None);
    assert_eq!(progress, Progress::Over);
    assert_eq!(say, ["Force Terminated JobId=513", "Job allocation 513 has been revoked"]);
}

#[test]
fn a_slow_start_is_mentioned() {
    let mut salloc = Allocation::new(JOB, Speaker::Salloc, false);
    let mut say = Vec::new();
    salloc.still_waiting(&mut say);
    assert_eq!(say.last().map(String::as_str), Some("job 513 queued and waiting for resources"));
    seen(&mut salloc, JobState::Configuring, Reason::None);
    say.clear();
    salloc.still_waiting(&mut say);
    assert_eq!(say, ["Waiting for resource configuration"]);
}

#[test]
fn an_immediate_request_is_never_queued() {
    let mut srun = Allocation::new(JOB, Speaker::Srun, true);
    assert!(seen(&mut srun, JobState::Pending, Reason::Resources).1.is_empty());
}

#[test]
fn salloc_tells_a_time_out_from_a_cancel() {
    let mut salloc = Allocation::new(JOB, Speaker::Salloc, false);
    assert_eq!(
        seen(&mut salloc, JobState::Timeout, Reason::TimeLimit).1,
        ["Job 513 has exceeded its time limit and its allocation has been revoked."]
    );
    assert_eq!(seen(&mut salloc, JobState::Cancelled, Reason::None).1, ["Job allocation 513 has been revoked."]);
}

#[test]
fn who_could_not_be_prepared_is_told_why_it_was_killed() {
    let view = |speaker| {
        let mut view = job_view(513, JobState::Cancelled);
        view.system_comment = Some("PrologSlurmctld /etc/prolog failed with exit code 3".to_owned());
        let mut say = Vec::new();
        Allocation::new(JOB, speaker, false).view(&Arc::new(view), &mut say);
        say
    };
    let why = "PrologSlurmctld failed, job killed";
    assert_eq!(view(Speaker::Salloc), [why, "Job allocation 513 has been revoked."]);
    assert_eq!(view(Speaker::Srun), [why]);
}
