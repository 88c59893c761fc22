//! Energy that the machine used: by the counters that the kernel shows of RAPL (its `power/powercap/powercap.rst`), which are
//! root's to read, or by the power that it shows of the machine's power supply (`hwmon/acpi_power_meter.rst`, `hwmon/ibmaem.rst`),
//! added up over time.

use crate::files::FileError;
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

/// Where the kernel shows counters of RAPL.
pub const POWERCAP: &str = "/sys/class/powercap";
/// Where it shows what power supplies measure.
pub const HWMON: &str = "/sys/class/hwmon";

/// Names of drivers that measure the power of the whole machine: of ACPI's power meters, and of IBM's, which ask the BMC by IPMI.
const POWER_METERS: [&str; 3] = ["power_meter", "aem1", "aem2"];
/// The power is not asked for more often: the kernel may have to ask the BMC, which takes its time. In between it is taken to be as
/// it was. A thread of its own waits for the answer.
const ASK_AFTER: Duration = Duration::from_secs(1);

/// Where a machine's energy is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EnergyPlace {
    /// Counters of RAPL in this folder.
    Counters(PathBuf),
    /// Power meters in this folder.
    Power(PathBuf),
}

/// What measures a machine's energy, from when it was made.
#[derive(Debug)]
pub struct EnergyMeter {
    source: Source,
    /// Since the meter was made, microjoules.
    total: u64,
}

#[derive(Debug)]
enum Source {
    /// They overflow after some minutes at full load: a meter that is not read more often than that misses whole turns.
    Counters(Vec<Counter>),
    Power(PowerMeter),
}

#[derive(Debug)]
struct Counter {
    path: PathBuf,
    /// Greatest value, behind which it begins at 0 again.
    most: u64,
    last: u64,
}

#[derive(Debug)]
struct PowerMeter {
    /// Has the thread read the files; it ends when this is dropped.
    ask: SyncSender<()>,
    /// Microwatts that the files showed together when they were last read.
    shown: Arc<AtomicU64>,
    asked: Instant,
    /// What was shown when it was last added up.
    microwatts: u64,
    /// Up to when it was added up.
    counted: Instant,
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    move |cause| FileError { operation, path, cause }
}

impl EnergyMeter {
    /// A meter that begins now.
    ///
    /// # Errors
    /// There is nothing to be read there, or it cannot be read.
    pub fn find(place: &EnergyPlace) -> Result<Self, FileError> {
        let source = match place {
            EnergyPlace::Counters(folder) => Source::Counters(counters(folder)?),
            EnergyPlace::Power(folder) => Source::Power(PowerMeter::find(folder, Instant::now())?),
        };
        Ok(Self { source, total: 0 })
    }

    /// Microjoules since the meter was made. What cannot be read for once stands still until it can.
    pub fn read(&mut self) -> u64 {
        let more = match &mut self.source {
            Source::Counters(counters) => counters.iter_mut().map(Counter::more).fold(0, u64::saturating_add),
            Source::Power(power) => power.more(Instant::now()),
        };
        self.total = self.total.saturating_add(more);
        self.total
    }

    /// Watts at the last reading. `None`: only counters are there, and the power is what they grow by.
    pub fn watts(&self) -> Option<u32> {
        match &self.source {
            Source::Counters(_) => None,
            Source::Power(power) => Some(u32::try_from(power.microwatts / 1_000_000).unwrap_or(u32::MAX)),
        }
    }
}

/// The counters of processors and of their memory that this folder shows. `psys`, which has all of them in it, is left out, and so
/// are parts of processors.
fn counters(folder: &Path) -> Result<Vec<Counter>, FileError> {
    let mut counters = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed("read", folder))? {
        let path = entry.map_err(failed("read", folder))?.path();
        let zone = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("intel-rapl:"));
        let name = fs::read_to_string(path.join("name")).unwrap_or_default();
        if !zone || !(name.starts_with("package-") || name.trim() == "dram") {
            continue;
        }
        let most = number(&path.join("max_energy_range_uj")).map_err(failed("read", &path))?;
        let path = path.join("energy_uj");
        let last = number(&path).map_err(failed("read", &path))?;
        counters.push(Counter { path, most, last });
    }
    if counters.is_empty() {
        return Err(failed("look for counters of energy in", folder)(io::ErrorKind::NotFound.into()));
    }
    Ok(counters)
}

impl Counter {
    /// Microjoules since it was last read.
    fn more(&mut self) -> u64 {
        let Ok(now) = number(&self.path) else { return 0 };
        let before = std::mem::replace(&mut self.last, now);
        now.checked_sub(before).unwrap_or_else(|| self.most.saturating_sub(before).saturating_add(now))
    }
}

