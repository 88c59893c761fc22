//! Frames: a 4-byte big-endian length, then that many bytes of MessagePack with named fields, so that a field may be added
//! anywhere and an older reader skips unknown fields. Pure: bytes in, messages out; the owner of the socket calls it.
//!
//! The length is checked against the link's limit before anything is allocated for it, and nesting is capped, since both
//! come from the peer.

use serde::{Deserialize as _, Serialize, de::DeserializeOwned, de::IgnoredAny};
use std::io;

/// Bytes of the length prefix.
pub const PREFIX: usize = 4;
/// Deepest nesting of a message. The deepest honest message (a job's specification inside a launch) stays below 20.
pub const MAX_DEPTH: usize = 64;
/// Most values of a message from an untrusted sender; a list is one, and so is each item, key and text. Without this limit,
/// decoding and answering a frame of 16 MiB took 700 MiB: an empty text is one byte in it. The largest honest message names a
/// hundred thousand jobs, with five values each.
pub const MOST_VALUES: usize = 1 << 19;
/// Most bytes asked of a socket at once.
const READ_CHUNK: usize = 64 << 10;

/// A frame that cannot be sent or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Larger than the link allows. Reading cannot go on after this: where the next frame begins is not known.
    #[error("frame of {size} bytes is over the limit of {limit} bytes")]
    TooLarge {
        /// Size of the body in bytes.
        size: usize,
        /// Limit in bytes.
        limit: usize,
    },
    /// The peer closed in the middle of a frame.
    #[error("connection ended inside a frame: {have} of {want} bytes arrived")]
    Truncated {
        /// Bytes that arrived, the prefix included.
        have: usize,
        /// Bytes that were to come.
        want: usize,
    },
    /// Not a message of this link. The frame is skipped; reading may go on.
    #[error("frame of {size} bytes is not a message of this link: {cause}")]
    Malformed {
        /// Size of the body in bytes.
        size: usize,
        /// What the decoder found.
        cause: String,
    },
    /// The message cannot be put into a frame.
    #[error("message cannot be encoded: {cause}")]
    Encode {
        /// Why.
        cause: String,
    },
}

/// One frame with `msg` in it, prefix included. Refuses a body over `limit` bytes.
pub fn encode<T: Serialize + ?Sized>(msg: &T, limit: usize) -> Result<Vec<u8>, FrameError> {
    let mut frame = Vec::with_capacity(256);
    encode_into(msg, limit, &mut frame)?;
    Ok(frame)
}

/// Appends one frame to `out`; leaves `out` as it was when that fails.
pub fn encode_into<T: Serialize + ?Sized>(msg: &T, limit: usize, out: &mut Vec<u8>) -> Result<(), FrameError> {
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX]);
    let written = rmp_serde::encode::write_named(out, msg);
    let size = out.len() - start - PREFIX;
    let checked = match written {
        Err(cause) => Err(FrameError::Encode { cause: cause.to_string() }),
        Ok(()) if size > limit => Err(FrameError::TooLarge { size, limit }),
        Ok(()) => u32::try_from(size).map_err(|_| FrameError::TooLarge { size, limit: limit.min(u32::MAX as usize) }),
    };
    match checked {
        Ok(length) => {
            out[start..start + PREFIX].copy_from_slice(&length.to_be_bytes());
            Ok(())
        }
        Err(error) => {
            out.truncate(start);
            Err(error)
        }
    }
}

/// The message in a frame's body (without the prefix). Bytes left over are an error.
pub fn decode_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, FrameError> {
    let malformed = |cause: String| FrameError::Malformed { size: body.len(), cause };
    let mut reader = rmp_serde::Deserializer::from_read_ref(body);
    reader.set_max_depth(MAX_DEPTH);
    let msg = T::deserialize(&mut reader).map_err(|e| malformed(e.to_string()))?;
    // The reader does not say how far it came; a clean end is when not even a marker can be read.
    match IgnoredAny::deserialize(&mut reader) {
        Err(rmp_serde::decode::Error::InvalidMarkerRead(e)) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(msg),
        _ => Err(malformed("bytes left over after the message".to_owned())),
    }
}

/// [`decode_body`] for messages of untrusted senders: at most [`MOST_VALUES`] values.
pub fn decode_untrusted<T: DeserializeOwned>(body: &[u8]) -> Result<T, FrameError> {
    if has_more_values_than(MOST_VALUES, body) {
        let cause = format!("it has more than {MOST_VALUES} values");
        return Err(FrameError::Malformed { size: body.len(), cause });
    }
    decode_body(body)
}

