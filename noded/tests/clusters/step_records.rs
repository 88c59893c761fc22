//! What became of a job's steps: asked while it runs, after it, after its step manager and the daemons were killed, and when
//! the controller has forgotten it; and who may ask, and for how long.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{Answer, Cluster, built, copy_program, is_root};

const TWO: &[&str] = &["--nodes", "2", "--cpus", "2", "--memory", "2000"];

/// Every 50th task of an array fails, and says so; then the script waits to be let go.
fn job(c: &Cluster) {
    c.script(
        "task.sh",
        "#!/bin/bash\nn=$SLURM_STEP_ARRAY_TASK_ID\n(( n % 50 == 7 )) || exit 0\necho $SLURM_JOB_ID.${SLURM_STEP_ARRAY_ID}_$n >> failed\nexit 3\n",
    );
    c.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH -N2 -n4 --exclusive -o job.out\n\
         srun --async --array=0-299 --mem=10 -o /dev/null ./task.sh\n\
         [ -p half ] && cat half > /dev/null\n\
         swait\necho steps are over > over\nread -r go < go\n",
    );
}

#[track_caller]
fn failed(c: &Cluster, job: &str) -> Vec<String> {
    let answer = c.run("garrick", &["steps", job, "--failed", "--noheader", "-o", "step:0"]).ok();
    let mut lines: Vec<String> = answer.out.lines().map(|line| line.trim().to_owned()).collect();
    lines.sort();
    lines
}

