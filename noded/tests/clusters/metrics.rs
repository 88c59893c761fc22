//! Health and metrics of the controller over HTTP.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{Cluster, Killed, free_ports};
use garrick_model::time::Timestamp;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use std::{
    fs::{self, File},
    io::Write as _,
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
};

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
    let of_actors = |name: &str| {
        let (_, own) = get(port, "/metrics/garrick", &[]);
        let line =
            own.lines().find_map(|line| line.strip_prefix(&format!("{name}{{actors=\"/job\"")).map(str::to_owned));
        line.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
    };
    assert!(of_actors("garrick_actors").unwrap() >= 1.0);
    assert!(of_actors("garrick_mailbox_messages").is_some());
    assert!(of_actors("garrick_message_handling_seconds_total").is_some());
    let started: i64 = sample(port, "/metrics/garrick", "process_start_time_seconds").unwrap().parse().unwrap();
    assert!(started > 1_700_000_000 && started <= Timestamp::now().secs() + 1, "{started}");
    let resident: u64 = sample(port, "/metrics/garrick", "process_resident_memory_bytes").unwrap().parse().unwrap();
    assert!(resident > 1 << 20, "{resident}");
    c.down();
    drop(silent);
}

/// Expressions of a dashboard's panels, for one controller.
fn expressions(dashboard: &Path, controller: &str) -> Vec<String> {
    let dashboard: serde_json::Value = serde_json::from_slice(&fs::read(dashboard).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.map(|target| target["expr"].as_str().unwrap().replace("$controller", controller)).collect()
}

/// A real Prometheus with the configuration and rules of `examples/monitoring`: it reads every page without a complaint, each panel of
/// the dashboards has data, and an alert fires when a node is lost.
#[test]
fn prometheus_of_debian_reads_all_and_its_alerts_fire() {
    if Command::new("prometheus").arg("--version").stderr(Stdio::null()).stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: prometheus is not installed");
        return;
    }
    let ports = free_ports(2);
    let c = up("prometheus", ports[0], "MetricsType=metrics/openmetrics\nSlurmdTimeout=2");
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/monitoring");
    let promtool = |words: &[&str]| {
        let said = Command::new("promtool").args(words).current_dir(&examples).output().unwrap();
        assert!(said.status.success(), "{words:?}: {}", String::from_utf8_lossy(&said.stdout));
    };
    promtool(&["check", "config", "prometheus.yml"]);
    promtool(&["test", "rules", "garrick.rules.test.yml"]);

    // As at a site, only quicker.
    let (controller, server) = (format!("127.0.0.1:{}", ports[0]), ports[1]);
    let text = |name: &str| fs::read_to_string(examples.join(name)).unwrap();
    let config = text("prometheus.yml").replace("ctl1:6817", &controller).replace("30s", "1s");
    fs::write(c.work.join("prometheus.yml"), config).unwrap();
    let rules = text("garrick.rules.yml");
    let at_once = rules.lines().map(|line| format!("{}\n", line.replace("for: 5m", "for: 0s")));
    fs::write(c.work.join("garrick.rules.yml"), at_once.collect::<String>()).unwrap();
    let log = c.work.join("prometheus.log");
    let file = File::create(&log).unwrap();
    let _server = Killed(
        Command::new("prometheus")
            .arg(format!("--config.file={}", c.work.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", c.work.join("tsdb").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{server}"))
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap(),
    );
    let asked = |path: &str| -> serde_json::Value {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let answer = agent.get(format!("http://127.0.0.1:{server}/api/v1/{path}")).call();
        answer
            .ok()
            .and_then(|mut answer| serde_json::from_str(&answer.body_mut().read_to_string().ok()?).ok())
            .unwrap_or_default()
    };
    c.await_that("each page was read", || {
        let targets = asked("targets");
        let targets = targets["data"]["activeTargets"].as_array().cloned().unwrap_or_default();
        targets.len() == 6 && targets.iter().all(|target| target["health"] == "up" && target["lastError"] == "")
    });
    let job = c.shell("sbatch -n1 --mem=100 -o /dev/null --wrap 'srun sleep 100000'").ok().job();
    c.await_state(&job, "RUNNING");
    for dashboard in ["grafana-cluster.json", "grafana-controller.json"] {
        for expression in expressions(&examples.join(dashboard), &controller) {
            let query = format!("query?query={}", percent(&expression));
            c.await_that(&format!("{dashboard}: {expression} has data"), || {
                asked(&query)["data"]["result"].as_array().is_some_and(|samples| !samples.is_empty())
            });
        }
    }
    let firing = |name: &str| {
        let alerts = asked("alerts");
        let alerts = alerts["data"]["alerts"].as_array().cloned().unwrap_or_default();
        alerts.into_iter().find(|alert| alert["labels"]["alertname"] == name && alert["state"] == "firing")
    };
    assert!(firing("GarrickNodesDown").is_none());
    c.kill(c.pid_of("node", Some("n2")));
    c.await_that("the alert fires", || firing("GarrickNodesDown").is_some());
    let said = firing("GarrickNodesDown").unwrap();
    assert_eq!(said["annotations"]["summary"], "1 nodes are DOWN");
    let log = fs::read_to_string(log).unwrap();
    assert!(!log.lines().any(|line| line.contains("level=warn") || line.contains("level=error")), "{log}");
    c.run("scancel", &[&job]).ok();
    c.down();
}

/// A text as part of a query of a URL.
fn percent(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[test]
fn metrics_are_for_whom_the_site_names() {
    let port = free_ports(1)[0];
    let c = Cluster::up("metrics-users", &TWO);
    c.sh("garrick down").ok();
    let key = c.work.join("jwt.key");
    fs::write(&key, b"the secret of this site").unwrap();
    let set_mode = |mode| fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
    set_mode(0o600);
    let path = c.conf_folder().join("slurm.conf");
    let own = fs::read_to_string(&path).unwrap();
    let lines = own.lines().filter(|line| !line.starts_with("SlurmctldPort="));
    let own: String = lines.map(|line| format!("{line}\n")).collect();
    let conf = |lines: &str| {
        fs::write(&path, format!("{own}SlurmctldPort={port}\n{lines}\n")).unwrap();
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
    set_mode(0o644);
    assert_eq!(status(&token("alice", 60)), 401, "a key that all can read is none");
    set_mode(0o600);
    assert_eq!(status(&token("alice", 60)), 200);
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
