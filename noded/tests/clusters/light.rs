//! `srun` inside a job is a light program that becomes the whole command where it has to. Users see no difference but in speed.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::Cluster;
use std::{fs, io::Write as _};

/// Runs a script's lines in a job, once with each form of `srun`; what each wrote, with numbers of steps, processes and times
/// taken out. In it, `$S` is a file that differs between the two.
fn both(c: &Cluster, options: &str, lines: &str) -> [String; 2] {
    let head = format!(
        "#!/bin/bash\n#SBATCH {options} -t 5 -o out.%x -e out.%x\nset -u\nS=state.$SLURM_JOB_NAME\n\
         exe() {{ readlink /proc/$1/exe | sed 's,.*/,,'; }}\n"
    );
    ["light", "whole"].map(|form| {
        c.script(&format!("{form}.sh"), &format!("{head}export GARRICK_SRUN={form}\n{lines}"));
        c.shell(&format!("sbatch --wait -J {form} {form}.sh; rm -f state.{form}*")).ok();
        tidy(&c.read(&format!("out.{form}")))
    })
}

fn tidy(text: &str) -> String {
    let mut tidied = String::new();
    for line in text.lines() {
        // `[2026-11-26T09:13:27.065] error: ...`
        let line = line.strip_prefix('[').and_then(|rest| rest.split_once("] ")).map_or(line, |(_, rest)| rest);
        let mut of_job = false;
        let words = line.split(' ').map(|word| match word.split_once("StepId=") {
            Some((before, _)) => format!("{before}StepId=J.N"),
            None if std::mem::replace(&mut of_job, word == "job") && word.starts_with(|c: char| c.is_ascii_digit()) => {
                "J:".to_owned()
            }
            None => word.to_owned(),
        });
        tidied += &words.collect::<Vec<_>>().join(" ");
        tidied.push('\n');
    }
    tidied
}

#[test]
fn a_usual_step_needs_no_more_than_the_light_form() {
    let c = Cluster::up("light-usual", &["--cpus", "2"]);
    let which =
        "exe $(scontrol show step $SLURM_JOB_ID.$SLURM_STEP_ID | sed -n 's/.*SrunHost:Pid=[^:]*:\\([0-9]*\\).*/\\1/p')";
    let lines = format!(
        "echo '{which}' > $S\n\
         printf '#!/bin/bash\\nexe() {{ readlink /proc/$1/exe | sed s,.*/,,; }}\\n%s\\n' '{}' > $S.sh; chmod +x $S.sh\n\
         srun -n1 ./$S.sh\n\
         srun ./$S.sh\n\
         srun -n1 --exact -J named --quiet ./$S.sh\n\
         srun -n1 bash ./$S.sh\n\
         srun -n1 -o $S.out ./$S.sh; cat $S.out\n\
         srun -l -n1 ./$S.sh\n",
        which.replace('\'', "'\\''"),
    );
    let [light, whole] = both(&c, "-n1", &lines);
    assert_eq!(light, "srun\nsrun\nsrun\nsrun\ngarrick\n0: garrick\n");
    assert_eq!(whole, "garrick\ngarrick\ngarrick\ngarrick\ngarrick\n0: garrick\n");
}

#[test]
fn all_that_is_said_and_every_end_is_the_same() {
    let c = Cluster::up("light-same", &["--nodes", "2", "--cpus", "2"]);
    c.script("here", "#!/bin/sh\necho here in $PWD with $# words: \"$@\"\n");
    let lines = r#"
end() { echo "ended with $?"; }
srun -N1 -n1 true; end
srun -n1 hostname > /dev/null; end
srun -N1 -n1 bash -c 'exit 3'; end
srun -N1 -n1 bash -c 'kill -9 $$'; end
srun -N1 -n1 -K bash -c 'kill -TERM $$'; end
srun -N1 -n1 nosuchprogram; end
srun -N1 -n1 /nosuch/program; end
srun -N1 -n1 here 'a b' '' c; end
srun -N1 -n1 ./here; end
PATH=/nowhere /usr/bin/env -u X "$(command -v srun)" -N1 -n1 ls; end
srun -N1 -n1 -D / pwd; end
srun -N1 -n1 --nosuchoption x; end
srun -N1 -n1 --time=nonsense x; end
srun -n99 --immediate=60 x; end
srun -N1 -n1; end
srun -N1 -n1 -w nosuchnode true; end
srun -n2 bash -c 'echo $SLURM_PROCID of $SLURM_NTASKS; exit $SLURM_PROCID' | sort; end
srun -N1 -n1 -v true > $S.out 2>&1; end; grep -q 'srun: ' $S.out; end
(umask 027; ulimit -S -c 0; ulimit -S -n 99; nice -n 3 srun -N1 -n1 bash -c 'umask; ulimit -c; ulimit -n; nice'); end
srun -N1 -n1 --propagate=NONE bash -c 'echo $SLURM_STEP_NUM_TASKS $SLURM_STEP_NUM_NODES'; end
A='x y' B= srun -N1 -n1 env | grep -E '^(A|B|SLURM_JOB_NAME|SLURM_STEP_NUM_TASKS|SLURM_SRUN|GARRICK_LIGHT|SLURM_CPU_BIND_TYPE)' | grep -v NAME | sort; end
A=x srun -N1 -n1 --export=B=1 /usr/bin/env | grep -E '^(A|B)='; end
echo words | srun -N1 -n1 cat; end
srun -N1 -n1 cat < /dev/null; end
srun -N1 -n1 bash -c 'echo out; echo err >&2' 2>&1; end
srun -N1 -n1 -J named --mem=1 --exact -c1 -t 5 bash -c 'echo $SLURM_CPUS_PER_TASK'; end
srun -N1 -n1 -e $S.err bash -c 'echo err >&2'; end; cat $S.err
srun --jobid=99999 -n1 true; end
srun --jobid=$SLURM_JOB_ID -N1 -n1 echo own; end
srun -N1 -n1 echo a : -N1 -n1 echo b; end
exec 0<&-; srun -N1 -n1 echo closed; end
"#;
    let [light, whole] = both(&c, "-N2 -n2", lines);
    assert_eq!(light, whole);
    assert!(light.contains("ended with 3\n") && light.contains("ended with 137\n"), "{light}");
    assert!(light.contains("with 3 words: a b  c\n") && light.contains("closed\n"), "{light}");
}

