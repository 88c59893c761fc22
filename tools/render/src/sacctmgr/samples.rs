//! Entities for tests: those of the transcript of Slurm 26.05.3.

use garrick_model::entities::{
    Entities,
    association::{AssocId, Association, QosList, Shares},
    limits::Count,
    names::{Account, AdminLevel, Cluster, TresRecord, User, WcKey},
    qos::{QosPreemptMode, QosRecord},
};

fn names(names: &[&str]) -> std::collections::BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn own(list: &[&str]) -> QosList {
    QosList { own: Some(names(list)), ..QosList::default() }
}

/// Of an account below another, or of a user in it.
fn association(id: u32, parent: u32, account: &str, user: Option<&str>, shares: u32, default: bool) -> Association {
    Association {
        id: AssocId(id),
        cluster: "cluster".to_owned(),
        account: account.to_owned(),
        user: user.map(str::to_owned),
        parent: (parent > 0).then_some(AssocId(parent)),
        shares: Shares::Number(shares),
        is_default: default,
        ..Association::default()
    }
}

fn associations() -> Vec<Association> {
    let user = Some;
    let root = Association { qos: own(&["normal"]), ..association(1, 0, "root", None, 1, false) };
    let physics = own(&["high", "long", "low", "normal"]);
    let bob = || own(&["high", "normal"]);
    vec![
        root,
        association(2, 1, "root", user("root"), 1, true),
        Association { qos: physics, ..association(3, 1, "physics", None, 1, false) },
        association(4, 3, "astro", None, 1, false),
        association(5, 3, "quantum", None, 1, false),
        association(6, 1, "chem", None, 7, false),
        association(7, 1, "chem2", None, 1, false),
        association(9, 3, "physics", user("alice"), 10, true),
        association(10, 6, "chem", user("alice"), 1, false),
        Association { qos: bob(), ..association(11, 4, "astro", user("bob"), 1, true) },
        Association { qos: bob(), ..association(12, 6, "chem", user("bob"), 1, false) },
        association(13, 6, "chem", user("dave"), 1, true),
        association(14, 6, "chem", user("eva"), 1, true),
        association(28, 6, "chemsub", None, 1, false),
    ]
}

fn qos() -> Vec<QosRecord> {
    let named = |id, name: &str, description: &str| QosRecord {
        description: description.to_owned(),
        ..QosRecord::new(id, name)
    };
    let mut high = named(2, "high", "high");
    (high.priority, high.preempt, high.preempt_mode) =
        (100, names(&["low", "normal"]), [QosPreemptMode::Requeue].into());
    let mut long = named(3, "long", "long jobs");
    long.limits.counts.insert(Count::MaxWall, 2880);
    let mut low = named(10, "low", "low");
    (low.priority, low.usage_factor, low.preempt_mode) = (1, 3.0, [QosPreemptMode::Cancel].into());
    vec![named(1, "normal", "Normal QOS default"), high, long, low]
}

fn wckey(id: u32, name: &str, user: &str, is_default: bool) -> WcKey {
    let (name, user) = (name.to_owned(), user.to_owned());
    WcKey { id, cluster: "cluster".to_owned(), name, user, is_default, deleted: false }
}

fn tres() -> Vec<TresRecord> {
    let all = [
        (1, "cpu", ""),
        (2, "mem", ""),
        (3, "energy", ""),
        (4, "node", ""),
        (5, "billing", ""),
        (6, "fs", "disk"),
        (7, "vmem", ""),
        (8, "pages", ""),
        (1001, "gres", "gpu"),
        (1002, "gres", "gpumem"),
        (1003, "gres", "gpuutil"),
        (1004, "license", "matlab"),
    ];
    all.map(|(id, kind, name)| TresRecord { id, kind: kind.to_owned(), name: name.to_owned() }).into()
}

/// The entities of the cluster before they were dumped.
pub(crate) fn tree() -> Entities {
    let account = |name: &str, description: &str, organization: &str| Account {
        name: name.to_owned(),
        description: description.to_owned(),
        organization: organization.to_owned(),
        ..Account::default()
    };
    let accounts = [
        account("root", "default root account", "root"),
        account("physics", "physics dept", "science"),
        account("astro", "astro", "physics"),
        account("quantum", "quantum", "physics"),
        account("chem", "chemistry dept", "newsci"),
        account("chem2", "upper", "chem2"),
        account("chemsub", "chemsub", "chem"),
    ];
    let user = |name: &str, admin| User { name: name.to_owned(), admin, ..User::default() };
    let users = [
        user("root", AdminLevel::Administrator),
        user("alice", AdminLevel::None),
        user("bob", AdminLevel::None),
        user("dave", AdminLevel::Operator),
        user("eva", AdminLevel::None),
    ];
    let keys = [
        wckey(1, "proj1", "bob", true),
        wckey(2, "proj1", "alice", true),
        wckey(3, "proj2", "alice", false),
        wckey(4, "nosuch", "bob", false),
    ];
    let cluster = Cluster {
        name: "cluster".to_owned(),
        control: Some(("127.0.0.1".to_owned(), 30001)),
        classification: "Capacity".to_owned(),
        ..Cluster::default()
    };
    Entities {
        version: 1,
        tres: tres().into_iter().map(|t| (t.id, t)).collect(),
        clusters: [(cluster.name.clone(), cluster)].into(),
        accounts: accounts.map(|a| (a.name.clone(), a)).into(),
        users: users.map(|u| (u.name.clone(), u)).into(),
        qos: qos().into_iter().map(|q| (q.name.clone(), q)).collect(),
        associations: associations().into_iter().map(|a| (a.id, a)).collect(),
        wckeys: keys.map(|key| (key.id, key)).into(),
        ..Entities::default()
    }
}
