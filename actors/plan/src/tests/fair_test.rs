//! Fair shares: Slurm's own examples and output, and the definition of Fair Tree, for any tree.
#![allow(clippy::unwrap_used)]

use crate::{
    rules::fair::{FairShares, Method},
    snapshot::accounting::AccountingTable,
};
use garrick_model::{
    entities::{
        Entities,
        association::{AssocId, Association, Shares},
        qos::QosRecord,
        used::{BILLING, Used, Who},
    },
    spec::JobSpec,
    testing::{job, spec},
    time::Timestamp,
};
use proptest::prelude::*;
use std::{collections::BTreeMap, sync::Arc};

fn assoc(id: u32, parent: Option<u32>, account: &str, user: Option<&str>, shares: Shares) -> Association {
    Association {
        id: AssocId(id),
        cluster: "c".to_owned(),
        account: account.to_owned(),
        user: user.map(str::to_owned),
        parent: parent.map(AssocId),
        shares,
        ..Association::default()
    }
}

fn used(of: &[(&str, &str, f64)]) -> BTreeMap<Who, Used> {
    let one = |&(account, user, billed): &(&str, &str, f64)| {
        let who = Who { account: account.to_owned(), user: user.to_owned(), partition: None };
        (who, Used { tres: [(BILLING.to_owned(), billed)].into(), wall_secs: 0.0 })
    };
    of.iter().map(one).collect()
}

fn entities(all: impl IntoIterator<Item = Association>) -> Arc<Entities> {
    let associations = all.into_iter().map(|own| (own.id, own)).collect();
    Arc::new(Entities { associations, ..Entities::default() })
}

fn shares(entities: &Arc<Entities>, usage: &[(&str, &str, f64)], method: Method) -> FairShares {
    of_usage(entities, &used(usage), method)
}

fn of_usage(entities: &Arc<Entities>, used: &BTreeMap<Who, Used>, method: Method) -> FairShares {
    let table = Arc::new(AccountingTable::new(entities, "c"));
    FairShares::new(Arc::clone(entities), table, "c", used, method, Timestamp(0))
}

fn factor(shares: &FairShares, id: u32) -> f64 {
    shares.get(AssocId(id)).unwrap().factor.unwrap()
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-4
}

const N: fn(u32) -> Shares = Shares::Number;

/// The cluster of which sshare of Slurm 26.05.3 said what the test expects.
fn as_seen() -> Arc<Entities> {
    entities([
        assoc(1, None, "root", None, N(1)),
        assoc(31, Some(1), "root", Some("root"), N(1)),
        assoc(3, Some(1), "physics", None, N(1)),
        assoc(16, Some(3), "physics", Some("alice"), N(10)),
        assoc(4, Some(3), "astro", None, N(1)),
        assoc(17, Some(4), "astro", Some("bob"), N(1)),
        assoc(5, Some(3), "quantum", None, N(1)),
        assoc(13, Some(1), "chem", None, N(7)),
        assoc(20, Some(13), "chem", Some("alice"), N(1)),
        assoc(21, Some(13), "chem", Some("bob"), N(1)),
        assoc(22, Some(13), "chem", Some("dave"), N(1)),
        assoc(23, Some(13), "chem", Some("eve"), N(1)),
        assoc(14, Some(13), "chemsub", None, N(1)),
        assoc(15, Some(1), "chem2", None, N(1)),
    ])
}

