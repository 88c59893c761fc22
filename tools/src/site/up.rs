//! `garrick up`: starts the embedded cluster, or what is missing of it, and returns when all of it is ready.

use super::{
    SiteError,
    conf::{self, Machine, Shape},
    doors, down,
    home::Home,
    install,
    processes::{self, Process},
};
use crate::{
    options::table::Arg,
    output::{self, Console},
    programs,
    query::arguments::{self, Outcome, Table, option},
};
use garrick_asking::cluster::Cluster;
use garrick_model::{
    messages::command::{CommandReply, CommandRequest},
    resources::MemoryMib,
    state::NodeBase,
};
use std::{
    collections::HashSet,
    env,
    ffi::OsString,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

pub(crate) static TABLE: Table = Table {
    program: "garrick up",
    purpose: "Start a cluster on this machine under GARRICK_HOME.",
    operands: "",
    words: &[],
    options: &[
        option(
            "nodes",
            None,
            Arg::Required("count"),
            "a controller and this number of nodes, each a process of its own",
        ),
        option("cpus", None, Arg::Required("count"), "CPUs of each node (default: the machine's)"),
        option("memory", None, Arg::Required("size"), "memory of each node in MB (or 4G; default: the machine's)"),
    ],
    misuse: 1,
};

/// Longest time for a daemon to put itself in the background, serving.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Longest time for all nodes to be in service after that.
const REGISTER_LIMIT: Duration = Duration::from_secs(30);
/// Pause between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Runs `garrick up`.
pub fn main(args: &[OsString], console: &Console) -> Result<i32, SiteError> {
    let arguments = match arguments::read(&TABLE, args, console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return Ok(code),
    };
    if let Some(word) = arguments.words().first() {
        return Err(SiteError::Usage(format!("up takes no argument '{word}'")));
    }
    let count = |long: &str| match arguments.value(long).map(|v| v.parse::<u32>()) {
        None => Ok(None),
        Some(Ok(n)) if (1..=4096).contains(&n) => Ok(Some(n)),
        Some(_) => Err(SiteError::Usage(format!("--{long} takes a number from 1 to 4096"))),
    };
    let memory = match arguments.value("memory").map(|v| v.parse::<MemoryMib>()) {
        None => None,
        Some(Ok(m)) if m.0 > 0 => Some(m.0),
        Some(Ok(_)) => return Err(SiteError::Usage("--memory takes a size above 0".to_owned())),
        Some(Err(error)) => return Err(SiteError::Usage(format!("--memory: {error}"))),
    };
    let shape = Shape { nodes: count("nodes")?, cpus: count("cpus")?, memory_mib: memory };
    let home = Home::from_env()?;
    let up = ensure(&home, &shape)?;
    up.messages.lines().for_each(|line| console.line(line));
    let text = match up.started {
        0 => format!("the cluster in {} is up", home.root().display()),
        _ => format!("the cluster in {} is up: {}", home.root().display(), up.nodes.join(" ")),
    };
    Ok(output::finish(console, output::print_line(text), 0))
}

/// What [`ensure`] found and did.
#[derive(Debug)]
pub struct Up {
    /// Daemons that had to be started.
    pub started: usize,
    /// Nodes of the cluster.
    pub nodes: Vec<String>,
    /// What the daemons said while they started.
    pub messages: String,
}

/// One daemon process to be.
struct Daemon {
    /// For messages.
    name: String,
    /// Role and name of each entry in the list, and its door's file name.
    roles: Vec<(&'static str, String, String)>,
    /// Its arguments.
    arguments: Vec<OsString>,
    /// Its log file.
    log: PathBuf,
}

/// Starts what does not run, and returns once everything serves. A start of everything that fails leaves nothing running.
pub fn ensure(home: &Home, wanted: &Shape) -> Result<Up, SiteError> {
    home.check()?;
    let ran = !down::known(home)?.is_empty();
    start_missing(home, wanted).inspect_err(|_| {
        if !ran {
            // The first error is the one to tell.
            drop(down::end(home));
        }
    })
}

fn start_missing(home: &Home, wanted: &Shape) -> Result<Up, SiteError> {
    home.create()?;
    let _lock = lock(home)?;
    let own = env::current_exe().map_err(|e| SiteError::Other(format!("cannot find this program: {e}")))?;
    install::link_commands(&own, &home.root().join("bin"))?;
    let noded = programs::find("noded")?;
    programs::find("stepd")?;
    let known: Vec<Process> = processes::load(home)?.into_iter().filter(Process::is_alive).collect();
    let shape = write_conf(home, wanted, &noded, !known.is_empty())?;
    let nodes = match &shape {
        Some(shape) => shape.node_names(),
        None => configured_nodes(home)?,
    };
    let cluster = Cluster::find(Some(&home.conf()))?;
    let mut messages = String::new();
    let mut started = 0;
    let serves = |daemon: &Daemon| daemon.roles.iter().all(|(_, _, door)| doors::serving(&cluster, door).is_some());
    // Nodes join through the controller's door, so it goes first; they start all at once.
    let (first, others): (Vec<_>, Vec<_>) =
        daemons(home, shape.as_ref(), &nodes).into_iter().partition(|d| d.roles.iter().any(|r| r.0 == "controller"));
    for group in [first, others] {
        let mut starting = Vec::new();
        for daemon in group.into_iter().filter(|d| !serves(d)) {
            starting.push((start(&noded, &daemon, home)?, daemon));
        }
        started += starting.len();
        for (child, daemon) in starting {
            messages.push_str(&finish_start(child, &daemon, home)?);
        }
    }
    let list = serving_processes(home, &cluster, shape.as_ref(), &nodes)?;
    processes::save(home, &list)?;
    wait_for_nodes(home, &cluster, &nodes)?;
    Ok(Up { started, nodes, messages })
}

/// Holds other `up`s and `down`s of the same folder off.
pub fn lock(home: &Home) -> Result<File, SiteError> {
    let path = home.root().join("lock");
    let file = File::create(&path).map_err(SiteError::file("cannot create", &path))?;
    file.lock().map_err(SiteError::file("cannot lock", &path))?;
    Ok(file)
}

/// Makes sure that there is a configuration which fits. `None`: it is somebody else's, and is left alone.
fn write_conf(home: &Home, wanted: &Shape, noded: &Path, running: bool) -> Result<Option<Shape>, SiteError> {
    let path = home.conf();
    let old = fs::read_to_string(&path).ok();
    let made_for = old.as_deref().map(Shape::of_file);
    match (made_for, old.as_deref()) {
        (Some(None), _) if wanted.is_default() => return Ok(None),
        (Some(None), _) => {
            return Err(SiteError::Other(format!(
                "{} was not written by garrick up: change the nodes there, and run garrick up without options",
                path.display()
            )));
        }
        (Some(Some(shape)), _) if running && (wanted.is_default() || *wanted == shape) => return Ok(Some(shape)),
        (Some(Some(_)), _) if running => {
            return Err(SiteError::Other(format!(
                "the cluster in {} already runs with other nodes: run garrick down first",
                home.root().display()
            )));
        }
        (Some(Some(shape)), Some(text)) if (wanted.is_default() || *wanted == shape) && conf::ports_are_free(text) => {
            return Ok(Some(shape));
        }
        _ => {}
    }
    // The shape of an earlier `up` stays when nothing else is asked for; only its ports have to change.
    let shape = match made_for_shape(old.as_deref()) {
        Some(shape) if wanted.is_default() => shape,
        _ => wanted.clone(),
    };
    let machine = machine(noded)?;
    let ports =
        conf::free_ports(1 + shape.node_names().len()).map_err(SiteError::file("cannot bind ports for", &path))?;
    let text = conf::text(&shape, home.root(), &machine, &ports);
    let new = path.with_extension("conf.new");
    fs::write(&new, text).and_then(|()| fs::rename(&new, &path)).map_err(SiteError::file("cannot write", &path))?;
    Ok(Some(shape))
}

fn made_for_shape(text: Option<&str>) -> Option<Shape> {
    text.and_then(Shape::of_file)
}

/// What the machine has, by the daemon's own inventory.
pub fn machine(noded: &Path) -> Result<Machine, SiteError> {
    let output =
        Command::new(noded).arg("-C").stdin(Stdio::null()).output().map_err(SiteError::file("cannot run", noded))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let Some(line) = text.lines().find(|l| l.starts_with("NodeName=")).filter(|_| output.status.success()) else {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(SiteError::Other(format!("{} -C does not tell what the machine has: {said}", noded.display())));
    };
    let hardware = line.split_once(' ').map_or("", |(_, rest)| rest).to_owned();
    let user = crate::query::choices::user_name(nix::unistd::geteuid().as_raw());
    Ok(Machine { host: crate::submit::submitter::host_name(), user, hardware })
}

/// Node names of a configuration that somebody else wrote.
fn configured_nodes(home: &Home) -> Result<Vec<String>, SiteError> {
    super::check::node_names(&home.conf())
}

fn daemons(home: &Home, shape: Option<&Shape>, nodes: &[String]) -> Vec<Daemon> {
    let arguments = |role: &str, node: Option<&String>| {
        let mut words: Vec<OsString> = vec!["--role".into(), role.into(), "-f".into(), home.conf().into()];
        if let Some(node) = node {
            words.extend(["-N".into(), node.into()]);
        }
        words.extend(["--home".into(), home.root().into()]);
        words
    };
    let controller = || ("controller", "controller".to_owned(), "ctl.sock".to_owned());
    let node = |name: &String| ("node", name.clone(), format!("{name}.sock"));
    let log = |name: &str| home.logs().join(name);
    if let (Some(Shape { nodes: None, .. }), [only]) = (shape, nodes) {
        return vec![Daemon {
            name: "noded".to_owned(),
            roles: vec![controller(), node(only)],
            arguments: arguments("controller,node", Some(only)),
            log: log("slurmctld.log"),
        }];
    }
    let mut daemons = vec![Daemon {
        name: "controller".to_owned(),
        roles: vec![controller()],
        arguments: arguments("controller", None),
        log: log("slurmctld.log"),
    }];
    daemons.extend(nodes.iter().map(|name| Daemon {
        name: format!("node {name}"),
        roles: vec![node(name)],
        arguments: arguments("node", Some(name)),
        log: log(&format!("slurmd-{name}.log")),
    }));
    daemons
}

fn start_output(home: &Home, daemon: &Daemon) -> PathBuf {
    home.logs().join(format!("start-{}.out", daemon.name.replace(' ', "-")))
}

/// Starts a daemon; it puts itself in the background and its first process ends once it serves.
fn start(noded: &Path, daemon: &Daemon, home: &Home) -> Result<Child, SiteError> {
    let path = start_output(home, daemon);
    let out = File::create(&path).map_err(SiteError::file("cannot create", &path))?;
    let err = out.try_clone().map_err(SiteError::file("cannot use", &path))?;
    Command::new(noded)
        .args(&daemon.arguments)
        .env(garrick_model::env_vars::GARRICK_HOME, home.root())
        .env_remove(garrick_model::env_vars::SLURM_CONF)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .spawn()
        .map_err(SiteError::file("cannot run", noded))
}

/// Waits until it serves. Returns what it said.
fn finish_start(mut child: Child, daemon: &Daemon, home: &Home) -> Result<String, SiteError> {
    let path = start_output(home, daemon);
    let deadline = Instant::now() + START_LIMIT;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) if Instant::now() > deadline => {
                drop(child.kill());
                drop(child.wait());
                break Err(format!("it does not serve after {} s", START_LIMIT.as_secs()));
            }
            Ok(None) => thread::sleep(LOOK_AGAIN),
            Err(error) => break Err(error.to_string()),
        }
    };
    let said = fs::read_to_string(&path).unwrap_or_default();
    drop(fs::remove_file(&path));
    let why = match status {
        Ok(status) if status.success() => return Ok(said),
        Ok(status) => status.to_string(),
        Err(why) => why,
    };
    let log = format!("{}{}", indented(&said), log_tail(&daemon.log));
    Err(SiteError::Start { name: daemon.name.clone(), why, log })
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("\n  {line}")).collect()
}

