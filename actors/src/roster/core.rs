//! The owner of the roster. Changes that come while others are being saved wait and are then handled together, so that the
//! configuration is rebuilt a few times, not a thousand times, for a thousand nodes. A change is invisible until it is saved.

use super::nodes::{Roster, Spoken};
use crate::{
    messages::letter::{ConfigNews, Letter},
    owner::{Effect, FreshIds, Out, Owner},
};
use garrick_events::event::ControllerEvent;
use garrick_model::{
    config::{Config, DynamicNode, NodeConfig},
    messages::node::Joining,
    refusal::Refusal,
    time::Timestamp,
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    convert::Infallible,
    sync::Arc,
};

/// The frontend's questions to the roster. The answer is sent when the change is on disk and has been announced.
#[derive(Clone, Debug)]
pub enum RosterAsk {
    /// A dynamic node joins.
    Join {
        /// Name.
        node: String,
        /// Its description of itself.
        joining: Box<Joining>,
        /// Its host name, as it says; may be empty.
        hostname: String,
        /// Its address.
        address: String,
    },
    /// `scontrol create`: creates nodes before their daemons connect, all of them or none.
    Create {
        /// Their names, as a list of hosts.
        names: String,
        /// Their line of configuration.
        line: String,
    },
    /// `scontrol delete`: deletes those of the nodes that may be deleted; the answer says why the first of the others stays.
    Delete {
        /// Names.
        nodes: Vec<String>,
        /// Nodes in reservations, each with the name of one.
        reserved: BTreeMap<String, String>,
    },
    /// `scontrol update ... Topology=`: all of them move in the topologies, or none.
    Place {
        /// Names.
        nodes: Vec<String>,
        /// Where to, as `Topology=` says.
        place: String,
    },
    /// `scontrol create PartitionName=`: a partition that `slurm.conf` does not have.
    CreatePartition {
        /// Name.
        name: String,
        /// `Key=Value` pairs.
        fields: Vec<(String, String)>,
    },
    /// `scontrol delete PartitionName=`, of a partition that no job needs.
    DeletePartition(String),
    /// The file was read again.
    Read(Arc<Config>),
}

/// Inputs of the roster.
#[derive(Clone, Debug)]
pub enum RosterInput {
    /// The actor's life begins: saved changes that were not announced are announced.
    Begun,
    /// Somebody asks.
    Asked {
        /// Request.
        request: u64,
        /// What.
        ask: RosterAsk,
    },
    /// Answer to [`RosterErrand::Look`].
    Seen(Spoken),
    /// Answer to [`RosterErrand::Retire`].
    Retired {
        /// Request.
        request: u64,
        /// The number of deletions when they were asked.
        asked: u64,
        /// Nodes whose owners released them, each with the number of its daemon's connection, if it has one.
        gone: Vec<(String, Option<u64>)>,
        /// Why other nodes stay.
        stay: Option<Refusal>,
    },
    /// Answer to [`RosterErrand::Next`].
    Next,
}

/// The roster's errands at the controller's ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RosterErrand {
    /// Find the node indices that are still in use.
    Look,
    /// Ask the owners of these nodes whether they release them: a node that is released accepts no job from then on.
    Retire {
        /// Request.
        request: u64,
        /// To be returned.
        asked: u64,
        /// Whose owners are asked.
        nodes: Vec<String>,
        /// Nodes without an owner, which may be deleted.
        gone: Vec<String>,
        /// Why other nodes stay.
        stay: Option<Refusal>,
    },
    /// Answer when all earlier changes are saved and announced.
    Next,
    /// Tell the daemon that was connected when the node's owner released it to end: it would only join again. A daemon that
    /// connects meanwhile belongs to a new node.
    End {
        /// Node.
        node: String,
        /// Connection; `None`: it had none.
        conn: Option<u64>,
    },
    /// The node was another one by then: nobody is told.
    Spare {
        /// Node.
        node: String,
        /// Connection.
        conn: u64,
    },
    /// Tell all daemons to read their files again.
    Reread,
}

/// What it publishes: the roster, and with it the configuration.
#[derive(Clone, Debug)]
pub struct RosterShown {
    /// Nodes of both kinds.
    pub roster: Arc<Roster>,
    /// The file was read again: all of the configuration may have changed.
    pub read_again: bool,
}

/// It has no timers.
pub type RosterTimer = Infallible;

/// May a host have this name?
pub type MayBeNamed = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// A change that waits for its turn.
enum Change {
    Join { request: u64, node: String, joining: Box<Joining>, hostname: String, address: String },
    Create { request: u64, names: String, line: String },
    Delete { request: u64, asked: u64, gone: Vec<(String, Option<u64>)>, stay: Option<Refusal> },
    Place { request: u64, nodes: Vec<String>, place: String },
    CreatePartition { request: u64, name: String, fields: Vec<(String, String)> },
    DeletePartition { request: u64, name: String },
    Read { request: u64, config: Arc<Config> },
}

