//! What `scontrol update JobId=...` changes of a waiting job's request, beside what [`JobChange`](super::command::JobChange)
//! has of its own.

use crate::{
    gres::GresCount,
    node_shape::SpecCores,
    spec::{JobSpec, Sharing},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

/// Only what is `Some` changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestChange {
    /// Contiguous.
    pub contiguous: Option<bool>,
    /// CoreSpec, ThreadSpec.
    pub left_to_system: Option<SpecCores>,
    /// CPUsPerTask.
    pub cpus_per_task: Option<u32>,
    /// Deadline.
    pub deadline: Option<Timestamp>,
    /// DelayBoot.
    pub delay_boot_secs: Option<u64>,
    /// Gres, TresPerNode: on each node; empty for nothing, here and below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gres_per_node: Option<Vec<GresCount>>,
    /// TresPerJob: GPUs on all nodes together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus_in_all: Option<Vec<GresCount>>,
    /// OverSubscribe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oversubscribe: Option<bool>,
    /// MinCPUsNode.
    pub min_cpus_per_node: Option<u32>,
    /// MinTmpDiskNode, MiB.
    pub tmp_disk_mib: Option<u64>,
    /// QOS; empty for none.
    pub qos: Option<String>,
    /// ReqSockets.
    pub sockets_per_node: Option<u32>,
    /// ReqCores.
    pub cores_per_socket: Option<u32>,
    /// ReqThreads.
    pub threads_per_core: Option<u32>,
    /// TasksPerNode.
    pub tasks_per_node: Option<u32>,
    /// SpreadSegments.
    pub spread_segments: Option<bool>,
    /// ConsolidateSegments.
    pub consolidate_segments: Option<bool>,
    /// wait-for-switch, seconds.
    pub switches_wait_secs: Option<u64>,
    /// StdIn; empty for the default, here and below.
    pub stdin: Option<String>,
    /// StdOut.
    pub stdout: Option<String>,
    /// StdErr.
    pub stderr: Option<String>,
    /// WCKey.
    pub wckey: Option<String>,
    /// WorkDir.
    pub work_dir: Option<String>,
}

impl RequestChange {
    /// Nothing changes.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Does it change what only administrators may (`scontrol(1)`)?
    pub fn is_privileged(&self) -> bool {
        self.left_to_system.is_some()
            || self.contiguous == Some(true)
            || self.tasks_per_node.is_some()
            || self.deadline.is_some()
    }

    /// Is a count zero that cannot be?
    pub fn has_zero(&self) -> bool {
        let counts = [
            self.cpus_per_task,
            self.tasks_per_node,
            self.sockets_per_node,
            self.cores_per_socket,
            self.threads_per_core,
        ];
        counts.contains(&Some(0))
    }

    /// Changes what was asked for.
    pub fn apply(&self, spec: &mut JobSpec) {
        fn set<T: Clone>(place: &mut Option<T>, change: Option<&T>) {
            if let Some(value) = change {
                *place = Some(value.clone());
            }
        }
        fn text(place: &mut Option<String>, change: Option<&String>) {
            if let Some(value) = change {
                *place = Some(value.clone()).filter(|value| !value.is_empty());
            }
        }
        if let Some(asked) = &self.gres_per_node {
            spec.gres.per_node.clone_from(asked);
        }
        if let Some(asked) = &self.gpus_in_all {
            spec.gres.total.clone_from(asked);
        }
        match (self.oversubscribe, spec.sharing) {
            (Some(true), _) => spec.sharing = Sharing::Oversubscribe,
            (Some(false), Sharing::Oversubscribe) => spec.sharing = Sharing::Default,
            (Some(false) | None, _) => {}
        }
        spec.contiguous = self.contiguous.unwrap_or(spec.contiguous);
        spec.tmp_disk_mib = self.tmp_disk_mib.unwrap_or(spec.tmp_disk_mib);
        spec.topology.spread_segments = self.spread_segments.unwrap_or(spec.topology.spread_segments);
        spec.topology.consolidate_segments = self.consolidate_segments.unwrap_or(spec.topology.consolidate_segments);
        set(&mut spec.topology.switches_wait_secs, self.switches_wait_secs.as_ref());
        set(&mut spec.cpus_per_task, self.cpus_per_task.as_ref());
        set(&mut spec.deadline, self.deadline.as_ref());
        set(&mut spec.delay_boot_secs, self.delay_boot_secs.as_ref());
        set(&mut spec.min_cpus_per_node, self.min_cpus_per_node.as_ref());
        set(&mut spec.layout.sockets_per_node, self.sockets_per_node.as_ref());
        set(&mut spec.layout.cores_per_socket, self.cores_per_socket.as_ref());
        set(&mut spec.layout.threads_per_core, self.threads_per_core.as_ref());
        set(&mut spec.tasks_per_node, self.tasks_per_node.as_ref());
        text(&mut spec.qos, self.qos.as_ref());
        text(&mut spec.stdin, self.stdin.as_ref());
        text(&mut spec.stdout, self.stdout.as_ref());
        text(&mut spec.stderr, self.stderr.as_ref());
        text(&mut spec.wckey, self.wckey.as_ref());
        if let Some(work_dir) = &self.work_dir {
            spec.work_dir.clone_from(work_dir);
        }
        if let Some(left) = self.left_to_system {
            // The node is the job's alone, as at submission.
            spec.sharing = Sharing::Exclusive;
            spec.layout.left_to_system = Some(left);
        }
    }
}
