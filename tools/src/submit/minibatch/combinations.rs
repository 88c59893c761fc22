//! Which of `srun`'s options may be combined, for minibatch steps and for others.

use crate::options::{
    minibatch::{Again, IN_A_LINE, ONLY_HANDED_OVER},
    typed::{OptionError, Typed},
};

type Checked = Result<(), OptionError>;

/// Refuses with that text where the options are so.
fn refuse_if(so: bool, text: impl Into<String>) -> Checked {
    if so { Err(OptionError::Text(text.into())) } else { Ok(()) }
}

/// Checks. `given`: was this option on the command line? `operands`: how many words follow the options.
pub fn check(typed: &Typed, given: impl Fn(&str) -> bool, operands: usize) -> Checked {
    let how = match (&typed.graph, typed.batch, typed.asynchronous) {
        (Some(_), ..) => "--graph",
        (None, true, _) => "--batch",
        (None, false, true) => "--async",
        (None, false, false) => return not_handed_over(typed, given),
    };
    refuse_if(typed.bcast.is_wanted(), format!("--bcast with {how} is not supported yet"))?;
    for (option, on) in [("pty", typed.pty), ("immediate", given("immediate")), ("label", given("label"))] {
        refuse_if(on, format!("--{option} is for a step that srun stays with: it cannot be used with {how}"))?;
    }
    let one_program = "--multi-prog cannot be used with --batch: a script is one program";
    refuse_if(typed.batch && typed.multi_prog, one_program)?;
    if let Some((which, _)) = &typed.again {
        return run_again(*which, given, operands);
    }
    only_with_others(typed, &given)?;
    if typed.graph.is_some() { in_graph(given, operands) } else { one_by_one(typed, given, operands) }
}

/// A step that `srun` stays with.
fn not_handed_over(typed: &Typed, given: impl Fn(&str) -> bool) -> Checked {
    for option in ["from-file", "each", "each-csv", "rerun-failed", "resume"] {
        refuse_if(given(option), format!("--{option} hands steps over: it needs --async"))?;
    }
    let only = |option: &str| format!("--{option} is for steps that are handed over: it needs --async or --batch");
    for option in ONLY_HANDED_OVER {
        refuse_if(given(option), only(option))?;
    }
    refuse_if(typed.jobid.is_some() && given("dependency"), only("dependency in a job"))
}

/// `--rerun-failed` and `--resume`.
fn run_again(which: Again, given: impl Fn(&str) -> bool, operands: usize) -> Checked {
    let option = if which == Again::Failed { "rerun-failed" } else { "resume" };
    let others = IN_A_LINE.iter().chain(ONLY_HANDED_OVER).chain(&["batch", "from-file", "graph", "multi-prog"]);
    for other in others {
        let text = format!("--{option} runs steps with the options that they had: --{other} cannot be used with it");
        refuse_if(given(other), text)?;
    }
    refuse_if(given("rerun-failed") && given("resume"), "--rerun-failed and --resume do not go together")?;
    let text = format!("--{option} runs the commands that there were: none can be given on the command line");
    refuse_if(operands > 0, text)
}

/// Options that mean something only beside others.
fn only_with_others(typed: &Typed, given: impl Fn(&str) -> bool) -> Checked {
    for option in ["retry-delay", "retry-on"] {
        let text = format!("--{option} says how steps are tried again: it needs --retries");
        refuse_if(given(option) && typed.retries.is_none(), text)?;
    }
    let (list, several) = (typed.from_file.is_some(), typed.each.len() > 1);
    refuse_if(given("format") && !list, "--format needs --from-file")?;
    refuse_if(given("zip") && !several, "--zip needs several --each")?;
    let text = "--resume-from is for graphs: it needs --graph (--resume JOB is for other steps)";
    refuse_if(given("resume-from") && typed.graph.is_none(), text)?;
    let many = typed.array.is_some() || list || !typed.each.is_empty() || typed.graph.is_some();
    let text = "--max-fails is for many steps: it needs --array, --from-file, --each or --graph";
    refuse_if(given("max-fails") && !many, text)
}

fn in_graph(given: impl Fn(&str) -> bool, operands: usize) -> Checked {
    for other in ["batch", "array", "multi-prog", "from-file", "each", "each-csv", "dependency", "job-name"] {
        refuse_if(given(other), format!("--{other} cannot be used with --graph: the graph says it for each step"))?;
    }
    refuse_if(operands > 0, "--graph has the commands: none can be given on the command line")
}

