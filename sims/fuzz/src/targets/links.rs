//! Messages between processes.

use super::choice;
use crate::{forms, target::Target};
use garrick_accounts::messages::{AccountsReply, AccountsRequest};
use garrick_daemon::run::orders::StepdOrders;
use garrick_frame::{
    Decoder, FdChannel, Hello, HelloReply, Traced, codec::encode_into, decode_body, hello::Accompanied, limits,
};
use garrick_model::{
    messages::{
        command::{CommandReply, CommandRequest},
        launcher::{FromLauncher, ToLauncher},
        node::{AgentToStepMgr, ControllerToNode, JobCredential, NodeToController, StepMgrToAgent},
        records::{RecordsReply, RecordsRequest},
        shepherd::{ShepherdToStepMgr, StepMgrToShepherd},
        step::{CommandToStepMgr, StepMgrToCommand},
        stepd::{NodeToStepd, StepdToNode},
    },
    packed_steps::PackedSteps,
    view::StepRows,
};
use garrick_transport::join::exchange::{JoinReply, JoinRequest};
use nix::sys::socket::MsgFlags;
use serde::{Serialize, de::DeserializeOwned};
use std::os::fd::{AsFd, OwnedFd};

/// What a list may claim before its items come: serde believes it up to 1 MiB, at each depth.
const CLAIMED: usize = 8 << 20;

/// Decodes a body as a link does. What came out must travel again, and be the same at the other end. True: it is a message.
fn decode<T: Serialize + DeserializeOwned>(body: &[u8]) -> bool {
    let Ok(message) = decode_body::<Traced<T>>(body) else { return false };
    let once = encoded(&message);
    let again: Traced<T> = decode_body(&once).unwrap_or_else(|e| panic!("what was sent does not read: {e}"));
    assert_eq!(once, encoded(&again), "a message changes on its way");
    true
}

fn encoded<T: Serialize>(message: &T) -> Vec<u8> {
    rmp_serde::to_vec_named(message).unwrap_or_else(|e| panic!("what was read cannot be sent: {e}"))
}

macro_rules! decoders {
    ($($type:ty),*) => {
        const DECODERS: &[(&str, fn(&[u8]) -> bool)] = &[$((stringify!($type), decode::<$type>)),*];
    };
}
for_every_message!(decoders);

/// Bytes that a message may take decoded, encoded and decoded again for each byte on its way: an empty text is one byte
/// there and 24 here.
const MOST_GROWTH: usize = 200;

/// Bodies of frames of every link, as they come.
pub(super) const LINKS: Target = Target {
    name: "links",
    read: |input| {
        let (link, body) = choice(input);
        DECODERS[link % DECODERS.len()].1(body);
    },
    bytes_per_byte: MOST_GROWTH,
    base_bytes: CLAIMED,
    seeds: || {
        let of_link = |(number, name): (usize, &str)| {
            let forms = forms::of(name)?;
            let bodies = (0..u8::try_from(forms.variants()).unwrap_or(u8::MAX)).map(move |variant| {
                let msg = forms.make(&[variant, 0, 0, 0]);
                [vec![u8::try_from(number).unwrap_or(0)], traced(&msg)].concat()
            });
            Some(bodies.collect::<Vec<_>>())
        };
        DECODERS.iter().map(|(name, _)| *name).enumerate().filter_map(of_link).flatten().collect()
    },
};

/// A message as a frame's body.
fn traced(msg: &rmpv::Value) -> Vec<u8> {
    let mut body = Vec::new();
    let map = rmpv::Value::Map(vec![(rmpv::Value::from("msg"), msg.clone())]);
    rmpv::encode::write_value(&mut body, &map).unwrap_or_else(|e| panic!("{e}"));
    body
}

/// Messages of every link, made of valid forms with values that the input chooses.
pub(super) const MADE: Target = Target {
    name: "made_messages",
    read: |input| {
        let (link, choices) = choice(input);
        let (name, decode) = DECODERS[link % DECODERS.len()];
        if let Some(forms) = forms::of(name) {
            let body = traced(&forms.make(choices));
            let used = allocation_counter::measure(|| {
                decode(&body);
            });
            let most = (CLAIMED + MOST_GROWTH * body.len()) as u64;
            assert!(used.bytes_max <= most, "{} bytes were held for {name} of {}", used.bytes_max, body.len());
        }
    },
    // What is made is larger than what chooses it.
    bytes_per_byte: 0,
    base_bytes: 1 << 30,
    seeds: || (0..=255).map(|n| vec![n, n, 0, 1, 2, 3, n, 5]).collect(),
};

