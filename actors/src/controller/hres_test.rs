//! Hierarchical resources that go away and come back under running jobs, in the whole controller.
#![allow(clippy::unwrap_used)]

use super::{
    fixtures::{Agents, Habit, MemoryJournal, Rig, TWO_NODES, config_of, with_system},
    messages::ControllerMsg,
};
use garrick_model::{
    config::{self, Config},
    messages::command::{CommandReply, CommandRequest, JobMilestone},
    spec::JobSpec,
    testing::spec,
};
use std::{path::Path, sync::Arc};

/// A resource of each mode over both nodes.
fn with_resources() -> Arc<Config> {
    let resource = |mode: u32| {
        format!("- resource: r{mode}\n  mode: MODE_{mode}\n  layers:\n  - nodes: ['n[0-1]']\n    count: 7\n")
    };
    let text: String = (1..4).map(resource).collect();
    let files = [("/e/slurm.conf", TWO_NODES), ("/e/resources.yaml", text.as_str())];
    let (config, report) = config::read_files(Path::new("/e/slurm.conf"), &files);
    Arc::new(config.unwrap_or_else(|| panic!("{report}")))
}

async fn used(rig: &Rig) -> Vec<u32> {
    let CommandReply::Licenses { licenses, .. } = rig.ask(1001, CommandRequest::ListLicenses).await else { panic!() };
    licenses.iter().map(|license| license.used).collect()
}

fn reconfigure(rig: &Rig, config: Arc<Config>) {
    rig.frontend().try_send(ControllerMsg::config_changed(config, None)).unwrap();
}

#[test]
fn what_runs_is_counted_again_when_a_resource_comes_back() {
    let journal = MemoryJournal::default();
    let kept = journal.clone();
    with_system(async move |system| {
        let mut rig = Rig::start(&system, TWO_NODES, kept);
        reconfigure(&rig, with_resources());
        let mut agents = Agents::new(&rig);
        agents.connect("n0", Habit::Stay);
        let job = rig.submitted(JobSpec { licenses: Some("r1:2,r2:3,r3:4".to_owned()), ..spec() }).await;
        rig.wait(job, JobMilestone::Started).await;
        assert_eq!(used(&rig).await, [2, 3, 4]);
        for _ in 0..2 {
            reconfigure(&rig, config_of(TWO_NODES));
            assert!(used(&rig).await.is_empty());
            reconfigure(&rig, with_resources());
            assert_eq!(used(&rig).await, [2, 3, 4]);
        }
    });
    // Also over a restart with the file absent.
    with_system(async move |system| {
        let rig = Rig::start(&system, TWO_NODES, journal);
        assert!(used(&rig).await.is_empty());
        reconfigure(&rig, with_resources());
        assert_eq!(used(&rig).await, [2, 3, 4]);
    });
}
