//! `jobcomp/script`: a program of the site runs for each run. Several run at a time, so that one that hangs holds up no other. Whoever
//! is still at work after a moment goes on beside the next ones; its run counts as recorded, since it is never run again: it may have
//! done half of its work.

use super::{forms::Completed, queue::Waiting};
use crate::scripts;
use garrick_model::{
    config::ScriptSettings,
    site_program::{Moment, SiteProgram},
};
use std::{sync::Arc, time::Duration};
use tokio::{sync::Mutex, task::JoinSet, time::timeout};

/// A program that takes longer is not waited for, as long as others may run beside it.
const MOMENT: Duration = Duration::from_secs(2);

/// The program, and its runs that are not over.
#[derive(Debug)]
pub struct Scripts {
    program: String,
    limit: Duration,
    most: usize,
    at_work: Mutex<JoinSet<()>>,
}

impl Scripts {
    /// That program.
    pub fn new(program: String, settings: ScriptSettings) -> Self {
        let limit = Duration::from_secs(settings.timeout_secs.into());
        let most = usize::try_from(settings.concurrency).unwrap_or(1).max(1);
        Self { program, limit, most, at_work: Mutex::default() }
    }

    /// Runs it for each of these. Those that have ended by then, or have run for a moment, are not waited for.
    pub async fn run(&self, runs: &[Arc<Waiting>]) {
        let mut at_work = self.at_work.lock().await;
        for waiting in runs {
            while at_work.len() >= self.most {
                ended(at_work.join_next().await);
            }
            let (program, job_id) = (self.of(&waiting.run), waiting.run.row.job.0);
            at_work.spawn(async move {
                if let Err(error) = scripts::run(&program).await {
                    tracing::error!(job_id, "{error}");
                }
            });
        }
        let all = async {
            while let Some(one) = at_work.join_next().await {
                ended(Some(one));
            }
        };
        // Those that go on keep their places.
        let _ = timeout(MOMENT, all).await;
    }

    fn of(&self, run: &Completed) -> SiteProgram {
        SiteProgram {
            moment: Moment::JobCompletion,
            programs: vec![self.program.clone()],
            arguments: Vec::new(),
            environment: run.variables(),
            limit: Some(self.limit),
        }
    }
}

fn ended(one: Option<Result<(), tokio::task::JoinError>>) {
    if let Some(Err(error)) = one {
        tracing::error!(%error, "a program of JobCompLoc");
    }
}
