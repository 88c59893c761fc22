//! Keys of `slurm.conf` that need nothing but a small cluster to be seen at work.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{Cluster, answer, is_root};
use std::{os::unix::process::CommandExt as _, process::Command};

const ONE: [&str; 6] = ["--nodes", "1", "--cpus", "4", "--memory", "4000"];
const TWO: [&str; 6] = ["--nodes", "2", "--cpus", "4", "--memory", "4000"];

fn job(c: &Cluster, words: &str) -> String {
    c.shell(&format!("sbatch -o /dev/null {words}")).ok().job()
}

/// The scheduler says why at its next look.
fn await_reason(c: &Cluster, job: &str, reason: &str) {
    c.await_that(reason, || c.job_field(job, "Reason").as_deref() == Some(reason));
}

#[test]
fn numbers_and_defaults_of_jobs_are_those_of_the_site() {
    let c = Cluster::up_with("site-jobs", &ONE, |_| {
        "FirstJobId=1000\nMaxJobId=1003\nMinJobAge=8\nMaxArraySize=5\nDefMemPerNode=300\nJobFileAppend=1\n\
         DependencyParameters=kill_invalid_depend"
            .to_owned()
    });
    let first = c.shell("sbatch --hold -o out --wrap 'echo $SLURM_CLUSTER_NAME'").ok().job();
    assert_eq!(first, "1000");
    assert_eq!(c.job_field(&first, "MinMemoryNode").as_deref(), Some("300M"));
    let never = job(&c, "--dependency=afternotok:1000 --wrap true");
    c.sh("scontrol release 1000").ok();
    c.await_state(&first, "COMPLETED");
    c.await_state(&never, "CANCELLED");
    let second = c.shell("sbatch -o out --wrap 'echo again; exit 1'").ok().job();
    c.await_state(&second, "FAILED");
    assert_eq!(c.read("out"), "garrick\nagain\n", "the file is appended to");
    let refused = c.shell("sbatch --array=0-5 --wrap true");
    assert!(refused.code == 1 && refused.err.contains("Invalid job array specification"), "{refused:?}");
    let last = job(&c, "--hold --wrap true");
    assert_eq!([never.as_str(), &second, &last], ["1001", "1002", "1003"]);
    // Numbers begin anew, and those that somebody has are left out.
    for over in ["1000", "1001", "1002"] {
        c.await_that("it is forgotten", || c.sh(&format!("scontrol show job {over}")).code != 0);
    }
    assert_eq!([0; 3].map(|_| job(&c, "--hold --wrap true")), ["1000", "1001", "1002"]);
    assert_eq!(c.job_field(&last, "JobState").as_deref(), Some("PENDING"));
}

