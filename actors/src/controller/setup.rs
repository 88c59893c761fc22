//! How a controller comes up: the journal's events are replayed through the functions that live actors use, and the
//! actors are built from what that comes to.

use super::{entering::Entering, env::Env, front, ids::IdSource, messages::ControllerMsg, ports::Ports};
use crate::{
    job::shell::{Jobs, JobsMsg},
    log::{AppendError, Log, Position, event::ControllerEvent},
    messages::{
        job::{JobInput, JobSite},
        node::{InitialState, NodeSettings, NodeSite, ReturnToService},
    },
    node::{core::NodeCore, effects::KeptHold, shell::Nodes},
    owner::{actor::OwnerActor, supervisor::Supervisor},
    partition::{core::PartitionCore, shell::Partitions},
    records::job::JobRecord,
    reservation::core::ReservationsCore,
    roster::{nodes::Roster, shell as roster_shell},
    scheduler::{
        core::SchedulerCore,
        gather::partition_facts,
        picture::{caps::CpuCaps, request::NodeUse},
        shell::{SchedulerHands, policy},
    },
    steps::core::StepsCore,
};
use garrick_model::{
    config::{self, BillingWeights, Config, ConfiguredState, NodeConfig, PartitionConfig},
    spec_text::licenses::Licenses,
    time::Timestamp,
    view::NodeHold,
};
use garrick_runtime::{Address, ChildSpec, PendingReply, Placement, ReplyTo, System};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The front takes every command and every frame of every agent.
const FRONT_MAILBOX: usize = 65_536;

/// A controller that runs.
pub struct Controller {
    /// Where commands and agents' connections go.
    pub front: Address<ControllerMsg>,
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
    /// What administrators changed of partitions, too.
    Full,
}

/// Shows partitions as a configuration has them, before anyone asks; their owners publish over it. One that was read `again` ends
/// updates that do not outlive that.
pub(crate) fn show_partitions(env: &Env, config: &Config, again: bool) {
    let board = &env.boards.partitions;
    for (partition, place) in config.partitions.iter().zip(0..) {
        if let Some(mut core) = PartitionCore::new(config, &partition.name, env.committed.partition(&partition.name)) {
            if again {
                core.reconfigure(config);
            }
            board.publish(place, Arc::new(core.view()));
        }
    }
    for (place, _) in board.entries() {
        if place as usize >= config.partitions.len() {
            board.remove(&place);
        }
    }
}

/// What is not to be recovered is taken out of the log, so that a later full recovery does not bring it back either. To be waited for
/// before [`start`]: it does not count any more once that is answered.
pub fn forget(log: &dyn Log, recover: Recover) -> PendingReply<Result<Position, AppendError>> {
    let saved = if recover == Recover::Partial { log.value().partitions() } else { BTreeMap::new() };
    let dropped = saved.into_iter().filter(|(_, saved)| !saved.fields.is_empty()).map(|(partition, saved)| {
        tracing::info!(partition, fields = ?saved.fields, "partition.updates_dropped");
        ControllerEvent::Partition { partition, saved: Box::default() }
    });
    let (dropped, (done, answer)) = (dropped.collect::<Vec<_>>(), ReplyTo::channel());
    // Without any, a start does not wait for a log that has no room.
    match dropped.is_empty() {
        true => done.reply(Ok(log.committed())),
        false => log.append(dropped, done),
    }
    answer
}

/// Brings a controller up from what its log comes to. The start itself is saved; nothing waits for that.
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
    let (roster, of_file) = Roster::restored(Arc::clone(&config), replayed.dynamic_nodes);
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
        // Boards are filled before anyone can ask; the owners publish over it.
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
    // What is saved after it in the same journal is what counts; a journal that fails ends the process by itself.
    drop(started);

    let shared = Arc::clone(&env);
    system.start(
        "/",
        ChildSpec::new("node", move || Supervisor::<Nodes>::new(Arc::clone(&shared))).mailbox(FRONT_MAILBOX),
    );
    let shared = Arc::clone(&env);
    system.start("/", ChildSpec::new("partition", move || Supervisor::<Partitions>::new(Arc::clone(&shared))));
    let shared = Arc::clone(&env);
    system.start(
        "/",
        ChildSpec::new("reservation", move || {
            let make = |env: &Env| Some(ReservationsCore::new(env.committed.reservations()));
            OwnerActor::new(make, (), Arc::clone(&shared)).behind_all_appended(true)
        })
        .mailbox(FRONT_MAILBOX),
    );
    let shared = Arc::clone(&env);
    let jobs = system
        .start("/", ChildSpec::new("job", move || Supervisor::<Jobs>::new(Arc::clone(&shared))).mailbox(FRONT_MAILBOX));
    // What is left belongs to nodes that the configuration does not have any more.
    for (node, kept) in holds {
        for KeptHold { hold, .. } in kept {
            let lost = JobInput::NodeLost { node: node.clone(), sluid: hold.sluid };
            if jobs.try_send(JobsMsg::tell(hold.job, lost)).is_err() {
                tracing::error!(job_id = hold.job.0, node, "job.node_not_configured");
            }
        }
    }
    let shared = Arc::clone(&env);
    system.start(
        "/",
        ChildSpec::new("roster", move || roster_shell::actor(Arc::clone(&shared)))
            .placement(Placement::Named("controller"))
            .mailbox(FRONT_MAILBOX),
    );
    let shared = Arc::clone(&env);
    system.start(
        "/",
        ChildSpec::new("scheduler", move || {
            let make = |env: &Env| Some(SchedulerCore::new(policy(&env.config())));
            OwnerActor::new(make, SchedulerHands::default(), Arc::clone(&shared))
        })
        .placement(Placement::Named("scheduler"))
        .mailbox(FRONT_MAILBOX),
    );
    let shared = Arc::clone(&env);
    system.start(
        "/",
        ChildSpec::new("steps", move || OwnerActor::new(|_: &Env| Some(StepsCore::default()), (), Arc::clone(&shared)))
            .placement(Placement::Named("steps"))
            .mailbox(FRONT_MAILBOX),
    );
    let shared = Arc::clone(&env);
    let front = system.start(
        "/",
        ChildSpec::new("controller", move || front::shell::actor(Arc::clone(&shared)))
            .placement(Placement::Named("controller"))
            .mailbox(FRONT_MAILBOX)
            .control(FRONT_MAILBOX),
    );
    Controller { front, env, epoch }
}

