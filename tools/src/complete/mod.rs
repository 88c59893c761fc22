//! Completion of command lines in shells. A script in each shell hands over the line up to the cursor (`garrick complete`), and
//! what may stand there is found here, from the tables that the commands read their arguments by. clap_complete is not used
//! for it: its scripts are made of clap's own commands, and ask nobody for partitions, jobs and nodes.
//!
//! | module | what it is |
//! |---|---|
//! | [`line`] | what may stand at the end of a line |
//! | [`values`] | what options and operands take |
//! | [`cluster`] | names of partitions, jobs, nodes and others, asked of the cluster |
//! | [`shells`] | the scripts |

pub mod cluster;
pub mod line;
pub mod shells;
pub mod values;

use crate::output::{self, Console};
use garrick_model::visible::written_out;
use line::Candidate;
use std::ffi::OsString;

/// What means something to a shell. Partitions, nodes and reservations may have such names.
const NOT_PLAIN: [char; 18] =
    ['`', '$', '\\', '"', '\'', ';', '&', '|', '<', '>', '(', ')', '*', '?', '!', ' ', '\n', '\t'];

/// Runs `garrick complete LINE`: prints what kind of word is wanted, and the words there are, each with a text behind a tab.
pub fn main(args: &[OsString], console: &Console) -> i32 {
    let typed = args.first().map(|line| line.to_string_lossy().into_owned()).unwrap_or_default();
    let wanted = line::wanted(&typed, &cluster::Live);
    // Names are the texts of users: the shell shows them, and takes lines and tabs apart.
    let shown = |text: &str| written_out(text).replace('\t', " ");
    let line = |word: &Candidate| format!("{}\t{}", shown(&word.text), shown(&word.help));
    // bash puts words into the line as they are: one that would mean something else there is not offered.
    let is_plain = |word: &&Candidate| !word.text.contains(NOT_PLAIN);
    let written = output::stdout(|out| {
        writeln!(out, "{}", wanted.kind())?;
        wanted.words().iter().filter(is_plain).try_for_each(|word| writeln!(out, "{}", line(word)))
    });
    output::finish(console, written, 0)
}
