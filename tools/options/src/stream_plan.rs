//! `srun`'s `-i`, `-o` and `-e`: which streams the step manager relays, and what `srun` does with them. A pattern that names one
//! file for the step is read or written by `srun` itself; a pattern with nodes or tasks (`%N`, `%n`, `%t`) is opened on the
//! nodes, and so are all files of a minibatch step.

use crate::{step_spec::StepStreams, typed::Typed};
use garrick_model::{
    patterns::{self, FilesPer},
    spec::{StdinTo, StreamTarget},
};
use std::path::Path;

/// Where the output of a step goes that no command waits for, unless the user says otherwise.
pub const UNATTENDED_OUTPUT: &str = "slurm-%J.out";

/// Where relayed input comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// `srun`'s own standard input.
    Own,
    /// A file that `srun` reads (a pattern, absolute).
    File(String),
    /// There is nothing to relay.
    None,
}

/// Where relayed output goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sink {
    /// `srun`'s own standard output or error.
    Own,
    /// The same, but of this task only.
    OwnOf(u32),
    /// A file that `srun` writes (a pattern, absolute).
    File(String),
    /// Errors only: where output goes.
    AsOutput,
    /// Nothing is relayed.
    None,
}

impl Input {
    /// The file's pattern, if it is one.
    pub fn pattern(&self) -> Option<&str> {
        match self {
            Self::File(pattern) => Some(pattern),
            Self::Own | Self::None => None,
        }
    }
}

impl Sink {
    /// The file's pattern, if it is one.
    pub fn pattern(&self) -> Option<&str> {
        match self {
            Self::File(pattern) => Some(pattern),
            Self::Own | Self::OwnOf(_) | Self::AsOutput | Self::None => None,
        }
    }
}

/// Plan of a step's streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamPlan {
    /// Input.
    pub input: Input,
    /// Output.
    pub output: Sink,
    /// Errors.
    pub error: Sink,
    /// What the step manager is asked for.
    pub targets: StepStreams,
}

/// Plans for a step that `srun` stays with.
pub fn attended(typed: &Typed, work_dir: &Path) -> StreamPlan {
    let (input, stdin, stdin_to) = match typed.input.as_deref() {
        None | Some("all" | "-") => (Input::Own, StreamTarget::Relay, StdinTo::All),
        Some("none") => (Input::None, StreamTarget::Null, StdinTo::None),
        Some(text) => match text.parse() {
            Ok(task) => (Input::Own, StreamTarget::Relay, StdinTo::Task(task)),
            Err(_) => match patterns::files_per(text) {
                FilesPer::Step => (Input::File(absolute(text, work_dir)), StreamTarget::Relay, StdinTo::All),
                _ => (Input::None, StreamTarget::File(absolute(text, work_dir)), StdinTo::None),
            },
        },
    };
    let (output, stdout) = sink(typed.output.as_deref(), work_dir);
    let (error, stderr) = match (&typed.error, &output) {
        // A file that is named for output takes errors too.
        (None, Sink::File(_)) => (Sink::AsOutput, StreamTarget::Relay),
        (None, Sink::None) if matches!(stdout, StreamTarget::File(_)) => (Sink::None, StreamTarget::SameAsStdout),
        (Some(error), Sink::File(_)) if typed.output.as_ref() == Some(error) => (Sink::AsOutput, StreamTarget::Relay),
        (error, _) => sink(error.as_deref(), work_dir),
    };
    StreamPlan { input, output, error, targets: StepStreams { stdin, stdin_to, stdout, stderr, unasked_output: false } }
}

