//! Attacks from the network without any key of the cluster.

use super::{
    Attack, Fallible, Seen, Who,
    puppet::{connect, converse, forge, framed, gullible, is_answered, nameless, registration, steal, text},
    scene::{ALICE, CTL, N1, ROOT, STOLEN, STRANGER, Scene},
    user::{resident_mib, unshaken},
};
use crate::faults::site::Site;
use garrick_frame::LinkKind;
use garrick_transport::{
    Endpoint, EndpointOptions, IdentityStore, JoinServer, any_address,
    identity::{CertAuthority, ExpectPeer, Role, files},
    join_with_shared_key, join_with_token,
    quic::endpoint::AnswerJoins,
};
use std::{
    net::{Ipv4Addr, UdpSocket},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};
use tokio::{sync::oneshot, time::timeout};

const fn of_network(tries: &'static str, run: fn(&mut Scene) -> Fallible<Seen>) -> Attack {
    Attack { who: Who::Network, tries, run, long: false }
}

/// All of them.
pub const ATTACKS: &[Attack] = &[
    of_network("every kind of link to the controller and to a node without a certificate", without_certificate),
    of_network("the same with certificates of n1, n3 and the controller from an authority of his own", self_made),
    Attack {
        long: true,
        ..of_network("floods of UDP garbage and of handshakes that stop after their first packet", flood)
    },
    of_network(
        "join with a made-up token, another node's, a used one, a wrong shared key, an unknown name",
        join_falsely,
    ),
    of_network("a controller of his own that nodes join, with their token or the site's key", false_controller),
    Attack { long: true, ..of_network("the controller's address, when the controller is cut off", take_address) },
];

const LINKS: [LinkKind; 7] = [
    LinkKind::ControllerNode,
    LinkKind::CommandToDaemon,
    LinkKind::CommandToStepMgr,
    LinkKind::NodeStepd,
    LinkKind::StepMgrAgent,
    LinkKind::StepMgrShepherd,
    LinkKind::BetweenStepds,
];

fn without_certificate(scene: &mut Scene) -> Fallible<Seen> {
    let nodes = scene.nodes()?;
    let first = framed(registration("n3"))?;
    let mut broken = Vec::new();
    let mut said = String::new();
    for host in [CTL, N1] {
        let address = scene.address(host);
        for link in LINKS {
            match converse(scene, STRANGER, || async { Ok(nameless(&address, link, &first).await) })? {
                Ok(reason) => said = reason,
                Err(why) => broken.push(why),
            }
        }
    }
    if scene.nodes()? != nodes {
        broken.push(format!("nodes were {nodes}, and are {}", scene.nodes()?));
    }
    is_answered(scene, STRANGER, &steal(scene, "n3")?)?;
    Ok(Seen::of(&broken, format!("{} connections ended: {said}", 2 * LINKS.len())))
}

fn self_made(scene: &mut Scene) -> Fallible<Seen> {
    let mut broken = Vec::new();
    let mut said = String::new();
    for (role, name) in [(Role::Node, "n1"), (Role::Node, "n3"), (Role::Controller, "ctl")] {
        let identity = forge(scene, role, name)?;
        for (host, expect) in [(CTL, ExpectPeer::controller()), (N1, ExpectPeer::node("n1"))] {
            let address = scene.address(host);
            for link in LINKS {
                let tried = async || Ok(connect(&identity, &address, link, &expect).await.map(drop));
                match converse(scene, STRANGER, tried)? {
                    Ok(()) => broken.push(format!("{role} {name} may have a link for {link}")),
                    Err(why) => said = why,
                }
            }
        }
    }
    is_answered(scene, STRANGER, &steal(scene, "n3")?)?;
    Ok(Seen::of(&broken, said))
}

