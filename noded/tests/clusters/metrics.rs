//! Health and metrics of the controller over HTTP.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{Cluster, free_ports};
use garrick_model::time::Timestamp;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use std::{io::Write as _, net::TcpStream, process::Command};

const TWO: [&str; 6] = ["--nodes", "2", "--cpus", "4", "--memory", "4000"];

/// Status and body of an answer.
fn get(port: u16, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let request = agent.get(format!("http://127.0.0.1:{port}{path}"));
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let mut answer = request.call().unwrap();
    (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
}

/// The value of a sample.
fn sample(port: u16, page: &str, name: &str) -> Option<String> {
    let (status, body) = get(port, page, &[]);
    assert_eq!(status, 200, "{page}: {body}");
    body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).map(str::to_owned)
}

/// A cluster whose controller has this port, with more lines in `slurm.conf`.
fn up(name: &str, port: u16, lines: &str) -> Cluster {
    Cluster::up_changed(name, &TWO, |_, own| {
        let other = own.lines().map(|line| match line.starts_with("SlurmctldPort=") {
            true => format!("SlurmctldPort={port}\n"),
            false => format!("{line}\n"),
        });
        format!("{}{lines}\n", other.collect::<String>())
    })
}

#[test]
fn prometheus_reads_metrics_at_the_port_of_the_controller() {
    let port = free_ports(1)[0];
    let c = up("metrics", port, "MetricsType=metrics/openmetrics");
    for path in ["/livez", "/readyz", "/healthz"] {
        assert_eq!(get(port, path, &[]), (204, String::new()), "{path}");
    }
    let (status, index) = get(port, "/metrics", &[]);
    assert_eq!(status, 200);
    assert!(
        index.starts_with("slurmctld index of metrics endpoints:\n  '/metrics/jobs': get job metrics\n"),
        "{index}"
    );
    let unknown = "slurmctld HTTP server request for 'GET /metrics/':\nFailed: Invalid or unknown URL path\n";
    assert_eq!(get(port, "/metrics/", &[]), (404, unknown.to_owned()));
    // A client that says nothing holds nobody up.
    let mut silent = TcpStream::connect(("127.0.0.1", port)).unwrap();
    silent.write_all(b"GET /metrics/jobs HTTP/1.1\r\n").unwrap();

    let runs = c.shell("sbatch -n3 --mem=100 -o /dev/null --wrap 'srun -n3 sleep 100000'").ok().job();
    c.await_state(&runs, "RUNNING");
    c.shell("sbatch -H -a 0-4 -o /dev/null --wrap true").ok();
    let failed = c.shell("sbatch -n1 --mem=100 -o /dev/null --wrap 'exit 3'").ok().job();
    c.await_state(&failed, "FAILED");
    for (page, name, value) in [
        ("/metrics/jobs", "slurm_jobs", "7"),
        ("/metrics/jobs", "slurm_jobs_running", "1"),
        ("/metrics/jobs", "slurm_jobs_hold", "5"),
        ("/metrics/jobs", "slurm_jobs_failed", "1"),
        ("/metrics/jobs", "slurm_jobs_cpus_alloc", "3"),
        ("/metrics/nodes", "slurm_nodes_mixed", "1"),
        ("/metrics/nodes", "slurm_nodes_idle", "1"),
        ("/metrics/partitions", "slurm_partitions", "1"),
    ] {
        c.await_that(name, || sample(port, page, name).as_deref() == Some(value));
    }
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap().name;
    let mine = format!("slurm_user_jobs_pending{{username=\"{user}\"}}");
    assert_eq!(sample(port, "/metrics/jobs-users-accts", &mine).as_deref(), Some("5"));
    assert_eq!(sample(port, "/metrics/scheduler", "slurm_sdiag_jobs_submitted").as_deref(), Some("3"));
    c.await_that("the step is told", || {
        sample(port, "/metrics/garrick", "garrick_steps_running").as_deref() == Some("1")
    });
    c.await_that("accounting has stored all", || {
        sample(port, "/metrics/garrick", "garrick_accounting_queue_events").as_deref() == Some("0")
    });
    // Where Debian's prometheus is installed, its own checker reads every page.
    if let Ok(mut check) =
        Command::new("promtool").args(["check", "metrics"]).stdin(std::process::Stdio::piped()).spawn()
    {
        let (_, own) = get(port, "/metrics/garrick", &[]);
        check.stdin.take().unwrap().write_all(own.as_bytes()).unwrap();
        assert!(check.wait().unwrap().success(), "{own}");
    }
    c.down();
    drop(silent);
}

#[test]
fn metrics_are_for_whom_the_site_names() {
    let port = free_ports(1)[0];
    let c = Cluster::up("metrics-users", &TWO);
    c.sh("garrick down").ok();
    let key = c.work.join("jwt.key");
    std::fs::write(&key, b"the secret of this site").unwrap();
    let path = c.conf_folder().join("slurm.conf");
    let own = std::fs::read_to_string(&path).unwrap();
    let lines = own.lines().filter(|line| !line.starts_with("SlurmctldPort="));
    let own: String = lines.map(|line| format!("{line}\n")).collect();
    let conf = |lines: &str| {
        std::fs::write(&path, format!("{own}SlurmctldPort={port}\n{lines}\n")).unwrap();
    };
    let auth = format!("SlurmctldHttpAuthParameters=jwt_key={}", key.display());
    conf(&format!("MetricsType=metrics/openmetrics\nMetricsAuthUsers=alice,dave\n{auth}"));
    c.sh("garrick up").ok();
    let token = |user: &str, secs: i64| {
        let claims = serde_json::json!({ "sun": user, "exp": Timestamp::now().secs() + secs });
        let key = EncodingKey::from_secret(b"the secret of this site");
        format!("Bearer {}", jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key).unwrap())
    };
    let status = |token: &str| get(port, "/metrics/jobs", &[("authorization", token)]).0;
    assert_eq!(get(port, "/metrics/jobs", &[]).0, 401, "nobody");
    assert_eq!(get(port, "/livez", &[]).0, 204, "health is for all");
    assert_eq!(status(&token("alice", 60)), 200);
    assert_eq!(status(&token("root", 60)), 200);
    assert_eq!(status(&token("bob", 60)), 403, "another user");
    assert_eq!(status(&token("alice", -60)), 401, "it has run out");
    let reads = |lines: &str, expected: u16| {
        conf(lines);
        c.sh("scontrol reconfigure").ok();
        assert_eq!(get(port, "/metrics/nodes", &[]).0, expected, "{lines}");
    };
    reads("MetricsType=metrics/openmetrics", 200);
    reads("MetricsType=metrics/openmetrics\nPrivateData=jobs", 401);
    reads("MetricsType=metrics/openmetrics\nPrivateData=jobs\nMetricsParameters=ignore_private_data", 200);
    assert_eq!(sample(port, "/metrics/nodes", "slurm_nodes").as_deref(), Some("2"));
    reads("", 200);
    assert_eq!(get(port, "/metrics/nodes", &[]), (200, String::new()), "there are none without MetricsType");
    c.down();
}
