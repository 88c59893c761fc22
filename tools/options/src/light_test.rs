#![allow(clippy::unwrap_used)]
use super::*;
use crate::{
    job_spec::Submitter,
    step_spec::StepStreams,
    typed::{Source, Sourced},
};
use garrick_frame::light::{VERSION, WORDS};
use garrick_model::spec::{EnvEntry, NodeCount, StreamTarget};

const JOB: &[&str] = &["SLURM_JOB_ID=7", "SLURM_NNODES=1", "SLURM_NTASKS=1", "PATH=/bin", "A=b=c"];

struct Sent {
    args: Vec<&'static str>,
    environment: Vec<&'static str>,
    found: u64,
    terminals: u64,
}

fn sent(args: &'static str) -> Sent {
    let args: Vec<&str> = std::iter::once("srun").chain(args.split_whitespace()).collect();
    Sent { args, environment: JOB.to_vec(), found: 0, terminals: 0 }
}

impl Sent {
    fn with(mut self, entry: &'static str) -> Self {
        self.environment.push(entry);
        self
    }

    fn found(self, found: u64) -> Self {
        Self { found, ..self }
    }

    fn read(&self) -> Option<Asked> {
        let texts = |all: &[&str]| all.iter().flat_map(|text| [text.as_bytes(), &[0]].concat()).collect::<Vec<u8>>();
        let (directory, args, environment) = (b"/w\0".to_vec(), texts(&self.args), texts(&self.environment));
        let mut words = [0u64; WORDS];
        words[word::VERSION] = VERSION;
        (words[word::REQUEST], words[word::REQUEST + 1]) = (8, 9);
        words[word::TERMINALS] = self.terminals;
        words[word::UMASK] = 0o27;
        words[word::NICE] = (-3_i64).cast_unsigned();
        (words[word::SESSION], words[word::PID]) = (20, 21);
        words[word::DIRECTORY] = directory.len() as u64;
        words[word::ARGUMENTS] = args.len() as u64;
        words[word::ENVIRONMENT] = environment.len() as u64;
        words[word::FOUND] = self.found;
        words[word::LIMITS..].fill(u64::MAX);
        words[word::LIMITS + 7] = 1024;
        let body = [words.map(u64::to_le_bytes).concat(), directory, args, environment].concat();
        read(&Launch::read(&body).unwrap(), JobId(7), "host", Timestamp::from_secs(0))
    }
}

#[test]
fn a_step_is_what_the_whole_command_would_have_asked_for() {
    let asked = sent("-n1 --exact -J name --mem=5 -Q /bin/true a").read().unwrap();
    assert_eq!((asked.request, asked.descriptors, asked.quiet), (RequestId(8, 9), [true; 3], true));
    let spec = asked.spec;
    let argv: Vec<&[u8]> = spec.argv.iter().map(|word| word.as_slice()).collect();
    assert_eq!(argv, [&b"/bin/true"[..], b"a"]);
    assert_eq!((spec.name.as_str(), spec.tasks, spec.work_dir.as_deref()), ("name", Some(1), Some("/w")));
    assert_eq!((spec.umask, spec.process_nice, spec.srun.clone()), (Some(0o27), -3, Some(("host".to_owned(), 21))));
    assert_eq!(spec.submit_line, "srun -n1 --exact -J name --mem=5 -Q /bin/true a");
    let mut environment: Vec<EnvEntry> = JOB.iter().map(|entry| EnvEntry::from(entry.as_bytes().to_vec())).collect();
    // Beside those of the job, how much is said.
    environment.extend(["SLURMD_DEBUG=2", "SRUN_DEBUG=2"].map(|entry| EnvEntry::from(entry.as_bytes().to_vec())));
    environment.sort();
    assert_eq!(spec.environment, environment);
    let open_files = spec.rlimits.iter().find(|limit| limit.resource == 7).unwrap();
    assert_eq!(open_files.soft, Some(1024));
    assert!(spec.rlimits.iter().filter(|limit| limit.resource != 7).all(|limit| limit.soft.is_none()));

    // The same options, laid over each other and built as `srun` does it.
    let args: Vec<OsString> = "-n1 --exact -J name --mem=5 -Q /bin/true a".split(' ').map(OsString::from).collect();
    let parsed = sources::command_line(Command::Srun, &args).unwrap();
    let variable = |name: &str| {
        let entry = JOB.iter().find_map(|entry| entry.strip_prefix(name)?.strip_prefix('='));
        entry.map(OsString::from)
    };
    let typed = sources::lay_over(Command::Srun, &[], &variable, &parsed.options, Timestamp::from_secs(0)).unwrap();
    let submitter = Submitter {
        work_dir: "/w".into(),
        host: "host".into(),
        pid: 21,
        umask: 0o27,
        nice: -3,
        rlimits: spec.rlimits.clone(),
        environment: spec.environment.clone(),
        submit_line: spec.submit_line.clone(),
        ..Submitter::default()
    };
    let work = StepWork { program: "/bin/true".into(), argv: parsed.rest, ..StepWork::default() };
    let streams = StepStreams { stdin: StreamTarget::Relay, ..StepStreams::default() };
    assert_eq!(spec, step_spec::build(&typed, submitter, work, streams, None).unwrap().spec);
}

