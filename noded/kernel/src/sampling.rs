//! What running tasks use, from `/proc`: each with all processes that came of it (proc(5)).

use super::{
    gpu::GpuUses,
    proc_tree::{Process, ProcessTable},
};
use garrick_model::usage::TaskSample;
use std::{
    collections::{BTreeMap, HashSet},
    fs::{self, File},
    io,
    os::{fd::OwnedFd, unix::fs::FileExt},
    path::{Path, PathBuf},
};

/// Where a CPU's frequency is shown.
const FREQUENCY: &str = "/sys/devices/system/cpu";

/// Processes that left their tasks, as daemons do: their parents ended, and they are children of the launcher now. They are known by
/// what they were started with.
#[derive(Clone, Debug, Default)]
pub struct Strays {
    /// The launcher.
    pub launcher: Option<u32>,
    /// Ranks of tasks, with variables (`NAME=value`) that all their processes have.
    pub variables: Vec<(u32, Vec<Vec<u8>>)>,
}

impl Strays {
    /// Those that there are, by rank. `firsts`: processes of tasks themselves.
    fn find(&self, table: &ProcessTable, proc_root: &Path, firsts: &HashSet<u32>) -> BTreeMap<u32, Vec<Process>> {
        let mut found: BTreeMap<u32, Vec<Process>> = BTreeMap::new();
        let Some(launcher) = self.launcher else { return found };
        let is_stray = |p: &Process| p.ppid == launcher && !p.is_dead() && !firsts.contains(&p.pid);
        for process in table.descendants(launcher).into_iter().filter(is_stray) {
            let environment = fs::read(proc_root.join(process.pid.to_string()).join("environ")).unwrap_or_default();
            let there: HashSet<&[u8]> = environment.split(|byte| *byte == 0).collect();
            let has_all = |variables: &[Vec<u8>]| variables.iter().all(|variable| there.contains(&variable[..]));
            if let Some((rank, _)) = self.variables.iter().find(|(_, variables)| has_all(variables)) {
                found.entry(*rank).or_default().push(process);
            }
        }
        found
    }
}

/// Looks at tasks: rank and first process of each. One that ended meanwhile has no processes. `gpus`: what processes use of GPUs.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn sample(proc_root: &Path, tasks: &[(u32, u32)], strays: &Strays, gpus: &GpuUses) -> io::Result<Vec<TaskSample>> {
    let table = ProcessTable::scan(proc_root)?;
    let firsts: HashSet<u32> = tasks.iter().map(|(_, first)| *first).collect();
    let strays = strays.find(&table, proc_root, &firsts);
    let frequencies = Frequencies::read(proc_root);
    let of_task = |(rank, first): &(u32, u32)| {
        let mut sample = TaskSample { rank: *rank, ..TaskSample::default() };
        let own = table.get(*first).into_iter().copied();
        let (mut peak, mut vm_peak) = (0, 0);
        let away = strays.get(rank).into_iter().flatten();
        let away = away.flat_map(|stray| std::iter::once(*stray).chain(table.descendants(stray.pid)));
        for process in own.chain(table.descendants(*first)).chain(away).filter(|process| !process.is_dead()) {
            let Some(one) = Usage::read(&proc_root.join(process.pid.to_string())) else { continue };
            sample.pids.push(process.pid);
            sample.cpu_us += one.cpu_us;
            sample.rss += one.rss;
            sample.vsize += one.vsize;
            sample.pages += one.pages;
            sample.read += one.read;
            sample.written += one.written;
            peak = peak.max(one.peak);
            vm_peak = vm_peak.max(one.vm_peak);
            if let Some(gpu) = gpus.get(&process.pid) {
                sample.gpu_memory = sample.gpu_memory.saturating_add(gpu.memory);
                sample.gpu_percent = sample.gpu_percent.saturating_add(gpu.percent);
            }
            if process.pid == *first {
                sample.frequency_khz = frequencies.of(one.cpu);
            }
        }
        (sample.rss_now, sample.vsize_now) = (sample.rss, sample.vsize);
        sample.rss = sample.rss.max(peak);
        sample.vsize = sample.vsize.max(vm_peak);
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

/// First processes of tasks among the children of a launcher: for each of these lists of variables (`NAME=value`), the child that
/// was started with all of them.
pub fn children_of(proc_root: &Path, parent: u32, wanted: &[Vec<Vec<u8>>]) -> Vec<Option<u32>> {
    let children = ProcessTable::scan(proc_root).map(|table| table.descendants(parent)).unwrap_or_default();
    let mut found = vec![None; wanted.len()];
    for child in children.iter().filter(|process| process.ppid == parent && !process.is_dead()) {
        let environment = fs::read(proc_root.join(child.pid.to_string()).join("environ")).unwrap_or_default();
        let there: HashSet<&[u8]> = environment.split(|byte| *byte == 0).collect();
        let is_it = |variables: &[Vec<u8>]| variables.iter().all(|variable| there.contains(&variable[..]));
        for (variables, pid) in wanted.iter().zip(&mut found) {
            if pid.is_none() && is_it(variables) {
                *pid = Some(child.pid);
                break;
            }
        }
    }
    found
}

/// Bytes that this process, and all children that it has waited for, have read and written: its own `io` of proc(5). The file
/// of a process that cannot be dumped is root's, so it is opened by a process that may; its own process may always read it.
#[derive(Debug)]
pub struct OwnIo(File);

/// What [`OwnIo`] shows at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoSeen {
    read: u64,
    written: u64,
    /// Bytes of the look itself, which the next one shows as read.
    look: u64,
}

