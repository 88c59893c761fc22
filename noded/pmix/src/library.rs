//! The site's `libpmix`, loaded when a step asks for PMIx: the calls that a server makes and the ones that it gets. Types and
//! numbers are those of the PMIx standard, version 3 and later ("The PMIx Standard", `pmix_common.h`, `pmix_server.h`), which keep
//! their form in memory from one version to the next.
//!
//! The library calls back from threads of its own. What it wants goes to the server as an [`Upcall`], and is answered later.

use crate::{
    PmixError,
    job::{Job, listed},
};
use libc::{c_char, c_int, c_void};
use libloading::os::unix::{Library as Loaded, RTLD_GLOBAL, RTLD_NOW, Symbol};
use std::{
    ffi::{CStr, CString},
    mem::ManuallyDrop,
    ptr::{null, null_mut},
    sync::{OnceLock, mpsc::Sender},
};

/// The file that is loaded; every version since 2 has this name.
const FILE: &str = "libpmix.so.2";
/// `PMIX_MAX_NSLEN` and the zero behind it.
const NAMESPACE_BYTES: usize = 256;
/// `PMIX_MAX_KEYLEN` and the zero behind it.
const KEY_BYTES: usize = 512;
/// `PMIX_RANK_WILDCARD`: all ranks.
const ALL_RANKS: u32 = u32::MAX - 1;

/// `pmix_status_t`.
type Status = c_int;
const SUCCESS: Status = 0;
const ERROR: Status = -1;
const NOT_FOUND: Status = -46;
const NOT_SUPPORTED: Status = -47;
const OPERATION_SUCCEEDED: Status = -157;

/// `pmix_data_type_t`.
mod kind {
    pub const STRING: u16 = 3;
    pub const UINT16: u16 = 13;
    pub const UINT32: u16 = 14;
    pub const INFO: u16 = 24;
    pub const DATA_ARRAY: u16 = 39;
    pub const PROC_RANK: u16 = 40;
}

/// `pmix_proc_t`.
#[repr(C)]
struct Proc {
    namespace: [c_char; NAMESPACE_BYTES],
    rank: u32,
}

impl Proc {
    fn new(namespace: &str, rank: u32) -> Self {
        Self { namespace: padded(namespace), rank }
    }

    fn is_of(&self, namespace: &str) -> bool {
        self.namespace == Self::new(namespace, 0).namespace
    }
}

/// `pmix_data_array_t`.
#[repr(C)]
struct DataArray {
    kind: u16,
    size: usize,
    array: *mut c_void,
}

/// The union in [`Value`]: 24 bytes, as much as its largest member (`pmix_envar_t`).
#[repr(C)]
union Data {
    string: *const c_char,
    number: u32,
    short: u16,
    list: *mut DataArray,
    bytes: [u64; 3],
}

/// `pmix_value_t`.
#[repr(C)]
struct Value {
    kind: u16,
    data: Data,
}

/// `pmix_info_t`.
#[repr(C)]
struct Info {
    key: [c_char; KEY_BYTES],
    flags: u32,
    value: Value,
}

fn padded<const N: usize>(text: &str) -> [c_char; N] {
    let mut out = [0; N];
    for (to, from) in out[..N - 1].iter_mut().zip(text.bytes()) {
        *to = from.cast_signed();
    }
    out
}

/// Infos with what they point to. The library copies what it keeps.
#[derive(Default)]
struct Infos {
    infos: Vec<Info>,
    texts: Vec<CString>,
    lists: Vec<(Box<DataArray>, Self)>,
}

impl Infos {
    fn push(mut self, key: &str, kind: u16, fill: impl FnOnce(&mut Data)) -> Self {
        let mut data = Data { bytes: [0; 3] };
        fill(&mut data);
        self.infos.push(Info { key: padded(key), flags: 0, value: Value { kind, data } });
        self
    }

    fn text(mut self, key: &str, text: &str) -> Self {
        let text = CString::new(text).unwrap_or_default();
        let string = text.as_ptr();
        self.texts.push(text);
        self.push(key, kind::STRING, |data| data.string = string)
    }

