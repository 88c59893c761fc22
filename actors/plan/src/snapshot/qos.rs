//! The qualities of service, one table for preemption ([`crate::rules::preempt`]: which jobs may preempt which, and how) and
//! multifactor priority ([`crate::rules::priority`]). An accounting database fills it, through the environment of the
//! controller's actors. Without one it is empty, and no job gains rights or priority from it.

use super::preempt::Yielding;
use garrick_model::{
    config::PreemptMode,
    entities::{
        Entities, NORMAL,
        qos::{QosPreemptMode, QosRecord, are_several, choices},
    },
    view::JobView,
};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// The job with each of the QOS that it names, in the order in which they are tried. One that names one at most comes as it is.
pub fn with_each(job: &JobView) -> Vec<Cow<'_, JobView>> {
    let Some(named) = job.spec.qos.as_deref().filter(|named| are_several(Some(named))) else {
        return vec![Cow::Borrowed(job)];
    };
    let with = |name: &str| {
        let mut with = job.clone();
        Arc::make_mut(&mut with.spec).qos = Some(name.to_owned());
        Cow::Owned(with)
    };
    choices(named).map(with).collect()
}

/// One quality of service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Qos {
    /// `Priority`.
    pub priority: u32,
    /// `Preempt`: jobs of these may be preempted, in lower case.
    pub preempts: BTreeSet<String>,
    /// `PreemptMode` and `GraceTime`: how its jobs are preempted.
    pub yielding: Yielding,
    /// `PreemptExemptTime`; `None`: the cluster's.
    pub exempt: Option<Duration>,
}

impl Qos {
    fn of_record(record: &QosRecord) -> Self {
        let has = |mode| record.preempt_mode.contains(&mode);
        let modes = [
            (QosPreemptMode::Suspend, PreemptMode::Suspend),
            (QosPreemptMode::Requeue, PreemptMode::Requeue),
            (QosPreemptMode::Cancel, PreemptMode::Cancel),
        ];
        Self {
            priority: record.priority,
            preempts: record.preempt.clone(),
            yielding: Yielding {
                mode: modes.into_iter().find(|(mode, _)| has(*mode)).map(|(_, mode)| mode),
                within: has(QosPreemptMode::Within),
                by_priority: has(QosPreemptMode::Priority),
                grace: Duration::from_secs(record.grace_secs),
            },
            exempt: record.preempt_exempt_secs.map(Duration::from_secs),
        }
    }
}

/// All known QOS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QosTable {
    /// By name in lower case, as accounting keeps them.
    by_name: BTreeMap<String, Qos>,
    /// For jobs that name none.
    default: Option<String>,
    greatest: u32,
}

impl QosTable {
    /// From these QOS and the default for jobs that name none.
    pub fn new(all: impl IntoIterator<Item = (String, Qos)>, default: Option<&str>) -> Self {
        let lower = |name: &str| name.to_ascii_lowercase();
        let named = |(name, qos): (String, Qos)| {
            let preempts = qos.preempts.iter().map(|name| lower(name)).collect();
            (lower(&name), Qos { preempts, ..qos })
        };
        let by_name: BTreeMap<String, Qos> = all.into_iter().map(named).collect();
        let greatest = by_name.values().map(|qos| qos.priority).max().unwrap_or(0);
        Self { by_name, default: default.map(lower), greatest }
    }

    /// Those that accounting knows.
    pub fn of_entities(entities: &Entities) -> Self {
        let living = entities.qos.iter().filter(|(_, qos)| !qos.deleted);
        Self::new(living.map(|(name, record)| (name.clone(), Qos::of_record(record))), Some(NORMAL))
    }

    /// The QOS of a job, with its name; `None`: it is not known. Of several that a waiting job names, the first counts.
    pub(crate) fn of(&self, job: &JobView) -> Option<(&str, &Qos)> {
        let named = job.spec.qos.as_deref().map(|named| choices(named).next().unwrap_or(named));
        let name = named.or(self.default.as_deref())?;
        self.by_name.get_key_value(name.to_ascii_lowercase().as_str()).map(|(name, qos)| (name.as_str(), qos))
    }

    /// All QOS.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Qos> {
        self.by_name.values()
    }

    /// The factor in a job's priority: the priority of its QOS divided by the greatest one, or (unless `normal`) itself.
    pub fn factor(&self, job: &JobView, normal: bool) -> f64 {
        let Some((_, qos)) = self.of(job) else { return 0.0 };
        let priority = f64::from(qos.priority);
        match (normal, self.greatest) {
            (false, _) => priority,
            (true, 0) => 0.0,
            (true, greatest) => priority / f64::from(greatest),
        }
    }
}
