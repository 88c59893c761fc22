//! How a connection begins, and the envelope of every message. The first frame of a Unix connection, or of the control stream of
//! a QUIC connection, is a [`Hello`]; its answer is a [`HelloReply`]; every later frame is a [`Traced`] message.

use serde::{Deserialize, Serialize};

/// A message with where it comes from: every frame after the greeting is one of these around the link's enum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traced<T> {
    /// Trace it belongs to; 0: none.
    #[serde(default)]
    pub trace: u64,
    /// Id of the message that caused it; 0: none.
    #[serde(default)]
    pub cause: u64,
    /// The message.
    pub msg: T,
}

impl<T> Traced<T> {
    /// A message outside any trace.
    pub const fn untraced(msg: T) -> Self {
        Self { trace: 0, cause: 0, msg }
    }
}

/// [`Traced`] around a borrowed message, for sending without a copy. The same bytes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct TracedRef<'a, T: ?Sized> {
    /// See [`Traced::trace`].
    pub trace: u64,
    /// See [`Traced::cause`].
    pub cause: u64,
    /// The message.
    pub msg: &'a T,
}

/// [`Traced`] with descriptors, at a local door: their number is sent too, since a stream of bytes does not say to which message
/// they belong. A reader that accepts no descriptors skips the field, and the kernel closes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Accompanied<T> {
    /// See [`Traced::trace`].
    #[serde(default)]
    pub trace: u64,
    /// See [`Traced::cause`].
    #[serde(default)]
    pub cause: u64,
    /// How many descriptors came, not later than the first byte of this frame.
    #[serde(default)]
    pub fds: u8,
    /// The message.
    pub msg: T,
}

/// [`Accompanied`] around a borrowed message.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct AccompaniedRef<'a, T: ?Sized> {
    /// See [`Traced::trace`].
    pub trace: u64,
    /// See [`Traced::cause`].
    pub cause: u64,
    /// See [`Accompanied::fds`].
    pub fds: u8,
    /// The message.
    pub msg: &'a T,
}

/// Which conversation a connection is for; it fixes the two enums that travel on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LinkKind {
    /// A command at a daemon's door.
    CommandToDaemon,
    /// A command at a `stepd`'s door.
    CommandToStepMgr,
    /// Controller and node agent.
    ControllerNode,
    /// Node agent and a `stepd` on its host.
    NodeStepd,
    /// Step manager and the agent of another node.
    StepMgrAgent,
    /// Step manager and a shepherd.
    StepMgrShepherd,
    /// A node that asks for its identity. The only kind open to a peer without a certificate.
    Join,
    /// A command that wants the records of a job's steps, at the door of a daemon or by way of one.
    CommandToRecords,
    /// Two `stepd`s of a run: a file on its way to the run's nodes.
    BetweenStepds,
    /// A command that asks the service of accounting, at its door or by way of a daemon's.
    CommandToAccounts,
    /// A controller that feeds the service of accounting.
    ControllerAccounts,
}

impl std::fmt::Display for LinkKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::CommandToDaemon => "command to daemon",
            Self::CommandToStepMgr => "command to step manager",
            Self::ControllerNode => "controller and node",
            Self::NodeStepd => "node and stepd",
            Self::StepMgrAgent => "step manager and agent",
            Self::StepMgrShepherd => "step manager and shepherd",
            Self::Join => "join",
            Self::CommandToRecords => "command to records",
            Self::BetweenStepds => "two stepds of a run",
            Self::CommandToAccounts => "command to accounting",
            Self::ControllerAccounts => "controller and accounting",
        })
    }
}

/// Protocol versions that a program can speak, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionRange {
    /// Oldest.
    pub min: u16,
    /// Newest.
    pub max: u16,
}

/// What this build speaks.
pub const PROTOCOL: VersionRange = VersionRange { min: 1, max: 1 };

impl VersionRange {
    /// The newest version that both speak.
    pub fn common(self, other: Self) -> Option<u16> {
        let newest = self.max.min(other.max);
        (newest >= self.min.max(other.min)).then_some(newest)
    }
}

impl std::fmt::Display for VersionRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.min == self.max { write!(f, "{}", self.min) } else { write!(f, "{} to {}", self.min, self.max) }
    }
}

