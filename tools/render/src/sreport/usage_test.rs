//! Reports as sreport of Slurm 26.05.3 printed them, from what its jobs had used.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::{
    field_table::Setting,
    sacctmgr::samples,
    sreport::{
        Window, cluster,
        sizes::{self, Grouping},
        units::Units,
    },
};
use garrick_model::{
    entities::{
        Entities,
        association::{AssocId, Association},
        names::User,
    },
    time::Timestamp,
};

/// 2026-11-23T08:00.
const START: i64 = 1_795_420_800;

fn entities() -> Entities {
    let mut entities = samples::tree();
    let cluster = entities.clusters.get_mut("cluster").unwrap();
    cluster.tres = [("cpu", 12), ("mem", 6000), ("gres/gpu", 2)].map(|(name, n)| (name.to_owned(), n)).into();
    // It was there for 1312 of the 3600 seconds.
    cluster.created = Timestamp::from_secs(START + 3600 - 1312);
    let carol = Association {
        id: AssocId(33),
        cluster: "cluster".to_owned(),
        account: "chem".to_owned(),
        user: Some("carol".to_owned()),
        parent: Some(AssocId(6)),
        deleted: true,
        ..Association::default()
    };
    entities.associations.insert(carol.id, carol);
    entities.users.insert("carol".to_owned(), User { name: "carol".to_owned(), ..User::default() });
    entities
}

fn row(
    account: &str,
    user: &str,
    wckey: Option<&str>,
    qos: Option<&str>,
    (cpus, jobs, secs): (u64, u64, u64),
) -> UsageRow {
    let (account, user) = (Some(account.to_owned()), user.to_owned());
    let (wckey, qos) = (wckey.map(str::to_owned), qos.map(str::to_owned));
    let key = UsageKey { cluster: "cluster".to_owned(), account, user, wckey, qos, cpus };
    let tres_secs = [("cpu".to_owned(), secs), ("gres/gpu".to_owned(), secs / 20)].into();
    UsageRow { key, sum: UsageSum { jobs, tres_secs, ..UsageSum::default() } }
}

fn rows() -> Vec<UsageRow> {
    vec![
        row("root", "root", Some("x"), None, (1, 1, 13)),
        row("chem", "alice", Some("proj1"), None, (1, 1, 5)),
        row("chem", "alice", Some("*proj1"), None, (2, 2, 49)),
        row("chem", "carol", None, None, (1, 1, 2)),
        row("physics", "alice", Some("*proj1"), Some("high"), (2, 4, 60)),
        row("physics", "alice", Some("*proj1"), None, (4, 3, 840)),
        row("astro", "bob", Some("*proj1"), None, (8, 9, 1379)),
        row("astro", "bob", Some("nosuch"), None, (1, 1, 8)),
    ]
}

