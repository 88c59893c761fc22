#![allow(clippy::unwrap_used)]
use super::*;
use garrick_events::{event::Replayed, usage::Meter};
use garrick_model::entities::{
    association::Shares,
    names::{Account, User},
    qos::QosRecord,
};

fn at(text: &str) -> Timestamp {
    Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
}

fn assoc(id: u32, parent: Option<u32>, account: &str, user: Option<&str>) -> Association {
    Association {
        id: AssocId(id),
        cluster: "c".to_owned(),
        account: account.to_owned(),
        user: user.map(str::to_owned),
        parent: parent.map(AssocId),
        shares: Shares::Number(1),
        ..Association::default()
    }
}

/// root over physics over astro; alice in both, bob in astro.
fn entities() -> Entities {
    let all = [
        assoc(1, None, "root", None),
        assoc(2, Some(1), "physics", None),
        assoc(3, Some(2), "physics", Some("alice")),
        assoc(4, Some(2), "astro", None),
        assoc(5, Some(4), "astro", Some("alice")),
        assoc(6, Some(4), "astro", Some("bob")),
    ];
    let qos = ["normal", "free"].map(|name| (name.to_owned(), QosRecord::new(1, name)));
    Entities { associations: all.map(|own| (own.id, own)).into(), qos: qos.into(), ..Entities::default() }
}

fn who(account: &str, user: &str) -> Who {
    Who { account: account.to_owned(), user: user.to_owned(), partition: None }
}

fn config(period: ResetPeriod) -> Config {
    let mut config = Config::default();
    config.cluster_name = "c".to_owned();
    config.priority.reset_period = period;
    config
}

fn state(events: Vec<UsageEvent>) -> Replayed {
    let mut state = Replayed::default();
    events.into_iter().for_each(|event| state.apply(&ControllerEvent::Usage(Box::new(event))).unwrap());
    state
}

