//! Bugs inserted on purpose, around the cores and not in them: inputs or effects of a core are changed on their way, as if the
//! core had the bug. A rule must detect each of them; this tests the rules and the faults themselves.

use super::{PANICS, forgers::is_replayed, roster::machine_of, rules::DRAINS, world::World};
use garrick_actors::{
    job::effects::JobEffect,
    messages::{
        het::HetMessage,
        job::{Authority, JobAnswer, JobCommand, JobFact, JobInput, JobTimer},
        letter::{ConfigNews, Letter},
        license::LicenseInput,
        node::{NodeInput, NodeSettings, NodeTimer},
    },
    node::{core::NodeCore, effects::NodeEffect},
    owner::Effect,
    scheduler::messages::{SchedulerEffect, SchedulerTimer},
};
use garrick_events::{
    event::ControllerEvent,
    records::{job::TaskOutcome, job_event::JobEvent},
};
use garrick_model::{
    ids::JobId,
    messages::{
        command::{NodeChange, NodeStateChange},
        node::{AgentReport, ControllerToNode},
    },
    packed_steps::StepTally,
    refusal::Refusal,
    resources::MemoryMib,
    state::{ExitStatus, JobState, NodeBase, NodeFlags, PartitionState, Reason},
    time::TimeLimit,
    view::{Accrual, NodeView},
};
use garrick_plan::snapshot::{
    bounds::Bounds,
    facts::{ClusterView, in_service},
};
use std::sync::Arc;

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// A node's owner does not look at memory when it is asked for some.
    MemoryIsNotCounted,
    /// A job whose batch host came back without it waits for ever.
    MissingRunsAreNotDeclaredLost,
    /// A node that says nothing is never taken for lost.
    SilentNodesAreNotDeclaredDown,
    /// Nodes are told once that a run is over, and not again: neither after a while nor when they are back.
    RunsAreToldToEndOnce,
    /// What follows from an event leaves before the event is on disk.
    EffectsDoNotWaitForTheDisk,
    /// What is saved in one go is several records, and an array's mark is written before the record of the task that was
    /// split off.
    TasksAreMarkedBeforeTheyExist,
    /// A node's owner now and then forgets what a job holds.
    HoldsAreForgotten,
    /// Components of a heterogeneous job are saved one by one.
    ComponentsAreAcceptedOneByOne,
    /// Of a heterogeneous job only the leader's allocation is saved.
    LeadersAreAllocatedAlone,
    /// A component that runs does not hear what becomes of its leader.
    LeadersEndAlone,
    /// A step manager that looks for a shepherd does not say that its run had one on that node.
    ShepherdsAreBegunAgain,
    /// Whoever asks for licenses now and then gets those of another.
    LicensesAreTaken,
    /// A run's end is recorded twice.
    EndsAreRecordedTwice,
    /// A job's owner disappears with all that it knew.
    JobsAreForgotten,
    /// An event of a job now and then does not get into the journal.
    EventsAreForgotten,
    /// A node's owner takes work while the node is drained.
    DrainsAreForgotten,
    /// A run that gives way is not told when its grace is over.
    GraceIsForgotten,
    /// A node that has lost the controller does not ask others for it.
    LeasesAreForgotten,
    /// A node gives the controller up in a quarter of the time.
    LeasesEndEarly,
    /// What a step manager counted does not get to the job's owner.
    TalliesAreForgotten,
    /// A step manager does not know its run's time limit.
    LimitsAreForgotten,
    /// A cancellation is answered and nothing else.
    CancellationsAreForgotten,
    /// A step's end now and then is recorded twice.
    StepsEndTwice,
    /// A job that others wait for says that it is over and well while it runs.
    ConditionsAreMetEarly,
    /// The scheduler does not look at reservations.
    ReservationsAreForgotten,
    /// A crash damages what was on disk before.
    JournalsAreDamaged,
    /// A job's owner takes what any node says for its batch host's word.
    AnyNodeIsBelieved,
    /// A job's owner takes it for the end of a run when its start is reported again.
    RepeatsAreNews,
    /// A job's owner does what it says it refuses.
    RefusedRequestsAreDone,
    /// A job's owner does what any user asks.
    OwnersAreNotLookedAt,
    /// The frontend takes a node's word for root's.
    NodesSpeakForRoot,
    /// A node starts a shepherd without checking who asks.
    CredentialsAreNotLookedAt,
    /// What followers of the log have not acknowledged is purged.
    PurgingOvertakesFollowers,
    /// What the log refuses is saved nevertheless.
    SubmissionsAreKeptThoughRefused,
    /// A frontend that begins does not know what earlier ones answered.
    FrontendsForgetTheirAnswers,
    /// An assertion of a job's owner fails now and then.
    AssertionsFail,
    /// The scheduler now and then proposes a start twice.
    ProposalsAreRepeated,
    /// What a job's owner answers now and then does not get to the scheduler.
    OutcomesAreForgotten,
    /// The scheduler does not give up waiting for an answer, and some are lost.
    PatienceIsForgotten,
    /// Jobs are not told their priorities.
    PrioritiesAreNotTold,
    /// The scheduler does not count what it started in an interval.
    QuotasAreNotSpent,
    /// Plans are repaired, and made, as if nodes out of service were in service.
    LostNodesStayInThePlan,
    /// Who waits for a turn is not told that it is his.
    TurnsAreForgotten,
    /// A reservation that is gone is shown as it was.
    DeletedReservationsStay,
    /// A change of a reservation is not shown.
    ReservationsStayAsTheyWere,
    /// The scheduler does not look at whether partitions serve.
    PartitionsThatAreDownServe,
    /// A place of a node that is gone is another's at once, though jobs are shown there.
    IndexesAreReusedEarly,
    /// A node is deleted though its owner says that it has jobs.
    NodesAreDeletedUnderJobs,
    /// A daemon that joins is welcome before its node is on disk.
    JoinsAreAnsweredEarly,
    /// A daemon that joins is not heard of after its node is on disk.
    JoinsAreForgotten,
    /// The owner of a node that is deleted saves its state once more.
    DeletedNodesAreSavedOn,
    /// Owners of nodes and partitions do not hear that the configuration was read again.
    ReconfigurationIsNotTold,
    /// A node whose configuration is read again begins anew.
    ReconfiguredNodesBeginAnew,
    /// The scheduler does not look at what partitions allow.
    LimitsOfPartitionsAreForgotten,
    /// The scheduler does not look at limits of accounting.
    LimitsOfAccountingAreForgotten,
    /// Jobs that are to wait until they gain priority by age gain it.
    AllGainPriorityByAge,
}

