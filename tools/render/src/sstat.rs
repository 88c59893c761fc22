//! What running steps use, as `sstat` shows it: its fields, and columns of them (sstat(1)).

use crate::{
    amounts,
    field_table::{self, Kind},
    sacct::units::{Unit, Units, elapsed},
};
use garrick_model::{
    ids::{Sluid, StepNum},
    usage::TaskSample,
    view::StepView,
};

/// A running step, and its tasks on the nodes that answered.
#[derive(Clone, Debug)]
pub struct StepUse {
    /// The step.
    pub view: StepView,
    /// The job's run, if that was asked for.
    pub sluid: Option<Sluid>,
    /// Nodes and their tasks.
    pub tasks: Vec<(String, TaskSample)>,
}

/// What stands in a field of a step.
pub type Shown = fn(&StepUse, Units) -> String;
/// A field.
pub type Field = field_table::Field<Shown>;
/// A column.
pub type Column = field_table::Column<Shown>;

/// What is measured of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Metric {
    Cpu,
    Rss,
    VmSize,
    Pages,
    Read,
    Written,
    GpuMemory,
    GpuUse,
}

impl Metric {
    const fn of(self, task: &TaskSample) -> u64 {
        match self {
            Self::Cpu => task.cpu_us / 1_000_000,
            Self::Rss => task.rss,
            Self::VmSize => task.vsize,
            Self::Pages => task.pages,
            Self::Read => task.read,
            Self::Written => task.written,
            Self::GpuMemory => task.gpu_memory,
            Self::GpuUse => task.gpu_percent,
        }
    }

    fn text(self, value: u64, units: Units) -> String {
        match self {
            Self::Cpu => elapsed(value),
            Self::Pages | Self::GpuUse => value.to_string(),
            _ => units.amount(value, Unit::BYTE),
        }
    }

    /// Its name among TRES.
    const fn tres(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Rss => "mem",
            Self::VmSize => "vmem",
            Self::Pages => "pages",
            Self::Read | Self::Written => "fs/disk",
            Self::GpuMemory => "gres/gpumem",
            Self::GpuUse => "gres/gpuutil",
        }
    }
}

/// What is read into a task, in the order of TRES.
const IN: [Metric; 7] =
    [Metric::Cpu, Metric::Read, Metric::GpuMemory, Metric::GpuUse, Metric::Rss, Metric::Pages, Metric::VmSize];
/// What a task writes.
const OUT: [Metric; 1] = [Metric::Written];

/// What several tasks come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sum {
    Average,
    Greatest,
    Least,
    Total,
}

/// Which of a sum is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Value,
    Node,
    Task,
}

impl StepUse {
    fn extreme(&self, metric: Metric, sum: Sum) -> Option<&(String, TaskSample)> {
        // Of equal ones the first.
        match sum {
            Sum::Least => self.tasks.iter().min_by_key(|(_, task)| metric.of(task)),
            _ => self.tasks.iter().rev().max_by_key(|(_, task)| metric.of(task)),
        }
    }

    fn sum(&self, metric: Metric, sum: Sum) -> u64 {
        let total: u64 = self.tasks.iter().map(|(_, task)| metric.of(task)).sum();
        match sum {
            Sum::Total => total,
            Sum::Average => total.checked_div(self.tasks.len() as u64).unwrap_or(0),
            Sum::Greatest | Sum::Least => self.extreme(metric, sum).map_or(0, |(_, task)| metric.of(task)),
        }
    }

    fn one(&self, metric: Metric, sum: Sum, part: Part, units: Units) -> String {
        let extreme = self.extreme(metric, sum);
        match part {
            Part::Value => metric.text(self.sum(metric, sum), units),
            Part::Node => extreme.map(|(node, _)| node.clone()).unwrap_or_default(),
            Part::Task => extreme.map_or(0, |(_, task)| task.rank).to_string(),
        }
    }

