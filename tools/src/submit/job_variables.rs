//! `SLURM_*` variables that the command of `salloc` gets about its allocation (salloc(1), "output environment
//! variables"), and the ones by which `srun` finds the step manager without asking the controller.

use crate::options::export;
use garrick_model::{
    env_vars::{
        self,
        outputs::{self, OfJob},
    },
    gres,
    messages::command::StepManagerPlace,
    view::JobView,
};
use std::{borrow::Cow, ffi::OsString, os::unix::ffi::OsStrExt as _, path::Path, sync::Arc};

/// What is not in the job's view.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// `ClusterName`
    pub cluster: &'a str,
    /// Configuration file.
    pub conf: &'a Path,
    /// Where `salloc` runs.
    pub work_dir: &'a Path,
    /// Host on which it runs.
    pub host: &'a str,
    /// Where the step manager is.
    pub manager: Option<&'a StepManagerPlace>,
    /// Its door is on this host.
    pub manager_is_here: bool,
}

/// The variables, in alphabetical order.
pub fn variables(view: &JobView, around: &Surroundings<'_>) -> Vec<(&'static str, String)> {
    let nodes = view.allocation.as_ref().map_or(&[][..], |allocation| &allocation.nodes);
    let partition = view.allocation.as_ref().map(|allocation| &allocation.partition);
    let mut set = outputs::of_job(&OfJob {
        cluster: around.cluster,
        job: view.id,
        sluid: view.sluid,
        uid: view.uid,
        gid: view.gid,
        user: &view.user,
        spec: &view.spec,
        nodes,
        partition: partition.or(view.partitions.first()).map_or("", String::as_str),
        start_time: view.start_time,
        end_time: view.end_time,
        sharing: view.sharing,
        tasks: view.tasks,
        cpus_per_task: view.cpus_per_task,
    });
    set.push((env_vars::SLURM_CONF, around.conf.display().to_string()));
    set.push((env_vars::SLURM_SUBMIT_DIR, around.work_dir.display().to_string()));
    set.push((env_vars::SLURM_SUBMIT_HOST, around.host.to_owned()));
    let mut also = |name: &'static str, value: Option<String>| set.extend(value.map(|value| (name, value)));
    // Of the first node, where a batch script would run.
    let first = nodes.first().map_or(&[][..], |node| &node.share.gres);
    let gpus: Vec<String> = gres::devices_used(first, gres::GPU).iter().map(|gpu| gpu.to_string()).collect();
    let shards: u64 = first.iter().filter(|share| share.name == gres::SHARD).map(|share| share.count).sum();
    also("SLURM_JOB_GPUS", (!gpus.is_empty()).then(|| gpus.join(",")));
    also("SLURM_SHARDS_ON_NODE", (shards > 0).then(|| shards.to_string()));
    if let Some(place) = around.manager {
        also(env_vars::SLURM_STEPMGR, Some(place.node.clone()));
        also(env_vars::GARRICK_STEPMGR_ADDRESS, Some(place.address.clone()));
        also(env_vars::GARRICK_STEPD_DOOR, around.manager_is_here.then(|| place.door.clone()));
    }
    set.sort_unstable();
    set
}

/// Variables about the components of a heterogeneous job, in the order of their offsets.
pub fn of_components(components: &[Arc<JobView>], around: &Surroundings<'_>) -> Vec<(Cow<'static, str>, String)> {
    let mut set = vec![(Cow::Borrowed("SLURM_HET_SIZE"), components.len().to_string())];
    for (offset, view) in components.iter().enumerate() {
        let own = variables(view, around).into_iter().filter(|(name, _)| env_vars::PER_HET_GROUP.contains(name));
        set.extend(own.map(|(name, value)| (Cow::Owned(format!("{name}_HET_GROUP_{offset}")), value)));
    }
    set
}

/// Names in this process's environment that belong to a surrounding job, which the command must not inherit.
pub fn to_remove() -> Vec<OsString> {
    of_surroundings(std::env::vars_os())
}

