//! The site's programs that the controller runs for its actors: mail, prologs and epilogs of its own, and those for the power of
//! nodes, and those of triggers. At most so many run at a time, and so many wait; mail and triggers do not hold up the others.

use crate::scripts;
use garrick_actors::controller::shells::ports::SitePrograms;
use garrick_model::site_program::{Moment, SiteProgram};
use garrick_runtime::ReplyTo;
use std::sync::Arc;
use tokio::{runtime::Handle, sync::Semaphore};

/// Rows of a kind that run at a time.
#[derive(Debug)]
struct Lane {
    /// Free places to run in.
    running: Arc<Semaphore>,
    /// Free places to run or wait in.
    places: Arc<Semaphore>,
}

impl Lane {
    fn new(running: usize, places: usize) -> Self {
        Self { running: Arc::new(Semaphore::new(running)), places: Arc::new(Semaphore::new(places)) }
    }
}

/// Programs of mail that run at a time. Each is short, and nobody waits for it.
const MAILS: usize = 16;
/// Programs of triggers that run at a time: users may set them, and each may take minutes.
const TRIGGERS: usize = 16;
/// Other programs that run at a time: a prolog of a job may take minutes, and jobs start in crowds.
const OTHERS: usize = 256;
/// Rows of a kind that may wait or run; one more is refused.
const PLACES: usize = 16_384;

/// Runs them.
#[derive(Debug)]
pub struct Runner {
    mails: Lane,
    triggers: Lane,
    others: Lane,
    runtime: Handle,
}

impl Runner {
    /// For the runtime of the calling thread, which has to live as long as the controller.
    pub fn here() -> Self {
        let [mails, triggers, others] = [MAILS, TRIGGERS, OTHERS].map(|running| Lane::new(running, PLACES));
        Self { mails, triggers, others, runtime: Handle::current() }
    }
}

impl SitePrograms for Runner {
    fn run(&self, program: SiteProgram, done: ReplyTo<Result<(), String>>) {
        let lane = match program.moment {
            Moment::Mail => &self.mails,
            Moment::Trigger => &self.triggers,
            _ => &self.others,
        };
        let Ok(place) = Arc::clone(&lane.places).try_acquire_owned() else {
            let why = format!("{} was not run: {PLACES} others wait", program.moment.key());
            tracing::error!("{why}");
            return done.reply(Err(why));
        };
        let running = Arc::clone(&lane.running);
        self.runtime.spawn(async move {
            let _turn = running.acquire_owned().await;
            let outcome = scripts::run(&program).await.map_err(|e| e.to_string());
            if let Err(error) = &outcome {
                let variable = program.environment.iter().find(|(name, _)| name == "SLURM_JOB_ID");
                tracing::error!(job_id = variable.map(|(_, job)| job), "{error}");
            }
            drop(place);
            done.reply(outcome);
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_runtime::ReplyTo;

    fn row(moment: Moment, program: &str, argument: &str) -> SiteProgram {
        let (programs, arguments) = (vec![program.to_owned()], vec![argument.to_owned()]);
        SiteProgram { moment, programs, arguments, environment: Vec::new(), limit: None }
    }

    #[tokio::test]
    async fn who_asks_learns_how_it_ended() {
        let runner = Runner::here();
        let (done, well) = ReplyTo::channel();
        runner.run(row(Moment::EpilogSlurmctld, "/bin/test", "words"), done);
        let (done, badly) = ReplyTo::channel();
        runner.run(row(Moment::PrologSlurmctld, "/bin/test", ""), done);
        assert_eq!(well.await.unwrap(), Ok(()));
        assert!(badly.await.unwrap().unwrap_err().contains("PrologSlurmctld /bin/test failed with exit code 1"));
    }

    #[tokio::test]
    async fn beyond_the_places_a_row_is_refused_at_once() {
        let runner = Runner { mails: Lane::new(1, 0), ..Runner::here() };
        let (done, refused) = ReplyTo::channel();
        runner.run(row(Moment::Mail, "/bin/test", "words"), done);
        assert!(refused.await.unwrap().unwrap_err().contains("MailProg was not run"));
    }

    #[tokio::test]
    async fn triggers_do_not_hold_up_what_jobs_wait_for() {
        let runner = Runner { triggers: Lane::new(0, PLACES), ..Runner::here() };
        let (done, _waits) = ReplyTo::channel();
        runner.run(row(Moment::Trigger, "/bin/test", "words"), done);
        let (done, prolog) = ReplyTo::channel();
        runner.run(row(Moment::PrologSlurmctld, "/bin/test", "words"), done);
        assert_eq!(prolog.await.unwrap(), Ok(()));
    }
}
