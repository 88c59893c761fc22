//! Lists that are gathered from several nodes.

use super::{
    core::StepsCore,
    effects::{StepsEffect, StepsErrand},
};
use crate::{
    job::fixtures::CountingIds,
    messages::steps::{StepsAsk, StepsInput, StepsTimer},
    owner::{Effect, Owner},
};
use garrick_model::{
    ids::{JobId, Sluid},
    messages::command::CommandReply,
    refusal::Refusal,
    time::Timestamp,
};
use std::collections::BTreeSet;

fn tell(core: &mut StepsCore, input: StepsInput) -> Vec<StepsEffect> {
    let mut out = Vec::new();
    core.handle(Timestamp::from_secs(1000), &mut CountingIds { job: 1, sluid: 1 }, input, &mut out);
    out
}

fn answers(out: Vec<StepsEffect>) -> Vec<(u64, CommandReply)> {
    let answer = |effect| if let Effect::Answer { request, answer } = effect { Some((request, answer)) } else { None };
    out.into_iter().filter_map(answer).collect()
}

fn list(core: &mut StepsCore, number: u64, nodes: &[&str]) -> Vec<StepsEffect> {
    let ask = nodes.iter().map(|node| ((*node).to_owned(), vec![JobId(7)])).collect();
    let ask = StepsAsk::List { query: number, ended: vec![JobId(7)], ask, missing: vec!["n9".to_owned()] };
    tell(core, StepsInput::Asked { request: number, ask })
}

#[test]
fn a_list_is_answered_once_all_nodes_have_said_something_or_are_gone() {
    let mut core = StepsCore::default();
    let asked = list(&mut core, 1, &["n0", "n1", "n2"]);
    assert_eq!(asked.iter().filter(|effect| matches!(effect, Effect::Tell(_))).count(), 3);
    assert!(asked.iter().any(|effect| matches!(effect, Effect::SetTimer { timer: StepsTimer(1), .. })));
    let listed = |node: &str| StepsInput::Listed {
        query: 1,
        node: node.to_owned(),
        steps: Vec::new(),
        missing: vec![format!("{node} (of job 7)")],
        left_out: 2,
    };
    assert!(tell(&mut core, listed("n0")).is_empty());
    assert!(tell(&mut core, listed("n0")).is_empty(), "said twice");
    assert!(tell(&mut core, StepsInput::NodeGone("n1".to_owned())).is_empty());
    let out = tell(&mut core, StepsInput::Late(StepsTimer(1)));
    assert!(out.contains(&Effect::Do(StepsErrand::WhichAreKnown(Vec::new()))), "{out:?}");
    let answered = answers(tell(&mut core, StepsInput::Known(BTreeSet::from([JobId(7)]))));
    let missing = ["n0 (of job 7)", "n1", "n2", "n9"].map(str::to_owned).to_vec();
    assert_eq!(answered, [(1, CommandReply::Steps { steps: Vec::new(), missing, left_out: 2 })]);
    assert!(tell(&mut core, listed("n2")).is_empty(), "too late");
}

#[test]
fn a_user_looks_for_one_jobs_records_at_a_time_and_root_for_some() {
    let mut core = StepsCore::default();
    let find = |core: &mut StepsCore, query: u64, by: u32| {
        let ask = BTreeSet::from(["n0".to_owned()]);
        let (run, task, missing) = (None, None, Vec::new());
        let ask = StepsAsk::Find { query, by, job: JobId(7), run, task, ask, missing };
        answers(tell(core, StepsInput::Asked { request: query, ask }))
    };
    assert!(find(&mut core, 1, 1001).is_empty());
    let refused = find(&mut core, 2, 1001);
    assert!(matches!(refused[..], [(2, CommandReply::Refused(Refusal::RetryAfter { .. }))]), "{refused:?}");
    assert!((3..10).all(|query| find(&mut core, query, 0).is_empty()));
    assert_eq!(find(&mut core, 10, 0).len(), 1, "eight are under way");
    let found = |runs: &[u64]| StepsInput::Found {
        query: 1,
        node: "n0".to_owned(),
        address: "n0:6818".to_owned(),
        runs: runs.iter().map(|run| Sluid(*run)).collect(),
    };
    let answered = answers(tell(&mut core, found(&[5, 6])));
    let [(1, CommandReply::RecordPlaces { places, missing })] = &answered[..] else { panic!("{answered:?}") };
    assert_eq!(places.iter().map(|place| place.sluid.0).collect::<Vec<_>>(), [6, 5], "the latest first");
    assert!(places.iter().all(|place| place.address == "n0:6818") && missing.is_empty());
    assert!(find(&mut core, 11, 1001).is_empty(), "his is over");
}
