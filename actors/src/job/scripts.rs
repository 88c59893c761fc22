//! PrologSlurmctld and EpilogSlurmctld: programs of the site that the controller runs before a run is launched, and when its work is
//! over. The record says which of them a run still waits for, so that a controller that starts again runs it again: at least once,
//! and never after it has succeeded.

use super::{
    core::{JobCore, Turn},
    effects::{JobEffect, JobErrand},
};
use crate::messages::job::Script;
use garrick_events::records::{
    job::{End, Phase, Run},
    job_event::JobEvent,
};
use garrick_model::{
    ids::Sluid,
    site_program::{Moment, SiteProgram},
    state::{ExitStatus, JobState, Reason},
};

impl JobCore {
    /// A new run waits for what the site has.
    pub(super) fn with_scripts(&self, run: Run) -> Run {
        let programs = &self.site.programs;
        Run { awaits_prolog: !programs.prolog.is_empty(), awaits_epilog: !programs.epilog.is_empty(), ..run }
    }

    /// The launch has to wait for the prolog, which runs then.
    pub(super) fn awaits_prolog(&mut self, turn: &mut Turn<'_>) -> bool {
        let awaits = matches!(&self.record.phase, Phase::Starting(run) if run.awaits_prolog);
        if awaits && self.script.is_none() {
            self.run_script(Script::Prolog, turn);
        }
        awaits
    }

    /// Runs the epilog of a run whose work is over: not beside its prolog, which may still run.
    pub(super) fn run_epilog(&mut self, turn: &mut Turn<'_>) {
        let awaits = matches!(&self.record.phase, Phase::Completing(run, _) if run.awaits_epilog);
        if awaits && self.script.is_none() {
            self.run_script(Script::Epilog, turn);
        }
    }

    fn run_script(&mut self, script: Script, turn: &mut Turn<'_>) {
        let programs = &self.site.programs;
        let (moment, programs, limit) = match script {
            Script::Prolog => (Moment::PrologSlurmctld, programs.prolog.clone(), programs.prolog_limit),
            Script::Epilog => (Moment::EpilogSlurmctld, programs.epilog.clone(), programs.epilog_limit),
        };
        let environment = self.environment(turn.now);
        let program = Box::new(SiteProgram { moment, programs, arguments: Vec::new(), environment, limit });
        let sluid = self.record.sluid;
        self.script = Some((sluid, script));
        turn.out.push(JobEffect::Do(JobErrand::Script { sluid, script, program }));
    }

    /// One of them has ended.
    pub(super) fn script_ended(
        &mut self,
        sluid: Sluid,
        script: Script,
        result: Result<(), String>,
        turn: &mut Turn<'_>,
    ) {
        if self.script == Some((sluid, script)) {
            self.script = None;
        }
        let current = self.record.sluid == sluid;
        match (&self.record.phase, script) {
            (Phase::Starting(run), Script::Prolog) if current && run.awaits_prolog => match result {
                Ok(()) if run.ending.is_none() => {
                    self.save(JobEvent::Prepared, turn);
                    self.launch(turn);
                    self.limit_launch(turn);
                }
                result => self.end_unprepared(result.err(), turn),
            },
            (Phase::Completing(run, _), Script::Epilog) if current && run.awaits_epilog => {
                self.save(JobEvent::EpilogEnded, turn);
                if self.is_over() {
                    self.after_end(turn);
                }
            }
            // The prolog of a run that was ended meanwhile: what waited for its end goes on.
            _ => {
                self.run_epilog(turn);
                if !self.het_holds_launch() {
                    self.awaits_prolog(turn);
                }
            }
        }
    }

    /// The prolog failed, or an end was requested meanwhile. Only batch jobs are requeued, and they are not held
    /// (prolog_epilog.html; seen in 26.05.3).
    fn end_unprepared(&mut self, cause: Option<String>, turn: &mut Turn<'_>) {
        let Some(run) = self.record.phase.working() else { return };
        let (state, reason, then) = match &run.ending {
            Some(ending) => (ending.state, ending.reason.clone(), ending.then),
            None if self.may_be_requeued() => (JobState::Cancelled, Reason::None, self.requeue_unasked()),
            None => (JobState::Cancelled, Reason::None, self.after_work()),
        };
        let exit = ExitStatus::SUCCESS;
        self.end(End { state, reason, exit, derived: exit, at: turn.now, then, cause, by: None, sluid: None }, turn);
    }
}