    fn number(self, key: &str, number: u32) -> Self {
        self.push(key, kind::UINT32, |data| data.number = number)
    }

    fn short(self, key: &str, number: usize) -> Self {
        self.push(key, kind::UINT16, |data| data.short = u16::try_from(number).unwrap_or(u16::MAX))
    }

    fn rank(self, key: &str, rank: u32) -> Self {
        self.push(key, kind::PROC_RANK, |data| data.number = rank)
    }

    fn list(mut self, key: &str, mut list: Self) -> Self {
        let (size, array) = (list.infos.len(), list.infos.as_mut_ptr().cast());
        let mut head = Box::new(DataArray { kind: kind::INFO, size, array });
        let pointer: *mut DataArray = &raw mut *head;
        self.lists.push((head, list));
        self.push(key, kind::DATA_ARRAY, |data| data.list = pointer)
    }
}

/// `pmix_op_cbfunc_t`.
type OpDone = Option<unsafe extern "C" fn(Status, *mut c_void)>;
/// `pmix_modex_cbfunc_t`.
type ModexDone = Option<
    unsafe extern "C" fn(
        Status,
        *const c_char,
        usize,
        *mut c_void,
        Option<unsafe extern "C" fn(*mut c_void)>,
        *mut c_void,
    ),
>;

/// A place of `pmix_server_module_t` that is left open: the library answers itself that there is no such thing.
type Open = *const c_void;

/// `pmix_server_module_t`. Version 4 has 28 functions, later ones a few more: whatever a version reads behind those that there are
/// here, it finds no function.
#[repr(C)]
struct Module {
    connected: unsafe extern "C" fn(*const Proc, *mut c_void, OpDone, *mut c_void) -> Status,
    finalized: unsafe extern "C" fn(*const Proc, *mut c_void, OpDone, *mut c_void) -> Status,
    abort: unsafe extern "C" fn(
        *const Proc,
        *mut c_void,
        c_int,
        *const c_char,
        *mut Proc,
        usize,
        OpDone,
        *mut c_void,
    ) -> Status,
    fence: unsafe extern "C" fn(
        *const Proc,
        usize,
        *const Info,
        usize,
        *mut c_char,
        usize,
        ModexDone,
        *mut c_void,
    ) -> Status,
    direct_modex: unsafe extern "C" fn(*const Proc, *const Info, usize, ModexDone, *mut c_void) -> Status,
    others: [Open; 59],
}

/// An operation that the library waits for.
#[derive(Debug)]
pub struct Done {
    function: OpDone,
    data: *mut c_void,
}

// SAFETY: the library takes answers on any thread; it does not look at `data` in between.
unsafe impl Send for Done {}

impl Done {
    /// It is done, or cannot be.
    pub fn finish(self, well: bool) {
        if let Some(function) = self.function {
            // SAFETY: both came from the library together, and are given back once.
            unsafe { function(if well { SUCCESS } else { ERROR }, self.data) };
        }
    }
}

/// A fence that the library waits for.
#[derive(Debug)]
pub struct FenceDone {
    function: ModexDone,
    data: *mut c_void,
}

// SAFETY: as of `Done`.
unsafe impl Send for FenceDone {}

/// Why a fence fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceError {
    /// Only some tasks of several nodes meet.
    NotSupported,
    /// The nodes could not meet.
    Failed,
}

impl FenceDone {
    /// What all told; the library reads it where it is until it has no more use for it.
    pub fn finish(self, all: Result<Vec<u8>, FenceError>) {
        let Some(function) = self.function else { return };
        let (status, bytes) = match all {
            Ok(bytes) => (SUCCESS, bytes),
            Err(FenceError::NotSupported) => (NOT_SUPPORTED, Vec::new()),
            Err(FenceError::Failed) => (ERROR, Vec::new()),
        };
        let size = bytes.len();
        let kept = Box::into_raw(Box::new(bytes));
        // SAFETY: `kept` stays as it is until `release` gets it, once.
        unsafe {
            function(status, (*kept).as_ptr().cast(), size, self.data, Some(release), kept.cast());
        }
    }
}

