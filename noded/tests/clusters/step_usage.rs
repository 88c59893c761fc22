//! What tasks of steps use: recorded when they have ended, whoever waited for them.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{Cluster, is_root};

const TWO: &[&str] = &["--nodes", "2", "--cpus", "2", "--memory", "2000"];

/// The lines of `sacct -nP`, once there are so many of steps that are over.
#[track_caller]
fn recorded(c: &Cluster, words: &str, steps: usize) -> Vec<Vec<String>> {
    let mut lines: Vec<Vec<String>> = Vec::new();
    c.await_that(&format!("sacct {words}"), || {
        let said = c.sh(&format!("sacct -nP {words}")).ok().out;
        lines = said.lines().map(|line| line.split('|').map(ToOwned::to_owned).collect()).collect();
        lines.retain(|line: &Vec<String>| !line[0].ends_with(".extern"));
        lines.iter().filter(|line| line[0].contains('.')).count() >= steps
            && lines.iter().all(|line| !line[1].is_empty() || !line[0].contains('.'))
    });
    lines
}

/// `fs/disk=7` in a list of TRES.
#[track_caller]
fn amount(list: &str, name: &str) -> u64 {
    let value = list.split(',').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    value.and_then(|value| value.trim_end_matches('K').parse().ok()).unwrap_or_else(|| panic!("{name} in {list:?}"))
}

/// The first task holds 64 MiB, the second, on another node, writes 20 MiB and reads as much.
#[test]
fn the_tasks_that_used_most_and_least_are_known_with_their_nodes() {
    let c = Cluster::up("usage", TWO);
    let w = c.work.display();
    let task = c.script(
        "task",
        &format!(
            "#!/bin/bash\nif [ $SLURM_PROCID = 0 ]; then printf -v x '%67108864s' ''; else \
             head -c 20971520 /dev/zero > {w}/big; fi\ntouch {w}/there-$SLURM_PROCID\nread -r go < {w}/go-$SLURM_PROCID\n: $x\n"
        ),
    );
    let lets = [c.fifo("go-0"), c.fifo("go-1")];
    let wrapped = format!("srun {}", task.display());
    let sent = c.run("sbatch", &["--parsable", "-N2", "-n2", "-o", "/dev/null", "--wrap", &wrapped]).ok();
    let job = sent.out.trim().to_owned();
    c.await_that("both have done it", || (0..2).all(|rank| c.work.join(format!("there-{rank}")).exists()));
    // Who looks at them while they run has it recorded too.
    let seen = c.sh(&format!("sstat -nP -o maxvmsizetask,maxvmsizenode -j {job}.0")).ok().out;
    assert_eq!(seen.trim(), "0|n1");
    for fifo in lets {
        std::fs::write(fifo, "go\n").unwrap();
    }
    c.await_state(&job, "COMPLETED");
    let fields = "jobid,tresusageinmax,maxrssnode,maxrsstask,tresusageinmin,averss,tresusageintot,maxvmsizenode,mincputask,totalcpu";
    let lines = recorded(&c, &format!("-j {job} -o {fields}"), 2);
    let step = lines.iter().find(|line| line[0] == format!("{job}.0")).unwrap();
    let [_, most, node, task, least, average, total, vm_node, ..] = &step[..] else { panic!("{step:?}") };
    assert_eq!((node.as_str(), task.as_str(), vm_node.as_str()), ("n1", "0", "n1"));
    let (most_kib, least_kib) = (amount(most, "mem"), amount(least, "mem"));
    assert!(most_kib > 64 << 10 && least_kib > 0 && least_kib < 64 << 10, "{step:?}");
    assert_eq!(amount(total, "mem"), most_kib + least_kib);
    assert_eq!(average.trim_end_matches('K').parse(), Ok((most_kib + least_kib) / 2));
    assert!(amount(most, "vmem") > 64 << 10, "{step:?}");
    let batch = lines.iter().find(|line| line[0] == format!("{job}.batch")).unwrap();
    assert!(amount(&batch[1], "mem") > 0 && batch[2] == "n1" && batch[3] == "0", "{batch:?}");
    if !is_root() {
        return eprintln!("skipped: what tasks read and write is counted at their ends by root alone");
    }
    let fields =
        "jobid,tresusageoutmax,tresusageoutmaxnode,maxdiskwritetask,tresusageoutmin,tresusageoutmintask,tresusageinmax";
    let lines = recorded(&c, &format!("-j {job} -o {fields}"), 2);
    let step = lines.iter().find(|line| line[0] == format!("{job}.0")).unwrap();
    let written = amount(&step[1], "fs/disk");
    assert!((20_971_520..20_972_520).contains(&written), "{step:?}");
    assert!(step[2].ends_with("fs/disk=n2") && step[3] == "1" && step[5] == "fs/disk=0", "{step:?}");
    assert!(amount(&step[4], "fs/disk") < 1000 && amount(&step[6], "fs/disk") >= 20_971_520, "{step:?}");
}

