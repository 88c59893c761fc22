//! What must hold after every event: one function for each rule, named after it. Each examines what the event changed; from time
//! to time, when faults stop, and at the end, everything is checked.

use super::{
    PANICS, accounting::no_limit_of_accounting_is_overbooked, heterogeneous, ledger::Promise, roster::machine_of,
    world::World,
};
use garrick_actors::{job::core::JobCore, node::core::NodeCore};
use garrick_model::{
    gres::GresShare,
    ids::{JobId, Sluid},
    node_shape::{NodeShape, NodeShare},
    resources::CpuSet,
    spec::Sharing,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    time::Duration,
};

/// A rule that did not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rule {rule} at event {event}, {at_secs} s: {what}\nlast events:\n{story}")]
pub struct Violation {
    /// Which.
    pub rule: &'static str,
    /// What was seen.
    pub what: String,
    /// After how many events.
    pub event: u64,
    /// Simulated time since the start.
    pub at_secs: u64,
    /// The last events before it, a line each.
    pub story: String,
}

/// What to look at.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Jobs.
    pub jobs: BTreeSet<JobId>,
    /// Nodes, by index.
    pub nodes: BTreeSet<usize>,
    /// Promises that were made.
    pub promises: Vec<Promise>,
    /// It is everything: look across owners too.
    pub all: bool,
}

/// A rule; the text says what was seen instead.
pub type Rule = fn(&World, &Scope) -> Result<(), String>;

/// Rules for every event.
pub const RULES: &[(&str, Rule)] = &[
    ("an_accepted_job_is_never_lost", an_accepted_job_is_never_lost),
    ("no_job_has_a_node_that_is_not_there", no_job_has_a_node_that_is_not_there),
    ("no_cpu_or_memory_of_a_node_is_given_twice", no_cpu_or_memory_of_a_node_is_given_twice),
    ("no_license_is_given_twice", no_license_is_given_twice),
    ("no_limit_of_accounting_is_overbooked", no_limit_of_accounting_is_overbooked),
    ("a_node_counts_as_used_what_its_jobs_hold", a_node_counts_as_used_what_its_jobs_hold),
    ("each_run_ends_exactly_once", each_run_ends_exactly_once),
    ("a_drained_node_gets_nothing_new", a_drained_node_gets_nothing_new),
    ("replay_comes_to_what_is_live", replay_comes_to_what_is_live),
    ("what_was_promised_is_on_disk", what_was_promised_is_on_disk),
    ("a_preempted_run_ends_or_its_job_is_queued_again", a_preempted_run_ends_or_its_job_is_queued_again),
    ("a_heterogeneous_job_is_accepted_whole_or_not_at_all", a_heterogeneous_job_is_accepted_whole_or_not_at_all),
    ("components_of_a_heterogeneous_job_start_together", components_of_a_heterogeneous_job_start_together),
    ("components_end_and_are_queued_again_with_their_leader", components_end_and_are_queued_again_with_their_leader),
    ("no_run_goes_on_where_its_node_was_given_up", no_run_goes_on_where_its_node_was_given_up),
    ("a_proposal_is_answered", a_proposal_is_answered),
    ("who_waits_for_a_turn_has_it", who_waits_for_a_turn_has_it),
    ("what_is_shown_of_reservations_is_what_is_saved", what_is_shown_of_reservations_is_what_is_saved),
    ("no_two_nodes_have_an_index_that_is_spoken_of", no_two_nodes_have_an_index_that_is_spoken_of),
    ("nothing_is_saved_of_a_node_that_is_gone", nothing_is_saved_of_a_node_that_is_gone),
    ("what_is_shown_is_what_the_file_says", what_is_shown_is_what_the_file_says),
];

