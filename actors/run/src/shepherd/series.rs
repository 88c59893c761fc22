//! Time series (`--profile`): which are collected of a step here, and when. Of tasks a sample is taken at each of their looks; of the
//! node at times of its own, under one timer whatever the number of steps. Steps of which none are collected cost nothing.

use crate::shepherd::{
    core::ShepherdCore,
    messages::{ShepherdEffect, ShepherdTimer},
    state::StepHere,
};
use garrick_model::{
    ids::StepId,
    profile::{Profiling, Series, SeriesSet},
    sampling::Periods,
    time::Timestamp,
    usage::TaskUsage,
};
use std::{collections::BTreeMap, time::Duration};

/// How the site collects time series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeriesConfig {
    /// Of steps that do not say it.
    pub usual: SeriesSet,
    /// Those that can be collected on this node.
    pub there: SeriesSet,
    /// How often, of steps that do not say it. What is not said here either is sampled as often as tasks.
    pub periods: Periods,
}

/// When the node is sampled next.
#[derive(Debug, Default)]
pub(super) struct SeriesDue {
    due: BTreeMap<(StepId, Series), Timestamp>,
    /// The time that the timer is set for.
    timer: Option<Timestamp>,
}

impl SeriesDue {
    /// Sets the timer, where it is to run out earlier than it would.
    fn set_timer(&mut self, now: Timestamp, out: &mut Vec<ShepherdEffect>) {
        let Some(first) = self.due.values().min().copied() else { return };
        if self.timer.is_none_or(|set| first < set) {
            self.timer = Some(first);
            out.push(ShepherdEffect::SetTimer { timer: ShepherdTimer::Series, after: first.since(now) });
        }
    }
}

impl ShepherdCore {
    /// Which series are collected of a step here.
    fn series(&self, here: &StepHere) -> SeriesSet {
        let Some(site) = &self.config.series else { return SeriesSet::default() };
        here.launch.profiling.series.unwrap_or(site.usual).both(site.there)
    }

    /// Samples of its tasks are recorded.
    pub(super) fn records_tasks(&self, here: &StepHere) -> bool {
        self.config.series.is_some() && self.series(here).has(Series::Task)
    }

    /// What a `stepd` that adopts a step's tasks has to know of it, where the site collects time series.
    pub(super) fn noted_profiling(&self, here: &StepHere) -> Profiling {
        let launch = &here.launch;
        let asked = launch.profiling.or(Profiling {
            periods: Periods { task: launch.sample_secs, ..Periods::default() },
            ..Profiling::default()
        });
        self.config.series.map(|_| asked).unwrap_or_default()
    }

    /// Time between samples of the node for a step. `None`: there are none.
    fn period(&self, here: &StepHere, series: Series) -> Option<Duration> {
        let site = self.config.series.as_ref()?;
        let said = here.launch.profiling.periods.of(series).or(site.periods.of(series));
        let as_tasks =
            || here.launch.sample_secs.map(|secs| Duration::from_secs(secs.into())).or(self.config.look_every);
        said.map(|secs| Duration::from_secs(secs.into())).or_else(as_tasks).filter(|period| !period.is_zero())
    }

    /// A step's tasks begin here, or were adopted: its node is sampled from now on.
    pub(super) fn collect_from_now(&mut self, step: StepId, out: &mut Vec<ShepherdEffect>) {
        if self.config.series.is_none() {
            return;
        }
        let Some(here) = self.steps.get(&step) else { return };
        let of_node = self.series(here).iter().filter(|series| *series != Series::Task);
        let sampled: Vec<(Series, Duration)> =
            of_node.filter_map(|series| Some((series, self.period(here, series)?))).collect();
        if sampled.is_empty() {
            return;
        }
        // What the counters show now is what they are compared with.
        let series: Vec<Series> = sampled.iter().map(|(series, _)| *series).collect();
        out.push(ShepherdEffect::Record { step, series: series.into(), last: false });
        for (series, period) in sampled {
            self.series_due.due.insert((step, series), self.now.plus(period));
        }
        self.series_due.set_timer(self.now, out);
    }

    /// Samples of the node are due.
    pub(super) fn collect_due(&mut self, out: &mut Vec<ShepherdEffect>) {
        let now = self.now;
        self.series_due.timer = None;
        let mut due: BTreeMap<StepId, Vec<Series>> = BTreeMap::new();
        for ((step, series), at) in std::mem::take(&mut self.series_due.due) {
            let period = self.steps.get(&step).filter(|here| !here.running.is_empty());
            let Some(period) = period.and_then(|here| self.period(here, series)) else { continue };
            let mut next = at;
            if at <= now {
                due.entry(step).or_default().push(series);
                // Late samples do not make others late, and are not made up for.
                next = at.plus(period);
                if next <= now {
                    next = now.plus(period);
                }
            }
            self.series_due.due.insert((step, series), next);
        }
        let record =
            |(step, series): (StepId, Vec<Series>)| ShepherdEffect::Record { step, series: series.into(), last: false };
        out.extend(due.into_iter().map(record));
        self.series_due.set_timer(now, out);
    }

    /// A task is over: what it used is its last sample; and with the last task here the node has been sampled for the step.
    pub(super) fn collect_end(
        &mut self,
        step: StepId,
        rank: u32,
        token: u64,
        usage: TaskUsage,
        out: &mut Vec<ShepherdEffect>,
    ) {
        if self.config.series.is_none() {
            return;
        }
        let Some(here) = self.steps.get(&step) else { return };
        if self.records_tasks(here) {
            out.push(ShepherdEffect::RecordEnd { step, rank, usage });
        }
        if self.is_last_to_end(step, token) {
            let sampled =
                Series::ALL.into_iter().filter(|series| self.series_due.due.remove(&(step, *series)).is_some());
            let series: SeriesSet = sampled.collect::<Vec<_>>().into();
            if !series.is_empty() {
                out.push(ShepherdEffect::Record { step, series, last: true });
            }
        }
    }
}