impl Mutation {
    /// Each of them, with the rule that is about it.
    pub const ALL: &[(Self, &str)] = &[
        (Self::MemoryIsNotCounted, "no_cpu_or_memory_of_a_node_is_given_twice"),
        (Self::MissingRunsAreNotDeclaredLost, DRAINS),
        (Self::SilentNodesAreNotDeclaredDown, DRAINS),
        (Self::RunsAreToldToEndOnce, DRAINS),
        (Self::EffectsDoNotWaitForTheDisk, "what_was_promised_is_on_disk"),
        (Self::TasksAreMarkedBeforeTheyExist, "an_accepted_job_is_never_lost"),
        (Self::HoldsAreForgotten, "a_node_counts_as_used_what_its_jobs_hold"),
        (Self::ComponentsAreAcceptedOneByOne, "a_heterogeneous_job_is_accepted_whole_or_not_at_all"),
        (Self::LeadersAreAllocatedAlone, "components_of_a_heterogeneous_job_start_together"),
        (Self::LeadersEndAlone, "components_end_and_are_queued_again_with_their_leader"),
        (Self::ShepherdsAreBegunAgain, "a_shepherd_is_begun_once"),
        (Self::LicensesAreTaken, "no_license_is_given_twice"),
        (Self::LimitsOfAccountingAreForgotten, "no_limit_of_accounting_is_overbooked"),
        (Self::AllGainPriorityByAge, "no_more_jobs_gain_priority_by_age_than_may"),
        (Self::EndsAreRecordedTwice, "each_run_ends_exactly_once"),
        (Self::JobsAreForgotten, "an_accepted_job_is_never_lost"),
        (Self::EventsAreForgotten, "replay_comes_to_what_is_live"),
        (Self::DrainsAreForgotten, "a_drained_node_gets_nothing_new"),
        (Self::GraceIsForgotten, "a_preempted_run_ends_or_its_job_is_queued_again"),
        (Self::LeasesAreForgotten, "no_run_goes_on_where_its_node_was_given_up"),
        (Self::LeasesEndEarly, "a_lease_ends_no_earlier_than_it_may"),
        (Self::TalliesAreForgotten, "the_controller_counts_the_steps_that_were"),
        (Self::LimitsAreForgotten, "a_run_ends_when_its_time_is_over"),
        (Self::CancellationsAreForgotten, "what_was_cancelled_does_not_start"),
        (Self::StepsEndTwice, "an_accepted_step_ends_once_and_runs_once"),
        (Self::ConditionsAreMetEarly, "a_dependent_job_does_not_start_before_its_condition_holds"),
        (Self::ReservationsAreForgotten, "a_reservation_is_kept_for_its_jobs"),
        (Self::JournalsAreDamaged, "the_journal_can_be_read_after_every_crash"),
        (Self::PurgingOvertakesFollowers, "whoever_follows_the_log_sees_each_event_once_and_in_order"),
        (Self::SubmissionsAreKeptThoughRefused, "a_submission_that_is_refused_leaves_nothing_behind"),
        (Self::FrontendsForgetTheirAnswers, "a_submission_that_is_repeated_gets_the_first_answer"),
        (Self::AnyNodeIsBelieved, "a_forger_changes_nobody_elses_job"),
        (Self::RepeatsAreNews, "a_repeated_report_changes_nothing"),
        (Self::RefusedRequestsAreDone, "a_refused_request_changes_nothing"),
        (Self::OwnersAreNotLookedAt, "a_user_commands_only_own_jobs"),
        (Self::NodesSpeakForRoot, "a_node_speaks_for_no_administrator"),
        (Self::CredentialsAreNotLookedAt, "no_shepherd_is_begun_for_a_forger"),
        (Self::AssertionsFail, PANICS),
        (Self::ProposalsAreRepeated, "a_pass_proposes_nothing_twice"),
        (Self::OutcomesAreForgotten, "a_proposal_is_answered"),
        (Self::PatienceIsForgotten, DRAINS),
        (Self::PrioritiesAreNotTold, "a_job_that_waits_shows_the_priority_that_the_rules_give"),
        (Self::QuotasAreNotSpent, "no_more_start_in_an_interval_than_may"),
        (Self::LostNodesStayInThePlan, "a_start_is_proposed_where_nodes_serve"),
        (Self::TurnsAreForgotten, "who_waits_for_a_turn_has_it"),
        (Self::DeletedReservationsStay, "what_is_shown_of_reservations_is_what_is_saved"),
        (Self::ReservationsStayAsTheyWere, "what_is_shown_of_reservations_is_what_is_saved"),
        (Self::PartitionsThatAreDownServe, "a_start_is_proposed_where_partitions_serve"),
        (Self::IndexesAreReusedEarly, "no_two_nodes_have_an_index_that_is_spoken_of"),
        (Self::NodesAreDeletedUnderJobs, "no_job_has_a_node_that_is_not_there"),
        (Self::JoinsAreAnsweredEarly, "a_node_that_joins_is_on_disk_before_it_is_welcome"),
        (Self::JoinsAreForgotten, DRAINS),
        (Self::DeletedNodesAreSavedOn, "nothing_is_saved_of_a_node_that_is_gone"),
        (Self::ReconfigurationIsNotTold, "what_is_shown_is_what_the_file_says"),
        (Self::ReconfiguredNodesBeginAnew, "a_configuration_that_is_read_again_moves_no_job"),
        (Self::LimitsOfPartitionsAreForgotten, "no_job_starts_beyond_what_its_partition_allows"),
    ];
}

