//! The child's side, between clone and exec. It shares its parent's memory and the thread-local storage of the thread that made
//! it, so it only makes raw system calls with data that [`Plan::prepare`] prepared: no allocation, no locks, no glibc wrapper
//! that acts on all threads (the id calls), nothing that panics.

use super::{Session, SpawnError, SpawnSpec, Stage, spec::Identity};
use std::{
    convert::Infallible,
    ffi::{CStr, CString, c_char, c_int, c_long, c_void},
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    ptr::NonNull,
    sync::atomic::{AtomicI32, AtomicU32, Ordering},
};

/// Where the child leaves word of a failure. In a shared mapping, so that it works with and without shared memory.
#[derive(Debug)]
pub(super) struct Report {
    /// [`Stage`], 0 for none.
    stage: AtomicU32,
    index: AtomicU32,
    errno: AtomicI32,
    /// Not 0 while a child reads its orders; the kernel sets it to 0 when the child executes its program or ends.
    reading: AtomicU32,
}

impl Report {
    /// For a new child, which reads its orders beside its parent or not.
    pub(super) fn clear(&self, reading: bool) {
        self.stage.store(0, Ordering::Release);
        self.reading.store(reading.into(), Ordering::Release);
    }

    /// Whether the child reads its orders still.
    pub(super) fn is_read(&self) -> bool {
        self.reading.load(Ordering::Acquire) != 0
    }

    /// Where the kernel notes the end of that.
    pub(super) fn reading(&self) -> *mut u32 {
        self.reading.as_ptr()
    }

    /// Stage, index within it, error number.
    pub(super) fn failure(&self) -> Option<(u32, u32, i32)> {
        let stage = self.stage.load(Ordering::Acquire);
        (stage != 0).then(|| (stage, self.index.load(Ordering::Relaxed), self.errno.load(Ordering::Relaxed)))
    }

    fn leave(&self, failure: &Failure) {
        self.index.store(failure.index, Ordering::Relaxed);
        self.errno.store(failure.errno, Ordering::Relaxed);
        self.stage.store(failure.stage as u32, Ordering::Release);
    }
}

struct Failure {
    stage: Stage,
    index: u32,
    errno: c_int,
}

struct Limit {
    /// Place in the specification.
    index: u32,
    resource: u32,
    value: libc::rlimit64,
}

/// Everything the child reads. It owns it, and keeps its memory from one child to the next.
#[derive(Default)]
pub(super) struct Plan {
    cgroup_procs: Vec<RawFd>,
    session: Session,
    user: Option<Identity>,
    umask: Option<u32>,
    nice: Option<i32>,
    affinity: Vec<u64>,
    /// Goes before and behind the process id.
    says: Option<[Vec<u8>; 2]>,
    /// Source and target.
    descriptors: Vec<(RawFd, RawFd)>,
    /// From here on descriptors are closed at exec.
    floor: RawFd,
    /// Above the highest descriptor that can be open, for kernels without `close_range`.
    ceiling: RawFd,
    work_dir: Option<NonNull<c_char>>,
    limits: Vec<Limit>,
    /// Signals that are not at their default.
    signals: Vec<c_int>,
    programs: Vec<*const c_char>,
    argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
    /// Where the child writes its process id, terminated: [`PID_DIGITS`] bytes and one that stays zero.
    pid_place: Option<NonNull<u8>>,
    /// What the pointers point to.
    strings: Vec<u8>,
}

/// Most digits of a process id.
const PID_DIGITS: usize = 20;

/// The decimal digits of a number, at the end of the array, and where they begin.
fn decimal(mut left: usize) -> ([u8; PID_DIGITS], usize) {
    let mut digits = [b'0'; PID_DIGITS];
    let mut at = digits.len();
    while at > 0 && (left > 0 || at == digits.len()) {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
    }
    (digits, at)
}

/// Duplicates that a plan names: open until the child has its own.
pub(super) type Lifted = Vec<OwnedFd>;

impl Plan {
    pub(super) fn new(signals: &[c_int]) -> Self {
        Self { signals: signals.to_vec(), ..Self::default() }
    }

