//! What processes use of the machine's GPUs, as NVIDIA's management library tells it (the NVML API Reference Guide), which comes
//! with the driver. It is loaded for a look and let go after it: nothing of a GPU is kept open. It knows nothing of parts of GPUs
//! (MIG). It sets clocks of GPUs too.

use crate::gpu_freq::{Clocks, GpuClocks};
use garrick_model::{config::GresDevice, gres::GPU};
use libc::{c_int, c_uint, c_ulonglong, c_void};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};
use nix::sys::stat::{SFlag, minor, stat};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    ptr::null_mut,
};

/// The file that is loaded: every driver has this name.
const FILE: &str = "libnvidia-ml.so.1";
/// `NVML_SUCCESS`.
const SUCCESS: c_int = 0;
/// `NVML_ERROR_NOT_FOUND`: nothing ran.
const NOT_FOUND: c_int = 6;
/// `NVML_ERROR_INSUFFICIENT_SIZE`: there are more than there was room for.
const INSUFFICIENT_SIZE: c_int = 7;
/// `NVML_VALUE_NOT_AVAILABLE`.
const NOT_AVAILABLE: u64 = u64::MAX;
/// `NVML_CLOCK_GRAPHICS` and `NVML_CLOCK_MEM`.
const CLOCK_GRAPHICS: c_int = 0;
const CLOCK_MEMORY: c_int = 2;
/// Processes, samples and clocks of a GPU that are read at most.
const MOST: c_uint = 65_536;
/// Rooms for those that begin between the question how many there are and the one for them.
const SPARE: c_uint = 16;

/// What a process uses of all GPUs together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuUse {
    /// Memory, bytes.
    pub memory: u64,
    /// Part of the time in which it computed, percent of one GPU.
    pub percent: u64,
}

/// By process.
pub type GpuUses = BTreeMap<u32, GpuUse>;

/// Something that knows them.
pub trait GpuCounters {
    /// How many GPUs there are.
    fn count(&self) -> Result<u32, GpuError>;
    /// Memory of each process on one of them, bytes.
    fn memory(&self, gpu: u32) -> Result<Vec<(u32, u64)>, GpuError>;
    /// How busy processes kept it, percent; each may be there several times, of different moments.
    fn busy(&self, gpu: u32) -> Result<Vec<(u32, u64)>, GpuError>;
}

/// It cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    /// The library, or a function of it.
    #[error("{cause}{}", why(.cause))]
    Library {
        /// What the linker said.
        #[from]
        cause: libloading::Error,
    },
    /// A call failed, with this `nvmlReturn_t`.
    #[error("{call}: NVML error {code}")]
    Call {
        /// Which.
        call: &'static str,
        /// What it returned.
        code: c_int,
    },
}

/// What the linker said, which its error does not show by itself.
fn why(error: &libloading::Error) -> String {
    std::error::Error::source(error).map(|why| format!(": {why}")).unwrap_or_default()
}

/// Adds up what is known of all GPUs. One that cannot be asked is passed over.
///
/// # Errors
/// If it is not known how many there are.
pub fn by_process(counters: &impl GpuCounters) -> Result<GpuUses, GpuError> {
    let mut uses = GpuUses::new();
    for gpu in 0..counters.count()? {
        for (process, bytes) in counters.memory(gpu).unwrap_or_default() {
            let all = &mut uses.entry(process).or_default().memory;
            *all = all.saturating_add(bytes);
        }
        let mut most: BTreeMap<u32, u64> = BTreeMap::new();
        for (process, percent) in counters.busy(gpu).unwrap_or_default() {
            let so_far = most.entry(process).or_default();
            *so_far = percent.min(100).max(*so_far);
        }
        for (process, percent) in most {
            let all = &mut uses.entry(process).or_default().percent;
            *all = all.saturating_add(percent);
        }
    }
    Ok(uses)
}

