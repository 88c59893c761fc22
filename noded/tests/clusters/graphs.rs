//! Graphs of steps: a file that says what waits for what, run as one job, and resumed.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::Cluster;

const ONE: &[&str] = &["--nodes", "1", "--cpus", "2", "--memory", "5000"];

/// Lines of a file that may not be there yet.
fn lines(c: &Cluster, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(c.work.join(name)).unwrap_or_default();
    let mut lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
    lines.sort();
    lines
}

fn write(c: &Cluster, name: &str, text: &str) {
    std::fs::write(c.work.join(name), text).unwrap();
}

/// The state of each step, with its name, sorted.
fn states(c: &Cluster, job: &str) -> Vec<String> {
    let answer = c.run("garrick", &["steps", job, "--noheader", "-o", "name:20,state:20"]).ok();
    let mut lines: Vec<String> =
        answer.out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    lines.retain(|line| !line.starts_with("batch "));
    lines.sort();
    lines.dedup();
    lines
}

/// `part.sh` refuses to run before its input is there, and before it is whole.
const PIPELINE: &str = r#"
#SBATCH --ntasks=2 --output=job.out
[defaults]
output = "/dev/null"
mem = 10

[[step]]
label = "reduce"
command = "cat part.* > all && wc -l < all > count"
reads = "part.{index}"
writes = "count"

[[step]]
label = "split"
command = "read -r go < go; for n in 0 1 2 3 4 5 6 7; do echo $n > raw.$n; done; mv raw.* in/"
writes = "in/done"

[[step]]
label = "work"
array = "0-7"
command = "n=$SLURM_STEP_ARRAY_TASK_ID; cp in/raw.$n tmp.$n && echo $WORD >> tmp.$n && mv tmp.$n part.$n"
reads = "in/done"
writes = "part.{index}"
environment = { WORD = "made" }

[[step]]
label = "check"
each = { size = ["small", "large"] }
command = ["sh", "-c", "test $(cat count) = 16 && echo $1 >> checked", "-", "{size}"]
reads = "count"
"#;

#[test]
fn a_graph_is_a_job_that_runs_each_step_behind_those_that_it_waits_for() {
    let c = Cluster::up("graph", ONE);
    let go = c.fifo("go");
    std::fs::create_dir(c.work.join("in")).unwrap();
    write(&c, "p.toml", PIPELINE);
    let summary = c.run("garrick", &["graph", "p.toml"]).ok().out;
    let want = "p.toml: 12 steps of 4 descriptions\nArrays: 1\nDependencies: 3 (3 by files)\n\
                Longest way: 4 steps: split > work > reduce > check\nWidest level: 2 of 8 steps at once\n";
    assert_eq!(summary, want);
    let job = c.run("sbatch", &["--graph", "p.toml"]).ok().job();
    // The job has the text.
    std::fs::remove_file(c.work.join("p.toml")).unwrap();
    std::fs::write(&go, "go\n").unwrap();
    c.await_state(&job, "COMPLETED");
    assert_eq!(c.job_field(&job, "JobName").as_deref(), Some("p.toml"));
    assert_eq!(c.read("count").trim(), "16");
    assert_eq!(lines(&c, "checked"), ["large", "small"]);
    assert_eq!(c.read("job.out"), format!("Submitted 12 steps {job}.[0-4]\n"));
    let want = ["check COMPLETED", "reduce COMPLETED", "split COMPLETED", "work COMPLETED"];
    assert_eq!(states(&c, &job), want);
}

