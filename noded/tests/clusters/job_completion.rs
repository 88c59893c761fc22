//! Job completion of a running cluster: to databases, to Kafka, to scripts in Lua, and to programs that hang.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::Cluster;
use garrick_database_servers::{PASSWORD, Program, Server, USER};
use std::path::PathBuf;

const ONE: [&str; 6] = ["--nodes", "1", "--cpus", "4", "--memory", "4000"];

/// Runs a job of that name to its end. Returns its id.
fn job(c: &Cluster, name: &str) -> String {
    let job = c.shell(&format!("sbatch -J {name} -o /dev/null --wrap 'exit 3'")).ok().job();
    // It may be forgotten already (`MinJobAge`).
    c.await_that("the job is over", || c.job_field(&job, "JobState").is_none_or(|state| state == "FAILED"));
    job
}

/// Files of runs that wait to be recorded.
fn waiting(c: &Cluster) -> Vec<PathBuf> {
    let shown = c.sh("scontrol show config").ok().out;
    let state = shown.lines().find_map(|line| line.strip_prefix("StateSaveLocation")).unwrap();
    let folder = PathBuf::from(state.trim_start_matches([' ', '='])).join("jobcomp");
    let files = std::fs::read_dir(folder).map(|files| files.flatten().map(|file| file.path()).collect::<Vec<_>>());
    let is_part =
        |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().bytes().all(|byte| byte.is_ascii_digit());
    files.unwrap_or_default().into_iter().filter(is_part).collect()
}

/// Until what waits is on disk, the job of that name too, although its record is forgotten.
fn await_saved(c: &Cluster, name: &str) {
    c.await_that("what waits is saved", || {
        let texts = waiting(c).into_iter().filter_map(|path| std::fs::read(path).ok());
        texts.into_iter().any(|bytes| bytes.windows(name.len()).any(|part| part == name.as_bytes()))
    });
}

fn await_forgotten(c: &Cluster, job: &str) {
    c.await_that("the job is forgotten", || c.sh(&format!("scontrol show job {job}")).code != 0);
}

fn restart_killed(c: &Cluster) {
    c.kill(c.pid_of("controller", None));
    c.sh("garrick up").ok();
}

fn rows_of(program: Program, name: &str, lines: impl Fn(&Server) -> String) {
    let Some(server) = Server::start(program) else { return };
    server.create_database("slurm_jobcomp_db");
    let c = Cluster::up_with(name, &ONE, |_| format!("MinJobAge=2\n{}", lines(&server)));
    let sql = |text: &str| server.sql("slurm_jobcomp_db", text);
    let first = job(&c, "first");
    let names = "SELECT name FROM jobcomp_table ORDER BY jobid";
    // The table is made with the first row.
    c.await_that("it is recorded", || !waiting_for_table(&server) && sql(names) == "first");
    assert_eq!(sql("SELECT state FROM jobcomp_table"), "5");
    assert_eq!(sql("SELECT jobid FROM jobcomp_table"), first);
    let shown = |options: &str| c.sh(&format!("sacct --completion --noheader --parsable2 {options}"));
    assert_eq!(shown("-o jobid,jobname,state,nodelist,ncpus").ok().out, format!("{first}|first|FAILED|n1|1\n"));
    assert_eq!(shown("--name=first -o jobid").ok().out, format!("{first}\n"));
    assert_eq!(shown("--name=other -o jobid").ok().out, "");
    assert_eq!(shown("-o user,uid").ok().out.matches('|').count(), 1);
    server.kill();
    let away = shown("-o jobid");
    assert!(away.code == 1 && away.err.contains("the database is away"), "{away:?}");
    let forgotten = job(&c, "forgotten");
    await_saved(&c, "forgotten");
    await_forgotten(&c, &forgotten);
    restart_killed(&c);
    job(&c, "last");
    server.run();
    c.await_that("all are recorded", || sql("SELECT COUNT(*) FROM jobcomp_table") == "3");
    assert_eq!(sql(names).split_whitespace().collect::<Vec<_>>(), ["first", "forgotten", "last"]);
    c.await_that("nothing waits", || waiting(&c).is_empty());
    // A kill right after: nothing comes twice.
    restart_killed(&c);
    job(&c, "after");
    c.await_that("it is recorded too", || sql("SELECT COUNT(*) FROM jobcomp_table") == "4");
    c.down();
}

