//! Both types against each other and against what Slurm answers (`scontrol show hostnames|hostlist|hostlistsorted`).
#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn names(text: &str) -> String {
    expand(text).map_or_else(|e| e.to_string(), |names| names.join(" "))
}
fn folded(text: &str) -> String {
    text.parse::<HostList>().unwrap().to_string()
}
fn sorted(text: &str) -> String {
    text.parse::<HostList>().unwrap().sorted().to_string()
}

#[test]
fn texts_expand_as_slurm_expands_them() {
    for (text, want) in [
        ("lx[0003-0005,8]", "lx0003 lx0004 lx0005 lx8"),
        ("r[1-2]n[01-03]", "r1n01 r1n02 r1n03 r2n01 r2n02 r2n03"),
        ("a,b[1-3],c", "a b1 b2 b3 c"),
        ("a[1-3],a[2-4]", "a1 a2 a3 a2 a3 a4"),
        ("a[09-11]", "a09 a10 a11"),
        ("a[9-11]", "a9 a10 a11"),
        ("a[1-2][3-4]", "a13 a14 a23 a24"),
        ("a,,b", "a b"),
        ("a b\tc", "a b c"),
        ("", ""),
        ("[1-3]", "1 2 3"),
        ("10.0.0.[1-3]", "10.0.0.1 10.0.0.2 10.0.0.3"),
        ("a[001-3]", "a001 a002 a003"),
        ("a[1-003]", "a1 a2 a3"),
        ("x[1-2]-ib", "x1-ib x2-ib"),
        ("n[1,3]s[2,4]e", "n1s2e n1s4e n3s2e n3s4e"),
        ("host", "host"),
    ] {
        assert_eq!(names(text), want, "{text}");
    }
}

#[test]
fn lists_fold_as_slurm_folds_them() {
    for (text, want) in [
        ("a1,a2,a3,b7", "a[1-3],b7"),
        ("a3,a1,a2", "a[3,1-2]"),
        ("a01,a1,a001", "a[01,1,001]"),
        ("a9,a10,a11", "a[9-11]"),
        ("a09,a10,a11", "a[09-11]"),
        ("r1n1,r1n2,r2n1,r2n2", "r1n[1-2],r2n[1-2]"),
        ("a[1-3],a[2-4]", "a[1-3,2-4]"),
        ("n1,n3,n2,n2", "n[1,3,2,2]"),
        ("a[0-1],b0,a2", "a[0-1],b0,a2"),
        ("n0,n1,n02,n03,n4", "n[0-1,02-03,4]"),
        ("1,2,3", "[1-3]"),
        ("x1-ib,x2-ib", "x1-ib,x2-ib"),
        ("x[1-2]-ib", "x[1-2]-ib"),
        ("b,a,c,a", "b,a,c,a"),
    ] {
        assert_eq!(folded(text), want, "{text}");
    }
}

#[test]
fn lists_sort_as_slurm_sorts_them() {
    for (text, want) in [
        ("a3,a1,a2", "a[1-3]"),
        ("lx[0003-0005,8]", "lx[8,0003-0005]"),
        ("a[1-3],a[2-4]", "a[1-2,2-3,3-4]"),
        ("b,a,c,a", "a,a,b,c"),
        ("n1,n3,n2,n2", "n[1-2,2-3]"),
        ("n0,n1,n02,n03,n4", "n[0-1,4,02-03]"),
        ("r10n1,r2n1", "r2n1,r10n1"),
        ("n10,n9,n08", "n[9,08,10]"),
        ("a1,A1", "A1,a1"),
        ("z,a1,a", "a,a1,z"),
        ("a[1-2],b,a3", "a[1-3],b"),
    ] {
        assert_eq!(sorted(text), want, "{text}");
    }
    assert_eq!(fold_sorted(["n2", "n1", "n2", "n10", "n9"]), "n[1-2,9-10]");
}

#[test]
fn errors_name_the_place() {
    for (text, want) in [
        ("a[1", "host list \"a[1\": the bracket opened at column 2 is not closed"),
        ("a]1", "host list \"a]1\": nothing is open for the closing bracket at column 2"),
        ("a[1[2]]", "host list \"a[1[2]]\": a bracket inside brackets at column 4"),
        ("a[]", "host list \"a[]\": \"\" at column 3 is neither a number nor a range"),
        ("b,a[1,,2]", "host list \"b,a[1,,2]\": \"\" at column 7 is neither a number nor a range"),
        ("a[1 2]", "host list \"a[1 2]\": \"1 2\" at column 3 is neither a number nor a range"),
        ("a[1-3,b]", "host list \"a[1-3,b]\": \"b\" at column 7 is neither a number nor a range"),
        ("a[3-1]", "host list \"a[3-1]\": the range \"3-1\" at column 3 runs backwards"),
        ("a[1-1000001]", "host list \"a[1-1000001]\" stands for more than 1000000 names"),
        (
            "a[1-189643]b[2-4]",
            "host list \"a[1-189643]b[2-4]\": its pairs of brackets together make more than 100000 ranges",
        ),
        ("a[0-99999][0-99999]", "host list \"a[0-99999][0-99999]\" stands for more than 1000000 names"),
    ] {
        assert_eq!(names(text), want);
    }
    assert!(HostList::parse_limited("a[1-11]", 10).is_err());
    assert!(names("a[0-99999999999999999999]").contains("neither a number"));
}

