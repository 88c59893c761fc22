//! How what the tasks of a node tell travels to the other nodes: in pieces of text under keys of the fence and the node, because
//! that is what a fence of PMI carries.

use crate::{PmixError, pmi::Pmi};
use base64::{Engine as _, engine::general_purpose::STANDARD};

/// Bytes in a piece: 4,000 letters of text, and a value has up to 4,096.
const PIECE: usize = 3000;

/// The name of a piece of what a node tells at a fence.
fn key(fence: u32, node: u32, piece: usize) -> String {
    format!("pmix-{fence}-{node}-{piece}")
}

/// The name of the number of these pieces.
fn count_key(fence: u32, node: u32) -> String {
    format!("pmix-{fence}-{node}")
}

/// All nodes of a step meet. Returns what each told, one behind the other in the order of nodes, as `libpmix` wants it.
pub fn exchange(pmi: &mut Pmi, fence: u32, node: u32, nodes: u32, told: &[u8]) -> Result<Vec<u8>, PmixError> {
    let pieces = told.chunks(PIECE);
    if !told.is_empty() {
        pmi.ask("kvs-put", &[("key", &count_key(fence, node)), ("value", &pieces.len().to_string())])?;
    }
    for (at, piece) in pieces.enumerate() {
        pmi.ask("kvs-put", &[("key", &key(fence, node, at)), ("value", &STANDARD.encode(piece))])?;
    }
    pmi.ask("kvs-fence", &[])?;
    let mut all = Vec::new();
    for other in 0..nodes {
        let pieces = pmi.value("kvs-get", &[("key", &count_key(fence, other))])?;
        let pieces: usize = pieces.and_then(|count| count.parse().ok()).unwrap_or(0);
        for at in 0..pieces {
            let piece = pmi.value("kvs-get", &[("key", &key(fence, other, at))])?;
            let piece = piece.and_then(|text| STANDARD.decode(text).ok());
            all.extend(piece.ok_or_else(|| PmixError::Node(format!("{} is missing", key(fence, other, at))))?);
        }
    }
    Ok(all)
}
