#![allow(clippy::unwrap_used)]
use super::{Offer, Room, Topologies, Topology, Want};
use fixedbitset::FixedBitSet;
use garrick_model::{
    ids::NodeIndex,
    topology::{Layout, NamedTopology, Placement, Region, Switch, Torus, Unit, Xyz},
};
use std::sync::Arc;

/// Nodes `n0`, `n1`, ...
fn built(layout: Layout, nodes: usize) -> Arc<dyn Topology> {
    let index = |name: &str| name[1..].parse::<u32>().ok().map(NodeIndex);
    let named = NamedTopology { name: "t".to_owned(), cluster_default: true, layout, line: 0 };
    Arc::clone(Topologies::of(&[named], nodes, &index).get(None).unwrap())
}

fn switch(name: &str, children: &str, nodes: &str) -> Switch {
    Switch { name: name.to_owned(), children: children.parse().unwrap(), nodes: nodes.parse().unwrap(), line: 0 }
}

fn unit(name: &str, nodes: &str) -> Unit {
    Unit { name: name.to_owned(), nodes: nodes.parse().unwrap(), line: 0 }
}

fn set(nodes: impl IntoIterator<Item = usize>, count: usize) -> FixedBitSet {
    let mut set = FixedBitSet::with_capacity(count);
    set.extend(nodes);
    set
}

/// What is offered first, ascending but for exact offers.
fn first(topology: &dyn Topology, want: &Want, open: &FixedBitSet, count: usize) -> Option<Vec<usize>> {
    let members = set(0..count, count);
    let mut found = None;
    topology.offer(want, Room { members: &members, open, tasks: &[] }, &mut |offer| {
        found = Some(match offer {
            Offer::Among(set) => set.ones().collect(),
            Offer::These(nodes) => nodes,
        });
        true
    });
    found
}

fn nodes(nodes: u32) -> Want {
    Want { nodes, ..Want::default() }
}

fn segments(nodes: u32, size: u32) -> Want {
    Want { nodes, segment: Some(size), ..Want::default() }
}

fn tree() -> Arc<dyn Topology> {
    let switches = vec![
        switch("top", "mid[0-1]", ""),
        switch("mid0", "s[0-1]", ""),
        switch("mid1", "s[2-3]", ""),
        switch("s0", "", "n[0-3]"),
        switch("s1", "", "n[4-7]"),
        switch("s2", "", "n[8-11]"),
        switch("s3", "", "n[12-15]"),
    ];
    built(Layout::Tree { switches }, 16)
}

#[test]
fn the_lowest_switch_that_fits_best_and_few_leaves_below_it() {
    let tree = tree();
    let open = set([0, 1, 4, 5, 6, 8, 9, 10, 11, 12], 16);
    assert_eq!(first(&*tree, &nodes(2), &open, 16), Some(vec![0, 1]));
    assert_eq!(first(&*tree, &nodes(3), &open, 16), Some(vec![4, 5, 6]));
    // Both switches of the middle have room: of as many leaves, the one with less open.
    assert_eq!(first(&*tree, &nodes(5), &open, 16), Some(vec![0, 1, 4, 5, 6]));
    // Only the top: two leaves of four and three, not three.
    assert_eq!(first(&*tree, &nodes(7), &open, 16), Some(vec![4, 5, 6, 8, 9, 10, 11]));
    assert_eq!(first(&*tree, &Want { switches: Some(2), ..nodes(8) }, &open, 16), None);
    assert!(first(&*tree, &Want { switches: Some(3), ..nodes(8) }, &open, 16).is_some());
    assert_eq!(first(&*tree, &nodes(11), &open, 16), None);
    assert_eq!(first(&*tree, &Want { required: vec![12], ..nodes(2) }, &open, 16), Some(vec![8, 9, 10, 11, 12]));
    assert_eq!(tree.address(9), Some(("top.mid1.s2".to_owned(), "switch.switch.switch.node".to_owned())));
}

#[test]
fn no_job_spans_switches_without_a_common_one_above() {
    let switches = vec![switch("a", "", "n[0-3]"), switch("b", "", "n[4-7]")];
    let tree = built(Layout::Tree { switches }, 8);
    assert_eq!(first(&*tree, &nodes(5), &set(0..8, 8), 8), None);
}

/// Four racks of 18 and two sizes above, with a place kept for a rack.
fn racks() -> Arc<dyn Topology> {
    let blocks = vec![
        unit("b0", "n[0-17]"),
        unit("b1", "n[18-35]"),
        unit("b2", "n[36-53]"),
        unit("b3", ""),
        unit("b4", "n[54-71]"),
    ];
    built(Layout::Block { sizes: vec![18, 36, 72], blocks }, 72)
}

#[test]
fn a_block_is_as_small_as_the_request_allows_even_if_it_has_to_wait() {
    let racks = racks();
    let all = set(0..72, 72);
    assert_eq!(first(&*racks, &nodes(18), &all, 72), Some((0..18).collect()));
    // No rack is whole: it waits for one rather than take of two.
    let busy = set((0..72).filter(|n| n % 18 != 0), 72);
    assert_eq!(first(&*racks, &nodes(18), &busy, 72), None);
    assert_eq!(first(&*racks, &nodes(17), &busy, 72).unwrap().len(), 17);
    // Two racks are neighbours; the place without nodes is nobody's other half.
    let open = set((0..18).chain(36..72), 72);
    assert_eq!(first(&*racks, &nodes(36), &open, 72), None);
    assert_eq!(first(&*racks, &nodes(36), &all, 72), Some((0..36).collect()));
    // More than any aggregated block: all together.
    assert_eq!(first(&*racks, &nodes(72), &all, 72).unwrap().len(), 72);
    // Best fit: the rack with less room.
    let open = set((5..18).chain(18..36), 72);
    assert_eq!(first(&*racks, &nodes(4), &open, 72), Some((5..18).collect()));
}