/// Rules that are checked where something happens, and not by looking at what is there.
const ON_THE_WAY: &[&str] = &[
    "a_configuration_that_is_read_again_moves_no_job",
    "a_dependent_job_does_not_start_before_its_condition_holds",
    "a_forger_changes_nobody_elses_job",
    "a_job_that_waits_shows_the_priority_that_the_rules_give",
    "a_lease_ends_no_earlier_than_it_may",
    "a_node_speaks_for_no_administrator",
    "a_node_that_joins_is_on_disk_before_it_is_welcome",
    "a_pass_proposes_nothing_twice",
    "a_refused_request_changes_nothing",
    "a_repeated_report_changes_nothing",
    "a_reservation_is_kept_for_its_jobs",
    "a_run_ends_when_its_time_is_over",
    "a_shepherd_is_begun_once",
    "a_start_is_proposed_where_nodes_serve",
    "a_start_is_proposed_where_partitions_serve",
    "a_submission_that_is_refused_leaves_nothing_behind",
    "a_submission_that_is_repeated_gets_the_first_answer",
    "a_user_commands_only_own_jobs",
    "an_accepted_step_ends_once_and_runs_once",
    "no_job_starts_beyond_what_its_partition_allows",
    "no_more_jobs_gain_priority_by_age_than_may",
    "no_more_start_in_an_interval_than_may",
    "no_shepherd_is_begun_for_a_forger",
    "the_controller_counts_the_steps_that_were",
    "the_journal_can_be_read_after_every_crash",
    "what_was_cancelled_does_not_start",
    "whoever_follows_the_log_sees_each_event_once_and_in_order",
    DRAINS,
    PANICS,
];

/// All rules.
pub fn names() -> impl Iterator<Item = &'static str> {
    RULES.iter().map(|(name, _)| *name).chain(ON_THE_WAY.iter().copied())
}

/// Name of [`after_faults_stop_the_queue_drains`].
pub const DRAINS: &str = "after_faults_stop_the_queue_drains";

/// Partition whose jobs share CPUs and take turns.
const TURNS: &str = "turns";
/// So many of them may share a CPU.
const SHARERS: usize = 2;

/// Messages that are late and saves that are slow.
const GRACE_SLACK: Duration = Duration::from_secs(120);
/// A controller that starts again counts by its clock, which may have been stepped from an hour ahead to an hour behind.
const STEPPED_SLACK: Duration = Duration::from_secs(2 * 3_600);

/// Most simulated time that the queue may take to drain.
const DRAIN_SECS: u64 = 3 * 24 * 3600;
/// And most events until one job fewer is left, for each submitted one: all of them may run at a time.
const DRAIN_EVENTS_A_JOB: u64 = 1000;
/// And for each node in a minute: it is pinged, and says how it is.
const DRAIN_EVENTS_A_NODE: u64 = 10;

/// By what nodes say of themselves, and (in a sweep) by what jobs' records say that they have.
pub fn no_cpu_or_memory_of_a_node_is_given_twice(world: &World, scope: &Scope) -> Result<(), String> {
    for &index in &scope.nodes {
        let Some(view) = world.nodes.get(&index).map(NodeCore::view) else { continue };
        let shape = &world.shape(index);
        let turns = |sharing| sharing == Sharing::Oversubscribe;
        fits(&view.name, shape, view.holds.iter().map(|h| Taken::new(h.job, &h.share, h.parked, turns(h.sharing))))?;
        if scope.all {
            let shares = world.jobs.values().flat_map(|core| {
                let holds = core.record().holds().into_iter().filter(|held| held.node.name == view.name);
                holds.map(|held| Taken::new(core.record().id, &held.node.share, held.parked, held.partition == TURNS))
            });
            fits(&view.name, shape, shares)?;
        }
    }
    Ok(())
}

/// What a job has of a node.
struct Taken<'s> {
    job: JobId,
    share: &'s NodeShare,
    /// Its CPUs may be given to others: it is suspended for them.
    parked: bool,
    /// Its CPUs are shared with others of its partition, and they take turns.
    takes_turns: bool,
}

impl<'s> Taken<'s> {
    const fn new(job: JobId, share: &'s NodeShare, parked: bool, takes_turns: bool) -> Self {
        Self { job, share, parked, takes_turns }
    }
}