/// The last lines of a log, under its name.
fn log_tail(path: &Path) -> String {
    const LINES: usize = 12;
    let Ok(text) = fs::read(path) else { return String::new() };
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines[lines.len().saturating_sub(LINES)..].join("\n");
    format!("\nthe end of {}:{}", path.display(), indented(&tail))
}

/// The list of what serves now.
fn serving_processes(
    home: &Home,
    cluster: &Cluster,
    shape: Option<&Shape>,
    nodes: &[String],
) -> Result<Vec<Process>, SiteError> {
    let conf = fs::read_to_string(home.conf()).map_err(SiteError::file("cannot read", &home.conf()))?;
    let mut list = Vec::new();
    for daemon in daemons(home, shape, nodes) {
        for (role, name, door) in &daemon.roles {
            let Some(pid) = doors::serving(cluster, door) else {
                let why = format!("nobody answers at its door {door}");
                return Err(SiteError::Start { name: daemon.name, why, log: log_tail(&daemon.log) });
            };
            list.push(Process {
                role: (*role).to_owned(),
                name: name.clone(),
                pid,
                start_ticks: processes::start_ticks(pid).unwrap_or(0),
                address: address(&conf, role, name),
            });
        }
    }
    Ok(list)
}

/// `127.0.0.1:PORT`, as the file that `up` wrote has it.
fn address(conf: &str, role: &str, name: &str) -> String {
    let port = |line: &str, key: &str| {
        line.split_whitespace().find_map(|w| w.strip_prefix(key)).map(|p| format!("127.0.0.1:{p}"))
    };
    let found = if role == "controller" {
        conf.lines().find_map(|line| port(line, "SlurmctldPort="))
    } else {
        let start = format!("NodeName={name} ");
        conf.lines().find(|line| line.starts_with(&start)).and_then(|line| port(line, "Port="))
    };
    found.unwrap_or_default()
}

