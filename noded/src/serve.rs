//! The life of a `noded`: configuration, background, log, roles, end.

use crate::{
    accounts::{self, start::RunningAccounts},
    controller,
    daemon::{
        options::{Action, Options, Roles},
        place::Cluster,
        slurm_user,
    },
    node::{self, joining, start::own_node},
};
use garrick_daemon::{
    logging,
    signals::{Meaning, Signals},
    versions::versions,
};
use garrick_kernel::{
    daemonise::{self, PidFile, Readiness, Side},
    inventory::{self, Machine},
    rlimits, users,
};
use garrick_model::{
    config::{self, Config, locate, slurmdbd::DbdConfig},
    gres,
    node_shape::NodeShape,
    resources::CpuSet,
};
use garrick_runtime::{System, SystemConfig};
use std::{
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};
use tokio::sync::watch;

fn say(text: &str) {
    // A closed output has nobody to complain to.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn complain(program: &str, text: &str) {
    let _ = writeln!(std::io::stderr(), "{program}: {text}");
}

/// Runs the daemon's command.
pub fn main(program: &str, mut options: Options) -> ExitCode {
    match options.action {
        Action::ShowVersion => {
            say(&versions());
            return ExitCode::SUCCESS;
        }
        Action::ShowHelp => {
            say(&crate::daemon::options::help(program));
            return ExitCode::SUCCESS;
        }
        Action::ShowHardware => return show_hardware(program),
        Action::ShowCompleted => return show_completed(program, &options),
        Action::Init | Action::Serve | Action::ShowGres => {}
    }
    let accounting = match accounting_settings(program, &mut options) {
        Ok(settings) => settings,
        Err(text) => {
            complain(program, &text);
            return ExitCode::FAILURE;
        }
    };
    let config = match read_config(program, &options) {
        Ok(config) => config,
        Err(text) => {
            complain(program, &text);
            return ExitCode::FAILURE;
        }
    };
    let config = match joined(config, &mut options) {
        Ok(config) => config,
        Err(text) => {
            complain(program, &text);
            return ExitCode::FAILURE;
        }
    };
    let home = options.home.clone().or_else(|| embedded_home(&config));
    if let Err(why) = slurm_user::become_it(&config, &options, home.as_deref(), accounting.as_ref()) {
        complain(program, &why);
        return ExitCode::FAILURE;
    }
    let log = options.log_file.clone();
    let log = log.or_else(|| accounting.as_ref()?.log_file.clone().filter(|_| !options.foreground));
    let cluster = Cluster::new(config, home, options.verbose, log, options.foreground);
    if options.action == Action::ShowGres {
        return show_gres(program, &cluster, &options);
    }
    if options.action == Action::Init {
        return match controller::start::init(&cluster) {
            Ok(text) => {
                say(&text);
                ExitCode::SUCCESS
            }
            Err(e) => {
                complain(program, &e.to_string());
                ExitCode::FAILURE
            }
        };
    }
    if options.foreground {
        return finish(program, run(&cluster, &options, accounting, None));
    }
    match daemonise::into_background() {
        Ok(Side::Command(Ok(()))) => ExitCode::SUCCESS,
        Ok(Side::Command(Err(why))) => {
            complain(program, &why);
            ExitCode::FAILURE
        }
        // What kept it from starting was said by the other side.
        Ok(Side::Daemon(readiness)) => match run(&cluster, &options, accounting, Some(readiness)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                tracing::error!("{why}");
                ExitCode::FAILURE
            }
        },
        Err(e) => {
            complain(program, &e.to_string());
            ExitCode::FAILURE
        }
    }
}

fn finish(program: &str, outcome: Result<(), String>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            tracing::error!("{why}");
            complain(program, &why);
            ExitCode::FAILURE
        }
    }
}

/// As the user who asks: whoever may read the settings may read the table, as with Slurm's sacct.
fn show_completed(program: &str, options: &Options) -> ExitCode {
    let shown = read_config(program, options).and_then(|config| {
        let mut out = std::io::BufWriter::new(std::io::stdout().lock());
        controller::completion::recorded::show(&config.completion, &mut out).map_err(|error| error.to_string())
    });
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            complain(program, &why);
            ExitCode::FAILURE
        }
    }
}

