//! Slurm's words for states and reasons of jobs and steps, long and compact, and parsing them for `-t`.

use garrick_model::{
    state::{ExitStatus, JobState, Reason, StepState},
    view::{JobView, StepCounts},
};
use std::borrow::Cow;

/// Version that client programs parse: the level of Slurm that the commands are compatible with.
pub const SLURM_VERSION: &str = "slurm 26.05.3";

/// Every job state with its compact word, and what it means.
const JOB_STATES: [(JobState, &str, &str); 17] = [
    (JobState::Pending, "PD", "it waits in the queue; squeue shows why"),
    (JobState::Configuring, "CF", "it has its nodes, and they are made ready: powered up, prologs run"),
    (JobState::Running, "R", "it runs"),
    (JobState::Suspended, "S", "it has its nodes, and its processes are stopped"),
    (JobState::Completing, "CG", "its work is over, and its nodes are being cleaned: processes end, epilogs run"),
    (JobState::Completed, "CD", "it ended with exit code 0"),
    (JobState::Cancelled, "CA", "a user or an administrator ended it, or took it out of the queue"),
    (JobState::Failed, "F", "it ended with an exit code other than 0, or by a signal"),
    (JobState::Timeout, "TO", "it reached its time limit"),
    (JobState::NodeFail, "NF", "one of its nodes failed"),
    (JobState::Preempted, "PR", "it was ended in favour of another job"),
    (JobState::BootFail, "BF", "it could not be launched, for reasons of the system"),
    (JobState::Deadline, "DL", "it could not have ended before its deadline"),
    (JobState::OutOfMemory, "OOM", "it used more memory than it had"),
    (
        JobState::SpecialExit,
        "SE",
        "it waits, held: requeued for its exit code (RequeueExitHold), or by an administrator",
    ),
    // The documentation at hand names no compact word.
    (
        JobState::Expediting,
        "EX",
        "it waits ahead of all others, with its healthy nodes kept for it (--requeue=expedite)",
    ),
    (
        JobState::RequeueHold,
        "RH",
        "it waits, held: its script failed while every Epilog succeeded (--requeue=expedite)",
    ),
];

/// Every job state: its word, the compact one, and what it means for a job.
pub fn job_states() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    JOB_STATES.iter().map(|(state, compact, meaning)| (state.word(), *compact, *meaning))
}

/// Gives each reason that has a word of its own with its meaning, and a sample of each.
macro_rules! meanings {
    ($($reason:pat = $sample:expr => $meaning:literal),+ $(,)?) => {
        /// What a reason means for a job; nothing of one that is a sentence.
        pub const fn reason_meaning(reason: &Reason) -> &'static str {
            match reason {
                $($reason => $meaning,)+
                Reason::None | Reason::NodesUnavailable | Reason::Other(_) => "",
            }
        }

        /// Every reason that has a word of its own, and what it means.
        pub fn reasons() -> Vec<(String, &'static str)> {
            let samples = [$($sample),+];
            // A signal's name stands behind a colon.
            let word = |sample: &Reason| reason(sample).split(':').next().unwrap_or_default().to_owned();
            samples.iter().map(|sample| (word(sample), reason_meaning(sample))).collect()
        }
    };
}

meanings! {
    Reason::Resources = Reason::Resources => "the resources that it asks for are in use",
    Reason::Priority = Reason::Priority => "jobs with a higher priority go first",
    Reason::Dependency = Reason::Dependency => "a dependency (--dependency) is not fulfilled yet",
    Reason::DependencyNeverSatisfied = Reason::DependencyNeverSatisfied => "a dependency can never be fulfilled: it waits until somebody cancels or changes it",
    Reason::BeginTime = Reason::BeginTime => "it may not start before the time of --begin, or is requeued and waits for a moment",
    Reason::JobHeldUser = Reason::JobHeldUser => "its user holds it: scontrol release JOB",
    Reason::JobHeldAdmin = Reason::JobHeldAdmin => "an administrator holds it, and can release it",
    Reason::JobHoldMaxRequeue = Reason::JobHoldMaxRequeue => "it was requeued too often without anybody asking for it, and is held",
    Reason::JobArrayTaskLimit = Reason::JobArrayTaskLimit => "as many tasks of its array run as the limit of --array (%N) allows",
    Reason::PartitionNodeLimit = Reason::PartitionNodeLimit => "it asks for more nodes than its partition allows, or has",
    Reason::PartitionConfig = Reason::PartitionConfig => "it asks for more CPUs than its partition has",
    Reason::PartitionTimeLimit = Reason::PartitionTimeLimit => "its time limit is longer than its partition allows",
    Reason::AccountNotAllowed = Reason::AccountNotAllowed => "its partition does not take jobs of its account",
    Reason::QosNotAllowed = Reason::QosNotAllowed => "its partition does not take jobs with its QOS",
    Reason::PartitionDown = Reason::PartitionDown => "its partition is DOWN: no job starts there",
    Reason::PartitionInactive = Reason::PartitionInactive => "its partition is INACTIVE",
    Reason::ReqNodeNotAvail = Reason::ReqNodeNotAvail => "nodes that it asks for are down, drained or reserved",
    Reason::BadConstraints = Reason::BadConstraints => "no node has what it asks for",
    Reason::Fragmentation = Reason::Fragmentation => "it could start, but would break up a block of nodes that is idle altogether",
    Reason::Cleaning = Reason::Cleaning => "it was requeued, and its last run is being cleaned up",
    Reason::NonZeroExitCode = Reason::NonZeroExitCode => "it ended with an exit code other than 0",
    Reason::RaisedSignal(_) = Reason::RaisedSignal(9) => "a signal ended it",
    Reason::TimeLimit = Reason::TimeLimit => "it reached its time limit",
    Reason::NodeDown = Reason::NodeDown => "one of its nodes failed",
    Reason::StepManagerDied = Reason::StepManagerDied => "the process that managed its steps ended",
    Reason::JobLaunchFailure = Reason::JobLaunchFailure => "its script could not be started",
    Reason::PrologFailure = Reason::PrologFailure => "a prolog failed on one of its nodes",
    Reason::OutOfMemory = Reason::OutOfMemory => "it used more memory than it had",
}