/// Which of `srun`'s own descriptors 0, 1 and 2 the tasks may have for their own, so that nobody relays between the two. It
/// is for the step manager to use them, which it does when all tasks are on this host. Not terminals: what tasks write to
/// must not become one because of where `srun` stands, and only the foreground may read one. Input is for one task only,
/// since two would divide it between them.
pub fn handed(typed: &Typed, plan: &StreamPlan, is_terminal: impl Fn(u8) -> bool) -> [bool; 3] {
    let relays = |fd: u8| match fd {
        0 => plan.input == Input::Own && typed.ntasks.is_some_and(|tasks| tasks.value == 1) && first_task(plan),
        1 => plan.output == Sink::Own,
        _ => plan.error == Sink::Own,
    };
    [0, 1, 2].map(|fd| !typed.label && !typed.pty && relays(fd) && !is_terminal(fd))
}

fn first_task(plan: &StreamPlan) -> bool {
    matches!(plan.targets.stdin_to, StdinTo::All | StdinTo::Task(0))
}

/// Plans for a step that is handed over: files on the nodes, its pack, or nothing.
pub fn unattended(typed: &Typed, work_dir: &Path) -> StepStreams {
    let pack = typed.output_pack.is_some();
    let unsaid = || match pack {
        true => StreamTarget::Pack,
        false => StreamTarget::File(absolute(UNATTENDED_OUTPUT, work_dir)),
    };
    let file = |text: &str| match text {
        "none" => StreamTarget::Null,
        "all" => unsaid(),
        text => StreamTarget::File(absolute(text, work_dir)),
    };
    let stdin = match typed.input.as_deref() {
        None | Some("all" | "none") => StreamTarget::Null,
        Some(text) => StreamTarget::File(absolute(text, work_dir)),
    };
    let stderr = match (typed.error.as_deref(), typed.output.as_deref()) {
        (Some(text), _) => file(text),
        // A pack tells the two apart.
        (None, None | Some("all")) if pack => StreamTarget::Pack,
        (None, _) => StreamTarget::SameAsStdout,
    };
    let stdout = typed.output.as_deref().map_or_else(unsaid, file);
    let unasked_output = !pack && matches!(typed.output.as_deref(), None | Some("all"));
    StepStreams { stdin, stdin_to: StdinTo::None, stdout, stderr, unasked_output }
}

fn sink(text: Option<&str>, work_dir: &Path) -> (Sink, StreamTarget) {
    match text {
        None | Some("all" | "-") => (Sink::Own, StreamTarget::Relay),
        Some("none") => (Sink::None, StreamTarget::Null),
        Some(text) => match text.parse() {
            Ok(task) => (Sink::OwnOf(task), StreamTarget::Relay),
            Err(_) => match patterns::files_per(text) {
                FilesPer::Step => (Sink::File(absolute(text, work_dir)), StreamTarget::Relay),
                _ => (Sink::None, StreamTarget::File(absolute(text, work_dir))),
            },
        },
    }
}

