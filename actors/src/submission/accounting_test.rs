//! Accounts, QOS, WCKeys and limits at submission, as seen in 26.05.3.
#![allow(clippy::unwrap_used)]

use crate::{controller::fixtures::Site, messages::job::Authority};
use garrick_events::records::job::JobRecord;
use garrick_model::{
    entities::{
        Entities,
        association::AssocId,
        limits::{Amounts, Count, TresLimit},
        qos::{QosFlag, QosRecord},
    },
    messages::{command::JobChange, request_change::RequestChange},
    refusal::Refusal,
    resources::{MemoryMib, MemoryRequest},
    spec::{JobSpec, NodeCount},
    testing::{entities, spec},
    time::TimeLimit,
};

/// With `AccountingStorageEnforce=` these words, and these entities.
fn site(words: &str, entities: &Entities) -> Site {
    let enforce = if words.is_empty() { String::new() } else { format!("AccountingStorageEnforce={words}\n") };
    let conf = format!(
        "ClusterName=test\nSlurmctldHost=head\n{enforce}NodeName=n[0-2] CPUs=4 RealMemory=4000\n\
         PartitionName=main Nodes=ALL Default=YES MaxTime=UNLIMITED\nPartitionName=short Nodes=ALL MaxTime=UNLIMITED\n"
    );
    Site::new(&conf).accounting(entities)
}

const ALL: &str = "associations,limits,qos,safe";

fn named(account: Option<&str>, qos: Option<&str>) -> JobSpec {
    JobSpec { account: account.map(str::to_owned), qos: qos.map(str::to_owned), ..spec() }
}

fn submitted(words: &str, entities: &Entities, uid: u32, spec: JobSpec) -> Result<JobRecord, Refusal> {
    site(words, entities).submit(uid, spec)
}

/// Account, QOS and association.
fn place(record: &JobRecord) -> (Option<&str>, Option<&str>, Option<u32>) {
    (record.spec.account.as_deref(), record.spec.qos.as_deref(), record.resolved.association.map(|id| id.0))
}

#[test]
fn a_job_that_names_nothing_has_the_account_and_qos_of_its_users_default_association() {
    for words in ["", "associations", ALL] {
        let record = submitted(words, &entities(), 1001, spec()).unwrap();
        assert_eq!(place(&record), (Some("physics"), Some("normal"), Some(4)), "{words}");
        assert!(record.resolved.default_qos, "{words}");
        let record = submitted(words, &entities(), 0, spec()).unwrap();
        assert_eq!(place(&record), (Some("root"), Some("normal"), Some(2)), "{words}");
    }
    let record = submitted(ALL, &entities(), 1001, named(Some("PHYSICS"), Some("High"))).unwrap();
    assert_eq!(place(&record), (Some("physics"), Some("high"), Some(4)));
    assert!(!record.resolved.default_qos);
    let mut long = entities();
    long.associations.get_mut(&AssocId(4)).unwrap().default_qos = Some("long".to_owned());
    assert_eq!(place(&submitted(ALL, &long, 1001, spec()).unwrap()).1, Some("long"));
    let mut short = entities();
    let of_partition = AssocId(9);
    let mut association = short.associations[&AssocId(4)].clone();
    (association.id, association.partition, association.is_default) = (of_partition, Some("short".to_owned()), false);
    short.associations.insert(of_partition, association);
    let in_short = JobSpec { partitions: vec!["short".to_owned()], ..spec() };
    assert_eq!(place(&submitted(ALL, &short, 1001, in_short).unwrap()).2, Some(9));
    assert_eq!(place(&submitted(ALL, &short, 1001, spec()).unwrap()).2, Some(4));
}

