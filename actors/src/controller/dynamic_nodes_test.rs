//! Nodes that come and go, with the whole controller in one process and agents that are played.
#![allow(clippy::unwrap_used)]

use super::{
    fixtures::{Agents, Habit, MemoryJournal, Rig, config_of, with_system},
    messages::ControllerMsg,
    shells::actor::OwnerMsg,
};
use crate::roster::{core::RosterInput, nodes::Roster};
use garrick_events::event::ControllerEvent;
use garrick_model::{
    config::{Config, DynamicNode, read_files},
    ids::JobId,
    messages::{
        command::{CommandReply, CommandRequest, JobMilestone, NodeChange},
        node::{ControllerToNode, Joining, Neighbour},
    },
    refusal::Refusal,
    reservation::Reservation,
    spec::{JobSpec, NodeCount},
    state::{JobState, NodeBase},
    testing::spec,
};
use std::{collections::BTreeMap, path::Path, sync::Arc};

const SITE: &str = "ClusterName=c\nSlurmctldHost=head\nMaxNodeCount=4\nReturnToService=2\nNodeName=n0 CPUs=4 RealMemory=1000\n\
                    NodeSet=fast Feature=f1\nPartitionName=all Nodes=ALL Default=YES\nPartitionName=fast Nodes=fast\n";

const TREE: &str = "SwitchName=root Switches=s1,s2\nSwitchName=s1 Nodes=n0\nSwitchName=s2\n";

fn config(slurm: &str) -> Arc<Config> {
    let files = [("/x/slurm.conf", slurm), ("/x/topology.conf", TREE)];
    let (config, report) = read_files(Path::new("/x/slurm.conf"), &files);
    Arc::new(config.unwrap_or_else(|| panic!("{:?}", report.errors().map(ToString::to_string).collect::<Vec<_>>())))
}

fn with_tree() -> String {
    format!("{SITE}TopologyPlugin=topology/tree\n")
}

fn joins(roster: &mut Roster, name: &str, line: &str) -> Result<u32, String> {
    let joining = Joining { line: line.to_owned(), port: 7000 };
    let news = roster.joined(name, &joining, "host", "10.0.0.9", &[2].into());
    let put = news.and_then(|news| news.map_or(Ok(()), |node| roster.put(vec![node])));
    put.map_err(|refusal| refusal.to_string())?;
    roster.settle();
    Ok(roster.config().node(name).unwrap().index.0)
}

#[test]
fn indices_stay_while_nodes_come_and_go() {
    let mut roster = Roster::new(config(SITE), BTreeMap::new());
    assert_eq!(joins(&mut roster, "d1", "CPUs=4"), Ok(1));
    // Index 2 is spoken of by jobs.
    assert_eq!(joins(&mut roster, "d2", "CPUs=4"), Ok(3));
    assert_eq!(roster.delete(&["d1".to_owned(), "d9".to_owned()]), ["d1"]);
    roster.settle();
    assert_eq!(roster.config().node("d2").unwrap().index.0, 3);
    assert_eq!(joins(&mut roster, "d3", "CPUs=4"), Ok(1));
    assert_eq!(joins(&mut roster, "d4", "CPUs=4"), Ok(4));
    let full = "there is no room for another node (MaxNodeCount=4)";
    assert_eq!(joins(&mut roster, "d5", "CPUs=4"), Err(full.to_owned()));
    assert!(roster.admits("d4").is_ok());
    assert!(roster.admits("d5").unwrap_err().ends_with(full));
    // Read again with one more node in the file: the others keep what they have, behind it.
    let more = SITE.replace("MaxNodeCount=4", "MaxNodeCount=9").replace("n0 CPUs", "n0,d3 CPUs");
    assert_eq!(roster.read_again(config(&more)), ["d3"]);
    let names: Vec<_> = roster.config().nodes.iter().map(|n| (n.name.clone(), n.index.0, n.dynamic)).collect();
    let expected = [("n0", 0, false), ("d3", 1, false), ("d2", 4, true), ("d4", 5, true)];
    assert_eq!(names, expected.map(|(name, index, dynamic)| (name.to_owned(), index, dynamic)));
}

