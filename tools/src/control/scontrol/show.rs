//! `scontrol show`.

use super::{Session, assoc_mgr, licenses, reservations, too_few, too_many, topology};
use crate::query::{
    choices::{self, ChoiceError},
    sinfo::{self, Loaded},
    squeue::task_list_limit,
};
use garrick_asking::{
    cluster::Cluster,
    contact::{self, AskError, Asked, Contact},
    ended_steps,
    own_job::of_own_job,
    runs,
};
use garrick_model::{
    hostlist,
    messages::command::{CommandReply, CommandRequest, JobSelector},
    refusal::Refusal,
    state::NodeBase,
    step_selector::StepsSelector,
    view::{JobView, NodeView, PartitionView, StepView},
};
use garrick_render::{
    clock::Clock,
    job_rows::{Arrays, Choice, JobRow},
    json::{self, Meta},
    records::{self, Record},
    step_lines::{Alike, StepLine, all_of, is_of_job},
};
use serde_json::Value;
use std::{
    collections::HashMap,
    io::{self, Write},
    sync::Arc,
};

/// What can be shown.
pub const ENTITIES: &[&str] = &[
    "aliases",
    "assoc_mgr",
    "bbstat",
    "burstbuffer",
    "config",
    "daemons",
    "dwstat",
    "federation",
    "hostlist",
    "hostlistsorted",
    "hostnames",
    "jobs",
    "licenses",
    "nodes",
    "partitions",
    "reservations",
    "steps",
    "topoconf",
    "topology",
];

const NOT_YET: &[&str] = &["slurmd"];

/// Runs `show`.
pub fn run(session: &mut Session, words: &[String]) -> i32 {
    let Some((typed, rest)) = words.split_first() else { return too_few(session, "show") };
    // `show job=5` is the same as `show job 5`.
    let (typed, rest) = match typed.split_once('=') {
        Some((entity, name)) => (entity, vec![name.to_owned()]),
        None => (typed.as_str(), rest.to_vec()),
    };
    if let Some(entity) = NOT_YET.iter().find(|e| e.eq_ignore_ascii_case(typed)) {
        return session.not_supported(&format!("scontrol show {entity}"));
    }
    let Some(entity) = entity(typed) else {
        return session.plain_error(format_args!("invalid entity:{typed} for keyword:show"));
    };
    if !matches!(entity, "topology" | "assoc_mgr") && rest.len() > 1 {
        return too_many(session, "show");
    }
    let name = rest.first().cloned();
    match entity {
        "config" => show_config(session),
        "daemons" => daemons(session),
        "hostnames" | "hostlist" | "hostlistsorted" => host_list(session, entity, name),
        "jobs" => jobs(session, name.as_deref()),
        "aliases" => aliases(session, name.as_deref()),
        // There are none: no burst buffers, no federation.
        "bbstat" | "burstbuffer" | "dwstat" | "federation" => 0,
        "assoc_mgr" => assoc_mgr::show(session, &rest),
        "topology" => topology::show(session, &rest),
        "topoconf" => topology::show_file(session),
        "licenses" => licenses::show(session, name.as_deref()),
        "reservations" => reservations::show(session, name.as_deref()),
        "nodes" => nodes(session, name.as_deref()),
        "partitions" => partitions(session, name.as_deref()),
        _ => steps(session, name.as_deref()),
    }
}

/// What a word means: itself or its beginning, and the keys by which `update` names it.
fn entity(typed: &str) -> Option<&'static str> {
    let lower = typed.to_ascii_lowercase();
    match lower.as_str() {
        "jobid" => Some("jobs"),
        "partitionname" => Some("partitions"),
        "nodename" => Some("nodes"),
        "stepid" => Some("steps"),
        "reservationname" => Some("reservations"),
        "license" => Some("licenses"),
        "hostname" => Some("hostnames"),
        _ => {
            let mut fitting = ENTITIES.iter().filter(|entity| entity.starts_with(lower.as_str()));
            match (fitting.next(), fitting.next()) {
                (Some(one), None) => Some(one),
                // `hostlist` begins `hostlistsorted`, `topo` is the older of two.
                (Some(one), _) if *one == lower => Some(one),
                _ if "topology".starts_with(lower.as_str()) && lower.len() > 3 => Some("topology"),
                _ => None,
            }
        }
    }
}