#[test]
fn periods_end_as_the_calendar_says() {
    let now = at("2026-11-28T03:00:00Z");
    for (period, last, next) in [
        (ResetPeriod::Daily, "2026-11-28T00:00:00Z", "2026-11-29T00:00:00Z"),
        // The 22nd is a Sunday.
        (ResetPeriod::Weekly, "2026-11-22T00:00:00Z", "2026-11-29T00:00:00Z"),
        (ResetPeriod::Monthly, "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"),
        (ResetPeriod::Quarterly, "2026-10-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        (ResetPeriod::Yearly, "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
    ] {
        assert_eq!(boundaries(period, now, &TimeZone::UTC), Some((at(last), at(next))), "{period:?}");
    }
    assert_eq!(boundaries(ResetPeriod::None, now, &TimeZone::UTC), None);
    let berlin = TimeZone::fixed(jiff::tz::offset(2));
    assert_eq!(
        boundaries(ResetPeriod::Daily, at("2026-07-01T22:30:00Z"), &berlin).unwrap().0,
        at("2026-07-01T22:00:00Z")
    );
}

#[test]
fn rules_are_saved_when_they_change_and_no_period_is_missed() {
    let (known, now) = (entities(), at("2026-11-28T03:00:00Z"));
    let daily = config(ResetPeriod::Daily);
    let first = due(&Usage::default(), &known, &daily, now, &TimeZone::UTC);
    let tomorrow = at("2026-11-29T00:00:00Z");
    let rules = UsageRules { half_life_secs: 604_800, next_reset: Some(tomorrow), no_decay: [].into() };
    assert_eq!(first, [UsageEvent::Rules { at: now, rules: rules.clone() }]);
    let saved = state(first);
    assert_eq!(due(&saved.usage, &known, &daily, now.plus(Duration::from_secs(60)), &TimeZone::UTC), []);
    // The controller was away for days.
    let later = at("2026-12-03T04:00:00Z");
    let caught_up = due(&saved.usage, &known, &daily, later, &TimeZone::UTC);
    let ends = [at("2026-12-03T00:00:00Z"), at("2026-12-04T00:00:00Z")];
    let of = |at, next| UsageEvent::Rules { at, rules: UsageRules { next_reset: Some(next), ..rules.clone() } };
    assert_eq!(caught_up, [of(tomorrow, ends[0]), of(later, ends[1])]);
    let mut without_decay = known;
    without_decay.qos.get_mut("free").unwrap().flags.insert(QosFlag::NoDecay);
    let changed = due(&saved.usage, &without_decay, &config(ResetPeriod::None), now, &TimeZone::UTC);
    let rules = UsageRules { next_reset: None, no_decay: ["free".to_owned()].into(), ..rules };
    assert_eq!(changed, [UsageEvent::Rules { at: now, rules }]);
}

#[test]
fn who_was_set_to_0_is_zeroed_once_with_all_below() {
    let (mut known, now) = (entities(), at("2026-11-28T03:00:00Z"));
    let meter = |since: i64| Meter { since: Timestamp(since), as_of: Timestamp(since), ..Meter::default() };
    let mut saved = state(vec![
        UsageEvent::Begin(UsageRules { half_life_secs: 604_800, ..UsageRules::default() }),
        UsageEvent::User(who("physics", "alice"), meter(10)),
        UsageEvent::User(who("astro", "bob"), meter(10)),
        UsageEvent::User(who("astro", "alice"), meter(30)),
        UsageEvent::Qos("normal".to_owned(), meter(10)),
        UsageEvent::Qos("free".to_owned(), meter(10)),
    ]);
    let none = config(ResetPeriod::None);
    assert_eq!(due(&saved.usage, &known, &none, now, &TimeZone::UTC), []);
    known.associations.get_mut(&AssocId(4)).unwrap().usage_reset = Some(Timestamp(20));
    known.qos.get_mut("free").unwrap().usage_reset = Some(Timestamp(20));
    // Who began after that is not meant.
    let zeroed = UsageEvent::Reset {
        at: now,
        users: vec![who("astro", "bob")],
        qos: vec!["free".to_owned()],
        asked: Some(Timestamp(20)),
    };
    assert_eq!(due(&saved.usage, &known, &none, now, &TimeZone::UTC), vec![zeroed.clone()]);
    saved.apply(&ControllerEvent::Usage(Box::new(zeroed))).unwrap();
    assert_eq!(due(&saved.usage, &known, &none, now, &TimeZone::UTC), []);
    known.associations.get_mut(&AssocId(2)).unwrap().usage_reset = Some(Timestamp(40));
    let both = vec![who("astro", "alice"), who("physics", "alice")];
    assert_eq!(
        due(&saved.usage, &known, &none, now, &TimeZone::UTC),
        [UsageEvent::Reset { at: now, users: both, qos: vec![], asked: Some(Timestamp(40)) }]
    );
}

#[test]
fn a_clock_of_accounting_that_is_ahead_zeroes_once() {
    let (mut known, now) = (entities(), at("2026-11-28T03:00:00Z"));
    let ahead = now.plus(Duration::from_secs(600));
    let meter = Meter { since: Timestamp(10), as_of: Timestamp(10), ..Meter::default() };
    let mut saved = state(vec![
        UsageEvent::Begin(UsageRules { half_life_secs: 604_800, ..UsageRules::default() }),
        UsageEvent::User(who("astro", "bob"), meter),
    ]);
    let none = config(ResetPeriod::None);
    known.associations.get_mut(&AssocId(4)).unwrap().usage_reset = Some(ahead);
    let due_at = |saved: &Replayed, known: &Entities, secs| {
        due(&saved.usage, known, &none, now.plus(Duration::from_secs(secs)), &TimeZone::UTC)
    };
    let first = due_at(&saved, &known, 0);
    assert!(matches!(&first[..], [UsageEvent::Reset { asked, .. }] if *asked == Some(ahead)), "{first:?}");
    first.into_iter().for_each(|event| saved.apply(&ControllerEvent::Usage(Box::new(event))).unwrap());
    assert_eq!(due_at(&saved, &known, 300), []);
    // It is asked for again, while the controller's clock is still behind.
    known.associations.get_mut(&AssocId(6)).unwrap().usage_reset = Some(ahead.plus(Duration::from_secs(1)));
    assert_eq!(due_at(&saved, &known, 400).len(), 1);
}

#[test]
fn a_user_sees_his_own_and_what_he_coordinates() {
    let mut known = entities();
    let seen = |known: &Entities, user: &str| visible(known, "c", user).into_iter().map(|id| id.0).collect::<Vec<_>>();
    assert_eq!((seen(&known, "alice"), seen(&known, "carol")), (vec![3, 5], vec![]));
    let coordinators = ["carol".to_owned()].into();
    known.users.insert("carol".to_owned(), User::default());
    known.accounts.insert("astro".to_owned(), Account { coordinators, ..Account::default() });
    assert_eq!(seen(&known, "carol"), [4, 5, 6]);
}
