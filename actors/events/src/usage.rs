//! What was used, for fair shares and for limits of past use: of each user in an account, and of each QOS, amounts times seconds
//! that decay with `PriorityDecayHalfLife`. A part of the committed state: it follows from the events of jobs and from
//! [`UsageEvent`]s alone, so it is the same after a restart.
//!
//! Nothing is done as time passes. A [`Meter`] keeps its value at one moment and the rate at which running jobs add to it; with a
//! half-life H the value after d seconds is `value * 2^(-d/H) + rate * H/ln 2 * (1 - 2^(-d/H))`.

use crate::records::{
    charge::Charge,
    job::{JobRecord, Phase, Run},
};
pub use garrick_model::entities::used::{BILLING, Flow, Used, Who};
use garrick_model::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    f64::consts::LN_2,
    sync::Arc,
};

/// Parts of a whole in [`Charge::factor_millionths`].
const MILLION: f64 = 1e6;

/// What holds for all meters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRules {
    /// `PriorityDecayHalfLife`, seconds; 0: nothing decays.
    pub half_life_secs: u64,
    /// The next end of a `PriorityUsageResetPeriod`: all is 0 then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_reset: Option<Timestamp>,
    /// QOS with `NoDecay`: theirs does not decay, and is not reset by the calendar (sacctmgr(1)).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub no_decay: BTreeSet<String>,
}

/// A change of usage that no job causes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum UsageEvent {
    /// Other rules hold from then on.
    Rules {
        /// When.
        at: Timestamp,
        /// They.
        rules: UsageRules,
    },
    /// Somebody set these to 0 (`RawUsage=0`).
    Reset {
        /// When.
        at: Timestamp,
        /// Users in accounts.
        users: Vec<Who>,
        /// QOS.
        qos: Vec<String>,
        /// The last time, by the clock of accounting, at which that was asked for; `None`: a period began.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        asked: Option<Timestamp>,
    },
    /// In a snapshot: these rules, and nothing used but what follows.
    Begin(UsageRules),
    /// In a snapshot: of a user in an account.
    User(Who, Meter),
    /// In a snapshot: of a QOS.
    Qos(String, Meter),
}

/// Amounts times seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Amount {
    /// At the moment of the meter.
    pub value: f64,
    /// What running jobs add to it in a second.
    pub rate: f64,
}

/// What one user in an account, or one QOS, has used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Meter {
    /// The moment of the values.
    pub as_of: Timestamp,
    /// Only what was used after this counts: it began, or was set to 0.
    pub since: Timestamp,
    /// What was asked for until then, by the clock of accounting, was set to 0: that clock may be ahead of this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zeroed: Option<Timestamp>,
    /// Jobs that add to it.
    pub running: u32,
    /// By the name of the TRES (memory in MiB), and what is billed.
    pub tres: BTreeMap<String, Amount>,
    /// Seconds of jobs.
    pub wall: Amount,
}

/// The usage of all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    rules: UsageRules,
    users: BTreeMap<Who, Arc<Meter>>,
    qos: BTreeMap<String, Arc<Meter>>,
}

/// How a meter runs.
#[derive(Clone, Copy, Debug)]
struct Pace {
    half_life_secs: u64,
    next_reset: Option<Timestamp>,
}

impl Pace {
    /// What one unit, used up to and for so many seconds, counts at their end.
    fn integral(self, secs: f64) -> f64 {
        match self.half_life_secs {
            0 => secs,
            half_life => {
                let life = wide(half_life);
                // 1 - 2^(-d/H), exact for short times too.
                -(-secs / life * LN_2).exp_m1() * life / LN_2
            }
        }
    }

    /// What one that was used before counts after so many seconds.
    fn decayed(self, secs: f64) -> f64 {
        match self.half_life_secs {
            0 => 1.0,
            half_life => (-secs / wide(half_life)).exp2(),
        }
    }
}

impl Amount {
    fn advance(&mut self, secs: f64, pace: Pace) {
        self.value = self.value * pace.decayed(secs) + self.rate * pace.integral(secs);
    }
}

impl Meter {
    fn new(at: Timestamp) -> Self {
        Self { as_of: at, since: at, ..Self::default() }
    }

    fn amounts(&mut self) -> impl Iterator<Item = &mut Amount> {
        self.tres.values_mut().chain([&mut self.wall])
    }

    /// Goes on to a later moment.
    fn advance(&mut self, to: Timestamp, pace: Pace) {
        if to <= self.as_of {
            return;
        }
        if let Some(reset) = pace.next_reset.filter(|reset| self.as_of < *reset && *reset <= to) {
            self.go_on(reset, pace);
            self.clear();
        }
        self.go_on(to, pace);
    }

    fn go_on(&mut self, to: Timestamp, pace: Pace) {
        let secs = to.since(self.as_of).as_secs_f64();
        self.amounts().for_each(|amount| amount.advance(secs, pace));
        self.as_of = to;
    }