/// Names of the nodes on a host, by the configuration; nothing where there is none.
fn aliases(session: &Session, host: Option<&str>) -> i32 {
    let cluster = match Cluster::find(None) {
        Ok(cluster) => cluster,
        Err(error) => return session.plain_error(error),
    };
    let own = crate::submit::submitter::host_name();
    let names: Vec<&str> =
        cluster.config().nodes_on_host(host.unwrap_or(&own)).map(|node| node.name.as_str()).collect();
    if names.is_empty() {
        return 0;
    }
    session.print(|out| writeln!(out, "{}", names.join(" ")))
}

fn host_list(session: &Session, entity: &str, text: Option<String>) -> i32 {
    let text = text.or_else(|| std::env::var("SLURM_JOB_NODELIST").ok().filter(|_| entity == "hostnames"));
    // Exit codes as Slurm's: outside of a job, a script goes on.
    let Some(mut text) = text else {
        if entity == "hostnames" {
            session.console.error("host list is empty");
            return 0;
        }
        return session.plain_error("invalid encode argument");
    };
    if text.starts_with('/') || text == "-" {
        let read = if text == "-" { io::read_to_string(io::stdin()) } else { std::fs::read_to_string(&text) };
        text = match read {
            Ok(names) => names.split_whitespace().collect::<Vec<_>>().join(","),
            Err(error) => return session.plain_error(format_args!("Unable to open {text}: {error}")),
        };
    }
    let names = match text.parse::<hostlist::HostList>() {
        Ok(names) => names,
        Err(error) => {
            session.console.verbose(error);
            let code = session.plain_error(format_args!("Invalid hostlist: {text}"));
            return if entity == "hostnames" { 0 } else { code };
        }
    };
    session.print(|out| match entity {
        "hostnames" => names.iter().try_for_each(|name| writeln!(out, "{name}")),
        "hostlist" => writeln!(out, "{names}"),
        _ => writeln!(out, "{}", names.sorted_unique()),
    })
}

fn show_config(session: &mut Session) -> i32 {
    let answer = session.cluster().and_then(|c| match c.ask(&CommandRequest::ShowConfig)? {
        CommandReply::Config { pairs, at } => Ok((pairs, at)),
        other => Err(c.unexpected(&other)),
    });
    let (pairs, at) = match answer {
        Ok(config) => config,
        Err(error) => return session.failed("slurm_load_ctl_conf", &error),
    };
    if let Some(form) = session.manner.form {
        let document = json::config(&pairs, at, &choices::meta(&session.cluster_name(), form), &Clock::system());
        return session.print(|out| form.write(out, document));
    }
    let clock = Clock::system();
    let code = session.print(|out| render_config(&pairs, &clock.at(at), out));
    code.max(super::daemons::ping(session))
}

fn render_config(pairs: &[(String, String)], at: &str, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "Configuration data as of {at}")?;
    for (key, value) in pairs {
        writeln!(out, "{key:<23} = {value}")?;
    }
    writeln!(out)
}

/// Which daemons this host runs, by its configuration.
fn daemons(session: &Session) -> i32 {
    let cluster = match Cluster::find(None) {
        Ok(cluster) => cluster,
        Err(error) => return session.plain_error(error),
    };
    let config = cluster.config();
    let host = crate::submit::submitter::host_name();
    let mut names = Vec::new();
    if config.controllers.iter().any(|c| c.name == host || c.name == "localhost") {
        names.push("slurmctld");
    }
    if config.nodes_on_host(&host).next().is_some() {
        names.push("slurmd");
    }
    session.print(|out| writeln!(out, "{}", names.join(" ")))
}

/// The named jobs; all if none is named. An empty list if none of them is known.
fn load_jobs(session: &mut Session, named: &[JobSelector]) -> Asked<Vec<Arc<JobView>>> {
    contact::known_jobs(session.cluster()?, &CommandRequest::list_jobs(named.to_vec()))
}

