//! The same as JSON, in the shape of data parser v0.0.45.

use super::{
    amounts,
    condition::{More, Request},
    fields::RPC,
    kind::Kind,
    rows::{Listing, Row, Seen, lineage, ordered, parent_name},
};
use crate::json::{Meta, Ping, document, number, optional, pings, skeleton};
use garrick_model::{
    entities::{
        Entities,
        association::{Association, Shares},
        limits::{Amounts, Count, Limits, TresLimit},
        names::{Account, Cluster, User, WcKey},
        qos::{QosFlag, QosPreemptMode, QosRecord},
    },
    time::Timestamp,
};
use serde_json::{Value, json};

/// The document of a list; `None`: there is none of that kind, and the text is shown as always.
pub fn listed(listing: &Listing<'_>, meta: &Meta) -> Option<Value> {
    let (name, list) = match listing.request.kind {
        Kind::Account => ("accounts", accounts(listing)),
        Kind::Association => ("associations", associations(listing)),
        Kind::Cluster => {
            ("clusters", listing.clusters().iter().filter_map(|row| Some(cluster(row, row.cluster?))).collect())
        }
        Kind::Qos => ("qos", listing.qos().iter().filter_map(|row| Some(qos(listing.entities, row.qos?))).collect()),
        Kind::Tres => (
            "TRES",
            listing.tres().iter().filter_map(|row| row.tres).map(|t| tres(&t.kind, &t.name, t.id, 0)).collect(),
        ),
        Kind::User => ("users", users(listing)),
        Kind::WcKey => ("wckeys", listing.wckeys().iter().filter_map(|row| row.wckey).map(wckey).collect()),
        Kind::Instance => ("instances", Vec::new()),
        _ => return None,
    };
    Some(of_accounting(document(name, list, None, meta)))
}

/// The document of the service.
pub fn ping(services: &[Ping], meta: &Meta) -> Value {
    of_accounting(pings(services, meta))
}

/// How often something was done, and how long that took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// What, or for whom.
    pub name: String,
    /// How often.
    pub count: u64,
    /// Microseconds, together.
    pub micros: u64,
}

/// The document of what the service has done since it started. Nothing is rolled up.
pub fn statistics(since: Timestamp, kinds: &[Done], users: &[Done], meta: &Meta) -> Value {
    let list = |of: &str, all: &[Done]| {
        let one = |done: &Done| {
            let average = done.micros.checked_div(done.count).unwrap_or(0);
            json!({of: done.name, "count": done.count, "time": {"average": average, "total": done.micros}})
        };
        Value::Array(all.iter().map(one).collect())
    };
    let none = json!({"count": 0, "last_run": 0, "duration": {"last": 0, "max": 0, "time": 0}});
    let mut whole = document("statistics", Vec::new(), None, meta);
    whole["statistics"] = json!({
        "time_start": since.secs(),
        "rollups": {"hourly": none, "daily": none, "monthly": none},
        "RPCs": list("rpc", kinds),
        "users": list("user", users),
    });
    of_accounting(whole)
}

fn of_accounting(mut document: Value) -> Value {
    document["meta"]["plugin"]["accounting_storage"] = json!("accounting_storage/slurmdbd");
    document
}

fn tres(kind: &str, name: &str, id: u32, count: u64) -> Value {
    json!({"type": kind, "name": name, "id": id, "count": count})
}

/// Amounts by name, with their numbers.
fn amounts_of(entities: &Entities, amounts: Option<&Amounts>) -> Value {
    let one = |(full, count): (&String, &u64)| {
        let (kind, name) = full.split_once('/').unwrap_or((full, ""));
        let known = entities.tres.values().find(|tres| tres.kind == kind && tres.name == name);
        tres(kind, name, known.map_or(0, |tres| tres.id), *count)
    };
    Value::Array(amounts.into_iter().flatten().map(one).collect())
}

/// Sets the property at a path of the skeleton.
fn set(document: &mut Value, path: &str, value: Value) {
    if let Some(place) = document.pointer_mut(path) {
        *place = value;
    }
}

/// A limit, or that there is none.
fn limit(n: Option<u64>) -> Value {
    n.map_or_else(|| json!({"set": false, "infinite": true, "number": 0}), number)
}

fn fraction(n: Option<f64>) -> Value {
    json!({"set": n.is_some(), "infinite": false, "number": n.unwrap_or(0.0)})
}

