//! The switch between network namespaces: datagrams of every size arrive as they were sent, and no sooner than they may.
//! Needs root.

#![allow(clippy::unwrap_used, missing_docs)]

use garrick_sims::minibatch::delay_switch::DelaySwitch;
use nix::sched::{CloneFlags, setns};
use std::{
    fs::File,
    net::UdpSocket,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

const DELAY: Duration = Duration::from_millis(20);

fn ip(line: &str) -> bool {
    Command::new("ip")
        .args(line.split_whitespace())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

struct Namespaces(String);

impl Namespaces {
    fn make() -> Option<Self> {
        let all = Self(format!("gd{}", std::process::id() % 1_000_000));
        let switch = format!("{}-s", all.0);
        let mut made = ip(&format!("netns add {switch}"));
        for (port, host) in ["a", "b"].iter().enumerate() {
            let ns = format!("{}-{host}", all.0);
            for line in [
                format!("netns add {ns}"),
                format!("-n {ns} link add eth0 type veth peer name p{port} netns {switch}"),
                format!("-n {ns} link set eth0 gso_max_segs 1"),
                format!("-n {ns} addr add 10.79.0.{}/24 dev eth0", port + 1),
                format!("-n {ns} link set eth0 up"),
                format!("-n {switch} link set p{port} up"),
            ] {
                made &= ip(&line);
            }
        }
        made.then_some(all)
    }

    /// A socket that belongs to one of the hosts. Made by a thread of its own, which is in that namespace from then on.
    fn socket(&self, host: &str, address: &str) -> UdpSocket {
        let (path, address) = (format!("/run/netns/{}-{host}", self.0), address.to_owned());
        std::thread::spawn(move || {
            setns(File::open(path).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
            UdpSocket::bind(address).unwrap()
        })
        .join()
        .unwrap()
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for host in ["a", "b", "s"] {
            ip(&format!("netns del {}-{host}", self.0));
        }
    }
}

#[test]
fn datagrams_of_every_size_arrive_whole_and_not_before_the_delay() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root and network namespaces");
        return;
    }
    let Some(hosts) = Namespaces::make() else {
        eprintln!("skipped: no network namespaces here");
        return;
    };
    let switch = DelaySwitch::start(&format!("{}-s", hosts.0), &["p0".to_owned(), "p1".to_owned()], DELAY).unwrap();
    let (a, b) = (hosts.socket("a", "10.79.0.1:5000"), hosts.socket("b", "10.79.0.2:5000"));
    for socket in [&a, &b] {
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    }
    // One byte, just below and above what fits a frame, and a datagram of many fragments.
    for size in [1, 1472, 1473, 40_000] {
        let sent: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
        let (mut there, mut back) = (vec![0; 65_536], vec![0; 65_536]);
        let began = Instant::now();
        a.send_to(&sent, "10.79.0.2:5000").unwrap();
        let (length, from) = b.recv_from(&mut there).unwrap();
        b.send_to(&there[..length], from).unwrap();
        let (length, _) = a.recv_from(&mut back).unwrap();
        assert!(back[..length] == sent[..], "{size} bytes came back as {length} or changed");
        assert!(began.elapsed() >= 2 * DELAY, "{size} bytes were there and back in {:?}", began.elapsed());
    }
    let (frames, _, dropped) = switch.traffic().counts();
    assert!(frames >= 2 * 4 && dropped == 0, "{frames} frames, {dropped} dropped");
}
