//! Options of `sinfo` and the `SINFO_*` variables, parsed into what is selected, grouped and shown.

use crate::{
    options::table::Arg,
    query::{
        arguments::{Arguments, NO_FEDERATION, Table, inert, option},
        choices,
    },
};
use garrick_render::{
    columns::Layout,
    json::Form,
    node_state::{self, AllOf},
    sinfo::{
        fields::{self, Entry},
        listing::{Listing, Responding, SortKey},
    },
};
use std::time::Duration;

/// Options of `sinfo`.
pub static TABLE: Table = Table {
    program: "sinfo",
    purpose: "Show partitions and nodes.",
    operands: "",
    words: &[],
    options: &[
        option("all", Some('a'), Arg::None, "include hidden partitions"),
        option("clusters", Some('M'), Arg::Required("names"), "the cluster, only the own one"),
        inert("federation", None, Arg::None, "all clusters of the federation", NO_FEDERATION),
        option("future", Some('F'), Arg::None, "also nodes in state FUTURE"),
        option("dead", Some('d'), Arg::None, "only nodes that do not respond"),
        option("exact", Some('e'), Arg::None, "group only nodes with equal configuration"),
        option("noheader", Some('h'), Arg::None, "no heading"),
        option("helpformat", None, Arg::None, "list the letters of fields"),
        option("hide", None, Arg::None, "exclude hidden partitions"),
        option("iterate", Some('i'), Arg::Required("seconds"), "repeat at this interval in seconds"),
        option("json", None, Arg::Optional("data_parser"), "as JSON"),
        option("yaml", None, Arg::Optional("data_parser"), "as YAML"),
        option("long", Some('l'), Arg::None, "longer lines"),
        inert("local", None, Arg::None, "only this cluster", NO_FEDERATION),
        option("nodes", Some('n'), Arg::Required("hostlist"), "only these nodes"),
        inert("noconvert", None, Arg::None, "do not convert units of memory", "memory is always shown in MiB"),
        option("Node", Some('N'), Arg::None, "one line for each node"),
        option("format", Some('o'), Arg::Required("format"), "fields by letters, %[.][size]letter"),
        option("Format", Some('O'), Arg::Required("format"), "fields by names, name[:[.]size]"),
        option("partition", Some('p'), Arg::Required("partition(s)"), "only these partitions"),
        option("responding", Some('r'), Arg::None, "only nodes that respond"),
        option("list-reasons", Some('R'), Arg::None, "why nodes are down or drained"),
        option("summarize", Some('s'), Arg::None, "one line for each partition"),
        option(
            "sort",
            Some('S'),
            Arg::Required("fields"),
            "order by letters of -o; - before a letter for descending order",
        ),
        option("reservation", Some('T'), Arg::None, "reservations"),
        option("states", Some('t'), Arg::Required("states"), "only nodes in these states"),
        inert("verbose", Some('v'), Arg::None, "more messages", "Slurm's lists flags of its own program"),
    ],
    misuse: 1,
};

const DEFAULT: &str = "%#P %.5a %.10l %.6D %.6t %N";
const LONG: &str = "%#P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %.11i %N";
const SUMMARY: &str = "%#P %.5a %.10l %.16F %N";
const NODES: &str = "%#N %.6D %.9P %6t";
const NODES_LONG: &str = "%#N %.6D %.9P %.11T %4c %.8z %.6m %.8d %.6w %.8f %20E";
const REASONS: &str = "%20E %9u %19H %N";
const REASONS_LONG: &str = "%20E %12U %19H %6t %N";

/// What is to be done.
#[derive(Debug)]
pub struct Request {
    /// What is listed, and how.
    pub listing: Listing,
    /// Hidden partitions too.
    pub hidden: bool,
    /// A document instead of columns.
    pub form: Option<Form>,
    /// Again and again.
    pub iterate: Option<Duration>,
}

/// Options that cannot be used, in the words that the user gets.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// A state.
    #[error("Bad state string: \"{0}\"\nvalid states: {words}", words = node_state::FILTER_WORDS)]
    State(String),
    /// A number of seconds.
    #[error("Error: invalid entry for --iterate={0}")]
    Iterate(String),
    /// Node names.
    #[error(transparent)]
    Choice(#[from] choices::ChoiceError),
    /// No document is written.
    #[error("there is no such form of documents")]
    Form(choices::FormError),
}