/// A small task, whose memory is not its launcher's, and a daemon that it leaves, which uses CPU time until the task ends.
#[test]
fn small_tasks_have_their_own_memory_and_daemons_count() {
    let c = Cluster::up("usage-daemon", &["--nodes", "1", "--cpus", "2", "--memory", "1000"]);
    let go = c.fifo("go");
    let burn = c.script("burn", "#!/bin/sh\nwhile :; do :; done\n");
    let task = c.script("task", &format!("#!/bin/sh\n(setsid {} &)\nread -r go < {}\n", burn.display(), go.display()));
    let wrapped = format!("srun -n1 {}", task.display());
    let job = c.run("sbatch", &["--parsable", "-n1", "-o", "/dev/null", "--wrap", &wrapped]).ok().out.trim().to_owned();
    c.await_state(&job, "RUNNING");
    // Who looks at it while it runs has it recorded too.
    let looked = || c.sh(&format!("sstat -nP -o avecpu -j {job}.0")).out.trim().to_owned();
    c.await_that("the daemon has used a second", || !matches!(looked().as_str(), "" | "00:00:00"));
    std::fs::write(go, "go\n").unwrap();
    c.await_state(&job, "COMPLETED");
    let lines = recorded(&c, &format!("-j {job} -o jobid,avecpu,maxrss"), 2);
    let step = lines.iter().find(|line| line[0] == format!("{job}.0")).unwrap();
    assert_ne!(step[1], "00:00:00", "{step:?}");
    let kib: u64 = step[2].trim_end_matches('K').parse().unwrap();
    assert!(kib > 0 && kib < 8 << 10, "two shells: {step:?}");
    c.down();
}

/// They end before anybody could look at them.
#[test]
fn short_steps_of_arrays_and_lists_have_what_they_used() {
    if !is_root() {
        return eprintln!("skipped: what tasks read and write is counted at their ends by root alone");
    }
    let c = Cluster::up("short-usage", TWO);
    let w = c.work.display();
    let task = c.script(
        "task",
        &format!(
            "#!/bin/sh\nn=$SLURM_STEP_ARRAY_TASK_ID\nhead -c ${{n:-7}}00000 /dev/zero > {w}/out-$SLURM_STEP_ID-$n\n"
        ),
    );
    let task = task.display();
    let script = format!("srun --async --array=1-9 -o /dev/null {task}; srun --async -n1 -o /dev/null {task}; swait");
    let sent = c.run("sbatch", &["--parsable", "-n2", "-o", "/dev/null", "--wrap", &script]).ok();
    let job = sent.out.trim().to_owned();
    c.await_state(&job, "COMPLETED");
    let lines = recorded(&c, &format!("-j {job} -o jobid,tresusageouttot,maxrss,state"), 11);
    for (step, count) in (1..=9).map(|n| (format!("{job}.0_{n}"), n)).chain([(format!("{job}.1"), 7)]) {
        let line = lines.iter().find(|line| line[0] == step).unwrap_or_else(|| panic!("{step} in {lines:?}"));
        let written = amount(&line[1], "fs/disk");
        assert!((count * 100_000..count * 100_000 + 1000).contains(&written), "{line:?}");
        assert!(line[2].ends_with('K') && line[3] == "COMPLETED", "{line:?}");
    }
}

/// Seconds of `cpu=00:00:01` in a list of TRES.
#[track_caller]
fn cpu_secs(list: &str) -> u64 {
    let time = list.split(',').find_map(|word| word.strip_prefix("cpu=")).unwrap_or_else(|| panic!("cpu in {list:?}"));
    time.split(':').fold(0, |secs, part| secs * 60 + part.parse::<u64>().unwrap_or_else(|_| panic!("{list:?}")))
}