fn waiting_for_table(server: &Server) -> bool {
    server.sql("slurm_jobcomp_db", "SELECT COUNT(*) FROM information_schema.tables WHERE table_name = 'jobcomp_table'")
        == "0"
}

#[test]
fn jobs_that_are_over_are_rows_of_a_database_that_may_be_away() {
    rows_of(Program::MariaDb, "comp-mysql", |server| {
        format!(
            "JobCompType=jobcomp/mysql\nJobCompHost=127.0.0.1\nJobCompPort={}\nJobCompUser={USER}\nJobCompPass={PASSWORD}",
            server.port
        )
    });
    rows_of(Program::Postgres, "comp-postgresql", |server| {
        let password = PASSWORD.replace('=', "%3D");
        let port = server.port;
        format!(
            "JobCompType=jobcomp/mysql\nJobCompLoc=postgresql://{USER}:{password}@127.0.0.1:{port}/slurm_jobcomp_db"
        )
    });
}

#[test]
fn a_program_prints_the_password_for_each_connection() {
    let Some(server) = Server::start(Program::MariaDb) else { return };
    server.create_database("slurm_jobcomp_db");
    let c = Cluster::up_with("comp-password", &ONE, |c| {
        c.script("password", "#!/bin/sh\necho not ready yet >&2\nexit 1\n");
        format!(
            "JobCompType=jobcomp/mysql\nJobCompHost=127.0.0.1\nJobCompPort={}\nJobCompUser={USER}\nJobCompPass=wrong\n\
             JobCompPassScript={}/password",
            server.port,
            c.work.display()
        )
    });
    job(&c, "first");
    let failure = format!("{}/password failed with exit status: 1", c.work.display());
    c.await_that("its failure is logged", || c.logs().contains(&failure));
    // It is asked again, and what it says then counts.
    c.script("password", &format!("#!/bin/sh\necho '{PASSWORD}'\n"));
    let names = "SELECT name FROM jobcomp_table ORDER BY jobid";
    c.await_that("it is recorded", || !waiting_for_table(&server) && server.sql("slurm_jobcomp_db", names) == "first");
    assert!(!c.logs().contains(PASSWORD) && !c.sh("scontrol show config").ok().out.contains(PASSWORD));
    c.down();
}

#[test]
fn a_script_in_lua_is_told_of_jobs_that_are_over() {
    let c = Cluster::up_with("comp-lua", &ONE, |c| {
        let script = format!(
            "function slurm_jobcomp_log_record(job_rec)\n  if job_rec.name == 'bad' then error('no such table') end\n  \
             local out = io.open('{}/told', 'a')\n  \
             out:write(string.format('%d %s %d %s\\n', job_rec.job_id, job_rec.name, job_rec.exit_code, job_rec.nodes))\n  \
             out:close()\n  return slurm.SUCCESS\nend\n",
            c.work.display()
        );
        std::fs::write(c.conf_folder().join("jobcomp.lua"), script).unwrap();
        "JobCompType=jobcomp/lua".to_owned()
    });
    job(&c, "bad");
    let good = job(&c, "good");
    let told = || std::fs::read_to_string(c.work.join("told")).unwrap_or_default();
    c.await_that("it is told", || !told().is_empty());
    assert_eq!(told(), format!("{good} good 768 n1\n"));
    let line = "jobcomp.lua:2: no such table";
    c.await_that("the failure is logged with its line", || c.logs().contains(line));
    c.down();
}

