//! Answers to commands about jobs. Where some tasks of an array refuse, each group of its tasks that has one answer is named.

use super::{
    commands::{Answer, Pending, together},
    front::ControllerActor,
    ports::ReplySink,
};
use crate::job::record::ranges_of;
use garrick_model::{
    messages::command::{CommandReply, JobSelector},
    refusal::Refusal,
    view::JobView,
};
use garrick_runtime::{Context, ReplyTo};
use std::collections::BTreeSet;

/// One of those that a selector means.
pub(super) struct Asked {
    /// The tasks that it is, where an array was named by its own id.
    tasks: Option<BTreeSet<u32>>,
    answer: Answer,
}

impl Asked {
    pub(super) fn new(view: &JobView, selector: &JobSelector, answer: Answer) -> Self {
        let meant = |index: &u32| selector.has_task(*index);
        let tasks = match (view.array_task, &view.array_pending) {
            (Some(task), _) if task.array_job == selector.job => Some(BTreeSet::from([task.index])),
            (None, Some(pending)) => Some(pending.indices().filter(meant).collect()),
            _ => None,
        };
        Self { tasks, answer }
    }

    /// One answer for all that was named.
    pub(super) const fn of_all(answer: Answer) -> Self {
        Self { tasks: None, answer }
    }

    /// One that is not asked at all.
    pub(super) fn refused(view: &JobView, selector: &JobSelector, refusal: Refusal) -> Self {
        let (reply, answer) = ReplyTo::channel();
        reply.reply(Err(refusal));
        Self::new(view, selector, answer)
    }

    pub(super) fn answer(self) -> Answer {
        self.answer
    }
}

impl ControllerActor {
    pub(super) fn answer_per_task(
        cx: &mut Context<Self>,
        asked: Vec<(JobSelector, Vec<Asked>)>,
        mut replies: Box<dyn ReplySink>,
    ) {
        cx.spawn(async move {
            let mut answers = Vec::with_capacity(asked.len());
            for (selector, asked) in asked {
                if asked.is_empty() || asked.iter().any(|one| one.tasks.is_none()) {
                    let pending: Pending = asked.into_iter().map(|one| one.answer).collect();
                    answers.push((selector, together(pending).await));
                    continue;
                }
                let mut told = Vec::with_capacity(asked.len());
                for Asked { tasks, answer } in asked {
                    // The job was forgotten meanwhile.
                    if let Ok(result) = answer.await {
                        told.push((tasks.unwrap_or_default(), result));
                    }
                }
                answers.extend(grouped(selector, told));
            }
            replies.send(CommandReply::PerJob(answers));
        });
    }
}

/// One answer for the array where no task refuses, else one for each group of tasks, the first task's first.
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
