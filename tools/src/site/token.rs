//! `garrick token`: a one-time token with which a node joins the cluster.

use super::SiteError;
use crate::{
    options::table::Arg,
    output::{self, Console},
    query::arguments::{self, Outcome, Table, option},
};
use garrick_asking::cluster::Cluster;
use garrick_model::messages::command::{CommandReply, CommandRequest};
use std::ffi::OsString;

pub(crate) static TABLE: Table = Table {
    program: "garrick token",
    purpose: "Print a one-time token with which a node joins: slurmd --token-file FILE -N NAME.",
    operands: "",
    words: &[],
    options: &[
        option("lifetime", None, Arg::Required("MINUTES"), "time for which it is valid (default 60)"),
        option("node", None, Arg::Required("NAME"), "the only node that may use it (default any)"),
    ],
    misuse: 1,
};

/// Minutes that a token is valid when nothing is said.
const LIFETIME_MINUTES: u64 = 60;

/// Runs `garrick token`. Only root, SlurmUser and the controller's own user get one.
pub fn main(args: &[OsString], console: &Console) -> Result<i32, SiteError> {
    let arguments = match arguments::read(&TABLE, args, console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return Ok(code),
    };
    let minutes = match arguments.value("lifetime") {
        None => LIFETIME_MINUTES,
        Some(text) => text
            .parse()
            .ok()
            .filter(|m| (1..=525_600).contains(m))
            .ok_or_else(|| SiteError::Usage(format!("--lifetime takes minutes from 1 to 525600, not '{text}'")))?,
    };
    let request = CommandRequest::CreateJoinToken { lifetime_secs: minutes * 60, node: arguments.value("node") };
    match Cluster::find(None)?.ask("garrick", &request)? {
        CommandReply::Token(token) => Ok(output::finish(console, output::print_line(token), 0)),
        other => Err(SiteError::Cluster(format!("unexpected answer: {other:?}"))),
    }
}
