//! What helps people find: completion in real shells, `garrick help`, colours at a terminal.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "shared with other tests")]
use crate::fake_door::{FakeCluster, Shown, views::job_view};
use crate::terminal::{read_until, start_at, terminal};
use garrick_model::{
    ids::JobId,
    messages::command::{CommandReply, CommandRequest},
    spec::JobSpec,
    state::JobState,
    testing,
    time::Timestamp,
};
use std::{fs, fs::File, io::Write as _, os::unix::fs::symlink, process::Command, sync::Arc};

/// A controller with one job of the user.
fn with_a_job() -> FakeCluster {
    FakeCluster::with_controller(|mut door| {
        while let Some(request) = door.hear() {
            match request {
                CommandRequest::ListJobs { .. } => {
                    let job = Arc::new(job_view(JobId(503), testing::spec(), JobState::Running));
                    door.say(CommandReply::Jobs { jobs: vec![job], at: Timestamp(0), more: false });
                }
                _ => door.say(CommandReply::Done),
            }
        }
    })
}

/// A shell where `garrick` is in `PATH`; `None`, with a message, where there is no such shell.
fn shell(cluster: &FakeCluster, name: &str) -> Option<Command> {
    let found =
        ["/usr/bin", "/bin"].into_iter().map(|folder| format!("{folder}/{name}")).find(|p| fs::exists(p).unwrap());
    let Some(program) = found else {
        eprintln!("skipped: no {name} here");
        return None;
    };
    let bin = cluster.home.join("bin");
    fs::create_dir_all(&bin).unwrap();
    let link = bin.join("garrick");
    if !link.exists() {
        symlink(env!("CARGO_BIN_EXE_garrick"), link).unwrap();
    }
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
        .env("HOME", &cluster.home)
        .env("TERM", "dumb")
        .env("SLURM_CONF", cluster.home.join("etc/slurm.conf"))
        .current_dir(&cluster.home);
    Some(command)
}

fn said(command: &mut Command, script: &str) -> String {
    let shown = Shown::of(command.args(["-c", script]).output().unwrap());
    assert_eq!(shown.err, "", "{script}");
    shown.out
}

