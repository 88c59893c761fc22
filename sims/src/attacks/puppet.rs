//! A fake daemon: it uses the links between hosts with a stolen or invented identity, or with none.

use super::{
    Fallible,
    scene::{CTL, N1, STOLEN, Scene, enter_network},
};
use crate::faults::site::CPUS;
use garrick_frame::{Hello, LinkKind, Traced, encode, limits};
use garrick_model::{
    ids::RequestId,
    messages::node::{AgentToStepMgr, ControllerToNode, NodeToController, StepMgrToAgent},
    node_shape::NodeShape,
    resources::MemoryMib,
    time::Timestamp,
    view::{NodeFacts, NodeLoad},
};
use garrick_transport::{
    Class, Connection, Endpoint, IdentityStore, any_address,
    identity::{CertAuthority, ExpectPeer, Role, files, store::crypto_provider},
    quic::config::ALPN,
};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    thread,
    time::Duration,
};
use tokio::{sync::mpsc, time::timeout};

/// What it calls itself.
pub const PROGRAM: &str = "attacker";
/// The only file of an identity.
const IDENTITY: &str = "identity.pem";
/// Longest for a conversation. Machines may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// An error for people, which may cross threads.
pub fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Runs a conversation in a host's network.
pub fn converse<T, F>(scene: &Scene, host: usize, work: impl FnOnce() -> F + Send) -> Fallible<T>
where
    T: Send,
    F: Future<Output = Result<T, String>>,
{
    scene.on_network(host, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(text)?;
        runtime.block_on(async { timeout(PATIENCE, work()).await.map_err(|_| "the conversation has no end")? })
    })
}

/// A copy of a node's identity, in a folder of the thief's.
pub fn steal(scene: &Scene, node: &str) -> Fallible<Arc<IdentityStore>> {
    let theirs = scene.site.home.join(format!("spool-{node}/identity")).join(IDENTITY);
    let folder = scene.site.home.join(format!("stolen-{node}"));
    files::create_folder(&folder)?;
    files::write_whole(&folder.join(IDENTITY), &fs::read(theirs)?, 0o600)?;
    Ok(IdentityStore::load(&folder)?)
}

/// The parts of an identity file: key, certificate, authority.
fn parts(folder: &Path) -> Fallible<Vec<String>> {
    let text = fs::read_to_string(folder.join(IDENTITY))?;
    let mut parts = vec![String::new()];
    for line in text.lines() {
        if let Some(part) = parts.last_mut() {
            part.push_str(line);
            part.push('\n');
        }
        if line.starts_with("-----END") {
            parts.push(String::new());
        }
    }
    Ok(parts)
}

/// An identity of that name which an authority of the attacker's issued, and which believes the cluster's own: every handshake
/// shows that one.
pub fn forge(scene: &Scene, role: Role, name: &str) -> Fallible<Arc<IdentityStore>> {
    let folder = scene.site.home.join(format!("forged-{role}-{name}").replace(' ', "-"));
    let authority = CertAuthority::create(&folder.join("ca"), &scene.config.cluster_name)?;
    authority.enrol(role, name, &folder)?;
    let own = parts(&folder)?;
    let real = parts(&scene.site.home.join("spool-n3/identity"))?;
    let (Some([key, certificate, ..]), Some(authority)) = (own.get(..2).map(|own| [&own[0], &own[1]]), real.get(2))
    else {
        return Err("an identity file is not made of key, certificate and authority".into());
    };
    files::write_whole(&folder.join(IDENTITY), format!("{key}{certificate}{authority}").as_bytes(), 0o600)?;
    Ok(IdentityStore::load(&folder)?)
}

/// Connects with an identity.
pub async fn connect(
    identity: &Arc<IdentityStore>,
    address: &str,
    link: LinkKind,
    expect: &ExpectPeer,
) -> Result<(Endpoint, Connection), String> {
    let endpoint = Endpoint::bind(any_address(0), Arc::clone(identity)).map_err(text)?;
    let connection = endpoint.connect(address, link, PROGRAM, expect).await.map_err(text)?;
    Ok((endpoint, connection))
}

