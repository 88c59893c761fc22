//! Submissions, and repeats of them.
#![allow(clippy::unwrap_used)]

use super::core::{Judged, Room, Submission, SubmissionAnswer, SubmissionErrand, SubmissionInput, Submissions};
use crate::{
    job::fixtures::CountingIds,
    log::AppendError,
    messages::job::Authority,
    owner::{Effect, EffectOf, Owner},
};
use garrick_events::{progress::Position, testing::record};
use garrick_model::{
    ids::{JobId, RequestId},
    messages::command::Caller,
    refusal::Refusal,
    spec::JobSpec,
    testing::spec,
    time::Timestamp,
};
use std::{sync::Arc, time::Duration};

const ROOM: Room = Room { known: 0, most: 10, ids: (1, 1_000) };
const ID: RequestId = RequestId(1, 7);

struct Frontend {
    core: Submissions,
    ids: CountingIds,
}

impl Frontend {
    fn new() -> Self {
        Self { core: Submissions::default(), ids: CountingIds { job: 0, sluid: 0 } }
    }

    fn told(&mut self, input: SubmissionInput) -> Vec<EffectOf<Submissions>> {
        let mut out = Vec::new();
        self.core.handle(Timestamp::from_secs(1), &mut self.ids, input, &mut out);
        out
    }

    fn asked(&mut self, request: u64, room: Room) -> Vec<EffectOf<Submissions>> {
        self.asked_as(request, ID, room)
    }

    fn asked_as(&mut self, request: u64, id: RequestId, room: Room) -> Vec<EffectOf<Submissions>> {
        let caller = Caller { uid: 1001, gid: 1001, pid: 1, host: "login".to_owned() };
        let by = Authority { uid: 1001, admin: false };
        let submission =
            Box::new(Submission { caller, by, specs: vec![spec()], heterogeneous: false, said: Vec::new() });
        self.told(SubmissionInput::Asked { request, id, submission, room })
    }

    /// What the log is offered.
    fn judged(&mut self, request: u64, judged: Judged) -> Vec<JobId> {
        let judged = Ok(Box::new(judged));
        match &self.told(SubmissionInput::Judged { request, id: ID, judged })[..] {
            [Effect::Do(SubmissionErrand::Offer { id: ID, records })] => records.iter().map(|r| r.id).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn settled(&mut self, jobs: &[JobId], result: Result<Position, AppendError>) -> Vec<EffectOf<Submissions>> {
        self.told(SubmissionInput::Settled { id: ID, jobs: jobs.to_vec(), result, clock: Duration::ZERO })
    }
}

fn good(count: usize) -> Judged {
    let records = (0..count).map(|_| record(0, spec())).collect();
    let warnings = vec!["of the hook".to_owned()];
    Judged { records, warnings, heterogeneous: count > 1, in_order: false, held: Some(0) }
}

fn answers(out: &[EffectOf<Submissions>]) -> Vec<(u64, SubmissionAnswer)> {
    out.iter()
        .filter_map(|effect| match effect {
            Effect::Answer { request, answer } => Some((*request, answer.clone())),
            _ => None,
        })
        .collect()
}

fn judges(out: &[EffectOf<Submissions>]) -> bool {
    matches!(out, [Effect::Do(SubmissionErrand::Judge { .. })])
}

#[test]
fn whoever_repeats_a_submission_gets_the_first_answer() {
    let mut frontend = Frontend::new();
    assert!(judges(&frontend.asked(1, ROOM)));
    assert_eq!(frontend.judged(1, good(1)), [JobId(1)]);
    // While it is being saved nobody is answered, and nothing is judged again.
    assert!(frontend.asked(2, ROOM).is_empty());
    let out = frontend.settled(&[JobId(1)], Ok(Position(1)));
    assert!(matches!(out[0], Effect::Do(SubmissionErrand::Begin(JobId(1)))));
    let first = Ok((JobId(1), vec!["of the hook".to_owned()]));
    assert_eq!(answers(&out), [(1, first.clone()), (2, first.clone())]);
    // Even where there is no room by now.
    let none = Room { known: 10, ..ROOM };
    assert_eq!(answers(&frontend.asked(3, none)), [(3, first)]);
}

#[test]
fn what_is_refused_uses_up_no_id_and_may_come_again() {
    let mut frontend = Frontend::new();
    let full = answers(&frontend.asked(1, Room { known: 10, ..ROOM }));
    assert!(matches!(&full[..], [(1, Err(Refusal::Full { limit, .. }))] if limit.contains("MaxJobCount")), "{full:?}");
    let full = answers(&frontend.asked(1, Room { known: 3, ids: (1, 3), ..ROOM }));
    assert!(matches!(&full[..], [(1, Err(Refusal::Full { limit, .. }))] if limit.contains("MaxJobId")), "{full:?}");
    assert!(judges(&frontend.asked(2, ROOM)));
    let judged = Err(Refusal::InvalidArray);
    let refused = frontend.told(SubmissionInput::Judged { request: 2, id: ID, judged });
    assert_eq!(answers(&refused), [(2, Err(Refusal::InvalidArray))]);
    let mut much = good(1);
    let environment = Arc::new(vec![vec![b'x'; 1 << 21].into()]);
    much.records = vec![record(0, JobSpec { environment, ..spec() })];
    much.held = Some((1 << 30) - (1 << 20));
    let judged = Ok(Box::new(much.clone()));
    let full = answers(&frontend.told(SubmissionInput::Judged { request: 3, id: ID, judged }));
    assert!(matches!(&full[..], [(3, Err(Refusal::Full { limit, .. }))] if limit.contains("1024 MiB")), "{full:?}");
    // An administrator has no such limit.
    much.held = None;
    assert_eq!(frontend.judged(4, much), [JobId(1)]);
    // A log that is busy takes nothing; the next try is another submission of the same name.
    let after = Duration::from_secs(2);
    let busy = answers(&frontend.settled(&[], Err(AppendError::Busy { after })));
    assert_eq!(busy, [(4, Err(Refusal::RetryAfter { after }))]);
    assert!(judges(&frontend.asked(5, ROOM)));
}

#[test]
fn components_have_ids_in_a_row() {
    let mut frontend = Frontend::new();
    assert_eq!(frontend.judged(1, good(3)), [JobId(1), JobId(2), JobId(3)]);
    assert_eq!((frontend.ids.job, frontend.ids.sluid), (3, 3));
}

#[test]
fn a_life_that_failed_leaves_its_submissions_to_the_next() {
    let mut frontend = Frontend::new();
    let (known, lost) = (RequestId(1, 1), RequestId(1, 2));
    let entering = vec![ID, lost];
    let out =
        frontend.told(SubmissionInput::Begun { answered: vec![(known, JobId(5))], entering, clock: Duration::ZERO });
    let heard = |effect: &EffectOf<Submissions>| match effect {
        Effect::Do(SubmissionErrand::Hear(id)) => *id,
        other => panic!("{other:?}"),
    };
    assert_eq!(out.iter().map(heard).collect::<Vec<_>>(), [ID, lost]);
    // A repeat waits for the log too.
    assert!(frontend.asked(1, ROOM).is_empty());
    let out = frontend.settled(&[JobId(6)], Ok(Position(9)));
    assert_eq!(answers(&out), [(1, Ok((JobId(6), Vec::new())))]);
    // Nothing of the other one is there.
    let out = frontend.told(SubmissionInput::Settled {
        id: lost,
        jobs: Vec::new(),
        result: Ok(Position(9)),
        clock: Duration::ZERO,
    });
    assert!(out.is_empty());
    assert!(judges(&frontend.asked_as(2, lost, ROOM)));
}
