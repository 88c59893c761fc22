//! Steps that are handed over to their job's step manager: `srun --batch`, `srun --async`, arrays and lists of them.
//!
//! | module | what it is |
//! |---|---|
//! | [`combinations`] | options that make no sense together |
//! | [`asked`] | what is asked for such a step |
//! | [`one`] | one step, or a step array, in one request |
//! | [`list`] | a step for every line of a file: the run through it |
//! | [`lines`], [`list_line`], [`shell_words`] | the file by lines; a line's options and command; words as a shell makes them |
//! | [`chunk`] | lines that go in one request |
//! | [`handover`] | a request, until it is answered |
//! | [`given`] | numbers of accepted steps, as ranges |

pub mod asked;
pub mod chunk;
pub mod combinations;
pub mod given;
pub mod handover;
pub mod lines;
pub mod list;
pub mod list_line;
pub mod one;
pub mod shell_words;