#[test]
fn a_million_names_stay_one_range() {
    let list: HostList = "n[0-999999]".parse().unwrap();
    assert_eq!(list.len(), MAX_HOSTS);
    assert_eq!(list.get(999_999).unwrap(), "n999999");
    assert_eq!(list.position("n31415"), Some(31_415));
    assert!(!list.contains("n031415") && !list.contains("n1000000") && !list.contains("n"));
    let mut set = HostSet::from(&list);
    assert_eq!(set.len(), MAX_HOSTS);
    assert!(set.remove("n500000") && !set.remove("n500000"));
    assert_eq!(set.to_string(), "n[0-499999,500001-999999]");
    assert!(set.insert("n500000") && !set.insert("n500000"));
    assert_eq!(set.to_string(), "n[0-999999]");
}

#[test]
fn a_name_is_the_same_however_it_was_written() {
    let set: HostSet = "a[1-2][3-4],x[1-2]-ib".parse().unwrap();
    assert!(set.contains("a13") && set.contains("x2-ib"));
    assert_eq!(set, "a[13-14,23-24],x1-ib,x2-ib".parse().unwrap());
    assert_eq!("a[1-2][3-4]".parse::<HostList>().unwrap(), "a13,a14,a[23,24]".parse().unwrap());
}

#[test]
fn lists_travel_as_text() {
    let list: HostList = "a[1-3],b".parse().unwrap();
    let text = String::from(list.clone());
    assert_eq!(HostList::try_from(text).unwrap(), list);
}

fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ab]{1,2}[0-9]{0,3}",
        "r[0-9]{1,2}n[0-9]{1,2}",
        "[0-9]{1,3}",
        "x[0-9]{1,2}-ib",
        "n[0-9]{17,22}",
        (0u32..130).prop_map(|n| format!("c{n}")),
        (0u32..130).prop_map(|n| format!("c{n:03}")),
    ]
}

proptest! {
    #[test]
    fn folding_loses_nothing(names in proptest::collection::vec(any_name(), 0..60)) {
        prop_assert_eq!(&expand(&fold(&names)).unwrap(), &names);
        let list: HostList = names.iter().collect();
        prop_assert_eq!(list.len() as usize, names.len());
        for (n, name) in names.iter().enumerate() {
            let first = names.iter().position(|x| x == name).map(|n| n as u64);
            prop_assert_eq!(list.get(n as u64), Some(name.clone()));
            prop_assert_eq!(list.position(name), first);
        }
    }

    #[test]
    fn sorting_keeps_all_names(names in proptest::collection::vec(any_name(), 0..60)) {
        let list: HostList = names.iter().collect();
        let mut back: Vec<String> = list.sorted().iter().collect();
        prop_assert_eq!(expand(&list.sorted().to_string()).unwrap(), back.clone());
        let mut want = names;
        back.sort();
        want.sort();
        prop_assert_eq!(back, want);
    }

    #[test]
    fn sets_behave_as_sets(names in proptest::collection::vec(any_name(), 0..60), gone in proptest::collection::vec(any_name(), 0..20)) {
        let mut set: HostSet = names.iter().collect();
        let mut want: BTreeSet<String> = names.iter().cloned().collect();
        for name in &gone {
            prop_assert_eq!(set.remove(name), want.remove(name));
            prop_assert!(!set.contains(name));
        }
        prop_assert_eq!(set.len() as usize, want.len());
        prop_assert!(want.iter().all(|name| set.contains(name)));
        prop_assert_eq!(set.iter().collect::<BTreeSet<_>>(), want);
        prop_assert_eq!(&set.to_string().parse::<HostSet>().unwrap(), &set);
        prop_assert_eq!(set.to_list().sorted(), set.to_list());
    }

    #[test]
    fn any_text_is_a_list_or_an_error(s in "\\PC{0,30}|[a-c0-9,\\[\\]-]{0,30}") {
        if let Ok(list) = HostList::parse_limited(&s, 5000) {
            prop_assert_eq!(list.to_string().parse::<HostList>().unwrap(), list);
        }
    }
}