    /// Lays out what a specification asks for.
    pub(super) fn prepare(&mut self, spec: &SpawnSpec<'_>) -> Result<Lifted, SpawnError> {
        let failed = |subject: &str, cause| {
            let subject = subject.to_owned();
            SpawnError { stage: Stage::Prepare, subject, index: 0, cause }
        };
        if spec.programs.is_empty() || spec.argv.is_empty() {
            return Err(failed("empty command", io::Error::from_raw_os_error(libc::ENOENT)));
        }
        let floor = spec.descriptor_floor();
        let mut lifted = Vec::new();
        self.descriptors.clear();
        let sources = spec.stdio.iter().copied().chain(spec.passed.iter().copied().map(Some));
        for (target, source) in (0..).zip(sources) {
            let Some(source) = source else { continue };
            let mut source = source.as_raw_fd();
            // A source among the targets would be overwritten before its turn.
            if source < floor {
                let copy = lift(source, floor).map_err(|e| failed("descriptor", e))?;
                source = copy.as_raw_fd();
                lifted.push(copy);
            }
            self.descriptors.push((source, target));
        }
        self.limits.clear();
        for (index, (resource, soft)) in (0..).zip(&spec.rlimits) {
            let mut value = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: pid 0 is the caller, no new limit is given, and the old one is written to a valid place.
            let rc = unsafe {
                libc::syscall(libc::SYS_prlimit64, 0, *resource, std::ptr::null::<libc::rlimit64>(), &mut value)
            };
            if rc != 0 {
                return Err(failed("rlimit", io::Error::last_os_error()));
            }
            let inherited = value.rlim_cur;
            value.rlim_cur = soft.unwrap_or(libc::RLIM64_INFINITY).min(value.rlim_max);
            if value.rlim_cur != inherited {
                self.limits.push(Limit { index, resource: *resource, value });
            }
        }
        self.cgroup_procs.clear();
        self.cgroup_procs.extend(spec.cgroup_procs.iter().map(AsRawFd::as_raw_fd));
        self.session = spec.session;
        self.user.clone_from(&spec.user);
        self.umask = spec.umask;
        self.nice = spec.nice;
        self.affinity = mask(&spec.affinity);
        self.says = spec.says.as_ref().map(|says| says.each_ref().map(|part| part.to_vec()));
        (self.floor, self.ceiling) = (floor, descriptor_ceiling());
        self.copy_strings(spec);
        Ok(lifted)
    }

    fn copy_strings(&mut self, spec: &SpawnSpec<'_>) {
        let programs = spec.programs.iter().map(CString::as_c_str);
        let argv = spec.argv.iter().map(|a| &**a);
        let env = spec.env.iter().map(|e| &**e);
        let all = programs.clone().chain(argv.clone()).chain(env.clone()).chain(spec.work_dir.as_deref());
        self.strings.clear();
        // No pointer into it is taken before it has its final place.
        let of_pid = spec.pid_variable.map_or(0, |name| name.count_bytes() + 1 + PID_DIGITS + 1);
        self.strings.reserve(all.map(|s| s.count_bytes() + 1).sum::<usize>() + of_pid);
        let mut place = |s: &CStr| -> *const c_char {
            let at = self.strings.len();
            self.strings.extend_from_slice(s.to_bytes_with_nul());
            self.strings[at..].as_ptr().cast()
        };
        for (list, strings) in [(&mut self.argv, spec.argv.as_slice()), (&mut self.env, spec.env.as_slice())] {
            list.clear();
            list.extend(strings.iter().map(|s| place(s)));
            list.push(std::ptr::null());
        }
        self.programs.clear();
        self.programs.extend(programs.map(&mut place));
        self.work_dir = spec.work_dir.as_deref().and_then(|dir| NonNull::new(place(dir).cast_mut()));
        self.pid_place = None;
        if let Some(name) = spec.pid_variable {
            let at = self.strings.len();
            self.strings.extend_from_slice(name.to_bytes());
            self.strings.push(b'=');
            let digits = self.strings.len();
            self.strings.resize(digits + PID_DIGITS + 1, 0);
            let place = self.strings[at..].as_mut_ptr();
            self.pid_place = NonNull::new(self.strings[digits..].as_mut_ptr());
            // Before the null pointer that ends the list.
            self.env.insert(self.env.len() - 1, place.cast_const().cast());
        }
    }

