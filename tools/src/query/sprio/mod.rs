//! `sprio`: the components of waiting jobs' priorities. Options, then a query, then rows, then columns.
//!
//! [`options`] has what was typed and set, [`garrick_render::sprio`] the fields.

pub mod options;

use super::{
    arguments::{self, Outcome},
    choices,
};
use crate::{
    output::{self, Console},
    telling::hints,
};
use garrick_asking::{
    contact::{Asked, Contact},
    runs,
};
use garrick_model::messages::{
    command::{CommandReply, CommandRequest},
    priority::{JobPriority, PriorityWeights},
};
use garrick_render::{
    columns::Layout,
    sprio::{self as fields, Entry, Kind},
};
use options::Request;
use std::{
    ffi::OsString,
    io::{self, Write},
};

/// Exit code when the controller gave no answer, as Slurm's.
const UNREACHED: i32 = 255;

/// The answer of a controller.
struct Priorities {
    kind: String,
    weights: PriorityWeights,
    jobs: Vec<JobPriority>,
}

/// Runs `sprio`. Returns its exit code.
pub fn main(args: Vec<OsString>) -> i32 {
    let console = Console::new("sprio");
    let args = arguments::attach_ids(args, &["--jobs", "--job"], 'j', "hlnvw", |word| !word.starts_with('-'));
    let arguments = match arguments::read(&options::TABLE, &args, &console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return code,
    };
    let mut request = match options::read(&arguments, |name| std::env::var(name).ok()) {
        Ok(request) => request,
        Err(error) => {
            console.error(error);
            return 1;
        }
    };
    if let Err(code) = choices::own_cluster(&arguments, &console) {
        return code;
    }
    if let Err(unknown) = runs::find(&console, &mut request.jobs, &mut []) {
        hints(&unknown.error, &console);
        output::stderr(format!("Unable to find jobs matching {}: {}\n", unknown.name, unknown.error).as_bytes());
        return 1;
    }
    let found = match Contact::open(&console).and_then(|mut cluster| load(&mut cluster)) {
        Ok(found) => found,
        Err(error) => {
            hints(&error, &console);
            output::stderr(format!("Couldn't get priority factors from controller: {error}\n").as_bytes());
            return UNREACHED;
        }
    };
    if !found.kind.to_ascii_lowercase().ends_with("multifactor") {
        let said = format!(
            "You are not running a supported priority plugin\n({}).\nOnly 'priority/multifactor' is supported.\n",
            found.kind
        );
        output::stderr(said.as_bytes());
        return 1;
    }
    if request.verbose {
        console.line(format_args!("{} priorities", found.jobs.len()));
    }
    output::finish(&console, output::stdout(|out| render(found, &request, out)), 0)
}

fn load(cluster: &mut Contact) -> Asked<Priorities> {
    match cluster.ask(&CommandRequest::ListPriorities)? {
        CommandReply::Priorities { kind, weights, jobs } => Ok(Priorities { kind, weights, jobs }),
        other => Err(cluster.unexpected(&other)),
    }
}

fn render(found: Priorities, request: &Request, out: &mut dyn Write) -> io::Result<()> {
    let Priorities { weights, jobs, .. } = found;
    let layout = match &request.layout {
        Some(layout) => layout.clone(),
        None => default_layout(&weights, request),
    };
    let title = |entry: &&'static Entry| entry.title.to_owned();
    if request.weights {
        return layout.write(out, request.heading, &[()], title, |(), entry| fields::weight(entry.kind, &weights));
    }
    let mut rows: Vec<JobPriority> = jobs.into_iter().filter(|job| request.takes(job)).collect();
    if rows.is_empty() && !request.jobs.is_empty() {
        return writeln!(out, "Unable to find jobs matching user/id(s) specified");
    }
    rows.sort_by(|a, b| {
        let keys = request.sort.iter();
        let by_keys = keys.map(|(kind, descending)| {
            let order = fields::compare(*kind, a, b, &weights);
            if *descending { order.reverse() } else { order }
        });
        by_keys.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
    });
    layout.write(out, request.heading, &rows, title, |row, entry| fields::value(entry.kind, row, &weights))
}

/// Slurm's own columns: factors without weight are left out of all but the long form.
fn default_layout(weights: &PriorityWeights, request: &Request) -> Layout<&'static Entry> {
    let mut format = String::from("%.15i %9r");
    let mut add = |wanted: bool, column: &str| {
        if wanted {
            format.push(' ');
            format.push_str(column);
        }
    };
    let (long, norm) = (request.long, request.norm);
    let column = |norm_form, weighted| if norm { norm_form } else { weighted };
    add(long || !request.users.is_empty(), "%.8u");
    add(long, "%.8o");
    add(true, column("%10y", "%.10Y"));
    add(!norm, "%.10S");
    add(long || weights.age > 0, column("%10a", "%.10A"));
    add(long || weights.assoc > 0, column("%10b", "%.10B"));
    add(long || weights.fairshare > 0, column("%10f", "%.10F"));
    add(long || weights.job_size > 0, column("%10j", "%.10J"));
    add(long || weights.partition > 0, column("%10p", "%.10P"));
    add(long, "%.10n");
    add(long || weights.qos > 0, column("%10q", "%.10Q"));
    add(long && !norm, "%.11N");
    add(long || weights.tres_text.is_some(), column("%20t", "%.20T"));
    Layout::short(&format, fields::by_letter)
}

