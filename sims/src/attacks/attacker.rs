//! This program as a process of an ordinary user: does what no command does, at doors and to other processes.

use super::{Fallible, siege};
use garrick_frame::{DoorClient, Hello, LinkKind, TunnelTo, encode, limits};
use garrick_model::messages::{
    command::{CommandReply, CommandRequest},
    step::{CommandToStepMgr, StepMgrToCommand},
    stepd::{NodeToStepd, StepdToNode},
};
use nix::{
    sys::ptrace,
    unistd::{Pid, getuid},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    collections::BTreeSet,
    fs,
    io::{ErrorKind, Read, Write, stdin, stdout},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

/// The word with which this program is told that it is an attacker's process.
pub const WORD: &str = "--attacker";
/// Requests at a daemon's door.
pub const ASK: &str = "ask";
/// Messages at a step manager's door.
pub const ASK_STEP_MANAGER: &str = "ask-step-manager";
/// Words of a `stepd` at a node's door.
pub const POSE_AS_STEPD: &str = "pose-as-stepd";
/// Connections that begin a greeting and do not end it.
pub const CROWD: &str = "crowd";
/// A frame that announces 4 GiB, and as much of it as is taken.
pub const HUGE_FRAME: &str = "huge-frame";
/// Sockets where doors are looked for.
pub const SQUAT: &str = "squat";
/// A relay to an address of the attacker's choice.
pub const TUNNEL: &str = "tunnel";
/// Launchers of the same user, traced and opened as soon as they are seen.
pub const TRACE: &str = "trace";

/// A client at full speed: of which kind, and at which door.
pub const BESIEGE: &str = "besiege";
/// A process that burns CPU time.
pub const BURN: &str = "burn";
/// Commands of the victim, timed.
pub const WORK: &str = "work";

/// No answer takes longer.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));

/// What came to sockets that stand where doors are looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caught {
    /// Connections.
    pub connections: u64,
    /// Bytes that were said over them.
    pub bytes: u64,
}

/// What came of tracing launchers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traced {
    /// Launchers seen.
    pub seen: usize,
    /// Attempts.
    pub attempts: u64,
    /// What worked, with its process.
    pub worked: Vec<String>,
    /// Its own child could be traced: the counterpart.
    pub own_child: bool,
}

/// Does what the words say, with what is on standard input.
pub fn act(words: &[&str]) -> Fallible<()> {
    match words {
        [ASK, door] => say(&converse::<CommandRequest, CommandReply>(Path::new(door), LinkKind::CommandToDaemon)?),
        [ASK_STEP_MANAGER, door] => {
            say(&converse::<CommandToStepMgr, StepMgrToCommand>(Path::new(door), LinkKind::CommandToStepMgr)?)
        }
        [POSE_AS_STEPD, door] => say(&converse::<StepdToNode, NodeToStepd>(Path::new(door), LinkKind::NodeStepd)?),
        [CROWD, door, count] => crowd(Path::new(door), count.parse()?),
        [HUGE_FRAME, door] => say(&huge_frame(Path::new(door))?),
        [SQUAT, places @ ..] => squat(places),
        [TUNNEL, door, address, node, job] => {
            let to = TunnelTo { address: (*address).to_owned(), node: (*node).to_owned(), job: job.parse()? };
            say(&tunnel(Path::new(door), to))
        }
        [TRACE] => trace(),
        [BESIEGE, kind, door] => say(&siege::besiege(kind, door, &told_to_end())?),
        [BURN] => say(&siege::burn(&told_to_end())?),
        [WORK, bin, job] => say(&siege::work(bin, job)?),
        _ => Err(format!("unknown attack: {words:?}").into()),
    }
}

fn say(found: &impl Serialize) -> Fallible<()> {
    let mut out = stdout().lock();
    serde_json::to_writer(&mut out, found)?;
    Ok(out.flush()?)
}

