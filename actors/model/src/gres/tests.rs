#![allow(clippy::unwrap_used)]
use super::*;
use proptest::prelude::*;

fn entry(name: &str, kind: Option<&str>, count: u64) -> GresEntry {
    GresEntry {
        name: name.into(),
        kind: kind.map(Into::into),
        count,
        no_consume: false,
        devices: name == GPU,
        places: Vec::new(),
        shards: Vec::new(),
    }
}

fn count(name: &str, kind: Option<&str>, count: u64) -> GresCount {
    GresCount { name: name.into(), kind: kind.map(Into::into), count }
}

fn node() -> Vec<GresEntry> {
    let bandwidth = GresEntry { no_consume: true, ..entry("bandwidth", Some("lustre"), 4 << 30) };
    vec![entry(GPU, Some("a100"), 2), entry(GPU, Some("h100"), 2), entry("craynetwork", None, 4), bandwidth]
}

#[test]
fn devices_are_numbered_over_all_types_of_a_name() {
    let node = node();
    let pool = GresPool::all(&node);
    let text = |need: &[GresCount]| pool.choose(&node, need, None).map(|shares| list(&shares));
    assert_eq!(text(&[count(GPU, Some("h100"), 2)]).unwrap(), "gpu:h100:2(IDX:2-3)");
    assert_eq!(text(&[count(GPU, None, 3)]).unwrap(), "gpu:a100:2(IDX:0-1),gpu:h100:1(IDX:2)");
    assert_eq!(
        text(&[count(GPU, None, 1), count(GPU, Some("a100"), 2)]).unwrap(),
        "gpu:a100:2(IDX:0-1),gpu:h100:1(IDX:2)"
    );
    assert_eq!(text(&[count("craynetwork", None, 1)]).unwrap(), "craynetwork:1(CNT:1)");
    assert_eq!(text(&[count(GPU, None, 5)]), None);
    assert_eq!(text(&[count(GPU, Some("v100"), 1)]), None);
    assert_eq!(list(&node), "gpu:a100:2,gpu:h100:2,craynetwork:4,bandwidth:lustre:no_consume:4G");
}

#[test]
fn devices_that_are_linked_best_go_together() {
    let place = |links: &[i32]| DevicePlace { cpus: CpuSet::new(), links: links.to_vec() };
    let mut gpus = entry(GPU, None, 4);
    gpus.places = vec![place(&[-1, 0, 2, 0]), place(&[0, -1, 0, 4]), place(&[2, 0, -1, 0]), place(&[0, 4, 0, -1])];
    let node = [gpus];
    let mut pool = GresPool::all(&node);
    let mut take = |n| {
        let shares = pool.choose(&node, &[count(GPU, None, n)], None).unwrap();
        pool.take(&node, &shares);
        list(&shares)
    };
    assert_eq!([take(2), take(2)], ["gpu:2(IDX:1,3)", "gpu:2(IDX:0,2)"]);
}

#[test]
fn what_is_not_consumed_is_there_for_everybody() {
    let node = node();
    let mut pool = GresPool::all(&node);
    let share = pool.choose(&node, &[count("bandwidth", None, 4 << 30)], None).unwrap();
    pool.take(&node, &share);
    assert!(pool.has(&node, &share));
    assert_eq!(GresAmounts::held(&node, &share), GresAmounts::of(vec![0; 5]));
    assert!(GresAmounts::all(&node).has(&node, &[count("bandwidth", None, 4 << 30)]));
    assert!(!GresAmounts::all(&node).has(&node, &[count("bandwidth", None, 5 << 30)]));
}

#[test]
fn a_device_is_refused_a_second_time() {
    let node = node();
    let mut pool = GresPool::all(&node);
    let one = pool.choose(&node, &[count(GPU, None, 1)], None).unwrap();
    assert!(pool.has(&node, &one));
    pool.take(&node, &one);
    assert!(!pool.has(&node, &one));
    pool.give(&node, &one);
    assert_eq!(pool, GresPool::all(&node));
    let bare = vec![GresShare { devices: CpuSet::new(), ..one[0].clone() }];
    assert!(!pool.has(&node, &bare), "a share of devices says which");
}

#[test]
fn the_greater_of_two_wishes_counts() {
    let request = GresRequest {
        per_node: vec![count(GPU, None, 2)],
        per_task: vec![count(GPU, None, 1)],
        ..GresRequest::default()
    };
    assert_eq!(request.on_node(1, Totals::NONE), [count(GPU, None, 2)]);
    assert_eq!(request.on_node(3, Totals::NONE), [count(GPU, None, 3)]);
}

/// GPUs of two types with shards, of one of them none.
fn sharing_node() -> Vec<GresEntry> {
    let mut shard = entry(SHARD, None, 10);
    shard.shards = vec![4, 4, 2, 0];
    vec![entry(GPU, Some("a100"), 2), entry(GPU, Some("h100"), 2), shard]
}