impl Change {
    /// Does it create one of these nodes?
    fn brings(&self, names: &BTreeSet<String>) -> bool {
        match self {
            _ if names.is_empty() => false,
            Self::Join { node, .. } => names.contains(node),
            // Names are only read later.
            Self::Create { .. } | Self::Read { .. } => true,
            Self::Delete { .. } | Self::Place { .. } | Self::CreatePartition { .. } | Self::DeletePartition { .. } => {
                false
            }
        }
    }

    /// Does it create one of these partitions? The owner of the old one has to end first.
    fn creates_again(&self, partitions: &BTreeSet<String>) -> bool {
        matches!(self, Self::CreatePartition { name, .. } if partitions.contains(name))
    }

    /// Does it delete one of these nodes?
    fn takes(&self, names: &BTreeSet<String>) -> bool {
        matches!(self, Self::Delete { gone, .. } if gone.iter().any(|(name, _)| names.contains(name)))
    }
}

/// The result of a group of changes.
#[derive(Default)]
struct Lot {
    answers: Vec<(u64, Result<(), Refusal>)>,
    /// Nodes whose agents joined.
    joined: BTreeSet<String>,
    /// Nodes that are deleted.
    gone: BTreeSet<String>,
    /// Connections of their daemons.
    ends: BTreeMap<String, Option<u64>>,
    /// Connections of daemons that are left alone.
    spared: Vec<(String, u64)>,
    /// The file was read again.
    read_again: bool,
    /// Nodes that the file lists now.
    of_file: BTreeSet<String>,
    /// Partitions that are deleted.
    partitions_gone: BTreeSet<String>,
}

/// The core of the roster.
pub struct RosterCore {
    /// The roster as decided; it is published when it is saved.
    roster: Arc<Roster>,
    may_be_named: MayBeNamed,
    waiting: VecDeque<Change>,
    /// A group is being saved, or about to be made.
    busy: bool,
    /// Number of deletions, and for each name that of its last one: an owner that was asked before that was the owner of another
    /// node.
    deletions: u64,
    deleted: BTreeMap<String, u64>,
    /// Where this life continues, until it has begun.
    left: Option<Left>,
}

/// What an earlier life left.
struct Left {
    /// The roster that was announced.
    told: Arc<Roster>,
    /// Saved nodes that the file lists now.
    of_file: Vec<String>,
}

impl RosterCore {
    /// From the saved roster, and its nodes that the file lists now ([`Roster::restored`]); it may be ahead of what was
    /// announced.
    pub fn new((saved, of_file): (Roster, Vec<String>), told: Arc<Roster>, may_be_named: MayBeNamed) -> Self {
        let (roster, left) = (Arc::new(saved), Some(Left { told, of_file }));
        let (waiting, deleted) = (VecDeque::new(), BTreeMap::new());
        Self { roster, may_be_named, waiting, busy: false, deletions: 0, deleted, left }
    }

    /// The roster as decided.
    pub const fn roster(&self) -> &Arc<Roster> {
        &self.roster
    }

    fn put(&mut self, change: Change, out: &mut Out<Self>) {
        self.waiting.push_back(change);
        self.go_on(out);
    }

    /// Begins a group, unless one is in progress. Only new nodes need a free index.
    fn go_on(&mut self, out: &mut Out<Self>) {
        if self.busy || self.waiting.is_empty() {
            return;
        }
        self.busy = true;
        let is_new = |change: &Change| match change {
            Change::Join { node, .. } => self.roster.get(node).is_none(),
            Change::Create { .. } => true,
            _ => false,
        };
        if self.waiting.iter().any(is_new) {
            out.push(Effect::Do(RosterErrand::Look));
        } else {
            self.make_lot(&Spoken::new(), out);
        }
    }

    fn asked(&mut self, request: u64, ask: RosterAsk, out: &mut Out<Self>) {
        let change = match ask {
            RosterAsk::Join { node, joining, hostname, address } => {
                Change::Join { request, node, joining, hostname, address }
            }
            RosterAsk::Create { names, line } => Change::Create { request, names, line },
            RosterAsk::Place { nodes, place } => Change::Place { request, nodes, place },
            RosterAsk::CreatePartition { name, fields } => Change::CreatePartition { request, name, fields },
            RosterAsk::DeletePartition(name) => Change::DeletePartition { request, name },
            RosterAsk::Read(config) => Change::Read { request, config },
            RosterAsk::Delete { nodes, reserved } => return self.retire(request, nodes, &reserved, out),
        };
        self.put(change, out);
    }

