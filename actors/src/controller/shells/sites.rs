//! Settings for all nodes and for all jobs of the site, from its configuration.

use super::ports::Ports;
use crate::messages::{
    job::{JobPrograms, JobSite},
    node::{NodeSite, ReturnToService},
};
use crate::power_policy::PowerPolicy;
use garrick_model::{
    config::{self, BillingWeights, Config, PartitionConfig},
    time::system_zone,
};
use std::{sync::Arc, time::Duration};

/// Settings for all nodes.
pub fn node_site(config: &Config, epoch: u64, ports: &Ports) -> NodeSite {
    let (credential_key, key_id) = ports.signer.public_key();
    let admin = ports.host.administrators();
    let by_name = admin.iter().find_map(|uid| ports.users.user(*uid).filter(|u| u.name == config.slurm_user));
    NodeSite {
        silence: secs(config.slurmd_timeout_secs),
        return_to_service: match config.return_to_service {
            config::ReturnToService::Never => ReturnToService::Never,
            config::ReturnToService::NonResponding => ReturnToService::IfSilent,
            config::ReturnToService::Always => ReturnToService::Always,
        },
        epoch,
        slurm_user: (by_name.map_or(0, |u| u.uid), config.slurm_user.clone()),
        credential_key,
        key_id,
        // Without a limit: longer than any controller lives.
        reboot_limit: config.power.resume_timeout.duration().unwrap_or(Duration::from_secs(u32::MAX.into())),
        reboots: config.reboot_program.is_some(),
        config_overrides: config.config_overrides(),
        memory_percent: config.slurmctld_parameters.value("node_reg_mem_percent").and_then(|text| text.parse().ok()),
        power: PowerPolicy::of(config).map(Arc::new),
        conf_hash: (!config.debug_flags.0.contains(&config::DebugFlag::NoConfHash)).then_some(config.hash),
    }
}

/// Settings for all jobs.
pub fn job_site(config: &Config, epoch: u64) -> JobSite {
    let default = JobSite::default();
    let prolog = config.prolog_timeout_secs.map(|secs| Duration::from_secs(u64::from(secs)));
    let start = Duration::from_secs(u64::from(config.batch_start_timeout_secs));
    JobSite {
        cluster: config.cluster_name.clone(),
        epoch,
        min_job_age: secs(config.min_job_age_secs),
        expedite: config.expedited_requeue(),
        requeue_delay: config
            .scheduler_parameters
            .value("requeue_delay")
            .and_then(|text| text.parse().ok())
            .map_or(default.requeue_delay, Duration::from_secs),
        max_batch_requeue: config.max_batch_requeue,
        requeue_on_resume_failure: config.scheduler_parameters.has("requeue_on_resume_failure"),
        hold_on_prolog_fail: !config.scheduler_parameters.has("nohold_on_prolog_fail"),
        requeue_on_prolog_fail: config.prolog_flags.has(config::PrologFlag::ForceRequeueOnFail),
        kill_invalid_depend: config.dependency_parameters.has("kill_invalid_depend"),
        multifactor: config.multifactor(),
        send_user_signal: config.preempt.sends_user_signal(),
        billing: config.partitions.iter().filter_map(billing_of).collect(),
        billed_terms: config.priority.flags.billed_terms(),
        partition_qos: config.partitions.iter().filter_map(qos_of).collect(),
        requeue_exit: config.requeue_exit.clone(),
        requeue_exit_hold: config.requeue_exit_hold.clone(),
        // Longer than the agent's own limit, so that the agent's report comes first.
        launch_limit: prolog.map_or(default.launch_limit, |prolog| 2 * (prolog + start) + Duration::from_secs(60)),
        programs: programs(config),
        zone: system_zone(),
        ..default
    }
}

/// The programs of the site that the controller runs for jobs.
fn programs(config: &Config) -> JobPrograms {
    let limit = |secs: Option<u32>| secs.map(|secs| Duration::from_secs(u64::from(secs)));
    JobPrograms {
        mail: config.mail_prog.to_string_lossy().into_owned(),
        mail_domain: config.mail_domain.clone(),
        prolog: config.prolog_slurmctld.clone(),
        prolog_limit: limit(config.prolog_timeout_secs),
        epilog: config.epilog_slurmctld.clone(),
        epilog_limit: limit(config.epilog_timeout_secs),
    }
}

/// The billing weights of a partition, if it has any.
fn billing_of(partition: &PartitionConfig) -> Option<(String, BillingWeights)> {
    Some((partition.name.clone(), partition.weights()?))
}

/// The QOS of a partition, if it has one.
fn qos_of(partition: &PartitionConfig) -> Option<(String, String)> {
    Some((partition.name.clone(), partition.qos.as_ref()?.to_ascii_lowercase()))
}

/// In `slurm.conf`, 0 is "never" for these.
fn secs(value: u32) -> Option<Duration> {
    (value > 0).then(|| Duration::from_secs(u64::from(value)))
}
