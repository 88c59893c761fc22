//! Frames with file descriptors (`SCM_RIGHTS`) over a Unix stream socket pair: between `stepd` and its launcher.
//!
//! A frame is a 4-byte big-endian length, one byte with the number of descriptors, and the body. The descriptors leave
//! with the frame's first byte. The kernel may join bytes of several sends in one read, and ends a read after bytes that
//! brought descriptors (unix(7) promises only the order), so position in a read does not tell whose they are: the count in
//! the header does, since descriptors arrive in order and not later than their frame's first byte.
//!
//! The peer is not trusted: a count over [`MAX_FDS`], unannounced descriptors, or missing announced ones end the channel. Every
//! received descriptor is close-on-exec, and closed if it is not passed on.

use crate::{
    codec::{FrameError, decode_untrusted, encode_into},
    rights::{KERNEL_MAX_FDS, Received, recv_beside, send_beside},
};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, socketpair},
};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    collections::VecDeque,
    io,
    ops::Range,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
};

/// Most descriptors beside one message: three for a task's standard streams, the rest for cgroup files of every version 1
/// hierarchy. (The kernel's own limit is 253, unix(7).)
pub const MAX_FDS: usize = 32;
/// Bytes of a frame's header.
const HEADER: usize = 5;

/// A descriptor channel that failed. All but [`FdError::WouldBlock`], [`FdError::TooManyFds`] and frames that the caller
/// could not encode end the channel.
#[derive(Debug, thiserror::Error)]
pub enum FdError {
    /// The peer closed between two frames.
    #[error("the other process closed the channel")]
    Closed,
    /// A frame could not be made or read.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// More descriptors than one message may carry.
    #[error("{count} descriptors beside one message, the limit is {MAX_FDS}")]
    TooManyFds {
        /// How many.
        count: usize,
    },
    /// The peer announced descriptors that did not come, or sent some that no frame announced.
    #[error("descriptors do not match their frames: {announced} announced, {arrived} arrived")]
    FdMismatch {
        /// By the frame's header.
        announced: usize,
        /// With it.
        arrived: usize,
    },
    /// Descriptors were lost on arrival: this process has too many open.
    #[error("descriptors were lost on arrival (is the limit of open files reached?)")]
    FdsLost,
    /// Nothing of the message was sent: the socket is full. Try again when it is writable.
    #[error("the channel is full")]
    WouldBlock,
    /// A system call failed.
    #[error("descriptor channel: {doing}: {source}")]
    Io {
        /// What was going on.
        doing: &'static str,
        /// Cause.
        source: io::Error,
    },
}

fn failed(doing: &'static str, errno: Errno) -> FdError {
    match errno {
        Errno::EPIPE | Errno::ECONNRESET => FdError::Closed,
        errno => FdError::Io { doing, source: errno.into() },
    }
}

/// Where a frame's body is among what has arrived, and its descriptors.
type Frame = (Range<usize>, Vec<OwnedFd>);

/// One end of a channel. Blocking and non-blocking calls may be mixed; the socket's own blocking mode does not matter.
///
/// Under an async runtime: register the channel for readiness, call [`FdChannel::try_recv`] until it gives `None`, then
/// clear the readiness and wait again; likewise [`FdChannel::try_send`] with [`FdChannel::flush`].
///
/// Many small messages cost one system call: [`FdChannel::queue`] gathers those without descriptors, [`FdChannel::flush`]
/// writes them, and one read brings as many frames as there are.
#[derive(Debug)]
pub struct FdChannel {
    socket: OwnedFd,
    limit: usize,
    /// Room for bytes; those from `start` up to `filled` have arrived and are not read as messages yet.
    incoming: Vec<u8>,
    start: usize,
    filled: usize,
    arrived: VecDeque<OwnedFd>,
    outgoing: Vec<u8>,
    written: usize,
}

/// Bytes asked of the socket at once.
const READ_CHUNK: usize = 64 << 10;

