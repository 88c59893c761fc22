//! Files to and from the nodes of a job: `sbcast`, `srun --bcast`, `sgather`. The nodes of these clusters are on one machine, so a
//! file that is to be on each has the node's name in its own, or replaces that of the node before.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::Cluster;
use std::{
    fs::{self, File},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
    time::{Duration, SystemTime},
};

const UP: &[&str] = &["--nodes", "4", "--cpus", "2", "--memory", "1000"];

/// Several parts, and none like the one before.
fn contents() -> Vec<u8> {
    (0..700_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_file_goes_to_all_nodes_of_a_job() {
    let c = Cluster::up("sbcast", UP);
    let (source, to) = (c.work.join("big"), c.work.join("to"));
    fs::write(&source, contents()).unwrap();
    fs::set_permissions(&source, fs::Permissions::from_mode(0o640)).unwrap();
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(1_500_000_000);
    File::options().write(true).open(&source).unwrap().set_modified(modified).unwrap();
    fs::create_dir(&to).unwrap();
    let ways = [
        ("", false),
        ("-F1", false),
        ("-F off -s 64k", false),
        ("-C", false),
        ("-p -F 2", true),
        ("-p -C -w n3", true),
    ];
    for (number, (options, preserve)) in ways.into_iter().enumerate() {
        let dest = to.join(number.to_string());
        let a = c.sh(&format!("salloc -Q -N4 sbcast -f {options} {} {}", source.display(), dest.display())).ok();
        assert_eq!((a.out.as_str(), a.err.as_str()), ("", ""), "{options}");
        assert!(fs::read(&dest).unwrap() == contents(), "{options}");
        let found = fs::metadata(&dest).unwrap();
        assert_eq!((found.mode() & 0o7777, found.mtime() == 1_500_000_000), (0o640, preserve), "{options}");
    }
    // Nothing but these is left, whatever it was called meanwhile.
    assert_eq!(names(&to), ["0", "1", "2", "3", "4", "5"]);
}

#[test]
fn what_cannot_be_written_is_said_and_leaves_nothing() {
    let c = Cluster::up("sbcast-errors", UP);
    let to = c.work.join("to");
    fs::create_dir(&to).unwrap();
    fs::write(c.work.join("new"), "new").unwrap();
    fs::write(to.join("old"), "old").unwrap();
    let sent = |words: &str| c.sh(&format!("salloc -Q -N2 -w n[1-2] sbcast {words}"));
    let said = |nodes: [&str; 2], why: &str| {
        nodes.map(|node| format!("sbcast: error: REQUEST_FILE_BCAST({node}): {why}\n")).concat()
    };
    let there = sent("new to/old");
    assert_eq!((there.code, there.err), (libc::EEXIST, said(["n1", "n2"], "File exists")));
    let folder = sent("-f new to");
    assert_eq!((folder.code, folder.err), (libc::EISDIR, said(["n1", "n2"], "Is a directory")));
    let nowhere = sent("new none/x");
    assert_eq!((nowhere.code, nowhere.err), (libc::ENOENT, said(["n1", "n2"], "No such file or directory")));
    for (words, err) in [
        ("-w n4 new to/x", "Not all nodes in --nodelist/-w 'n4' are in job"),
        ("-j 999 new to/x", "Failed to load JobId=999: 'Invalid job id specified'"),
        ("-j 999.1 new to/x", "Failed to load JobId=999: 'Invalid job id specified'"),
        ("-j 999+1 new to/x", "Slurm job 999+1 lookup error: Invalid job id specified"),
        ("none to/x", "Can't open `none`: No such file or directory"),
        ("to to/x", "Can't mmap file `to`, No such device."),
    ] {
        let a = sent(words);
        let code = if err.starts_with("Failed") { 1 } else { 255 };
        assert_eq!(a.code, code, "{words}: {a:?}");
        assert!(a.err.starts_with(&format!("sbcast: error: {err}")), "{words}: {a:?}");
    }
    assert_eq!((names(&to), fs::read(to.join("old")).unwrap()), (vec!["old".to_owned()], b"old".to_vec()));
}

#[test]
fn a_file_goes_to_the_nodes_of_a_step_and_of_a_job_elsewhere() {
    let c = Cluster::up("sbcast-step", UP);
    fs::write(c.work.join("f"), "text").unwrap();
    let (ready, go) = (c.fifo("ready"), c.fifo("go"));
    c.script(
        "job.sh",
        &format!("#!/bin/bash\nsrun -N1 -w n2 sh -c 'echo > {}; cat {}'\n", ready.display(), go.display()),
    );
    let job = c.sh("sbatch -N3 -w n[1-3] -o /dev/null job.sh").ok().job();
    fs::read(&ready).unwrap();
    let nodes = |whose: &str| {
        let a = c.sh(&format!("sbcast -v -f -j {whose} f to")).ok();
        a.err.lines().find_map(|line| line.strip_prefix("sbcast: node_list  = ")).unwrap_or_default().to_owned()
    };
    assert_eq!((nodes(&job), nodes(&format!("{job}.0"))), ("n[1-3]".to_owned(), "n2".to_owned()));
    assert_eq!(nodes(&format!("{job}.batch")), "n1");
    assert_eq!(c.read("to"), "text");
    fs::write(&go, "\n").unwrap();
    c.sh(&format!("swait {job}")).ok();
}

#[test]
fn a_step_has_its_program_on_its_nodes() {
    let c = Cluster::up("srun-bcast", UP);
    c.script("prog", "#!/bin/sh\necho \"$0 $1\"\n");
    let (to, w) = (c.work.join("to"), c.work.display());
    fs::create_dir(&to).unwrap();
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let a = c.sh("salloc -Q -N3 -w n[1-3] srun -n3 --bcast=/none/ ./prog a");
    assert_eq!(a.code, 1, "{a:?}");
    let last = format!("srun: fatal: Failed to broadcast '{w}/./prog'. Step launch aborted.");
    assert_eq!(a.err.lines().last(), Some(last.as_str()), "{a:?}");
    let a = c.sh(&format!("salloc -Q -N3 -w n[1-3] srun -n3 --bcast={w}/to/ ./prog a")).ok();
    let job = names(&to)[0].split(['_', '.']).nth(2).unwrap().to_owned();
    let each = ["n1", "n2", "n3"].map(|node| format!("slurm_bcast_{job}.0_{node}"));
    assert_eq!(sorted(&a.out), each.each_ref().map(|name| format!("{w}/to/{name} a")));
    assert_eq!(names(&to), each);
    let own = c.sh(&format!("srun -N2 -n2 --compress --bcast={w}/to/own ./prog b")).ok();
    assert_eq!(sorted(&own.out), [format!("{w}/to/own b"), format!("{w}/to/own b")]);
    assert_eq!(fs::read(to.join("own")).unwrap(), fs::read(c.work.join("prog")).unwrap());
    let none = c.sh("srun -n1 --bcast none");
    assert_eq!((none.code, none.err.as_str()), (1, "srun: fatal: Can not execute none\n"));
    let line = "srun -n1 --bcast=to/libs --send-libs --bcast-exclude=NONE sh -c 'echo $LD_LIBRARY_PATH'";
    let line = line.replace("to/libs", &format!("{w}/to/libs"));
    let path = c.shell(&line).ok().out;
    assert_eq!(path.trim().split(':').next().unwrap(), format!("{w}/to/libs_libs"));
    let libs = names(&to.join("libs_libs"));
    assert!(libs.iter().any(|name| name.starts_with("libc.so")), "{libs:?}");
    assert_eq!(fs::metadata(to.join("libs_libs")).unwrap().mode() & 0o777, 0o700);
}

#[test]
fn files_are_sent_as_the_site_says() {
    let c = Cluster::up_with("bcast-parameters", &["--nodes", "2", "--cpus", "2", "--memory", "1000"], |cluster| {
        let dest = cluster.work.join("dest");
        fs::create_dir(&dest).unwrap();
        format!("BcastParameters=DestDir={},Compression=lz4,send_libs\nBcastExclude=NONE", dest.display())
    });
    let dest = c.work.join("dest");
    let sent = |options: &str| c.sh(&format!("salloc -Q -N1 sbcast -v -f {options} /bin/true true")).ok().err;
    let said = sent("");
    for line in ["compress   = 2", "send_libs  = true", "exclude    = NONE"] {
        assert!(said.contains(&format!("sbcast: {line}\n")), "{line}: {said}");
    }
    assert!(said.contains("sbcast: File compressed from "), "{said}");
    assert_eq!(names(&dest), ["true", "true_libs"]);
    assert!(names(&dest.join("true_libs")).iter().any(|name| name.starts_with("libc.so")));
    fs::remove_dir_all(dest.join("true_libs")).unwrap();
    sent("--exclude=/lib,/lib64,/usr");
    sent("--send-libs=no");
    assert_eq!(names(&dest), ["true"]);
    let a = c.sh("srun -n1 --send-libs=no --bcast sh -c true").ok();
    assert_eq!(a.err, "");
    assert!(names(&dest)[0].starts_with("slurm_bcast_"), "{:?}", names(&dest));
    let shown = c.sh("scontrol show config").ok().out;
    let line = |key: &str| shown.lines().find(|line| line.starts_with(key)).unwrap_or_default().to_owned();
    assert!(line("BcastParameters").ends_with(",Compression=lz4,send_libs"), "{}", line("BcastParameters"));
}

#[test]
fn a_file_comes_from_each_node_and_is_removed_there() {
    let c = Cluster::up("sgather", UP);
    let source = c.work.join("from");
    fs::write(&source, contents()).unwrap();
    fs::set_permissions(&source, fs::Permissions::from_mode(0o750)).unwrap();
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(1_500_000_000);
    File::options().write(true).open(&source).unwrap().set_modified(modified).unwrap();
    fs::create_dir(c.work.join("to")).unwrap();
    let gathered = |words: &str| c.sh(&format!("salloc -Q -N3 -w n[1-3] sgather {words}"));
    gathered("-k -p from to/a").ok();
    let there = gathered("-k -F 2 from to/a");
    assert_eq!(there.code, 1);
    assert!(there.err.starts_with("sgather: error: n1: to/a.n1: File exists\n"), "{there:?}");
    let none = gathered("none to/b");
    assert_eq!(none.code, 1);
    assert!(none.err.starts_with("sgather: error: n1: none: No such file or directory\n"), "{none:?}");
    assert!(source.exists());
    gathered("-f from to/a").ok();
    assert!(!source.exists());
    assert_eq!(names(&c.work.join("to")), ["a.n1", "a.n2", "a.n3"]);
    for node in 1..=3 {
        assert!(fs::read(c.work.join(format!("to/a.n{node}"))).unwrap() == contents());
    }
    fs::write(&source, "x").unwrap();
    fs::set_permissions(&source, fs::Permissions::from_mode(0o750)).unwrap();
    File::options().write(true).open(&source).unwrap().set_modified(modified).unwrap();
    gathered("-p -t 60 -C -s 1k from to/c").ok();
    let found = fs::metadata(c.work.join("to/c.n2")).unwrap();
    assert_eq!((found.mode() & 0o777, found.mtime()), (0o750, 1_500_000_000));
}
