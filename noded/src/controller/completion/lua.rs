//! `jobcomp/lua`: the function `slurm_jobcomp_log_record` of `jobcomp.lua`, beside `slurm.conf`, is called with each run. The fields of
//! its argument, and their values, are those that Slurm 26.05 was seen to give, except for what Garrick does not have.

use super::forms::{Completed, in_order};
use garrick_accounts::tres::{CPU, NODE};
use garrick_lua::{
    error::ScriptError,
    interpreter::Interpreter,
    numbers::{INFINITE, NICE_OFFSET, NO_VAL},
    slurm::telling,
};
use garrick_model::{hostlist, patterns::default_output, time::TimeLimit};
use mlua::{Function, Lua, Table, Value as LuaValue};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, SystemTime},
};
use tokio::{
    sync::{Mutex, oneshot},
    time::timeout,
};

/// The script's name.
const SCRIPT: &str = "jobcomp.lua";
/// The function that it has to define.
const FUNCTION: &str = "slurm_jobcomp_log_record";
/// Longest that the script may run for one job.
const LIMIT: Duration = Duration::from_secs(10);
/// One that waits for something else is not interrupted by its limit: it is left alone after this much more.
const GRACE: Duration = Duration::from_secs(5);

/// So many that were left alone and go on, at most.
const MOST_LEFT: usize = 8;

/// What became of a call.
enum Told {
    /// It returned a number.
    Returned(i32),
    /// It failed: line and cause.
    Failed(ScriptError),
    /// There is no script that could be called.
    NotLoaded(ScriptError),
}

struct Call {
    run: Completed,
    done: oneshot::Sender<Told>,
}

/// The thread that has the script.
#[derive(Debug)]
pub struct LuaScript {
    path: PathBuf,
    cluster: String,
    thread: Mutex<Option<Sender<Call>>>,
    /// Threads that have not ended.
    threads: Arc<AtomicUsize>,
}

/// A thread, which counts as long as this is there.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn one_more(threads: &Arc<AtomicUsize>) -> Self {
        threads.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(threads))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl LuaScript {
    /// The script in that folder. Nothing is loaded yet.
    pub fn new(folder: &Path, cluster: &str) -> Self {
        let (path, cluster) = (folder.join(SCRIPT), cluster.to_owned());
        Self { path, cluster, thread: Mutex::new(None), threads: Arc::default() }
    }

    /// Tells the script of a run. A script that fails, or does not end, is named in the log and not called again for that run.
    ///
    /// # Errors
    /// When there is no script that could be called, or too many calls have not ended.
    pub async fn tell(&self, run: &Completed) -> Result<(), String> {
        let job_id = run.row.job.0;
        let mut thread = self.thread.lock().await;
        let calls = match thread.take() {
            Some(calls) => calls,
            None => self.start()?,
        };
        let (done, told) = oneshot::channel();
        calls.send(Call { run: run.clone(), done }).map_err(|_| "the script's thread has ended".to_owned())?;
        match timeout(LIMIT + GRACE, told).await {
            Ok(Ok(Told::Returned(0))) => {}
            Ok(Ok(Told::Returned(code))) => tracing::error!(job_id, code, "{FUNCTION} of {SCRIPT} has failed"),
            Ok(Ok(Told::Failed(error))) => tracing::error!(job_id, "JobCompType=jobcomp/lua: {error}"),
            Ok(Ok(Told::NotLoaded(error))) => {
                *thread = Some(calls);
                return Err(error.to_string());
            }
            Ok(Err(_)) => return Err("the script's thread has ended".to_owned()),
            Err(_) => {
                // The thread ends when the script lets it.
                tracing::error!(job_id, "{}: {FUNCTION} did not end within {} s", self.path.display(), LIMIT.as_secs());
                return Ok(());
            }
        }
        *thread = Some(calls);
        Ok(())
    }

    fn start(&self) -> Result<Sender<Call>, String> {
        // Those that are there were left alone.
        if self.threads.load(Ordering::Relaxed) >= MOST_LEFT {
            return Err(format!("{}: {MOST_LEFT} calls of {FUNCTION} have not ended", self.path.display()));
        }
        let (calls, came) = channel();
        let (path, cluster, counted) = (self.path.clone(), self.cluster.clone(), Counted::one_more(&self.threads));
        // A script stays on its thread.
        let work = move || {
            let _counted = counted;
            Worker { path, cluster, script: None }.work(&came);
        };
        let started = thread::Builder::new().name("jobcomp-lua".to_owned()).spawn(work);
        started.map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(calls)
    }
}