impl World {
    pub(super) fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// What the job's owner hears; `None`: nothing.
    pub(super) fn as_job_hears(&mut self, job: JobId, input: JobInput) -> Option<JobInput> {
        match (self.mutation?, input) {
            (Mutation::GraceIsForgotten, JobInput::Timer(JobTimer::Preempt)) => None,
            (
                Mutation::CancellationsAreForgotten,
                JobInput::Command { request, tasks: None, command: JobCommand::Cancel, .. },
            ) => {
                let run = self.cancels.remove(&request);
                run.into_iter().for_each(|run| {
                    self.promises.cancelled.insert(run);
                });
                None
            }
            (Mutation::AnyNodeIsBelieved, JobInput::Report { node, seq, report }) => {
                let run = self.jobs.get(&job).and_then(|core| core.record().phase.run());
                let node = run.map_or(node, |run| run.batch_host().to_owned());
                Some(JobInput::Report { node, seq, report })
            }
            (Mutation::RepeatsAreNews, JobInput::Report { node, seq, mut report }) => {
                if let (true, AgentReport::JobStarted { job, sluid, .. }) = (is_replayed(seq), &*report) {
                    let (job, sluid, exit) = (*job, *sluid, ExitStatus::SUCCESS);
                    let (state, reason, at, lost) = (JobState::Completed, Reason::None, self.clock(), Vec::new());
                    *report =
                        AgentReport::JobEnded { job, sluid, state, reason, exit, derived: exit, at, lost, cause: None };
                }
                Some(JobInput::Report { node, seq, report })
            }
            (
                Mutation::OwnersAreNotLookedAt | Mutation::RefusedRequestsAreDone,
                JobInput::Command { request, by, tasks, command },
            ) => {
                let by = Authority { admin: true, ..by };
                Some(JobInput::Command { request, by, tasks, command })
            }
            (Mutation::TalliesAreForgotten, JobInput::Report { node, seq, mut report }) => {
                if let AgentReport::Steps { steps, .. } = &mut *report {
                    steps.tally = StepTally::default();
                }
                Some(JobInput::Report { node, seq, report })
            }
            (Mutation::ConditionsAreMetEarly, JobInput::Fact { job, fact: Some(fact) }) if fact.tasks.is_empty() => {
                let over = Some(TaskOutcome::Ok);
                Some(JobInput::Fact { job, fact: Some(Arc::new(JobFact { over, ..(*fact).clone() })) })
            }
            (Mutation::JobsAreForgotten, input) => {
                if self.random.one_in_thousand(1) {
                    self.jobs.remove(&job);
                }
                Some(input)
            }
            (Mutation::AssertionsFail, input) => {
                assert!(!self.random.one_in_thousand(1), "made to fail");
                Some(input)
            }
            (Mutation::MissingRunsAreNotDeclaredLost, JobInput::Timer(JobTimer::Missing))
            | (Mutation::RunsAreToldToEndOnce, JobInput::Timer(JobTimer::CleanUp) | JobInput::RunHeld { .. }) => None,
            (Mutation::LeadersEndAlone, JobInput::Het { message, .. })
                if matches!(*message, HetMessage::End { .. } | HetMessage::Back) =>
            {
                None
            }
            (_, other) => Some(other),
        }
    }