#[test]
fn places_in_topologies_are_checked() {
    let mut roster = Roster::new(config(&with_tree()), BTreeMap::new());
    let wrong = joins(&mut roster, "d1", "CPUs=4 Topology=default:s9").unwrap_err();
    assert!(wrong.contains("no switch is called s9"), "{wrong}");
    let wrong = joins(&mut roster, "d1", "CPUs=4 Topology=other:s1").unwrap_err();
    assert!(wrong.contains("no topology is called other (there are default)"), "{wrong}");
    assert_eq!(roster.nodes().len(), 0);
    assert_eq!(joins(&mut roster, "d1", "CPUs=4 Topology=default:s2"), Ok(1));
    let switch = |roster: &Roster, name| roster.config().topologies[0].layout.nodes_of(name).unwrap().to_string();
    assert_eq!(switch(&roster, "s2"), "d1");
    places(&mut roster, "d1", "default:root:s3").unwrap();
    assert_eq!((switch(&roster, "s2"), switch(&roster, "s3")), (String::new(), "d1".to_owned()));
    places(&mut roster, "d1", "").unwrap();
    assert_eq!(switch(&roster, "root"), "n0");
    let refused = roster.place(&["d1".to_owned(), "n0".to_owned()], "default:s2").unwrap_err();
    assert!(refused.to_string().ends_with("is not supported yet"), "{refused}");
    assert!(matches!(roster.place(&["d7".to_owned()], ""), Err(Refusal::InvalidNode(_))));
}

fn places(roster: &mut Roster, name: &str, place: &str) -> Result<(), String> {
    let placed = roster.place(&[name.to_owned()], place).map_err(|refusal| refusal.to_string());
    roster.settle();
    placed
}

fn unit(roster: &Roster, name: &str) -> String {
    roster.config().topologies[0].layout.nodes_of(name).unwrap_or_default().sorted().to_string()
}

#[test]
fn a_cell_that_is_taken_is_refused_whoever_came_first() {
    const TORUS: &str = "- topology: t\n  cluster_default: true\n  torus3d:\n    toruses:\n      - name: pod1\n        \
                         dims: {x: 2, y: 2, z: 1}\n        regions:\n          - {anchor: {x: 0, y: 0, z: 0}, \
                         dims: {x: 1, y: 1, z: 1}, nodes: n0}\n";
    let files = [("/x/slurm.conf", SITE), ("/x/topology.yaml", TORUS)];
    let (config, report) = read_files(Path::new("/x/slurm.conf"), &files);
    let config = config.unwrap_or_else(|| panic!("{:?}", report.errors().map(ToString::to_string).collect::<Vec<_>>()));
    let mut roster = Roster::new(Arc::new(config), BTreeMap::new());
    joins(&mut roster, "d1", "CPUs=4").unwrap();
    joins(&mut roster, "d2", "CPUs=4 Topology=t:pod1:1:1:0").unwrap();
    let refused = places(&mut roster, "d1", "t:pod1:1:1:0").unwrap_err();
    assert!(refused.contains("node d1: ") && refused.contains("that of node d2"), "{refused}");
    assert_eq!(unit(&roster, "pod1"), "d2,n0");
    places(&mut roster, "d1", "t:pod1:0:1:0").unwrap();
    assert_eq!(unit(&roster, "pod1"), "d[1-2],n0");
}

