//! Fair shares in the controller: they are calculated anew every `PriorityCalcPeriod` and when accounts change, from the committed
//! usage; and the rules of usage, which follow from the configuration and from what accounting knows, are kept in the log.
//! Without accounting there is nothing of either.

use super::env::Env;
use garrick_events::{
    event::ControllerEvent,
    usage::{Usage, UsageEvent, UsageRules},
};
use garrick_model::{
    config::{Config, EnforceWord, ResetPeriod},
    entities::{
        Entities,
        association::{AssocId, Association},
        qos::QosFlag,
        used::Who,
    },
    time::{Timestamp, system_zone},
};
use garrick_plan::{
    rules::fair::{FairShares, Method},
    snapshot::accounting::Accounting,
};
use jiff::{ToSpan as _, civil::Date, tz::TimeZone};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Fair shares of now.
pub fn of_now(env: &Env, now: Timestamp) -> FairShares {
    let (entities, config) = (env.entities(), env.config());
    if entities.associations.is_empty() {
        return FairShares::default();
    }
    let usage = env.committed.usage();
    let used: BTreeMap<Who, _> = usage.used_by_users(now).map(|(who, used)| (who.clone(), used)).collect();
    let by_qos = usage.used_by_qos(now).map(|(name, used)| (name.to_owned(), used)).collect();
    let method = Method::of(&config.priority);
    FairShares::new(entities, env.accounts(), &config.cluster_name, &used, method, now).with_qos(by_qos)
}

/// What binds jobs, with what was used until that moment where there are limits of it.
pub fn with_past(env: &Env, now: Timestamp) -> Accounting {
    let mut accounting = env.accounting();
    if !accounting.enforces(EnforceWord::Limits) || !accounting.table.limits_minutes() {
        return accounting;
    }
    let (usage, table) = (env.committed.usage(), &accounting.table);
    let past = Arc::make_mut(&mut accounting.past);
    usage.users().for_each(|(who, meter)| past.add(table, who, || usage.flow(meter, now)));
    usage.qos().for_each(|(name, meter)| past.add_qos(table, name, || usage.flow_of_qos(name, meter, now)));
    accounting
}

/// Fair shares as of the last calculation, which is repeated if it is due.
pub fn calculated(env: &Env, now: Timestamp) -> Arc<FairShares> {
    let (known, entities) = (env.fair_shares(), env.entities());
    if entities.associations.is_empty() && known.is_empty() {
        return known;
    }
    let config = env.config();
    let period = Duration::from_secs(config.priority.calc_period_secs);
    let is_due = known.as_of > now || now.since(known.as_of) >= period;
    if !is_due && Arc::ptr_eq(&known.entities, &entities) && known.method == Method::of(&config.priority) {
        return known;
    }
    keep(env, now);
    let fresh = Arc::new(of_now(env, now));
    env.set_fair_shares(Arc::clone(&fresh));
    fresh
}

/// The controller has started, or read its configuration again: with `PriorityUsageResetPeriod=NOW` past use is forgotten then.
pub fn configured(env: &Env, now: Timestamp) {
    if env.config().priority.reset_period == ResetPeriod::Now && !env.entities().associations.is_empty() {
        let usage = env.committed.usage();
        let decays = |name: &&str| !usage.rules().no_decay.contains(*name);
        let users = usage.users().map(|(who, _)| who.clone()).collect();
        let qos = usage.qos().map(|(name, _)| name).filter(decays).map(str::to_owned).collect();
        append(env, vec![UsageEvent::Reset { at: now, users, qos, asked: None }]);
    }
    keep(env, now);
}

/// Saves the rules of usage if they have changed, and what was set to 0 since (`RawUsage=0`).
pub fn keep(env: &Env, now: Timestamp) {
    let (entities, config) = (env.entities(), env.config());
    if !entities.associations.is_empty() {
        let usage = env.committed.usage();
        append(env, due(&usage, &entities, &config, now, &system_zone()));
    }
}

fn append(env: &Env, events: Vec<UsageEvent>) {
    if !events.is_empty() {
        let events = events.into_iter().map(|event| ControllerEvent::Usage(Box::new(event))).collect();
        // Nothing waits for it; a log that fails ends the process by itself.
        drop(env.append(events));
    }
}

