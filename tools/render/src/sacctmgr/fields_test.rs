//! Tables as sacctmgr of Slurm 26.05.3 printed them.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::{
    field_table::Setting,
    sacctmgr::{rows::Listing, samples},
    testing::clock,
};
use garrick_accounts::change::Transaction;
use garrick_model::{
    entities::{
        Entities,
        association::{AssocId, Shares},
        names::{Cluster, FedState, Federation, Resource},
    },
    time::Timestamp,
};

fn rows<'e>(listing: &Listing<'e>, transactions: &'e [Transaction]) -> Vec<Row<'e>> {
    match listing.request.kind {
        Kind::Account => listing.accounts(),
        Kind::Association => listing.associations(),
        Kind::Cluster => listing.clusters(),
        Kind::Federation => listing.federations(),
        Kind::Qos => listing.qos(),
        Kind::Tres => listing.tres(),
        Kind::User => listing.users(),
        Kind::WcKey => listing.wckeys(),
        Kind::Resource => listing.resources(),
        Kind::Transaction => listing.transactions(transactions),
        _ => Vec::new(),
    }
}

fn shown_of(entities: &Entities, transactions: &[Transaction], setting: &Setting, words: &str) -> String {
    let words: Vec<&str> = words.split(' ').collect();
    let request = Request::read(Kind::read(words[0]).unwrap(), &words[1..]).unwrap();
    let columns = columns(&request).unwrap();
    let listing = Listing { entities, here: "cluster", request: &request };
    let mut out = Vec::new();
    setting.heading(&mut out, &columns).unwrap();
    for row in &rows(&listing, transactions) {
        setting.row(&mut out, &columns, |shown| shown(row, &clock(0))).unwrap();
    }
    String::from_utf8(out).unwrap()
}

fn shown(words: &str) -> String {
    shown_of(&samples::tree(), &[], &Setting::Columns, words)
}

fn parsable(words: &str) -> String {
    shown_of(&samples::tree(), &[], &Setting::Parsable2("|".to_owned()), words)
}

/// A text that begins in the next line.
fn block(text: &str) -> &str {
    text.strip_prefix('\n').unwrap()
}

