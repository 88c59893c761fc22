//! What is left of a batch when some of it is declined.

use garrick_model::batch::{BatchMembers, CommandList, StepBatch};

/// Removes specs that were declined, by index. Returns what remains, and the removed members by their old number, each with the
/// index of its spec.
pub fn without(batch: StepBatch, declined: &[bool]) -> (Option<StepBatch>, Vec<(u32, usize)>) {
    if !declined.contains(&true) {
        return (Some(batch), Vec::new());
    }
    let gone = |spec: usize| declined.get(spec).copied().unwrap_or(false);
    let mut lost = Vec::new();
    // An environment is inherited from the spec before, which may be one that is removed.
    let mut specs = batch.specs;
    for at in 1..specs.len() {
        if specs[at].environment.is_empty() && gone(at - 1) {
            specs[at].environment = specs[at - 1].environment.clone();
        }
    }
    let members = match batch.members {
        BatchMembers::Array(_) if gone(0) => {
            return (None, vec![(0, 0)]);
        }
        BatchMembers::Each => {
            lost.extend((0..specs.len()).filter(|at| gone(*at)).map(|at| (at as u32, at)));
            BatchMembers::Each
        }
        BatchMembers::Commands(list) => {
            let mut left = CommandList::default();
            let kept: Vec<usize> = (0..specs.len()).filter(|at| !gone(*at)).collect();
            let mut at = 0;
            for (count, spec) in &list.specs {
                let new = kept.binary_search(&(*spec as usize));
                for _ in 0..*count {
                    match new {
                        Ok(new) => left.push_from(&list, at as usize, new as u32),
                        Err(_) => lost.push((at, *spec as usize)),
                    }
                    at += 1;
                }
            }
            BatchMembers::Commands(left)
        }
        array @ BatchMembers::Array(_) => array,
    };
    let mut at = 0;
    specs.retain(|_| {
        at += 1;
        !gone(at - 1)
    });
    let left = StepBatch { specs, members };
    ((!left.is_empty()).then_some(left), lost)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::stepmgr::builders::{bytes, step};
    use garrick_events::steps::batch::StoredBatch;
    use garrick_model::{spec::StepSpec, testing::commands};

    #[test]
    fn what_is_known_of_lines_stays_when_others_are_declined() {
        let mut list = CommandList::default();
        for (line, spec) in [(1, 0), (2, 1), (5, 0), (6, 1), (7, 1)] {
            list.push(["a"], spec);
            list.set_line(line);
            list.set_values(&format!("n={line}"));
        }
        list.set_name("last");
        let batch = StepBatch { specs: vec![step("x"), step("y")], members: BatchMembers::Commands(list) };
        let (left, lost) = without(batch, &[true, false]);
        let left: StoredBatch = left.unwrap().into();
        assert_eq!(lost, [(0, 0), (2, 0)]);
        assert_eq!((0..3).map(|member| left.line(member)).collect::<Vec<_>>(), [Some(2), Some(6), Some(7)]);
        assert_eq!((left.values(1), left.own_name(1), left.own_name(2)), (Some("n=6"), None, Some("last")));
        let each: StoredBatch = StepBatch::one(step("x")).into();
        assert_eq!((each.line(0), each.values(0), each.own_name(0)), (None, None, None));
    }

    #[test]
    fn what_is_declined_goes_and_the_rest_keeps_its_environment() {
        let with = |env: &str, name: &str| StepSpec {
            environment: if env.is_empty() { Vec::new() } else { vec![bytes(env)] },
            ..step(name)
        };
        let specs = vec![with("A=1", "a"), with("", "b"), with("", "c")];
        let (left, lost) =
            without(commands(&[("a", 0), ("b", 1), ("c", 2), ("b", 1)], specs.clone()), &[true, false, false]);
        let left: StoredBatch = left.unwrap().into();
        assert_eq!(lost, [(0, 0)]);
        assert_eq!(left.rows(), [(0..1, 0), (1..2, 1), (2..3, 0)]);
        assert_eq!(left.environment_of(1).unwrap().environment, [bytes("A=1")]);
        let (left, lost) = without(StepBatch { specs, members: BatchMembers::Each }, &[true, true, true]);
        assert!(left.is_none());
        assert_eq!(lost, [(0, 0), (1, 1), (2, 2)]);
    }
}
