//! Plans, tested as a whole.

mod accounting_test;
mod bounds_test;
mod caps_test;
mod core_reservations_test;
mod core_spec_test;
mod fair_test;
mod gres_test;
mod het_test;
mod hres_test;
mod kept_test;
mod layout_test;
mod licenses_test;
mod memory_test;
mod mixed_test;
mod plan_test;
mod preempt_test;
mod priority_test;
mod reservations_test;
mod restricted_test;
mod resume_test;
mod rules_test;
mod sizes_test;
mod time_min_test;
mod topology_test;
mod turns_test;
mod whole_test;
