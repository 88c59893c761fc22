//! Ended processes, reported by the kernel (taskstats over generic netlink; root): their identity, how long they lived, and the
//! CPU time that they used, to the microsecond. `/proc` only has hundredths of a second, and only for processes that are read in
//! time.

use nix::{
    errno::Errno,
    sys::{
        socket::{
            AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, setsockopt,
            socket, sockopt,
        },
        time::TimeVal,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A thread that ended. A process of one thread is one of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Its number.
    pub tid: u32,
    /// The process that it was a child of, or was last given to.
    pub parent: u32,
    /// Its name, of at most 15 bytes.
    pub name: String,
    /// CPU time, user mode and kernel.
    pub cpu: Duration,
    /// When it began, since the epoch.
    pub began: Duration,
    /// When it ended, since the epoch: when this program was told.
    pub ended: Duration,
}

/// Why nothing can be heard.
#[derive(Debug, thiserror::Error)]
pub enum ExitsError {
    /// A call on the socket.
    #[error("{operation} on the netlink socket: {cause}")]
    Call {
        /// Which.
        operation: &'static str,
        /// Why.
        #[source]
        cause: Errno,
    },
    /// The kernel has no taskstats, or does not let this user have them.
    #[error("the kernel tells nobody here how processes end (taskstats): {0}")]
    Unavailable(io::Error),
    /// Ends came faster than they were read.
    #[error("some ends of processes were not told: too many at a time")]
    Lost,
    /// The listening thread.
    #[error("the listening thread panicked")]
    Thread,
}

/// Netlink and generic netlink, as `linux/netlink.h`, `linux/genetlink.h` and `linux/taskstats.h` have them.
mod wire {
    pub const NLMSG_ERROR: u16 = 2;
    pub const NLM_F_REQUEST: u16 = 1;
    pub const NLM_F_ACK: u16 = 4;
    pub const GENL_ID_CTRL: u16 = 0x10;
    pub const CTRL_CMD_GETFAMILY: u8 = 3;
    pub const CTRL_ATTR_FAMILY_ID: u16 = 1;
    pub const CTRL_ATTR_FAMILY_NAME: u16 = 2;
    pub const TASKSTATS_CMD_GET: u8 = 1;
    pub const TASKSTATS_CMD_ATTR_REGISTER_CPUMASK: u16 = 3;
    pub const TASKSTATS_TYPE_STATS: u16 = 3;
    pub const TASKSTATS_TYPE_AGGR_PID: u16 = 4;
    /// Length of the headers before the attributes of a message: `nlmsghdr` and `genlmsghdr`.
    pub const HEADERS: usize = 20;
    /// Fields of `struct taskstats`, by their place.
    pub const COMM: usize = 80;
    pub const PID: usize = 128;
    pub const PPID: usize = 132;
    pub const ETIME: usize = 144;
    pub const UTIME: usize = 152;
    pub const STIME: usize = 160;
}

/// Listens until it is asked for what it heard.
#[derive(Debug)]
pub struct Exits {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<Exit>, ExitsError>>,
}

impl Exits {
    /// Begins to listen on all CPUs.
    pub fn listen() -> Result<Self, ExitsError> {
        let call = |operation| move |cause| ExitsError::Call { operation, cause };
        let socket =
            socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkGeneric)
                .map_err(call("socket"))?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0)).map_err(call("bind"))?;
        setsockopt(&socket, sockopt::RcvBufForce, &(16 << 20)).map_err(call("SO_RCVBUFFORCE"))?;
        // So that the thread looks now and then whether it is to stop.
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(0, 100_000)).map_err(call("SO_RCVTIMEO"))?;
        let asked = ask(
            &socket,
            wire::GENL_ID_CTRL,
            wire::CTRL_CMD_GETFAMILY,
            wire::CTRL_ATTR_FAMILY_NAME,
            b"TASKSTATS\0",
            false,
        )?;
        let family = attributes(asked.get(wire::HEADERS..).unwrap_or_default())
            .find(|(kind, _)| *kind == wire::CTRL_ATTR_FAMILY_ID)
            .and_then(|(_, value)| Some(u16::from_ne_bytes(value.get(..2)?.try_into().ok()?)))
            .ok_or_else(|| ExitsError::Unavailable(io::ErrorKind::NotFound.into()))?;
        let cpus = std::fs::read_to_string("/sys/devices/system/cpu/possible").map_err(ExitsError::Unavailable)?;
        let mask = [cpus.trim().as_bytes(), b"\0"].concat();
        ask(&socket, family, wire::TASKSTATS_CMD_GET, wire::TASKSTATS_CMD_ATTR_REGISTER_CPUMASK, &mask, true)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        Ok(Self { stop, thread: std::thread::spawn(move || hear(&socket, family, &stopped)) })
    }

    /// Stops, and gives back what ended since the beginning, in that order.
    pub fn stop(self) -> Result<Vec<Exit>, ExitsError> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| ExitsError::Thread)?
    }
}