/// First packets of that many handshakes.
async fn first_packets(count: usize) -> Result<Vec<Vec<u8>>, String> {
    let catcher = tokio::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(text)?;
    let to = catcher.local_addr().map_err(text)?;
    let endpoint = quinn::Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).map_err(text)?;
    let (mut begun, mut packets, mut buffer) = (Vec::new(), Vec::new(), [0; 2048]);
    while packets.len() < count {
        begun.push(endpoint.connect_with(gullible()?, to, "garrick").map_err(text)?);
        let caught = timeout(Duration::from_secs(10), catcher.recv_from(&mut buffer)).await;
        let (size, _) = caught.map_err(|_| "no first packet")?.map_err(text)?;
        packets.push(buffer[..size].to_vec());
    }
    Ok(packets)
}

/// Handshakes begun in a round: more than an endpoint lets be under way.
const HALF: usize = 600;
/// Other packets in a round.
const GARBAGE: usize = 5_000;

/// Floods until it is told to stop. Returns the packets that were sent.
fn pour(to: &[String], stop: &AtomicBool, begun: &mpsc::Sender<()>) -> Result<u64, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(text)?;
    let packets = runtime.block_on(first_packets(HALF))?;
    let mut sent = 0;
    while !stop.load(Ordering::SeqCst) {
        for address in to {
            // Another port in each round, so that each is another attempt.
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(text)?;
            // What the kernel does not take now is no loss.
            let mut send = |packet: &[u8]| sent += u64::from(socket.send_to(packet, address).is_ok());
            packets.iter().for_each(|packet| send(packet));
            for number in 0..GARBAGE {
                let byte = [0, 0x40, 0xc0, 0xff][number % 4];
                send(&vec![byte; 1 + number % 1400]);
            }
        }
        // Only the first one is listened for.
        let _ = begun.send(());
    }
    Ok(sent)
}

fn flood(scene: &mut Scene) -> Fallible<Seen> {
    let (pid, memory) = (scene.daemon(CTL)?, resident_mib(scene, CTL)?);
    let to = [scene.address(CTL), scene.address(N1), scene.address(2)];
    let identity = steal(scene, "n3")?;
    let stop = AtomicBool::new(false);
    let (begun, begins) = mpsc::channel();
    let mut broken = Vec::new();
    let site: &Scene = scene;
    let sent = thread::scope(|scope| -> Fallible<u64> {
        let flooder = scope.spawn(|| site.on_network(STRANGER, || pour(&to, &stop, &begun)).map_err(text));
        let honest = || -> Fallible<Vec<String>> {
            begins.recv_timeout(Duration::from_secs(60))?;
            let mut broken = Vec::new();
            let controller = ExpectPeer::controller();
            for round in 0..3 {
                let fresh =
                    async || Ok(connect(&identity, &to[0], LinkKind::ControllerNode, &controller).await.map(drop));
                if let Err(why) = converse(site, STOLEN, fresh)? {
                    broken.push(format!("round {round}: a node cannot connect: {why}"));
                }
                let ran = site.run(ALICE, CTL, "srun", &["-N2", "-w", "n1,n2", "id", "-u"])?;
                if ran.out.lines().count() != 2 {
                    broken.push(format!("round {round}: srun on two nodes: {ran:?}"));
                }
            }
            Ok(broken)
        };
        let found = honest();
        stop.store(true, Ordering::SeqCst);
        let sent = flooder.join().map_err(|_| "the flooder panicked")??;
        broken.extend(found?);
        Ok(sent)
    })?;
    let nodes = scene.nodes()?;
    if nodes.contains('*') || nodes.contains("down") {
        broken.push(format!("nodes were lost: {nodes}"));
    }
    unshaken(scene, pid, memory, &mut broken)?;
    // What he began there gives way to others from the same address, so that the next attack is not refused for this one.
    let controller = ExpectPeer::controller();
    let fresh = async || Ok(connect(&identity, &to[0], LinkKind::ControllerNode, &controller).await.map(drop));
    scene.until("his address is served again", |scene| Ok(converse(scene, STRANGER, fresh)?.is_ok()))?;
    Ok(Seen::of(&broken, format!("{sent} packets; nodes connect and jobs on two nodes run meanwhile")))
}

