//! Steps as lines: waiting steps that differ in nothing but their number are one line (`5609.7_[3-9999%64]`,
//! `5609.[5-1000]`), or a line each. For `squeue -s` and `scontrol show step`.

use garrick_model::{
    ids::{StepId, StepKey},
    messages::command::JobSelector,
    spec::ArraySpec,
    step_selector::{StepsSelector, WhichSteps},
    view::{JobView, StepView},
};

/// Whether alike waiting steps are one line or a line each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alike {
    /// One line.
    Folded,
    /// A line each.
    Expanded,
}

/// Which of the steps that a view stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    One(StepKey),
    Many(WhichSteps),
}

/// One line.
#[derive(Clone, Debug)]
pub struct StepLine<'a> {
    /// What its steps have in common.
    pub view: &'a StepView,
    /// Their job, where it is known.
    pub job: Option<&'a JobView>,
    part: Part,
}

impl<'a> StepLine<'a> {
    /// Lines of a view: those of its steps that are named; all when none are.
    pub fn of(view: &'a StepView, job: Option<&'a JobView>, named: &[StepsSelector], alike: Alike) -> Vec<Self> {
        let own = |n: &&StepsSelector| {
            match (n.array_task(), n.het) {
                (Some(task), None) => job.is_some_and(|j| j.array_task == Some(task)),
                // The component may be named by its offset.
                (None, Some(offset)) => job.is_some_and(|j| j.spec.het == Some((n.job, offset))),
                (None, None) => n.job == view.id.job,
                (Some(_), Some(_)) => false,
            }
        };
        let mut parts: Vec<WhichSteps> = Vec::new();
        let all = view.waiting.clone().unwrap_or_else(|| WhichSteps::one(view.id.key()));
        if named.is_empty() {
            parts.push(all);
        } else {
            for part in named.iter().filter(own).filter_map(|n| all.and(&n.which)) {
                if !parts.contains(&part) {
                    parts.push(part);
                }
            }
        }
        let line = |part| Self { view, job, part };
        let split = |which: WhichSteps| -> Vec<Self> {
            match (which.single(), alike) {
                (Some(only), _) => vec![line(Part::One(only))],
                (None, Alike::Expanded) => which.keys().map(|key| line(Part::One(key))).collect(),
                (None, Alike::Folded) => vec![line(Part::Many(which))],
            }
        };
        parts.into_iter().flat_map(split).collect()
    }

    /// The first of its steps.
    pub fn first(&self) -> StepId {
        let key = match &self.part {
            Part::One(key) => *key,
            Part::Many(which) => which.keys().next().unwrap_or(self.view.id.key()),
        };
        StepId { het: self.view.id.het, ..StepId::of(self.view.id.job, key) }
    }

    /// `503.0`, `503.7_[3-9999%64]`, with the array and its task where its job is one: `504_3.0`. Long lists are cut to
    /// `limit` characters.
    pub fn id_text(&self, limit: Option<usize>) -> String {
        let id = self.view.id;
        let job = match (self.job.and_then(|j| j.array_task), id.het) {
            (Some(task), None) => task.to_string(),
            (Some(task), Some(het)) => format!("{task}+{het}"),
            (None, None) => id.job.to_string(),
            (None, Some(het)) => format!("{}+{het}", id.job),
        };
        let steps = match &self.part {
            Part::One(key) => key.to_string(),
            Part::Many(WhichSteps::Numbers(numbers)) => format!("[{}]", cut(numbers, limit)),
            Part::Many(WhichSteps::Tasks { step, tasks }) => format!("{step}_[{}]", cut(tasks, limit)),
            Part::Many(which) => which.to_string(),
        };
        format!("{job}.{steps}")
    }
}

/// Is the step's job meant: by its own id, as a task of an array, or as a component of a heterogeneous job, of which the
/// leader's id means all?
pub fn is_of_job(step: &StepView, job: Option<&JobView>, wanted: &JobSelector) -> bool {
    let het = job.and_then(|job| job.spec.het);
    if wanted.run.is_some() {
        return wanted.job == step.id.job;
    }
    match wanted.het {
        Some(offset) => het == Some((wanted.job, offset)),
        None if wanted.tasks.is_none() && het.is_some_and(|(leader, _)| leader == wanted.job) => true,
        None => {
            let task = job.and_then(|job| job.array_task);
            wanted.job == step.id.job || task.is_some_and(|t| t.array_job == wanted.job && wanted.has_task(t.index))
        }
    }
}

/// A list of indices, of at most so many characters.
pub fn cut(list: &ArraySpec, limit: Option<usize>) -> String {
    let mut text = list.to_string();
    if let Some(limit) = limit
        && text.len() > limit
    {
        let end = text[..limit].rfind(',').map_or(limit, |comma| comma + 1);
        text.truncate(end);
        text.push_str("...");
    }
    text
}

