//! Generic resources over real processes: devices are made with `mknod` (or are plain files without root), given out one
//! by one, told of in variables, and kept from who was not given them.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{Cluster, is_root};
use std::{collections::BTreeSet, path::PathBuf};

/// Device number that Linux keeps for local use, so that nothing answers: who may open it hears of no such device, who
/// may not of a lack of permission (`Documentation/admin-guide/devices.txt`).
const LOCAL_USE: u64 = 250;
const GPUS: usize = 4;

/// A cluster of one node with four GPUs.
fn cluster(name: &str, cgroup: &str) -> Cluster {
    cluster_with(name, cgroup, "Gres=gpu:h100:4", &[""; GPUS])
}

/// The same with other GRES, and something more about each GPU in `gres.conf`.
fn cluster_with(name: &str, cgroup: &str, gres: &str, about: &[&str; GPUS]) -> Cluster {
    cluster_where(name, cgroup, gres, about, |line| line.to_owned())
}

/// The same with other lines in `slurm.conf`.
fn cluster_where(
    name: &str,
    cgroup: &str,
    gres: &str,
    about: &[&str; GPUS],
    line_of: impl Fn(&str) -> String,
) -> Cluster {
    let c = Cluster::up(name, &["--nodes", "1", "--cpus", "8", "--memory", "4000"]);
    c.sh("garrick down").ok();
    for n in 0..GPUS {
        device(&c, n);
    }
    let etc = c.home.join("etc");
    let conf = etc.join("slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    // Without its first line the file is the test's own.
    let own: Vec<String> = text
        .lines()
        .skip(1)
        .map(|line| if line.starts_with("NodeName=") { format!("{line} {gres}") } else { line_of(line) })
        .collect();
    std::fs::write(&conf, format!("{}\nGresTypes=gpu,shard\n", own.join("\n"))).unwrap();
    let line = |(n, about): (usize, &&str)| {
        format!("Name=gpu Type=h100 File={}/gpu{n} Flags=nvidia_gpu_env {about}\n", c.work.display())
    };
    let lines: String = about.iter().enumerate().map(line).collect();
    std::fs::write(etc.join("gres.conf"), format!("AutoDetect=off\n{lines}")).unwrap();
    std::fs::write(etc.join("cgroup.conf"), cgroup).unwrap();
    c.run("garrick", &["check".as_ref(), conf.as_os_str()]).ok();
    c.sh("garrick up").ok();
    c
}

fn device(c: &Cluster, n: usize) {
    use nix::sys::stat::{Mode, SFlag, makedev, mknod};
    let path: PathBuf = c.work.join(format!("gpu{n}"));
    if is_root() {
        let mode = Mode::from_bits_truncate(0o666);
        mknod(&path, SFlag::S_IFCHR, mode, makedev(LOCAL_USE, n as u64)).unwrap();
    } else {
        std::fs::write(&path, "").unwrap();
    }
}

fn node_field(c: &Cluster, field: &str) -> Option<String> {
    crate::support::field_of(&c.sh("scontrol -d -o show node n1").ok().out, field)
}

/// What a script wrote, each word once; it must not have written any twice.
fn each_once(words: &str) -> BTreeSet<String> {
    let all: Vec<String> = words.split_whitespace().map(ToOwned::to_owned).collect();
    let set: BTreeSet<String> = all.iter().cloned().collect();
    assert_eq!(set.len(), all.len(), "given twice: {all:?}");
    set
}

#[test]
fn jobs_get_gpus_of_their_own_and_keep_them_over_a_restart_of_the_controller() {
    let c = cluster("gres-jobs", "");
    c.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH -n1 --mem=100 --gres=gpu:1 -o job%j.out\n\
         echo $SLURM_JOB_GPUS $CUDA_VISIBLE_DEVICES $SLURM_GPUS_ON_NODE ${ROCR_VISIBLE_DEVICES-unset}\n\
         read line < go$1\n",
    );
    for n in 0..GPUS {
        c.fifo(&format!("go{n}"));
    }
    let ids: Vec<String> = (0..GPUS).map(|n| c.sh(&format!("sbatch job.sh {n}")).ok().job()).collect();
    for id in &ids {
        c.await_state(id, "RUNNING");
    }
    let more = c.sh("sbatch job.sh 0").ok().job();
    c.await_that("a fifth job waits", || c.job_field(&more, "Reason").as_deref() == Some("Resources"));
    let given: String = ids.iter().map(|id| c.job_field(id, "GRES").unwrap() + " ").collect();
    let want = (0..GPUS).map(|n| format!("gpu:h100:1(IDX:{n})")).collect();
    assert_eq!(each_once(&given), want);
    assert_eq!(node_field(&c, "GresUsed").as_deref(), Some("gpu:h100:4(IDX:0-3)"));
    assert_eq!(c.sh(&format!("squeue -h -o %b -j {}", ids[0])).ok().out.trim(), "gres/gpu:1");
    assert!(c.job_field(&ids[0], "AllocTRES").unwrap().ends_with(",gres/gpu=1"));

    let controller = c.pid_of("controller", None);
    c.kill(controller);
    let command_line = format!("/proc/{controller}/cmdline");
    c.await_that("the controller is gone", || std::fs::read(&command_line).map_or(true, |line| line.is_empty()));
    c.sh("garrick up").ok();
    assert_eq!(node_field(&c, "GresUsed").as_deref(), Some("gpu:h100:4(IDX:0-3)"));
    assert_eq!(c.job_field(&more, "JobState").as_deref(), Some("PENDING"));

    // The one whose pipe is opened ends, and what it had goes to the one that waits.
    std::fs::write(c.work.join("go2"), "\n").unwrap();
    c.await_state(&ids[2], "COMPLETED");
    c.await_state(&more, "RUNNING");
    assert_eq!(c.job_field(&more, "GRES"), c.job_field(&ids[2], "GRES").or(Some("gpu:h100:1(IDX:2)".to_owned())));
    assert_eq!(c.read(&format!("job{}.out", ids[2])), "2 2 1 unset\n");
    for id in ids.iter().chain([&more]) {
        c.sh(&format!("scancel {id}"));
    }
    c.await_that("nothing is held", || node_field(&c, "GresUsed").as_deref() == Some("gpu:h100:0(IDX:N/A)"));
}