/// The GPUs among a node's devices, each with the minor number by which the driver knows it: that of its device file, or the one in
/// the name `/dev/nvidiaN` where that is no device now. It is not the GPU's own number where others come first or some are left out.
pub fn minors(devices: &[GresDevice]) -> Vec<(u32, u32)> {
    let named = |file: &Path| file.to_str()?.strip_prefix("/dev/nvidia")?.parse().ok();
    let of_device = |file: &Path| {
        let found = stat(file).ok()?;
        let is_device = SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT == SFlag::S_IFCHR;
        is_device.then(|| u32::try_from(minor(found.st_rdev)).ok()).flatten()
    };
    let number = |file: &PathBuf| of_device(file).or_else(|| named(file));
    let gpus = devices.iter().filter(|device| device.name == GPU);
    gpus.flat_map(|gpu| gpu.files.iter().filter_map(number).map(move |minor| (gpu.number, minor))).collect()
}

/// `nvmlProcessInfo_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProcessInfo {
    pid: c_uint,
    memory: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// `nvmlProcessUtilizationSample_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sample {
    pid: c_uint,
    time: c_ulonglong,
    computing: c_uint,
    memory: c_uint,
    encoder: c_uint,
    decoder: c_uint,
}

type Device = *mut c_void;
type Plain = unsafe extern "C" fn() -> c_int;
type Count = unsafe extern "C" fn(*mut c_uint) -> c_int;
type Handle = unsafe extern "C" fn(c_uint, *mut Device) -> c_int;
type Processes = unsafe extern "C" fn(Device, *mut c_uint, *mut ProcessInfo) -> c_int;
type Number = unsafe extern "C" fn(Device, *mut c_uint) -> c_int;
type Clock = unsafe extern "C" fn(Device, c_int, *mut c_uint) -> c_int;
type MemoryClocks = unsafe extern "C" fn(Device, *mut c_uint, *mut c_uint) -> c_int;
type GraphicsClocks = unsafe extern "C" fn(Device, c_uint, *mut c_uint, *mut c_uint) -> c_int;
type SetClocks = unsafe extern "C" fn(Device, c_uint, c_uint) -> c_int;
type Samples = unsafe extern "C" fn(Device, *mut Sample, *mut c_uint, c_ulonglong) -> c_int;

/// NVIDIA's library, at work until it is dropped.
#[derive(Debug)]
pub struct Nvml(Library);

impl Nvml {
    /// Loads it.
    ///
    /// # Errors
    /// There is none, or no driver.
    pub fn load() -> Result<Self, GpuError> {
        // SAFETY: loading it runs what it does at its start, which is what the site installed it for.
        let library = unsafe { Library::open(Some(FILE), RTLD_NOW | RTLD_LOCAL) }?;
        // SAFETY: its type is that of the guide.
        let init: Symbol<Plain> = unsafe { library.get("nvmlInit_v2") }?;
        // SAFETY: it takes nothing.
        checked("nvmlInit_v2", unsafe { init() })?;
        Ok(Self(library))
    }

    fn device(&self, gpu: u32) -> Result<Device, GpuError> {
        // SAFETY: its type is that of the guide.
        let handle: Symbol<Handle> = unsafe { self.0.get("nvmlDeviceGetHandleByIndex_v2") }?;
        let mut device = null_mut();
        // SAFETY: it writes one handle, which holds until the library is let go.
        checked("nvmlDeviceGetHandleByIndex_v2", unsafe { handle(gpu, &mut device) })?;
        Ok(device)
    }
}

impl Nvml {
    /// The GPU of `/dev/nvidiaN`.
    fn device_file(&self, number: u32) -> Result<Device, GpuError> {
        let call = "nvmlDeviceGetMinorNumber";
        // SAFETY: its type is that of the guide.
        let ask: Symbol<Number> = unsafe { self.0.get(call) }?;
        for gpu in 0..self.count()? {
            let device = self.device(gpu)?;
            let mut minor = 0;
            // SAFETY: it writes one number.
            checked(call, unsafe { ask(device, &mut minor) })?;
            if minor == number {
                return Ok(device);
            }
        }
        Err(GpuError::Call { call, code: NOT_FOUND })
    }

