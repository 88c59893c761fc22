//! What a node is believed, and what it is not: in whose name it speaks, and of whose jobs it tells.
#![allow(clippy::unwrap_used)]

use super::fixtures::{Agents, Habit, MemoryJournal, Rig, TWO_NODES, with_system};
use garrick_model::{
    ids::RequestId,
    messages::{
        command::{
            Caller, CancelRequest, CommandReply, CommandRequest, JobMilestone, JobSelector, NodeChange, NodeStateChange,
        },
        node::{AgentReport, ControllerToNode, NodeToController},
    },
    refusal::Refusal,
    state::{ExitStatus, JobState, NodeBase, Reason},
    testing::spec,
    time::Timestamp,
    view::NodeView,
};
use std::{sync::Arc, time::Duration};

fn from_node(query: u64, uid: u32, request: CommandRequest) -> NodeToController {
    // Whatever host it names.
    let caller = Caller { uid, gid: uid, pid: 7, host: "head".to_owned() };
    NodeToController::Command { query, caller, request: Box::new(request) }
}

async fn answer(agents: &Agents, query: u64) -> CommandReply {
    let answer = agents.heard(|_, frame| match frame {
        ControllerToNode::CommandReply { query: of, reply, .. } if *of == query => Some(reply.clone()),
        _ => None,
    });
    answer.await
}

fn submit(number: u64) -> CommandRequest {
    CommandRequest::SubmitJob { request: RequestId(9, number), spec: Box::new(spec()) }
}

#[test]
fn a_node_speaks_for_users_and_not_for_root() {
    with_system(async |system| {
        let mut rig = Rig::start(&system, TWO_NODES, MemoryJournal::default());
        let mut agents = Agents::new(&rig);
        agents.connect("n0", Habit::Stay);
        agents.connect("n1", Habit::Stay);
        let job = rig.submitted(spec()).await;
        let refused = CommandReply::Refused(Refusal::HostNotTrusted { host: "n1".to_owned() });
        let selector = JobSelector { job, tasks: None, het: None, run: None };
        let cancel = CommandRequest::Cancel(CancelRequest { jobs: vec![selector], ..CancelRequest::default() });
        let acts = [submit(1), cancel, CommandRequest::Reconfigure, CommandRequest::Shutdown { controller_only: true }];
        for (query, request) in (1..).zip(acts) {
            agents.say("n1", from_node(query, 0, request));
            assert_eq!(answer(&agents, query).await, refused);
        }
        // It may take itself out of service, as health checks do, and no other node; nor may it bring itself back.
        let update = |node: &str, state| {
            let change = NodeChange { state: Some(state), reason: Some("sick".to_owned()), ..NodeChange::default() };
            CommandRequest::UpdateNode { nodes: vec![node.to_owned()], change }
        };
        agents.say("n1", from_node(10, 0, update("n0", NodeStateChange::Drain)));
        assert_eq!(answer(&agents, 10).await, refused);
        agents.say("n1", from_node(11, 1001, update("n1", NodeStateChange::Drain)));
        assert_eq!(answer(&agents, 11).await, CommandReply::Refused(Refusal::AccessDenied));
        agents.say("n1", from_node(12, 0, update("n1", NodeStateChange::Drain)));
        assert_eq!(answer(&agents, 12).await, CommandReply::Done);
        agents.say("n1", from_node(13, 0, update("n1", NodeStateChange::Resume)));
        assert_eq!(answer(&agents, 13).await, refused);
        agents.say("n1", from_node(20, 0, CommandRequest::list_jobs(Vec::new())));
        assert!(matches!(answer(&agents, 20).await, CommandReply::Jobs { jobs, .. } if jobs.len() == 1));
        agents.say("n1", from_node(21, 1001, submit(2)));
        assert!(matches!(answer(&agents, 21).await, CommandReply::Submitted { .. }));
        // At the controller's own door it is root.
        assert_eq!(rig.ask(0, CommandRequest::Reconfigure).await, CommandReply::Done);
        assert_eq!(rig.ask(1002, CommandRequest::ListCerts).await, CommandReply::Refused(Refusal::AccessDenied));
        let kept = [
            "login 1001 SubmitJob: job 1",
            "n1 0 SubmitJob: Access/permission denied",
            "n1 0 Cancel: Access/permission denied",
            "n1 0 Reconfigure: Access/permission denied",
            "n1 0 Shutdown: Access/permission denied",
            "n1 0 UpdateNode: Access/permission denied",
            "n1 1001 UpdateNode: Access/permission denied",
            "n1 0 UpdateNode: done",
            "n1 0 UpdateNode: Access/permission denied",
            "n1 1001 SubmitJob: job 2",
            "login 0 Reconfigure: done",
            "login 1002 ListCerts: Access/permission denied",
        ];
        assert_eq!(rig.audit.lines(), kept, "and nothing of what was only asked");
    });
}

