//! A switch between network namespaces that keeps every frame for a while: what `tc qdisc add ... netem delay` would do, for
//! kernels that were built without it. It reads and writes Ethernet frames on the switch's ends of the hosts' cables.
//!
//! Two things are different from a real cable. Frames may be longer than the hosts' kernels would send, since virtual cables
//! leave cutting up to the receiver, so hosts have to be set up to cut themselves (`gso_max_segs 1`). And checksums are not
//! filled in by the sender's kernel, which counts on a card to do so; for UDP over IPv4, all that Garrick sends, this switch
//! marks them as not used (RFC 768: zero).

use nix::{
    errno::Errno,
    ifaddrs::getifaddrs,
    poll::{PollFd, PollFlags, ppoll},
    sched::{CloneFlags, setns},
    sys::{
        socket::{self, AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType},
        time::TimeSpec,
    },
};
use std::{
    collections::{HashMap, VecDeque},
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Longest Ethernet frame there can be with the kernel's largest unit of segmentation.
const FRAME_BYTES: usize = 65_600;
/// Frames on their way; more are dropped, as a real switch would.
const MOST_UNDER_WAY: usize = 100_000;
/// How often the end is looked for.
const IDLE: Duration = Duration::from_millis(100);

/// Counters of a switch.
#[derive(Debug, Default)]
pub struct Traffic {
    frames: AtomicU64,
    bytes: AtomicU64,
    dropped: AtomicU64,
}

impl Traffic {
    /// Frames passed on, their bytes, and frames dropped for lack of room or because a port did not take them.
    pub fn counts(&self) -> (u64, u64, u64) {
        (self.frames.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed), self.dropped.load(Ordering::Relaxed))
    }
}

/// A running switch. Ends when dropped.
#[derive(Debug)]
pub struct DelaySwitch {
    stop: Arc<AtomicBool>,
    traffic: Arc<Traffic>,
    thread: Option<JoinHandle<()>>,
}

impl DelaySwitch {
    /// Joins `ports`, interfaces in the namespace with this name, each frame `delay` later than it came.
    pub fn start(namespace: &str, ports: &[String], delay: Duration) -> io::Result<Self> {
        let (stop, traffic) = (Arc::new(AtomicBool::new(false)), Arc::new(Traffic::default()));
        let (path, names) = (Path::new("/run/netns").join(namespace), ports.to_vec());
        let (ready, made) = std::sync::mpsc::channel();
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&traffic));
        let thread = std::thread::spawn(move || {
            // Sockets belong to the namespace in which they are made, and a thread can be in one of its own.
            match open_ports(&path, &names) {
                Ok(ports) => {
                    let _ = ready.send(Ok(()));
                    Switch { ports, delay, traffic: counted, known: HashMap::new(), under_way: VecDeque::new() }
                        .run(&stopped);
                }
                Err(e) => {
                    let _ = ready.send(Err(e));
                }
            }
        });
        made.recv().map_err(io::Error::other)??;
        Ok(Self { stop, traffic, thread: Some(thread) })
    }

    /// What passed.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }
}

impl Drop for DelaySwitch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn open_ports(namespace: &Path, names: &[String]) -> io::Result<Vec<OwnedFd>> {
    setns(File::open(namespace)?, CloneFlags::CLONE_NEWNET)?;
    let links: Vec<(String, LinkAddr)> =
        getifaddrs()?.filter_map(|i| Some((i.interface_name, *i.address.as_ref()?.as_link_addr()?))).collect();
    names
        .iter()
        .map(|name| {
            let missing = || io::Error::new(io::ErrorKind::NotFound, format!("no interface {name}"));
            let (_, address) = links.iter().find(|(n, _)| n == name).ok_or_else(missing)?;
            let port = socket::socket(
                AddressFamily::Packet,
                SockType::Raw,
                SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC,
                SockProtocol::EthAll,
            )?;
            socket::setsockopt(&port, socket::sockopt::RcvBuf, &(16 << 20))?;
            socket::bind(port.as_raw_fd(), address)?;
            Ok(port)
        })
        .collect()
}

struct Frame {
    due: Instant,
    from: usize,
    bytes: Vec<u8>,
}