/// Sends one request and reads its answer, or its acknowledgement.
fn ask(
    socket: &OwnedFd,
    family: u16,
    command: u8,
    attribute: u16,
    value: &[u8],
    acknowledge: bool,
) -> Result<Vec<u8>, ExitsError> {
    let call = |operation| move |cause| ExitsError::Call { operation, cause };
    let padded = value.len().next_multiple_of(4);
    let length = wire::HEADERS + 4 + padded;
    let mut message = Vec::with_capacity(length);
    message.extend_from_slice(&(length as u32).to_ne_bytes());
    message.extend_from_slice(&family.to_ne_bytes());
    let flags = wire::NLM_F_REQUEST | if acknowledge { wire::NLM_F_ACK } else { 0 };
    message.extend_from_slice(&flags.to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(&[command, 1, 0, 0]);
    message.extend_from_slice(&((4 + value.len()) as u16).to_ne_bytes());
    message.extend_from_slice(&attribute.to_ne_bytes());
    message.extend_from_slice(value);
    message.resize(length, 0);
    send(socket.as_raw_fd(), &message, MsgFlags::empty()).map_err(call("send"))?;
    let mut answer = vec![0; 8192];
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty()).map_err(call("recv"))?;
    answer.truncate(length);
    let word = |at: usize| answer.get(at..at + 4).and_then(|b| Some(i32::from_ne_bytes(b.try_into().ok()?)));
    let is_error = answer.get(4..6) == Some(&wire::NLMSG_ERROR.to_ne_bytes());
    match word(16) {
        Some(code) if is_error && code != 0 => Err(ExitsError::Unavailable(io::Error::from_raw_os_error(-code))),
        _ => Ok(answer),
    }
}