    /// Nothing was used up to its moment.
    fn clear(&mut self) {
        self.amounts().for_each(|amount| amount.value = 0.0);
        self.since = self.as_of;
    }

    /// A job begins (`sign` 1) or ceases (-1) to use that. Where it did so before the meter's moment, what it used since is made up for.
    fn change(&mut self, at: Timestamp, load: &Load, sign: f64, pace: Pace) {
        self.advance(at, pace);
        let late = pace.integral(self.as_of.since(at.max(self.since)).as_secs_f64());
        let add = |amount: &mut Amount, rate: f64| {
            amount.value = (amount.value + sign * rate * late).max(0.0);
            amount.rate += sign * rate;
        };
        for (name, rate) in &load.rates {
            match self.tres.get_mut(name) {
                Some(amount) => add(amount, *rate),
                None => add(self.tres.entry(name.clone()).or_default(), *rate),
            }
        }
        add(&mut self.wall, 1.0);
        self.running = if sign > 0.0 { self.running.saturating_add(1) } else { self.running.saturating_sub(1) };
        // Sums of fractions need not come to 0 again.
        if self.running == 0 {
            self.amounts().for_each(|amount| amount.rate = 0.0);
        }
    }

    /// Has it yet to be set to 0, as was asked for at that time by the clock of accounting?
    pub fn is_older_than(&self, reset: Timestamp) -> bool {
        self.since < reset && self.zeroed < Some(reset)
    }
}

/// What a run uses in a second.
#[derive(Debug)]
struct Load {
    charge: Arc<Charge>,
    rates: Vec<(String, f64)>,
}

impl Load {
    /// Only what is billed.
    fn billed(charge: &Arc<Charge>) -> Self {
        let factor = wide(charge.factor_millionths) / MILLION;
        Self { charge: Arc::clone(charge), rates: vec![(BILLING.to_owned(), wide(charge.billing) * factor)] }
    }

    fn of(run: &Run) -> Option<Self> {
        // Without accounting a run is charged to nobody.
        let charge = Arc::clone(run.charge.as_ref().filter(|charge| charge.who.is_some() || !charge.qos.is_empty())?);
        let factor = wide(charge.factor_millionths) / MILLION;
        let mut rates: Vec<(String, f64)> =
            run.allocation.tres().into_iter().map(|(name, count)| (name, wide(count) * factor)).collect();
        rates.push((BILLING.to_owned(), wide(charge.billing) * factor));
        Some(Self { charge, rates })
    }
}

/// The run of a job that uses its allocation now: not one that is suspended, or waits for nodes that are being powered up.
fn using(record: &JobRecord) -> Option<&Run> {
    match &record.phase {
        Phase::Starting(run) | Phase::Running(run) if run.booting.is_empty() => Some(run),
        _ => None,
    }
}

/// What a job uses, before and after an event.
#[derive(Debug, Default)]
pub(crate) struct Using(Option<Load>);

impl Using {
    pub(crate) fn of(record: Option<&JobRecord>) -> Self {
        Self(record.and_then(using).and_then(Load::of))
    }

    /// That of the job's run, though it does not use it now.
    const fn is_some(&self) -> bool {
        self.0.is_some()
    }
}

impl Usage {
    /// What holds for all.
    pub const fn rules(&self) -> &UsageRules {
        &self.rules
    }

    fn pace(&self) -> Pace {
        Pace { half_life_secs: self.rules.half_life_secs, next_reset: self.rules.next_reset }
    }

    fn pace_of_qos(&self, name: &str) -> Pace {
        if self.rules.no_decay.contains(name) { Pace { half_life_secs: 0, next_reset: None } } else { self.pace() }
    }

    /// Users in accounts who have used something, with their meters.
    pub fn users(&self) -> impl Iterator<Item = (&Who, &Meter)> {
        self.users.iter().map(|(who, meter)| (who, &**meter))
    }

    /// QOS that were used, with their meters.
    pub fn qos(&self) -> impl Iterator<Item = (&str, &Meter)> {
        self.qos.iter().map(|(name, meter)| (name.as_str(), &**meter))
    }

    /// What each user in an account has used up to then.
    pub fn used_by_users(&self, now: Timestamp) -> impl Iterator<Item = (&Who, Used)> {
        self.users.iter().map(move |(who, meter)| (who, at(meter, now, self.pace())))
    }

    /// What was used in each QOS up to then.
    pub fn used_by_qos(&self, now: Timestamp) -> impl Iterator<Item = (&str, Used)> {
        self.qos.iter().map(move |(name, meter)| (name.as_str(), at(meter, now, self.pace_of_qos(name))))
    }

    /// How the use of a user in an account, with this meter, goes on from then.
    pub fn flow(&self, meter: &Meter, now: Timestamp) -> Flow {
        flow(meter, now, self.pace())
    }

