//! Places of nodes in topologies, as `Topology=` names them: put there one by one or all anew.

use super::syntax::{report::SettingError, values::Value};
use crate::{
    hostlist::HostList,
    topology::{Layout, NamedTopology},
};

/// What a node is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placing {
    /// Places are taken in the order of these.
    pub slot: u32,
    /// As at `Topology=`.
    pub text: String,
    /// It had it before: units made for nodes that are gone by now are made again.
    pub kept: bool,
}

/// Puts a node into the units that a `Topology=` names, and into no others; on an error it is in none.
pub fn put(topologies: &mut Vec<NamedTopology>, node: &str, text: &str, kept: bool) -> Value<()> {
    topologies.iter_mut().for_each(|topology| topology.layout.take_out(node));
    put_new(topologies, node, text, kept)
}

/// Puts a node, which is in no unit, into a single one that is there, where that changes nothing for others whoever came
/// first. False: the place is not of that kind, or it does not get it.
pub fn join(topologies: &mut [NamedTopology], node: &str, text: &str) -> bool {
    if text.contains(',') || topologies.iter().any(|topology| topology.layout.nodes_with(node).is_some()) {
        return false;
    }
    let Some((name, unit)) = text.split_once(':') else { return false };
    let Some(topology) = topologies.iter_mut().find(|topology| topology.name == name) else { return false };
    let units: Vec<&str> = unit.split(':').collect();
    let there = match &topology.layout {
        Layout::Tree { switches } => units.iter().all(|unit| switches.iter().any(|switch| switch.name == *unit)),
        Layout::Block { .. } | Layout::Torus3d { .. } => true,
        // A place in a ring moves others.
        Layout::Ring { .. } | Layout::Flat { .. } => false,
    };
    there && topology.layout.put_in(node, &units).is_ok()
}

/// Puts in a node that is in no unit.
fn put_new(topologies: &mut Vec<NamedTopology>, node: &str, text: &str, kept: bool) -> Value<()> {
    // Only of several can the second fail when the first is done.
    if !text.contains(',') {
        return put_words(topologies, node, text, kept);
    }
    let mut tried = topologies.clone();
    put_words(&mut tried, node, text, kept)?;
    *topologies = tried;
    Ok(())
}

fn put_words(topologies: &mut [NamedTopology], node: &str, text: &str, kept: bool) -> Value<()> {
    let known: HostList = topologies.iter().map(|topology| topology.name.as_str()).collect();
    let mut placed: Vec<(&str, &str)> = Vec::new();
    for word in text.split(',').filter(|word| !word.is_empty()) {
        let (name, unit) = word.split_once(':').unwrap_or((word, ""));
        let Some(topology) = topologies.iter_mut().find(|topology| topology.name == name) else {
            let wrong = SettingError::new(format!("Topology={word}: no topology is called {name}"));
            return Err(match known.is_empty() {
                true => wrong.suggest("TopologyPlugin or topology.yaml describes them"),
                false => wrong.suggest(format!("there are {known}")),
            });
        };
        let in_topology = |cause: String| SettingError::new(format!("Topology={word}: {cause}"));
        if unit.is_empty() {
            let word = topology.layout.unit_word();
            let cause = format!("no {word} of topology {name} is named");
            return Err(in_topology(cause).suggest(format!("{name}:{}", word.to_uppercase())));
        }
        if let Some((_, other)) = placed.iter().find(|(known, _)| *known == name) {
            let one = format!("a node is in one {} of a topology", topology.layout.unit_word());
            return Err(in_topology(format!("{node} is already in {other} of topology {name}")).suggest(one));
        }
        placed.push((name, unit));
        let mut units: Vec<&str> = unit.split(':').collect();
        if let (Layout::Ring { rings }, [ring, position], true) = (&topology.layout, &mut units[..], kept)
            && rings.iter().all(|known| known.name != *ring)
        {
            *position = "0";
        }
        topology.layout.put_in(node, &units).map_err(|cause| in_topology(format!("{cause} (topology {name})")))?;
    }
    Ok(())
}

/// Puts all of them in. One whose unit another one of them makes comes after that one, whatever its slot. Gives those that
/// have no place.
pub fn put_all<'p>(
    topologies: &mut Vec<NamedTopology>,
    places: impl IntoIterator<Item = (&'p str, &'p Placing)>,
) -> Vec<(String, SettingError)> {
    let mut left: Vec<(&str, &Placing)> = places.into_iter().collect();
    left.sort_by_key(|(_, place)| place.slot);
    for (node, _) in &left {
        topologies.iter_mut().for_each(|topology| topology.layout.take_out(node));
    }
    let mut kept = false;
    loop {
        let mut wrong = Vec::new();
        let before = left.len();
        left.retain(|(node, place)| match put_new(topologies, node, &place.text, kept && place.kept) {
            Ok(()) => false,
            Err(error) => {
                wrong.push(((*node).to_owned(), error));
                true
            }
        });
        match (left.is_empty(), left.len() < before) {
            (true, _) => return Vec::new(),
            (false, true) => {}
            // Nobody makes them any more.
            (false, false) if !kept && left.iter().any(|(_, place)| place.kept) => kept = true,
            (false, false) => return wrong,
        }
    }
}

