#![allow(clippy::unwrap_used)]
use super::*;
use crate::{Class, testing::Folder};
use garrick_frame::{DoorClient, DoorError, FrameError, Traced, VersionRange};
use std::io::{Read, Write};

type Answering = (Sender<String>, Receiver<String>);

fn door(folder: &Folder) -> (DoorListener, PathBuf) {
    let path = folder.path().join("run/ctl.sock");
    (DoorListener::bind(&path, "slurmctld 0.1").unwrap(), path)
}

/// Runs a blocking client on its own thread while `serve` runs here.
async fn against<T: Send + 'static>(client: impl FnOnce() -> T + Send + 'static, serve: impl Future<Output = ()>) -> T {
    let client = tokio::task::spawn_blocking(client);
    serve.await;
    client.await.unwrap()
}

#[tokio::test]
async fn a_commands_request_is_answered_and_its_user_known() {
    let folder = Folder::new();
    let (mut listener, path) = door(&folder);
    let answer = against(
        move || {
            let mut client = DoorClient::connect(&path, LinkKind::CommandToDaemon, "squeue 0.1", None).unwrap();
            client.send("jobs?").unwrap();
            (client.recv::<String>().unwrap(), client.recv::<String>().unwrap_err())
        },
        async {
            let conn = listener.accept().await.unwrap();
            assert_eq!((conn.peer.uid, conn.version), (nix::unistd::geteuid().as_raw(), 1));
            assert_eq!(conn.peer.pid as u32, std::process::id());
            assert_eq!((conn.hello.link, conn.hello.program.as_str()), (LinkKind::CommandToDaemon, "squeue 0.1"));
            let (sender, mut receiver): Answering = conn.split();
            assert_eq!(receiver.recv().await.unwrap().unwrap().msg, "jobs?");
            sender.send(Traced::untraced("none".to_owned())).await.unwrap();
        },
    )
    .await;
    assert_eq!(answer.0, "none");
    assert!(matches!(answer.1, DoorError::Closed { .. }));
}

#[tokio::test]
async fn a_slow_client_holds_up_nobody() {
    let folder = Folder::new();
    let (mut listener, path) = door(&folder);
    let _silent = StdStream::connect(&path).unwrap();
    let mut half = StdStream::connect(&path).unwrap();
    half.write_all(&[0, 0, 0]).unwrap();
    let daemon = tokio::spawn(async move { listener.accept().await.unwrap().hello.program });
    let conn = DoorConn::connect(&path, LinkKind::NodeStepd, "stepd").await;
    assert_eq!(daemon.await.unwrap(), "stepd");
    // Its connection was dropped with the listener before it was welcomed.
    assert!(matches!(conn, Err(LinkError::Closed { .. })));
}

#[tokio::test]
async fn both_async_ends_talk_and_end_in_good_order() {
    let folder = Folder::new();
    let (mut listener, path) = door(&folder);
    let daemon = tokio::spawn(async move {
        let (sender, mut receiver): Answering = listener.accept().await.unwrap().split();
        while let Some(msg) = receiver.recv().await.unwrap() {
            sender.send(msg).await.unwrap();
        }
    });
    let (sender, mut receiver): Answering =
        DoorConn::connect(&path, LinkKind::NodeStepd, "stepd").await.unwrap().split();
    // More than a socket holds, so that both writers have to wait and go on.
    let big = "x".repeat(1 << 20);
    let writer = tokio::spawn(async move {
        for turn in 0..20 {
            sender.send(Traced { trace: turn, cause: 1, msg: big.clone() }).await.unwrap();
        }
        sender.send_on(Class::Control, Traced::untraced("last".to_owned())).await.unwrap();
    });
    let mut turns = Vec::new();
    while let Some(msg) = receiver.recv().await.unwrap() {
        if msg.msg != "last" {
            assert_eq!(msg.msg.len(), 1 << 20);
            turns.push(msg.trace);
        }
    }
    assert_eq!(turns, (0..20).collect::<Vec<_>>());
    writer.await.unwrap();
    daemon.await.unwrap();
}

