#![allow(clippy::unwrap_used)]
use super::*;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{Shutdown, shutdown};
use nix::unistd::{pipe, read, write};
use std::os::fd::AsFd;

const LIMIT: usize = 1 << 20;

/// A pipe whose write end says `text`; the read end is what travels.
fn saying(text: &str) -> OwnedFd {
    let (out, into) = pipe().unwrap();
    write(&into, text.as_bytes()).unwrap();
    out
}

fn said(fd: &OwnedFd) -> String {
    let mut buffer = [0; 64];
    let count = read(fd, &mut buffer).unwrap();
    String::from_utf8(buffer[..count].to_vec()).unwrap()
}

#[test]
fn descriptors_arrive_with_their_own_frame_among_others() {
    let (mut a, mut b) = FdChannel::pair(LIMIT).unwrap();
    let (one, two, three) = (saying("one"), saying("two"), saying("three"));
    a.send("before", &[]).unwrap();
    a.send("first", &[one.as_fd()]).unwrap();
    a.send("between", &[]).unwrap();
    a.send("second", &[two.as_fd(), three.as_fd()]).unwrap();
    a.send("after", &[]).unwrap();
    drop((one, two, three));
    let mut seen = Vec::new();
    while let Some((text, fds)) = b.try_recv::<String>().unwrap() {
        seen.push((text, fds.iter().map(said).collect::<Vec<_>>()));
    }
    let expected: Vec<(String, Vec<String>)> =
        [("before", &[][..]), ("first", &["one"]), ("between", &[]), ("second", &["two", "three"]), ("after", &[])]
            .iter()
            .map(|(text, fds)| ((*text).to_owned(), fds.iter().map(|fd| (*fd).to_owned()).collect()))
            .collect();
    assert_eq!(seen, expected);
}

#[test]
fn received_descriptors_are_close_on_exec() {
    let (mut a, mut b) = FdChannel::pair(LIMIT).unwrap();
    a.send(&1u8, &[saying("x").as_fd()]).unwrap();
    let (_, fds) = b.recv::<u8>().unwrap();
    let flags = FdFlag::from_bits_retain(fcntl(&fds[0], FcntlArg::F_GETFD).unwrap());
    assert!(flags.contains(FdFlag::FD_CLOEXEC));
}

#[test]
fn a_message_larger_than_the_socket_passes_in_parts_with_its_descriptor() {
    let (mut a, mut b) = FdChannel::pair(8 << 20).unwrap();
    let big = "x".repeat(3 << 20);
    let fd = saying("big");
    a.try_send(&big, &[fd.as_fd()]).unwrap();
    assert!(a.wants_write());
    assert!(matches!(a.try_send("no room", &[]), Err(FdError::WouldBlock)));
    let mut got = None;
    while got.is_none() {
        got = b.try_recv::<String>().unwrap();
        a.flush().unwrap();
    }
    let (text, fds) = got.unwrap();
    assert_eq!(text.len(), big.len());
    assert_eq!(said(&fds[0]), "big");
    assert!(!a.wants_write());
    a.send("small", &[]).unwrap();
    assert_eq!(b.recv::<String>().unwrap().0, "small");
}

#[test]
fn blocking_ends_work_between_threads() {
    let (mut a, mut b) = FdChannel::pair(8 << 20).unwrap();
    let thread = std::thread::spawn(move || {
        for _ in 0..20 {
            let (text, fds) = b.recv::<String>().unwrap();
            b.send(&(text.len(), said(&fds[0])), &[]).unwrap();
        }
        assert!(matches!(b.recv::<String>(), Err(FdError::Closed)));
    });
    for turn in 0..20usize {
        a.send(&"y".repeat(turn * 50_000), &[saying(&turn.to_string()).as_fd()]).unwrap();
        assert_eq!(a.recv::<(usize, String)>().unwrap().0, (turn * 50_000, turn.to_string()));
    }
    drop(a);
    thread.join().unwrap();
}

#[test]
fn single_calls_and_channels_speak_the_same_frames() {
    let (a, b) = FdChannel::pair(LIMIT).unwrap();
    let (a, mut b) = (a.into_fd(), b);
    send_with_fds(a.as_fd(), "there", &[saying("x").as_fd()], LIMIT).unwrap();
    let (text, fds) = b.recv::<String>().unwrap();
    assert_eq!((text.as_str(), said(&fds[0]).as_str()), ("there", "x"));
    b.send("back", &[saying("y").as_fd()]).unwrap();
    b.send("again", &[]).unwrap();
    let (text, fds) = recv_with_fds::<String>(a.as_fd(), LIMIT).unwrap();
    assert_eq!((text.as_str(), said(&fds[0]).as_str()), ("back", "y"));
    assert_eq!(recv_with_fds::<String>(a.as_fd(), LIMIT).unwrap().0, "again");
    drop(b);
    assert!(matches!(recv_with_fds::<String>(a.as_fd(), LIMIT), Err(FdError::Closed)));
}