/// Asks a node's agent something, as a step manager of another node does. The honest question is [`StepMgrToAgent::AskController`].
pub async fn ask_agent(
    identity: &Arc<IdentityStore>,
    address: &str,
    question: StepMgrToAgent,
) -> Result<AgentToStepMgr, String> {
    let expect = ExpectPeer { role: Role::Node, name: None };
    let (_endpoint, mut connection) = connect(identity, address, LinkKind::StepMgrAgent, &expect).await?;
    let (sender, mut answers) = connection.split::<StepMgrToAgent, AgentToStepMgr>();
    sender.send(Traced::untraced(question)).await.map_err(text)?;
    let answer = answers.recv().await.map_err(text)?.ok_or("the connection was closed")?;
    connection.close("answered");
    Ok(answer.msg)
}

/// The first node answers who has that identity: the honest counterpart of those that have none.
pub fn is_answered(scene: &Scene, host: usize, identity: &Arc<IdentityStore>) -> Fallible<()> {
    let address = scene.address(N1);
    let answer = converse(scene, host, || ask_agent(identity, &address, StepMgrToAgent::AskController))?;
    match answer {
        AgentToStepMgr::Controller { connected: true } => Ok(()),
        other => Err(format!("an honest question is answered with {other:?}").into()),
    }
}

/// Believes any server, shows no certificate, and says what it is told to on the streams of a link. Returns why the other side
/// ended the connection; an error if it did not.
pub async fn nameless(address: &str, link: LinkKind, first: &[u8]) -> Result<String, String> {
    let remote: SocketAddr = address.parse().map_err(text)?;
    let endpoint = quinn::Endpoint::client((Ipv4Addr::UNSPECIFIED, 0).into()).map_err(text)?;
    let connection = match endpoint.connect_with(gullible()?, remote, "garrick").map_err(text)?.await {
        Ok(connection) => connection,
        Err(e) => return Ok(e.to_string()),
    };
    let hello = encode(&Hello::new(link, PROGRAM), limits::HELLO).map_err(text)?;
    let mut streams = Vec::new();
    let speak = async {
        for class in Class::ALL {
            let mut stream = connection.open_uni().await.map_err(text)?;
            let mut said = vec![class as u8];
            match class {
                Class::Control => said.extend(&hello),
                Class::Request => said.extend(first),
                Class::Trace => {}
            }
            stream.write_all(&said).await.map_err(text)?;
            // Kept open: that the attacker ends a stream is no reason to refuse him.
            streams.push(stream);
        }
        Ok::<(), String>(())
    };
    // A connection that is closed meanwhile takes nothing more: that is told below.
    let _ = speak.await;
    let ended = timeout(Duration::from_secs(20), connection.closed()).await;
    drop(streams);
    match ended {
        Ok(reason) => Ok(reason.to_string()),
        Err(_) => Err(format!("a nameless connection for {link} stays open")),
    }
}

/// TLS of somebody who believes everybody.
pub fn gullible() -> Result<quinn::ClientConfig, String> {
    let mut tls = rustls::ClientConfig::builder_with_provider(crypto_provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(text)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Gullible))
        .with_no_client_auth();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let tls = quinn::crypto::rustls::QuicClientConfig::try_from(tls).map_err(text)?;
    Ok(quinn::ClientConfig::new(Arc::new(tls)))
}

#[derive(Debug)]
struct Gullible;

