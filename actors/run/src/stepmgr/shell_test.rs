//! The actors themselves on the runtime: a step manager, its steps and a shepherd, with a launcher whose tasks end at once.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::{
    shepherd::{Shepherd, ShepherdConfig, ShepherdEffect, ShepherdInput, ShepherdMsg, ShepherdPort},
    step::NodeSlot,
    stepmgr::{
        ClientId,
        builders::{exact, run},
    },
};
use garrick_model::{
    batch::{BatchMembers, StepBatch},
    ids::RequestId,
    messages::{
        command::Caller,
        launcher::{FromLauncher, ToLauncher},
        step::{CommandToStepMgr, StepMgrToCommand},
    },
    resources::CpuSet,
    spec::JobKind,
    state::{ExitStatus, StepState},
    usage::TaskUsage,
};
use garrick_runtime::{Address, System, SystemConfig};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, OnceLock};

struct World {
    manager: Arc<OnceLock<Address<StepMgrMsg>>>,
    shepherd: Arc<OnceLock<Address<ShepherdMsg>>>,
    told: Arc<Mutex<Sender<(ClientId, StepMgrToCommand)>>>,
}

impl StepMgrPort for World {
    fn perform(&mut self, effect: StepMgrEffect) {
        match effect {
            StepMgrEffect::ToShepherd { message, .. } => {
                self.shepherd.get().unwrap().try_send(ShepherdMsg(ShepherdInput::Manager(message))).unwrap();
            }
            StepMgrEffect::ToClient { client, message } => {
                let _ = self.told.lock().unwrap().send((client, message));
            }
            StepMgrEffect::Journal { durable: Some(upto), .. } => {
                self.manager.get().unwrap().try_send(StepMgrMsg(StepMgrInput::Journaled { upto })).unwrap();
            }
            _ => {}
        }
    }
}

struct Node {
    manager: Arc<OnceLock<Address<StepMgrMsg>>>,
    shepherd: Arc<OnceLock<Address<ShepherdMsg>>>,
}

impl ShepherdPort for Node {
    fn perform(&mut self, effect: ShepherdEffect) {
        let say = |input| self.shepherd.get().unwrap().try_send(ShepherdMsg(input)).unwrap();
        match effect {
            ShepherdEffect::ToManager(message) => {
                let input = StepMgrInput::Shepherd { node: NodeSlot(0), message };
                self.manager.get().unwrap().try_send(StepMgrMsg(input)).unwrap();
            }
            ShepherdEffect::StartLauncher => say(ShepherdInput::LauncherUp { first: true }),
            ShepherdEffect::Prepare { step, .. } => {
                say(ShepherdInput::Prepared { step, result: Ok(Some("/spool/script".into())) });
            }
            ShepherdEffect::Read { token, stream } => {
                say(ShepherdInput::Data { token, stream, data: serde_bytes::ByteBuf::new() });
            }
            ShepherdEffect::ToLauncher { message: ToLauncher::Spawn(task), .. } => {
                let token = task.token;
                let pid = 1 << 30;
                if !task.quiet {
                    say(ShepherdInput::Launcher(FromLauncher::Spawned { token, pid }));
                }
                if task.argv[0] != b"/spool/script".as_slice() {
                    let status = ExitStatus { code: 5, signal: None };
                    let usage = TaskUsage::default();
                    say(ShepherdInput::Launcher(FromLauncher::Exited { token, pid, status, usage, survivors: false }));
                }
            }
            _ => {}
        }
    }
}