#[test]
fn jobs_share_a_gpu_by_its_shards_also_over_a_restart_of_the_controller() {
    let c = cluster_with("gres-shards", "", "Gres=gpu:h100:4,shard:16", &[""; GPUS]);
    c.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH -n1 --mem=100 -o job%j.out\n\
         echo ${CUDA_VISIBLE_DEVICES-unset} ${SLURM_SHARDS_ON_NODE-none} ${SLURM_GPUS_ON_NODE-none}\n\
         read line < $1\n",
    );
    let mut serial = 0;
    let mut start = |options: &str| {
        let fifo = format!("go{serial}");
        serial += 1;
        c.fifo(&fifo);
        (c.sh(&format!("sbatch {options} job.sh {fifo}")).ok().job(), fifo)
    };
    let running = |job: (String, String)| {
        c.await_state(&job.0, "RUNNING");
        job
    };
    let three = running(start("--gres=shard:3"));
    let one = running(start("--gres=shard:1"));
    let two = running(start("--gres=shard:2"));
    let whole = running(start("--gpus=1"));
    let used = || node_field(&c, "GresUsed").unwrap();
    assert_eq!(used(), "gpu:h100:1(IDX:2),shard:6(4/4,2/4,-/4,0/4)");
    assert_eq!(c.job_field(&three.0, "GRES").as_deref(), Some("shard:3(IDX:0)"));
    assert!(c.job_field(&three.0, "AllocTRES").unwrap().ends_with(",gres/shard=3"));
    // Of the four GPUs one is left whole.
    let (many, _) = start("--gpus=2");
    c.await_that("it waits", || c.job_field(&many, "Reason").as_deref() == Some("Resources"));

    let controller = c.pid_of("controller", None);
    c.kill(controller);
    let command_line = format!("/proc/{controller}/cmdline");
    c.await_that("the controller is gone", || std::fs::read(&command_line).map_or(true, |line| line.is_empty()));
    c.sh("garrick up").ok();
    assert_eq!(used(), "gpu:h100:1(IDX:2),shard:6(4/4,2/4,-/4,0/4)");
    assert_eq!(c.job_field(&many, "JobState").as_deref(), Some("PENDING"));

    std::fs::write(c.work.join(&two.1), "\n").unwrap();
    c.await_state(&many, "RUNNING");
    assert_eq!(used(), "gpu:h100:3(IDX:1-3),shard:4(4/4,-/4,-/4,-/4)");
    let told = |job: &(String, String)| {
        std::fs::write(c.work.join(&job.1), "\n").unwrap();
        c.await_state(&job.0, "COMPLETED");
        c.read(&format!("job{}.out", job.0))
    };
    assert_eq!([told(&three), told(&one), told(&whole)], ["0 3 none\n", "0 1 none\n", "2 none 1\n"]);
    let answer = c.sh("sbatch --gres=shard:5 job.sh none");
    assert!(answer.err.contains("Requested node configuration is not available"), "{answer:?}");
    c.sh(&format!("scancel {many}"));
    c.await_that("nothing is held", || used() == "gpu:h100:0(IDX:N/A),shard:0(0/4,0/4,0/4,0/4)");
}