/// The authority waits for the log, and nobody else for the authority.
#[test]
fn nodes_are_down_once_their_certificates_are_revoked_and_others_are_served_meanwhile() {
    with_system(async |system| {
        let rig = Rig::start(&system, TWO_NODES, MemoryJournal::default());
        let mut agents = Agents::new(&rig);
        agents.connect("n0", Habit::Stay);
        agents.connect("n1", Habit::Stay);
        rig.until_up("n0").await;
        rig.until_up("n1").await;
        let mut revocations = rig.host.revocations();
        let revoke = |node: &str| rig.ask_stream(0, CommandRequest::RevokeCerts { nodes: vec![node.to_owned()] });
        let base = |nodes: &[Arc<NodeView>], name: &str| nodes.iter().find(|n| n.name == name).map(|n| n.base);
        let mut answers = [revoke("n0"), revoke("n1")];
        for (number, answer) in answers.iter_mut().enumerate() {
            let (nodes, done) = revocations.recv().await.unwrap();
            assert_eq!(nodes, [format!("n{number}")]);
            assert!(matches!(rig.ask(0, CommandRequest::Ping).await, CommandReply::Pong { .. }));
            assert!(answer.try_recv().is_err(), "nothing is answered yet");
            rig.until_up(&nodes[0]).await;
            match number {
                0 => done.reply(Err(Refusal::RetryAfter { after: Duration::from_secs(3) })),
                _ => done.reply(Ok(1)),
            }
        }
        let refused = CommandReply::Refused(Refusal::RetryAfter { after: Duration::from_secs(3) });
        assert_eq!(answers[0].recv().await, Some(refused));
        assert_eq!(answers[1].recv().await, Some(CommandReply::Done));
        let [down, up] = [Some(NodeBase::Down), Some(NodeBase::Up)];
        rig.nodes(|nodes| (base(nodes, "n1"), base(nodes, "n0")) == (down, up)).await;
    });
}

#[test]
fn a_node_speaks_for_root_where_the_site_says_so() {
    with_system(async |system| {
        let conf = format!("{TWO_NODES}SlurmctldParameters=idle_on_node_suspend,admin_hosts=login1;n[1-2]\n");
        let rig = Rig::start(&system, &conf, MemoryJournal::default());
        let mut agents = Agents::new(&rig);
        agents.connect("n0", Habit::Stay);
        agents.connect("n1", Habit::Stay);
        agents.say("n0", from_node(1, 0, CommandRequest::Reconfigure));
        assert_eq!(answer(&agents, 1).await, CommandReply::Refused(Refusal::HostNotTrusted { host: "n0".to_owned() }));
        agents.say("n1", from_node(2, 0, CommandRequest::Reconfigure));
        assert_eq!(answer(&agents, 2).await, CommandReply::Done);
    });
}

#[test]
fn a_node_tells_nothing_of_runs_in_which_it_takes_no_part() {
    with_system(async |system| {
        let mut rig = Rig::start(&system, TWO_NODES, MemoryJournal::default());
        let mut agents = Agents::new(&rig);
        let one = || garrick_model::spec::JobSpec { nodelist: vec!["n0".to_owned()], ..spec() };
        agents.connect("n0", Habit::Wait);
        agents.connect("n1", Habit::Wait);
        let job = rig.submitted(one()).await;
        agents.heard(|_, frame| matches!(frame, ControllerToNode::StartJob(_)).then_some(())).await;
        let record = || rig.controller.env.committed.job(job).unwrap();
        let sluid = record().sluid;
        let exit = ExitStatus { code: 1, signal: None };
        let (at, reason) = (Timestamp::now(), Reason::None);
        let lies = [
            AgentReport::JobStarted { job, sluid, door: "/run/door".to_owned() },
            AgentReport::JobEnded {
                job,
                sluid,
                state: JobState::Failed,
                reason,
                exit,
                derived: exit,
                at,
                lost: vec!["n0".to_owned()],
                cause: None,
            },
            AgentReport::JobLaunchFailed {
                job,
                sluid,
                reason: Reason::PrologFailure,
                detail: "so I say".to_owned(),
                drain_node: true,
            },
            AgentReport::NodeReleased { job, sluid, epilog_failed: None, unkillable: None },
        ];
        let before = record();
        for lie in lies {
            let seq = agents.report("n1", lie);
            agents.acknowledged("n1", seq).await;
        }
        assert_eq!(record(), before);
        let seq = agents.report("n0", AgentReport::JobStarted { job, sluid, door: "/run/door".to_owned() });
        agents.acknowledged("n0", seq).await;
        assert_eq!(rig.wait(job, JobMilestone::Started).await, JobState::Running);
    });
}