#[test]
fn a_switch_lasts_as_long_as_a_node_is_in_it() {
    let base = config(&with_tree());
    let mut roster = Roster::new(Arc::clone(&base), BTreeMap::new());
    joins(&mut roster, "d0", "CPUs=4").unwrap();
    joins(&mut roster, "d1", "CPUs=4 Topology=default:root:s3").unwrap();
    joins(&mut roster, "d2", "CPUs=4 Topology=default:s3").unwrap();
    // Its place among the nodes is before that of the node which made the switch.
    places(&mut roster, "d0", "default:s3").unwrap();
    assert_eq!(unit(&roster, "s3"), "d[0-2]");
    roster.delete(&["d1".to_owned()]);
    roster.settle();
    assert_eq!(unit(&roster, "s3"), "d[0,2]");
    // From what is saved.
    let again = Roster::new(base, roster.nodes().clone());
    assert_eq!(unit(&again, "s3"), "d[0,2]");
    // Its daemon comes again with the same words.
    joins(&mut roster, "d2", "CPUs=4 Topology=default:s3").unwrap();
    assert_eq!(unit(&roster, "s3"), "d[0,2]");
    places(&mut roster, "d2", "default:s2").unwrap();
    places(&mut roster, "d0", "").unwrap();
    assert!(places(&mut roster, "d2", "default:s3").unwrap_err().contains("no switch is called s3"));
}

/// Whatever else the daemon says of the node.
#[test]
fn a_place_stays_until_the_daemon_says_another() {
    let mut roster = Roster::new(config(&with_tree()), BTreeMap::new());
    joins(&mut roster, "d1", "CPUs=4 RealMemory=1000 Topology=default:s1").unwrap();
    places(&mut roster, "d1", "default:s2").unwrap();
    joins(&mut roster, "d1", "CPUs=4 RealMemory=999 Topology=default:s1").unwrap();
    assert_eq!(unit(&roster, "s2"), "d1");
    joins(&mut roster, "d1", "CPUs=4 RealMemory=999 Topology=default:root:s4").unwrap();
    assert_eq!((unit(&roster, "s2"), unit(&roster, "s4")), (String::new(), "d1".to_owned()));
}

/// For one that was created, too.
#[test]
fn the_place_of_a_created_node_stays_until_the_daemon_says_another() {
    let mut roster = Roster::new(config(&with_tree()), BTreeMap::new());
    roster.create("d1", "CPUs=4 State=CLOUD", &Default::default(), &|_| true).unwrap();
    joins(&mut roster, "d1", "Topology=default:s1").unwrap();
    assert_eq!(unit(&roster, "s1"), "d1,n0");
    places(&mut roster, "d1", "default:s2").unwrap();
    joins(&mut roster, "d1", "Topology=default:s1").unwrap();
    assert_eq!(unit(&roster, "s2"), "d1");
    joins(&mut roster, "d1", "Topology=default:root:s4").unwrap();
    assert_eq!((unit(&roster, "s2"), unit(&roster, "s4")), (String::new(), "d1".to_owned()));
    // One that says nothing of it any more stays where it is.
    joins(&mut roster, "d1", "").unwrap();
    assert_eq!(unit(&roster, "s4"), "d1");
}

#[test]
fn what_does_not_change_is_no_news() {
    let mut roster = Roster::new(config(&with_tree()), BTreeMap::new());
    joins(&mut roster, "d1", "CPUs=4 Topology=default:s2").unwrap();
    let again = |line: &str| {
        let joining = Joining { line: line.to_owned(), port: 7000 };
        roster.joined("d1", &joining, "host", "10.0.0.9", &[2].into()).unwrap()
    };
    assert_eq!(again("CPUs=4 Topology=default:s2"), None);
    assert_eq!(again("CPUs=2 Topology=default:s2").unwrap().line, "CPUs=2 Topology=default:s2");
}

#[test]
fn nodes_that_the_file_has_are_not_restored() {
    let base = config(SITE);
    let node = |name: &str, slot| DynamicNode { name: name.to_owned(), slot, ..DynamicNode::default() };
    let saved = [("d1".to_owned(), node("d1", 1)), ("n0".to_owned(), node("n0", 0))].into();
    let (roster, of_file) = Roster::restored(base, saved, BTreeMap::new());
    assert_eq!(of_file, ["n0"]);
    assert_eq!(roster.nodes().keys().collect::<Vec<_>>(), ["d1"]);
    assert_eq!(roster.config().nodes.len(), 2);
}