#[test]
fn a_program_that_hangs_holds_up_no_other_run() {
    let c = Cluster::up_with("comp-hang", &ONE, |c| {
        let work = c.work.display();
        let text = format!(
            "#!/bin/sh\necho $JOBNAME >> {work}/began\n[ $JOBNAME != hangs ] || sleep 1000\necho $JOBNAME >> {work}/told\n"
        );
        c.script("completed", &text);
        let parameters = "JobCompParams=script_concurrency=2,script_timeout=60";
        format!("JobCompType=script\nJobCompLoc={work}/completed\n{parameters}")
    });
    let read = |name: &str| std::fs::read_to_string(c.work.join(name)).unwrap_or_default();
    job(&c, "hangs");
    c.await_that("it hangs", || read("began") == "hangs\n");
    let names: Vec<String> = (0..4).map(|number| format!("next{number}")).collect();
    names.iter().for_each(|name| drop(job(&c, name)));
    c.await_that("the others are told", || read("told").lines().count() == names.len());
    assert!(names.iter().all(|name| read("told").lines().any(|line| line == name)));
    assert_eq!(read("began").lines().filter(|line| *line == "hangs").count(), 1);
    c.down();
}

#[cfg(feature = "kafka")]
#[test]
fn jobs_that_are_over_are_messages_for_a_broker_that_may_be_away() {
    use rdkafka::{
        ClientConfig, Message as _, Offset, TopicPartitionList,
        consumer::{BaseConsumer, Consumer as _},
        mocking::MockCluster,
    };
    // The broker that librdkafka has for tests, in this process: the controller's producer speaks to it over TCP.
    let broker = MockCluster::new(1).unwrap();
    for topic in ["jobs", "starts"] {
        broker.create_topic(topic, 1, 1).unwrap();
    }
    let servers = broker.bootstrap_servers();
    let c = Cluster::up_with("comp-kafka", &ONE, |c| {
        let file = c.work.join("kafka.conf");
        std::fs::write(&file, format!("bootstrap.servers={servers}\nmessage.timeout.ms=1000\n")).unwrap();
        let parameters = "topic=jobs,topic_job_start=starts,enable_job_start,requeue_on_msg_timeout,flush_timeout=100";
        format!("MinJobAge=2\nJobCompType=jobcomp/kafka\nJobCompLoc={}\nJobCompParams={parameters}", file.display())
    });
    let received = |topic: &str| {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &servers).set("group.id", "test").set("enable.partition.eof", "true");
        let consumer: BaseConsumer = config.create().unwrap();
        let mut from = TopicPartitionList::new();
        from.add_partition_offset(topic, 0, Offset::Beginning).unwrap();
        consumer.assign(&from).unwrap();
        let mut documents: Vec<serde_json::Value> = Vec::new();
        loop {
            match consumer.poll(std::time::Duration::from_secs(10)) {
                Some(Ok(message)) => documents.push(serde_json::from_slice(message.payload().unwrap()).unwrap()),
                Some(Err(rdkafka::error::KafkaError::PartitionEOF(_))) => return documents,
                Some(Err(_)) => {}
                None => return documents,
            }
        }
    };
    // Each once at least; in order; told apart by their SLUIDs.
    let in_order = |topic: &str| {
        let mut runs: Vec<(String, String)> = Vec::new();
        for document in received(topic) {
            let run = (document["jobid"].to_string(), document["sluid"].as_str().unwrap().to_owned());
            if !runs.contains(&run) {
                runs.push(run);
            }
        }
        runs.into_iter().map(|(job, _)| job).collect::<Vec<_>>()
    };
    let mut jobs = vec![job(&c, "one")];
    c.await_that("it has arrived", || in_order("jobs").len() == 1);
    broker.broker_down(-1).unwrap();
    jobs.extend(["two", "three", "four"].map(|name| job(&c, name)));
    await_saved(&c, "four");
    jobs[1..].iter().for_each(|job| await_forgotten(&c, job));
    restart_killed(&c);
    jobs.push(job(&c, "five"));
    broker.broker_up(-1).unwrap();
    c.await_that("all have arrived", || in_order("jobs").len() == jobs.len());
    assert_eq!(in_order("jobs"), jobs);
    c.await_that("starts have arrived", || in_order("starts").len() == jobs.len());
    assert_eq!(in_order("starts"), jobs);
    assert!(received("starts").iter().all(|start| start["state"] == "RUNNING" && start.get("@end").is_none()));
    c.down();
}
