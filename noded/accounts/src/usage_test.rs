//! Sums of the store against a straightforward recomputation.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::testing::on_each;
use garrick_accounts::messages::LogId;
use garrick_events::testing::record;
use garrick_model::{ids::Sluid, spec::JobSpec};

/// Numbers that look random, the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn time(&mut self, bound: u64) -> Timestamp {
        Timestamp(i64::try_from(self.below(bound)).unwrap() * 7)
    }
}

const ACCOUNTS: [Option<&str>; 3] = [None, Some("physics"), Some("chem")];

/// A run that waits, runs or is over, and may have been suspended.
fn row(id: u32, cluster: &str, dice: &mut Dice) -> JobRow {
    let mut row = JobRow::of(cluster, &record(id, JobSpec::default()));
    row.sluid = Sluid(id.into());
    row.account = ACCOUNTS[usize::try_from(dice.below(3)).unwrap()].map(str::to_owned);
    row.uid = u32::try_from(dice.below(3)).unwrap();
    row.user = format!("u{}", row.uid);
    row.wckey = (dice.below(2) == 0).then(|| "key".to_owned());
    row.allocated =
        [(CPU, 1 + dice.below(8)), ("mem", dice.below(1000)), ("gres/gpu", dice.below(2))].into_iter().collect();
    row.submit = dice.time(300_000);
    row.eligible = Some(row.submit);
    if dice.below(8) > 0 {
        let start = Timestamp(row.submit.0 + dice.time(100_000).0);
        row.start = Some(start);
        let length = dice.time(200_000).0;
        row.end = (dice.below(5) > 0).then(|| Timestamp(start.0 + length));
        row.suspended_ms = if dice.below(3) == 0 { u64::try_from(length).unwrap() / 3 } else { 0 };
        row.suspended_since = (row.end.is_none() && dice.below(3) == 0).then(|| Timestamp(start.0 + length));
    }
    row
}

async fn fill(store: &Store, rows: &[JobRow]) {
    for (number, cluster) in ["a", "b"].into_iter().enumerate() {
        store.follow(cluster, LogId(number as u64, 1)).await.unwrap();
    }
    let sql = "INSERT INTO jobs (cluster, job, sluid, uid, gid, state, since_ms, start_ms, end_ms, cpus, nodes, form, body) \
               SELECT id, ?, ?, ?, 0, 'X', ?, ?, ?, 1, 1, 1, ? FROM clusters WHERE name = ?";
    let put = store.write(async |writer| {
        let mut tx = writer.connection()?.begin().await?;
        for row in rows {
            let put = Statement::of(sql)
                .with(i64::from(row.job.0))
                .with(row.sluid.0.cast_signed())
                .with(i64::from(row.uid))
                .with(row.eligible.unwrap_or(row.submit).0)
                .with(row.start.map(|at| at.0))
                .with(row.end.map(|at| at.0))
                .with(rmp_serde::to_vec_named(row).unwrap())
                .with(row.cluster.as_str());
            tx.link().execute(put).await?;
        }
        Ok(tx.commit().await?)
    });
    put.await.unwrap();
}

/// Second by second would take too long: seconds from the start that are in the window, with suspended time taken out evenly.
fn straightforward(rows: &[JobRow], question: &UsageQuestion, now: Timestamp) -> BTreeMap<UsageKey, UsageSum> {
    let mut sums: BTreeMap<UsageKey, UsageSum> = BTreeMap::new();
    for row in rows {
        let Some(start) = row.start else { continue };
        let end = row.end.unwrap_or(now).max(start);
        let there = start < question.end && (end > question.start || (end == start && start >= question.start));
        let clusters = &question.such.clusters;
        let asked = clusters.is_empty() || clusters.contains(&row.cluster);
        let accounts = &question.such.accounts;
        let in_account = accounts.is_empty() || accounts.contains(&row.account.clone().unwrap_or_default());
        if !there || !asked || !in_account {
            continue;
        }
        let now_suspended = row.suspended_since.map_or(0, |since| (end.0 - since.0).max(0));
        let whole = end.secs() - start.secs();
        let counts = (whole * 1000 - i64::try_from(row.suspended_ms).unwrap() - now_suspended).max(0);
        let until = |at: Timestamp| {
            let passed = (at.min(end).secs() - start.secs()).clamp(0, whole);
            if whole == 0 { 0 } else { i128::from(passed) * i128::from(counts) / i128::from(whole * 1000) }
        };
        let secs = u64::try_from(until(question.end) - until(question.start)).unwrap();
        let key = UsageKey {
            cluster: row.cluster.clone(),
            account: row.account.clone(),
            user: row.user.clone(),
            wckey: row.wckey.clone(),
            qos: row.qos.clone(),
            cpus: if question.by_size { row.allocated.count(CPU) } else { 0 },
        };
        let sum = sums.entry(key).or_default();
        sum.jobs += 1;
        for (name, count) in row.allocated.iter() {
            *sum.tres_secs.entry(name.to_owned()).or_default() += count * secs;
        }
    }
    sums
}