/// As 22.05.8 showed it, with `FairShareDampeningFactor=3`.
#[test]
fn depth_oblivious_shares_are_those_of_slurm() {
    let tree = [
        (2, 1, "top", None, 1),
        (3, 1, "chem", None, 1),
        (4, 1, "physics", None, 3),
        (5, 4, "astro", None, 2),
        (12, 2, "top", Some("root"), 1),
        (13, 3, "chem", Some("mail"), 1),
        (14, 3, "chem", Some("uucp"), 5),
        (15, 4, "physics", Some("games"), 1),
        (16, 4, "physics", Some("news"), 2),
        (17, 4, "physics", Some("root"), 1),
        (18, 5, "astro", Some("lp"), 1),
        (19, 5, "astro", Some("man"), 3),
    ];
    let root = assoc(1, None, "root", None, N(1));
    let below = tree.map(|(id, parent, account, user, shares)| assoc(id, Some(parent), account, user, N(shares)));
    let usage = [
        ("top", "root", 4781.0),
        ("chem", "mail", 547.0),
        ("physics", "games", 275.0),
        ("physics", "news", 136.6),
        ("astro", "lp", 136.6),
        ("astro", "man", 136.6),
    ];
    let all = shares(&entities([root].into_iter().chain(below)), &usage, Method::DepthOblivious { dampening: 3 });
    for (id, effective, factor) in [
        (3, 0.090_991, 0.900_220),
        (13, 0.016_904, 0.889_434),
        (14, 0.0, 1.0),
        (4, 0.114_071, 0.957_024),
        (15, 0.019_234, 0.956_534),
        (16, 0.021_711, 0.975_230),
        (17, 0.0, 1.0),
        (5, 0.038_121, 0.956_916),
        (18, 0.009_618, 0.956_531),
        (19, 0.019_061, 0.971_067),
    ] {
        let share = all.get(AssocId(id)).unwrap();
        let apart = ((share.effective - effective).abs(), (share.factor.unwrap() - factor).abs());
        // It showed values of different minutes together.
        assert!(apart.0 <= 0.05 * effective && apart.1 < 2e-3, "{id}: {} {:?}", share.effective, share.factor);
    }
    // A minute in which nothing ran.
    let usage = [("top", "root", 769_669.0), ("chem", "mail", 102_204.0), ("physics", "news", 128_127.0)];
    let root = assoc(1, None, "root", None, N(1));
    let below = tree.map(|(id, parent, account, user, shares)| assoc(id, Some(parent), account, user, N(shares)));
    let all = shares(&entities([root].into_iter().chain(below)), &usage, Method::DepthOblivious { dampening: 1 });
    let mail = all.get(AssocId(13)).unwrap();
    let apart = ((mail.effective - 0.019_713).abs(), (mail.factor.unwrap() - 0.663_707).abs());
    assert!(apart.0 < 1e-6 && apart.1 < 1e-5, "{mail:?}");
}

#[test]
fn fair_tree_is_that_of_a_slurm_controller() {
    let usage = [("chem", "alice", 8.0), ("chem", "bob", 1.0), ("physics", "alice", 509.738), ("astro", "bob", 661.67)];
    let all = shares(&as_seen(), &usage, Method::Tree);
    let order: Vec<String> = all
        .iter()
        .map(|(own, share)| {
            let indent = " ".repeat(share.depth as usize);
            format!("{indent}{}{}", own.account, own.user.as_ref().map(|user| format!("/{user}")).unwrap_or_default())
        })
        .collect();
    assert_eq!(
        order,
        [
            "root",
            " root/root",
            " chem",
            "  chem/alice",
            "  chem/bob",
            "  chem/dave",
            "  chem/eve",
            "  chemsub",
            " chem2",
            " physics",
            "  physics/alice",
            "  astro",
            "   astro/bob",
            "  quantum"
        ]
    );
    let of = |id: u32| all.get(AssocId(id)).unwrap();
    assert!(near(of(13).norm_shares, 0.7) && near(of(13).effective, 0.007_624) && of(13).factor.is_none());
    assert!((of(13).level - 91.817).abs() < 0.01 && near(of(3).level, 0.100_768), "{:?}", of(13));
    assert!(near(of(4).level, 0.147_531) && near(of(4).norm_usage, 0.560_546) && near(of(4).effective, 0.564_852));
    assert!(near(of(16).norm_shares, 0.833_333) && near(of(16).level, 1.915_059));
    assert_eq!((of(14).level, of(31).level), (f64::INFINITY, f64::INFINITY));
    // bob has used a ninth of the account's here: only those who used nothing are tied.
    for (id, want) in [
        (31, 1.0),
        (22, 0.857_143),
        (23, 0.857_143),
        (21, 0.571_429),
        (20, 0.428_571),
        (16, 0.285_714),
        (17, 0.142_857),
    ] {
        assert!(near(factor(&all, id), want), "{id}: {}", factor(&all, id));
    }
    let usage = [("chem", "alice", 7.1), ("physics", "alice", 509.738), ("astro", "bob", 661.67)];
    let all = shares(&as_seen(), &usage, Method::Tree);
    for (id, want) in [(31, 1.0), (21, 0.857_143), (22, 0.857_143), (23, 0.857_143), (20, 0.428_571), (16, 0.285_714)] {
        assert!(near(factor(&all, id), want), "{id}: {}", factor(&all, id));
    }
}