/// What is to be saved of changed rules and of usage that was set to 0.
fn due(usage: &Usage, entities: &Entities, config: &Config, now: Timestamp, zone: &TimeZone) -> Vec<UsageEvent> {
    let mut events = Vec::new();
    let without = entities.qos.values().filter(|qos| qos.has(QosFlag::NoDecay)).map(|qos| qos.name.clone());
    let period = config.priority.reset_period;
    let rules = UsageRules {
        half_life_secs: config.priority.half_life_secs,
        next_reset: boundaries(period, now, zone).map(|(_, next)| next),
        no_decay: without.collect(),
    };
    if rules != *usage.rules() {
        // More than one period has gone by since: the last end of one counts.
        let before = usage.rules().next_reset.zip(boundaries(period, now, zone));
        if let Some((missed, (last, _))) = before.filter(|(missed, (last, _))| missed < last) {
            let rules = UsageRules { next_reset: Some(last), ..usage.rules().clone() };
            events.push(UsageEvent::Rules { at: missed, rules });
        }
        events.push(UsageEvent::Rules { at: now, rules });
    }
    events.extend(zeroed(usage, entities, &config.cluster_name, now));
    events
}

/// Whose usage is to be set to 0, as was asked for since it began: of users themselves, or of an account above them.
fn zeroed(usage: &Usage, entities: &Entities, cluster: &str, now: Timestamp) -> Option<UsageEvent> {
    let mut of_users: BTreeMap<Who, Timestamp> = BTreeMap::new();
    let mut of_accounts: BTreeMap<&str, Timestamp> = BTreeMap::new();
    for own in entities.living(cluster) {
        match own.who() {
            Some(who) => of_users.extend(own.usage_reset.map(|at| (who, at))),
            None => {
                let last = entities.lineage(own.id).filter_map(|above| above.usage_reset).max();
                of_accounts.extend(last.map(|at| (own.account.as_str(), at)));
            }
        }
    }
    let of_user = |who: &Who| of_users.get(who).copied().max(of_accounts.get(who.account.as_str()).copied());
    let of_qos = |name: &str| entities.qos.get(name).and_then(|qos| qos.usage_reset);
    let (mut users, mut qos, mut asked) = (Vec::new(), Vec::new(), None);
    for (who, meter) in usage.users() {
        if let Some(at) = of_user(who).filter(|at| meter.is_older_than(*at)) {
            users.push(who.clone());
            asked = asked.max(Some(at));
        }
    }
    for (name, meter) in usage.qos() {
        if let Some(at) = of_qos(name).filter(|at| meter.is_older_than(*at)) {
            qos.push(name.to_owned());
            asked = asked.max(Some(at));
        }
    }
    asked.map(|_| UsageEvent::Reset { at: now, users, qos, asked })
}

/// The last end of a period that is not after `now`, and the next one (slurm.conf(5)).
fn boundaries(period: ResetPeriod, now: Timestamp, zone: &TimeZone) -> Option<(Timestamp, Timestamp)> {
    let today = jiff::Timestamp::from_millisecond(now.0).ok()?.to_zoned(zone.clone()).date();
    let first = |date: Date, months: i8| {
        let month = (date.month() - 1) / months * months + 1;
        Date::new(date.year(), month, 1).ok()
    };
    let (last, span) = match period {
        ResetPeriod::None | ResetPeriod::Now => return None,
        ResetPeriod::Daily => (today, 1.day()),
        ResetPeriod::Weekly => {
            (today.checked_sub(i32::from(today.weekday().to_sunday_zero_offset()).days()).ok()?, 1.week())
        }
        ResetPeriod::Monthly => (first(today, 1)?, 1.month()),
        ResetPeriod::Quarterly => (first(today, 3)?, 3.months()),
        ResetPeriod::Yearly => (first(today, 12)?, 1.year()),
    };
    let midnight = |date: Date| Some(Timestamp(date.to_zoned(zone.clone()).ok()?.timestamp().as_millisecond()));
    Some((midnight(last)?, midnight(last.checked_add(span).ok()?)?))
}

/// The users' names whose usage a user may see where that is private: his own, and all in accounts that he coordinates.
pub fn visible(entities: &Entities, cluster: &str, user: &str) -> BTreeSet<AssocId> {
    let coordinated = entities.coordinated_by(user);
    let sees = |own: &&Association| {
        let account = if own.user.is_some() { own.parent } else { Some(own.id) };
        own.user.as_deref() == Some(user) || account.is_some_and(|account| coordinated.contains(account))
    };
    entities.living(cluster).filter(sees).map(|own| own.id).collect()
}

#[cfg(test)]
#[path = "fair_test.rs"]
mod tests;