/// All steps of these jobs.
pub fn all_of(job: &JobSelector) -> Vec<StepsSelector> {
    let of = |task| StepsSelector { job: job.job, task, het: job.het, run: job.run, which: WhichSteps::All };
    match &job.tasks {
        None => vec![of(None)],
        Some(ranges) => ranges
            .iter()
            .flat_map(|(first, last, step)| (*first..=*last).step_by((*step).max(1) as usize))
            .map(|task| of(Some(task)))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing as views;
    use garrick_model::{
        ids::{JobId, StepNum},
        state::StepState,
    };

    fn waiting(which: &str) -> StepView {
        let which: WhichSteps = which.parse().unwrap();
        let first = which.keys().next().unwrap();
        StepView {
            id: StepId::of(JobId(503), first),
            state: StepState::Pending,
            waiting: Some(which),
            ..views::step(StepNum::Number(0), "sleep", "")
        }
    }

    fn ids(view: &StepView, named: &[&str], alike: Alike) -> Vec<String> {
        let named: Vec<StepsSelector> = named.iter().map(|n| n.parse().unwrap()).collect();
        StepLine::of(view, None, &named, alike).iter().map(|l| l.id_text(Some(64))).collect()
    }

    #[test]
    fn waiting_steps_are_one_line_or_a_line_each() {
        assert_eq!(ids(&waiting("7_[3-9999%64]"), &[], Alike::Folded), ["503.7_[3-9999%64]"]);
        assert_eq!(ids(&waiting("[5-1000]"), &[], Alike::Folded), ["503.[5-1000]"]);
        assert_eq!(ids(&waiting("7_[3-4,9]"), &[], Alike::Expanded), ["503.7_3", "503.7_4", "503.7_9"]);
        assert_eq!(ids(&waiting("7_3"), &[], Alike::Folded), ["503.7_3"]);
        assert_eq!(ids(&waiting("7_[3-9999]"), &[], Alike::Expanded).len(), 9997);
    }

    #[test]
    fn those_that_are_named_are_taken_out_of_many() {
        let array = waiting("7_[3-9999%64]");
        assert_eq!(ids(&array, &["503.7_5"], Alike::Folded), ["503.7_5"]);
        assert_eq!(ids(&array, &["503.7_[1-5]", "503.7_[1-5]"], Alike::Folded), ["503.7_[3-5%64]"]);
        assert_eq!(ids(&array, &["503.7"], Alike::Folded), ["503.7_[3-9999%64]"]);
        assert_eq!(ids(&waiting("[5-1000]"), &["503.6", "503.[990-2000]"], Alike::Folded), ["503.6", "503.[990-1000]"]);
        for other in ["503.8", "503.7_2", "504.7", "503_1.7", "503+1.7"] {
            assert_eq!(ids(&array, &[other], Alike::Folded), [""; 0], "{other}");
        }
        let running = views::step(StepNum::Batch, "batch", "n1");
        assert_eq!(ids(&running, &["503.batch"], Alike::Folded), ["503.batch"]);
        assert_eq!(ids(&running, &["503.*"], Alike::Folded), [""; 0]);
    }

    #[test]
    fn long_lists_are_cut() {
        let many: Vec<String> = (0..100).map(|n| (n * n).to_string()).collect();
        let view = waiting(&format!("7_[{}]", many.join(",")));
        let lines = StepLine::of(&view, None, &[], Alike::Folded);
        let text = lines[0].id_text(Some(64));
        assert!(text.starts_with("503.7_[0-1,4,9,") && text.ends_with(",...]") && text.len() < 80, "{text}");
        assert_eq!(lines[0].first().to_string(), "503.7_0");
    }

    #[test]
    fn a_component_is_named_by_its_offset_and_all_by_the_leader() {
        let mut job = views::job(503, &[("n1", 1)]);
        std::sync::Arc::make_mut(&mut job.spec).het = Some((JobId(502), 1));
        let view = views::step(StepNum::Number(0), "sleep", "n1");
        let shown = |named: &str| {
            let named = [named.parse().unwrap()];
            StepLine::of(&view, Some(&job), &named, Alike::Folded).iter().map(|l| l.id_text(None)).collect::<Vec<_>>()
        };
        assert_eq!(shown("502+1.0"), ["503.0"]);
        assert_eq!(shown("503.0"), ["503.0"]);
        assert!(shown("502+0.0").is_empty() && shown("502.0").is_empty());
        let wanted = |job: u32, het| JobSelector { job: JobId(job), tasks: None, het, run: None };
        for (selector, meant) in [
            (wanted(502, None), true),
            (wanted(502, Some(1)), true),
            (wanted(503, None), true),
            (wanted(502, Some(0)), false),
            (wanted(501, None), false),
        ] {
            assert_eq!(is_of_job(&view, Some(&job), &selector), meant, "{selector:?}");
        }
    }

    #[test]
    fn a_task_of_a_job_array_is_named_as_one() {
        let job = views::task(3, views::job(503, &[("n1", 1)]));
        let view = waiting("7_[3-4]");
        let named = ["504_3.7_3".parse().unwrap()];
        let lines = StepLine::of(&view, Some(&job), &named, Alike::Folded);
        assert_eq!(lines[0].id_text(None), "504_3.7_3");
    }
}