    /// The job's owner says that it refuses what it has done.
    pub(super) fn refuses_and_does(&self, out: &mut [JobEffect]) {
        if self.has(Mutation::RefusedRequestsAreDone) {
            for effect in out {
                if let JobEffect::Answer { answer: JobAnswer::Done(result), .. } = effect {
                    *result = Err(Refusal::AccessDenied);
                }
            }
        }
    }

    /// A letter as it arrives; `None`: it is lost.
    pub(super) fn as_is_posted(&mut self, letter: Letter) -> Option<Letter> {
        match (self.mutation, &letter) {
            // Told once, and that arrives half the time.
            (Some(Mutation::RunsAreToldToEndOnce), Letter::Node(_, NodeInput::Send(frame)))
                if matches!(**frame, ControllerToNode::EndJob { .. }) && self.random.one_in_thousand(500) =>
            {
                return None;
            }
            (Some(Mutation::ReconfigurationIsNotTold), Letter::News(ConfigNews::Node(settings)))
                if machine_of(&settings.name).is_some_and(|node| self.nodes.contains_key(&node)) =>
            {
                return None;
            }
            (Some(Mutation::ReconfigurationIsNotTold), Letter::News(ConfigNews::Partitions { read_again: true })) => {
                return None;
            }
            (Some(Mutation::LicensesAreTaken), Letter::Licenses(LicenseInput::Reserve { job, .. })) => {
                let holder = self.licenses.holds().map(|(holder, _)| holder).find(|holder| holder != job);
                holder.into_iter().for_each(|holder| {
                    self.licenses.release(holder, None);
                });
            }
            _ => {}
        }
        Some(letter)
    }

