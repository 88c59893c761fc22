#![allow(clippy::unwrap_used)]
//! Links between real endpoints on the loopback address.

use super::*;
use crate::{
    Class, LinkError, Receiver, Reconnect, ReconnectEvent, Sender,
    door::{DoorConn, DoorListener},
    identity::{ExpectPeer, IdentityStore, Role},
    reconnect::Backoff,
    testing::{Cluster, Folder},
};
use garrick_frame::{DoorClient, FrameError, Hello, LinkKind, PROTOCOL, Traced, VersionRange, encode, limits};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub(super) type Ends = (Sender<String>, Receiver<String>);

pub(super) fn any() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

pub(super) fn endpoint(identity: Arc<IdentityStore>) -> Endpoint {
    Endpoint::bind(any(), identity).unwrap()
}

pub(super) fn address(endpoint: &Endpoint) -> String {
    endpoint.local_addr().to_string()
}

async fn connect(from: &Endpoint, to: &Endpoint, expect: &ExpectPeer) -> Result<Connection, LinkError> {
    from.connect(&address(to), LinkKind::ControllerNode, "slurmd 0.1", expect).await
}

/// Both outcomes of one attempt.
pub(super) async fn attempt(
    from: &Endpoint,
    to: &Endpoint,
    expect: &ExpectPeer,
) -> (Result<Connection, LinkError>, Result<Connection, LinkError>) {
    let (client, server) = tokio::join!(connect(from, to, expect), to.accept());
    (client, server.unwrap())
}

/// A node's connection to the controller, both ends; the endpoints are kept alive.
async fn pair(cluster: &Cluster) -> (Connection, Connection, (Endpoint, Endpoint)) {
    let (controller, node) = (endpoint(cluster.controller()), endpoint(cluster.node("n1")));
    let (client, server) = attempt(&node, &controller, &ExpectPeer::controller()).await;
    (client.unwrap(), server.unwrap(), (controller, node))
}

pub(super) fn text(msg: &str) -> Traced<String> {
    Traced::untraced(msg.to_owned())
}

#[tokio::test]
async fn both_ends_know_each_other_and_talk_in_every_class() {
    let cluster = Cluster::new("c1");
    let (mut client, mut server, _endpoints) = pair(&cluster).await;
    assert_eq!(
        (server.peer.role, server.peer.name.as_str(), server.link),
        (Role::Node, "n1", LinkKind::ControllerNode)
    );
    assert_eq!((client.peer.role, client.peer.name.as_str(), client.version), (Role::Controller, "ctl", PROTOCOL.max));
    assert_eq!(server.program, "slurmd 0.1");
    let (node_out, mut node_in): Ends = client.split();
    let (controller_out, mut controller_in): Ends = server.split();
    for class in Class::ALL {
        node_out.send_on(class, Traced { trace: 9, cause: 8, msg: format!("{class}") }).await.unwrap();
        let msg = controller_in.recv().await.unwrap().unwrap();
        assert_eq!((msg.trace, msg.cause, msg.msg), (9, 8, class.to_string()));
        controller_out.send_on(class, text("back")).await.unwrap();
        assert_eq!(node_in.recv().await.unwrap().unwrap().msg, "back");
    }
    drop(node_out);
    assert!(controller_in.recv().await.unwrap().is_none(), "an orderly end is no error");
}

#[tokio::test]
async fn large_requests_arrive_whole_and_in_order() {
    let cluster = Cluster::new("c1");
    let (mut client, mut server, _endpoints) = pair(&cluster).await;
    let (sender, _in): Ends = client.split();
    let (_out, mut receiver): Ends = server.split();
    let writer = tokio::spawn(async move {
        for turn in 0..6u64 {
            sender.send(Traced { trace: turn, cause: 0, msg: "x".repeat(3 << 20) }).await.unwrap();
        }
    });
    for turn in 0..6 {
        let msg = receiver.recv().await.unwrap().unwrap();
        assert_eq!((msg.trace, msg.msg.len()), (turn, 3 << 20));
    }
    writer.await.unwrap();
}