#[test]
fn accounts_and_qos_that_the_user_may_not_have_are_refused_where_that_is_enforced() {
    let wrong =
        |words, account: Option<&str>, qos: Option<&str>| submitted(words, &entities(), 1001, named(account, qos));
    let account = |name: &str| Err(Refusal::InvalidAccount(Some(name.to_owned())));
    let qos = |name: &str| Err(Refusal::InvalidQos(Some(name.to_owned())));
    assert_eq!(wrong(ALL, Some("nosuch"), None), account("nosuch"));
    assert_eq!(wrong(ALL, Some("astro"), None), account("astro"), "it exists, and she is not in it");
    assert_eq!(wrong(ALL, Some(""), None), account(""));
    assert_eq!(wrong(ALL, None, Some("nosuch")), qos("nosuch"));
    assert_eq!(wrong(ALL, Some("chem"), Some("long")), qos("long"));
    // Without `qos` any will do, without `associations` any account too.
    assert_eq!(place(&wrong("associations", None, Some("nosuch")).unwrap()).1, Some("nosuch"));
    assert_eq!(wrong("associations", Some("nosuch"), None), account("nosuch"));
    assert_eq!(place(&wrong("", Some("nosuch"), None).unwrap()), (Some("nosuch"), Some("normal"), None));
    let mut stranger = entities();
    stranger.associations.retain(|_, a| a.user.as_deref() != Some("alice"));
    assert_eq!(submitted(ALL, &stranger, 1001, spec()), Err(Refusal::InvalidAccount(None)));
    let record = submitted("", &stranger, 1001, spec()).unwrap();
    assert_eq!(place(&record), (None, Some("normal"), None));
    let mut reserved = entities();
    reserved.qos.get_mut("high").unwrap().flags.insert(QosFlag::RequiresReservation);
    assert_eq!(submitted(ALL, &reserved, 1001, named(None, Some("high"))), qos("high"));
}

#[test]
fn while_nothing_is_known_nobody_has_an_association() {
    let nothing = Entities::default();
    assert_eq!(submitted(ALL, &nothing, 1001, spec()), Err(Refusal::InvalidAccount(None)));
    let record = submitted("", &nothing, 1001, named(Some("Any"), None)).unwrap();
    assert_eq!(place(&record), (Some("Any"), None, None), "as without accounting");
}

#[test]
fn wckeys_are_those_of_the_user() {
    let with = |words, key: Option<&str>| {
        let spec = JobSpec { wckey: key.map(str::to_owned), ..spec() };
        submitted(words, &entities(), 1001, spec).map(|record| record.spec.wckey.clone().unwrap_or_default())
    };
    assert_eq!(with("wckeys", Some("proj2")), Ok("proj2".to_owned()));
    assert_eq!(with("wckeys", None), Ok("*proj1".to_owned()));
    assert_eq!(with("wckeys", Some("nosuch")), Err(Refusal::InvalidWcKey(Some("nosuch".to_owned()))));
    assert_eq!(with(ALL, Some("nosuch")), Ok("nosuch".to_owned()), "they are not enforced");
    assert_eq!(with(ALL, None), Ok(String::new()), "nor tracked");
    let tracked = |entities: &Entities, key: Option<&str>| {
        let spec = JobSpec { wckey: key.map(str::to_owned), ..spec() };
        submitted(&format!("{ALL}\nTrackWCKey=yes"), entities, 1001, spec).map(|record| record.spec.wckey.clone())
    };
    assert_eq!(tracked(&entities(), None), Ok(Some("*proj1".to_owned())));
    assert_eq!(tracked(&entities(), Some("other")), Ok(Some("other".to_owned())));
    let mut without = entities();
    without.wckeys.clear();
    assert_eq!(tracked(&without, None), Ok(Some("*".to_owned())));
    assert_eq!(Refusal::InvalidWcKey(None).to_string(), "Invalid wckey specification");
}

