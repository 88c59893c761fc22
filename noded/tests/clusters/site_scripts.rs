//! Programs of the site that the controller runs.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::Cluster;

const TWO: [&str; 6] = ["--nodes", "2", "--cpus", "4", "--memory", "4000"];
const ONE: [&str; 6] = ["--nodes", "1", "--cpus", "4", "--memory", "4000"];

#[test]
fn users_are_told_of_their_jobs_by_the_program_of_the_site() {
    let c = Cluster::up_with("site-mail", &ONE, |c| {
        let work = c.work.display();
        // Each mail is one line, so that lines of several do not mix.
        let text = format!(
            "#!/bin/sh\necho \"$#|$1|$2|$3|$SLURM_JOB_STATE|$SLURM_JOB_MAIL_TYPE|$SLURM_CLUSTER_NAME\" >> {work}/told\n\
             [ \"$SLURM_JOB_NAME\" != refused ] || {{ echo no such user; exit 67; }}\n"
        );
        c.script("mailer", &text);
        format!("MailProg={work}/mailer\nMailDomain=example.org")
    });
    let told = |what: &str| {
        c.await_that(what, || std::fs::read_to_string(c.work.join("told")).is_ok_and(|told| told.contains(what)));
        c.read("told").lines().find(|line| line.contains(what)).unwrap().to_owned()
    };
    let job = c.shell("sbatch -J 'a;b c' --mail-type=ALL --mail-user=bob -o /dev/null --wrap 'exit 3'").ok().job();
    let began = told(&format!("Job_id={job} Name=a;b c Began"));
    assert!(began.starts_with("3|-s|Slurm Job_id="), "{began}");
    assert!(began.ends_with("|bob@example.org|RUNNING|Began|garrick"), "{began}");
    let failed = told(&format!("Job_id={job} Name=a;b c Failed, Run time 00:00:"));
    assert!(failed.contains(", FAILED, ExitCode 3|bob@example.org|FAILED|Failed|"), "{failed}");
    // One that was not asked for tells nothing; what is asked for may change.
    let other = c.shell("sbatch -H --mail-type=BEGIN -o /dev/null --wrap true").ok().job();
    c.sh(&format!("scontrol update jobid={other} MailType=END MailUser=eve@here")).ok();
    let shown = c.sh(&format!("scontrol show job {other}")).ok().out;
    assert!(shown.contains("\n   MailUser=eve@here MailType=END\n"), "{shown}");
    let wrong = c.sh(&format!("scontrol update jobid={other} MailType=never"));
    assert!(wrong.code == 1 && wrong.err.contains("Invalid MailType: never"), "{wrong:?}");
    let hostile = c.shell("sbatch --mail-type=END --mail-user='-Sx|sh' -o /dev/null --wrap true");
    assert!(hostile.code == 1 && hostile.err.contains("is no address for mail"), "{hostile:?}");
    c.sh(&format!("scontrol release {other}")).ok();
    let ended = told(&format!("Job_id={other} Name=wrap Ended, Run time"));
    assert!(ended.contains(", COMPLETED, ExitCode 0|eve@here|COMPLETED|Ended|"), "{ended}");
    assert!(!c.read("told").contains(&format!("Job_id={other} Name=wrap Began")));
    // A program that fails is told to the administrator only.
    let refused = c.shell("sbatch -J refused --mail-type=END -o /dev/null --wrap true").ok().job();
    let log = "MailProg";
    c.await_that("the failure is logged", || c.logs().lines().any(|l| l.contains(log) && l.contains("no such user")));
    c.await_state(&refused, "COMPLETED");
}