/// What a job that was given licenses counts for: layers of hierarchical resources may be others than they were then, or
/// none for a while. `None`: its record says of none.
pub(crate) fn counted_now(config: &Config, record: &JobRecord) -> Option<Licenses> {
    let given = record.licenses()?;
    let allocated = record.phase.working().into_iter().flat_map(|run| &run.allocation.nodes);
    let nodes: Vec<usize> = allocated.filter_map(|n| Some(config.node(&n.name)?.index.0 as usize)).collect();
    Some(config.hres.recount(record.spec.licenses.as_deref(), &nodes, given))
}

/// What jobs' records say of each node, by its name: owners of nodes begin with that.
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

/// A node's settings, from the configuration.
pub fn node_settings(node: &NodeConfig) -> NodeSettings {
    NodeSettings {
        name: node.name.clone(),
        index: node.index,
        shape: node.settings.shape.clone(),
        features: node.settings.features.clone(),
        weight: node.settings.weight,
        address: node.address.clone(),
        hostname: node.hostname.clone(),
        port: node.port,
        initial: match node.initial.state {
            // A cloud node is one that is there when it registers.
            ConfiguredState::Unknown | ConfiguredState::Cloud => InitialState::Unknown,
            ConfiguredState::Down => InitialState::Down,
            ConfiguredState::Drain | ConfiguredState::Fail => InitialState::Drain,
            ConfiguredState::Future => InitialState::Future,
        },
        initial_reason: node.initial.reason.clone(),
        cloud: node.initial.state == ConfiguredState::Cloud,
        dynamic: node.dynamic,
        neighbours: Vec::new(),
    }
}

/// What holds for all nodes.
pub fn node_site(config: &Config, epoch: u64, ports: &Ports) -> NodeSite {
    let (credential_key, key_id) = ports.signer.public_key();
    let admin = ports.host.administrators();
    let by_name = admin.iter().find_map(|uid| ports.users.user(*uid).filter(|u| u.name == config.slurm_user));
    NodeSite {
        silence: secs(config.slurmd_timeout_secs),
        return_to_service: match config.return_to_service {
            config::ReturnToService::Never => ReturnToService::Never,
            config::ReturnToService::NonResponding => ReturnToService::IfSilent,
            config::ReturnToService::Always => ReturnToService::Always,
        },
        epoch,
        slurm_user: (by_name.map_or(0, |u| u.uid), config.slurm_user.clone()),
        credential_key,
        key_id,
        config_overrides: config.config_overrides(),
        conf_hash: (!config.debug_flags.0.contains(&config::DebugFlag::NoConfHash)).then_some(config.hash),
    }
}

/// What holds for all jobs.
pub fn job_site(config: &Config, epoch: u64) -> JobSite {
    let default = JobSite::default();
    let prolog = config.prolog_timeout_secs.map(|secs| Duration::from_secs(u64::from(secs)));
    let start = Duration::from_secs(u64::from(config.batch_start_timeout_secs));
    JobSite {
        cluster: config.cluster_name.clone(),
        epoch,
        min_job_age: secs(config.min_job_age_secs),
        expedite: config.expedited_requeue(),
        requeue_delay: config
            .scheduler_parameters
            .value("requeue_delay")
            .and_then(|text| text.parse().ok())
            .map_or(default.requeue_delay, Duration::from_secs),
        max_batch_requeue: config.max_batch_requeue,
        hold_on_prolog_fail: !config.scheduler_parameters.has("nohold_on_prolog_fail"),
        kill_invalid_depend: config.dependency_parameters.has("kill_invalid_depend"),
        multifactor: config.multifactor(),
        send_user_signal: config.preempt.sends_user_signal(),
        billing: config.partitions.iter().filter_map(billing_of).collect(),
        bill_greatest: config.priority.flags.max_tres,
        requeue_exit: config.requeue_exit.clone(),
        requeue_exit_hold: config.requeue_exit_hold.clone(),
        // Beyond what the agent allows itself, so that its own report comes first.
        launch_limit: prolog.map_or(default.launch_limit, |prolog| 2 * (prolog + start) + Duration::from_secs(60)),
        ..default
    }
}

/// A partition that bills otherwise than by CPUs.
fn billing_of(partition: &PartitionConfig) -> Option<(String, BillingWeights)> {
    // The text was checked when the configuration was read.
    let weights = BillingWeights::parse(partition.billing_weights.as_deref()?).ok()?;
    Some((partition.name.clone(), weights))
}

/// In `slurm.conf`, 0 is "never" for these.
fn secs(value: u32) -> Option<Duration> {
    (value > 0).then(|| Duration::from_secs(u64::from(value)))
}
