//! A node's state in Slurm's words, derived from its base state, its flags and its holds. `sinfo` shows one word with a mark,
//! `scontrol` a base word and its flags.

use garrick_model::{
    resources::MemoryMib,
    spec::Sharing,
    state::{NodeBase, NodePower, PowerRequest},
    view::{NodeHold, NodeView},
};

/// What jobs hold of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPUs given to jobs that are not over.
    pub cpus: u32,
    /// Memory given to them.
    pub memory: MemoryMib,
    /// Some job is active there.
    pub active: bool,
    /// Some job is being cleaned up there.
    pub completing: bool,
    /// Nothing more can be given.
    pub full: bool,
    /// All that is held is kept for jobs that will run there next.
    pub reserved: bool,
}

impl Usage {
    /// Something is left there, or will be.
    const fn any(&self) -> bool {
        self.active || self.completing || self.reserved
    }
}

/// What jobs hold of that node.
pub fn usage(node: &NodeView) -> Usage {
    let mut used = Usage { completing: node.flags.completing, ..Usage::default() };
    let mut whole = false;
    for hold in &node.holds {
        used.cpus += cpus(hold);
        used.memory.0 += hold.share.memory.map_or(0, |m| m.0);
        used.active |= !hold.completing && !hold.kept;
        used.completing |= hold.completing;
        whole |= !hold.completing && !hold.parked && hold.sharing == Sharing::Exclusive;
    }
    used.reserved = node.holds.iter().any(|hold| hold.kept) && !used.active;
    used.full = whole || used.cpus >= node.shape.cpus;
    used
}

/// Of a run that was suspended for another, the other has the CPUs.
fn cpus(hold: &NodeHold) -> u32 {
    if hold.parked { 0 } else { hold.share.cpus.len() }
}

/// The state without its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Base {
    Unknown,
    Down,
    Idle,
    Allocated,
    Mixed,
    Future,
}

fn base(node: &NodeView, used: Usage) -> Base {
    match node.base {
        NodeBase::Unknown => Base::Unknown,
        NodeBase::Down => Base::Down,
        NodeBase::Future => Base::Future,
        NodeBase::Up if used.active && used.full => Base::Allocated,
        NodeBase::Up if used.active => Base::Mixed,
        NodeBase::Up => Base::Idle,
    }
}

/// One word as `sinfo` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StateWord {
    /// `%T`: `allocated`, `drained*`.
    pub long: String,
    /// `%t`: `alloc`, `drain*`.
    pub compact: String,
    /// Order of `sinfo`'s lines: larger first.
    pub rank: u32,
}

/// The word for that node.
pub fn word(node: &NodeView) -> StateWord {
    let used = usage(node);
    let base = base(node, used);
    let flags = node.flags;
    let (long, compact) = if flags.invalid {
        ("inval", "inval")
    } else if base == Base::Future {
        ("future", "futr")
    } else if flags.drain {
        if used.any() { ("draining", "drng") } else { ("drained", "drain") }
    } else if flags.fail {
        if used.any() { ("failing", "failg") } else { ("fail", "fail") }
    } else if flags.maint && base != Base::Down && base != Base::Unknown {
        ("maint", "maint")
    } else {
        match base {
            Base::Unknown => ("unknown", "unk"),
            Base::Down => ("down", "down"),
            Base::Idle if used.completing => ("completing", "comp"),
            Base::Idle if used.reserved || flags.reserved => ("reserved", "resv"),
            Base::Idle => ("idle", "idle"),
            Base::Allocated if used.completing => ("allocated+", "alloc+"),
            Base::Allocated => ("allocated", "alloc"),
            Base::Mixed => ("mixed", "mix"),
            Base::Future => ("future", "futr"),
        }
    };
    let (long, compact) = if flags.reboot_issued { ("reboot", "boot") } else { (long, compact) };
    let mark = match (flags.power, flags.power_request) {
        (NodePower::PoweredDown, _) => "~",
        (NodePower::PoweringDown, _) => "%",
        (NodePower::PoweringUp, _) => "#",
        (NodePower::On, Some(PowerRequest::Down)) => "!",
        (NodePower::On, _) if flags.reboot_issued => "^",
        (NodePower::On, _) if flags.reboot_requested => "@",
        (NodePower::On, _) if flags.not_responding => "*",
        (NodePower::On, _) => "",
    };
    let power = match flags.power {
        NodePower::On => 0,
        NodePower::PoweredDown => 1,
        NodePower::PoweringUp => 2,
        NodePower::PoweringDown => 3,
    };
    let order = match base {
        Base::Unknown => 0,
        Base::Down => 1,
        Base::Idle => 2,
        Base::Allocated => 3,
        Base::Mixed => 5,
        Base::Future => 6,
    };
    let rank = order
        + (u32::from(flags.is_held_back()) << 4)
        + (u32::from(used.reserved || flags.reserved || flags.maint) << 3)
        + (u32::from(used.completing) << 5)
        + (u32::from(flags.not_responding) << 6)
        + (u32::from(flags.invalid) << 7)
        + (u32::from(flags.power_request == Some(PowerRequest::Down)) << 8)
        + (power << 9);
    StateWord { long: format!("{long}{mark}"), compact: format!("{compact}{mark}"), rank }
}