/// Goes from one value to the next; those inside lists and maps simply follow. What is cut off or no value is left to the
/// decoder. Sizes are those of the MessagePack specification.
fn has_more_values_than(most: usize, body: &[u8]) -> bool {
    let (mut rest, mut count) = (body, 0);
    while let [marker, after @ ..] = rest {
        count += 1;
        if count > most {
            return true;
        }
        let length = |bytes: usize| {
            let length = after.iter().take(bytes).fold(0, |length, byte| length << 8 | usize::from(*byte));
            length.saturating_add(bytes)
        };
        let of_value = match marker {
            0xa0..=0xbf => usize::from(marker & 0x1f),
            0xcc | 0xd0 => 1,
            0xcd | 0xd1 | 0xd4 | 0xdc | 0xde => 2,
            0xd5 => 3,
            0xca | 0xce | 0xd2 | 0xdd | 0xdf => 4,
            0xd6 => 5,
            0xcb | 0xcf | 0xd3 => 8,
            0xd7 => 9,
            0xd8 => 17,
            0xc4 | 0xd9 => length(1),
            0xc5 | 0xda => length(2),
            0xc6 | 0xdb => length(4),
            0xc7 => length(1) + 1,
            0xc8 => length(2) + 1,
            0xc9 => length(4) + 1,
            _ => 0,
        };
        rest = after.get(of_value..).unwrap_or_default();
    }
    false
}

/// Cuts a stream of bytes into messages. Bytes may be fed in pieces of any size.
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    /// The sender is not trusted.
    distrusts: bool,
    buffer: Vec<u8>,
    start: usize,
}

impl Decoder {
    /// For frames whose body is at most `limit` bytes.
    pub const fn new(limit: usize) -> Self {
        Self { limit, distrusts: false, buffer: Vec::new(), start: 0 }
    }

    /// From now on messages may have at most [`MOST_VALUES`] values: the sender is not trusted.
    pub fn distrust(&mut self) {
        self.distrusts = true;
    }

    /// Changes the limit for the frames from here on (a greeting is kept smaller than what follows).
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Adds bytes that arrived.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.compact();
        self.buffer.extend_from_slice(bytes);
    }

    /// Lets `read` put bytes straight into the buffer: it gets a slice to fill and says how many bytes it put there.
    pub fn fill<E>(&mut self, read: impl FnOnce(&mut [u8]) -> Result<usize, E>) -> Result<usize, E> {
        self.compact();
        let filled = self.buffer.len();
        // What the current frame still needs, but never more at once than a chunk: a lying length costs its sender bytes.
        let wanted = self.missing().unwrap_or(0).clamp(4096, READ_CHUNK);
        self.buffer.resize(filled + wanted, 0);
        let result = read(&mut self.buffer[filled..]);
        let got = match &result {
            Ok(count) => (*count).min(wanted),
            Err(_) => 0,
        };
        self.buffer.truncate(filled + got);
        result
    }

    /// The next whole message, `None` when more bytes are needed.
    // Not an iterator: the type may differ from frame to frame, and `None` is not the end.
    #[allow(clippy::should_implement_trait)]
    pub fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let distrusts = self.distrusts;
        match self.next_body()? {
            Some(body) if distrusts => decode_untrusted(body).map(Some),
            Some(body) => decode_body(body).map(Some),
            None => Ok(None),
        }
    }

    /// The next whole frame's body, `None` when more bytes are needed.
    pub fn next_body(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let Some(size) = self.size()? else { return Ok(None) };
        let from = self.start + PREFIX;
        if self.buffer.len() < from + size {
            return Ok(None);
        }
        self.start = from + size;
        Ok(Some(&self.buffer[from..from + size]))
    }

    /// Would [`Decoder::next`] give something else than "more bytes are needed"?
    pub fn is_ready(&self) -> bool {
        match self.size() {
            Ok(None) => false,
            Ok(Some(size)) => self.buffered().len() >= PREFIX + size,
            Err(_) => true,
        }
    }

    /// Bytes that are here but not yet read as messages.
    pub fn buffered(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// To be called when the peer closed and all messages are read: an error when it closed inside a frame.
    pub fn finish(&self) -> Result<(), FrameError> {
        let have = self.buffered().len();
        match self.size()? {
            None if have == 0 => Ok(()),
            None => Err(FrameError::Truncated { have, want: PREFIX }),
            Some(size) => Err(FrameError::Truncated { have, want: PREFIX + size }),
        }
    }

    /// Length of the frame at the frontend, once its prefix is here and within the limit.
    fn size(&self) -> Result<Option<usize>, FrameError> {
        let Some(prefix) = self.buffered().first_chunk::<PREFIX>() else { return Ok(None) };
        let size = u32::from_be_bytes(*prefix) as usize;
        if size > self.limit { Err(FrameError::TooLarge { size, limit: self.limit }) } else { Ok(Some(size)) }
    }

    /// Bytes that the frame at the frontend still lacks.
    fn missing(&self) -> Option<usize> {
        let size = self.size().ok()??;
        (PREFIX + size).checked_sub(self.buffered().len())
    }

    fn compact(&mut self) {
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
            // One huge frame must not keep its memory for the life of an idle link.
            if self.buffer.capacity() > 4 * READ_CHUNK {
                self.buffer.shrink_to(READ_CHUNK);
            }
        } else if self.start > READ_CHUNK {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
    }
}

#[cfg(test)]
#[path = "codec_test.rs"]
mod tests;
