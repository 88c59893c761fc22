//! Launchers that are copies of the process that starts them.

use super::*;
use std::{collections::BTreeSet, fs, process::Command};

/// What a process of one thread, which cannot be dumped, finds of a launcher that it starts as a copy of itself: a line each.
pub(crate) fn entry() -> ! {
    let folder = std::env::args_os().nth(1).unwrap();
    let folder = Path::new(&folder);
    // Whoever can be dumped makes none.
    println!("{}", start_ahead(LauncherSpec::new(None)).is_err());
    reap::become_undumpable().unwrap();
    reap::become_subreaper().unwrap();
    let secret = fs::File::create(folder.join("secret")).unwrap();
    let listens_at = folder.join("launcher.sock");
    let mut spec = LauncherSpec::new(Some(nobody()));
    spec.listen_at = Some(&listens_at);
    let handle = start_ahead(spec).unwrap().ready().unwrap();
    drop(secret);
    let of = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", handle.pid)).unwrap();
    println!("{}", of("cmdline").replace('\0', " "));
    println!("{} [{}]", of("comm").trim(), of("environ"));
    println!("{}", ids_and_capabilities(handle.pid));
    let open = fs::read_dir(format!("/proc/{}/fd", handle.pid)).unwrap();
    let open: BTreeSet<_> = open.map(|fd| fs::read_link(fd.unwrap().path()).unwrap()).collect();
    println!("{}", open.contains(&folder.join("secret")));
    let mut rig = Rig::with(handle);
    let (_read, write) = pipe();
    rig.spawn(task(1, "exit 7"), &[write.as_fd()]);
    rig.spawned();
    println!("{:?}", rig.exited());
    rig.finish();
    std::process::exit(0)
}

#[test]
fn a_launcher_that_is_a_copy_of_its_starter_has_nothing_of_it_but_its_sockets() {
    if !root_or_skip("a_launcher_that_is_a_copy_of_its_starter_has_nothing_of_it_but_its_sockets") {
        return;
    }
    let dir = Scratch::new("launcher-ahead");
    let ran = Command::new("/proc/self/exe").arg(dir.path()).env(ENTRY, "ahead").output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    let socket = dir.join("launcher.sock");
    let expected = [
        "true".to_owned(),
        format!("stepd launcher --fd 3 --listen 4 {} ", socket.display()),
        "launcher []".to_owned(),
        NOBODYS.to_owned(),
        "false".to_owned(),
        "(1, 7, None)".to_owned(),
    ];
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
}