#[tokio::test]
async fn control_gets_through_while_bulk_and_requests_are_stuck() {
    let cluster = Cluster::new("c1");
    let (mut client, mut server, _endpoints) = pair(&cluster).await;
    let (sender, _in): Ends = client.split();
    let (_out, mut receiver): Ends = server.split();
    // Bulk streams that nobody reads, each written until its window is full.
    let mut stuck = Vec::new();
    for number in 0..config::MOST_BULK {
        let mut bulk = client.open_bulk(&number).await.unwrap();
        stuck.push(tokio::spawn(async move {
            let piece = [0; 64 << 10];
            while bulk.write_all(&piece).await.is_ok() {}
        }));
    }
    assert!(matches!(
        tokio::time::timeout(Duration::from_millis(50), client.open_bulk(&0)).await,
        Err(_) | Ok(Err(LinkError::Busy { .. }))
    ));
    // Requests that nobody reads, until the queue is full too.
    let request = text(&"r".repeat(1 << 20));
    while sender.try_send(&request).is_ok() {
        tokio::task::yield_now().await;
    }
    sender.send_on(Class::Control, text("kill")).await.unwrap();
    let mut before = 0;
    loop {
        let msg = receiver.recv().await.unwrap().unwrap();
        if msg.msg == "kill" {
            break;
        }
        before += 1;
    }
    assert!(before <= 1, "control is read before the requests that wait");
    stuck.into_iter().for_each(|task| task.abort());
}

/// A connection with a good certificate whose streams are up to the test.
async fn raw(cluster: &Cluster, to: &Endpoint) -> (quinn::Endpoint, quinn::Connection) {
    let quic = endpoint::open(any(), None).unwrap();
    let client = config::client(&cluster.node("raw")).unwrap();
    let connection =
        endpoint::handshake(&quic, client, to.local_addr(), "server", Duration::from_secs(5)).await.unwrap();
    (quic, connection)
}

async fn control(connection: &quinn::Connection, bytes: &[u8]) -> quinn::SendStream {
    let mut stream = connection.open_uni().await.unwrap();
    stream.write_all(&[0]).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

async fn closing_words(connection: &quinn::Connection) -> LinkError {
    crate::error::from_connection(connection.closed().await, "server", Duration::ZERO)
}

#[tokio::test]
async fn an_unknown_version_is_refused_with_both_ranges() {
    let cluster = Cluster::new("c1");
    let server = endpoint(cluster.controller());
    let (_quic, connection) = raw(&cluster, &server).await;
    let versions = VersionRange { min: 7, max: 9 };
    let hello = Hello { versions, ..Hello::new(LinkKind::ControllerNode, "slurmd 9") };
    let _stream = control(&connection, &encode(&hello, limits::HELLO).unwrap()).await;
    let error = server.accept().await.unwrap().unwrap_err();
    assert!(error.to_string().contains("7 to 9") && error.to_string().contains("speaks 1"), "{error}");
    let quinn::ConnectionError::ApplicationClosed(close) = connection.closed().await else { panic!("refused") };
    let reply: garrick_frame::HelloReply = garrick_frame::decode_body(&close.reason).unwrap();
    let garrick_frame::HelloReply::Refused { reason, versions: theirs } = reply else { panic!("refused") };
    let error = crate::error::refused("ctl".into(), reason, theirs, versions);
    assert!(matches!(error, LinkError::Version { ours, theirs: PROTOCOL, .. } if ours == versions), "{error}");
    assert!(error.to_string().contains("7 to 9") && error.to_string().contains("the peer speaks 1"), "{error}");
}

#[tokio::test]
async fn greetings_that_are_none_are_refused() {
    let cluster = Cluster::new("c1");
    let server = endpoint(cluster.controller());
    for (bytes, word) in [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "over the limit"),
        (vec![0, 0, 0, 3, 0xc1, 0xc1, 0xc1], "not a message of this link"),
    ] {
        let (_quic, connection) = raw(&cluster, &server).await;
        let _stream = control(&connection, &bytes).await;
        let error = server.accept().await.unwrap().unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
        closing_words(&connection).await;
    }
    let (_quic, connection) = raw(&cluster, &server).await;
    let mut stream = control(&connection, &[0, 0, 0, 50, 1, 2]).await;
    stream.finish().unwrap();
    let error = server.accept().await.unwrap().unwrap_err();
    assert!(matches!(error, LinkError::Frame { source: FrameError::Truncated { have: 6, want: 54 }, .. }), "{error}");
    let (_quic, connection) = raw(&cluster, &server).await;
    let mut stream = connection.open_uni().await.unwrap();
    stream.write_all(&[77]).await.unwrap();
    assert!(server.accept().await.unwrap().unwrap_err().to_string().contains("unknown class of stream 77"));
    assert!(closing_words(&connection).await.to_string().contains("unknown class of stream 77"));
}

