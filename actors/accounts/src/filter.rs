//! Which rows a question is about. The database leaves out what it can by its columns; [`JobFilter::takes`] decides.

use crate::row::JobRow;
use garrick_model::{
    entities::qos::names_qos,
    hostlist,
    ids::{JobId, Sluid},
    spec::ArraySpec,
    state::JobState,
    step_selector::WhichSteps,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Jobs named by a user: `5609`, `5609_3`, `5609_[0-5]`, `5609+1`, `5609.batch`, `sFSNM7YRTC8Q00`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedJob {
    /// The job, the job array, or the leader of a heterogeneous job. [`JobId::OF_A_RUN`] where only `run` is named.
    pub job: JobId,
    /// Only these tasks of the array. `None`: the job, and all tasks of an array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<ArraySpec>,
    /// Only that component of the heterogeneous job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub het: Option<u32>,
    /// Only that run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Sluid>,
    /// Only these steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<WhichSteps>,
}

/// What holds for a row that is asked for. An empty list leaves no row out.
// Tests generate messages by the names of types, and there is another filter of jobs. Names are not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename = "RecordFilter")]
pub struct JobFilter {
    /// `-j`
    pub jobs: Vec<NamedJob>,
    /// `-M`: none: the cluster of the service's own controller, or all where it has several.
    pub clusters: Vec<String>,
    /// `-u`: uids.
    pub users: Vec<u32>,
    /// `-g`: gids.
    pub groups: Vec<u32>,
    /// `-A`
    pub accounts: Vec<String>,
    /// `-r`: one of those that it may run in, or the one that it ran in.
    pub partitions: Vec<String>,
    /// `-q`
    pub qos: Vec<String>,
    /// `-W`
    pub wckeys: Vec<String>,
    /// `--name`
    pub names: Vec<String>,
    /// Reservations that it ran in, or asked for.
    pub reservations: Vec<String>,
    /// `-N`: nodes that it had, one by one.
    pub nodes: Vec<String>,
    /// `-s`: states that it had in the window; without a window, that it has.
    pub states: Vec<JobState>,
    /// `-S`: it was there at that time or later.
    pub start: Option<Timestamp>,
    /// `-E`: it was there before that time.
    pub end: Option<Timestamp>,
    /// `-D`: all runs of a requeued job, not only its newest.
    pub duplicates: bool,
}

/// Whose rows somebody sees, or may change, who sees his own only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// His number.
    pub uid: u32,
    /// Where the service's host does not know that number: the cluster that he asks from, and his name there. On other clusters the
    /// number may be somebody else's, unless it had his name there.
    pub elsewhere: Option<(String, Option<String>)>,
    /// Clusters and names of accounts that he coordinates: of those he sees all jobs (slurm.conf(5), `PrivateData=jobs`).
    pub coordinates: BTreeSet<(String, String)>,
}

impl Owner {
    /// One whom the service's host knows: a number is the same user's everywhere.
    pub const fn known(uid: u32) -> Self {
        Self { uid, elsewhere: None, coordinates: BTreeSet::new() }
    }

    /// Is a row of that number his, which that cluster has with that name?
    pub fn is(&self, uid: u32, cluster: &str, user: &str) -> bool {
        let same = |(own, name): &(String, Option<String>)| own == cluster || name.as_deref() == Some(user);
        self.uid == uid && self.elsewhere.as_ref().is_none_or(same)
    }

    /// Is it his?
    pub fn has(&self, row: &JobRow) -> bool {
        self.is(row.uid, &row.cluster, &row.user)
    }

    /// Does he see it: as his own, or as one of an account that he coordinates?
    pub fn sees(&self, row: &JobRow) -> bool {
        self.has(row) || self.coordinates(&row.cluster, row.account.as_deref())
    }

    /// Does he coordinate that account there?
    pub fn coordinates(&self, cluster: &str, account: Option<&str>) -> bool {
        let Some(account) = account.filter(|_| !self.coordinates.is_empty()) else { return false };
        self.coordinates.contains(&(cluster.to_owned(), account.to_owned()))
    }
}

/// Longest list of a question.
pub const MOST_LISTED: usize = 4096;
/// Ranges of tasks in a question, all together: each row is compared with them.
pub const MOST_RANGES: usize = 4096;
/// Waiting tasks of an array that are compared one by one.
const FEW: u32 = 10_000;

/// Is it in the list? An empty one leaves nothing out.
pub(crate) fn is_listed(list: &[String], value: &str) -> bool {
    list.is_empty() || list.iter().any(|listed| listed == value)
}