fn limits(j: &mut Value, entities: &Entities, of: &Limits, counts: &[(&str, Count)], all: &[(&str, TresLimit)]) {
    for (path, count) in counts {
        set(j, path, limit(of.count(*count)));
    }
    for (path, kind) in all {
        set(j, path, amounts_of(entities, of.tres.get(kind)));
    }
}

/// Where the limits of an association stand.
const OF_ASSOCIATION: [(&str, Count); 9] = [
    ("/max/jobs/per/count", Count::GrpJobs),
    ("/max/jobs/per/accruing", Count::GrpJobsAccrue),
    ("/max/jobs/per/submitted", Count::GrpSubmit),
    ("/max/jobs/per/wall_clock", Count::MaxWall),
    ("/max/jobs/active", Count::MaxJobs),
    ("/max/jobs/accruing", Count::MaxJobsAccrue),
    ("/max/jobs/total", Count::MaxSubmit),
    ("/max/per/account/wall_clock", Count::GrpWall),
    ("/min/priority_threshold", Count::MinPrioThreshold),
];

const TRES_OF_ASSOCIATION: [(&str, TresLimit); 6] = [
    ("/max/tres/total", TresLimit::GrpTres),
    ("/max/tres/group/minutes", TresLimit::GrpTresMins),
    ("/max/tres/group/active", TresLimit::GrpTresRunMins),
    ("/max/tres/minutes/per/job", TresLimit::MaxTresMinsPerJob),
    ("/max/tres/per/job", TresLimit::MaxTresPerJob),
    ("/max/tres/per/node", TresLimit::MaxTresPerNode),
];

fn association(entities: &Entities, seen: &Seen<'_>) -> Value {
    let of = seen.of;
    let mut j = skeleton(include_str!("../json/skeleton/association.json"));
    j["account"] = json!(of.account);
    j["cluster"] = json!(of.cluster);
    j["comment"] = json!(of.comment);
    j["default"]["qos"] = json!(seen.default_qos.as_deref().unwrap_or(""));
    j["flags"] = if of.deleted { json!(["DELETED"]) } else { json!([]) };
    j["id"] = json!(of.id.0);
    j["is_default"] = json!(of.is_default);
    j["lineage"] = json!(lineage(entities, of));
    j["parent_account"] = json!(parent_name(entities, of).unwrap_or(""));
    j["partition"] = json!(of.partition.as_deref().unwrap_or(""));
    j["priority"] = limit(seen.priority.map(u64::from));
    j["qos"] = json!(seen.qos);
    j["shares_raw"] = json!(match of.shares {
        Shares::Number(shares) => shares,
        // As Slurm stores the word.
        Shares::Parent => i32::MAX as u32,
    });
    j["user"] = json!(of.user.as_deref().unwrap_or(""));
    limits(&mut j, entities, &seen.limits, &OF_ASSOCIATION, &TRES_OF_ASSOCIATION);
    j
}

fn associations(listing: &Listing<'_>) -> Vec<Value> {
    let rows = listing.associations();
    rows.iter().filter_map(|row| row.association.as_ref()).map(|seen| association(listing.entities, seen)).collect()
}

fn short(of: &Association) -> Value {
    json!({
        "account": of.account,
        "cluster": of.cluster,
        "partition": of.partition.as_deref().unwrap_or(""),
        "user": of.user.as_deref().unwrap_or(""),
        "id": of.id.0,
    })
}

/// A listing of the entities alone: their associations are put together below.
fn alone(request: &Request) -> Request {
    let mut request = request.clone();
    request.more.remove(&More::Associations);
    request
}

fn its(listing: &Listing<'_>, is: impl Fn(&Association) -> bool) -> Vec<Value> {
    if !listing.request.has(More::Associations) {
        return Vec::new();
    }
    ordered(listing.entities, listing.request.has(More::Deleted)).into_iter().filter(|a| is(a)).map(short).collect()
}