fn show_hardware(program: &str) -> ExitCode {
    let machine = match Machine::read(Path::new("/"), Path::new("/tmp")) {
        Ok(m) => m,
        Err(e) => {
            complain(program, &e.to_string());
            return ExitCode::FAILURE;
        }
    };
    let mut text = inventory::node_line(&machine.hostname, &machine.shape);
    let gpus = inventory::nvidia_gpus(Path::new("/")).len();
    if gpus > 0 {
        text.push_str(&format!(" Gres=gpu:{gpus}"));
    }
    text.push('\n');
    if let Ok(up) = inventory::uptime(Path::new("/")) {
        text.push_str(&inventory::uptime_line(up));
        text.push('\n');
    }
    say(&text);
    ExitCode::SUCCESS
}

/// `-G`: a line for each device, and for what is only counted; device files that are not there are errors.
fn show_gres(program: &str, cluster: &Cluster, options: &Options) -> ExitCode {
    let node = match own_node(cluster, options.node_name.as_deref()) {
        Ok(node) => node,
        Err(e) => {
            complain(program, &e.to_string());
            return ExitCode::FAILURE;
        }
    };
    let devices = cluster.config.gres.devices(node, &inventory::nvidia_gpus(Path::new("/")));
    let entries = &node.settings.shape.gres;
    let mut missing = false;
    for (place, entry) in entries.iter().enumerate() {
        let kind = entry.kind.as_ref().map(|kind| format!(" Type={kind}")).unwrap_or_default();
        let first = gres::first_device(entries, place);
        let numbers = first..first + entry.count;
        let own: Vec<_> =
            devices.iter().filter(|d| d.name == entry.name && numbers.contains(&d.number.into())).collect();
        if own.is_empty() {
            say(&format!("Gres Name={}{kind} Count={}\n", entry.name, entry.count));
        }
        for device in own {
            let files: Vec<String> = device.files.iter().map(|file| file.display().to_string()).collect();
            let line =
                format!("Gres Name={}{kind} Count=1 Index={} File={}", device.name, device.number, files.join(","));
            let at = device.number.checked_sub(u32::try_from(first).unwrap_or(u32::MAX)).map(|at| at as usize);
            let place = at.and_then(|at| entry.places.get(at));
            let line = line + &place.map(|place| place_text(&node.settings.shape, place)).unwrap_or_default();
            say(&format!("{line}\n"));
            for file in device.files.iter().filter(|file| !file.exists()) {
                complain(
                    program,
                    &format!("{} is not there: the node has fewer {} than configured", file.display(), device.name),
                );
                missing = true;
            }
        }
    }
    if missing { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// ` Cores=0-3 Links=-1,4`, of which nothing where nothing is known.
fn place_text(shape: &NodeShape, place: &gres::DevicePlace) -> String {
    let mut text = String::new();
    if !place.cpus.is_empty() {
        let cores: CpuSet = place.cpus.iter().map(|cpu| shape.core_of_cpu(cpu)).collect();
        text.push_str(&format!(" Cores={cores}"));
    }
    if !place.links.is_empty() {
        let links: Vec<String> = place.links.iter().map(ToString::to_string).collect();
        text.push_str(&format!(" Links={}", links.join(",")));
    }
    text
}

/// `-Z`: the configuration with this node in it; the options then have its name and all that is said of it.
fn joined(config: Config, options: &mut Options) -> Result<Config, String> {
    if !options.dynamic {
        return Ok(config);
    }
    let machine = Machine::read(Path::new("/"), Path::new("/tmp")).map_err(|e| e.to_string())?;
    let name = options.node_name.get_or_insert_with(|| inventory::short_hostname(&machine.hostname));
    let gpus = inventory::nvidia_gpus(Path::new("/")).len();
    let written = options.parameters.as_deref().unwrap_or_default();
    let line = joining::line(&config, name, written, &machine.shape, gpus)?;
    let config = joining::with_node(&config, name, &line)?;
    options.parameters = Some(line);
    Ok(config)
}

/// The configuration file: the one that was named, else the first candidate that exists.
fn read_config(program: &str, options: &Options) -> Result<Config, String> {
    let exe = std::env::current_exe().ok();
    let env = |name: &str| std::env::var_os(name);
    let candidates = locate::conf_path(options.conf.as_deref(), &env, exe.as_deref());
    let found = candidates.iter().find(|c| c.path.exists()).or_else(|| candidates.first());
    let path: PathBuf =
        found.map(|c| c.path.clone()).ok_or("no configuration file is named and none is in a usual place")?;
    let path = std::path::absolute(&path).unwrap_or(path);
    let (config, mut report) = config::read_reporting(&path);
    if options.roles != Roles::Node {
        report.check_groups(users::knows_group);
    }
    // Who asks for records of jobs did not write the file.
    for warning in report.warnings().filter(|_| options.action != Action::ShowCompleted) {
        complain(program, &warning.to_string());
    }
    match config {
        Some(config) if !report.has_errors() => Ok(config),
        _ => {
            let mut text = format!("{} cannot be used:", path.display());
            for e in report.errors() {
                text.push_str(&format!("\n  {e}"));
            }
            Err(text)
        }
    }
}

/// A configuration at `HOME/etc/slurm.conf` with `GARRICK_HOME=HOME` set belongs to that embedded cluster.
fn embedded_home(config: &Config) -> Option<PathBuf> {
    let home = PathBuf::from(std::env::var_os("GARRICK_HOME")?);
    let inside = config.path == home.join("etc/slurm.conf")
        || std::fs::canonicalize(&config.path).ok() == std::fs::canonicalize(home.join("etc/slurm.conf")).ok();
    inside.then_some(home)
}

/// For the role of accounting, `slurmdbd.conf`; `slurm.conf` is the one beside it.
fn accounting_settings(program: &str, options: &mut Options) -> Result<Option<DbdConfig>, String> {
    if options.roles != Roles::Accounting {
        return Ok(None);
    }
    let (settings, warnings) = accounts::program::read(options)?;
    warnings.iter().for_each(|warning| complain(program, warning));
    options.conf = Some(settings.path.with_file_name("slurm.conf"));
    Ok(Some(settings))
}

fn run(
    cluster: &Cluster,
    options: &Options,
    accounting: Option<DbdConfig>,
    readiness: Option<Readiness>,
) -> Result<(), String> {
    let node_only = options.roles == Roles::Node;
    let node = match options.roles {
        Roles::Controller | Roles::Accounting => None,
        _ => match own_node(cluster, options.node_name.as_deref()) {
            Ok(node) => Some(node.clone()),
            Err(e) => return Err(give_up(readiness, &e.to_string())),
        },
    };
    let daemon = if node_only { node.as_ref().map(|n| n.name.as_str()) } else { None };
    let log = if accounting.is_some() { cluster.log.clone() } else { cluster.log_file(daemon) };
    let settings = logging::Settings {
        file: log.clone(),
        scheduler: cluster.scheduler_log().filter(|_| accounting.is_none() && options.roles != Roles::Node),
        follows_file: false,
        levels: match &accounting {
            Some(settings) => accounts::live::levels_of(settings, cluster),
            None => cluster.log_levels_of(&cluster.config, daemon),
        },
        name: match options.roles {
            Roles::Node => "slurmd",
            Roles::Accounting => "slurmdbd",
            Roles::Controller | Roles::Both => "slurmctld",
        }
        .to_owned(),
    };
    if let Err(e) = logging::start(&settings) {
        return Err(give_up(readiness, &e.to_string()));
    }
    match rlimits::raise_open_files() {
        Ok(most) => tracing::debug!(most, "open files of this daemon"),
        Err(e) => tracing::warn!(error = %e, "the limit of open files stays as it is"),
    }
    garrick_transport::install_crypto_provider();
    let pid_path = match &accounting {
        Some(settings) => settings.pid_file.clone(),
        None => cluster.pid_file(if node_only { node.as_ref() } else { None }),
    };
    if let Some(folder) = pid_path.parent() {
        let _ = std::fs::create_dir_all(folder);
    }
    let _pid_file = match PidFile::create(&pid_path) {
        Ok(file) => file,
        Err(e) => return Err(give_up(readiness, &e.to_string())),
    };
    let served = System::run(SystemConfig::default(), async |system| {
        let outcome = serve(cluster, options, accounting, &system, (readiness, log.as_deref())).await;
        system.shutdown(Duration::from_secs(5)).await;
        outcome
    });
    served.map_err(|e| format!("the actors failed: {}", e.reason))?
}

fn give_up(readiness: Option<Readiness>, why: &str) -> String {
    if let Some(readiness) = readiness {
        readiness.failed(why);
    }
    why.to_owned()
}

async fn serve(
    cluster: &Cluster,
    options: &Options,
    accounting: Option<DbdConfig>,
    system: &System,
    (readiness, log): (Option<Readiness>, Option<&Path>),
) -> Result<(), String> {
    let mut signals = match Signals::catch() {
        Ok(signals) => signals,
        Err(e) => return Err(give_up(readiness, &e.to_string())),
    };
    let (exit, mut exits) = watch::channel(false);
    let started = tokio::select! {
        started = start_roles(cluster, options, accounting, system, &exit) => started,
        () = until_end(&mut signals) => Err("it was told to end before it served".to_owned()),
    };
    let (controller, node, accounts) = match started {
        Ok(roles) => roles,
        Err(why) => return Err(give_up(readiness, &why)),
    };
    if let Some(readiness) = readiness {
        readiness.ready(log).map_err(|e| e.to_string())?;
    }
    let node_name = node.as_ref().filter(|_| controller.is_none()).map(|node| node.name.as_str());
    loop {
        tokio::select! {
            meaning = signals.next() => match (meaning, &controller) {
                (Meaning::End, _) => break,
                (meaning @ (Meaning::Reconfigure | Meaning::ReopenLog), _) if accounts.is_some() => {
                    logging::reopen();
                    let again = accounts.as_ref().filter(|_| meaning == Meaning::Reconfigure);
                    if let Some(Err(why)) = again.map(|accounts| accounts.settings.read_again()) {
                        tracing::error!("the settings were not changed: {why}");
                    }
                }
                (Meaning::Reconfigure, Some(c)) => {
                    logging::reopen();
                    c.reconfigure();
                }
                (Meaning::Reconfigure, None) => {
                    renew_log(cluster, node_name);
                    if let Some(node) = &node {
                        node.read_scripts_again();
                    }
                    tracing::info!("SIGHUP: {OWN_SETTINGS}");
                }
                (Meaning::ReopenLog, _) => renew_log(cluster, node_name),
                (Meaning::Nothing | Meaning::Kernel, _) => {}
            },
            changed = exits.changed() => if changed.is_err() || *exits.borrow() { break },
        }
    }
    tracing::info!("shutting down");
    if let Some(node) = &node {
        node.end_embedded(cluster).await;
    }
    if let Some(controller) = controller {
        controller.end().await;
    }
    Ok(())
}

/// What a node's daemon reads again while it serves, and what it does not.
const OWN_SETTINGS: &str =
    "this node's own settings apply from its next start, but for those of its log and the site's programs";

/// Until a signal asks for the end.
async fn until_end(signals: &mut Signals) {
    loop {
        match signals.next().await {
            Meaning::End => return,
            Meaning::Reconfigure | Meaning::ReopenLog => logging::reopen(),
            Meaning::Nothing | Meaning::Kernel => {}
        }
    }
}

/// Opens the log anew, and reads again how much goes there. `node`: of that node's daemon, else of the controller.
fn renew_log(cluster: &Cluster, node: Option<&str>) {
    logging::reopen();
    match config::read_reporting(&cluster.config.path) {
        (Some(config), report) if !report.has_errors() => {
            logging::set_levels(&cluster.log_levels_of(&config, node));
            tracing::info!("the log was opened anew");
        }
        _ => tracing::error!(
            "{} cannot be used: the log was opened anew, at the level that it had",
            cluster.config.path.display()
        ),
    }
}

type Started =
    (Option<controller::start::RunningController>, Option<node::start::RunningNode>, Option<RunningAccounts>);

async fn start_roles(
    cluster: &Cluster,
    options: &Options,
    accounting: Option<DbdConfig>,
    system: &System,
    exit: &watch::Sender<bool>,
) -> Result<Started, String> {
    if let Some(settings) = accounting {
        let accounts = accounts::start::start(cluster, settings).await.map_err(|e| e.to_string())?;
        return Ok((None, None, Some(accounts)));
    }
    let mut controller = None;
    if options.roles != Roles::Node {
        let started =
            controller::start::start(cluster, options, system, exit.clone()).await.map_err(|e| e.to_string())?;
        controller = Some(started);
    }
    if options.roles == Roles::Controller {
        return Ok((controller, None, None));
    }
    let (of_node, name) = (cluster.clone(), options.roles == Roles::Node);
    let own = own_node(cluster, options.node_name.as_deref()).map(|node| node.name.clone()).ok().filter(|_| name);
    let reconfigure = Arc::new(move || {
        if let Some(node) = &own {
            renew_log(&of_node, Some(node));
        }
        tracing::info!("the controller changed its configuration; {OWN_SETTINGS}")
    });
    // In one process both flags of -c mean the same: begin anew.
    let node = node::start::start(cluster, options, controller.is_some(), system, exit.clone(), reconfigure)
        .await
        .map_err(|e| e.to_string())?;
    Ok((controller, Some(node), None))
}
