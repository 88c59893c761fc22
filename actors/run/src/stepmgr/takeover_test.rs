//! What becomes of steps while a step manager that took over asks the nodes what they have: whatever happens between two
//! nodes' answers, each step ends, once.

use crate::stepmgr::{
    StepMgrConfig, StepMgrInput,
    builders::{exact, run},
    harness::Harness,
    messages::ClientId,
    state::RunPhase,
};
use garrick_model::{
    batch::RetryPolicy,
    ids::{StepId, StepKey},
    messages::{
        step::{CommandToStepMgr, StepMgrToCommand},
        stepd::{NodeToStepd, StepdReport},
    },
    spec::{JobKind, StepSpec},
    state::{ExitStatus, JobState, Reason, StepState},
    time::TimeLimit,
};
use std::time::Duration;

const OK: ExitStatus = ExitStatus::SUCCESS;

fn code(code: u8) -> ExitStatus {
    ExitStatus { code, signal: None }
}

/// A batch job that outlives the loss of nodes, on so many of one CPU each.
fn on_nodes(nodes: usize) -> Harness {
    let mut facts = run(JobKind::Batch, &vec![1; nodes]);
    let mut spec = facts.spec.as_ref().clone();
    spec.no_kill = true;
    facts.spec = std::sync::Arc::new(spec);
    Harness::ready(facts, StepMgrConfig::default())
}

/// Step 0 has a task on each of so many nodes. Another `stepd` took over on the batch host, and the last of the other nodes
/// cannot be reached: all but that one have said what they have.
fn one_answer_missing(nodes: usize, spec: StepSpec) -> Harness {
    let mut harness = on_nodes(nodes);
    harness.enqueue(vec![spec]);
    harness.settle();
    assert_eq!(harness.running().len(), nodes + 1);
    harness.away(nodes - 1);
    harness.settle();
    take_over(&mut harness);
    harness
}

fn wide(nodes: usize) -> Harness {
    one_answer_missing(nodes, exact("wide", nodes as u32))
}

fn take_over(harness: &mut Harness) {
    harness.restart_process(usize::MAX);
    harness.settle();
}

/// The step's task on a node ends.
fn exit_on(harness: &mut Harness, node: usize, status: ExitStatus) {
    let running = harness.running();
    let (_, token, ..) = running.iter().find(|(n, _, step, _)| *n == node && *step == StepKey::number(0)).unwrap();
    harness.end_process(node, *token, status);
    harness.settle();
}

fn back(harness: &mut Harness, node: usize) {
    harness.back(node);
    harness.settle();
}

fn end(harness: &Harness) -> Option<(StepState, ExitStatus)> {
    harness.core.ledger().end_of(StepKey::number(0)).map(|end| (end.state, end.exit))
}

fn killed() -> ExitStatus {
    ExitStatus { code: 0, signal: Some(9) }
}

fn end_job(harness: &mut Harness) {
    harness.tell(NodeToStepd::EndJob { state: JobState::Cancelled, reason: Reason::None, lost: Vec::new() });
    harness.settle();
}

/// Nothing of the run is left, and each accepted step has an end.
fn assert_over(harness: &Harness) {
    assert!(harness.exited, "{:?}", harness.core.phase());
    assert_eq!(harness.core.counts().queued + harness.core.counts().running, 0);
    assert!(harness.core.ledger().running.is_empty());
}

/// What a task's end was said of was the former step manager's, as it seemed: it was dropped, and the step ran for ever.
#[test]
fn a_task_that_ends_between_the_answers_of_two_nodes_is_over() {
    for first_of_two in [true, false] {
        let mut harness = wide(2);
        if first_of_two {
            exit_on(&mut harness, 0, code(3));
            back(&mut harness, 1);
            assert_eq!(end(&harness), None);
            exit_on(&mut harness, 1, OK);
        } else {
            exit_on(&mut harness, 0, code(3));
            // It ends there too, and its shepherd says so when it can.
            exit_on(&mut harness, 1, OK);
            back(&mut harness, 1);
        }
        assert_eq!(end(&harness), Some((StepState::Failed, code(3))), "{first_of_two}");
        assert_eq!((harness.core.counts().running, harness.running().len()), (0, 1));
        harness.exit(StepKey::BATCH, OK);
        assert_over(&harness);
    }
}

