//! System calls, and memory as it is found on a process's first stack. Nothing here allocates, panics or calls a library: there
//! is none. Loops over bytes use volatile reads, or the compiler would turn them into calls of a C library.

use syscalls::{Errno, Sysno, syscall};

/// A text ended by a NUL, in memory that is there for the whole life of the process.
#[derive(Clone, Copy)]
pub struct Text(*const u8);

impl Text {
    pub const fn start(self) -> *const u8 {
        self.0
    }

    /// A byte of it. Not beyond its NUL.
    pub fn byte(self, at: usize) -> u8 {
        // SAFETY: callers go no further than the NUL, up to which the text is there.
        unsafe { self.0.wrapping_add(at).read_volatile() }
    }

    /// Its end from there on. Not beyond its NUL.
    pub fn from(self, at: usize) -> Self {
        Self(self.0.wrapping_add(at))
    }

    /// Without its NUL.
    pub fn len(self) -> usize {
        let mut len = 0;
        while self.byte(len) != 0 {
            len += 1;
        }
        len
    }

    /// What follows, if it begins like this.
    pub fn behind(self, beginning: &[u8]) -> Option<Self> {
        let mut at = 0;
        for byte in beginning {
            if self.byte(at) != *byte {
                return None;
            }
            at += 1;
        }
        Some(Self(self.0.wrapping_add(at)))
    }

    pub fn has(self, byte: u8) -> bool {
        let mut at = 0;
        while self.byte(at) != 0 {
            if self.byte(at) == byte {
                return true;
            }
            at += 1;
        }
        false
    }
}

/// A list of texts that ends with a null pointer.
#[derive(Clone, Copy)]
pub struct Texts(pub *const *const u8);

impl Texts {
    /// The text at a place that is not behind the list's end.
    pub fn get(self, at: usize) -> Option<Text> {
        // SAFETY: callers go on from one place to the next only while there is a text.
        let start = unsafe { self.0.wrapping_add(at).read_volatile() };
        (!start.is_null()).then_some(Text(start))
    }

    pub fn count(self) -> usize {
        let mut count = 0;
        while self.get(count).is_some() {
            count += 1;
        }
        count
    }

    /// The value of a variable, of an environment: `name` ends with its `=`.
    pub fn variable(self, name: &[u8]) -> Option<Text> {
        let mut at = 0;
        while let Some(entry) = self.get(at) {
            if let Some(value) = entry.behind(name) {
                return Some(value);
            }
            at += 1;
        }
        None
    }
}

/// Bytes written one after the other, up to a limit; always ended by a NUL.
pub struct Written<const N: usize> {
    bytes: [core::mem::MaybeUninit<u8>; N],
    len: usize,
}

impl<const N: usize> Written<N> {
    pub const fn new() -> Self {
        Self { bytes: [const { core::mem::MaybeUninit::uninit() }; N], len: 0 }
    }

    /// False: there is no room for it and a NUL.
    pub fn push(&mut self, byte: u8) -> bool {
        if self.len + 1 >= N {
            return false;
        }
        let to = self.bytes.as_mut_ptr().cast::<u8>().wrapping_add(self.len);
        // SAFETY: both places are within the array, by the comparison above.
        unsafe {
            to.write_volatile(byte);
            to.wrapping_add(1).write_volatile(0);
        }
        self.len += 1;
        true
    }

    pub fn push_all(&mut self, bytes: &[u8]) -> bool {
        for byte in bytes {
            if !self.push(*byte) {
                return false;
            }
        }
        true
    }

    pub fn push_hex(&mut self, number: u64) -> bool {
        let mut shift = 64;
        while shift > 0 {
            shift -= 4;
            let digit = (number >> shift & 15) as u8;
            if !self.push(if digit < 10 { b'0' + digit } else { b'a' - 10 + digit }) {
                return false;
            }
        }
        true
    }