fn accounts(listing: &Listing<'_>) -> Vec<Value> {
    let request = alone(listing.request);
    let rows = Listing { request: &request, ..*listing }.accounts();
    let one = |account: &Account| {
        let mut j = skeleton(include_str!("../json/skeleton/account.json"));
        j["associations"] = its(listing, |a| a.account == account.name).into();
        if listing.request.has(More::Coordinators) {
            let names = account.coordinators.iter();
            j["coordinators"] = names.map(|name| json!({"name": name, "direct": true})).collect();
        }
        j["description"] = json!(account.description);
        j["name"] = json!(account.name);
        j["organization"] = json!(account.organization);
        j["flags"] = if account.deleted { json!(["DELETED"]) } else { json!([]) };
        j
    };
    rows.iter().filter_map(|row| row.account).map(one).collect()
}

fn users(listing: &Listing<'_>) -> Vec<Value> {
    let request = alone(listing.request);
    let rows = Listing { request: &request, ..*listing }.users();
    let one = |row: &Row<'_>, user: &User| {
        let mut j = skeleton(include_str!("../json/skeleton/user.json"));
        j["administrator_level"] = json!([amounts::admin(user.admin)]);
        j["associations"] = its(listing, |a| a.user.as_ref() == Some(&user.name)).into();
        if listing.request.has(More::Coordinators) {
            let names = row.coordinated().into_iter();
            j["coordinators"] = names.map(|name| json!({"name": name, "direct": true})).collect();
        }
        j["default"]["account"] = json!(row.default_account().unwrap_or(""));
        j["default"]["wckey"] = json!(row.default_wckey().unwrap_or(""));
        j["flags"] = json!([if user.deleted { "DELETED" } else { "NONE" }]);
        j["name"] = json!(user.name);
        j["old_name"] = json!(user.old_name);
        if listing.request.has(More::Associations) {
            let keys = listing.entities.wckeys.values().filter(|key| !key.deleted && key.user == user.name);
            j["wckeys"] = keys.map(wckey).collect();
        }
        j
    };
    rows.iter().filter_map(|row| Some(one(row, row.user?))).collect()
}

fn wckey(key: &WcKey) -> Value {
    let mut j = skeleton(include_str!("../json/skeleton/wckey.json"));
    j["cluster"] = json!(key.cluster);
    j["id"] = json!(key.id);
    j["name"] = json!(key.name);
    j["user"] = json!(key.user);
    j["flags"] = if key.deleted { json!(["DELETED"]) } else { json!([]) };
    j
}

/// The flags of a cluster as the document has them: `MultipleSlurmd` is `MULTIPLE_SLURMD`.
fn flag_word(word: &str) -> String {
    let mut text = String::with_capacity(word.len() + 2);
    let mut lower = false;
    for c in word.chars() {
        if lower && c.is_ascii_uppercase() {
            text.push('_');
        }
        lower = c.is_ascii_lowercase();
        text.push(c.to_ascii_uppercase());
    }
    text
}

fn cluster(row: &Row<'_>, cluster: &Cluster) -> Value {
    let mut j = skeleton(include_str!("../json/skeleton/accounting_cluster.json"));
    let (host, port) = cluster.control.as_ref().map_or(("", 0), |(host, port)| (host.as_str(), *port));
    j["controller"] = json!({"host": host, "port": port});
    let deleted = cluster.deleted.then(|| "DELETED".to_owned());
    j["flags"] = json!(deleted.into_iter().chain(cluster.flags.iter().map(|word| flag_word(word))).collect::<Vec<_>>());
    j["name"] = json!(cluster.name);
    j["nodes"] = json!(cluster.nodes);
    if let Some(root) = &row.association {
        j["associations"]["root"] = short(root.of);
    }
    j["rpc_version"] = json!(cluster.control.as_ref().map_or(0, |_| RPC));
    j["tres"] = amounts_of(row.entities, Some(&cluster.tres));
    j
}

const OF_QOS: [(&str, Count); 12] = [
    ("/limits/max/active_jobs/accruing", Count::GrpJobsAccrue),
    ("/limits/max/active_jobs/count", Count::GrpJobs),
    ("/limits/max/jobs/count", Count::GrpSubmit),
    ("/limits/max/jobs/active_jobs/per/account", Count::MaxJobsPerAccount),
    ("/limits/max/jobs/active_jobs/per/user", Count::MaxJobsPerUser),
    ("/limits/max/jobs/per/account", Count::MaxSubmitPerAccount),
    ("/limits/max/jobs/per/user", Count::MaxSubmitPerUser),
    ("/limits/max/wall_clock/per/qos", Count::GrpWall),
    ("/limits/max/wall_clock/per/job", Count::MaxWall),
    ("/limits/max/accruing/per/account", Count::MaxJobsAccruePerAccount),
    ("/limits/max/accruing/per/user", Count::MaxJobsAccruePerUser),
    ("/limits/min/priority_threshold", Count::MinPrioThreshold),
];

