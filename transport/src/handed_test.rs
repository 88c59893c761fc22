#![allow(clippy::unwrap_used)]
use super::*;
use crate::{DoorConn, DoorListener, Hello, LinkKind, Receiver, Sender, Traced, encode, testing::Folder};
use garrick_frame::{DoorClient, hello::AccompaniedRef, rights::send_beside};
use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    unistd::{geteuid, pipe, read, write},
};
use std::{os::unix::net::UnixStream as StdStream, path::PathBuf};

type Ends = (Sender<String>, Receiver<String>);

/// A door that takes descriptors of `uid`.
fn door(folder: &Folder, uid: u32) -> (DoorListener, PathBuf) {
    let path = folder.path().join("stepd.sock");
    (DoorListener::bind(&path, "stepd 0.1").unwrap().take_descriptors_of(uid), path)
}

fn me() -> u32 {
    geteuid().as_raw()
}

/// Waits until nobody can write to the pipe any more: every copy of its write end is closed.
fn ends(reader: OwnedFd) {
    assert_eq!(read(&reader, &mut [0; 8]).unwrap(), 0);
}

fn says(fd: &HandedFd, text: &str, reader: &OwnedFd) {
    write(fd, text.as_bytes()).unwrap();
    let mut got = [0; 64];
    let count = read(reader, &mut got).unwrap();
    assert_eq!(&got[..count], text.as_bytes());
}

async fn accepted(listener: &mut DoorListener) -> Ends {
    listener.accept().await.unwrap().split()
}

fn frame(fds: u8, msg: &str) -> Vec<u8> {
    encode(&AccompaniedRef { trace: 0, cause: 0, fds, msg }, 1000).unwrap()
}

fn greeting() -> Vec<u8> {
    encode(&Hello::new(LinkKind::CommandToStepMgr, "t"), 1000).unwrap()
}

/// A client by hand, that has greeted.
fn raw_client(path: &PathBuf) -> StdStream {
    let client = StdStream::connect(path).unwrap();
    send(&client, &greeting(), &[]);
    client
}

fn send(client: &StdStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    assert_eq!(send_beside(client.as_fd(), bytes, fds, MsgFlags::empty()).unwrap(), Some(bytes.len()));
}

async fn next(receiver: &mut Receiver<String>) -> String {
    receiver.recv().await.unwrap().unwrap().msg
}

#[tokio::test]
async fn descriptors_come_with_their_own_message_among_others() {
    let folder = Folder::new();
    let (mut listener, path) = door(&folder, me());
    let (first_reader, first) = pipe().unwrap();
    let (second_reader, second) = pipe().unwrap();
    let client = tokio::task::spawn_blocking(move || {
        let mut client = DoorClient::connect(&path, LinkKind::CommandToStepMgr, "srun 0.1", None).unwrap();
        client.send_with_fds("one", &[first.as_fd()]).unwrap();
        client.send("none").unwrap();
        client.send_with_fds("two", &[second.as_fd(), first.as_fd()]).unwrap();
        client.send("last").unwrap();
        client
    });
    let (_sender, mut receiver) = accepted(&mut listener).await;
    assert_eq!(next(&mut receiver).await, "one");
    let one = receiver.take_descriptors();
    assert_eq!(one.len(), 1);
    says(&one[0], "first", &first_reader);
    let flags = FdFlag::from_bits_retain(fcntl(&one[0], FcntlArg::F_GETFD).unwrap());
    assert!(flags.contains(FdFlag::FD_CLOEXEC));
    assert_eq!(next(&mut receiver).await, "none");
    assert!(receiver.take_descriptors().is_empty());
    assert_eq!(next(&mut receiver).await, "two");
    let two = receiver.take_descriptors();
    says(&two[0], "second", &second_reader);
    says(&two[1], "first again", &first_reader);
    assert_eq!(next(&mut receiver).await, "last");
    drop((one, two, client.await.unwrap()));
    ends(first_reader);
    ends(second_reader);
}

#[tokio::test]
async fn what_is_not_taken_is_closed_by_the_next_message_and_by_the_end() {
    let folder = Folder::new();
    let (mut listener, path) = door(&folder, me());
    let client = raw_client(&path);
    let (first_reader, first) = pipe().unwrap();
    let (second_reader, second) = pipe().unwrap();
    send(&client, &frame(1, "one"), &[first.as_fd()]);
    send(&client, &frame(1, "two"), &[second.as_fd()]);
    drop((first, second));
    let (_sender, mut receiver) = accepted(&mut listener).await;
    assert_eq!(next(&mut receiver).await, "one");
    assert_eq!(next(&mut receiver).await, "two");
    ends(first_reader);
    drop(receiver);
    ends(second_reader);
}