impl OwnIo {
    /// Of an open `/proc/PID/io` of this process.
    pub fn new(file: OwnedFd) -> Self {
        Self(file.into())
    }

    /// What there is so far; `None`: the file is not readable, or not that of a process.
    pub fn look(&self) -> Option<IoSeen> {
        let mut text = [0; 512];
        let length = self.0.read_at(&mut text, 0).ok()?;
        IoSeen::of_text(std::str::from_utf8(text.get(..length)?).ok()?)
    }
}

impl IoSeen {
    fn of_text(text: &str) -> Option<Self> {
        let number = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
        Some(Self { read: number("rchar:")?, written: number("wchar:")?, look: text.len() as u64 })
    }

    /// Bytes read and written since an earlier look, without that look itself.
    pub const fn since(&self, earlier: &Self) -> (u64, u64) {
        let read = self.read.saturating_sub(earlier.read).saturating_sub(earlier.look);
        (read, self.written.saturating_sub(earlier.written))
    }
}

/// What one process uses.
#[derive(Debug, Default, PartialEq, Eq)]
struct Usage {
    cpu_us: u64,
    rss: u64,
    peak: u64,
    vm_peak: u64,
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
        let status = text("status").unwrap_or_default();
        let peak = |key: &str| keyed(&status, key).saturating_mul(1024);
        (usage.peak, usage.vm_peak) = (peak("VmHWM:"), peak("VmPeak:"));
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
    use crate::gpu::GpuUse;
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

    #[test]
    fn what_children_read_is_told_without_the_look_at_it() {
        let text = |read: u64| format!("rchar: {read}\nwchar: 50\nsyscr: 1\n");
        let first = IoSeen::of_text(&text(1000)).unwrap();
        let next = IoSeen::of_text(&text(1000 + first.look + 77)).unwrap();
        assert_eq!((next.since(&first), first.look), ((77, 0), 31));
        assert_eq!(IoSeen::of_text("syscr: 1\n"), None);
        let scratch = crate::scratch::Scratch::new("own-io");
        let path = scratch.path().join("io");
        fs::write(&path, text(1000)).unwrap();
        assert_eq!(OwnIo::new(File::open(&path).unwrap().into()).look(), Some(first));
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
        let variable = |text: &str| text.as_bytes().to_vec();
        let own = vec![variable("GARRICK_SAMPLED=here"), variable("GARRICK_NUMBER=3")];
        let other = vec![variable("GARRICK_SAMPLED=here"), variable("GARRICK_NUMBER=4")];
        let wanted = [other, own.clone(), own];
        assert_eq!(children_of(proc_root, std::process::id(), &wanted), [None, Some(shell.id()), None]);
        let gpus =
            GpuUses::from([(shell.id(), GpuUse { memory: 9, percent: 50 }), (1, GpuUse { memory: 7, percent: 1 })]);
        let tasks = [(3, shell.id()), (4, u32::MAX)];
        let samples = sample(proc_root, &tasks, &Strays::default(), &gpus).unwrap();
        // As if it were a daemon that some task had left behind.
        let variables = vec![(4, vec![variable("GARRICK_SAMPLED=here"), variable("GARRICK_NUMBER=3")])];
        let strays = Strays { launcher: Some(std::process::id()), variables };
        let away = sample(proc_root, &tasks[1..], &strays, &gpus).unwrap();
        let kept = sample(proc_root, &tasks, &strays, &gpus).unwrap();
        shell.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        shell.wait().unwrap();
        let task = &samples[0];
        assert_eq!((task.rank, task.pids[0], task.pids.len()), (3, shell.id(), 2));
        assert!(task.rss > 32 << 20 && task.vsize > 32 << 20 && task.cpu_us > 0, "{task:?}");
        assert!(task.rss_now > 32 << 20 && task.rss_now <= task.rss && task.vsize_now <= task.vsize, "{task:?}");
        // The child's own, and what its ended children did was waited for.
        assert!(task.read > 0, "{task:?}");
        assert_eq!((task.gpu_memory, task.gpu_percent), (9, 50));
        assert_eq!(samples[1], TaskSample { rank: 4, ..TaskSample::default() });
        assert_eq!((away[0].rank, &away[0].pids), (4, &task.pids));
        assert_eq!(kept[1].pids, [0; 0], "it is a task's own");
    }
}
