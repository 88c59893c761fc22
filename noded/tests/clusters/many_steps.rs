//! Steps by the many, made of values, tables and JSON lines, and given up when too many of them fail.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::Cluster;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

const ONE: &[&str] = &["--nodes", "1", "--cpus", "2", "--memory", "5000"];

fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
    lines.sort();
    lines
}

/// Lines of a file that may not be there yet.
fn lines(c: &Cluster, name: &str) -> Vec<String> {
    sorted(&std::fs::read_to_string(c.work.join(name)).unwrap_or_default())
}

/// Runs a job of both CPUs to its end; what its script and `stepd` said.
fn job(c: &Cluster, script: &str) -> String {
    c.script("job.sh", &format!("#!/bin/bash\n#SBATCH -n2 -o job.out\n{script}\n"));
    c.sh("sbatch --wait job.sh").ok();
    c.read("job.out")
}

#[test]
fn every_combination_runs_once_and_its_values_are_whole_words() {
    let c = Cluster::up("each", ONE);
    c.script("one.sh", "#!/bin/bash\nline=$(printf '%s|' \"$#\" \"$@\")\necho \"$line\" >> ran\n");
    let values = ["plain", "two words", "a'b \"c\" $HOME `id` ; # * {x}"];
    std::fs::write(c.work.join("values.txt"), values.join("\n")).unwrap();
    let said = job(
        &c,
        "srun --async --mem=10 -o /dev/null --each 'seed=08..11' --each v=@values.txt ./one.sh --seed={seed} {v} {{seed}}\n\
         swait --exit-status; echo waited $?",
    );
    assert_eq!(said, "Submitted 12 steps 1.[0-11]\nwaited 0\n");
    let of = |seed| values.iter().map(move |value| format!("3|--seed={seed}|{value}|{{seed}}|"));
    let mut want: Vec<String> = ["08", "09", "10", "11"].into_iter().flat_map(of).collect();
    want.sort();
    assert_eq!(lines(&c, "ran"), want);
}

#[test]
fn rows_of_a_table_and_pairs_of_values_have_files_of_their_own() {
    let c = Cluster::up("table", ONE);
    std::fs::write(c.work.join("t.csv"), "name,factor,text\na,1,\"x, y\"\nb,2,\"say \"\"hi\"\"\"\n").unwrap();
    let said = job(
        &c,
        "srun --async --mem=10 --each-csv=t.csv -o out.{name} printf '%s %s\\n' {2} {text}\n\
         srun --async --mem=10 --zip --each a=1..3 --each b=x,y,z -o pair.{a} printf '%s%s' {a} {b}\n\
         srun --async --each a=1..3 --each b=x,y --zip printf {a} {b}; echo unequal $?\n\
         srun --async --each a=1..3 printf {b}; echo unknown $?\n\
         swait --exit-status; echo waited $?",
    );
    let want = "Submitted 2 steps 1.[0-1]\nSubmitted 3 steps 1.[2-4]\n\
                srun: error: --zip needs equally many values: a has 3, b has 2\nunequal 255\n\
                srun: error: {b} is none of the parameters ({a}); {{b}} stands for itself\nunknown 255\nwaited 0\n";
    assert_eq!(said, want);
    assert_eq!((c.read("out.a"), c.read("out.b")), ("1 x, y\n".to_owned(), "2 say \"hi\"\n".to_owned()));
    assert_eq!([1, 2, 3].map(|n| c.read(&format!("pair.{n}"))), ["1x", "2y", "3z"]);
}

#[test]
fn objects_in_lines_run_with_their_variables_and_input() {
    let c = Cluster::up("objects", ONE);
    std::fs::write(c.work.join("in.txt"), "from the file\n").unwrap();
    let tasks = [
        r#"{"command": ["bash", "-c", "echo $A, $HOME > vars.1"], "environment": {"A": "1 2", "HOME": "/none"}}"#,
        r#"{"command": "echo \"$A\", $HOME > vars.2", "environment": {"A": 3}, "name": "second"}"#,
        r#"{"command": ["cat"], "input": "in.txt", "options": ["-o", "cat.out"]}"#,
        r#"{"command": "true", "color": "red"}"#,
    ];
    std::fs::write(c.work.join("tasks.jsonl"), tasks.join("\n")).unwrap();
    let said = job(
        &c,
        "export HOME=/tmp A=0\nsrun --async --mem=10 --from-file=tasks.jsonl; echo handed over $?\nswait --exit-status; echo waited $?",
    );
    let want = "srun: error: tasks.jsonl:4: unknown field `color`, expected one of `command`, `options`, `environment`, \
                `input`, `name` (column 27)\nSubmitted 3 steps 1.[0-2]\nhanded over 1\nwaited 0\n";
    assert_eq!(said, want);
    assert_eq!((c.read("vars.1"), c.read("vars.2")), ("1 2, /none\n".to_owned(), "3, /tmp\n".to_owned()));
    assert_eq!(c.read("cat.out"), "from the file\n");
}

/// A task says that it started, and fails once there is a file of its name.
const FAILS: &str = "#!/bin/bash\necho $1 >> started\nuntil [ -e fail.$1 ]; do sleep 0.05; done\nexit 3\n";

fn fail(c: &Cluster, task: u32) {
    std::fs::write(c.work.join(format!("fail.{task}")), "").unwrap();
}