impl FdChannel {
    /// Over one end of a Unix stream socket; bodies are at most `limit` bytes.
    pub fn new(socket: OwnedFd, limit: usize) -> Self {
        let (incoming, arrived, outgoing) = (Vec::new(), VecDeque::new(), Vec::new());
        Self { socket, limit, incoming, start: 0, filled: 0, arrived, outgoing, written: 0 }
    }

    /// Two connected ends, close-on-exec. The end meant for a child process is passed to it by number
    /// ([`FdChannel::into_fd`]), the flag cleared between fork and exec.
    pub fn pair(limit: usize) -> Result<(Self, Self), FdError> {
        let (a, b) = socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)
            .map_err(|e| failed("socketpair", e))?;
        Ok((Self::new(a, limit), Self::new(b, limit)))
    }

    /// The bare socket. What was received and not read yet is lost.
    pub fn into_fd(self) -> OwnedFd {
        self.socket
    }

    /// Sends a message with descriptors beside it (they stay open here), waiting as long as it takes.
    pub fn send<T: Serialize + ?Sized>(&mut self, msg: &T, fds: &[BorrowedFd<'_>]) -> Result<(), FdError> {
        let frame = self.encode(msg, fds)?;
        while !self.flush()? {
            self.wait(PollFlags::POLLOUT)?;
        }
        while !self.start(&frame, fds)? {
            self.wait(PollFlags::POLLOUT)?;
        }
        while !self.flush()? {
            self.wait(PollFlags::POLLOUT)?;
        }
        Ok(())
    }

    /// Sends without waiting. [`FdError::WouldBlock`] means that nothing was sent. When only a part fitted, the rest is
    /// kept: [`FdChannel::wants_write`] says so, and [`FdChannel::flush`] goes on with it.
    pub fn try_send<T: Serialize + ?Sized>(&mut self, msg: &T, fds: &[BorrowedFd<'_>]) -> Result<(), FdError> {
        let frame = self.encode(msg, fds)?;
        if self.flush()? && self.start(&frame, fds)? {
            self.flush()?;
            return Ok(());
        }
        Err(FdError::WouldBlock)
    }

    /// Puts a message without descriptors behind what is to be written; [`FdChannel::flush`] writes it.
    pub fn queue<T: Serialize + ?Sized>(&mut self, msg: &T) -> Result<(), FdError> {
        // What was written of a long row goes before it is a burden.
        if self.written > READ_CHUNK {
            self.outgoing.drain(..self.written);
            self.written = 0;
        }
        append_with_count(&mut self.outgoing, msg, 0, self.limit)
    }

    /// Bytes that are to be written.
    pub fn queued_bytes(&self) -> usize {
        self.outgoing.len() - self.written
    }

    /// Writes what was queued, or is left of an earlier message; true when nothing is left.
    pub fn flush(&mut self) -> Result<bool, FdError> {
        while self.wants_write() {
            match send_part(self.socket.as_fd(), &self.outgoing[self.written..], &[])? {
                Some(count) => self.written += count,
                None => return Ok(false),
            }
        }
        self.outgoing.clear();
        self.written = 0;
        Ok(true)
    }

    /// A part of an earlier message is left to write.
    pub fn wants_write(&self) -> bool {
        self.written < self.outgoing.len()
    }

    /// Waits for the next message and its descriptors.
    pub fn recv<T: DeserializeOwned>(&mut self) -> Result<(T, Vec<OwnedFd>), FdError> {
        loop {
            if let Some(received) = self.try_recv()? {
                return Ok(received);
            }
            self.wait(PollFlags::POLLIN)?;
        }
    }

    /// The next message and its descriptors; `None` when the socket has nothing more for now.
    pub fn try_recv<T: DeserializeOwned>(&mut self) -> Result<Option<(T, Vec<OwnedFd>)>, FdError> {
        loop {
            if let Some((body, fds)) = self.take_frame()? {
                return Ok(Some((decode_untrusted(&self.incoming[body])?, fds)));
            }
            self.make_room();
            let read = recv_part(self.socket.as_fd(), &mut self.incoming[self.filled..], &mut self.arrived)?;
            match read {
                None => return Ok(None),
                Some(0) if self.start == self.filled => return Err(FdError::Closed),
                Some(0) => {
                    let want = match self.arrived_bytes().first_chunk::<HEADER>() {
                        Some(header) => HEADER + body_size(header),
                        None => HEADER,
                    };
                    return Err(FrameError::Truncated { have: self.arrived_bytes().len(), want }.into());
                }
                Some(count) => self.filled += count,
            }
        }
    }

    /// Would [`FdChannel::try_recv`] give a message, or find something wrong, without asking the socket?
    pub fn has_frame(&self) -> bool {
        let bytes = self.arrived_bytes();
        bytes.first_chunk::<HEADER>().is_some_and(|h| body_size(h) > self.limit || bytes.len() >= HEADER + body_size(h))
    }

    fn arrived_bytes(&self) -> &[u8] {
        &self.incoming[self.start..self.filled]
    }

    /// Room for another read behind what has arrived.
    fn make_room(&mut self) {
        if self.start == self.filled {
            (self.start, self.filled) = (0, 0);
            // One huge frame must not keep its memory for the life of the channel.
            if self.incoming.len() > 4 * READ_CHUNK {
                self.incoming = Vec::new();
            }
        }
        if self.incoming.len() - self.filled < READ_CHUNK {
            self.incoming.copy_within(self.start..self.filled, 0);
            (self.start, self.filled) = (0, self.filled - self.start);
            self.incoming.resize((self.filled + READ_CHUNK).max(self.incoming.len()), 0);
        }
    }

    /// Where the next frame's body is, and its descriptors.
    fn take_frame(&mut self) -> Result<Option<Frame>, FdError> {
        let Some(header) = self.arrived_bytes().first_chunk::<HEADER>() else {
            return self.check_arrived().map(|()| None);
        };
        let (size, count) = (body_size(header), header[4] as usize);
        check_header(size, count, self.limit)?;
        if self.arrived.len() < count {
            return Err(FdError::FdMismatch { announced: count, arrived: self.arrived.len() });
        }
        if self.arrived_bytes().len() < HEADER + size {
            return self.check_arrived().map(|()| None);
        }
        let body = self.start + HEADER..self.start + HEADER + size;
        self.start = body.end;
        let fds = self.arrived.drain(..count).collect();
        if self.start == self.filled && !self.arrived.is_empty() {
            return Err(FdError::FdMismatch { announced: count, arrived: count + self.arrived.len() });
        }
        Ok(Some((body, fds)))
    }

    /// Descriptors wait only for frames that have begun to arrive; a read ends after bytes that brought some, so no more
    /// than those of two messages can be here.
    fn check_arrived(&self) -> Result<(), FdError> {
        if self.arrived.len() > 2 * MAX_FDS || (self.start == self.filled && !self.arrived.is_empty()) {
            return Err(FdError::FdMismatch { announced: 0, arrived: self.arrived.len() });
        }
        Ok(())
    }

    fn encode<T: Serialize + ?Sized>(&self, msg: &T, fds: &[BorrowedFd<'_>]) -> Result<Vec<u8>, FdError> {
        encode_with_count(msg, fds.len(), self.limit)
    }

    /// Sends the first bytes of a frame with its descriptors and keeps the rest; false when the socket took nothing.
    fn start(&mut self, frame: &[u8], fds: &[BorrowedFd<'_>]) -> Result<bool, FdError> {
        match send_part(self.socket.as_fd(), frame, fds)? {
            Some(count) => {
                self.outgoing.extend_from_slice(&frame[count..]);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    fn wait(&self, flags: PollFlags) -> Result<(), FdError> {
        wait(self.socket.as_fd(), flags)
    }
}

impl AsFd for FdChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for FdChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Sends one frame over a stream socket, waiting as long as it takes. For a process that keeps no [`FdChannel`].
pub fn send_with_fds<T: Serialize + ?Sized>(
    socket: BorrowedFd<'_>,
    msg: &T,
    fds: &[BorrowedFd<'_>],
    limit: usize,
) -> Result<(), FdError> {
    let frame = encode_with_count(msg, fds.len(), limit)?;
    let mut written = 0;
    while written < frame.len() {
        match send_part(socket, &frame[written..], if written == 0 { fds } else { &[] })? {
            Some(count) => written += count,
            None => wait(socket, PollFlags::POLLOUT)?,
        }
    }
    Ok(())
}

/// Waits for one frame on a stream socket and reads exactly that much.
pub fn recv_with_fds<T: DeserializeOwned>(socket: BorrowedFd<'_>, limit: usize) -> Result<(T, Vec<OwnedFd>), FdError> {
    let mut arrived = VecDeque::new();
    let mut header = [0; HEADER];
    read_exactly(socket, &mut header, &mut arrived, HEADER)?;
    let (size, count) = (body_size(&header), header[4] as usize);
    check_header(size, count, limit)?;
    let mut body = Vec::new();
    while body.len() < size {
        let filled = body.len();
        body.resize(size.min(filled + (64 << 10)), 0);
        read_exactly(socket, &mut body[filled..], &mut arrived, HEADER + size)?;
    }
    if arrived.len() != count {
        return Err(FdError::FdMismatch { announced: count, arrived: arrived.len() });
    }
    Ok((decode_untrusted(&body)?, arrived.into()))
}

fn read_exactly(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    arrived: &mut VecDeque<OwnedFd>,
    want: usize,
) -> Result<(), FdError> {
    let mut filled = 0;
    while filled < buffer.len() {
        match recv_part(socket, &mut buffer[filled..], arrived)? {
            None => wait(socket, PollFlags::POLLIN)?,
            Some(0) if filled == 0 && want == HEADER => return Err(FdError::Closed),
            Some(0) => return Err(FrameError::Truncated { have: want - buffer.len() + filled, want }.into()),
            Some(count) => filled += count,
        }
    }
    Ok(())
}

fn body_size(header: &[u8; HEADER]) -> usize {
    u32::from_be_bytes([header[0], header[1], header[2], header[3]]) as usize
}

fn check_header(size: usize, count: usize, limit: usize) -> Result<(), FdError> {
    if size > limit {
        return Err(FrameError::TooLarge { size, limit }.into());
    }
    if count > MAX_FDS {
        return Err(FdError::TooManyFds { count });
    }
    Ok(())
}

fn encode_with_count<T: Serialize + ?Sized>(msg: &T, count: usize, limit: usize) -> Result<Vec<u8>, FdError> {
    let mut frame = Vec::with_capacity(256);
    append_with_count(&mut frame, msg, count, limit)?;
    Ok(frame)
}

fn append_with_count<T: Serialize + ?Sized>(
    out: &mut Vec<u8>,
    msg: &T,
    count: usize,
    limit: usize,
) -> Result<(), FdError> {
    let announced = u8::try_from(count).ok().filter(|_| count <= MAX_FDS).ok_or(FdError::TooManyFds { count })?;
    let start = out.len();
    encode_into(msg, limit, out)?;
    out.insert(start + HEADER - 1, announced);
    Ok(())
}

/// Waits for readiness; also returns when the peer hung up, which the next call then sees.
fn wait(socket: BorrowedFd<'_>, flags: PollFlags) -> Result<(), FdError> {
    match poll(&mut [PollFd::new(socket, flags)], PollTimeout::NONE) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(failed("poll", errno)),
    }
}

/// One `sendmsg` without waiting; `None` when the socket is full.
fn send_part(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<Option<usize>, FdError> {
    send_beside(socket, bytes, fds, MsgFlags::MSG_DONTWAIT).map_err(|errno| failed("sendmsg", errno))
}

/// One `recvmsg` without waiting; `None` if nothing has arrived. Descriptors go to `arrived`: there is room for as many as the
/// kernel can ever deliver, so that too many are detected and refused.
fn recv_part(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    arrived: &mut VecDeque<OwnedFd>,
) -> Result<Option<usize>, FdError> {
    match recv_beside(socket, buffer, KERNEL_MAX_FDS, arrived).map_err(|errno| failed("recvmsg", errno))? {
        Some(Received { lost: true, .. }) => Err(FdError::FdsLost),
        received => Ok(received.map(|received| received.bytes)),
    }
}

#[cfg(test)]
#[path = "fds_test.rs"]
mod tests;
