//! Runs for tests.
#![allow(clippy::unwrap_used)]

use super::{
    forms::{Completed, More},
    queue::Waiting,
};
use garrick_accounts::{
    row::JobRow,
    tres::{BILLING, CPU, MEM, NODE},
};
use garrick_events::{progress::Position, testing::record};
use garrick_model::{
    ids::{JobId, RequestId},
    spec::JobSpec,
    state::{ExitStatus, JobState},
    time::{TimeLimit, Timestamp},
};
use std::{path::PathBuf, sync::Arc};

/// A run of two CPUs for ten seconds that failed.
pub(super) fn completed() -> Completed {
    let spec = JobSpec {
        name: "a b".into(),
        comment: Some("hi".into()),
        script: Some(Arc::new(b"#!/bin/sh\nexit 3\n".to_vec().into())),
        ..JobSpec::default()
    };
    let record = record(7, spec);
    let mut row = JobRow::of("maple", &record);
    row.user = "alice".into();
    (row.uid, row.gid, row.group) = (1001, 100, "users".into());
    row.partition = Some("main".into());
    row.state = JobState::Failed;
    row.exit = ExitStatus { code: 3, signal: None };
    row.time_limit = TimeLimit::Secs(301);
    row.submit = Timestamp::from_secs(1_000_000_000);
    row.eligible = Some(Timestamp::from_secs(1_000_000_000));
    row.start = Some(Timestamp::from_secs(1_000_000_005));
    row.end = Some(Timestamp::from_secs(1_000_000_015));
    row.nodes = "n1".into();
    row.allocated = [(BILLING, 2), (CPU, 2), (MEM, 1000), (NODE, 1), ("gres/gpu", 1)].into_iter().collect();
    row.work_dir = "/home/alice".into();
    Completed { row, more: More::of(&record, true), starts: false }
}

/// The same of a job, at that position.
pub(super) fn waiting(position: u64, job: u32) -> Arc<Waiting> {
    let mut run = completed();
    run.row.job = JobId(job);
    Arc::new(Waiting { position: Position(position), run })
}

/// A folder of a test's own.
pub(super) fn folder() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("garrick-jobcomp-{:x}", RequestId::random().0));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