unsafe extern "C" fn release(kept: *mut c_void) {
    // SAFETY: `FenceDone::finish` made it of a box of this type, and the library gives it back once.
    drop(unsafe { Box::from_raw(kept.cast::<Vec<u8>>()) });
}

/// What the library wants of the server.
#[derive(Debug)]
pub enum Upcall {
    /// The program of a task here begins to use PMIx.
    Began {
        /// Rank.
        rank: u32,
        /// It waits.
        done: Done,
    },
    /// It has finished with it.
    Finished {
        /// Rank.
        rank: u32,
        /// It waits.
        done: Done,
    },
    /// It wants the step to end.
    Aborted {
        /// Rank.
        rank: u32,
        /// Its words.
        text: String,
    },
    /// All tasks of the node that take part in it have come to a fence.
    Fence {
        /// Who takes part; `None`: all.
        ranks: Vec<Option<u32>>,
        /// What those of the node tell.
        told: Vec<u8>,
        /// They wait.
        done: FenceDone,
    },
}

/// Where calls of the library go.
struct Bridge {
    namespace: String,
    upcalls: Sender<Upcall>,
}

static BRIDGE: OnceLock<Bridge> = OnceLock::new();

fn pass(upcall: Upcall) -> Status {
    match BRIDGE.get().map(|bridge| bridge.upcalls.send(upcall)) {
        Some(Ok(())) => SUCCESS,
        _ => ERROR,
    }
}

unsafe extern "C" fn connected(proc: *const Proc, _: *mut c_void, function: OpDone, data: *mut c_void) -> Status {
    // SAFETY: the library names a client.
    let rank = unsafe { (*proc).rank };
    pass(Upcall::Began { rank, done: Done { function, data } })
}

unsafe extern "C" fn finalized(proc: *const Proc, _: *mut c_void, function: OpDone, data: *mut c_void) -> Status {
    // SAFETY: the library names a client.
    let rank = unsafe { (*proc).rank };
    pass(Upcall::Finished { rank, done: Done { function, data } })
}

unsafe extern "C" fn abort(
    proc: *const Proc,
    _: *mut c_void,
    status: c_int,
    text: *const c_char,
    _: *mut Proc,
    _: usize,
    _: OpDone,
    _: *mut c_void,
) -> Status {
    // SAFETY: the library names a client, and its words or none.
    let (rank, words) = unsafe {
        let words = (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned());
        ((*proc).rank, words)
    };
    let text = words.filter(|words| !words.is_empty()).unwrap_or_else(|| format!("status {status}"));
    // The task is not held up: it ends, and with it the step, although a fence may be under way.
    if pass(Upcall::Aborted { rank, text }) == SUCCESS { OPERATION_SUCCEEDED } else { ERROR }
}

unsafe extern "C" fn fence(
    procs: *const Proc,
    count: usize,
    _: *const Info,
    _: usize,
    told: *mut c_char,
    size: usize,
    function: ModexDone,
    data: *mut c_void,
) -> Status {
    let Some(bridge) = BRIDGE.get() else { return ERROR };
    // SAFETY: the library gives as many of both as it says.
    let (procs, told) = unsafe {
        let procs = if procs.is_null() { &[] } else { std::slice::from_raw_parts(procs, count) };
        let told = if told.is_null() { &[] } else { std::slice::from_raw_parts(told.cast::<u8>(), size) };
        (procs, told)
    };
    if procs.iter().any(|proc| !proc.is_of(&bridge.namespace)) {
        return NOT_SUPPORTED;
    }
    let ranks = procs.iter().map(|proc| (proc.rank != ALL_RANKS).then_some(proc.rank)).collect();
    pass(Upcall::Fence { ranks, told: told.to_vec(), done: FenceDone { function, data } })
}

/// What a task asks of one on another node is there after a fence, or nowhere.
unsafe extern "C" fn direct_modex(_: *const Proc, _: *const Info, _: usize, _: ModexDone, _: *mut c_void) -> Status {
    NOT_FOUND
}

static MODULE: ModuleCell =
    ModuleCell(Module { connected, finalized, abort, fence, direct_modex, others: [null(); 59] });

struct ModuleCell(Module);

// SAFETY: it is never written.
unsafe impl Sync for ModuleCell {}