/// A greeted connection whose client side writes raw bytes on its control stream.
async fn raw_link(
    cluster: &Cluster,
    server: &Endpoint,
) -> (quinn::Endpoint, quinn::Connection, [quinn::SendStream; 3], Ends) {
    let (quic, connection) = raw(cluster, server).await;
    let (greeted, accepted) =
        tokio::join!(greeting::as_client(&connection, LinkKind::ControllerNode, "raw", "server"), server.accept());
    let ends = accepted.unwrap().unwrap().split();
    (quic, connection, greeted.unwrap().sending, ends)
}

#[tokio::test]
async fn bad_frames_on_a_link_name_peer_class_size_and_limit() {
    let cluster = Cluster::new("c1");
    let server = endpoint(cluster.controller());
    let (_quic, connection, mut streams, (_out, mut receiver)) = raw_link(&cluster, &server).await;
    streams[1].write_all(&[0, 0, 0, 2, 0xc1, 0xc1]).await.unwrap();
    let error = receiver.recv().await.unwrap_err();
    assert!(error.is_malformed_message(), "{error}");
    streams[1].write_all(&encode(&text("still fine"), 100).unwrap()).await.unwrap();
    assert_eq!(receiver.recv().await.unwrap().unwrap().msg, "still fine");
    streams[0].write_all(&70_000u32.to_be_bytes()).await.unwrap();
    let error = receiver.recv().await.unwrap_err().to_string();
    for word in ["node raw at 127.0.0.1", "control messages", "70000", "65536"] {
        assert!(error.contains(word), "{error}");
    }
    let told = closing_words(&connection).await;
    assert!(told.to_string().contains("over the limit of 65536"), "{told}");

    let (_quic, _connection, mut streams, (_out, mut receiver)) = raw_link(&cluster, &server).await;
    streams[2].write_all(&[0, 0, 0, 9, 1]).await.unwrap();
    streams[2].finish().unwrap();
    let error = receiver.recv().await.unwrap_err();
    assert!(matches!(error, LinkError::Frame { source: FrameError::Truncated { have: 5, want: 13 }, .. }), "{error}");
    assert!(error.to_string().contains("trace messages"), "{error}");
}

#[tokio::test]
async fn too_large_a_message_is_refused_where_it_is_sent() {
    let cluster = Cluster::new("c1");
    let (mut client, _server, _endpoints) = pair(&cluster).await;
    let (sender, _receiver): Ends = client.split();
    let error = sender.send_on(Class::Control, text(&"x".repeat(70_000))).await.unwrap_err();
    assert!(error.to_string().contains("control messages") && error.to_string().contains("65536"), "{error}");
    sender.send(text(&"x".repeat(70_000))).await.unwrap();
}