fn said(c: &Cluster) -> Vec<String> {
    let mut lines: Vec<String> = c.read("failed").lines().map(ToOwned::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn which_steps_failed_is_known_in_the_job_and_after_it_whoever_was_killed() {
    let c = Cluster::up_with("step-records", TWO, |_| "MinJobAge=2".to_owned());
    let go = c.fifo("go");
    let half = c.fifo("half");
    job(&c);
    let job = c.sh("sbatch job.sh").ok().job();
    c.await_that("some steps ran", || c.work.join("failed").exists());
    c.kill(c.stepd_of(&job, "n1").unwrap());
    std::fs::write(&half, "on\n").unwrap();
    c.await_that("its steps are over", || c.work.join("over").exists());
    assert_eq!(said(&c).len(), 6, "{:?}", said(&c));
    assert_eq!(failed(&c, &job), said(&c), "while the job runs");
    // By name, and with what is told of each.
    let one = c.run("garrick", &["steps", &format!("{job}.0_57"), "--json=lines"]).ok();
    let object: serde_json::Value = serde_json::from_str(one.out.trim()).unwrap();
    let told = (&object["state"], &object["exit_code"], &object["command"][0], &object["tries"]);
    assert_eq!(told, (&"FAILED".into(), &3.into(), &"./task.sh".into(), &1.into()), "{object}");
    assert!(object["elapsed"].is_number() && object["max_rss_kib"].as_u64().unwrap() > 0, "{object}");

    let why = c.run("garrick", &["why", &format!("{job}.0_57")]).ok().out;
    let expected = format!("Step {job}.0_57 ended as FAILED, with exit code 3.\nIt ran ");
    assert!(why.starts_with(&expected) && why.contains("\nCommand: ./task.sh\nOutput: /dev/null\n"), "{why}");

    std::fs::write(&go, "go\n").unwrap();
    c.await_that("the job is over", || !c.run("squeue", &["-h", "-j", &job]).out.contains(&job));
    assert_eq!(failed(&c, &job), said(&c), "after the job");
    c.sh("garrick down").ok();
    c.sh("garrick up").ok();
    c.await_that("the controller has forgotten it", || c.run("scontrol", &["show", "job", &job]).code != 0);
    assert_eq!(failed(&c, &job), said(&c), "when the controller has forgotten it");

    let summary = c.run("garrick", &["steps", &job, "--summary", "--joblog", "log", "--svg", "use.svg"]).ok().out;
    assert!(summary.starts_with("Steps: 300\n") && summary.contains("Use of 4 CPUs"), "{summary}");
    let log = c.read("log");
    let fields = |line: &str| line.split('\t').map(|word| word.trim().to_owned()).collect::<Vec<_>>();
    let failures = log.lines().skip(1).map(fields).filter(|fields| fields[6] == "3").count();
    assert_eq!((log.lines().count(), failures), (301, 6));
    assert!(c.read("use.svg").starts_with("<svg"));
    let Answer { code, err, .. } = c.run("garrick", &["steps", "4711"]);
    assert!(code == 1 && err.contains("no records of job 4711"), "{code} {err}");
}

#[test]
fn who_follows_a_job_sees_each_step_fail_once_whoever_is_killed() {
    let c = Cluster::up("step-follow", TWO);
    let (go, half) = (c.fifo("go"), c.fifo("half"));
    job(&c);
    let job = c.sh("sbatch job.sh").ok().job();
    c.await_that("some steps ran", || c.work.join("failed").exists());
    let follow = |args: &[&str]| {
        let mut command = c.command("garrick");
        command.args(["steps", &job, "--follow", "--noheader", "-o", "step:0"]).args(args);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        crate::support::Killed(command.spawn().unwrap())
    };
    let mut all = follow(&[]);
    let mut chosen = follow(&["--state=failed"]);
    let mut out = all.0.stdout.take().unwrap();
    let mut first = [0];
    std::io::Read::read_exact(&mut out, &mut first).unwrap();
    c.kill(c.stepd_of(&job, "n1").unwrap());
    c.kill(c.pid_of("node", Some("n1")));
    c.sh("garrick up").ok();
    std::fs::write(&half, "on\n").unwrap();
    c.await_that("its steps are over", || c.work.join("over").exists());
    std::fs::write(&go, "go\n").unwrap();
    let mut told = String::from_utf8_lossy(&first).into_owned();
    std::io::Read::read_to_string(&mut out, &mut told).unwrap();
    let lines = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
        lines.sort();
        lines
    };
    assert_eq!(lines(&told), said(&c));
    let mut err = String::new();
    std::io::Read::read_to_string(&mut all.0.stderr.take().unwrap(), &mut err).unwrap();
    assert_eq!(all.0.wait().unwrap().code(), Some(0), "{err}");
    assert!(err.ends_with(&format!("job {job}: 0 queued, 0 running, 294 done, 6 failed\n")), "{err}");
    let mut told = String::new();
    std::io::Read::read_to_string(&mut chosen.0.stdout.take().unwrap(), &mut told).unwrap();
    assert_eq!(lines(&told), said(&c));
    assert_eq!(chosen.0.wait().unwrap().code(), Some(0));
    // Of a job that is over all is told at once.
    let after = c.run("garrick", &["steps", &job, "--follow", "--failed", "--noheader", "-o", "step:0"]).ok();
    assert_eq!(lines(&after.out), said(&c));
}

#[test]
fn a_task_of_an_array_that_the_controller_has_forgotten_is_found_as_one() {
    let c = Cluster::up_with("step-records-task", TWO, |_| "MinJobAge=2".to_owned());
    let wrap = "srun bash -c 'exit $SLURM_ARRAY_TASK_ID'";
    let array = c.run("sbatch", &["--wait", "--array=0-3", "-o", "/dev/null", "--wrap", wrap]).out;
    let array = array.split_whitespace().last().unwrap().to_owned();
    let forgotten = || c.run("scontrol", &["show", "job", &array]).code != 0;
    c.await_that("the controller has forgotten it", forgotten);
    for task in [0, 2, 3] {
        let shown = c.run("garrick", &["steps", &format!("{array}_{task}"), "--noheader", "-o", "step:0 ,exit:0"]).ok();
        let lines: Vec<&str> = shown.out.lines().map(str::trim).collect();
        assert!(lines.contains(&format!("{array}_{task}.0 {task}:0").as_str()), "{lines:?}");
        assert_eq!(lines.len(), 2, "its step and its batch script: {lines:?}");
    }
    let followed = c.sh(&format!("garrick steps {array}_3.0 --follow --noheader -o step:0")).ok();
    assert_eq!(followed.out, format!("{array}_3.0\n"));
    let none = c.sh(&format!("garrick steps {array}_4"));
    assert!(none.code == 1 && none.err.contains(&format!("no records of job {array}_4")), "{none:?}");
    // Without the controller the node beside is asked.
    c.kill(c.pid_of("controller", None));
    let here = c.sh(&format!("garrick steps {array}_2.0 --noheader -o step:0")).ok();
    assert_eq!(here.out, format!("{array}_2.0\n"), "{here:?}");
    c.sh("garrick up").ok();
}

#[test]
fn records_of_somebody_elses_steps_are_not_shown() {
    if !is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let c = Cluster::up("step-records-whose", TWO);
    c.script("job.sh", "#!/bin/bash\n#SBATCH -o /dev/null\nsrun true --a-secret-word\n");
    let job = c.sh("sbatch --wait job.sh").ok().job();
    let own = c.run("garrick", &["steps", &job]).ok();
    assert!(own.out.contains("--a-secret-word"), "{own:?}");
    let program = c.work.join("for-others");
    copy_program(&built().join("garrick"), &program);
    for which in [job.clone(), format!("{job}.0")] {
        let ask =
            format!("setpriv --reuid=65534 --regid=65534 --clear-groups {} garrick steps {which}", program.display());
        let other = c.shell(&ask);
        assert!(other.code == 1 && other.err.contains("Access/permission denied"), "{other:?}");
        assert!(!other.out.contains("secret"), "{other:?}");
    }
}

#[test]
fn records_are_removed_when_the_site_says_so() {
    let c = Cluster::up_changed("step-records-size", TWO, |_, own| {
        own.replace("SlurmdParameters=config_overrides", "SlurmdParameters=config_overrides,step_records_mib=0")
    });
    let job = c.run("sbatch", &["--wait", "-o", "/dev/null", "--wrap", "srun true"]).ok().job();
    c.await_that("its records are removed", || c.run("garrick", &["steps", &job]).code == 1);
}

#[test]
fn what_failed_runs_again_alone_and_what_a_limit_cut_off_is_resumed() {
    let c = Cluster::up("step-again", TWO);
    c.script(
        "task.sh",
        "#!/bin/bash\nn=$SLURM_STEP_ARRAY_TASK_ID\necho $n $WORD >> ran\n[ -e mended ] || (( n % 10 != 3 ))\n",
    );
    c.script("line.sh", "#!/bin/bash\necho line $1 >> ran\n[ -e mended ] || [ $1 != two ]\n");
    std::fs::write(c.work.join("list"), "# lines\n./line.sh one\n./line.sh two\n./line.sh three\n").unwrap();
    c.script(
        "first.sh",
        "#!/bin/bash\n#SBATCH -n2 -o first.out\nexport WORD=kept\n\
         srun --async --array=0-29 -o /dev/null ./task.sh\nsrun --async --from-file list -o /dev/null\nswait\n",
    );
    let first = c.sh("sbatch --wait first.sh").ok().job();
    let lines = |c: &Cluster| {
        let mut lines: Vec<String> = c.read("ran").lines().map(ToOwned::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(lines(&c).len(), 33, "{:?}", lines(&c));
    std::fs::write(c.work.join("ran"), "").unwrap();
    std::fs::write(c.work.join("mended"), "").unwrap();
    c.script(
        "again.sh",
        &format!(
            "#!/bin/bash\n#SBATCH -n2 -o again.out\nsrun --async --rerun-failed {first}\nswait\n\
             srun --async --rerun-failed $SLURM_JOB_ID\nsrun --async --rerun-failed {first}.1\n"
        ),
    );
    let again = c.sh("sbatch --wait again.sh").ok().job();
    assert_eq!(lines(&c), ["13 kept", "23 kept", "3 kept", "line two"]);
    let out = c.read("again.out");
    assert!(out.contains(&format!("Submitted steps {again}.[0-1]\n")), "{out}");
    assert!(out.contains(&format!("{again}: no step is to be run again")), "{out}");
    let of = c.run("garrick", &["steps", &format!("{again}.0_13"), "--noheader", "-o", "againof:0"]).ok();
    assert_eq!(of.out.trim(), format!("{first}.0_13"));

    // Of ten steps one after the other three run before the job's end.
    std::fs::write(c.work.join("ran"), "").unwrap();
    c.script("slow.sh", "#!/bin/bash\necho $SLURM_STEP_ARRAY_TASK_ID >> ran\n[ -e mended2 ] || (( SLURM_STEP_ARRAY_TASK_ID < 3 )) || read -r go < go\n");
    c.fifo("go");
    c.script(
        "cut.sh",
        "#!/bin/bash\n#SBATCH -n1 -o cut.out\nsrun --async --array=0-9%1 -o /dev/null ./slow.sh\nswait\n",
    );
    let cut = c.sh("sbatch cut.sh").ok().job();
    c.await_that("the fourth step runs", || lines(&c) == ["0", "1", "2", "3"]);
    let why = c.run("garrick", &["why", &format!("{cut}.0_5")]).ok().out;
    assert!(why.contains("1 tasks of its array run, and 1 may at a time"), "{why}");
    c.run("scancel", &[&cut]).ok();
    c.await_that("the job is over", || c.job_field(&cut, "JobState").as_deref() == Some("CANCELLED"));
    c.await_that("its records are closed", || {
        let steps = c.run("garrick", &["steps", &cut, "-t", "pending,running", "--noheader"]);
        steps.code == 0 && steps.out.is_empty()
    });
    std::fs::write(c.work.join("ran"), "").unwrap();
    std::fs::write(c.work.join("mended2"), "").unwrap();
    c.script("resume.sh", &format!("#!/bin/bash\n#SBATCH -n1 -o resume.out\nsrun --async --resume {cut}\nswait\n"));
    c.sh("sbatch --wait resume.sh").ok();
    assert_eq!(lines(&c), ["3", "4", "5", "6", "7", "8", "9"], "{}", c.read("resume.out"));
}

#[test]
fn every_command_knows_steps_that_the_controller_forgot() {
    let c = Cluster::up("step-records-many", TWO);
    c.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH -n4 -o job.out\n\
         srun --async --array=0-1499 -o /dev/null bash -c '(( SLURM_STEP_ARRAY_TASK_ID % 500 != 7 ))'\nswait\n",
    );
    let job = c.sh("sbatch --wait job.sh").ok().job();
    let shown = c.run("squeue", &["-h", "-s", "-j", &job, "-t", "F", "-o", "%i"]).ok();
    let mut shown: Vec<&str> = shown.out.lines().map(str::trim).collect();
    shown.sort_unstable();
    assert_eq!(shown, ["1.0_1007", "1.0_507", "1.0_7"].map(|id| id.replacen('1', &job, 1)));
    let one = c.run("scontrol", &["show", "step", &format!("{job}.0_7")]).ok();
    assert!(one.out.contains("State=FAILED"), "{one:?}");
    let waited = c.run("swait", &["--exit-status", "--step", "0_507", &job]);
    assert_eq!(waited.code, 1, "{waited:?}");
}
