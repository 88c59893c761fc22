//! The fields of `sacctmgr list`, with Slurm's names and widths (as the headings of 26.05.3 have them), and what stands in each.

use super::{
    amounts::{self, QOS_FLAGS, list, minutes, seconds},
    condition::{More, Request},
    kind::{Kind, begins},
    rows::{Row, Seen, lineage, parent_name},
};
use crate::{
    clock::Clock,
    field_table::{self, Kind as Long},
};
use garrick_model::{
    entities::{
        limits::{Count, Limits, TresLimit},
        names::FedState,
        qos::QosRecord,
    },
    hostlist,
};

/// What stands in a field of a line.
pub type Shown = for<'r> fn(&'r Row<'r>, &Clock) -> String;
/// A field.
pub type Field = field_table::Field<Shown>;
/// A column.
pub type Column = field_table::Column<Shown>;

/// A field under the names by which it is asked for.
#[derive(Debug)]
pub struct Named {
    /// Names; the beginning of one will do.
    names: &'static [&'static str],
    field: Field,
}

const fn f(names: &'static [&'static str], heading: &'static str, width: usize, value: Shown) -> Named {
    Named { names, field: Field { name: heading, width, left: false, kind: Long::Text, value } }
}

const fn time(names: &'static [&'static str], heading: &'static str, value: Shown) -> Named {
    f(names, heading, 19, value)
}

fn text<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

// Of associations.

fn assoc<T: ToString>(row: &Row<'_>, of: impl Fn(&Seen<'_>) -> Option<T>) -> String {
    text(row.association.as_ref().and_then(of))
}

fn limits(row: &Row<'_>) -> Option<Limits> {
    row.association.as_ref().map(|a| a.limits.clone()).or_else(|| row.qos.map(|qos| qos.limits.clone()))
}

fn count(row: &Row<'_>, count: Count) -> String {
    text(limits(row).and_then(|limits| limits.count(count)))
}

fn wall(row: &Row<'_>, count: Count) -> String {
    text(limits(row).and_then(|limits| limits.count(count)).map(minutes))
}

fn tres(row: &Row<'_>, limit: TresLimit) -> String {
    text(limits(row).map(|limits| amounts::limit(&limits, limit)))
}

fn one(row: &Row<'_>, limit: TresLimit, name: &str) -> String {
    text(limits(row).and_then(|limits| limits.tres(limit, name)))
}

fn account(row: &Row<'_>, _: &Clock) -> String {
    match (&row.association, row.account) {
        (Some(a), _) => format!("{}{}", " ".repeat(a.indent), a.of.account),
        (None, account) => text(account.map(|account| &account.name)),
    }
}

fn cluster(row: &Row<'_>, _: &Clock) -> String {
    match (&row.association, row.cluster, row.wckey) {
        (Some(a), ..) => a.of.cluster.clone(),
        (_, Some(cluster), _) => cluster.name.clone(),
        (_, _, key) => text(key.map(|key| &key.cluster)),
    }
}

fn user(row: &Row<'_>, _: &Clock) -> String {
    match (&row.association, row.user, row.wckey) {
        (Some(a), ..) => text(a.of.user.as_ref()),
        (_, Some(user), _) => user.name.clone(),
        (_, _, key) => text(key.map(|key| &key.user)),
    }
}

