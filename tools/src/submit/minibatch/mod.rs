//! Minibatch steps, which are handed over to their job's step manager: `srun --batch`, `srun --async`, arrays and lists of them.
//!
//! | module | what it is |
//! |---|---|
//! | [`combinations`] | options that may not be combined |
//! | [`accepted`] | messages about a submitted list |
//! | [`again`] | reruns steps that failed or did not complete |
//! | [`asked`] | the request of such a step |
//! | [`one`] | one step, or a step array, in one request |
//! | [`list`] | a step for every line of a file |
//! | [`graph`] | the steps of a graph, submitted and waited for |
//! | [`chunk`] | lines in one request |
//! | [`handover`] | sends a request until it is answered |
//! | [`given`] | numbers of accepted steps, as ranges |

pub mod accepted;
pub mod again;
pub mod asked;
pub mod chunk;
pub mod combinations;
pub mod given;
pub mod graph;
pub mod handover;
pub mod list;
pub mod one;