impl PowerMeter {
    fn find(folder: &Path, now: Instant) -> Result<Self, FileError> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(folder).map_err(failed("read", folder))? {
            let device = entry.map_err(failed("read", folder))?.path();
            let name = fs::read_to_string(device.join("name")).unwrap_or_default();
            if POWER_METERS.contains(&name.trim()) {
                // Drivers show the mean of a short time, or what it is now.
                let shown = ["power1_average", "power1_input"].map(|file| device.join(file));
                paths.extend(shown.into_iter().find(|path| number(path).is_ok()));
            }
        }
        if paths.is_empty() {
            return Err(failed("look for a power meter in", folder)(io::ErrorKind::NotFound.into()));
        }
        let microwatts = sum(&paths).unwrap_or(0);
        let shown = Arc::new(AtomicU64::new(microwatts));
        let (ask, asked) = sync_channel(1);
        let of_thread = Arc::clone(&shown);
        let reads = move || {
            for () in asked {
                // What cannot be read for once is taken to be as it was.
                if let Some(now) = sum(&paths) {
                    of_thread.store(now, Ordering::Relaxed);
                }
            }
        };
        thread::Builder::new().name("power".to_owned()).spawn(reads).map_err(failed("start a thread for", folder))?;
        Ok(Self { ask, shown, asked: now, microwatts, counted: now })
    }

    /// Microjoules since they were last asked for: with what is between the power before and the one that was read last. Does not
    /// wait for the files.
    fn more(&mut self, now: Instant) -> u64 {
        if now.saturating_duration_since(self.asked) >= ASK_AFTER {
            self.asked = now;
            // A full queue: the thread is asked already.
            let _ = self.ask.try_send(());
        }
        let before = std::mem::replace(&mut self.microwatts, self.shown.load(Ordering::Relaxed));
        let passed = now.saturating_duration_since(std::mem::replace(&mut self.counted, now));
        let mean = u128::from(before.midpoint(self.microwatts));
        u64::try_from(mean * passed.as_micros() / 1_000_000).unwrap_or(u64::MAX)
    }
}

/// `None`: one of them cannot be read.
fn sum(paths: &[PathBuf]) -> Option<u64> {
    paths.iter().try_fold(0_u64, |sum, path| Some(sum.saturating_add(number(path).ok()?)))
}

fn number(path: &Path) -> io::Result<u64> {
    fs::read_to_string(path)?.trim().parse().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn processors_and_memory_are_added_up_over_the_ends_of_their_counters() {
        let sys = Scratch::new("powercap");
        let place = EnergyPlace::Counters(sys.path().to_owned());
        assert!(EnergyMeter::find(&place).is_err(), "there are none");
        let zones = [("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "core"), ("intel-rapl:0:1", "dram")];
        for (zone, name) in zones.into_iter().chain([("intel-rapl:1", "psys"), ("dtpm", "package-9")]) {
            sys.put(&format!("{zone}/name"), &format!("{name}\n"));
            sys.put(&format!("{zone}/max_energy_range_uj"), "1000000\n");
            sys.put(&format!("{zone}/energy_uj"), "900000\n");
        }
        let mut meter = EnergyMeter::find(&place).unwrap();
        assert_eq!((meter.read(), meter.watts()), (0, None));
        sys.put("intel-rapl:0/energy_uj", "950000\n");
        sys.put("intel-rapl:0:0/energy_uj", "999999\n");
        assert_eq!(meter.read(), 50_000);
        sys.put("intel-rapl:0/energy_uj", "30000\n");
        sys.put("intel-rapl:0:1/energy_uj", "900007\n");
        assert_eq!(meter.read(), 50_000 + 80_000 + 7);
        fs::remove_file(sys.join("intel-rapl:0:1/energy_uj")).unwrap();
        sys.put("intel-rapl:0/energy_uj", "30001\n");
        assert_eq!(meter.read(), 130_008);
    }

    #[test]
    fn power_is_added_up_over_time_and_not_asked_for_too_often() {
        let sys = Scratch::new("hwmon");
        let begin = Instant::now();
        assert!(PowerMeter::find(sys.path(), begin).is_err(), "there are none");
        // Of a processor's own sensor nothing is taken, nor of a meter that shows nothing.
        for (device, name) in
            [("hwmon0", "coretemp"), ("hwmon1", "power_meter"), ("hwmon2", "aem1"), ("hwmon3", "aem2")]
        {
            sys.put(&format!("{device}/name"), &format!("{name}\n"));
        }
        sys.put("hwmon0/power1_input", "7000000\n");
        sys.put("hwmon1/power1_average", "200000000\n");
        sys.put("hwmon1/power1_input", "1\n");
        sys.put("hwmon2/power1_input", "100000000\n");
        let mut meter = PowerMeter::find(sys.path(), begin).unwrap();
        let after = |millis| begin + Duration::from_millis(millis);
        // When the second of them is taken from the queue, which has room for one, the first was followed.
        let read = |meter: &PowerMeter| (0..3).for_each(|_| meter.ask.send(()).unwrap());
        // 300 W for half a second; what has changed meanwhile is not seen yet.
        sys.put("hwmon1/power1_average", "400000000\n");
        assert_eq!(meter.more(after(500)), 150_000_000);
        read(&meter);
        // 300 W before and 500 W now.
        assert_eq!(meter.more(after(2500)), 800_000_000);
        assert_eq!(meter.more(after(3500)), 500_000_000);
        fs::remove_file(sys.join("hwmon2/power1_input")).unwrap();
        read(&meter);
        assert_eq!(meter.more(after(5500)), 1_000_000_000);
        let meter = EnergyMeter { source: Source::Power(meter), total: 0 };
        assert_eq!(meter.watts(), Some(500));
    }
}
