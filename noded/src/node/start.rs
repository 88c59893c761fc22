//! Starting the node role: inventory, identity, door, links, agent.

use super::{
    door::{self, DoorWorld},
    health,
    membership::Membership,
    neighbours::Neighbours,
    peers::{self, PeerWorld},
    port::NodePort,
    power::{self, ShownPower},
    records::Retention,
    records_link::RecordsWorld,
    runs::RunWorld,
    shared_cpus::{self, OwnCpus},
    site_scripts::{Current, SiteScripts},
    spool::{Spool, SpoolError},
    uplink,
};
use crate::{
    daemon::{options::Options, place::Cluster, programs, reset_key},
    guests::Guests,
    node::conversations::Conversations,
    scripts::ScriptPatternError,
};
use garrick_agent::{AgentConfig, AgentMsg, NodeAgent, lease_of};
use garrick_daemon::run::orders::{StepdLog, StepdSettings};
use garrick_kernel::{
    cgroup::{Constraints, Tracking},
    cpu_freq::SYS_CPUS,
    energy::{HWMON, POWERCAP},
    inventory::{self, Machine},
    users,
};
use garrick_model::{
    config::{Config, EnergySource, NodeConfig, PrologFlag},
    env_vars,
    messages::node::Joining,
    node_shape::NodeShape,
    time::Timestamp,
    view::NodeFacts,
};
use garrick_runtime::{Address, ChildSpec, System};
use garrick_traces::answers::Traces;
use garrick_transport::{
    DoorListener, Endpoint, EndpointOptions, IdentityStore, JoinError, any_address,
    identity::{VerifyKey, files::read_secret},
    join_through_door, join_with_shared_key, join_with_token,
};
use std::{
    env,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};
use tokio::sync::watch;

/// How long a node without an identity waits for a controller to give it one.
const JOIN_LIMIT: Duration = Duration::from_secs(30);
/// Pause between two attempts.
const JOIN_PAUSE: Duration = Duration::from_millis(100);

