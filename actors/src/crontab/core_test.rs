//! Tests of the owner of crontabs.
#![allow(clippy::unwrap_used)]

use super::core::{CrontabEffect, CrontabErrand, CrontabsCore};
use crate::{
    job::fixtures::CountingIds,
    messages::crontab::{CrontabInput, InstallCrontab},
    messages::{job::JobInput, letter::Letter},
    owner::{Effect, Owner as _},
};
use garrick_events::event::ControllerEvent;
use garrick_model::{
    crontab::{Crontab, CrontabJob},
    ids::JobId,
    time::Timestamp,
};
use std::collections::BTreeMap;

fn crontab(jobs: &[u32]) -> Crontab {
    let text = jobs.iter().map(|job| format!("@daily {job}\n")).collect::<String>();
    let entry = |(line, job): (u32, &u32)| CrontabJob { job: JobId(*job), lines: (line, line) };
    Crontab { text: text.into_bytes().into(), jobs: (1..).zip(jobs).map(entry).collect() }
}

fn handle(core: &mut CrontabsCore, input: CrontabInput) -> Vec<CrontabEffect> {
    let mut out = Vec::new();
    core.handle(Timestamp(1), &mut CountingIds { job: 0, sluid: 0 }, input, &mut out);
    out
}

fn install(core: &mut CrontabsCore, crontab: Option<Crontab>) -> Vec<CrontabEffect> {
    handle(core, CrontabInput::Asked { request: 3, ask: InstallCrontab { uid: 5, crontab } })
}

fn saved(crontab: Option<Crontab>) -> CrontabEffect {
    Effect::Save(ControllerEvent::Crontab { uid: 5, saved: crontab.map(Box::new) })
}

fn leave(job: u32) -> CrontabEffect {
    Effect::Tell(Letter::Job(JobId(job), JobInput::LeaveCrontab))
}

const DONE: CrontabEffect = Effect::Answer { request: 3, answer: Ok(()) };

#[test]
fn jobs_of_the_crontab_before_leave() {
    let mut core = CrontabsCore::default();
    assert_eq!(install(&mut core, Some(crontab(&[7, 8]))), [saved(Some(crontab(&[7, 8]))), DONE]);
    assert_eq!(install(&mut core, Some(crontab(&[7, 8]))), [DONE], "a repeat");
    let replaced = install(&mut core, Some(crontab(&[9])));
    assert_eq!(replaced, [saved(Some(crontab(&[9]))), leave(7), leave(8), DONE]);
    assert_eq!(install(&mut core, None), [saved(None), leave(9), DONE]);
    assert_eq!((install(&mut core, None), core.of(5)), (vec![DONE], None));
}

#[test]
fn the_line_of_a_cancelled_job_is_disabled_once() {
    let mut core = CrontabsCore::new(BTreeMap::from([(5, crontab(&[7, 8]))]));
    let over = CrontabInput::Over { uid: 5, job: JobId(7) };
    let left = crontab(&[7, 8]).without(JobId(7));
    assert!(left.text.starts_with(b"#DISABLED: @daily 7\n@daily 8\n"));
    assert_eq!(handle(&mut core, over.clone()), [saved(Some(left))]);
    assert_eq!(handle(&mut core, over), []);
    assert_eq!(handle(&mut core, CrontabInput::Over { uid: 6, job: JobId(8) }), [], "of another user");
}

#[test]
fn what_a_restart_left_behind_is_put_in_order() {
    let mut core = CrontabsCore::new(BTreeMap::from([(5, crontab(&[7, 8]))]));
    assert_eq!(handle(&mut core, CrontabInput::Begun), [Effect::Do(CrontabErrand::Look)]);
    // 7 is over, 9 was never installed, and 8 is no job of user 6.
    let living = vec![(5, JobId(8)), (5, JobId(9)), (6, JobId(8))];
    let out = handle(&mut core, CrontabInput::Seen { living });
    assert_eq!(out, [leave(9), leave(8), saved(Some(crontab(&[7, 8]).without(JobId(7))))]);
}
