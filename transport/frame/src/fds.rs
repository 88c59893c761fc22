//! Frames with file descriptors beside them (`SCM_RIGHTS`) over a Unix stream socket pair: `stepd` and its launcher.
//!
//! A frame is a 4-byte big-endian length, one byte with the number of descriptors, and the body. The descriptors leave
//! with the frame's first byte. The kernel may join bytes of several sends in one read, and ends a read after bytes that
//! brought descriptors (unix(7) promises only the order), so position in a read does not tell whose they are: the count in
//! the header does, since descriptors arrive in order and not later than their frame's first byte.
//!
//! The peer is not trusted: a count over [`MAX_FDS`], descriptors that no frame announced, or announced ones that did not
//! come end the channel, and every received descriptor is close-on-exec and closed when not handed out.

use crate::codec::{FrameError, decode_body, encode_into};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair},
};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    mem,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

/// Most descriptors beside one message: three for a task's standard streams, the rest for cgroup files of every version 1
/// hierarchy. (The kernel's own limit is 253, unix(7).)
pub const MAX_FDS: usize = 32;
/// Bytes of a frame's header.
const HEADER: usize = 5;
/// `SCM_MAX_FD`, unix(7). Room for as many as the kernel can ever deliver, so that none is installed unseen.
const KERNEL_MAX_FDS: usize = 253;

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

/// A frame's body and its descriptors.
type Frame = (Vec<u8>, Vec<OwnedFd>);

/// One end of a channel. Blocking and non-blocking calls may be mixed; the socket's own blocking mode does not matter.
///
/// Under an async runtime: register the channel for readiness, call [`FdChannel::try_recv`] until it gives `None`, then
/// clear the readiness and wait again; likewise [`FdChannel::try_send`] with [`FdChannel::flush`].
#[derive(Debug)]
pub struct FdChannel {
    socket: OwnedFd,
    limit: usize,
    incoming: Vec<u8>,
    arrived: VecDeque<OwnedFd>,
    outgoing: Vec<u8>,
    written: usize,
}

impl FdChannel {
    /// Over one end of a Unix stream socket; bodies are at most `limit` bytes.
    pub const fn new(socket: OwnedFd, limit: usize) -> Self {
        Self { socket, limit, incoming: Vec::new(), arrived: VecDeque::new(), outgoing: Vec::new(), written: 0 }
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

    /// Writes what is left of an earlier message; true when nothing is left.
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
                return Ok(Some((decode_body(&body)?, fds)));
            }
            let filled = self.incoming.len();
            self.incoming.resize(filled + (16 << 10), 0);
            let read = recv_part(self.socket.as_fd(), &mut self.incoming[filled..], &mut self.arrived);
            self.incoming.truncate(filled + read.as_ref().map_or(0, |count| count.unwrap_or(0)));
            match read? {
                None => return Ok(None),
                Some(0) if self.incoming.is_empty() => return Err(FdError::Closed),
                Some(0) => {
                    let want = match self.incoming.first_chunk::<HEADER>() {
                        Some(header) => HEADER + body_size(header),
                        None => HEADER,
                    };
                    return Err(FrameError::Truncated { have: self.incoming.len(), want }.into());
                }
                Some(_) => {}
            }
        }
    }

    fn take_frame(&mut self) -> Result<Option<Frame>, FdError> {
        let Some(header) = self.incoming.first_chunk::<HEADER>() else {
            return self.check_arrived().map(|()| None);
        };
        let (size, count) = (body_size(header), header[4] as usize);
        check_header(size, count, self.limit)?;
        if self.arrived.len() < count {
            return Err(FdError::FdMismatch { announced: count, arrived: self.arrived.len() });
        }
        if self.incoming.len() < HEADER + size {
            return self.check_arrived().map(|()| None);
        }
        let rest = self.incoming.split_off(HEADER + size);
        let mut body = mem::replace(&mut self.incoming, rest);
        body.drain(..HEADER);
        let fds = self.arrived.drain(..count).collect();
        if self.incoming.is_empty() && !self.arrived.is_empty() {
            return Err(FdError::FdMismatch { announced: count, arrived: count + self.arrived.len() });
        }
        Ok(Some((body, fds)))
    }

    /// Descriptors wait only for frames that have begun to arrive; a read ends after bytes that brought some, so no more
    /// than those of two messages can be here.
    fn check_arrived(&self) -> Result<(), FdError> {
        if self.arrived.len() > 2 * MAX_FDS || (self.incoming.is_empty() && !self.arrived.is_empty()) {
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
    Ok((decode_body(&body)?, arrived.into()))
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
    let announced = u8::try_from(count).ok().filter(|_| count <= MAX_FDS).ok_or(FdError::TooManyFds { count })?;
    let mut frame = Vec::with_capacity(256);
    encode_into(msg, limit, &mut frame)?;
    frame.insert(HEADER - 1, announced);
    Ok(frame)
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
    let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let beside: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &rights };
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    loop {
        return match sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(bytes)], beside, flags, None) {
            Ok(count) => Ok(Some(count)),
            Err(Errno::EINTR) => continue,
            Err(Errno::EAGAIN) => Ok(None),
            Err(errno) => Err(failed("sendmsg", errno)),
        };
    }
}

/// Room for the control message of [`KERNEL_MAX_FDS`] descriptors, aligned as `cmsghdr` wants.
#[repr(C, align(8))]
struct ControlBuffer([u8; 16 + KERNEL_MAX_FDS * size_of::<RawFd>() + 8]);

/// One `recvmsg` without waiting; `None` when nothing is there. Descriptors go to `arrived`.
fn recv_part(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    arrived: &mut VecDeque<OwnedFd>,
) -> Result<Option<usize>, FdError> {
    let mut control = ControlBuffer([0; _]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: `msghdr` is plain data for which all-zero is valid; the fields that matter are set below.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = control.0.len() as _;
    let count = loop {
        // SAFETY: `header` points at `part` and `control`, which live until the end of this function, with their true
        // lengths; the kernel writes only within them.
        let result =
            unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC) };
        match Errno::result(result) {
            Ok(count) => break count as usize,
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return Ok(None),
            Err(Errno::ECONNRESET) => return Ok(Some(0)),
            Err(errno) => return Err(failed("recvmsg", errno)),
        }
    };
    // Taken one by one even when the kernel says that some were lost: those that came are open in this process now.
    // SAFETY: `header` was filled by a successful recvmsg, so the CMSG macros walk initialised control messages inside
    // `control`; every descriptor in an SCM_RIGHTS message is new, open, and owned by nobody else.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(&raw const header);
        while !message.is_null() {
            if (*message).cmsg_level == libc::SOL_SOCKET && (*message).cmsg_type == libc::SCM_RIGHTS {
                let bytes = (*message).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(message).cast::<RawFd>();
                for index in 0..bytes / size_of::<RawFd>() {
                    arrived.push_back(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            message = libc::CMSG_NXTHDR(&raw const header, message);
        }
    }
    if header.msg_flags & libc::MSG_CTRUNC != 0 { Err(FdError::FdsLost) } else { Ok(Some(count)) }
}

#[cfg(test)]
#[path = "fds_test.rs"]
mod tests;