/// Waits until the attack is to end.
fn wait_for_end() -> Fallible<()> {
    stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn converse<Out, In>(door: &Path, link: LinkKind) -> Fallible<Vec<Result<In, String>>>
where
    Out: Serialize + DeserializeOwned,
    In: DeserializeOwned,
{
    let mut text = Vec::new();
    stdin().read_to_end(&mut text)?;
    let messages: Vec<Out> = serde_json::from_slice(&text)?;
    let mut client = DoorClient::connect(door, link, "attacker", PATIENCE)?;
    let mut answers = Vec::new();
    for message in messages {
        let answer = client.send(&message).and_then(|()| client.recv::<In>()).map_err(|e| e.to_string());
        if answer.is_err() {
            // Nothing is answered on a connection that has ended.
            client = DoorClient::connect(door, link, "attacker", PATIENCE)?;
        }
        answers.push(answer);
    }
    Ok(answers)
}

fn crowd(door: &Path, count: usize) -> Fallible<()> {
    let greeting = encode(&Hello::new(LinkKind::CommandToDaemon, "attacker"), limits::HELLO)?;
    let half = &greeting[..greeting.len() / 2];
    let mut held = Vec::new();
    for _ in 0..count {
        // The daemon may close as many as it likes.
        if let Ok(mut socket) = UnixStream::connect(door)
            && socket.write_all(half).is_ok()
        {
            held.push(socket);
        }
    }
    println!("{}", held.len());
    wait_for_end()
}

/// Most of it that is sent.
const HUGE: usize = 64 << 20;

pub(super) fn huge_frame(door: &Path) -> Fallible<usize> {
    let mut socket = UnixStream::connect(door)?;
    socket.set_write_timeout(PATIENCE)?;
    socket.write_all(&encode(&Hello::new(LinkKind::CommandToDaemon, "attacker"), limits::HELLO)?)?;
    socket.write_all(&u32::MAX.to_be_bytes())?;
    let (piece, mut sent) = (vec![0; 64 << 10], 0);
    while sent < HUGE {
        match socket.write(&piece) {
            Ok(bytes) => sent += bytes,
            Err(_) => break,
        }
    }
    Ok(sent)
}

fn squat(places: &[&str]) -> Fallible<()> {
    let (connections, bytes) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut planted = 0;
    for place in places {
        let place = Path::new(place);
        let folder = place.parent().ok_or("no folder")?;
        // Somebody else's is there: that place cannot be had.
        let Ok(listener) = fs::create_dir_all(folder).and_then(|()| UnixListener::bind(place)) else { continue };
        planted += 1;
        let (connections, bytes) = (Arc::clone(&connections), Arc::clone(&bytes));
        std::thread::spawn(move || {
            for mut socket in listener.incoming().flatten() {
                connections.fetch_add(1, Ordering::SeqCst);
                let mut buffer = [0; 4096];
                let read = socket.read(&mut buffer).unwrap_or(0);
                bytes.fetch_add(read as u64, Ordering::SeqCst);
            }
        });
    }
    println!("{planted}");
    wait_for_end()?;
    say(&Caught { connections: connections.load(Ordering::SeqCst), bytes: bytes.load(Ordering::SeqCst) })
}

fn tunnel(door: &Path, to: TunnelTo) -> String {
    let client = DoorClient::connect_tunnel(door, LinkKind::CommandToStepMgr, "attacker", PATIENCE, to);
    let asked = client
        .and_then(|mut client| client.send(&CommandToStepMgr::List).and_then(|()| client.recv::<StepMgrToCommand>()));
    match asked {
        Ok(answer) => format!("{answer:?}"),
        Err(e) => e.to_string(),
    }
}

/// Launchers and what becomes one: processes of this user that execute what `stepd` is.
fn launchers() -> Vec<i32> {
    let mine = |pid: &i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next()?.parse().ok());
        uid == Some(getuid().as_raw())
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
    pids.filter(|pid| is_launcher(*pid)).filter(mine).collect()
}

/// Whether a process still is a launcher, or what becomes a task and is none yet.
fn is_launcher(pid: i32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| words.starts_with(b"stepd\0"))
}

/// Tries to list a launcher's descriptors, to open its memory and to trace it. What worked while it still was one: the task
/// that it may have become is the attacker's own.
fn open_up(pid: i32) -> Vec<String> {
    type Way = fn(i32) -> bool;
    let ways: [(&str, Way); 3] = [
        ("its descriptors were listed", |pid| fs::read_dir(format!("/proc/{pid}/fd")).is_ok()),
        ("its memory was opened", |pid| {
            fs::File::open(format!("/proc/{pid}/mem")).is_ok_and(
                |mut memory| !matches!(memory.read(&mut [0; 8]), Err(e) if e.kind() == ErrorKind::PermissionDenied),
            )
        }),
        ("it was traced", |pid| ptrace::seize(Pid::from_raw(pid), ptrace::Options::empty()).is_ok()),
    ];
    // What is traced is let go when the thread that traces it ends. A parent does not hear of a traced child's end before.
    let tried = std::thread::spawn(move || {
        ways.into_iter()
            .filter(|(_, way)| way(pid) && is_launcher(pid))
            .map(|(what, _)| format!("launcher {pid}: {what}"))
            .collect()
    });
    tried.join().unwrap_or_else(|_| vec!["the thread that traces panicked".to_owned()])
}

/// Becomes true when the attack is to end.
fn told_to_end() -> Arc<AtomicBool> {
    let ended = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&ended);
    std::thread::spawn(move || {
        // An error is an end too.
        let _ = wait_for_end();
        told.store(true, Ordering::SeqCst);
    });
    ended
}

fn trace() -> Fallible<()> {
    let ended = told_to_end();
    let mut found = Traced { own_child: trace_own_child()?, ..Traced::default() };
    let (mut seen, mut worked) = (BTreeSet::new(), BTreeSet::new());
    println!("ready");
    while !ended.load(Ordering::SeqCst) {
        for pid in launchers() {
            seen.insert(pid);
            found.attempts += 1;
            for what in open_up(pid) {
                worked.insert(what);
            }
        }
    }
    found.seen = seen.len();
    found.worked = worked.into_iter().collect();
    say(&found)
}

fn trace_own_child() -> Fallible<bool> {
    let mut child = Command::new("sleep").arg("100").stdin(Stdio::null()).spawn()?;
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    let listed = fs::read_dir(format!("/proc/{pid}/fd")).is_ok();
    let traced = ptrace::seize(pid, ptrace::Options::empty()).is_ok();
    child.kill()?;
    child.wait()?;
    Ok(listed && traced)
}

/// Reads the line that an attacker's process says first.
pub(super) fn first_line(child: &mut Child) -> Fallible<String> {
    let out = child.stdout.as_mut().ok_or("no standard output")?;
    let mut line = Vec::new();
    loop {
        let mut byte = [0];
        if out.read(&mut byte)? == 0 || byte[0] == b'\n' {
            break;
        }
        line.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&line).trim().to_owned())
}

/// Ends an attacker's process and reads the rest of what it says.
pub(super) fn rest(mut child: Child) -> Fallible<String> {
    drop(child.stdin.take());
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned().into())
}
