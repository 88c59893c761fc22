//! `sshare`: shares of accounts and users, and what they have used. Options, then a query, then rows, then columns.
//!
//! [`options`] has what was typed, [`garrick_render::sshare`] the fields.

pub mod options;

use super::{
    arguments::{self, Outcome},
    choices,
};
use crate::{
    output::{self, Console},
    telling::hints,
};
use garrick_asking::contact::{Asked, Contact};
use garrick_model::messages::{
    command::{CommandReply, CommandRequest},
    shares::SharesBoard,
};
use garrick_render::sshare as fields;
use options::{Request, RequestError};
use std::{
    ffi::OsString,
    io::{self, Write},
};

/// Exit code when the controller gave no answer, as Slurm's.
const UNREACHED: i32 = 255;

/// Runs `sshare`. Returns its exit code.
pub fn main(args: Vec<OsString>) -> i32 {
    let console = Console::new("sshare");
    let arguments = match arguments::read(&options::TABLE, &args, &console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return code,
    };
    if arguments.has("helpformat") {
        return output::finish(&console, output::stdout(|out| fields::help_format(out)), 0);
    }
    let own = || choices::user_name(nix::unistd::getuid().as_raw());
    let request = match options::read(&arguments, &own) {
        Ok(request) => request,
        Err(RequestError::Form(error)) => return error.tell(&console, 1),
        Err(error) => {
            console.error(error);
            return 1;
        }
    };
    if let Err(code) = choices::own_cluster(&arguments, &console) {
        return code;
    }
    let found = Contact::open(&console).and_then(|mut cluster| Ok((cluster.name().to_owned(), load(&mut cluster)?)));
    let (cluster, board) = match found {
        Ok(found) => found,
        Err(error) => {
            hints(&error, &console);
            output::stderr(format!("Couldn't get shares from controller: {error}\n").as_bytes());
            return UNREACHED;
        }
    };
    if request.verbose {
        output::stderr(asked(&request).as_bytes());
    }
    output::finish(&console, output::stdout(|out| render(&board, &cluster, &request, out)), 0)
}

/// The controller's copy of what accounting knows.
pub fn load(cluster: &mut Contact) -> Asked<SharesBoard> {
    match cluster.ask(&CommandRequest::ListShares)? {
        CommandReply::Shares(board) => Ok(*board),
        other => Err(cluster.unexpected(&other)),
    }
}

/// What `-v` says of the request.
fn asked(request: &Request) -> String {
    let list = |names: &Option<Vec<String>>, all: &str| match names {
        Some(names) => names.iter().map(|name| format!("\t: {name}\n")).collect(),
        None => all.to_owned(),
    };
    let (users, accounts) = (list(&request.choice.users, "\t: all\n"), list(&request.choice.accounts, ""));
    format!("Users requested:\n{users}Accounts requested:\n{accounts}")
}

fn render(board: &SharesBoard, cluster: &str, request: &Request, out: &mut dyn Write) -> io::Result<()> {
    let rows = fields::rows(board, &request.choice);
    if let Some(form) = request.form {
        return form.write(out, fields::document(&rows, &choices::meta(cluster, form)));
    }
    if request.names_cluster {
        writeln!(out, "CLUSTER: {cluster}")?;
    }
    let usual = fields::usual(request.long, request.partition, board.fair_tree);
    let columns = match &request.columns {
        Some(columns) => columns.clone(),
        None => fields::columns(&usual).unwrap_or_default(),
    };
    fields::write(out, &rows, &columns, &request.setting, request.heading)
}
