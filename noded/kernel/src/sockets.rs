//! Sockets that the parent process passes by number, and the private socket at which a launcher can be found again.

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, FdFlag, OFlag, fcntl},
    sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, accept4, bind, getsockopt, socket, sockopt},
};
use std::{
    fs, io,
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::fs::{FileTypeExt, PermissionsExt},
    },
    path::Path,
};

/// Takes over descriptor `fd`, which must be a stream socket that this process was started with and nobody here has taken
/// yet. It closes at exec from now on.
pub fn inherited(fd: RawFd) -> io::Result<OwnedFd> {
    if fd <= libc::STDERR_FILENO {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: only asks about a number; nothing is read if no such descriptor is open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    if getsockopt(&borrowed, sockopt::SockType)? != SockType::Stream {
        return Err(io::Error::from_raw_os_error(libc::EPROTOTYPE));
    }
    fcntl(borrowed, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    // SAFETY: it is open, and the caller says that it has no owner in this process.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The process on the other side of a Unix socket: of a connected pair whoever made it, of a connection its maker, or
/// whoever made the socket listen that it was made to (unix(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its user.
    pub uid: u32,
    /// Its number then.
    pub pid: u32,
}

/// Who is on the other side.
pub fn peer(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let credentials = getsockopt(&socket, sockopt::PeerCredentials)?;
    let pid = u32::try_from(credentials.pid()).map_err(io::Error::other)?;
    Ok(Peer { uid: credentials.uid(), pid })
}

/// A stream socket bound to a new file that only this user (and root) can connect to, in place of a socket's file that is
/// there. It does not listen yet: whoever makes it listen ([`listen`]) is who those that connect see.
pub fn bind_private(path: &Path) -> io::Result<OwnedFd> {
    let address = UnixAddr::new(path)?;
    match fs::symlink_metadata(path) {
        Ok(there) if there.file_type().is_socket() => fs::remove_file(path)?,
        Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    let socket = stream_socket()?;
    bind(socket.as_raw_fd(), &address)?;
    // Nobody can have connected before: it does not listen.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(socket)
}

/// Makes a bound socket listen, in this process's name, without waiting in [`accept`].
pub fn listen(socket: BorrowedFd<'_>) -> io::Result<()> {
    fcntl(socket, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok(nix::sys::socket::listen(&socket, Backlog::new(4)?)?)
}

/// The next connection, if there is one.
pub fn accept(socket: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    match accept4(socket.as_raw_fd(), SockFlag::SOCK_CLOEXEC) {
        // SAFETY: just made, owned by nobody else.
        Ok(fd) => Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) })),
        // Nobody is there, or is any more; or there are too many descriptors here, which may change.
        Err(Errno::EAGAIN | Errno::EINTR | Errno::ECONNABORTED | Errno::EMFILE | Errno::ENFILE) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Connects to the socket at `path`, without waiting for room in its queue.
pub fn connect(path: &Path) -> io::Result<OwnedFd> {
    let socket = stream_socket()?;
    fcntl(&socket, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    nix::sys::socket::connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(socket)
}

fn stream_socket() -> io::Result<OwnedFd> {
    Ok(socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::scratch::Scratch;
    use std::os::fd::{AsFd, IntoRawFd};

    #[test]
    fn a_private_socket_tells_both_sides_who_the_other_is() {
        let dir = Scratch::new("sockets");
        let path = dir.join("door");
        let bound = bind_private(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(connect(&path).is_err(), "it does not listen yet");
        // Left by a process that died.
        drop(bound);
        let bound = bind_private(&path).unwrap();
        listen(bound.as_fd()).unwrap();
        assert!(accept(bound.as_fd()).unwrap().is_none());
        let client = connect(&path).unwrap();
        let served = accept(bound.as_fd()).unwrap().unwrap();
        let me = Peer { uid: nix::unistd::geteuid().as_raw(), pid: std::process::id() };
        assert_eq!((peer(client.as_fd()).unwrap(), peer(served.as_fd()).unwrap()), (me, me));
        dir.put("plain", "a file of somebody");
        assert!(bind_private(&dir.join("plain")).is_err());
        assert!(bind_private(&dir.join(&"x".repeat(120))).is_err(), "longer than an address may be");
    }

    #[test]
    fn only_open_stream_sockets_are_taken() {
        let (a, _b) = std::os::unix::net::UnixStream::pair().unwrap();
        let number = a.into_raw_fd();
        assert_eq!(inherited(number).unwrap().as_raw_fd(), number);
        let file = fs::File::open("/dev/null").unwrap();
        assert_eq!(inherited(file.as_raw_fd()).unwrap_err().raw_os_error(), Some(libc::ENOTSOCK));
        assert_eq!(inherited(1).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert_eq!(inherited(1_000_000).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }
}