/// The lines of a list, or values that are put into a command.
fn one_by_one(typed: &Typed, given: impl Fn(&str) -> bool, operands: usize) -> Checked {
    let list = typed.from_file.is_some();
    let many = match list {
        true => "from-file",
        false if typed.each.is_empty() => return Ok(()),
        false if given("each") => "each",
        false => "each-csv",
    };
    for (option, on) in [
        ("batch", typed.batch),
        ("array", typed.array.is_some()),
        ("multi-prog", typed.multi_prog),
        ("each", list && !typed.each.is_empty()),
    ] {
        refuse_if(on, format!("--{option} cannot be used with --{many}"))?;
    }
    refuse_if(list && operands > 0, "--from-file has the commands: none can be given on the command line")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::options::{
        sources::{command_line, lay_over},
        table::Command,
    };
    use garrick_model::time::Timestamp;
    use std::ffi::OsString;

    fn checked(args: &str) -> Result<(), String> {
        let args: Vec<OsString> = args.split_whitespace().map(OsString::from).collect();
        let parsed = command_line(Command::Srun, &args).unwrap();
        let typed = lay_over(Command::Srun, &[], &|_| None, &parsed.options, Timestamp::from_secs(0)).unwrap();
        let given = |name: &str| parsed.options.iter().any(|o| o.def.long == name);
        check(&typed, given, parsed.rest.len()).map_err(|e| e.to_string())
    }

    #[test]
    fn what_only_queued_steps_have_needs_one() {
        let only = |option: &str| format!("--{option} is for steps that are handed over: it needs --async or --batch");
        for (args, option) in [
            ("-a 0-9 true", "array"),
            ("--retries=3 true", "retries"),
            ("--retry-on=1 true", "retry-on"),
            ("--output-pack=x true", "output-pack"),
        ] {
            assert_eq!(checked(args), Err(only(option)), "{args}");
        }
        assert_eq!(checked("--from-file=x"), Err("--from-file hands steps over: it needs --async".to_owned()));
        let in_a_job = "--dependency in a job is for steps that are handed over: it needs --async or --batch";
        assert_eq!(checked("--jobid=7 -d afterok:3 true"), Err(in_a_job.to_owned()));
        for args in ["-d afterok:3 true", "--step-priority=4 true", "--step-cgroup=always true", "--parsable true"] {
            assert_eq!(checked(args), Ok(()), "{args}");
        }
    }

    #[test]
    fn what_needs_an_srun_that_stays_cannot_be_handed_over() {
        let stays = |option: &str, how: &str| {
            Err(format!("--{option} is for a step that srun stays with: it cannot be used with {how}"))
        };
        assert_eq!(checked("--async --pty bash"), stays("pty", "--async"));
        assert_eq!(checked("--batch -I x.sh"), stays("immediate", "--batch"));
        assert_eq!(checked("--async -l true"), stays("label", "--async"));
        assert_eq!(checked("--async -a 0-9%2 --retries=3 --retry-delay=5 --output-pack=p -d after:1 true"), Ok(()));
        let alone = "--retry-delay says how steps are tried again: it needs --retries";
        assert_eq!(checked("--async --retry-delay=5 true"), Err(alone.to_owned()));
    }

    #[test]
    fn a_list_has_the_commands() {
        assert_eq!(checked("--async --from-file=x"), Ok(()));
        let more = "--from-file has the commands: none can be given on the command line";
        assert_eq!(checked("--async --from-file=x true"), Err(more.to_owned()));
        assert_eq!(checked("--batch --from-file=x"), Err("--batch cannot be used with --from-file".to_owned()));
        let array = "--array cannot be used with --from-file";
        assert_eq!(checked("--async -a 1-2 --from-file=x"), Err(array.to_owned()));
        assert_eq!(checked("--async --from-file=x --format=jsonl"), Ok(()));
        assert_eq!(checked("--async --format=jsonl true"), Err("--format needs --from-file".to_owned()));
    }

    #[test]
    fn steps_that_are_run_again_have_the_options_that_they_had() {
        assert_eq!(checked("--async --parsable --rerun-failed=12.0"), Ok(()));
        assert_eq!(checked("--resume=12"), Err("--resume hands steps over: it needs --async".to_owned()));
        let had = "--resume runs steps with the options that they had: --mem cannot be used with it";
        assert_eq!(checked("--async --resume=12 --mem=10"), Err(had.to_owned()));
        let more = "--rerun-failed runs the commands that there were: none can be given on the command line";
        assert_eq!(checked("--async --rerun-failed=12 true"), Err(more.to_owned()));
        assert!(checked("--async --rerun-failed=12 --resume=12").is_err());
    }

    #[test]
    fn parameters_need_steps_that_are_handed_over_one_by_one() {
        for (args, wrong) in [
            ("--each=1..3 true", "--each hands steps over: it needs --async"),
            ("--each-csv=x true", "--each-csv hands steps over: it needs --async"),
            ("--async --each=1 --zip true", "--zip needs several --each"),
            ("--async --each=1 -a 1-2 true", "--array cannot be used with --each"),
            ("--batch --each-csv=x true", "--batch cannot be used with --each-csv"),
            ("--async --each=1 --from-file=x", "--each cannot be used with --from-file"),
        ] {
            assert_eq!(checked(args), Err(wrong.to_owned()), "{args}");
        }
        assert_eq!(checked("--async --each=1 --each-csv=x --zip true {1} {2}"), Ok(()));
        let one = "--max-fails is for many steps: it needs --array, --from-file, --each or --graph";
        assert_eq!(checked("--async --max-fails=3 true"), Err(one.to_owned()));
        for many in ["--async -a 1-2", "--batch -a 1-2", "--async --each=1", "--async --from-file=x --max-fails=2%"] {
            assert_eq!(checked(&format!("{many} --max-fails=3,kill")), Ok(()), "{many}");
        }
    }
}