/// The topology's file has lost the switch: the daemon is a node without a place, not one that is declined for ever.
#[test]
fn a_node_whose_place_is_gone_may_come_again() {
    let mut roster = Roster::new(config(&with_tree()), BTreeMap::new());
    joins(&mut roster, "d1", "CPUs=4 Topology=default:s2").unwrap();
    let tree = "SwitchName=root Switches=s1\nSwitchName=s1 Nodes=n0\n";
    let slurm = with_tree();
    let files = [("/x/slurm.conf", slurm.as_str()), ("/x/topology.conf", tree)];
    roster.read_again(Arc::new(read_files(Path::new("/x/slurm.conf"), &files).0.unwrap()));
    assert_eq!(joins(&mut roster, "d1", "CPUs=4 Topology=default:s2"), Ok(1));
    // And others are not refused for it.
    assert_eq!(joins(&mut roster, "d2", "CPUs=4 Topology=default:s1"), Ok(3));
}

#[test]
fn nodes_are_created_all_or_none() {
    let mut roster = Roster::new(config(SITE), BTreeMap::new());
    let no_slash = |name: &str| !name.contains('/');
    let mut create = |names: &str, line: &str| {
        roster.create(names, line, &Default::default(), &no_slash).map_err(|refusal| refusal.to_string())
    };
    let state = "Invalid node state specified: only State=CLOUD and State=FUTURE nodes can be created";
    assert_eq!(create("d[1-2]", "CPUs=4"), Err(state.to_owned()));
    assert_eq!(create("n0", "State=cloud"), Err("Node n0 exists already".to_owned()));
    assert!(create("d[1-9]", "State=cloud").unwrap_err().contains("MaxNodeCount=4"));
    assert!(create("x/d1", "State=cloud").unwrap_err().starts_with("Invalid node name specified: \"x/d1\""));
    assert!(create("d1", "State=cloud Bogus=1").unwrap_err().contains("unknown key Bogus"));
    let addresses = "CPUs=4 NodeAddr=a[1-2] Port=7001 State=CLOUD Feature=f1";
    assert_eq!(create("d[1-2]", addresses).unwrap(), ["d1", "d2"]);
    roster.settle();
    let config = roster.config();
    let targets: Vec<String> = config.nodes.iter().skip(1).map(|node| node.target()).collect();
    assert_eq!(targets, ["a1:7001", "a2:7001"]);
    assert_eq!(config.partition("fast").unwrap().nodes.to_string(), "d[1-2]");
    // What its daemon says of itself does not change one that was created.
    assert_eq!(joins(&mut roster, "d2", "CPUs=2 Feature=other"), Ok(2));
    let config = roster.config();
    let d2 = config.node("d2").unwrap();
    assert_eq!((d2.settings.shape.cpus, d2.target()), (4, "10.0.0.9:7000".to_owned()));
    assert!(joins(&mut roster, "n0", "").unwrap_err().contains("without -Z"));
}

/// Until a node's board entry is as wanted; `None`: it is not there.
async fn until(rig: &Rig, name: &str, wanted: Option<NodeBase>) {
    let board = &rig.controller.env.boards.nodes;
    let reached = async {
        loop {
            let generation = board.generation();
            if board.list().iter().find(|node| node.name == name).map(|node| node.base) == wanted {
                return;
            }
            board.changed(generation).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), reached).await.unwrap();
}

fn on(node: &str) -> JobSpec {
    JobSpec { nodelist: vec![node.to_owned()], ..spec() }
}

async fn delete(rig: &Rig, nodes: &[&str]) -> CommandReply {
    rig.ask(0, CommandRequest::DeleteNodes { nodes: nodes.iter().map(ToString::to_string).collect() }).await
}

