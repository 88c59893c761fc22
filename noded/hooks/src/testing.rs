//! A small cluster for tests.
#![allow(clippy::unwrap_used)]

use crate::{fields::Desc, shown::PartitionShown};
use garrick_actors::submission::job_submit::SiteSight;
use garrick_model::{
    config::{Config, read_text},
    ids::JobId,
    reservation::Reservation,
    spec::JobSpec,
    testing::{job, partition},
    view::{JobView, PartitionView},
};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A folder that goes with its value.
pub struct Folder(pub PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A script with both functions; the text may define its own.
pub fn script(text: &str) -> (Folder, PathBuf) {
    let name = format!("garrick-hooks-{:x}", garrick_model::ids::RequestId::random().0);
    let folder = std::env::temp_dir().join(name);
    fs::create_dir(&folder).unwrap();
    let path = folder.join("job_submit.lua");
    fs::write(&path, format!("{text}\nslurm_job_submit = slurm_job_submit or function() end\nslurm_job_modify = slurm_job_modify or function() end\n")).unwrap();
    (Folder(folder), path)
}

/// A request of the user `games`.
pub fn desc(spec: JobSpec) -> Desc {
    Desc { spec, uid: 5, gid: 60, user: "games".to_owned(), offset: None, is_change: false }
}

/// A cluster of one partition, with job 7 and the reservation `night`.
pub struct World {
    pub config: Arc<Config>,
}

impl Default for World {
    fn default() -> Self {
        Self::with("")
    }
}

impl World {
    pub fn with(more: &str) -> Self {
        let text = format!(
            "ClusterName=site\nSlurmctldHost=head\n{more}\nNodeName=n[1-2] CPUs=4\n\
             PartitionName=debug Nodes=ALL MaxTime=60 Default=YES\n"
        );
        let (config, report) = read_text(Path::new("slurm.conf"), &text);
        Self { config: Arc::new(config.unwrap_or_else(|| panic!("{report}"))) }
    }

    pub fn shown(&self) -> Vec<PartitionShown> {
        self.partitions().into_iter().map(|view| PartitionShown { view, cpus: 8 }).collect()
    }
}

impl SiteSight for World {
    fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config)
    }
    fn partitions(&self) -> Vec<Arc<PartitionView>> {
        self.config.partitions.iter().map(|p| Arc::new(partition(p.clone(), 2))).collect()
    }
    fn jobs(&self) -> Vec<Arc<JobView>> {
        let spec = JobSpec { name: "old".to_owned(), ..JobSpec::default() };
        vec![Arc::new(JobView { user: "games".to_owned(), ..job(7, spec) })]
    }
    fn job(&self, id: JobId) -> Option<Arc<JobView>> {
        self.jobs().into_iter().find(|job| job.id == id)
    }
    fn reservations(&self) -> Vec<Arc<Reservation>> {
        vec![Arc::new(Reservation { name: "night".to_owned(), ..Reservation::default() })]
    }
}
