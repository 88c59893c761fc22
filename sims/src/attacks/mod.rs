//! Attacks on a real cluster, one after the other: what `docs/security.md` says is impossible is tried with real commands,
//! sockets, files and processes. An attack counts as repelled if the attacker did not achieve the goal and the legitimate
//! counterpart worked in the same cluster: so an attack that fails because of a mistake in it does not count.
//!
//! | file | what |
//! |---|---|
//! | [`scene`] | the cluster, its users, and what attacks share |
//! | [`attacker`] | this program as an ordinary user's process: requests, sockets and tracing that no command makes |
//! | [`user`] | attacks of an ordinary user on a node, on the controller's host, and in world-writable folders |
//! | [`network`] | attacks from the network without any key |
//! | [`idle_group`] | processes that get only CPU time that no other process wants |
//! | [`siege`] | one user's clients at full speed, while another user works |
//! | [`puppet`], [`stolen`] | attacks with the identity of one node |
//!
//! `docs/attacks.md` lists them with the tests that guard each.

pub mod attacker;
pub mod idle_group;
pub mod network;
pub mod puppet;
pub mod scene;
pub mod siege;
pub mod stolen;
pub mod user;

use scene::Scene;
use std::{
    io::{self, Write},
    time::Instant,
};

/// Why an attack could not be carried out.
pub type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

/// Who attacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// An ordinary user on a host of the cluster.
    User,
    /// Somebody on the network, without any key.
    Network,
    /// Somebody who has a copy of one node's `identity.pem`.
    StolenNode,
}

impl Who {
    const fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Network => "network",
            Self::StolenNode => "stolen node",
        }
    }
}

/// What came of an attack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The attacker did not get it. What happened.
    Held(String),
    /// The attacker got it. What.
    Broken(String),
}

impl Seen {
    /// Broken where the list names anything, else held.
    pub fn of(broken: &[String], held: impl Into<String>) -> Self {
        if broken.is_empty() { Self::Held(held.into()) } else { Self::Broken(broken.join("; ")) }
    }
}

/// One attack.
#[derive(Clone, Copy, Debug)]
pub struct Attack {
    /// Who.
    pub who: Who,
    /// What is tried.
    pub tries: &'static str,
    /// Tries it.
    pub run: fn(&mut Scene) -> Fallible<Seen>,
    /// Takes long, or much of the machine: left out of the short form.
    pub long: bool,
}

/// All of them, in the order in which they are tried: the last ones take a node out of service.
pub fn all() -> Vec<Attack> {
    [user::ATTACKS, network::ATTACKS, stolen::ATTACKS].concat()
}

/// The numbers of those that the short form tries.
pub fn short() -> Vec<usize> {
    (1..).zip(all()).filter(|(_, attack)| !attack.long).map(|(number, _)| number).collect()
}

/// How many there were of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Held.
    pub held: u32,
    /// Broken.
    pub broken: u32,
    /// Not carried out, or without an honest counterpart that worked: nothing is known.
    pub unclear: u32,
}

/// Tries those with these numbers (all of them if none is named) and says what came of each.
pub fn run(scene: &mut Scene, chosen: &[usize], out: &mut dyn Write) -> io::Result<Tally> {
    let mut tally = Tally::default();
    for (number, attack) in (1..).zip(all()).filter(|(number, _)| chosen.is_empty() || chosen.contains(number)) {
        let began = Instant::now();
        let seen = (attack.run)(scene);
        let (word, said) = match seen {
            Ok(Seen::Held(said)) => {
                tally.held += 1;
                ("held", said)
            }
            Ok(Seen::Broken(said)) => {
                tally.broken += 1;
                ("BROKEN", said)
            }
            Err(e) => {
                tally.unclear += 1;
                ("UNCLEAR", e.to_string())
            }
        };
        let (who, tries, secs) = (attack.who.word(), attack.tries, began.elapsed().as_secs_f64());
        writeln!(out, "{number:>2} | {who:<11} | {tries} | {} | {word} ({secs:.1} s)", scene::one_line(&said))?;
        out.flush()?;
    }
    Ok(tally)
}