/// How a node that has this place gets it again when all that was made for other nodes is gone: with the switches from
/// above. `None`: it has no such place.
pub fn way(base: &[NamedTopology], now: &[NamedTopology], node: &str, text: &str) -> Option<String> {
    let mut words = Vec::new();
    for word in text.split(',').filter(|word| !word.is_empty()) {
        let (name, _) = word.split_once(':')?;
        let topology = now.iter().find(|topology| topology.name == name)?;
        let Layout::Tree { switches } = &topology.layout else {
            topology.layout.nodes_with(node)?;
            words.push(word.to_owned());
            continue;
        };
        let of_base = |switch: &str| {
            let base = base.iter().find(|topology| topology.name == name).map(|topology| &topology.layout);
            matches!(base, Some(Layout::Tree { switches }) if switches.iter().any(|known| known.name == switch))
        };
        let mut path = vec![switches.iter().find(|switch| switch.nodes.contains(node))?.name.as_str()];
        while let Some(&top) = path.last().filter(|top| !of_base(top)) {
            path.push(&switches.iter().find(|switch| switch.children.contains(top))?.name);
        }
        path.reverse();
        words.push(format!("{name}:{}", path.join(":")));
    }
    Some(words.join(","))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::topology::{Switch, Unit};
    use std::collections::BTreeMap;

    fn named(name: &str, layout: Layout) -> NamedTopology {
        NamedTopology { name: name.to_owned(), cluster_default: false, layout, line: 0 }
    }

    fn tree() -> Vec<NamedTopology> {
        let root = Switch { name: "root".to_owned(), children: "s1".parse().unwrap(), ..Switch::default() };
        let leaf = Switch { name: "s1".to_owned(), ..Switch::default() };
        let layout = Layout::Tree { switches: vec![root, leaf] };
        vec![named("t", layout)]
    }

    fn places(texts: &[(&'static str, &str, bool)]) -> BTreeMap<&'static str, Placing> {
        let place = |(slot, (node, text, kept)): (u32, &(&'static str, &str, bool))| {
            (*node, Placing { slot, text: (*text).to_owned(), kept: *kept })
        };
        (0..).zip(texts).map(place).collect()
    }

    fn all(topologies: &mut Vec<NamedTopology>, texts: &[(&'static str, &str, bool)]) -> Vec<String> {
        let places = places(texts);
        let lost = put_all(topologies, places.iter().map(|(node, place)| (*node, place)));
        lost.into_iter().map(|(node, _)| node).collect()
    }

    #[test]
    fn a_unit_is_made_whoever_comes_first() {
        let mut made = tree();
        assert_eq!(all(&mut made, &[("d1", "t:s3", false), ("d2", "t:root:s3", false), ("d3", "t:s9", false)]), ["d3"]);
        assert_eq!(made[0].layout.nodes_of("s3").unwrap().sorted().to_string(), "d[1-2]");
        assert_eq!(way(&tree(), &made, "d1", "t:s3").unwrap(), "t:root:s3");
        assert_eq!(way(&tree(), &made, "d3", "t:s9"), None);
        let mut again = tree();
        assert!(all(&mut again, &[("d1", "t:root:s3", true)]).is_empty());
        assert_eq!(again[0].layout.nodes_of("root").unwrap().to_string(), "d1");
    }

    #[test]
    fn what_is_there_is_joined_and_nothing_made() {
        let mut made = tree();
        for refused in ["t:s9", "t:root:s3", "t:root", "t:s1,t:s1", "t", "u:s1"] {
            assert!(!join(&mut made, "d1", refused), "{refused}");
            assert_eq!(made, tree(), "{refused}");
        }
        assert!(join(&mut made, "d1", "t:root:s1"));
        assert!(join(&mut made, "d2", "t:s1"));
        assert!(!join(&mut made, "d2", "t:s1"), "it is there already");
        assert_eq!(made[0].layout.nodes_of("s1").unwrap().sorted().to_string(), "d[1-2]");
        let mut ring = vec![named("r", Layout::Ring { rings: Vec::new() })];
        assert!(!join(&mut ring, "d1", "r:x:0"));
    }

    #[test]
    fn one_that_gets_no_place_has_none() {
        let mut made = tree();
        for wrong in ["t:s9", "t:s1,t:s9"] {
            put(&mut made, "d1", "t:s1", false).unwrap();
            assert!(put(&mut made, "d1", wrong, false).is_err());
            assert_eq!(made, tree(), "{wrong}");
        }
    }

    #[test]
    fn a_node_is_in_one_unit_of_a_topology() {
        let block = |name: &str| Unit { name: name.to_owned(), ..Unit::default() };
        let blocks = Layout::Block { sizes: vec![1], blocks: vec![block("b1"), block("b2")] };
        let mut made = [tree(), vec![named("tb", blocks)]].concat();
        put(&mut made, "d1", "t:s1,tb:b1", false).unwrap();
        let wrong = put(&mut made, "d2", "t:s1,tb:b1,tb:b2", false).unwrap_err();
        assert_eq!(
            wrong.to_string(),
            "Topology=tb:b2: d2 is already in b1 of topology tb (a node is in one block of a topology)"
        );
        assert!(made.iter().all(|topology| topology.layout.nodes_with("d2").is_none()), "{made:?}");
        assert!(put(&mut made, "d2", "t:s1,t:root:s1", false).is_err());
    }

    #[test]
    fn a_ring_that_another_node_made_is_kept() {
        let rings = || vec![named("r", Layout::Ring { rings: Vec::new() })];
        let mut made = rings();
        assert!(all(&mut made, &[("d1", "r:x:1", false), ("d2", "r:x:0", false)]).is_empty());
        assert_eq!(made[0].layout.nodes_of("x").unwrap().to_string(), "d[2,1]");
        assert_eq!(all(&mut rings(), &[("d1", "r:x:1", false)]), ["d1"]);
        assert!(all(&mut rings(), &[("d1", "r:x:1", true)]).is_empty());
    }
}