/// Each holds 64 MiB, works for more than a second of CPU time, and writes 3 MB. No command waits for them.
#[test]
fn tasks_of_arrays_and_scripts_have_the_cpu_time_memory_and_bytes_that_they_used() {
    if !is_root() {
        return eprintln!("skipped: what tasks read and write is counted at their ends by root alone");
    }
    let c = Cluster::up("pooled-usage", TWO);
    let w = c.work.display();
    let works = "printf -v held '%67108864s' ''\n\
                 until read -ra now < /proc/$$/stat; (( now[13] >= 110 )); do for ((n = 0; n < 10000; n++)); do :; done; done\n";
    let text = format!(
        "#!/bin/bash\n{works}head -c 3000000 /dev/zero > {w}/out-$SLURM_STEP_ID-$SLURM_STEP_ARRAY_TASK_ID\n: $held\n"
    );
    let task = c.script("task", &text);
    let task = task.display();
    let script = format!(
        "srun --async --array=1-2 -o /dev/null {task}; srun --batch -o /dev/null {task}; srun --async -n1 -o /dev/null true; swait"
    );
    let sent = c.run("sbatch", &["--parsable", "-n2", "-o", "/dev/null", "--wrap", &script]).ok();
    let job = sent.out.trim().to_owned();
    c.await_state(&job, "COMPLETED");
    let fields = "jobid,tresusageouttot,tresusageintot,tresusageinmax,maxrssnode,state";
    let lines = recorded(&c, &format!("-j {job} -o {fields}"), 5);
    let of = |step: &str| {
        let step = format!("{job}.{step}");
        lines.iter().find(|line| line[0] == step).unwrap_or_else(|| panic!("{step} in {lines:?}"))
    };
    for step in ["0_1", "0_2", "1"] {
        let line = of(step);
        let written = amount(&line[1], "fs/disk");
        assert!((3_000_000..3_001_000).contains(&written), "{line:?}");
        assert!(cpu_secs(&line[2]) >= 1, "{line:?}");
        assert!(amount(&line[3], "mem") > 64 << 10, "{line:?}");
        assert!(line[4].starts_with('n') && line[5] == "COMPLETED", "{line:?}");
    }
    let idle = of("2");
    assert!(cpu_secs(&idle[2]) == 0 && amount(&idle[3], "mem") < 64 << 10, "{idle:?}");
}

/// A step that uses 42 joules, on a machine whose counter of them then begins anew.
#[test]
fn the_energy_of_nodes_is_that_of_the_steps_on_them() {
    let c = Cluster::up_with("energy", &["--nodes", "1", "--cpus", "2"], |_| {
        "AcctGatherEnergyType=acct_gather_energy/rapl".to_owned()
    });
    let zone = c.work.join("powercap/intel-rapl:0");
    std::fs::create_dir_all(&zone).unwrap();
    for (name, text) in [("name", "package-0"), ("max_energy_range_uj", "100000000"), ("energy_uj", "90000000")] {
        std::fs::write(zone.join(name), format!("{text}\n")).unwrap();
    }
    c.sh("garrick down").ok();
    c.shell("GARRICK_POWERCAP_FOLDER=$PWD/powercap garrick up").ok();
    let uses = c.script("uses", &format!("#!/bin/sh\necho 32000000 > {}/energy_uj\n", zone.display()));
    let sent = c.run("sbatch", &["--parsable", "-o", "/dev/null", "--wrap", &format!("srun {}", uses.display())]).ok();
    let job = sent.out.trim().to_owned();
    c.await_state(&job, "COMPLETED");
    let lines = recorded(&c, &format!("-j {job} -o jobid,tresusageintot,consumedenergy,consumedenergyraw"), 2);
    for line in &lines {
        assert_eq!(line[2..], ["42", "42"], "{line:?}");
        assert!(!line[0].contains('.') || amount(&line[1], "energy") == 42, "{line:?}");
    }
    let document: serde_json::Value =
        serde_json::from_str(&c.sh(&format!("sacct -j {job}.0 --json")).ok().out).unwrap();
    assert_eq!(document["jobs"][0]["steps"][0]["statistics"]["energy"]["consumed"]["number"], 42, "{document}");
}