fn jobs(session: &mut Session, ids: Option<&str>) -> i32 {
    let mut named = match ids.map(choices::jobs).transpose() {
        Ok(named) => named.unwrap_or_default(),
        Err(_) => {
            return session.said_unless_quiet(format_args!("scontrol_print_job error: {}", Refusal::InvalidJobId));
        }
    };
    if let Err(unknown) = runs::find(&session.console, &mut named, &mut []) {
        return session.failed("slurm_load_jobs", &unknown.error);
    }
    let all = match load_jobs(session, &named) {
        Ok(all) => all,
        Err(error) => return session.failed("slurm_load_jobs", &error),
    };
    let clock = Clock::system();
    let choice = Choice { jobs: named, ..Choice::default() };
    let mut rows = JobRow::list(&all, Arrays::Folded);
    rows.retain(|row| choice.takes(row));
    rows.sort_by_key(|row| row.job.id);
    if let (true, Some(ids), None) = (rows.is_empty(), ids, session.manner.form) {
        // Of an array that is there, a task that is not.
        let only_task = !all.is_empty() && choice.jobs.iter().all(|job| job.tasks.is_some());
        return match only_task {
            true => session.said_unless_quiet(format_args!("Job {ids} not found")),
            false => session.said_unless_quiet(format_args!("slurm_load_jobs error: {}", Refusal::InvalidJobId)),
        };
    }
    let document = |meta: &Meta| json::jobs(&rows, meta, &clock);
    let detail = session.manner.detail;
    session.list(&rows, Some("No jobs in the system"), document, |row| records::job::record(&row.job, &clock, detail))
}

/// Nodes and the partitions that they are in; or which of Slurm's calls would be refused, since the site keeps its answer private.
fn nodes_with_partitions(cluster: &mut Contact) -> Asked<Result<Loaded, &'static str>> {
    match sinfo::load(cluster, true) {
        Ok(loaded) if loaded.nodes_private => Ok(Err("slurm_load_node")),
        Ok(loaded) => Ok(Ok(loaded)),
        Err(AskError::Refused(Refusal::AccessDenied)) => {
            // As Slurm, which asks for the nodes first.
            contact::nodes(cluster).map(|_| Err("slurm_load_partitions"))
        }
        Err(error) => Err(error),
    }
}

fn nodes(session: &mut Session, names: Option<&str>) -> i32 {
    let named = match names.map(choices::nodes).transpose() {
        Ok(named) => named,
        Err(error) => {
            session.console.verbose(error);
            return session.plain_error(format_args!("unable to parse node list {}", names.unwrap_or_default()));
        }
    };
    let loaded = session.cluster().and_then(|cluster| {
        let named = named.map(|names| contact::named_nodes(cluster, &names)).transpose()?;
        Ok((named, nodes_with_partitions(cluster)?))
    });
    let (named, Loaded { partitions, nodes: all, .. }) = match loaded {
        Ok((_, Err(private))) => return session.failed(private, &AskError::Refused(Refusal::AccessDenied)),
        Ok((named, Ok(loaded))) => (named, loaded),
        Err(error) => return session.failed("slurm_load_node", &error),
    };
    let all: Vec<Arc<NodeView>> =
        all.into_iter().filter(|node| session.manner.future || node.base != NodeBase::Future).collect();
    let mut code = 0;
    let chosen: Vec<Arc<NodeView>> = match &named {
        None => all,
        Some(named) => {
            let by_name: HashMap<&str, &Arc<NodeView>> = all.iter().map(|n| (n.name.as_str(), n)).collect();
            let mut chosen = Vec::new();
            for name in named {
                match by_name.get(name.as_str()) {
                    Some(node) => chosen.push((*node).clone()),
                    // Not in a document, as in Slurm.
                    None if session.manner.form.is_some() => {}
                    None => code = session.not_found(format_args!("Node {name} not found")),
                }
            }
            chosen
        }
    };
    let with_partitions: Vec<(Arc<NodeView>, Vec<String>)> = chosen
        .into_iter()
        .map(|node| {
            let of =
                partitions.iter().filter(|p| p.nodes.binary_search(&node.index).is_ok()).map(|p| p.config.name.clone());
            let of = of.collect();
            (node, of)
        })
        .collect();
    let clock = Clock::system();
    let none = named.is_none().then_some("No nodes in the system");
    let document = |meta: &Meta| json::nodes(&with_partitions, meta, &clock);
    let detail = session.manner.detail;
    let listed = session.list(&with_partitions, none, document, |(node, of)| {
        records::node::record(node, of, &clock, detail, &choices::user_name)
    });
    listed.max(code)
}

