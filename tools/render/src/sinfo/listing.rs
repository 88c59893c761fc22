//! The lines of `sinfo`: nodes of partitions share one if they agree in every shown field in which nodes must agree. Which fields
//! those are depends on the format and on `-e` and `-N`.

use super::{
    Group,
    fields::{Entry, Grouping},
};
use crate::{amounts, clock::Clock, columns::Layout, node_state::AllOf};
use garrick_model::{
    state::NodeBase,
    view::{NodeView, PartitionView},
};
use std::{
    cmp::Ordering,
    collections::{HashMap, HashSet},
    io::{self, Write},
    sync::Arc,
};

/// Which nodes, by whether they answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Responding {
    /// All.
    #[default]
    Any,
    /// `-r`
    Yes,
    /// `-d`
    No,
}

/// One key of `-S`.
#[derive(Clone, Copy, Debug)]
pub struct SortKey {
    /// By what.
    pub field: &'static Entry,
    /// `-`: largest first.
    pub descending: bool,
    /// `#`: partitions in the order in which they are configured.
    pub configured: bool,
}

/// What is listed, and how.
#[derive(Debug)]
pub struct Listing {
    /// Only these partitions; empty: all.
    pub partitions: Vec<String>,
    /// Only these nodes; empty: all.
    pub nodes: Vec<String>,
    /// Only in one of these states; `None`: all.
    pub states: Option<Vec<AllOf>>,
    /// Also those that are to come, where no states are named.
    pub future: bool,
    /// By whether they answer.
    pub responding: Responding,
    /// One line a node and partition.
    pub by_node: bool,
    /// Only down and drained nodes, and no line for partitions without any.
    pub reasons: bool,
    /// Group by configuration too.
    pub exact: bool,
    /// Columns.
    pub layout: Layout<&'static Entry>,
    /// Order.
    pub sort: Vec<SortKey>,
    /// Heading line.
    pub heading: bool,
    /// Date above the heading.
    pub banner: bool,
}

impl Listing {
    /// Writes the lines of these partitions and nodes, which are in configuration order.
    pub fn write(
        &self,
        partitions: &[Arc<PartitionView>],
        nodes: &[Arc<NodeView>],
        clock: &Clock,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        if self.banner {
            writeln!(out, "{}", clock.banner())?;
        }
        let groups = self.groups(partitions, nodes, clock);
        let title = |entry: &&'static Entry| entry.title.to_owned();
        self.layout.write(out, self.heading, &groups, title, |group, entry| entry.of(group, clock))
    }

    /// The nodes that share a line, in the order of the lines.
    pub fn groups<'a>(
        &self,
        partitions: &'a [Arc<PartitionView>],
        nodes: &'a [Arc<NodeView>],
        clock: &Clock,
    ) -> Vec<Group<'a>> {
        let of_partition: Vec<&Entry> = self.fields().filter(|f| f.grouping == Grouping::Partition).collect();
        let agree: Vec<&Entry> = self.fields().filter(|field| self.must_agree(field)).collect();
        let mut groups: Vec<Group<'a>> = Vec::new();
        // Partitions of which the same is shown are not told apart, and a node of several of them counts once.
        let mut rows: HashMap<Vec<String>, usize> = HashMap::new();
        let (mut places, mut seen, mut shown) = (HashMap::new(), HashSet::new(), HashSet::new());
        for (place, partition) in partitions.iter().enumerate().filter(|(_, p)| self.takes_partition(p)) {
            let empty = Group { partition, place, nodes: Vec::new() };
            let next = rows.len();
            let row = *rows.entry(of_partition.iter().map(|f| f.of(&empty, clock)).collect()).or_insert(next);
            for node in amounts::members(partition, nodes).into_iter().filter(|node| self.takes_node(node)) {
                let one = Group { partition, place, nodes: vec![node] };
                shown.insert(row);
                if self.by_node {
                    groups.push(one);
                    continue;
                }
                let key = (row, agree.iter().map(|f| f.of(&one, clock)).collect::<Vec<String>>());
                let at = *places.entry(key).or_insert(groups.len());
                let is_new = seen.insert((at, node.index));
                match groups.get_mut(at) {
                    None => groups.push(one),
                    Some(group) if is_new => group.nodes.push(node),
                    Some(_) => {}
                }
            }
            if !(self.by_node || self.reasons || of_partition.is_empty()) && shown.insert(row) {
                groups.push(empty);
            }
        }
        for group in &mut groups {
            group.nodes.sort_by_key(|n| n.index);
        }
        groups.sort_by(|a, b| self.order(a, b, clock));
        groups
    }

    fn fields(&self) -> impl Iterator<Item = &'static Entry> {
        self.layout.columns.iter().map(|column| column.field)
    }

    fn must_agree(&self, field: &Entry) -> bool {
        match field.grouping {
            Grouping::Same => true,
            Grouping::Least => self.exact,
            Grouping::Partition | Grouping::Total => false,
        }
    }

    fn takes_partition(&self, partition: &PartitionView) -> bool {
        self.partitions.is_empty() || self.partitions.contains(&partition.config.name)
    }

    fn takes_node(&self, node: &NodeView) -> bool {
        (self.nodes.is_empty() || self.nodes.contains(&node.name))
            && (self.future || self.states.is_some() || node.base != NodeBase::Future)
            && self.states.as_ref().is_none_or(|states| states.iter().any(|s| s.takes(node)))
            && match self.responding {
                Responding::Any => true,
                Responding::Yes => !node.flags.not_responding,
                Responding::No => node.flags.not_responding,
            }
            && (!self.reasons || node.reason.is_some())
    }

    fn order(&self, a: &Group<'_>, b: &Group<'_>, clock: &Clock) -> Ordering {
        let by_keys = self.sort.iter().map(|key| {
            let order = key.field.compare(a, b, key.configured, clock);
            if key.descending { order.reverse() } else { order }
        });
        by_keys.fold(Ordering::Equal, Ordering::then)
    }
}