/// First frame of a connection. Grows by `#[serde(default)]` fields only: peers of any version must be able to read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// What for.
    pub link: LinkKind,
    /// What the sender speaks.
    pub versions: VersionRange,
    /// Name and version of the program, for people: `srun 0.1.0`.
    #[serde(default)]
    pub program: String,
    /// Relay this connection instead of answering it.
    #[serde(default)]
    pub tunnel: Option<TunnelTo>,
}

impl Hello {
    /// A greeting of this build.
    pub fn new(link: LinkKind, program: &str) -> Self {
        Self { link, versions: PROTOCOL, program: program.to_owned(), tunnel: None }
    }
}

/// "Relay this connection to that `stepd`'s door over QUIC."
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelTo {
    /// QUIC address, `host:port`.
    pub address: String,
    /// Node that must answer there.
    pub node: String,
    /// Job whose step manager is meant.
    pub job: u32,
}

/// Answer to [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HelloReply {
    /// Go on.
    Welcome {
        /// The version that both use from here on.
        version: u16,
        /// Name and version of the answering program.
        program: String,
    },
    /// No; the connection is closed after this.
    Refused {
        /// Why, for people.
        reason: String,
        /// What the refusing program speaks.
        versions: VersionRange,
    },
}

impl HelloReply {
    /// Decides about a greeting's versions.
    pub fn to_versions(theirs: VersionRange, ours: VersionRange, program: &str) -> Self {
        match ours.common(theirs) {
            Some(version) => Self::Welcome { version, program: program.to_owned() },
            None => Self::Refused {
                reason: format!("no common protocol version: the caller speaks {theirs}, {program} speaks {ours}"),
                versions: ours,
            },
        }
    }
}

/// The part of a [`Hello`] that is readable in every version, for a useful answer to a greeting from the future.
#[derive(Clone, Debug, Deserialize)]
pub struct HelloVersions {
    /// What the sender speaks.
    pub versions: VersionRange,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::codec::{decode_body, encode};

    #[test]
    fn newest_common_version_wins() {
        let range = |min, max| VersionRange { min, max };
        assert_eq!(range(1, 3).common(range(2, 5)), Some(3));
        assert_eq!(range(2, 5).common(range(1, 2)), Some(2));
        assert_eq!(range(1, 1).common(range(2, 3)), None);
        assert_eq!(range(4, 5).common(range(2, 3)), None);
    }

    #[test]
    fn refusal_names_both_ranges() {
        let reply =
            HelloReply::to_versions(VersionRange { min: 7, max: 9 }, VersionRange { min: 1, max: 2 }, "slurmctld");
        let HelloReply::Refused { reason, versions } = reply else { panic!("must be refused") };
        assert!(reason.contains("7 to 9") && reason.contains("1 to 2"), "{reason}");
        assert_eq!(versions, VersionRange { min: 1, max: 2 });
    }

    #[test]
    fn borrowed_and_owned_messages_are_the_same_bytes() {
        let msg = "x".to_owned();
        let owned = encode(&Traced { trace: 5, cause: 6, msg: msg.clone() }, 100).unwrap();
        let borrowed = encode(&TracedRef { trace: 5, cause: 6, msg: &msg }, 100).unwrap();
        assert_eq!(owned, borrowed);
    }

    #[test]
    fn a_count_of_descriptors_is_skipped_by_those_who_do_not_know_it_and_none_by_default() {
        let counted = encode(&AccompaniedRef { trace: 5, cause: 6, fds: 3, msg: "x" }, 100).unwrap();
        let plain: Traced<String> = decode_body(&counted[4..]).unwrap();
        assert_eq!(plain, Traced { trace: 5, cause: 6, msg: "x".to_owned() });
        let uncounted = encode(&plain, 100).unwrap();
        let read: Accompanied<String> = decode_body(&uncounted[4..]).unwrap();
        assert_eq!((read.trace, read.cause, read.fds, read.msg.as_str()), (5, 6, 0, "x"));
    }

    #[test]
    fn versions_of_a_greeting_from_the_future_are_readable() {
        #[derive(Serialize)]
        struct FutureHello {
            link: &'static str,
            versions: VersionRange,
            novelty: Vec<u8>,
        }
        let frame = encode(
            &FutureHello { link: "Telepathy", versions: VersionRange { min: 8, max: 9 }, novelty: vec![1, 2] },
            1000,
        )
        .unwrap();
        assert!(decode_body::<Hello>(&frame[4..]).is_err());
        assert_eq!(decode_body::<HelloVersions>(&frame[4..]).unwrap().versions, VersionRange { min: 8, max: 9 });
    }
}
