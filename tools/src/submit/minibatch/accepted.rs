//! The messages about a submitted list: how many steps were accepted, and which lines were not, and why.

use super::given::Given;
use garrick_asking::cluster::{ClusterError, refusal_details};
use garrick_model::{ids::JobId, refusal::Refusal};

/// Lines of which a request was declined, by the lines of its commands, and why. Ten thousand commands of one list that are
/// declined for the same reason are said in one line. `apart`: lines do not follow each other by their numbers, and each is said.
pub fn declined_lines(numbers: &[u64], declined: &[(u32, Refusal)], apart: bool) -> Vec<(u64, u64, String)> {
    let mut lines: Vec<(u64, u64, String)> = Vec::new();
    let mut next = None;
    for (place, refusal) in declined {
        let Some(number) = numbers.get(*place as usize) else { continue };
        let why: Vec<String> = refusal_details(refusal).into_iter().chain([refusal.to_string()]).collect();
        let why = why.join(": ");
        match lines.last_mut() {
            Some((_, last, same)) if next == Some(*place) && *same == why && (!apart || last == number) => {
                *last = *number;
            }
            _ => lines.push((*number, *number, why)),
        }
        next = Some(place + 1);
    }
    lines
}

/// An error, with what else there is to say of it.
pub fn told(error: &ClusterError) -> String {
    let mut why = error.details();
    why.push(error.to_string());
    why.dedup();
    why.join(": ")
}

/// What is said of steps of a graph that were not handed over, the first of which has this label, and of those that nobody knows
/// of. They go level by level, and not as their lines do.
pub fn steps_left(first: &str, last_under_way: Option<&str>) -> (String, Option<String>) {
    let left = format!("step \"{first}\" and all that come after it, level by level, were not handed over");
    let unknown = last_under_way.map(|last| match last == first {
        true => format!("steps of \"{first}\""),
        false => format!("the steps from \"{first}\" to \"{last}\", level by level"),
    });
    (left, unknown)
}

/// The line about all that was accepted.
pub fn submitted(given: &Given, job: JobId, parsable: bool) -> Option<String> {
    match (given.names(job), given.steps(), parsable) {
        (names, _, true) => names,
        (None, _, false) => Some("Submitted 0 steps".to_owned()),
        (Some(name), 1, false) => Some(format!("Submitted step {name}")),
        (Some(names), steps, false) => Some(format!("Submitted {steps} steps {names}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garrick_model::batch::GivenNumbers;

    #[test]
    fn neighbours_that_are_declined_alike_are_said_together() {
        let unknown = || Refusal::InvalidStep("5609.99".to_owned());
        let declined = [(0, unknown()), (1, unknown()), (2, Refusal::AlreadyDone), (4, unknown()), (5, unknown())];
        let said: Vec<(u64, u64)> = declined_lines(&[3, 4, 5, 7, 8, 20], &declined, false)
            .iter()
            .map(|(first, last, _)| (*first, *last))
            .collect();
        assert_eq!(said, [(3, 4), (5, 5), (8, 20)]);
        let said: Vec<(u64, u64)> = declined_lines(&[9, 9, 5, 7, 20, 8], &declined, true)
            .iter()
            .map(|(first, last, _)| (*first, *last))
            .collect();
        assert_eq!(said, [(9, 9), (5, 5), (20, 20), (8, 8)]);
    }

    #[test]
    fn steps_of_a_graph_that_are_left_are_named_by_their_labels() {
        let (left, unknown) = steps_left("a", Some("c"));
        assert_eq!(left, "step \"a\" and all that come after it, level by level, were not handed over");
        assert_eq!(unknown.as_deref(), Some("the steps from \"a\" to \"c\", level by level"));
        assert_eq!(steps_left("a", Some("a")).1.as_deref(), Some("steps of \"a\""));
        assert_eq!(steps_left("a", None).1, None);
    }

    #[test]
    fn one_line_says_what_was_accepted() {
        let said = |count: u32, parsable| {
            let mut given = Given::default();
            given.add(GivenNumbers { first: 1, count, array: false });
            submitted(&given, JobId(5609), parsable)
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(said(1000, false), some("Submitted 1000 steps 5609.[1-1000]"));
        assert_eq!(said(1000, true), some("5609.[1-1000]"));
        assert_eq!(said(1, false), some("Submitted step 5609.1"));
        assert_eq!(said(1, true), some("5609.1"));
        assert_eq!((said(0, false), said(0, true)), (some("Submitted 0 steps"), None));
    }
}
