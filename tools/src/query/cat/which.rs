//! `--step`: `7`, `7_3`, `7_[1-10]`, `3-9`, `batch`, `*`, each with or without the job in front (`5609.7_3`), and lists.

use crate::query::choices::at_commas;
use garrick_model::step_selector::{StepsSelector, WhichSteps};
use garrick_pack::Pick;

/// The steps that a list names.
pub(super) fn parse(list: &str) -> Result<Vec<Pick>, String> {
    at_commas(list).into_iter().map(|item| pick(item).map_err(|why| format!("--step={list}: {why}"))).collect()
}

fn pick(text: &str) -> Result<Pick, String> {
    if !text.contains('.') {
        let which = text.parse::<WhichSteps>().map_err(|e| e.to_string())?;
        return Ok(Pick { job: None, het: None, which });
    }
    let steps: StepsSelector = text.parse().map_err(|e: garrick_model::ids::IdError| e.to_string())?;
    if steps.task.is_some() {
        return Err(format!("\"{text}\" names a task of a job array; packs know jobs by their own ids"));
    }
    Ok(Pick { job: Some(steps.job), het: steps.het, which: steps.which })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::ids::{JobId, StepId, StepKey};

    #[test]
    fn lists_are_split_outside_brackets() {
        let picks = parse("7_[1,3],5609.4,8-9,batch,5610.*").unwrap();
        let shown: Vec<String> =
            picks.iter().map(|p| format!("{}{}", p.job.map_or(String::new(), |j| format!("{j}.")), p.which)).collect();
        assert_eq!(shown, ["7_[1,3]", "5609.4", "[8-9]", "batch", "5610.*"]);
        let selection = garrick_pack::Selection { picks };
        let id = |job, key| StepId::of(JobId(job), key);
        assert!(selection.contains(&id(1, StepKey::task(7, 3))) && !selection.contains(&id(1, StepKey::task(7, 2))));
        assert!(selection.contains(&id(5609, StepKey::number(4))) && !selection.contains(&id(1, StepKey::number(4))));
    }

    #[test]
    fn what_names_no_step_is_said() {
        assert_eq!(parse("7,x").unwrap_err(), "--step=7,x: step id \"x\": \"x\" is not a number");
        assert_eq!(parse("7,").unwrap_err(), "--step=7,: step id is empty");
        assert_eq!(
            parse("5609_3.1").unwrap_err(),
            "--step=5609_3.1: \"5609_3.1\" names a task of a job array; packs know jobs by their own ids"
        );
        assert!(parse("7_[1").is_err() && parse("9-3").is_err() && parse("5609.").is_err());
    }
}