    /// Asks the owners of nodes that may be deleted as far as the roster knows.
    fn retire(&self, request: u64, names: Vec<String>, reserved: &BTreeMap<String, String>, out: &mut Out<Self>) {
        let config = self.roster.config();
        let (mut nodes, mut gone, mut stay) = (Vec::new(), Vec::new(), None);
        for name in names {
            let may = self.roster.may_go(&name).and_then(|()| match reserved.get(&name) {
                Some(reservation) => {
                    let said = format!("Requested nodes are busy: {name} is in reservation {reservation}");
                    Err(Refusal::InvalidUpdate(said))
                }
                None => Ok(()),
            });
            match may {
                // A node that does not fit into the configuration has no owner.
                Ok(()) if config.node(&name).is_none() => gone.push(name),
                Ok(()) => nodes.push(name),
                Err(refusal) => stay = stay.or(Some(refusal)),
            }
        }
        out.push(Effect::Do(RosterErrand::Retire { request, asked: self.deletions, nodes, gone, stay }));
    }

    /// Makes a group of all waiting changes.
    fn make_lot(&mut self, spoken: &Spoken, out: &mut Out<Self>) {
        let before = Arc::clone(&self.roster);
        let mut lot = Lot::default();
        while let Some(change) = self.waiting.pop_front() {
            // A node of a deleted name is another node; its owner starts after the owner of the old one has ended. And a node
            // that is told that it has joined must be on disk by then.
            if change.brings(&lot.gone) || change.takes(&lot.joined) || change.creates_again(&lot.partitions_gone) {
                self.waiting.push_front(change);
                break;
            }
            self.apply(change, spoken, &mut lot);
        }
        if !Arc::ptr_eq(&before, &self.roster) {
            Arc::make_mut(&mut self.roster).settle();
            out.extend(difference(&before, &self.roster, &lot.of_file).into_iter().map(Effect::Save));
        }
        self.tell(&before, lot.read_again, &lot.ends, out);
        out.extend(lot.spared.into_iter().map(|(node, conn)| Effect::Do(RosterErrand::Spare { node, conn })));
        if !lot.gone.is_empty() {
            // Other nodes may get these names now.
            self.deletions += 1;
            self.deleted.extend(lot.gone.into_iter().map(|name| (name, self.deletions)));
        }
        let answer = |(request, answer)| Effect::Answer { request, answer };
        out.extend(lot.answers.into_iter().map(answer));
        out.push(Effect::Do(RosterErrand::Next));
    }

    fn apply(&mut self, change: Change, spoken: &Spoken, lot: &mut Lot) {
        let (request, answer) = match change {
            Change::Join { request, node, joining, hostname, address } => {
                let news = self.roster.joined(&node, &joining, &hostname, &address, spoken);
                let put = |node| Arc::make_mut(&mut self.roster).put(vec![node]);
                let answer = news.and_then(|news| news.map_or(Ok(()), put));
                if answer.is_ok() {
                    lot.joined.insert(node);
                }
                (request, answer)
            }
            Change::Create { request, names, line } => {
                let may_be_named = &*self.may_be_named;
                (request, Arc::make_mut(&mut self.roster).create(&names, &line, spoken, may_be_named).map(drop))
            }
            Change::Delete { request, asked, gone, stay } => {
                // A node that was deleted and created again meanwhile was not asked.
                let was_asked = |(name, _): &(String, Option<u64>)| {
                    self.roster.get(name).is_some() && self.deleted.get(name).is_none_or(|last| *last <= asked)
                };
                let (gone, others): (Vec<_>, Vec<_>) = gone.into_iter().partition(was_asked);
                let names: Vec<String> = gone.iter().map(|(name, _)| name.clone()).collect();
                if !names.is_empty() {
                    lot.gone.extend(Arc::make_mut(&mut self.roster).delete(&names));
                }
                lot.ends.extend(gone);
                lot.spared.extend(others.into_iter().filter_map(|(name, conn)| Some((name, conn?))));
                (request, stay.map_or(Ok(()), Err))
            }
            Change::Place { request, nodes, place } => (request, Arc::make_mut(&mut self.roster).place(&nodes, &place)),
            Change::CreatePartition { request, name, fields } => {
                // It is checked with the nodes that came just before.
                Arc::make_mut(&mut self.roster).settle();
                (request, Arc::make_mut(&mut self.roster).create_partition(&name, fields))
            }
            Change::DeletePartition { request, name } => {
                Arc::make_mut(&mut self.roster).settle();
                let answer = Arc::make_mut(&mut self.roster).delete_partition(&name);
                if answer.is_ok() {
                    lot.partitions_gone.insert(name);
                }
                (request, answer)
            }
            Change::Read { request, config } => {
                lot.of_file.extend(Arc::make_mut(&mut self.roster).read_again(config));
                lot.read_again = true;
                (request, Ok(()))
            }
        };
        lot.answers.push((request, answer));
    }

