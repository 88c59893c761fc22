//! Starts a controller: the journal's events are replayed with the functions that live actors use, and the actors are built from
//! the result.

use super::{
    frontend,
    messages::ControllerMsg,
    shells::{
        actor::OwnerActor,
        entering::Entering,
        env::Env,
        ids::IdSource,
        job::{Jobs, JobsMsg},
        node::Nodes,
        partition::{Partitions, show_partitions},
        ports::Ports,
        power::PowerHands,
        roster as roster_shell,
        scheduler::SchedulerHands,
        supervisor::Supervisor,
    },
};
use crate::{
    crontab::core::CrontabsCore,
    license::account::counted_now,
    log::{AppendError, Log},
    messages::job::JobInput,
    node::{core::NodeCore, effects::KeptHold},
    power::core::PowerCore,
    reservation::core::ReservationsCore,
    roster::nodes::Roster,
    scheduler::core::SchedulerCore,
    steps::core::StepsCore,
    trigger::core::TriggersCore,
};
use garrick_events::{event::ControllerEvent, progress::Position, records::job::JobRecord};
use garrick_model::{
    config::{Config, PartitionChange},
    time::Timestamp,
    view::NodeHold,
};
use garrick_plan::{
    policy::{partition_facts, policy},
    snapshot::{caps::CpuCaps, request::NodeUse},
};
use garrick_runtime::{Address, ChildSpec, PendingReply, Placement, ReplyTo, System};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// The frontend takes every command and every frame of every agent.
const FRONT_MAILBOX: usize = 65_536;

/// A running controller.
pub struct Controller {
    /// Receives commands and agents' connections.
    pub frontend: Address<ControllerMsg>,
    /// What the actors share.
    pub env: Arc<Env>,
    /// Grows with every start.
    pub epoch: u64,
}

/// What a start takes from the journal (`slurmctld -r`, `-R`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recover {
    /// Jobs, nodes' states and reasons, reservations; partitions are as configured. Slurm's default.
    #[default]
    Partial,
    /// Also what administrators changed of partitions, and those that they created.
    Full,
}

/// Removes from the log what is not to be recovered, so that a later full recovery does not restore it either. Wait for the
/// answer before [`start`]: from then on it is gone.
pub fn forget(log: &dyn Log, recover: Recover) -> PendingReply<Result<Position, AppendError>> {
    let (saved, changes) = (log.value().partitions(), log.value().partition_changes());
    let saved = if recover == Recover::Partial { saved } else { BTreeMap::new() };
    let dropped = saved.into_iter().filter(|(_, saved)| !saved.fields.is_empty()).map(|(partition, saved)| {
        tracing::info!(partition, fields = ?saved.fields, "partition.updates_dropped");
        ControllerEvent::Partition { partition, saved: Box::default() }
    });
    // One of the file that was deleted is back with any start.
    let outlasts =
        |change: &PartitionChange| recover == Recover::Full && matches!(change, PartitionChange::Created { .. });
    let undone = changes.into_iter().filter(|(_, change)| !outlasts(change)).map(|(partition, change)| {
        tracing::info!(partition, ?change, "partition.change_dropped");
        ControllerEvent::PartitionChange { partition, saved: None }
    });
    let (dropped, (done, answer)) = (dropped.chain(undone).collect::<Vec<_>>(), ReplyTo::channel());
    // Without such state, a start need not wait for a log that has no space.
    match dropped.is_empty() {
        true => done.reply(Ok(log.committed())),
        false => log.append(dropped, done),
    }
    answer
}