async fn harness(system: &System) -> (Address<StepMgrMsg>, Receiver<(ClientId, StepMgrToCommand)>) {
    let (manager, shepherd) = (Arc::new(OnceLock::new()), Arc::new(OnceLock::new()));
    let (told, hear) = channel();
    let told = Arc::new(Mutex::new(told));
    let facts = Arc::new(run(JobKind::Batch, &[2]));
    let (m, s) = (manager.clone(), shepherd.clone());
    let spec = StepMgr::spec(facts.job, move || {
        let port = World { manager: m.clone(), shepherd: s.clone(), told: told.clone() };
        StepMgr::new(facts.clone(), StepMgrConfig::default(), Ledger::default(), port)
    });
    // Both must know each other before the first of them acts.
    let config = ShepherdConfig::new(garrick_model::ids::JobId(502), "n1", "/run/door", CpuSet::from(0..2));
    let (m, s) = (manager.clone(), shepherd.clone());
    let node_spec =
        Shepherd::spec(move || Shepherd::new(config.clone(), Node { manager: m.clone(), shepherd: s.clone() }));
    manager.set(system.start("/job", spec)).unwrap();
    shepherd.set(system.start("/job/502", node_spec)).unwrap();
    let address = manager.get().unwrap().clone();
    address.send(StepMgrMsg(StepMgrInput::ShepherdUp { node: NodeSlot(0) })).await.unwrap();
    (address, hear)
}

async fn say(manager: &Address<StepMgrMsg>, client: ClientId, message: CommandToStepMgr) {
    manager.send(StepMgrMsg(StepMgrInput::Client { client, message })).await.unwrap();
}

async fn open(manager: &Address<StepMgrMsg>, n: u64) -> ClientId {
    let client = ClientId(n);
    let caller = Caller { uid: 1001, gid: 1001, pid: 1, host: "n1".into() };
    manager.send(StepMgrMsg(StepMgrInput::ClientOpened { client, caller })).await.unwrap();
    client
}

/// Waits in the test's own time until a message that is looked for was heard.
async fn hear_until(
    hear: &Receiver<(ClientId, StepMgrToCommand)>,
    wanted: impl Fn(&StepMgrToCommand) -> bool,
) -> StepMgrToCommand {
    loop {
        match hear.try_recv() {
            Ok((_, message)) if wanted(&message) => return message,
            Ok(_) => {}
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

#[test]
fn a_step_runs_through_its_actors_and_they_are_gone_afterwards() {
    let paths = System::run(SystemConfig::default(), async |system| {
        let (manager, hear) = harness(&system).await;
        let client = open(&manager, 1).await;
        let launch = CommandToStepMgr::Launch {
            request: RequestId(1, 1),
            spec: Box::new(exact("a", 2)),
            descriptors: [false; 3],
        };
        say(&manager, client, launch).await;
        let last = hear_until(&hear, |m| matches!(m, StepMgrToCommand::Finished { .. })).await;
        let exit = ExitStatus { code: 5, signal: None };
        assert_eq!(last, StepMgrToCommand::Finished { exit, state: StepState::Failed });
        // The step's actor ends right after the step.
        while !system.paths("/job/502/step/0").is_empty() {
            tokio::task::yield_now().await;
        }
        let paths: Vec<String> = system.paths("/job/502").iter().map(ToString::to_string).collect();
        system.shutdown(std::time::Duration::from_secs(5)).await;
        paths
    })
    .unwrap();
    assert_eq!(paths, ["/job/502", "/job/502/shepherd", "/job/502/step/batch"]);
}

#[test]
fn hundreds_of_steps_sent_together_all_run() {
    System::run(SystemConfig::default(), async |system| {
        let (manager, hear) = harness(&system).await;
        let client = open(&manager, 1).await;
        let specs = (0..500).map(|_| exact("a", 1)).collect();
        let batch = StepBatch { specs, members: BatchMembers::Each };
        say(&manager, client, CommandToStepMgr::Enqueue { request: RequestId(1, 1), batch: Box::new(batch) }).await;
        hear_until(&hear, |m| matches!(m, StepMgrToCommand::Enqueued { .. })).await;
        let waiter = open(&manager, 2).await;
        say(
            &manager,
            waiter,
            CommandToStepMgr::Wait { steps: Vec::new(), any: false, progress_ms: 0, groups: false, stay: false },
        )
        .await;
        let drained = hear_until(&hear, |m| matches!(m, StepMgrToCommand::Drained { .. })).await;
        let StepMgrToCommand::Drained { counts, worst, .. } = drained else { unreachable!() };
        assert_eq!((counts.failed, counts.queued, worst.code), (500, 0, 5));
        system.shutdown(std::time::Duration::from_secs(5)).await;
    })
    .unwrap();
}