/// A file as it was when it was read.
type FileState = Option<(SystemTime, u64)>;

struct Worker {
    path: PathBuf,
    cluster: String,
    script: Option<(Interpreter, FileState)>,
}

impl Worker {
    fn work(&mut self, came: &Receiver<Call>) {
        while let Ok(Call { run, done }) = came.recv() {
            let told = match self.script() {
                Err(error) => Told::NotLoaded(error),
                Ok(script) => match call(script, &run) {
                    Ok(code) => Told::Returned(code),
                    Err(error) => Told::Failed(error),
                },
            };
            // Whoever asked may have given up.
            let _ = done.send(told);
        }
    }

    /// The script, read again if its file has changed.
    fn script(&mut self) -> Result<&Interpreter, ScriptError> {
        let now = fs::metadata(&self.path).ok().and_then(|file| Some((file.modified().ok()?, file.len())));
        let script = match self.script.take().filter(|(_, state)| *state == now) {
            Some((script, _)) => script,
            None => self.load()?,
        };
        Ok(&self.script.insert((script, now)).0)
    }

    fn load(&self) -> Result<Interpreter, ScriptError> {
        let (script, _) = Interpreter::load(&self.path, LIMIT, &self.cluster, messages)?;
        script.function(FUNCTION)?;
        tracing::info!(path = %self.path.display(), "jobcomp.loaded");
        Ok(script)
    }
}

fn call(script: &Interpreter, run: &Completed) -> Result<i32, ScriptError> {
    script.call(FUNCTION, |lua: &Lua, function: &Function| function.call::<LuaValue>(record(lua, run)?))
}

/// What the table `slurm` has besides.
fn messages(lua: &Lua, slurm: &Table) -> mlua::Result<()> {
    for name in ["log_error", "error"] {
        slurm.set(name, telling(lua, |text| tracing::error!("jobcomp: {text}"))?)?;
    }
    for name in ["log_info", "log_verbose"] {
        slurm.set(name, telling(lua, |text| tracing::info!("jobcomp: {text}"))?)?;
    }
    for name in ["log_debug", "log_debug2", "log_debug3", "log_debug4"] {
        slurm.set(name, telling(lua, |text| tracing::debug!("jobcomp: {text}"))?)?;
    }
    Ok(())
}

/// `job_rec`: fields without a value are `nil`.
fn record(lua: &Lua, run: &Completed) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for (name, number) in numbers(run) {
        table.raw_set(name, number)?;
    }
    for (name, text) in texts(run) {
        if !text.is_empty() {
            table.raw_set(name, text)?;
        }
    }
    let argv = lua.create_table()?;
    for (place, word) in run.more.argv.iter().enumerate() {
        argv.raw_set(place, word.as_str())?;
    }
    table.raw_set("argv", argv)?;
    Ok(table)
}

/// Minutes, rounded up.
fn minutes(limit: TimeLimit) -> u32 {
    match limit {
        TimeLimit::Unlimited => INFINITE,
        TimeLimit::Secs(secs) => u32::try_from(secs.div_ceil(60)).unwrap_or(INFINITE),
    }
}