fn fits<'s>(node: &str, shape: &NodeShape, taken: impl Iterator<Item = Taken<'s>>) -> Result<(), String> {
    let (mut cpus, mut shared, mut memory, mut gres) = (CpuSet::new(), Vec::new(), 0u64, Vec::new());
    for Taken { job, share, parked, takes_turns } in taken {
        match (parked, takes_turns) {
            (true, _) => {}
            (false, true) => shared.push((job, &share.cpus)),
            (false, false) => {
                ensure(share.cpus.is_disjoint(&cpus), || {
                    format!("{node}: CPUs {} of job {} have a holder", share.cpus, job.0)
                })?;
                cpus.add(&share.cpus);
            }
        }
        memory += share.memory.map_or(0, |m| m.0);
        gres.extend(share.gres.iter().map(|gres| (job, gres)));
    }
    for (job, own) in &shared {
        ensure(own.is_disjoint(&cpus), || format!("{node}: CPUs {own} of job {} have a holder of their own", job.0))?;
        let holders = |cpu| shared.iter().filter(|(_, other)| other.contains(cpu)).count();
        let most = own.iter().map(holders).max().unwrap_or(0);
        ensure(most <= SHARERS, || format!("{node}: {most} jobs share a CPU of job {}, {SHARERS} may", job.0))?;
    }
    shared.iter().for_each(|(_, own)| cpus.add(own));
    fits_gres(node, shape, &gres)?;
    ensure(cpus.is_subset(&shape.all_cpus()), || format!("{node}: CPUs {cpus} given, it has {}", shape.cpus))?;
    ensure(memory <= shape.memory.0, || format!("{node}: {memory} MiB given of {}", shape.memory.0))
}

/// Of each type no more than there is, and no device twice; also of those that are suspended.
fn fits_gres(node: &str, shape: &NodeShape, taken: &[(JobId, &GresShare)]) -> Result<(), String> {
    for entry in shape.gres.iter().filter(|entry| !entry.no_consume) {
        let of_entry = |(_, share): &&(JobId, &GresShare)| share.name == entry.name && share.kind == entry.kind;
        let given: u64 = taken.iter().filter(of_entry).map(|(_, share)| share.count).sum();
        let (name, kind) = (&entry.name, &entry.kind);
        ensure(given <= entry.count, || format!("{node}: {given} of {name} {kind:?} given of {}", entry.count))?;
    }
    let mut devices: BTreeMap<&str, CpuSet> = BTreeMap::new();
    for (job, share) in taken {
        let there = shape.gres.iter().any(|entry| entry.name == share.name && entry.kind == share.kind);
        ensure(there, || format!("{node}: job {} has {} {:?}, which is not there", job.0, share.name, share.kind))?;
        let used = devices.entry(&share.name).or_default();
        ensure(share.devices.is_disjoint(used), || {
            format!("{node}: {} {} of job {} have a holder", share.name, share.devices, job.0)
        })?;
        used.add(&share.devices);
    }
    Ok(())
}

/// By the account, and by what jobs' records say that they have.
pub fn no_license_is_given_twice(world: &World, scope: &Scope) -> Result<(), String> {
    let account = &world.licenses;
    for view in account.view() {
        ensure(view.used <= view.total, || format!("{} of license {} given of {}", view.used, view.name, view.total))?;
    }
    for (job, core) in touched(world, scope) {
        let Some(licenses) = core.record().licenses() else { continue };
        let held = account.holds().find(|(holder, _)| *holder == job).map(|(_, held)| held);
        ensure(held == Some(licenses), || format!("job {} has {licenses:?}, the account says {held:?}", job.0))?;
    }
    Ok(())
}