    fn clock(&self, device: Device, of: c_int) -> Result<u32, GpuError> {
        let call = "nvmlDeviceGetApplicationsClock";
        // SAFETY: its type is that of the guide.
        let ask: Symbol<Clock> = unsafe { self.0.get(call) }?;
        let mut mhz = 0;
        // SAFETY: it writes one number.
        checked(call, unsafe { ask(device, of, &mut mhz) })?;
        Ok(mhz)
    }
}

impl GpuClocks for Nvml {
    fn clocks(&self, gpu: u32) -> Result<Clocks, GpuError> {
        let device = self.device_file(gpu)?;
        Ok(Clocks { memory: self.clock(device, CLOCK_MEMORY)?, gpu: self.clock(device, CLOCK_GRAPHICS)? })
    }

    fn memory_clocks(&self, gpu: u32) -> Result<Vec<u32>, GpuError> {
        let (call, device) = ("nvmlDeviceGetSupportedMemoryClocks", self.device_file(gpu)?);
        // SAFETY: its type is that of the guide.
        let ask: Symbol<MemoryClocks> = unsafe { self.0.get(call) }?;
        // SAFETY: it writes no more than there is room for, which the count says.
        list(call, |room, count| unsafe { ask(device, count, room) })
    }

    fn gpu_clocks(&self, gpu: u32, memory: u32) -> Result<Vec<u32>, GpuError> {
        let (call, device) = ("nvmlDeviceGetSupportedGraphicsClocks", self.device_file(gpu)?);
        // SAFETY: its type is that of the guide.
        let ask: Symbol<GraphicsClocks> = unsafe { self.0.get(call) }?;
        // SAFETY: it writes no more than there is room for, which the count says.
        list(call, |room, count| unsafe { ask(device, memory, count, room) })
    }

    fn set_clocks(&self, gpu: u32, to: Clocks) -> Result<(), GpuError> {
        let (call, device) = ("nvmlDeviceSetApplicationsClocks", self.device_file(gpu)?);
        // SAFETY: its type is that of the guide.
        let set: Symbol<SetClocks> = unsafe { self.0.get(call) }?;
        // SAFETY: it takes two numbers.
        checked(call, unsafe { set(device, to.memory, to.gpu) })
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // SAFETY: its type is that of the guide.
        if let Ok(shutdown) = unsafe { self.0.get::<Plain>("nvmlShutdown") } {
            // SAFETY: it takes nothing, and no handle is used after it.
            unsafe { shutdown() };
        }
    }
}

fn checked(call: &'static str, code: c_int) -> Result<(), GpuError> {
    if code == SUCCESS { Ok(()) } else { Err(GpuError::Call { call, code }) }
}

/// Asks how many there are, and then for them.
fn list<T: Clone + Default>(
    call: &'static str,
    mut ask: impl FnMut(*mut T, &mut c_uint) -> c_int,
) -> Result<Vec<T>, GpuError> {
    let mut count = 0;
    match ask(null_mut(), &mut count) {
        SUCCESS | NOT_FOUND => return Ok(Vec::new()),
        INSUFFICIENT_SIZE => {}
        code => return Err(GpuError::Call { call, code }),
    }
    let room = count.min(MOST) + SPARE;
    let mut all = vec![T::default(); room as usize];
    count = room;
    match ask(all.as_mut_ptr(), &mut count) {
        NOT_FOUND => return Ok(Vec::new()),
        code => checked(call, code)?,
    }
    all.truncate(count.min(room) as usize);
    Ok(all)
}

impl GpuCounters for Nvml {
    fn count(&self) -> Result<u32, GpuError> {
        // SAFETY: its type is that of the guide.
        let ask: Symbol<Count> = unsafe { self.0.get("nvmlDeviceGetCount_v2") }?;
        let mut count = 0;
        // SAFETY: it writes one number.
        checked("nvmlDeviceGetCount_v2", unsafe { ask(&mut count) })?;
        Ok(count)
    }

