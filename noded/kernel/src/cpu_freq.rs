//! Frequencies and governors of the machine's CPUs, in sysfs (the kernel's `admin-guide/pm/cpufreq`). What a CPU had is kept in a file
//! while a step has changed it, with whose it is: the last who set it puts it back, also after a crash.

use crate::{
    files::{FileError, failed},
    kept::{Entry, Kept},
};
use garrick_model::cpu_freq::{CpuFreq, Frequency};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Where CPUs are shown.
pub const SYS_CPUS: &str = "/sys/devices/system/cpu";

/// A CPU whose frequency could not be set or put back.
#[derive(Debug, thiserror::Error)]
pub enum CpuFreqError {
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// A number in one.
    #[error("{path}: {text:?} is no frequency", path = path.display())]
    Number {
        /// The file.
        path: PathBuf,
        /// What is in it.
        text: String,
    },
    /// The kernel does not set the frequencies of this CPU.
    #[error("the kernel sets no frequencies of CPU {0}: there is no {path}", path = .1.display())]
    None(u32, PathBuf),
}

/// The CPUs of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuFrequencies {
    /// [`SYS_CPUS`], but for tests.
    sys: PathBuf,
    /// What CPUs had.
    kept: Kept,
}

/// What a CPU has.
#[derive(Debug, PartialEq, Eq)]
struct Had {
    governor: String,
    min: u32,
    max: u32,
}

impl Had {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let governor = words.next()?.to_owned();
        let (min, max) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Self { governor, min, max })
    }
}

impl CpuFrequencies {
    /// The CPUs that `sys` shows; what they had is kept in `kept`, which only this daemon writes to.
    pub fn new(sys: impl Into<PathBuf>, kept: impl Into<PathBuf>) -> Self {
        Self { sys: sys.into(), kept: Kept::new(kept.into(), "cpu") }
    }

    /// Sets these CPUs for `owner`. The first failure is told when all have been tried.
    pub fn set(&self, cpus: impl IntoIterator<Item = u32>, asked: CpuFreq, owner: &str) -> Result<(), CpuFreqError> {
        let _lock = self.kept.begin()?;
        let mut first = Ok(());
        for cpu in cpus {
            first = first.and(self.set_one(cpu, asked, owner));
        }
        first
    }

    /// Puts back what the CPUs had that `owner` set last, as far as `owner` is the beginning of who did.
    pub fn put_back(&self, owner: &str) -> Result<(), CpuFreqError> {
        if self.kept.of(owner)?.is_empty() {
            return Ok(());
        }
        let _lock = self.kept.lock()?;
        let mut first = Ok(());
        for (cpu, had) in self.kept.of(owner)? {
            let Some(had) = Had::parse(&had) else { continue };
            first = first.and(self.write(cpu, &had)).and_then(|()| Ok(self.kept.remove(cpu)?));
        }
        first
    }

    fn folder(&self, cpu: u32) -> PathBuf {
        self.sys.join(format!("cpu{cpu}/cpufreq"))
    }

    fn set_one(&self, cpu: u32, asked: CpuFreq, owner: &str) -> Result<(), CpuFreqError> {
        let folder = self.folder(cpu);
        if !folder.exists() {
            return Err(CpuFreqError::None(cpu, folder));
        }
        let now = self.read(cpu)?;
        let had = self.kept.get(cpu)?.and_then(|entry| Had::parse(&entry.had)).unwrap_or(now);
        // Before anything changes: a crash must not lose it.
        let had = format!("{} {} {}", had.governor, had.min, had.max);
        self.kept.put(cpu, &Entry { owner: owner.to_owned(), had })?;
        let all = self.available(cpu)?;
        let governor = asked.governor().name().to_ascii_lowercase();
        match asked {
            CpuFreq::Governed(_) => put(&folder.join("scaling_governor"), &governor),
            CpuFreq::Range(min, max, _) => {
                self.write(cpu, &Had { governor, min: chosen(min, &all), max: chosen(max, &all) })
            }
            CpuFreq::Fixed(frequency) => {
                let khz = chosen(frequency, &all);
                self.write(cpu, &Had { governor, min: khz, max: khz })?;
                put(&folder.join("scaling_setspeed"), &khz.to_string())
            }
        }
    }

    /// The kernel refuses a lowest frequency above the highest, so that is widened first.
    fn write(&self, cpu: u32, to: &Had) -> Result<(), CpuFreqError> {
        let folder = self.folder(cpu);
        let (min, max) = (folder.join("scaling_min_freq"), folder.join("scaling_max_freq"));
        put(&folder.join("scaling_governor"), &to.governor)?;
        if to.max > number(&max)? {
            put(&max, &to.max.to_string())?;
        }
        put(&min, &to.min.to_string())?;
        put(&max, &to.max.to_string())
    }

    fn read(&self, cpu: u32) -> Result<Had, CpuFreqError> {
        let folder = self.folder(cpu);
        let governor = folder.join("scaling_governor");
        let text = fs::read_to_string(&governor).map_err(failed("read", &governor))?;
        let number_in = |name: &str| number(&folder.join(name));
        Ok(Had {
            governor: text.trim().to_owned(),
            min: number_in("scaling_min_freq")?,
            max: number_in("scaling_max_freq")?,
        })
    }