    /// Fills in the variable with the process id.
    fn write_pid(&self) {
        let Some(place) = self.pid_place else { return };
        let (digits, at) = decimal(call(libc::SYS_getpid, [0; 4]).unwrap_or_default());
        // SAFETY: the place is in `strings`, which has room for all digits there and a zero behind them, and nobody else
        // touches it while a child is on its way: the plan is borrowed, and its parent waits or has a copy of its own.
        unsafe { std::ptr::copy_nonoverlapping(digits[at..].as_ptr(), place.as_ptr(), digits.len() - at) };
    }

    /// One more cgroup to enter.
    pub(super) fn enter_cgroup(&mut self, procs: RawFd) {
        self.cgroup_procs.push(procs);
    }

    /// Everything of the plan but its program: cgroups, session, ids, descriptors, folder, limits.
    fn arrange(&self, rest: Rest) -> Result<(), Failure> {
        let fail = |stage, index| move |errno| Failure { stage, index, errno };
        for (i, fd) in (0..).zip(&self.cgroup_procs) {
            let zero = b"0";
            call(libc::SYS_write, [*fd as usize, zero.as_ptr() as usize, 1, 0]).map_err(fail(Stage::Cgroup, i))?;
        }
        match self.session {
            Session::Inherit => {}
            Session::OwnGroup => {
                call(libc::SYS_setpgid, [0, 0, 0, 0]).map_err(fail(Stage::SetPgid, 0))?;
            }
            Session::OwnSession | Session::OwnTerminal => {
                call(libc::SYS_setsid, [0; 4]).map_err(fail(Stage::SetSid, 0))?;
            }
        }
        if !self.affinity.is_empty() {
            let bytes = self.affinity.len() * 8;
            call(libc::SYS_sched_setaffinity, [0, bytes, self.affinity.as_ptr() as usize, 0])
                .map_err(fail(Stage::Affinity, 0))?;
        }
        if let Some(nice) = self.nice {
            // PRIO_PROCESS is 0.
            call(libc::SYS_setpriority, [0, 0, nice as usize, 0]).map_err(fail(Stage::Nice, 0))?;
        }
        if let Some(user) = &self.user {
            become_user(user).map_err(|(stage, errno)| Failure { stage, index: 0, errno })?;
        }
        if let Some(umask) = self.umask {
            // Cannot fail.
            let _ = call(libc::SYS_umask, [umask as usize, 0, 0, 0]);
        }
        for (source, target) in &self.descriptors {
            call(libc::SYS_dup3, [*source as usize, *target as usize, 0, 0])
                .map_err(fail(Stage::Descriptors, *target as u32))?;
        }
        self.close_the_rest(rest);
        if self.session == Session::OwnTerminal {
            call(libc::SYS_ioctl, [0, libc::TIOCSCTTY as usize, 0, 0]).map_err(fail(Stage::Terminal, 0))?;
        }
        if let Some(dir) = self.work_dir {
            call(libc::SYS_chdir, [dir.as_ptr() as usize, 0, 0, 0]).map_err(fail(Stage::Chdir, 0))?;
        }
        for limit in &self.limits {
            let value: *const libc::rlimit64 = &limit.value;
            call(libc::SYS_prlimit64, [0, limit.resource as usize, value as usize, 0])
                .map_err(fail(Stage::Rlimit, limit.index))?;
        }
        Ok(())
    }

    /// The child. Returns only if it failed.
    fn launch(&self) -> Result<Infallible, Failure> {
        self.arrange(Rest::ClosedByExec)?;
        self.say();
        self.write_pid();
        reset_signals(&self.signals);
        let mut errno = libc::ENOENT;
        for (i, program) in (0..).zip(&self.programs) {
            let args = [*program as usize, self.argv.as_ptr() as usize, self.env.as_ptr() as usize, 0];
            let Err(e) = call(libc::SYS_execve, args) else { continue };
            match e {
                // As in `execvp`: look further, and remember that something was there.
                libc::EACCES => errno = e,
                libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {}
                _ => return Err(Failure { stage: Stage::Exec, index: i, errno: e }),
            }
        }
        Err(Failure { stage: Stage::Exec, index: 0, errno })
    }