fn partitions(session: &mut Session, name: Option<&str>) -> i32 {
    // To administrators a hidden one is shown where it is named.
    let everything = session.manner.hidden || (name.is_some() && session.is_admin());
    let (all, nodes) = match session.cluster().and_then(|cluster| sinfo::load(cluster, everything)) {
        Ok(loaded) => (loaded.partitions, loaded.nodes),
        Err(error) => return session.failed("slurm_load_partitions", &error),
    };
    let chosen: Vec<Arc<PartitionView>> = match name {
        Some(name) => all.iter().filter(|p| p.config.name == name).cloned().collect(),
        None => all,
    };
    if let (Some(name), true, None) = (name, chosen.is_empty(), session.manner.form) {
        return session.not_found(format_args!("Partition {name} not found"));
    }
    let document = |meta: &Meta| json::partitions(&chosen, &nodes, meta, &Clock::system());
    let none = Some("No partitions in the system");
    session.list(&chosen, none, document, |partition| records::partition::record(partition, &nodes))
}

/// `503.0`, or every step of `503`.
fn named_steps(text: &str) -> Result<(Option<StepsSelector>, Option<JobSelector>), ChoiceError> {
    if text.contains('.') {
        return Ok((choices::steps(text)?.into_iter().next(), None));
    }
    Ok((None, Some(choices::job(text)?)))
}

fn steps(session: &mut Session, text: Option<&str>) -> i32 {
    let (mut step, mut job) = match text.map_or(Ok((None, None)), named_steps) {
        Ok(named) => named,
        Err(_) => {
            let text = text.unwrap_or_default();
            let call = "scontrol_print_step: slurm_get_job_steps";
            session.console.error(format_args!("{call}({text}) failed: JobID can not be zero"));
            return 1;
        }
    };
    if let Err(unknown) = runs::find(&session.console, job.as_mut_slice(), step.as_mut_slice()) {
        return session.failed("slurm_get_job_steps", &unknown.error);
    }
    let loaded = match load_steps(session, step.as_ref(), job.as_ref()) {
        Ok(loaded) => Ok(loaded),
        Err(error) => {
            let asked: Vec<_> = step.iter().cloned().chain(job.iter().flat_map(all_of)).collect();
            of_own_job(&session.console, &error, &asked).map(|steps| (steps, Vec::new())).ok_or(error)
        }
    };
    let (steps, jobs) = match loaded {
        Ok(loaded) => loaded,
        Err(error) => return session.failed("slurm_get_job_steps", &error),
    };
    // Of steps that are over none is shown, as in Slurm, but one that is named.
    let job_of = |s: &StepView| jobs.iter().find(|j| j.id == s.id.job).map(|j| &**j);
    let found = step.as_ref().is_some_and(|named| {
        let named = std::slice::from_ref(named);
        steps.iter().any(|view| !StepLine::of(view, job_of(view), named, Alike::Folded).is_empty())
    });
    let records = step.as_ref().filter(|_| !found).and_then(|named| session.ended_steps(named));
    let ended = records.is_some();
    let steps = records.unwrap_or(steps);
    let of = job_of;
    let in_job = |s: &StepView, j: Option<&JobView>| job.as_ref().is_none_or(|wanted| is_of_job(s, j, wanted));
    let named = step.as_ref().map_or(&[] as &[StepsSelector], std::slice::from_ref);
    let mut chosen: Vec<StepLine<'_>> = steps
        .iter()
        .filter(|s| ended || !s.state.is_over())
        .map(|s| (s, of(s)))
        .filter(|(s, j)| in_job(s, *j))
        .flat_map(|(s, j)| StepLine::of(s, j, named, Alike::Folded))
        .collect();
    chosen.sort_by_cached_key(StepLine::first);
    if let (Some(text), true, None) = (text, chosen.is_empty(), session.manner.form) {
        // Slurm ends a job's id with the point that steps begin with.
        let point = if text.contains('.') { "" } else { "." };
        return session.not_found(format_args!("Job step {text}{point} not found"));
    }
    let clock = Clock::system();
    let limit = task_list_limit();
    let document = |meta: &Meta| json::steps(&chosen, meta, &clock);
    let none = Some("No job steps in the system");
    session.list(&chosen, none, document, |line| records::step::record(line, limit, &clock))
}

