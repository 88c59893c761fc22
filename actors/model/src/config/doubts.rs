//! What can be read of a partition but cannot be meant.

use super::{
    Config, PartitionConfig,
    syntax::{report::SettingError, values::MemoryPer},
};

impl Config {
    /// What is doubtful about a partition, once all lines are read.
    pub(super) fn doubts_about(&self, partition: &PartitionConfig) -> Vec<SettingError> {
        let mut doubts = Vec::new();
        let mut doubt = |cause: String, instead: &str| doubts.push(SettingError::new(cause).suggest(instead));
        let nodes = partition.nodes.len();
        if nodes > 0 && u64::from(partition.min_nodes) > nodes && self.max_node_count.is_none() {
            let cause =
                format!("MinNodes={} is more than the partition's {nodes}: no job runs there", partition.min_nodes);
            doubt(cause, "lower MinNodes");
        }
        let (default, most) = (partition.def_memory.or(self.def_memory), partition.max_memory.or(self.max_memory));
        match (default, most) {
            (Some(MemoryPer::Node(default)), Some(MemoryPer::Node(most))) if most.0 > 0 && default > most => {
                let cause = format!("DefMemPerNode={} is above MaxMemPerNode={}", default.0, most.0);
                doubt(cause, "lower the default: jobs that do not say --mem are refused");
            }
            (Some(MemoryPer::Cpu(default)), Some(MemoryPer::Cpu(most))) if most.0 > 0 && default > most => {
                let cause = format!("DefMemPerCPU={} is above MaxMemPerCPU={}", default.0, most.0);
                doubt(cause, "lower the default: jobs that do not say --mem-per-cpu get more CPUs");
            }
            _ => {}
        }
        let largest = partition.nodes.iter().filter_map(|name| Some(self.node(&name)?.settings.shape.memory)).max();
        if let (Some(MemoryPer::Node(default)), Some(largest)) = (default, largest)
            && largest.0 > 1
            && default > largest
        {
            let cause = format!("DefMemPerNode={} is more than any of its nodes has ({})", default.0, largest.0);
            doubt(cause, "lower it: jobs that do not say --mem are refused");
        }
        if self.alternates_in_a_circle(partition) {
            let cause =
                format!("Alternate={}: it comes back to this partition", partition.alternate.as_deref().unwrap_or(""));
            doubt(cause, "where all of them are closed, jobs are refused");
        }
        if let Some(select) = partition.select.as_ref().filter(|select| select.unit != self.select.unit) {
            let cause = format!(
                "SelectTypeParameters={} of a partition is not supported yet: the cluster's counts",
                select.text
            );
            doubt(cause, "leave it out");
        }
        doubts
    }

    fn alternates_in_a_circle(&self, partition: &PartitionConfig) -> bool {
        let mut next = partition.alternate.as_deref();
        for _ in 0..self.partitions.len() {
            let Some(name) = next else { return false };
            if name == partition.name {
                return true;
            }
            next = self.partition(name).and_then(|other| other.alternate.as_deref());
        }
        false
    }
}