/// What a sort key or a column is about.
pub type Sort = (Kind, bool);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::ids::{ArrayTask, JobId};

    fn weights() -> PriorityWeights {
        PriorityWeights {
            age: 1000,
            job_size: 100_000,
            partition: 1000,
            tres: vec![("cpu".to_owned(), 1000.0), ("mem".to_owned(), 2000.0)],
            tres_text: Some("CPU=1000,Mem=2000".to_owned()),
            ..PriorityWeights::default()
        }
    }

    fn row(id: u32, partition: &str, priority: u32, factors: (f64, f64, f64, f64)) -> JobPriority {
        JobPriority {
            job: JobId(id),
            array_task: None,
            uid: 0,
            user: "root".to_owned(),
            account: None,
            qos_name: None,
            partition: partition.to_owned(),
            priority,
            age: 0.0,
            assoc: 0.0,
            fairshare: 0.0,
            job_size: factors.0,
            partition_factor: factors.1,
            qos: 0.0,
            tres: vec![factors.2, factors.3],
            site: 0,
            nice: 0,
        }
    }

    /// Jobs as a Slurm controller had them whose `sprio` is compared with.
    fn jobs() -> Vec<JobPriority> {
        let fixed = JobPriority { tres: Vec::new(), ..row(9, "p", 77, (0.0, 0.0, 0.0, 0.0)) };
        vec![
            row(1, "p", 6725, (0.0625, 0.25, 0.025, 0.1)),
            row(5, "q", 14_400, (0.125, 1.0, 0.1, 0.4)),
            JobPriority { nice: 50, ..row(7, "p", 9225, (0.0875, 0.25, 0.075, 0.1)) },
            fixed,
            JobPriority {
                array_task: Some(ArrayTask { array_job: JobId(12), index: 3 }),
                ..row(15, "p", 1, (0.0, 0.0, 0.0, 0.0))
            },
        ]
    }

    fn shown(words: &[&str]) -> String {
        let args: Vec<OsString> = words.iter().map(OsString::from).collect();
        let arguments = arguments::parse(&options::TABLE, &args).unwrap();
        let request = options::read(&arguments, |_| None).unwrap();
        let mut out = Vec::new();
        let found = Priorities { kind: "priority/multifactor".to_owned(), weights: weights(), jobs: jobs() };
        render(found, &request, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_are_those_of_slurm() {
        assert_eq!(
            shown(&["-j1,5,7,9"]),
            "          JOBID PARTITION   PRIORITY       SITE        AGE    JOBSIZE  PARTITION                 TRES\n\
             \u{20}             1 p               6725          0          0       6250        250       cpu=25,mem=200\n\
             \u{20}             5 q              14400          0          0      12500       1000      cpu=100,mem=800\n\
             \u{20}             7 p               9225          0          0       8750        250       cpu=75,mem=200\n\
             \u{20}             9 p                 77          0          0          0          0                     \n"
        );
        assert_eq!(
            shown(&["-n", "-j1,7"]),
            "          JOBID PARTITION PRIORITY   AGE        JOBSIZE    PARTITION  TRES                \n\
             \u{20}             1 p         0.00000156 0.0000000  0.0625000  0.2500000  cpu=0.03,mem=0.10   \n\
             \u{20}             7 p         0.00000214 0.0000000  0.0875000  0.2500000  cpu=0.07,mem=0.10   \n"
        );
        assert_eq!(
            shown(&["-w"]),
            "          JOBID PARTITION   PRIORITY       SITE        AGE    JOBSIZE  PARTITION                 TRES\n\
             \u{20}       Weights                               1       1000     100000       1000    CPU=1000,Mem=2000\n"
        );
        assert_eq!(
            shown(&["-w", "-n"]),
            "          JOBID PARTITION PRIORITY   AGE        JOBSIZE    PARTITION  TRES                \n\
             \u{20}       Weights                      1000       100000     1000                           \n"
        );
        assert_eq!(
            shown(&["-lh", "-j7"]),
            "              7 p             root   (null)       9225          0          0          0          0       \
             8750        250     (null)          0          50       cpu=75,mem=200\n"
        );
    }

    #[test]
    fn jobs_are_chosen_and_sorted() {
        assert_eq!(
            shown(&["-h", "-o", "%i|%Y|%y|%N|%t"]).lines().nth(2).unwrap(),
            "7|9225|0.00000214786269|50|cpu=0.07,mem=0.10"
        );
        assert_eq!(shown(&["-h", "-S", "r,-Y", "-o", "%i"]), "7\n1\n9\n12_3\n5\n");
        assert_eq!(shown(&["-h", "-pq", "-o", "%i"]), "5\n");
        assert_eq!(shown(&["-h", "-j12_3", "-o", "%i"]), "12_3\n");
        assert_eq!(shown(&["-h", "-j12", "-o", "%i"]), "12_3\n");
        assert_eq!(shown(&["-j99"]), "Unable to find jobs matching user/id(s) specified\n");
        assert_eq!(shown(&["-u65534"]).lines().count(), 1);
        assert!(shown(&["-u0"]).starts_with("          JOBID PARTITION     USER   PRIORITY"));
    }

    #[test]
    fn wrong_options_are_named() {
        let refused = |words: &[&str]| {
            let args: Vec<OsString> = words.iter().map(OsString::from).collect();
            options::read(&arguments::parse(&options::TABLE, &args).unwrap(), |_| None).unwrap_err().to_string()
        };
        assert_eq!(refused(&["-jabc"]), "Invalid job id: abc");
        assert_eq!(refused(&["-unobodyx"]), "Invalid user: nobodyx");
        assert_eq!(refused(&["-o", "%z"]), "Invalid job format specification: z");
        assert_eq!(refused(&["-S", "z"]), "Invalid sort specification: z");
        assert_eq!(refused(&["foo"]), "Unrecognized option: foo");
    }
}