/// Of users and accounts in one cluster and over all.
static OF_ASSOCIATIONS: [Named; 44] = [
    f(&["account"], "Account", 10, account),
    f(&["cluster"], "Cluster", 10, cluster),
    f(&["comment"], "Comment", 20, |r, _| assoc(r, |a| Some(&a.of.comment).cloned())),
    f(&["defaultqos"], "Def QOS", 9, |r, _| assoc(r, |a| a.default_qos.clone())),
    f(&["fairshare", "share"], "Share", 9, |r, _| assoc(r, |a| Some(amounts::shares(a.of.shares)))),
    f(&["flags"], "Flags", 20, |r, _| assoc(r, |a| Some(flags(a)))),
    f(&["grpcpumins"], "GrpCPUMins", 11, |r, _| one(r, TresLimit::GrpTresMins, "cpu")),
    f(&["grpcpurunmins"], "GrpCPURunMins", 13, |r, _| one(r, TresLimit::GrpTresRunMins, "cpu")),
    f(&["grpcpus"], "GrpCPUs", 8, |r, _| one(r, TresLimit::GrpTres, "cpu")),
    f(&["grpjobs"], "GrpJobs", 7, |r, _| count(r, Count::GrpJobs)),
    f(&["grpjobsaccrue"], "GrpJobsAccrue", 13, |r, _| count(r, Count::GrpJobsAccrue)),
    f(&["grpmemory"], "GrpMem", 7, |r, _| one(r, TresLimit::GrpTres, "mem")),
    f(&["grpnodes"], "GrpNodes", 8, |r, _| one(r, TresLimit::GrpTres, "node")),
    f(&["grpsubmitjobs"], "GrpSubmit", 9, |r, _| count(r, Count::GrpSubmit)),
    f(&["grptres"], "GrpTRES", 13, |r, _| tres(r, TresLimit::GrpTres)),
    f(&["grptresmins"], "GrpTRESMins", 13, |r, _| tres(r, TresLimit::GrpTresMins)),
    f(&["grptresrunmins"], "GrpTRESRunMins", 13, |r, _| tres(r, TresLimit::GrpTresRunMins)),
    f(&["grpwall"], "GrpWall", 11, |r, _| wall(r, Count::GrpWall)),
    f(&["id"], "ID", 6, |r, _| assoc(r, |a| Some(a.of.id.0))),
    f(&["lineage"], "Lineage", 20, |r, _| assoc(r, |a| Some(lineage(r.entities, a.of)))),
    f(&["maxjobs"], "MaxJobs", 7, |r, _| count(r, Count::MaxJobs)),
    f(&["maxjobsaccrue"], "MaxJobsAccrue", 13, |r, _| count(r, Count::MaxJobsAccrue)),
    f(&["maxcpumins", "maxcpuminsperjob"], "MaxCPUMins", 11, |r, _| one(r, TresLimit::MaxTresMinsPerJob, "cpu")),
    f(&["maxcpus", "maxcpusperjob"], "MaxCPUs", 8, |r, _| one(r, TresLimit::MaxTresPerJob, "cpu")),
    f(&["maxnodes", "maxnodesperjob"], "MaxNodes", 8, |r, _| one(r, TresLimit::MaxTresPerJob, "node")),
    f(&["maxsubmitjobs"], "MaxSubmit", 9, |r, _| count(r, Count::MaxSubmit)),
    f(&["maxtres", "maxtrespj", "maxtresperjob"], "MaxTRES", 13, |r, _| tres(r, TresLimit::MaxTresPerJob)),
    f(&["maxtrespn", "maxtrespernode"], "MaxTRESPerNode", 14, |r, _| tres(r, TresLimit::MaxTresPerNode)),
    f(&["maxtresmins", "maxtresminspj", "maxtresminsperjob"], "MaxTRESMins", 13, |r, _| {
        tres(r, TresLimit::MaxTresMinsPerJob)
    }),
    f(&["maxwall", "maxwallpj", "maxwalldurationperjob"], "MaxWall", 11, |r, _| wall(r, Count::MaxWall)),
    f(&["minpriothreshold"], "MinPrioThres", 12, |r, _| count(r, Count::MinPrioThreshold)),
    f(&["parentid"], "Par ID", 6, |r, _| assoc(r, |a| a.of.parent.map(|parent| parent.0))),
    f(&["parentname"], "ParentName", 10, |r, _| assoc(r, |a| parent_name(r.entities, a.of).map(str::to_owned))),
    f(&["partition"], "Partition", 10, |r, _| assoc(r, |a| a.of.partition.clone())),
    f(&["priority"], "Priority", 10, |r, _| assoc(r, |a| a.priority)),
    f(&["qos"], "QOS", 20, |r, _| assoc(r, |a| Some(list(&a.qos)))),
    f(&["qosraw"], "QOS_RAW", 10, |r, _| assoc(r, |a| Some(raw_qos(a)))),
    f(&["user"], "User", 10, user),
    // Fields of what is listed with them.
    f(&["adminlevel"], "Admin", 9, |r, _| text(r.user.map(|user| amounts::admin(user.admin)))),
    f(&["defaultaccount"], "Def Acct", 10, |r, _| text(r.default_account())),
    f(&["defaultwckey"], "Def WCKey", 10, |r, _| text(r.default_wckey())),
    f(&["description"], "Descr", 20, |r, _| text(r.account.map(|account| &account.description))),
    f(&["organization"], "Org", 20, |r, _| text(r.account.map(|account| &account.organization))),
    f(&["timestart"], "TimeStart", 19, |r, clock| assoc(r, |a| Some(clock.at(a.of.created)))),
];