#[test]
fn a_partition_says_who_may_come_and_where_its_jobs_go() {
    let c = Cluster::up_with("site-partitions", &TWO, |_| {
        "PartitionName=small Nodes=ALL MaxNodes=1\nPartitionName=wide Nodes=ALL MinNodes=2\n\
         PartitionName=apart Nodes=ALL LLN=YES DefMemPerNode=222\nPartitionName=elsewhere Nodes=ALL AllocNodes=n9\n\
         PartitionName=users Nodes=ALL DisableRootJobs=YES\nPartitionName=turns Nodes=ALL Shared=FORCE:3\n\
         PartitionName=own Nodes=ALL ExclusiveUser=YES\nPartitionName=whole Nodes=ALL Exclusive=NODE"
            .to_owned()
    });
    await_reason(&c, &job(&c, "-p small -N2 --wrap true"), "PartitionNodeLimit");
    await_reason(&c, &job(&c, "-p wide -N1 --wrap true"), "PartitionNodeLimit");
    let elsewhere = c.shell("sbatch -p elsewhere --wrap true");
    assert!(elsewhere.code == 1 && elsewhere.err.contains("Access/permission denied"), "{elsewhere:?}");
    if is_root() {
        let roots = c.shell("sbatch -p users --wrap true");
        assert!(roots.code == 1 && roots.err.contains("Access/permission denied"), "{roots:?}");
    }
    assert!(c.sh("scontrol show partition turns").ok().out.contains("OverSubscribe=FORCE:3"));
    for (partition, why) in [("apart", "the least loaded node goes first"), ("whole", "a node is one job's")] {
        let two = [0, 1].map(|_| job(&c, &format!("-p {partition} -n1 --wrap 'sleep 100000'")));
        two.iter().for_each(|job| c.await_state(job, "RUNNING"));
        let on = two.each_ref().map(|job| c.job_field(job, "NodeList").unwrap());
        assert_ne!(on[0], on[1], "{why}");
        if partition == "apart" {
            assert_eq!(c.job_field(&two[0], "MinMemoryNode").as_deref(), Some("222M"));
        }
        two.iter().for_each(|job| drop(c.sh(&format!("scancel {job}")).ok()));
        two.iter().for_each(|job| c.await_state(job, "CANCELLED"));
    }
    if is_root() {
        // Another user's own copy: the folder in which it was built may be closed to others.
        let sbatch = c.work.join("sbatch");
        crate::support::copy_program(&crate::support::built().join("garrick"), &sbatch);
        let mine = job(&c, "-p own -w n1 -n1 --mem 100 --wrap 'sleep 100000'");
        c.await_state(&mine, "RUNNING");
        let mut theirs = Command::new(&sbatch);
        theirs.arg0("sbatch").env("GARRICK_HOME", &c.home).current_dir("/").uid(1).gid(1);
        theirs.args(["-p", "own", "-n1", "--mem", "100", "-o", "/dev/null", "--wrap", "sleep 100000"]);
        let theirs = answer(&mut theirs).ok().job();
        c.await_state(&theirs, "RUNNING");
        assert_eq!(c.job_field(&theirs, "NodeList").as_deref(), Some("n2"), "a node is one user's at a time");
    }
}

#[test]
fn prologs_and_epilogs_run_and_have_their_time() {
    for (keys, drained) in [
        ("Prolog=@/slow\nPrologTimeout=1", "Prolog error"),
        ("Epilog=@/slow\nEpilogTimeout=1", "Epilog error"),
        ("Prolog=@/noted\nEpilog=@/slow\nPrologEpilogTimeout=5", "Epilog error"),
    ] {
        let c = Cluster::up_with("site-scripts", &ONE, |c| {
            c.script("slow", "#!/bin/sh\nexec sleep 100000\n");
            c.script("noted", &format!("#!/bin/sh\necho $SLURM_JOB_ID >> {}/noted.by\n", c.work.display()));
            keys.replace('@', &c.work.display().to_string())
        });
        let job = job(&c, "--wrap true");
        c.await_that("the node is drained", || c.sh("sinfo -h -R -o %E").ok().out.contains(drained));
        if keys.contains("noted") {
            assert_eq!(c.read("noted.by"), format!("{job}\n"));
        }
    }
}