impl JobFilter {
    /// For what came from elsewhere: is none of its lists longer than [`MOST_LISTED`], and do its ranges of tasks mean something?
    pub fn is_sound(&self) -> bool {
        let tasks = || self.jobs.iter().filter_map(|named| named.tasks.as_ref());
        let ranges = tasks().map(|tasks| tasks.ranges.len()).fold(0, usize::saturating_add);
        self.is_short() && ranges <= MOST_RANGES && tasks().all(|tasks| tasks.is_sound(u32::MAX))
    }

    /// Is none of its lists longer than [`MOST_LISTED`]?
    pub fn is_short(&self) -> bool {
        let texts = [
            &self.clusters,
            &self.accounts,
            &self.partitions,
            &self.qos,
            &self.wckeys,
            &self.names,
            &self.reservations,
            &self.nodes,
        ];
        let lengths = [self.jobs.len(), self.users.len(), self.groups.len(), self.states.len()];
        texts.iter().map(|list| list.len()).chain(lengths).all(|length| length <= MOST_LISTED)
    }

    /// Is that row asked for? Whether it is a job's newest run is not decided here.
    pub fn takes(&self, row: &JobRow) -> bool {
        let listed = |list: &[String], value: Option<&str>| is_listed(list, value.unwrap_or(""));
        (self.jobs.is_empty() || self.jobs.iter().any(|named| named.is(row)))
            && listed(&self.clusters, Some(&row.cluster))
            && (self.users.is_empty() || self.users.contains(&row.uid))
            && (self.groups.is_empty() || self.groups.contains(&row.gid))
            && listed(&self.accounts, row.account.as_deref())
            && (self.qos.is_empty() || self.qos.iter().any(|asked| names_qos(row.qos.as_deref(), asked)))
            && listed(&self.wckeys, row.wckey.as_deref())
            && listed(&self.names, Some(&row.name))
            && any_of(&self.partitions, row.partition.as_ref(), &row.partitions)
            && any_of(&self.reservations, row.reservation.as_ref(), &row.requested_reservations)
            && (self.nodes.is_empty() || self.on_nodes(row))
            && self.at_that_time(row)
    }

    fn on_nodes(&self, row: &JobRow) -> bool {
        let Ok(nodes) = hostlist::expand(&row.nodes) else { return false };
        let nodes: BTreeSet<&str> = nodes.iter().map(String::as_str).collect();
        self.nodes.iter().any(|node| nodes.contains(node.as_str()))
    }

    /// Was it there in the window, in one of the states? sacct(1): without states, jobs that were eligible before its end and did not
    /// end before its start; with states, those that had such a state in the window.
    fn at_that_time(&self, row: &JobRow) -> bool {
        if self.states.is_empty() {
            return self.meets(row.eligible.unwrap_or(row.submit), row.end);
        }
        let windowed = self.start.is_some() || self.end.is_some();
        self.states.iter().any(|state| match state {
            _ if !windowed => *state == row.state,
            JobState::Pending => self.meets(row.eligible.unwrap_or(row.submit), row.start.or(row.end)),
            JobState::Running => row.start.is_some_and(|start| self.meets(start, row.end)),
            state => *state == row.state && row.end.is_none_or(|end| self.meets(end, Some(end))),
        })
    }

    /// Does a time from `begin` to `end` (`None`: it goes on) lie in the window, partly at least?
    fn meets(&self, begin: Timestamp, end: Option<Timestamp>) -> bool {
        self.end.is_none_or(|window| begin <= window)
            && self.start.is_none_or(|window| end.is_none_or(|end| end >= window))
    }
}

fn any_of(list: &[String], got: Option<&String>, asked: &[String]) -> bool {
    list.is_empty() || got.map_or(asked, std::slice::from_ref).iter().any(|name| list.contains(name))
}

/// Have they a task in common? Of arrays with very many waiting tasks, ranges with steps count as if they had none.
fn meet(waiting: &ArraySpec, named: &ArraySpec) -> bool {
    let overlap = |a: &(u32, u32, u32)| named.ranges.iter().any(|b| a.0 <= b.1 && b.0 <= a.1);
    let near = waiting.ranges.iter().any(overlap);
    near && (waiting.count() > FEW || waiting.indices().any(|index| named.contains(index)))
}

impl NamedJob {
    /// All of a job.
    pub const fn job(job: JobId) -> Self {
        Self { job, tasks: None, het: None, run: None, steps: None }
    }