#[test]
fn changes_follow_the_same_rules() {
    let mut site = site(ALL, &entities());
    let record = site.submit(1001, JobSpec { hold: true, ..spec() }).unwrap();
    let alice = Authority { uid: 1001, admin: false };
    let mut to = |account: Option<&str>, qos: Option<&str>| {
        let request = RequestChange { qos: qos.map(str::to_owned), ..RequestChange::default() };
        let change = JobChange { account: account.map(str::to_owned), request, ..JobChange::default() };
        let revised = site.revise(alice, &record, &change)?;
        Ok((revised.spec.account.unwrap(), revised.spec.qos.unwrap(), revised.resolved.association.unwrap().0))
    };
    let is = |account: &str, qos: &str, id: u32| Ok((account.to_owned(), qos.to_owned(), id));
    assert_eq!(to(Some("chem"), None), is("chem", "normal", 7));
    assert_eq!(to(Some("astro"), None), Err(Refusal::InvalidAccount(Some("astro".to_owned()))));
    assert_eq!(to(None, Some("high")), is("physics", "high", 4));
    assert_eq!(to(None, Some("nosuch")), Err(Refusal::InvalidQos(Some("nosuch".to_owned()))));
    assert_eq!(to(Some("chem"), Some("high")), Err(Refusal::InvalidQos(Some("high".to_owned()))));
    let time = JobChange { time_limit: Some(TimeLimit::Secs(60)), ..JobChange::default() };
    let revised = site.revise(alice, &record, &time).unwrap();
    assert_eq!(revised.resolved.association, Some(AssocId(4)), "other changes leave it");
}

fn asks(tasks: u32) -> JobSpec {
    JobSpec {
        tasks: Some(tasks),
        memory: MemoryRequest::PerCpu(MemoryMib(100)),
        time_limit: Some(TimeLimit::Secs(300)),
        ..spec()
    }
}

fn denied(reason: &str) -> Result<(), Refusal> {
    Err(Refusal::AccountingPolicy.after(vec![reason.to_owned()]))
}

#[test]
fn with_deny_on_limit_a_job_that_is_over_a_limit_alone_is_refused() {
    use TresLimit::*;
    let of_qos = |change: &dyn Fn(&mut QosRecord), spec: &JobSpec, deny: bool| {
        let mut all = entities();
        let normal = all.qos.get_mut("normal").unwrap();
        change(normal);
        if deny {
            normal.flags.insert(QosFlag::DenyOnLimit);
        }
        submitted(ALL, &all, 1001, spec.clone()).map(|_| ())
    };
    let two_nodes = JobSpec { nodes: Some(NodeCount { min: 2, max: Some(2) }), ..asks(2) };
    let cases = [
        (GrpTres, "cpu", 2, asks(3), "QOSGrpCpuLimit"),
        (GrpTres, "mem", 100, asks(2), "QOSGrpMemLimit"),
        (GrpTres, "node", 1, two_nodes.clone(), "QOSGrpNodeLimit"),
        (GrpTresMins, "cpu", 6, asks(2), "QOSGrpCPUMinutesLimit"),
        (GrpTresRunMins, "cpu", 6, asks(2), "QOSGrpCPURunMinutesLimit"),
        (MaxTresPerJob, "cpu", 2, asks(3), "QOSMaxCpuPerJobLimit"),
        (MaxTresPerJob, "node", 1, two_nodes, "QOSMaxNodePerJobLimit"),
        (MaxTresPerUser, "cpu", 2, asks(3), "QOSMaxCpuPerUserLimit"),
        (MaxTresPerUser, "mem", 100, asks(3), "QOSMaxMemoryPerUser"),
        (MaxTresPerAccount, "cpu", 2, asks(3), "MaxCpuPerAccount"),
        (MaxTresMinsPerJob, "cpu", 6, asks(2), "QOSMaxCpuMinutesPerJobLimit"),
        (MaxTresRunMinsPerUser, "cpu", 6, asks(2), "MaxCpuRunMinsPerUser"),
        (MinTresPerJob, "cpu", 2, asks(1), "QOSMinCpuNotSatisfied"),
        (MinTresPerJob, "gres/gpu", 1, asks(1), "QOSMinGRES"),
    ];
    for (limit, name, number, spec, reason) in cases {
        let change =
            |qos: &mut QosRecord| _ = qos.limits.tres.insert(limit, Amounts::from([(name.to_owned(), number)]));
        assert_eq!(of_qos(&change, &spec, true), denied(reason));
        assert_eq!(of_qos(&change, &spec, false), Ok(()), "{limit:?} {name}");
    }
    for (count, number, expected) in [
        (Count::GrpWall, 3, denied("QOSGrpWallLimit")),
        (Count::MaxWall, 3, denied("QOSMaxWallDurationPerJobLimit")),
        (Count::MaxJobsPerUser, 0, Ok(())),
        (Count::GrpJobs, 0, Ok(())),
    ] {
        let change = |qos: &mut QosRecord| _ = qos.limits.counts.insert(count, number);
        assert_eq!(of_qos(&change, &asks(1), true), expected);
        assert_eq!(of_qos(&change, &asks(1), false), Ok(()), "{count:?}");
    }
    // Limits of associations too, if the job's QOS has the flag.
    let mut all = entities();
    all.associations.get_mut(&AssocId(4)).unwrap().limits.counts.insert(Count::MaxWall, 3);
    assert_eq!(submitted(ALL, &all, 1001, asks(1)).map(|_| ()), Ok(()));
    all.qos.get_mut("normal").unwrap().flags.insert(QosFlag::DenyOnLimit);
    assert_eq!(submitted(ALL, &all, 1001, asks(1)).map(|_| ()), denied("AssocMaxWallDurationPerJobLimit"));
    assert_eq!(submitted("qos", &all, 1001, asks(1)).map(|_| ()), Ok(()), "limits are not enforced");
    let says = denied("x").unwrap_err().to_string();
    assert_eq!(says, "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)");
}