/// Waits until each of these nodes has registered and, unless it is out of service, has its link. The controller may remember others that come on their own
/// (`slurmd -Z`).
fn wait_for_nodes(home: &Home, cluster: &Cluster, wanted: &[String]) -> Result<(), SiteError> {
    let deadline = Instant::now() + REGISTER_LIMIT;
    let mut daemon = cluster.connect("garrick")?;
    loop {
        let CommandReply::Nodes { nodes, .. } = daemon.ask(&CommandRequest::ListNodes)? else {
            return Err(SiteError::Cluster("the controller does not list its nodes".to_owned()));
        };
        let ready: HashSet<&str> = nodes
            .iter()
            .filter(|n| n.base != NodeBase::Unknown && n.registration.is_some())
            // A controller that starts again remembers that one registered; jobs go to those that it hears.
            .filter(|n| n.base != NodeBase::Up || !n.flags.not_responding)
            .map(|n| n.name.as_str())
            .collect();
        let waiting: Vec<&str> = wanted.iter().map(String::as_str).filter(|name| !ready.contains(name)).collect();
        if waiting.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            let name = format!("node {}", waiting.join(","));
            // Controller and node in one process have one log.
            let log = waiting.first().map(|n| {
                let own = home.logs().join(format!("slurmd-{n}.log"));
                log_tail(&if own.exists() { own } else { home.logs().join("slurmctld.log") })
            });
            let why = "it serves but has not registered with the controller".to_owned();
            return Err(SiteError::Start { name, why, log: log.unwrap_or_default() });
        }
        thread::sleep(LOOK_AGAIN);
    }
}