/// Starts a controller from its log. The start itself is saved; nothing waits for that.
pub fn start(system: &System, config: Arc<Config>, ports: Ports, random: fn() -> u32) -> Controller {
    let now = Timestamp::now();
    let committed = ports.log.value();
    let replayed = committed.started_from();
    let epoch = replayed.epoch + 1;
    let mut begun = vec![ControllerEvent::Started { epoch }];
    let entering = Entering::default();
    let (known, on_their_way) = (committed, entering.clone());
    let ids = IdSource::new(random, move |job| known.has_job(job) || on_their_way.contains(job));
    ids.limit(config.first_job_id, config.max_job_id);
    ids.resume(replayed.last_job, replayed.last_sluid, replayed.submissions);
    let (roster, of_file) = Roster::restored(Arc::clone(&config), replayed.dynamic_nodes, replayed.partition_changes);
    let config = roster.config();
    let env = Arc::new(Env::new(system.clone(), ports, entering, ids, roster.clone()));
    env.set_job_site(Arc::new(env.made_site(&config, epoch)));
    env.renew_node_site(&config, epoch);

    let mut holds = holds_by_node(&config, replayed.jobs.values());
    for node in &config.nodes {
        let kept = holds.remove(&node.name).unwrap_or_default();
        let saved = replayed.nodes.get(&node.name).cloned();
        let core = NodeCore::new(now, roster.settings(node), env.node_site(), saved, kept);
        env.nodes.put(&node.name, &core);
        // Views are published before anyone can ask; the owners replace them.
        env.boards.nodes.publish(node.index, Arc::new(core.view()));
    }
    show_partitions(&env, &config, false);
    for (name, saved) in replayed.reservations {
        env.boards.reservations.publish(name, Arc::new(saved));
    }
    env.licenses.lock().configure(&config.licenses, &config.hres);
    for record in replayed.jobs.into_values() {
        if let Some(licenses) = counted_now(&config, &record) {
            env.licenses.lock().restore(record.id, licenses);
        }
        env.show_job(record, now);
    }

    begun.extend(of_file.into_iter().map(ControllerEvent::node_of_file));
    let started = env.append(begun);
    // Its position in the journal matters, not when it is saved; a journal that fails ends the process by itself.
    drop(started);

    let frontend = start_owners(system, &env, holds);
    Controller { frontend, env, epoch }
}

/// Starts the owners, and the frontend, which is returned. `holds`: on nodes that are no longer configured.
fn start_owners(system: &System, env: &Arc<Env>, holds: BTreeMap<String, Vec<KeptHold>>) -> Address<ControllerMsg> {
    let shared = Arc::clone(env);
    system.start(
        "/",
        ChildSpec::new("node", move || Supervisor::<Nodes>::new(Arc::clone(&shared))).mailbox(FRONT_MAILBOX),
    );
    let shared = Arc::clone(env);
    system.start("/", ChildSpec::new("partition", move || Supervisor::<Partitions>::new(Arc::clone(&shared))));
    let shared = Arc::clone(env);
    system.start(
        "/",
        ChildSpec::new("reservation", move || {
            let make = |env: &Env| Some(ReservationsCore::new(env.committed.reservations()));
            OwnerActor::new(make, (), Arc::clone(&shared)).behind_all_appended(true)
        })
        .mailbox(FRONT_MAILBOX),
    );
    let shared = Arc::clone(env);
    let jobs = system
        .start("/", ChildSpec::new("job", move || Supervisor::<Jobs>::new(Arc::clone(&shared))).mailbox(FRONT_MAILBOX));
    end_on_unknown_nodes(&jobs, holds);
    let shared = Arc::clone(env);
    system.start(
        "/",
        ChildSpec::new("roster", move || roster_shell::actor(Arc::clone(&shared)))
            .placement(Placement::Named("controller"))
            .mailbox(FRONT_MAILBOX),
    );
    let shared = Arc::clone(env);
    system.start(
        "/",
        ChildSpec::new("scheduler", move || {
            let make = |env: &Env| Some(SchedulerCore::new(policy(&env.config())));
            OwnerActor::new(make, SchedulerHands::default(), Arc::clone(&shared))
        })
        .placement(Placement::Named("scheduler"))
        .mailbox(FRONT_MAILBOX),
    );
    let shared = Arc::clone(env);
    system.start(
        "/",
        ChildSpec::new("power", move || {
            OwnerActor::new(|_: &Env| Some(PowerCore::default()), PowerHands::default(), Arc::clone(&shared))
        })
        .placement(Placement::Named("controller"))
        .mailbox(FRONT_MAILBOX),
    );
    let shared = Arc::clone(env);
    system.start(
        "/",
        ChildSpec::new("steps", move || OwnerActor::new(|_: &Env| Some(StepsCore::default()), (), Arc::clone(&shared)))
            .placement(Placement::Named("steps"))
            .mailbox(FRONT_MAILBOX),
    );
    let shared = Arc::clone(env);
    let frontend = system.start(
        "/",
        ChildSpec::new("controller", move || frontend::shell::actor(Arc::clone(&shared)))
            .placement(Placement::Named("controller"))
            .mailbox(FRONT_MAILBOX)
            .control(FRONT_MAILBOX),
    );
    start_crontabs_and_triggers(system, env);
    frontend
}