#[test]
fn a_job_is_launched_after_the_controllers_prologs_and_over_after_its_epilogs() {
    let c = Cluster::up_with("site-ctld", &ONE, |c| {
        let work = c.work.display();
        let say = |what: &str| {
            format!("echo \"{what} $SLURM_JOB_NAME $SLURM_SCRIPT_CONTEXT $SLURM_JOB_NODELIST\" >> {work}/order")
        };
        c.script("first", &format!("#!/bin/sh\n{}\n[ $SLURM_JOB_NAME != bad ]\n", say("first")));
        // It waits for whoever holds it up.
        c.script("second", &format!("#!/bin/sh\n{}\n[ ! -p {work}/gate ] || read go < {work}/gate\n", say("second")));
        c.script("after", &format!("#!/bin/sh\n{}\nexit 5\n", say("after")));
        format!(
            "PrologSlurmctld={work}/first\nPrologSlurmctld={work}/second\nEpilogSlurmctld={work}/after\n\
                 SchedulerParameters=requeue_delay=3600"
        )
    });
    let job = c.shell(&format!("sbatch -J one -o out --wrap 'echo job >> {}/order'", c.work.display())).ok().job();
    c.await_state(&job, "COMPLETED");
    let around = "first one prolog_slurmctld n1\nsecond one prolog_slurmctld n1\njob\nafter one epilog_slurmctld n1\n";
    assert_eq!(c.read("order"), around);
    c.await_that("the failure is logged", || c.logs().contains("EpilogSlurmctld") && c.logs().contains("exit code 5"));
    // While the prolog runs, the job is being configured, through a restart of the controller.
    std::fs::remove_file(c.work.join("order")).unwrap();
    let gate = c.fifo("gate");
    let job = c.shell("sbatch -J held -o out --wrap true").ok().job();
    c.await_state(&job, "CONFIGURING");
    c.await_that("the prolog waits", || {
        std::fs::read_to_string(c.work.join("order")).is_ok_and(|o| o.contains("second"))
    });
    c.kill(c.pid_of("controller", None));
    c.sh("garrick up").ok();
    let twice = "first held prolog_slurmctld n1\nsecond held prolog_slurmctld n1\n".repeat(2);
    c.await_that("the prolog runs again", || c.read("order") == twice);
    assert_eq!(c.job_field(&job, "JobState").as_deref(), Some("CONFIGURING"));
    // Opened by the first reader, or by both.
    std::fs::write(&gate, "go\ngo\n").unwrap();
    std::fs::remove_file(&gate).unwrap();
    c.await_state(&job, "COMPLETED");
    // Whoever cannot be prepared is requeued, or cancelled where nobody could start it again.
    let bad = c.shell("sbatch -J bad -o out --wrap true").ok().job();
    c.await_that("it is requeued", || c.job_field(&bad, "Restarts").as_deref() == Some("1"));
    c.await_state(&bad, "PENDING");
    assert_ne!(c.job_field(&bad, "Priority").as_deref(), Some("0"), "it is not held");
    let interactive = c.shell("salloc -J bad true");
    assert!(interactive.code != 0 && interactive.err.contains("PrologSlurmctld failed, job killed"), "{interactive:?}");
}

#[test]
fn srun_runs_the_sites_programs_around_its_step_and_those_of_its_own_instead() {
    let c = Cluster::up_with("site-srun", &ONE, |c| {
        let work = c.work.display();
        let says = "echo \"$SLURM_SCRIPT_CONTEXT $SLURM_JOB_ID $# $1 $2\"";
        c.script("before", &format!("#!/bin/sh\n{says}\n[ \"$2\" != bad ]\n"));
        c.script("after", &format!("#!/bin/sh\n{says}\nexit 4\n"));
        c.script("own", "#!/bin/sh\necho own\n");
        format!("SrunProlog={work}/before\nSrunEpilog={work}/after")
    });
    let ran = c.shell("srun echo 'a b'");
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (0, "prolog_srun 1 2 echo a b\na b\nepilog_srun 1 2 echo a b\n"),
        "{ran:?}"
    );
    assert_eq!(ran.err, "srun: error: srun epilog failed status=4\n");
    // In jobs, where srun reads no configuration, whoever asks for nodes.
    let job = c
        .shell("sbatch -o out --wrap 'srun echo x; srun echo bad; srun --prolog=none --epilog=none echo y'")
        .ok()
        .job();
    c.await_state(&job, "COMPLETED");
    let out = c.read("out");
    let lines: Vec<&str> = out.lines().collect();
    let around = ["prolog_srun 2 2 echo x", "x", "epilog_srun 2 2 echo x", "srun: error: srun epilog failed status=4"];
    let failed = ["prolog_srun 2 2 echo bad", "srun: error: srun prolog failed rc = 1. Aborting step."];
    assert_eq!(lines, [&around[..], &failed, &["y"]].concat());
    let ran = c.shell(&format!("salloc srun --epilog={}/own echo z", c.work.display()));
    assert_eq!((ran.code, ran.out.as_str()), (0, "prolog_srun 3 2 echo z\nz\nown\n"), "{ran:?}");
}