#[tokio::test]
async fn bulk_streams_carry_bytes_and_a_dropped_one_is_not_a_good_end() {
    let cluster = Cluster::new("c1");
    let (client, server, _endpoints) = pair(&cluster).await;
    let mut bulk = client.open_bulk(&("file".to_owned(), 7u32)).await.unwrap();
    let ((name, number), mut incoming) = server.accept_bulk::<(String, u32)>().await.unwrap().unwrap();
    assert_eq!((name.as_str(), number), ("file", 7));
    let reader = tokio::spawn(async move {
        let mut all = Vec::new();
        incoming.read_to_end(&mut all).await.map(|_| all.len())
    });
    // More than the stream's window: it goes on as the other side reads.
    bulk.write_all(&vec![5; 1 << 20]).await.unwrap();
    bulk.write_all(&[6; 10]).await.unwrap();
    bulk.shutdown().await.unwrap();
    assert_eq!(reader.await.unwrap().unwrap(), (1 << 20) + 10);
    let mut bulk = client.open_bulk(&("half".to_owned(), 8u32)).await.unwrap();
    bulk.write_all(&[1; 10]).await.unwrap();
    let (_, mut incoming) = server.accept_bulk::<(String, u32)>().await.unwrap().unwrap();
    drop(bulk);
    assert!(incoming.read_to_end(&mut Vec::new()).await.is_err());
}

#[tokio::test]
async fn a_bad_bulk_header_costs_that_stream_only() {
    let cluster = Cluster::new("c1");
    let (client, server, _endpoints) = pair(&cluster).await;
    let _bad = client.open_bulk(&"not a number").await.unwrap();
    let error = server.accept_bulk::<u32>().await.unwrap_err();
    assert!(error.is_malformed_message(), "{error}");
    let error = client.open_bulk(&"x".repeat(2 << 20)).await.unwrap_err();
    assert!(matches!(error, LinkError::Frame { source: FrameError::TooLarge { .. }, .. }), "{error}");
    let _good = client.open_bulk(&5u32).await.unwrap();
    assert_eq!(server.accept_bulk::<u32>().await.unwrap().unwrap().0, 5);
    client.close("done");
    assert!(server.accept_bulk::<u32>().await.unwrap().is_none());
}

#[tokio::test]
async fn a_command_at_a_door_reaches_another_host_through_a_relay() {
    let folder = Folder::new();
    let cluster = Cluster::new("c1");
    let (client, server, _endpoints) = pair(&cluster).await;
    let path = folder.path().join("n1.sock");
    let mut listener = DoorListener::bind(&path, "slurmd").unwrap();
    let command = tokio::task::spawn_blocking(move || {
        let mut door = DoorClient::connect(&path, LinkKind::CommandToStepMgr, "srun", None).unwrap();
        door.send("launch").unwrap();
        door.finish().unwrap();
        let mut answers = Vec::new();
        while let Ok(answer) = door.recv::<String>() {
            answers.push(answer);
        }
        answers
    });
    let conn: DoorConn = listener.accept().await.unwrap();
    let relay = tokio::spawn(splice(conn, client.open_bulk(&5609u32).await.unwrap()));
    let (job, bulk) = server.accept_bulk::<u32>().await.unwrap().unwrap();
    assert_eq!(job, 5609);
    let (sender, mut receiver): Ends = bulk.split(limits::DOOR);
    assert_eq!(receiver.recv().await.unwrap().unwrap().msg, "launch");
    assert!(receiver.recv().await.unwrap().is_none(), "the half-close came through");
    for number in 0..3 {
        sender.send(text(&format!("output {number}"))).await.unwrap();
    }
    drop(sender);
    assert_eq!(command.await.unwrap(), ["output 0", "output 1", "output 2"]);
    let (up, down) = relay.await.unwrap().unwrap();
    assert!(up > 0 && down > 0);
}