/// qos.html, "Relative QOS".
#[test]
fn limits_of_a_relative_qos_are_percentages_and_that_of_a_partition_is_for_no_job() {
    let mut all = entities();
    let normal = all.qos.get_mut("normal").unwrap();
    normal.flags.extend([QosFlag::DenyOnLimit, QosFlag::Relative]);
    normal.limits.tres.insert(TresLimit::MaxTresPerJob, Amounts::from([("cpu".to_owned(), 25)]));
    let send = |extra: &str, cpus| {
        let conf = format!(
            "ClusterName=test\nSlurmctldHost=head\nAccountingStorageEnforce={ALL}\nNodeName=n[0-2] CPUs=4 RealMemory=4000\n\
             PartitionName=main Nodes=ALL Default=YES MaxTime=UNLIMITED\n{extra}"
        );
        Site::new(&conf).accounting(&all).submit(1001, asks(cpus)).map(|_| ())
    };
    assert_eq!(send("", 3), Ok(()), "a quarter of 12 CPUs");
    assert_eq!(send("", 4), denied("QOSMaxCpuPerJobLimit"));
    let refused = Err(Refusal::InvalidQos(Some("normal".to_owned())));
    assert_eq!(send("PartitionName=short Nodes=n0 QOS=normal\n", 1), refused);
}

#[test]
fn several_qos_are_in_the_order_of_their_priorities_and_each_has_to_be_allowed() {
    let mut all = entities();
    for (name, priority) in [("high", 1000), ("normal", 100), ("low", 10)] {
        all.qos.get_mut(name).unwrap().priority = priority;
    }
    let qos = |words: &str, uid: u32, names: &str| {
        submitted(words, &all, uid, named(None, Some(names))).map(|record| record.spec.qos.clone().unwrap())
    };
    let refused = |name: &str| Err(Refusal::InvalidQos(Some(name.to_owned())));
    assert_eq!(qos(ALL, 1001, "low, High,normal,low").as_deref(), Ok("high,normal,low"));
    assert_eq!(qos("", 1001, "low,nosuch,high").as_deref(), Ok("high,low,nosuch"), "nothing is enforced");
    assert_eq!(qos(ALL, 1001, "high,nosuch"), refused("nosuch"));
    assert_eq!(qos(ALL, 1001, ","), Ok("normal".to_owned()), "it names none");
    let chem = |names: &str| submitted(ALL, &all, 1001, named(Some("chem"), Some(names)));
    assert_eq!(chem("normal,high").unwrap_err(), Refusal::InvalidQos(Some("high".to_owned())));
    // So are changes.
    let mut site = site(ALL, &all);
    let record = site.submit(1001, JobSpec { hold: true, ..spec() }).unwrap();
    let alice = Authority { uid: 1001, admin: false };
    let mut to = |names: &str| {
        let request = RequestChange { qos: Some(names.to_owned()), ..RequestChange::default() };
        let revised = site.revise(alice, &record, &JobChange { request, ..JobChange::default() })?;
        Ok(revised.spec.qos.unwrap())
    };
    assert_eq!(to("normal,high").as_deref(), Ok("high,normal"));
    assert_eq!(to("normal,nosuch"), refused("nosuch"));
}