#[test]
fn a_gpu_is_given_whole_or_in_shards() {
    let node = sharing_node();
    let mut pool = GresPool::all(&node);
    let mut take = |need: GresCount| {
        let shares = pool.choose(&node, &[need], None)?;
        assert!(pool.has(&node, &shares));
        pool.take(&node, &shares);
        Some(list(&shares))
    };
    assert_eq!(take(count(GPU, Some("a100"), 1)).unwrap(), "gpu:a100:1(IDX:0)");
    assert_eq!(take(count(SHARD, None, 3)).unwrap(), "shard:3(IDX:1)");
    assert_eq!(take(count(SHARD, None, 2)).unwrap(), "shard:2(IDX:2)", "one GPU gives all of them");
    assert_eq!(take(count(SHARD, None, 2)), None);
    assert_eq!(take(count(SHARD, None, 1)).unwrap(), "shard:1(IDX:1)", "rather of a GPU that is shared already");
    assert_eq!(take(count(GPU, None, 2)), None);
    assert_eq!(take(count(GPU, None, 1)).unwrap(), "gpu:h100:1(IDX:3)");
    // Given back in any order all is there again.
    let held = |name: &str, kind: Option<&str>, count, device: u32| {
        let devices = [device].into_iter().collect();
        vec![GresShare { name: name.into(), kind: kind.map(Into::into), count, devices }]
    };
    pool.give(&node, &held(SHARD, None, 1, 1));
    pool.give(&node, &held(GPU, Some("a100"), 1, 0));
    pool.give(&node, &held(SHARD, None, 3, 1));
    pool.give(&node, &held(GPU, Some("h100"), 1, 3));
    pool.give(&node, &held(SHARD, None, 2, 2));
    assert_eq!(pool, GresPool::all(&node));
    let everything = pool.everything(&node);
    assert_eq!(list(&everything), "gpu:a100:2(IDX:0-1),gpu:h100:2(IDX:2-3)", "shards are parts of those");
}

#[test]
fn a_job_shares_out_its_shards_among_its_steps() {
    let share = |name: &str, count, device: u32| GresShare {
        name: name.into(),
        kind: None,
        count,
        devices: [device].into_iter().collect(),
    };
    let (entries, mut pool) = GresPool::of_shares(&[share(GPU, 1, 0), share(SHARD, 3, 2)]);
    assert_eq!(list(&pool.everything(&entries)), "gpu:1(IDX:0),shard:3(IDX:2)");
    let step = pool.choose(&entries, &[count(SHARD, None, 2)], None).unwrap();
    pool.take(&entries, &step);
    assert_eq!((list(&step), pool.choose(&entries, &[count(SHARD, None, 2)], None)), ("shard:2(IDX:2)".into(), None));
    pool.give(&entries, &step);
    assert_eq!(list(&pool.everything(&entries)), "gpu:1(IDX:0),shard:3(IDX:2)");
}

proptest! {
    /// The same where GPUs have shards; and no GPU is given whole and in shards, or more of it than there is.
    #[test]
    fn amounts_agree_with_shards(asks in prop::collection::vec((0usize..4, 0u64..5, any::<bool>()), 1..12)) {
        let node = sharing_node();
        let (mut pool, mut amounts) = (GresPool::all(&node), GresAmounts::all(&node));
        let mut given: Vec<Vec<GresShare>> = Vec::new();
        for (what, n, back) in asks {
            if back && let Some(shares) = given.pop() {
                pool.give(&node, &shares);
                amounts = GresAmounts::free(&node, &pool);
            }
            let need = match what {
                3 => [count(SHARD, None, n)],
                kind => [count(GPU, [None, Some("a100"), Some("h100")][kind], n)],
            };
            let chosen = pool.choose(&node, &need, None);
            prop_assert_eq!(chosen.is_some(), amounts.has(&node, &need));
            if let Some(shares) = chosen {
                prop_assert!(pool.has(&node, &shares));
                prop_assert_eq!(&amounts.taken(&node, &need), &GresAmounts::held(&node, &shares));
                pool.take(&node, &shares);
                amounts = amounts.less(&GresAmounts::held(&node, &shares));
                prop_assert_eq!(&amounts, &GresAmounts::free(&node, &pool));
                given.push(shares);
            }
            let held: Vec<GresShare> = given.concat();
            for (gpu, most) in (0u32..).zip([4u64, 4, 2, 0]) {
                let of = |name: &str| {
                    held.iter().filter(|s| s.name == name && s.devices.contains(gpu)).map(|s| s.count).collect::<Vec<_>>()
                };
                let (whole, shards) = (of(GPU).len(), of(SHARD).iter().sum::<u64>());
                prop_assert!(whole <= 1 && shards <= most && (whole == 0 || shards == 0));
            }
            let mut fresh = GresPool::all(&node);
            fresh.take(&node, &held);
            prop_assert_eq!(&fresh, &pool);
        }
    }


    /// Amounts say yes exactly when devices can be handed out, and stay in step with them.
    #[test]
    fn amounts_agree_with_devices(asks in prop::collection::vec((0usize..3, 0u64..4), 1..6)) {
        let node = node();
        let (mut pool, mut amounts) = (GresPool::all(&node), GresAmounts::all(&node));
        for (kind, n) in asks {
            let need = [count(GPU, [None, Some("a100"), Some("h100")][kind], n)];
            let chosen = pool.choose(&node, &need, None);
            prop_assert_eq!(chosen.is_some(), amounts.has(&node, &need));
            if let Some(shares) = chosen {
                prop_assert!(pool.has(&node, &shares));
                pool.take(&node, &shares);
                amounts = amounts.less(&GresAmounts::held(&node, &shares));
                prop_assert_eq!(&amounts, &GresAmounts::free(&node, &pool));
            }
        }
    }
}
