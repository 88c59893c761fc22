//! Plans and the account agree on what is free.

use super::account::LicenseAccount;
use garrick_model::{spec_text::licenses::Licenses, time::Timestamp};
use garrick_plan::{fixtures::layered, plan::plan};
use proptest::prelude::*;

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
        let view = layered(modes, &counts, &jobs);
        let mut account = LicenseAccount::default();
        account.configure(&Licenses::default(), &view.licenses.hres);
        for start in &plan(&view, Timestamp::from_secs(100_000)).starts {
            prop_assert!(account.reserve(start.job, 1, &start.licenses), "{:?}", start.licenses);
        }
        for layer in account.view() {
            prop_assert!(layer.used <= layer.total);
        }
    }
}
