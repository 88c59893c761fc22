#![allow(clippy::unwrap_used)]
use super::*;
use crate::{codec::encode, hello::PROTOCOL};
use std::{
    io::{Read, Write},
    os::unix::net::UnixListener,
};

/// The daemon's end, by hand: reads greeting and first message, answers as told.
fn greeted(server: &mut UnixStream) -> (Hello, Traced<String>) {
    let mut decoder = Decoder::new(limits::DOOR);
    let mut hello = None;
    loop {
        if hello.is_none() {
            hello = decoder.next::<Hello>().unwrap();
        }
        if hello.is_some()
            && let Some(msg) = decoder.next().unwrap()
        {
            return (hello.unwrap(), msg);
        }
        assert!(decoder.fill(|space| server.read(space)).unwrap() > 0);
    }
}

fn welcome() -> Vec<u8> {
    encode(&HelloReply::Welcome { version: 1, program: "test".into() }, 1000).unwrap()
}

#[test]
fn greeting_and_request_arrive_in_one_write() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut client = DoorClient::over(ours, LinkKind::CommandToDaemon, "squeue 0.1").unwrap();
    client.set_trace(42);
    client.send("which jobs?").unwrap();
    let mut once = [0; 4096];
    let count = theirs.read(&mut once).unwrap();
    let mut decoder = Decoder::new(4096);
    decoder.feed(&once[..count]);
    let hello: Hello = decoder.next().unwrap().unwrap();
    assert_eq!((hello.link, hello.versions), (LinkKind::CommandToDaemon, PROTOCOL));
    let msg: Traced<String> = decoder.next().unwrap().unwrap();
    assert_eq!(msg, Traced { trace: 42, cause: 0, msg: "which jobs?".into() });
}

#[test]
fn answers_come_in_order_and_a_close_between_frames_is_its_own_error() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut client = DoorClient::over(ours, LinkKind::CommandToDaemon, "t").unwrap();
    client.send("q").unwrap();
    assert_eq!(client.try_next::<String>().unwrap(), None, "nothing is here yet");
    greeted(&mut theirs);
    let mut answer = welcome();
    for text in ["one", "two"] {
        encode_into(&Traced::untraced(text), 100, &mut answer).unwrap();
    }
    theirs.write_all(&answer).unwrap();
    drop(theirs);
    assert_eq!(client.try_next::<String>().unwrap().unwrap(), "one");
    assert_eq!(client.recv::<String>().unwrap(), "two");
    assert!(matches!(client.recv::<String>(), Err(DoorError::Closed { .. })));
}

#[test]
fn close_inside_a_frame_is_a_truncated_frame() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut client = DoorClient::over(ours, LinkKind::CommandToDaemon, "t").unwrap();
    client.send("q").unwrap();
    greeted(&mut theirs);
    let mut answer = welcome();
    encode_into(&Traced::untraced("long answer"), 100, &mut answer).unwrap();
    theirs.write_all(&answer[..answer.len() - 3]).unwrap();
    drop(theirs);
    let error = client.recv::<String>().unwrap_err();
    assert!(matches!(error, DoorError::Frame { source: FrameError::Truncated { .. }, .. }), "{error}");
}

#[test]
fn refusal_is_told_with_the_daemons_words_and_versions() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut client = DoorClient::over(ours, LinkKind::CommandToDaemon, "t").unwrap();
    let versions = VersionRange { min: 4, max: 6 };
    let refused = HelloReply::Refused { reason: "too old".into(), versions };
    theirs.write_all(&encode(&refused, 1000).unwrap()).unwrap();
    drop(theirs);
    // The daemon is gone before the request is written: the broken pipe must not hide its words.
    let error = client.send("q").unwrap_err();
    assert!(matches!(&error, DoorError::Refused { reason, versions: v, .. } if reason == "too old" && *v == versions));
}

#[test]
fn garbage_from_the_daemon_is_an_error_not_a_panic() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut client = DoorClient::over(ours, LinkKind::CommandToDaemon, "t").unwrap();
    client.send("q").unwrap();
    theirs.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    let error = client.recv::<String>().unwrap_err();
    assert!(matches!(error, DoorError::Frame { source: FrameError::TooLarge { .. }, .. }), "{error}");
}

#[test]
fn silence_ends_at_the_time_limit_and_a_late_answer_still_counts() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut client = DoorClient::over(ours, LinkKind::CommandToDaemon, "t").unwrap();
    client.set_timeout(Some(Duration::from_millis(5))).unwrap();
    client.send("q").unwrap();
    let mut answer = welcome();
    encode_into(&Traced::untraced("late"), 100, &mut answer).unwrap();
    theirs.write_all(&answer[..20]).unwrap();
    assert!(matches!(client.recv::<String>(), Err(DoorError::Timeout { .. })));
    theirs.write_all(&answer[20..]).unwrap();
    assert_eq!(client.recv::<String>().unwrap(), "late");
}

#[test]
fn a_full_socket_can_be_fed_from_a_poll_loop() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut client = DoorClient::over(ours, LinkKind::CommandToStepMgr, "srun").unwrap();
    let big = "x".repeat(2 << 20);
    client.enqueue(&big).unwrap();
    assert!(!client.try_flush().unwrap(), "two mebibytes do not fit into a socket");
    assert!(client.wants_write());
    let reader = std::thread::spawn(move || greeted(&mut theirs).1.msg.len());
    while client.wants_write() {
        let mut fds = [nix::poll::PollFd::new(client.as_fd(), nix::poll::PollFlags::POLLOUT)];
        nix::poll::poll(&mut fds, nix::poll::PollTimeout::NONE).unwrap();
        client.try_flush().unwrap();
    }
    assert_eq!(reader.join().unwrap(), 2 << 20);
}