#[test]
fn a_job_is_refused_for_a_limit_if_it_is_over_it_with_each_of_its_qos() {
    let mut all = entities();
    for (name, most) in [("high", 2), ("low", 3)] {
        let qos = all.qos.get_mut(name).unwrap();
        qos.flags.insert(QosFlag::DenyOnLimit);
        qos.limits.tres.insert(TresLimit::MaxTresPerJob, Amounts::from([("cpu".to_owned(), most)]));
    }
    let with = |tasks: u32| submitted(ALL, &all, 1001, JobSpec { qos: Some("high,low".to_owned()), ..asks(tasks) });
    assert_eq!(with(3).map(|record| record.spec.qos.clone()), Ok(Some("high,low".to_owned())));
    assert!(with(4).is_err());
}

#[test]
fn what_a_request_is_billed_follows_its_licenses() {
    let conf = "ClusterName=test\nSlurmctldHost=head\nLicenses=matlab:8\nNodeName=n[0-2] CPUs=4 RealMemory=4000\n\
                PartitionName=main Nodes=ALL Default=YES MaxTime=UNLIMITED TRESBillingWeights=\"CPU=1,license/matlab=10\"\n";
    let mut site = Site::new(conf);
    let mut record = site.submit(1001, JobSpec { licenses: Some("matlab:1".to_owned()), ..spec() }).unwrap();
    let before = record.resolved.billing.unwrap();
    let change = JobChange { licenses: Some("matlab:3".to_owned()), ..JobChange::default() };
    let revised = site.revise(Authority { uid: 1001, admin: false }, &record, &change).unwrap();
    assert_eq!(revised.resolved.billing, Some(before + 20));
    // Other changes leave it as it is.
    record.resolved.billing = Some(7);
    let change = JobChange { comment: Some("mine".to_owned()), ..JobChange::default() };
    let revised = site.revise(Authority { uid: 1001, admin: false }, &record, &change).unwrap();
    assert_eq!(revised.resolved.billing, Some(7));
}

#[test]
fn limits_of_a_partition_are_lifted_by_one_qos_and_not_by_several_together() {
    let mut all = entities();
    for (name, flag) in [("high", QosFlag::PartitionTimeLimit), ("low", QosFlag::PartitionMaxNodes)] {
        all.qos.get_mut(name).unwrap().flags.insert(flag);
    }
    for enforce in ["ANY", "ALL"] {
        let conf = format!(
            "ClusterName=test\nSlurmctldHost=head\nAccountingStorageEnforce={ALL}\nEnforcePartLimits={enforce}\n\
             NodeName=n[0-2] CPUs=4 RealMemory=4000\nPartitionName=main Nodes=ALL Default=YES MaxTime=60 MaxNodes=1\n"
        );
        let send = |minutes: u64, nodes: u32| {
            let time_limit = Some(TimeLimit::Secs(minutes * 60));
            let nodes = Some(NodeCount { min: nodes, max: Some(nodes) });
            let spec = JobSpec { time_limit, nodes, ..named(None, Some("high,low")) };
            Site::new(&conf).accounting(&all).submit(1001, spec).map(|_| ())
        };
        assert_eq!((send(120, 1), send(30, 2)), (Ok(()), Ok(())), "{enforce}");
        assert!(send(120, 2).is_err(), "{enforce}");
    }
}