    /// Events of a job's turn as they are saved.
    pub(super) fn as_is_saved(&mut self, job: JobId, events: Vec<ControllerEvent>) -> Vec<ControllerEvent> {
        let Some(mutation) = self.mutation else { return events };
        let mut saved = Vec::with_capacity(events.len());
        for event in events {
            let ControllerEvent::Job { job: of, event: what } = &event else {
                saved.push(event);
                continue;
            };
            match (mutation, &**what) {
                (Mutation::EventsAreForgotten, _) if *of == job && self.random.one_in_thousand(5) => continue,
                (Mutation::EndsAreRecordedTwice, JobEvent::Ended(_)) => saved.push(event.clone()),
                (Mutation::TasksAreMarkedBeforeTheyExist, JobEvent::SubmittedLike { record, .. }) => {
                    if let Some(task) = record.array_task {
                        let mark = Box::new(JobEvent::TaskSplit { index: task.index, job: record.id });
                        saved.push(ControllerEvent::Job { job, event: mark });
                    }
                }
                (Mutation::LeadersAreAllocatedAlone, JobEvent::Allocated(_)) if *of != job => continue,
                _ => {}
            }
            saved.push(event);
        }
        saved
    }

    /// What the node's owner hears.
    pub(super) fn as_node_hears(&mut self, node: usize, input: NodeInput) -> Option<NodeInput> {
        match (self.mutation?, input) {
            (Mutation::SilentNodesAreNotDeclaredDown, NodeInput::Timer(NodeTimer::Silence | NodeTimer::Ping)) => None,
            (Mutation::MemoryIsNotCounted, NodeInput::Registered(mut registration)) => {
                registration.facts.shape = self.nodes[&node].settings().shape.clone();
                Some(NodeInput::Registered(registration))
            }
            (Mutation::ReconfiguredNodesBeginAnew, NodeInput::Configure { settings, site }) => {
                let clock = self.clock();
                if let Some(core) = self.nodes.get_mut(&node) {
                    let saved = Some(core.saved().clone());
                    *core = NodeCore::new(clock, (*settings).clone(), Arc::clone(&site), saved, []);
                }
                Some(NodeInput::Configure { settings, site })
            }
            (Mutation::HoldsAreForgotten, NodeInput::Reserve(ask)) if self.random.one_in_thousand(50) => {
                let first = self.nodes[&node].kept().first().map(|kept| (kept.hold.job, kept.hold.sluid));
                Some(first.map_or(NodeInput::Reserve(ask), |(job, sluid)| NodeInput::Release {
                    job,
                    sluid,
                    attempt: None,
                    drain: None,
                }))
            }
            (_, other) => Some(other),
        }
    }