fn hear(socket: &OwnedFd, family: u16, stop: &AtomicBool) -> Result<Vec<Exit>, ExitsError> {
    let (mut heard, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        // Once it is to stop it reads what is there already: on a busy machine there is always more to wait for.
        let stops = stop.load(Ordering::Relaxed);
        let flags = if stops { MsgFlags::MSG_DONTWAIT } else { MsgFlags::empty() };
        let length = match recv(socket.as_fd().as_raw_fd(), &mut buffer, flags) {
            Ok(length) => length,
            Err(Errno::EAGAIN) if stops => return Ok(heard),
            Err(Errno::EAGAIN | Errno::EINTR) => continue,
            Err(Errno::ENOBUFS) => return Err(ExitsError::Lost),
            Err(cause) => return Err(ExitsError::Call { operation: "recv", cause }),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut rest = &buffer[..length];
        while let Some(size) = rest.get(..4).and_then(|b| Some(u32::from_ne_bytes(b.try_into().ok()?) as usize)) {
            let Some(message) = rest.get(..size).filter(|m| m.len() >= wire::HEADERS) else { break };
            if message[4..6] == family.to_ne_bytes() {
                heard.extend(exits(&message[wire::HEADERS..], now));
            }
            rest = rest.get(size.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// The threads that a message tells of. Those of a whole process are left out: their threads were told one by one.
fn exits(message: &[u8], now: Duration) -> impl Iterator<Item = Exit> + '_ {
    attributes(message)
        .filter(|(kind, _)| *kind == wire::TASKSTATS_TYPE_AGGR_PID)
        .flat_map(|(_, nested)| attributes(nested))
        .filter(|(kind, _)| *kind == wire::TASKSTATS_TYPE_STATS)
        .filter_map(move |(_, stats)| exit(stats, now))
}

fn exit(stats: &[u8], now: Duration) -> Option<Exit> {
    let short = |at: usize| Some(u32::from_ne_bytes(stats.get(at..at + 4)?.try_into().ok()?));
    let micros = |at: usize| Some(Duration::from_micros(u64::from_ne_bytes(stats.get(at..at + 8)?.try_into().ok()?)));
    let name = stats.get(wire::COMM..wire::COMM + 32)?.split(|b| *b == 0).next()?;
    Some(Exit {
        tid: short(wire::PID)?,
        parent: short(wire::PPID)?,
        name: String::from_utf8_lossy(name).into_owned(),
        cpu: micros(wire::UTIME)? + micros(wire::STIME)?,
        began: now.saturating_sub(micros(wire::ETIME)?),
        ended: now,
    })
}

/// Kind and value of each attribute.
fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(rest.get(..2)?.try_into().ok()?));
        // The two highest bits say how the value is kept.
        let kind = u16::from_ne_bytes(rest.get(2..4)?.try_into().ok()?) & 0x3fff;
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// What the processes of jobs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A node daemon's child.
    Stepd,
    /// A step daemon's child.
    Launcher,
    /// What a launcher starts, and all below it.
    Script,
}

/// Ends told apart by whose children they were, all the way up to one of `nodes`. Others' are left out.
pub fn by_kind(exits: &[Exit], nodes: &[u32]) -> BTreeMap<Kind, Vec<Exit>> {
    let mut found: BTreeMap<Kind, Vec<Exit>> = BTreeMap::new();
    let (mut kind, mut parents) = (Kind::Stepd, nodes.iter().copied().collect::<BTreeSet<u32>>());
    loop {
        let children: Vec<Exit> = exits.iter().filter(|e| parents.contains(&e.parent)).cloned().collect();
        if children.is_empty() {
            return found;
        }
        parents = children.iter().map(|e| e.tid).collect();
        found.entry(kind).or_default().extend(children);
        kind = if kind == Kind::Stepd { Kind::Launcher } else { Kind::Script };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn ended(tid: u32, parent: u32, cpu: u64) -> Exit {
        let (cpu, began, ended) = (Duration::from_micros(cpu), Duration::from_secs(1), Duration::from_secs(2));
        Exit { tid, parent, name: "p".into(), cpu, began, ended }
    }

    #[test]
    fn processes_are_told_apart_by_their_parents() {
        // Node daemon 1 has stepd 10, with launcher 11 below it, and its task 12 with a child of its own; 90 is another's.
        let all = [ended(13, 12, 1), ended(12, 11, 2), ended(11, 10, 4), ended(10, 1, 8), ended(91, 90, 16)];
        let found = by_kind(&all, &[1]);
        let cpu = |kind| found[&kind].iter().map(|e| e.cpu.as_micros()).sum::<u128>();
        assert_eq!((cpu(Kind::Stepd), cpu(Kind::Launcher), cpu(Kind::Script)), (8, 4, 3));
    }

    #[test]
    fn an_end_is_read_from_the_kernels_message() {
        let mut stats = vec![0_u8; 328];
        stats[wire::COMM..wire::COMM + 4].copy_from_slice(b"true");
        stats[wire::PID..wire::PID + 4].copy_from_slice(&7_u32.to_ne_bytes());
        stats[wire::PPID..wire::PPID + 4].copy_from_slice(&3_u32.to_ne_bytes());
        for (at, micros) in [(wire::ETIME, 5000_u64), (wire::UTIME, 200), (wire::STIME, 300)] {
            stats[at..at + 8].copy_from_slice(&micros.to_ne_bytes());
        }
        let attribute = |kind: u16, value: &[u8]| {
            let length = (4 + value.len()) as u16;
            [&length.to_ne_bytes()[..], &kind.to_ne_bytes()[..], value].concat()
        };
        let nested = [attribute(1, &7_u32.to_ne_bytes()), attribute(wire::TASKSTATS_TYPE_STATS, &stats)].concat();
        let message = attribute(wire::TASKSTATS_TYPE_AGGR_PID, &nested);
        let now = Duration::from_secs(9);
        let found: Vec<Exit> = exits(&message, now).collect();
        let expected = Exit {
            tid: 7,
            parent: 3,
            name: "true".into(),
            cpu: Duration::from_micros(500),
            began: now - Duration::from_millis(5),
            ended: now,
        };
        assert_eq!(found, [expected]);
        // Half a message is none.
        assert_eq!(exits(&message[..100], now).count(), 0);
    }

    #[test]
    fn children_of_this_process_are_heard_when_they_end() {
        let exits = match Exits::listen() {
            Ok(exits) => exits,
            Err(ExitsError::Unavailable(e)) if e.kind() == io::ErrorKind::PermissionDenied => {
                eprintln!("skipped: children_of_this_process_are_heard_when_they_end needs root");
                return;
            }
            Err(e) => panic!("{e}"),
        };
        let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        let heard = exits.stop().unwrap();
        let own = heard.iter().find(|e| e.tid == pid).expect("its end is told before it can be waited for");
        assert_eq!(own.name, "true");
        assert!(own.began <= own.ended && own.parent == std::process::id());
    }
}