/// A token for a node, from an administrator.
pub(super) fn token(scene: &Scene, node: &str) -> Fallible<String> {
    Ok(scene.run(ROOT, CTL, "garrick", &["token", "--node", node])?.ok("garrick token")?.out.trim().to_owned())
}

/// Joins with a token.
pub(super) fn join(scene: &Scene, host: usize, address: &str, token: &str, name: &str) -> Fallible<Result<(), String>> {
    let folder = scene.site.home.join(format!("joined-{}", garrick_model::ids::RequestId::random()));
    converse(scene, host, async || Ok(join_with_token(address, token, name, &folder).await.map(drop).map_err(text)))
}

/// Joins with a key file.
pub(super) fn join_with_key(scene: &Scene, address: &str, key: &Path, name: &str) -> Fallible<Result<(), String>> {
    let folder = scene.site.home.join(format!("joined-{}", garrick_model::ids::RequestId::random()));
    converse(scene, STRANGER, async || {
        Ok(join_with_shared_key(address, key, name, &folder).await.map(drop).map_err(text))
    })
}

/// The same token with another secret.
fn altered(token: &str) -> String {
    let mut parts: Vec<String> = token.split('.').map(ToOwned::to_owned).collect();
    if let Some(secret) = parts.get_mut(2) {
        *secret = secret.chars().map(|digit| if digit == '0' { '1' } else { '0' }).collect();
    }
    parts.join(".")
}

fn issued(scene: &Scene) -> Fallible<usize> {
    Ok(scene.run(ROOT, CTL, "garrick", &["certs", "list"])?.ok("garrick certs list")?.out.lines().count())
}

fn join_falsely(scene: &mut Scene) -> Fallible<Seen> {
    let address = scene.address(CTL);
    let before = issued(scene)?;
    let (good, any) = (token(scene, "n3")?, token(scene, "n3")?);
    let made_up = good.replacen(good.split('.').nth(1).ok_or("not a token")?, "0011223344556677", 1);
    let key = scene.site.home.join("his.key");
    files::write_whole(&key, b"fedcba9876543210fedcba9876543210", 0o600)?;
    let mut broken = Vec::new();
    let mut said = Vec::new();
    let mut note = |what: &str, tried: Result<(), String>| match tried {
        Ok(()) => broken.push(format!("{what} is good for joining")),
        Err(why) => said.push(why),
    };
    note("a made-up token", join(scene, STRANGER, &address, &made_up, "n3")?);
    note("a token with another secret", join(scene, STRANGER, &address, &altered(&good), "n3")?);
    note("another node's token", join(scene, STRANGER, &address, &good, "n1")?);
    note("a token under a name that nobody knows", join(scene, STRANGER, &address, &any, "n99")?);
    note("another key", join_with_key(scene, &address, &key, "n3")?);
    if issued(scene)? != before {
        note("what was refused", Ok(()));
    }
    join(scene, STRANGER, &address, &good, "n3")?.map_err(|why| format!("the token is not taken: {why}"))?;
    note("a used token", join(scene, STRANGER, &address, &good, "n3")?);
    join_with_key(scene, &address, &scene.site.home.join("slurm.key"), "n3")?
        .map_err(|why| format!("the site's key is not taken: {why}"))?;
    if issued(scene)? != before + 2 {
        note("something else than the token and the key", Ok(()));
    }
    Ok(Seen::of(&broken, format!("{} refused, the last: {}", said.len(), said.last().map_or("", String::as_str))))
}