#[test]
fn gpus_are_given_with_cpus_near_to_them() {
    let c = cluster_with("gres-cores", "", "Gres=gpu:h100:4", &["Cores=0-3", "Cores=0-3", "Cores=4-7", "Cores=4-7"]);
    c.script("job.sh", "#!/bin/bash\n#SBATCH --mem=100 -o job%j.out\nread line < hold\n");
    c.fifo("hold");
    let two = c.sh("sbatch -n2 --gpus=h100:2 --gres-flags=enforce-binding job.sh").ok().job();
    c.await_state(&two, "RUNNING");
    let next = c.sh("sbatch -n2 --gpus=1 job.sh").ok().job();
    c.await_state(&next, "RUNNING");
    assert_eq!(c.job_field(&two, "CPU_IDs").as_deref(), Some("0-1"));
    assert_eq!(c.job_field(&next, "GRES").as_deref(), Some("gpu:h100:1(IDX:2)"));
    assert_eq!(c.job_field(&next, "CPU_IDs").as_deref(), Some("4-5"), "near to its GPU");
    // More CPUs than are near to one GPU, where only those will do.
    let never = c.sh("sbatch -n5 --gpus=1 --gres-flags=enforce-binding job.sh");
    assert!(never.err.contains("Requested node configuration is not available"), "{never:?}");
    let without = c.sh("sbatch --gpus-per-socket=1 job.sh");
    assert!(without.err.contains("--sockets-per-node"), "{without:?}");
    c.sh(&format!("scancel {two} {next}"));
    let bound = "#!/bin/bash\n#SBATCH -n2 -c4 --mem=100 --gpus=4 -o bound.out\n\
                 srun -c4 --cpu-bind=cores --gpu-bind=closest bash -c 'echo $CUDA_VISIBLE_DEVICES'\n";
    c.script("bound.sh", bound);
    let bound = c.sh("sbatch bound.sh").ok().job();
    c.await_state(&bound, "COMPLETED");
    let mut lines: Vec<String> = c.read("bound.out").lines().map(ToOwned::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["0,1", "2,3"]);
}