fn flags(seen: &Seen<'_>) -> String {
    let set = [(seen.of.deleted, "Deleted"), (seen.of.users_are_coordinators, "UsersAreCoords")];
    none_or(set.into_iter().filter(|(is, _)| *is).map(|(_, word)| word))
}

fn none_or<'w>(words: impl Iterator<Item = &'w str>) -> String {
    let words = list(words);
    if words.is_empty() { "None".to_owned() } else { words }
}

/// What is set at the association: its own list, or what it changes in that from above.
fn raw_qos(seen: &Seen<'_>) -> String {
    let qos = &seen.of.qos;
    let signed = |sign: &'static str| move |name: &String| format!("{sign}{name}");
    let own = qos.own.iter().flatten().cloned();
    list(own.chain(qos.added.iter().map(signed("+"))).chain(qos.removed.iter().map(signed("-"))))
}

static OF_ACCOUNTS: [Named; 3] = [
    f(&["account", "name"], "Account", 10, account),
    f(&["coordinators"], "Coord Accounts", 20, |r, _| text(r.account.map(|account| list(&account.coordinators)))),
    f(&["flags"], "Flags", 20, |r, _| {
        let flags = |of: &garrick_model::entities::names::Account| {
            let set = [(of.deleted, "Deleted"), (of.users_are_coordinators, "UsersAreCoords")];
            none_or(set.into_iter().filter(|(is, _)| *is).map(|(_, word)| word))
        };
        text(r.account.map(flags))
    }),
];

static OF_USERS: [Named; 5] = [
    f(&["user", "name"], "User", 10, user),
    f(&["defaultaccount"], "Def Acct", 10, |r, _| text(r.default_account())),
    f(&["defaultwckey"], "Def WCKey", 10, |r, _| text(r.default_wckey())),
    f(&["coordinators"], "Coord Accounts", 20, |r, _| list(r.coordinated())),
    f(&["flags"], "Flags", 20, |r, _| text(r.user.map(|user| if user.deleted { "Deleted" } else { "" }))),
];

/// What Slurm 26.05 speaks between daemons, which programs take for its version.
pub const RPC: u32 = 11_520;

static OF_CLUSTERS: [Named; 14] = [
    f(&["cluster", "name"], "Cluster", 10, cluster),
    f(&["controlhost"], "ControlHost", 15, |r, _| text(r.cluster.and_then(|c| Some(&c.control.as_ref()?.0)))),
    f(&["controlport"], "ControlPort", 12, |r, _| {
        text(r.cluster.map(|c| c.control.as_ref().map_or(0, |(_, port)| *port)))
    }),
    f(&["rpc"], "RPC", 5, |r, _| text(r.cluster.map(|c| c.control.as_ref().map_or(0, |_| RPC)))),
    f(&["classification"], "Class", 9, |r, _| text(r.cluster.map(|c| &c.classification))),
    f(&["clusternodes", "nodenames"], "Cluster Nodes", 20, |r, _| text(r.cluster.map(|c| &c.nodes))),
    f(&["nodecount"], "NodeCount", 9, |r, _| {
        text(r.cluster.map(|c| hostlist::expand(&c.nodes).map_or(0, |nodes| nodes.len())))
    }),
    f(&["features"], "Features", 20, |r, _| text(r.cluster.map(|c| list(&c.features)))),
    f(&["federation"], "Federation", 10, |r, _| text(r.cluster.map(|c| &c.federation))),
    f(&["fedstate"], "FedState", 12, |r, _| text(r.cluster.map(|c| c.shown_fed_state().map_or("NA", FedState::word)))),
    f(&["fedstateraw"], "FedStateRaw", 11, |r, _| {
        text(r.cluster.map(|c| c.shown_fed_state().map_or(0, FedState::number)))
    }),
    f(&["flags"], "Flags", 20, |r, _| text(r.cluster.map(|c| list(&c.flags)))),
    f(&["id"], "ID", 6, |r, _| text(r.cluster.map(|c| c.id))),
    f(&["tres"], "TRES", 20, |r, _| text(r.cluster.map(|c| amounts::amounts(&c.tres)))),
];