type ErrorString = unsafe extern "C" fn(Status) -> *const c_char;
type ServerInit = unsafe extern "C" fn(*const Module, *const Info, usize) -> Status;
type Generate = unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> Status;
type RegisterNamespace = unsafe extern "C" fn(*const c_char, c_int, *const Info, usize, OpDone, *mut c_void) -> Status;
type RegisterClient =
    unsafe extern "C" fn(*const Proc, libc::uid_t, libc::gid_t, *mut c_void, OpDone, *mut c_void) -> Status;
type SetupFork = unsafe extern "C" fn(*const Proc, *mut *mut *mut c_char) -> Status;

/// The library. It stays for as long as the process: its threads run in it.
#[derive(Debug)]
pub struct Library(ManuallyDrop<Loaded>);

impl Library {
    /// Loads it.
    pub fn load() -> Result<Self, PmixError> {
        // SAFETY: loading it runs what it does at its start, which is what the site installed it for. Its plugins look for its
        // names among those of the whole process.
        let loaded = unsafe { Loaded::open(Some(FILE), RTLD_NOW | RTLD_GLOBAL) };
        let no_library = |e: libloading::Error| PmixError::NoLibrary { name: FILE.to_owned(), why: e.to_string() };
        loaded.map(ManuallyDrop::new).map(Self).map_err(no_library)
    }

    /// A function of it.
    ///
    /// # Safety
    /// `T` is its type.
    unsafe fn function<T>(&self, name: &'static str) -> Result<Symbol<T>, PmixError> {
        // SAFETY: the caller says what it is.
        let found = unsafe { self.0.get(name.as_bytes()) };
        found.map_err(|e| PmixError::NoLibrary { name: format!("{name} of {FILE}"), why: e.to_string() })
    }

    fn check(&self, call: &'static str, status: Status) -> Result<(), PmixError> {
        if matches!(status, SUCCESS | OPERATION_SUCCEEDED) {
            return Ok(());
        }
        // SAFETY: its type in the standard; its text is never freed.
        let text = unsafe {
            self.function::<ErrorString>("PMIx_Error_string")
                .map(|string| CStr::from_ptr(string(status)).to_string_lossy())
        };
        let text = text.map_or_else(|_| "error".to_owned(), std::borrow::Cow::into_owned);
        Err(PmixError::Call { call, text, status })
    }

    /// Begins to serve. `folder`: for its files. What it wants goes to `upcalls`.
    pub fn begin(&self, job: &Job, folder: &str, upcalls: Sender<Upcall>) -> Result<(), PmixError> {
        let bridge = Bridge { namespace: job.namespace.clone(), upcalls };
        if BRIDGE.set(bridge).is_err() {
            return Err(PmixError::Server("a process has one PMIx server".to_owned()));
        }
        let infos = Infos::default()
            .text("pmix.srvr.tmpdir", folder)
            .text("pmix.sys.tmpdir", folder)
            .text("pmix.hname", &job.nodes[job.here]);
        // SAFETY: the types are those of the standard; the module lives as long as the process.
        let status = unsafe {
            let init = self.function::<ServerInit>("PMIx_server_init")?;
            init(&raw const MODULE.0, infos.infos.as_ptr(), infos.infos.len())
        };
        self.check("PMIx_server_init", status)
    }

    /// A list in the library's short form.
    fn short(&self, call: &'static str, list: &str) -> Result<String, PmixError> {
        let list = CString::new(list).unwrap_or_default();
        let mut out = null_mut();
        // SAFETY: its type in the standard. The text is the caller's to free.
        let (status, text) = unsafe {
            let status = self.function::<Generate>(call)?(list.as_ptr(), &raw mut out);
            let text = (!out.is_null()).then(|| CStr::from_ptr(out).to_string_lossy().into_owned());
            libc::free(out.cast());
            (status, text.unwrap_or_default())
        };
        self.check(call, status).map(|()| text)
    }

