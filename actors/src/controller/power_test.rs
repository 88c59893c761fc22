//! Power saving in a whole controller: what the site's programs are told.
#![allow(clippy::unwrap_used)]

use super::fixtures::{Agents, Habit, MemoryJournal, Rig, with_system};
use garrick_model::{
    messages::command::JobMilestone,
    site_program::Moment,
    state::{JobState, NodePower},
    testing::spec,
};
use std::time::Duration;

/// Files of `ResumeProgram` go to a folder that no two tests share.
fn conf(folder: &std::path::Path) -> String {
    format!(
        "ClusterName=test\nSlurmctldHost=head\nStateSaveLocation={}\nNodeName=n[0-1] CPUs=4 RealMemory=1000 State=CLOUD\n\
         PartitionName=debug Nodes=ALL Default=YES MaxTime=60\nResumeProgram=/sbin/up\nSuspendProgram=/sbin/down\n",
        folder.display()
    )
}

#[test]
fn a_program_is_told_once_which_node_to_power_up_and_the_job_begins_when_it_has_come() {
    let folder = std::env::temp_dir().join(format!("garrick-power-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let text = conf(&folder);
    with_system(async |system| {
        let mut rig = Rig::start(&system, &text, MemoryJournal::default());
        let mut agents = Agents::new(&rig);
        // Slurm does not look at how it ends either: the node comes in time or not.
        rig.programs.fail("no power");
        let job = rig.submitted(spec()).await;
        rig.until(job, |view| view.state == JobState::Configuring).await;
        rig.nodes(|nodes| nodes.iter().any(|node| node.flags.power == NodePower::PoweringUp)).await;
        let on_its_way = |node: &garrick_model::view::NodeView| node.flags.power == NodePower::PoweringUp;
        let boards = rig.controller.env.boards.nodes.list();
        let name = boards.iter().find(|node| on_its_way(node)).unwrap().name.clone();
        let called = async {
            while rig.programs.rows().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), called).await.unwrap();
        agents.connect(&name, Habit::Finish);
        assert_eq!(rig.wait(job, JobMilestone::Ended).await, JobState::Completed);
        let rows = rig.programs.rows();
        let [row] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!(
            (row.moment, &row.programs, &row.arguments),
            (Moment::Resume, &vec!["/sbin/up".to_owned()], &vec![name])
        );
        let (variable, file) = row.environment.first().unwrap();
        assert_eq!(variable, "SLURM_RESUME_FILE");
        assert!(file.starts_with(folder.to_str().unwrap()), "{file}");
    });
    std::fs::remove_dir_all(&folder).unwrap();
}