    /// Whether anybody reads it is not this task's concern: it is left unsaid where it would have to wait.
    fn say(&self) {
        let Some([before, behind]) = &self.says else { return };
        let (digits, at) = decimal(call(libc::SYS_getpid, [0; 4]).unwrap_or_default());
        let part = |bytes: &[u8]| libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let parts = [part(before), part(&digits[at..]), part(behind)];
        if !takes_a_line() {
            return;
        }
        let _ = call(libc::SYS_writev, [2, parts.as_ptr() as usize, parts.len(), 0]);
    }

    fn close_the_rest(&self, rest: Rest) {
        // CLOSE_RANGE_CLOEXEC; the exec closes them, and an exec that fails has lost nothing.
        let flags = match rest {
            Rest::ClosedByExec => 4,
            Rest::ClosedHere => 0,
        };
        if call(libc::SYS_close_range, [self.floor as usize, u32::MAX as usize, flags, 0]).is_err() {
            for fd in self.floor..self.ceiling {
                let _ = match rest {
                    Rest::ClosedByExec => {
                        call(libc::SYS_fcntl, [fd as usize, libc::F_SETFD as usize, libc::FD_CLOEXEC as usize, 0])
                    }
                    Rest::ClosedHere => call(libc::SYS_close, [fd as usize, 0, 0, 0]),
                };
            }
        }
    }

    /// The arguments as `/proc/PID/cmdline` has them: each with its zero byte, one behind the other.
    fn arguments(&self) -> &[u8] {
        let count = |s: &&*const c_char| !s.is_null();
        // SAFETY: all but the last of them point to terminated strings in `strings`.
        let bytes = self.argv.iter().take_while(count).map(|s| unsafe { CStr::from_ptr(*s) }.count_bytes() + 1).sum();
        &self.strings[..bytes]
    }
}

/// What becomes of descriptors that the child is not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// An exec follows.
    ClosedByExec,
    /// None does.
    ClosedHere,
}

/// Where the parts of a process are in its memory: the kernel's `struct prctl_mm_map`.
#[repr(C)]
struct MemoryMap {
    start_code: u64,
    end_code: u64,
    start_data: u64,
    end_data: u64,
    start_brk: u64,
    brk: u64,
    start_stack: u64,
    arg_start: u64,
    arg_end: u64,
    env_start: u64,
    env_end: u64,
    auxv: u64,
    auxv_size: u32,
    exe_fd: u32,
}

/// Shows other arguments of this process than it was started with, and no environment (`PR_SET_MM_MAP`, which takes no right where
/// the kernel has it). The memory stays as it is for as long as the process lives.
fn show_arguments(arguments: &[u8]) -> io::Result<()> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    // As proc(5) numbers the fields; the third is the first behind the name.
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field = |number: usize| {
        let value = fields.get(number - 3).and_then(|f| f.parse::<u64>().ok());
        value.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    };
    let arg_start = arguments.as_ptr() as u64;
    let arg_end = arg_start + arguments.len() as u64;
    // SAFETY: nothing is changed.
    let brk = unsafe { libc::sbrk(0) } as u64;
    let map = MemoryMap {
        start_code: field(26)?,
        end_code: field(27)?,
        start_data: field(45)?,
        end_data: field(46)?,
        start_brk: field(47)?,
        brk,
        start_stack: field(28)?,
        arg_start,
        arg_end,
        env_start: arg_end,
        env_end: arg_end,
        auxv: 0,
        auxv_size: 0,
        exe_fd: u32::MAX,
    };
    let (place, bytes) = (&raw const map, size_of::<MemoryMap>());
    // SAFETY: the kernel reads the structure, and only notes where things are.
    let rc = unsafe { libc::prctl(libc::PR_SET_MM, libc::PR_SET_MM_MAP, place, bytes, 0_usize) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Where a child with its own memory begins, until it goes on with what it was made for ([`super::divide`]). Its descriptors
/// are as planned then, its signals let through as they were in the parent.
pub(super) fn begin(orders: &Orders) {
    // SAFETY: a shared mapping that the parent keeps longer than this.
    let report = unsafe { orders.report.as_ref() };
    let unshown =
        |e: io::Error| Failure { stage: Stage::Prepare, index: 0, errno: e.raw_os_error().unwrap_or(libc::EINVAL) };
    let shown = show_arguments(orders.plan.arguments()).map_err(unshown);
    if let Err(failure) = shown.and_then(|()| orders.plan.arrange(Rest::ClosedHere)) {
        report.leave(&failure);
        loop {
            let _ = call(libc::SYS_exit_group, [127, 0, 0, 0]);
        }
    }
    let none = 0_u64;
    let none: *const u64 = &none;
    let _ = call(libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK as usize, none as usize, 0, 8]);
}