#[test]
fn what_is_to_be_said_about_options_is_told() {
    let asked = sent("-n1 /bin/true").with("SLURM_JOB_NUM_NODES=2").read().unwrap();
    assert_eq!(asked.warnings, ["can't run 1 processes on 2 nodes, setting nnodes to 1"]);
    assert_eq!(asked.spec.nodes, Some(NodeCount { min: 1, max: Some(1) }));
}

#[test]
fn a_bare_name_counts_where_whoever_asks_has_found_that_very_word() {
    assert!(sent("-n1 true x").read().is_none());
    assert!(sent("-n1 true x").found(2).read().is_some());
    assert!(sent("-J true other").found(2).read().is_none(), "the word is an option's value");
    assert!(sent("-n1 --export=NONE true").found(3).read().is_none(), "the task has another PATH");
    assert!(sent("-n1 --export=ALL true").found(3).read().is_some());
}

#[test]
fn what_is_not_usual_is_left_to_the_whole_command() {
    for args in [
        "",
        "-n1",
        "-n2 /bin/true",
        "-l /bin/true",
        "-v /bin/true",
        "--pty /bin/true",
        "-o f /bin/true",
        "-i none /bin/true",
        "-e f /bin/true",
        "--async /bin/true",
        "--batch /bin/true",
        "--multi-prog /f",
        "--immediate /bin/true",
        "--jobid=8 /bin/true",
        "--het-group=0 /bin/true",
        "--export-file=/f /bin/true",
        "--nodefile=/f /bin/true",
        "-w /etc/passwd /bin/true",
        "-w n[1-1000000] /bin/true",
        "-x ./f /bin/true",
        "--nosuchoption /bin/true",
        "--time=nonsense /bin/true",
        "--test-only /bin/true",
        "--help /bin/true",
        "/bin/a : /bin/b",
    ] {
        assert!(sent(args).read().is_none(), "{args}");
    }
    for entry in ["SLURM_HET_SIZE=2", "SLURM_STDOUTMODE=/f", "SLURM_HOSTFILE=/f", "SLURM_LABELIO=1", "SLURM_DEBUG=2"] {
        assert!(sent("-n1 /bin/true").with(entry).read().is_none(), "{entry}");
    }
    assert!(Sent { terminals: 2, ..sent("-n1 /bin/true") }.read().is_none());
    let mut outside = sent("-n1 /bin/true");
    outside.environment.retain(|entry| !entry.starts_with("SLURM_JOB_ID"));
    assert!(outside.read().is_none());
}

#[test]
fn the_variables_that_a_job_sets_are_usual() {
    let gpus = sent("/bin/true").with("SLURM_GPUS=1").with("SLURM_MEM_PER_NODE=100").with("SLURM_CPUS_ON_NODE=4");
    assert!(gpus.read().is_some());
    let typed = Typed { ntasks: Some(Sourced { value: 1, source: Source::Environment }), ..Typed::default() };
    assert!(is_usual(&typed));
}