/// A stream of bytes that comes in pieces.
pub(super) const FRAMES: Target = Target {
    name: "frames",
    read: |input| {
        let (piece, bytes) = choice(input);
        let mut decoder = Decoder::new(limits::DOOR);
        'pieces: for bytes in bytes.chunks(piece.max(1)) {
            decoder.feed(bytes);
            loop {
                match decoder.next::<Accompanied<CommandToStepMgr>>() {
                    Ok(Some(_)) | Err(garrick_frame::FrameError::Malformed { .. }) => {}
                    Ok(None) => break,
                    Err(_) => break 'pieces,
                }
            }
        }
        let _ = decoder.finish();
        let _ = decode_body::<Hello>(bytes);
        let _ = decode_body::<HelloReply>(bytes);
    },
    bytes_per_byte: MOST_GROWTH,
    base_bytes: CLAIMED,
    seeds: || {
        let mut two = vec![3];
        for hello in ["srun 0.1.0", ""] {
            let hello = Hello::new(garrick_frame::LinkKind::CommandToStepMgr, hello);
            encode_into(&hello, 4096, &mut two).unwrap_or_else(|e| panic!("{e}"));
        }
        vec![two, vec![1, 0, 0, 0, 1, 0xc0], vec![255, 0xff, 0xff, 0xff, 0xff, 1]]
    },
};

/// Frames with descriptors beside them, as `stepd` reads them from its launcher: who writes may be a job's user.
pub(super) const DESCRIPTORS: Target = Target {
    name: "descriptors",
    read: |input| {
        let (fds, bytes) = choice(input);
        let Ok((mut channel, other)) = FdChannel::pair(1 << 20) else { return };
        let socket: OwnedFd = other.into_fd();
        let Ok(null) = std::fs::File::open("/dev/null") else { return };
        let beside = vec![null.as_fd(); fds % 40];
        // What fits into a socket is enough: nobody reads while this is written.
        let bytes = &bytes[..bytes.len().min(32 << 10)];
        if bytes.is_empty()
            || garrick_frame::rights::send_beside(socket.as_fd(), bytes, &beside, MsgFlags::MSG_DONTWAIT).is_err()
        {
            return;
        }
        drop(socket);
        loop {
            match channel.try_recv::<FromLauncher>() {
                Ok(Some((_, fds))) => assert!(fds.len() <= garrick_frame::fds::MAX_FDS, "{} descriptors", fds.len()),
                Err(garrick_frame::FdError::Frame(garrick_frame::FrameError::Malformed { .. })) => {}
                Ok(None) | Err(_) => break,
            }
        }
    },
    bytes_per_byte: MOST_GROWTH,
    base_bytes: CLAIMED,
    seeds: || vec![vec![0, 0, 0, 0, 1, 0, 0xc0], vec![2, 0, 0, 0, 1, 2, 0xc0], vec![33, 0, 0, 0, 1, 33, 0xc0]],
};

/// Steps in reports: the bytes that agents pass on and the controller unpacks.
pub(super) const STEPS: Target = Target {
    name: "steps",
    read: |input| {
        let wrapped = rmpv::Value::Map(vec![
            ("tally".into(), rmpv::Value::Map(Vec::new())),
            ("rows".into(), 1.into()),
            ("packed".into(), rmpv::Value::Binary(input.to_vec())),
        ]);
        let mut packed = Vec::new();
        rmpv::encode::write_value(&mut packed, &wrapped).unwrap_or_else(|e| panic!("{e}"));
        if let Ok(packed) = rmp_serde::from_slice::<PackedSteps>(&packed) {
            let _ = packed.unpack();
        }
        if let Ok(rows) = decode_body::<StepRows>(input) {
            let again = PackedSteps::pack(&rows).unpack().unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(encoded(&rows), encoded(&again), "rows change on their way");
        }
    },
    bytes_per_byte: MOST_GROWTH,
    base_bytes: CLAIMED,
    seeds: || vec![encoded(&StepRows::default())],
};

/// Credentials that the controller signed, and the orders that a run's folder keeps. Signed or root's, and read all the same
/// before anything is believed.
pub(super) const CREDENTIALS: Target = Target {
    name: "credentials",
    read: |input| {
        if let Ok(credential) = decode_body::<JobCredential>(input) {
            let once = encoded(&credential);
            let again: JobCredential = rmp_serde::from_slice(&once).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(once, encoded(&again), "a credential changes on its way");
        }
        let _ = decode_body::<StepdOrders>(input);
        let _ = serde_json::from_slice::<JobCredential>(input);
    },
    bytes_per_byte: MOST_GROWTH,
    base_bytes: CLAIMED,
    seeds: || {
        let made = |n: u8| {
            let mut body = Vec::new();
            let value = forms::of("JobCredential")?.make(&[0, n, 0, 0]);
            rmpv::encode::write_value(&mut body, &value).ok()?;
            Some(body)
        };
        (0..8).filter_map(made).collect()
    },
};