    /// The same of a QOS.
    pub fn flow_of_qos(&self, name: &str, meter: &Meter, now: Timestamp) -> Flow {
        flow(meter, now, self.pace_of_qos(name))
    }

    /// Nothing used yet, under these rules.
    pub fn with_rules(rules: UsageRules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// A run that no log tells of, which is charged so, begins: for replays of workloads.
    pub fn begins(&mut self, at: Timestamp, charge: &Arc<Charge>) {
        self.change(at, Using::default(), Using(Some(Load::billed(charge))));
    }

    /// Such a run ends.
    pub fn ends(&mut self, at: Timestamp, charge: &Arc<Charge>) {
        self.change(at, Using(Some(Load::billed(charge))), Using::default());
    }

    /// There is nothing to save.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Applies what no job causes.
    pub(crate) fn apply(&mut self, event: &UsageEvent) {
        match event {
            UsageEvent::Rules { at, rules } => {
                self.settle(*at);
                self.rules = rules.clone();
            }
            UsageEvent::Reset { at, users, qos, asked } => {
                let pace = self.pace();
                for who in users {
                    if let Some(meter) = self.users.get_mut(who) {
                        zero(meter, *at, pace, *asked);
                    }
                }
                for name in qos {
                    let pace = self.pace_of_qos(name);
                    if let Some(meter) = self.qos.get_mut(name) {
                        zero(meter, *at, pace, *asked);
                    }
                }
            }
            UsageEvent::Begin(rules) => *self = Self { rules: rules.clone(), ..Self::default() },
            UsageEvent::User(who, meter) => drop(self.users.insert(who.clone(), Arc::new(meter.clone()))),
            UsageEvent::Qos(name, meter) => drop(self.qos.insert(name.clone(), Arc::new(meter.clone()))),
        }
    }

    /// All meters go on to then.
    fn settle(&mut self, to: Timestamp) {
        let pace = self.pace();
        self.users.values_mut().for_each(|meter| Arc::make_mut(meter).advance(to, pace));
        let names: Vec<String> = self.qos.keys().cloned().collect();
        for name in names {
            let pace = self.pace_of_qos(&name);
            self.qos.entry(name).and_modify(|meter| Arc::make_mut(meter).advance(to, pace));
        }
    }

    /// A job used the one, and uses the other from then on.
    pub(crate) fn change(&mut self, at: Timestamp, before: Using, after: Using) {
        // Nearly always one of them is nothing; a run's load does not change while it runs.
        if before.is_some() && after.is_some() {
            return;
        }
        let (load, sign) = match (before.0, after.0) {
            (Some(load), None) => (load, -1.0),
            (None, Some(load)) => (load, 1.0),
            _ => return,
        };
        if let Some(who) = &load.charge.who {
            let pace = self.pace();
            let meter = self.users.entry(who.clone()).or_insert_with(|| Arc::new(Meter::new(at)));
            Arc::make_mut(meter).change(at, &load, sign, pace);
        }
        for name in &load.charge.qos {
            let pace = self.pace_of_qos(name);
            let meter = self.qos.entry(name.clone()).or_insert_with(|| Arc::new(Meter::new(at)));
            Arc::make_mut(meter).change(at, &load, sign, pace);
        }
    }

    /// The events of a snapshot that come to this; none, if nothing was ever used and there are no rules.
    pub(crate) fn events(&self) -> Vec<UsageEvent> {
        if self.is_empty() {
            return Vec::new();
        }
        let users = self.users.iter().map(|(who, meter)| UsageEvent::User(who.clone(), (**meter).clone()));
        let qos = self.qos.iter().map(|(name, meter)| UsageEvent::Qos(name.clone(), (**meter).clone()));
        [UsageEvent::Begin(self.rules.clone())].into_iter().chain(users).chain(qos).collect()
    }
}

fn zero(meter: &mut Arc<Meter>, at: Timestamp, pace: Pace, asked: Option<Timestamp>) {
    let meter = Arc::make_mut(meter);
    meter.advance(at, pace);
    meter.clear();
    meter.zeroed = meter.zeroed.max(asked);
}

fn flow(meter: &Meter, now: Timestamp, pace: Pace) -> Flow {
    let rates = meter.tres.iter().map(|(name, amount)| (name.clone(), amount.rate)).collect();
    let rate = Used { tres: rates, wall_secs: meter.wall.rate };
    Flow { used: at(meter, now, pace), rate, half_life_secs: pace.half_life_secs }
}

fn at(meter: &Meter, now: Timestamp, pace: Pace) -> Used {
    let mut meter = meter.clone();
    meter.advance(now, pace);
    let tres = meter.tres.into_iter().map(|(name, amount)| (name, amount.value)).collect();
    Used { tres, wall_secs: meter.wall.value }
}

/// Amounts and seconds are far below 2^53.
#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
const fn wide(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
#[path = "usage_test.rs"]
mod tests;