    /// `cpu=00:00:01,energy=0,mem=1368K`. `sstat` tells no energy of running steps: 0; it is known at their ends. No task has it.
    fn tres(&self, metrics: &[Metric], sum: Sum, part: Part, units: Units) -> String {
        // GPUs are there where a task uses one.
        let is_there = |metric: &&Metric| {
            let of_gpu = matches!(metric, Metric::GpuMemory | Metric::GpuUse);
            !of_gpu || self.tasks.iter().any(|(_, task)| metric.of(task) > 0)
        };
        let mut words: Vec<String> = metrics
            .iter()
            .filter(is_there)
            .map(|metric| {
                let value = match part {
                    // Slurm writes the number of a task as it does the value.
                    Part::Task => {
                        metric.text(self.extreme(*metric, sum).map_or(0, |(_, task)| task.rank.into()), Units::Plain)
                    }
                    _ => self.one(*metric, sum, part, units),
                };
                format!("{}={value}", metric.tres())
            })
            .collect();
        let energy = match part {
            Part::Value => Some("energy=0".to_owned()),
            Part::Node => self.tasks.first().map(|(node, _)| format!("energy={node}")),
            Part::Task => None,
        };
        if let Some(energy) = energy {
            words.insert(usize::from(metrics.first() == Some(&Metric::Cpu)), energy);
        }
        words.join(",")
    }

    fn is_batch(&self) -> bool {
        self.view.id.step == StepNum::Batch
    }

    /// Its CPUs, nodes and other resources. Those of the batch script are the job's.
    fn allocated(&self) -> String {
        if self.is_batch() { String::new() } else { amounts::step_tres(&self.view) }
    }

    /// No step asks for a frequency.
    fn requested_frequency(&self) -> String {
        if self.is_batch() { "0" } else { "Unknown" }.to_owned()
    }

    fn frequency(&self, units: Units) -> String {
        let total: u64 = self.tasks.iter().map(|(_, task)| task.frequency_khz).sum();
        let khz = total.checked_div(self.tasks.len() as u64).unwrap_or(0);
        units.khz(khz)
    }

    fn pids(&self) -> String {
        let pids = self.tasks.iter().flat_map(|(_, task)| &task.pids);
        pids.map(u32::to_string).collect::<Vec<_>>().join(",")
    }
}

/// A step's tasks on each of its nodes apart.
pub fn by_node(step: &StepUse) -> Vec<StepUse> {
    let mut parts: Vec<StepUse> = Vec::new();
    for (node, task) in &step.tasks {
        match parts.last_mut().filter(|part| part.view.nodelist == *node) {
            Some(part) => part.tasks.push((node.clone(), task.clone())),
            None => {
                let view = StepView { nodelist: node.clone(), ..step.view.clone() };
                parts.push(StepUse { view, sluid: step.sluid, tasks: vec![(node.clone(), task.clone())] });
            }
        }
    }
    parts
}

macro_rules! measured {
    ($name:literal, $width:literal, $metric:ident, $sum:ident, $part:ident) => {
        field($name, $width, |s, units| s.one(Metric::$metric, Sum::$sum, Part::$part, units))
    };
}

macro_rules! tres {
    ($name:literal, $width:literal, $metrics:ident, $sum:ident, $part:ident) => {
        field($name, $width, |s, units| s.tres(&$metrics, Sum::$sum, Part::$part, units))
    };
}

const fn field(name: &'static str, width: usize, value: Shown) -> Field {
    Field { name, width, left: false, kind: Kind::Text, value }
}