#[test]
fn tasks_that_died_with_their_launcher_between_the_answers_of_two_nodes_are_over() {
    let mut harness = wide(3);
    harness.lose_launcher(1);
    harness.settle();
    back(&mut harness, 2);
    exit_on(&mut harness, 0, OK);
    assert_eq!(end(&harness), None);
    exit_on(&mut harness, 2, OK);
    assert_eq!(end(&harness), Some((StepState::Failed, killed())));
    assert_eq!(harness.core.counts().running, 0);
}

/// The first of them was taken for the last, and the others for ones that nobody saw end.
#[test]
fn tasks_that_ended_together_while_no_step_manager_was_there_count_with_their_ends() {
    for same_shepherd in [true, false] {
        let mut harness = Harness::ready(run(JobKind::Batch, &[3]), StepMgrConfig::default());
        harness.enqueue(vec![exact("three", 3)]);
        harness.settle();
        for (_, token, step, rank) in harness.running() {
            if step == StepKey::number(0) {
                harness.end_process(0, token, code(rank as u8));
            }
        }
        harness.settle_nodes();
        if same_shepherd {
            harness.restart_manager();
            harness.settle();
        } else {
            take_over(&mut harness);
        }
        assert_eq!(end(&harness), Some((StepState::Failed, code(2))), "{same_shepherd}");
    }
}

/// It had said that its task lives: that was believed for ever.
#[test]
fn a_node_that_is_lost_between_the_answers_of_two_others_takes_its_tasks_with_it() {
    for gone in [true, false] {
        let mut harness = wide(3);
        if gone {
            harness.lose(1);
        } else {
            harness.away(1);
            harness.give_up(1);
        }
        harness.settle();
        back(&mut harness, 2);
        // What is left of the step is ended, as that of a step on a lost node is.
        assert_eq!(end(&harness).map(|end| end.0), Some(StepState::NodeFail), "{gone}");
        assert!(harness.running().iter().all(|r| r.0 == 1 || r.2 == StepKey::BATCH));
        if !gone {
            // It comes back, and is told to end what it has.
            back(&mut harness, 1);
            assert_eq!(harness.running().len(), 1);
        }
        harness.exit(StepKey::BATCH, OK);
        assert_over(&harness);
    }
}

#[test]
fn a_node_that_is_lost_before_its_answer_ends_the_step_as_any_lost_node_does() {
    let mut harness = wide(2);
    harness.give_up(1);
    harness.settle();
    assert_eq!(end(&harness).map(|end| end.0), Some(StepState::NodeFail));
    assert_eq!(harness.running().iter().filter(|r| r.0 == 0).count(), 1);
}

/// Its first answer was added up with its second.
#[test]
fn a_node_that_answers_twice_is_believed_the_second_time() {
    for new_shepherd in [true, false] {
        let mut harness = wide(3);
        harness.away(1);
        harness.settle();
        let (_, token, ..) = harness.running().into_iter().find(|r| r.0 == 1).unwrap();
        harness.end_process(1, token, code(4));
        if new_shepherd {
            harness.adopt(1);
        }
        harness.settle();
        back(&mut harness, 1);
        back(&mut harness, 2);
        exit_on(&mut harness, 0, OK);
        exit_on(&mut harness, 2, OK);
        assert_eq!(end(&harness), Some((StepState::Failed, code(4))), "{new_shepherd}");
    }
}

#[test]
fn a_node_that_forgot_its_tasks_between_two_answers_has_them_over_with_an_unknown_exit() {
    let mut harness = wide(3);
    harness.away(1);
    harness.settle();
    harness.forget_node(1);
    back(&mut harness, 1);
    back(&mut harness, 2);
    exit_on(&mut harness, 0, OK);
    exit_on(&mut harness, 2, OK);
    assert_eq!(end(&harness), Some((StepState::Failed, killed())));
}

#[test]
fn several_takeovers_in_a_row_lose_nothing_of_a_step() {
    let mut harness = wide(2);
    exit_on(&mut harness, 0, code(3));
    take_over(&mut harness);
    take_over(&mut harness);
    back(&mut harness, 1);
    take_over(&mut harness);
    exit_on(&mut harness, 1, OK);
    take_over(&mut harness);
    assert_eq!(end(&harness), Some((StepState::Failed, code(3))));
    assert_eq!(harness.core.counts().running, 0);
}

#[test]
fn an_srun_whose_tasks_end_between_the_answers_of_two_nodes_is_told_how() {
    let mut harness = on_nodes(2);
    harness.srun(exact("wide", 2));
    harness.settle();
    harness.away(1);
    harness.settle();
    take_over(&mut harness);
    let back_again = rejoined(&mut harness);
    exit_on(&mut harness, 0, code(5));
    exit_on(&mut harness, 1, OK);
    back(&mut harness, 1);
    assert_eq!(harness.finished(back_again), Some((StepState::Failed, code(5))));
}

