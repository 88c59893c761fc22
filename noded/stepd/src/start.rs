//! Starts a `stepd` from the orders in its run's folder.

use super::{
    agent_link::{AgentLink, OwnTraces},
    door,
    files::branch::{self, Station},
    handed::HandedStreams,
    launching,
    light::Asks,
    manager_link::{ManagerLink, ManagerPlace, tell_shepherd},
    manager_port::{Clients, ManagerWorld, tell_manager},
    profile::ProfileOwner,
    shepherd_links::{self, ShepherdLinks},
    shepherd_port::{ShepherdPlace, ShepherdWorld, ToManager},
};
use garrick_daemon::{
    journal::{self, Log},
    logging::{self, LogLevels},
    run::{
        folder::{self, KeptPort, launcher_socket},
        orders::StepdOrders,
    },
    signals,
};
use garrick_events::steps::event::StepEvent;
use garrick_kernel::{
    cgroup::{Cgroups, Constraints, MemoryLimit, Swap, Tracking},
    cpu_freq::CpuFrequencies,
    gpu,
    gpu_freq::KeptClocks,
    inventory,
    on_thread::OnThread,
    reap,
    spawn::Identity,
    topology::{CpuMap, Topology, allowed_cpus},
    users,
};
use garrick_model::{
    config::LogLevel,
    gres::{GPU, SHARD, devices_used},
    messages::{
        shepherd::ShepherdToStepMgr,
        stepd::{NodeToStepd, StepdReport, StepdToNode},
    },
    node_shape::NodeShare,
    time::system_zone,
};
use garrick_run::{
    shepherd::{ShepherdConfig, ShepherdInput, ShepherdMsg, gpus::GpuSight, series::SeriesConfig, shell::Shepherd},
    step::NodeSlot,
    stepmgr::{Ledger, RunFacts, StepMgrConfig, StepMgrInput, StepMgrMsg, shell::StepMgr},
};
use garrick_runtime::{ActorPath, Address, System, SystemConfig, TraceContext};
use garrick_transport::{DoorListener, Endpoint, EndpointOptions, IdentityStore, ResetKey, any_address};
use std::{
    cell::{Cell, RefCell},
    path::{Path, PathBuf},
    rc::Rc,
    sync::{Arc, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;

/// Runs a `stepd` to its end.
pub fn main(folder: &Path) -> Result<(), String> {
    let orders = StepdOrders::load(folder).map_err(|e| e.to_string())?;
    let settings = &orders.settings;
    let level = settings.log.level.unwrap_or_else(|| LogLevel::INFO.louder(settings.verbosity));
    let log = logging::Settings {
        file: settings.log.file.clone(),
        scheduler: None,
        follows_file: true,
        levels: LogLevels { level, syslog: LogLevel::QUIET, flags: settings.log.flags.clone(), scheduler: false },
        name: "stepd".to_owned(),
    };
    logging::start(&log).map_err(|e| e.to_string())?;
    garrick_transport::install_crypto_provider();
    reap::become_subreaper().map_err(|e| format!("PR_SET_CHILD_SUBREAPER: {e}"))?;
    // Nothing of this process may be read by others: it holds the node's key.
    reap::become_undumpable().map_err(|e| format!("PR_SET_DUMPABLE: {e}"))?;
    let takes_over = folder::enter(folder).map_err(|e| e.to_string())?;
    if takes_over {
        tracing::warn!(job_id = orders.credential.job.0, "taking over from a stepd that died");
    }
    let here = Here::new(&orders, folder, takes_over)?;
    if !takes_over {
        // While this process has one thread and nothing in its memory that the job's user may not have.
        *here.place.ahead.lock().unwrap_or_else(PoisonError::into_inner) = launching::start_ahead(&here.place);
    }
    // One thread for everything of one job: its actors talk to each other all the time.
    let config = SystemConfig { arbiters: 0, ..SystemConfig::default() };
    let served = System::run(config, async |system| {
        let outcome = serve(orders, folder.to_owned(), takes_over, here, &system).await;
        system.shutdown(Duration::from_secs(2)).await;
        outcome
    });
    served.map_err(|e| format!("the actors failed: {}", e.reason))?
}

struct Run {
    orders: StepdOrders,
    folder: PathBuf,
    /// A `stepd` served this run before.
    takes_over: bool,
    slot: usize,
    share: NodeShare,
    system: System,
    process: String,
    place: ShepherdPlace,
    agent: AgentLink,
    over: Rc<Notify>,
}

/// What a run has on this node.
struct Here {
    slot: usize,
    share: NodeShare,
    place: ShepherdPlace,
}

impl Here {
    fn new(orders: &StepdOrders, folder: &Path, takes_over: bool) -> Result<Self, String> {
        let credential = &orders.credential;
        let own = users::effective_uid();
        if !users::can_run_as(own, credential.uid) {
            return Err(format!("this stepd runs as uid {own} and cannot run a job of uid {}", credential.uid));
        }
        let slot =
            credential.nodes.iter().position(|n| n.name == orders.node).ok_or("this node is not in the credential")?;
        let share = credential.nodes[slot].share.clone();
        let place = place(orders, folder, &share, takes_over)?;
        Ok(Self { slot, share, place })
    }
}

async fn serve(
    orders: StepdOrders,
    folder: PathBuf,
    takes_over: bool,
    here: Here,
    system: &System,
) -> Result<(), String> {
    signals::catch_for_stepd().map_err(|e| e.to_string())?;
    let Here { slot, share, place } = here;
    let credential = &orders.credential;
    let process = format!("stepd/{}/{}", credential.job, orders.node);
    let run = Run {
        slot,
        share,
        system: system.clone(),
        process,
        place,
        agent: AgentLink::default(),
        over: Rc::new(Notify::new()),
        folder,
        takes_over,
        orders,
    };
    let over = Rc::clone(&run.over);
    let endpoint = match &run.orders.manager {
        None => serve_batch_host(run).await?,
        Some(_) => Some(serve_shepherd(run)?),
    };
    over.notified().await;
    // Else the other nodes would take this process for one that hangs, and wait for it until they hear nothing.
    if let Some(endpoint) = endpoint {
        endpoint.close("the run is over");
    }
    Ok(())
}

/// The job's cgroup with its limits, the CPU map, the owner.
fn place(orders: &StepdOrders, folder: &Path, share: &NodeShare, restarted: bool) -> Result<ShepherdPlace, String> {
    let (settings, credential) = (&orders.settings, &orders.credential);
    let allowed = allowed_cpus(Path::new("/"));
    let topology = Topology::read(Path::new("/"), allowed.as_ref()).map_err(|e| e.to_string())?;
    let cpus = CpuMap::new(&topology, &settings.shape, settings.first_cpu);
    let constraints = Constraints { cores: true, memory: share.memory.is_some(), devices: settings.constrain_devices };
    let tracking = match settings.cgroups.clone() {
        Some(cgroups) => Tracking::Cgroups(cgroups.only(constraints)),
        None => Tracking::detect(&settings.cluster_id, &orders.node, constraints),
    };
    let sluid = credential.sluid.to_string();
    let cgroup = match tracking.cgroups() {
        Some(cgroups) => Some(cgroups.job(credential.job.0, &sluid).map_err(|e| e.to_string())?),
        None => None,
    };
    if let Some(cgroup) = &cgroup {
        let memory = share.memory.map(|m| MemoryLimit { bytes: m.0 << 20, swap: Swap::Within });
        let machine = cpus.machine_cpus(share.cpus.iter());
        cgroup.limit(Some(&machine), memory).map_err(|e| e.to_string())?;
        let others = settings.devices.iter().filter(|d| !devices_used(&share.gres, &d.name).contains(d.number));
        let files = others.flat_map(|device| device.files.iter().map(PathBuf::as_path));
        let left = cgroup.tasks().deny_devices(files).map_err(|e| e.to_string())?;
        if !left.is_empty() {
            tracing::warn!(?left, "no device files: jobs cannot be kept from these");
        }
    }
    let root = users::effective_uid() == 0;
    let identity = Identity { uid: credential.uid, gid: credential.gid, groups: credential.groups.clone() };
    Ok(ShepherdPlace {
        user: root.then(|| identity.clone()),
        owner: (credential.uid, credential.gid),
        devices_limited: tracking.cgroups().is_some_and(Cgroups::limits_devices),
        folder: folder.to_owned(),
        cgroup,
        cpus,
        frequencies: (CpuFrequencies::new(&settings.cpu_folder, &settings.kept_frequencies), sluid.clone()),
        gpu_clocks: KeptClocks::new(&settings.kept_gpu_clocks),
        has_gpus: share.gres.iter().any(|held| matches!(held.name.as_str(), GPU | SHARD)),
        energy: settings.energy_place(),
        profile: settings.profile.clone().map(|settings| {
            let identity = root.then(|| identity.clone());
            let (job, node, user) = (credential.job, orders.node.clone(), credential.user.clone());
            (settings, ProfileOwner { job, node, user, identity })
        }),
        marks: [format!("SLURM_JOB_ID={}", credential.job), format!("SLURM_JOB_SLUID={sluid}")],
        launcher_socket: launcher_socket(&orders.door),
        ahead: Arc::default(),
        sweep_limit: settings.sweep_limit(),
        restarted,
    })
}

impl Run {
    fn shepherd_config(&self) -> ShepherdConfig {
        let (orders, settings) = (&self.orders, &self.orders.settings);
        let door = orders.door.to_string_lossy();
        let mut config = ShepherdConfig::new(orders.credential.job, &orders.node, &door, self.share.cpus.clone());
        // A node that claims more CPUs than there are cannot bind a task to one of its own.
        if !self.place.cpus.wraps() {
            config.cpu_map =
                (0..settings.shape.cpus).filter_map(|n| self.place.cpus.machine_cpus([n]).iter().next()).collect();
        }
        config.shape = settings.shape.clone();
        config.cgroups = self.place.cgroup.is_some();
        config.gpus =
            GpuSight::new(&self.share.gres, &settings.shape.gres, settings.gpu_variables, self.place.devices_limited);
        config.gpu_minors = gpu::minors(&settings.devices);
        config.job_nodes = orders.credential.nodes.len();
        config.governor = settings.governor;
        config.priority = settings.priority;
        config.task_scripts = settings.task_scripts.clone();
        config.of_srun = settings.of_srun.clone();
        config.stepd = settings.stepd.to_string_lossy().into_owned();
        config.kill_wait = Duration::from_secs(settings.kill_wait_secs);
        config.look_every =
            Some(settings.look_every_secs).filter(|secs| *secs > 0).map(|n| Duration::from_secs(n.into()));
        config.meters_energy = settings.energy_place().is_some();
        config.series = settings.profile.as_ref().map(|profile| SeriesConfig {
            usual: profile.usual,
            there: profile.there,
            periods: profile.periods,
        });
        config.zone = system_zone();
        config
    }

    fn job_path(&self) -> String {
        format!("/job/{}", self.orders.credential.job)
    }

    /// Starts the shepherd's actor. Its death is the death of the run: what it knew of its tasks cannot be rebuilt.
    fn start_shepherd(
        &self,
        to_manager: ToManager,
        finished: Rc<dyn Fn()>,
        handed: Rc<HandedStreams>,
    ) -> Address<ShepherdMsg> {
        let path = ActorPath::new(&format!("{}/shepherd", self.job_path())).expect("job numbers make valid paths");
        let (config, system, place) = (self.shepherd_config(), self.system.clone(), self.place.clone());
        // The factory runs on this very thread: this system has no other.
        let parts = OnThread::new((to_manager, finished, handed));
        let spec = Shepherd::spec(move || {
            let own = system.find::<ShepherdMsg>(&path).expect("an actor's address is registered before it is made");
            let (to_manager, finished, handed) = parts.get().clone();
            let world = ShepherdWorld::new(place.clone(), own, to_manager, Box::new(move || finished()), handed);
            Shepherd::new(config.clone(), world)
        });
        self.system.start(&self.job_path(), spec)
    }

    fn station(&self, endpoint: Option<Arc<Endpoint>>) -> Rc<Station> {
        let credential = &self.orders.credential;
        Rc::new(Station {
            node: self.orders.node.clone(),
            run: credential.sluid,
            nodes: credential.nodes.iter().map(|node| node.name.clone()).collect(),
            place: self.place.clone(),
            endpoint,
        })
    }

    fn hello(&self, batch_host: bool) -> StepdToNode {
        let orders = &self.orders;
        StepdToNode::Hello {
            job: orders.credential.job,
            sluid: orders.credential.sluid,
            pid: std::process::id(),
            door: orders.door.to_string_lossy().into_owned(),
            batch_host,
        }
    }

    fn listen(&self) -> Result<DoorListener, String> {
        DoorListener::bind(&self.orders.door, concat!("garrick ", env!("CARGO_PKG_VERSION"))).map_err(|e| e.to_string())
    }

    fn endpoint(&self) -> Result<Arc<Endpoint>, String> {
        let identity = IdentityStore::follow(&self.orders.identity).map_err(|e| e.to_string())?;
        Endpoint::bind(any_address(0), identity).map(Arc::new).map_err(|e| e.to_string())
    }

    /// The step manager's endpoint: on the port of the previous one, which the shepherds of other nodes know. If another process
    /// has that port now, another port is used; the agents tell the shepherds, since a step manager that takes over asks all of
    /// them again.
    fn manager_endpoint(&self) -> Result<Arc<Endpoint>, String> {
        let identity = IdentityStore::follow(&self.orders.identity).map_err(|e| e.to_string())?;
        let bind = |port, key: &ResetKey| {
            let options = EndpointOptions { reset_key: Some(key.clone()), ..EndpointOptions::default() };
            Endpoint::bind_with(any_address(port), Arc::clone(&identity), options).map(Arc::new)
        };
        if let Some(KeptPort { port, key }) = folder::kept_port(&self.folder) {
            match bind(port, &key) {
                Ok(endpoint) => return Ok(endpoint),
                Err(e) => tracing::warn!(port, error = %e, "the port of the stepd before is taken; using another"),
            }
        }
        let key = ResetKey::random().map_err(|e| format!("random numbers: {e}"))?;
        let endpoint = bind(0, &key).map_err(|e| e.to_string())?;
        let kept = KeptPort { port: endpoint.local_addr().port(), key };
        folder::keep_port(&self.folder, &kept).map_err(|e| e.to_string())?;
        Ok(endpoint)
    }
}

/// Returns the endpoint for the shepherds of other nodes, if there are any.
async fn serve_batch_host(run: Run) -> Result<Option<Arc<Endpoint>>, String> {
    let (orders, credential) = (&run.orders, &run.orders.credential);
    let journal_path = run.folder.join(folder::JOURNAL);
    let opened = journal::open::<StepEvent>(&journal_path).map_err(|e| e.to_string())?;
    if opened.torn_bytes > 0 {
        tracing::warn!(bytes = opened.torn_bytes, "a torn last record was cut off the step journal");
    }
    let journal = Rc::new(Log::start(&journal_path, opened.file).map_err(|e| e.to_string())?);
    let ledger = Ledger::replay(opened.records);
    let listener = run.listen()?.take_descriptors_of(credential.uid);
    let endpoint = if credential.nodes.len() > 1 { Some(run.manager_endpoint()?) } else { None };
    let own_address = own_address(&credential.addresses[run.slot], endpoint.as_deref());
    let links = Rc::new(ShepherdLinks::new(endpoint.clone(), &orders.launch, credential, own_address));
    let clients = Rc::new(Clients::new(Asks {
        job: orders.credential.job,
        uid: orders.credential.uid,
        host: inventory::hostname().unwrap_or_default(),
    }));

    let manager_path = ActorPath::new(&run.job_path()).expect("job numbers make valid paths");
    // The shepherd's first words come before there is a step manager to hear them; they are kept for it.
    let manager: Rc<RefCell<Option<Address<StepMgrMsg>>>> = Rc::default();
    let early: Rc<RefCell<Vec<ShepherdToStepMgr>>> = Rc::default();
    let to_manager: ToManager = {
        let (manager, early) = (Rc::clone(&manager), Rc::clone(&early));
        Rc::new(move |message| match manager.borrow().as_ref() {
            Some(manager) => {
                let input = StepMgrInput::Shepherd { node: NodeSlot(0), message };
                tell_manager(manager, TraceContext::current(), input);
            }
            None => early.borrow_mut().push(message),
        })
    };
    let shepherd = run.start_shepherd(to_manager, Rc::new(|| {}), Rc::clone(&clients.handed));

    let facts = Arc::new(facts(orders));
    let config = manager_config(orders, run.takes_over);
    let over = Rc::clone(&run.over);
    let exit: Rc<dyn Fn()> = Rc::new(move || over.notify_one());
    let lives = (Cell::new(Some(ledger)), Cell::new(0));
    let station = run.station(endpoint.clone());
    let parts = OnThread::new((Rc::clone(&links), Rc::clone(&clients), exit, shepherd, journal, lives, station));
    let (system, agent, journal_file) = (run.system.clone(), run.agent.clone(), journal_path);
    let spec = StepMgr::spec(credential.job, move || {
        let own = system.find::<StepMgrMsg>(&manager_path).expect("an actor's address is registered before it is made");
        let (links, clients, exit, shepherd, journal, (ledger, lives), station) = parts.get();
        // After a panic the journal is read again: what it says is what was promised.
        let ledger = ledger.take().unwrap_or_else(|| {
            Ledger::replay(journal::open::<StepEvent>(&journal_file).map(|o| o.records).unwrap_or_default())
        });
        let world = ManagerWorld {
            manager: own,
            journal: Rc::clone(journal),
            catching_up: Rc::default(),
            station: Rc::clone(station),
            own_shepherd: shepherd.clone(),
            shepherds: Rc::clone(links),
            clients: Rc::clone(clients),
            agent: agent.clone(),
            exit: Rc::clone(exit),
            lives: lives.replace(lives.get() + 1),
        };
        StepMgr::new(Arc::clone(&facts), config.clone(), ledger, world)
    });
    let address = run.system.start("/job", spec);
    *manager.borrow_mut() = Some(address.clone());
    tell_manager(&address, TraceContext::root(), StepMgrInput::ShepherdUp { node: NodeSlot(0) });
    for message in early.take() {
        tell_manager(&address, TraceContext::root(), StepMgrInput::Shepherd { node: NodeSlot(0), message });
    }

    if let Some(endpoint) = endpoint.clone() {
        actix_rt::spawn(shepherd_links::serve(endpoint, links, address.clone(), Rc::clone(&clients)));
    }
    actix_rt::spawn(door::serve_manager(listener, address.clone(), clients, orders.node.clone()));
    let hello = run.hello(true);
    let mut traces = OwnTraces::new(&run.system, &run.process, &run.agent);
    let deliver = move |cx, order: NodeToStepd| {
        let Some(order) = traces.take(order) else { return };
        let input = if order == NodeToStepd::Welcome { StepMgrInput::AgentUp } else { StepMgrInput::Agent(order) };
        tell_manager(&address, cx, input);
    };
    actix_rt::spawn(run.agent.clone().keep(orders.agent_door.clone(), hello, deliver));
    Ok(endpoint)
}

fn own_address(agent_address: &str, endpoint: Option<&Endpoint>) -> String {
    let host = agent_address.rsplit_once(':').map_or(agent_address, |(host, _)| host);
    format!("{host}:{}", endpoint.map_or(0, |e| e.local_addr().port()))
}

fn facts(orders: &StepdOrders) -> RunFacts {
    let mut facts = RunFacts::new(&orders.launch, &orders.credential);
    if let Ok(account) = users::by_uid(orders.credential.uid) {
        facts.home = Some(account.home.to_string_lossy().into_owned());
        facts.shell = Some(account.shell.to_string_lossy().into_owned());
    }
    facts.group = Some(users::group_name(orders.credential.gid));
    facts.conf_path = Some(orders.settings.conf.to_string_lossy().into_owned());
    facts.zone = system_zone();
    facts
}

fn manager_config(orders: &StepdOrders, restarted: bool) -> StepMgrConfig {
    let settings = &orders.settings;
    let own = users::effective_uid();
    StepMgrConfig {
        kill_wait: Duration::from_secs(settings.kill_wait_secs),
        over_time_limit: settings.over_time_minutes.map(|m| Duration::from_secs(m * 60)),
        trusted_uids: [Some(own), settings.slurm_uid].into_iter().flatten().collect(),
        append_files: settings.append_files,
        pack_nodes: settings.pack_nodes,
        defer_batch: settings.defer_batch,
        max_tasks_per_node: settings.max_tasks_per_node.unwrap_or(512),
        max_step_count: settings.max_step_count,
        restarted,
        ..StepMgrConfig::default()
    }
}

/// Returns the endpoint of the link to the step manager.
fn serve_shepherd(run: Run) -> Result<Arc<Endpoint>, String> {
    let orders = &run.orders;
    let endpoint = run.endpoint()?;
    let listener = run.listen()?;
    let link = ManagerLink::default();
    let to_manager: ToManager = {
        let link = link.clone();
        Rc::new(move |message| link.send(message))
    };
    let gone = Rc::new(Cell::new(false));
    let finished: Rc<dyn Fn()> = {
        let (agent, gone) = (run.agent.clone(), Rc::clone(&gone));
        Rc::new(move || {
            gone.set(true);
            agent.send(StepdToNode::Report { seq: 1, report: StepdReport::Gone });
        })
    };
    let shepherd = run.start_shepherd(to_manager, finished, Rc::default());
    let register = ShepherdToStepMgr::Register {
        credential: orders.launch.credential.clone(),
        sluid: orders.credential.sluid,
        node: orders.node.clone(),
    };
    let batch_host = orders.credential.nodes.first().map(|n| n.name.clone()).unwrap_or_default();
    actix_rt::spawn(door::serve_relay(listener, Rc::clone(&link.handle), orders.credential.job, orders.node.clone()));
    actix_rt::spawn(branch::serve(run.station(Some(Arc::clone(&endpoint)))));
    let place = ManagerPlace {
        endpoint: Arc::clone(&endpoint),
        folder: run.folder.clone(),
        batch_host,
        register,
        shepherd: shepherd.clone(),
    };
    actix_rt::spawn(link.keep(place));
    let hello = run.hello(false);
    let (agent, over) = (run.agent.clone(), Rc::clone(&run.over));
    let mut traces = OwnTraces::new(&run.system, &run.process, &run.agent);
    let deliver = move |cx, order: NodeToStepd| match traces.take(order) {
        Some(NodeToStepd::Welcome) => {
            agent.open();
            if gone.get() {
                agent.send(StepdToNode::Report { seq: 1, report: StepdReport::Gone });
            }
        }
        Some(NodeToStepd::EndJob { .. }) => {
            tell_shepherd(
                &shepherd,
                cx,
                ShepherdInput::Manager(garrick_model::messages::shepherd::StepMgrToShepherd::EndJob),
            );
        }
        Some(NodeToStepd::Ack { .. }) => over.notify_one(),
        // The step manager answers these.
        _ => {}
    };
    actix_rt::spawn(run.agent.clone().keep(orders.agent_door.clone(), hello, deliver));
    Ok(endpoint)
}