/// Fields in the order of `--helpformat`.
#[rustfmt::skip]
pub static FIELDS: &[Field] = &[
    field("AllocTRES", 10, |s, _| s.allocated()),
    measured!("AveCPU", 10, Cpu, Average, Value),
    field("AveCPUFreq", 10, StepUse::frequency),
    measured!("AveDiskRead", 12, Read, Average, Value),
    measured!("AveDiskWrite", 12, Written, Average, Value),
    measured!("AvePages", 10, Pages, Average, Value),
    measured!("AveRSS", 10, Rss, Average, Value),
    measured!("AveVMSize", 10, VmSize, Average, Value),
    field("ConsumedEnergy", 14, |_, _| "0".to_owned()),
    field("ConsumedEnergyRaw", 17, |_, _| "0".to_owned()),
    Field { left: true, ..field("JobID", 12, |s, _| s.view.id.to_string()) },
    measured!("MaxDiskRead", 12, Read, Greatest, Value),
    measured!("MaxDiskReadNode", 15, Read, Greatest, Node),
    measured!("MaxDiskReadTask", 15, Read, Greatest, Task),
    measured!("MaxDiskWrite", 12, Written, Greatest, Value),
    measured!("MaxDiskWriteNode", 16, Written, Greatest, Node),
    measured!("MaxDiskWriteTask", 16, Written, Greatest, Task),
    measured!("MaxPages", 8, Pages, Greatest, Value),
    measured!("MaxPagesNode", 12, Pages, Greatest, Node),
    measured!("MaxPagesTask", 14, Pages, Greatest, Task),
    measured!("MaxRSS", 10, Rss, Greatest, Value),
    measured!("MaxRSSNode", 10, Rss, Greatest, Node),
    measured!("MaxRSSTask", 10, Rss, Greatest, Task),
    measured!("MaxVMSize", 10, VmSize, Greatest, Value),
    measured!("MaxVMSizeNode", 14, VmSize, Greatest, Node),
    measured!("MaxVMSizeTask", 14, VmSize, Greatest, Task),
    measured!("MinCPU", 10, Cpu, Least, Value),
    measured!("MinCPUNode", 10, Cpu, Least, Node),
    measured!("MinCPUTask", 10, Cpu, Least, Task),
    field("Nodelist", 20, |s, _| s.view.nodelist.clone()),
    field("NTasks", 8, |s, _| s.view.tasks.to_string()),
    field("Pids", 20, |s, _| s.pids()),
    field("ReqCPUFreq", 13, |s, _| s.requested_frequency()),
    field("ReqCPUFreqMin", 13, |s, _| s.requested_frequency()),
    field("ReqCPUFreqMax", 13, |s, _| s.requested_frequency()),
    field("ReqCPUFreqGov", 13, |s, _| s.requested_frequency()),
    field("SLUID", 14, |s, _| s.sluid.map(|sluid| sluid.to_string()).unwrap_or_default()),
    tres!("TRESUsageInAve", 14, IN, Average, Value),
    tres!("TRESUsageInMax", 14, IN, Greatest, Value),
    tres!("TRESUsageInMaxNode", 18, IN, Greatest, Node),
    tres!("TRESUsageInMaxTask", 18, IN, Greatest, Task),
    tres!("TRESUsageInMin", 14, IN, Least, Value),
    tres!("TRESUsageInMinNode", 18, IN, Least, Node),
    tres!("TRESUsageInMinTask", 18, IN, Least, Task),
    tres!("TRESUsageInTot", 14, IN, Total, Value),
    tres!("TRESUsageOutAve", 15, OUT, Average, Value),
    tres!("TRESUsageOutMax", 15, OUT, Greatest, Value),
    tres!("TRESUsageOutMaxNode", 19, OUT, Greatest, Node),
    tres!("TRESUsageOutMaxTask", 19, OUT, Greatest, Task),
    tres!("TRESUsageOutMin", 15, OUT, Least, Value),
    tres!("TRESUsageOutMinNode", 19, OUT, Least, Node),
    tres!("TRESUsageOutMinTask", 19, OUT, Least, Task),
    tres!("TRESUsageOutTot", 15, OUT, Total, Value),
];

/// What is shown unasked.
pub const USUAL: &str = "JobID,AllocTRES,MaxVMSize,MaxVMSizeNode,MaxVMSizeTask,AveVMSize,MaxRSS,MaxRSSNode,MaxRSSTask,AveRSS,\
    MaxPages,MaxPagesNode,MaxPagesTask,AvePages,MinCPU,MinCPUNode,MinCPUTask,AveCPU,NTasks,AveCPUFreq,ReqCPUFreqMin,\
    ReqCPUFreqMax,ReqCPUFreqGov,ConsumedEnergy,MaxDiskRead,MaxDiskReadNode,MaxDiskReadTask,AveDiskRead,MaxDiskWrite,\
    MaxDiskWriteNode,MaxDiskWriteTask,AveDiskWrite,TRESUsageInAve,TRESUsageInMax,TRESUsageInMaxNode,TRESUsageInMaxTask,\
    TRESUsageInMin,TRESUsageInMinNode,TRESUsageInMinTask,TRESUsageInTot,TRESUsageOutAve,TRESUsageOutMax,TRESUsageOutMaxNode,\
    TRESUsageOutMaxTask,TRESUsageOutMin,TRESUsageOutMinNode,TRESUsageOutMinTask,TRESUsageOutTot";
