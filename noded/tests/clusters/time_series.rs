//! Time series of steps, in files and at a server, and the power of nodes.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{Answer, Cluster, answer, is_root};
use garrick_model::profile::{Dataset, Point, Series};
use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, User, geteuid},
};
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::{Arc, Mutex},
};

const ONE: [&str; 6] = ["--nodes", "1", "--cpus", "4", "--memory", "4000"];
/// A user that there is on any Debian.
const GAMES: u32 = 5;

/// A program that uses CPU time and writes until there is a file `open`.
fn busy(c: &Cluster) -> String {
    let text = "#!/bin/bash\nuntil [ -e open ]; do for i in {1..20000}; do :; done; echo some > /dev/null; done\n";
    c.script("busy.sh", text).display().to_string()
}

/// `command` as the user of the job: an ordinary one, where this is root.
fn as_owner(c: &Cluster, words: &[&str]) -> Answer {
    match is_root() {
        true => answer(c.command_as(GAMES, words[0]).args(&words[1..])),
        false => c.run(words[0], &words[1..]),
    }
}

fn points(text: &str) -> Vec<Point> {
    text.lines().map(|line| Point::read(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

/// Values of CPU time of a task, in order.
fn cpu_times(points: &[Point], task: u32) -> Vec<f64> {
    let of_task = |point: &&Point| point.dataset == Dataset::CpuTime && point.task == Some(task);
    points.iter().filter(of_task).map(|point| point.value).collect()
}

fn grows(values: &[f64]) -> bool {
    values.len() > 1 && values.windows(2).all(|pair| pair[0] <= pair[1]) && values[0] < values[values.len() - 1]
}

#[test]
fn time_series_are_in_files_of_their_user_also_after_a_step_manager_was_killed() {
    let c = Cluster::up_with("series-files", &ONE, |c| {
        let text = format!("ProfileHDF5Dir={}\n", c.work.join("profiles").display());
        std::fs::write(c.conf_folder().join("acct_gather.conf"), text).unwrap();
        "AcctGatherProfileType=acct_gather_profile/hdf5\nJobAcctGatherFrequency=task=1".to_owned()
    });
    let program = busy(&c);
    let submitted = |options: &[&str], wrapped: &str| {
        let words = [&["sbatch", "-n2", "-o", "/dev/null"], options, &["--wrap", wrapped]].concat();
        as_owner(&c, &words).ok().job()
    };
    // Nobody stays with the step, who would hear of the kill.
    let job = submitted(&["--profile=task"], &format!("srun --async -o /dev/null {program}; swait"));
    let profile = |options: &[&str]| as_owner(&c, &[&["garrick", "profile"], options].concat());
    let of_step = format!("{job}.0");
    let recorded = || points(&profile(&[&of_step]).out);
    c.await_that("both tasks have samples that grow", || {
        let points = recorded();
        (0..2).all(|task| grows(&cpu_times(&points, task)))
    });
    // Whose they are.
    let uid = if is_root() { GAMES } else { geteuid().as_raw() };
    let user = User::from_uid(uid.into()).unwrap().unwrap().name;
    let folder = c.work.join("profiles").join(&user);
    let file = folder.join(format!("{job}_0_n1.lp"));
    for (path, mode) in [(&folder, 0o700), (&file, 0o600)] {
        let found = std::fs::metadata(path).unwrap();
        assert_eq!((found.uid(), found.mode() & 0o777), (uid, mode), "{}", path.display());
    }
    if is_root() {
        let refused = answer(c.command_as(9, "garrick").args(["profile", "-u", &user, &job]));
        assert!(refused.code == 1 && refused.err.contains("Permission denied"), "{refused:?}");
        assert!(!c.sh(&format!("garrick profile -u {user} {job}")).ok().out.is_empty());
    }
    // The manager is killed: another one adopts the tasks, and goes on.
    let stepd = c.stepd_of(&job, "n1").unwrap();
    kill(Pid::from_raw(stepd), Signal::SIGKILL).unwrap();
    c.await_that("another stepd serves the run", || c.stepd_of(&job, "n1").is_some_and(|next| next != stepd));
    let before = recorded();
    c.await_that("both tasks have further samples", || {
        let points = recorded();
        (0..2).all(|task| cpu_times(&points, task).len() > cpu_times(&before, task).len() + 1)
    });
    std::fs::write(c.work.join("open"), "").unwrap();
    c.await_state(&job, "COMPLETED");
    let all = recorded();
    assert!(all.windows(2).all(|pair| pair[0].at_ms <= pair[1].at_ms));
    assert!((0..2).all(|task| grows(&cpu_times(&all, task))), "{all:?}");
    let csv = profile(&["--csv", "--series=task", &job]).ok().out;
    let mut rows = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let heading = rows.next().unwrap();
    assert_eq!(heading[..6], ["Time", "Job", "Step", "Node", "Series", "Task"]);
    assert!(heading.contains(&"RSS") && heading.contains(&"WriteMB"), "{heading:?}");
    let steps: Vec<&str> = rows.map(|row| row[2]).collect();
    assert!(steps.contains(&"0") && steps.contains(&"batch"), "{steps:?}");
    // What is not asked for is not recorded, and what is shown is what was asked for.
    let other = submitted(&[], &format!("srun {program}; srun --profile=task {program}"));
    c.await_state(&other, "COMPLETED");
    let steps: Vec<String> = points(&profile(&[&other]).ok().out).into_iter().map(|point| point.step).collect();
    assert!(!steps.is_empty() && steps.iter().all(|step| step == "1"), "{steps:?}");
    let shown = |job: &str| c.sh(&format!("squeue -h -t all -O profile:20 -j {job}")).ok().out.trim().to_owned();
    assert_eq!((shown(&job), shown(&other)), ("Task".to_owned(), "NotSet".to_owned()));
    let document: serde_json::Value =
        serde_json::from_str(&c.sh(&format!("squeue -t all --json -j {job}")).out).unwrap();
    assert_eq!(document["jobs"][0]["profile"], serde_json::json!(["TASK"]));
    let wrong = c.sh("sbatch --profile=foo --wrap true");
    assert_eq!((wrong.code, wrong.err.lines().next()), (255, Some("sbatch: error: invalid --profile=foo option")));
}

/// What was posted.
struct Request {
    /// The first line.
    line: String,
    points: Vec<Point>,
}

/// Takes requests, until this process ends.
fn server(listener: TcpListener) -> Arc<Mutex<Vec<Request>>> {
    let seen = Arc::<Mutex<Vec<Request>>>::default();
    let of_thread = Arc::clone(&seen);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if let Some(request) = request(&stream) {
                of_thread.lock().unwrap().push(request);
                let _ = (&stream).write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
            }
        }
    });
    seen
}