#[test]
fn what_waits_for_a_failed_step_never_starts_and_the_job_ends_with_the_worst_exit_code() {
    let c = Cluster::up("graph-fails", ONE);
    let graph = r#"
[[step]]
label = "work"
array = "0-3"
command = "echo work >> ran; [ -e mended ] || [ $SLURM_STEP_ARRAY_TASK_ID != 2 ] || exit 7"
[[step]]
label = "reduce"
command = "echo reduce >> ran"
after = "work"
[[step]]
label = "report"
command = "echo report >> ran"
after = "afterany:reduce"
[[step]]
label = "mend"
command = "echo mend >> ran; exit 9"
after = "afternotok:work"
[[step]]
label = "mended"
command = "echo mended >> ran"
after = "mend"
"#;
    write(&c, "g.toml", graph);
    let failed = c.run("sbatch", &["--wait", "-n2", "-o", "job.out", "--graph", "g.toml"]);
    let job = failed.job();
    // The failure counts, and not that of what is there for it.
    assert_eq!(failed.code, 7, "{failed:?} {}", c.read("job.out"));
    assert_eq!(lines(&c, "ran"), ["mend", "report", "work", "work", "work", "work"]);
    let said = c.read("job.out");
    assert!(said.contains(&format!("step {job}.1 does not run: its dependency can never be satisfied")), "{said}");
    let told = format!(
        "srun: error: not all steps of the graph ended well (garrick steps {job} --failed); what never ran counts as 1\n\
         srun: error: step \"work\" (line 2): exit code 7\nsrun: error: step \"reduce\" (line 6): exit code 1\n"
    );
    // The step manager writes by way of the batch script's shepherd: its lines and those of srun may come in any order.
    let of_srun: String =
        said.lines().filter(|line| !line.starts_with("slurmstepd: ")).map(|line| format!("{line}\n")).collect();
    assert!(of_srun.ends_with(&told), "{said}");
    assert_eq!(
        states(&c, &job),
        ["mend FAILED", "mended CANCELLED", "reduce CANCELLED", "report COMPLETED", "work COMPLETED", "work FAILED"]
    );
    // Where nothing fails, what waits for a failure is not missed.
    write(&c, "mended", "");
    write(&c, "ran", "");
    let well = c.run("sbatch", &["--wait", "-n2", "-o", "job.out", "--graph", "g.toml"]);
    assert_eq!(well.code, 0, "{well:?} {}", c.read("job.out"));
    assert_eq!(lines(&c, "ran"), ["reduce", "report", "work", "work", "work", "work"]);
}

#[test]
fn what_was_handed_over_is_waited_for_though_a_step_was_declined() {
    let c = Cluster::up("graph-declined", ONE);
    let go = c.fifo("go");
    let graph = r#"
[[step]]
label = "large"
command = "true"
mem = "100G"
[[step]]
label = "small"
command = "read -r go < go; echo small >> ran; exit 3"
mem = 10
[[step]]
label = "many"
each = { n = "1..50" }
command = "echo {n} >> ran"
after = "large"
"#;
    write(&c, "g.toml", graph);
    let job = c.run("sbatch", &["-n2", "--mem=1000", "-o", "job.out", "--graph", "g.toml"]).ok().job();
    std::fs::write(&go, "go\n").unwrap();
    c.await_state(&job, "FAILED");
    let said = c.read("job.out");
    assert_eq!(lines(&c, "ran"), ["small"], "{said}");
    assert_eq!(c.job_field(&job, "ExitCode").as_deref(), Some("3:0"), "{said}");
    let waited = "srun: error: not all steps of the graph were handed over; those that were are waited for\n";
    assert!(said.contains("stdin:2: ") && said.contains(waited), "{said}");
    // Once, and not for each of fifty.
    assert_eq!(said.matches("line 2, which is labelled \"large\", is not a step").count(), 1, "{said}");
    assert!(said.ends_with("srun: error: step \"small\" (line 6): exit code 3\n"), "{said}");
}

#[test]
fn a_graph_of_another_folder_finds_its_files_and_values_there() {
    let c = Cluster::up("graph-folder", ONE);
    let graph = "\u{feff}#SBATCH -n2 --chdir=sub --output=job.out\r\n[[step]]\r\nlabel = \"a\"\r\nreads = \"raw\"\r\n\
                 command = [\"sh\", \"-c\", \"echo $1 >> ran\", \"-\", \"{n}\"]\r\neach = { n = \"@values\" }\r\n";
    write(&c, "g.toml", graph);
    std::fs::create_dir(c.work.join("sub")).unwrap();
    write(&c, "sub/raw", "");
    write(&c, "sub/values", "one\ntwo words\n");
    let summary = c.run("garrick", &["graph", "g.toml"]).ok().out;
    assert!(summary.starts_with("g.toml: 2 steps of 1 description\n"), "{summary}");
    let job = c.run("sbatch", &["--graph", "g.toml"]).ok().job();
    c.await_state(&job, "COMPLETED");
    assert_eq!(lines(&c, "sub/ran"), ["one", "two words"], "{}", c.read("sub/job.out"));
}