/// A text without the blanks that editors take away from the ends of lines.
fn trimmed(text: &str) -> String {
    text.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

#[test]
fn headings_have_slurms_names_and_widths() {
    let heading = |words: &str| shown_of(&Entities::default(), &[], &Setting::Columns, words);
    let associations = concat!(
        "   Cluster    Account       User  Partition     Share   Priority GrpJobs       GrpTRES GrpSubmit     GrpWall   GrpTRESMins MaxJobs       MaxTRES MaxTRESPerNode MaxSubmit     MaxWall   MaxTRESMins                  QOS   Def QOS GrpTRESRunMin \n",
        "---------- ---------- ---------- ---------- --------- ---------- ------- ------------- --------- ----------- ------------- ------- ------------- -------------- --------- ----------- ------------- -------------------- --------- ------------- \n"
    );
    assert_eq!(heading("assoc"), associations);
    let clusters = concat!(
        "   Cluster     ControlHost  ControlPort   RPC     Share GrpJobs       GrpTRES GrpSubmit MaxJobs       MaxTRES MaxSubmit     MaxWall                  QOS   Def QOS \n",
        "---------- --------------- ------------ ----- --------- ------- ------------- --------- ------- ------------- --------- ----------- -------------------- --------- \n"
    );
    assert_eq!(heading("cluster"), clusters);
    let qos = concat!(
        "      Name   Priority  GraceTime    Preempt   PreemptExemptTime PreemptMode                                    Flags UsageThres UsageFactor       GrpTRES   GrpTRESMins GrpTRESRunMin GrpJobs GrpSubmit     GrpWall       MaxTRES MaxTRESPerNode   MaxTRESMins     MaxWall     MaxTRESPU MaxJobsPU MaxSubmitPU     MaxTRESPA       MaxTRESRunMinsPA       MaxTRESRunMinsPU MaxJobsPA MaxSubmitPA       MinTRES \n",
        "---------- ---------- ---------- ---------- ------------------- ----------- ---------------------------------------- ---------- ----------- ------------- ------------- ------------- ------- --------- ----------- ------------- -------------- ------------- ----------- ------------- --------- ----------- ------------- ---------------------- ---------------------- --------- ----------- ------------- \n"
    );
    assert_eq!(heading("qos"), qos);
    let users = concat!(
        "      User   Def Acct  Def WCKey     Admin    Cluster    Account  Partition     Share   Priority MaxJobs MaxNodes  MaxCPUs MaxSubmit     MaxWall  MaxCPUMins                  QOS   Def QOS \n",
        "---------- ---------- ---------- --------- ---------- ---------- ---------- --------- ---------- ------- -------- -------- --------- ----------- ----------- -------------------- --------- \n"
    );
    assert_eq!(heading("user withassoc"), users);
    let accounts = concat!(
        "   Account                Descr                  Org    Cluster ParentName       User     Share   Priority GrpJobs GrpNodes  GrpCPUs  GrpMem GrpSubmit     GrpWall  GrpCPUMins MaxJobs MaxNodes  MaxCPUs MaxSubmit     MaxWall  MaxCPUMins                  QOS   Def QOS \n",
        "---------- -------------------- -------------------- ---------- ---------- ---------- --------- ---------- ------- -------- -------- ------- --------- ----------- ----------- ------- -------- -------- --------- ----------- ----------- -------------------- --------- \n"
    );
    assert_eq!(heading("account withassoc"), accounts);
    let federations = concat!(
        "Federation    Cluster ID             Features     FedState \n",
        "---------- ---------- -- -------------------- ------------ \n"
    );
    assert_eq!(heading("federation"), federations);
    let instances = concat!(
        "   Cluster NodeName                  TimeStart             TimeEnd           InstanceId         InstanceType                Extra \n",
        "---------- --------------- ------------------- ------------------- -------------------- -------------------- -------------------- \n"
    );
    assert_eq!(heading("instance"), instances);
}

#[test]
fn associations_stand_in_their_tree() {
    let tree = block(
        "
Account                    User     Share MaxJobs                            QOS   Def QOS
-------------------- ---------- --------- ------- ------------------------------ ---------
root                                    1                                 normal
 root                      root         1                                 normal
 chem                                   7                                 normal
  chem                    alice         1                                 normal
  chem                      bob         1                            high,normal
  chem                     dave         1                                 normal
  chem                      eva         1                                 normal
  chemsub                               1                                 normal
 chem2                                  1                                 normal
 physics                                1                   high,long,low,normal
  physics                 alice        10                   high,long,low,normal
  astro                                 1                   high,long,low,normal
   astro                    bob         1                            high,normal
  quantum                               1                   high,long,low,normal
",
    );
    assert_eq!(trimmed(&shown("assoc tree format=account%-20,user,share,maxjobs,qos%30,defaultqos")), tree);
    assert_eq!(trimmed(&shown("assoc tree format=account,user,share,maxjobs,qos%30,defaultqos")), tree);
    let below = block(
        "
   Account       User                                      QOS
---------- ---------- ----------------------------------------
   physics                                high,long,low,normal
   physics      alice
     astro
     astro        bob                              high,normal
   quantum
",
    );
    assert_eq!(trimmed(&shown("assoc account=physics withsub wopi format=account,user,qos%40")), below);
    assert_eq!(parsable("assoc account=physics format=account,user"), "Account|User\nphysics|\nphysics|alice\n");
    assert_eq!(
        parsable("assoc onlydefaults format=acc,us"),
        "Account|User\nroot|root\nchem|dave\nchem|eva\nphysics|alice\nastro|bob\n"
    );
    assert_eq!(parsable("assoc user=nobodyhere format=user"), "User\n");
    assert_eq!(
        parsable("assoc account=chem user='' format=account,user,parentname"),
        "Account|User|ParentName\nchem||root\n"
    );
}

#[test]
fn users_accounts_and_wckeys_are_listed_by_name() {
    let users = block(
        "
      User   Def Acct  Def WCKey     Admin
---------- ---------- ---------- ---------
     alice    physics      proj1      None
       bob      astro      proj1      None
      dave       chem             Operator
       eva       chem                 None
      root       root            Administ+
",
    );
    assert_eq!(trimmed(&shown("user")), users);
    let accounts = block(
        "
   Account                Descr                  Org       Coord Accounts
---------- -------------------- -------------------- --------------------
     astro                astro              physics
      chem       chemistry dept               newsci                  bob
     chem2                upper                chem2
",
    );
    let mut entities = samples::tree();
    entities.accounts.get_mut("chem").unwrap().coordinators.insert("bob".to_owned());
    let of = |words| trimmed(&shown_of(&entities, &[], &Setting::Columns, words));
    assert_eq!(of("account withcoord astro,chem,chem2"), accounts);
    assert_eq!(
        of("user bob withcoord"),
        "      User   Def Acct  Def WCKey     Admin       Coord Accounts\n\
         ---------- ---------- ---------- --------- --------------------\n       \
         bob      astro      proj1      None                 chem\n"
    );
    assert_eq!(
        parsable("wckey format=wckey,cluster,user,id"),
        "WCKey|Cluster|User|ID\nnosuch|cluster|bob|4\nproj1|cluster|alice|2\nproj1|cluster|bob|1\nproj2|cluster|alice|3\n"
    );
    assert_eq!(
        parsable("user alice withassoc"),
        "User|Def Acct|Def WCKey|Admin|Cluster|Account|Partition|Share|Priority|MaxJobs|MaxNodes|MaxCPUs|MaxSubmit|MaxWall|MaxCPUMins|QOS|Def QOS\n\
         alice|physics|proj1|None|cluster|chem||1||||||||normal|\n\
         alice|physics|proj1|None|cluster|physics||10||||||||high,long,low,normal|\n"
    );
}

#[test]
fn what_was_deleted_is_shown_on_request() {
    let mut entities = samples::tree();
    entities.users.get_mut("eva").unwrap().deleted = true;
    entities.associations.get_mut(&AssocId(14)).unwrap().deleted = true;
    let of = |words| shown_of(&entities, &[], &Setting::Parsable2("|".to_owned()), words);
    assert_eq!(of("user eva"), "User|Def Acct|Def WCKey|Admin\n");
    assert_eq!(of("user eva withdeleted"), "User|Def Acct|Def WCKey|Admin\neva|||None\n");
    assert_eq!(of("assoc user=eva format=account,user"), "Account|User\n");
    assert_eq!(
        of("assoc withdeleted user=eva format=account,user,flags,id"),
        "Account|User|Flags|ID\nchem|eva|Deleted|14\n"
    );
}

/// Limits of the transcript.
#[test]
fn limits_are_shown_as_slurm_shows_them() {
    let mut entities = samples::tree();
    let chem = entities.associations.get_mut(&AssocId(6)).unwrap();
    chem.priority = Some(5);
    let amounts = |all: &[(&str, u64)]| all.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
    chem.limits.tres.insert(TresLimit::GrpTres, amounts(&[("cpu", 10), ("mem", 6144), ("gres/gpu", 2), ("node", 3)]));
    chem.limits.tres.insert(TresLimit::GrpTresMins, amounts(&[("cpu", 100_000), ("gres/gpu", 5000)]));
    chem.limits.tres.insert(TresLimit::MaxTresMinsPerJob, amounts(&[("cpu", 9000)]));
    let counts = [(Count::GrpJobs, 50), (Count::GrpWall, 1000), (Count::MaxJobs, 20), (Count::MaxWall, 720)];
    chem.limits.counts.extend(counts);
    chem.shares = Shares::Parent;
    let expected = block(
        "
   Account       User     Share   Priority                             GrpTRES GrpJobs     GrpWall                    GrpTRESMins MaxJobs     MaxWall   MaxTRESMins
---------- ---------- --------- ---------- ----------------------------------- ------- ----------- ------------------------------ ------- ----------- -------------
      chem               parent          5     cpu=10,gres/gpu=2,mem=6G,node=3      50    16:40:00       cpu=100000,gres/gpu=5000      20    12:00:00      cpu=9000
      chem       dave         1          5                                                                                             20    12:00:00      cpu=9000
",
    );
    let words = "assoc account=chem user=,dave format=account,user,share,priority,grptres%35,grpjobs,grpwall,grptresmins%30,maxjobs,maxwall,maxtresmins";
    assert_eq!(
        trimmed(&shown_of(&entities, &[], &Setting::Columns, &words.replace("user=,dave", "user='' user=dave"))),
        expected
    );
}

#[test]
fn qos_stand_by_number() {
    let expected = block(
        "
      Name     ID   Priority  GraceTime    Preempt PreemptMode UsageFactor     MaxWall                Descr
---------- ------ ---------- ---------- ---------- ----------- ----------- ----------- --------------------
    normal      1          0   00:00:00                cluster    1.000000               Normal QOS default
      high      2        100   00:00:00 low,normal     requeue    1.000000                             high
      long      3          0   00:00:00                cluster    1.000000  2-00:00:00            long jobs
       low     10          1   00:00:00                 cancel    3.000000                              low
",
    );
    let words = "qos format=name%10,id,priority,gracetime,preempt,preemptmode,usagefactor,maxwall,description";
    assert_eq!(trimmed(&shown(words)), expected);
    assert_eq!(parsable("qos id=1 format=name,id"), "Name|ID\nnormal|1\n");
    assert_eq!(parsable("qos name format=name"), "Name\n");
    let mut entities = samples::tree();
    let low = entities.qos.get_mut("low").unwrap();
    low.flags = QOS_FLAGS
        .iter()
        .map(|(flag, _)| *flag)
        .filter(|f| {
            use garrick_model::entities::qos::QosFlag as F;
            matches!(f, F::DenyOnLimit | F::OverPartQos | F::NoDecay)
        })
        .collect();
    assert_eq!(
        shown_of(&entities, &[], &Setting::Parsable2("|".into()), "qos low format=name,flags%60"),
        "Name|Flags\nlow|DenyOnLimit,OverPartQOS,NoDecay\n"
    );
}

#[test]
fn clusters_and_tres_are_listed() {
    assert_eq!(
        shown_of(&samples::tree(), &[], &Setting::Parsable("|".into()), "cluster"),
        "Cluster|ControlHost|ControlPort|RPC|Share|GrpJobs|GrpTRES|GrpSubmit|MaxJobs|MaxTRES|MaxSubmit|MaxWall|QOS|Def QOS|\n\
         cluster|127.0.0.1|30001|11520|1||||||||normal||\n"
    );
    let tres = shown("tres");
    assert!(
        tres.starts_with(
            "    Type            Name     ID \n-------- --------------- ------ \n     cpu                      1 \n"
        ),
        "{tres}"
    );
    assert!(tres.ends_with(" license          matlab   1004 \n"), "{tres}");
}

#[test]
fn federations_have_a_line_for_each_cluster_and_a_tree_on_request() {
    let member = |name: &str, fed_index| Cluster {
        name: name.to_owned(),
        federation: "fed1".to_owned(),
        fed_index,
        ..Cluster::default()
    };
    let clusters = [member("second", 1), member("third", 2)].map(|one| (one.name.clone(), one)).into();
    let named = |name: &str| (name.to_owned(), Federation { name: name.to_owned(), ..Federation::default() });
    let entities = Entities { clusters, federations: [named("fed1")].into(), ..Entities::default() };
    let heading = "Federation    Cluster ID             Features     FedState \n\
                   ---------- ---------- -- -------------------- ------------ \n";
    let of = |words| shown_of(&entities, &[], &Setting::Columns, words);
    let lines = "      fed1     second  1                            ACTIVE \n      fed1      third  2                            ACTIVE \n";
    assert_eq!(of("federation"), format!("{heading}{lines}"));
    let lines = concat!(
        "      fed1                                                 \n",
        "               second  1                            ACTIVE \n",
        "                third  2                            ACTIVE \n"
    );
    assert_eq!(of("federation tree"), format!("{heading}{lines}"));
    assert_eq!(of("federation fed2"), heading);
    assert!(of("cluster format=cluster,federation,fedstate").contains("    second       fed1       ACTIVE \n"));
    // The numbers of sacctmgr of Slurm 22.05.8.
    let raw = |fed_index, fed_state| {
        let one = Cluster { fed_state, ..member("second", fed_index) };
        let entities = Entities { clusters: [(one.name.clone(), one)].into(), ..entities.clone() };
        let shown = shown_of(&entities, &[], &Setting::Columns, "cluster format=fedstateraw,fedstate");
        shown.lines().last().unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(raw(0, FedState::Active), ["0", "NA"]);
    assert_eq!(raw(1, FedState::Active), ["1", "ACTIVE"]);
    assert_eq!(raw(1, FedState::Inactive), ["2", "INACTIVE"]);
    assert_eq!(raw(1, FedState::Drain), ["17", "DRAIN"]);
    assert_eq!(raw(1, FedState::DrainRemove), ["49", "DRAIN+REMOVE"]);
    // One without clusters is there too.
    let alone = Entities { federations: [named("fed3")].into(), ..Entities::default() };
    let shown = shown_of(&alone, &[], &Setting::Columns, "federation");
    assert_eq!(shown.lines().last().unwrap().trim_end(), "      fed3");
}

#[test]
fn resources_have_a_line_for_each_cluster_on_request() {
    let matlab = Resource {
        id: 1,
        name: "matlab".to_owned(),
        server: "flex".to_owned(),
        server_type: "flexlm".to_owned(),
        count: 50,
        allowed: [("cluster".to_owned(), 50)].into(),
        ..Resource::default()
    };
    let entities = Entities { resources: [(1, matlab)].into(), ..Entities::default() };
    let of = |words| trimmed(&shown_of(&entities, &[], &Setting::Columns, words));
    assert_eq!(
        of("resource"),
        "      Name     Server     Type  Count LastConsumed Allocated ServerType                Flags\n\
         ---------- ---------- -------- ------ ------------ --------- ---------- --------------------\n    \
         matlab       flex  License     50            0        50     flexlm\n"
    );
    assert_eq!(
        of("resource withclusters"),
        "      Name     Server     Type  Count LastConsumed Allocated ServerType    Cluster  Allowed                Flags\n\
         ---------- ---------- -------- ------ ------------ --------- ---------- ---------- -------- --------------------\n    \
         matlab       flex  License     50            0        50     flexlm    cluster       50\n"
    );
}

#[test]
fn transactions_are_found_by_what_they_are_about() {
    let transaction = |action: &str, actor: &str, target: &str, about: &str| Transaction {
        time: Timestamp::from_secs(1_795_423_086),
        action: action.to_owned(),
        actor: actor.to_owned(),
        target: target.to_owned(),
        info: "mod_time=1795423086, shares=1".to_owned(),
        about: vec![about.to_owned()],
    };
    let all = [
        transaction("Add Clusters", "slurm", "cluster", "cluster"),
        transaction("Add Users", "root", "alice", "alice"),
    ];
    let entities = Entities::default();
    let of = |words| shown_of(&entities, &all, &Setting::Columns, words);
    let heading = "               Time               Action      Actor                Where                 Info \n\
        ------------------- -------------------- ---------- -------------------- -------------------- \n";
    assert_eq!(of("t action=add,clusters actor=slurm").replace(heading, ""), "");
    assert_eq!(
        of("t actor=slurm").replace(heading, ""),
        "2026-11-23T08:38:06         Add Clusters      slurm              cluster mod_time=1795423086+ \n"
    );
    assert_eq!(
        of("t user=alice").replace(heading, ""),
        "2026-11-23T08:38:06            Add Users       root                alice mod_time=1795423086+ \n"
    );
}

#[test]
fn fields_may_be_begun_and_others_are_refused() {
    let names = |kind, format: &str| {
        let request = Request { format: Some(format.to_owned()), ..Request::all(kind) };
        columns(&request).map(|columns| columns.iter().map(|c| c.field.name).collect::<Vec<_>>())
    };
    assert_eq!(names(Kind::Association, "acc,us%x,cl%3").unwrap(), ["Account", "User", "Cluster"]);
    assert_eq!(
        names(Kind::Qos, "prio,usagethres,maxtrespj,maxsubmitpu").unwrap(),
        ["Priority", "UsageThres", "MaxTRES", "MaxSubmitPU"]
    );
    assert_eq!(names(Kind::Association, "user,bogus").unwrap_err(), "bogus");
    assert_eq!(names(Kind::Association, "lft").unwrap_err(), "lft");
    assert_eq!(names(Kind::Cluster, "pluginidselect").unwrap_err(), "pluginidselect");
    assert_eq!(
        shown("assoc user=dave format=account%5,user%-12,account%0"),
        "Accou User            Account \n----- ------------ ---------- \n chem dave               chem \n"
    );
}