#[test]
fn too_many_descriptors_are_refused_before_sending() {
    let (mut a, _b) = FdChannel::pair(LIMIT).unwrap();
    let fd = saying("x");
    let many = vec![fd.as_fd(); MAX_FDS + 1];
    assert!(matches!(a.send("x", &many), Err(FdError::TooManyFds { count: 33 })));
}

#[test]
fn a_lying_peer_is_an_error_of_its_own() {
    let fd = saying("x");
    // Announces one, sends none.
    let (a, mut b) = FdChannel::pair(LIMIT).unwrap();
    write(&a.socket, &[0, 0, 0, 1, 1, 7]).unwrap();
    assert!(matches!(b.try_recv::<u8>(), Err(FdError::FdMismatch { announced: 1, arrived: 0 })));
    // Sends one, announces none.
    let (a, mut b) = FdChannel::pair(LIMIT).unwrap();
    send_part(a.as_fd(), &[0, 0, 0, 1, 0, 7], &[fd.as_fd()]).unwrap();
    assert!(matches!(b.try_recv::<u8>(), Err(FdError::FdMismatch { announced: 0, arrived: 1 })));
    // Announces more than allowed.
    let (a, mut b) = FdChannel::pair(LIMIT).unwrap();
    write(&a.socket, &[0, 0, 0, 1, 200, 7]).unwrap();
    assert!(matches!(b.try_recv::<u8>(), Err(FdError::TooManyFds { count: 200 })));
    // Says four gibibytes.
    let (a, mut b) = FdChannel::pair(LIMIT).unwrap();
    write(&a.socket, &[0xff, 0xff, 0xff, 0xff, 0]).unwrap();
    assert!(matches!(b.try_recv::<u8>(), Err(FdError::Frame(FrameError::TooLarge { .. }))));
    // Stops in the middle.
    let (a, mut b) = FdChannel::pair(LIMIT).unwrap();
    write(&a.socket, &[0, 0, 0, 9, 0, 1, 2]).unwrap();
    shutdown(a.as_raw_fd(), Shutdown::Write).unwrap();
    assert!(matches!(b.recv::<u8>(), Err(FdError::Frame(FrameError::Truncated { have: 7, want: 14 }))));
}

#[test]
fn unannounced_descriptors_cannot_pile_up() {
    let (a, mut b) = FdChannel::pair(LIMIT).unwrap();
    let fd = saying("x");
    send_part(a.as_fd(), &[0, 0, 0, 200, 0], &[fd.as_fd(); 30]).unwrap();
    for _ in 0..4 {
        send_part(a.as_fd(), &[1], &[fd.as_fd(); 30]).unwrap();
    }
    assert!(matches!(b.try_recv::<u8>(), Err(FdError::FdMismatch { .. })));
}

#[test]
fn queued_messages_leave_together_and_in_order_with_those_that_carry_descriptors() {
    let (mut a, mut b) = FdChannel::pair(LIMIT).unwrap();
    let fd = saying("x");
    for text in ["one", "two"] {
        a.queue(text).unwrap();
    }
    assert!(b.try_recv::<String>().unwrap().is_none(), "nothing leaves by itself");
    assert!(a.queued_bytes() > 0);
    a.try_send("three", &[fd.as_fd()]).unwrap();
    a.queue("four").unwrap();
    assert!(a.flush().unwrap());
    assert_eq!(a.queued_bytes(), 0);
    let mut next = || b.try_recv::<String>().unwrap().map(|(text, fds)| (text, fds.len()));
    let seen: Vec<_> = std::iter::from_fn(&mut next).collect();
    let expected = [("one", 0), ("two", 0), ("three", 1), ("four", 0)].map(|(t, n)| (t.to_owned(), n));
    assert_eq!(seen, expected);
    assert!(a.queue(&vec![0_u8; LIMIT + 1]).is_err());
    assert_eq!(a.queued_bytes(), 0, "what is too large leaves nothing behind");
}

#[test]
fn frames_that_are_here_are_known_without_asking_the_socket() {
    let (mut a, mut b) = FdChannel::pair(LIMIT).unwrap();
    assert!(!b.has_frame());
    for text in ["one", "two"] {
        a.queue(text).unwrap();
    }
    a.flush().unwrap();
    b.try_recv::<String>().unwrap();
    assert!(b.has_frame());
    b.try_recv::<String>().unwrap();
    assert!(!b.has_frame());
}

#[test]
fn long_rows_of_large_frames_come_through_a_small_socket() {
    let (mut a, mut b) = FdChannel::pair(LIMIT).unwrap();
    let large = |n: u32| vec![n; 30_000];
    for n in 0..40 {
        a.queue(&large(n)).unwrap();
    }
    let mut next = 0;
    while next < 40 {
        let done = a.flush().unwrap();
        while let Some((message, _)) = b.try_recv::<Vec<u32>>().unwrap() {
            assert_eq!(message, large(next));
            next += 1;
        }
        assert!(!done || next == 40);
    }
}