// Of QOS.

fn qos<T: ToString>(row: &Row<'_>, of: impl Fn(&QosRecord) -> Option<T>) -> String {
    text(row.qos.and_then(of))
}

/// The modes in which its jobs are preempted; those of the cluster where it has none.
pub fn preempt_mode(qos: &QosRecord) -> String {
    match qos.preempt_mode.len() {
        0 => "cluster".to_owned(),
        _ => list(qos.preempt_mode.iter().map(|mode| amounts::preempt_mode(*mode))),
    }
}

/// Its flags.
pub fn qos_flags(qos: &QosRecord) -> impl Iterator<Item = &'static str> {
    let deleted = qos.deleted.then_some("Deleted");
    deleted.into_iter().chain(QOS_FLAGS.iter().filter(|(flag, _)| qos.has(*flag)).map(|(_, word)| *word))
}

static OF_QOS: [Named; 36] = [
    f(&["name"], "Name", 10, |r, _| qos(r, |q| Some(q.name.clone()))),
    f(&["description"], "Descr", 20, |r, _| qos(r, |q| Some(q.description.clone()))),
    f(&["flags"], "Flags", 20, |r, _| qos(r, |q| Some(list(qos_flags(q))))),
    f(&["gracetime"], "GraceTime", 10, |r, _| qos(r, |q| Some(seconds(q.grace_secs)))),
    f(&["grpjobs"], "GrpJobs", 7, |r, _| count(r, Count::GrpJobs)),
    f(&["grpjobsaccrue"], "GrpJobsAccrue", 13, |r, _| count(r, Count::GrpJobsAccrue)),
    f(&["grpsubmitjobs"], "GrpSubmit", 9, |r, _| count(r, Count::GrpSubmit)),
    f(&["grptres"], "GrpTRES", 13, |r, _| tres(r, TresLimit::GrpTres)),
    f(&["grptresmins"], "GrpTRESMins", 13, |r, _| tres(r, TresLimit::GrpTresMins)),
    f(&["grptresrunmins"], "GrpTRESRunMins", 13, |r, _| tres(r, TresLimit::GrpTresRunMins)),
    f(&["grpwall"], "GrpWall", 11, |r, _| wall(r, Count::GrpWall)),
    f(&["id"], "ID", 6, |r, _| qos(r, |q| Some(q.id))),
    f(&["limitfactor"], "LimitFactor", 11, |r, _| qos(r, |q| q.limit_factor.map(|n| format!("{n:.6}")))),
    f(&["maxjobsaccruepa", "maxjobsaccrueperaccount"], "MaxJobsAccruePA", 15, |r, _| {
        count(r, Count::MaxJobsAccruePerAccount)
    }),
    f(&["maxjobsaccruepu", "maxjobsaccrueperuser"], "MaxJobsAccruePU", 15, |r, _| {
        count(r, Count::MaxJobsAccruePerUser)
    }),
    f(&["maxjobspa", "maxjobsperaccount"], "MaxJobsPA", 9, |r, _| count(r, Count::MaxJobsPerAccount)),
    f(&["maxjobspu", "maxjobsperuser"], "MaxJobsPU", 9, |r, _| count(r, Count::MaxJobsPerUser)),
    f(&["maxsubmitjobspa", "maxsubmitpa", "maxsubmitjobsperaccount"], "MaxSubmitPA", 11, |r, _| {
        count(r, Count::MaxSubmitPerAccount)
    }),
    f(&["maxsubmitjobspu", "maxsubmitpu", "maxsubmitjobsperuser"], "MaxSubmitPU", 11, |r, _| {
        count(r, Count::MaxSubmitPerUser)
    }),
    f(&["maxtres", "maxtrespj", "maxtresperjob"], "MaxTRES", 13, |r, _| tres(r, TresLimit::MaxTresPerJob)),
    f(&["maxtrespn", "maxtrespernode"], "MaxTRESPerNode", 14, |r, _| tres(r, TresLimit::MaxTresPerNode)),
    f(&["maxtresmins", "maxtresminspj", "maxtresminsperjob"], "MaxTRESMins", 13, |r, _| {
        tres(r, TresLimit::MaxTresMinsPerJob)
    }),
    f(&["maxtrespa", "maxtresperaccount"], "MaxTRESPA", 13, |r, _| tres(r, TresLimit::MaxTresPerAccount)),
    f(&["maxtrespu", "maxtresperuser"], "MaxTRESPU", 13, |r, _| tres(r, TresLimit::MaxTresPerUser)),
    f(&["maxtresrunminspa", "maxtresrunminsperaccount"], "MaxTRESRunMinsPA", 22, |r, _| {
        tres(r, TresLimit::MaxTresRunMinsPerAccount)
    }),
    f(&["maxtresrunminspu", "maxtresrunminsperuser"], "MaxTRESRunMinsPU", 22, |r, _| {
        tres(r, TresLimit::MaxTresRunMinsPerUser)
    }),
    f(&["maxwall", "maxwallpj", "maxwalldurationperjob"], "MaxWall", 11, |r, _| wall(r, Count::MaxWall)),
    f(&["minpriothreshold"], "MinPrioThres", 12, |r, _| count(r, Count::MinPrioThreshold)),
    f(&["mintres", "mintrespj", "mintresperjob"], "MinTRES", 13, |r, _| tres(r, TresLimit::MinTresPerJob)),
    f(&["preempt"], "Preempt", 10, |r, _| qos(r, |q| Some(list(&q.preempt)))),
    f(&["preemptmode"], "PreemptMode", 11, |r, _| qos(r, |q| Some(preempt_mode(q)))),
    f(&["preemptexempttime"], "PreemptExemptTime", 19, |r, _| qos(r, |q| q.preempt_exempt_secs.map(seconds))),
    f(&["priority"], "Priority", 10, |r, _| qos(r, |q| Some(q.priority))),
    f(&["usagefactor"], "UsageFactor", 11, |r, _| qos(r, |q| Some(format!("{:.6}", q.usage_factor)))),
    f(&["usagethreshold"], "UsageThres", 10, |r, _| qos(r, |q| q.usage_threshold.map(|n| format!("{n:.6}")))),
    f(&["usageresettime"], "UsageReset", 19, |r, clock| qos(r, |q| q.usage_reset.map(|at| clock.at(at)))),
];

