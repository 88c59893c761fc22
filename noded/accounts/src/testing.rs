//! A folder for a test's database, and what happened to jobs.
#![allow(clippy::unwrap_used)]

use garrick_accounts::messages::LogId;
use garrick_events::{
    event::ControllerEvent,
    records::{
        job::{Afterwards, End},
        job_event::JobEvent,
    },
    testing::{ended_row, record},
};
use garrick_model::{
    ids::{JobId, Sluid, StepKey},
    spec::JobSpec,
    state::{ExitStatus, JobState, Reason, StepState},
    time::{TimeLimit, Timestamp},
    view::{StepOrigin, StepRow, StepRows},
};
use serde_bytes::ByteBuf;
use std::{
    future::Future,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

/// Runs it with a folder of its own.
pub(crate) fn with_folder<F: Future<Output = ()>>(test: impl FnOnce(PathBuf) -> F) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("garrick-accounts-{}-{number}", std::process::id()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test(folder.join("accounting/jobs.db")));
    drop(runtime);
    std::fs::remove_dir_all(&folder).unwrap();
}

pub(crate) const LOG: LogId = LogId(7, u64::MAX);

pub(crate) fn job(id: u32, event: JobEvent) -> ControllerEvent {
    ControllerEvent::Job { job: JobId(id), event: Box::new(event) }
}

pub(crate) fn submitted(id: u32) -> ControllerEvent {
    job(
        id,
        JobEvent::Submitted(Box::new(record(
            id,
            JobSpec {
                name: format!("job{id}"),
                script: Some(Arc::new(ByteBuf::from("#!/bin/sh\n"))),
                ..JobSpec::default()
            },
        ))),
    )
}

pub(crate) fn ended(id: u32, at: i64) -> ControllerEvent {
    let exit = ExitStatus::SUCCESS;
    let (reason, then) = (Reason::None, Afterwards::Over);
    job(
        id,
        JobEvent::Ended(End {
            state: JobState::Cancelled,
            reason,
            exit,
            derived: exit,
            at: Timestamp(at),
            then,
            cause: None,
            by: None,
        }),
    )
}

pub(crate) fn report(id: u32, keys: impl IntoIterator<Item = StepKey>, state: StepState) -> ControllerEvent {
    let origin = StepOrigin {
        name: "true".into(),
        uid: 1001,
        partition: "debug".into(),
        tasks: 1,
        time_limit: TimeLimit::Unlimited,
        srun: None,
        submit_line: "srun true".into(),
        priority: 0,
    };
    let rows = keys.into_iter().map(|key| StepRow { state, ..ended_row(key) }).collect();
    let steps = StepRows { origins: vec![origin], rows, ..StepRows::default() };
    ControllerEvent::Steps { job: JobId(id), sluid: Sluid(id.into()), steps: steps.into() }
}