/// Base word and flags, `["IDLE", "DRAIN"]`: joined by `+` in records, a list in JSON.
pub fn record_words(node: &NodeView) -> Vec<&'static str> {
    let used = usage(node);
    let mut words = vec![match base(node, used) {
        Base::Unknown => "UNKNOWN",
        Base::Down => "DOWN",
        Base::Idle => "IDLE",
        Base::Allocated => "ALLOCATED",
        Base::Mixed => "MIXED",
        Base::Future => "FUTURE",
    }];
    for (set, flag) in [
        (node.flags.cloud, "CLOUD"),
        (node.flags.drain, "DRAIN"),
        (node.flags.dynamic, "DYNAMIC_NORM"),
        (node.flags.fail, "FAIL"),
        (used.completing, "COMPLETING"),
        (node.flags.maint, "MAINTENANCE"),
        (used.reserved || node.flags.reserved, "RESERVED"),
        (node.flags.power_request == Some(PowerRequest::Down), "POWER_DOWN"),
        (node.flags.power_request == Some(PowerRequest::Up) && node.flags.power != NodePower::PoweringDown, "POWER_UP"),
        (node.flags.reboot_requested, "REBOOT_REQUESTED"),
        (node.flags.reboot_issued, "REBOOT_ISSUED"),
        (node.flags.not_responding && !node.flags.reboot_issued, "NOT_RESPONDING"),
        (node.flags.power == NodePower::PoweredDown, "POWERED_DOWN"),
        (node.flags.power == NodePower::PoweringDown, "POWERING_DOWN"),
        (node.flags.power == NodePower::PoweringUp, "POWERING_UP"),
        (node.flags.invalid, "INVALID_REG"),
    ] {
        if set {
            words.push(flag);
        }
    }
    words
}

/// What `sinfo -t` can choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateFilter {
    /// Whatever its state.
    All,
    /// Every CPU in use.
    Allocated,
    /// Some CPUs in use.
    Mixed,
    /// Nothing in use, in service.
    Idle,
    /// Jobs are being cleaned up.
    Completing,
    /// Out of service.
    Down,
    /// Gets nothing new, in use or not.
    Drain,
    /// Gets nothing new and is empty.
    Drained,
    /// Gets nothing new and is in use.
    Draining,
    /// An administrator expects it to fail.
    Fail,
    /// The same, and it is in use.
    Failing,
    /// Does not answer.
    NotResponding,
    /// Not heard from yet.
    Unknown,
    /// Planned.
    Future,
    /// Contradicts its configuration.
    Invalid,
    /// Kept for a job that waits for more nodes, or in a reservation.
    Reserved,
    /// In a reservation for maintenance.
    Maint,
    /// Exists when it is needed.
    Cloud,
    /// Came by itself (`slurmd -Z`).
    Dynamic,
    /// It is on, off, or on its way.
    Power(NodePower),
    /// It is to be powered up or down.
    PowerRequest(PowerRequest),
    /// A state that nodes here are never in.
    Never,
}

/// The words of `-t` as Slurm lists them where one is wrong.
pub const FILTER_WORDS: &str = "unknown,down,idle,allocated,mixed,future,drain,drained,draining,no_respond,reserved,planned,\
    blocked,cloud,completing,powering_down,powered_down,power_down,powering_up,power_up,inval,fail,maint,reboot,reboot^,external,\
    dynamic_future,dynamic_norm";

/// States in which a node is at once: `idle+drain` or `idle&drain`; `~idle`: not in that one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllOf(Vec<(bool, StateFilter)>);

impl AllOf {
    /// By words between `+` or `&`.
    pub fn parse(text: &str) -> Option<Self> {
        let one = |word: &str| match word.strip_prefix('~') {
            Some(word) => StateFilter::parse(word).map(|state| (false, state)),
            None => StateFilter::parse(word).map(|state| (true, state)),
        };
        text.split(['+', '&']).map(one).collect::<Option<_>>().map(Self)
    }

