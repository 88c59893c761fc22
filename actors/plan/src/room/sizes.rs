//! Requests for one of several numbers of nodes (`--nodes=1-15:4`).

use crate::snapshot::request::Request;
use garrick_model::view::AllocatedNode;

/// Most numbers that are tried one by one (each is a search of its own); after that the least one is tried.
const MOST_SIZES: usize = 64;

/// What the search finds for the best of the request's numbers of nodes: the greatest that fits, or with `--use-min-nodes` the
/// least.
pub(crate) fn of_sizes(
    request: &Request,
    search: &dyn Fn(&Request) -> Option<Vec<AllocatedNode>>,
) -> Option<Vec<AllocatedNode>> {
    let sizes = &request.node_sizes;
    if sizes.is_empty() {
        return search(request);
    }
    let exactly = |nodes: u32| {
        let node_sizes = Default::default();
        let exact = Request { min_nodes: nodes, max_nodes: nodes, want_nodes: nodes, node_sizes, ..request.clone() };
        search(&exact)
    };
    let most = request.tasks.map_or(request.max_nodes, |tasks| tasks.min(request.max_nodes));
    let mut ascending = sizes.ascending(request.min_nodes, most);
    if request.fewest_nodes {
        return ascending.take(MOST_SIZES).find_map(exactly);
    }
    let least = ascending.next()?;
    // A search for any number in the range gives an upper limit.
    let any = search(&Request { node_sizes: Default::default(), max_nodes: most, ..request.clone() })?;
    let count = u32::try_from(any.len()).unwrap_or(u32::MAX);
    if sizes.contains(count) {
        return Some(any);
    }
    let smaller = sizes.descending(request.min_nodes, count).take(MOST_SIZES).find_map(exactly);
    smaller.or_else(|| exactly(least))
}
