//! Sockets that come by number from the process that started this one.

use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    sys::socket::{SockType, getsockopt, sockopt},
};
use std::{
    io,
    os::fd::{FromRawFd, OwnedFd, RawFd},
};

/// Takes over descriptor `fd`, which must be a stream socket that this process was started with and nobody here has taken
/// yet. It closes at exec from now on.
pub fn inherited(fd: RawFd) -> io::Result<OwnedFd> {
    if fd <= libc::STDERR_FILENO {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: only asks about a number; nothing is read if no such descriptor is open.
    let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
    if getsockopt(&borrowed, sockopt::SockType)? != SockType::Stream {
        return Err(io::Error::from_raw_os_error(libc::EPROTOTYPE));
    }
    fcntl(borrowed, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    // SAFETY: it is open, and the caller says that it has no owner in this process.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::fd::{AsRawFd, IntoRawFd};

    #[test]
    fn only_open_stream_sockets_are_taken() {
        let (a, _b) = std::os::unix::net::UnixStream::pair().unwrap();
        let number = a.into_raw_fd();
        assert_eq!(inherited(number).unwrap().as_raw_fd(), number);
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(inherited(file.as_raw_fd()).unwrap_err().raw_os_error(), Some(libc::ENOTSOCK));
        assert_eq!(inherited(1).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert_eq!(inherited(1_000_000).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }
}
