//! `sinfo`: partitions and nodes. Options, then a query, then lines ([`garrick_render::sinfo`]).
//!
//! | module | what it does |
//! |---|---|
//! | [`options`] | what was typed and set, read into a request |
//! | `reservations` | `-T` |

pub mod options;
mod reservations;
#[cfg(test)]
mod transcript_test;

use super::arguments::{self, Outcome};
use crate::{
    output::{self, Console},
    query::choices,
    telling::Tell as _,
};
use garrick_asking::contact::{AskError, Asked, Contact, resolve_nodes};
use garrick_model::{
    messages::command::{CommandReply, CommandRequest},
    refusal::Refusal,
    view::{NodeView, PartitionView},
    visible::written_out,
};
use garrick_render::{
    clock::Clock,
    columns::{self, LayoutError},
    sinfo,
};
use options::{Request, RequestError};
use std::{ffi::OsString, sync::Arc};

/// Runs `sinfo`. Returns its exit code.
pub fn main(args: Vec<OsString>) -> i32 {
    let console = Console::new("sinfo");
    let arguments = match arguments::read(&options::TABLE, &args, &console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return code,
    };
    if arguments.has("helpformat") {
        let letters = sinfo::fields::HELP_FORMAT;
        return output::finish(&console, output::stdout(|out| columns::help_format(letters, out)), 0);
    }
    if arguments.has("reservation") {
        return reservations::list(&console, !arguments.has("noheader"));
    }
    if let Err(code) = choices::own_cluster(&arguments, &console) {
        return code;
    }
    let mut request = match options::read(&arguments, |name| std::env::var(name).ok()) {
        Ok(request) => request,
        Err(RequestError::Form(error)) => return error.tell(&console, 1),
        Err(error) => {
            error.to_string().lines().for_each(|line| console.error(line));
            return 1;
        }
    };
    for given in &request.listing.layout.unknown {
        // Slurm's words: of a letter without its own name before them, of a name as of a job's.
        match given.chars().count() {
            1 => output::stderr(
                format!("{}\n", LayoutError { kind: "node", given: written_out(given).into() }).as_bytes(),
            ),
            _ => console.error(LayoutError { kind: "job", given: given.clone() }),
        }
    }
    if let Err(error) = resolve_nodes(&mut request.listing.nodes, &console) {
        return error.tell("slurm_load_node", &console);
    }
    loop {
        let code = once(&request, &console);
        match request.iterate {
            Some(pause) if code == 0 => std::thread::sleep(pause),
            _ => return code,
        }
    }
}

fn once(request: &Request, console: &Console) -> i32 {
    let loaded = Contact::open(console).and_then(|mut cluster| {
        let loaded = load(&mut cluster, request.hidden)?;
        Ok((cluster.name().to_owned(), loaded))
    });
    let (cluster, Loaded { partitions, nodes, .. }) = match loaded {
        Ok((_, Loaded { nodes_private: true, .. })) => {
            return AskError::Refused(Refusal::AccessDenied).tell_plainly("slurm_load_node", console);
        }
        Ok(loaded) => loaded,
        Err(error) => return error.tell_plainly("slurm_load_partitions", console),
    };
    let clock = Clock::system();
    let written = if let Some(form) = request.form {
        let groups = request.listing.groups(&partitions, &nodes, &clock);
        let meta = choices::meta(&cluster, form);
        output::stdout(|out| form.write(out, sinfo::json::sinfo(&groups, &nodes, &meta)))
    } else {
        output::stdout(|out| request.listing.write(&partitions, &nodes, &clock, out))
    };
    output::finish(console, written, 0)
}

/// Partitions and nodes in configuration order.
pub struct Loaded {
    /// Partitions.
    pub partitions: Vec<Arc<PartitionView>>,
    /// Nodes.
    pub nodes: Vec<Arc<NodeView>>,
    /// The site shows states of nodes to administrators only: they are left out.
    pub nodes_private: bool,
}

/// Asks for them; partitions that are hidden, or not for the user's groups, are left out unless `all` are asked for.
pub fn load(cluster: &mut Contact, all: bool) -> Asked<Loaded> {
    match cluster.ask(&CommandRequest::ListPartitions)? {
        CommandReply::Partitions { mut partitions, nodes, hidden, nodes_private, .. } => {
            partitions.retain(|p| all || !hidden.contains(&p.config.name));
            Ok(Loaded { partitions, nodes, nodes_private })
        }
        other => Err(cluster.unexpected(&other)),
    }
}
