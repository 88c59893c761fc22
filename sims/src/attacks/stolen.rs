//! Attacks with a copy of one node's `identity.pem`, after that node was put out of action.

use super::{
    Attack, Fallible, Seen, Who,
    network::{join_with_key, token},
    puppet::{Puppet, ask_agent, connect, converse, is_answered, steal, text},
    scene::{ALICE, BOB, CTL, N1, ROOT, STOLEN, Scene},
    user::{id, is_refused, selector, spec, submission},
};
use garrick_daemon::{links::RelayHeader, run::orders::StepdOrders};
use garrick_frame::{LinkKind, Traced, limits};
use garrick_model::{
    ids::{JobId, Sluid},
    messages::{
        command::{Caller, CancelRequest, CommandReply, CommandRequest, JobChange, NodeChange, NodeStateChange},
        node::{
            AgentReport, AgentToStepMgr, ControllerToNode, JobCredential, JobLaunch, NodeToController, StepMgrToAgent,
        },
        step::{CommandToStepMgr, StepMgrToCommand},
    },
    state::{ExitStatus, JobState, Reason},
    time::Timestamp,
};
use garrick_transport::{IdentityStore, identity::ExpectPeer};
use serde_bytes::ByteBuf;
use std::{fs, sync::Arc};

const fn of_node(tries: &'static str, run: fn(&mut Scene) -> Fallible<Seen>) -> Attack {
    Attack { who: Who::StolenNode, tries, run, long: false }
}

/// All of them. They take the third node out of service.
pub const ATTACKS: &[Attack] = &[
    of_node(
        "speak for root and SlurmUser over the node's link: cancel, update, drain, shutdown, a job of root's",
        speak_for_root,
    ),
    of_node("report starts, ends and failures of a job that runs elsewhere", report_for_others),
    of_node("her job's, an altered and his own job's credential, for shepherds on other nodes", use_credentials),
    of_node("register under another node's name", other_name),
    of_node("root's and SlurmUser's name at her step manager, relayed through its node's daemon", relay),
    of_node("everything again after garrick certs revoke n3", after_revocation),
];

/// The number of SlurmUser.
const SLURM_UID: u32 = 1;

/// Ends the node's own daemon, and takes its identity.
fn take_over(scene: &mut Scene) -> Fallible<Arc<IdentityStore>> {
    if scene.daemon(STOLEN).is_ok() {
        scene.supervised(STOLEN).kill();
        while !scene.supervised(STOLEN).has_ended() {
            std::thread::yield_now();
        }
    }
    steal(scene, "n3")
}

/// A link of the node's that the controller welcomed.
fn welcomed(scene: &Scene, identity: &Arc<IdentityStore>) -> Fallible<Puppet> {
    let puppet = Puppet::up(scene, identity, "n3")?;
    puppet.hear("a welcome", |frame| matches!(frame, ControllerToNode::Welcome { .. }).then_some(()))?;
    Ok(puppet)
}

/// Asks over the node's link, for a user.
fn ask_for(puppet: &Puppet, uid: u32, query: u64, request: CommandRequest) -> Fallible<CommandReply> {
    let caller = Caller { uid, gid: uid, pid: 1, host: "n3".to_owned() };
    puppet.say(NodeToController::Command { query, caller, request: Box::new(request) })?;
    puppet.hear("an answer", |frame| match frame {
        ControllerToNode::CommandReply { query: of, reply } if of == query => Some(reply),
        _ => None,
    })
}

