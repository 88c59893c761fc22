//! Crontabs: who may see and replace whose, and the jobs of a new one. All of them are judged before any is saved; the crontab is
//! installed when they are.

use super::{
    core::{FrontendCore, Reply, Then, Turn},
    messages::Ask,
    site_checks::Checked,
};
use crate::{
    messages::crontab::InstallCrontab,
    messages::job::Authority,
    submission::{admission::Identity, core::Submission},
};
use garrick_events::records::job::JobRecord;
use garrick_model::{
    crontab::{Crontab, CrontabChange, CrontabEntry, CrontabJob, MOST_BYTES},
    ids::{JobId, RequestId, Sluid},
    messages::command::{Caller, CommandReply},
    refusal::Refusal,
    spec::{JobKind, JobSpec},
    time::Timestamp,
};
use serde_bytes::ByteBuf;

/// A crontab whose jobs are being saved.
pub(super) struct Installing {
    uid: u32,
    text: ByteBuf,
    lines: Vec<(u32, u32)>,
}

impl FrontendCore {
    /// `scrontab -l`.
    pub(super) fn show_crontab(&self, by: Authority, uid: u32) -> Reply {
        self.may_have_crontab(by, uid)?;
        Ok(Some(CommandReply::Crontab(self.sight.committed().crontab(uid).map(|crontab| crontab.text))))
    }

    fn may_have_crontab(&self, by: Authority, uid: u32) -> Result<(), Refusal> {
        if !self.sight.config().scron_parameters.has("enable") {
            return Err(Refusal::Disabled);
        }
        if by.uid == uid || by.admin { Ok(()) } else { Err(Refusal::InvalidUser(uid.to_string())) }
    }

    /// `scrontab FILE`, `-e` and `-r`.
    pub(super) fn install_crontab(
        &mut self,
        turn: &mut Turn<'_>,
        request: u64,
        caller: &Caller,
        by: Authority,
        change: CrontabChange,
        checked: Checked,
    ) -> Reply {
        let owner = self.crontab_owner(caller, by, &change)?;
        let CrontabChange { request: id, uid, text, entries, .. } = change;
        let size = text.as_ref().map_or(0, |text| text.len());
        if size > MOST_BYTES {
            let what = format!("the crontab has {size} bytes, and {MOST_BYTES} are taken: make it shorter");
            return Err(Refusal::TooLarge(what));
        }
        let by = self.authority(&owner);
        let (lines, specs): (Vec<_>, Vec<_>) = entries.into_iter().map(|e: CrontabEntry| (e.lines, e.spec)).unzip();
        let specs = match self.specs_of_entries(turn.now, &owner, by, specs) {
            Ok(specs) => specs,
            Err((entry, refusal)) => return Ok(Some(CommandReply::CrontabWrong { entry, refusal })),
        };
        match text {
            Some(text) if !specs.is_empty() => {
                self.installing.insert(request, Installing { uid, text, lines });
                let submission = Submission { caller: owner, by, specs, heterogeneous: false, said: checked.said };
                self.submit(turn, request, id, Box::new(submission))
            }
            text => {
                let crontab = text.map(|text| Crontab { text, jobs: Vec::new() });
                self.hand_over(turn, request, InstallCrontab { uid, crontab }, Vec::new());
                Ok(None)
            }
        }
    }

    /// Whose the jobs of a new crontab are, whoever installs it.
    pub(super) fn crontab_owner(
        &self,
        caller: &Caller,
        by: Authority,
        change: &CrontabChange,
    ) -> Result<Caller, Refusal> {
        self.may_have_crontab(by, change.uid)?;
        let gid = self.group_of(caller, change.uid, change.gid)?;
        Ok(Caller { uid: change.uid, gid, ..caller.clone() })
    }

    /// The group of the jobs: any of the user's; for another user's crontab, that user's own group.
    fn group_of(&self, caller: &Caller, uid: u32, gid: u32) -> Result<u32, Refusal> {
        if caller.uid == uid {
            return Ok(caller.gid);
        }
        let user = self.user_now(uid)?.ok_or_else(|| Refusal::InvalidUser(uid.to_string()))?;
        Ok(if user.groups.iter().any(|(own, _)| *own == gid) { gid } else { user.gid })
    }

    /// The requests of all entries, each with its first time. The error names the first that is declined.
    fn specs_of_entries(
        &mut self,
        now: Timestamp,
        owner: &Caller,
        by: Authority,
        specs: Vec<JobSpec>,
    ) -> Result<Vec<JobSpec>, (u32, Refusal)> {
        let mut due = Vec::with_capacity(specs.len());
        for (entry, spec) in (0..).zip(specs) {
            let spec = self.first_time(now, spec).map_err(|refusal| (entry, refusal))?;
            // Judged again when it is submitted, together with the others.
            let identity = Identity { job: self.sight.next_job(), sluid: Sluid(0), request: None, submissions: 0 };
            self.admit(owner, by, spec.clone(), identity, now).map_err(|refusal| (entry, refusal))?;
            due.push(spec);
        }
        Ok(due)
    }

    fn first_time(&self, now: Timestamp, spec: JobSpec) -> Result<JobSpec, Refusal> {
        let next = spec.cron.as_ref().and_then(|schedule| schedule.next(now, &self.sight.zone()));
        let begin = next.ok_or_else(|| Refusal::InvalidUpdate("an entry of a crontab is never due".to_owned()))?;
        if spec.kind != JobKind::Batch || spec.array.is_some() {
            return Err(Refusal::InvalidArray);
        }
        Ok(JobSpec { begin: Some(begin), expedite: false, ..spec })
    }

    /// All records of a crontab's jobs, without ids. A repeat is answered with the first.
    pub(super) fn judge_together(
        &mut self,
        caller: &Caller,
        by: Authority,
        request: RequestId,
        specs: Vec<JobSpec>,
        now: Timestamp,
    ) -> Result<Vec<JobRecord>, Refusal> {
        let mut records = Vec::with_capacity(specs.len());
        for (offset, spec) in specs.into_iter().enumerate() {
            let request = Some(request).filter(|_| offset == 0);
            let job = self.sight.next_job();
            let identity = Identity { job, sluid: Sluid(0), request, submissions: 0 };
            records.push(self.admit(caller, by, spec, identity, now)?);
        }
        Ok(records)
    }

    /// The jobs of a crontab are saved, or not. `Err`: the answer was to another submission.
    pub(super) fn crontab_saved(
        &mut self,
        turn: &mut Turn<'_>,
        request: u64,
        answer: Result<(JobId, Vec<String>), Refusal>,
    ) -> Result<(), Result<(JobId, Vec<String>), Refusal>> {
        let Some(Installing { uid, text, lines }) = self.installing.remove(&request) else { return Err(answer) };
        match answer {
            Ok((first, warnings)) => {
                let job = |offset: u32| JobId(first.0.saturating_add(offset));
                let jobs = (0..).zip(lines).map(|(offset, lines)| CrontabJob { job: job(offset), lines }).collect();
                let ask = InstallCrontab { uid, crontab: Some(Crontab { text, jobs }) };
                self.hand_over(turn, request, ask, warnings);
            }
            Err(refusal) => turn.refuse(request, refusal),
        }
        Ok(())
    }

    fn hand_over(&mut self, turn: &mut Turn<'_>, request: u64, ask: InstallCrontab, warnings: Vec<String>) {
        let reply = CommandReply::CrontabInstalled { warnings };
        self.ask(turn, request, vec![Ask::Crontab(ask)], Then::Saved { what: "the crontab", reply });
    }
}
