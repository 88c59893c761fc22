//! What becomes of steps while a step manager that took over asks the nodes what they have: whatever happens between two
//! nodes' answers, each step ends, once.

use crate::stepmgr::{
    StepMgrConfig, StepMgrInput,
    builders::{exact, run},
    company::Company,
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
fn on_nodes(nodes: usize) -> Company {
    let mut facts = run(JobKind::Batch, &vec![1; nodes]);
    let mut spec = facts.spec.as_ref().clone();
    spec.no_kill = true;
    facts.spec = std::sync::Arc::new(spec);
    Company::ready(facts, StepMgrConfig::default())
}

/// Step 0 has a task on each of so many nodes. Another `stepd` took over on the batch host, and the last of the other nodes
/// cannot be reached: all but that one have said what they have.
fn one_answer_missing(nodes: usize, spec: StepSpec) -> Company {
    let mut company = on_nodes(nodes);
    company.enqueue(vec![spec]);
    company.settle();
    assert_eq!(company.running().len(), nodes + 1);
    company.away(nodes - 1);
    company.settle();
    take_over(&mut company);
    company
}

fn wide(nodes: usize) -> Company {
    one_answer_missing(nodes, exact("wide", nodes as u32))
}

fn take_over(company: &mut Company) {
    company.restart_process(usize::MAX);
    company.settle();
}

/// The step's task on a node ends.
fn exit_on(company: &mut Company, node: usize, status: ExitStatus) {
    let running = company.running();
    let (_, token, ..) = running.iter().find(|(n, _, step, _)| *n == node && *step == StepKey::number(0)).unwrap();
    company.end_process(node, *token, status);
    company.settle();
}

fn back(company: &mut Company, node: usize) {
    company.back(node);
    company.settle();
}

fn end(company: &Company) -> Option<(StepState, ExitStatus)> {
    company.core.ledger().end_of(StepKey::number(0)).map(|end| (end.state, end.exit))
}

fn killed() -> ExitStatus {
    ExitStatus { code: 0, signal: Some(9) }
}

fn end_job(company: &mut Company) {
    company.tell(NodeToStepd::EndJob { state: JobState::Cancelled, reason: Reason::None, lost: Vec::new() });
    company.settle();
}

/// Nothing of the run is left, and each accepted step has an end.
fn assert_over(company: &Company) {
    assert!(company.exited, "{:?}", company.core.phase());
    assert_eq!(company.core.counts().queued + company.core.counts().running, 0);
    assert!(company.core.ledger().running.is_empty());
}

/// What a task's end was said of was the former step manager's, as it seemed: it was dropped, and the step ran for ever.
#[test]
fn a_task_that_ends_between_the_answers_of_two_nodes_is_over() {
    for first_of_two in [true, false] {
        let mut company = wide(2);
        if first_of_two {
            exit_on(&mut company, 0, code(3));
            back(&mut company, 1);
            assert_eq!(end(&company), None);
            exit_on(&mut company, 1, OK);
        } else {
            exit_on(&mut company, 0, code(3));
            // It ends there too, and its shepherd says so when it can.
            exit_on(&mut company, 1, OK);
            back(&mut company, 1);
        }
        assert_eq!(end(&company), Some((StepState::Failed, code(3))), "{first_of_two}");
        assert_eq!((company.core.counts().running, company.running().len()), (0, 1));
        company.exit(StepKey::BATCH, OK);
        assert_over(&company);
    }
}

#[test]
fn tasks_that_died_with_their_launcher_between_the_answers_of_two_nodes_are_over() {
    let mut company = wide(3);
    company.lose_launcher(1);
    company.settle();
    back(&mut company, 2);
    exit_on(&mut company, 0, OK);
    assert_eq!(end(&company), None);
    exit_on(&mut company, 2, OK);
    assert_eq!(end(&company), Some((StepState::Failed, killed())));
    assert_eq!(company.core.counts().running, 0);
}

/// The first of them was taken for the last, and the others for ones that nobody saw end.
#[test]
fn tasks_that_ended_together_while_no_step_manager_was_there_count_with_their_ends() {
    for same_shepherd in [true, false] {
        let mut company = Company::ready(run(JobKind::Batch, &[3]), StepMgrConfig::default());
        company.enqueue(vec![exact("three", 3)]);
        company.settle();
        for (_, token, step, rank) in company.running() {
            if step == StepKey::number(0) {
                company.end_process(0, token, code(rank as u8));
            }
        }
        company.settle_nodes();
        if same_shepherd {
            company.restart_manager();
            company.settle();
        } else {
            take_over(&mut company);
        }
        assert_eq!(end(&company), Some((StepState::Failed, code(2))), "{same_shepherd}");
    }
}

/// It had said that its task lives: that was believed for ever.
#[test]
fn a_node_that_is_lost_between_the_answers_of_two_others_takes_its_tasks_with_it() {
    for gone in [true, false] {
        let mut company = wide(3);
        if gone {
            company.lose(1);
        } else {
            company.away(1);
            company.give_up(1);
        }
        company.settle();
        back(&mut company, 2);
        // What is left of the step is ended, as that of a step on a lost node is.
        assert_eq!(end(&company).map(|end| end.0), Some(StepState::NodeFail), "{gone}");
        assert!(company.running().iter().all(|r| r.0 == 1 || r.2 == StepKey::BATCH));
        if !gone {
            // It comes back, and is told to end what it has.
            back(&mut company, 1);
            assert_eq!(company.running().len(), 1);
        }
        company.exit(StepKey::BATCH, OK);
        assert_over(&company);
    }
}

#[test]
fn a_node_that_is_lost_before_its_answer_ends_the_step_as_any_lost_node_does() {
    let mut company = wide(2);
    company.give_up(1);
    company.settle();
    assert_eq!(end(&company).map(|end| end.0), Some(StepState::NodeFail));
    assert_eq!(company.running().iter().filter(|r| r.0 == 0).count(), 1);
}

/// Its first answer was added up with its second.
#[test]
fn a_node_that_answers_twice_is_believed_the_second_time() {
    for new_shepherd in [true, false] {
        let mut company = wide(3);
        company.away(1);
        company.settle();
        let (_, token, ..) = company.running().into_iter().find(|r| r.0 == 1).unwrap();
        company.end_process(1, token, code(4));
        if new_shepherd {
            company.adopt(1);
        }
        company.settle();
        back(&mut company, 1);
        back(&mut company, 2);
        exit_on(&mut company, 0, OK);
        exit_on(&mut company, 2, OK);
        assert_eq!(end(&company), Some((StepState::Failed, code(4))), "{new_shepherd}");
    }
}

#[test]
fn a_node_that_forgot_its_tasks_between_two_answers_has_them_over_with_an_unknown_exit() {
    let mut company = wide(3);
    company.away(1);
    company.settle();
    company.forget_node(1);
    back(&mut company, 1);
    back(&mut company, 2);
    exit_on(&mut company, 0, OK);
    exit_on(&mut company, 2, OK);
    assert_eq!(end(&company), Some((StepState::Failed, killed())));
}

#[test]
fn several_takeovers_in_a_row_lose_nothing_of_a_step() {
    let mut company = wide(2);
    exit_on(&mut company, 0, code(3));
    take_over(&mut company);
    take_over(&mut company);
    back(&mut company, 1);
    take_over(&mut company);
    exit_on(&mut company, 1, OK);
    take_over(&mut company);
    assert_eq!(end(&company), Some((StepState::Failed, code(3))));
    assert_eq!(company.core.counts().running, 0);
}

#[test]
fn an_srun_whose_tasks_end_between_the_answers_of_two_nodes_is_told_how() {
    let mut company = on_nodes(2);
    company.srun(exact("wide", 2));
    company.settle();
    company.away(1);
    company.settle();
    take_over(&mut company);
    let back_again = rejoined(&mut company);
    exit_on(&mut company, 0, code(5));
    exit_on(&mut company, 1, OK);
    back(&mut company, 1);
    assert_eq!(company.finished(back_again), Some((StepState::Failed, code(5))));
}

fn rejoined(company: &mut Company) -> ClientId {
    let facts = company.core.facts();
    let (step, sluid) = (StepId::of(facts.job, StepKey::number(0)), facts.sluid);
    let client = company.connect();
    company.say(client, CommandToStepMgr::Rejoin { step, sluid });
    company.settle();
    client
}

/// It waited for ever: what waited already when a node was lost had been looked through, and this came later.
#[test]
fn a_step_that_is_too_large_for_the_nodes_that_are_left_is_not_tried_again() {
    for taken_over in [true, false] {
        let retry = Some(RetryPolicy { count: 1, delay_secs: 0, on: Vec::new() });
        let spec = StepSpec { retry, ..exact("wide", 3) };
        let mut company = if taken_over {
            one_answer_missing(3, spec)
        } else {
            let mut company = on_nodes(3);
            company.enqueue(vec![spec]);
            company.settle();
            company
        };
        company.lose(1);
        company.settle();
        if taken_over {
            back(&mut company, 2);
        }
        assert_eq!(end(&company).map(|end| end.0), Some(StepState::NodeFail), "{taken_over}");
        assert_eq!(company.core.counts().queued, 0);
    }
}

#[test]
fn a_step_that_was_never_begun_and_is_too_large_for_the_nodes_that_are_left_ends() {
    let mut company = on_nodes(4);
    company.enqueue(vec![exact("wide", 3)]);
    company.settle();
    company.lose(3);
    for node in 0..3 {
        company.lose_orders(node);
    }
    company.away(2);
    company.settle();
    take_over(&mut company);
    company.lose(1);
    company.settle();
    back(&mut company, 2);
    assert_eq!(end(&company).map(|end| end.0), Some(StepState::NodeFail));
    assert_eq!(company.core.counts().queued + company.core.counts().running, 0);
}

/// Of the two nodes one had nothing of the run any more, and its shepherd, waiting for its agent to let it go, said nothing when
/// asked. The run was swept for ever.
#[test]
fn a_node_that_was_cleaned_by_its_agent_meanwhile_is_not_waited_for() {
    for ending_first in [true, false] {
        let mut company = wide(2);
        company.end_by_agent(1);
        // Its word that it is clean was for the step manager before.
        take_over(&mut company);
        if ending_first {
            end_job(&mut company);
            company.advance(Duration::from_secs(60));
            back(&mut company, 1);
        } else {
            back(&mut company, 1);
            exit_on(&mut company, 0, OK);
            assert_eq!(end(&company), Some((StepState::Failed, killed())));
            end_job(&mut company);
        }
        company.advance(Duration::from_secs(60));
        assert_over(&company);
        assert!(end(&company).is_some());
    }
}

/// It says so before it says what it had.
#[test]
fn a_node_that_says_it_is_clean_while_the_run_is_swept_is_not_asked_what_it_has() {
    let mut company = wide(2);
    end_job(&mut company);
    company.advance(Duration::from_secs(60));
    assert_eq!(company.core.phase(), RunPhase::Sweeping);
    let message = garrick_model::messages::shepherd::ShepherdToStepMgr::Gone;
    company.tell_manager(StepMgrInput::Shepherd { node: crate::step::NodeSlot(1), message });
    company.settle();
    assert_over(&company);
    assert_eq!(end(&company).map(|end| end.0), Some(StepState::Cancelled));
}

/// A node never said that it is clean: the run was said to be, and steps there had no end.
#[test]
fn no_run_is_over_before_each_of_its_steps_has_an_end() {
    for taken_over in [false, true] {
        let mut company = on_nodes(2);
        company.enqueue(vec![exact("here", 1), exact("there", 1)]);
        company.settle();
        company.away(1);
        company.settle();
        if taken_over {
            take_over(&mut company);
        }
        end_job(&mut company);
        company.advance(Duration::from_secs(40));
        assert_eq!(company.core.phase(), RunPhase::Ended);
        assert_eq!(company.core.counts().running, 1);
        company.advance(Duration::from_secs(300));
        assert_over(&company);
        let ends = [0, 1].map(|step| company.core.ledger().end_of(StepKey::number(step)).map(|end| end.state));
        assert_eq!(ends, [Some(StepState::Cancelled); 2], "{taken_over}");
        // And they are reported.
        assert!(company.core.ledger().outbox.is_empty());
        let reports = company.job_reports();
        assert_eq!(reports.iter().filter(|r| **r == StepdReport::Gone).count(), 1);
    }
}

#[test]
fn a_step_that_is_cancelled_before_it_is_known_where_it_is_ends() {
    let cancel = || {
        let steps = "0".parse().unwrap();
        NodeToStepd::SignalSteps { steps, pending_only: false, signal: None, by: None }
    };
    let mut company = wide(2);
    company.tell(cancel());
    company.settle();
    back(&mut company, 1);
    company.settle();
    assert_eq!(end(&company).map(|end| end.0), Some(StepState::Cancelled));
    assert_eq!(company.running().len(), 1);
    // One that never began is not begun.
    let mut company = on_nodes(2);
    company.enqueue(vec![exact("wide", 2)]);
    company.settle();
    for node in [0, 1] {
        company.lose_orders(node);
    }
    company.restart_manager();
    company.tell_manager(StepMgrInput::Agent(cancel()));
    company.settle();
    assert_eq!(end(&company).map(|end| end.0), Some(StepState::Cancelled));
    assert_eq!(company.spawned.get(&(StepKey::number(0), 0)), Some(&1));
}

#[test]
fn a_signal_for_a_step_is_sent_once_it_is_known_where_it_is() {
    let mut company = wide(2);
    let steps = "0".parse().unwrap();
    company.tell(NodeToStepd::SignalSteps { steps, pending_only: false, signal: Some(10), by: None });
    company.settle();
    assert_eq!(company.signals, []);
    back(&mut company, 1);
    assert_eq!(company.signals, [(10, true), (10, true)]);
}

/// It began anew with each step manager.
#[test]
fn a_steps_own_time_limit_counts_from_its_start() {
    let mut company = on_nodes(1);
    company.enqueue(vec![StepSpec { time_limit: Some(TimeLimit::Secs(100)), ..exact("a", 1) }]);
    company.settle();
    for _ in 0..2 {
        company.advance(Duration::from_secs(40));
        take_over(&mut company);
    }
    assert_eq!(end(&company), None);
    company.advance(Duration::from_secs(21));
    assert_eq!(end(&company).map(|end| end.0), Some(StepState::Timeout));
}

/// Its node's shepherd had lived on: it said that the step was there, and later that it never ran.
#[test]
fn a_lined_up_step_that_is_given_back_to_the_next_step_manager_waits_again() {
    let config = StepMgrConfig { line_length: 3, pace_window: Duration::ZERO, ..StepMgrConfig::default() };
    let mut company = Company::ready(run(JobKind::Batch, &[1, 1]), config);
    company.enqueue_array(exact("a", 1), "0-19");
    company.settle();
    let (_, token, ..) = company.running().into_iter().find(|r| r.0 == 1).unwrap();
    company.end_process(1, token, OK);
    company.settle();
    assert!(!company.nodes[1].lines.is_empty());
    take_over(&mut company);
    company.give_back(1);
    company.settle();
    for _ in 0..40 {
        let Some(next) = company.running().into_iter().find(|r| r.2 != StepKey::BATCH) else { break };
        company.end_process(next.0, next.1, OK);
        company.settle();
    }
    let ends = (0..20).map(|n| company.core.ledger().end_of(StepKey::task(0, n)).map(|end| end.state));
    assert_eq!(ends.collect::<Vec<_>>(), [Some(StepState::Completed); 20]);
    assert!(company.spawned.values().all(|n| *n == 1));
}

#[test]
fn an_srun_is_told_of_its_step_when_another_node_is_lost() {
    let mut company = on_nodes(2);
    company.srun(exact("wide", 2));
    company.settle();
    company.away(1);
    company.settle();
    take_over(&mut company);
    let client = rejoined(&mut company);
    company.give_up(1);
    company.settle();
    assert_eq!(company.finished(client), Some((StepState::Failed, killed())));
    assert!(company.heard[&client].iter().any(|m| matches!(m, StepMgrToCommand::Accepted { .. })));
    assert_eq!(company.running().iter().filter(|r| r.0 == 0).count(), 1);
}