fn speak_for_root(scene: &mut Scene) -> Fallible<Seen> {
    let identity = take_over(scene)?;
    let puppet = welcomed(scene, &identity)?;
    let job = scene.job.clone();
    let (hers, partitions) = (scene.hers()?, scene.shown(&["partition"])?);
    let drain =
        NodeChange { state: Some(NodeStateChange::Drain), reason: Some("his".to_owned()), ..NodeChange::default() };
    let comment = Box::new(JobChange { comment: Some("his".to_owned()), ..JobChange::default() });
    let requests = [
        CommandRequest::Cancel(CancelRequest { jobs: vec![selector(&job)?], ..CancelRequest::default() }),
        CommandRequest::UpdateJob { jobs: vec![selector(&scene.array)?], change: comment },
        CommandRequest::UpdateNode { nodes: vec!["n2".to_owned()], change: drain },
        CommandRequest::UpdatePartition {
            partition: "main".to_owned(),
            fields: vec![("State".to_owned(), "DOWN".to_owned())],
        },
        CommandRequest::CreateJoinToken { lifetime_secs: 60, node: None },
        CommandRequest::RevokeCerts { nodes: vec!["n1".to_owned()] },
        CommandRequest::Shutdown { controller_only: true },
        submission(spec("roots", "#!/bin/sh\nexit 0\n")?),
    ];
    let mut broken = Vec::new();
    let mut query = 0;
    for uid in [ROOT, SLURM_UID] {
        for request in &requests {
            query += 1;
            let reply = Ok(ask_for(&puppet, uid, query, request.clone())?);
            if !is_refused(&reply) {
                broken.push(format!("uid {uid} may {request:?}: {reply:?}"));
            }
        }
    }
    if scene.hers()? != hers || scene.shown(&["partition"])? != partitions {
        broken.push("her jobs or the partition are not what they were".to_owned());
    }
    let nodes = scene.nodes()?;
    if nodes.contains("drain") {
        broken.push(format!("nodes are {nodes}"));
    }
    // For ordinary users it may speak.
    let own = submission(garrick_model::spec::JobSpec { hold: true, ..spec("his", "#!/bin/sh\n")? });
    let CommandReply::Submitted { job: own, .. } = ask_for(&puppet, BOB, query + 1, own)? else {
        return Err("the node may not submit for an ordinary user".into());
    };
    scene.run(BOB, CTL, "scancel", &[&own.to_string()])?.ok("scancel")?;
    Ok(Seen::of(&broken, format!("{query} requests refused; it speaks for ordinary users")))
}

/// A job's run.
fn run_of(scene: &Scene, job: &str) -> Fallible<(JobId, Sluid)> {
    let listed = scene.ask(ROOT, CTL, &[CommandRequest::list_jobs(vec![selector(job)?])])?;
    match listed.into_iter().next() {
        Some(Ok(CommandReply::Jobs { jobs, .. })) if !jobs.is_empty() => Ok((id(job)?, jobs[0].sluid)),
        other => Err(format!("job {job} is not listed: {other:?}").into()),
    }
}

fn ended(job: JobId, sluid: Sluid) -> AgentReport {
    AgentReport::JobEnded {
        job,
        sluid,
        state: JobState::Completed,
        reason: Reason::None,
        exit: ExitStatus::default(),
        derived: ExitStatus::default(),
        at: Timestamp::now(),
        lost: Vec::new(),
        cause: None,
    }
}

/// Says reports from that number on, and waits until all are acknowledged. Returns the next number.
fn report(puppet: &Puppet, first: u64, reports: Vec<AgentReport>) -> Fallible<u64> {
    let mut next = first;
    for report in reports {
        puppet.say(NodeToController::Report { seq: next, report })?;
        next += 1;
    }
    puppet.hear("an acknowledgement", |frame| {
        matches!(frame, ControllerToNode::AckReports { upto } if upto + 1 >= next).then_some(())
    })?;
    Ok(next)
}

/// A job of the attacker's on the stolen node, as the controller orders it there.
fn own_launch(scene: &Scene, puppet: &Puppet) -> Fallible<(String, Box<JobLaunch>)> {
    scene.until("the node is in service", |scene| Ok(scene.nodes()?.contains("n3=idle")))?;
    let job = scene.submit(BOB, CTL, &["-w", "n3", "--wrap", "true"])?;
    let launch = puppet.hear("an order to start", |frame| match frame {
        ControllerToNode::StartJob(launch) => Some(launch),
        _ => None,
    })?;
    Ok((job, launch))
}

/// Ends it as an honest node does.
fn end_own(scene: &Scene, puppet: &Puppet, next: u64, job: &str) -> Fallible<()> {
    let (number, sluid) = run_of(scene, job)?;
    let started = AgentReport::JobStarted { job: number, sluid, door: "/tmp/his.sock".to_owned() };
    let released = AgentReport::NodeReleased { job: number, sluid, epilog_failed: None, unkillable: None };
    report(puppet, next, vec![started, ended(number, sluid), released])?;
    scene.until("the node's own job is reported to have ended", |scene| Ok(scene.state(job)? == "COMPLETED"))
}

