//! Lists of steps as users write them: for `srun --from-file` and `--each`, and in graphs.
//!
//! | module | what it is |
//! |---|---|
//! | [`lines`], [`list_line`], [`shell_words`] | the file by lines; a line's options and command; words as a shell makes them |
//! | [`json_line`] | the same for a line that is a JSON object |
//! | [`labels`] | lines that wait for earlier ones |
//! | [`each`] | a step for every combination of values |
//! | [`parameters`], [`values`], [`template`] | the combinations; the values of a parameter; placeholders in a command |

pub mod each;
pub mod json_line;
pub mod labels;
pub mod lines;
pub mod list_line;
pub mod parameters;
pub mod shell_words;
pub mod template;
pub mod values;