    /// What there is, the lowest first. Drivers that name no frequencies have any between two.
    fn available(&self, cpu: u32) -> Result<Vec<u32>, CpuFreqError> {
        let folder = self.folder(cpu);
        let listed = fs::read_to_string(folder.join("scaling_available_frequencies")).unwrap_or_default();
        let mut all: Vec<u32> = listed.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        if all.is_empty() {
            let (min, max) = (number(&folder.join("cpuinfo_min_freq"))?, number(&folder.join("cpuinfo_max_freq"))?);
            all = vec![min, min.midpoint(max), max];
        }
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }
}

/// The one that is meant: within what there is (srun(1)).
fn chosen(frequency: Frequency, all: &[u32]) -> u32 {
    let at = |index: usize| all.get(index).copied().unwrap_or_default();
    let last = all.len().saturating_sub(1);
    match frequency {
        Frequency::Khz(khz) => khz.clamp(at(0), at(last)),
        Frequency::Low => at(0),
        Frequency::Medium => at(last / 2),
        Frequency::High => at(last),
        Frequency::HighM1 => at(last.saturating_sub(1)),
    }
}

fn put(path: &Path, text: &str) -> Result<(), CpuFreqError> {
    Ok(fs::write(path, text).map_err(failed("write", path))?)
}

fn number(path: &Path) -> Result<u32, CpuFreqError> {
    let text = fs::read_to_string(path).map_err(failed("read", path))?;
    text.trim().parse().map_err(|_| CpuFreqError::Number { path: path.to_owned(), text })
}

/// What the kernel's folder of a CPU has, for tests.
#[cfg(any(test, feature = "testing"))]
pub fn make_cpu(folder: &Path, frequencies: &[u32]) {
    fs::create_dir_all(folder).expect("a test's folder can be made");
    let all: Vec<String> = frequencies.iter().map(u32::to_string).collect();
    let (min, max) = (all.first().expect("a frequency"), all.last().expect("a frequency"));
    for (name, text) in [
        ("scaling_governor", "schedutil"),
        ("scaling_min_freq", min),
        ("scaling_max_freq", max),
        ("scaling_setspeed", "<unsupported>"),
        ("scaling_available_frequencies", &all.join(" ")),
    ] {
        fs::write(folder.join(name), format!("{text}\n")).expect("a test's file can be written");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::scratch::Scratch;
    use garrick_model::cpu_freq::Governor;

    struct Machine(Scratch);

    impl Machine {
        fn new(name: &str) -> Self {
            let scratch = Scratch::new(name);
            for cpu in 0..3 {
                make_cpu(&scratch.join(&format!("cpu{cpu}/cpufreq")), &[1000, 1500, 2000, 2500]);
            }
            Self(scratch)
        }

        fn cpus(&self) -> CpuFrequencies {
            CpuFrequencies::new(self.0.path(), self.0.join("kept"))
        }

        fn shown(&self, cpu: u32) -> String {
            let read = |name: &str| fs::read_to_string(self.0.join(&format!("cpu{cpu}/cpufreq/{name}"))).unwrap();
            let names = ["scaling_governor", "scaling_min_freq", "scaling_max_freq", "scaling_setspeed"];
            names.map(|name| read(name).trim().to_owned()).join(" ")
        }
    }

    const BEFORE: &str = "schedutil 1000 2500 <unsupported>";

    #[test]
    fn cpus_are_set_and_put_back() {
        let machine = Machine::new("frequencies");
        let cpus = machine.cpus();
        cpus.set([0, 1], CpuFreq::Fixed(Frequency::HighM1), "7.0").unwrap();
        assert_eq!(machine.shown(0), "userspace 2000 2000 2000");
        assert_eq!(machine.shown(2), BEFORE);
        cpus.put_back("7.0").unwrap();
        assert!((0..2).all(|cpu| machine.shown(cpu).starts_with("schedutil 1000 2500 ")));
        let range = CpuFreq::Range(Frequency::Khz(1), Frequency::Medium, Governor::OnDemand);
        cpus.set([2], range, "7.1").unwrap();
        assert_eq!(machine.shown(2), "ondemand 1000 1500 <unsupported>");
        cpus.put_back("8").unwrap();
        assert_eq!(machine.shown(2), "ondemand 1000 1500 <unsupported>", "another's");
        cpus.put_back("7.").unwrap();
        assert_eq!(machine.shown(2), BEFORE);
    }

    #[test]
    fn the_last_who_sets_a_cpu_puts_back_what_it_had_first() {
        let machine = Machine::new("frequencies-twice");
        let cpus = machine.cpus();
        cpus.set([0], CpuFreq::Governed(Governor::Performance), "7.0").unwrap();
        cpus.set([0], CpuFreq::Fixed(Frequency::Low), "7.1").unwrap();
        cpus.put_back("7.0").unwrap();
        assert_eq!(machine.shown(0), "userspace 1000 1000 1000");
        cpus.put_back("7.1").unwrap();
        assert!(machine.shown(0).starts_with("schedutil 1000 2500 "));
    }

    #[test]
    fn a_machine_whose_kernel_sets_no_frequencies_says_so() {
        let machine = Machine::new("no-frequencies");
        let error = machine.cpus().set([9, 0], CpuFreq::Fixed(Frequency::Low), "7.0").unwrap_err();
        assert!(error.to_string().contains("CPU 9"), "{error}");
        assert_eq!(machine.shown(0), "userspace 1000 1000 1000", "the others are set");
    }
}