#[tokio::test]
async fn posted_messages_leave_together_and_before_the_end() {
    let folder = Folder::new();
    let (mut listener, path) = door(&folder);
    let mut client = StdStream::connect(&path).unwrap();
    client.write_all(&encode(&Hello::new(LinkKind::CommandToDaemon, "t"), 1000).unwrap()).unwrap();
    let (sender, _receiver): Answering = listener.accept().await.unwrap().split();
    let mut bytes = vec![0; 4096];
    let welcome = client.read(&mut bytes).unwrap();
    assert!(welcome > 0);
    for text in ["one", "two"] {
        sender.try_post(&Traced::untraced(text.to_owned())).unwrap();
    }
    client.set_nonblocking(true).unwrap();
    assert!(client.read(&mut bytes).is_err(), "nothing is written by whoever posts");
    drop(sender);
    client.set_nonblocking(false).unwrap();
    let read = tokio::task::spawn_blocking(move || {
        let count = client.read(&mut bytes).unwrap();
        let mut decoder = Decoder::new(limits::DOOR);
        decoder.feed(&bytes[..count]);
        let mut texts = Vec::new();
        while let Some(msg) = decoder.next::<Traced<String>>().unwrap() {
            texts.push(msg.msg);
        }
        (texts, client.read(&mut bytes).unwrap())
    });
    assert_eq!(read.await.unwrap(), (vec!["one".to_owned(), "two".to_owned()], 0));
}

#[tokio::test]
async fn a_peer_that_does_not_read_fills_a_bounded_queue() {
    let folder = Folder::new();
    let (mut listener, path) = door(&folder);
    let connecting = tokio::spawn(async move { DoorConn::connect(&path, LinkKind::NodeStepd, "stepd").await });
    let (sender, receiver): Answering = listener.accept().await.unwrap().split();
    let client = connecting.await.unwrap().unwrap();
    let msg = Traced::untraced("x".repeat(1 << 20));
    let mut taken = 0;
    let error = loop {
        match sender.try_send(&msg) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, LinkError::Busy { .. }), "{error}");
    assert!((15..40).contains(&taken), "{taken}");
    sender.try_send_on(Class::Control, &Traced::untraced("still gets through".to_owned())).unwrap();
    drop((client, receiver));
    // The other side is gone: a sender that waits for room is told so.
    assert!(sender.send(msg).await.is_err());
}