#[test]
fn a_step_that_waits_says_so_once() {
    let c = Cluster::up("light-waits", &["--cpus", "1"]);
    let lines = r#"
mkfifo $S.go $S.said
srun --exact -n1 bash -c 'echo up > '$S.said'; cat '$S.go > /dev/null &
read -r _ < $S.said
srun --exact -n1 echo second 2> >(tee $S.err | { read -r line; echo "$line"; echo > $S.go; cat; }) | cat
wait
srun --quiet --exact -n1 echo third
"#;
    let [light, whole] = both(&c, "-n1", lines);
    let counted = |text: &str, what: &str| text.matches(what).count();
    for text in [&light, &whole] {
        assert_eq!(counted(text, "step creation temporarily disabled, retrying"), 1, "{text}");
        assert_eq!(counted(text, "srun: Step created for StepId="), 1, "{text}");
        assert_eq!((counted(text, "second\n"), counted(text, "third\n")), (1, 1), "{text}");
    }
}

#[test]
fn signals_reach_the_step_whatever_form_its_command_has() {
    let c = Cluster::up("light-signals", &["--cpus", "2"]);
    // Interrupts are ignored by what a shell without job control starts in the background: `set -m`. A step manager that has
    // answered another command has said before that the first one's step has begun.
    let lines = r#"
set -m
mkfifo $S.up
trapped() { echo 'trap "echo got USR1; exit 7" USR1; trap "echo got TERM; exit 8" TERM; sleep 1000 & echo up > '$S.up'; wait'; }
for signal in USR1 TERM; do
    srun -n1 bash -c "$(trapped)" & pid=$!
    read -r _ < $S.up; srun --overlap -n1 true
    kill -$signal $pid; wait $pid; echo "ended with $?"
done
srun -n1 bash -c 'sleep 1000 & echo up > '$S.up'; wait' & pid=$!
read -r _ < $S.up; srun --overlap -n1 true
kill -INT $pid
while ! grep -q 'one more within' out.$SLURM_JOB_NAME; do :; done
until grep -q 'sending Ctrl-C' out.$SLURM_JOB_NAME; do kill -INT $pid; sleep 0.1; done
wait $pid; echo "ended with $?"
"#;
    let [light, whole] = both(&c, "-n1", lines);
    let ends = |text: &str| {
        let ends = text.lines().filter(|line| line.starts_with("ended") || line.starts_with("got"));
        ends.map(str::to_owned).collect::<Vec<_>>()
    };
    for text in [&light, &whole] {
        assert_eq!(ends(text)[..4], ["got USR1", "ended with 7", "got TERM", "ended with 8"], "{text}");
        assert!(text.contains("srun: sending Ctrl-C to StepId="), "{text}");
        // By the interrupt, or by what follows it.
        assert!(["ended with 130", "ended with 143"].contains(&&*ends(text)[4]), "{text}");
    }
}

#[test]
fn a_step_manager_that_was_killed_is_found_again_by_the_whole_command() {
    let c = Cluster::up("light-killed", &["--cpus", "1"]);
    let up = c.fifo("up");
    let go = c.fifo("go");
    c.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH -n1 -o job.out -e job.out\n\
         srun -n1 bash -c 'echo up > up; read -r _ < go; exit 5'\necho \"ended with $?\"\n\
         srun -n1 true\necho \"ended with $?\"\n",
    );
    let job = c.sh("sbatch job.sh").ok().job();
    assert_eq!(fs::read_to_string(&up).unwrap(), "up\n");
    let stepd = c.stepd_of(&job, "n1").unwrap();
    c.kill(stepd);
    c.await_that("the command says so", || c.read("job.out").contains("srun: Lost contact with the step manager of "));
    // Open for both, since a step that was ended reads no more.
    let mut go = fs::OpenOptions::new().read(true).write(true).open(&go).unwrap();
    go.write_all(b"go\n").unwrap();
    c.await_that("the job is over", || c.read("job.out").matches("ended with").count() == 2);
    let out = c.read("job.out");
    // A step that ran still when its command was back was ended: what it wrote meanwhile would have had nowhere to go, had it
    // been relayed.
    let ends: Vec<&str> = out.lines().filter_map(|line| line.strip_prefix("ended with ")).collect();
    assert!(ends == ["5", "0"] || ends == ["137", "0"], "{out}");
    assert!(!out.contains("output of the step may be missing"), "{out}");
}
