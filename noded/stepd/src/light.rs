//! Messages that are held back from a light `srun`, which understands only four kinds and displays nothing itself. If all goes
//! well, it only gets the end. Otherwise it becomes the whole command, which gets all that was held back.

use garrick_frame::light::{Launch, MOST_TEXT, WORDS};
use garrick_model::{
    ids::JobId,
    messages::step::{LightReply, StepMgrToCommand},
    state::{ExitStatus, StepState},
    time::Timestamp,
};
use garrick_options::light::{self, Asked};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Descriptors of a light `srun`: 0, 1 and 2.
const ALL: usize = 3;

/// Whose steps are asked for, and where.
#[derive(Clone, Debug)]
pub struct Asks {
    /// Job.
    pub job: JobId,
    /// Its owner.
    pub uid: u32,
    /// This host, up to its first dot.
    pub host: String,
}

impl Asks {
    /// Reads a request of that user, which came with so many descriptors. `None`: the whole command has to handle it. Only
    /// requests of the job's owner are read.
    pub fn read(&self, body: &[u8], uid: u32, descriptors: usize) -> Option<Asked> {
        if uid != self.uid || descriptors != ALL || body.len() > WORDS * 8 + MOST_TEXT {
            return None;
        }
        let launch = Launch::read(body)?;
        // Whatever a user's words do to the code that reads them, other steps of the job go on.
        let read = || light::read(&launch, self.job, &self.host, Timestamp::now());
        catch_unwind(AssertUnwindSafe(read)).ok().flatten()
    }
}

/// What is to be told.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// Nothing now.
    Nothing,
    /// A line on standard error.
    Line(String),
    /// The step is over, and nothing is to be said.
    Done,
    /// The command is to be the whole one, and hear this.
    TakeOver(Vec<StepMgrToCommand>),
}

/// A conversation with a light `srun`.
#[derive(Debug)]
pub struct Kept {
    job: JobId,
    quiet: bool,
    waits: bool,
    messages: Vec<StepMgrToCommand>,
}

impl Kept {
    /// No messages yet.
    pub const fn new(job: JobId, quiet: bool) -> Self {
        Self { job, quiet, waits: false, messages: Vec::new() }
    }

    /// The step manager says something.
    pub fn hear(&mut self, message: StepMgrToCommand) -> Told {
        match &message {
            StepMgrToCommand::Accepted { warnings, .. } if warnings.is_empty() => {}
            // Messages that were sent are not kept, or they would be repeated.
            StepMgrToCommand::Queued { .. } => {
                let first = !std::mem::replace(&mut self.waits, true);
                return if first { self.say(light::waits(self.job)) } else { Told::Nothing };
            }
            StepMgrToCommand::Started(layout) if layout.handed == [true; 3] => {
                let step = self.messages.iter().find_map(|kept| match kept {
                    StepMgrToCommand::Accepted { step, .. } => Some(*step),
                    _ => None,
                });
                self.messages.push(message);
                return match step.filter(|_| self.waits) {
                    Some(step) => self.say(light::created(step)),
                    None => Told::Nothing,
                };
            }
            StepMgrToCommand::TaskExited { status: ExitStatus { code: 0, signal: None, .. }, oom: false, .. } => {}
            StepMgrToCommand::Finished {
                exit: ExitStatus { code: 0, signal: None, .. },
                state: StepState::Completed,
            } => return Told::Done,
            _ => {
                self.messages.push(message);
                return Told::TakeOver(self.take());
            }
        }
        self.messages.push(message);
        Told::Nothing
    }

    /// The command is the whole one from now on: this is what it has missed.
    pub fn take(&mut self) -> Vec<StepMgrToCommand> {
        let begun = self.messages.iter().any(|message| matches!(message, StepMgrToCommand::Started(_)));
        let waits = (self.waits && !begun).then_some(StepMgrToCommand::Light(LightReply::Waits));
        // Right behind the step's number, where it has been said.
        let mut missed = std::mem::take(&mut self.messages);
        let behind = missed.len().min(1);
        missed.splice(behind..behind, waits);
        missed
    }

    fn say(&self, text: String) -> Told {
        if self.quiet { Told::Nothing } else { Told::Line(format!("srun: {text}\n")) }
    }
}

#[cfg(test)]
#[path = "light_test.rs"]
mod tests;