fn request(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if line.trim_end().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { line: head.lines().next()?.to_owned(), points: points(&String::from_utf8(body).ok()?) })
}

#[test]
fn time_series_are_sent_to_a_server() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let c = Cluster::up_with("series-server", &ONE, |c| {
        let text = format!(
            "ProfileInfluxDBHost=127.0.0.1:{port}\nProfileInfluxDBDatabase=slurm\nProfileInfluxDBDefault=Task\n\
             ProfileInfluxDBFrequency=1\nSysfsInterfaces=lo\n"
        );
        std::fs::write(c.conf_folder().join("acct_gather.conf"), text).unwrap();
        "AcctGatherProfileType=acct_gather_profile/influxdb\nAcctGatherInterconnectType=acct_gather_interconnect/sysfs\n\
         JobAcctGatherFrequency=task=1,network=1"
            .to_owned()
    });
    let program = busy(&c);
    let submitted = |options: &str| {
        let wrapped = format!("srun {program}");
        c.shell(&format!("sbatch -n1 --mem=100 -o /dev/null {options} --wrap '{wrapped}'")).ok().job()
    };
    // Nobody answers yet: that is in nobody's way.
    let (usual, asked, none) = (submitted(""), submitted("--profile=network"), submitted("--profile=none"));
    for job in [&usual, &asked, &none] {
        c.await_state(job, "RUNNING");
    }
    let seen = server(listener);
    // What nobody answered in time is sent again, maybe behind what is newer.
    let of = |job: &str, series: Series| -> Vec<Point> {
        let requests = seen.lock().unwrap();
        let all = requests.iter().flat_map(|request| &request.points);
        let of_job = all.filter(|point| point.job.to_string() == job && point.series == series);
        let mut points: Vec<Point> = of_job.cloned().collect();
        points.sort_by_key(|point| point.at_ms);
        points
    };
    c.await_that("samples come", || {
        // The batch script has a task 0 too.
        let of_step: Vec<Point> = of(&usual, Series::Task).into_iter().filter(|point| point.step == "0").collect();
        grows(&cpu_times(&of_step, 0))
            && of(&asked, Series::Network).iter().any(|point| point.dataset == Dataset::PacketsIn && point.step == "0")
    });
    std::fs::write(c.work.join("open"), "").unwrap();
    for job in [&usual, &asked, &none] {
        c.await_state(job, "COMPLETED");
    }
    assert!(of(&usual, Series::Network).is_empty() && of(&asked, Series::Task).is_empty());
    assert!(Series::ALL.into_iter().all(|series| of(&none, series).is_empty()));
    let lines: Vec<String> = seen.lock().unwrap().iter().map(|request| request.line.clone()).collect();
    assert!(lines.iter().all(|line| line == "POST /write?db=slurm HTTP/1.1"), "{lines:?}");
    let refused = c.sh(&format!("garrick profile {usual}"));
    assert!(refused.code == 1 && refused.err.contains(&format!("http://127.0.0.1:{port}")), "{refused:?}");
}

