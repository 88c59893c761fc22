//! `sdiag`: what the controller counted of its own work.

use super::arguments::{self, Arguments, Outcome, Table, inert, option};
use super::choices::{self, FormError};
use crate::{
    output::{self, Console},
    telling::Tell as _,
};
use garrick_asking::contact::{Asked, Contact};
use garrick_model::messages::{
    command::{CommandReply, CommandRequest},
    statistics::Statistics,
};
use garrick_options::table::Arg;
use garrick_render::{
    clock::Clock,
    json::{self, Form},
    sdiag::{self, Order},
};
use std::ffi::OsString;

/// Exit code when there is no such form of documents, as Slurm's.
const NO_FORM: i32 = 253;
/// Exit code when the controller gave no answer or refused, as Slurm's.
const REFUSED: i32 = 255;

pub(crate) static TABLE: Table = Table {
    program: "sdiag",
    purpose: "Show what the controller counted: jobs, passes of the scheduler, requests.",
    operands: "",
    words: &[],
    options: &[
        inert("all", Some('a'), Arg::None, "everything", "everything is always shown"),
        option("cluster", Some('M'), Arg::Required("cluster"), "the cluster that is meant: this one, no other"),
        option("json", None, Arg::Optional("data_parser"), "as JSON"),
        inert("no-trunc", None, Arg::None, "long lines are whole", "no line is ever cut"),
        option("reset", Some('r'), Arg::None, "counters begin anew; for administrators"),
        option("sort-by-id", Some('i'), Arg::None, "requests by their numbers"),
        option("sort-by-time", Some('t'), Arg::None, "requests by the time that they took"),
        option("sort-by-time2", Some('T'), Arg::None, "requests by the time that each took"),
        option("yaml", None, Arg::Optional("data_parser"), "as YAML"),
    ],
    misuse: 1,
};

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    reset: bool,
    form: Option<Form>,
    order: Order,
    cluster: Option<String>,
}

/// Reads the options; `env` looks variables up.
pub fn read(arguments: &Arguments, env: impl Fn(&str) -> Option<String>) -> Result<Request, FormError> {
    let form = choices::form(arguments)?;
    let orders = [("sort-by-id", Order::Id), ("sort-by-time", Order::Time), ("sort-by-time2", Order::MeanTime)];
    let order = arguments
        .options
        .iter()
        .rev()
        .find_map(|given| orders.iter().find(|(name, _)| *name == given.def.long).map(|(_, order)| *order));
    Ok(Request {
        reset: arguments.has("reset"),
        form,
        order: order.unwrap_or_default(),
        cluster: arguments.value("cluster").or_else(|| env("SLURM_CLUSTERS")).filter(|name| !name.is_empty()),
    })
}

/// Runs `sdiag`. Returns its exit code.
pub fn main(args: Vec<OsString>) -> i32 {
    let console = Console::new("sdiag");
    let arguments = match arguments::read(&TABLE, &args, &console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return code,
    };
    let request = match read(&arguments, |name| std::env::var(name).ok()) {
        Ok(request) => request,
        Err(error) => return error.tell(&console, NO_FORM),
    };
    if let Some(name) = &request.cluster
        && let Err(code) = choices::is_own_cluster(name, &console)
    {
        return code;
    }
    if request.reset { reset(&console) } else { show(&request, &console) }
}

fn reset(console: &Console) -> i32 {
    match Contact::open(console).and_then(|mut cluster| cluster.ask(&CommandRequest::ResetStatistics)) {
        Ok(_) => output::finish(console, output::print_line("Reset scheduling statistics"), 0),
        Err(error) => {
            error.tell_plainly("slurm_reset_statistics", console);
            REFUSED
        }
    }
}

fn show(request: &Request, console: &Console) -> i32 {
    let loaded = Contact::open(console).and_then(|mut cluster| Ok((cluster.name().to_owned(), load(&mut cluster)?)));
    let (cluster, counted) = match loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            error.tell_plainly("slurm_get_statistics", console);
            return REFUSED;
        }
    };
    let written = if let Some(form) = request.form {
        let document = json::statistics(&counted, &choices::meta(&cluster, form), &choices::user_name);
        output::stdout(|out| form.write(out, document))
    } else {
        output::stdout(|out| sdiag::write(out, &counted, request.order, &Clock::system(), &choices::user_name))
    };
    output::finish(console, written, 0)
}

fn load(cluster: &mut Contact) -> Asked<Box<Statistics>> {
    match cluster.ask(&CommandRequest::ShowStatistics)? {
        CommandReply::Statistics(counted) => Ok(counted),
        other => Err(cluster.unexpected(&other)),
    }
}