static OF_TRES: [Named; 3] = [
    f(&["type"], "Type", 8, |r, _| text(r.tres.map(|tres| &tres.kind))),
    f(&["name"], "Name", 15, |r, _| text(r.tres.map(|tres| &tres.name))),
    f(&["id"], "ID", 6, |r, _| text(r.tres.map(|tres| tres.id))),
];

static OF_WCKEYS: [Named; 4] = [
    f(&["wckey", "name"], "WCKey", 10, |r, _| text(r.wckey.map(|key| &key.name))),
    f(&["cluster"], "Cluster", 10, cluster),
    f(&["user"], "User", 10, user),
    f(&["id"], "ID", 6, |r, _| text(r.wckey.map(|key| key.id))),
];

static OF_TRANSACTIONS: [Named; 5] = [
    time(&["timestamp"], "Time", |r, clock| text(r.transaction.map(|t| clock.at(t.time)))),
    f(&["action"], "Action", 20, |r, _| text(r.transaction.map(|t| &t.action))),
    f(&["actor"], "Actor", 10, |r, _| text(r.transaction.map(|t| &t.actor))),
    f(&["where"], "Where", 20, |r, _| text(r.transaction.map(|t| &t.target))),
    f(&["info"], "Info", 20, |r, _| text(r.transaction.map(|t| &t.info))),
];

