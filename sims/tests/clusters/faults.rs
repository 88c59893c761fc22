//! The short form of the fault runner: real processes that are killed, stopped and cut off while they work. Needs root,
//! network namespaces, and the workspace's programs beside it.

#[test]
fn nothing_is_lost_and_nothing_runs_twice_whatever_is_killed() {
    let Some(out) = crate::support::short_form(env!("CARGO_BIN_EXE_garrick-faults")) else { return };
    assert!(out.contains("0 lost, 0 duplicated, 0 leaked, 0 untrue"), "{out}");
}