fn said(reply: CommandReply) -> String {
    match reply {
        CommandReply::Refused(refusal) => refusal.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_node_joins_runs_jobs_outlives_a_restart_and_is_deleted() {
    let journal = MemoryJournal::default();
    let kept = journal.clone();
    with_system(async move |system| {
        let mut rig = Rig::start(&system, SITE, kept);
        let mut agents = Agents::new(&rig);
        let two = JobSpec { nodes: Some(NodeCount { min: 2, max: None }), ..spec() };
        // More nodes than there are: it waits until another one joins.
        let wide = rig.submitted(two).await;
        assert!(matches!(rig.submit(on("d1")).await, CommandReply::Refused(Refusal::InvalidNode(_))));
        agents.connect("n0", Habit::Finish);
        agents.join("d1", Habit::Finish, "CPUs=4 RealMemory=1000 Feature=f1");
        until(&rig, "d1", Some(NodeBase::Up)).await;
        assert!(rig.journal.replayed().dynamic_nodes.contains_key("d1"));
        assert_eq!(rig.wait(wide, JobMilestone::Ended).await, JobState::Completed);
        let fast = rig.submitted(JobSpec { partitions: vec!["fast".to_owned()], ..spec() }).await;
        assert_eq!(rig.wait(fast, JobMilestone::Ended).await, JobState::Completed);
        agents.join("d2", Habit::Stay, "CPUs=4 RealMemory=1000");
        until(&rig, "d2", Some(NodeBase::Up)).await;
        let stays = rig.submitted(on("d2")).await;
        rig.wait(stays, JobMilestone::Started).await;
    });
    with_system(async move |system| {
        let mut rig = Rig::start(&system, SITE, journal);
        let config = rig.controller.env.config();
        assert_eq!(config.partition("all").unwrap().nodes.to_string(), "n0,d[1-2]");
        assert_eq!(rig.controller.env.nodes.get("d2").unwrap().view().holds.len(), 1);
        assert!(rig.controller.env.nodes.get("d1").unwrap().view().flags.dynamic);
        assert_eq!(said(delete(&rig, &["d2"]).await), "Requested nodes are busy: d2 has jobs 3");
        assert!(said(delete(&rig, &["n0"]).await).contains("n0 is a node of slurm.conf"));
        assert_eq!(said(delete(&rig, &["d7"]).await), "Invalid node name specified");
        assert!(matches!(
            rig.ask(1001, CommandRequest::DeleteNodes { nodes: vec!["d1".to_owned()] }).await,
            CommandReply::Refused(Refusal::AccessDenied)
        ));
        let waits = rig.submitted(on("d1")).await;
        assert_eq!(delete(&rig, &["d1"]).await, CommandReply::Done);
        until(&rig, "d1", None).await;
        assert_eq!(rig.controller.env.config().node("d2").unwrap().index.0, 2);
        assert!(!rig.journal.replayed().dynamic_nodes.contains_key("d1"));
        assert!(matches!(rig.submit(on("d1")).await, CommandReply::Refused(Refusal::InvalidNode(_))));
        // The one that waits for it is considered again when it is back.
        let mut agents = Agents::new(&rig);
        agents.join("d1", Habit::Finish, "CPUs=4 RealMemory=1000");
        assert_eq!(rig.wait(waits, JobMilestone::Ended).await, JobState::Completed);
        assert_eq!(waits, JobId(4));
    });
}

#[test]
fn reserved_nodes_stay() {
    with_system(async |system| {
        let rig = Rig::start(&system, SITE, MemoryJournal::default());
        let line = "CPUs=4 RealMemory=1000 State=FUTURE".to_owned();
        let create = CommandRequest::CreateNodes { names: "d[1-2]".to_owned(), line };
        assert_eq!(rig.ask(0, create).await, CommandReply::Done);
        until(&rig, "d1", Some(NodeBase::Future)).await;
        let reservation =
            Reservation { name: "maint".to_owned(), nodes: vec!["d1".to_owned()], ..Reservation::default() };
        let (reservation, saved) = ("maint".to_owned(), Some(Box::new(reservation)));
        rig.controller.env.committed.advance(&[ControllerEvent::Reservation { reservation, saved, at: None }]);
        assert_eq!(
            said(delete(&rig, &["all"]).await),
            "Invalid node state specified: n0 is a node of slurm.conf, not a dynamic one"
        );
        until(&rig, "d2", None).await;
        assert_eq!(said(delete(&rig, &["d1"]).await), "Requested nodes are busy: d1 is in reservation maint");
        let place = NodeChange { topology: Some("default:s1".to_owned()), ..NodeChange::default() };
        let update = CommandRequest::UpdateNode { nodes: vec!["d1".to_owned()], change: place };
        assert!(said(rig.ask(0, update).await).contains("no topology is called default"));
    });
}

#[test]
fn a_node_that_the_file_has_now_keeps_what_was_said_of_it() {
    for by_restart in [false, true] {
        let journal = MemoryJournal::default();
        let kept = journal.clone();
        let more = SITE.replace("n0 CPUs", "n0,d1 CPUs");
        let now = more.clone();
        with_system(async move |system| {
            let rig = Rig::start(&system, SITE, kept);
            let line = "CPUs=4 RealMemory=1000 State=CLOUD".to_owned();
            let create = CommandRequest::CreateNodes { names: "d1".to_owned(), line };
            assert_eq!(rig.ask(0, create).await, CommandReply::Done);
            let change = NodeChange { comment: Some("rack 7".to_owned()), ..NodeChange::default() };
            let update = CommandRequest::UpdateNode { nodes: vec!["d1".to_owned()], change };
            assert_eq!(rig.ask(0, update).await, CommandReply::Done);
            if !by_restart {
                rig.frontend().try_send(ControllerMsg::config_changed(config_of(&now), None)).unwrap();
                rig.nodes(|nodes| nodes.iter().any(|node| node.name == "d1" && !node.flags.dynamic)).await;
            }
        });
        let again = journal.clone();
        with_system(async move |system| drop(Rig::start(&system, &more, again)));
        let replayed = journal.replayed();
        assert!(replayed.dynamic_nodes.is_empty());
        assert_eq!(replayed.nodes["d1"].comment.as_deref(), Some("rack 7"), "by restart: {by_restart}");
    }
}

#[test]
fn a_node_that_comes_again_at_once_is_another_one() {
    with_system(async |system| {
        let mut rig = Rig::start(&system, SITE, MemoryJournal::default());
        let mut agents = Agents::new(&rig);
        agents.join("d1", Habit::Finish, "CPUs=4 RealMemory=1000");
        until(&rig, "d1", Some(NodeBase::Up)).await;
        rig.journal.hold();
        let mut deleted = rig.ask_stream(0, CommandRequest::DeleteNodes { nodes: vec!["d1".to_owned()] });
        rig.journal.held().await;
        // Its daemon is told to end, and not the one that comes while that is being saved.
        let mut later = Agents::new(&rig);
        later.connect("n0", Habit::Finish);
        later.join("d1", Habit::Finish, "CPUs=4 RealMemory=1000");
        // Its owner was asked before it was deleted and came again.
        let gone = vec![("d1".to_owned(), None)];
        let retired = RosterInput::Retired { request: 0, asked: 0, gone, stay: None };
        rig.controller.env.roster_owner().unwrap().try_send(OwnerMsg::Input(retired)).unwrap();
        rig.journal.release();
        assert_eq!(deleted.recv().await, Some(CommandReply::Done));
        until(&rig, "d1", Some(NodeBase::Up)).await;
        assert!(rig.controller.env.config().node("d1").is_some());
        let job = rig.submitted(on("d1")).await;
        assert_eq!(rig.wait(job, JobMilestone::Ended).await, JobState::Completed);
        let ends = |frame: &ControllerToNode| matches!(frame, ControllerToNode::Shutdown);
        agents.heard(|node, frame| (node == "d1" && ends(frame)).then_some(())).await;
        assert!(!later.orders().iter().any(|(_, frame)| ends(frame)));
    });
}

/// One that knew no other took itself for cut off whenever the controller was away.
#[test]
fn nodes_are_told_of_those_that_join() {
    let mut roster = Roster::new(config(&SITE.replace("=4", "=40")), BTreeMap::new());
    for n in 1..=20 {
        joins(&mut roster, &format!("d{n:02}"), "CPUs=4").unwrap();
    }
    let names =
        |roster: &Roster, of: &str| -> Vec<String> { roster.neighbours(of).into_iter().map(|n| n.name).collect() };
    let of_18 = names(&roster, "d18");
    assert_eq!((of_18.len(), &of_18[..3]), (16, &["d19", "d20", "d01"].map(str::to_owned)[..]));
    assert_eq!(names(&roster, "n0")[0], "d01");
    assert_eq!(roster.neighbours("d01")[0].address, "10.0.0.9:7000");
    with_system(async |system| {
        let rig = Rig::start(&system, SITE, MemoryJournal::default());
        let mut agents = Agents::new(&rig);
        agents.connect("n0", Habit::Finish);
        agents.join("d1", Habit::Finish, "CPUs=4 RealMemory=1000");
        agents.join("d2", Habit::Finish, "CPUs=4 RealMemory=1000");
        let told =
            |node: &str, by: &[Neighbour]| (node.to_owned(), by.iter().map(|n| n.name.clone()).collect::<Vec<_>>());
        let heard = |wanted: (&str, &[&str])| {
            let wanted = (wanted.0.to_owned(), wanted.1.iter().map(ToString::to_string).collect::<Vec<_>>());
            move |node: &str, frame: &ControllerToNode| match frame {
                ControllerToNode::Welcome { neighbours, .. }
                | ControllerToNode::Ping { neighbours: Some(neighbours), .. } => {
                    (told(node, neighbours) == wanted).then_some(())
                }
                _ => None,
            }
        };
        agents.heard(heard(("n0", &["d1", "d2"]))).await;
        agents.heard(heard(("d1", &["d2"]))).await;
        agents.heard(heard(("d2", &["d1"]))).await;
        assert_eq!(delete(&rig, &["d2"]).await, CommandReply::Done);
        agents.heard(heard(("n0", &["d1"]))).await;
    });
}

/// Somebody's daemon with the name of a node of the file.
#[test]
fn one_that_cannot_be_the_node_leaves_the_link_alone() {
    with_system(async |system| {
        let rig = Rig::start(&system, SITE, MemoryJournal::default());
        let mut agents = Agents::new(&rig);
        agents.connect("n0", Habit::Finish);
        until(&rig, "n0", Some(NodeBase::Up)).await;
        let before = rig.controller.env.links.get("n0").unwrap().0;
        agents.join("n0", Habit::Finish, "CPUs=4");
        // A command comes behind it.
        rig.ask(0, CommandRequest::ListNodes).await;
        assert_eq!(rig.controller.env.links.get("n0").map(|(conn, _)| conn), Some(before));
    });
}

async fn create(rig: &Rig, names: &str, line: &str) -> CommandReply {
    rig.ask(0, CommandRequest::CreateNodes { names: names.to_owned(), line: line.to_owned() }).await
}

/// The old owner has yet to end when the next node of that name is there.
#[test]
fn a_node_made_again_at_once_gets_an_owner() {
    with_system(async |system| {
        let rig = Rig::start(&system, SITE, MemoryJournal::default());
        assert_eq!(create(&rig, "d1", "CPUs=4 RealMemory=1000 State=CLOUD").await, CommandReply::Done);
        until(&rig, "d1", Some(NodeBase::Unknown)).await;
        rig.journal.hold();
        let ask = |request| rig.ask_stream(0, request);
        let mut deleted = ask(CommandRequest::DeleteNodes { nodes: vec!["d1".to_owned()] });
        rig.journal.held().await;
        let line = "CPUs=2 RealMemory=1000 State=FUTURE".to_owned();
        let mut made = ask(CommandRequest::CreateNodes { names: "d1".to_owned(), line });
        // It waits its turn.
        rig.ask(0, CommandRequest::ListNodes).await;
        rig.journal.release();
        assert_eq!(deleted.recv().await, Some(CommandReply::Done));
        assert_eq!(made.recv().await, Some(CommandReply::Done));
        until(&rig, "d1", Some(NodeBase::Future)).await;
        assert_eq!(rig.controller.env.nodes.get("d1").unwrap().settings().shape.cpus, 2);
        assert_eq!(delete(&rig, &["d1"]).await, CommandReply::Done);
        until(&rig, "d1", None).await;
    });
}

/// It is another one than the one of that name that is being deleted.
#[test]
fn who_was_not_asked_is_not_deleted() {
    with_system(async |system| {
        let mut rig = Rig::start(&system, SITE, MemoryJournal::default());
        let mut agents = Agents::new(&rig);
        agents.join("d1", Habit::Finish, "CPUs=4 RealMemory=1000");
        until(&rig, "d1", Some(NodeBase::Up)).await;
        rig.journal.hold();
        let delete = || rig.ask_stream(0, CommandRequest::DeleteNodes { nodes: vec!["d1".to_owned()] });
        let mut first = delete();
        rig.journal.held().await;
        // Asked while the first deletion is being saved; the next daemon comes before the answer.
        let mut second = delete();
        agents.join("d1", Habit::Finish, "CPUs=4 RealMemory=1000");
        rig.ask(0, CommandRequest::ListNodes).await;
        rig.journal.release();
        assert_eq!(first.recv().await, Some(CommandReply::Done));
        assert_eq!(second.recv().await, Some(CommandReply::Refused(Refusal::InvalidNode("d1".to_owned()))));
        until(&rig, "d1", Some(NodeBase::Up)).await;
        assert!(rig.journal.replayed().dynamic_nodes.contains_key("d1"));
        let job = rig.submitted(on("d1")).await;
        assert_eq!(rig.wait(job, JobMilestone::Ended).await, JobState::Completed);
    });
}

/// Nodes that the configuration has no room for any more can go, and others of their names can come.
#[test]
fn a_node_that_is_left_out_can_be_deleted_and_made_again() {
    with_system(async |system| {
        let rig = Rig::start(&system, &format!("{SITE}GresTypes=gpu\n"), MemoryJournal::default());
        let line = "CPUs=4 RealMemory=1000 Gres=gpu:2 State=CLOUD";
        assert_eq!(create(&rig, "d[1-2]", line).await, CommandReply::Done);
        rig.until_nodes(3).await;
        rig.frontend().try_send(ControllerMsg::config_changed(config_of(SITE), None)).unwrap();
        rig.until_nodes(1).await;
        let line = "CPUs=4 RealMemory=1000 State=CLOUD";
        assert!(said(create(&rig, "d1", line).await).contains("Node d1 exists already"));
        assert_eq!(delete(&rig, &["d1"]).await, CommandReply::Done);
        assert_eq!(create(&rig, "d1", line).await, CommandReply::Done);
        until(&rig, "d1", Some(NodeBase::Unknown)).await;
        assert!(said(delete(&rig, &["ALL"]).await).contains("n0 is a node of slurm.conf"));
        assert!(rig.controller.env.roster().nodes().is_empty());
        assert!(rig.journal.replayed().dynamic_nodes.is_empty());
    });
}

#[test]
fn a_node_that_the_file_gets_while_it_joins_is_one_of_the_file() {
    with_system(async |system| {
        let rig = Rig::start(&system, SITE, MemoryJournal::default());
        rig.journal.hold();
        let mut agents = Agents::new(&rig);
        agents.join("d1", Habit::Finish, "CPUs=4 RealMemory=1000");
        rig.journal.held().await;
        let more = SITE.replace("n0 CPUs", "n0,d1 CPUs");
        rig.frontend().try_send(ControllerMsg::config_changed(config_of(&more), None)).unwrap();
        rig.ask(0, CommandRequest::ListNodes).await;
        rig.journal.release();
        // The lot behind it.
        assert_eq!(create(&rig, "d2", "CPUs=4 State=CLOUD").await, CommandReply::Done);
        let saved = rig.journal.replayed().dynamic_nodes;
        assert_eq!(saved.keys().collect::<Vec<_>>(), ["d2"]);
        assert!(!rig.controller.env.config().node("d1").unwrap().dynamic);
    });
}