/// The example of Slurm's page on the classic algorithm.
#[test]
fn classic_shares_are_those_of_slurms_example() {
    let tree = entities([
        assoc(1, None, "root", None, N(1)),
        assoc(2, Some(1), "a", None, N(40)),
        assoc(3, Some(1), "d", None, N(60)),
        assoc(4, Some(2), "b", None, N(30)),
        assoc(5, Some(2), "c", None, N(10)),
        assoc(6, Some(3), "e", None, N(25)),
        assoc(7, Some(3), "f", None, N(35)),
        assoc(11, Some(4), "b", Some("user1"), N(1)),
        assoc(12, Some(5), "c", Some("user2"), N(1)),
        assoc(13, Some(5), "c", Some("user3"), N(1)),
        assoc(14, Some(6), "e", Some("user4"), N(1)),
        assoc(15, Some(7), "f", Some("user5"), N(1)),
    ]);
    // The page speaks of parts of the machine, which is used to 70 %.
    let usage = [("b", "user1", 0.2), ("c", "user2", 0.25), ("e", "user4", 0.25)];
    let all = shares(&tree, &usage, Method::Classic { dampening: 1 });
    let of = |id: u32| all.get(AssocId(id)).unwrap();
    let norm = |used: f64| used / 0.7;
    assert!(near(of(4).effective, norm(0.3875)) && near(of(7).effective, norm(0.145_833)));
    for (id, share, effective) in
        [(11, 0.3, 0.3875), (12, 0.05, 0.275), (13, 0.05, 0.15), (14, 0.25, 0.25), (15, 0.35, 0.145_833)]
    {
        assert!(near(of(id).norm_shares, share) && near(of(id).effective, norm(effective)), "{id}: {:?}", of(id));
        assert!(near(factor(&all, id), (-norm(effective) / share).exp2()), "{id}");
    }
    let dampened = shares(&tree, &usage, Method::Classic { dampening: 5 });
    assert!(near(factor(&dampened, 12), (-norm(0.275) / 0.05 / 5.0).exp2()));
}

