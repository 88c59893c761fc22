#![allow(clippy::unwrap_used)]
use super::*;
use crate::{
    field_table::Setting,
    testing::{meta, shares_board},
};

fn shown(words: &[&str], users: Option<&[&str]>, accounts: Option<&[&str]>, users_only: bool) -> String {
    let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let choice = Choice { accounts: accounts.map(own), users: users.map(own), users_only };
    let board = shares_board();
    let (long, partition) = (words.contains(&"-l"), words.contains(&"-m"));
    let columns = columns(&usual(long, partition, board.fair_tree)).unwrap();
    let mut out = Vec::new();
    write(&mut out, &rows(&board, &choice), &columns, &Setting::Columns, true).unwrap();
    String::from_utf8(out).unwrap()
}

/// As Slurm 26.05.3 printed them.
#[test]
fn all_users_of_all_accounts() {
    assert_eq!(
        shown(&["-l"], None, None, false),
        "\
Account                    User  RawShares  NormShares    RawUsage   NormUsage  EffectvUsage  FairShare    LevelFS                    GrpTRESMins                    TRESRunMins 
-------------------- ---------- ---------- ----------- ----------- ----------- ------------- ---------- ---------- ------------------------------ ------------------------------ 
root                                          0.000000        1180                  1.000000                                                      cpu=120,mem=12000,energy=0,no+ 
 root                      root          1    0.100000           0    0.000000      0.000000   1.000000        inf                                cpu=0,mem=0,energy=0,node=0,b+ 
 chem                                    7    0.700000           8    0.007624      0.007624             91.817105                                cpu=0,mem=0,energy=0,node=0,b+ 
  chem                    alice          1    0.200000           7    0.006777      0.888889   0.428571   0.225000                                cpu=0,mem=0,energy=0,node=0,b+ 
 physics                                 1    0.100000        1171    0.992376      0.992376              0.100768                                cpu=120,mem=12000,energy=0,no+ 
  physics                 alice         10    0.833333         509    0.431830      0.435148   0.285714   1.915059                                cpu=40,mem=4000,energy=0,node+ 
  astro                                  1    0.083333         661    0.560546      0.564852              0.147531                                cpu=80,mem=8000,energy=0,node+ 
   astro                    bob          1    1.000000         661    0.560546      1.000000   0.142857   1.000000                                cpu=80,mem=8000,energy=0,node+ 
"
    );
}

#[test]
fn accounts_are_indented_below_those_that_are_shown() {
    let astro = Some(&["physics", "astro"][..]);
    assert_eq!(
        shown(&[], None, astro, false).lines().skip(2).collect::<Vec<_>>(),
        [
            "physics                                  1    0.100000        1171      0.992376            ",
            " physics                  alice         10    0.833333         509      0.435148   0.285714 ",
            " astro                                   1    0.083333         661      0.564852            ",
            "  astro                     bob          1    1.000000         661      1.000000   0.142857 ",
        ]
    );
    let (alice, no_accounts) = (Some(&["alice"][..]), None);
    assert_eq!(
        shown(&["-m"], alice, no_accounts, true),
        "\
Account                    User    Partition  RawShares  NormShares    RawUsage  EffectvUsage  FairShare 
-------------------- ---------- ------------ ---------- ----------- ----------- ------------- ---------- 
chem                      alice                       1    0.200000           7      0.888889   0.428571 
physics                   alice                      10    0.833333         509      0.435148   0.285714 
"
    );
    // A branch that is not shown is not indented for.
    assert!(shown(&[], None, Some(&["chem", "astro"]), false).contains("\nastro     "));
}

#[test]
fn fields_and_their_names() {
    let mut out = Vec::new();
    help_format(&mut out).unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "\
Account           Cluster           EffectvUsage      FairShare         
GrpTRESMins       GrpTRESRaw        ID                LevelFS           
NormShares        NormUsage         Partition         RawShares         
RawUsage          TRESRunMins       User              
"
    );
    let (board, choice) = (shares_board(), Choice::default());
    let columns = columns("account,grptresmins,grptresraw,levelfs,normusage").unwrap();
    let mut out = Vec::new();
    write(&mut out, &rows(&board, &choice)[..2], &columns, &Setting::Parsable2("|".to_owned()), false).unwrap();
    let root = "root||cpu=21,mem=2063,energy=0,node=10,billing=19||";
    assert_eq!(
        String::from_utf8(out).unwrap(),
        format!("{root}\n root||cpu=0,mem=0,energy=0,node=0,billing=0|inf|0.000000\n")
    );
}

#[test]
fn the_document_has_what_the_columns_have() {
    let board = shares_board();
    let document = document(&rows(&board, &Choice::default()), &meta());
    let shares = document["shares"]["shares"].as_array().unwrap();
    assert_eq!((shares.len(), document["shares"]["total_shares"].as_u64()), (8, Some(8)));
    let alice = shares.iter().find(|one| one["id"] == 16).unwrap();
    assert_eq!(
        (&alice["name"], &alice["parent"], &alice["type"]),
        (&json!("alice"), &json!("physics"), &json!(["USER"]))
    );
    assert_eq!(alice["shares"], json!({"set": true, "infinite": false, "number": 10}));
    assert_eq!((&alice["usage"], &alice["tres"]["usage"][0]["name"]), (&json!(509), &json!("cpu")));
    assert_eq!(shares[1]["fairshare"]["level"], json!({"set": false, "infinite": true, "number": 0.0}));
}