#[tokio::test]
async fn a_lost_peer_is_told_to_receivers_and_idle_senders() {
    let cluster = Cluster::new("c1");
    let (mut client, server, _endpoints) = pair(&cluster).await;
    let (sender, mut receiver): Ends = client.split();
    server.handle().close("shutting down");
    assert!(receiver.recv().await.unwrap().is_none());
    let error = client.handle().closed().await;
    assert!(error.to_string().contains("shutting down"), "{error}");
    let error = loop {
        match sender.send(text("hello?")).await {
            Ok(()) => tokio::task::yield_now().await,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, LinkError::Closed { .. }), "{error}");
}

#[tokio::test]
async fn a_lost_connection_comes_back_when_the_peer_does() {
    let cluster = Cluster::new("c1");
    let node = Arc::new(
        Endpoint::bind_with(
            any(),
            cluster.node("n1"),
            EndpointOptions { connect_time: Duration::from_millis(200), ..EndpointOptions::default() },
        )
        .unwrap(),
    );
    let controller = endpoint(cluster.controller());
    let at = controller.local_addr();
    let mut keeper =
        Reconnect::new(Arc::clone(&node), &at.to_string(), LinkKind::ControllerNode, "n1", ExpectPeer::controller())
            .with_backoff(Backoff::new(Duration::from_millis(5), Duration::from_millis(20)));
    // An attempt that takes too long is told as an error at both ends, and another follows.
    let mut served = Vec::new();
    let connection = loop {
        tokio::select! {
            event = keeper.next() => if let ReconnectEvent::Up(connection) = event { break connection },
            accepted = controller.accept() => served.push(accepted.unwrap()),
        }
    };
    assert_eq!(connection.peer.name, "ctl");
    controller.close("restarting");
    let ReconnectEvent::Down { reason, .. } = keeper.next().await else { panic!("must go down") };
    assert!(reason.to_string().contains("restarting"), "{reason}");
    // The socket stays open while anything of the old controller is left.
    drop((controller, connection, served));
    // Nobody is there: attempts fail, one by one.
    let ReconnectEvent::Down { .. } = keeper.next().await else { panic!("nobody is there") };
    let again = loop {
        match Endpoint::bind(at, cluster.controller()) {
            Ok(endpoint) => break endpoint,
            // The old socket is closed by its driver's next turn.
            Err(_) => tokio::task::yield_now().await,
        }
    };
    let mut served = Vec::new();
    loop {
        tokio::select! {
            event = keeper.next() => if let ReconnectEvent::Up(_) = event { break },
            accepted = again.accept() => served.push(accepted.unwrap()),
        }
    }
}

#[tokio::test]
async fn peers_of_a_process_that_was_started_again_are_told_so() {
    let cluster = Cluster::new("c1");
    let key = ResetKey::random().unwrap();
    let bind = |address, identity, key: &ResetKey| {
        let options = EndpointOptions { reset_key: Some(key.clone()), ..Default::default() };
        Endpoint::bind_with(address, identity, options).unwrap()
    };
    let (tell, bound) = tokio::sync::oneshot::channel();
    let (kill, killed) = tokio::sync::oneshot::channel::<()>();
    let (identity, its_key) = (cluster.controller(), key.clone());
    let process = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.spawn(async move {
            let controller = bind(any(), identity, &its_key);
            tell.send(controller.local_addr()).unwrap();
            let _connection = controller.accept().await.unwrap().unwrap();
            std::future::pending::<()>().await;
        });
        runtime.block_on(async { killed.await.unwrap() });
        // As in a kill: nobody is left to say good-bye.
        runtime.shutdown_background();
    });
    let same = bound.await.unwrap();
    let node = endpoint(cluster.node("n1"));
    let mut client = node
        .connect(&same.to_string(), LinkKind::ControllerNode, "slurmd 0.1", &ExpectPeer::controller())
        .await
        .unwrap();
    kill.send(()).unwrap();
    process.join().unwrap();
    let _again = bind(same, cluster.controller(), &key);
    let (sender, mut receiver): Ends = client.split();
    sender.send(text("are you there?")).await.unwrap();
    let lost = receiver.recv().await.unwrap_err();
    assert!(lost.to_string().ends_with("the peer was restarted"), "{lost}");
}