#[test]
fn flags_say_when_prologs_and_the_batch_script_run_and_what_a_failure_means() {
    let up = |name: &str, size: &[&str], flags: &str| {
        Cluster::up_with(name, size, |c| {
            let work = c.work.display();
            let text = format!(
                "#!/bin/sh\necho begin $SLURM_JOB_ID $SLURMD_NODENAME >> {work}/order\n\
                 [ ! -p {work}/gate-$SLURM_JOB_ID-$SLURMD_NODENAME ] || read go < {work}/gate-$SLURM_JOB_ID-$SLURMD_NODENAME\n\
                 echo end $SLURM_JOB_ID $SLURMD_NODENAME >> {work}/order\n[ $SLURM_JOB_NAME != bad ]\n"
            );
            c.script("before", &text);
            format!("Prolog={work}/before\nPrologFlags={flags}\nSchedulerParameters=requeue_delay=3600")
        })
    };
    let said = |c: &Cluster, what: &str| std::fs::read_to_string(c.work.join("order")).is_ok_and(|o| o.contains(what));
    // At allocation on every node, though nothing ever runs on the second; the script after all of them.
    let c = up("flags-defer", &TWO, "Contain,DeferBatch");
    c.fifo("gate-1-n2");
    let job = c.shell(&format!("sbatch -N2 -o out --wrap 'echo script >> {}/order; sleep 100000'", c.work.display()));
    let job = job.ok().job();
    c.await_that("both prologs", || said(&c, "end 1 n1") && said(&c, "begin 1 n2"));
    assert_eq!(c.job_field(&job, "JobState").as_deref(), Some("CONFIGURING"));
    std::fs::write(c.work.join("gate-1-n2"), "go\n").unwrap();
    c.await_that("the script", || said(&c, "script"));
    assert!(c.read("order").ends_with("end 1 n2\nscript\n"), "{}", c.read("order"));
    assert!(c.stepd_of(&job, "n2").is_some(), "its container is there");
    c.sh(&format!("scancel {job}")).ok();
    c.await_state(&job, "CANCELLED");
    // One after the other on a node.
    let c = up("flags-serial", &ONE, "Serial");
    c.fifo("gate-1-n1");
    let first = c.shell("sbatch -n1 --mem 10 -o out --wrap true").ok().job();
    c.await_that("the first prolog", || said(&c, "begin 1"));
    let second = c.shell("sbatch -n1 --mem 10 -o out --wrap true").ok().job();
    c.await_state(&second, "CONFIGURING");
    std::fs::write(c.work.join("gate-1-n1"), "go\n").unwrap();
    [&first, &second].iter().for_each(|job| c.await_state(job, "COMPLETED"));
    assert_eq!(c.read("order"), "begin 1 n1\nend 1 n1\nbegin 2 n1\nend 2 n1\n");
    // Who forbids a requeue is cancelled, or requeued all the same.
    for (flags, state, restarts) in [("Alloc", "CANCELLED", "0"), ("ForceRequeueOnFail", "PENDING", "1")] {
        let c = up("flags-fail", &ONE, flags);
        let bad = c.shell("sbatch --no-requeue -J bad -o out --wrap true").ok().job();
        c.await_that("the node is drained", || c.sh("sinfo -h -R -o %E").ok().out.contains("Prolog error"));
        c.await_state(&bad, state);
        assert_eq!(c.job_field(&bad, "Restarts").as_deref(), Some(restarts), "{flags}");
    }
}