/// What one receive brings: bytes and descriptors.
fn received(server: &UnixStream) -> (Vec<u8>, std::collections::VecDeque<OwnedFd>) {
    let (mut bytes, mut fds) = (vec![0; 64 << 10], std::collections::VecDeque::new());
    let got = crate::rights::recv_beside(server.as_fd(), &mut bytes, 253, &mut fds).unwrap().unwrap();
    assert!(!got.lost);
    bytes.truncate(got.bytes);
    (bytes, fds)
}

#[test]
fn descriptors_leave_with_the_greeting_or_alone_but_never_beside_another_message() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut client = DoorClient::over(ours, LinkKind::CommandToStepMgr, "srun").unwrap();
    let (_out, into) = nix::unistd::pipe().unwrap();
    client.send_with_fds("first", &[into.as_fd(), into.as_fd()]).unwrap();
    let (bytes, fds) = received(&theirs);
    let mut decoder = Decoder::new(4096);
    decoder.feed(&bytes);
    assert!(decoder.next::<Hello>().unwrap().is_some());
    let first: crate::hello::Accompanied<String> = decoder.next().unwrap().unwrap();
    assert_eq!((first.msg.as_str(), first.fds, fds.len()), ("first", 2, 2));

    client.enqueue("before").unwrap();
    client.send_with_fds("second", &[into.as_fd()]).unwrap();
    client.send("after").unwrap();
    let (bytes, fds) = received(&theirs);
    decoder.feed(&bytes);
    assert_eq!(decoder.next::<Traced<String>>().unwrap().unwrap().msg, "before");
    // The two may come in one read, which ends with what brought the descriptor.
    let (bytes, fds) = if decoder.is_ready() { (Vec::new(), fds) } else { received(&theirs) };
    decoder.feed(&bytes);
    let second: crate::hello::Accompanied<String> = decoder.next().unwrap().unwrap();
    assert_eq!((second.msg.as_str(), second.fds, fds.len()), ("second", 1, 1));
    assert!(decoder.buffered().is_empty());
    assert!(received(&theirs).1.is_empty());
}

#[test]
fn too_many_descriptors_leave_nothing_of_their_message() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut client = DoorClient::over(ours, LinkKind::CommandToStepMgr, "srun").unwrap();
    let (_out, into) = nix::unistd::pipe().unwrap();
    let error = client.send_with_fds("many", &[into.as_fd(); MAX_DOOR_FDS + 1]).unwrap_err();
    assert!(matches!(error, DoorError::Descriptors { .. }), "{error}");
    client.send("without").unwrap();
    assert_eq!(greeted(&mut theirs).1.msg, "without");
}

#[test]
fn a_daemon_that_reads_slowly_gets_the_rest_after_the_time_limit() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut client = DoorClient::over(ours, LinkKind::CommandToStepMgr, "srun").unwrap();
    client.set_timeout(Some(Duration::from_millis(5))).unwrap();
    let (mut out, into) = UnixStream::pair().unwrap();
    let big = "x".repeat(2 << 20);
    let error = client.send_with_fds(&big, &[into.as_fd()]).unwrap_err();
    assert!(matches!(error, DoorError::Timeout { .. }), "{error}");
    drop(into);
    let (start, mut fds) = received(&theirs);
    UnixStream::from(fds.pop_front().unwrap()).write_all(b"theirs").unwrap();
    assert!(fds.is_empty());
    let mut decoder = Decoder::new(limits::DOOR);
    decoder.feed(&start);
    assert!(decoder.next::<Hello>().unwrap().is_some());
    let reader = std::thread::spawn(move || {
        while !decoder.is_ready() {
            assert!(decoder.fill(|space| theirs.read(space)).unwrap() > 0);
        }
        decoder.next::<Traced<String>>().unwrap().unwrap().msg.len()
    });
    client.set_timeout(None).unwrap();
    while client.wants_write() {
        client.writer.flush().unwrap();
    }
    assert_eq!(reader.join().unwrap(), 2 << 20);
    let mut said = String::new();
    out.read_to_string(&mut said).unwrap();
    assert_eq!(said, "theirs");
}

#[test]
fn halves_work_from_two_threads() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let client = DoorClient::over(ours, LinkKind::CommandToStepMgr, "srun").unwrap();
    let (mut reader, mut writer) = client.split();
    let thread = std::thread::spawn(move || reader.recv::<String>().unwrap());
    writer.send("q").unwrap();
    let (_, msg) = greeted(&mut theirs);
    let mut answer = welcome();
    encode_into(&msg, 100, &mut answer).unwrap();
    theirs.write_all(&answer).unwrap();
    assert_eq!(thread.join().unwrap(), "q");
    writer.finish().unwrap();
    assert_eq!(theirs.read(&mut [0; 10]).unwrap(), 0);
}

#[test]
fn absent_doors_and_long_paths_are_told_apart() {
    let folder = std::env::temp_dir().join(format!("garrick-door-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let connect = |path: &Path| DoorClient::connect(path, LinkKind::CommandToDaemon, "t", Some(Duration::from_secs(5)));
    assert!(connect(&folder.join("none.sock")).unwrap_err().is_absent());
    let stale = folder.join("stale.sock");
    drop(UnixListener::bind(&stale).unwrap());
    assert!(connect(&stale).unwrap_err().is_absent());
    let long = folder.join("x".repeat(200));
    assert!(matches!(connect(&long), Err(DoorError::PathTooLong { bytes, .. }) if bytes > 200));
    let live = folder.join("live.sock");
    let _listener = UnixListener::bind(&live).unwrap();
    let client = connect(&live).unwrap();
    assert_eq!(client.peer().uid, nix::unistd::geteuid().as_raw());
    std::fs::remove_dir_all(&folder).unwrap();
}