/// A false controller in the stranger's network for as long as the work takes. Returns what came of the work, the links that the
/// false controller got, and the attempts that failed.
fn beside_false_controller<T: Send>(
    scene: &Scene,
    identity: Arc<IdentityStore>,
    join: Option<Arc<dyn AnswerJoins>>,
    work: impl FnOnce(&dyn Fn() -> Option<String>) -> Fallible<T>,
) -> Fallible<(T, Vec<String>)> {
    let (ready, is_ready) = mpsc::channel();
    let (knock, knocks) = mpsc::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let serve = move || -> Result<Vec<String>, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(text)?;
        runtime.block_on(async {
            let options = EndpointOptions { join, ..EndpointOptions::default() };
            let endpoint = Endpoint::bind_with(any_address(6817), identity, options).map_err(text)?;
            let mut links = Vec::new();
            ready.send(()).map_err(text)?;
            let accepting = async {
                while let Some(arrived) = endpoint.accept().await {
                    match arrived {
                        Ok(connection) => links.push(format!("{} trusts the false controller", connection.peer)),
                        // The receiver may have seen enough.
                        Err(why) => drop(knock.send(why.to_string())),
                    }
                }
            };
            tokio::select! {
                () = accepting => {}
                _ = stopped => {}
            }
            Ok(links)
        })
    };
    thread::scope(|scope| {
        let serving = scope.spawn(|| scene.on_network(STRANGER, serve).map_err(text));
        let done = match is_ready.recv_timeout(Duration::from_secs(30)) {
            Ok(()) => work(&|| knocks.recv_timeout(Duration::from_secs(60)).ok()),
            Err(e) => Err(e.into()),
        };
        // Over already is as good.
        let _ = stop.send(());
        let links = serving.join().map_err(|_| "the false controller panicked")?;
        Ok((done?, links?))
    })
}

fn false_controller(scene: &mut Scene) -> Fallible<Seen> {
    let folder = scene.site.home.join("false-controller");
    let authority = Arc::new(CertAuthority::create(&folder.join("ca"), &scene.config.cluster_name)?);
    let identity = authority.enrol(Role::Controller, "ctl", &folder.join("identity"))?;
    let key = folder.join("his.key");
    files::write_whole(&key, b"fedcba9876543210fedcba9876543210", 0o600)?;
    let server = Arc::new(JoinServer::new(authority)?.with_shared_key(&key));
    let own = server.create_token(Duration::from_secs(600), None)?;
    let (real, false_one) = (scene.address(CTL), format!("{}:6817", Site::address(STRANGER)));
    let token = token(scene, "n2")?;
    let site_key = scene.site.home.join("slurm.key");
    let (tried, links) = beside_false_controller(scene, identity, Some(server), |_| {
        // It serves those who believe it: his own token.
        join(scene, 2, &false_one, &own, "n2")?.map_err(|why| format!("the false controller serves nobody: {why}"))?;
        Ok([join(scene, 2, &false_one, &token, "n2")?, join_with_key(scene, &false_one, &site_key, "n2")?])
    })?;
    let mut broken = links;
    let mut said = Vec::new();
    for (what, tried) in ["a token", "the site's key"].into_iter().zip(tried) {
        match tried {
            Ok(()) => broken.push(format!("a node with {what} joins the false controller")),
            Err(why) => said.push(why),
        }
    }
    // Nor did he learn the token: it is good still.
    join(scene, 2, &real, &token, "n2")?
        .map_err(|why| format!("the real controller does not take the token: {why}"))?;
    Ok(Seen::of(&broken, said.join("; ")))
}

fn take_address(scene: &mut Scene) -> Fallible<Seen> {
    let identity = forge(scene, Role::Controller, "vm")?;
    let stranger = &scene.site.hosts[STRANGER];
    let ip = |change: &str| {
        let mut command = stranger.command(Path::new("ip"));
        command.args(["addr", change, &format!("{}/24", Site::address(CTL)), "dev", "eth0"]);
        super::scene::said(command)?.ok("ip addr")
    };
    let job = scene.job.clone();
    scene.site.cable(CTL, "down")?;
    let knocked = ip("add").and_then(|_| {
        beside_false_controller(scene, identity, None, |knock| knock().ok_or_else(|| "no node knocked there".into()))
    });
    ip("del")?;
    scene.site.cable(CTL, "up")?;
    let (knocked, broken) = knocked?;
    scene.until("the nodes have found the controller again", |scene| Ok(!scene.nodes()?.contains('*')))?;
    scene.works(ALICE)?;
    let mut broken = broken;
    if scene.state(&job)? != "RUNNING" {
        broken.push("her job does not run any more".to_owned());
    }
    Ok(Seen::of(&broken, knocked))
}
