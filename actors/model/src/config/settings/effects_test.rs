//! Every honoured key beside the test that shows its effect. A key that does nothing misleads whoever sets it.
#![allow(clippy::unwrap_used)]

use super::{
    global::GLOBAL,
    node::NODE,
    partition::PARTITION,
    row::{Class, Row},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// Key and test.
const GLOBAL_EFFECTS: &[(&str, &str)] = &[
    ("AccountingStorageBackupHost", "a_backup_host_takes_over_when_the_service_ends"),
    ("AccountingStorageHost", "two_clusters_are_kept_by_a_service_on_another_host"),
    ("AccountingStorageTRES", "types_of_gpus_are_counted_and_limited_where_the_site_names_them"),
    ("AccountingStoragePort", "two_clusters_are_kept_by_a_service_on_another_host"),
    ("MaxDBDMsgs", "what_waits_for_accounting_is_bounded"),
    ("AcctGatherEnergyType", "the_energy_of_nodes_is_that_of_the_steps_on_them"),
    ("AcctGatherFilesystemType", "what_the_node_counts_begins_with_the_step"),
    ("AcctGatherInterconnectType", "time_series_are_sent_to_a_server"),
    ("AcctGatherNodeFreq", "the_power_of_nodes_is_shown"),
    ("AcctGatherProfileType", "time_series_are_in_files_of_their_user_also_after_a_step_manager_was_killed"),
    ("JobAcctGatherFrequency", "running_tasks_are_looked_at_as_often_as_the_site_or_the_step_says"),
    ("TrackWCKey", "wckeys_are_those_of_the_user"),
    ("AccountingStorageEnforce", "accounts_and_qos_that_the_user_may_not_have_are_refused_where_that_is_enforced"),
    (
        "AllowSpecResourcesUsage",
        "cores_left_to_the_system_make_the_node_the_jobs_own_and_count_where_the_site_allows_it",
    ),
    ("CliFilterParameters", "a_script_of_the_site_looks_at_options_and_changes_them"),
    ("CliFilterPlugins", "a_script_of_the_site_looks_at_options_and_changes_them"),
    ("CompleteWait", "nothing_starts_while_nodes_of_a_job_that_just_ended_are_cleaned"),
    ("CpuFreqDef", "cpus_of_steps_have_the_frequency_that_is_asked_for_until_the_step_is_over"),
    ("CpuFreqGovernors", "cpus_of_steps_have_the_frequency_that_is_asked_for_until_the_step_is_over"),
    ("DebugFlags", "topics_are_logged_as_the_site_says_and_as_administrators_ask_for_a_while"),
    ("DefCpuPerGPU", "jobs_with_gpus_get_cpus_and_memory_for_each_where_they_do_not_say"),
    ("DefMemPerCPU", "jobs_with_gpus_get_cpus_and_memory_for_each_where_they_do_not_say"),
    ("DefMemPerGPU", "jobs_with_gpus_get_cpus_and_memory_for_each_where_they_do_not_say"),
    ("EnforcePartLimits", "what_could_never_run_is_refused_with_its_reason"),
    ("GresTypes", "jobs_with_gpus_get_cpus_and_memory_for_each_where_they_do_not_say"),
    ("HealthCheckInterval", "a_node_that_is_not_well_takes_itself_out_of_service"),
    ("HealthCheckNodeState", "states_choose_nodes"),
    ("HealthCheckProgram", "a_node_that_is_not_well_takes_itself_out_of_service"),
    ("JobDefaults", "jobs_with_gpus_get_cpus_and_memory_for_each_where_they_do_not_say"),
    ("JobRequeue", "the_next_agent_knows_what_was_said_last_of_another_run"),
    ("JobSubmitPlugins", "a_job_without_a_time_limit_is_refused_where_the_site_wants_one"),
    ("KillOnBadExit", "kill_on_bad_exit_ends_the_other_tasks_and_keeps_the_worst_exit"),
    ("KillWait", "terminating_a_step_is_sigterm_and_after_kill_wait_sigkill"),
    ("Licenses", "licenses_must_be_there"),
    ("MaxBatchRequeue", "a_job_that_was_requeued_too_often_unasked_is_held"),
    ("MaxMemPerCPU", "a_node_that_is_to_give_more_memory_than_its_cpus_may_bring_gives_more_cpus"),
    ("MaxMemPerNode", "a_node_that_is_to_give_more_memory_than_its_cpus_may_bring_gives_more_cpus"),
    ("MaxNodeCount", "nodes_are_created_all_or_none"),
    ("BcastExclude", "files_are_sent_as_the_site_says"),
    ("BcastParameters", "files_are_sent_as_the_site_says"),
    ("MaxStepCount", "a_job_has_no_more_steps_than_the_site_allows"),
    ("MetricsAuthUsers", "metrics_are_for_whom_the_site_names"),
    ("MetricsParameters", "metrics_are_for_whom_the_site_names"),
    ("MetricsType", "prometheus_reads_metrics_at_the_port_of_the_controller"),
    ("SlurmctldHttpAuthParameters", "metrics_are_for_whom_the_site_names"),
    ("MaxTasksPerNode", "a_step_has_no_more_tasks_on_a_node_than_the_site_allows"),
    ("MCSPlugin", "jobs_of_different_labels_have_nodes_of_their_own"),
    ("MpiDefault", "tasks_find_each_other_as_the_site_says_where_srun_does_not"),
    ("OverTimeLimit", "over_time_limit_is_a_grace_period_and_may_be_unlimited"),
    ("PreemptMode", "a_job_of_a_lower_tier_is_requeued_for_one_of_a_higher"),
    ("PreemptParameters", "a_job_of_a_lower_tier_stands_still_for_one_of_a_higher_and_goes_on_after_it"),
    ("PreemptType", "a_job_of_a_lower_tier_is_requeued_for_one_of_a_higher"),
    ("PriorityType", "in_order_of_submission_there_are_no_factors_to_show"),
    ("PriorityWeightJobSize", "the_scheduler_calculates_and_the_owner_shows"),
    ("PropagatePrioProcess", "tasks_are_as_nice_as_who_asks_for_them_where_the_site_says_so"),
    ("RequeueExit", "exit_codes_requeue_as_the_site_says"),
    ("RequeueExitHold", "exit_codes_requeue_and_hold_as_the_site_says"),
    ("ReturnToService", "silence_takes_a_node_down_and_tells_its_jobs"),
    ("SchedulerParameters", "a_failed_prolog_holds_nobody_where_the_site_says_so"),
    ("SchedulerType", "where_room_is_not_reserved_for_everybody_that_is_said"),
    ("SelectTypeParameters", "the_site_may_have_jobs_fill_sockets"),
    ("SlurmctldDebug", "log_levels_are_those_of_the_configuration_until_they_are_set"),
    ("SlurmctldLogFile", "signals_that_do_not_ask_for_the_end_do_not_bring_it"),
    ("SlurmctldParameters", "a_lost_node_sends_an_expedited_job_ahead_at_once_with_its_healthy_node_kept"),
    ("SlurmctldSyslogDebug", "what_has_no_other_log_goes_to_the_systems"),
    ("SlurmctldPort", "a_controller_that_root_starts_runs_as_slurm_user_and_serves_everybody"),
    ("SlurmdDebug", "log_levels_are_those_of_the_configuration_until_they_are_set"),
    ("SlurmdLogFile", "signals_that_do_not_ask_for_the_end_do_not_bring_it"),
    ("SlurmdSyslogDebug", "what_has_no_other_log_goes_to_the_systems"),
    ("SlurmdTimeout", "a_node_that_is_cut_off_ends_its_job_before_it_can_run_elsewhere"),
    ("SlurmdUser", "a_cluster_of_one_user_runs_nobody_elses_jobs"),
    ("SlurmUser", "a_controller_that_root_starts_runs_as_slurm_user_and_serves_everybody"),
    ("StateSaveLocation", "a_state_folder_has_one_controller"),
    ("TopologyPlugin", "places_in_topologies_are_checked"),
    ("WaitTime", "wait_gives_the_other_tasks_some_seconds_after_the_first_end"),
    ("JobCompType", "jobs_that_are_over_are_lines_of_a_file_and_given_to_a_script"),
    ("JobCompLoc", "jobs_that_are_over_are_lines_of_a_file_and_given_to_a_script"),
    ("JobCompHost", "jobs_that_are_over_are_rows_of_a_database_that_may_be_away"),
    ("JobCompPort", "jobs_that_are_over_are_rows_of_a_database_that_may_be_away"),
    ("JobCompUser", "jobs_that_are_over_are_rows_of_a_database_that_may_be_away"),
    ("JobCompPass", "jobs_that_are_over_are_rows_of_a_database_that_may_be_away"),
    ("JobCompPassScript", "a_program_prints_the_password_for_each_connection"),
    ("JobCompParams", "a_document_has_the_script_and_the_comment_where_the_site_wants_them"),
    ("AccountingStoreFlags", "scripts_and_environments_are_kept_where_the_site_wants_them"),
    ("AccountingStorageType", "what_jobs_came_to_is_found_and_survives_kills"),
    ("ClusterName", "numbers_and_defaults_of_jobs_are_those_of_the_site"),
    ("FirstJobId", "numbers_and_defaults_of_jobs_are_those_of_the_site"),
    ("MaxJobId", "numbers_and_defaults_of_jobs_are_those_of_the_site"),
    ("MinJobAge", "numbers_and_defaults_of_jobs_are_those_of_the_site"),
    ("MaxArraySize", "numbers_and_defaults_of_jobs_are_those_of_the_site"),
    ("DefMemPerNode", "numbers_and_defaults_of_jobs_are_those_of_the_site"),
    ("JobFileAppend", "numbers_and_defaults_of_jobs_are_those_of_the_site"),
    ("ScronParameters", "a_job_of_a_crontab_runs_as_its_user_again_and_again"),
    ("DependencyParameters", "numbers_and_defaults_of_jobs_are_those_of_the_site"),
    ("ControlAddr", "the_controller_is_found_under_older_names_and_places_are_those_of_the_file"),
    ("ControlMachine", "the_controller_is_found_under_older_names_and_places_are_those_of_the_file"),
    ("SlurmdSpoolDir", "the_controller_is_found_under_older_names_and_places_are_those_of_the_file"),
    ("SlurmctldPidFile", "the_controller_is_found_under_older_names_and_places_are_those_of_the_file"),
    ("SlurmdPidFile", "the_controller_is_found_under_older_names_and_places_are_those_of_the_file"),
    ("TaskEpilog", "scripts_of_site_and_user_run_around_each_task_and_prologs_change_its_environment"),
    ("TaskProlog", "scripts_of_site_and_user_run_around_each_task_and_prologs_change_its_environment"),
    ("TmpFS", "the_controller_is_found_under_older_names_and_places_are_those_of_the_file"),
    ("Epilog", "prologs_and_epilogs_run_and_have_their_time"),
    ("EpilogTimeout", "prologs_and_epilogs_run_and_have_their_time"),
    ("SrunProlog", "srun_runs_the_sites_programs_around_its_step_and_those_of_its_own_instead"),
    ("SrunEpilog", "srun_runs_the_sites_programs_around_its_step_and_those_of_its_own_instead"),
    ("PrologFlags", "flags_say_when_prologs_and_the_batch_script_run_and_what_a_failure_means"),
    ("RebootProgram", "nodes_are_rebooted_when_they_are_idle_and_return_as_was_asked"),
    ("MailDomain", "users_are_told_of_their_jobs_by_the_program_of_the_site"),
    ("MailProg", "users_are_told_of_their_jobs_by_the_program_of_the_site"),
    ("PrologSlurmctld", "a_job_is_launched_after_the_controllers_prologs_and_over_after_its_epilogs"),
    ("EpilogSlurmctld", "a_job_is_launched_after_the_controllers_prologs_and_over_after_its_epilogs"),
    ("Prolog", "prologs_and_epilogs_run_and_have_their_time"),
    ("PrologTimeout", "prologs_and_epilogs_run_and_have_their_time"),
    ("PrologEpilogTimeout", "prologs_and_epilogs_run_and_have_their_time"),
    ("MaxJobCount", "who_is_not_known_yet_is_told_to_come_back_and_full_limits_are_named"),
    ("PropagateResourceLimits", "limits_travel_as_the_site_says"),
    ("PropagateResourceLimitsExcept", "limits_travel_as_the_site_says"),
    ("SelectType", "whole_nodes_are_given_where_the_site_says_so"),
    ("PriorityFavorSmall", "small_jobs_are_favoured_where_the_site_wants_it"),
    ("PriorityFlags", "factors_are_not_normalized_where_flags_say_so"),
    ("PreemptExemptTime", "equal_tiers_spared_partitions_and_runs_that_are_exempt_are_left_alone"),
    ("BatchStartTimeout", "the_agent_waits_as_long_as_the_site_says"),
    ("MessageTimeout", "the_agent_waits_as_long_as_the_site_says"),
    ("UnkillableStepTimeout", "the_agent_waits_as_long_as_the_site_says"),
    ("UnkillableStepProgram", "what_cannot_be_killed_runs_the_sites_program_and_is_told_with_the_release"),
    ("DisableRootJobs", "root_submits_nothing_where_the_site_says_so"),
    ("MCSParameters", "jobs_of_different_labels_have_nodes_of_their_own"),
    ("PriorityCalcPeriod", "priorities_are_calculated_again_after_the_period_of_the_site"),
    ("FairShareDampeningFactor", "classic_shares_are_those_of_slurms_example"),
    ("PriorityDecayHalfLife", "rules_are_saved_when_they_change_and_no_period_is_missed"),
    ("PriorityUsageResetPeriod", "periods_end_as_the_calendar_says"),
    ("PriorityWeightAssoc", "jobs_have_the_factors_of_their_associations_and_qos"),
    ("PriorityWeightFairshare", "fair_shares_count_in_priorities_and_follow_what_is_used"),
    ("PriorityWeightQOS", "jobs_have_the_factors_of_their_associations_and_qos"),
    ("PriorityMaxAge", "weights_and_the_time_that_counts_are_those_of_the_site"),
    ("PriorityWeightAge", "weights_and_the_time_that_counts_are_those_of_the_site"),
    ("PriorityWeightPartition", "weights_and_the_time_that_counts_are_those_of_the_site"),
    ("PrivateData", "jobs_of_others_are_not_shown_where_the_site_keeps_them_private"),
    ("PriorityWeightTRES", "weights_and_the_time_that_counts_are_those_of_the_site"),
    ("ReconfigFlags", "the_site_says_which_updates_outlast_the_next_reading_of_its_file"),
    ("LaunchParameters", "a_shell_of_salloc_runs_on_a_node_of_the_allocation_where_the_site_says_so"),
    ("InteractiveStepOptions", "a_shell_of_salloc_runs_on_a_node_of_the_allocation_where_the_site_says_so"),
    ("ResvProlog", "programs_run_once_when_a_reservation_begins_and_when_it_ends"),
    ("ResvEpilog", "programs_run_once_when_a_reservation_begins_and_when_it_ends"),
    ("ResvOverRun", "jobs_leave_a_reservation_that_is_over_when_the_site_says"),
    ("SchedulerTimeSlice", "a_slice_is_as_long_as_the_site_says"),
    ("SlurmctldAddr", "the_controller_is_looked_for_where_the_site_says"),
    ("SlurmctldHost", "the_controller_is_looked_for_where_the_site_says"),
    ("SlurmdParameters", "where_the_configuration_overrides_a_node_counts_as_what_it_says"),
    ("SlurmdPort", "several_nodes_on_one_host_are_told_apart_by_port"),
    ("ResumeFailProgram", "a_node_that_does_not_come_in_time_is_down_and_its_job_is_requeued"),
    ("ResumeProgram", "nodes_are_powered_up_for_a_job_and_down_when_they_are_idle"),
    ("ResumeRate", "nodes_are_powered_up_for_jobs_and_on_request_at_the_rate_of_the_site"),
    ("ResumeTimeout", "a_node_that_does_not_come_in_time_is_down_and_its_job_is_requeued"),
    ("SuspendExcNodes", "some_nodes_stay_on_by_name_by_partition_and_by_state"),
    ("SuspendExcParts", "some_nodes_stay_on_by_name_by_partition_and_by_state"),
    ("SuspendExcStates", "some_nodes_stay_on_by_name_by_partition_and_by_state"),
    ("SuspendProgram", "nodes_are_powered_up_for_a_job_and_down_when_they_are_idle"),
    ("SuspendRate", "nodes_that_were_idle_for_their_time_are_powered_down_at_the_rate_of_the_site"),
    ("SuspendTime", "nodes_that_were_idle_for_their_time_are_powered_down_at_the_rate_of_the_site"),
    ("SuspendTimeout", "programs_run_for_nodes_that_are_on_their_way_once_and_again_after_a_restart"),
    ("TopologyParam", "the_site_says_whom_its_topology_binds_and_whether_it_orders_nodes"),
];

/// Key and test.
const NODE_EFFECTS: &[(&str, &str)] = &[
    ("NodeName", "partitions_decide_who_may_come"),
    ("CoreSpecCount", "a_jobs_cpuset_has_no_core_that_is_left_to_the_system"),
    ("CPUs", "jobs_with_gpus_get_cpus_and_memory_for_each_where_they_do_not_say"),
    ("Feature", "a_node_joins_runs_jobs_outlives_a_restart_and_is_deleted"),
    ("Features", "features_and_nodes_must_exist"),
    ("Gres", "jobs_with_gpus_get_cpus_and_memory_for_each_where_they_do_not_say"),
    ("RealMemory", "a_node_that_is_to_give_more_memory_than_its_cpus_may_bring_gives_more_cpus"),
    ("RestrictedCoresPerGPU", "cores_of_a_gpu_are_left_to_jobs_that_have_it"),
    ("Sockets", "jobs_get_cores_of_the_sockets_in_turn"),
    ("Topology", "places_in_topologies_are_checked"),
    ("Weight", "lower_weight_goes_first_then_the_tightest_node"),
    ("Boards", "counts_of_cpus_follow_slurms_rules"),
    ("CoresPerSocket", "counts_of_cpus_follow_slurms_rules"),
    ("SocketsPerBoard", "counts_of_cpus_follow_slurms_rules"),
    ("ThreadsPerCore", "counts_of_cpus_follow_slurms_rules"),
    ("Procs", "counts_of_cpus_follow_slurms_rules"),
    ("CpuSpecList", "cores_and_memory_for_the_system_are_kept_from_jobs"),
    ("MemSpecLimit", "cores_and_memory_for_the_system_are_kept_from_jobs"),
    ("NodeAddr", "several_nodes_on_one_host_are_told_apart_by_port"),
    ("NodeHostname", "several_nodes_on_one_host_are_told_apart_by_port"),
    ("Port", "several_nodes_on_one_host_are_told_apart_by_port"),
    ("Reason", "the_controller_is_found_under_older_names_and_places_are_those_of_the_file"),
    ("State", "the_controller_is_found_under_older_names_and_places_are_those_of_the_file"),
    ("SuspendTime", "times_are_those_of_the_node_then_of_its_partitions_then_of_the_cluster"),
    ("TmpDisk", "the_controller_is_found_under_older_names_and_places_are_those_of_the_file"),
];

/// Key and test.
const PARTITION_EFFECTS: &[(&str, &str)] = &[
    ("PartitionName", "partitions_decide_who_may_come"),
    ("AllowAccounts", "accounts_and_qos_count_at_submission_where_limits_are_enforced"),
    ("AllowGroups", "partitions_decide_who_may_come"),
    ("Alternate", "jobs_for_a_closed_partition_go_to_its_alternate"),
    ("Default", "defaults_are_filled_in_from_the_partition"),
    ("DefaultTime", "defaults_are_filled_in_from_the_partition"),
    ("DefCpuPerGPU", "jobs_with_gpus_get_cpus_and_memory_for_each_where_they_do_not_say"),
    ("DefMemPerCPU", "defaults_are_filled_in_from_the_partition"),
    ("DefMemPerGPU", "jobs_with_gpus_get_cpus_and_memory_for_each_where_they_do_not_say"),
    ("DenyQos", "accounts_and_qos_count_at_submission_where_limits_are_enforced"),
    ("GraceTime", "a_job_with_grace_is_told_and_may_end_by_itself"),
    ("Hidden", "jobs_of_hidden_partitions_are_left_out_where_that_is_asked"),
    ("JobDefaults", "jobs_with_gpus_get_cpus_and_memory_for_each_where_they_do_not_say"),
    ("MaxCPUsPerNode", "jobs_of_a_partition_leave_the_rest_of_a_node_to_others"),
    ("MaxMemPerCPU", "a_task_that_wants_more_memory_than_a_cpu_may_bring_gets_more_cpus"),
    ("MaxMemPerNode", "a_node_that_is_to_give_more_memory_than_its_cpus_may_bring_gives_more_cpus"),
    ("MaxTime", "what_could_never_run_is_refused_with_its_reason"),
    ("Nodes", "partitions_decide_who_may_come"),
    ("OverSubscribe", "two_jobs_on_the_same_cpus_take_turns"),
    ("OverTimeLimit", "over_time_limit_is_a_grace_period_and_may_be_unlimited"),
    ("PreemptMode", "without_requeue_it_ends_as_preempted_and_spared_partitions_stay"),
    ("PriorityJobFactor", "the_scheduler_calculates_and_the_owner_shows"),
    ("PriorityTier", "a_job_of_a_lower_tier_is_requeued_for_one_of_a_higher"),
    ("ReqResv", "some_partitions_are_for_jobs_in_reservations"),
    ("RootOnly", "partitions_decide_who_may_come"),
    ("State", "jobs_for_a_closed_partition_go_to_its_alternate"),
    ("TRESBillingWeights", "a_partitions_weights_say_what_a_job_is_billed"),
    ("AllocNodes", "a_partition_says_who_may_come_and_where_its_jobs_go"),
    ("QOS", "the_qos_of_a_partition_limits_its_jobs_unless_theirs_goes_over_it"),
    ("AllowQos", "accounts_and_qos_are_allowed_or_denied"),
    ("DenyAccounts", "accounts_and_qos_are_allowed_or_denied"),
    ("DefMemPerNode", "a_partition_says_who_may_come_and_where_its_jobs_go"),
    ("DisableRootJobs", "a_partition_says_who_may_come_and_where_its_jobs_go"),
    ("Exclusive", "a_partition_says_who_may_come_and_where_its_jobs_go"),
    ("ExclusiveUser", "a_partition_says_who_may_come_and_where_its_jobs_go"),
    ("LLN", "a_partition_says_who_may_come_and_where_its_jobs_go"),
    ("MaxNodes", "a_partition_says_who_may_come_and_where_its_jobs_go"),
    ("MinNodes", "a_partition_says_who_may_come_and_where_its_jobs_go"),
    ("Shared", "a_partition_says_who_may_come_and_where_its_jobs_go"),
    ("ExclusiveTopo", "jobs_of_a_partition_have_their_switches_to_themselves"),
    ("MaxCPUsPerSocket", "a_partition_takes_so_many_cpus_of_a_socket"),
    ("PowerDownOnIdle", "a_node_that_had_a_job_of_such_a_partition_is_powered_down_when_it_is_empty"),
    ("ResumeTimeout", "a_node_that_does_not_come_in_time_is_told_to_the_site"),
    ("SuspendTime", "times_are_those_of_the_node_then_of_its_partitions_then_of_the_cluster"),
    ("SuspendTimeout", "times_are_those_of_the_node_then_of_its_partitions_then_of_the_cluster"),
    ("Topology", "jobs_are_near_each_other_in_the_topology_of_their_partition"),
];

/// Names of all tests below a folder.
fn tests_below(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() {
            if name != "target" && !name.to_string_lossy().starts_with('.') {
                tests_below(&path, found);
            }
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            for after in text.split("#[test]").skip(1) {
                let name = after.split_once("fn ").and_then(|(_, rest)| rest.split_once('('));
                found.extend(name.map(|(name, _)| name.to_owned()));
            }
        }
    }
}

#[test]
fn every_honoured_key_has_a_test_of_its_effect() {
    let mut tests = BTreeSet::new();
    tests_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), &mut tests);
    fn of<S>(table: &'static [Row<S>]) -> BTreeSet<&'static str> {
        table.iter().filter(|row| row.class == Class::Honoured).map(|row| row.name).collect()
    }
    for (honoured, effects) in
        [(of(GLOBAL), GLOBAL_EFFECTS), (of(NODE), NODE_EFFECTS), (of(PARTITION), PARTITION_EFFECTS)]
    {
        let mut listed = BTreeMap::new();
        for (key, test) in effects {
            assert_eq!(listed.insert(*key, *test), None, "{key} is listed twice");
            assert!(honoured.contains(key), "{key} is not honoured");
            assert!(tests.contains(*test), "{key}: there is no test {test}");
        }
        let missing: Vec<&&str> = honoured.iter().filter(|key| !listed.contains_key(*key)).collect();
        assert!(missing.is_empty(), "honoured, and no test is named that shows it: {missing:?}");
    }
}
