//! How the effects of the owner of power saving are carried out in the controller.

use super::{
    actor::{Came, OwnerMsg, Shell},
    env::{Boards, Env},
};
use crate::{
    owner::Out,
    power::{
        core::{Looked, PowerCore, PowerErrand, PowerInput, PowerProgram, PowerTimer},
        resume_file,
    },
};
use garrick_model::{
    hostlist,
    site_program::{Moment, SiteProgram, variable},
    time::Timestamp,
};
use garrick_runtime::{ReplyTo, TimerKey};
use std::{
    collections::BTreeSet,
    convert::Infallible,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    time::Duration,
};

/// Messages of the owner of power saving, at `/power`.
pub type PowerMsg = OwnerMsg<PowerCore>;

/// The number of the last file for `ResumeProgram`.
#[derive(Default)]
pub struct PowerHands(u64);

impl Shell for PowerCore {
    type Ask = Infallible;
    type Gift = Infallible;
    type Hands = PowerHands;

    const SAVES: bool = false;

    fn name(input: &PowerInput) -> &'static str {
        match input {
            PowerInput::Begin => "Begin",
            PowerInput::Changed => "Changed",
            PowerInput::Looked(_) => "Looked",
            PowerInput::Timer(_) => "Pass",
        }
    }

    fn ask_name(ask: &Infallible) -> &'static str {
        match *ask {}
    }

    fn key(PowerTimer: PowerTimer) -> TimerKey {
        "pass".into()
    }

    fn asked(_: u64, ask: Infallible) -> PowerInput {
        match ask {}
    }

    fn begin(&mut self, _: &mut PowerHands, env: &Env, now: Timestamp, out: &mut Out<Self>) {
        crate::owner::Owner::handle(self, now, &mut env.ids.clone(), PowerInput::Begin, out);
    }

    fn hand(&self, _: &mut PowerHands, gift: Infallible) {
        match gift {}
    }

    fn run(&self, hands: &mut PowerHands, env: &Env, errand: PowerErrand) -> Came<PowerInput> {
        match errand {
            PowerErrand::Look => Came::Input(PowerInput::Looked(Box::new(looked(env)))),
            PowerErrand::Watch(seen) => Came::Later(Box::pin(changed(env.boards.clone(), seen))),
            PowerErrand::Run(program) => run(hands, env, program),
        }
    }

    fn publish(&self, _: &mut PowerHands, _: &Env, shown: Infallible) {
        match shown {}
    }

    fn try_again(_: Duration) {}

    fn label(&self) -> String {
        "power".to_owned()
    }
}

fn looked(env: &Env) -> Looked {
    let seen = env.boards.nodes.generation();
    Looked { seen, nodes: env.boards.nodes.list(), policy: env.node_site().power.clone() }
}

async fn changed(boards: Boards, seen: u64) -> Option<PowerInput> {
    boards.nodes.changed(seen).await;
    Some(PowerInput::Changed)
}

fn run(hands: &mut PowerHands, env: &Env, wanted: PowerProgram) -> Came<PowerInput> {
    let PowerProgram { moment, command, nodes, limit } = wanted;
    let nodes_text = hostlist::fold(&nodes);
    tracing::info!(nodes = nodes_text, program = moment.key(), "power.program");
    let site_program = SiteProgram::of_words(moment, command, nodes_text, limit);
    if moment != Moment::Resume {
        env.ports.programs.run(site_program, ReplyTo::calling(drop));
        return Came::Nothing;
    }
    hands.0 += 1;
    let file = env.config().state_save_location.join(format!("resume_file.{}", hands.0));
    let (text, programs) = (resume_file_of(env, &nodes), std::sync::Arc::clone(&env.ports.programs));
    Came::Later(Box::pin(async move {
        let (path, mut site_program) = (file.clone(), site_program);
        match tokio::task::spawn_blocking(move || write(&path, &text)).await {
            Ok(Ok(())) => site_program.environment.push(variable("SLURM_RESUME_FILE", file.display())),
            Ok(Err(error)) => tracing::error!(file = %file.display(), %error, "power.resume_file"),
            Err(_) => {}
        }
        let (done, outcome) = ReplyTo::channel();
        programs.run(site_program, done);
        let _ = outcome.await;
        let _ = tokio::task::spawn_blocking(move || remove(&file)).await;
        None
    }))
}

/// The jobs with something on these nodes.
fn resume_file_of(env: &Env, nodes: &BTreeSet<String>) -> String {
    let views = env.boards.nodes.list();
    let held = views.iter().filter(|view| nodes.contains(&view.name)).flat_map(|view| &view.holds);
    let jobs: BTreeSet<_> = held.map(|hold| hold.job).collect();
    let jobs: Vec<_> = jobs.iter().filter_map(|job| env.boards.jobs.get(job)).collect();
    resume_file::text(nodes, &jobs)
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(file = %path.display(), %error, "power.resume_file");
    }
}