/// A hold without a job that says so is allowed while a message between the two is under way, and where a release was lost
/// with the job's owner until the node registers again; a job's share without a hold never is.
pub fn a_node_counts_as_used_what_its_jobs_hold(world: &World, scope: &Scope) -> Result<(), String> {
    for &index in &scope.nodes {
        let Some(core) = world.nodes.get(&index) else { continue };
        core.sanity_check_in(&world.shape(index))?;
        for hold in core.view().holds {
            if world.is_under_way(hold.job, index) || world.may_have_missed(hold.job, index) {
                continue;
            }
            let name = &core.settings().name;
            let job = world.jobs.get(&hold.job);
            let known = job.is_some_and(|job| {
                let has = job.record().holds().iter().any(|h| h.sluid == hold.sluid && h.node.name == *name);
                has || (job.record().sluid == hold.sluid && job.leftover().may_be_at(name))
            });
            ensure(known, || {
                format!("{name} holds {} for run {} of job {}, which does not", hold.share.cpus, hold.sluid, hold.job.0)
            })?;
        }
    }
    for (job, core) in touched(world, scope) {
        for held in core.record().holds() {
            let node = held.node;
            let Some(number) = machine_of(&node.name) else { continue };
            // What is kept makes room for the job's next run while that asks for nodes.
            if held.kept
                && (core.leftover().may_be_at(&node.name)
                    || world.is_under_way(job, number)
                    || world.may_have_missed(job, number))
            {
                continue;
            }
            let holds = world.nodes.get(&number).map(|core| core.view().holds).unwrap_or_default();
            let same = holds.iter().any(|h| h.job == job && h.sluid == held.sluid && h.share == node.share);
            ensure(same, || format!("job {} has {} of {}, which does not know", job.0, node.share.cpus, node.name))?;
        }
    }
    Ok(())
}

/// Recorded ends: none while it works, one from then on, also when the job is forgotten or has a newer run.
pub fn each_run_ends_exactly_once(world: &World, scope: &Scope) -> Result<(), String> {
    if let Some((job, sluid)) = world.ledger.replaced_alive.first() {
        return Err(format!("run {sluid} of job {} was replaced and had not ended once", job.0));
    }
    for (job, core) in touched(world, scope) {
        let expected = u32::from(core.record().phase.end().is_some());
        ends(world, job, core.record().sluid, expected)?;
    }
    if scope.all {
        for (sluid, run) in &world.ledger.runs {
            let current = world.jobs.get(&run.job).is_some_and(|core| core.record().sluid == *sluid);
            if !current && !world.is_being_split_off(run.job) {
                ends(world, run.job, *sluid, 1)?;
            }
        }
    }
    Ok(())
}

fn ends(world: &World, job: JobId, sluid: Sluid, expected: u32) -> Result<(), String> {
    let seen = world.ledger.runs.get(&sluid).map(|run| run.ends);
    ensure(seen == Some(expected), || format!("run {sluid} of job {} ended {seen:?} times, not {expected}", job.0))
}

/// Accepted once, a job is there until it has ended and was forgotten; each index of an array waits, or is a job.
pub fn an_accepted_job_is_never_lost(world: &World, scope: &Scope) -> Result<(), String> {
    let noted = scope.jobs.iter().filter_map(|job| Some((*job, world.ledger.jobs.get(job)?)));
    for (job, note) in noted {
        let Some(core) = world.jobs.get(&job) else {
            if world.is_being_split_off(job) {
                continue;
            }
            ensure(note.purged, || format!("job {} was accepted and is not there", job.0))?;
            if let Some(sluid) = note.run {
                ends(world, job, sluid, 1)?;
            }
            continue;
        };
        ensure(!note.purged || world.waits_for_disk(job), || format!("job {} was forgotten and is there", job.0))?;
        let record = core.record();
        for index in &note.indices {
            let split = record.array.as_ref().and_then(|a| a.tasks.get(index).map(|mark| mark.job));
            let waits = record.array.as_ref().is_some_and(|a| a.pending.contains(index));
            let own = record.array_task.is_some_and(|task| task.index == *index);
            let known = waits || own || split.is_some_and(|task| world.ledger.jobs.contains_key(&task));
            ensure(known, || format!("task {index} of array {} is not there", job.0))?;
        }
    }
    Ok(())
}

/// What a drained node holds, it held when it was drained.
pub fn a_drained_node_gets_nothing_new(world: &World, scope: &Scope) -> Result<(), String> {
    for &index in &scope.nodes {
        let Some(before) = &world.held_at_drain[index] else { continue };
        let Some(core) = world.nodes.get(&index) else { continue };
        for hold in core.view().holds {
            // What was kept for a job comes back when an attempt that had taken its place is given up.
            let back = hold.kept && before.iter().any(|(job, _)| *job == hold.job);
            let old = back || before.contains(&(hold.job, hold.sluid));
            ensure(old, || format!("n{index} is drained and was given to job {}", hold.job.0))?;
        }
    }
    Ok(())
}