/// Numbers are floating-point, as in Slurm's Lua interface.
fn numbers(run: &Completed) -> Vec<(&'static str, f64)> {
    let (row, more) = (&run.row, &run.more);
    let (array, task) = row.array_task.map_or((0, NO_VAL), |task| (task.array_job.0, task.index));
    let waiting = row.waiting.as_ref().map_or(0, |tasks| tasks.count());
    let (leader, offset) = row.het.map_or((0, 0), |(leader, offset)| (leader.0, offset));
    let (switches, wait) = more.switches.unwrap_or((0, 0));
    #[expect(clippy::cast_precision_loss, reason = "times and amounts are far below what a double has digits for")]
    let wide = |number: i64| number as f64;
    let count = |number: u64| wide(i64::try_from(number).unwrap_or(i64::MAX));
    let mut numbers = vec![
        ("array_job_id", f64::from(if waiting > 0 { row.job.0 } else { array })),
        ("array_task_id", f64::from(task)),
        ("delay_boot", count(more.delay_boot_secs)),
        ("derived_ec", f64::from(row.derived.wait_status())),
        ("end_time", wide(run.end().secs())),
        ("exit_code", f64::from(row.exit.wait_status())),
        ("group_id", f64::from(row.gid)),
        ("het_job_id", f64::from(leader)),
        ("het_job_offset", f64::from(offset)),
        ("job_id", f64::from(row.job.0)),
        ("job_state", f64::from(row.state.number())),
        ("min_cpus", f64::from(more.min_cpus)),
        ("min_nodes", f64::from(more.min_nodes)),
        ("nice", wide(NICE_OFFSET + i64::from(more.nice))),
        ("priority", f64::from(row.priority)),
        ("req_switch", f64::from(switches)),
        ("restart_cnt", f64::from(row.restarts)),
        ("start_time", wide(run.start().secs())),
        ("submit_time", wide(row.submit.secs())),
        ("time_limit", f64::from(minutes(row.time_limit))),
        ("time_min", f64::from(more.time_min.map_or(0, minutes))),
        ("total_cpus", count(row.allocated.count(CPU))),
        ("total_nodes", count(row.allocated.count(NODE))),
        ("user_id", f64::from(row.uid)),
        ("wait4switch", count(wait)),
    ];
    if waiting > 0 {
        numbers.push(("array_task_cnt", f64::from(waiting)));
    }
    numbers
}

fn texts(run: &Completed) -> Vec<(&'static str, String)> {
    let (row, more) = (&run.row, &run.more);
    let told = |text: &Option<String>| text.clone().unwrap_or_default();
    let first = hostlist::expand(&row.nodes).ok().and_then(|nodes| nodes.into_iter().next());
    let (stdin, stdout) = if row.batch { ("/dev/null", default_output(row.array_task.is_some())) } else { ("", "") };
    vec![
        ("account", told(&row.account)),
        ("admin_comment", told(&row.admin_comment)),
        ("alloc_node", row.submit_host.clone()),
        ("batch_host", first.filter(|_| row.batch).unwrap_or_default()),
        ("comment", told(&row.comment)),
        ("dependency", more.dependency.clone()),
        ("extra", told(&row.extra)),
        ("features", told(&row.constraint)),
        ("gres_req", in_order(&row.requested)),
        ("licenses", told(&row.licenses)),
        ("mcs_label", told(&row.mcs_label)),
        ("name", row.name.clone()),
        ("nodes", row.nodes.clone()),
        ("partition", run.partition()),
        ("qos", told(&row.qos)),
        ("reservation", told(&row.reservation)),
        ("script", told(&more.script)),
        ("sluid", row.sluid.to_string()),
        ("std_err", told(&row.stderr)),
        ("std_in", row.stdin.clone().unwrap_or_else(|| stdin.to_owned())),
        ("std_out", row.stdout.clone().unwrap_or_else(|| stdout.to_owned())),
        ("tres_fmt_alloc_str", in_order(&row.allocated)),
        ("tres_fmt_req_str", in_order(&row.requested)),
        ("user_name", row.user.clone()),
        ("wckey", told(&row.wckey)),
        ("work_dir", row.work_dir.clone()),
    ]
}

#[cfg(test)]
#[path = "lua_test.rs"]
mod tests;