fn rejoined(harness: &mut Harness) -> ClientId {
    let facts = harness.core.facts();
    let (step, sluid) = (StepId::of(facts.job, StepKey::number(0)), facts.sluid);
    let client = harness.connect();
    harness.say(client, CommandToStepMgr::Rejoin { step, sluid });
    harness.settle();
    client
}

/// It waited for ever: what waited already when a node was lost had been looked through, and this came later.
#[test]
fn a_step_that_is_too_large_for_the_nodes_that_are_left_is_not_tried_again() {
    for taken_over in [true, false] {
        let retry = Some(RetryPolicy { count: 1, delay_secs: 0, on: Vec::new() });
        let spec = StepSpec { retry, ..exact("wide", 3) };
        let mut harness = if taken_over {
            one_answer_missing(3, spec)
        } else {
            let mut harness = on_nodes(3);
            harness.enqueue(vec![spec]);
            harness.settle();
            harness
        };
        harness.lose(1);
        harness.settle();
        if taken_over {
            back(&mut harness, 2);
        }
        assert_eq!(end(&harness).map(|end| end.0), Some(StepState::NodeFail), "{taken_over}");
        assert_eq!(harness.core.counts().queued, 0);
    }
}

#[test]
fn a_step_that_was_never_begun_and_is_too_large_for_the_nodes_that_are_left_ends() {
    let mut harness = on_nodes(4);
    harness.enqueue(vec![exact("wide", 3)]);
    harness.settle();
    harness.lose(3);
    for node in 0..3 {
        harness.lose_orders(node);
    }
    harness.away(2);
    harness.settle();
    take_over(&mut harness);
    harness.lose(1);
    harness.settle();
    back(&mut harness, 2);
    assert_eq!(end(&harness).map(|end| end.0), Some(StepState::NodeFail));
    assert_eq!(harness.core.counts().queued + harness.core.counts().running, 0);
}

/// Of the two nodes one had nothing of the run any more, and its shepherd, waiting for its agent to let it go, said nothing when
/// asked. The run was swept for ever.
#[test]
fn a_node_that_was_cleaned_by_its_agent_meanwhile_is_not_waited_for() {
    for ending_first in [true, false] {
        let mut harness = wide(2);
        harness.end_by_agent(1);
        // Its word that it is clean was for the step manager before.
        take_over(&mut harness);
        if ending_first {
            end_job(&mut harness);
            harness.advance(Duration::from_secs(60));
            back(&mut harness, 1);
        } else {
            back(&mut harness, 1);
            exit_on(&mut harness, 0, OK);
            assert_eq!(end(&harness), Some((StepState::Failed, killed())));
            end_job(&mut harness);
        }
        harness.advance(Duration::from_secs(60));
        assert_over(&harness);
        assert!(end(&harness).is_some());
    }
}

/// It says so before it says what it had.
#[test]
fn a_node_that_says_it_is_clean_while_the_run_is_swept_is_not_asked_what_it_has() {
    let mut harness = wide(2);
    end_job(&mut harness);
    harness.advance(Duration::from_secs(60));
    assert_eq!(harness.core.phase(), RunPhase::Sweeping);
    let message = garrick_model::messages::shepherd::ShepherdToStepMgr::Gone;
    harness.tell_manager(StepMgrInput::Shepherd { node: crate::step::NodeSlot(1), message });
    harness.settle();
    assert_over(&harness);
    assert_eq!(end(&harness).map(|end| end.0), Some(StepState::Cancelled));
}

/// A node never said that it is clean: the run was said to be, and steps there had no end.
#[test]
fn no_run_is_over_before_each_of_its_steps_has_an_end() {
    for taken_over in [false, true] {
        let mut harness = on_nodes(2);
        harness.enqueue(vec![exact("here", 1), exact("there", 1)]);
        harness.settle();
        harness.away(1);
        harness.settle();
        if taken_over {
            take_over(&mut harness);
        }
        end_job(&mut harness);
        harness.advance(Duration::from_secs(40));
        assert_eq!(harness.core.phase(), RunPhase::Ended);
        assert_eq!(harness.core.counts().running, 1);
        harness.advance(Duration::from_secs(300));
        assert_over(&harness);
        let ends = [0, 1].map(|step| harness.core.ledger().end_of(StepKey::number(step)).map(|end| end.state));
        assert_eq!(ends, [Some(StepState::Cancelled); 2], "{taken_over}");
        // And they are reported.
        assert!(harness.core.ledger().outbox.is_empty());
        let reports = harness.job_reports();
        assert_eq!(reports.iter().filter(|r| **r == StepdReport::Gone).count(), 1);
    }
}