#[tokio::test]
async fn other_versions_are_refused_with_both_ranges() {
    let folder = Folder::new();
    let (mut listener, path) = door(&folder);
    let daemon = tokio::spawn(async move { listener.accept().await.map(|_| ()) });
    let hello = Hello { versions: VersionRange { min: 8, max: 9 }, ..Hello::new(LinkKind::NodeStepd, "stepd 9") };
    let error = DoorConn::connect_with(&path, hello).await.unwrap_err();
    assert!(matches!(error, LinkError::Version { theirs: PROTOCOL, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("speaks 8 to 9") && text.contains("speaks 1"), "{text}");
    daemon.abort();
}

/// What a raw client gets for raw bytes.
fn reply_to(path: &Path, bytes: &[u8]) -> HelloReply {
    let mut client = StdStream::connect(path).unwrap();
    client.write_all(bytes).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let mut reply = Vec::new();
    client.read_to_end(&mut reply).unwrap();
    let mut decoder = Decoder::new(limits::HELLO);
    decoder.feed(&reply);
    decoder.next().unwrap().unwrap()
}

#[tokio::test]
async fn bad_greetings_are_answered_in_words() {
    #[derive(serde::Serialize)]
    struct Odd {
        link: &'static str,
        versions: VersionRange,
    }
    let folder = Folder::new();
    let (mut listener, path) = door(&folder);
    let daemon = tokio::spawn(async move { listener.accept().await.map(|_| ()) });
    let odd = encode(&Odd { link: "Telepathy", versions: PROTOCOL }, 1000).unwrap();
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (b"GET / HTTP/1.1\r\n".to_vec(), "over the limit"),
        (vec![0, 0, 0, 4, 0xc1, 0xc1, 0xc1, 0xc1], "not a message of this link"),
        (vec![0, 0, 0, 9, 1], "ended inside a frame"),
        (odd, "does not know what is asked"),
    ];
    tokio::task::spawn_blocking(move || {
        for (bytes, words) in cases {
            let HelloReply::Refused { reason, .. } = reply_to(&path, &bytes) else { panic!("must be refused") };
            assert!(reason.contains(words), "{reason}");
        }
    })
    .await
    .unwrap();
    daemon.abort();
}

#[tokio::test]
async fn bad_frames_after_the_greeting_name_peer_size_and_limit() {
    let folder = Folder::new();
    let (mut listener, path) = door(&folder);
    let mut client = StdStream::connect(&path).unwrap();
    client.write_all(&encode(&Hello::new(LinkKind::CommandToDaemon, "t"), 1000).unwrap()).unwrap();
    let (_sender, mut receiver): Answering = listener.accept().await.unwrap().split();
    client.write_all(&[0, 0, 0, 1, 7]).unwrap();
    let error = receiver.recv().await.unwrap_err();
    assert!(error.is_malformed_message(), "{error}");
    client.write_all(&encode(&Traced::untraced("still fine"), 1000).unwrap()).unwrap();
    assert_eq!(receiver.recv().await.unwrap().unwrap().msg, "still fine");
    client.write_all(&[0xff; 4]).unwrap();
    let text = receiver.recv().await.unwrap_err().to_string();
    assert!(text.contains("door") && text.contains("4294967295") && text.contains("16777216"), "{text}");

    let mut client = StdStream::connect(&path).unwrap();
    client.write_all(&encode(&Hello::new(LinkKind::CommandToDaemon, "t"), 1000).unwrap()).unwrap();
    let (_sender, mut receiver): Answering = listener.accept().await.unwrap().split();
    client.write_all(&[0, 0, 0, 9, 1]).unwrap();
    drop(client);
    let error = receiver.recv().await.unwrap_err();
    assert!(matches!(error, LinkError::Frame { source: FrameError::Truncated { have: 5, want: 13 }, .. }), "{error}");
}

#[tokio::test]
async fn a_client_can_still_be_refused_after_its_greeting() {
    let folder = Folder::new();
    let (mut listener, path) = door(&folder);
    let tunnel = TunnelTo { address: "10.0.0.9:1".into(), node: "n9".into(), job: 5 };
    let error = against(
        move || {
            let mut client =
                DoorClient::connect_tunnel(&path, LinkKind::CommandToStepMgr, "srun", None, tunnel).unwrap();
            client.send("launch").unwrap();
            client.recv::<String>().unwrap_err()
        },
        async {
            let conn = listener.accept().await.unwrap();
            assert_eq!(conn.hello.tunnel.as_ref().unwrap().job, 5);
            conn.refuse("node n9 does not answer");
        },
    )
    .await;
    assert!(error.to_string().contains("node n9 does not answer"), "{error}");
}

#[tokio::test]
async fn raw_sockets_come_with_what_was_already_read() {
    let folder = Folder::new();
    let (mut listener, path) = door(&folder);
    let mut client = StdStream::connect(&path).unwrap();
    let mut bytes = encode(&Hello::new(LinkKind::CommandToStepMgr, "t"), 1000).unwrap();
    bytes.extend_from_slice(b"already");
    client.write_all(&bytes).unwrap();
    let (_stream, leading) = listener.accept().await.unwrap().into_raw();
    assert_eq!(leading, b"already");
}

#[tokio::test]
async fn only_dead_sockets_are_replaced() {
    let folder = Folder::new();
    let (listener, path) = door(&folder);
    let live = DoorListener::bind(&path, "t").unwrap_err();
    assert!(matches!(live, DoorBindError::Live { pid: Some(pid), .. } if pid as u32 == std::process::id()), "{live}");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
    assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777 & !0o755, 0);
    drop(listener);
    assert!(!path.exists(), "a closed door leaves nothing");
    drop(StdListener::bind(&path).unwrap());
    assert!(path.exists());
    let again = DoorListener::bind(&path, "t").unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, b"somebody's file").unwrap();
    drop(again);
    assert!(path.exists(), "what replaced the socket is not ours to remove");
    assert!(matches!(DoorListener::bind(&path, "t"), Err(DoorBindError::InTheWay { .. })));
    let long = folder.path().join("x".repeat(120));
    assert!(matches!(DoorListener::bind(&long, "t"), Err(DoorBindError::PathTooLong { .. })));
}

#[tokio::test]
async fn a_folder_that_others_may_write_is_no_place_for_a_door() {
    let folder = Folder::new();
    let (_listener, path) = door(&folder);
    let run = path.parent().unwrap();
    let other = run.join("other.sock");
    for (mode, then) in [(0o775, 0o755), (0o777, 0o755), (0o1777, 0o1777), (0o700, 0o700)] {
        fs::set_permissions(run, fs::Permissions::from_mode(mode)).unwrap();
        drop(DoorListener::bind(&other, "slurmctld 0.1").unwrap());
        assert_eq!(fs::metadata(run).unwrap().mode() & 0o7777, then);
    }
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(run, Some(65534), None).unwrap();
        let refused = DoorListener::bind(&other, "slurmctld 0.1").unwrap_err().to_string();
        assert!(refused.contains("belongs to user 65534 and has mode 0700"), "{refused}");
    }
}
