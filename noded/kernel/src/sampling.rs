//! What running tasks use, from `/proc`: each with all processes that came of it (proc(5)).

use super::proc_tree::ProcessTable;
use garrick_model::usage::TaskSample;
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// Where a CPU's frequency is shown.
const FREQUENCY: &str = "/sys/devices/system/cpu";

/// Looks at tasks: rank and first process of each. One that ended meanwhile has no processes.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn sample(proc_root: &Path, tasks: &[(u32, u32)]) -> io::Result<Vec<TaskSample>> {
    let table = ProcessTable::scan(proc_root)?;
    let frequencies = Frequencies::read(proc_root);
    let of_task = |(rank, first): &(u32, u32)| {
        let mut sample = TaskSample { rank: *rank, ..TaskSample::default() };
        let own = table.get(*first).into_iter().copied();
        let mut peak = 0;
        for process in own.chain(table.descendants(*first)).filter(|process| !process.is_dead()) {
            let Some(one) = Usage::read(&proc_root.join(process.pid.to_string())) else { continue };
            sample.pids.push(process.pid);
            sample.cpu_us += one.cpu_us;
            sample.rss += one.rss;
            sample.vsize += one.vsize;
            sample.pages += one.pages;
            sample.read += one.read;
            sample.written += one.written;
            peak = peak.max(one.peak);
            if process.pid == *first {
                sample.frequency_khz = frequencies.of(one.cpu);
            }
        }
        sample.rss = sample.rss.max(peak);
        sample
    };
    Ok(tasks.iter().map(of_task).collect())
}

/// Children of a process that were started with all of these variables, by the number that the variable `numbered` has there.
pub fn children_with(proc_root: &Path, parent: u32, variables: &[Vec<u8>], numbered: &str) -> BTreeMap<u32, u32> {
    let children = ProcessTable::scan(proc_root).map(|table| table.descendants(parent)).unwrap_or_default();
    let number = |pid: u32| {
        let environment = fs::read(proc_root.join(pid.to_string()).join("environ")).unwrap_or_default();
        let there: Vec<&[u8]> = environment.split(|byte| *byte == 0).collect();
        let has_all = variables.iter().all(|variable| there.contains(&&variable[..]));
        let value = |entry: &&[u8]| entry.strip_prefix(numbered.as_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec);
        let value = there.iter().find_map(value).filter(|_| has_all)?;
        String::from_utf8(value).ok()?.parse().ok()
    };
    let own = children.iter().filter(|process| process.ppid == parent && !process.is_dead());
    let mut found = BTreeMap::new();
    for (number, pid) in own.filter_map(|process| Some((number(process.pid)?, process.pid))) {
        found.entry(number).or_insert(pid);
    }
    found
}

/// What one process uses.
#[derive(Debug, Default, PartialEq, Eq)]
struct Usage {
    cpu_us: u64,
    rss: u64,
    peak: u64,
    vsize: u64,
    pages: u64,
    read: u64,
    written: u64,
    cpu: usize,
}

impl Usage {
    fn read(folder: &Path) -> Option<Self> {
        let text = |name: &str| Some(String::from_utf8_lossy(&fs::read(folder.join(name)).ok()?).into_owned());
        let mut usage = Self::of_stat(&text("stat")?)?;
        // A process of another user shows these to root alone.
        let io = text("io").unwrap_or_default();
        (usage.read, usage.written) = (keyed(&io, "rchar:"), keyed(&io, "wchar:"));
        usage.peak = keyed(&text("status").unwrap_or_default(), "VmHWM:") * 1024;
        Some(usage)
    }

    /// The name, in parentheses, may hold anything.
    fn of_stat(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // Numbered as in proc(5), where the state is the third field.
        let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let ticks: u64 = (14..=17).map(field).sum();
        Some(Self {
            cpu_us: ticks.saturating_mul(1_000_000) / clock_ticks(),
            pages: field(12) + field(13),
            vsize: field(23),
            rss: field(24).saturating_mul(page_size()),
            cpu: usize::try_from(field(39)).unwrap_or(usize::MAX),
            ..Self::default()
        })
    }
}