type StepsAndJobs = (Vec<StepView>, Vec<Arc<JobView>>);

fn load_steps(session: &mut Session, step: Option<&StepsSelector>, job: Option<&JobSelector>) -> Asked<StepsAndJobs> {
    let of = match (step, job) {
        (Some(s), _) if s.task.is_none() => Some(s.job),
        (_, Some(j)) if j.tasks.is_none() => Some(j.job),
        _ => None,
    };
    let named = of.map(JobSelector::from);
    let jobs = load_jobs(session, named.as_slice())?;
    let cluster = session.cluster()?;
    match cluster.ask(&CommandRequest::ListSteps { job: of, ended: false }) {
        Ok(CommandReply::Steps { steps, left_out, missing }) => {
            for manager in missing {
                session
                    .console
                    .warning(format_args!("step manager of {manager} does not answer, its steps are not shown"));
            }
            if left_out > 0 {
                session.console.warning(format_args!("{left_out} more steps are left out; name a job to see its own"));
            }
            Ok((steps, jobs))
        }
        Ok(other) => Err(cluster.unexpected(&other)),
        // A job that is over or unknown has no steps to show.
        Err(AskError::Refused(refusal)) if refusal != Refusal::ControllerUnreachable => Ok((Vec::new(), jobs)),
        Err(error) => Err(error),
    }
}

impl Session {
    /// Named steps that are over, from the records of their run. `None`: there are none.
    fn ended_steps(&mut self, named: &StepsSelector) -> Option<Vec<StepView>> {
        let console = self.console.clone();
        let cluster = self.cluster().ok()?.cluster().clone();
        let (found, missing) = ended_steps::ended(&cluster, &console, named, vec![named.which.clone()]).ok()?;
        missing.iter().for_each(|what| console.warning(format_args!("its records are not whole: {what}")));
        (!found.is_empty()).then_some(found)
    }

    /// Prints a list: as the document, or record by record. `none`: said instead of no records.
    pub(super) fn list<T>(
        &mut self,
        rows: &[T],
        none: Option<&str>,
        document: impl FnOnce(&Meta) -> Value,
        record: impl Fn(&T) -> Record,
    ) -> i32 {
        if let Some(form) = self.manner.form {
            let document = document(&choices::meta(&self.cluster_name(), form));
            return self.print(|out| form.write(out, document));
        }
        self.print(|out| {
            if let Some(none) = none.filter(|_| rows.is_empty() && !self.manner.quiet) {
                writeln!(out, "{none}")?;
            }
            rows.iter().try_for_each(|row| record(row).write(out, self.manner.lines))
        })
    }

    /// The cluster's name, for documents.
    pub(super) fn cluster_name(&mut self) -> String {
        self.cluster().map(|c| c.name().to_owned()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn entities_may_be_shortened_while_unambiguous() {
        for (typed, meant) in [
            ("j", Some("jobs")),
            ("JobId", Some("jobs")),
            ("node", Some("nodes")),
            ("part", Some("partitions")),
            ("res", Some("reservations")),
            ("hostlist", Some("hostlist")),
            ("hostn", Some("hostnames")),
            ("topo", Some("topology")),
            ("topoc", Some("topoconf")),
            ("lic", Some("licenses")),
            ("host", None),
            ("cl", None),
            ("frontend", None),
        ] {
            assert_eq!(entity(typed), meant, "{typed}");
        }
    }

    #[test]
    fn configuration_is_keys_padded_to_a_column() {
        let pairs = [("ClusterName", "peer"), ("AccountingStorageBackupHost", "(null)")];
        let pairs: Vec<_> = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let mut out = Vec::new();
        render_config(&pairs, "2026-11-21T10:00:51", &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "Configuration data as of 2026-11-21T10:00:51\nClusterName             = peer\n\
             AccountingStorageBackupHost = (null)\n\n"
        );
    }
}
