//! One `sendmsg` or `recvmsg` with descriptors besides the bytes (`SCM_RIGHTS`, unix(7)). The callers know what they belong to:
//! [`fds`](crate::fds), [`door`](crate::door), and the daemons' side of a door.
//!
//! Descriptors leave with the first byte of their `sendmsg`, and arrive with the read that takes that byte: not later than the
//! frame that announces them, and in order. A read ends after bytes that brought some.

use nix::{
    errno::Errno,
    sys::socket::{ControlMessage, MsgFlags, sendmsg},
};
use std::{
    collections::VecDeque,
    io::IoSlice,
    mem,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

/// `SCM_MAX_FD`, unix(7): as many as the kernel can ever deliver beside one message.
pub const KERNEL_MAX_FDS: usize = 253;

/// What one receive brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes; 0 at the end of the stream.
    pub bytes: usize,
    /// The peer sent descriptors that did not come: more than there was room for, or than this process may have open.
    pub lost: bool,
}

/// One `sendmsg`; `None` when the socket takes nothing now (or, with its time limit, took nothing in time).
pub fn send_beside(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
    flags: MsgFlags,
) -> Result<Option<usize>, Errno> {
    let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let beside: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &rights };
    loop {
        let flags = flags | MsgFlags::MSG_NOSIGNAL;
        return match sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(bytes)], beside, flags, None) {
            Ok(count) => Ok(Some(count)),
            Err(Errno::EINTR) => continue,
            Err(Errno::EAGAIN) => Ok(None),
            Err(errno) => Err(errno),
        };
    }
}

/// Room for the control message of [`KERNEL_MAX_FDS`] descriptors, aligned as `cmsghdr` wants.
#[repr(C, align(8))]
struct ControlBuffer([u8; 16 + KERNEL_MAX_FDS * size_of::<RawFd>() + 8]);

/// One `recvmsg` without waiting; `None` when nothing is there. At most `most` descriptors go to `arrived`,
/// close-on-exec; the kernel closes those beyond, which never become this process's.
pub fn recv_beside(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    most: usize,
    arrived: &mut VecDeque<OwnedFd>,
) -> Result<Option<Received>, Errno> {
    let mut control = ControlBuffer([0; _]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let room = (most.min(KERNEL_MAX_FDS) * size_of::<RawFd>()) as libc::c_uint;
    // SAFETY: `msghdr` is plain data for which all-zero is valid; the fields that matter are set below.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: only computes a length. The buffer is larger than that of `KERNEL_MAX_FDS` descriptors.
    header.msg_controllen = unsafe { libc::CMSG_LEN(room) } as _;
    let count = loop {
        // SAFETY: `header` points at `part` and `control`, which live until the end of this function, with their true
        // lengths or less; the kernel writes only within them.
        let result =
            unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC) };
        match Errno::result(result) {
            Ok(count) => break count as usize,
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return Ok(None),
            Err(Errno::ECONNRESET) => return Ok(Some(Received { bytes: 0, lost: false })),
            Err(errno) => return Err(errno),
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
    Ok(Some(Received { bytes: count, lost: header.msg_flags & libc::MSG_CTRUNC != 0 }))
}