#[test]
fn sums_are_those_of_a_straightforward_recomputation() {
    on_each(async |place| {
        let store = place.open().await;
        let mut dice = Dice(7);
        let rows: Vec<JobRow> = (1..3000).map(|id| row(id, if id % 3 == 0 { "b" } else { "a" }, &mut dice)).collect();
        fill(&store, &rows).await;
        let now = Timestamp(3_000_000);
        let mut seen = 0;
        for round in 0..40 {
            let (one, other) = (dice.time(500_000), dice.time(500_000));
            let (start, end) = (one.min(other), one.max(other));
            let mut such = JobFilter::default();
            if round % 3 == 1 {
                such.clusters = vec!["b".to_owned()];
            }
            if round % 4 == 1 {
                such.accounts = vec!["chem".to_owned()];
            }
            let question = UsageQuestion { start, end, such, by_size: round % 2 == 0, waits: false };
            let part = store.usage(&question, None, None, (now, &mut Summed::default())).await.unwrap();
            assert!(!part.more);
            let sums: BTreeMap<_, _> = part.rows.into_iter().map(|row| (row.key, row.sum)).collect();
            seen += sums.len();
            assert_eq!(sums, straightforward(&rows, &question, now), "{question:?}");
        }
        assert!(seen > 100, "{seen}");
    });
}

#[test]
fn windows_that_follow_each_other_add_up() {
    on_each(async |place| {
        let store = place.open().await;
        let mut dice = Dice(99);
        let rows: Vec<JobRow> = (1..500).map(|id| row(id, "a", &mut dice)).collect();
        fill(&store, &rows).await;
        let now = Timestamp(4_000_000);
        let total = async |start, end| {
            let question = UsageQuestion { start: Timestamp(start), end: Timestamp(end), ..UsageQuestion::default() };
            let part = store.usage(&question, None, None, (now, &mut Summed::default())).await.unwrap();
            part.rows.iter().map(|row| row.sum.of(CPU)).sum::<u64>()
        };
        let whole = total(0, 4_000_000).await;
        let mut parts = 0;
        for hour in 0..40 {
            parts += total(hour * 100_000, (hour + 1) * 100_000).await;
        }
        assert_eq!(parts, whole);
        assert!(whole > 0);
    });
}

#[test]
fn an_answer_comes_in_parts_and_may_be_of_one_user() {
    on_each(async |place| {
        let store = place.open().await;
        let mut dice = Dice(3);
        let many = u32::try_from(IN_ANSWER).unwrap() + 500;
        let rows: Vec<JobRow> = (1..=many)
            .map(|id| {
                let (start, end) = (Some(Timestamp(5000)), Some(Timestamp(9000)));
                JobRow {
                    user: format!("user{id}"),
                    start,
                    end,
                    submit: Timestamp(0),
                    eligible: None,
                    ..row(id, "a", &mut dice)
                }
            })
            .collect();
        fill(&store, &rows).await;
        let question = UsageQuestion { end: Timestamp(10_000), ..UsageQuestion::default() };
        let now = Timestamp(20_000);
        let first = store.usage(&question, None, None, (now, &mut Summed::default())).await.unwrap();
        let last = &first.rows.last().unwrap().key;
        // The next part need not be summed up again, and is of the same moment.
        let mut summed = Summed::default();
        let kept = store.usage(&question, None, None, (now, &mut summed)).await.unwrap();
        assert!(kept == first && summed.sums.len() == rows.len());
        let end = store.usage(&question, Some(last), None, (Timestamp(now.0 + 1), &mut summed)).await.unwrap();
        assert_eq!((end.rows.len(), end.more, summed.sums.len()), (500, false, 0));
        let second = store.usage(&question, Some(last), None, (now, &mut Summed::default())).await.unwrap();
        assert_eq!((first.rows.len(), first.more, second.rows.len(), second.more), (IN_ANSWER, true, 500, false));
        assert!(second.rows.iter().all(|row| row.key > *last));
        let own = store.usage(&question, None, Some(&Owner::known(1)), (now, &mut Summed::default())).await.unwrap();
        assert_eq!(own.rows.len(), rows.iter().filter(|row| row.uid == 1).count());
        assert!(!own.rows.is_empty());
    });
}

/// sreport(1), `Planned`: only time in the window for which a job could have started.
#[test]
fn waits_count_from_when_a_job_could_start_until_it_does() {
    on_each(async |place| {
        let store = place.open().await;
        let mut dice = Dice(5);
        let at = |secs: i64| Some(Timestamp::from_secs(secs));
        let mut job = |id, eligible, start: Option<Timestamp>, end| {
            let base = row(id, "a", &mut dice);
            let (submit, requested) = (Timestamp::from_secs(10), [(CPU, 2)].into_iter().collect());
            let allocated = if start.is_some() { [(CPU, 4)].into_iter().collect() } else { Tres::default() };
            let (suspended_ms, suspended_since, user) = (0, None, "u".to_owned());
            let amounts = JobRow { requested, allocated, suspended_ms, suspended_since, ..base };
            JobRow { submit, eligible, start, end, user, ..amounts }
        };
        // One that starts in the window, one that waits on, one that is cancelled, one that is held.
        let rows = [
            job(1, at(50), at(150), at(180)),
            job(2, at(180), None, None),
            job(3, at(20), None, at(110)),
            job(4, None, None, None),
        ];
        fill(&store, &rows).await;
        let (start, end) = (Timestamp::from_secs(100), Timestamp::from_secs(200));
        let asks = |waits| UsageQuestion { start, end, waits, ..UsageQuestion::default() };
        let sum = async |waits| {
            let part = store
                .usage(&asks(waits), None, None, (Timestamp::from_secs(1000), &mut Summed::default()))
                .await
                .unwrap();
            let all = part.rows.iter().map(|row| (row.sum.jobs, row.sum.of(CPU), row.sum.waited(CPU)));
            all.fold((0, 0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2))
        };
        assert_eq!(sum(false).await, (1, 120, 0));
        assert_eq!(sum(true).await, (1, 120, 2 * (50 + 20 + 10)));
    });
}