#[test]
fn a_step_that_is_cancelled_before_it_is_known_where_it_is_ends() {
    let cancel = || {
        let steps = "0".parse().unwrap();
        NodeToStepd::SignalSteps { steps, pending_only: false, signal: None, by: None }
    };
    let mut harness = wide(2);
    harness.tell(cancel());
    harness.settle();
    back(&mut harness, 1);
    harness.settle();
    assert_eq!(end(&harness).map(|end| end.0), Some(StepState::Cancelled));
    assert_eq!(harness.running().len(), 1);
    // One that never began is not begun.
    let mut harness = on_nodes(2);
    harness.enqueue(vec![exact("wide", 2)]);
    harness.settle();
    for node in [0, 1] {
        harness.lose_orders(node);
    }
    harness.restart_manager();
    harness.tell_manager(StepMgrInput::Agent(cancel()));
    harness.settle();
    assert_eq!(end(&harness).map(|end| end.0), Some(StepState::Cancelled));
    assert_eq!(harness.spawned.get(&(StepKey::number(0), 0)), Some(&1));
}

#[test]
fn a_signal_for_a_step_is_sent_once_it_is_known_where_it_is() {
    let mut harness = wide(2);
    let steps = "0".parse().unwrap();
    harness.tell(NodeToStepd::SignalSteps { steps, pending_only: false, signal: Some(10), by: None });
    harness.settle();
    assert_eq!(harness.signals, []);
    back(&mut harness, 1);
    assert_eq!(harness.signals, [(10, true), (10, true)]);
}

/// It began anew with each step manager.
#[test]
fn a_steps_own_time_limit_counts_from_its_start() {
    let mut harness = on_nodes(1);
    harness.enqueue(vec![StepSpec { time_limit: Some(TimeLimit::Secs(100)), ..exact("a", 1) }]);
    harness.settle();
    for _ in 0..2 {
        harness.advance(Duration::from_secs(40));
        take_over(&mut harness);
    }
    assert_eq!(end(&harness), None);
    harness.advance(Duration::from_secs(21));
    assert_eq!(end(&harness).map(|end| end.0), Some(StepState::Timeout));
}

/// Its node's shepherd had lived on: it said that the step was there, and later that it never ran.
#[test]
fn a_lined_up_step_that_is_given_back_to_the_next_step_manager_waits_again() {
    let config = StepMgrConfig { line_length: 3, pace_window: Duration::ZERO, ..StepMgrConfig::default() };
    let mut harness = Harness::ready(run(JobKind::Batch, &[1, 1]), config);
    harness.enqueue_array(exact("a", 1), "0-19");
    harness.settle();
    let (_, token, ..) = harness.running().into_iter().find(|r| r.0 == 1).unwrap();
    harness.end_process(1, token, OK);
    harness.settle();
    assert!(!harness.nodes[1].lines.is_empty());
    take_over(&mut harness);
    harness.give_back(1);
    harness.settle();
    for _ in 0..40 {
        let Some(next) = harness.running().into_iter().find(|r| r.2 != StepKey::BATCH) else { break };
        harness.end_process(next.0, next.1, OK);
        harness.settle();
    }
    let ends = (0..20).map(|n| harness.core.ledger().end_of(StepKey::task(0, n)).map(|end| end.state));
    assert_eq!(ends.collect::<Vec<_>>(), [Some(StepState::Completed); 20]);
    assert!(harness.spawned.values().all(|n| *n == 1));
}

#[test]
fn an_srun_is_told_of_its_step_when_another_node_is_lost() {
    let mut harness = on_nodes(2);
    harness.srun(exact("wide", 2));
    harness.settle();
    harness.away(1);
    harness.settle();
    take_over(&mut harness);
    let client = rejoined(&mut harness);
    harness.give_up(1);
    harness.settle();
    assert_eq!(harness.finished(client), Some((StepState::Failed, killed())));
    assert!(harness.heard[&client].iter().any(|m| matches!(m, StepMgrToCommand::Accepted { .. })));
    assert_eq!(harness.running().iter().filter(|r| r.0 == 0).count(), 1);
}