/// Reads the options; `env` looks variables up.
pub fn read(arguments: &Arguments, env: impl Fn(&str) -> Option<String>) -> Result<Request, RequestError> {
    let text = |long: &str, variable: &str| arguments.value(long).or_else(|| env(variable)).filter(|v| !v.is_empty());
    let form = choices::form(arguments).map_err(RequestError::Form)?;
    let long = arguments.has("long");
    let by_node = arguments.has("Node");
    let reasons = arguments.has("list-reasons");
    let default = match (reasons, arguments.has("summarize"), by_node, long) {
        (true, _, _, false) => REASONS,
        (true, _, _, true) => REASONS_LONG,
        (_, true, _, _) => SUMMARY,
        (_, _, true, false) => NODES,
        (_, _, true, true) => NODES_LONG,
        (_, _, false, true) => LONG,
        (_, _, false, false) => DEFAULT,
    };
    let states = arguments.value("states").or_else(|| env("SINFO_STATES").filter(|text| !text.is_empty()));
    let states = states.map(|text| {
        let words = choices::words(&text).into_iter();
        words.map(|word| AllOf::parse(&word).ok_or(RequestError::State(word))).collect::<Result<Vec<_>, _>>()
    });
    let default_sort = if by_node { "N" } else { "#P,-t" };
    let iterate = choices::interval(arguments).map_err(RequestError::Iterate)?;
    let heading = !arguments.has("noheader");
    let partitions = choices::words(&text("partition", "SINFO_PARTITION").unwrap_or_default());
    let hidden =
        arguments.has("all") || (env("SINFO_ALL").is_some() && !arguments.has("hide")) || !partitions.is_empty();
    let listing = Listing {
        partitions,
        nodes: choices::nodes(&arguments.value("nodes").unwrap_or_default())?,
        states: states.transpose()?,
        future: arguments.has("future"),
        responding: match (arguments.has("responding"), arguments.has("dead")) {
            (true, _) => Responding::Yes,
            (false, true) => Responding::No,
            (false, false) => Responding::Any,
        },
        by_node,
        reasons,
        exact: arguments.has("exact"),
        layout: layout(arguments, &env, default),
        sort: sort(&text("sort", "SINFO_SORT").unwrap_or_else(|| default_sort.to_owned())),
        heading,
        banner: heading && (long || iterate.is_some()),
    };
    Ok(Request { listing, hidden, form, iterate })
}

fn layout(arguments: &Arguments, env: impl Fn(&str) -> Option<String>, default: &str) -> Layout<&'static Entry> {
    let every = || fields::TABLE.iter().filter_map(|e| e.letter).map(|l| format!("%{l}")).collect::<Vec<_>>().join("|");
    let short = |format: &str| {
        let format = if format.contains("%all") { format.replace("%all", &every()) } else { format.to_owned() };
        Layout::short(&format, fields::by_letter)
    };
    let long = |format: &str| {
        if format.eq_ignore_ascii_case("all") {
            let names: Vec<&str> = fields::TABLE.iter().map(|e| e.names[0]).collect();
            return Layout::long(&names.join(","), fields::by_name);
        }
        Layout::long(format, fields::by_name)
    };
    let given = arguments.options.iter().rev().find(|o| o.def.long.eq_ignore_ascii_case("format"));
    match given.and_then(|o| Some((o.def.long, o.value.as_ref()?.to_string_lossy().into_owned()))) {
        Some(("format", format)) => short(&format),
        Some((_, format)) => long(&format),
        None if default != DEFAULT => short(default),
        None => match env("SINFO_FORMAT") {
            Some(format) => short(&format),
            None => short(default),
        },
    }
}

/// What is no field is passed over, as Slurm does.
fn sort(text: &str) -> Vec<SortKey> {
    let mut keys = Vec::new();
    let (mut descending, mut configured) = (false, false);
    for c in text.chars() {
        match c {
            ',' | ' ' | '+' => (descending, configured) = (false, false),
            '-' => descending = true,
            '#' => configured = true,
            c => {
                keys.extend(fields::by_letter(c).map(|field| SortKey { field, descending, configured }));
                (descending, configured) = (false, false);
            }
        }
    }
    keys
}