    fn memory(&self, gpu: u32) -> Result<Vec<(u32, u64)>, GpuError> {
        let call = "nvmlDeviceGetComputeRunningProcesses_v3";
        let device = self.device(gpu)?;
        // SAFETY: its type is that of the guide.
        let ask: Symbol<Processes> = unsafe { self.0.get(call) }?;
        // SAFETY: it writes no more than there is room for, which the count says.
        let found = list::<ProcessInfo>(call, |room, count| unsafe { ask(device, count, room) })?;
        let known = found.iter().filter(|process| process.memory != NOT_AVAILABLE);
        Ok(known.map(|process| (process.pid, process.memory)).collect())
    }

    fn busy(&self, gpu: u32) -> Result<Vec<(u32, u64)>, GpuError> {
        let call = "nvmlDeviceGetProcessUtilization";
        let device = self.device(gpu)?;
        // SAFETY: its type is that of the guide.
        let ask: Symbol<Samples> = unsafe { self.0.get(call) }?;
        // SAFETY: it writes no more than there is room for, which the count says.
        let found = list::<Sample>(call, |room, count| unsafe { ask(device, room, count, 0) })?;
        Ok(found.iter().map(|sample| (sample.pid, sample.computing.into())).collect())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Two GPUs, the second of which does not say how busy it is.
    struct Two;

    impl GpuCounters for Two {
        fn count(&self) -> Result<u32, GpuError> {
            Ok(2)
        }
        fn memory(&self, gpu: u32) -> Result<Vec<(u32, u64)>, GpuError> {
            Ok(if gpu == 0 { vec![(7, 100), (8, 5)] } else { vec![(7, 20)] })
        }
        fn busy(&self, gpu: u32) -> Result<Vec<(u32, u64)>, GpuError> {
            if gpu == 1 { Err(GpuError::Call { call: "busy", code: 3 }) } else { Ok(vec![(7, 40), (7, 250), (9, 30)]) }
        }
    }

    #[test]
    fn what_processes_use_of_several_gpus_is_added_up() {
        let uses = by_process(&Two).unwrap();
        let of = |memory, percent| GpuUse { memory, percent };
        assert_eq!(uses, [(7, of(120, 100)), (8, of(5, 0)), (9, of(0, 30))].into());
    }

    #[test]
    fn gpus_are_known_by_the_numbers_of_their_files() {
        let device = |name: &str, number, files: &[&str]| GresDevice {
            name: name.to_owned(),
            number,
            files: files.iter().map(PathBuf::from).collect(),
        };
        // File=/dev/nvidia[2-3], and one that no driver of NVIDIA's has.
        let devices = [
            device(GPU, 0, &["/dev/nvidia2"]),
            device(GPU, 1, &["/dev/nvidiactl", "/dev/nvidia3"]),
            device(GPU, 2, &["/dev/dri/card0"]),
            device("nic", 0, &["/dev/nvidia0"]),
        ];
        assert_eq!(minors(&devices), [(0, 2), (1, 3)]);
    }

    #[test]
    fn lists_are_read_with_the_room_that_they_need() {
        let four = |answers: [c_int; 2], there: c_uint| {
            let mut asked = 0;
            list::<u32>("four", |room, count| {
                asked += 1;
                if asked == 2 {
                    assert!(!room.is_null() && *count >= there);
                    // SAFETY: there is room for that many.
                    (0..there).for_each(|at| unsafe { *room.add(at as usize) = at + 1 });
                }
                *count = there;
                answers[asked - 1]
            })
        };
        assert_eq!(four([INSUFFICIENT_SIZE, SUCCESS], 4).unwrap(), [1, 2, 3, 4]);
        assert_eq!(four([SUCCESS, SUCCESS], 0).unwrap(), [0; 0]);
        assert_eq!(four([INSUFFICIENT_SIZE, NOT_FOUND], 3).unwrap(), [0; 0]);
        assert!(four([3, SUCCESS], 1).is_err() && four([INSUFFICIENT_SIZE, 15], 1).is_err());
        assert_eq!((size_of::<ProcessInfo>(), size_of::<Sample>()), (24, 32));
    }
}