impl rustls::client::danger::ServerCertVerifier for Gullible {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        crypto_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// The first words of a node's agent.
pub fn registration(node: &str) -> NodeToController {
    let whole = NodeShape {
        cpus: CPUS,
        boards: 1,
        sockets: CPUS,
        cores_per_socket: 1,
        threads_per_core: 1,
        ..NodeShape::default()
    };
    let shape = NodeShape { memory: MemoryMib(100_000), ..whole };
    let facts = NodeFacts {
        hostname: "vm".to_owned(),
        shape,
        arch: "x86_64".to_owned(),
        os: "Linux".to_owned(),
        version: "attacker".to_owned(),
        boot_time: Timestamp::now(),
        agent_start: Timestamp::now(),
        tracking: "cgroup/v2".to_owned(),
        boot_id: None,
        conf_hash: None,
    };
    NodeToController::Register {
        node: node.to_owned(),
        facts: Box::new(facts),
        runs: Vec::new(),
        released: Vec::new(),
        // Reports are numbered anew with each.
        incarnation: RequestId::random().0,
        load: NodeLoad::default(),
        joining: None,
    }
}

/// A message in a frame, as links carry it.
pub fn framed<T: Serialize + DeserializeOwned>(message: T) -> Fallible<Vec<u8>> {
    Ok(encode(&Traced::untraced(message), limits::REQUEST)?)
}

/// A false node daemon: it has a node's link to the controller, answers pings, and says what it is told to.
pub struct Puppet {
    say: mpsc::UnboundedSender<NodeToController>,
    heard: std::sync::mpsc::Receiver<Result<ControllerToNode, String>>,
}

impl Puppet {
    /// In the network of the stolen node's host, registered under that name.
    pub fn up(scene: &Scene, identity: &Arc<IdentityStore>, name: &str) -> Fallible<Self> {
        let (say, mut to_say) = mpsc::unbounded_channel();
        let (hear, heard) = std::sync::mpsc::channel();
        let (namespace, address, identity) = (scene.site.network(STOLEN), scene.address(CTL), Arc::clone(identity));
        let serve = move || -> Result<(), String> {
            enter_network(&namespace)?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(text)?;
            runtime.block_on(serve(&identity, &address, &mut to_say, &hear)).inspect_err(|why| {
                // The receiver may no longer need it.
                let _ = hear.send(Err(why.clone()));
            })
        };
        thread::spawn(serve);
        let puppet = Self { say, heard };
        puppet.say(registration(name))?;
        Ok(puppet)
    }

    /// Says something to the controller.
    pub fn say(&self, message: NodeToController) -> Fallible<()> {
        Ok(self.say.send(message)?)
    }

    /// The next that is wanted of what the controller says. An error: the link ended, and why.
    pub fn hear<T>(&self, what: &str, mut wanted: impl FnMut(ControllerToNode) -> Option<T>) -> Fallible<T> {
        loop {
            let frame = self.heard.recv_timeout(PATIENCE).map_err(|e| format!("waiting for {what}: {e}"))??;
            if let Some(found) = wanted(frame) {
                return Ok(found);
            }
        }
    }
}

async fn serve(
    identity: &Arc<IdentityStore>,
    address: &str,
    to_say: &mut mpsc::UnboundedReceiver<NodeToController>,
    hear: &std::sync::mpsc::Sender<Result<ControllerToNode, String>>,
) -> Result<(), String> {
    let (_endpoint, mut connection) =
        connect(identity, address, LinkKind::ControllerNode, &ExpectPeer::controller()).await?;
    let (sender, mut frames) = connection.split::<NodeToController, ControllerToNode>();
    loop {
        tokio::select! {
            message = to_say.recv() => match message {
                Some(message) => sender.send(Traced::untraced(message)).await.map_err(text)?,
                None => {
                    connection.close("over");
                    // Lets the closing frame out.
                    tokio::task::yield_now().await;
                    return Ok(());
                }
            },
            frame = frames.recv() => match frame.map_err(text)?.ok_or("the controller closed the link")?.msg {
                ControllerToNode::Ping { n, .. } => {
                    let alive = NodeToController::Heartbeat { n, load: NodeLoad::default() };
                    sender.send(Traced::untraced(alive)).await.map_err(text)?;
                }
                other => hear.send(Ok(other)).map_err(text)?,
            },
        }
    }
}