static OF_RESOURCES: [Named; 12] = [
    f(&["name"], "Name", 10, |r, _| text(r.resource.map(|(of, _)| &of.name))),
    f(&["server"], "Server", 10, |r, _| text(r.resource.map(|(of, _)| &of.server))),
    f(&["type"], "Type", 8, |r, _| text(r.resource.map(|_| "License"))),
    f(&["count"], "Count", 6, |r, _| text(r.resource.map(|(of, _)| of.count))),
    f(&["lastconsumed"], "LastConsumed", 12, |r, _| text(r.resource.map(|(of, _)| of.last_consumed))),
    f(&["allocated"], "Allocated", 9, |r, _| text(r.resource.map(|(of, _)| of.allowed.values().sum::<u32>()))),
    f(&["servertype"], "ServerType", 10, |r, _| text(r.resource.map(|(of, _)| &of.server_type))),
    f(&["cluster"], "Cluster", 10, |r, _| text(r.resource.and_then(|(_, of)| of.map(|(cluster, _)| cluster)))),
    f(&["allowed"], "Allowed", 8, |r, _| text(r.resource.and_then(|(_, of)| of.map(|(_, allowed)| allowed)))),
    f(&["description"], "Descr", 20, |r, _| text(r.resource.map(|(of, _)| &of.description))),
    f(&["flags"], "Flags", 20, |r, _| text(r.resource.map(|(of, _)| if of.absolute { "Absolute" } else { "" }))),
    f(&["id"], "ID", 6, |r, _| text(r.resource.map(|(of, _)| of.id))),
];

static OF_FEDERATIONS: [Named; 6] = [
    f(&["federation", "name"], "Federation", 10, |r, _| text(r.federation)),
    f(&["cluster"], "Cluster", 10, |r, _| text(r.cluster.map(|c| &c.name))),
    f(&["id", "index"], "ID", 2, |r, _| text(r.cluster.map(|c| c.fed_index))),
    f(&["features"], "Features", 20, |r, _| text(r.cluster.map(|c| list(&c.features)))),
    f(&["fedstate"], "FedState", 12, |r, _| text(r.cluster.map(|c| c.fed_state.word()))),
    f(&["fedstateraw"], "FedStateRaw", 11, |r, _| text(r.cluster.map(|c| c.fed_state.number()))),
];

static OF_INSTANCES: [Named; 7] = [
    f(&["cluster"], "Cluster", 10, |_, _| String::new()),
    Named {
        names: &["nodename"],
        field: Field { name: "NodeName", width: 15, left: true, kind: Long::Text, value: |_, _| String::new() },
    },
    time(&["timestart", "start"], "TimeStart", |_, _| String::new()),
    time(&["timeend", "end"], "TimeEnd", |_, _| String::new()),
    f(&["instanceid"], "InstanceId", 20, |_, _| String::new()),
    f(&["instancetype"], "InstanceType", 20, |_, _| String::new()),
    f(&["extra"], "Extra", 20, |_, _| String::new()),
];

/// The tables in which a kind's fields are looked up, one after the other.
fn tables(kind: Kind) -> Vec<&'static [Named]> {
    match kind {
        Kind::Account => vec![&OF_ACCOUNTS, &OF_ASSOCIATIONS],
        Kind::User => vec![&OF_USERS, &OF_ASSOCIATIONS],
        Kind::Association => vec![&OF_ASSOCIATIONS],
        Kind::Cluster => vec![&OF_CLUSTERS, &OF_ASSOCIATIONS],
        Kind::Qos => vec![&OF_QOS],
        Kind::Tres => vec![&OF_TRES],
        Kind::WcKey => vec![&OF_WCKEYS],
        Kind::Transaction => vec![&OF_TRANSACTIONS],
        Kind::Resource => vec![&OF_RESOURCES],
        Kind::Federation => vec![&OF_FEDERATIONS],
        Kind::Instance => vec![&OF_INSTANCES],
        Kind::Problem | Kind::RunawayJobs | Kind::Configuration | Kind::Event | Kind::Reservation | Kind::Stats => {
            Vec::new()
        }
    }
}