#[test]
fn who_has_the_shares_of_his_account_ranks_with_it_and_accounts_may_be_left_out_of_the_tree() {
    let tree = |of_users: Shares, of_group: Shares| {
        entities([
            assoc(1, None, "root", None, N(1)),
            assoc(2, Some(1), "busy", None, N(1)),
            assoc(3, Some(2), "busy", Some("alice"), of_users),
            assoc(4, Some(2), "busy", Some("bob"), of_users),
            assoc(5, Some(1), "group", None, of_group),
            assoc(6, Some(5), "group", Some("carol"), N(1)),
            assoc(7, Some(5), "group", Some("dave"), N(3)),
        ])
    };
    let usage = [("busy", "alice", 90.0), ("busy", "bob", 10.0), ("group", "carol", 20.0), ("group", "dave", 10.0)];
    let all = shares(&tree(Shares::Parent, N(1)), &usage, Method::Tree);
    assert_eq!([3, 4, 6, 7].map(|id| factor(&all, id)), [0.5, 0.5, 0.75, 1.0]);
    assert_eq!(all.get(AssocId(3)).unwrap().level.to_bits(), all.get(AssocId(2)).unwrap().level.to_bits());
    // carol and dave count beside the account of alice and bob: shares 1, 1 and 3.
    let all = shares(&tree(N(1), Shares::Parent), &usage, Method::Tree);
    assert!(near(all.get(AssocId(7)).unwrap().norm_shares, 0.6) && near(all.get(AssocId(2)).unwrap().norm_shares, 0.2));
    let classic = shares(&tree(Shares::Parent, N(1)), &usage, Method::Classic { dampening: 1 });
    assert!(near(factor(&classic, 3), factor(&classic, 2)) && near(factor(&classic, 3), factor(&classic, 4)));
}

#[test]
fn jobs_have_the_factors_of_their_associations_and_qos() {
    let mut known = (*as_seen()).clone();
    known.associations.get_mut(&AssocId(16)).unwrap().is_default = true;
    known.associations.get_mut(&AssocId(13)).unwrap().priority = Some(40);
    known.associations.get_mut(&AssocId(16)).unwrap().priority = Some(10);
    for (id, name, priority) in [(1, "normal", 0), (2, "high", 100), (3, "low", 1)] {
        known.qos.insert(name.to_owned(), QosRecord { priority, ..QosRecord::new(id, name) });
    }
    let usage = [("physics", "alice", 5.0), ("chem", "bob", 1.0)];
    let all = shares(&Arc::new(known), &usage, Method::Tree);
    let of = |account: Option<&str>, qos: Option<&str>| {
        let spec = JobSpec { account: account.map(str::to_owned), qos: qos.map(str::to_owned), ..spec() };
        let mut view = job(7, spec);
        view.user = "alice".to_owned();
        let standing = all.standing(&view, true, true);
        (standing.fairshare, standing.assoc, standing.qos)
    };
    assert_eq!(of(None, Some("HIGH")), (factor(&all, 16), 0.25, 1.0));
    assert_eq!(of(Some("Chem"), Some("low")), (factor(&all, 20), 1.0, 0.01));
    assert_eq!(of(Some("astro"), None), (0.0, 0.0, 0.0));
    let view = job(7, JobSpec { account: None, qos: Some("high".to_owned()), ..spec() });
    assert_eq!(all.standing(&view, false, false).qos.to_bits(), 100_f64.to_bits());
}

/// A tree of accounts: the parent of each is one before it. Shares and usage of users and shares of accounts.
type Made = (Vec<(u32, u32)>, Vec<(u32, u32, u32)>);

fn made(tree: &Made) -> (Arc<Entities>, BTreeMap<Who, Used>) {
    let (accounts, users) = tree;
    let mut all = vec![assoc(1, None, "a1", None, N(1))];
    for (number, (parent, shares)) in (2..).zip(accounts) {
        all.push(assoc(number, Some(parent % (number - 1) + 1), &format!("a{number}"), None, N(*shares)));
    }
    let count = u32::try_from(all.len()).unwrap();
    let mut usage = BTreeMap::new();
    for (number, (account, shares, amount)) in (1000..).zip(users) {
        let (account, user) = (account % count + 1, format!("u{number}"));
        all.push(assoc(number, Some(account), &format!("a{account}"), Some(&user), N(*shares)));
        usage.extend(used(&[(&format!("a{account}"), &user, f64::from(*amount))]));
    }
    (entities(all), usage)
}

