//! Fair shares in a replay: the users of a workload are accounts with shares, and jobs have the priorities that they would have with
//! `PriorityType=priority/multifactor`. Usage, fair shares and priorities are calculated by the controller's own code, every
//! `PriorityCalcPeriod`.

use crate::TraceJob;
use garrick_events::{
    records::charge::Charge,
    usage::{Usage, UsageRules},
};
use garrick_model::{
    config::PrioritySettings,
    entities::{
        Entities, NORMAL, ROOT,
        association::{AssocId, Association, Shares as Fairshare},
        qos::QosRecord,
        used::Who,
    },
    time::Timestamp,
    view::{JobView, NodeView, PartitionView},
};
use garrick_plan::{
    rules::{
        fair::{FairShares, Method},
        priority::{Rules, news},
    },
    snapshot::accounting::AccountingTable,
};
use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc, time::Duration};

const CLUSTER: &str = "replay";
/// Points of a curve.
const POINTS: u64 = 400;
/// Parts of a whole.
const MILLION: f64 = 1e6;
/// The number of the association of the first account.
const FIRST: u32 = 2;
/// The greatest number of shares that is given.
const MOST_SHARES: f64 = 1e6;
/// Added to the priority by a factor of 1 where the configuration says nothing.
const WEIGHT: u32 = 1_000_000;

/// Which shares the users have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entitled {
    /// One each, and priorities do not go by them: jobs are in the order of their submissions.
    Off,
    /// One each.
    Equal,
    /// As many as their jobs work, in the whole workload.
    Demand,
}

impl FromStr for Entitled {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "equal" => Ok(Self::Equal),
            "demand" => Ok(Self::Demand),
            _ => Err(format!("\"{text}\" is none of off, equal, demand")),
        }
    }
}

impl fmt::Display for Entitled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "no fair share",
            Self::Equal => "equal shares",
            Self::Demand => "shares by demand",
        })
    }
}

/// How shares stood over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Course {
    /// What each user may have of all, millionths.
    pub entitled: BTreeMap<u32, u32>,
    /// What each user had of all that was used, with decay, millionths; those who had nothing are left out.
    pub used: Vec<(Timestamp, BTreeMap<u32, u32>)>,
}

/// The settings where there is no configuration: Slurm's defaults.
pub fn defaults() -> PrioritySettings {
    const WEEK: u64 = 7 * 86_400;
    PrioritySettings {
        half_life_secs: WEEK,
        max_age_secs: WEEK,
        calc_period_secs: 300,
        dampening: 1,
        ..PrioritySettings::default()
    }
}

/// The settings of priorities for users with shares, from those of a configuration.
pub fn settings(mut settings: PrioritySettings, entitled: Entitled) -> PrioritySettings {
    match entitled {
        Entitled::Off => settings.fairshare = 0,
        Entitled::Equal | Entitled::Demand if settings.fairshare == 0 => settings.fairshare = WEIGHT,
        Entitled::Equal | Entitled::Demand => {}
    }
    settings
}

/// The fair shares of a replay.
#[derive(Debug)]
pub struct Sharing {
    settings: PrioritySettings,
    partitions: Vec<Arc<PartitionView>>,
    nodes: Vec<Arc<NodeView>>,
    entities: Arc<Entities>,
    table: Arc<AccountingTable>,
    usage: Usage,
    rules: Option<Rules>,
    step: Duration,
    course: Course,
}

impl Sharing {
    /// For the users of these jobs, on a cluster with these partitions and nodes.
    pub fn new(
        jobs: &[TraceJob],
        entitled: Entitled,
        settings: PrioritySettings,
        partitions: Vec<Arc<PartitionView>>,
        nodes: Vec<Arc<NodeView>>,
    ) -> Self {
        let shares = shares(jobs, entitled);
        let all: u64 = shares.values().map(|shares| u64::from(*shares)).sum();
        let part = |shares: u32| (f64::from(shares) / wide(all.max(1)) * MILLION) as u32;
        let entities = Arc::new(tree(&shares));
        let span = jobs.last().map_or(Duration::ZERO, |last| last.submit.since(jobs[0].submit));
        let half_life_secs = settings.half_life_secs;
        Self {
            settings,
            partitions,
            nodes,
            table: Arc::new(AccountingTable::new(&entities, CLUSTER)),
            entities,
            usage: Usage::with_rules(UsageRules { half_life_secs, ..UsageRules::default() }),
            rules: None,
            step: span / u32::try_from(POINTS).unwrap_or(1),
            course: Course {
                entitled: shares.into_iter().map(|(user, shares)| (user, part(shares))).collect(),
                used: Vec::new(),
            },
        }
    }