    pub const fn cut(&mut self, len: usize) {
        if len < self.len {
            self.len = len;
        }
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    /// A byte that was written.
    pub fn byte(&self, at: usize) -> u8 {
        // SAFETY: callers ask for what is before the end.
        unsafe { self.start().wrapping_add(at).read_volatile() }
    }

    pub const fn start(&self) -> *const u8 {
        self.bytes.as_ptr().cast()
    }
}

/// A number that the kernel gave back.
type Answer = Result<usize, Errno>;

pub fn exit(code: i32) -> ! {
    loop {
        // SAFETY: ends the process.
        let _ = unsafe { syscall!(Sysno::exit_group, code) };
    }
}

/// A reader that is gone is no reason to end.
pub fn write_error(bytes: &[u8]) {
    ignore(libc::SIGPIPE);
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        // SAFETY: the kernel reads what the slice holds.
        match unsafe { syscall!(Sysno::write, 2, rest.as_ptr(), rest.len()) } {
            Ok(some) => done += some,
            Err(Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}

fn ignore(signal: i32) {
    // The kernel's `sigaction`: handler, flags, restorer, mask.
    let action: [usize; 4] = [libc::SIG_IGN, 0, 0, 0];
    // SAFETY: 32 bytes, and a mask of 8.
    let _ = unsafe { syscall!(Sysno::rt_sigaction, signal, action.as_ptr(), 0, 8) };
}

/// False also where the descriptor is not open.
pub fn is_open_and_no_terminal(fd: usize) -> bool {
    let mut modes = core::mem::MaybeUninit::<[u8; 256]>::uninit();
    // SAFETY: the kernel writes at most its `termios`, 36 bytes.
    let asked = unsafe { syscall!(Sysno::ioctl, fd, libc::TCGETS, modes.as_mut_ptr()) };
    matches!(asked, Err(Errno::ENOTTY | Errno::EINVAL | Errno::EACCES | Errno::EPERM | Errno::EIO))
}

/// Is this file a program, for somebody?
pub fn is_program(path: *const u8) -> bool {
    let mut about = core::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `path` is a text that ends with a NUL, and there is room for the answer, which is read when it was given.
    unsafe {
        syscall!(Sysno::stat, path, about.as_mut_ptr()).is_ok() && {
            let mode = (*about.as_ptr()).st_mode;
            mode & libc::S_IFMT == libc::S_IFREG && mode & 0o111 != 0
        }
    }
}

pub fn read_link<const N: usize>(path: &core::ffi::CStr, to: &mut Written<N>) -> Answer {
    let room = to.bytes.as_mut_ptr();
    // SAFETY: the kernel writes at most so many bytes.
    let len = unsafe { syscall!(Sysno::readlink, path.as_ptr(), room, N - 1) }?;
    to.len = len;
    Ok(len)
}

pub fn current_folder<const N: usize>(to: &mut Written<N>) -> Answer {
    // SAFETY: the kernel writes at most so many bytes, NUL included.
    let len = unsafe { syscall!(Sysno::getcwd, to.bytes.as_mut_ptr(), N) }?;
    to.len = len - 1;
    Ok(len)
}

pub fn umask() -> usize {
    // SAFETY: this process has one thread.
    unsafe {
        let mask = syscall!(Sysno::umask, 0o077).unwrap_or(0o077);
        let _ = syscall!(Sysno::umask, mask);
        mask
    }
}

pub fn nice() -> i64 {
    // SAFETY: asks. The kernel answers 20 less the value.
    20 - unsafe { syscall!(Sysno::getpriority, libc::PRIO_PROCESS, 0) }.unwrap_or(20) as i64
}

pub fn session() -> usize {
    // SAFETY: asks.
    unsafe { syscall!(Sysno::getsid, 0) }.unwrap_or(0)
}

pub fn process() -> usize {
    // SAFETY: asks.
    unsafe { syscall!(Sysno::getpid) }.unwrap_or(0)
}

/// All ones: none, or it cannot be asked.
pub fn soft_limit(resource: usize) -> u64 {
    let mut limit = core::mem::MaybeUninit::<libc::rlimit>::uninit();
    // SAFETY: there is room for the answer, which is read when it was given.
    unsafe {
        match syscall!(Sysno::prlimit64, 0, resource, 0, limit.as_mut_ptr()) {
            Ok(_) => (*limit.as_ptr()).rlim_cur,
            Err(_) => u64::MAX,
        }
    }
}

/// Two random words.
pub fn random() -> Result<[u64; 2], Errno> {
    let mut words = core::mem::MaybeUninit::<[u64; 2]>::uninit();
    // SAFETY: the kernel writes at most 16 bytes, and has written all where it says so.
    unsafe {
        match syscall!(Sysno::getrandom, words.as_mut_ptr(), 16, 0) {
            Ok(16) => Ok(words.assume_init()),
            Ok(_) => Err(Errno::EAGAIN),
            Err(errno) => Err(errno),
        }
    }
}

/// Blocks these signals; gives the mask before.
pub fn block(signals: u64) -> Result<u64, Errno> {
    let mut before = 0;
    // SAFETY: both masks are 8 bytes.
    unsafe { syscall!(Sysno::rt_sigprocmask, libc::SIG_BLOCK, &raw const signals, &raw mut before, 8) }?;
    Ok(before)
}

pub fn set_mask(mask: u64) {
    // SAFETY: a mask is 8 bytes.
    let _ = unsafe { syscall!(Sysno::rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, 0, 8) };
}

/// A descriptor that can be read when one of these has come.
pub fn signal_file(signals: u64) -> Answer {
    // SAFETY: a mask is 8 bytes.
    unsafe { syscall!(Sysno::signalfd4, -1_isize, &raw const signals, 8, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) }
}

/// Connects to a socket that belongs to root or to this user.
pub fn connect(path: Text) -> Answer {
    let mut address = core::mem::MaybeUninit::<libc::sockaddr_un>::uninit();
    let len = path.len();
    let room = 108;
    if len >= room {
        return Err(Errno::ENAMETOOLONG);
    }
    let to = address.as_mut_ptr();
    // SAFETY: the path with its NUL fits, by the comparison above.
    unsafe {
        (&raw mut (*to).sun_family).write(libc::AF_UNIX as u16);
        let name = (&raw mut (*to).sun_path).cast::<u8>();
        let mut at = 0;
        while at <= len {
            name.wrapping_add(at).write_volatile(path.byte(at));
            at += 1;
        }
    }
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: makes a descriptor; the address is whole up to the length that is told.
    unsafe {
        let socket = syscall!(Sysno::socket, libc::AF_UNIX, kind, 0)?;
        syscall!(Sysno::connect, socket, to, 2 + len + 1)?;
        let mut peer = core::mem::MaybeUninit::<libc::ucred>::uninit();
        let mut size = size_of::<libc::ucred>() as u32;
        syscall!(Sysno::getsockopt, socket, libc::SOL_SOCKET, libc::SO_PEERCRED, peer.as_mut_ptr(), &raw mut size)?;
        let (uid, own) = ((*peer.as_ptr()).uid as usize, syscall!(Sysno::geteuid)?);
        if uid != 0 && uid != own { Err(Errno::EPERM) } else { Ok(socket) }
    }
}

/// A piece of what is sent.
pub fn piece(start: *const u8, len: usize) -> libc::iovec {
    libc::iovec { iov_base: start.cast_mut().cast(), iov_len: len }
}

#[repr(C)]
struct Rights {
    head: libc::cmsghdr,
    fds: [i32; 4],
}

/// Sends all of it, descriptors 0, 1 and 2 beside its first byte.
pub fn send<const N: usize>(socket: usize, pieces: &mut [libc::iovec; N]) -> Result<(), Errno> {
    let rights = Rights {
        head: libc::cmsghdr { cmsg_len: 16 + 12, cmsg_level: libc::SOL_SOCKET, cmsg_type: libc::SCM_RIGHTS },
        fds: [0, 1, 2, 0],
    };
    let mut first = 0;
    let mut with = size_of::<Rights>();
    loop {
        while first < N && pieces.get(first).is_none_or(|piece| piece.iov_len == 0) {
            first += 1;
        }
        if first == N {
            return Ok(());
        }
        let mut message = core::mem::MaybeUninit::<libc::msghdr>::uninit();
        let to = message.as_mut_ptr();
        // SAFETY: every field that the kernel reads is written; the pieces lie in memory that is there for ever, or with the
        // caller. `msg_flags` is not read.
        let sent = unsafe {
            (&raw mut (*to).msg_name).write(core::ptr::null_mut());
            (&raw mut (*to).msg_namelen).write(0);
            (&raw mut (*to).msg_iov).write(pieces.as_mut_ptr().wrapping_add(first));
            (&raw mut (*to).msg_iovlen).write(N - first);
            (&raw mut (*to).msg_control).write((&raw const rights).cast_mut().cast());
            (&raw mut (*to).msg_controllen).write(with);
            (&raw mut (*to).msg_flags).write(0);
            syscall!(Sysno::sendmsg, socket, to, libc::MSG_NOSIGNAL)
        };
        let mut sent = match sent {
            Ok(sent) => sent,
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno),
        };
        with = 0;
        while sent > 0 {
            let Some(piece) = pieces.get_mut(first) else { return Ok(()) };
            let some = if sent < piece.iov_len { sent } else { piece.iov_len };
            piece.iov_base = piece.iov_base.cast::<u8>().wrapping_add(some).cast();
            piece.iov_len -= some;
            sent -= some;
            if piece.iov_len == 0 {
                first += 1;
            }
        }
    }
}

/// Reads so many bytes; waits for them. False: they do not come any more.
pub fn receive(socket: usize, to: *mut u8, count: usize) -> bool {
    let mut done = 0;
    while done < count {
        // SAFETY: the caller has room for `count` bytes.
        let got = unsafe { syscall!(Sysno::read, socket, to.wrapping_add(done), count - done) };
        match got {
            Ok(0) => return false,
            Ok(some) => done += some,
            Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
    true
}

/// Waits until one of the two can be read. True: the second can.
pub fn wait(socket: usize, signals: usize) -> bool {
    let event = |fd| libc::pollfd { fd: fd as i32, events: libc::POLLIN, revents: 0 };
    let mut both = [event(socket), event(signals)];
    loop {
        // SAFETY: two entries are there.
        let ready = unsafe { syscall!(Sysno::poll, both.as_mut_ptr(), 2, -1_isize) };
        let [of_socket, of_signals] = &both;
        match ready {
            // What has come already is heard first.
            Ok(_) if of_socket.revents != 0 => return false,
            Ok(_) if of_signals.revents != 0 => return true,
            _ => {}
        }
    }
}

/// Keeps a descriptor open in what this process becomes.
pub fn keep_open(fd: usize) {
    // SAFETY: changes a flag of this process's own descriptor.
    let _ = unsafe { syscall!(Sysno::fcntl, fd, libc::F_SETFD, 0) };
}

/// Fresh memory for so many pointers.
pub fn pointers(count: usize) -> Result<*mut *const u8, Errno> {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new memory, of nobody else.
    let at = unsafe { syscall!(Sysno::mmap, 0, count * size_of::<*const u8>(), access, kind, -1_isize, 0) }?;
    Ok(at as *mut *const u8)
}

/// Becomes another program. Comes back only where that cannot be.
pub fn execute(path: *const u8, args: *const *const u8, environment: *const *const u8) -> Errno {
    // SAFETY: a path that ends with a NUL, and two lists that end with a null pointer.
    match unsafe { syscall!(Sysno::execve, path, args, environment) } {
        Err(errno) => errno,
        Ok(_) => Errno::EIO,
    }
}

/// There is nothing to be had: nothing here asks. It stands in the place of the C library's, which is not linked.
struct Nothing;

// SAFETY: no memory is ever given.
unsafe impl core::alloc::GlobalAlloc for Nothing {
    unsafe fn alloc(&self, _: core::alloc::Layout) -> *mut u8 {
        core::ptr::null_mut()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: core::alloc::Layout) {}
}

#[global_allocator]
static NOTHING: Nothing = Nothing;