struct Switch {
    ports: Vec<OwnedFd>,
    delay: Duration,
    traffic: Arc<Traffic>,
    /// Which port an Ethernet address was last seen behind.
    known: HashMap<[u8; 6], usize>,
    /// All are kept equally long, so the first to come is the first to go.
    under_way: VecDeque<Frame>,
}

impl Switch {
    fn run(mut self, stop: &AtomicBool) {
        let mut buffer = vec![0; FRAME_BYTES];
        while !stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            while let Some(frame) = self.under_way.pop_front_if(|f| f.due <= now) {
                self.deliver(&frame);
            }
            let wait = self.under_way.front().map_or(IDLE, |f| f.due.saturating_duration_since(Instant::now()));
            let readable: Vec<bool> = {
                let mut fds: Vec<PollFd<'_>> =
                    self.ports.iter().map(|p| PollFd::new(p.as_fd(), PollFlags::POLLIN)).collect();
                match ppoll(&mut fds, Some(TimeSpec::from(wait)), None) {
                    Ok(_) | Err(Errno::EINTR) => {}
                    // The namespace is gone, and the hosts with it.
                    Err(_) => return,
                }
                fds.iter().map(|f| f.any().unwrap_or(false)).collect()
            };
            for (port, _) in readable.iter().enumerate().filter(|(_, r)| **r) {
                self.read(port, &mut buffer);
            }
        }
    }

    fn read(&mut self, port: usize, buffer: &mut [u8]) {
        loop {
            let Some(fd) = self.ports.get(port) else { return };
            let length = match socket::recv(fd.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(length) => length,
                Err(_) => return,
            };
            let Some(bytes) = buffer.get(..length).filter(|b| b.len() >= 14) else { continue };
            let mut bytes = bytes.to_vec();
            if let Ok(source) = <[u8; 6]>::try_from(&bytes[6..12]) {
                self.known.insert(source, port);
            }
            without_checksum(&mut bytes);
            if self.under_way.len() >= MOST_UNDER_WAY {
                self.traffic.dropped.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            self.under_way.push_back(Frame { due: Instant::now() + self.delay, from: port, bytes });
        }
    }

    fn deliver(&self, frame: &Frame) {
        let target = <[u8; 6]>::try_from(&frame.bytes[..6]).ok().and_then(|to| self.known.get(&to).copied());
        for (at, port) in self.ports.iter().enumerate() {
            if at == frame.from || target.is_some_and(|t| t != at) {
                continue;
            }
            match socket::send(port.as_raw_fd(), &frame.bytes, MsgFlags::empty()) {
                Ok(_) => {
                    self.traffic.frames.fetch_add(1, Ordering::Relaxed);
                    self.traffic.bytes.fetch_add(frame.bytes.len() as u64, Ordering::Relaxed);
                }
                Err(_) => {
                    self.traffic.dropped.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}

/// Marks the checksum of a UDP datagram over IPv4 as not used. Anything else stays as it is.
fn without_checksum(frame: &mut [u8]) {
    const IPV4: [u8; 2] = [0x08, 0x00];
    const UDP: u8 = 17;
    let Some(header) = frame.get(14..34) else { return };
    if frame[12..14] != IPV4 || header[9] != UDP {
        return;
    }
    // A later fragment has no UDP header.
    if u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0 {
        return;
    }
    let udp = 14 + usize::from(header[0] & 0x0f) * 4;
    if let Some(checksum) = frame.get_mut(udp + 6..udp + 8) {
        checksum.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(protocol: u8, fragment: u16) -> Vec<u8> {
        let mut frame = vec![0xee; 14 + 20 + 8 + 4];
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        frame[14] = 0x45;
        frame[20..22].copy_from_slice(&fragment.to_be_bytes());
        frame[23] = protocol;
        frame
    }

    #[test]
    fn the_checksum_of_udp_is_marked_as_not_used() {
        let mut udp = frame(17, 0);
        without_checksum(&mut udp);
        let mut expected = frame(17, 0);
        expected[40..42].fill(0);
        assert_eq!(udp, expected);
    }

    #[test]
    fn other_frames_stay_as_they_are() {
        for original in [frame(6, 0), frame(17, 1), vec![0xee; 60], vec![0xee; 14]] {
            let mut kept = original.clone();
            without_checksum(&mut kept);
            assert_eq!(kept, original);
        }
    }
}
