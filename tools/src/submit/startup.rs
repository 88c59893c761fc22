//! The common start of these commands: parses the command line, handles `--help` and similar options, combines it with script
//! lines and environment, and reports errors in Slurm's words.

use crate::{
    options::{
        defined,
        filtered::Filtered,
        getopt::{Occurrence, Parsed},
        help,
        script_lines::ScriptLine,
        sources::{self, GivenOptions, Place, SourceError},
        table::Command,
        typed::{FirstLine, Help, OptionError, Typed},
    },
    output::{self, Console, Verbosity},
    submit::filter::{Decided, Filters, Refused},
    telling,
};
use garrick_asking::cluster::{Cluster, ClusterError};
use garrick_model::{
    config, env_vars,
    ids::{JobId, StepId},
    refusal::Refusal,
    spec::Mpi,
    time::Timestamp,
    visible::written_out,
};
use std::{
    cell::{OnceCell, RefCell},
    collections::BTreeMap,
    env,
    ffi::{OsStr, OsString},
    path::Path,
};

/// Exit code for what goes wrong on our side, unless `SLURM_EXIT_ERROR` names another.
const EXIT_ERROR: i32 = 1;

/// A command that has begun.
#[derive(Debug)]
pub struct Startup {
    command: Command,
    parsed: Parsed,
    /// What stands after each ` : `: of the other components of a heterogeneous job.
    others: Vec<Parsed>,
    /// The site's filters, once they were looked for; none inside where the site has none.
    filters: OnceCell<Option<Filters>>,
    /// What filters made of each component's options, from 0.
    decided: RefCell<BTreeMap<usize, Decided>>,
    /// Found when filters were looked for.
    cluster: RefCell<Option<Cluster>>,
    /// Its messages.
    pub console: Console,
}

impl Startup {
    /// Takes the command line apart. The error is the exit code, when everything has been said.
    pub fn begin(command: Command, args: &[OsString]) -> Result<Self, i32> {
        let console = Console::new(command.name());
        let taken_apart =
            |args: &[OsString]| sources::command_line(command, args).map_err(|e| tell_source(command, &console, &e));
        let mut parsed = taken_apart(args)?;
        let mut others = Vec::new();
        while let Some(at) = separator(command, others.last().unwrap_or(&parsed)) {
            let last = others.last_mut().unwrap_or(&mut parsed);
            let behind = last.rest.split_off(at);
            others.push(taken_apart(&behind[1..])?);
        }
        let startup = Self {
            command,
            parsed,
            others,
            filters: OnceCell::new(),
            decided: RefCell::default(),
            cluster: RefCell::default(),
            console,
        };
        for option in startup.all_options() {
            match option.def.long {
                "help" => return Err(startup.help(Help::Full)),
                "usage" => return Err(startup.help(Help::Usage)),
                "version" => return Err(startup.help(Help::Version)),
                _ => {}
            }
        }
        Ok(startup)
    }

    /// Which command it is.
    pub const fn command(&self) -> Command {
        self.command
    }

    /// What stands after the options: of the last component, for a command that runs one thing.
    pub fn operands(&self) -> &[OsString] {
        &self.others.last().unwrap_or(&self.parsed).rest
    }

    /// What a component is to run, from 0: where it says nothing, what the next one says that does.
    pub fn operands_of(&self, component: usize) -> &[OsString] {
        let all = std::iter::once(&self.parsed).chain(&self.others);
        all.skip(component).map(|parsed| parsed.rest.as_slice()).find(|rest| !rest.is_empty()).unwrap_or_default()
    }

    /// The option of one component, from 0, the last one.
    pub fn value_of(&self, component: usize, long: &str) -> Option<&OsString> {
        let of = std::iter::once(&self.parsed).chain(&self.others).nth(component)?;
        of.options.iter().rfind(|o| o.def.long == long).and_then(|o| o.value.as_ref())
    }

    /// How many components of a heterogeneous job the command line names beside the first.
    pub const fn other_components(&self) -> usize {
        self.others.len()
    }

    /// What was typed for one of them, from 0: its own script lines and options. Variables are about the first component.
    pub fn typed_other(&self, at: usize, script: &[ScriptLine]) -> Result<Typed, i32> {
        self.combined(at + 1, script, &|_| None).map(|(typed, _)| typed)
    }