#[test]
fn nodes_are_rebooted_when_they_are_idle_and_return_as_was_asked() {
    let c = Cluster::up_with("site-reboot", &TWO, |c| {
        // It starts the daemon of its node anew, as another boot of its machine; that of the second node stays away.
        let text = format!(
            "#!/bin/bash\necho $# $SLURM_NODE_NAME >> {0}/told\nmapfile -d '' line < /proc/$PPID/cmdline\n\
             mapfile -d '' env < /proc/$PPID/environ\n[ $SLURM_NODE_NAME = n1 ] || exit 0\nkill -9 $PPID\n\
             while kill -0 $PPID 2> /dev/null; do :; done\nexec env -i \"${{env[@]}}\" setsid \"${{line[@]}}\" -b > {0}/again 2>&1\n",
            c.work.display()
        );
        c.script("reboot", &text);
        format!("RebootProgram={}/reboot\nResumeTimeout=5", c.work.display())
    });
    let state = |node: &str| crate::support::field_of(&c.sh(&format!("scontrol -o show node {node}")).out, "State");
    let reason = |node: &str| c.sh(&format!("sinfo -h -n {node} -o %E")).out;
    let told = || std::fs::read_to_string(c.work.join("told")).unwrap_or_default();
    let job = c.shell("sbatch -w n1 -o /dev/null --wrap 'sleep 100000'").ok().job();
    c.await_state(&job, "RUNNING");
    c.sh("scontrol reboot ASAP n1").ok();
    assert!(state("n1").unwrap().ends_with("+DRAIN+REBOOT_REQUESTED"), "{:?}", state("n1"));
    assert_eq!(c.sh("sinfo -h -n n1 -o %t").ok().out, "drng@\n");
    assert!(c.sh("scontrol show node n1").ok().out.contains("\n   NextState=UNDRAIN\n"));
    let skipped = c.sh("scontrol reboot n1");
    assert!(skipped.err.contains("Skipping reboot of nodes n1 due to current node state."), "{skipped:?}");
    c.sh("scontrol cancel_reboot n1").ok();
    assert_eq!((state("n1").as_deref(), told().as_str()), (Some("MIXED"), ""));
    let none = c.sh("scontrol cancel_reboot n1");
    assert_eq!((none.code, none.err.as_str()), (1, "slurm_update error: Invalid node state transition\n"));
    // Asked for again, it is rebooted when its job is gone, and in service then.
    c.sh("scontrol reboot ASAP n1").ok();
    c.sh(&format!("scancel {job}")).ok();
    c.await_that("it is back", || told() == "0 n1\n" && state("n1").as_deref() == Some("IDLE"));
    c.sh("srun -w n1 true").ok();
    // One that does not return in time is DOWN.
    c.sh("scontrol reboot n2 nextstate=resume reason=kernel").ok();
    c.await_that("it is told", || told() == "0 n1\n0 n2\n");
    assert_eq!(c.sh("sinfo -h -n n2 -o %t").ok().out, "boot^\n");
    c.await_that("it is given up", || reason("n2") == "kernel : reboot issued : reboot timed out\n");
    assert_eq!(state("n2").as_deref(), Some("DOWN"));
}