fn of_surroundings(variables: impl Iterator<Item = (OsString, OsString)>) -> Vec<OsString> {
    variables
        .filter(|(name, value)| export::of_the_surrounding_job(name.as_bytes(), value.as_bytes()))
        .map(|(name, _)| name)
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::options::{
        job_spec::{self, Submitter, Work},
        sources::{command_line, lay_over},
        table::Command,
    };
    use garrick_model::{
        ids::JobId,
        spec::{JobKind, JobSpec},
        state::JobState,
        time::Timestamp,
    };
    use garrick_render::testing::job_view;
    use garrick_run::stepmgr::{RunFacts, env::batch_environment};

    fn value(set: &[(&'static str, String)], name: &str) -> Option<String> {
        set.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone())
    }

    fn around(manager: Option<&StepManagerPlace>) -> Surroundings<'_> {
        Surroundings {
            cluster: "peer",
            conf: Path::new("/etc/slurm.conf"),
            work_dir: Path::new("/home/alice"),
            host: "login",
            manager,
            manager_is_here: false,
        }
    }

    /// What a batch script is told that the command of `salloc` is not, and the other way round.
    const ONLY_HERE: [&str; 3] = ["GARRICK_STEPD_DOOR", "GARRICK_STEPMGR_ADDRESS", "SLURM_SHARDS_ON_NODE"];
    const ONLY_THERE: [&str; 5] = [
        "SLURM_JOB_END_TIME",
        "SLURM_OOM_KILL_STEP",
        "SLURM_PRIO_PROCESS",
        "SLURM_TOPOLOGY_ADDR_PATTERN",
        "SLURM_STEPMGR",
    ];

    /// Whatever is asked for, a batch script is told the same of it.
    #[test]
    fn a_batch_script_is_told_the_same() {
        let requests = [
            "",
            "-n4 -m cyclic",
            "-n4 -m plane=1",
            "-n4 -m *:fcyclic",
            "-n8 -O -N1",
            "--ntasks-per-node=2",
            "--ntasks-per-node=2 -N1-2",
            "-n2 -c2 --mem-per-cpu=10",
            "--mem=0",
            "-n2 --ntasks-per-core=1 --ntasks-per-socket=2 --threads-per-core=1",
            "-n2 --gpus=2 --gpu-bind=single:1",
            "-n4 --ntasks-per-gpu=2",
            "-n2 --gpus-per-task=a100:1 --tres-per-task=cpu=2,gres/nic=1",
            "-L matlab:2 --reservation=class -A physics -q high -d afterok:7:8",
            "--exclusive",
            "--segment=2",
        ];
        for request in requests {
            let mut view = job_view(531, JobState::Running);
            view.spec = Arc::new(asked(request));
            view.sharing = view.spec.sharing;
            let here: Vec<String> = variables(&view, &around(None))
                .into_iter()
                .filter(|(name, _)| !ONLY_HERE.contains(name) && !ONLY_THERE.contains(name))
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            let there: Vec<String> = batch_environment(&run_of(&view))
                .into_iter()
                .map(|entry| String::from_utf8(entry.into_vec()).unwrap())
                .filter(|line| {
                    line.split_once('=')
                        .is_some_and(|(name, _)| name.starts_with("SLURM_") && !ONLY_THERE.contains(&name))
                })
                .collect();
            assert_eq!(here, there, "{request}");
        }
    }

    fn asked(line: &str) -> JobSpec {
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let parsed = command_line(Command::Salloc, &args).unwrap();
        let typed = lay_over(Command::Salloc, &[], &|_| None, &parsed.options, Timestamp::from_secs(0)).unwrap();
        let submitter = Submitter { work_dir: "/home/alice".into(), ..Submitter::default() };
        let work = Work {
            kind: JobKind::Allocation,
            default_name: "demo".to_owned(),
            argv: Vec::new(),
            script: None,
            command: None,
        };
        JobSpec { submit_host: "login".to_owned(), ..job_spec::build(&typed, submitter, work).unwrap().spec }
    }

    fn run_of(view: &JobView) -> RunFacts {
        let start = view.start_time.unwrap();
        RunFacts {
            cluster: "peer".to_owned(),
            job: view.id,
            sluid: view.sluid,
            uid: view.uid,
            gid: view.gid,
            user: view.user.clone(),
            group: None,
            home: None,
            shell: None,
            spec: view.spec.clone(),
            nodes: view.allocation.as_ref().unwrap().nodes.clone(),
            addresses: Vec::new(),
            partition: "debug".to_owned(),
            time_limit: view.time_limit,
            start_time: start,
            restarts: 0,
            tasks: view.tasks,
            cpus_per_task: view.cpus_per_task,
            array: None,
            switches: Vec::new(),
            het: Vec::new(),
            conf_path: Some("/etc/slurm.conf".to_owned()),
            zone: jiff::tz::TimeZone::UTC,
        }
    }

    #[test]
    fn the_command_is_not_bound_as_the_task_that_asks_for_its_job() {
        let removed = |set: &[(&str, &str)]| of_surroundings(set.iter().map(|(n, v)| (n.into(), v.into())));
        let task = [("A", "b"), ("SLURM_CPU_BIND", "quiet,mask_cpu:0x1"), ("SLURM_CPU_BIND_LIST", "0x1")];
        assert_eq!(removed(&task), ["SLURM_CPU_BIND", "SLURM_CPU_BIND_LIST"]);
        assert!(removed(&[("SLURM_CPU_BIND", "verbose,cores")]).is_empty(), "a wish of the user");
    }

    #[test]
    fn what_steps_go_by_is_told() {
        let mut view = job_view(531, JobState::Running);
        view.spec =
            Arc::new(asked("-m plane=1 -O --ntasks-per-node=2 --gpus=2 --gpu-bind=map_gpu:1,0 -c2 -d afterok:7"));
        let set = variables(&view, &around(None));
        for (name, want) in [
            ("SLURM_DISTRIBUTION", "plane"),
            ("SLURM_DIST_PLANESIZE", "1"),
            ("SLURM_OVERCOMMIT", "1"),
            ("SLURM_NTASKS", "3"),
            ("SLURM_GPU_BIND", "map_gpu:1,0"),
            ("SLURM_TRES_PER_TASK", "cpu=2"),
            ("SLURM_JOB_DEPENDENCY", "afterok:7"),
        ] {
            assert_eq!(value(&set, name).as_deref(), Some(want), "{name}");
        }
    }

    #[test]
    fn the_allocation_is_described() {
        let view = job_view(531, JobState::Running);
        let place = StepManagerPlace {
            job: JobId(531),
            node: "n1".to_owned(),
            door: "/run/j531.sock".to_owned(),
            address: "n1:6818".to_owned(),
            nodes: Vec::new(),
        };
        let around = around(Some(&place));
        let set = variables(&view, &around);
        for (name, want) in [
            ("SLURM_JOB_ID", "531"),
            ("SLURM_JOB_NODELIST", "n[1-2]"),
            ("SLURM_NNODES", "2"),
            ("SLURM_JOB_CPUS_PER_NODE", "4,2"),
            ("SLURM_TASKS_PER_NODE", "2,1"),
            ("SLURM_JOB_PARTITION", "debug"),
            ("SLURM_JOB_END_TIME", "1601"),
            ("SLURM_STEPMGR", "n1"),
            ("GARRICK_STEPMGR_ADDRESS", "n1:6818"),
        ] {
            assert_eq!(value(&set, name).as_deref(), Some(want), "{name}");
        }
        assert_eq!(value(&set, "SLURM_NTASKS"), None);
        assert_eq!(value(&set, "GARRICK_STEPD_DOOR"), None);
        let here = variables(&view, &Surroundings { manager_is_here: true, ..around });
        assert_eq!(value(&here, "GARRICK_STEPD_DOOR").as_deref(), Some("/run/j531.sock"));
    }
}