#[test]
fn an_array_that_fails_too_often_is_given_up_whatever_becomes_of_its_step_manager() {
    let c = Cluster::up("max-fails", ONE);
    c.script("fails.sh", FAILS);
    c.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH -n2 -o job.out\n\
         srun --async --mem=10 -o /dev/null --array=0-9 --max-fails=2 bash -c './fails.sh $SLURM_STEP_ARRAY_TASK_ID'\n\
         srun --async -n1 --mem=10 --step-priority=-5 -o other.out echo other\n\
         swait --step 0; echo over > over\n\
         until [ -e go ]; do sleep 0.05; done\n\
         swait --exit-status; echo waited $?\n",
    );
    let id = c.sh("sbatch job.sh").ok().job();
    let started = |tasks: &[&str]| c.await_that("the next have started", || lines(&c, "started") == tasks);
    started(&["0", "1"]);
    fail(&c, 0);
    started(&["0", "1", "2"]);
    let pid = c.stepd_of(&id, "n1").unwrap();
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    c.await_that("another stepd serves the run", || c.stepd_of(&id, "n1").is_some_and(|next| next != pid));
    fail(&c, 1);
    // A CPU is free, and none of the array gets it.
    c.await_that("the job's other step ran", || lines(&c, "other.out") == ["other"]);
    fail(&c, 2);
    c.await_that("all of the array is over", || !lines(&c, "over").is_empty());
    assert_eq!(lines(&c, "started"), ["0", "1", "2"]);
    let cancelled = format!("squeue -s -h -t CANCELLED -j {id} -O StepID:15,Reason:10,NodeList:12");
    let expected = format!("{:15}MaxFails  (MaxFails)", format!("{id}.0_[3-9]"));
    c.await_that("squeue knows what did not run, and why", || c.sh(&cancelled).ok().out.trim() == expected);
    let shown = c.sh(&format!("scontrol show step {id}.0_5")).ok().out;
    assert!(shown.contains("State=CANCELLED") && shown.contains("Reason=MaxFails"), "{shown}");
    std::fs::write(c.work.join("go"), "").unwrap();
    c.await_state(&id, "COMPLETED");
    let said = c.read("job.out");
    let why = format!("slurmstepd: error: step {id}.0_[3-9] does not run: 2 of 2 have failed (--max-fails=2)\n");
    assert!(said.contains(&why) && said.ends_with("waited 3\n"), "{said}");
    // The controller forgets the steps of a job that is over before the records do.
    let recorded = c.sh(&format!("garrick steps {id}.0_5 --noheader -o state:10,reason:0")).ok().out;
    assert_eq!(recorded, "CANCELLED too many of its list or array failed\n");
}

#[test]
fn a_list_that_fails_too_often_ends_what_runs_of_it_where_that_is_asked_for() {
    let c = Cluster::up("max-fails-kill", ONE);
    c.script("fails.sh", FAILS);
    c.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH -n2 -o job.out\n\
         srun --async --mem=10 -o /dev/null --each n=1..30 --max-fails=1,kill ./fails.sh {n}\n\
         srun --async -n1 --mem=10 --step-priority=-5 -o other.out echo other\n\
         swait --exit-status; echo waited $?\n",
    );
    let id = c.sh("sbatch job.sh").ok().job();
    c.await_that("two run", || lines(&c, "started") == ["1", "2"]);
    fail(&c, 2);
    // The first would go on for ever.
    c.await_state(&id, "COMPLETED");
    assert_eq!(
        (lines(&c, "started"), c.read("other.out")),
        (vec!["1".to_owned(), "2".to_owned()], "other\n".to_owned())
    );
    let said = c.read("job.out");
    let why = format!("slurmstepd: error: step {id}.[2-29] does not run: 1 of 1 have failed (--max-fails=1,kill)\n");
    assert!(said.contains(&why) && said.ends_with("waited 3\n"), "{said}");
}

#[test]
fn lines_of_a_list_wait_for_lines_before_them_by_their_labels() {
    let c = Cluster::up("labels", ONE);
    c.script(
        "after.sh",
        "#!/bin/bash\nname=$1; shift\nfor one; do [ -e done.$one ] || exit 9; done\ntouch done.$name\n",
    );
    let list = [
        "--label prepare ./after.sh a",
        "--label prepare ./after.sh b",
        "--label work -d afterok:@prepare ./after.sh c a b",
        "--label work -d afterok:@prepare ./after.sh d a b",
        "-d afterok:@work:@nobody ./after.sh never",
        "-d afterok:@work ./after.sh e c d",
        "--label work.0 ./after.sh never",
        "--label 'work.0 c;d' ./after.sh never",
    ];
    std::fs::write(c.work.join("list"), list.join("\n")).unwrap();
    let said =
        job(&c, "srun --async --mem=10 --from-file=list; echo handed over $?; swait --exit-status; echo waited $?");
    let want = "srun: error: list:5: no line before this one is labelled \"nobody\"\n\
                srun: error: list:7: \"work.0\" is no label (letters, digits, _ and -)\n\
                srun: error: list:8: \"work.0 c;d\" is no label (letters, digits, _ and -)\nSubmitted 5 steps 1.[0-4]\n\
                handed over 1\nwaited 0\n";
    assert_eq!(said, want);
    assert!(["a", "b", "c", "d", "e"].iter().all(|name| c.work.join(format!("done.{name}")).exists()));
}
