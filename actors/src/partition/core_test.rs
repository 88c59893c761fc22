//! Rules of updates.
#![allow(clippy::unwrap_used)]

use super::core::PartitionCore;
use crate::controller::fixtures::config_of;
use garrick_model::{state::PartitionState, time::TimeLimit};

#[test]
fn the_site_says_which_updates_outlast_the_next_reading_of_its_file() {
    let site = |flags: &str| {
        let text = "ClusterName=c\nSlurmctldHost=h\nNodeName=n0\nPartitionName=p Nodes=n0 MaxTime=60\n";
        config_of(&format!("{text}ReconfigFlags={flags}\n"))
    };
    let (as_configured, updated) = (TimeLimit::Secs(3600), TimeLimit::Secs(7200));
    for (flags, want) in [
        ("", (PartitionState::Up, as_configured)),
        ("KeepPartState", (PartitionState::Down, as_configured)),
        ("KeepPartInfo", (PartitionState::Down, updated)),
    ] {
        let config = site(flags);
        let mut core = PartitionCore::new(&config, "p", Default::default()).unwrap();
        let fields = [("State", "DOWN"), ("MaxTime", "120")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        core.update(&config, &fields).unwrap();
        let saved = core.reconfigure(&config);
        let of = |core: &PartitionCore| (core.view().state, core.view().config.max_time);
        assert_eq!(of(&core), want, "{flags}");
        // So it is after the controller's next start.
        assert_eq!(of(&PartitionCore::new(&config, "p", saved).unwrap()), want, "{flags}");
    }
}
