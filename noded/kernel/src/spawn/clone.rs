//! Creates the child: `clone3` on a stack of its own, or `fork`.

use super::child::{self, Orders};
use std::{
    ffi::{c_int, c_void},
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

/// The architectures whose few instructions are written below.
pub(super) const HAVE_CLONE3: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// True for the errors by which kernels and sandboxes say that they do not offer `clone3` as we use it: unknown
/// (`ENOSYS`), filtered (`EPERM`), unknown flags (`EINVAL`), unknown fields (`E2BIG`).
pub(super) fn refused(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM | libc::EINVAL | libc::E2BIG))
}

/// Anonymous memory.
#[derive(Debug)]
pub(super) struct Mapping {
    base: *mut c_void,
    bytes: usize,
}

// SAFETY: plain memory; the owner decides who uses it.
unsafe impl Send for Mapping {}

impl Mapping {
    /// A stack whose lowest page faults.
    pub(super) fn stack(bytes: usize) -> Option<Self> {
        let mapping = Self::map(bytes, libc::MAP_PRIVATE | libc::MAP_STACK)?;
        // SAFETY: one page of our own mapping, which nobody uses yet.
        let rc = unsafe { libc::mprotect(mapping.base, 4096, libc::PROT_NONE) };
        (rc == 0).then_some(mapping)
    }

    /// Memory that stays shared over `fork`.
    pub(super) fn shared(bytes: usize) -> Option<Self> {
        Self::map(bytes, libc::MAP_SHARED)
    }

    fn map(bytes: usize, flags: c_int) -> Option<Self> {
        // SAFETY: a new anonymous mapping anywhere.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                flags | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        (base != libc::MAP_FAILED).then_some(Self { base, bytes })
    }

    pub(super) fn base(&self) -> *mut c_void {
        self.base
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped; no reference into it outlives the owner.
        unsafe { libc::munmap(self.base, self.bytes) };
    }
}

/// All signals blocked in this thread, glibc's internal ones included: a handler that ran in the child would act on the
/// parent's memory. The former mask comes back on drop.
pub(super) struct SignalsBlocked {
    former: u64,
}

impl SignalsBlocked {
    pub(super) fn new() -> Self {
        let all = u64::MAX;
        let mut former = 0_u64;
        // SAFETY: both masks are valid for the eight bytes said. Raw, since glibc's call spares its own signals.
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &all, &mut former, 8_usize) };
        Self { former }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        let none = std::ptr::null_mut::<u64>();
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &self.former, none, 8_usize) };
    }
}

/// `CLONE_INTO_CGROUP`: above 32 bits, where libc's constant is cut off.
const INTO_CGROUP: u64 = 0x2_0000_0000;

/// A child, with a descriptor for it where one was asked for.
pub(super) type Child = (u32, Option<OwnedFd>);

/// What each child is made with, born in that cgroup, and how many bytes of it the kernel is given.
fn arguments(cgroup: Option<BorrowedFd<'_>>) -> (libc::clone_args, usize) {
    // SAFETY: all zero is a valid `clone_args`.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.exit_signal = libc::SIGCHLD as u64;
    let Some(cgroup) = cgroup else {
        // The structure's first version; later fields are sent only when used, for older kernels.
        return (args, 64);
    };
    args.flags = INTO_CGROUP;
    args.cgroup = u64::try_from(cgroup.as_raw_fd()).unwrap_or_default();
    (args, size_of::<libc::clone_args>())
}

/// Runs the child on `stack`. With `wait` it returns once the child has executed its program or ended; without, at once, and
/// stack and orders have to stay as they are until [`Report::is_read`] says no.
///
/// [`Report::is_read`]: child::Report::is_read
pub(super) fn clone3(
    stack: &Mapping,
    cgroup: Option<BorrowedFd<'_>>,
    with_pidfd: bool,
    orders: &Orders,
    wait: bool,
) -> io::Result<Child> {
    let mut pidfd: c_int = -1;
    let (mut args, size) = arguments(cgroup);
    args.flags |= libc::CLONE_VM as u64;
    if wait {
        args.flags |= libc::CLONE_VFORK as u64;
    } else {
        args.flags |= libc::CLONE_CHILD_CLEARTID as u64;
        // SAFETY: the report lives as long as its orders.
        args.child_tid = unsafe { orders.report.as_ref() }.reading() as u64;
    }
    if with_pidfd {
        args.flags |= libc::CLONE_PIDFD as u64;
        args.pidfd = (&raw mut pidfd) as u64;
    }
    args.stack = stack.base as u64;
    args.stack_size = stack.bytes as u64;
    let orders: *const Orders = orders;
    let rc = {
        let _blocked = SignalsBlocked::new();
        // SAFETY: `args` describes a stack that only this child uses, the child runs `child::main`, which never returns and
        // makes raw system calls only, and the orders outlive it.
        unsafe { clone3_and_run(&mut args, size, child::main, orders.cast_mut().cast()) }
    };
    if rc < 0 {
        return Err(io::Error::from_raw_os_error(i32::try_from(-rc).unwrap_or(libc::EIO)));
    }
    // SAFETY: the kernel stored a new descriptor there, as it was asked to.
    let pidfd = with_pidfd.then(|| unsafe { OwnedFd::from_raw_fd(pidfd) });
    Ok((u32::try_from(rc).unwrap_or_default(), pidfd))
}

