//! The targets. The first byte of an input chooses among several readers where a target has more than one.
//!
//! | module | what it has |
//! |---|---|
//! | `links` | messages of every link, frames, descriptors, packed steps, credentials, orders |
//! | `files` | journals and output packs |
//! | `identities` | PEM, certificates, certificate requests, join messages, tokens |
//! | `texts` | the grammars of requests: ids, lists, times, amounts, constraints |
//! | `configs` | `slurm.conf` and related files |
//! | `kernel` | `/proc` and `/sys` |
//! | `commands` | command lines, scripts, lists of steps |

mod commands;
mod configs;
mod files;
mod identities;
mod kernel;
mod links;
mod texts;

use crate::target::Target;

/// Every target.
pub static ALL: &[Target] = &[
    links::LINKS,
    links::MADE,
    links::FRAMES,
    links::DESCRIPTORS,
    links::STEPS,
    links::CREDENTIALS,
    files::JOURNALS,
    files::PACKS,
    identities::PEM,
    identities::CERTIFICATES,
    identities::TOKENS,
    texts::IDS,
    texts::HOSTLISTS,
    texts::TIMES,
    texts::AMOUNTS,
    texts::REQUESTS,
    texts::CONSTRAINTS,
    texts::PATTERNS,
    configs::SLURM_CONF,
    configs::BESIDE,
    configs::DYNAMIC_NODES,
    kernel::MOUNTS,
    kernel::PROCESSES,
    kernel::CPUS,
    commands::WORDS,
    commands::LIGHT,
    commands::SCRIPTS,
    commands::STEP_LISTS,
    commands::GRAPHS,
];

/// The first byte and what follows.
fn choice(input: &[u8]) -> (usize, &[u8]) {
    input.split_first().map_or((0, input), |(first, rest)| (usize::from(*first), rest))
}

/// The input as text; `None` when it is none.
fn text(input: &[u8]) -> Option<&str> {
    std::str::from_utf8(input).ok()
}

/// Texts as inputs, each for the reader of that number.
fn chosen(texts: &[(u8, &str)]) -> Vec<Vec<u8>> {
    texts.iter().map(|(first, text)| [&[*first], text.as_bytes()].concat()).collect()
}

/// Texts as inputs.
fn plain(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}