    /// Publishes what is decided, and tells all that depend on it.
    fn tell(&self, before: &Arc<Roster>, read_again: bool, ends: &BTreeMap<String, Option<u64>>, out: &mut Out<Self>) {
        let now = &self.roster;
        if Arc::ptr_eq(before, now) && !read_again {
            return;
        }
        out.push(Effect::Publish(RosterShown { roster: Arc::clone(now), read_again }));
        let (old, new) = (before.config(), now.config());
        if Arc::ptr_eq(&old, &new) && !read_again {
            return;
        }
        if read_again {
            out.push(Effect::Tell(Letter::News(ConfigNews::Jobs)));
        }
        let moved = !before.whereabouts().eq(now.whereabouts());
        let others = |node: &NodeConfig| before.neighbours(&node.name) != now.neighbours(&node.name);
        let changed = |node: &&NodeConfig| read_again || old.node(&node.name) != Some(*node) || (moved && others(node));
        for node in new.nodes.iter().filter(changed) {
            out.push(Effect::Tell(Letter::News(ConfigNews::Node(Box::new(now.settings(node))))));
        }
        for node in old.nodes.iter().filter(|node| new.node(&node.name).is_none()) {
            if let Some(conn) = ends.get(&node.name) {
                out.push(Effect::Do(RosterErrand::End { node: node.name.clone(), conn: *conn }));
            }
            out.push(Effect::Tell(Letter::News(ConfigNews::NoNode(node.name.clone()))));
        }
        out.push(Effect::Tell(Letter::News(ConfigNews::Partitions { read_again })));
        out.push(Effect::Tell(Letter::News(ConfigNews::Policy)));
        if read_again {
            out.push(Effect::Do(RosterErrand::Reread));
        }
    }
}

impl Owner for RosterCore {
    type Input = RosterInput;
    type Timer = RosterTimer;
    type Shown = RosterShown;
    type Answer = Result<(), Refusal>;
    type Errand = RosterErrand;

    fn handle(&mut self, _: Timestamp, _: &mut dyn FreshIds, input: RosterInput, out: &mut Out<Self>) {
        match input {
            RosterInput::Begun => {
                let Some(Left { told, of_file }) = self.left.take() else { return };
                out.extend(of_file.into_iter().map(|node| Effect::Save(ControllerEvent::node_of_file(node))));
                let read_again = !Arc::ptr_eq(&self.roster.base(), &told.base());
                if read_again
                    || self.roster.nodes() != told.nodes()
                    || self.roster.partition_changes() != told.partition_changes()
                {
                    self.tell(&told, read_again, &BTreeMap::new(), out);
                    self.busy = true;
                    out.push(Effect::Do(RosterErrand::Next));
                } else {
                    self.roster = told;
                }
            }
            RosterInput::Asked { request, ask } => self.asked(request, ask, out),
            RosterInput::Seen(spoken) => self.make_lot(&spoken, out),
            RosterInput::Retired { request, asked, gone, stay } => {
                self.put(Change::Delete { request, asked, gone, stay }, out);
            }
            RosterInput::Next => {
                self.busy = false;
                self.go_on(out);
            }
        }
    }

    fn timer(timer: RosterTimer) -> RosterInput {
        match timer {}
    }
}

/// The events for the log.
fn difference(before: &Roster, after: &Roster, of_file: &BTreeSet<String>) -> Vec<ControllerEvent> {
    let gone = before.nodes().keys().filter(|name| after.get(name).is_none());
    let about = |name: &String, saved: Option<Box<DynamicNode>>| {
        let of_file = saved.is_none() && of_file.contains(name);
        ControllerEvent::DynamicNode { node: name.clone(), saved, of_file }
    };
    let (was, is) = (before.partition_changes(), after.partition_changes());
    let back = was.keys().filter(|name| !is.contains_key(*name)).map(|name| (name, None));
    let changed = is.iter().filter(|(name, change)| was.get(*name) != Some(*change));
    let partitions = back.chain(changed.map(|(name, change)| (name, Some(Box::new(change.clone())))));
    let mut events: Vec<ControllerEvent> = gone.map(|name| about(name, None)).collect();
    let news = after.nodes().iter().filter(|(name, node)| before.get(name) != Some(*node));
    events.extend(news.map(|(name, node)| about(name, Some(Box::new(node.clone())))));
    events.extend(partitions.map(|(name, saved)| ControllerEvent::PartitionChange { partition: name.clone(), saved }));
    events
}