#[test]
fn bash_completes() {
    let cluster = with_a_job();
    cluster.file("job.sh", "");
    let Some(mut bash) = shell(&cluster, "bash") else { return };
    // As bash calls it: words are divided at blanks, and at `=` too.
    let script = r#"
        source <(garrick completion bash)
        complete -p sbatch
        try() {
            COMP_LINE=$1 COMP_POINT=${#1}; shift
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
            _garrick_complete; echo "${COMPREPLY[@]}"
        }
        try 'squeue --noh' squeue --noh
        try 'sbatch --open-mode=a' sbatch --open-mode = a
        try 'sbatch --open-mode=' sbatch --open-mode =
        try 'scontrol requeueh' scontrol requeueh
        try 'scancel ' scancel ''
        try 'sbatch jo' sbatch jo
        try 'sbatch --output=jo' sbatch --output = jo
        try 'squeue -u roo' squeue -u roo
        try 'squeue --nosuch' squeue --nosuch
    "#;
    assert_eq!(
        said(&mut bash, script),
        "complete -F _garrick_complete sbatch\n--noheader\nappend\nappend truncate\nrequeuehold\n503\njob.sh\njob.sh\nroot\n\n"
    );
}

#[test]
fn fish_completes() {
    let cluster = with_a_job();
    cluster.file("job.sh", "");
    let Some(mut fish) = shell(&cluster, "fish") else { return };
    let script = r#"
        source (garrick completion fish | psub)
        for line in 'squeue --noh' 'sbatch --open-mode=a' 'scontrol requeueh' 'scancel ' 'sbatch jo' 'sbatch --output=jo'
            complete -C $line
        end
    "#;
    assert_eq!(
        said(&mut fish, script),
        "--noheader\tno heading\n--open-mode=append\nrequeuehold\tput jobs back into the queue, held\n503\ttest RUNNING\n\
         job.sh\n--output=job.sh\n"
    );
}

#[test]
fn zsh_completes() {
    let cluster = with_a_job();
    cluster.file("job.sh", "");
    let Some(mut zsh) = shell(&cluster, "zsh") else { return };
    zsh.args(["-f", "-i"]);
    let at = terminal();
    let mut child = start_at(zsh, &at.slave);
    let mut master = File::from(at.master);
    master
        .write_all(
            b"autoload -Uz compinit; compinit -u -D; source <(garrick completion zsh)\n\
              squeue() { print -r -- \"got: $*\" }; sbatch() { squeue $* }; scancel() { squeue $* }; print rea''dy\n",
        )
        .unwrap();
    read_until(&mut master, "ready\r\n");
    for (typed, got) in [
        ("squeue --noh\t", "got: --noheader"),
        ("sbatch --open-mode=a\t", "got: --open-mode=append"),
        ("scancel \t", "got: 503"),
        ("sbatch jo\t", "got: job.sh"),
    ] {
        // Whatever is completed, there is an end.
        master.write_all(format!("{typed}\n print e''nd\n").as_bytes()).unwrap();
        let seen = read_until(&mut master, "\nend\r\n");
        assert!(seen.contains(got), "{typed}: {seen}");
    }
    master.write_all(b"exit\n").unwrap();
    drop(master);
    child.wait().unwrap();
}

#[test]
fn completions_of_a_cluster_that_is_down_are_empty_and_silent() {
    let cluster = FakeCluster::dead();
    let shown = cluster.run(&["complete", "scancel "]);
    assert_eq!(shown, Shown { out: "words\n".to_owned(), err: String::new(), code: Some(0) });
    assert_eq!(cluster.run(&["completion", "tcsh"]).code, Some(1));
}

#[test]
fn completions_of_a_cluster_that_does_not_answer_end() {
    let cluster = FakeCluster::with_controller(|mut door| while door.hear::<CommandRequest>().is_some() {});
    assert_eq!(cluster.run(&["complete", "scancel "]), Shown { out: String::new(), err: String::new(), code: Some(0) });
}

#[test]
fn names_of_jobs_cannot_write_to_the_terminal() {
    let cluster = FakeCluster::with_controller(|mut door| {
        while let Some(CommandRequest::ListJobs { .. }) = door.hear() {
            let spec = JobSpec { name: "a\x1b[2J\tb\nc".to_owned(), ..testing::spec() };
            let job = Arc::new(job_view(JobId(503), spec, JobState::Running));
            door.say(CommandReply::Jobs { jobs: vec![job], at: Timestamp(0), more: false });
        }
    });
    let shown = cluster.run(&["complete", "scancel "]);
    assert_eq!(shown.out.lines().count(), 2, "{shown:?}");
    assert!(shown.out.starts_with("words\n503\ta") && !shown.out.contains('\x1b'), "{shown:?}");
    assert_eq!(shown.out.matches('\t').count(), 1, "{shown:?}");
}

#[test]
fn names_are_explained_and_slips_get_a_suggestion() {
    let cluster = FakeCluster::dead();
    let shown = cluster.run(&["help", "KillWait"]);
    assert!(shown.out.starts_with("KillWait (key of slurm.conf)\n    ") && shown.err.is_empty(), "{shown:?}");
    assert_eq!(shown.code, Some(0));
    let shown = cluster.run(&["help", "--partitoin"]);
    let err = "garrick: error: nothing is called --partitoin\ngarrick: did you mean partition?\n";
    assert_eq!(shown, Shown { out: String::new(), err: err.to_owned(), code: Some(1) });
}

/// What a command prints at a terminal, to its end.
fn at_terminal(cluster: &FakeCluster, args: &[&str], variables: &[(&str, &str)]) -> String {
    let at = terminal();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "\"$@\"; echo; echo end", "sh", env!("CARGO_BIN_EXE_garrick")]).args(args).env_clear();
    command.env("SLURM_CONF", cluster.home.join("etc/slurm.conf")).envs(variables.iter().copied());
    let mut child = start_at(command, &at.slave);
    let mut master = File::from(at.master);
    let seen = read_until(&mut master, "\r\nend\r\n");
    child.wait().unwrap();
    seen
}

#[test]
fn colours_and_hints_are_for_terminals() {
    let cluster = FakeCluster::dead();
    let term = ("TERM", "xterm");
    let help = at_terminal(&cluster, &["squeue", "--help"], &[term]);
    assert!(help.contains("\x1b[1mUsage:\x1b[0m squeue") && help.contains("\x1b[36m-A, --account="), "{help}");
    let error = at_terminal(&cluster, &["squeue", "-i", "x"], &[term]);
    assert!(error.starts_with("squeue: \x1b[1;31merror:\x1b[0m --iterate=x\r\n"), "{error}");
    let hint = at_terminal(&cluster, &["squeue", "--partitoin=x"], &[term]);
    assert!(hint.contains("squeue: did you mean '--partition'?\r\n"), "{hint}");
    let hint = at_terminal(&cluster, &["scontrol", "shwo"], &[term]);
    assert!(hint.starts_with("invalid keyword: shwo\r\nscontrol: did you mean show?\r\n"), "{hint}");
    for variables in [&[term, ("NO_COLOR", "1")], &[("TERM", "dumb"), ("A", "b")]] {
        for args in [["squeue", "--help", "-l"], ["squeue", "-i", "x"]] {
            let plain = at_terminal(&cluster, &args, variables);
            assert!(!plain.contains('\x1b'), "{plain}");
        }
    }
    // Elsewhere it is Slurm's text, whatever the terminal's name is.
    let piped = |args: &[&str]| Shown::of(cluster.command(args).env("TERM", "xterm").output().unwrap());
    let err = "squeue: unrecognized option '--partitoin=x'\nTry \"squeue --help\" for more information\n";
    assert_eq!(piped(&["squeue", "--partitoin=x"]), Shown { out: String::new(), err: err.to_owned(), code: Some(1) });
    assert_eq!(piped(&["scontrol", "shwo"]).err, "invalid keyword: shwo\n");
    let help = piped(&["squeue", "--help"]).out;
    assert!(help.starts_with("Usage: squeue [OPTIONS]\n") && !help.contains('\x1b'), "{help}");
}