/// The number behind a key at the begin of a line.
fn keyed(text: &str, key: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn setting(name: nix::unistd::SysconfVar, usual: u64) -> u64 {
    let value = nix::unistd::sysconf(name).ok().flatten().and_then(|value| u64::try_from(value).ok());
    value.filter(|value| *value > 0).unwrap_or(usual)
}

fn clock_ticks() -> u64 {
    setting(nix::unistd::SysconfVar::CLK_TCK, 100)
}

fn page_size() -> u64 {
    setting(nix::unistd::SysconfVar::PAGE_SIZE, 4096)
}

/// Frequencies of CPUs: now where the kernel scales them, else as the processor names them.
struct Frequencies {
    named: BTreeMap<usize, u64>,
    folder: PathBuf,
}

impl Frequencies {
    fn read(proc_root: &Path) -> Self {
        let text = fs::read_to_string(proc_root.join("cpuinfo")).unwrap_or_default();
        Self { named: named_frequencies(&text), folder: PathBuf::from(FREQUENCY) }
    }

    fn of(&self, cpu: usize) -> u64 {
        let scaled = fs::read_to_string(self.folder.join(format!("cpu{cpu}/cpufreq/scaling_cur_freq"))).ok();
        let scaled = scaled.and_then(|text| text.trim().parse().ok());
        scaled.or_else(|| self.named.get(&cpu).copied()).unwrap_or(0)
    }
}

/// kHz by CPU, from `cpuinfo`.
fn named_frequencies(text: &str) -> BTreeMap<usize, u64> {
    let mut found = BTreeMap::new();
    let mut cpu = None;
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        match key.trim() {
            "processor" => cpu = value.trim().parse().ok(),
            "cpu MHz" => {
                // `2600.001`
                let (whole, part) = value.trim().split_once('.').unwrap_or((value.trim(), ""));
                let thousandths = format!("{part:0<3}");
                let khz = whole.parse::<u64>().ok().zip(thousandths.get(..3).and_then(|p| p.parse::<u64>().ok()));
                found.extend(cpu.zip(khz.map(|(mhz, khz)| mhz * 1000 + khz)));
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::{
        io::{Read as _, Write as _},
        process::{Command, Stdio},
    };

    #[test]
    fn fields_are_those_of_proc_5() {
        let number = |field: u32| match field {
            12 => 3,
            13 => 4,
            14..=17 => 25,
            23 => 4_096_000,
            24 => 30,
            39 => 5,
            _ => 0,
        };
        let numbers: Vec<String> = (4..=52).map(|field| number(field).to_string()).collect();
        let stat = format!("7 (a) b) S {}", numbers.join(" "));
        let usage = Usage::of_stat(&stat).unwrap();
        assert_eq!(
            (usage.cpu_us, usage.pages, usage.vsize, usage.cpu),
            (100 * 1_000_000 / clock_ticks(), 7, 4_096_000, 5)
        );
        assert_eq!(usage.rss, 30 * page_size());
        assert_eq!(keyed("rchar: 12\nwchar: 34\n", "wchar:"), 34);
        let cpus = named_frequencies("processor\t: 0\ncpu MHz\t\t: 2600.001\n\nprocessor\t: 1\ncpu MHz\t\t: 2599.5\n");
        assert_eq!(cpus, BTreeMap::from([(0, 2_600_001), (1, 2_599_500)]));
    }

    /// A shell whose child holds 32 MiB and has written 1 MiB, until it is told to end.
    #[test]
    fn a_task_is_seen_with_all_that_came_of_it() {
        let script = "(x=$(head -c 33554432 /dev/zero | tr '\\0' a); head -c 1048576 /dev/zero > /dev/null; echo ready; read y; : $x); :";
        let mut shell = Command::new("bash")
            .args(["-c", script])
            .env("GARRICK_SAMPLED", "here")
            .env("GARRICK_NUMBER", "3")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let proc_root = Path::new(super::super::proc_tree::PROC);
        let mut ready = [0; 6];
        shell.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        let marked = |value: &str| {
            let variables = [format!("GARRICK_SAMPLED={value}").into_bytes()];
            children_with(proc_root, std::process::id(), &variables, "GARRICK_NUMBER")
        };
        assert_eq!((marked("here"), marked("elsewhere")), (BTreeMap::from([(3, shell.id())]), BTreeMap::new()));
        let samples = sample(proc_root, &[(3, shell.id()), (4, u32::MAX)]).unwrap();
        shell.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        shell.wait().unwrap();
        let task = &samples[0];
        assert_eq!((task.rank, task.pids[0], task.pids.len()), (3, shell.id(), 2));
        assert!(task.rss > 32 << 20 && task.vsize > 32 << 20 && task.cpu_us > 0, "{task:?}");
        // The child's own, and what its ended children did was waited for.
        assert!(task.read > 0, "{task:?}");
        assert_eq!(samples[1], TaskSample { rank: 4, ..TaskSample::default() });
    }
}