#[test]
fn segments_are_whole_in_their_blocks() {
    let racks = racks();
    let all = set(0..72, 72);
    let four = first(&*racks, &segments(64, 16), &all, 72).unwrap();
    for segment in four.chunks(16) {
        assert!(segment.iter().all(|n| n / 18 == segment[0] / 18), "{segment:?}");
    }
    // Two of 8 share a rack unless they are to be spread.
    let two = first(&*racks, &segments(16, 8), &all, 72).unwrap();
    assert!(two.iter().all(|n| n / 18 == two[0] / 18));
    let spread = first(&*racks, &Want { spread: true, ..segments(16, 8) }, &all, 72).unwrap();
    assert_ne!(spread[0] / 18, spread[8] / 18);
    // Not divisible; one segment is no segment.
    assert_eq!(first(&*racks, &segments(20, 8), &all, 72), None);
    assert!(first(&*racks, &segments(6, 8), &all, 72).is_some());
    // Over all racks, or consolidated in one aggregated block: only the first four places make one of 72.
    let open = set((0..16).chain(54..70), 72);
    assert!(first(&*racks, &segments(32, 16), &open, 72).is_some());
    assert_eq!(first(&*racks, &Want { consolidate: true, ..segments(32, 16) }, &open, 72), None);
}

#[test]
fn arcs_wrap_and_the_shortest_one_is_taken() {
    let rings = vec![unit("r0", "n[0-7]"), unit("r1", "n[8-15]")];
    let ring = built(Layout::Ring { rings }, 16);
    let open = set([0, 1, 3, 4, 5, 7].into_iter().chain(8..16), 16);
    assert_eq!(first(&*ring, &nodes(3), &open, 16), Some(vec![3, 4, 5]));
    assert_eq!(first(&*ring, &Want { required: vec![7], ..nodes(3) }, &open, 16), Some(vec![7, 0, 1]));
    assert_eq!(first(&*ring, &nodes(9), &open, 16), None);
    let segmented = first(&*ring, &segments(12, 3), &open, 16).unwrap();
    assert_eq!(segmented.len(), 12);
    assert_eq!(ring.counts(&nodes(0), 1, 20).unwrap().last(), Some(&8));
}

fn torus() -> Arc<dyn Topology> {
    let xyz = |x, y, z| Xyz { x, y, z };
    let shape = |dims| Placement { dims, seed: Xyz::default(), spacing: dims };
    let region = Region { anchor: Xyz::default(), dims: xyz(4, 4, 2), nodes: "n[0-31]".parse().unwrap() };
    let toruses = vec![Torus {
        name: "pod".to_owned(),
        dims: xyz(4, 4, 2),
        regions: vec![region],
        placements: vec![
            shape(xyz(2, 2, 1)),
            shape(xyz(2, 2, 2)),
            shape(xyz(4, 4, 2)),
            Placement { dims: xyz(3, 1, 1), seed: xyz(2, 0, 0), spacing: xyz(4, 4, 2) },
        ],
        line: 0,
    }];
    built(Layout::Torus3d { toruses }, 32)
}

#[test]
fn boxes_have_an_allowed_shape_and_leave_large_ones_whole() {
    let torus = torus();
    let all = set(0..32, 32);
    assert_eq!(torus.counts(&nodes(0), 1, 40), Some(vec![3, 4, 8, 32]));
    assert_eq!(torus.counts(&segments(0, 8), 1, 30), Some(vec![3, 4, 8, 16, 24]));
    assert_eq!(first(&*torus, &nodes(8), &all, 32), Some(vec![0, 1, 4, 5, 16, 17, 20, 21]));
    // Seed 2, and around the end.
    assert_eq!(first(&*torus, &nodes(3), &all, 32), Some(vec![2, 3, 0]));
    assert_eq!(first(&*torus, &nodes(5), &all, 32), None);
    // The box of 8 at the first corner is broken already: a box of 4 goes there.
    let mut open = all;
    open.set(16, false);
    assert_eq!(first(&*torus, &nodes(4), &open, 32), Some(vec![0, 1, 4, 5]));
    let mut sixteen = first(&*torus, &segments(16, 8), &open, 32).unwrap();
    sixteen.sort_unstable();
    sixteen.dedup();
    assert_eq!(sixteen.len(), 16);
}

#[test]
fn nodes_of_a_unit_have_one_rank_where_the_site_says_so() {
    let blocks = vec![unit("b0", "n0,n2"), unit("b1", "n1,n3")];
    let named = NamedTopology {
        name: "t".to_owned(),
        cluster_default: true,
        layout: Layout::Block { sizes: vec![2], blocks },
        line: 0,
    };
    let index = |name: &str| name[1..].parse::<u32>().ok().map(NodeIndex);
    let plain = Topologies::of(&[named], 4, &index);
    let ranked = Topologies { by_unit: true, ..plain.clone() };
    let ranks = |topologies: &Topologies| (0..4).map(|node| topologies.rank(node)).collect::<Vec<_>>();
    assert_eq!((ranks(&plain), ranks(&ranked)), (vec![0; 4], vec![0, 1, 0, 1]));
}