#[test]
fn steps_share_the_gpus_of_their_job() {
    let c = cluster("gres-steps", "");
    c.fifo("all");
    // Four queued steps of a GPU each hold theirs until all four have said which; a fifth waits.
    c.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH -n8 --mem=800 --gpus=4 -o job.out\n\
         mkfifo hold\n\
         srun --async --array=0-3 -n1 --mem=10 --gres=gpu:1 -o /dev/null bash -c 'echo $SLURM_STEP_GPUS > said$SLURM_STEP_ARRAY_TASK_ID; read line < hold'\n\
         srun --async -n1 --mem=10 --gres=gpu:h100:1 -o fifth.out bash -c 'echo $CUDA_VISIBLE_DEVICES'\n\
         srun --async -n1 --mem=10 -o none.out bash -c 'echo \"[$CUDA_VISIBLE_DEVICES]\"'\n\
         cat said0 said1 said2 said3 > given\n\
         squeue -h -s -t PD -o '%j %b' > waits\n\
         exec 3<>hold; echo go >&3; echo go >&3; echo go >&3; echo go >&3\n\
         swait\n\
         srun -n4 --gpus-per-task=1 --exact bash -c 'echo $CUDA_VISIBLE_DEVICES' > tasks\n\
         srun -n1 --exact bash -c 'echo $CUDA_VISIBLE_DEVICES'\n\
         srun -n2 --gpu-bind=map_gpu:3,1 bash -c 'echo $CUDA_VISIBLE_DEVICES' > bound\n\
         srun -n1 --gres=gpu:5 true\n",
    );
    for n in 0..4 {
        c.fifo(&format!("said{n}"));
    }
    let id = c.sh("sbatch job.sh").ok().job();
    c.await_that("the job is over", || c.job_field(&id, "JobState").is_some_and(|s| s == "FAILED" || s == "COMPLETED"));
    let four: BTreeSet<String> = (0..4).map(|n| n.to_string()).collect();
    assert_eq!(each_once(&c.read("given")), four, "{}", c.read("job.out"));
    assert_eq!(each_once(&c.read("tasks")), four);
    assert!(c.read("waits").contains("gres/gpu:h100:1"), "{}", c.read("waits"));
    assert!(four.contains(c.read("fifth.out").trim()), "{}", c.read("fifth.out"));
    assert_eq!(c.read("none.out"), "[]\n");
    let out = c.read("job.out");
    assert!(out.contains("0,1,2,3\n"), "{out}");
    assert_eq!(each_once(&c.read("bound")), ["1", "3"].map(str::to_owned).into());
    assert!(out.contains("Invalid generic resource (gres) specification"), "{out}");
}

#[test]
fn what_no_node_can_give_is_refused_with_slurms_words() {
    let c = cluster("gres-refused", "");
    c.script("job.sh", "#!/bin/bash\n");
    for (options, said) in [
        ("--gres=gpu:5", "Requested node configuration is not available"),
        ("--gres=gpu:a100:1", "Requested node configuration is not available"),
        ("--gpus=9", "Requested node configuration is not available"),
        ("--gres=nic:1", "Invalid generic resource (gres) specification"),
        ("--gres=gpu:x:y", "Invalid generic resource (gres) specification"),
        ("--gres=mps:50", "is not supported yet"),
        ("--gpus=h100:1,2", "Invalid generic resource (gres) specification"),
        ("--gpus=h100:1,a100:1", "Requested node configuration is not available"),
    ] {
        let answer = c.sh(&format!("sbatch {options} job.sh"));
        assert!(answer.code != 0 && answer.err.contains(said), "{options}: {answer:?}");
    }
    // A device that went away: the node is not used until it is back.
    std::fs::remove_file(c.work.join("gpu3")).unwrap();
    c.sh("garrick down").ok();
    c.sh("garrick up").ok();
    c.await_that("the node says so", || {
        c.sh("sinfo -h -N -o %E").out.contains("gres/gpu count reported lower than configured (3 < 4)")
    });
}