#[tokio::test]
async fn a_greeting_in_pieces_keeps_the_first_messages_descriptors() {
    let folder = Folder::new();
    let (mut listener, path) = door(&folder, me());
    let (reader, writer) = pipe().unwrap();
    let client = StdStream::connect(&path).unwrap();
    let mut bytes = greeting();
    bytes.extend(frame(1, "launch"));
    send(&client, &bytes[..1], &[writer.as_fd()]);
    drop(writer);
    let serving = tokio::spawn(async move { accepted(&mut listener).await });
    for piece in bytes[1..].chunks(7) {
        send(&client, piece, &[]);
        tokio::task::yield_now().await;
    }
    let (_sender, mut receiver) = serving.await.unwrap();
    assert_eq!(next(&mut receiver).await, "launch");
    says(&receiver.take_descriptors()[0], "here", &reader);
}

#[tokio::test]
async fn a_message_that_is_read_in_parts_keeps_its_descriptors() {
    let folder = Folder::new();
    let (mut listener, path) = door(&folder, me());
    let (reader, writer) = pipe().unwrap();
    let client = tokio::task::spawn_blocking(move || {
        let mut client = DoorClient::connect(&path, LinkKind::CommandToStepMgr, "srun 0.1", None).unwrap();
        // Far more than a socket holds, so that the descriptors are there long before the end of their message.
        client.send_with_fds(&"x".repeat(3 << 20), &[writer.as_fd()]).unwrap();
        client
    });
    let (_sender, mut receiver) = accepted(&mut listener).await;
    assert_eq!(next(&mut receiver).await.len(), 3 << 20);
    let fds = receiver.take_descriptors();
    drop(client.await.unwrap());
    says(&fds[0], "here", &reader);
}

#[tokio::test]
async fn a_flood_of_descriptors_is_closed_and_messages_go_on() {
    let folder = Folder::new();
    let (mut listener, path) = door(&folder, me());
    let client = raw_client(&path);
    let (_sender, mut receiver) = accepted(&mut listener).await;
    let (reader, writer) = pipe().unwrap();
    // In the middle of one frame, byte by byte, each with as many as a message may have.
    let long = frame(0, &"y".repeat(100));
    for byte in long.chunks(1) {
        send(&client, byte, &[writer.as_fd(); MAX_DOOR_FDS]);
    }
    assert_eq!(next(&mut receiver).await.len(), 100);
    assert!(receiver.take_descriptors().is_empty());
    drop(writer);
    ends(reader);
    // None are taken on this connection any more, however well announced.
    let (reader, writer) = pipe().unwrap();
    send(&client, &frame(1, "more"), &[writer.as_fd()]);
    drop(writer);
    assert_eq!(next(&mut receiver).await, "more");
    assert!(receiver.take_descriptors().is_empty());
    ends(reader);

    // As many as the kernel passes in one go: none beyond a message's worth ever becomes ours.
    let client = raw_client(&path);
    let (_sender, mut receiver) = accepted(&mut listener).await;
    let (reader, writer) = pipe().unwrap();
    send(&client, &frame(3, "many"), &[writer.as_fd(); 253]);
    drop(writer);
    assert_eq!(next(&mut receiver).await, "many");
    assert!(receiver.take_descriptors().is_empty(), "which were meant is not known");
    ends(reader);
}

#[tokio::test]
async fn descriptors_that_no_message_announced_are_closed() {
    let folder = Folder::new();
    let (mut listener, path) = door(&folder, me());
    let client = raw_client(&path);
    let (_sender, mut receiver) = accepted(&mut listener).await;
    let (reader, writer) = pipe().unwrap();
    send(&client, &frame(0, "plain"), &[writer.as_fd()]);
    drop(writer);
    assert_eq!(next(&mut receiver).await, "plain");
    assert!(receiver.take_descriptors().is_empty());
    send(&client, &frame(0, "next"), &[]);
    assert_eq!(next(&mut receiver).await, "next");
    ends(reader);
}

#[tokio::test]
async fn announced_descriptors_that_did_not_come_leave_their_message_without_any() {
    let folder = Folder::new();
    let (mut listener, path) = door(&folder, me());
    let client = raw_client(&path);
    let (_sender, mut receiver) = accepted(&mut listener).await;
    let (reader, writer) = pipe().unwrap();
    send(&client, &frame(2, "two"), &[writer.as_fd()]);
    send(&client, &frame(200, "nonsense"), &[]);
    drop(writer);
    for expected in ["two", "nonsense"] {
        assert_eq!(next(&mut receiver).await, expected);
        assert!(receiver.take_descriptors().is_empty());
    }
    ends(reader);
}