/// Starts the owners of crontabs and of triggers, which have little to do.
fn start_crontabs_and_triggers(system: &System, env: &Arc<Env>) {
    let (shared, again) = (Arc::clone(env), AtomicBool::new(false));
    let crontabs = move || {
        let make = |env: &Env| Some(CrontabsCore::new(env.committed.crontabs()));
        // Only an earlier life can have appended something that is not committed.
        OwnerActor::new(make, (), Arc::clone(&shared)).behind_all_appended(again.swap(true, Ordering::Relaxed))
    };
    system.start("/", ChildSpec::new("crontab", crontabs).mailbox(FRONT_MAILBOX));
    let (shared, again) = (Arc::clone(env), AtomicBool::new(false));
    let triggers = move || {
        let make = |env: &Env| {
            let (saved, last) = env.committed.triggers();
            Some(TriggersCore::new(saved, last))
        };
        OwnerActor::new(make, (), Arc::clone(&shared)).behind_all_appended(again.swap(true, Ordering::Relaxed))
    };
    system.start("/", ChildSpec::new("trigger", triggers).mailbox(FRONT_MAILBOX));
}

/// Ends the runs on nodes that are no longer configured.
fn end_on_unknown_nodes(jobs: &Address<JobsMsg>, holds: BTreeMap<String, Vec<KeptHold>>) {
    for (node, kept) in holds {
        for KeptHold { hold, .. } in kept {
            let lost = JobInput::NodeLost { node: node.clone(), sluid: hold.sluid };
            if jobs.try_send(JobsMsg::tell(hold.job, lost)).is_err() {
                tracing::error!(job_id = hold.job.0, node, "job.node_not_configured");
            }
        }
    }
}

/// The holds on each node, by name, according to the jobs' records: the initial state of the nodes' owners.
pub fn holds_by_node<'r>(
    config: &Config,
    records: impl Iterator<Item = &'r JobRecord>,
) -> BTreeMap<String, Vec<KeptHold>> {
    let mut holds: BTreeMap<String, Vec<KeptHold>> = BTreeMap::new();
    for record in records {
        for held in record.holds() {
            let view = config.partition(held.partition).map(|p| {
                let view = garrick_model::view::PartitionView {
                    generation: 0,
                    config: Arc::new(p.clone()),
                    state: p.state,
                    nodes: Vec::new(),
                };
                partition_facts(&view, 0)
            });
            let usage = match &view {
                _ if held.exclusive => NodeUse::Whole,
                Some(facts) => NodeUse::of(record.spec.sharing, facts, policy(config).unit),
                None => NodeUse::Cpus,
            };
            holds.entry(held.node.name.clone()).or_default().push(KeptHold {
                hold: NodeHold {
                    job: record.id,
                    sluid: held.sluid,
                    uid: record.owner.uid,
                    share: held.node.share.clone(),
                    sharing: usage.sharing(),
                    mcs_label: record.spec.mcs_label.clone(),
                    partition: Some(held.partition.to_owned()),
                    expected_end: held.expected_end,
                    completing: held.completing,
                    kept: held.kept,
                    parked: held.parked,
                },
                most_holders: usage.most_holders(),
                caps: view.map_or(CpuCaps::NONE, |facts| facts.caps.of(usage)),
            });
        }
    }
    holds
}