#[test]
fn scripts_of_site_and_user_run_around_each_task_and_prologs_change_its_environment() {
    let c = Cluster::up_with("task-scripts", &ONE, |c| {
        let work = c.work.display();
        let site =
            "echo 'export FROM_SITE=a b'; echo 'export CHANGED=site'; echo 'unset GONE'; echo 'print said first'";
        c.script(
            "before",
            &format!("#!/bin/sh\n{site}; echo PATH=/nowhere; echo \"site before $SLURM_PROCID\" >> {work}/order\n"),
        );
        c.script("after", &format!("#!/bin/sh\necho \"site after $SLURM_PROCID\" >> {work}/order\n"));
        c.script(
            "own-before",
            &format!("#!/bin/sh\necho \"export CHANGED=own+$CHANGED\"; echo own before >> {work}/order\n"),
        );
        c.script("own-after", &format!("#!/bin/sh\necho own after >> {work}/order; exit 3\n"));
        c.script("fails", "#!/bin/sh\nexit 7\n");
        // Relative to the folder of slurm.conf.
        format!("TaskProlog=../../before\nTaskEpilog={work}/after")
    });
    let work = c.work.display();
    let own = format!("--task-prolog={work}/own-before --task-epilog={work}/own-after");
    let task = "echo $FROM_SITE,$CHANGED,${GONE-gone}; exit 5";
    let ran = c.shell(&format!("GONE=here srun {own} sh -c '{task}'"));
    assert_eq!((ran.code, ran.out.as_str()), (5, "said first\na b,own+site,gone\n"), "{ran:?}");
    assert_eq!(c.read("order"), "site before 0\nown before\nown after\nsite after 0\n");
    // The batch script is a task too.
    std::fs::remove_file(c.work.join("order")).unwrap();
    let job = c.shell("sbatch -o out --wrap 'echo $FROM_SITE'").ok().job();
    c.await_state(&job, "COMPLETED");
    assert_eq!((c.read("out"), c.read("order")), ("said first\na b\n".into(), "site before 0\nsite after 0\n".into()));
    // A task whose prolog fails is not run, and ends as that; a program that is not there is told as without a prolog.
    let ran = c.shell(&format!("SLURM_TASK_PROLOG={work}/fails srun sh -c 'echo ran'"));
    assert!(ran.code == 7 && !ran.out.contains("ran\n"), "{ran:?}");
    assert!(ran.err.contains("] error: --task-prolog failed status=7\n"), "{ran:?}");
    let ran = c.shell("srun --task-prolog=/nosuch true");
    assert!(ran.code == 1 && ran.err.contains("can not be executed (/nosuch) No such file or directory"), "{ran:?}");
    // Those of `srun` run where it does; without its prolog there is no step.
    c.script("says", "#!/bin/sh\necho said\n");
    let ran = c.shell(&format!("srun --prolog={work}/says --epilog={work}/fails sh -c 'echo ran; exit 3'"));
    assert_eq!((ran.code, ran.out.as_str()), (3, "said\nsaid first\nran\n"), "{ran:?}");
    assert!(ran.err.ends_with("srun: error: srun epilog failed status=7\n"), "{ran:?}");
    let ran = c.shell(&format!("SLURM_PROLOG={work}/fails srun sh -c 'echo ran'"));
    assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{ran:?}");
    assert!(ran.err.ends_with("srun: error: srun prolog failed rc = 7. Aborting step.\n"), "{ran:?}");
    let ran = c.shell("srun --epilog=/nosuch true");
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (0, "srun: Access denied for /nosuch: No such file or directory\n"),
        "{ran:?}"
    );
    // What is wrong with an epilog is in the file of the task's errors.
    let job =
        c.shell(&format!("sbatch -o /dev/null --wrap 'srun -e errors.%t --task-epilog={work}/fails true'")).ok().job();
    c.await_state(&job, "COMPLETED");
    assert!(c.read("errors.0").ends_with("] error: TaskEpilog failed status=7\n"), "{}", c.read("errors.0"));
    let ran = c.shell("srun /nosuch/program");
    assert!(ran.code == 2 && ran.err.contains("execve(): /nosuch/program: No such file or directory"), "{ran:?}");
}

#[test]
fn limits_travel_as_the_site_says() {
    for (keys, files, core) in [
        ("PropagateResourceLimits=NOFILE", true, false),
        ("PropagateResourceLimitsExcept=NOFILE", false, true),
        ("PropagateResourceLimits=NONE", false, false),
    ] {
        let c = Cluster::up_with("site-limits", &ONE, |_| keys.to_owned());
        let job = c.shell("ulimit -S -n 77 -c 0; sbatch -o out --wrap 'ulimit -n; ulimit -c'").ok().job();
        c.await_state(&job, "COMPLETED");
        // The daemon's own limit of core files is what this test was started with.
        let own = c.shell("ulimit -S -c").ok().out;
        let out = c.read("out");
        let (open_files, core_size) = out.split_once('\n').unwrap();
        assert_eq!(open_files == "77", files, "{keys}: {out}");
        assert!(if core { core_size == "0\n" } else { core_size == own }, "{keys}: {out}");
    }
}

#[test]
fn whole_nodes_are_given_where_the_site_says_so() {
    let c = Cluster::up_changed("site-linear", &TWO, |_, own| own.replace("select/cons_tres", "select/linear"));
    let one = job(&c, "-n1 --wrap 'sleep 100000'");
    c.await_state(&one, "RUNNING");
    assert_eq!(c.job_field(&one, "NumCPUs").as_deref(), Some("4"));
}