/// No daemon is started again for it.
#[test]
fn what_the_site_runs_on_nodes_is_read_again_by_reconfigure() {
    let c = Cluster::up_with("site-again", &ONE, |c| {
        let work = c.work.display();
        for name in ["old", "new"] {
            for moment in ["prolog", "epilog"] {
                c.script(&format!("{name}-{moment}"), &format!("#!/bin/sh\necho {name} {moment} >> {work}/order\n"));
            }
            c.script(&format!("{name}-task"), &format!("#!/bin/sh\necho print {name} task\n"));
        }
        format!("Prolog={work}/old-prolog\nEpilog={work}/old-epilog\nTaskProlog={work}/old-task")
    });
    let ran = || {
        let _ = std::fs::remove_file(c.work.join("order"));
        let job = c.shell("sbatch -o out --wrap true").ok().job();
        c.await_state(&job, "COMPLETED");
        format!("{}{}", c.read("order"), c.read("out"))
    };
    assert_eq!(ran(), "old prolog\nold epilog\nold task\n");
    let conf = c.conf_folder().join("slurm.conf");
    let before = std::fs::read_to_string(&conf).unwrap();
    std::fs::write(&conf, before.replace("/old-", "/new-")).unwrap();
    c.sh("scontrol reconfigure").ok();
    assert_eq!(ran(), "new prolog\nnew epilog\nnew task\n");
    let without = before.lines().filter(|line| !line.contains("log=")).collect::<Vec<_>>().join("\n");
    std::fs::write(&conf, format!("{without}\nEpilog={}/old-epilog\n", c.work.display())).unwrap();
    c.sh("scontrol reconfigure").ok();
    assert_eq!(ran(), "old epilog\n");
}

/// Runs that are over, one after the other: one that fails, one of two tasks of an array, one that never ran.
fn three_jobs(c: &Cluster) -> [String; 3] {
    let failed = c.shell("sbatch -J 'a b' -n2 -t 5 --comment=hi -o /dev/null --wrap 'exit 3'").ok().job();
    c.await_state(&failed, "FAILED");
    let array = c.shell("sbatch --array=4 -o /dev/null --wrap true").ok().job();
    c.await_state(&format!("{array}_4"), "COMPLETED");
    let held = c.shell("sbatch -H --wrap true").ok().job();
    c.sh(&format!("scancel {held}")).ok();
    [failed, array, held]
}

#[test]
fn jobs_that_are_over_are_lines_of_a_file_and_given_to_a_script() {
    let site = |c: &Cluster| format!("JobCompType=jobcomp/filetxt\nJobCompLoc={}/jobs.log", c.work.display());
    let c = Cluster::up_with("site-comp-file", &ONE, site);
    let [failed, array, held] = three_jobs(&c);
    let lines = || std::fs::read_to_string(c.work.join("jobs.log")).unwrap_or_default();
    c.await_that("all are recorded", || lines().lines().count() == 3);
    let line = |job: &str| lines().lines().find(|l| l.starts_with(&format!("JobId={job} "))).unwrap().to_owned();
    let first = line(&failed);
    for part in [" Name=a b JobState=FAILED ", " TimeLimit=5 ", " NodeList=n1 NodeCnt=1 ProcCnt=2 ", " ExitCode=3:0 "] {
        assert!(first.contains(part), "{part} in {first}");
    }
    assert!(line(&array).contains(&format!(" ArrayJobId={array} ArrayTaskId=4 ")));
    assert!(line(&held).contains(" JobState=CANCELLED ") && line(&held).contains(" NodeList=(null) "));
    let shown = c.sh("sacct -c -nP -o jobid,jobname,state,exitcode").ok().out;
    assert!(shown.contains(&format!("{failed}|a b|FAILED|3:0\n")) && shown.lines().count() == 3, "{shown}");
    let other = c.sh(&format!("sacct -nP -o jobid -j {held} -c -f {}/jobs.log", c.work.display()));
    assert_eq!(other.ok().out, format!("{held}\n"));
    c.down();

    let c = Cluster::up_with("site-comp-script", &ONE, |c| {
        let work = c.work.display();
        let text = "#!/bin/sh\nenv | sort | tr '\\n' '|' >> WORK/told\necho >> WORK/told\n[ $JOBSTATE != FAILED ]\n";
        c.script("completed", &text.replace("WORK", &work.to_string()));
        format!("JobCompType=jobcomp/script\nJobCompLoc={work}/completed")
    });
    let [failed, array, held] = three_jobs(&c);
    let told = || std::fs::read_to_string(c.work.join("told")).unwrap_or_default();
    // One that fails keeps no other from being recorded.
    c.await_that("all are recorded", || told().lines().count() == 3);
    let of = |job: &str| told().lines().find(|l| l.contains(&format!("|JOBID={job}|"))).unwrap().to_owned();
    for part in ["|EXITCODE=3:0|", "|JOBNAME=a b|", "|JOBSTATE=FAILED|", "|LIMIT=00:05:00|", "|PROCS=2|", "|BATCH=yes|"]
    {
        assert!(format!("|{}", of(&failed)).contains(part), "{part} in {}", of(&failed));
    }
    assert!(format!("|{}", of(&array)).contains(&format!("|ARRAYJOBID={array}|ARRAYTASKID=4|")));
    assert!(of(&held).contains("|JOBSTATE=CANCELLED|"));
    c.await_that("the failure is logged", || c.logs().contains("JobCompLoc"));
    c.down();
}

