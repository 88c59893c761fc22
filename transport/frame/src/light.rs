//! The messages of the light `srun` at a `stepd`'s door, byte for byte.
//!
//! The light `srun` is a program of a few kilobytes without a C library, which starts in a fraction of the time that the whole
//! command takes. It parses none of its options: it sends its arguments, environment and limits unchanged, together with its
//! standard files, and waits. The step manager parses them as the whole command would. Unusual requests are left to the whole
//! command, which the light one becomes by `execve`, with the same connection.
//!
//! So these few frames are constants here, and a test compares them with the codec's output. [`Launch`] is the body of the
//! request: [`WORDS`] numbers, then working directory, arguments and environment, each text ended by a NUL.

/// Version of this layout, the first word.
pub const VERSION: u64 = 1;
/// Numbers in front of the texts, little-endian, 8 bytes each.
pub const WORDS: usize = word::LIMITS + LIMITS;
/// Soft limits that are told, by the kernel's numbers from 0 (`RLIMIT_CPU`) on. All ones: none.
pub const LIMITS: usize = 16;
/// Most bytes of texts. Larger requests are left to the whole command.
pub const MOST_TEXT: usize = 1 << 20;

/// The greeting, length included.
pub const HELLO: &[u8] = b"\0\0\0\x46\x84\xa4link\xb0CommandToStepMgr\xa8versions\x82\xa3min\x01\xa3max\x01\xa7program\
                          \xaalight srun\xa6tunnel\xc0";
/// The request up to the number of descriptors, without its length.
pub const REQUEST_HEAD: &[u8] = b"\x84\xa5trace\0\xa5cause\0\xa3fds";
/// The rest of it, up to the length of the body (4 bytes, big-endian).
pub const REQUEST_TAIL: &[u8] = b"\xa3msg\x81\xabLaunchLight\xc6";
/// How a frame ends that says: over, all went well.
pub const DONE: &[u8] = b"\x81\xa5Light\xa4Done";
/// How one ends that says: nothing was begun, the whole command is to do all of it.
pub const WHOLE: &[u8] = b"\x81\xa5Light\xa5Whole";
/// How one ends that says: the whole command is to go on with this connection.
pub const TAKE_OVER: &[u8] = b"\x81\xa5Light\xa8TakeOver";
/// What stands before a text to be said.
pub const SAY: &[u8] = b"\x81\xa5Light\x81\xa3Say";

/// Where each word is.
pub mod word {
    /// [`VERSION`](super::VERSION).
    pub const VERSION: usize = 0;
    /// Identity of the request, two words.
    pub const REQUEST: usize = 1;
    /// Which of descriptors 0, 1 and 2 are terminals, as bits.
    pub const TERMINALS: usize = 3;
    /// File mode creation mask.
    pub const UMASK: usize = 4;
    /// Nice value, two's complement.
    pub const NICE: usize = 5;
    /// Session.
    pub const SESSION: usize = 6;
    /// Process.
    pub const PID: usize = 7;
    /// Bytes of the working directory, its NUL included.
    pub const DIRECTORY: usize = 8;
    /// Bytes of the arguments, NULs included.
    pub const ARGUMENTS: usize = 9;
    /// Bytes of the environment, NULs included.
    pub const ENVIRONMENT: usize = 10;
    /// Which argument, from 1 behind the program's name, is the first word without a slash that is a program in a folder of
    /// `PATH`. 0: none is.
    pub const FOUND: usize = 11;
    /// The first soft limit.
    pub const LIMITS: usize = 12;
}

/// The body of a request, taken apart. Nothing of it is checked but the lengths.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    words: &'a [u8],
    /// Working directory.
    pub directory: &'a [u8],
    arguments: &'a [u8],
    environment: &'a [u8],
}

impl<'a> Launch<'a> {
    /// `None`: not of this version, or its lengths do not fit.
    pub fn read(body: &'a [u8]) -> Option<Self> {
        let (words, texts) = body.split_at_checked(WORDS * 8)?;
        let mut launch = Self { words, directory: &[], arguments: &[], environment: &[] };
        if launch.word(word::VERSION) != VERSION {
            return None;
        }
        let length = |at| usize::try_from(launch.word(at)).ok();
        let (directory, texts) = texts.split_at_checked(length(word::DIRECTORY)?)?;
        let (arguments, environment) = texts.split_at_checked(length(word::ARGUMENTS)?)?;
        if environment.len() != length(word::ENVIRONMENT)? {
            return None;
        }
        let ended = |text: &'a [u8]| text.is_empty() || text.ends_with(&[0]);
        if !ended(directory) || !ended(arguments) || !ended(environment) {
            return None;
        }
        launch.directory = directory.strip_suffix(&[0])?;
        (launch.arguments, launch.environment) = (arguments, environment);
        Some(launch)
    }