#[test]
fn the_controller_is_found_under_older_names_and_places_are_those_of_the_file() {
    let c = Cluster::up_changed("site-places", &ONE, |c, own| {
        let host = own.lines().find_map(|line| line.strip_prefix("SlurmctldHost=")).unwrap();
        let (name, address) = host.trim_end_matches(')').split_once('(').unwrap();
        let work = c.work.display();
        let own =
            own.replace(&format!("SlurmctldHost={host}"), &format!("ControlMachine={name}\nControlAddr={address}"));
        let own = own.replace(&format!("{}/spool/", c.home.display()), &format!("{work}/other-spool/"));
        let own = own.replace(&format!("{}/run/slurm", c.home.display()), &format!("{work}/pid-"));
        let free = crate::support::free_ports(1)[0];
        let node = own.lines().find(|line| line.starts_with("NodeName=n1 ")).unwrap();
        let port = node.split_whitespace().find(|word| word.starts_with("Port=")).unwrap();
        let new = node.replace("NodeName=n1 ", "NodeName=n2 ").replace(port, &format!("Port={free}"));
        let new = new.replace("State=UNKNOWN", "State=DRAIN Reason=new TmpDisk=1");
        format!("{own}\n{new}\nTmpFS={work}\n")
    });
    let pid = |name: &str| c.read(name).trim().parse::<i32>().unwrap();
    assert_eq!(pid("pid-ctld.pid"), c.pid_of("controller", None));
    assert_eq!(pid("pid-d-n1.pid"), c.pid_of("node", Some("n1")));
    assert!(c.work.join("other-spool/n1").is_dir());
    assert_eq!(c.sh("sinfo -h -N -o %N:%t").ok().out, "n1:idle\nn2:drain\n");
    assert!(c.sh("sinfo -h -R -o %E").ok().out.contains("new"));
    c.sh("srun true").ok();
    let tmp = c.shell("sbatch --tmp=100T -o /dev/null --wrap true");
    assert!(tmp.code == 1 && tmp.err.contains("Requested node configuration is not available"), "{tmp:?}");
}

/// A frozen process of cgroup version 1 does not die before it thaws: to whoever kills it, it hangs in the kernel.
#[test]
fn what_cannot_be_killed_is_given_up_after_the_time_of_the_site() {
    if !is_root() || !std::path::Path::new("/sys/fs/cgroup/freezer/cgroup.procs").exists() {
        eprintln!("skipped: a process that cannot be killed needs root and the freezer of cgroup version 1");
        return;
    }
    let c = Cluster::up_with("site-unkillable", &ONE, |_| "UnkillableStepTimeout=1".to_owned());
    let script = "#!/bin/bash\n\
        dir=/sys/fs/cgroup/freezer$(sed -n 's/^[0-9]*:freezer://p' /proc/self/cgroup)/garrick-test-$$\n\
        mkdir $dir\nsleep 100000 &\necho $! > $dir/cgroup.procs\necho FROZEN > $dir/freezer.state\necho $dir > frozen\n";
    c.script("hang.sh", script);
    let job = job(&c, "hang.sh");
    c.await_that("the node is drained", || c.sh("scontrol -o show node n1").out.contains("Reason=Kill task failed"));
    let log = std::fs::read_to_string(c.home.join("log/slurmd-n1.log")).unwrap();
    let given_up = log.lines().find(|line| line.contains("processes cannot be killed"));
    assert!(given_up.is_some_and(|line| line.contains("after=1s")), "{job}: {log}");
    let dir = std::path::PathBuf::from(c.read("frozen").trim());
    std::fs::write(dir.join("freezer.state"), "THAWED").unwrap();
    c.await_that("it is gone", || std::fs::read_to_string(dir.join("cgroup.procs")).unwrap().is_empty());
    std::fs::remove_dir(&dir).unwrap();
}

