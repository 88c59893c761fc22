//! The owner of the roster, with a stage that saves when it is told to.
#![allow(clippy::unwrap_used)]

use super::{
    core::{RosterAsk, RosterCore, RosterErrand, RosterInput, RosterShown, RosterTimer},
    nodes::Roster,
};
use crate::{
    job::fixtures::CountingIds,
    messages::letter::{ConfigNews, Letter},
    owner::{Owner, Stage, Turn, outbox::Outbox, perform},
};
use garrick_events::event::ControllerEvent;
use garrick_model::{
    config::{Config, read_files},
    messages::node::Joining,
    refusal::Refusal,
    time::Timestamp,
};
use std::{
    collections::{BTreeMap, VecDeque},
    path::Path,
    sync::Arc,
};

const SITE: &str =
    "ClusterName=c\nSlurmctldHost=head\nMaxNodeCount=9\nNodeName=n0 CPUs=4\nPartitionName=all Nodes=ALL\n";

fn config(slurm: &str) -> Arc<Config> {
    Arc::new(read_files(Path::new("/x/slurm.conf"), &[("/x/slurm.conf", slurm)]).0.unwrap())
}

/// A controller that is only a roster.
struct World {
    core: RosterCore,
    ids: CountingIds,
    outbox: Outbox<crate::owner::EffectOf<RosterCore>>,
    unsaved: VecDeque<(u64, Vec<ControllerEvent>)>,
    saved: Vec<ControllerEvent>,
    shown: Arc<Roster>,
    /// In the order in which it happened.
    story: Vec<String>,
    /// Owners of nodes that were asked whether they let them go.
    asked: Vec<RosterErrand>,
    again: VecDeque<RosterInput>,
}

impl Stage<RosterCore> for World {
    fn tell(&mut self, letter: Letter) {
        self.story.push(match letter {
            Letter::News(ConfigNews::Node(settings)) => format!("node {}", settings.name),
            Letter::News(ConfigNews::NoNode(name)) => format!("no {name}"),
            Letter::News(ConfigNews::Partitions { read_again }) => format!("partitions {read_again}"),
            Letter::News(ConfigNews::Jobs) => "jobs".to_owned(),
            Letter::News(ConfigNews::Policy) => "policy".to_owned(),
            other => panic!("{other:?}"),
        });
    }

    fn run(&mut self, errand: RosterErrand) {
        match errand {
            RosterErrand::Look => {
                self.story.push("look".to_owned());
                self.again.push_back(RosterInput::Seen([1].into()));
            }
            RosterErrand::Next => self.again.push_back(RosterInput::Next),
            RosterErrand::End { node, conn } => self.story.push(format!("end {node} {conn:?}")),
            RosterErrand::Spare { node, conn } => self.story.push(format!("spare {node} {conn}")),
            RosterErrand::Reread => self.story.push("reread".to_owned()),
            retire @ RosterErrand::Retire { .. } => self.asked.push(retire),
        }
    }

    fn set_timer(&mut self, timer: RosterTimer, _: Timestamp) {
        match timer {}
    }

    fn clear_timer(&mut self, timer: RosterTimer) {
        match timer {}
    }

    fn publish(&mut self, shown: RosterShown) {
        self.shown = shown.roster;
        self.story.push("shown".to_owned());
    }

    fn answer(&mut self, request: u64, answer: Result<(), Refusal>) {
        self.story
            .push(format!("{request} {}", answer.map_or_else(|refusal| refusal.to_string(), |()| "ok".to_owned())));
    }

    fn stop(&mut self) {}
}

impl World {
    fn new(slurm: &str) -> Self {
        let shown = Arc::new(Roster::new(config(slurm), BTreeMap::new()));
        let core = RosterCore::new(((*shown).clone(), Vec::new()), Arc::clone(&shown), Arc::new(|_| true));
        let mut world = Self {
            core,
            ids: CountingIds { job: 0, sluid: 0 },
            outbox: Outbox::default(),
            unsaved: VecDeque::new(),
            saved: Vec::new(),
            shown,
            story: Vec::new(),
            asked: Vec::new(),
            again: VecDeque::new(),
        };
        world.told(RosterInput::Begun);
        world
    }

