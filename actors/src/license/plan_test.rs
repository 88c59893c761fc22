//! Plans and the account agree on what is free.

use super::account::LicenseAccount;
use garrick_model::{
    spec::{JobSpec, NodeCount},
    spec_text::licenses::Licenses,
    testing::{hres, job, node, spec},
    time::{TimeLimit, Timestamp},
};
use garrick_plan::{fixtures::cluster, plan::plan, snapshot::licenses::LicenseFacts};
use proptest::prelude::*;
use std::sync::Arc;

fn any_mode() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["MODE_1", "MODE_2", "MODE_3"])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// What a plan starts the account gives, and it never gives more of a layer than there is.
    #[test]
    fn the_account_gives_what_a_plan_starts(
        modes in (any_mode(), any_mode()),
        counts in prop::collection::vec(0u32..9, 6),
        jobs in prop::collection::vec((1u32..5, 1u32..4, 0u32..4, 1u64..40, any::<bool>()), 1..12),
    ) {
        let layers = |at: usize| [(0..4, counts[at] + 4, 2), (0..2, counts[at + 1] + 1, 1), (2..4, counts[at + 2], 0)];
        let (a, b) = (layers(0), layers(3));
        let hres = hres(4, &[("a", modes.0, &a), ("b", modes.1, &b)]);
        let asks = |a, b| if b == 0 { format!("a:{a}") } else { format!("b:{b},a:{a}") };
        let specs = jobs.iter().map(|(nodes, a, b, tens, contiguous)| JobSpec {
            contiguous: *contiguous,
            licenses: Some(asks(a, *b)),
            nodes: Some(NodeCount { min: *nodes, max: Some(*nodes) }),
            time_limit: Some(TimeLimit::Secs(tens * 10)),
            ..spec()
        });
        let jobs = specs.zip(1..).map(|(spec, id)| job(id, spec)).collect();
        let mut view = cluster((0..4).map(|index| node(index, 8)).collect(), jobs);
        view.licenses = LicenseFacts { hres: Arc::clone(&hres), ..LicenseFacts::default() };
        let mut account = LicenseAccount::default();
        account.configure(&Licenses::default(), &hres);
        for start in &plan(&view, Timestamp::from_secs(100_000)).starts {
            prop_assert!(account.reserve(start.job, 1, &start.licenses), "{:?}", start.licenses);
        }
        for layer in account.view() {
            prop_assert!(layer.used <= layer.total);
        }
    }
}