/// The ids of that user, and nothing that goes with the daemon's own: groups, capabilities, keys, its place when memory is short.
pub(super) fn become_user(user: &Identity) -> Result<(), (Stage, c_int)> {
    be_killed_like_others();
    let fail = |stage| move |errno| (stage, errno);
    let (uid, gid) = (user.uid as usize, user.gid as usize);
    call(libc::SYS_setgroups, [user.groups.len(), user.groups.as_ptr() as usize, 0, 0])
        .map_err(fail(Stage::SetGroups))?;
    call(libc::SYS_setresgid, [gid, gid, gid, 0]).map_err(fail(Stage::SetResGid))?;
    call(libc::SYS_setresuid, [uid, uid, uid, 0]).map_err(fail(Stage::SetResUid))?;
    if uid != 0 {
        drop_capabilities().map_err(fail(Stage::Capabilities))?;
    }
    // A new session keyring, empty and the user's (keyctl(2): KEYCTL_JOIN_SESSION_KEYRING is 1): what the daemon has in
    // its own is not for tasks. Kernels without keys have none to keep.
    let _ = call(libc::SYS_keyctl, [1, 0, 0, 0]);
    Ok(())
}

/// A change of ids takes them away, but for those that a process can pass on, and not where the daemon's unit says
/// `SecureBits=no-setuid-fixup` (capabilities(7)).
fn drop_capabilities() -> Result<(), c_int> {
    // `_LINUX_CAPABILITY_VERSION_3`, this process; two words each of effective, permitted and inheritable ones.
    // Ambient ones go with those.
    let (header, none) = ([0x2008_0522_u32, 0], [0_u32; 6]);
    call(libc::SYS_capset, [header.as_ptr() as usize, none.as_ptr() as usize, 0, 0]).map(drop)
}

/// Whatever keeps the daemon from being killed where memory is short (`OOMScoreAdjust=` of its unit) is not for tasks. Where it
/// cannot be set there is no such file.
fn be_killed_like_others() {
    let here = libc::AT_FDCWD as usize;
    let path = c"/proc/self/oom_score_adj".as_ptr() as usize;
    let flags = (libc::O_WRONLY | libc::O_CLOEXEC) as usize;
    if let Ok(fd) = call(libc::SYS_openat, [here, path, flags, 0]) {
        let _ = call(libc::SYS_write, [fd, b"0".as_ptr() as usize, 1, 0]);
        let _ = call(libc::SYS_close, [fd, 0, 0, 0]);
    }
}

/// A line can be written to descriptor 2 without waiting: the parent, which starts all tasks of the job here, waits with this
/// child. Nor is anything written that nobody will read: the signal of it would end the task.
fn takes_a_line() -> bool {
    let mut asked = libc::pollfd { fd: 2, events: libc::POLLOUT, revents: 0 };
    let (asked, at_once) = (&raw mut asked, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // Not every architecture has `poll`.
    let args = [asked as usize, 1, &raw const at_once as usize, 0];
    // SAFETY: it is this function's own.
    call(libc::SYS_ppoll, args).is_ok() && unsafe { asked.read_volatile() }.revents == libc::POLLOUT
}

/// These signals back to their default, then all let through: programs expect both. A handler, and so a signal that was let
/// through before, would act on the parent's memory.
fn reset_signals(signals: &[c_int]) {
    // The kernel's `struct sigaction` with handler SIG_DFL: zeros, at most 32 bytes.
    let default = [0_u64; 4];
    for signal in signals {
        let _ = call(libc::SYS_rt_sigaction, [*signal as usize, default.as_ptr() as usize, 0, 8]);
    }
    let none = 0_u64;
    let none: *const u64 = &none;
    let _ = call(libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK as usize, none as usize, 0, 8]);
}