const TRES_OF_QOS: [(&str, TresLimit); 11] = [
    ("/limits/max/tres/total", TresLimit::GrpTres),
    ("/limits/max/tres/minutes/total", TresLimit::GrpTresMins),
    ("/limits/max/tres/minutes/per/qos", TresLimit::GrpTresRunMins),
    ("/limits/max/tres/minutes/per/job", TresLimit::MaxTresMinsPerJob),
    ("/limits/max/tres/minutes/per/account", TresLimit::MaxTresRunMinsPerAccount),
    ("/limits/max/tres/minutes/per/user", TresLimit::MaxTresRunMinsPerUser),
    ("/limits/max/tres/per/account", TresLimit::MaxTresPerAccount),
    ("/limits/max/tres/per/job", TresLimit::MaxTresPerJob),
    ("/limits/max/tres/per/node", TresLimit::MaxTresPerNode),
    ("/limits/max/tres/per/user", TresLimit::MaxTresPerUser),
    ("/limits/min/tres/per/job", TresLimit::MinTresPerJob),
];

const fn qos_flag(flag: QosFlag) -> &'static str {
    match flag {
        QosFlag::DenyOnLimit => "DENY_LIMIT",
        QosFlag::EnforceUsageThreshold => "ENFORCE_USAGE_THRESHOLD",
        QosFlag::NoDecay => "NO_DECAY",
        QosFlag::NoReserve => "NO_RESERVE",
        QosFlag::OverPartQos => "OVERRIDE_PARTITION_QOS",
        QosFlag::PartitionMaxNodes => "PARTITION_MAXIMUM_NODE",
        QosFlag::PartitionMinNodes => "PARTITION_MINIMUM_NODE",
        QosFlag::PartitionTimeLimit => "PARTITION_TIME_LIMIT",
        QosFlag::Relative => "RELATIVE",
        QosFlag::RequiresReservation => "REQUIRED_RESERVATION",
        QosFlag::UsageFactorSafe => "USAGE_FACTOR_SAFE",
    }
}

/// The words for modes that the document has: there is none for `within` and `priority`.
fn preempt_modes(qos: &QosRecord) -> Vec<&'static str> {
    let word = |mode: &QosPreemptMode| match mode {
        QosPreemptMode::Suspend => Some("SUSPEND"),
        QosPreemptMode::Requeue => Some("REQUEUE"),
        QosPreemptMode::Cancel => Some("CANCEL"),
        QosPreemptMode::Within | QosPreemptMode::Priority => None,
    };
    match qos.preempt_mode.len() {
        0 => vec!["DISABLED"],
        _ => qos.preempt_mode.iter().filter_map(word).collect(),
    }
}

