#![allow(clippy::unwrap_used)]
use super::*;
use crate::testing::shares_board;

fn shown(choice: &Choice) -> String {
    let uid =
        |name: &str| ["alice", "bob"].iter().zip([3001, 3002]).find(|(known, _)| **known == name).map(|(_, uid)| uid);
    let mut out = Vec::new();
    write(&mut out, &shares_board(), choice, &uid).unwrap();
    String::from_utf8(out).unwrap()
}

/// As Slurm 26.05.3 printed it, with fewer kinds of TRES.
#[test]
fn associations_have_their_limits_and_what_counts() {
    let choice = Choice {
        users: Some(vec!["alice".to_owned()]),
        accounts: Some(vec!["physics".to_owned()]),
        show_associations: true,
        ..Choice::default()
    };
    assert_eq!(
        shown(&choice),
        "\
Current Association Manager state

Association Records

ClusterName=cluster Account=physics UserName= Partition= Priority=0 ID=3
    SharesRaw/Norm/Level/Factor=1/0.10/10/0.00
    UsageRaw/Norm/Efctv=1171.41/0.99/0.99
    ParentAccount=root(1) Lineage=/physics/ DefAssoc=No
    GrpJobs=N(2) GrpJobsAccrue=N(7)
    GrpSubmitJobs=N(10) GrpWall=N(9.97)
    GrpTRES=cpu=N(12),mem=N(1200),energy=N(0),node=N(3),billing=N(12)
    GrpTRESMins=cpu=N(21),mem=N(2048),energy=N(0),node=N(10),billing=N(19)
    GrpTRESRunMins=cpu=N(120),mem=N(12000),energy=N(0),node=N(30),billing=N(120)
    MaxJobs= MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ=
    MaxTRESPJ=
    MaxTRESPN=
    MaxTRESMinsPJ=
    MinPrioThresh=
    Comment=(null)
ClusterName=cluster Account=physics UserName=alice(3001) Partition= Priority=0 ID=16
    SharesRaw/Norm/Level/Factor=10/0.83/12/0.29
    UsageRaw/Norm/Efctv=509.74/0.43/0.44
    ParentAccount= Lineage=/physics/0-alice/ DefAssoc=Yes
    GrpJobs=5(1) GrpJobsAccrue=N(5)
    GrpSubmitJobs=N(7) GrpWall=N(6.87)
    GrpTRES=cpu=8(4),mem=N(400),energy=N(0),node=N(1),billing=N(4)
    GrpTRESMins=cpu=N(10),mem=N(945),energy=N(0),node=N(6),billing=N(8)
    GrpTRESRunMins=cpu=N(40),mem=N(4000),energy=N(0),node=N(10),billing=N(40)
    MaxJobs=3 MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ=
    MaxTRESPJ=cpu=4
    MaxTRESPN=
    MaxTRESMinsPJ=
    MinPrioThresh=
    Comment=(null)
"
    );
}

#[test]
fn qos_have_what_each_account_and_user_has() {
    let all = shown(&Choice { show_qos: true, ..Choice::default() });
    assert_eq!(
        all,
        "\
Current Association Manager state

QOS Records

QOS=normal(1)
    UsageRaw=1119.450094
    GrpJobs=N(2) GrpJobsAccrue=N(7) GrpSubmitJobs=N(10) GrpWall=N(9.90)
    GrpTRES=cpu=N(12),mem=N(1200),energy=N(0),node=N(3),billing=N(12)
    GrpTRESMins=cpu=N(0),mem=N(0),energy=N(0),node=N(0),billing=N(18)
    GrpTRESRunMins=cpu=N(120),mem=N(12000),energy=N(0),node=N(30),billing=N(120)
    MaxWallPJ=
    MaxTRESPJ=
    MaxTRESPN=
    MaxTRESMinsPJ=
    MinPrioThresh= 
    MinTRESPJ=
    PreemptMode=OFF
    Priority=0
    Account Limits
      physics
        MaxJobsPA=2(1) MaxJobsAccruePA=N(5) MaxSubmitJobsPA=N(7)
        MaxTRESPA=cpu=N(4),mem=N(400),energy=N(0),node=N(1),billing=N(4)
        MaxTRESRunMinsPA=cpu=N(40),mem=N(4000),energy=N(0),node=N(10),billing=N(40)
    User Limits
      alice(3001)
        MaxJobsPU=N(1) MaxJobsAccruePU=N(5) MaxSubmitJobsPU=N(7)
        MaxTRESPU=cpu=N(4),mem=N(400),energy=N(0),node=N(1),billing=N(4)
        MaxTRESRunMinsPU=cpu=N(40),mem=N(4000),energy=N(0),node=N(10),billing=N(40)
QOS=high(2)
    UsageRaw=0.000000
    GrpJobs=N(0) GrpJobsAccrue=N(0) GrpSubmitJobs=N(0) GrpWall=N(0.00)
    GrpTRES=cpu=N(0),mem=N(0),energy=N(0),node=N(0),billing=N(0)
    GrpTRESMins=cpu=N(0),mem=N(0),energy=N(0),node=N(0),billing=N(0)
    GrpTRESRunMins=cpu=N(0),mem=N(0),energy=N(0),node=N(0),billing=N(0)
    MaxWallPJ=
    MaxTRESPJ=
    MaxTRESPN=
    MaxTRESMinsPJ=
    MinPrioThresh= 
    MinTRESPJ=
    PreemptMode=REQUEUE
    Priority=100
    Account Limits
        No Accounts
    User Limits
        No Users
"
    );
}

#[test]
fn users_and_nothing() {
    assert_eq!(
        shown(&Choice { show_users: true, ..Choice::default() }),
        "\
Current Association Manager state

User Records

UserName=alice(3001) DefAccount=physics DefWckey=proj1 AdminLevel=None
UserName=eve(4294967294) DefAccount=(null) DefWckey= AdminLevel=Operator
"
    );
    let mut out = Vec::new();
    write(&mut out, &SharesBoard::default(), &Choice::default(), &|_| None).unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "Current Association Manager state\n\nNo users currently cached in Slurm.\n\n\n\
         No associations currently cached in Slurm.\n\n\nNo QOS currently cached in Slurm.\n\n"
    );
}