/// The node role could not be started.
#[derive(Debug, thiserror::Error)]
pub enum NodeStartError {
    /// Which node this is.
    #[error("{0}")]
    Name(String),
    /// What the machine has.
    #[error("taking the machine's inventory: {0}")]
    Inventory(#[from] inventory::InventoryError),
    /// The spool.
    #[error("spool folder: {0}")]
    Spool(#[from] SpoolError),
    /// Becoming a member of the cluster.
    #[error("joining the cluster: {0}")]
    Join(String),
    /// The door.
    #[error("local door: {0}")]
    Door(#[from] garrick_transport::DoorBindError),
    /// The UDP port.
    #[error("{0}")]
    Endpoint(#[from] garrick_transport::LinkError),
    /// A program in the same folder.
    #[error("{0}")]
    Program(#[from] programs::ProgramError),
    /// Prolog and epilog.
    #[error("{0}")]
    Scripts(#[from] ScriptPatternError),
    /// The credential key of an earlier start.
    #[error("reading the credential key: {0}")]
    Key(String),
}

/// A node role at work.
pub struct RunningNode {
    /// Its agent.
    pub agent: Address<AgentMsg>,
    /// Its door.
    pub door: PathBuf,
    /// Its address.
    pub address: SocketAddr,
    /// Its node.
    pub name: String,
    world: Arc<RunWorld>,
    _cpus: OwnCpus,
}

impl RunningNode {
    /// The site's programs as the file names them now are run from here on.
    pub fn read_scripts_again(&self) {
        self.world.read_scripts_again();
    }

    /// An embedded cluster takes its jobs and its cgroups with it when it goes down; elsewhere jobs outlive the daemon.
    pub async fn end_embedded(&self, cluster: &Cluster) {
        if cluster.home.is_none() {
            return;
        }
        let world = Arc::clone(&self.world);
        world.closing.store(true, std::sync::atomic::Ordering::Release);
        let swept = tokio::task::spawn_blocking(move || {
            for (found, _) in world.spool.runs().map(|(runs, _)| runs).unwrap_or_default() {
                if let Some(left) = world.sweep(found.run) {
                    tracing::error!(job_id = found.run.job.0, "of a job: {left}");
                }
            }
            if let Some(cgroups) = world.tracking.cgroups()
                && let Err(e) = cgroups.remove()
            {
                tracing::warn!(error = %e, "removing this node's cgroups");
            }
        });
        if let Err(e) = swept.await {
            tracing::error!(error = %e, "ending the jobs of the embedded cluster");
        }
    }
}

/// Finds which node of the configuration this process is: the one that was named, else the one of this host.
pub fn own_node<'a>(cluster: &'a Cluster, named: Option<&str>) -> Result<&'a NodeConfig, NodeStartError> {
    let config = &cluster.config;
    let file = config.path.display();
    if let Some(name) = named {
        return config.node(name).ok_or_else(|| {
            NodeStartError::Name(format!("{file} has no NodeName={name}; -N must name one of its nodes"))
        });
    }
    let host = inventory::hostname().map_err(|e| NodeStartError::Name(format!("asking for this host's name: {e}")))?;
    let mine: Vec<&NodeConfig> = config.nodes.iter().filter(|n| n.hostname == host || n.name == host).collect();
    match mine[..] {
        [one] => Ok(one),
        [] => Err(NodeStartError::Name(format!(
            "{file} has no node whose NodeHostname is {host}; name this node with -N"
        ))),
        _ => Err(NodeStartError::Name(format!(
            "{file} has {} nodes whose NodeHostname is {host}; name this one with -N",
            mine.len()
        ))),
    }
}

fn effective_shape(configured: &NodeShape, found: &NodeShape, overrides: bool) -> NodeShape {
    // The configuration overrides CPUs and memory that were found; a missing device cannot be allocated.
    if overrides { NodeShape { gres: found.gres.clone(), ..configured.clone() } } else { found.clone() }
}

/// The agent's settings, of those of the site.
fn agent_config(config: &Config, node: &str, joining: Option<Box<Joining>>) -> AgentConfig {
    let patience = Some(config.slurmd_timeout_secs).filter(|secs| *secs > 0);
    AgentConfig {
        node: node.to_owned(),
        incarnation: garrick_model::ids::RequestId::random().0,
        heartbeat: Duration::from_millis((u64::from(config.slurmd_timeout_secs) * 1000 / 3).clamp(1000, 30_000)),
        start_limit: Duration::from_secs(config.batch_start_timeout_secs.max(1).into()) * 2,
        end_limit: Duration::from_secs(
            u64::from(config.kill_wait_secs) + u64::from(config.unkillable_step_timeout_secs),
        ),
        query_limit: Duration::from_secs(config.message_timeout_secs.max(2).into()) / 2,
        lease: lease_of(patience.map(|secs| Duration::from_secs(secs.into()))),
        requeue: config.job_requeue,
        only_uid: Some(users::effective_uid()).filter(|own| *own != 0),
        joining,
    }
}

/// Starts the role. `exit` is set once the controller ordered the end of this daemon. `with_controller`: that role is in
/// this process too.
#[allow(clippy::too_many_arguments)]
pub async fn start(
    cluster: &Cluster,
    options: &Options,
    with_controller: bool,
    system: &System,
    exit: watch::Sender<bool>,
    reconfigure: Arc<dyn Fn() + Send + Sync>,
) -> Result<RunningNode, NodeStartError> {
    let config = &cluster.config;
    let node = own_node(cluster, options.node_name.as_deref())?;
    let tmp_fs = cluster.node_path(&config.tmp_fs, &node.name);
    let machine = Machine::read(Path::new("/"), &tmp_fs)?;
    let overrides = config.slurmd_parameters.has("config_overrides");
    let detected = inventory::nvidia_gpus(Path::new("/"));
    let found = NodeShape { gres: config.gres.found(node, &detected, &|file| file.exists()), ..machine.shape.clone() };
    let shape = effective_shape(&node.settings.shape, &found, overrides);
    let mut spool = Spool::open(&cluster.node_path(&config.slurmd_spool_dir, &node.name))?;
    spool.requeue = config.job_requeue;
    let token = token(options)?;
    let identity = identity(cluster, node, token.as_deref(), &spool).await?;
    let tracking = Tracking::detect(
        &cluster.id,
        &node.name,
        Constraints { cores: true, memory: config.select.memory, devices: config.gres.constrain_devices },
    );
    if let Some(notice) = tracking.notice() {
        tracing::warn!("{notice}");
    }
    if users::effective_uid() != 0 {
        let user = users::user_name(users::effective_uid());
        tracing::warn!(
            "not root: jobs run as {user} only, others are refused; no user switch, no cgroup limits beyond its own"
        );
    }
    let bind = |port| {
        let options = EndpointOptions { reset_key: reset_key::kept(&spool.identity()), ..EndpointOptions::default() };
        Endpoint::bind_with(any_address(port), Arc::clone(&identity), options)
    };
    // One that comes at run time says where it is, so several of them on a host are no trouble.
    let bound = if options.dynamic { bind(node.port).or_else(|_| bind(0)) } else { bind(node.port) };
    let endpoint = Arc::new(bound?);
    let door_path = cluster.node_door(&node.name);
    let listener = DoorListener::bind(&door_path, concat!("garrick ", env!("CARGO_PKG_VERSION")))?;
    cluster.note_conf();

    let scripts = SiteScripts::of(config)?;
    let cpus = shared_cpus::own(cluster, node, &machine.hostname, machine.shape.cpus);
    let settings = StepdSettings {
        kill_wait_secs: config.kill_wait_secs.into(),
        unkillable_secs: config.unkillable_step_timeout_secs.into(),
        over_time_minutes: config.over_time_limit.minutes(),
        wait_secs: config.wait_time_secs,
        kill_on_bad_exit: config.kill_on_bad_exit,
        priority: config.propagate_priority,
        append_files: config.job_file_append,
        pack_nodes: config.select.pack_nodes,
        max_tasks_per_node: Some(config.max_tasks_per_node),
        max_step_count: config.max_step_count,
        task_scripts: scripts.task.clone(),
        of_srun: scripts.of_srun.clone(),
        governor: config.frequencies.default,
        cpu_folder: env::var_os(env_vars::GARRICK_CPU_FOLDER).map_or_else(|| SYS_CPUS.into(), PathBuf::from),
        kept_frequencies: spool.frequencies(),
        kept_gpu_clocks: spool.gpu_clocks(),
        look_every_secs: config.gathering.task_secs,
        powercap_folder: (config.gathering.energy == EnergySource::Rapl)
            .then(|| env::var_os(env_vars::GARRICK_POWERCAP_FOLDER).map_or_else(|| POWERCAP.into(), PathBuf::from)),
        hwmon_folder: (config.gathering.energy == EnergySource::Ipmi)
            .then(|| env::var_os(env_vars::GARRICK_HWMON_FOLDER).map_or_else(|| HWMON.into(), PathBuf::from)),
        profile: config.gathering.profile(),
        defer_batch: config.prolog_flags.has(PrologFlag::DeferBatch),
        stepd: programs::beside("stepd")?,
        conf: config.path.clone(),
        home: cluster.home.clone(),
        cluster_id: cluster.id.clone(),
        first_cpu: cpus.first,
        shape: shape.clone(),
        doors: cluster.doors.clone(),
        slurm_uid: cluster.slurm_uid,
        devices: config.gres.devices(node, &detected),
        gpu_variables: config.gres.variables(&node.name),
        constrain_devices: config.gres.constrain_devices,
        cgroups: None,
        verbosity: cluster.verbosity,
        log: StepdLog {
            file: cluster.log_file(Some(&node.name)),
            level: Some(config.slurmd_debug.louder(cluster.verbosity)),
            flags: config.debug_flags.clone(),
        },
    };
    let shown_power = ShownPower::default();
    if let Some(place) = settings.energy_place()
        && config.gathering.node_secs > 0
    {
        let every = Duration::from_secs(config.gathering.node_secs.into());
        actix_rt::spawn(power::serve(place, every, shown_power.clone()));
    }
    let world = Arc::new(RunWorld {
        node: node.name.clone(),
        spool: spool.clone(),
        tracking: tracking.clone(),
        births: Arc::default(),
        sweep_limit: settings.sweep_limit(),
        settings,
        over_time: config
            .partitions
            .iter()
            .map(|p| (p.name.clone(), config.over_time_limit_in(&p.name).minutes()))
            .collect(),
        agent_door: door_path.clone(),
        scripts: Current::new(scripts),
        login_limit: Duration::from_secs(config.batch_start_timeout_secs.into()),
        one_script: config.prolog_flags.has(PrologFlag::Serial).then(tokio::sync::Mutex::default),
        log: cluster.log_file(Some(&node.name)),
        retention: Retention::of(config),
        closing: Arc::default(),
        counts_as: Arc::default(),
    });
    world.spool.remove_unfinished()?;
    world.spool.finish_records();
    if options.clean {
        clean_up(&world);
    }
    if let Some(program) = &config.health.program {
        health::check(program, &world).await;
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let before = config.nodes.iter().position(|other| other.name == node.name).unwrap_or(0);
        let place = (count(before), count(config.nodes.len()));
        actix_rt::spawn(health::serve(config.health.clone(), place, Arc::clone(&world)));
    }
    let facts = NodeFacts {
        hostname: machine.hostname.clone(),
        shape,
        arch: machine.arch.clone(),
        os: machine.os.clone(),
        // What client programs of Slurm expect to see of a node.
        version: garrick_daemon::versions::COMPATIBILITY.into(),
        boot_time: if options.rebooted { Timestamp::now() } else { inventory::boot_time(Path::new("/"))? },
        agent_start: Timestamp::now(),
        tracking: tracking.name().into(),
        conf_hash: Some(config.hash),
        boot_id: if options.rebooted { Some(made_up_boot()) } else { world.spool.boot.clone() },
    };
    let conversations = Arc::new(Conversations::default());
    let trust = Arc::new(Mutex::new(saved_key(&spool)?));
    let joining = options.parameters.clone().filter(|_| options.dynamic).map(|line| {
        let port = endpoint.local_addr().port();
        Box::new(Joining { line, port })
    });
    let agent_config = agent_config(config, &node.name, joining);
    let neighbours = Neighbours {
        endpoint: Arc::clone(&endpoint),
        config: Arc::clone(&cluster.config),
        own: node.name.clone(),
        joined: Arc::default(),
    };
    let others = neighbours.clone();
    let agent = start_agent(
        system,
        agent_config,
        &conversations,
        &world,
        &trust,
        facts,
        with_controller,
        exit,
        reconfigure,
        neighbours,
        shown_power,
    );
    let run_world = Arc::clone(&world);
    let records = RecordsWorld::new(spool.clone(), Arc::clone(config), cluster.slurm_uid);
    let peers = PeerWorld {
        agent: agent.clone(),
        conversations: Arc::clone(&conversations),
        world,
        trust,
        membership: Membership::new(identity, spool.identity()),
        config: Arc::clone(config),
        slurm_uid: cluster.slurm_uid,
        records: records.clone(),
    };
    actix_rt::spawn(peers::serve(Arc::clone(&endpoint), peers.clone()));
    actix_rt::spawn(uplink::serve(Arc::clone(&endpoint), cluster.controller_address(), peers));
    let address = endpoint.local_addr();
    let door_world = DoorWorld {
        agent: agent.clone(),
        conversations,
        endpoint,
        neighbours: others,
        node: node.name.clone(),
        guests: Guests::of_this_process(),
        records,
        controller: cluster.controller_address().into(),
    };
    actix_rt::spawn(door::serve(listener, door_world));
    tracing::info!(node = node.name, %address, door = %door_path.display(), tracking = tracking.name(), "the node agent serves");
    let name = node.name.clone();
    Ok(RunningNode { agent, door: door_path, address, name, world: run_world, _cpus: cpus })
}

#[allow(clippy::too_many_arguments)]
fn start_agent(
    system: &System,
    config: AgentConfig,
    conversations: &Arc<Conversations>,
    world: &Arc<RunWorld>,
    trust: &Arc<Mutex<Option<VerifyKey>>>,
    facts: NodeFacts,
    with_controller: bool,
    exit: watch::Sender<bool>,
    reconfigure: Arc<dyn Fn() + Send + Sync>,
    neighbours: Neighbours,
    power: ShownPower,
) -> Address<AgentMsg> {
    let path = format!("/node/{}", config.node);
    let agent_path = garrick_runtime::ActorPath::new(&format!("{path}/agent")).expect("node names make valid paths");
    let (hub, conversations, world, trust) =
        (system.clone(), Arc::clone(conversations), Arc::clone(world), Arc::clone(trust));
    let spec = ChildSpec::new("agent", move || {
        let agent = hub.find::<AgentMsg>(&agent_path).expect("an actor's address is registered before it is made");
        let port = NodePort {
            agent,
            facts: facts.clone(),
            conversations: Arc::clone(&conversations),
            world: Arc::clone(&world),
            trust: Arc::clone(&trust),
            exit: exit.clone(),
            reconfigure: Arc::clone(&reconfigure),
            with_controller,
            neighbours: neighbours.clone(),
            traces: Traces::new(hub.clone(), format!("node/{}", config.node)),
            expired: None,
            finding: Arc::new(tokio::sync::Semaphore::new(1)),
            power: power.clone(),
        };
        NodeAgent::new(config.clone(), port)
    });
    // The agent's inputs all come on the control lane, each from a bounded source.
    system.start(&path, spec.control(65_536))
}

/// `-b`: another boot than the last.
fn made_up_boot() -> String {
    format!("{:x}", garrick_model::ids::RequestId::random().0)
}

fn saved_key(spool: &Spool) -> Result<Option<VerifyKey>, NodeStartError> {
    let bytes = garrick_kernel::files::read_if_there(&spool.credential_key())
        .map_err(|e| NodeStartError::Key(e.to_string()))?;
    bytes.map(|b| VerifyKey::from_bytes(&b).map_err(|e| NodeStartError::Key(e.to_string()))).transpose()
}

/// `-c`: what earlier runs left behind is ended.
fn clean_up(world: &RunWorld) {
    let found = world.spool.runs().map(|(runs, _)| runs).unwrap_or_default();
    for (found, _) in found {
        if let Some(left) = world.sweep(found.run) {
            tracing::warn!(job_id = found.run.job.0, "of an earlier run: {left}");
        }
        if let Err(e) = world.spool.close_run(found.run, Timestamp::now()) {
            tracing::warn!(job_id = found.run.job.0, error = %e, "removing an earlier run's folder");
        }
    }
}

/// The given token, from a file that no other user may read.
fn token(options: &Options) -> Result<Option<String>, NodeStartError> {
    let Some(path) = &options.token_file else { return Ok(options.token.clone()) };
    let bytes = read_secret(path, 4096).map_err(|e| NodeStartError::Join(e.to_string()))?;
    String::from_utf8(bytes).map(Some).map_err(|_| NodeStartError::Join(format!("{}: not text", path.display())))
}

/// This node's identity: the one it has, else by token, by the controller's door on this host, or by the site's key.
async fn identity(
    cluster: &Cluster,
    node: &NodeConfig,
    token: Option<&str>,
    spool: &Spool,
) -> Result<Arc<IdentityStore>, NodeStartError> {
    let folder = spool.identity();
    if folder.join("certificate.pem").exists() || folder.is_dir() {
        match IdentityStore::load(&folder) {
            Ok(store)
                if store.identity().cluster == cluster.config.cluster_name && store.identity().name == node.name =>
            {
                if store.expiry() > SystemTime::now() {
                    return Ok(store);
                }
                tracing::warn!("this node's certificate has ended: joining anew");
            }
            Ok(store) => {
                return Err(NodeStartError::Join(format!(
                    "{} holds the identity of {}; remove it to join anew",
                    folder.display(),
                    store.identity()
                )));
            }
            Err(e) => tracing::warn!(error = %e, "the saved identity cannot be used; joining anew"),
        }
    }
    let address = cluster.controller_address();
    if let Some(token) = token {
        return join_with_token(&address, token, &node.name, &folder)
            .await
            .map_err(|e| NodeStartError::Join(e.to_string()));
    }
    let key = cluster.shared_key();
    let mut said = String::new();
    let give_up = tokio::time::Instant::now() + JOIN_LIMIT;
    let (doors, believed) = (cluster.controller_doors(), cluster.believed());
    // Daemons of one site start in any order: the controller may be a moment behind.
    loop {
        let mut through_door = None;
        for door in doors.iter().filter(|door| door.exists()) {
            let joined = join_through_door(door, &believed, &node.name, &folder).await;
            // A file of another user at a possible place of the door must not keep the node from the right door.
            let passed_over = matches!(&joined, Err(JoinError::UntrustedDoor { .. } | JoinError::Link(_)));
            through_door = Some(joined);
            if !passed_over {
                break;
            }
        }
        let attempt = if let Some(joined) = through_door {
            joined
        } else if let Some(key) = &key {
            join_with_shared_key(&address, key, &node.name, &folder).await
        } else if cluster.is_controller_host() && tokio::time::Instant::now() < give_up {
            tokio::time::sleep(JOIN_PAUSE).await;
            continue;
        } else {
            let looked: Vec<String> = doors.iter().map(|door| door.display().to_string()).collect();
            return Err(NodeStartError::Join(format!(
                "this host has no controller's door ({}), there is no key file {}, and no --token was given",
                looked.join(", "),
                cluster.shared_key_path().display()
            )));
        };
        match attempt {
            Ok(store) => return Ok(store),
            Err(
                e @ (JoinError::Refused { .. }
                | JoinError::Impostor { .. }
                | JoinError::UntrustedDoor { .. }
                | JoinError::Identity(_)),
            ) => return Err(NodeStartError::Join(e.to_string())),
            Err(e) if tokio::time::Instant::now() >= give_up => return Err(NodeStartError::Join(e.to_string())),
            Err(e) => {
                let text = e.to_string();
                if text != said {
                    tracing::warn!("cannot join yet: {text}; trying on");
                    said = text;
                }
                tokio::time::sleep(JOIN_PAUSE).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_agent::{AgentEffect, AgentInput, AgentTimer, FoundRun, NodeAgentCore, RunKey, StepdState};
    use garrick_model::{
        config,
        ids::{JobId, Sluid},
        messages::node::{ControllerToNode, RequeuePolicy},
        state::{JobState, Reason},
        view::NodeLoad,
    };

    const RUN: RunKey = RunKey { job: JobId(7), sluid: Sluid(70) };

    fn site(lines: &str) -> Config {
        let text = format!("ClusterName=c\nSlurmctldHost=h\nNodeName=n1 CPUs=4\nPartitionName=p Nodes=n1\n{lines}");
        config::read_text(Path::new("/etc/slurm.conf"), &text).0.unwrap()
    }

    /// How long the agent waits: for a `stepd` to connect, for one that is to end, for a listing of steps.
    fn waits(lines: &str) -> Vec<(AgentTimer, u64)> {
        let mut core = NodeAgentCore::new(agent_config(&site(lines), "n1", None));
        let (stepd, requeue) = (StepdState::Alive { pid: Some(8), clean: false }, RequeuePolicy::default());
        let found = FoundRun { run: RUN, batch_host: true, uid: 0, stepd, door: "/d".into(), requeue };
        let facts = NodeFacts {
            hostname: "h".into(),
            shape: NodeShape::default(),
            arch: String::new(),
            os: String::new(),
            version: String::new(),
            boot_time: Timestamp(0),
            agent_start: Timestamp(0),
            tracking: String::new(),
            boot_id: None,
            conf_hash: None,
        };
        let load = NodeLoad::default();
        let (state, reason, lost) = (JobState::Cancelled, Reason::None, Vec::new());
        let RunKey { job, sluid } = RUN;
        let mut out = Vec::new();
        for input in [
            AgentInput::Begin { found: vec![found], over: Vec::new(), facts: Box::new(facts), load },
            AgentInput::Controller(ControllerToNode::ListSteps { query: 3, jobs: Vec::new() }),
            AgentInput::Controller(ControllerToNode::EndJob { job, sluid, state, reason, lost }),
        ] {
            core.handle(Timestamp(5), input, &mut out);
        }
        let timer = |effect: &AgentEffect| match effect {
            AgentEffect::SetTimer { timer, after } => Some((*timer, after.as_secs())),
            _ => None,
        };
        let others = |(timer, _): &(AgentTimer, u64)| !matches!(timer, AgentTimer::Heartbeat | AgentTimer::Lease);
        out.iter().filter_map(timer).filter(others).collect()
    }

    #[test]
    fn the_agent_waits_as_long_as_the_site_says() {
        let timers = |start, query, end| {
            vec![(AgentTimer::Start(RUN), start), (AgentTimer::Query(3), query), (AgentTimer::End(RUN), end)]
        };
        assert_eq!(waits(""), timers(20, 5, 90));
        assert_eq!(waits("BatchStartTimeout=30\n"), timers(60, 5, 90));
        assert_eq!(waits("MessageTimeout=30\n"), timers(20, 15, 90));
        assert_eq!(waits("UnkillableStepTimeout=180\n"), timers(20, 5, 210));
    }
}