    /// One of the numbers, by [`word`].
    pub fn word(&self, at: usize) -> u64 {
        let bytes = self.words.get(at * 8..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// The arguments, the program's name first.
    pub fn arguments(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        texts(self.arguments)
    }

    /// The environment, entry by entry.
    pub fn environment(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        texts(self.environment)
    }
}

fn texts(all: &[u8]) -> impl Iterator<Item = &[u8]> {
    let texts = all.strip_suffix(&[0]).map(|all| all.split(|byte| *byte == 0));
    texts.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{
        codec::encode,
        hello::{AccompaniedRef, Hello, LinkKind, Traced},
        limits,
    };
    use serde::Serialize;

    #[derive(Serialize)]
    enum Request<'a> {
        LaunchLight(#[serde(with = "bytes")] &'a [u8]),
    }

    mod bytes {
        pub fn serialize<S: serde::Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
            to.serialize_bytes(bytes)
        }
    }

    #[derive(Serialize)]
    enum Reply {
        Light(Light),
    }

    #[derive(Serialize)]
    enum Light {
        Done,
        Whole,
        TakeOver,
        Say(String),
    }

    #[test]
    fn the_constants_are_what_the_codec_makes() {
        let hello = encode(&Hello::new(LinkKind::CommandToStepMgr, "light srun"), limits::HELLO).unwrap();
        assert_eq!(hello, HELLO);
        // Long enough for the form of lengths that is always used here.
        let body = vec![7; 1 << 16];
        let frame =
            encode(&AccompaniedRef { trace: 0, cause: 0, fds: 3, msg: &Request::LaunchLight(&body) }, limits::DOOR)
                .unwrap();
        let made = [REQUEST_HEAD, &[3], REQUEST_TAIL, &(body.len() as u32).to_be_bytes(), &body].concat();
        assert_eq!(frame[4..], made);
        let reply = |light| encode(&Traced { trace: 8, cause: 9, msg: Reply::Light(light) }, limits::DOOR).unwrap();
        assert!(reply(Light::Done).ends_with(DONE));
        assert!(reply(Light::Whole).ends_with(WHOLE));
        assert!(reply(Light::TakeOver).ends_with(TAKE_OVER));
        for length in [1, 40, 300] {
            let text = "t".repeat(length);
            let frame = reply(Light::Say(text.clone()));
            let at = frame.windows(SAY.len()).position(|part| part == SAY).unwrap();
            assert!(frame[at..].ends_with(text.as_bytes()));
        }
    }

    #[test]
    fn a_body_is_read_only_where_its_lengths_fit() {
        let body = |lengths: [u64; 3], texts: &[u8]| {
            let mut words = [0u64; WORDS];
            (words[word::VERSION], words[word::UMASK]) = (VERSION, 0o22);
            words[word::DIRECTORY..=word::ENVIRONMENT].copy_from_slice(&lengths);
            [&words.map(u64::to_le_bytes).concat(), texts].concat()
        };
        let good = body([3, 8, 7], b"/w\0srun\0-n\0A=1\0B=\0");
        let read = Launch::read(&good).unwrap();
        assert_eq!((read.word(word::UMASK), read.directory), (0o22, &b"/w"[..]));
        assert_eq!(read.arguments().collect::<Vec<_>>(), [&b"srun"[..], b"-n"]);
        assert_eq!(read.environment().collect::<Vec<_>>(), [&b"A=1"[..], b"B="]);
        let empty = body([2, 5, 0], b"/\0srun\0");
        assert_eq!(Launch::read(&empty).unwrap().environment().count(), 0);
        for (lengths, texts) in [
            ([3, 8, 8], &b"/w\0srun\0-n\0A=1\0B=\0"[..]),
            ([3, 7, 8], b"/w\0srun\0-n\0A=1\0B=\0"),
            ([0, 5, 0], b"srun\0"),
            ([u64::MAX, 5, 0], b"/w\0srun\0"),
        ] {
            assert!(Launch::read(&body(lengths, texts)).is_none(), "{lengths:?}");
        }
        let mut other = good.clone();
        other[0] = 9;
        assert!(Launch::read(&other).is_none());
        assert!(Launch::read(&good[..40]).is_none());
    }
}