fn put(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, format!("{text}\n")).unwrap();
}

fn watts(c: &Cluster) -> (u32, u32) {
    let shown = c.sh("scontrol -o show node n1").ok().out;
    let number = |field| crate::support::field_of(&shown, field).unwrap().parse().unwrap();
    (number("CurrentWatts"), number("AveWatts"))
}

#[test]
fn the_power_of_nodes_is_shown() {
    for (kind, variable) in [("rapl", "GARRICK_POWERCAP_FOLDER"), ("ipmi", "GARRICK_HWMON_FOLDER")] {
        let c = Cluster::up_with(&format!("power-{kind}"), &ONE, |_| {
            format!("AcctGatherEnergyType=acct_gather_energy/{kind}\nAcctGatherNodeFreq=1\nSlurmdTimeout=3")
        });
        let counter = c.work.join("sys/intel-rapl:0/energy_uj");
        match kind {
            "rapl" => {
                put(&c.work.join("sys/intel-rapl:0/name"), "package-0");
                put(&c.work.join("sys/intel-rapl:0/max_energy_range_uj"), "1000000000000000");
                put(&counter, "0");
            }
            _ => {
                put(&c.work.join("sys/hwmon3/name"), "power_meter");
                put(&c.work.join("sys/hwmon3/power1_average"), "350000000");
            }
        }
        c.sh("garrick down").ok();
        c.shell(&format!("{variable}=$PWD/sys garrick up")).ok();
        let mut joules: u64 = 0;
        c.await_that("the node has a power", || {
            if kind == "rapl" {
                joules += 1000;
                put(&counter, &(joules * 1_000_000).to_string());
            }
            let (now, mean) = watts(&c);
            now > 0 && mean > 0
        });
        if kind == "ipmi" {
            // Two clocks are in the mean.
            c.await_that("it is that of the power meter", || {
                let (now, mean) = watts(&c);
                now == 350 && (340..=360).contains(&mean)
            });
        }
        let document: serde_json::Value = serde_json::from_str(&c.sh("scontrol show node n1 --json").ok().out).unwrap();
        let energy = &document["nodes"][0]["energy"];
        assert!(energy["consumed_energy"].as_u64().unwrap() > 0, "{energy}");
        assert!(
            energy["current_watts"]["number"].is_u64() && energy["last_collected"].as_i64().unwrap() > 0,
            "{energy}"
        );
    }
}