    /// Whether the node is in all of them.
    pub fn takes(&self, node: &NodeView) -> bool {
        self.0.iter().all(|(is, state)| state.takes(node) == *is)
    }
}

/// Words of `-t`, each also by its beginnings: those of several are for the first.
const FILTERS: &[(&str, StateFilter)] = &[
    ("all", StateFilter::All),
    ("allocated", StateFilter::Allocated),
    ("alloc", StateFilter::Allocated),
    ("mixed", StateFilter::Mixed),
    ("mix", StateFilter::Mixed),
    ("idle", StateFilter::Idle),
    ("completing", StateFilter::Completing),
    ("comp", StateFilter::Completing),
    ("down", StateFilter::Down),
    ("drain", StateFilter::Drain),
    ("drained", StateFilter::Drained),
    ("draining", StateFilter::Draining),
    ("drng", StateFilter::Draining),
    ("no_respond", StateFilter::NotResponding),
    ("not_responding", StateFilter::NotResponding),
    ("unknown", StateFilter::Unknown),
    ("unk", StateFilter::Unknown),
    ("future", StateFilter::Future),
    ("futr", StateFilter::Future),
    ("inval", StateFilter::Invalid),
    ("invalid_reg", StateFilter::Invalid),
    ("error", StateFilter::Never),
    ("fail", StateFilter::Fail),
    ("failing", StateFilter::Failing),
    ("cloud", StateFilter::Cloud),
    ("blocked", StateFilter::Never),
    ("maint", StateFilter::Maint),
    ("external", StateFilter::Never),
    ("dynamic_future", StateFilter::Never),
    ("dynamic_norm", StateFilter::Dynamic),
    ("planned", StateFilter::Never),
    ("plnd", StateFilter::Never),
    ("power_down", StateFilter::PowerRequest(PowerRequest::Down)),
    ("power_up", StateFilter::PowerRequest(PowerRequest::Up)),
    ("powered_down", StateFilter::Power(NodePower::PoweredDown)),
    ("powering_down", StateFilter::Power(NodePower::PoweringDown)),
    ("powering_up", StateFilter::Power(NodePower::PoweringUp)),
    ("reboot", StateFilter::Never),
    ("reboot_issued", StateFilter::Never),
    ("reserved", StateFilter::Reserved),
    ("resv", StateFilter::Reserved),
    ("npc", StateFilter::Never),
    ("perfctrs", StateFilter::Never),
];

impl StateFilter {
    /// By its word in any case, or a beginning of one.
    pub fn parse(text: &str) -> Option<Self> {
        let lower = text.to_ascii_lowercase();
        if let Some(exact) = FILTERS.iter().find(|f| f.0 == lower) {
            return Some(exact.1);
        }
        let begins = |f: &&(&str, Self)| !lower.is_empty() && f.1 != Self::All && f.0.starts_with(&lower);
        FILTERS.iter().find(begins).map(|f| f.1)
    }

    /// Whether the node is in that state.
    pub fn takes(self, node: &NodeView) -> bool {
        let used = usage(node);
        let base = base(node, used);
        let (drain, held_back) = (node.flags.drain, node.flags.is_held_back());
        match self {
            Self::All => true,
            Self::Allocated => base == Base::Allocated && !held_back,
            Self::Mixed => base == Base::Mixed && !held_back,
            Self::Idle => {
                let reserved = used.reserved || node.flags.reserved || node.flags.maint;
                base == Base::Idle && !held_back && !used.completing && !reserved
            }
            Self::Completing => used.completing,
            Self::Down => base == Base::Down,
            Self::Drain => drain,
            Self::Drained => drain && !used.any(),
            Self::Draining => drain && used.any(),
            Self::Reserved => (used.reserved || node.flags.reserved) && !held_back,
            Self::Maint => node.flags.maint,
            Self::Fail => node.flags.fail,
            Self::Failing => node.flags.fail && used.any(),
            Self::NotResponding => node.flags.not_responding,
            Self::Unknown => base == Base::Unknown,
            Self::Future => base == Base::Future,
            Self::Invalid => node.flags.invalid,
            Self::Cloud => node.flags.cloud,
            Self::Dynamic => node.flags.dynamic,
            Self::Power(power) => node.flags.power == power,
            Self::PowerRequest(request) => node.flags.power_request == Some(request),
            Self::Never => false,
        }
    }
}
