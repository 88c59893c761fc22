//! Pages of metrics: which there are, and what each is made of.

use super::http::{Http, Refused};
use garrick_model::{time::Timestamp, view::StepCounts};
use garrick_render::metrics::{
    jobs, nodes,
    scheduler::{self, Handled},
};
use std::{collections::BTreeMap, fmt::Write as _};

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
    // One actor of thousands would be a label of its own for ever: kinds are enough.
    let mut kinds: BTreeMap<(String, &'static str), u64> = BTreeMap::new();
    for count in http.env.system.traces().counts(&[]) {
        let kind = count.actor.split('/').nth(1).unwrap_or_default();
        *kinds.entry((format!("/{kind}"), count.message)).or_default() += count.handled;
    }
    let handled = kinds.iter().map(|((actors, message), count)| Handled { actors, message, count: *count });
    let handled: Vec<Handled<'_>> = handled.collect();
    Ok(scheduler::own(&counted, &steps, &handled, env!("CARGO_PKG_VERSION")))
}