proptest! {
    /// Fair Tree as its page defines it: below the first accounts in which two users' ways differ, all users of the side with the
    /// greater level fair share have greater factors than all of the other; equal siblings are tied at their best; the factors are
    /// the ranks.
    #[test]
    fn the_order_is_that_of_the_definition(
        accounts in proptest::collection::vec((any::<u32>(), 1..4_u32), 0..12),
        users in proptest::collection::vec((any::<u32>(), 1..4_u32, 0..5_u32), 1..30),
    ) {
        let (known, usage) = made(&(accounts, users));
        let all = of_usage(&known, &usage, Method::Tree);
        let ways: Vec<(AssocId, Vec<AssocId>)> = known
            .associations
            .values()
            .filter(|own| own.user.is_some())
            .map(|own| {
                let mut way: Vec<AssocId> = known.lineage(own.id).map(|above| above.id).collect();
                way.reverse();
                (own.id, way)
            })
            .collect();
        let level = |id: AssocId| all.get(id).unwrap().level;
        let factor = |id: AssocId| all.get(id).unwrap().factor.unwrap();
        for (a, way_a) in &ways {
            prop_assert!(factor(*a) > 0.0 && factor(*a) <= 1.0);
            for (b, way_b) in &ways {
                let Some((x, y)) = way_a.iter().zip(way_b).find(|(x, y)| x != y) else { continue };
                if level(*x) > level(*y) {
                    prop_assert!(factor(*a) > factor(*b), "{a:?} {b:?}");
                } else if level(*x).to_bits() == level(*y).to_bits() && x == a && y == b {
                    prop_assert!(factor(*a).to_bits() == factor(*b).to_bits(), "{a:?} {b:?}");
                }
            }
        }
        let best = ways.iter().map(|(id, _)| factor(*id)).fold(0.0, f64::max);
        prop_assert!((best - 1.0).abs() < 1e-12);
        // A user's rank is the number of those who are not ahead of him.
        let count = f64::from(u32::try_from(ways.len()).unwrap());
        for (a, _) in &ways {
            let ahead = ways.iter().filter(|(b, _)| factor(*b) > factor(*a)).count();
            let want = (count - f64::from(u32::try_from(ahead).unwrap())) / count;
            prop_assert!((factor(*a) - want).abs() < 1e-12, "{a:?}: {} {}", factor(*a), want);
        }
    }

    /// Where all always want more than there is, and who has the greatest factor runs next, what everybody gets in the end is his
    /// share.
    #[test]
    fn shares_converge(users in proptest::collection::vec(1..10_u32, 2..6), classic in any::<bool>()) {
        // The classic algorithm is only fair to accounts just under the root.
        let mut all = vec![assoc(1, None, "root", None, N(1))];
        for (number, shares) in (10..).zip(&users) {
            all.push(assoc(number + 100, Some(1), &format!("u{number}"), None, N(*shares)));
            all.push(assoc(number, Some(number + 100), &format!("u{number}"), Some(&format!("u{number}")), N(1)));
        }
        let known = entities(all);
        let method = if classic { Method::Classic { dampening: 1 } } else { Method::Tree };
        let mut got: BTreeMap<u32, f64> = (10..).zip(&users).map(|(number, _)| (number, 0.0)).collect();
        for _ in 0..2000 {
            let usage: Vec<(String, f64)> = got.iter().map(|(number, used)| (format!("u{number}"), *used)).collect();
            let usage: Vec<(&str, &str, f64)> = usage.iter().map(|(user, used)| (user.as_str(), user.as_str(), *used)).collect();
            let now = shares(&known, &usage, method);
            let next = got.keys().copied().max_by(|a, b| factor(&now, *a).total_cmp(&factor(&now, *b))).unwrap();
            *got.get_mut(&next).unwrap() += 1.0;
        }
        let sum: u32 = users.iter().sum();
        for ((_, used), shares) in got.iter().zip(&users) {
            let want = f64::from(*shares) / f64::from(sum);
            prop_assert!((used / 2000.0 - want).abs() < 0.01, "{used} of 2000 for {shares} of {sum}");
        }
    }
}
