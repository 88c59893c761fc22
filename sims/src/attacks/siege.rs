//! The controller under load from one user: 64 of that user's clients at full speed while another user works. The other user's
//! waiting times are compared with the idle cluster and with 64 processes that only burn CPU time, in the same run.
//!
//! The clients, like the processes that burn CPU time, only get CPU time that no other process wants: they represent other
//! machines, and should only use the controller's time. What the burning processes still cost the other user is the floor of the
//! figures.

use super::{
    Fallible,
    attacker::{self, BESIEGE, BURN, WORK},
    idle_group::IdleGroup,
    scene::{ALICE, BOB, CTL, N1, ROOT, Scene},
};
use garrick_frame::{DoorClient, Hello, LinkKind, encode, limits};
use garrick_model::messages::command::{CommandReply, CommandRequest};
use serde::{Deserialize, Serialize};
use std::{
    io::{self, Write},
    os::unix::net::UnixStream,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Clients of each kind; 64 in all.
const CLIENTS_OF_KIND: usize = 16;
/// Commands of hers that are timed in each phase, of each kind.
const SAMPLES: usize = 100;
/// A command may take so many times what it takes on the quiet cluster.
const GOAL: f64 = 3.0;
/// Longest that a client waits for one thing.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(5));

/// What a client does, over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Requests as fast as they are answered: lists of everything, and jobs tried against the plan.
    Flood,
    /// Requests of 12 MiB, a script of 15 MiB, frames that announce 4 GiB.
    Huge,
    /// Connections that end in the middle of their greeting.
    Half,
    /// A thousand requests, and not one answer read.
    Slow,
}

impl Kind {
    const ALL: [(Self, &str); 4] =
        [(Self::Flood, "flood"), (Self::Huge, "huge"), (Self::Half, "half"), (Self::Slow, "slow")];

    fn named(name: &str) -> Fallible<Self> {
        let kind = Self::ALL.into_iter().find(|(_, word)| *word == name).map(|(kind, _)| kind);
        kind.ok_or_else(|| format!("unknown kind of client: {name}").into())
    }
}

/// What one of her commands took, milliseconds, each time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Waits {
    squeue: Vec<f64>,
    sbatch: Vec<f64>,
}

/// What was seen in one phase.
struct Phase {
    name: &'static str,
    on_controller: Waits,
    over_node: Waits,
    requests: u64,
}

/// As [`super::run`] for this one: prints a table. True: the goal is reached and no node was lost.
pub fn run(scene: &Scene, out: &mut dyn Write) -> Fallible<bool> {
    let nodes = scene.nodes()?;
    let lost_before = links_lost(scene);
    let aside = IdleGroup::make().map_err(|e| format!("his clients cannot be set aside: {e}"))?;
    let phases = [
        phase(scene, &aside, "quiet", &[])?,
        phase(scene, &aside, "burn", &[BURN])?,
        phase(scene, &aside, "siege", &Kind::ALL.map(|(_, name)| name))?,
        phase(scene, &aside, "quiet again", &[])?,
    ];
    writeln!(
        out,
        "phase       | command             | median ms | p90 ms | ratio of medians to quiet | requests of his"
    )?;
    let mut good = true;
    for phase in &phases {
        for (command, of) in COMMANDS {
            let (waits, quiet) = (of(phase), [of(&phases[0]), of(&phases[3])].concat());
            let (median, p90) = (quantile(waits, 0.5), quantile(waits, 0.9));
            let ratio = median / quantile(&quiet, 0.5);
            good &= ratio < GOAL;
            let (name, requests) = (phase.name, phase.requests);
            writeln!(out, "{name:<11} | {command:<19} | {median:>9.1} | {p90:>6.1} | {ratio:>25.2} | {requests}")?;
        }
    }
    let (nodes_now, lost) = (scene.nodes()?, links_lost(scene) - lost_before);
    good &= nodes == nodes_now && lost == 0;
    writeln!(out, "nodes: {nodes_now}; links of nodes that were lost: {lost}")?;
    writeln!(out, "goal: each ratio below {GOAL}, no node and no link lost: {}", if good { "met" } else { "NOT MET" })?;
    Ok(good)
}

type Of = fn(&Phase) -> &[f64];
const COMMANDS: [(&str, Of); 4] = [
    ("squeue", |phase| &phase.on_controller.squeue),
    ("sbatch", |phase| &phase.on_controller.sbatch),
    ("squeue from a node", |phase| &phase.over_node.squeue),
    ("sbatch from a node", |phase| &phase.over_node.sbatch),
];

/// Of values in any order; 0 where there are none.
fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = (part * sorted.len().saturating_sub(1) as f64).round() as usize;
    sorted.get(index).copied().unwrap_or(0.0)
}

/// How often a node has lost the controller, as the nodes' logs say.
fn links_lost(scene: &Scene) -> usize {
    let nodes = N1..scene.site.daemons.len();
    nodes.map(|host| scene.log(host).matches("the link to the controller broke off").count()).sum()
}