/// The field of that name: the name itself, else the first that begins so.
fn find(kind: Kind, name: &str) -> Option<&'static Field> {
    let all = || tables(kind).into_iter().flatten();
    let exact = all().find(|named| named.names.iter().any(|known| known.eq_ignore_ascii_case(name)));
    let named = exact.or_else(|| all().find(|named| named.names.iter().any(|known| begins(known, name, 1))));
    named.map(|named| &named.field)
}

const LIMITS: &str = ",share,priority,grpjobs,grptres,grpsubmit,grpwall,grptresmins,maxjobs,maxtres,maxtrespernode,maxsubmit,\
    maxwall,maxtresmins,qos,defaultqos,grptresrunmins";

/// What is shown unasked.
fn usual(request: &Request) -> String {
    let with = request.has(More::Associations);
    let coordinators = if request.has(More::Coordinators) { ",coordinators" } else { "" };
    match request.kind {
        Kind::Account => {
            let more = ",cluster,parentname,user,share,priority,grpjobs,grpnodes,grpcpus,grpmemory,grpsubmit,grpwall,grpcpumins,\
                maxjobs,maxnodes,maxcpus,maxsubmit,maxwall,maxcpumins,qos,defaultqos";
            format!("account,description,organization{}{coordinators}", if with { more } else { "" })
        }
        Kind::User => {
            let more = ",cluster,account,partition,share,priority,maxjobs,maxnodes,maxcpus,maxsubmit,maxwall,maxcpumins,qos,defaultqos";
            format!("user,defaultaccount,defaultwckey,adminlevel{}{coordinators}", if with { more } else { "" })
        }
        Kind::Association => {
            let limits = if request.has(More::NoLimits) { "" } else { LIMITS };
            format!("cluster,account,user,partition{limits}")
        }
        Kind::Resource => {
            let clusters = if request.has(More::Clusters) { ",cluster,allowed" } else { "" };
            format!("name,server,type,count,lastconsumed,allocated,servertype{clusters},flags")
        }
        Kind::Cluster => "cluster,controlhost,controlport,rpc,share,grpjobs,grptres,grpsubmit,maxjobs,maxtres,maxsubmit,maxwall,qos,\
            defaultqos"
            .to_owned(),
        Kind::Qos => "name,priority,gracetime,preempt,preemptexempttime,preemptmode,flags%40,usagethreshold,usagefactor,grptres,\
            grptresmins,grptresrunmins,grpjobs,grpsubmit,grpwall,maxtres,maxtrespernode,maxtresmins,maxwall,maxtrespu,maxjobspu,\
            maxsubmitpu,maxtrespa,maxtresrunminspa,maxtresrunminspu,maxjobspa,maxsubmitpa,mintres"
            .to_owned(),
        kind => {
            let fields = tables(kind).into_iter().flatten().map(|named| named.names[0]);
            // The last ones are shown only when asked for.
            let usual = match kind {
                Kind::WcKey => 3,
                Kind::Federation => 5,
                _ => usize::MAX,
            };
            list(fields.take(usual))
        }
    }
}

/// The columns that are asked for, or the usual ones.
///
/// # Errors
/// The first field that there is not.
pub fn columns(request: &Request) -> Result<Vec<Column>, String> {
    let format = request.format.clone().unwrap_or_else(|| usual(request));
    let columns = field_table::chosen(&format, |name| find(request.kind, name))?;
    let tree = request.has(More::Tree);
    let indented = |column: Column| match column.field.name {
        "Account" if tree => column.left_if_usual(20),
        _ => column,
    };
    Ok(columns.into_iter().map(indented).collect())
}

#[cfg(test)]
#[path = "fields_test.rs"]
mod tests;
