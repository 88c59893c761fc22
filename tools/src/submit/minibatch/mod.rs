//! Steps that are handed over to their job's step manager: `srun --batch`, `srun --async`, arrays and lists of them.
//!
//! | module | what it is |
//! |---|---|
//! | [`combinations`] | options that make no sense together |
//! | [`accepted`] | what is said of a list that was handed over |
//! | [`again`] | steps that did not end well, once more |
//! | [`asked`] | what is asked for such a step |
//! | [`one`] | one step, or a step array, in one request |
//! | [`list`] | a step for every line of a file: the run through it |
//! | [`graph`] | the steps of a graph, handed over and waited for |
//! | [`chunk`] | lines that go in one request |
//! | [`handover`] | a request, until it is answered |
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