fn qos(entities: &Entities, qos: &QosRecord) -> Value {
    let mut j = skeleton(include_str!("../json/skeleton/qos.json"));
    let deleted = qos.deleted.then_some("DELETED");
    j["description"] = json!(qos.description);
    j["flags"] = json!(deleted.into_iter().chain(qos.flags.iter().map(|flag| qos_flag(*flag))).collect::<Vec<_>>());
    j["id"] = json!(qos.id);
    j["name"] = json!(qos.name);
    j["preempt"]["list"] = json!(qos.preempt);
    j["preempt"]["mode"] = json!(preempt_modes(qos));
    j["preempt"]["exempt_time"] = optional(qos.preempt_exempt_secs);
    j["priority"] = number(qos.priority);
    j["usage_factor"] = fraction(Some(qos.usage_factor));
    j["usage_threshold"] = fraction(qos.usage_threshold);
    limits(&mut j, entities, &qos.limits, &OF_QOS, &TRES_OF_QOS);
    set(&mut j, "/limits/grace_time", json!(qos.grace_secs));
    set(&mut j, "/limits/factor", fraction(qos.limit_factor));
    j
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{
        json::{Form, Version, shapes_test::differences},
        sacctmgr::samples,
        testing::meta,
    };

    fn made(kind: Kind, words: &[&str]) -> Value {
        let (entities, request) = (samples::tree(), Request::read(kind, words).unwrap());
        listed(&Listing { entities: &entities, here: "cluster", request: &request }, &meta()).unwrap()
    }

    /// Properties as the OpenAPI document of Slurm 26.05 has them (`stats_rec`).
    #[test]
    fn statistics_are_counted_by_kind_and_user() {
        let done = |name: &str, count, micros| Done { name: name.to_owned(), count, micros };
        let document = statistics(
            Timestamp::from_secs(5),
            &[done("DBD_GET_CONFIG", 2, 7)],
            &[done("root", 2, 7), done("none", 0, 0)],
            &meta(),
        );
        let of = &document["statistics"];
        assert_eq!(of["time_start"], json!(5));
        assert_eq!(of["RPCs"], json!([{"rpc": "DBD_GET_CONFIG", "count": 2, "time": {"average": 3, "total": 7}}]));
        assert_eq!(of["users"][1], json!({"user": "none", "count": 0, "time": {"average": 0, "total": 0}}));
        assert_eq!(of["rollups"]["daily"]["duration"]["max"], json!(0));
        assert_eq!(document["meta"]["plugin"]["accounting_storage"], json!("accounting_storage/slurmdbd"));
    }

    #[test]
    fn documents_have_the_properties_and_types_of_both_versions() {
        let kinds = [
            (Kind::Account, "accounts", "account"),
            (Kind::Association, "associations", "association"),
            (Kind::Cluster, "clusters", "accounting_cluster"),
            (Kind::Qos, "qos", "qos"),
            (Kind::Tres, "TRES", "tres"),
            (Kind::User, "users", "user"),
            (Kind::WcKey, "wckeys", "wckey"),
        ];
        for (version, shapes) in [
            (Version::V44, include_str!("../json/shapes/v0.0.44.json")),
            (Version::V45, include_str!("../json/shapes/v0.0.45.json")),
        ] {
            let shapes: Value = serde_json::from_str(shapes).unwrap();
            for (kind, list, shape) in kinds {
                let more: &[&str] =
                    if matches!(kind, Kind::Account | Kind::User) { &["withassoc", "withcoord"] } else { &[] };
                let mut written = Vec::new();
                Form { version, yaml: false }.write(&mut written, made(kind, more)).unwrap();
                let document: Value = serde_json::from_slice(&written).unwrap();
                let objects = document[list].as_array().unwrap();
                assert!(!objects.is_empty(), "{list}");
                let mut found = Vec::new();
                let shape = &shapes[format!("sacctmgr_{shape}")];
                objects.iter().for_each(|object| differences(object, shape, list, &mut found));
                assert!(found.is_empty(), "{version:?}: {found:#?}");
            }
        }
    }

    /// As Slurm 26.05.3 wrote them.
    #[test]
    fn values_are_those_of_the_entities() {
        let users = made(Kind::User, &["alice"]);
        assert_eq!(
            users["users"],
            json!([{"administrator_level": ["None"], "associations": [], "coordinators": [],
                "default": {"qos": 0, "account": "physics", "wckey": "proj1"}, "flags": ["NONE"], "name": "alice",
                "old_name": "", "wckeys": []}])
        );
        let with = made(Kind::User, &["alice", "withassoc"]);
        assert_eq!(with["users"][0]["associations"].as_array().unwrap().len(), 2);
        assert_eq!(with["users"][0]["wckeys"].as_array().unwrap().len(), 2);
        let tres = made(Kind::Tres, &["id=1001"]);
        assert_eq!(tres["TRES"], json!([{"type": "gres", "name": "gpu", "id": 1001, "count": 0}]));
        let qos = made(Kind::Qos, &["high,long"]);
        assert_eq!(qos["qos"][0]["preempt"]["list"], json!(["low", "normal"]));
        assert_eq!(qos["qos"][1]["limits"]["max"]["wall_clock"]["per"]["job"]["number"], 2880);
        assert_eq!(made(Kind::User, &["nobodyhere"])["users"], json!([]));
        let associations = made(Kind::Association, &["user=alice", "account=physics"]);
        let alice = &associations["associations"][0];
        assert_eq!((&alice["lineage"], &alice["shares_raw"]), (&json!("/physics/0-alice/"), &json!(10)));
        assert_eq!(alice["qos"], json!(["high", "long", "low", "normal"]));
        assert_eq!(flag_word("MultipleSlurmd"), "MULTIPLE_SLURMD");
    }
}
