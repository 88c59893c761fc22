//! Messages when there is no step: its manager was not reached, or refused.

use super::startup;
use crate::{output::Console, telling::no_step_manager};
use garrick_asking::{cluster::refusal_details, search::NoWay};
use garrick_model::{ids::JobId, refusal::Refusal};

/// Says that a step's manager was not reached. Returns the exit code.
pub fn no_step(console: &Console, job: JobId, no_way: NoWay) -> i32 {
    match no_way {
        NoWay::Interrupted(signal) => {
            console.info(format_args!("Cancelled pending job step with signal {signal}"));
        }
        NoWay::TimeUp => {
            let why = "its step manager did not answer in time (--immediate)";
            console.error(format_args!("Unable to create step for job {job}: {why}"));
        }
        NoWay::Over(end) => console.error(format_args!("Unable to create step for job {job}: {end}")),
        NoWay::Failed(error) => no_step_manager(console, job, &error),
    }
    startup::exit_code(1)
}

/// Says why a step manager declined, for commands without a step of their own.
pub fn tell_refusal(console: &Console, refusal: &Refusal) {
    refusal_details(refusal).iter().for_each(|line| console.error(line));
    console.error(refusal);
}