#[tokio::test]
async fn descriptors_of_a_message_that_cannot_be_read_are_closed() {
    let folder = Folder::new();
    let (mut listener, path) = door(&folder, me());
    let client = raw_client(&path);
    let (_sender, mut receiver) = accepted(&mut listener).await;
    let (reader, writer) = pipe().unwrap();
    send(&client, &[0, 0, 0, 1, 7], &[writer.as_fd()]);
    drop(writer);
    assert!(receiver.recv().await.unwrap_err().is_malformed_message());
    ends(reader);
    send(&client, &frame(0, "still fine"), &[]);
    assert_eq!(next(&mut receiver).await, "still fine");
}

#[tokio::test]
async fn other_doors_other_users_and_relays_take_none() {
    let folder = Folder::new();
    let (mut of_another, path) = door(&folder, me() + 1);
    let plain_path = folder.path().join("ctl.sock");
    let mut plain = DoorListener::bind(&plain_path, "slurmctld 0.1").unwrap();
    for (listener, path) in [(&mut of_another, &path), (&mut plain, &plain_path)] {
        let (reader, writer) = pipe().unwrap();
        let client = raw_client(path);
        send(&client, &frame(1, "launch"), &[writer.as_fd()]);
        drop(writer);
        let (_sender, mut receiver) = accepted(listener).await;
        assert_eq!(next(&mut receiver).await, "launch");
        assert!(receiver.take_descriptors().is_empty());
        ends(reader);
    }
    drop(of_another);

    let (mut listener, path) = door(&folder, me());
    let (reader, writer) = pipe().unwrap();
    let client = StdStream::connect(&path).unwrap();
    let bytes = [greeting(), frame(1, "launch")].concat();
    send(&client, &bytes, &[writer.as_fd()]);
    drop(writer);
    let (_stream, leading) = listener.accept().await.unwrap().into_raw();
    assert_eq!(leading, frame(1, "launch"));
    ends(reader);
}

#[tokio::test]
async fn answers_with_descriptors_are_not_taken_by_the_side_that_connected() {
    let folder = Folder::new();
    let (mut listener, path) = door(&folder, me());
    let connecting = tokio::spawn(async move { DoorConn::connect(&path, LinkKind::NodeStepd, "noded").await });
    let (stream, _) = listener.accept().await.unwrap().into_raw();
    let (_sender, mut receiver): Ends = connecting.await.unwrap().unwrap().split();
    let (reader, writer) = pipe().unwrap();
    let bytes = frame(1, "answer");
    assert!(send_beside(stream.as_fd(), &bytes, &[writer.as_fd()], MsgFlags::empty()).unwrap().is_some());
    drop(writer);
    assert_eq!(next(&mut receiver).await, "answer");
    assert!(receiver.take_descriptors().is_empty());
    ends(reader);
}

#[tokio::test]
async fn a_door_holds_a_bounded_number() {
    let folder = Folder::new();
    let (mut listener, path) = door(&folder, me());
    listener.set_descriptor_limit(MAX_DOOR_FDS);
    let (reader, writer) = pipe().unwrap();
    let mut conversations = Vec::new();
    for expected in [3, 0, 0] {
        let client = raw_client(&path);
        send(&client, &frame(3, "launch"), &[writer.as_fd(); 3]);
        let (sender, mut receiver) = accepted(&mut listener).await;
        assert_eq!(next(&mut receiver).await, "launch");
        let fds = receiver.take_descriptors();
        assert_eq!(fds.len(), expected);
        conversations.push((client, sender, receiver, fds));
    }
    drop((writer, conversations));
    ends(reader);
}

#[tokio::test]
async fn plain_messages_are_the_same_with_and_without() {
    let folder = Folder::new();
    let (mut listener, path) = door(&folder, me());
    let client = raw_client(&path);
    send(&client, &encode(&Traced { trace: 3, cause: 4, msg: "old" }, 100).unwrap(), &[]);
    let (_sender, mut receiver) = accepted(&mut listener).await;
    let got = receiver.recv().await.unwrap().unwrap();
    assert_eq!((got.trace, got.cause, got.msg.as_str()), (3, 4, "old"));
}

#[test]
fn descriptors_that_are_closed_together_end_their_pipes_and_make_room() {
    let (one, other) = (Held::with_limit(10), Held::with_limit(10));
    let (readers, fds): (Vec<_>, Vec<_>) = (0..4)
        .map(|n| {
            let (reader, writer) = pipe().unwrap();
            (reader, if n % 2 == 0 { one.hold(writer) } else { other.hold(writer) })
        })
        .unzip();
    close_together(fds);
    readers.into_iter().for_each(ends);
    close_together(Vec::new());
    while one.count.load(Ordering::Relaxed) + other.count.load(Ordering::Relaxed) > 0 {
        std::thread::yield_now();
    }
}
