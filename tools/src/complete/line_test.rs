use super::*;

/// A cluster of its own.
struct Small;

fn some(names: &[&str]) -> Vec<Candidate> {
    names.iter().map(|name| Candidate { text: (*name).to_owned(), help: String::new() }).collect()
}

impl Names for Small {
    fn partitions(&self) -> Vec<Candidate> {
        some(&["debug", "long"])
    }

    fn jobs(&self) -> Vec<Candidate> {
        some(&["501", "502"])
    }

    fn nodes(&self) -> Vec<Candidate> {
        some(&["n1", "n2"])
    }

    fn users(&self) -> Vec<Candidate> {
        some(&["alice", "bob"])
    }

    fn reservations(&self) -> Vec<Candidate> {
        some(&["course"])
    }

    fn clusters(&self) -> Vec<Candidate> {
        some(&["site"])
    }
}

fn texts(line: &str) -> Vec<String> {
    wanted(line, &Small).words().iter().map(|word| word.text.clone()).collect()
}

#[test]
fn options_are_completed_by_name_and_letter() {
    assert_eq!(texts("sbatch --part"), ["--partition="]);
    assert_eq!(texts("squeue --st"), ["--start", "--states=", "--steps"]);
    assert_eq!(texts("/opt/bin/squeue --me"), ["--me"]);
    let all = texts("squeue -");
    assert!(all.contains(&"-p".to_owned()) && all.contains(&"--partition=".to_owned()), "{all:?}");
    // What would be refused is not offered.
    assert!(texts("sbcast --no-al").is_empty());
    assert_eq!(texts("garrick squeue --nohe"), ["--noheader"]);
    assert_eq!(texts("garrick up --cp"), ["--cpus="]);
}

#[test]
fn values_are_names_of_the_cluster_and_words() {
    for line in ["sbatch -p d", "sbatch --partition d", "sbatch --part d", "squeue -lp d", "sinfo --partition d"] {
        assert_eq!(texts(line), ["debug"], "{line}");
    }
    assert_eq!(texts("sbatch --partition=d"), ["--partition=debug"]);
    assert_eq!(texts("sbatch --partition=debug,l"), ["--partition=debug,long"]);
    assert_eq!(texts("sbatch -pde"), ["-pdebug"]);
    assert_eq!(texts("sbatch -n 4 -w n"), ["n1", "n2"]);
    assert_eq!(texts("squeue -u a"), ["alice"]);
    assert_eq!(texts("squeue -t PEN"), ["PENDING"]);
    assert_eq!(texts("sbatch --open-mode="), ["--open-mode=append", "--open-mode=truncate"]);
    assert_eq!(texts("sbatch --hint mem"), ["memory_bound"]);
    assert_eq!(texts("sbatch --mail-type=BEGIN,TIME_LIMIT_9"), ["--mail-type=BEGIN,TIME_LIMIT_90"]);
    assert_eq!(texts("scancel -s US"), ["USR1", "USR2"]);
    assert_eq!(wanted("sbatch -o ", &Small), Wanted::File);
    assert_eq!(wanted("sbatch --chdir=", &Small), Wanted::Folder);
}

#[test]
fn operands_are_jobs_words_programs_and_files() {
    assert_eq!(texts("scancel 50"), ["501", "502"]);
    assert_eq!(texts("scancel -Q 501 "), ["501", "502"]);
    assert_eq!(texts("scontrol requeueh"), ["requeuehold"]);
    assert_eq!(texts("scontrol show par"), ["partitions"]);
    assert_eq!(texts("scontrol -o show node n"), ["n1", "n2"]);
    assert_eq!(texts("scontrol hold 50"), ["501", "502"]);
    assert_eq!(texts("scontrol update Node"), ["NodeName="]);
    assert_eq!(texts("scontrol update nodename=n1,n"), ["nodename=n1,n1", "nodename=n1,n2"]);
    assert_eq!(wanted("srun -n4 ", &Small), Wanted::Program);
    assert_eq!(wanted("sbatch job", &Small), Wanted::File);
    // These are the program's.
    assert_eq!(wanted("srun hostname --par", &Small), Wanted::File);
    assert_eq!(texts("garrick comp"), ["complete", "completion"]);
    assert_eq!(texts("garrick sque"), ["squeue"]);
    assert!(texts("nosuch --x").is_empty() && texts("").is_empty());
}

#[test]
fn what_is_offered_is_accepted() {
    use crate::options::{sources, table};
    use garrick_model::time::Timestamp;
    let mut tried = 0;
    for command in [table::Command::Sbatch, table::Command::Salloc, table::Command::Srun] {
        for option in table::options_of(command).into_iter().filter(|option| !option.is_refused()) {
            let line = format!("{} --{}=", command.name(), option.long);
            for word in texts(&line).iter().filter(|word| !word.ends_with(['=', ':', ','])) {
                let parsed = sources::command_line(command, &[word.into()]).unwrap();
                let read =
                    sources::lay_over(command, &[], &|_| None, &parsed.options, Timestamp::from_secs(0)).map(|_| ());
                assert!(read.is_ok(), "{} {word}: {read:?}", command.name());
                tried += 1;
            }
        }
    }
    assert!(tried > 80, "{tried}");
}