/// As root, another user's job and change are checked with their names and ids, and a controller that is started again has the script.
#[test]
fn a_sites_script_checks_sets_and_refuses_jobs_and_their_changes() {
    let c = Cluster::up_with("job-submit", &ONE, |c| {
        let script = "function slurm_job_submit(desc, list, uid)
            if desc.time_limit == slurm.NO_VAL then
                slurm.log_user('%s: say how long', desc.user_name)
                return slurm.ESLURM_INVALID_TIME_LIMIT
            end
            desc.comment = 'of_' .. desc.user_name
            desc.environment['FROM_SITE'] = 'set'
            slurm.log_user('it has %d minutes', desc.time_limit)
            return slurm.SUCCESS
        end
        function slurm_job_modify(desc, record, list, uid)
            if desc.time_limit ~= slurm.NO_VAL and desc.time_limit > record.time_limit then
                slurm.log_user('%s stays as long as it is', record.name)
                return slurm.ERROR
            end
            return slurm.SUCCESS
        end";
        std::fs::write(c.conf_folder().join("job_submit.lua"), script).unwrap();
        "JobSubmitPlugins=lua".to_owned()
    });
    let user = c.shell("id -un").ok().out.trim().to_owned();
    let refused = c.sh("sbatch --wrap true");
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains(&format!("sbatch: error: {user}: say how long\n")), "{refused:?}");
    let submitted = c.shell("sbatch -t 5 -J own -o out --wrap 'echo $FROM_SITE'").ok();
    assert!(submitted.err.contains("sbatch: it has 5 minutes\n"), "{submitted:?}");
    let job = submitted.job();
    assert_eq!(c.job_field(&job, "Comment"), Some(format!("of_{user}")));
    c.await_state(&job, "COMPLETED");
    assert_eq!(c.read("out"), "set\n");
    c.sh("garrick down").ok();
    c.sh("garrick up").ok();
    let held = c.shell("sbatch -H -t 5 -J own --wrap true").ok().job();
    let longer = c.sh(&format!("scontrol update jobid={held} timelimit=6"));
    assert_eq!(longer.code, 1, "{longer:?}");
    assert!(longer.err.contains("scontrol: error: own stays as long as it is\n"), "{longer:?}");
    c.sh(&format!("scontrol update jobid={held} timelimit=3")).ok();
    assert_eq!(c.job_field(&held, "TimeLimit").as_deref(), Some("00:03:00"));
}

/// In jobs `srun` reads no configuration: of filters it knows there too.
#[test]
fn a_script_of_the_site_looks_at_options_and_changes_them() {
    let c = Cluster::up_with("cli-filter", &ONE, |c| {
        let script = "function slurm_cli_setup_defaults(options, early)
            options['job-name'] = 'default'
            return slurm.SUCCESS
        end
        function slurm_cli_pre_submit(options, offset)
            if options.comment == 'bad' then
                slurm.log_error('%s: not here', options.comment)
                return slurm.ERROR
            end
            options.comment = 'of_' .. options['type']
            slurm.cli_store(offset, slurm.json_cli_options(options))
            return slurm.SUCCESS
        end
        function slurm_cli_post_submit(offset, job, step)
            slurm.log_info('job %d, step %d: %s', job, step, slurm.cli_retrieve(offset))
            return slurm.SUCCESS
        end";
        let path = c.work.join("filter.lua");
        std::fs::write(&path, script).unwrap();
        format!("CliFilterPlugins=lua\nCliFilterParameters=cli_filter_lua_path={}", path.display())
    });
    let refused = c.sh("sbatch --comment=bad --wrap true");
    let said = "sbatch: error: lua: bad: not here\nsbatch: error: cli_filter plugin terminated with error\n";
    assert_eq!((refused.code, refused.err.as_str()), (1, said));
    let submitted = c.shell("sbatch -n1 -o out --wrap 'srun printenv SLURM_JOB_NAME; srun --comment=bad true'").ok();
    let job = submitted.job();
    let told = format!(
        "sbatch: lua: job {job}, step 4294967294: {{\"comment\":\"of_sbatch\",\"job-name\":\"default\",\"ntasks\":\"1\""
    );
    assert!(submitted.err.starts_with(&told), "{submitted:?}");
    assert_eq!(c.job_field(&job, "Comment").as_deref(), Some("of_sbatch"));
    c.await_state(&job, "FAILED");
    let out = c.read("out");
    let told = format!("srun: lua: job {job}, step 0: {{\"comment\":\"of_srun\"");
    assert!(out.contains(&told) && out.lines().any(|line| line == "default"), "{out}");
    assert!(
        out.ends_with("srun: error: lua: bad: not here\nsrun: error: cli_filter plugin terminated with error\n"),
        "{out}"
    );
    let named = c.shell("salloc -J own printenv SLURM_JOB_NAME").ok();
    assert_eq!(named.out, "own\n");
    assert!(named.err.contains("salloc: lua: job "), "{named:?}");
}