    fn told(&mut self, input: RosterInput) {
        self.again.push_back(input);
        while let Some(input) = self.again.pop_front() {
            let mut out = Vec::new();
            self.core.handle(Timestamp::from_secs(1), &mut self.ids, input, &mut out);
            if let Some(batch) = Turn::<RosterCore>::of(out).queue(&mut self.outbox) {
                self.unsaved.push_back(batch);
            }
            self.flush();
        }
    }

    fn flush(&mut self) {
        while let Some(effects) = self.outbox.take_ready() {
            perform(effects, self);
        }
    }

    fn ask(&mut self, request: u64, ask: RosterAsk) {
        self.told(RosterInput::Asked { request, ask });
    }

    fn join(&mut self, request: u64, node: &str) {
        let joining = Box::new(Joining { line: "CPUs=4".to_owned(), port: 7000 });
        let (node, hostname, address) = (node.to_owned(), "host".to_owned(), "10.0.0.9".to_owned());
        self.ask(request, RosterAsk::Join { node, joining, hostname, address });
    }

    fn delete(&mut self, request: u64, node: &str) {
        self.ask(request, RosterAsk::Delete { nodes: vec![node.to_owned()], reserved: BTreeMap::new() });
    }

    /// Owners of nodes let them go.
    fn let_go(&mut self) {
        for errand in std::mem::take(&mut self.asked) {
            let RosterErrand::Retire { request, asked, nodes, mut gone, stay } = errand else { panic!("{errand:?}") };
            gone.extend(nodes);
            let gone = gone.into_iter().zip(10 * request..).map(|(name, conn)| (name, Some(conn))).collect();
            self.told(RosterInput::Retired { request, asked, gone, stay });
        }
    }

    /// One lot comes to the disk. Gives what happened since the last.
    fn saves(&mut self) -> Vec<String> {
        let (batch, events) = self.unsaved.pop_front().unwrap();
        self.saved.extend(events);
        self.outbox.saved(batch);
        self.flush();
        while let Some(input) = self.again.pop_front() {
            self.told(input);
        }
        std::mem::take(&mut self.story)
    }

    fn names(&self) -> Vec<(String, u32)> {
        self.shown.config().nodes.iter().map(|node| (node.name.clone(), node.index.0)).collect()
    }
}

#[test]
fn nobody_hears_of_a_node_before_it_is_saved() {
    let mut world = World::new(SITE);
    world.join(1, "d1");
    assert_eq!(world.story, ["look"]);
    assert_eq!(world.names().len(), 1);
    assert_eq!(world.saves(), ["look", "shown", "node n0", "node d1", "partitions false", "policy", "1 ok"]);
    // Place 1 is spoken of.
    assert_eq!(world.names(), [("n0".to_owned(), 0), ("d1".to_owned(), 2)]);
    assert!(matches!(&world.saved[..], [ControllerEvent::DynamicNode { node, saved: Some(_), .. }] if node == "d1"));
    // It comes again, and nothing of it is new.
    world.join(2, "d1");
    assert_eq!(world.story, ["2 ok"]);
    assert!(world.unsaved.is_empty());
}

#[test]
fn changes_that_come_while_others_are_saved_are_one_lot() {
    let mut world = World::new(SITE);
    world.join(1, "d1");
    world.join(2, "d2");
    world.ask(3, RosterAsk::Place { nodes: vec!["d9".to_owned()], place: String::new() });
    world.join(4, "d3");
    assert_eq!(world.unsaved.len(), 1);
    world.saves();
    let story = world.saves();
    assert_eq!(&story[story.len() - 3..], ["2 ok", "3 Invalid node name specified", "4 ok"]);
    assert_eq!(story.iter().filter(|what| *what == "shown").count(), 1);
    assert_eq!(world.names().len(), 4);
    assert!(world.unsaved.is_empty());
}

#[test]
fn a_node_goes_when_its_owner_lets_it_go_and_is_another_one_when_it_comes_again() {
    let mut world = World::new(SITE);
    world.join(1, "d1");
    world.saves();
    world.delete(2, "n0");
    world.delete(3, "d1");
    world.delete(4, "d1");
    world.let_go();
    // Of that name another one comes, which no owner was asked for.
    world.join(5, "d1");
    let story = world.saves();
    let kept = "2 Invalid node state specified: n0 is a node of slurm.conf, not a dynamic one";
    assert!(story.contains(&kept.to_owned()), "{story:?}");
    assert!(story.windows(2).any(|two| two == ["end d1 Some(30)", "no d1"]), "{story:?}");
    let story = world.saves();
    assert_eq!(&story[story.len() - 3..], ["spare d1 40", "4 ok", "5 ok"]);
    assert_eq!(world.names().len(), 2);
    assert_eq!(world.saved.len(), 3);
}