    /// What was typed for a component, from 0, for a step in the component `group` of the job around.
    pub fn typed_in(&self, component: usize, group: u32) -> Result<Typed, i32> {
        let variable = |name: &str| of_group(&group.to_string(), name, &|name| env::var_os(name));
        self.combined(component, &[], &variable).map(|(typed, _)| typed)
    }

    /// Lays the sources of a component's options over each other, those of the site's filters too. Returns the options that were
    /// given, too, where the site has filters or they are to be listed.
    fn combined(
        &self,
        component: usize,
        script: &[ScriptLine],
        variable: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<(Typed, Option<GivenOptions>), i32> {
        let (command, now) = (self.command, Timestamp::now());
        let words = std::iter::once(&self.parsed).chain(&self.others).nth(component);
        let words = words.map(|parsed| parsed.options.as_slice()).unwrap_or_default();
        let lay = |decided: &Decided| {
            let options: Vec<Occurrence> = words.iter().chain(&decided.set).cloned().collect();
            let typed = sources::lay_over_defaults(&decided.defaults, command, script, variable, &options, now)?;
            if self.filters()?.is_none() && typed.verbose == 0 {
                return Ok((typed, None));
            }
            let mut given: GivenOptions =
                decided.defaults.iter().map(|one| (one.def.long, one.value.clone())).collect();
            given.extend(sources::given_options(command, script, variable, &options, now)?);
            Ok((typed, Some(given)))
        };
        let tell = |error: Wrong| match error {
            Wrong::Source(error) => tell_source(command, &self.console, &error),
            Wrong::Said(code) => code,
        };
        let Some(filters) = self.filters().map_err(&tell)? else {
            return lay(&Decided::default()).map_err(tell);
        };
        if !self.decided.borrow().contains_key(&component) {
            let defaults = self.defaults(filters, component)?;
            let decided = Decided { defaults, set: Vec::new() };
            let (typed, given) = lay(&decided).map_err(tell)?;
            let options = Filtered::new(command, given.unwrap_or_default(), typed, now);
            let set = filters.before(component as u32, options, self.argv(component));
            let set = set.map_err(|refused| self.tell_refused(refused))?;
            self.decided.borrow_mut().insert(component, Decided { set, ..decided });
        }
        let decided = self.decided.borrow().get(&component).cloned().unwrap_or_default();
        lay(&decided).map_err(tell)
    }

    /// Defaults of a component. As in 26.05, a step in a job has none, `salloc` has those of its first component for none of the
    /// others, and `sbatch` asks twice for those of the first: before it looks for its script, too.
    fn defaults(&self, filters: &Filters, component: usize) -> Result<Vec<Occurrence>, i32> {
        let times = match (self.command, component) {
            (Command::Srun, _) if is_in_job() => 0,
            (Command::Salloc, 1..) => 0,
            (Command::Sbatch, 0) => 2,
            _ => 1,
        };
        let mut defaults = Vec::new();
        for _ in 0..times {
            defaults = filters.defaults(Timestamp::now()).map_err(|refused| self.tell_refused(refused))?;
        }
        Ok(defaults)
    }

    /// What a component runs, as filters see it.
    fn argv(&self, component: usize) -> Vec<String> {
        let own = std::iter::once(&self.parsed).chain(&self.others).nth(component).map(|parsed| &parsed.rest);
        let words = match self.command {
            Command::Sbatch => self.operands(),
            _ => own.map(Vec::as_slice).unwrap_or_default(),
        };
        let mut argv: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        if let (Command::Sbatch, Some(script), Ok(folder)) = (self.command, argv.first_mut(), env::current_dir()) {
            *script = folder.join(&*script).to_string_lossy().into_owned();
        }
        argv
    }

    fn tell_refused(&self, refused: Refused) -> i32 {
        match refused {
            Refused::ByFilter => {
                self.console.error("cli_filter plugin terminated with error");
                exit_code(EXIT_ERROR)
            }
            Refused::Option(error) => {
                tell_option(self.command, &self.console, &error);
                exit_code(EXIT_ERROR)
            }
        }
    }

    /// The site's filters. In a job `srun` reads no configuration where the site has none.
    fn filters(&self) -> Result<Option<&Filters>, Wrong> {
        if let Some(filters) = self.filters.get() {
            return Ok(filters.as_ref());
        }
        let none_around =
            self.command == Command::Srun && is_in_job() && env::var_os(env_vars::GARRICK_CLI_FILTER).is_none();
        let found = if none_around || self.command == Command::Swait { None } else { self.find() };
        let filters = match found.as_ref().map(Cluster::config).filter(|config| !config.cli_filters.is_empty()) {
            Some(config) => {
                let loaded = Filters::load(self.command, config, &self.console);
                Some(loaded.map_err(|()| Wrong::Said(exit_code(EXIT_ERROR)))?)
            }
            None => None,
        };
        self.cluster.replace(found);
        Ok(self.filters.get_or_init(|| filters).as_ref())
    }

    /// The cluster, if there is one. That there is none is told by whoever needs it.
    fn find(&self) -> Option<Cluster> {
        Cluster::find(self.value("conf").map(Path::new)).ok()
    }

    /// The cluster that is meant.
    pub fn cluster(&self, typed: &Typed) -> Result<Cluster, i32> {
        let found = self.cluster.take();
        match found.filter(|_| typed.conf.as_deref() == self.value("conf").map(Path::new)) {
            Some(cluster) => Ok(cluster),
            None => Cluster::find(typed.conf.as_deref()).map_err(|error| {
                self.console.error(&error);
                exit_code(EXIT_ERROR)
            }),
        }
    }

    /// Tells the site's filters of the job that is there, and of its step.
    pub fn tell_filters(&self, job: JobId, step: Option<StepId>) {
        if let Some(Some(filters)) = self.filters.get() {
            filters.after(job, step.and_then(|step| step.key().step.number()), &self.console);
        }
    }

    fn all_options(&self) -> impl Iterator<Item = &Occurrence> {
        self.parsed.options.iter().chain(self.others.iter().flat_map(|parsed| &parsed.options))
    }

    /// Was this option on the command line?
    pub fn gave(&self, long: &str) -> bool {
        self.all_options().any(|o| o.def.long == long)
    }

    /// The argument of an option on the command line, the last one.
    pub fn value(&self, long: &str) -> Option<&OsString> {
        self.all_options().filter(|o| o.def.long == long).last().and_then(|o| o.value.as_ref())
    }

    /// Lays the command line over environment and script lines, and says what there is to say about options.
    pub fn typed(&mut self, script: &[ScriptLine]) -> Result<Typed, i32> {
        // One pass over the environment, instead of one for every variable that an option may come from.
        let reads = |name: &OsString| name.to_str().is_some_and(|name| self.command.reads(name));
        let environment: BTreeMap<OsString, OsString> = env::vars_os().filter(|(name, _)| reads(name)).collect();
        // A step of another component goes by how that one describes itself.
        let group = self.value("het-group").and_then(|group| group.to_str());
        let variable = |name: &str| match group {
            Some(group) if sources::OF_THE_JOB.contains(&name) => of_group(group, name, &|name| env::var_os(name)),
            _ => environment.get(OsStr::new(name)).cloned(),
        };
        let command = self.command;
        let (typed, given) = self.combined(0, script, &variable)?;
        if typed.quiet && typed.verbose > 0 && self.command != Command::Swait {
            self.console.error("don't specify both --verbose (-v) and --quiet (-Q)");
            return Err(exit_code(EXIT_ERROR));
        }
        match (typed.quiet, typed.verbose) {
            (true, _) => self.console.set_verbosity(Verbosity::Quiet),
            // What another component said stays.
            (false, 0) => {}
            (false, times) => self.console.set_verbosity(Verbosity::Verbose(times)),
        }
        if let Some(help) = typed.help {
            return Err(self.help(help));
        }
        if let Some(given) = given.filter(|_| typed.verbose > 0) {
            defined::lines(command, &given, &typed, Timestamp::now())
                .iter()
                .for_each(|line| self.console.verbose(line));
        }
        typed.notices.iter().for_each(|notice| self.console.info(notice));
        self.is_own_cluster(&typed)?;
        Ok(typed)
    }

    /// Looks at the command line alone: whether it asks for a list, or is wrong.
    pub fn looked_at(&self) -> Result<(), i32> {
        let typed = sources::lay_over(self.command, &[], &|_| None, &self.parsed.options, Timestamp::now());
        match typed.map_err(|error| tell_source(self.command, &self.console, &error))?.help {
            Some(help) => Err(self.help(help)),
            None => Ok(()),
        }
    }

    /// Clusters are found by their `slurm.conf` alone, so only that file's own can be named.
    fn is_own_cluster(&self, typed: &Typed) -> Result<(), i32> {
        if typed.clusters.is_empty() {
            return Ok(());
        }
        let own = Cluster::find(typed.conf.as_deref()).map_err(|error| {
            self.console.error(&error);
            exit_code(EXIT_ERROR)
        })?;
        match typed.clusters.iter().find(|name| *name != "all" && *name != own.name()) {
            None => Ok(()),
            Some(other) => {
                self.console.error(telling::other_cluster(other));
                Err(exit_code(EXIT_ERROR))
            }
        }
    }

    fn help(&self, help: Help) -> i32 {
        let written = match help {
            Help::Full => output::print_help(&help::full(self.command)),
            Help::Usage => output::stdout(|out| out.write_all(help::usage(self.command).as_bytes())),
            Help::Version => output::print_version(),
            Help::Hint => output::stdout(|out| out.write_all(help::HINTS.as_bytes())),
            Help::CpuBind => output::stdout(|out| out.write_all(help::CPU_BINDINGS.as_bytes())),
            Help::Gres => {
                let known = Cluster::find(None)
                    .map_err(|e| e.to_string())
                    .and_then(|cluster| config::read(cluster.conf()).map_err(|report| report.to_string()));
                match known {
                    Ok(config) => output::stdout(|out| help::gres(&config.gres.types, out)),
                    Err(error) => {
                        self.console.error(error);
                        return exit_code(EXIT_ERROR);
                    }
                }
            }
            Help::MpiList => {
                let names: String = Mpi::ALL.iter().map(|mpi| format!("\n\t{}", mpi.name())).collect();
                output::print_line(format!("MPI plugin types are...{names}"))
            }
        };
        output::finish(&self.console, written, 0)
    }
}

/// Why options cannot be had.
enum Wrong {
    Source(SourceError),
    /// With this exit code; all was said.
    Said(i32),
}

impl From<SourceError> for Wrong {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}

/// Is this process in a job, so that its steps are steps of that?
fn is_in_job() -> bool {
    [env_vars::GARRICK_STEPD_DOOR, "SLURM_JOB_ID"].iter().any(|name| env::var_os(name).is_some())
}

/// A variable as a step in that component sees it: what is about the component has the component's name, but for the
/// leader's own steps.
fn of_group(group: &str, name: &str, variable: &dyn Fn(&str) -> Option<OsString>) -> Option<OsString> {
    let plain = variable(name);
    if !sources::OF_THE_JOB.contains(&name) {
        return plain;
    }
    let of = |group: &str| variable(&format!("{name}_HET_GROUP_{group}"));
    // Unlike how a component is laid out, this may be the wish of whoever wrote the script: where it is not the leader's.
    if name == env_vars::SLURM_GPU_BIND && plain.is_some() && plain != of("0") {
        return plain;
    }
    let own = of(group);
    if group == "0" { own.or(plain) } else { own }
}

/// Where a component's words end and another's begin. A step's components each have a program of their own; a job's only
/// options.
fn separator(command: Command, parsed: &Parsed) -> Option<usize> {
    let is = |word: &OsString| word == ":";
    match command {
        Command::Swait => None,
        Command::Srun => parsed.rest.iter().position(is).filter(|at| at + 1 < parsed.rest.len()),
        Command::Sbatch | Command::Salloc => parsed.rest.first().is_some_and(is).then_some(0),
    }
}

/// Says which options the site does not let a job have.
pub fn tell_ignored(typed: &Typed, cluster: &Cluster, console: &Console) {
    if cluster.config().allow_spec_resources {
        return;
    }
    for (option, given) in [("-S", typed.layout.core_spec), ("--thread-spec", typed.layout.thread_spec)] {
        if given.is_some() {
            let why = "it's not allowed by configuration (AllowSpecResourcesUsage = No)";
            console.error(format_args!("Ignoring {option} since {why}"));
        }
    }
}

/// Says what is wrong with the options; returns the exit code.
fn tell_source(command: Command, console: &Console, error: &SourceError) -> i32 {
    match error {
        SourceError::Getopt { error, line } => {
            console.line(error);
            if let Some(line) = line {
                console.hint(format_args!("error: {}", Place::Line(*line)));
            }
            if let Some(suggestion) = error.suggestion() {
                console.hint(suggestion);
            }
            let name = command.name();
            let hint = format!("Try \"{name} --help\" for more information");
            match command {
                Command::Swait => console.line(hint),
                _ => output::stderr(format!("{hint}\n").as_bytes()),
            }
            misuse(command, 255)
        }
        SourceError::Stray { word, line } => {
            console.error(format_args!("Invalid directive found in batch script: {word}"));
            console.hint(format_args!("error: {}", Place::Line(*line)));
            exit_code(255)
        }
        SourceError::Option { error, place } => {
            let code = tell_option(command, console, error);
            if let Some(place) = place {
                console.hint(format_args!("error: {place}"));
            }
            code
        }
    }
}

/// Says what is wrong with an option; returns the exit code.
pub fn tell_option(command: Command, console: &Console, error: &OptionError) -> i32 {
    match error {
        OptionError::Refused(refusal @ Refusal::InvalidGres(_)) => console.error(refusal),
        OptionError::Refused(refusal) => {
            console.error(format_args!("{}: {refusal}", failure(command)));
        }
        OptionError::Fatal(text) => console.fatal(text),
        OptionError::After { line, error } => {
            match line {
                FirstLine::Error(line) => console.error(line),
                FirstLine::Bare(line) => output::stderr(format!("{}\n", written_out(line)).as_bytes()),
            }
            tell_option(command, console, error);
        }
        error => console.error(error),
    }
    misuse(command, error.exit_code())
}

/// The exit code for wrong use: `swait` has one of its own, since 1 is for the time that is up.
fn misuse(command: Command, code: i32) -> i32 {
    exit_code(if command == Command::Swait { 2 } else { code })
}

/// Says why the cluster did not do what was asked; returns the exit code.
pub fn tell_cluster(command: Command, console: &Console, error: &ClusterError) -> i32 {
    error.details().iter().for_each(|line| console.error(line));
    match error.refusal() {
        Some(refusal @ Refusal::InvalidGres(_)) => console.error(refusal),
        _ => console.error(format_args!("{}: {error}", failure(command))),
    }
    exit_code(EXIT_ERROR)
}

/// How each command begins to say that there will be no job.
const fn failure(command: Command) -> &'static str {
    match command {
        Command::Sbatch => "Batch job submission failed",
        Command::Salloc => "Job submit/allocate failed",
        Command::Srun => "Unable to allocate resources",
        Command::Swait => "Unable to wait",
    }
}

