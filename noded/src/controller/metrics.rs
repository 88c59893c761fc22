//! Pages of metrics: which there are, and what each is made of.

use super::http::{Http, Refused};
use garrick_kernel::{inventory::boot_time, proc_tree::start_time};
use garrick_model::{time::Timestamp, view::StepCounts};
use garrick_render::metrics::{
    jobs, nodes,
    own::{self, Actors, Handled, Own, ProcessUse},
    scheduler,
};
use garrick_runtime::System;
use nix::{
    sys::{
        resource::{Resource, UsageWho, getrlimit, getrusage},
        time::{TimeVal, TimeValLike as _},
    },
    unistd::{SysconfVar, sysconf},
};
use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path, time::Duration};

/// A page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// Jobs by state.
    Jobs,
    /// Nodes.
    Nodes,
    /// Partitions.
    Partitions,
    /// Jobs by user and account.
    UsersAndAccounts,
    /// What `sdiag` shows.
    Scheduler,
    /// What only Garrick has.
    Own,
}

impl Page {
    /// All pages.
    pub const ALL: [Self; 6] =
        [Self::Jobs, Self::Nodes, Self::Partitions, Self::UsersAndAccounts, Self::Scheduler, Self::Own];

    /// Its path.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Jobs => "/metrics/jobs",
            Self::Nodes => "/metrics/nodes",
            Self::Partitions => "/metrics/partitions",
            Self::UsersAndAccounts => "/metrics/jobs-users-accts",
            Self::Scheduler => "/metrics/scheduler",
            Self::Own => "/metrics/garrick",
        }
    }

    const fn what(self) -> &'static str {
        match self {
            Self::Jobs => "get job metrics",
            Self::Nodes => "get node metrics",
            Self::Partitions => "get partition metrics",
            Self::UsersAndAccounts => "get user and account jobs metrics",
            Self::Scheduler => "get scheduler metrics",
            Self::Own => "get metrics that only Garrick has",
        }
    }

    /// What it says now.
    pub async fn text(self, http: &Http) -> Result<String, Refused> {
        let boards = &http.env.boards;
        let nodes = || boards.nodes_shown(Timestamp::now());
        let powering_up = || nodes::powering_up(&boards.nodes.list());
        Ok(match self {
            Self::Jobs => jobs::all(&boards.jobs.list(), &powering_up()),
            Self::UsersAndAccounts => jobs::by_user_and_account(&boards.jobs.list(), &powering_up()),
            Self::Nodes => nodes::all(&nodes()),
            Self::Partitions => nodes::of_each_partition(&boards.partitions.list(), &nodes(), &boards.jobs.list()),
            Self::Scheduler => scheduler::scheduler(&http.counters().await?),
            Self::Own => own(http).await?,
        })
    }
}

/// What `/metrics` says.
pub fn index() -> String {
    let mut text = "slurmctld index of metrics endpoints:\n".to_owned();
    for page in Page::ALL {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  '{}': {}", page.path(), page.what());
    }
    text
}

async fn own(http: &Http) -> Result<String, Refused> {
    let counted = http.counters().await?;
    let running = http.env.boards.steps.list();
    let steps: StepCounts = running.iter().map(|tally| tally.counts).sum();
    let system = &http.env.system;
    // One actor of thousands would be a label of its own for ever: kinds are enough.
    let mut messages: BTreeMap<(String, &'static str), (u64, Duration, Duration)> = BTreeMap::new();
    for count in system.traces().counts(&[]) {
        let kind = count.actor.split('/').nth(1).unwrap_or_default();
        let (handled, queued, handling) = messages.entry((format!("/{kind}"), count.message)).or_default();
        *handled += count.handled;
        *queued += count.queued;
        *handling += count.handling;
    }
    let handled = messages.iter().map(|((actors, message), (count, queued, handling))| Handled {
        actors,
        message,
        count: *count,
        queued: *queued,
        handling: *handling,
    });
    let messages: Vec<Handled<'_>> = handled.collect();
    Ok(own::page(&Own {
        counted: &counted,
        steps: &steps,
        messages: &messages,
        actors: &actors(system),
        process: &process_use(),
        version: env!("CARGO_PKG_VERSION"),
    }))
}

/// Actors by kind, sorted.
fn actors(system: &System) -> Vec<Actors> {
    let mut kinds: BTreeMap<String, Actors> = BTreeMap::new();
    system.mailboxes(|path, waiting| {
        let (of, waiting) = (kinds.entry(path.kind().to_owned()).or_default(), waiting as u64);
        of.count += 1;
        of.waiting += waiting;
        of.most_waiting = of.most_waiting.max(waiting);
    });
    for (kind, restarts) in system.traces().restarts() {
        kinds.entry(kind).or_default().restarts = restarts;
    }
    kinds.into_iter().map(|(kind, of)| Actors { kind, ..of }).collect()
}

/// What this process uses; what the kernel does not tell is 0.
fn process_use() -> ProcessUse {
    let cpu = getrusage(UsageWho::RUSAGE_SELF).map(|usage| {
        let part = |time: TimeVal| Duration::from_micros(u64::try_from(time.num_microseconds()).unwrap_or(0));
        part(usage.user_time()) + part(usage.system_time())
    });
    // Size and resident part, in pages (proc(5)).
    let sizes = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|size| u64::try_from(size).ok()).unwrap_or(4096);
    let mut sizes = sizes.split_ascii_whitespace().map(|pages| pages.parse().unwrap_or(0) * page);
    ProcessUse {
        cpu: cpu.unwrap_or_default(),
        address_space: sizes.next().unwrap_or(0),
        resident: sizes.next().unwrap_or(0),
        open_files: fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64),
        most_files: getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft),
        started: started(),
    }
}

/// When this process was started, by the kernel's clock of ticks since boot.
fn started() -> Option<Timestamp> {
    let ticks = start_time(std::process::id())?;
    let in_a_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().and_then(|ticks| u64::try_from(ticks).ok())?;
    let boot = boot_time(Path::new("/")).ok()?;
    Some(boot.plus(Duration::from_secs(ticks / in_a_second.max(1))))
}