/// The journal's events, applied as a restart would, make the records that jobs live with.
pub fn replay_comes_to_what_is_live(world: &World, scope: &Scope) -> Result<(), String> {
    for job in &scope.jobs {
        if world.is_being_split_off(*job) {
            continue;
        }
        let (live, replayed) = (world.jobs.get(job).map(JobCore::record), world.replayed.jobs.get(job));
        // Forgotten, as soon as that is on disk.
        if replayed.is_none() && world.waits_for_disk(*job) {
            continue;
        }
        if let (Some(live), Some(replayed)) = (live, replayed)
            && world.waits_for_its_leaders_word(live, replayed)
        {
            continue;
        }
        ensure(live == replayed, || format!("job {}: {live:?} lives, {replayed:?} is in the journal", job.0))?;
    }
    Ok(())
}

/// Jobs that were answered, runs that agents were sent, and ends that a `stepd` may forget; also after every crash.
pub fn what_was_promised_is_on_disk(world: &World, scope: &Scope) -> Result<(), String> {
    for promise in &scope.promises {
        match promise {
            Promise::Job(job) => {
                ensure(world.saved.jobs.contains_key(job), || {
                    format!("job {} was answered, and is not on disk", job.0)
                })?;
            }
            Promise::Run(run) => {
                ensure(world.saved.started.contains(run), || format!("run {run} was launched, and is not on disk"))?;
            }
            Promise::End(run) => {
                let ended = world.saved.runs.get(run).is_some_and(|note| note.ends > 0);
                ensure(ended, || format!("the end of run {run} may be forgotten, and is not on disk"))?;
            }
        }
    }
    Ok(())
}

/// After its grace, at the latest, as it was told: one that was to be queued again is, unless it had ended by itself or was
/// told something else meanwhile.
pub fn a_preempted_run_ends_or_its_job_is_queued_again(world: &World, scope: &Scope) -> Result<(), String> {
    if let Some((job, sluid)) = world.ledger.not_queued_again.first() {
        return Err(format!("run {sluid} of job {} ended as preempted, and the job was not queued again", job.0));
    }
    for (job, core) in touched(world, scope) {
        let Some(run) = core.record().phase.working() else { continue };
        if run.preempted.is_none() || run.ending.is_some() {
            continue;
        }
        let Some((late, slack)) = world.gives_way_late(core.record().sluid) else { continue };
        let most = GRACE_SLACK + if slack { STEPPED_SLACK } else { Duration::ZERO };
        ensure(late <= most, || format!("job {} was to give way {late:?} ago and was not told to end", job.0))?;
    }
    Ok(())
}

/// By what was recorded; also after every crash.
pub fn a_heterogeneous_job_is_accepted_whole_or_not_at_all(world: &World, scope: &Scope) -> Result<(), String> {
    scope.jobs.iter().try_for_each(|job| heterogeneous::is_whole(world, *job))
}

/// Their allocations are recorded together, and their leader is launched when all others serve; also after every crash.
pub fn components_of_a_heterogeneous_job_start_together(world: &World, scope: &Scope) -> Result<(), String> {
    touched(world, scope).try_for_each(|(_, core)| heterogeneous::has_no_run_alone(world, core.record()))
}

/// As soon as they have had time to hear of it.
pub fn components_end_and_are_queued_again_with_their_leader(world: &World, scope: &Scope) -> Result<(), String> {
    touched(world, scope).try_for_each(|(_, core)| heterogeneous::follows_its_leader(world, core.record()))
}

/// From the moment when a job's next run is launched: a node that has lost the controller ends by itself what may be
/// started elsewhere.
pub fn no_run_goes_on_where_its_node_was_given_up(world: &World, scope: &Scope) -> Result<(), String> {
    // Of those that are there already, the next run was launched before its node lost the controller.
    for promise in scope.promises.iter().filter(|_| !scope.all) {
        let Promise::Run(run) = promise else { continue };
        let Some(note) = world.ledger.runs.get(run) else { continue };
        if let Some(earlier) = world.goes_on_elsewhere(note.job, *run) {
            return Err(format!("run {run} of job {} is launched, and {earlier} goes on", note.job.0));
        }
    }
    Ok(())
}

