//! Who sends a file to whom.

use garrick_model::messages::files::FileStop;

/// A node that a `stepd` sends to itself, and those that get the file from there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The node.
    pub first: FileStop,
    /// Those behind it.
    pub below: Vec<FileStop>,
}

/// Divides nodes among at most `width` branches, as evenly as can be and in order; 0: each is a branch of its own.
pub fn branches(stops: Vec<FileStop>, width: u16) -> Vec<Branch> {
    let count = match usize::from(width) {
        0 => stops.len(),
        width => width.min(stops.len()),
    };
    let total = stops.len();
    let mut stops = stops.into_iter();
    let mut branches = Vec::with_capacity(count);
    for number in 0..count {
        let size = total / count + usize::from(number < total % count);
        if let Some(first) = stops.next() {
            branches.push(Branch { first, below: stops.by_ref().take(size - 1).collect() });
        }
    }
    branches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stops(count: usize) -> Vec<FileStop> {
        (0..count).map(|n| FileStop { node: format!("n{n}"), address: format!("n{n}:1") }).collect()
    }

    /// Names in the order in which they are reached, and how deep the tree is.
    fn walk(stops: Vec<FileStop>, width: u16) -> (Vec<String>, usize) {
        let (mut names, mut deepest) = (Vec::new(), 0);
        let all = branches(stops, width);
        assert!(width == 0 || all.len() <= usize::from(width));
        let sizes: Vec<usize> = all.iter().map(|branch| branch.below.len()).collect();
        let spread = sizes.iter().max().zip(sizes.iter().min()).map_or(0, |(most, least)| most - least);
        assert!(spread <= 1, "{sizes:?}");
        for branch in all {
            names.push(branch.first.node);
            let (below, depth) = walk(branch.below, width);
            names.extend(below);
            deepest = deepest.max(depth + 1);
        }
        (names, deepest)
    }

    #[test]
    fn every_node_is_reached_once_over_few_others() {
        for (count, width, depth) in
            [(0, 8, 0), (1, 8, 1), (8, 8, 1), (9, 8, 2), (72, 8, 2), (73, 8, 3), (7, 1, 7), (99, 0, 1)]
        {
            let (names, deepest) = walk(stops(count), width);
            let wanted: Vec<String> = stops(count).into_iter().map(|stop| stop.node).collect();
            assert_eq!((names, deepest), (wanted, depth), "{count} nodes, {width} wide");
        }
    }
}