/// The exit code for an error of ours: as given, or what `SLURM_EXIT_ERROR` says.
pub fn exit_code(code: i32) -> i32 {
    variable_code("SLURM_EXIT_ERROR").unwrap_or(code)
}

/// The exit code of an allocation that `--immediate` did not get.
pub fn immediate_code() -> i32 {
    variable_code("SLURM_EXIT_IMMEDIATE").unwrap_or(EXIT_ERROR)
}

fn variable_code(name: &str) -> Option<i32> {
    env::var(name).ok()?.trim().parse().ok().filter(|code| (0..=255).contains(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_a_component_binds_to_gpus_as_that_says_or_as_the_user_does() {
        let of = |group: &str, name: &str, set: &[(&str, &str)]| {
            let variable = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v));
            of_group(group, name, &variable).and_then(|value| value.into_string().ok())
        };
        let bind = |group: &str, set: &[(&str, &str)]| of(group, "SLURM_GPU_BIND", set);
        let jobs = ("SLURM_GPU_BIND_HET_GROUP_0", "closest");
        let leaders = [("SLURM_GPU_BIND", "closest"), jobs];
        assert_eq!((bind("0", &leaders).as_deref(), bind("1", &leaders)), (Some("closest"), None));
        let both = [("SLURM_GPU_BIND", "closest"), jobs, ("SLURM_GPU_BIND_HET_GROUP_1", "single:2")];
        assert_eq!(bind("1", &both).as_deref(), Some("single:2"));
        let users = [("SLURM_GPU_BIND", "none"), jobs, ("SLURM_GPU_BIND_HET_GROUP_1", "single:2")];
        assert_eq!((bind("0", &users).as_deref(), bind("1", &users).as_deref()), (Some("none"), Some("none")));
        assert_eq!(bind("1", &users[..1]).as_deref(), Some("none"));
        // How the leader is laid out says nothing of another.
        assert_eq!(of("1", "SLURM_NTASKS", &[("SLURM_NTASKS", "4")]), None);
    }
}