/// A server that is out of order for the first request, and gives the documents of the others.
fn server() -> (String, std::sync::mpsc::Receiver<serde_json::Value>) {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (documents, received) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for (at, stream) in listener.incoming().enumerate() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut length = 0;
            let mut line = String::new();
            while stream.read_line(&mut line).unwrap() > 2 {
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            let answer = if at == 0 { "503 Not now" } else { "201 Created" };
            let head = format!("HTTP/1.1 {answer}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}");
            stream.get_mut().write_all(head.as_bytes()).unwrap();
            if at > 0 && documents.send(serde_json::from_slice(&body).unwrap()).is_err() {
                return;
            }
        }
    });
    (address, received)
}

#[test]
fn jobs_that_are_over_are_documents_for_a_server_that_may_be_away() {
    let (address, documents) = server();
    let site = |_: &Cluster| {
        format!(
            "JobCompType=jobcomp/elasticsearch\nJobCompLoc={address}/jobs/_doc\nJobCompParams=send_script,send_comment"
        )
    };
    let c = Cluster::up_with("site-comp-http", &ONE, site);
    let jobs = three_jobs(&c);
    let patience = std::time::Duration::from_secs(60);
    let received: Vec<_> = jobs.iter().map(|_| documents.recv_timeout(patience).unwrap()).collect();
    let ids: Vec<String> = received.iter().map(|document| document["jobid"].to_string()).collect();
    assert_eq!(ids, jobs);
    assert_eq!((&received[0]["state"], &received[0]["comment"]), (&"FAILED".into(), &"hi".into()));
    assert!(received[0]["script"].as_str().unwrap().ends_with("\nexit 3\n"));
    assert_eq!(received[1]["array_task_id"], 4);
    c.down();
}

#[test]
fn a_shell_of_salloc_runs_on_a_node_of_the_allocation_where_the_site_says_so() {
    let c = Cluster::up_with("site-interactive", &["--nodes", "2", "--cpus", "4", "--memory", "4000"], |_| {
        "LaunchParameters=use_interactive_step\nInteractiveStepOptions=\"--interactive --preserve-env $SHELL\""
            .to_owned()
    });
    // The shell takes nothing from the steps that it starts.
    let typed = "echo $SLURMD_NODENAME $SLURM_STEP_NUM_TASKS; srun -n8 sh -c 'echo $SLURM_NTASKS $SLURMD_NODENAME'";
    let shell = c.shell(&format!("echo \"{}\" | SHELL=/bin/sh salloc -N2 -n8", typed.replace('$', "\\$"))).ok();
    let lines: Vec<&str> = shell.out.lines().collect();
    assert_eq!(lines.first(), Some(&"n1 1"), "{shell:?}");
    let on = |node: &str| lines.iter().filter(|line| **line == format!("8 {node}")).count();
    assert_eq!((on("n1"), on("n2")), (4, 4), "{shell:?}");
    // A command is run where it was called.
    let here = c.shell("salloc -N2 -n8 sh -c 'echo [$SLURMD_NODENAME]'").ok();
    assert_eq!(here.out, "[]\n", "{here:?}");
}
