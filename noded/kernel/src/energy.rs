//! Energy that the machine's processors and memory used, by the counters that the kernel shows of RAPL (its
//! `power/powercap/powercap.rst`). They are root's to read.

use crate::files::FileError;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Where the kernel shows them.
pub const POWERCAP: &str = "/sys/class/powercap";

/// Counters of a machine. They overflow after some minutes at full load: a meter that is not read more often than that misses
/// whole turns.
#[derive(Debug)]
pub struct EnergyMeter {
    counters: Vec<Counter>,
    /// Since the meter was made, microjoules.
    total: u64,
}

#[derive(Debug)]
struct Counter {
    path: PathBuf,
    /// Greatest value, behind which it begins at 0 again.
    most: u64,
    last: u64,
}

impl EnergyMeter {
    /// The counters of processors and of their memory that this folder shows, beginning now. `psys`, which has all of them in it,
    /// is left out, and so are parts of processors.
    ///
    /// # Errors
    /// There are none, or they cannot be read.
    pub fn find(folder: &Path) -> Result<Self, FileError> {
        let failed = |operation, path: &Path| {
            let path = path.to_owned();
            move |cause| FileError { operation, path, cause }
        };
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
        Ok(Self { counters, total: 0 })
    }

    /// Microjoules since the meter was made. A counter that cannot be read for once stands still until it can.
    pub fn read(&mut self) -> u64 {
        for counter in &mut self.counters {
            if let Ok(now) = number(&counter.path) {
                let more = match now.checked_sub(counter.last) {
                    Some(more) => more,
                    None => counter.most.saturating_sub(counter.last).saturating_add(now),
                };
                self.total = self.total.saturating_add(more);
                counter.last = now;
            }
        }
        self.total
    }
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
        assert!(EnergyMeter::find(sys.path()).is_err(), "there are none");
        let zones = [("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "core"), ("intel-rapl:0:1", "dram")];
        for (zone, name) in zones.into_iter().chain([("intel-rapl:1", "psys"), ("dtpm", "package-9")]) {
            sys.put(&format!("{zone}/name"), &format!("{name}\n"));
            sys.put(&format!("{zone}/max_energy_range_uj"), "1000000\n");
            sys.put(&format!("{zone}/energy_uj"), "900000\n");
        }
        let mut meter = EnergyMeter::find(sys.path()).unwrap();
        assert_eq!(meter.read(), 0);
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
}