/// What `--pidformat` shows.
pub const PIDS: &str = "JobID,Nodelist,Pids";

/// Reads a list of fields: see [`field_table::columns`].
pub fn columns(format: &str) -> Result<Vec<Column>, String> {
    field_table::columns(FIELDS, format)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{field_table::Setting, testing};

    fn step() -> StepUse {
        let task = |rank, cpu_us, rss| TaskSample {
            rank,
            pids: vec![100 + rank, 200 + rank],
            cpu_us,
            rss,
            vsize: 5_214_208,
            pages: 3,
            read: 4_000,
            written: 1 << 20,
            frequency_khz: 2_599_998,
            ..TaskSample::default()
        };
        let tasks = vec![
            ("n1".to_owned(), task(0, 61_000_000, 2048)),
            ("n1".to_owned(), task(1, 5_000_000, 1_400_832)),
            ("n2".to_owned(), task(2, 90_061_000_000, 1_400_832)),
        ];
        StepUse { view: StepView { tasks: 3, ..testing::step(StepNum::Number(0), "a", "n[1-2]") }, sluid: None, tasks }
    }

    fn shown(format: &str, setting: &Setting, units: Units) -> String {
        let mut out = Vec::new();
        setting.row(&mut out, &columns(format).unwrap(), |shown| shown(&step(), units)).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn values_are_of_all_tasks_with_the_node_and_task_of_the_extremes() {
        let text = |format| shown(format, &Setting::Parsable2("|".to_owned()), Units::Short);
        assert_eq!(text("maxrss,MaxRSSNode,maxrsstask,averss"), "1368K|n1|1|934570\n");
        assert_eq!(text("mincpu,mincpunode,mincputask,avecpu"), "00:00:05|n1|1|08:20:42\n");
        assert_eq!(text("avedisk,maxdiskwrite,avecpufreq,pids"), "4000|1M|2.60M|100,200,101,201,102,202\n");
        let tres = "cpu=1-01:01:01,energy=0,fs/disk=4000,mem=1368K,pages=3,vmem=5092K";
        assert_eq!(text("TRESUsageInMax"), format!("{tres}\n"));
        assert_eq!(text("TRESUsageInMaxTask"), "cpu=00:00:02,fs/disk=0,mem=1,pages=0,vmem=0\n");
        assert_eq!(text("TRESUsageOutTot,TRESUsageOutMaxNode"), "energy=0,fs/disk=3M|energy=n1,fs/disk=n1\n");
        assert_eq!(shown("maxrss", &Setting::Parsable("|".to_owned()), Units::Plain), "1400832|\n");
    }

    #[test]
    fn columns_have_widths_and_sides() {
        assert_eq!(shown("maxrss,maxrsstask%3,ntasks%-4", &Setting::Columns, Units::Short), "     1368K   1 3    \n");
        assert_eq!(shown("maxrss%4,averss%0", &Setting::Columns, Units::Short), "136+  \n");
        let mut out = Vec::new();
        Setting::Columns.heading(&mut out, &columns("jobid%3,maxrss").unwrap()).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "Job     MaxRSS \n--- ---------- \n");
        assert_eq!(columns("jobid,nosuch").unwrap_err(), "nosuch");
        assert_eq!(columns(USUAL).unwrap().len(), 48);
    }

    #[test]
    fn processes_are_shown_by_node() {
        let parts = by_node(&step());
        let nodes: Vec<(&str, String)> = parts.iter().map(|p| (p.view.nodelist.as_str(), p.pids())).collect();
        assert_eq!(nodes, [("n1", "100,200,101,201".to_owned()), ("n2", "102,202".to_owned())]);
    }
}
