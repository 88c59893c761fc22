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
//! | [`lines`], [`list_line`], [`shell_words`] | the file by lines; a line's options and command; words as a shell makes them |
//! | [`json_line`] | the same of a line that is a JSON object |
//! | [`graph`] | the steps of a graph, handed over and waited for |
//! | [`labels`] | lines that wait for others before them |
//! | [`each`] | a step for every combination of values |
//! | [`parameters`], [`values`], [`template`] | which combinations there are; one parameter's values; places for them in a command |
//! | [`chunk`] | lines that go in one request |
//! | [`handover`] | a request, until it is answered |
//! | [`given`] | numbers of accepted steps, as ranges |

pub mod accepted;
pub mod again;
pub mod asked;
pub mod chunk;
pub mod combinations;
pub mod each;
pub mod given;
pub mod graph;
pub mod handover;
pub mod json_line;
pub mod labels;
pub mod lines;
pub mod list;
pub mod list_line;
pub mod one;
pub mod parameters;
pub mod shell_words;
pub mod template;
pub mod values;