    /// Is the row of that job?
    pub fn is(&self, row: &JobRow) -> bool {
        if let Some(run) = self.run {
            return run == row.sluid;
        }
        let array = row.array_task.map(|task| task.array_job);
        let of_job =
            row.job == self.job || array == Some(self.job) || row.het.is_some_and(|(leader, _)| leader == self.job);
        of_job
            && self.het.is_none_or(|offset| row.het.is_some_and(|(_, own)| own == offset))
            && self.tasks.as_ref().is_none_or(|tasks| match (row.array_task, &row.waiting) {
                (Some(task), _) => array == Some(self.job) && tasks.contains(task.index),
                (None, Some(waiting)) => meet(waiting, tasks),
                (None, None) => false,
            })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use garrick_events::testing::record;
    use garrick_model::{ids::ArrayTask, spec::JobSpec};

    fn ran(id: u32, start: i64, end: Option<i64>, state: JobState) -> JobRow {
        let mut row = JobRow::of("c", &record(id, JobSpec { name: "x".into(), ..JobSpec::default() }));
        (row.submit, row.eligible) = (Timestamp(start - 10), Some(Timestamp(start - 10)));
        (row.start, row.end, row.state) = (Some(Timestamp(start)), end.map(Timestamp), state);
        row
    }

    fn window(start: i64, end: i64, states: &[JobState]) -> JobFilter {
        let (start, end) = (Some(Timestamp(start)), Some(Timestamp(end)));
        JobFilter { start, end, states: states.to_vec(), ..JobFilter::default() }
    }

    #[test]
    fn a_number_of_an_unknown_user_is_his_on_his_cluster_and_under_his_name() {
        let known = Owner::known(7);
        assert!(known.is(7, "birch", "bob") && !known.is(8, "birch", "bob"));
        let unknown = |name: Option<&str>| Owner {
            elsewhere: Some(("maple".to_owned(), name.map(str::to_owned))),
            ..Owner::known(7)
        };
        let alice = unknown(Some("alice"));
        assert!(alice.is(7, "maple", "alice") && alice.is(7, "birch", "alice"));
        // He was called otherwise when he submitted it.
        assert!(alice.is(7, "maple", "ann"));
        assert!(!alice.is(7, "birch", "bob") && !alice.is(8, "birch", "alice"));
        assert!(unknown(None).is(7, "maple", "x") && !unknown(None).is(7, "birch", "x"));
    }

    #[test]
    fn a_window_takes_rows_that_were_there() {
        let row = ran(1, 100, Some(200), JobState::Failed);
        assert!(window(150, 160, &[]).takes(&row));
        assert!(window(90, 95, &[]).takes(&row), "it waited");
        assert!(!window(10, 80, &[]).takes(&row));
        assert!(!window(201, 300, &[]).takes(&row));
        assert!(window(201, 300, &[]).takes(&ran(1, 100, None, JobState::Running)));
    }

    #[test]
    fn a_state_counts_when_it_was_had_in_the_window() {
        let row = ran(1, 100, Some(200), JobState::Failed);
        assert!(window(150, 160, &[JobState::Running]).takes(&row));
        assert!(!window(150, 160, &[JobState::Failed]).takes(&row));
        assert!(window(150, 250, &[JobState::Failed]).takes(&row));
        assert!(window(90, 95, &[JobState::Pending]).takes(&row));
        assert!(!window(90, 95, &[JobState::Running]).takes(&row));
        let now = |state| JobFilter { states: vec![state], ..JobFilter::default() };
        assert!(now(JobState::Failed).takes(&row) && !now(JobState::Running).takes(&row));
    }

    #[test]
    fn names_take_jobs_tasks_and_components() {
        let mut task = ran(8, 1, None, JobState::Running);
        task.array_task = Some(ArrayTask { array_job: JobId(5), index: 3 });
        let named = |tasks| NamedJob { tasks, ..NamedJob::job(JobId(5)) };
        assert!(named(None).is(&task));
        assert!(named(Some("3-4".parse().unwrap())).is(&task));
        assert!(!named(Some("4".parse().unwrap())).is(&task));
        assert!(NamedJob::job(JobId(8)).is(&task));
        let mut waits = ran(5, 1, None, JobState::Pending);
        waits.waiting = Some("0-8:2".parse().unwrap());
        assert!(named(Some("3-4".parse().unwrap())).is(&waits));
        assert!(!named(Some("3".parse().unwrap())).is(&waits) && !named(Some("9".parse().unwrap())).is(&waits));
        let filter = |tasks| JobFilter { jobs: vec![named(Some(tasks))], ..JobFilter::default() };
        assert!(filter("3-4".parse().unwrap()).is_sound());
        assert!(!filter(ArraySpec { ranges: vec![(4, 3, 0)], limit: None }).is_sound());
        let mut component = ran(6, 1, None, JobState::Running);
        component.het = Some((JobId(5), 1));
        assert!(named(None).is(&component));
        assert!(!NamedJob { het: Some(0), ..NamedJob::job(JobId(5)) }.is(&component));
        let mut on = ran(9, 1, None, JobState::Running);
        on.nodes = "n[1-3]".into();
        let at = |node: &str| JobFilter { nodes: vec![node.to_owned()], ..JobFilter::default() };
        assert!(at("n2").takes(&on) && !at("n4").takes(&on));
    }
}