    /// The priority of a job that is submitted.
    pub fn priority(&self, job: &JobView) -> u32 {
        self.rules.as_ref().map_or(1, |rules| rules.priority(job, rules.standing(job)))
    }

    /// A user's run on so many CPUs begins.
    pub fn begins(&mut self, at: Timestamp, user: u32, cpus: u32) {
        self.usage.begins(at, &charge(user, cpus));
    }

    /// The same run ends.
    pub fn ends(&mut self, at: Timestamp, user: u32, cpus: u32) {
        self.usage.ends(at, &charge(user, cpus));
    }

    /// Calculates shares and priorities anew, if that is due.
    pub fn renew(&mut self, now: Timestamp, pending: &mut [Arc<JobView>]) {
        if self.rules.as_ref().is_some_and(|rules| !rules.is_due(now)) {
            return;
        }
        let used = self.usage.used_by_users(now).map(|(who, used)| (who.clone(), used)).collect();
        let (entities, table) = (Arc::clone(&self.entities), Arc::clone(&self.table));
        let fair = FairShares::new(entities, table, CLUSTER, &used, Method::of(&self.settings), now);
        self.note(now, &fair);
        let rules = Rules::new(&self.settings, &self.partitions, &self.nodes, now).with_fair(Arc::new(fair));
        for job in pending {
            if let Some(priority) = news(&rules, job, rules.standing(job)) {
                Arc::make_mut(job).priority = priority;
            }
        }
        self.rules = Some(rules);
    }

    fn note(&mut self, now: Timestamp, fair: &FairShares) {
        if self.course.used.last().is_some_and(|(last, _)| now.since(*last) < self.step) {
            return;
        }
        let of = |(place, user): (u32, &u32)| {
            let share = fair.get(AssocId(FIRST + place))?;
            (share.norm_usage > 0.0).then_some((*user, (share.norm_usage * MILLION) as u32))
        };
        self.course.used.push((now, (0..).zip(self.course.entitled.keys()).filter_map(of).collect()));
    }

    /// How shares stood.
    pub fn course(self) -> Course {
        self.course
    }
}

/// The shares of each user.
fn shares(jobs: &[TraceJob], entitled: Entitled) -> BTreeMap<u32, u32> {
    let mut work: BTreeMap<u32, f64> = BTreeMap::new();
    for job in jobs {
        let run = job.requested.map_or(job.run, |most| job.run.min(most));
        *work.entry(job.user).or_default() += wide(run) * f64::from(job.size);
    }
    let most = work.values().copied().fold(1.0, f64::max);
    let of = |work: f64| match entitled {
        Entitled::Off | Entitled::Equal => 1,
        Entitled::Demand => ((work / most * MOST_SHARES) as u32).max(1),
    };
    work.into_iter().map(|(user, work)| (user, of(work))).collect()
}

/// An account for each user, with these shares, and the user in it.
fn tree(shares: &BTreeMap<u32, u32>) -> Entities {
    let mut entities = Entities::default();
    let of = |id: u32, parent: Option<u32>, account: String, user: Option<String>, shares: u32| Association {
        id: AssocId(id),
        cluster: CLUSTER.to_owned(),
        account,
        is_default: user.is_some(),
        user,
        parent: parent.map(AssocId),
        shares: Fairshare::Number(shares),
        ..Association::default()
    };
    let count = u32::try_from(shares.len()).unwrap_or(u32::MAX);
    let mut all = vec![of(1, None, ROOT.to_owned(), None, 1)];
    for (id, (user, shares)) in (FIRST..).zip(shares) {
        all.push(of(id, Some(1), account(*user), None, *shares));
        all.push(of(id.saturating_add(count), Some(id), account(*user), Some(user.to_string()), 1));
    }
    entities.associations = all.into_iter().map(|association| (association.id, association)).collect();
    entities.qos.insert(NORMAL.to_owned(), QosRecord::new(1, NORMAL));
    entities
}

fn account(user: u32) -> String {
    format!("account{user}")
}

fn charge(user: u32, cpus: u32) -> Arc<Charge> {
    Arc::new(Charge {
        who: Some(Who { account: account(user), user: user.to_string(), partition: None }),
        billing: cpus.into(),
        factor_millionths: 1_000_000,
        ..Charge::default()
    })
}

/// Seconds and shares are far below 2^53.
#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
const fn wide(number: u64) -> f64 {
    number as f64
}