#[test]
fn a_graph_that_cannot_be_is_refused_with_its_lines_and_is_no_job() {
    let c = Cluster::up("graph-wrong", ONE);
    let graph = "[[step]]\nlabel = 'a'\ncommand = 'x'\nafter = 'c'\n[[step]]\nlabel = 'b'\ncommand = 'x'\nafter = 'a'\n\
                 [[step]]\nlabel = 'c'\ncommand = 'x'\nafter = ['b', 'd']\nreads = 'nothing'\n";
    write(&c, "g.toml", graph);
    let file = c.work.join("nothing");
    let want = [
        "g.toml:1: a circle, in which none could ever start: \"a\" waits for \"c\" (line 4), \"c\" waits for \"b\" (line 12), \
         \"b\" waits for \"a\" (line 8); take one of these out"
            .to_owned(),
        "g.toml:12: step \"c\" waits for \"d\", and no step has that label".to_owned(),
        format!("g.toml:13: \"c\" reads {}, which is not there, and no step writes it", file.display()),
    ];
    for (command, args) in [("garrick", &["graph", "g.toml"][..]), ("sbatch", &["--graph=g.toml"])] {
        let name = if command == "garrick" { "garrick graph" } else { "sbatch" };
        let refused = c.run(command, args);
        let want: Vec<String> = want.iter().map(|line| format!("{name}: error: {line}")).collect();
        assert_eq!(
            (refused.code, refused.err.lines().collect::<Vec<_>>()),
            (1, want.iter().map(String::as_str).collect())
        );
    }
    let script = c.run("sbatch", &["--graph=g.toml", "job.sh"]);
    assert!(script.code == 1 && script.err.contains("--graph has the commands"), "{script:?}");
    let outside = c.run("srun", &["--graph=g.toml"]);
    assert!(outside.code == 1 && outside.err.contains("sbatch --graph makes a job"), "{outside:?}");
    assert_eq!(c.run("squeue", &["-h", "-t", "all"]).ok().out, "");
}

#[test]
fn a_graph_is_resumed_with_exactly_what_did_not_complete() {
    let c = Cluster::up("graph-resume", ONE);
    let graph = r#"
[[step]]
label = "prepare"
command = "echo prepare >> ran"
[[step]]
label = "work"
array = "0-5"
command = "echo work $SLURM_STEP_ARRAY_TASK_ID >> ran; [ -e mended ] || [ $SLURM_STEP_ARRAY_TASK_ID != 3 ]"
after = "prepare"
[[step]]
label = "next"
array = "0-5"
command = "echo next $SLURM_STEP_ARRAY_TASK_ID >> ran; [ -e mended2 ] || [ $SLURM_STEP_ARRAY_TASK_ID != 5 ]"
after = "aftercorr:work"
[[step]]
label = "sum"
each = { n = "1..3" }
command = "echo sum {n} >> ran; [ -e mended2 ] || [ {n} != 2 ]"
after = "prepare"
[[step]]
label = "all"
command = "echo all >> ran"
after = ["next", "sum"]
"#;
    write(&c, "g.toml", graph);
    let run = |more: &[&str]| {
        write(&c, "ran", "");
        c.run("sbatch", &[&["--wait", "-n2", "-o", "job.out", "--graph", "g.toml"], more].concat())
    };
    let first = run(&[]);
    assert_eq!((first.code, lines(&c, "ran").len()), (1, 15), "{first:?} {:?}", lines(&c, "ran"));
    write(&c, "mended", "");
    let first = first.job();
    let second = run(&["--resume-from", &first]);
    assert_eq!(second.code, 1, "{second:?}");
    assert!(
        second.err.contains(&format!("12 of 17 steps completed in job {first} and are not run again")),
        "{second:?}"
    );
    assert_eq!(lines(&c, "ran"), ["next 3", "next 5", "sum 2", "work 3"], "{}", c.read("job.out"));
    write(&c, "mended2", "");
    let both = format!("{first},{}", second.job());
    let third = run(&["--resume-from", &both]);
    assert_eq!(
        (third.code, lines(&c, "ran")),
        (0, ["all", "next 5", "sum 2"].map(str::to_owned).to_vec()),
        "{third:?}"
    );
    let all = format!("{both},{}", third.job());
    let nothing = run(&["--resume-from", &all]);
    assert!(nothing.code == 0 && nothing.out.is_empty() && nothing.err.contains("17 of 17 steps"), "{nothing:?}");
    // The head of the file may say it, and what does not fit there is refused.
    write(&c, "g.toml", &format!("#SBATCH --resume-from={both}\n{graph}"));
    let of_head = run(&[]);
    assert_eq!(
        (of_head.code, lines(&c, "ran")),
        (0, ["all", "next 5", "sum 2"].map(str::to_owned).to_vec()),
        "{of_head:?}"
    );
    write(&c, "g.toml", &format!("#SBATCH --array=1-3\n{graph}"));
    let array = run(&[]);
    assert!(array.code == 1 && array.err.contains("g.toml: #SBATCH --array cannot stand in a graph"), "{array:?}");
    write(&c, "g.toml", graph);
    let array = c.shell("SBATCH_ARRAY_INX=1-3 sbatch --graph g.toml");
    assert!(array.code == 1 && array.err.contains("--array cannot be used with --graph"), "{array:?}");
    c.script("job.sh", "#!/bin/sh\n#SBATCH --graph=g.toml\ntrue\n");
    let script = c.run("sbatch", &["job.sh"]);
    assert!(script.code == 1 && script.err.contains("--graph is for the command line"), "{script:?}");
    // What has another command now runs, and what waits for it.
    write(&c, "g.toml", &graph.replace("\"echo sum {n}", "\"echo sums {n}"));
    let changed = run(&["--resume-from", &all]);
    assert_eq!(
        (changed.code, lines(&c, "ran")),
        (0, ["all", "sums 1", "sums 2", "sums 3"].map(str::to_owned).to_vec())
    );
}