fn phase(scene: &Scene, aside: &IdleGroup, name: &'static str, kinds: &[&str]) -> Fallible<Phase> {
    let door = scene.door(CTL)?.to_string_lossy().into_owned();
    let mut clients = Vec::new();
    for kind in kinds {
        let count = if *kind == BURN { Kind::ALL.len() * CLIENTS_OF_KIND } else { CLIENTS_OF_KIND };
        let words: &[&str] = if *kind == BURN { &[BURN] } else { &[BESIEGE, kind, &door] };
        for _ in 0..count {
            clients.push(scene.start_attacker(BOB, CTL, words)?);
        }
    }
    for client in &mut clients {
        attacker::first_line(client)?;
        aside.take(client.id())?;
    }
    let bin = scene.site.bin().to_string_lossy().into_owned();
    let works = |host| scene.attacker::<Waits>(ALICE, host, &[WORK, &bin, &scene.job], b"");
    let (on_controller, over_node) = (works(CTL)?, works(N1)?);
    // The counterpart: they have been at it to the end.
    for client in &mut clients {
        if let Some(status) = client.try_wait()? {
            return Err(format!("a client of his ended by itself: {status}").into());
        }
        drop(client.stdin.take());
    }
    let mut requests = 0;
    for client in clients {
        requests += attacker::rest(client)?.trim().parse::<u64>()?;
    }
    if !kinds.is_empty() && requests == 0 {
        return Err("his clients did nothing".into());
    }
    scene.run(ROOT, CTL, "scancel", &["-u", "games", "-n", "besieged"])?.ok("scancel")?;
    Ok(Phase { name, on_controller, over_node, requests })
}

/// Her work: commands, one after the other.
pub fn work(bin: &str, job: &str) -> Fallible<impl Serialize + use<>> {
    let mut waits = Waits::default();
    let timed = |program: &str, args: &[&str]| -> Fallible<f64> {
        let mut command = Command::new(Path::new(bin).join(program));
        let began = Instant::now();
        let output = command.args(args).stdin(Stdio::null()).output()?;
        let took = began.elapsed().as_secs_f64() * 1000.0;
        if output.status.success() { Ok(took) } else { Err(String::from_utf8_lossy(&output.stderr).into()) }
    };
    for _ in 0..SAMPLES {
        waits.squeue.push(timed("squeue", &["-h", "-j", job])?);
        waits.sbatch.push(timed("sbatch", &["-H", "-J", "besieged", "-o", "/dev/null", "--wrap", "true"])?);
    }
    Ok(waits)
}

/// A client of the attacker, until its input ends. Returns how much it did.
pub fn besiege(kind: &str, door: &str, ended: &Arc<AtomicBool>) -> Fallible<u64> {
    let (kind, door) = (Kind::named(kind)?, Path::new(door));
    println!("ready");
    let mut requests = 0;
    while !ended.load(Ordering::SeqCst) {
        // Being refused, and cut off, is part of it.
        let _ = match kind {
            Kind::Flood => flood(door, &mut requests),
            Kind::Huge => huge(door, &mut requests),
            Kind::Half => half(door, &mut requests),
            Kind::Slow => slow(door, &mut requests),
        };
    }
    Ok(requests)
}

/// Work of no use, until the input ends.
pub fn burn(ended: &Arc<AtomicBool>) -> Fallible<u64> {
    println!("ready");
    let mut rounds = 0;
    while !ended.load(Ordering::SeqCst) {
        rounds += 1;
        std::hint::black_box(rounds);
    }
    Ok(rounds)
}

fn connect(door: &Path) -> Result<DoorClient, io::Error> {
    DoorClient::connect(door, LinkKind::CommandToDaemon, "siege", PATIENCE).map_err(io::Error::other)
}

fn flood(door: &Path, requests: &mut u64) -> Fallible<()> {
    let test = super::user::spec("tried", "#!/bin/sh\n")?;
    let kinds = [
        CommandRequest::list_jobs(Vec::new()),
        CommandRequest::ListNodes,
        CommandRequest::TestJob { spec: Box::new(test) },
        CommandRequest::ShowConfig,
        CommandRequest::ListSteps { job: None, ended: true },
        CommandRequest::ListPriorities,
        CommandRequest::ListShares,
        CommandRequest::ShowAssociations,
        CommandRequest::Ping,
        CommandRequest::NameNodes(vec!["n[1-3]".to_owned()]),
    ];
    let mut client = connect(door)?;
    for request in kinds.iter().cycle().take(200) {
        client.send(request)?;
        client.recv::<CommandReply>()?;
        *requests += 1;
    }
    Ok(())
}

fn huge(door: &Path, requests: &mut u64) -> Fallible<()> {
    let names = CommandRequest::NameNodes(vec!["nobody-has-a-node-of-that-name".to_owned(); 400_000]);
    let script = super::user::spec("large", &format!("#!/bin/sh\n# {}\n", "x".repeat(15 << 20)))?;
    for request in [names, super::user::submission(script)] {
        let mut client = connect(door)?;
        *requests += 1;
        client.send(&request)?;
        let _ = client.recv::<CommandReply>();
    }
    *requests += 1;
    attacker::huge_frame(door).map(drop)
}

fn half(door: &Path, requests: &mut u64) -> Fallible<()> {
    let greeting = encode(&Hello::new(LinkKind::CommandToDaemon, "siege"), limits::HELLO)?;
    let mut held = Vec::new();
    for _ in 0..50 {
        let mut socket = UnixStream::connect(door)?;
        socket.write_all(&greeting[..greeting.len() / 2])?;
        held.push(socket);
        *requests += 1;
    }
    Ok(())
}

fn slow(door: &Path, requests: &mut u64) -> Fallible<()> {
    let mut client = connect(door)?;
    for _ in 0..1000 {
        client.send(&CommandRequest::ShowConfig)?;
        *requests += 1;
    }
    // He has them wait for him.
    std::thread::sleep(Duration::from_secs(1));
    Ok(())
}