/// Found by simulation: a node that is known said that it joins, and was deleted with the same lot: its agent was told that it has
/// joined, and there was no such node.
#[test]
fn a_node_that_joins_is_there_when_its_agent_hears_so_and_goes_after_that() {
    let mut world = World::new(SITE);
    world.join(1, "d1");
    world.saves();
    let answers = |story: Vec<String>| story.into_iter().filter(|what| what.ends_with(" ok")).collect::<Vec<_>>();
    world.delete(4, "d1");
    // The rest waits until this is saved.
    world.join(2, "d2");
    world.join(3, "d1");
    world.let_go();
    assert_eq!((answers(world.saves()), world.names().len()), (vec!["2 ok".to_owned(), "3 ok".to_owned()], 3));
    assert_eq!((answers(world.saves()), world.names().len()), (vec!["4 ok".to_owned()], 2));
}

#[test]
fn nodes_in_reservations_stay() {
    let mut world = World::new(SITE);
    let line = "CPUs=4 State=FUTURE".to_owned();
    world.ask(1, RosterAsk::Create { names: "d[1-2]".to_owned(), line });
    world.saves();
    let nodes = vec!["d1".to_owned(), "d2".to_owned()];
    world.ask(2, RosterAsk::Delete { nodes, reserved: [("d1".to_owned(), "maint".to_owned())].into() });
    world.let_go();
    let story = world.saves();
    assert_eq!(story.last().unwrap(), "2 Requested nodes are busy: d1 is in reservation maint");
    assert_eq!(world.names(), [("n0".to_owned(), 0), ("d1".to_owned(), 2)]);
}

#[test]
fn a_file_that_was_read_again_waits_its_turn_and_everybody_hears_of_it() {
    let mut world = World::new(SITE);
    world.join(1, "d1");
    let more = SITE.replace("n0 CPUs", "n0,d1 CPUs");
    world.ask(2, RosterAsk::Read(config(&more)));
    assert_eq!(world.names().len(), 1);
    world.saves();
    let told = ["shown", "jobs", "node n0", "node d1", "partitions true", "policy", "reread", "2 ok"];
    assert_eq!(world.saves(), told);
    let taken = ControllerEvent::node_of_file("d1".to_owned());
    assert_eq!(world.saved.last(), Some(&taken));
    // One without news for the log.
    world.ask(3, RosterAsk::Read(config(SITE)));
    assert!(world.unsaved.is_empty());
    assert_eq!(world.story, ["shown", "jobs", "node n0", "no d1", "partitions true", "policy", "reread", "3 ok"]);
}

/// An earlier life had it saved and told nobody.
#[test]
fn what_was_saved_and_not_told_is_told_by_the_next_life() {
    let before = World::new(SITE);
    let mut world = World::new(SITE);
    world.join(1, "d1");
    let roster = (**world.core.roster()).clone();
    world.core = RosterCore::new((roster, Vec::new()), before.shown, Arc::new(|_| true));
    world.story.clear();
    world.told(RosterInput::Begun);
    // Behind what that life appended; the answer is nobody's any more.
    let told = world.saves();
    assert_eq!(&told[..2], ["shown", "node n0"]);
    assert_eq!(world.names().len(), 2);
}

/// What a file that was read again took was not saved: the earlier life was not the leader's any more.
#[test]
fn nodes_that_the_file_took_are_its_own_for_the_log_too() {
    let mut world = World::new(SITE);
    world.join(1, "d1");
    world.saves();
    let more = config(&SITE.replace("n0 CPUs", "n0,d1 CPUs"));
    let roster = world.core.roster();
    let saved = Roster::restored(more, roster.nodes().clone(), roster.partition_changes().clone());
    world.core = RosterCore::new(saved, Arc::clone(&world.shown), Arc::new(|_| true));
    world.told(RosterInput::Begun);
    assert_eq!(world.saves(), ["shown", "jobs", "node n0", "node d1", "partitions true", "policy", "reread"]);
    assert_eq!(world.saved.last(), Some(&ControllerEvent::node_of_file("d1".to_owned())));
}
