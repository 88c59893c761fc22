//! One step, or the tasks of one step array, handed over in one request.

use super::{
    asked,
    given::Given,
    handover::{Handed, Handover},
};
use crate::{
    options::{
        job_spec::{Checked, Submitter},
        step_spec::StepWork,
        table::Command,
        typed::Typed,
    },
    output::{self, Console},
    submit::{no_step::no_step, startup},
};
use garrick_asking::{cluster::ClusterError, manager::Way};
use garrick_model::{
    batch::{BatchMembers, StepBatch},
    spec::StepSpec,
};

/// Hands it over. Returns the exit code.
pub fn run(typed: &Typed, submitter: Submitter, work: StepWork, way: Way, console: &Console) -> Result<i32, i32> {
    let job = way.job();
    let mut typed = typed.clone();
    if typed.array.is_some() || typed.batch {
        asked::without_layout_of_the_job(&mut typed);
        asked::one_task_at_least(&mut typed);
    }
    asked::no_more_nodes_of_the_job_than_tasks(&mut typed);
    let Checked { spec, warnings } = asked::spec(&typed, job, submitter, work)
        .map_err(|error| startup::tell_option(Command::Srun, console, &error))?;
    warnings.iter().for_each(|line| console.warning(line));
    let spec = StepSpec { fail_limit: asked::fail_limit(&typed), ..spec };
    let members = typed.array.clone().map_or(BatchMembers::Each, BatchMembers::Array);
    let mut handover = Handover::begin(way, console, None).map_err(|no_way| no_step(console, job, no_way))?;
    let error = match handover.hand_over(StepBatch { specs: vec![spec], members }) {
        Handed::Answered { given, declined } => match declined.into_iter().next() {
            Some((_, refusal)) => ClusterError::Refused(refusal),
            None => {
                let mut all = Given::default();
                given.into_iter().for_each(|given| all.add(given));
                let line = all.names(job).map(|name| submitted(&typed, &name));
                let written = output::stdout(|out| line.iter().try_for_each(|line| writeln!(out, "{line}")));
                return Ok(output::finish(console, written, 0));
            }
        },
        Handed::Refused(error) | Handed::Lost(error) => error,
        Handed::Interrupted { .. } => return Err(startup::exit_code(1)),
    };
    error.details().iter().for_each(|line| console.error(line));
    console.error(format_args!("Unable to create step for job {job}: {error}"));
    Err(startup::exit_code(1))
}

fn submitted(typed: &Typed, name: &str) -> String {
    if typed.parsable {
        name.to_owned()
    } else if typed.batch {
        format!("Submitted batch step {name}")
    } else {
        format!("Submitted step {name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handed_over_step_is_named() {
        let typed = Typed { asynchronous: true, ..Typed::default() };
        assert_eq!(submitted(&typed, "5609.0"), "Submitted step 5609.0");
        assert_eq!(submitted(&Typed { batch: true, ..typed.clone() }, "5609.0"), "Submitted batch step 5609.0");
        assert_eq!(submitted(&Typed { parsable: true, ..typed }, "5609.0"), "5609.0");
    }
}