/// A child with a copy of this process's memory, born in that cgroup, which goes on where this one does: `None` is the child. Not by
/// glibc's `fork`, which cannot do that; so only for a process of one thread, where no lock of glibc's can be held.
pub(super) fn divide(cgroup: Option<BorrowedFd<'_>>) -> io::Result<Option<(u32, OwnedFd)>> {
    let mut pidfd: c_int = -1;
    let (mut args, size) = arguments(cgroup);
    args.flags |= libc::CLONE_PIDFD as u64;
    args.pidfd = (&raw mut pidfd) as u64;
    // SAFETY: without CLONE_VM the child has memory of its own, its stack among it, as after `fork`.
    match unsafe { libc::syscall(libc::SYS_clone3, &mut args, size) } {
        0 => Ok(None),
        pid if pid > 0 => {
            // SAFETY: the kernel stored a new descriptor there, as it was asked to.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Some((u32::try_from(pid).unwrap_or_default(), pidfd)))
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// `clone3`; the child calls `run(arg)` on its stack. Returns the child's process id or a negative error number.
///
/// # Safety
/// `args` must name a stack of the child's own, and `run` must never return.
#[cfg(target_arch = "x86_64")]
unsafe fn clone3_and_run(
    args: *mut libc::clone_args,
    size: usize,
    run: extern "C" fn(*mut c_void) -> !,
    arg: *mut c_void,
) -> isize {
    let rc: isize;
    // SAFETY: the child leaves through `call`, on its own stack, whose top is aligned to 16 bytes; the parent continues
    // with the registers that the system call keeps.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 as isize => rc,
            in("rdi") args,
            in("rsi") size,
            in("r12") run,
            in("r13") arg,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    rc
}

/// As above.
///
/// # Safety
/// As above.
#[cfg(target_arch = "aarch64")]
unsafe fn clone3_and_run(
    args: *mut libc::clone_args,
    size: usize,
    run: extern "C" fn(*mut c_void) -> !,
    arg: *mut c_void,
) -> isize {
    let rc: isize;
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, x22",
            "blr x21",
            "brk 1",
            "2:",
            inlateout("x0") args as isize => rc,
            in("x1") size,
            in("x8") libc::SYS_clone3,
            in("x21") run,
            in("x22") arg,
        );
    }
    rc
}

/// As above.
///
/// # Safety
/// As above.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn clone3_and_run(
    _args: *mut libc::clone_args,
    _size: usize,
    _run: extern "C" fn(*mut c_void) -> !,
    _arg: *mut c_void,
) -> isize {
    -(libc::ENOSYS as isize)
}

/// The same by `fork`. A pipe that closes at exec tells when the child is done.
pub(super) fn fork(orders: &Orders, floor: c_int, with_pidfd: bool) -> io::Result<Child> {
    let (done, child_end) = io::pipe()?;
    // Out of the way of the descriptors that the child arranges.
    // SAFETY: no memory is involved.
    let lifted = unsafe { libc::fcntl(child_end.as_raw_fd(), libc::F_DUPFD_CLOEXEC, floor) };
    if lifted < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, owned by nobody else.
    let lifted = unsafe { OwnedFd::from_raw_fd(lifted) };
    drop(child_end);
    let orders: *const Orders = orders;
    let pid = {
        let _blocked = SignalsBlocked::new();
        // SAFETY: the child makes raw system calls only, on its copy of the orders, and never returns from `main`.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            child::main(orders.cast_mut().cast());
        }
        pid
    };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    drop(lifted);
    // Ends at exec, or at the child's end.
    let mut byte = [0];
    while matches!(io::Read::read(&mut (&done), &mut byte), Err(e) if e.kind() == io::ErrorKind::Interrupted) {}
    let pid = u32::try_from(pid).unwrap_or_default();
    let pidfd = if with_pidfd { Some(crate::signals::pidfd_open(pid)?) } else { None };
    Ok((pid, pidfd))
}