    /// Describes the step, and the tasks of this node as its clients.
    pub fn register(&self, job: &Job, uid: u32, gid: u32) -> Result<(), PmixError> {
        let nodes = self.short("PMIx_generate_regex", &job.nodes.join(","))?;
        let ranks: Vec<String> = job.ranks.iter().map(|ranks| listed(ranks)).collect();
        let tasks = self.short("PMIx_generate_ppn", &ranks.join(";"))?;
        let infos = described(job, &nodes, &tasks);
        let name = CString::new(job.namespace.as_str()).unwrap_or_default();
        let here = c_int::try_from(job.own_ranks().len()).unwrap_or(c_int::MAX);
        // SAFETY: the types are those of the standard. Without a function to call, both return when it is done.
        let status = unsafe {
            let register = self.function::<RegisterNamespace>("PMIx_server_register_nspace")?;
            register(name.as_ptr(), here, infos.infos.as_ptr(), infos.infos.len(), None, null_mut())
        };
        self.check("PMIx_server_register_nspace", status)?;
        for rank in job.own_ranks() {
            let proc = Proc::new(&job.namespace, *rank);
            // SAFETY: as above.
            let status = unsafe {
                let register = self.function::<RegisterClient>("PMIx_server_register_client")?;
                register(&raw const proc, uid, gid, null_mut(), None, null_mut())
            };
            self.check("PMIx_server_register_client", status)?;
        }
        Ok(())
    }

    /// The variables of the task of that rank.
    pub fn variables(&self, job: &Job, rank: u32) -> Result<Vec<String>, PmixError> {
        let proc = Proc::new(&job.namespace, rank);
        let mut list: *mut *mut c_char = null_mut();
        let mut all = Vec::new();
        // SAFETY: its type in the standard; it makes a list of texts that ends with a null pointer, which is the caller's.
        let status = unsafe {
            let status = self.function::<SetupFork>("PMIx_server_setup_fork")?(&raw const proc, &raw mut list);
            let mut next = list;
            while !next.is_null() && !(*next).is_null() {
                all.push(CStr::from_ptr(*next).to_string_lossy().into_owned());
                libc::free((*next).cast());
                next = next.add(1);
            }
            libc::free(list.cast());
            status
        };
        self.check("PMIx_server_setup_fork", status).map(|()| all)
    }
}

/// A step in PMIx's keys.
fn described(job: &Job, nodes: &str, tasks: &str) -> Infos {
    let own = job.own_ranks();
    let on_node = u32::try_from(own.len()).unwrap_or(u32::MAX);
    let of_job = Infos::default()
        .text("pmix.jobid", &job.job_id)
        .number("pmix.univ.size", job.size())
        .number("pmix.job.size", job.size())
        .number("pmix.app.size", job.size())
        .number("pmix.max.size", job.size())
        .number("pmix.job.napps", 1)
        .number("pmix.num.nodes", u32::try_from(job.nodes.len()).unwrap_or(u32::MAX))
        .number("pmix.node.size", on_node)
        .number("pmix.local.size", on_node)
        .text("pmix.lpeers", &listed(own))
        .rank("pmix.lldr", own[0])
        .rank("pmix.offset", 0)
        .text("pmix.nmap", nodes)
        .text("pmix.pmap", tasks);
    let places = job.ranks.iter().enumerate();
    let places = places.flat_map(|(node, ranks)| ranks.iter().enumerate().map(move |(at, rank)| (node, at, *rank)));
    places.fold(of_job, |infos, (node, at, rank)| {
        let task = Infos::default()
            .rank("pmix.rank", rank)
            .rank("pmix.grank", rank)
            .rank("pmix.apprank", rank)
            .number("pmix.appnum", 0)
            .short("pmix.lrank", at)
            .short("pmix.nrank", at)
            .number("pmix.nodeid", u32::try_from(node).unwrap_or(u32::MAX))
            .text("pmix.hname", &job.nodes[node]);
        infos.list("pmix.pdata", task)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn forms_in_memory_are_those_of_the_standard() {
        assert_eq!((size_of::<Proc>(), size_of::<DataArray>(), size_of::<Info>()), (260, 24, 552));
        assert_eq!((offset_of!(Info, flags), offset_of!(Info, value), offset_of!(Value, data)), (512, 520, 8));
        assert_eq!(size_of::<Module>(), 64 * size_of::<Open>());
    }
}