/// A pattern from the working directory.
pub fn absolute(pattern: &str, work_dir: &Path) -> String {
    if pattern.starts_with('/') { pattern.to_owned() } else { format!("{}/{pattern}", work_dir.display()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::typed::{Source, Sourced};

    fn plan(input: Option<&str>, output: Option<&str>, error: Option<&str>) -> StreamPlan {
        let own = |text: Option<&str>| text.map(str::to_owned);
        let typed = Typed { input: own(input), output: own(output), error: own(error), ..Typed::default() };
        attended(&typed, Path::new("/w"))
    }

    #[test]
    fn everything_is_relayed_by_default() {
        let plan = plan(None, None, None);
        assert_eq!((plan.input, plan.output, plan.error), (Input::Own, Sink::Own, Sink::Own));
        assert_eq!(plan.targets, StepStreams::default());
    }

    #[test]
    fn own_descriptors_go_to_the_tasks_unless_srun_has_something_to_do_with_what_passes() {
        let one = Some(Sourced { value: 1, source: Source::CommandLine });
        let given = |change: &dyn Fn(&mut Typed), terminals: [bool; 3]| {
            let mut typed = Typed { ntasks: one, ..Typed::default() };
            change(&mut typed);
            let plan = attended(&typed, Path::new("/w"));
            handed(&typed, &plan, |fd| terminals[usize::from(fd)])
        };
        let none = [false; 3];
        assert_eq!(given(&|_| {}, none), [true, true, true]);
        assert_eq!(given(&|_| {}, [true, true, false]), [false, false, true]);
        assert_eq!(given(&|t| t.ntasks = None, none), [false, true, true]);
        assert!(!given(&|t| t.ntasks = Some(Sourced { value: 2, source: Source::CommandLine }), none)[0]);
        assert_eq!(given(&|t| t.label = true, none), none);
        assert_eq!(given(&|t| t.pty = true, none), none);
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(given(&|t| t.output = text("o"), none), [true, false, false]);
        assert_eq!(given(&|t| t.output = text("0"), none), [true, false, true]);
        assert_eq!(given(&|t| t.error = text("e"), none), [true, true, false]);
        assert_eq!(given(&|t| t.input = text("i"), none), [false, true, true]);
        assert_eq!(given(&|t| t.input = text("none"), none), [false, true, true]);
        assert_eq!(given(&|t| t.input = text("0"), none), [true, true, true]);
        assert_eq!(given(&|t| t.input = text("3"), none), [false, true, true]);
    }

    #[test]
    fn one_file_for_the_step_is_written_by_srun_with_its_errors() {
        let plan = plan(None, Some("out-%J"), None);
        assert_eq!((plan.output, plan.error), (Sink::File("/w/out-%J".to_owned()), Sink::AsOutput));
        assert_eq!((plan.targets.stdout, plan.targets.stderr), (StreamTarget::Relay, StreamTarget::Relay));
    }

    #[test]
    fn files_that_differ_by_task_are_opened_on_the_nodes() {
        let plan = plan(None, Some("/tmp/o.%t"), None);
        assert_eq!((plan.output, plan.error), (Sink::None, Sink::None));
        assert_eq!(plan.targets.stdout, StreamTarget::File("/tmp/o.%t".to_owned()));
        assert_eq!(plan.targets.stderr, StreamTarget::SameAsStdout);
    }

    #[test]
    fn a_number_names_one_task_and_none_nobody() {
        let planned = plan(Some("2"), Some("0"), Some("none"));
        assert_eq!((planned.output, planned.error), (Sink::OwnOf(0), Sink::None));
        assert_eq!(planned.targets.stdin_to, StdinTo::Task(2));
        assert_eq!(planned.targets.stderr, StreamTarget::Null);
        assert_eq!(plan(Some("none"), None, None).targets.stdin, StreamTarget::Null);
    }

    #[test]
    fn input_may_come_from_a_file() {
        assert_eq!(plan(Some("data"), None, None).input, Input::File("/w/data".to_owned()));
        let per_task = plan(Some("data.%t"), None, None);
        assert_eq!(
            (per_task.input, per_task.targets.stdin),
            (Input::None, StreamTarget::File("/w/data.%t".to_owned()))
        );
    }

    #[test]
    fn a_step_that_nobody_waits_for_writes_a_file() {
        let streams = unattended(&Typed::default(), Path::new("/w"));
        assert_eq!(streams.stdout, StreamTarget::File("/w/slurm-%J.out".to_owned()));
        assert_eq!((streams.stdin, streams.stderr), (StreamTarget::Null, StreamTarget::SameAsStdout));
        let unasked = |output: Option<&str>, pack: Option<&str>| {
            let [output, output_pack] = [output, pack].map(|text| text.map(str::to_owned));
            unattended(&Typed { output, output_pack, ..Typed::default() }, Path::new("/w")).unasked_output
        };
        assert!(unasked(None, None) && unasked(Some("all"), None));
        for (output, pack) in [(Some("slurm-%J.out"), None), (Some("none"), None), (None, Some("p.pack"))] {
            assert!(!unasked(output, pack), "{output:?} {pack:?}");
        }
    }
}