fn report_for_others(scene: &mut Scene) -> Fallible<Seen> {
    let identity = take_over(scene)?;
    let puppet = welcomed(scene, &identity)?;
    let hers = scene.hers()?;
    let (job, sluid) = run_of(scene, &scene.job)?;
    let failed =
        AgentReport::JobLaunchFailed { job, sluid, reason: Reason::None, detail: "his".to_owned(), drain_node: true };
    let reports = vec![
        AgentReport::JobStarted { job, sluid, door: "/tmp/his.sock".to_owned() },
        failed,
        ended(job, sluid),
        AgentReport::NodeReleased { job, sluid, epilog_failed: None, unkillable: None },
    ];
    let next = report(&puppet, 1, reports)?;
    let mut broken = Vec::new();
    if scene.hers()? != hers || scene.state(&scene.job)? != "RUNNING" {
        broken.push(format!("her jobs were {hers}, and are {}", scene.hers()?));
    }
    let nodes = scene.nodes()?;
    if nodes.contains("n1=drain") || nodes.contains("n1=idle") {
        broken.push(format!("nodes are {nodes}"));
    }
    let own = ["--jobid", &scene.job, "--overlap", "id", "-u"];
    scene.run(ALICE, CTL, "srun", &own)?.ok("srun in her job")?;
    // What the node may report counts.
    let (job, _) = own_launch(scene, &puppet)?;
    end_own(scene, &puppet, next, &job)?;
    Ok(Seen::of(&broken, "acknowledged, and nothing changed; its reports of its own job count"))
}