#[test]
fn a_job_cannot_open_the_gpus_of_others_where_the_kernel_can_keep_it_from_them() {
    if !is_root() {
        eprintln!("skipped: making devices takes root");
        return;
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    if !mounts.lines().any(|l| l.contains(" cgroup ") && l.contains("devices")) {
        eprintln!("skipped: no cgroup version 1 devices hierarchy");
        return;
    }
    let c = cluster("gres-devices", "ConstrainDevices=yes\n");
    c.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH -n1 --mem=100 -o job%j.out\n\
         for n in 0 1 2 3; do (: < gpu$n) 2>&1 | grep -o 'No such device\\|not permitted'; done\n\
         echo $SLURM_JOB_GPUS/$CUDA_VISIBLE_DEVICES\n\
         [ -z \"$1\" ] || read line < $1\n",
    );
    c.fifo("hold");
    let first = c.sh("sbatch --gres=gpu:1 job.sh hold").ok().job();
    c.await_state(&first, "RUNNING");
    let second = c.sh("sbatch --gres=gpu:2 job.sh").ok().job();
    c.await_state(&second, "COMPLETED");
    let none = c.sh("sbatch job.sh").ok().job();
    c.await_state(&none, "COMPLETED");
    std::fs::write(c.work.join("hold"), "\n").unwrap();
    c.await_state(&first, "COMPLETED");
    let (open, shut) = ("No such device\n", "not permitted\n");
    assert_eq!(c.read(&format!("job{first}.out")), format!("{open}{shut}{shut}{shut}0/0\n"));
    // What is left to it is counted from 0.
    assert_eq!(c.read(&format!("job{second}.out")), format!("{shut}{open}{open}{shut}1,2/0,1\n"));
    assert_eq!(c.read(&format!("job{none}.out")), format!("{shut}{shut}{shut}{shut}/\n"));
}

#[test]
fn cores_of_a_gpu_are_left_to_jobs_that_have_it() {
    let gres = "Gres=gpu:h100:4 RestrictedCoresPerGPU=1";
    let c = cluster_with("gres-restricted", "", gres, &["Cores=0-7"; GPUS]);
    assert_eq!(node_field(&c, "RestrictedCoresPerGPU").as_deref(), Some("1"));
    c.fifo("go");
    c.script("wait.sh", "#!/bin/bash\n#SBATCH --mem=100\nread line < go\n");
    let too_many = c.sh("sbatch -n1 -c5 wait.sh");
    assert_ne!(too_many.code, 0);
    assert!(too_many.err.contains("Requested node configuration is not available"), "{}", too_many.err);
    let plain = c.sh("sbatch -n1 -c4 wait.sh").ok().job();
    c.await_state(&plain, "RUNNING");
    let more = c.sh("sbatch -n1 -c1 wait.sh").ok().job();
    c.await_that("one more CPU is not there", || c.job_field(&more, "Reason").as_deref() == Some("Resources"));
    let with_gpus = c.sh("sbatch -n1 -c2 --gpus=2 wait.sh").ok().job();
    c.await_state(&with_gpus, "RUNNING");
    let cpus =
        |job: &str| crate::support::field_of(&c.sh(&format!("scontrol -d -o show job {job}")).ok().out, "CPU_IDs");
    assert_eq!((cpus(&plain).as_deref(), cpus(&with_gpus).as_deref()), (Some("4-7"), Some("0-1")));
    c.sh(&format!("scancel {plain} {with_gpus} {more}")).ok();
    c.await_state(&with_gpus, "CANCELLED");
}

#[test]
fn types_of_gpus_are_counted_and_limited_where_the_site_names_them() {
    let lines = |line: &str| match line.split_once('=') {
        Some(("ClusterName", _)) => format!(
            "{line}\nAccountingStorageTRES=gres/gpu:h100,license/matlab\nLicenses=matlab:4\n\
             AccountingStorageEnforce=associations,limits"
        ),
        Some(("PartitionName", _)) => format!("{line} TRESBillingWeights=CPU=1,Mem=0.25G,GRES/gpu=10"),
        _ => line.to_owned(),
    };
    let c = cluster_where("gres-types", "", "Gres=gpu:h100:4", &[""; GPUS], lines);
    let shown = c.sh("scontrol show config").ok().out;
    let tracked = shown.lines().find(|line| line.starts_with("AccountingStorageTRES")).unwrap();
    assert!(tracked.ends_with("fs/disk,vmem,pages,gres/gpu:h100,license/matlab"), "{tracked}");
    let one = |line: &str| c.sh(line).ok().out.trim().to_owned();
    c.await_that("the type is a TRES", || one("sacctmgr -nP show tres format=type,name").contains("\ngres|gpu:h100\n"));
    let user = c.shell("id -un").ok().out.trim().to_owned();
    c.sh("sacctmgr -i add account lab").ok();
    c.sh(&format!("sacctmgr -i add user {user} account=lab")).ok();
    c.sh("sacctmgr -i modify account lab set GrpTRES=gres/gpu:h100=1").ok();
    c.sh("sacctmgr -i modify qos normal set MaxTRESPerUser=gres/gpu:h100=3").ok();
    assert_eq!(one("sacctmgr -nP show assoc account=lab user= format=grptres").lines().next(), Some("gres/gpu:h100=1"));
    assert_eq!(one("sacctmgr -nP show qos normal format=maxtrespu"), "gres/gpu:h100=3");
    c.fifo("go");
    let send = || {
        let asks = ["-A", "lab", "-n1", "--mem=100", "--gres=gpu:h100:1", "-L", "matlab:2", "-o", "/dev/null"];
        c.run("sbatch", &[&asks[..], &["--wrap", "srun -n1 cat go"]].concat())
    };
    c.await_that("the account is known", || {
        let held = c.run("sbatch", &["-A", "lab", "-H", "-o", "/dev/null", "--wrap", "true"]);
        held.code == 0 && c.run("scancel", &[held.job()]).code == 0
    });
    let [first, second] = [send().ok().job(), send().ok().job()];
    c.await_state(&first, "RUNNING");
    let reason = || one(&format!("squeue -h -j {second} -o %T|%r"));
    c.await_that("the account gets no more", || reason() == "PENDING|AssocGrpGRES");
    let has = "billing=11,cpu=1,gres/gpu=1,gres/gpu:h100=1,license/matlab=2,mem=100M,node=1";
    c.await_that("what it has is recorded", || {
        one(&format!("sacct -nPX -j {first} -o alloctres,reqtres")) == format!("{has}|{has}")
    });
    std::fs::write(c.work.join("go"), "go\n").unwrap();
    c.await_that("its steps are recorded", || {
        one(&format!("sacct -nP -j {first}.0 -o alloctres")) == "cpu=1,gres/gpu=1,gres/gpu:h100=1,mem=100M,node=1"
    });
    c.await_state(&second, "RUNNING");
    let words = "sreport -nP -t seconds -T gres/gpu:h100,billing cluster AccountUtilizationByUser accounts=lab \
                 start=now-1hour end=now+1hour format=account,login,tresname,used";
    let used = |name: &str| {
        let report = one(words);
        let of = |line: &str| Some(line.strip_prefix(&format!("lab|{user}|{name}|"))?.parse::<u64>().ok()? > 0);
        report.lines().filter_map(of).any(|used| used)
    };
    c.await_that("what was used of the type and billed is reported", || used("gres/gpu:h100") && used("billing"));
    c.sh(&format!("scancel {second}")).ok();
    // It waited because of the limit until the first had ended.
    c.await_that("the second is over", || {
        one(&format!("sacct -nPX -j {second} -o reason,qosreq,flags")) == "AssocGrpGRES||SchedMain,StartReceived"
    });
    assert_eq!(one("sacct -nPX -R AssocGrpGRES -a -o jobid"), second);
    let bad = c.sh("sacct -q nosuch");
    assert_eq!(bad.code, 1);
    assert!(bad.err.contains("You gave a bad qos 'nosuch'"), "{}", bad.err);
    c.down();
}

/// Stands for the library of NVIDIA's driver: four GPUs whose clocks are in files.
const DRIVER: &str = r#"
#include <stdio.h>
#include <stdlib.h>
typedef unsigned int u;
static FILE *of(void *d, const char *how) {
    char path[4096];
    snprintf(path, sizeof path, FOLDER "/clocks.%zu", (size_t)d - 1);
    return fopen(path, how);
}
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(u *n) { *n = 4; return 0; }
int nvmlDeviceGetHandleByIndex_v2(u i, void **d) { *d = (void *)(size_t)(i + 1); return 0; }
int nvmlDeviceGetMinorNumber(void *d, u *m) { *m = (u)((size_t)d - 1); return 0; }
int nvmlDeviceGetApplicationsClock(void *d, int of_memory, u *mhz) {
    u memory, gpu;
    FILE *f = of(d, "r");
    if (!f || fscanf(f, "%u %u", &memory, &gpu) != 2) return 999;
    fclose(f);
    *mhz = of_memory == 2 ? memory : gpu;
    return 0;
}
static int list(const u *all, u many, u *n, u *to) {
    if (!to || *n < many) { *n = many; return 7; }
    for (u i = 0; i < many; i++) to[i] = all[i];
    *n = many;
    return 0;
}
int nvmlDeviceGetSupportedMemoryClocks(void *d, u *n, u *to) {
    static const u all[] = {1593, 810};
    return list(all, 2, n, to);
}
int nvmlDeviceGetSupportedGraphicsClocks(void *d, u memory, u *n, u *to) {
    static const u fast[] = {1410, 1200, 900, 600, 300}, slow[] = {405, 300};
    return memory == 810 ? list(slow, 2, n, to) : list(fast, 5, n, to);
}
int nvmlDeviceSetApplicationsClocks(void *d, u memory, u gpu) {
    FILE *f = of(d, "w");
    if (!f) return 999;
    fprintf(f, "%u %u\n", memory, gpu);
    fclose(f);
    return 0;
}
"#;

#[test]
fn gpus_of_steps_have_the_clocks_that_are_asked_for_until_the_step_is_over() {
    if !is_root() {
        eprintln!("skipped: needs root, to make device files");
        return;
    }
    let c = cluster("gres-clocks", "");
    let log = || std::fs::read_to_string(c.home.join("log/slurmd-n1.log")).unwrap();
    // Where there is no driver the step runs all the same.
    if !std::path::Path::new("/dev/nvidiactl").exists() {
        c.sh("srun --gpus=1 --gpu-freq=high true").ok();
        assert!(
            log().contains("--gpu-freq=high: the GPUs of this node cannot be set: dlopen failed: libnvidia-ml"),
            "{}",
            log()
        );
    }
    c.sh("garrick down").ok();
    std::fs::write(c.work.join("driver.c"), DRIVER).unwrap();
    let folder = c.work.display();
    c.shell(&format!("cc -shared -fPIC -DFOLDER='\"{folder}\"' -o libnvidia-ml.so.1 driver.c")).ok();
    for n in 0..GPUS {
        std::fs::write(c.work.join(format!("clocks.{n}")), "1593 1410\n").unwrap();
    }
    c.shell("LD_LIBRARY_PATH=$PWD garrick up").ok();
    let before = "1593 1410\n".repeat(GPUS);
    let now = || (0..GPUS).map(|n| c.read(&format!("clocks.{n}"))).collect::<String>();
    // Which GPUs it has is chance: those of the step before may not be free yet.
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(|line| format!("{line}\n")).collect();
        lines.sort();
        lines.concat()
    };
    let during = |options: &str| {
        sorted(&c.shell(&format!("srun {options} sh -c 'cat clocks.*; echo $SLURM_GPU_FREQ'")).ok().out)
    };
    let two = "1593 900\n".repeat(2) + &"1593 1410\n".repeat(2);
    assert_eq!(during("--gpus=2 --gpu-freq=medium"), sorted(&(two + "medium\n")));
    assert_eq!(now(), before, "they are put back");
    let one = "810 405\n".to_owned() + &"1593 1410\n".repeat(3);
    assert_eq!(during("--gpus=1 --gpu-freq=memory=low,High,verbose"), sorted(&(one + "high,memory=low,verbose\n")));
    assert!(log().contains(": memory_freq:810 graphics_freq:405"), "{}", log());
    // A number is the nearest that there is; steps of a job have what the job asks for.
    let nearest = "1593 600\n".to_owned() + &"1593 1410\n".repeat(3);
    let line = "salloc -Q --gpus=1 --gpu-freq=650 srun sh -c 'cat clocks.*; echo $SLURM_GPU_FREQ'";
    assert_eq!(sorted(&c.shell(line).ok().out), sorted(&(nearest + "650\n")));
    // Without any GPU nothing is set.
    assert_eq!(during("--gpu-freq=low"), sorted(&(before.clone() + "low\n")));
    assert_eq!(now(), before);
    let wrong = c.sh("srun --gpu-freq=fast true");
    assert_eq!((wrong.code, wrong.err.as_str()), (255, "srun: error: Invalid --gpu-freq argument: gpu:fast\n"));
}
