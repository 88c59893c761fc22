//! Combines the answers of many owners into one reply. If some tasks of an array refuse, the reply names each group of tasks with
//! the same answer.

use super::{core::OfSelectors, messages::Said};
use garrick_events::records::job::ranges_of;
use garrick_model::{messages::command::JobSelector, refusal::Refusal, view::JobView};
use std::collections::BTreeSet;

/// A job that a selector means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// Its tasks, if an array was named by its own id.
    tasks: Option<BTreeSet<u32>>,
    pub(super) heard: Heard,
}

/// The answer so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Its owner is being asked; answers come in the same order.
    Asked,
    /// No answer: it was forgotten meanwhile.
    Nothing,
    /// This answer.
    Is(Result<(), Refusal>),
}

/// By selector.
pub(super) type Answers = Vec<(JobSelector, Result<(), Refusal>)>;

impl Asked {
    fn new(view: &JobView, selector: &JobSelector, heard: Heard) -> Self {
        let meant = |index: &u32| selector.has_task(*index);
        let tasks = match (view.array_task, &view.array_pending) {
            (Some(task), _) if task.array_job == selector.job => Some(BTreeSet::from([task.index])),
            (None, Some(pending)) => Some(pending.indices().filter(meant).collect()),
            _ => None,
        };
        Self { tasks, heard }
    }

    /// A job whose owner is asked.
    pub(super) fn waiting(view: &JobView, selector: &JobSelector) -> Self {
        Self::new(view, selector, Heard::Asked)
    }

    /// A job whose owner is not asked.
    pub(super) fn refused(view: &JobView, selector: &JobSelector, refusal: Refusal) -> Self {
        Self::new(view, selector, Heard::Is(Err(refusal)))
    }

    /// One answer for the whole selector; `None`: an owner is asked.
    pub(super) fn of_all(known: Option<Result<(), Refusal>>) -> Self {
        Self { tasks: None, heard: known.map_or(Heard::Asked, Heard::Is) }
    }

    fn answer(self, said: &mut impl Iterator<Item = Said>) -> Option<Result<(), Refusal>> {
        match self.heard {
            Heard::Asked => said.next().and_then(Said::done),
            Heard::Nothing => None,
            Heard::Is(result) => Some(result),
        }
    }
}

/// One answer for each selector.
pub(super) fn per_job(asked: OfSelectors, mut said: impl Iterator<Item = Said>) -> Answers {
    let one = |(selector, asked): (JobSelector, Vec<Asked>)| {
        let answers: Vec<_> = asked.into_iter().map(|one| one.answer(&mut said)).collect();
        (selector, together(answers.into_iter()))
    };
    asked.into_iter().map(one).collect()
}

/// The same, except for arrays of which some tasks refuse.
pub(super) fn per_task(asked: OfSelectors, mut said: impl Iterator<Item = Said>) -> Answers {
    let mut answers = Vec::with_capacity(asked.len());
    for (selector, asked) in asked {
        let whole = asked.is_empty() || asked.iter().any(|one| one.tasks.is_none());
        let heard = asked.into_iter().map(|mut one| (one.tasks.take(), one.answer(&mut said)));
        if whole {
            let heard: Vec<_> = heard.map(|(_, answer)| answer).collect();
            answers.push((selector, together(heard.into_iter())));
        } else {
            let told = heard.filter_map(|(tasks, answer)| Some((tasks.unwrap_or_default(), answer?))).collect();
            answers.extend(grouped(selector, told));
        }
    }
    answers
}

/// One answer for all: success if one succeeded and the others said at most "already over"; if nobody answered, the job does not
/// exist.
pub(super) fn together(answers: impl Iterator<Item = Option<Result<(), Refusal>>>) -> Result<(), Refusal> {
    let (mut some_good, mut over, mut worst) = (false, false, None);
    for answer in answers.flatten() {
        match answer {
            Ok(()) => some_good = true,
            Err(Refusal::AlreadyDone) => over = true,
            Err(refusal) => worst = worst.or(Some(refusal)),
        }
    }
    match worst {
        Some(refusal) if !some_good || refusal == Refusal::AccessDenied => Err(refusal),
        _ if some_good => Ok(()),
        _ if over => Err(Refusal::AlreadyDone),
        _ => Err(Refusal::InvalidJobId),
    }
}

/// One answer for the array if no task refuses, otherwise one for each group of tasks, that of the first task first.
fn grouped(
    selector: JobSelector,
    told: Vec<(BTreeSet<u32>, Result<(), Refusal>)>,
) -> Vec<(JobSelector, Result<(), Refusal>)> {
    if told.is_empty() {
        return vec![(selector, Err(Refusal::InvalidJobId))];
    }
    if told.iter().all(|(_, result)| result.is_ok()) {
        return vec![(selector, Ok(()))];
    }
    let mut groups: Vec<(BTreeSet<u32>, Result<(), Refusal>)> = Vec::new();
    for (tasks, result) in told {
        match groups.iter_mut().find(|(_, other)| *other == result) {
            Some((all, _)) => all.extend(tasks),
            None => groups.push((tasks, result)),
        }
    }
    groups.sort_by_key(|(tasks, _)| tasks.first().copied());
    let named = |tasks| JobSelector { job: selector.job, tasks: Some(ranges_of(&tasks)), het: None, run: None };
    groups.into_iter().map(|(tasks, result)| (named(tasks), result)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use garrick_model::ids::JobId;

    fn answers(told: &[(&[u32], Result<(), Refusal>)]) -> Vec<(String, Result<(), Refusal>)> {
        let told = told.iter().map(|(tasks, result)| (tasks.iter().copied().collect(), result.clone())).collect();
        grouped(JobId(23).into(), told).into_iter().map(|(named, result)| (named.to_string(), result)).collect()
    }

    #[test]
    fn tasks_with_one_answer_are_named_together_where_some_refuse() {
        let over = || Err(Refusal::AlreadyDone);
        let told: [(&[u32], _); 4] =
            [(&[5, 6], Ok(())), (&[1], over()), (&[3], Err(Refusal::JobNotPending)), (&[2], over())];
        let grouped = answers(&told);
        let expected = [("23_[1-2]", over()), ("23_3", Err(Refusal::JobNotPending)), ("23_[5-6]", Ok(()))];
        assert_eq!(grouped, expected.map(|(name, result)| (name.to_owned(), result)));
        assert_eq!(answers(&[(&[1], Ok(())), (&[2, 3], Ok(()))]), [("23".to_owned(), Ok(()))]);
        assert_eq!(answers(&[]), [("23".to_owned(), Err(Refusal::InvalidJobId))]);
    }
}
