//! Programs of the site that daemons run around jobs and nodes: at which moment, with what, for how long. Who runs them is a daemon's
//! matter; what they are given is decided by the owners of jobs and nodes.

use std::time::Duration;

/// The moment at which a program of the site runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// On a node, before the job's first process there.
    Prolog,
    /// On a node, after its last.
    Epilog,
    /// On a node, from time to time.
    HealthCheck,
    /// On a node, when processes of a job cannot be killed.
    UnkillableStep,
    /// In the controller, before a job is launched.
    PrologSlurmctld,
    /// In the controller, when a job's work is over.
    EpilogSlurmctld,
    /// In the controller, when a reservation begins.
    ReservationProlog,
    /// In the controller, when a reservation ends.
    ReservationEpilog,
    /// In the controller: a user is told about a job.
    Mail,
    /// In the controller: nodes are powered up.
    Resume,
    /// In the controller: nodes were not there in time.
    ResumeFail,
    /// In the controller: nodes are powered down.
    Suspend,
    /// On a node, or in the controller: it is rebooted.
    Reboot,
    /// In the controller: a run of a job is over and is recorded.
    JobCompletion,
    /// In the controller: what a trigger waited for has happened (strigger(1)).
    Trigger,
    /// In the controller: it becomes the cluster's controller.
    PrimaryOn,
    /// In the controller: it is not the cluster's controller any more.
    PrimaryOff,
    /// In the service of accounting: what is old is archived before it is deleted.
    Archive,
}

impl Moment {
    /// The key of `slurm.conf` that names the program: for logs.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Prolog => "Prolog",
            Self::Epilog => "Epilog",
            Self::HealthCheck => "HealthCheckProgram",
            Self::UnkillableStep => "UnkillableStepProgram",
            Self::PrologSlurmctld => "PrologSlurmctld",
            Self::EpilogSlurmctld => "EpilogSlurmctld",
            Self::ReservationProlog => "ResvProlog",
            Self::ReservationEpilog => "ResvEpilog",
            Self::Mail => "MailProg",
            Self::Resume => "ResumeProgram",
            Self::ResumeFail => "ResumeFailProgram",
            Self::Suspend => "SuspendProgram",
            Self::Reboot => "RebootProgram",
            Self::JobCompletion => "JobCompLoc",
            Self::Trigger => "the program of a trigger",
            Self::PrimaryOn => "SlurmctldPrimaryOnProg",
            Self::PrimaryOff => "SlurmctldPrimaryOffProg",
            Self::Archive => "ArchiveScript",
        }
    }

    /// The value of `SLURM_SCRIPT_CONTEXT`; `None`: the program does not get the variable (prolog_epilog.html).
    pub const fn context(self) -> Option<&'static str> {
        match self {
            Self::Prolog => Some("prolog_slurmd"),
            Self::Epilog => Some("epilog_slurmd"),
            Self::HealthCheck => Some("health_check_slurmd"),
            Self::UnkillableStep => Some("unkillable_step_slurmd"),
            Self::PrologSlurmctld => Some("prolog_slurmctld"),
            Self::EpilogSlurmctld => Some("epilog_slurmctld"),
            Self::Mail | Self::Resume | Self::ResumeFail | Self::Suspend | Self::Reboot => None,
            Self::JobCompletion | Self::Trigger | Self::ReservationProlog | Self::ReservationEpilog => None,
            Self::Archive | Self::PrimaryOn | Self::PrimaryOff => None,
        }
    }
}

/// Programs to run, one after the other; the first that fails ends the row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteProgram {
    /// When.
    pub moment: Moment,
    /// Absolute paths, or patterns such as `/etc/slurm/prolog.d/*`.
    pub programs: Vec<String>,
    /// Arguments of each.
    pub arguments: Vec<String>,
    /// Environment of each, besides `PATH` and `SLURM_SCRIPT_CONTEXT`.
    pub environment: Vec<(String, String)>,
    /// How long each may run before it is killed; `None`: for ever.
    pub limit: Option<Duration>,
}

impl SiteProgram {
    /// One program, with its own arguments and one more behind them: the words of a command, which no shell reads.
    pub fn of_words(
        moment: Moment,
        words: impl IntoIterator<Item = String>,
        argument: String,
        limit: Option<Duration>,
    ) -> Self {
        let mut words = words.into_iter();
        let programs = words.next().into_iter().collect();
        Self { moment, programs, arguments: words.chain([argument]).collect(), environment: Vec::new(), limit }
    }
}

/// A variable for the environment.
pub fn variable(name: &str, value: impl ToString) -> (String, String) {
    (name.to_owned(), value.to_string())
}
