//! What the controller counts: its jobs, the requests of its users and the passes of its scheduler.
#![allow(clippy::unwrap_used)]

use super::fixtures::{Agents, Habit, MemoryJournal, Rig, TWO_NODES, with_system};
use garrick_model::{
    messages::{
        command::{CancelRequest, CommandReply, CommandRequest, JobMilestone, JobSelector},
        statistics::{JobCounts, Statistics},
    },
    refusal::Refusal,
    spec::JobSpec,
    state::JobState,
    testing::spec,
};

async fn counted(rig: &Rig) -> Statistics {
    match rig.ask(1001, CommandRequest::ShowStatistics).await {
        CommandReply::Statistics(counted) => *counted,
        other => panic!("{other:?}"),
    }
}

fn count_of(counted: &Statistics, request: &str) -> u64 {
    counted.requests.iter().find(|of| of.request == request).map_or(0, |of| of.count)
}

#[test]
fn jobs_requests_and_passes_are_counted_until_an_administrator_resets_them() {
    with_system(async |system| {
        let mut rig = Rig::start(&system, TWO_NODES, MemoryJournal::default());
        let mut agents = Agents::new(&rig);
        agents.connect("n0", Habit::Finish);
        let ran = rig.submitted(spec()).await;
        assert_eq!(rig.wait(ran, JobMilestone::Ended).await, JobState::Completed);
        let held = rig.submitted(JobSpec { hold: true, ..spec() }).await;
        let waiting = rig.submitted(JobSpec { hold: true, ..spec() }).await;
        let cancelled = JobSelector { job: held, tasks: None, het: None, run: None };
        rig.ask(1001, CommandRequest::Cancel(CancelRequest { jobs: vec![cancelled], ..CancelRequest::default() }))
            .await;
        rig.until(held, |view| view.state == JobState::Cancelled).await;
        rig.until(waiting, |view| view.state == JobState::Pending).await;
        let seen = counted(&rig).await;
        let expected =
            JobCounts { submitted: 3, started: 1, completed: 1, cancelled: 1, failed: 0, pending: 1, running: 0 };
        assert_eq!(seen.jobs, expected);
        assert_eq!((count_of(&seen, "SubmitJob"), count_of(&seen, "Cancel"), count_of(&seen, "WaitJob")), (3, 1, 1));
        assert_eq!(seen.users.iter().map(|user| (user.uid, user.count)).collect::<Vec<_>>(), [(1001, 5)]);
        assert!(seen.passes.cycles.count > 0 && seen.plans.cycles.count > 0 && seen.serving >= 1, "{seen:?}");

        let denied = rig.ask(1001, CommandRequest::ResetStatistics).await;
        assert_eq!(denied, CommandReply::Refused(Refusal::AccessDenied));
        assert_eq!(rig.ask(0, CommandRequest::ResetStatistics).await, CommandReply::Done);
        let fresh = counted(&rig).await;
        assert_eq!(fresh.jobs, JobCounts { pending: 1, ..JobCounts::default() });
        assert_eq!((count_of(&fresh, "SubmitJob"), fresh.passes.depth_sum), (0, 0));
        assert!(fresh.since >= seen.since);
    });
}