fn with<T>(units: &str, tres: &[&str], run: impl FnOnce(&Facts<'_>) -> T) -> T {
    let entities = entities();
    let tres: Vec<String> = tres.iter().map(|tres| (*tres).to_owned()).collect();
    let proper = |user: &str| {
        let mut letters = user.chars();
        letters.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
    };
    let window = Window { start: Timestamp::from_secs(START), end: Timestamp::from_secs(START + 3600) };
    let now = Timestamp::from_secs(START + 4000);
    let units = Units::read(units).unwrap();
    run(&Facts { entities: &entities, window, now, units, tres: &tres, proper: &proper, events: &[] })
}

fn shown(report: Report, choice: &Choice) -> String {
    shown_in(report, choice, "minutes", &["cpu"])
}

fn shown_in(report: Report, choice: &Choice, units: &str, tres: &[&str]) -> String {
    with(units, tres, |facts| {
        let columns = columns(report, None, (tres.len() > 1, facts.units.both(), choice.tree)).unwrap();
        let mut out = Vec::new();
        Setting::Columns.heading(&mut out, &columns).unwrap();
        for line in &lines(report, &rows(), facts, choice) {
            Setting::Columns.row(&mut out, &columns, |shown| shown(line).to_owned()).unwrap();
        }
        String::from_utf8(out).unwrap()
    })
}

#[test]
fn accounts_have_what_those_below_them_used() {
    let expected = [
        "  Cluster         Account     Login     Proper Name     Used   Energy ",
        "--------- --------------- --------- --------------- -------- -------- ",
        "  cluster            root                                 39        0 ",
        "  cluster            root      root            Root        0        0 ",
        "  cluster            chem                                  1        0 ",
        "  cluster            chem     alice           Alice        1        0 ",
        "  cluster            chem     carol           Carol        0        0 ",
        "  cluster         physics                                 38        0 ",
        "  cluster         physics     alice           Alice       15        0 ",
        "  cluster           astro                                 23        0 ",
        "  cluster           astro       bob             Bob       23        0 ",
        "",
    ];
    assert_eq!(shown(Report::AccountByUser, &Choice::default()), expected.join("\n"));
    let tree = shown(Report::AccountByUser, &Choice { tree: true, ..Choice::default() });
    assert!(tree.contains("\n  cluster   astro                                              23        0 \n"), "{tree}");
    assert!(tree.contains("\n  cluster    astro                   bob             Bob       23        0 \n"), "{tree}");
    let physics = Choice { accounts: vec!["physics".to_owned()], ..Choice::default() };
    let of_physics: Vec<&str> = expected[..2].iter().chain(&expected[7..]).copied().collect();
    assert_eq!(shown(Report::AccountByUser, &physics), of_physics.join("\n"));
    let bob = Choice { users: vec!["bob".to_owned()], ..Choice::default() };
    let of_bob: Vec<&str> = expected[..2].iter().chain(&expected[10..]).copied().collect();
    assert_eq!(shown(Report::AccountByUser, &bob), of_bob.join("\n"));
    let percent = shown_in(Report::AccountByUser, &Choice::default(), "minper", &["cpu"]);
    assert!(
        percent
            .contains("\n  cluster            root      root            Root          0(0.08%)          0(0.00%) \n"),
        "{percent}"
    );
    let two = shown_in(Report::AccountByUser, &bob, "minutes", &["cpu", "gres/gpu"]);
    let expected = [
        "  Cluster         Account     Login     Proper Name      TRES Name     Used ",
        "--------- --------------- --------- --------------- -------------- -------- ",
        "  cluster           astro       bob             Bob            cpu       23 ",
        "  cluster           astro       bob             Bob       gres/gpu        1 ",
        "",
    ];
    assert_eq!(two, expected.join("\n"));
}

#[test]
fn users_are_ordered_by_what_they_used() {
    let expected = [
        "  Cluster     Login     Proper Name         Account     Used   Energy ",
        "--------- --------- --------------- --------------- -------- -------- ",
        "  cluster       bob             Bob           astro       23        0 ",
        "  cluster     alice           Alice         physics       15        0 ",
        "  cluster     alice           Alice            chem        1        0 ",
        "  cluster      root            Root            root        0        0 ",
        "  cluster     carol           Carol            chem        0        0 ",
        "",
    ];
    assert_eq!(shown(Report::UserByAccount, &Choice::default()), expected.join("\n"));
    let top = |top, group| shown(Report::TopUsage, &Choice { top, group, ..Choice::default() });
    assert_eq!(top(10, false), expected.join("\n"));
    assert_eq!(top(1, false), [expected[0], expected[1], expected[2], ""].join("\n"));
    let group = top(10, true);
    assert!(group.contains("\n  cluster     alice           Alice   chem, physics       16        0 \n"), "{group}");
    assert_eq!(
        (title(Report::TopUsage, 10), title(Report::Cluster, 0)),
        ("Top 10 Users".into(), "Cluster Utilization".into())
    );
}

#[test]
fn wckeys_and_qos_are_told_apart() {
    let expected = [
        "  Cluster           WCKey     Login     Proper Name     Used ",
        "--------- --------------- --------- --------------- -------- ",
        "  cluster               *                                  0 ",
        "  cluster               *     carol           Carol        0 ",
        "  cluster          *proj1                                 39 ",
        "  cluster          *proj1     alice           Alice       16 ",
        "  cluster          *proj1       bob             Bob       23 ",
        "  cluster          nosuch                                  0 ",
        "  cluster          nosuch       bob             Bob        0 ",
        "  cluster           proj1                                  0 ",
        "  cluster           proj1     alice           Alice        0 ",
        "  cluster               x                                  0 ",
        "  cluster               x      root            Root        0 ",
        "",
    ];
    assert_eq!(shown(Report::WckeyByUser, &Choice::default()), expected.join("\n"));
    let users = shown(Report::UserByWckey, &Choice { wckeys: vec!["proj1".to_owned()], ..Choice::default() });
    assert!(users.ends_with("\n  cluster     alice           Alice           proj1        0 \n"), "{users}");
    let qos = shown(Report::AccountByQos, &Choice { accounts: vec!["physics".to_owned()], ..Choice::default() });
    let expected = [
        "  Cluster         Account          QOS     Used   Energy ",
        "--------- --------------- ------------ -------- -------- ",
        "  cluster         physics       normal       37        0 ",
        "  cluster         physics         high        1        0 ",
        "  cluster           astro       normal       23        0 ",
        "",
    ];
    assert_eq!(qos, expected.join("\n"));
}

#[test]
fn a_cluster_had_what_was_there_of_it() {
    let of = |units: &str, tres: &[&str]| {
        with(units, tres, |facts| {
            let columns = cluster::columns(None, tres.len() > 1, facts.units.both()).unwrap();
            let rows = rows();
            let recorded = cluster::Recorded { rows: &rows, reserved: &[] };
            let mut out = Vec::new();
            Setting::Columns.heading(&mut out, &columns).unwrap();
            for line in &cluster::lines(recorded, facts, |_| true) {
                Setting::Columns.row(&mut out, &columns, |shown| shown(line)).unwrap();
            }
            String::from_utf8(out).unwrap()
        })
    };
    let heading = "  Cluster Allocate     Down PLND Dow     Idle  Planned Reported \n\
         --------- -------- -------- -------- -------- -------- -------- \n";
    assert_eq!(
        of("minutes", &["cpu"]).strip_prefix(heading).unwrap(),
        "  cluster       39        0        0      223        0      262 \n"
    );
    assert_eq!(
        of("percent", &["cpu"]).strip_prefix(heading).unwrap(),
        "  cluster   14.96%    0.00%    0.00%   85.04%    0.00%   36.44% \n"
    );
    let both = of("minper", &["cpu"]);
    assert!(both.starts_with("  Cluster         Allocated              Down         PLND Down              Idle           Planned          Reported \n"), "{both}");
    let two = of("minutes", &["cpu", "gres/gpu"]);
    assert!(
        two.ends_with("  cluster       gres/gpu        2        0        0       42        0       44 \n"),
        "{two}"
    );
    assert_eq!(cluster::columns(Some("cluster,bogus"), false, false).unwrap_err(), "bogus");
}

#[test]
fn jobs_are_grouped_by_their_size() {
    let of = |report, choice: &sizes::Choice| {
        with("minutes", &["cpu"], |facts| {
            let mut out = Vec::new();
            sizes::write(&mut out, (&Setting::Columns, true), report, &rows(), (facts, choice)).unwrap();
            String::from_utf8(out).unwrap()
        })
    };
    let heading = [
        "  Cluster   Account     0-49 CPUs   50-249 CPUs  250-499 CPUs  500-999 CPUs  >= 1000 CPUs Total Count % of cluster ",
        "--------- --------- ------------- ------------- ------------- ------------- ------------- ----------- ------------ ",
    ];
    let usual = of(Report::SizesByAccount, &sizes::Choice::default());
    let line = "  cluster      root            39             0             0             0             0          39      100.00% ";
    assert_eq!(usual, [heading[0], heading[1], line, ""].join("\n"));
    let parents = of(Report::SizesByAccount, &sizes::Choice { parents: true, ..sizes::Choice::default() });
    assert!(parents.contains("\n  cluster   physics            38             0             0             0             0          38       97.07% \n"), "{parents}");
    let flat = of(Report::SizesByAccount, &sizes::Choice { flat: true, counts: true, ..sizes::Choice::default() });
    assert!(flat.contains("\n  cluster     astro            10             0             0             0             0          10       45.45% \n"), "{flat}");
    let users = vec!["alice".to_owned()];
    let alice = of(Report::SizesByAccount, &sizes::Choice { users, counts: true, ..sizes::Choice::default() });
    assert!(alice.contains("\n  cluster      root            10             0             0             0             0          10      100.00% \n"), "{alice}");
    let grouping = Grouping::read("1,2,4").unwrap();
    let groups = of(Report::SizesByAccount, &sizes::Choice { grouping, ..sizes::Choice::default() });
    assert!(
        groups.starts_with(
            "  Cluster   Account      0-0 CPUs      1-1 CPUs      2-3 CPUs     >= 4 CPUs Total Count % of cluster \n"
        ),
        "{groups}"
    );
    let grouping = Grouping::read("individual").unwrap();
    let each = of(Report::SizesByWckey, &sizes::Choice { grouping, counts: true, ..sizes::Choice::default() });
    assert!(
        each.starts_with(
            "  Cluster     Wckey        1 CPUs        2 CPUs        4 CPUs        8 CPUs Total Count % of cluster \n"
        ),
        "{each}"
    );
    let both = of(Report::SizesByAccountAndWckey, &sizes::Choice::default());
    assert!(both.contains("\n  cluster root:*proj1                     39 "), "{both}");
}

#[test]
fn fields_are_found_and_refused() {
    let names = |format| {
        columns(Report::AccountByUser, Some(format), (false, false, false))
            .map(|all| all.iter().map(|c| c.field.name).collect::<Vec<_>>())
    };
    assert_eq!(
        names("Accounts%20,Login%5,Proper,Used,TresCount,TresName,Energy").unwrap(),
        ["Account", "Login", "Proper Name", "Used", "TRES Count", "TRES Name", "Energy"]
    );
    assert_eq!(names("cluster,bogus").unwrap_err(), "bogus");
}