/// A raw system call of at most four arguments. On the usual architectures it does not touch `errno`, which is also the
/// parent's, and the parent may be running.
#[cfg(target_arch = "x86_64")]
fn call(number: c_long, args: [usize; 4]) -> Result<usize, c_int> {
    let rc: isize;
    // SAFETY: callers pass what the system call of that number expects; pointers among it are to live memory. The kernel
    // keeps all registers but those named.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => rc,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    outcome(rc)
}

/// As above.
#[cfg(target_arch = "aarch64")]
fn call(number: c_long, args: [usize; 4]) -> Result<usize, c_int> {
    let rc: isize;
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "svc 0",
            inlateout("x0") args[0] => rc,
            in("x1") args[1],
            in("x2") args[2],
            in("x3") args[3],
            in("x8") number,
            options(nostack),
        );
    }
    outcome(rc)
}

/// As above, but it does: only for children whose parent waits or has its own memory ([`super::clone::HAVE_CLONE3`]).
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn call(number: c_long, args: [usize; 4]) -> Result<usize, c_int> {
    let [a, b, c, d] = args;
    // SAFETY: as above.
    let rc = unsafe { libc::syscall(number, a, b, c, d, 0_usize, 0_usize) };
    if rc == -1 {
        // SAFETY: errno of this thread, or of the suspended one whose storage is shared.
        return Err(unsafe { *libc::__errno_location() });
    }
    Ok(rc as usize)
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn outcome(rc: isize) -> Result<usize, c_int> {
    if (-4095..0).contains(&rc) { Err(-rc as c_int) } else { Ok(rc as usize) }
}

/// What the child is given.
pub(super) struct Orders {
    pub(super) plan: Plan,
    pub(super) report: NonNull<Report>,
}

/// Where the child starts. `orders` are [`Orders`].
pub(super) extern "C" fn main(orders: *mut c_void) -> ! {
    // SAFETY: the parent passes orders that it keeps, and does not change, until the child has executed a program or ended.
    let (plan, report) = unsafe {
        let orders = &*orders.cast::<Orders>();
        (&orders.plan, orders.report.as_ref())
    };
    let Err(failure) = plan.launch();
    report.leave(&failure);
    loop {
        let _ = call(libc::SYS_exit_group, [127, 0, 0, 0]);
    }
}

fn lift(fd: RawFd, floor: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved; the caller keeps `fd` open.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, floor) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

fn mask(cpus: &[u32]) -> Vec<u64> {
    let words = cpus.iter().max().map_or(0, |top| *top as usize / 64 + 1);
    let mut mask = vec![0_u64; words];
    for cpu in cpus {
        if let Some(word) = mask.get_mut(*cpu as usize / 64) {
            *word |= 1 << (cpu % 64);
        }
    }
    mask
}

fn descriptor_ceiling() -> RawFd {
    // More than any process here opens; a limit of a billion would make the walk endless.
    const MOST: u64 = 65_536;
    let soft =
        nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).map_or(MOST, |(soft, _)| soft);
    RawFd::try_from(soft.min(MOST)).unwrap_or(RawFd::MAX)
}

/// Signals that this process handles or ignores: a child does neither.
pub(super) fn changed_signals() -> Vec<c_int> {
    (1..=64)
        .filter(|signal| {
            // The kernel's `struct sigaction`; its first word is the handler.
            let mut action = [0_u64; 4];
            let none = std::ptr::null::<u64>();
            // SAFETY: nothing is set, and what is there goes to a place of the structure's size.
            let rc = unsafe { libc::syscall(libc::SYS_rt_sigaction, *signal, none, action.as_mut_ptr(), 8_usize) };
            rc == 0 && action[0] != libc::SIG_DFL as u64
        })
        .collect()
}
