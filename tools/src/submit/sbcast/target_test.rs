#![allow(clippy::unwrap_used)]
use super::*;

#[test]
fn jobs_components_and_steps_are_named() {
    let named = |text: &str| Named::parse(text).map(|named| (named.job, named.offset, named.step));
    let step = |text: &str| Some(text.parse::<StepKey>().unwrap());
    assert_eq!(named("5"), Ok((Id::Job(JobId(5)), None, None)));
    assert_eq!(named("5+2"), Ok((Id::Job(JobId(5)), Some(2), None)));
    assert_eq!(named("5.3"), Ok((Id::Job(JobId(5)), None, step("3"))));
    assert_eq!(named("5+1.batch"), Ok((Id::Job(JobId(5)), Some(1), step("batch"))));
    assert_eq!(named("5_7"), Ok((Id::Task(JobId(5), 7), None, None)));
    let run = Sluid(70);
    assert_eq!(named(&run.to_string()), Ok((Id::Run(run), None, None)));
    for (wrong, why) in [
        ("", "JobID must not be an empty string"),
        ("x", "JobID can not be zero"),
        ("0", "JobID can not be zero"),
        ("1.x", "StepID includes unexpected non-numeric characters"),
        ("1+x", "HetJobOffset includes unexpected non-numeric characters"),
    ] {
        assert_eq!(named(wrong), Err(why), "{wrong}");
    }
}

#[test]
fn all_components_are_meant_unless_one_is_named() {
    let targets = |text: &str, jobs: &[u32]| {
        let jobs: Vec<JobId> = jobs.iter().copied().map(JobId).collect();
        let named = Named::parse(text).unwrap();
        named.of_jobs(&jobs).into_iter().map(|t| (t.job.0, t.step.map(|s| s.to_string()), t.text)).collect::<Vec<_>>()
    };
    assert_eq!(targets("5", &[5]), [(5, None, "5".to_owned())]);
    assert_eq!(targets("5", &[5, 6]), [(5, None, "5+0".to_owned()), (6, None, "5+1".to_owned())]);
    assert_eq!(targets("5+1.2", &[6]), [(6, Some("6.2".to_owned()), "5+1.2".to_owned())]);
}

#[test]
fn why_a_job_has_no_nodes_is_said_in_slurms_words() {
    let said = |refusal: Refusal| lookup_error("5.1", &refusal.into());
    assert_eq!(said(Refusal::AccessDenied), "Slurm job 5.1 lookup error: Invalid user id");
    assert_eq!(said(Refusal::InvalidStep("5.1".into())), "Slurm job 5.1 lookup error: Invalid job id specified");
    assert_eq!(said(Refusal::JobPending), "Slurm job 5.1 lookup error: Job is pending execution");
}
