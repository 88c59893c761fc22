//! One user's thousands of requests beside another's single ones. The requests come from two processes of two users: the
//! controller knows who asks from the socket.

use super::{Fallible, client, controller::Controller, submission_of};
use crate::minibatch::{
    cluster::{own_program, without_cluster},
    figures::Findings,
};
use garrick_frame::DoorClient;
use garrick_model::{messages::command::CommandReply, refusal::Refusal, spec::JobSpec};
use std::{
    collections::VecDeque,
    io::{BufRead as _, BufReader, Read as _, Write as _, stdin, stdout},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Barrier,
    time::{Duration, Instant},
};

/// `nobody` and `daemon`, whom every system has.
const MANY: u32 = 65_534;
const SINGLE: u32 = 1;
/// Connections of the one with many requests. Each has all of its requests under way at once.
const CONNECTIONS: usize = 16;
/// Single requests to an idle controller, and at least beside the many.
const SINGLES: usize = 200;

/// Latencies of one user's single submissions: with nobody else there, and beside another's `requests` at once.
pub fn crowd(requests: usize) -> Fallible<Findings> {
    let mut found = Findings::default();
    let controller = Controller::up(None)?;
    let mut idle = Vec::new();
    let mut single = Asking::start(&controller, SINGLE, "singles", 0)?;
    while idle.len() < SINGLES {
        idle.push(single.next_number()?);
    }
    let mut many = Asking::start(&controller, MANY, "many", requests)?;
    // Said once all are under way.
    many.next_number()?;
    let mut beside = Vec::new();
    let done = std::thread::spawn(move || many.next_number().map_err(|e| e.to_string()));
    while !done.is_finished() || beside.len() < SINGLES {
        let took = single.next_number()?;
        if !done.is_finished() {
            beside.push(took);
        } else if beside.is_empty() {
            return Err("the many were over before a single one was answered; ask for more of them".into());
        } else {
            break;
        }
    }
    let drained = done.join().map_err(|_| "the thread that waits for the many panicked")??;
    single.end()?;
    idle.sort_by(f64::total_cmp);
    beside.sort_by(f64::total_cmp);
    let at = |sorted: &[f64], part: f64| sorted[((sorted.len() - 1) as f64 * part) as usize];
    let row = |what: &str, sorted: &[f64]| {
        let mut row = vec![what.to_owned(), sorted.len().to_string()];
        row.extend([0.5, 0.99, 1.0].map(|part| format!("{:.1}", at(sorted, part))));
        row
    };
    found.table(
        format!("One user's single submissions, in milliseconds, beside another's {requests} at once"),
        &["", "requests", "median", "99 %", "worst"],
        vec![row("nobody else asks", &idle), row("beside the many", &beside)],
    );
    let (alone, among) = (at(&idle, 0.5), at(&beside, 0.5));
    found.note(format!("beside the many / alone: {:.2} (medians)", among / alone));
    found.note(format!(
        "first come, first served would be {drained:.0} ms, until the many are accepted: {:.0} times the median beside them",
        drained / among
    ));
    controller.down()?;
    Ok(found)
}

/// A process that asks, under a user's own id. It says a number a line.
struct Asking {
    process: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Asking {
    fn start(controller: &Controller, uid: u32, what: &str, requests: usize) -> Fallible<Self> {
        let mut command = Command::new(own_program()?);
        without_cluster(&mut command).arg("ask").arg(what).arg(requests.to_string()).arg(controller.door());
        command.uid(uid).gid(uid).stdin(Stdio::piped()).stdout(Stdio::piped()).current_dir("/");
        let mut process = command.spawn()?;
        let mut stdin = process.stdin.take().ok_or("no standard input")?;
        stdin.write_all(&serde_json::to_vec(controller.spec())?)?;
        drop(stdin);
        let said = BufReader::new(process.stdout.take().ok_or("no standard output")?);
        Ok(Self { process, said })
    }

    fn next_number(&mut self) -> Fallible<f64> {
        let mut line = String::new();
        if self.said.read_line(&mut line)? == 0 {
            return Err(format!("the process that asks ended: {}", self.process.wait()?).into());
        }
        Ok(line.trim().parse()?)
    }

    fn end(mut self) -> Fallible<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        // One that has ended is as good.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The other side of `Asking`: `singles 0 DOOR` submits one after the other until it is killed and says the milliseconds
/// that each took; `many N DOOR` submits N at once, says 0 when all are under way, and the milliseconds that they took
/// together.
pub fn ask(words: &[&str]) -> Fallible<()> {
    let [what, count, door] = words else { return Err("expected WHAT COUNT DOOR".into()) };
    let (count, door): (usize, _) = (count.parse()?, Path::new(door));
    let mut text = Vec::new();
    stdin().read_to_end(&mut text)?;
    let spec: JobSpec = serde_json::from_slice(&text)?;
    if *what == "many" { ask_many(door, &spec, count) } else { ask_singly(door, &spec) }
}

fn say(number: f64) -> Fallible<()> {
    let mut out = stdout().lock();
    writeln!(out, "{number}")?;
    Ok(out.flush()?)
}

/// As `sbatch` does: a connection for each.
fn ask_singly(door: &Path, spec: &JobSpec) -> Fallible<()> {
    loop {
        let began = Instant::now();
        let mut client = client(door)?;
        client.send(&submission_of(spec.clone()))?;
        match client.recv::<CommandReply>()? {
            CommandReply::Submitted { .. } => say(began.elapsed().as_secs_f64() * 1e3)?,
            other => return Err(format!("a job was not accepted: {other:?}").into()),
        }
        // A user at a terminal, if a quick one.
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn ask_many(door: &Path, spec: &JobSpec, count: usize) -> Fallible<()> {
    let began = Instant::now();
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(client(door)?);
    }
    let each = count.div_ceil(CONNECTIONS);
    let sent = Barrier::new(CONNECTIONS + 1);
    std::thread::scope(|scope| {
        let sent = &sent;
        let of = |client| {
            scope.spawn(move || {
                let sending = send_all(client, spec, each);
                sent.wait();
                sending.and_then(|client| accept_all(client, spec, each)).map_err(|e| e.to_string())
            })
        };
        let threads: Vec<_> = clients.into_iter().map(of).collect();
        sent.wait();
        say(0.0).map_err(|e| e.to_string())?;
        threads.into_iter().try_for_each(|t| t.join().map_err(|_| "a thread that asks panicked".to_owned())?)
    })?;
    say(began.elapsed().as_secs_f64() * 1e3)
}

fn send_all(mut client: DoorClient, spec: &JobSpec, count: usize) -> Fallible<DoorClient> {
    for _ in 0..count {
        client.send(&submission_of(spec.clone()))?;
    }
    Ok(client)
}

/// Those that are told to come again do so when they were told to.
fn accept_all(mut client: DoorClient, spec: &JobSpec, count: usize) -> Fallible<()> {
    let mut again: VecDeque<Instant> = VecDeque::new();
    let (mut accepted, mut under_way) = (0, count);
    while accepted < count {
        while again.front().is_some_and(|at| under_way == 0 || *at <= Instant::now()) {
            let Some(at) = again.pop_front() else { break };
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            client.send(&submission_of(spec.clone()))?;
            under_way += 1;
        }
        match client.recv::<CommandReply>()? {
            CommandReply::Submitted { .. } => accepted += 1,
            CommandReply::Refused(Refusal::RetryAfter { after }) => again.push_back(Instant::now() + after),
            other => return Err(format!("a job was not accepted: {other:?}").into()),
        }
        under_way -= 1;
    }
    Ok(())
}
