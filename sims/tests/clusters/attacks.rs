//! The attacks of `docs/attacks.md` on real daemons, but for those that need a flood or a cable. Needs root, network namespaces,
//! and the workspace's programs beside it.

use garrick_sims::attacks;

#[test]
fn nobody_gets_what_is_not_theirs() {
    let Some(out) = crate::support::short_form(env!("CARGO_BIN_EXE_garrick-attacks")) else { return };
    let short = attacks::all().iter().filter(|attack| !attack.long).count();
    assert!(out.contains(&format!("{short} held, 0 broken, 0 unclear")), "{out}");
}