/// The text, or Slurm's word for none.
pub fn or_null(text: Option<&str>) -> &str {
    text.filter(|text| !text.is_empty()).unwrap_or("(null)")
}

/// The same as the content of a cell.
pub fn cell_or_null(text: Option<&str>) -> String {
    or_null(text).to_owned()
}

/// `RUNNING`.
pub const fn job_state(state: JobState) -> &'static str {
    state.word()
}

/// `R`.
pub fn job_state_compact(state: JobState) -> &'static str {
    JOB_STATES.iter().find(|s| s.0 == state).map_or("?", |s| s.1)
}

/// Every state word, for messages about a wrong one.
pub fn job_state_words() -> String {
    JOB_STATES.map(|s| s.0.word()).join(",")
}

/// A state by its long or compact word, in any case, or an unambiguous beginning of the long one.
pub fn parse_job_state(text: &str) -> Option<JobState> {
    let upper = text.to_ascii_uppercase();
    if let Some(s) = JOB_STATES.iter().find(|s| s.0.word() == upper || s.1 == upper) {
        return Some(s.0);
    }
    let mut starting = JOB_STATES.iter().filter(|s| upper.len() > 1 && s.0.word().starts_with(&upper));
    match (starting.next(), starting.next()) {
        (Some(s), None) => Some(s.0),
        _ => None,
    }
}

/// `RUNNING`, for a step.
pub fn step_state(state: StepState) -> &'static str {
    match state {
        StepState::Pending => "PENDING",
        StepState::Running => "RUNNING",
        StepState::Completed => "COMPLETED",
        StepState::Failed => "FAILED",
        StepState::Cancelled => "CANCELLED",
        StepState::Timeout => "TIMEOUT",
        StepState::NodeFail => "NODE_FAIL",
        StepState::OutOfMemory => "OUT_OF_MEMORY",
    }
}

/// A reason as `squeue -o %r` and `scontrol show job` print it.
pub fn reason(reason: &Reason) -> Cow<'_, str> {
    reason.text()
}

/// `0:15`.
pub fn exit(status: ExitStatus) -> String {
    status.to_string()
}

/// `NODELIST(REASON)`: why a job waits or failed, in parentheses; the nodes of any other job.
pub fn nodes_or_reason(job: &JobView, nodes: String) -> String {
    match job.state {
        JobState::Pending
        | JobState::SpecialExit
        | JobState::Expediting
        | JobState::RequeueHold
        | JobState::Failed
        | JobState::Timeout
        | JobState::NodeFail
        | JobState::BootFail
        | JobState::Deadline
        | JobState::OutOfMemory => format!("({})", reason(&job.reason)),
        _ => nodes,
    }
}

/// `3 queued, 2 running, 10 done, 1 failed`, and `, 2 cancelled` where there are any: those did not fail.
pub fn step_counts(counts: &StepCounts) -> String {
    let StepCounts { queued, running, done, failed, cancelled } = *counts;
    let mut text =
        format!("{queued} queued, {running} running, {done} done, {} failed", failed.saturating_sub(cancelled));
    if cancelled > 0 {
        text.push_str(&format!(", {cancelled} cancelled"));
    }
    text
}

/// A word as a shell would have to read it to get these bytes; what is not UTF-8 is shown as such.
pub fn shell_quoted(word: &[u8]) -> String {
    let text = String::from_utf8_lossy(word);
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancelled_steps_did_not_fail() {
        let counts = StepCounts { done: 8, failed: 52, cancelled: 50, ..StepCounts::default() };
        assert_eq!(step_counts(&counts), "0 queued, 0 running, 8 done, 2 failed, 50 cancelled");
        assert_eq!(step_counts(&StepCounts::default()), "0 queued, 0 running, 0 done, 0 failed");
    }

    #[test]
    fn states_are_read_in_any_case_and_abbreviated() {
        assert_eq!(parse_job_state("pd"), Some(JobState::Pending));
        assert_eq!(parse_job_state("Running"), Some(JobState::Running));
        assert_eq!(parse_job_state("suspend"), Some(JobState::Suspended));
        assert_eq!(parse_job_state("oom"), Some(JobState::OutOfMemory));
        assert_eq!(parse_job_state("comp"), None, "COMPLETING or COMPLETED");
        assert_eq!(parse_job_state("nosuch"), None);
        assert_eq!(parse_job_state("se"), Some(JobState::SpecialExit));
        assert_eq!(parse_job_state("expediting"), Some(JobState::Expediting));
        assert_eq!(parse_job_state("rh"), Some(JobState::RequeueHold));
        assert_eq!(parse_job_state("requeue_hold"), Some(JobState::RequeueHold));
        assert!(JobState::SpecialExit.is_live() && JobState::Expediting.is_live() && JobState::RequeueHold.is_live());
    }

    #[test]
    fn raised_signal_names_the_signal() {
        assert_eq!(reason(&Reason::RaisedSignal(9)), "RaisedSignal:9(Killed)");
    }
}