    /// What the scheduler says.
    pub(super) fn as_scheduler_says(&mut self, out: &mut Vec<SchedulerEffect>) {
        match self.mutation {
            Some(Mutation::PrioritiesAreNotTold) => {
                out.retain(|effect| !matches!(effect, Effect::Tell(Letter::Job(_, JobInput::Priority(_)))));
            }
            Some(Mutation::AllGainPriorityByAge) => {
                let clock = self.clock();
                for effect in out {
                    if let Effect::Tell(Letter::Job(_, JobInput::Accrues { accrual, .. })) = effect {
                        *accrual = Accrual::Since(clock);
                    }
                }
            }
            Some(Mutation::TurnsAreForgotten) => {
                out.retain(|effect| !matches!(effect, Effect::Tell(Letter::Job(_, JobInput::Turn(turn))) if turn.on));
            }
            Some(Mutation::PatienceIsForgotten) => {
                out.retain(|effect| !matches!(effect, Effect::SetTimer { timer: SchedulerTimer::Patience, .. }));
            }
            Some(Mutation::ProposalsAreRepeated) if self.random.one_in_thousand(100) => {
                let start = out.iter().find_map(|effect| match effect {
                    Effect::Tell(letter @ Letter::Job(_, JobInput::Start(_))) => Some(letter.clone()),
                    _ => None,
                });
                out.extend(start.map(Effect::Tell));
            }
            _ => {}
        }
    }

    /// Is an answer lost on its way to the scheduler?
    pub(super) fn answer_is_lost(&mut self) -> bool {
        let may = self.has(Mutation::OutcomesAreForgotten) || self.has(Mutation::PatienceIsForgotten);
        may && self.random.one_in_thousand(50)
    }

    /// What the scheduler sees.
    pub(super) fn as_scheduler_sees(&self, view: &mut ClusterView) {
        if self.has(Mutation::LostNodesStayInThePlan) {
            for node in view.nodes.iter_mut().filter(|node| !in_service(node)) {
                let (base, flags) = (NodeBase::Up, NodeFlags::default());
                *node = Arc::new(NodeView { base, flags, ..(**node).clone() });
            }
        }
        if self.has(Mutation::PartitionsThatAreDownServe) {
            view.partitions.iter_mut().for_each(|partition| partition.state = PartitionState::Up);
        }
        if self.has(Mutation::LimitsOfPartitionsAreForgotten) {
            view.partitions.iter_mut().for_each(|partition| partition.max_time = TimeLimit::Unlimited);
        }
        if self.has(Mutation::QuotasAreNotSpent)
            && let Some(bounds) = &view.policy.bounds
        {
            let begun = self.watch.begun();
            let more = |most: Option<u32>| most.map(|most| most + begun);
            let (in_order, backfilled) = (more(bounds.in_order), more(bounds.backfilled));
            view.policy.bounds = Some(Arc::new(Bounds { in_order, backfilled, ..(**bounds).clone() }));
        }
    }

    /// A drained node's owner takes work as if it were not.
    pub(super) fn takes_work_though_drained(&mut self, node: usize, input: &NodeInput, out: &mut Vec<NodeEffect>) {
        let drained = self.nodes[&node].saved().is_held_back();
        if self.has(Mutation::DrainsAreForgotten) && drained && matches!(input, NodeInput::Reserve(_)) {
            let change =
                |state| NodeChange { state: Some(state), reason: Some("made up".to_owned()), ..NodeChange::default() };
            let by = || (0, "root".to_owned());
            let clock = self.clock();
            for (state, then) in [(NodeStateChange::Resume, Some(input.clone())), (NodeStateChange::Drain, None)] {
                let update = NodeInput::Update { request: 0, by: by(), change: change(state) };
                let Some(core) = self.nodes.get_mut(&node) else { return };
                core.handle(clock, update, out);
                then.into_iter().for_each(|then| core.handle(clock, then, out));
            }
        }
    }

    /// Settings as the node's owner has them.
    pub(super) fn as_owner_has(&self, mut settings: NodeSettings) -> NodeSettings {
        if self.has(Mutation::MemoryIsNotCounted) {
            settings.shape.memory = MemoryMib(1 << 40);
        }
        settings
    }
}