/// Accepted or refused, unless the job's owner failed over it.
pub fn a_proposal_is_answered(world: &World, scope: &Scope) -> Result<(), String> {
    scope.jobs.iter().try_for_each(|job| world.is_answered(*job))
}

/// Where jobs share CPUs, nobody waits for longer than the others take.
pub fn who_waits_for_a_turn_has_it(world: &World, scope: &Scope) -> Result<(), String> {
    scope.jobs.iter().try_for_each(|job| world.has_its_turn(*job))
}

/// As soon as nothing of them is on its way to the disk.
pub fn what_is_shown_of_reservations_is_what_is_saved(world: &World, scope: &Scope) -> Result<(), String> {
    if scope.all { world.shows_reservations_as_saved() } else { Ok(()) }
}

/// By its record, and by the place at which it knows each.
pub fn no_job_has_a_node_that_is_not_there(world: &World, scope: &Scope) -> Result<(), String> {
    touched(world, scope).try_for_each(|(job, core)| {
        let held = core.record().holds();
        let held: Vec<_> = held.iter().map(|held| (held.node.name.as_str(), held.node.index)).collect();
        world.shares_are_of_nodes_that_are_there(&held).map_err(|what| format!("job {} has something of {what}", job.0))
    })
}

/// Also of jobs that are over, as long as they are shown.
pub fn no_two_nodes_have_an_index_that_is_spoken_of(world: &World, scope: &Scope) -> Result<(), String> {
    if scope.all { world.indexes_have_one_name() } else { Ok(()) }
}

/// Another one of its name begins without it.
pub fn nothing_is_saved_of_a_node_that_is_gone(world: &World, scope: &Scope) -> Result<(), String> {
    if scope.all { world.nothing_is_saved_of_nodes_that_are_gone() } else { Ok(()) }
}

/// As soon as everybody has been told, and but for what administrators have changed.
pub fn what_is_shown_is_what_the_file_says(world: &World, scope: &Scope) -> Result<(), String> {
    if scope.all { world.shows_what_the_file_says() } else { Ok(()) }
}

/// Checked from the moment when faults stop: all jobs end one after the other.
pub fn after_faults_stop_the_queue_drains(world: &mut World) -> Result<(), String> {
    let (secs, events) = world.since_progress();
    let most = DRAIN_EVENTS_A_JOB * u64::from(world.setup().jobs.max(50))
        + DRAIN_EVENTS_A_NODE * u64::from(world.setup().nodes) * (1 + secs / 60);
    let all = world.calm_secs();
    if all <= DRAIN_SECS && (events <= most || world.makes_progress()) {
        return Ok(());
    }
    let left = world.jobs.values().filter(|core| !core.is_over()).map(|core| {
        let view = core.view(world.now());
        let spec = &core.record().spec;
        let asked = (&spec.nodes, spec.tasks, spec.memory, &spec.constraint, &spec.nodelist, &spec.partitions);
        format!("job {} {:?} {:?} {:?} {asked:?}", view.id.0, view.state, view.reason, core.leftover())
    });
    let holds = world.nodes.values().flat_map(|core| core.view().holds).map(|h| format!("hold of job {}", h.job.0));
    let nodes = world
        .nodes
        .values()
        .map(|core| core.view())
        .filter(|v| v.base != garrick_model::state::NodeBase::Up || v.flags != Default::default());
    let nodes = nodes.map(|v| format!("{} {:?} {:?}", v.name, v.base, v.flags));
    let left: Vec<String> = left.chain(holds).chain(nodes).chain(world.leftovers()).take(24).collect();
    Err(format!("after {all} s, and {secs} s and {events} events without progress, there are: {}", left.join("; ")))
}

fn touched<'w>(world: &'w World, scope: &'w Scope) -> impl Iterator<Item = (JobId, &'w JobCore)> {
    scope.jobs.iter().filter_map(|job| Some((*job, world.jobs.get(job)?)))
}

pub(super) fn ensure<T: Display>(holds: bool, otherwise: impl FnOnce() -> T) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise().to_string()) }
}