#[test]
fn a_graph_may_be_handed_over_in_a_job_and_arrays_may_stand_in_a_list() {
    let c = Cluster::up("graph-in-job", ONE);
    let graph = "{\"step\": [{\"label\": \"b\", \"command\": [\"touch\", \"b\"], \"after\": \"a\"},\n\
                 {\"label\": \"a\", \"array\": \"3-4\", \"command\": \"test ! -e b && echo $SLURM_STEP_ARRAY_TASK_ID >> a\"}]}";
    write(&c, "g.json", graph);
    write(
        &c,
        "list",
        "--label one --array=1-3 -- echo $SLURM_STEP_ARRAY_TASK_ID >> list.out\n-d afterok:@one echo over >> list.out\n",
    );
    c.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH -n2 -o job.out\n\
         srun --async --mem=10 -o /dev/null --graph g.json && swait --exit-status; echo waited $?\n\
         srun --mem=10 -o /dev/null --graph g.json; echo again $?\n\
         srun --async --mem=10 -o /dev/null --from-file list; swait; echo listed $?\n",
    );
    c.sh("sbatch --wait job.sh").ok();
    let all = c.read("job.out");
    // What the step manager says comes when it does.
    let (by_stepd, said): (Vec<&str>, Vec<&str>) =
        all.split_inclusive('\n').partition(|line| line.starts_with("slurmstepd: "));
    let never = "slurmstepd: error: step 1.3 does not run: its dependency can never be satisfied\n";
    assert_eq!(by_stepd, [never], "{all}");
    let said = said.concat();
    assert!(said.starts_with("Submitted 3 steps 1.[0-1]\nwaited 0\nSubmitted 3 steps 1.[2-3]\n"), "{said}");
    let told =
        "srun: error: step \"a\" (line 2): exit code 1\nsrun: error: step \"b\" (line 1): exit code 1\nagain 1\n";
    assert!(said.contains(told), "{said}");
    assert!(said.ends_with("Submitted 4 steps 1.[4-5]\nlisted 0\n"), "{said}");
    assert_eq!(lines(&c, "a"), ["3", "4"]);
    assert_eq!(c.read("list.out").lines().last(), Some("over"));
}

#[test]
fn the_example_of_the_manual_runs_and_tries_again() {
    let c = Cluster::up("graph-manual", &["--nodes", "1", "--cpus", "8", "--memory", "5000"]);
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/graphs.md");
    let page = std::fs::read_to_string(page).unwrap();
    let graph = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    write(&c, "pipeline.toml", graph);
    write(&c, "raw.csv", &(0..300).map(|n| format!("{n}\n")).collect::<String>());
    c.script("split", "#!/bin/bash\nmkdir $2\nn=0\nwhile read -r l; do echo $l >> $2/$(( n++ % 100 )); done < $1\n");
    // Each tenth task fails at first.
    c.script("work", "#!/bin/bash\ncase $1 in *7) mkdir tried.${1#parts/} && exit 3;; esac\nwc -l < $1\n");
    let checked = c.run("garrick", &["graph", "pipeline.toml", "--svg", "-"]).ok();
    assert_eq!((checked.out.matches("<path ").count(), checked.out.contains("×100")), (2, true), "{checked:?}");
    let answer = c.run("sbatch", &["--wait", "-o", "job.out", "--graph", "pipeline.toml"]);
    assert_eq!(answer.code, 0, "{answer:?} {}", c.read("job.out"));
    assert_eq!(c.read("total"), "3\n".repeat(100));
    let job = answer.job();
    let tries = c.run("garrick", &["steps", &job, "--noheader", "--json=lines"]).ok();
    let twice = tries.out.lines().filter(|line| line.contains("\"tries\":2")).count();
    assert_eq!(twice, 10, "{}", tries.out);
    assert!(c.work.join("pipeline.pack").exists());
}