/// The runs of a node, by its spool.
fn runs(scene: &Scene, host: usize) -> Fallible<Vec<String>> {
    let spool = scene.site.home.join(format!("spool-{}", scene.site.hosts[host].name)).join("runs");
    let mut names = Vec::new();
    for entry in fs::read_dir(scene.sees(host, &spool))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Her job's order, out of the spool of its node.
fn her_launch(scene: &Scene) -> Fallible<JobLaunch> {
    let (_, sluid) = run_of(scene, &scene.job)?;
    let folder = scene.site.home.join("spool-n1/runs").join(sluid.to_string());
    Ok(StepdOrders::load(&scene.sees(N1, &folder)).map_err(text)?.launch)
}

fn use_credentials(scene: &mut Scene) -> Fallible<Seen> {
    let identity = take_over(scene)?;
    let puppet = welcomed(scene, &identity)?;
    let (job, own) = own_launch(scene, &puppet)?;
    let hers = her_launch(scene)?;
    let mut altered = (*own).clone();
    let mut credential: JobCredential = rmp_serde::from_slice(&altered.credential.payload)?;
    let theirs: JobCredential = rmp_serde::from_slice(&hers.credential.payload)?;
    (credential.uid, credential.gid, credential.user) = (ROOT, ROOT, "root".to_owned());
    credential.nodes.extend(theirs.nodes);
    credential.addresses.extend(theirs.addresses);
    altered.credential.payload = ByteBuf::from(rmp_serde::to_vec_named(&credential)?);
    let mut broken = Vec::new();
    let mut said = Vec::new();
    for host in [N1, 2] {
        is_answered(scene, STOLEN, &identity)?;
        let (address, before) = (scene.address(host), runs(scene, host)?);
        for launch in [&*own, &hers, &altered] {
            for again in [false, true] {
                let question = || StepMgrToAgent::StartShepherd {
                    launch: Box::new(launch.clone()),
                    manager: scene.address(STOLEN),
                    again,
                };
                match converse(scene, STOLEN, async || ask_agent(&identity, &address, question()).await)? {
                    AgentToStepMgr::Failed(why) => said.push(why.to_string()),
                    other => broken.push(format!("job {}, again {again}: {other:?}", credential.job)),
                }
            }
        }
        if runs(scene, host)? != before {
            broken.push(format!("host {host} has other runs than before"));
        }
    }
    end_own(scene, &puppet, 1, &job)?;
    // Between honest nodes it works.
    let ran = scene.run(ALICE, CTL, "srun", &["-N2", "-w", "n1,n2", "id", "-u"])?.ok("srun on two nodes")?;
    if ran.out.lines().count() != 2 {
        return Err(format!("a job on two nodes does not work: {ran:?}").into());
    }
    Ok(Seen::of(&broken, format!("{} refused, the first: {}", said.len(), said.first().map_or("", String::as_str))))
}

fn other_name(scene: &mut Scene) -> Fallible<Seen> {
    let identity = take_over(scene)?;
    let mut broken = Vec::new();
    let mut said = String::new();
    for name in ["n1", "n2", "ctl", ""] {
        let puppet = Puppet::up(scene, &identity, name)?;
        match puppet.hear("anything", Some) {
            Ok(frame) => broken.push(format!("as `{name}` it is told {frame:?}")),
            Err(why) => said = why.to_string(),
        }
    }
    scene.works(ALICE)?;
    drop(welcomed(scene, &identity)?);
    Ok(Seen::of(&broken, said))
}

fn relay(scene: &mut Scene) -> Fallible<Seen> {
    let identity = take_over(scene)?;
    let (address, job) = (scene.address(N1), id(&scene.job)?);
    let talk = |uid: u32| -> Fallible<Result<StepMgrToCommand, String>> {
        let header = RelayHeader { job, caller: Caller { uid, gid: uid, pid: 1, host: "ctl".to_owned() } };
        converse(scene, STOLEN, async || {
            let expect = ExpectPeer::node("n1");
            let (_endpoint, connection) = connect(&identity, &address, LinkKind::CommandToStepMgr, &expect).await?;
            let bulk = connection.open_bulk(&header).await.map_err(text)?;
            let (sender, mut answers) = bulk.split::<CommandToStepMgr, StepMgrToCommand>(limits::DOOR);
            sender.send(Traced::untraced(CommandToStepMgr::List)).await.map_err(text)?;
            Ok(match answers.recv().await {
                Ok(Some(answer)) => Ok(answer.msg),
                Ok(None) => Err("closed".to_owned()),
                Err(e) => Err(text(e)),
            })
        })
    };
    let mut broken = Vec::new();
    let mut said = String::new();
    for uid in [ROOT, SLURM_UID, BOB] {
        match talk(uid)? {
            Ok(StepMgrToCommand::Refused(why)) => said = why.to_string(),
            Err(why) => said = why,
            Ok(other) => broken.push(format!("uid {uid} is answered {other:?}")),
        }
    }
    if !matches!(talk(ALICE)?, Ok(StepMgrToCommand::Steps(_))) {
        return Err("a node may not speak for the job's owner".into());
    }
    Ok(Seen::of(&broken, said))
}

fn after_revocation(scene: &mut Scene) -> Fallible<Seen> {
    let identity = take_over(scene)?;
    let puppet = welcomed(scene, &identity)?;
    is_answered(scene, STOLEN, &identity)?;
    let of_n2 = token(scene, "n2")?;
    scene.run(ROOT, CTL, "garrick", &["certs", "revoke", "n3"])?.ok("garrick certs revoke")?;
    let mut broken = Vec::new();
    // Everything that it is told until the link ends.
    let closed = match puppet.hear("the end of the link", |_| None::<()>) {
        Ok(()) => return Err("nothing was wanted, and came".into()),
        Err(why) => why.to_string(),
    };
    if closed.starts_with("waiting") {
        broken.push(format!("the link does not end: {closed}"));
    }
    if welcomed(scene, &identity).is_ok() {
        broken.push("the controller welcomes it again".to_owned());
    }
    let told = scene.until("the other nodes refuse it", |scene| Ok(is_answered(scene, STOLEN, &identity).is_err()));
    if let Err(why) = told {
        broken.push(why.to_string());
    }
    let address = scene.address(CTL);
    // First the token: what comes of it must not make the key good again.
    if super::network::join(scene, STOLEN, &address, &of_n2, "n3")?.is_ok() {
        broken.push("it joins again with another node's token".to_owned());
    }
    if join_with_key(scene, &address, &scene.site.home.join("slurm.key"), "n3")?.is_ok() {
        broken.push("it joins again with the site's key".to_owned());
    }
    scene.works(ALICE)?;
    // An administrator vouches for the node: that counts.
    let own = token(scene, "n3")?;
    super::network::join(scene, STOLEN, &address, &own, "n3")?.map_err(|why| format!("a token of its own: {why}"))?;
    Ok(Seen::of(&broken, closed))
}
