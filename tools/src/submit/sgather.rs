//! `sgather`: fetches a file from each node of a job into `DEST.NODENAME` here. A task of a step on the node reads it, as the
//! job's user, and its `srun` brings it here; what comes is checked by the sum of cksum(1).

use crate::{
    options::table::Arg,
    output::Console,
    query::arguments::{self, Arguments, Outcome, Table, inert, option},
    submit::{allocation, startup},
};
use garrick_asking::cluster::{Cluster, ClusterError};
use garrick_model::{
    env_vars,
    hostlist::HostList,
    ids::JobId,
    messages::{
        command::{CommandReply, CommandRequest, JobSelector},
        files::WIDTH,
        launch_failure::errno_text,
    },
    refusal::Refusal,
};
use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, AtFlags, RenameFlags, renameat2},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    unistd::{linkat, unlink},
};
use std::{
    env,
    ffi::OsString,
    fs::{File, FileTimes, OpenOptions, Permissions},
    io::{self, BufRead as _, BufReader, Read, Write as _},
    os::{fd::AsFd as _, unix::fs::PermissionsExt as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, SystemTime},
};

pub(crate) static TABLE: Table = Table {
    program: "sgather",
    purpose: "Fetch a file from each node of a job into DEST.NODENAME here, and remove it there.",
    operands: "SOURCE DEST",
    words: &[],
    options: &[
        inert("compress", Some('C'), Arg::None, "pack the files on their way", "files come as they are"),
        option("fanout", Some('F'), Arg::Required("number"), "from how many nodes at a time"),
        option("force", Some('f'), Arg::None, "replace files that are there"),
        option("help", None, Arg::None, "show this help"),
        option("jobid", Some('j'), Arg::Required("job"), "nodes of this job"),
        option("keep", Some('k'), Arg::None, "do not remove the files on the nodes"),
        option("preserve", Some('p'), Arg::None, "keep modes and times"),
        inert("size", Some('s'), Arg::Required("bytes"), "send this much at a time", "nothing is sent in blocks"),
        option("timeout", Some('t'), Arg::Required("seconds"), "longest that nothing may come from a node"),
        option("verbose", Some('v'), Arg::None, "more messages"),
    ],
    misuse: 1,
};

/// Run on each node: the sum and size, mode and times, and then the file.
const READ: &str = "[ -e \"$1\" ] || { echo 'No such file or directory' >&2; exit 1; }
[ -f \"$1\" ] || { echo 'Not a regular file' >&2; exit 1; }
cksum <\"$1\" && stat -c '%a %X %Y' -- \"$1\" && cat -- \"$1\"";
/// Run there when all files are here.
const REMOVE: &str = "rm -f -- \"$1\"";

/// What is to be fetched.
#[derive(Debug)]
struct Request {
    job: JobId,
    nodes: Vec<String>,
    source: OsString,
    dest: PathBuf,
    force: bool,
    preserve: bool,
    keep: bool,
    fanout: usize,
    timeout: Option<Duration>,
}

/// Runs `sgather`; `args` are without the program's name. Returns the exit code.
pub fn main(args: Vec<OsString>) -> i32 {
    let mut console = Console::new("sgather");
    let arguments = match arguments::read(&TABLE, &args, &console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return code,
    };
    console.set_verbosity(arguments::verbosity(&arguments));
    let gathered = request(&arguments, &console).and_then(|request| gather(&request, &console));
    match gathered {
        Ok(()) => 0,
        Err(text) => {
            console.error(text);
            startup::exit_code(1)
        }
    }
}

fn request(arguments: &Arguments, console: &Console) -> Result<Request, String> {
    let [source, dest] = arguments.operands.as_slice() else {
        return Err(format!("Need two file names, have {} names", arguments.operands.len()));
    };
    let number = |name: &str| match arguments.value(name) {
        None => Ok(None),
        Some(text) => match text.parse::<u32>() {
            Ok(number @ 1..) => Ok(Some(number)),
            _ => Err(format!("Invalid --{name} specification: {text}")),
        },
    };
    let (fanout, timeout) = (number("fanout")?, number("timeout")?);
    let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let around: Option<JobId> = variable(env_vars::SLURM_JOB_ID).and_then(|id| id.parse().ok());
    let job = match arguments.value("jobid") {
        Some(text) => text.parse().map_err(|_| format!("Invalid job id: {text}"))?,
        None => around
            .ok_or("Need a job id to run this command.  Run from within a Slurm job or use the --jobid option.")?,
    };
    let nodes = match variable(env_vars::SLURM_JOB_NODELIST).filter(|_| around == Some(job)) {
        Some(list) => list.parse::<HostList>().map_err(|e| e.to_string())?.iter().collect(),
        None => nodes_of(job, console).map_err(|error| format!("Job {job}: {error}"))?,
    };
    Ok(Request {
        job,
        nodes,
        source: source.clone(),
        dest: dest.into(),
        force: arguments.has("force"),
        preserve: arguments.has("preserve"),
        keep: arguments.has("keep"),
        fanout: fanout.map_or(usize::from(WIDTH), |number| number as usize),
        timeout: timeout.map(|secs| Duration::from_secs(secs.into())),
    })
}

fn nodes_of(job: JobId, console: &Console) -> Result<Vec<String>, ClusterError> {
    let jobs = vec![JobSelector { job, tasks: None, het: None, run: None }];
    match Cluster::find(None)?.ask(console.program(), &CommandRequest::list_jobs(jobs))? {
        CommandReply::Jobs { jobs, .. } => {
            let view = jobs.iter().find(|view| view.id == job).ok_or(Refusal::InvalidJobId)?;
            let nodes: Vec<String> = allocation::nodes(view).iter().map(|&node| node.to_owned()).collect();
            if nodes.is_empty() { Err(Refusal::JobPending.into()) } else { Ok(nodes) }
        }
        _ => Err(ClusterError::Unexpected("asked for a job")),
    }
}

/// Fetches from all nodes, a few at a time, and removes the files there when all are here.
fn gather(request: &Request, console: &Console) -> Result<(), String> {
    let failures = at_each(request, |node| fetch(request, node, console));
    failures.iter().for_each(|text| console.error(text));
    if !failures.is_empty() {
        return Err("nothing was removed on the nodes".to_owned());
    }
    if request.keep {
        return Ok(());
    }
    let failures = at_each(request, |node| remove(request, node));
    match failures.split_last() {
        None => Ok(()),
        Some((last, others)) => {
            others.iter().for_each(|text| console.error(text));
            Err(last.clone())
        }
    }
}

/// Does something for each node, for so many at a time as was asked for. Returns what failed, in the order of the nodes.
fn at_each(request: &Request, what: impl Fn(&str) -> Result<(), String> + Sync) -> Vec<String> {
    let (todo, failed) = (Mutex::new(request.nodes.iter().enumerate()), Mutex::new(Vec::new()));
    let next = || todo.lock().unwrap_or_else(PoisonError::into_inner).next();
    thread::scope(|scope| {
        for _ in 0..request.fanout.min(request.nodes.len()) {
            scope.spawn(|| {
                while let Some((at, node)) = next() {
                    if let Err(text) = what(node) {
                        let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                        failed.push((at, format!("{node}: {text}")));
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.sort();
    failed.into_iter().map(|(_, text)| text).collect()
}

/// A step of one task on that node, which shares what the job has.
fn srun(request: &Request, node: &str, script: &str) -> Result<Command, String> {
    let own = env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    let mut command = Command::new(own);
    command
        .args(["srun", "--quiet", "--overlap", "--nodes=1", "--ntasks=1", "--input=none", "--mpi=none"])
        .arg(format!("--jobid={}", request.job))
        .arg(format!("--nodelist={node}"))
        .args(["sh", "-c", script, "sgather"])
        .arg(&request.source)
        .stdin(Stdio::null());
    // What was asked for the steps of this job is not for this one.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("SLURM_") && !KEPT.contains(&name.as_str()) {
            command.env_remove(name);
        }
    }
    Ok(command)
}

/// What a step needs to find its job.
const KEPT: [&str; 3] = [env_vars::SLURM_CONF, env_vars::SLURM_JOB_ID, env_vars::SLURM_JOB_SLUID];

fn remove(request: &Request, node: &str) -> Result<(), String> {
    let status = srun(request, node, REMOVE)?.stdout(Stdio::null()).status().map_err(|e| e.to_string())?;
    match status.success() {
        true => Ok(()),
        false => Err("the file could not be removed there".to_owned()),
    }
}

fn fetch(request: &Request, node: &str, console: &Console) -> Result<(), String> {
    let mut name = request.dest.clone().into_os_string();
    name.push(format!(".{node}"));
    let to = PathBuf::from(name);
    if !request.force && to.symlink_metadata().is_ok() {
        return Err(format!("{}: {}", to.display(), errno_text(libc::EEXIST)));
    }
    let (file, meanwhile) = Meanwhile::beside(&to)?;
    let reading = srun(request, node, READ)?.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = reading.map_err(|e| e.to_string())?;
    let said = child.stderr.take().map(|stderr| thread::spawn(|| first_words(stderr)));
    let received = receive(&mut child, file, request);
    if let Err(Unreceived::Other(_)) = &received {
        end(&mut child);
    }
    let said = said.and_then(|said| said.join().ok()).unwrap_or_default();
    let status = child.wait().map_err(|e| e.to_string())?;
    let unread = || format!("{}: {}", request.source.display(), why(&said));
    let bytes = match received {
        Ok(bytes) if status.success() => bytes,
        Err(Unreceived::Other(text)) => return Err(text),
        Ok(_) | Err(Unreceived::Nothing) => return Err(unread()),
    };
    meanwhile.put(&to, request.force)?;
    console.verbose(format_args!("{node}: {bytes} bytes in {}", to.display()));
    Ok(())
}

/// Reads all that is said, while the file comes: else whoever says much would wait for ever.
fn first_words(mut stderr: impl Read) -> String {
    let mut said = String::new();
    // Beyond that it is nothing that explains anything.
    let _ = stderr.by_ref().take(4096).read_to_string(&mut said);
    let _ = io::copy(&mut stderr, &mut io::sink());
    said
}

/// What the other end said, without what its `srun` says of that.
fn why(said: &str) -> &str {
    said.lines().find(|line| !line.starts_with("srun: ")).unwrap_or("it was not read")
}

/// Its step ends with it.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// A file until it is whole.
struct Meanwhile(Option<PathBuf>);

impl Meanwhile {
    fn beside(to: &Path) -> Result<(File, Self), String> {
        let mut name = OsString::from(".");
        name.push(to.file_name().ok_or("no file name")?);
        name.push(format!(".sgather-{}", std::process::id()));
        let path = to.with_file_name(name);
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = file.map_err(|e| format!("{}: {e}", to.display()))?;
        Ok((file, Self(Some(path))))
    }

    fn put(mut self, to: &Path, force: bool) -> Result<(), String> {
        let Some(path) = self.0.take() else { return Ok(()) };
        let flags = if force { RenameFlags::empty() } else { RenameFlags::RENAME_NOREPLACE };
        let put = match renameat2(AT_FDCWD, &path, AT_FDCWD, to, flags) {
            // File systems that do not know the flag, such as NFS.
            Err(Errno::EINVAL) if !force => {
                linkat(AT_FDCWD, &path, AT_FDCWD, to, AtFlags::empty()).and_then(|()| unlink(&path))
            }
            put => put,
        };
        put.map_err(|errno| {
            self.0 = Some(path.clone());
            format!("{}: {}", to.display(), errno_text(errno as i32))
        })
    }
}

impl Drop for Meanwhile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Reads what comes within the time, or says that nothing did.
struct InTime<'a>(&'a mut ChildStdout, Option<Duration>);

impl Read for InTime<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(limit) = self.1 {
            let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
            let came = poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], limit)?;
            if came == 0 {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "nothing came in time"));
            }
        }
        self.0.read(buffer)
    }
}

/// Why a file did not come.
enum Unreceived {
    /// The other end said nothing, but why.
    Nothing,
    /// Why.
    Other(String),
}

impl<T: Into<String>> From<T> for Unreceived {
    fn from(text: T) -> Self {
        Self::Other(text.into())
    }
}

/// Writes the file that comes, checks it, and gives it mode and times if they are to be kept. Returns its size.
fn receive(child: &mut Child, mut file: File, request: &Request) -> Result<u64, Unreceived> {
    let stdout = child.stdout.as_mut().ok_or("no output")?;
    let mut from = BufReader::with_capacity(64 << 10, InTime(stdout, request.timeout));
    let mut line = || {
        let mut text = String::new();
        from.by_ref().take(200).read_line(&mut text).map_err(|e| e.to_string())?;
        let numbers: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        if numbers.is_empty() { Err(Unreceived::Nothing) } else { Ok(numbers) }
    };
    let (sums, facts) = (line()?, line()?);
    let number = |words: &[String], at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
    let (mut sum, mut bytes) = (Cksum::default(), 0_u64);
    let mut piece = vec![0; 64 << 10];
    loop {
        match from.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => {
                sum.update(&piece[..count]);
                bytes += count as u64;
                file.write_all(&piece[..count]).map_err(|e| e.to_string())?;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.to_string().into()),
        }
    }
    if (number(&sums, 0), number(&sums, 1)) != (Some(u64::from(sum.finish(bytes))), Some(bytes)) {
        return Err(Unreceived::Other("it changed while it was read, or did not come whole".to_owned()));
    }
    if request.preserve {
        let mode = facts.first().and_then(|mode| u32::from_str_radix(mode, 8).ok()).ok_or("its mode is not known")?;
        let time = |at| number(&facts, at).map(|secs| SystemTime::UNIX_EPOCH + Duration::from_secs(secs));
        let (accessed, modified) = time(1).zip(time(2)).ok_or("its times are not known")?;
        let kept = file.set_permissions(Permissions::from_mode(mode & 0o777));
        let times = FileTimes::new().set_accessed(accessed).set_modified(modified);
        kept.and_then(|()| file.set_times(times)).map_err(|e| e.to_string())?;
    }
    Ok(bytes)
}

/// The sum of cksum(1), as POSIX defines it.
#[derive(Clone, Copy, Debug, Default)]
struct Cksum(u32);

impl Cksum {
    fn update(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 << 8) ^ CKSUM[(self.0 >> 24) as usize ^ usize::from(*byte)];
        }
    }

    fn finish(mut self, mut length: u64) -> u32 {
        while length > 0 {
            self.update(&[(length & 0xff) as u8]);
            length >>= 8;
        }
        !self.0
    }
}

const CKSUM: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut value = (byte as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 << 31 != 0 { value << 1 ^ 0x04c1_1db7 } else { value << 1 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::options::arguments::parse;

    #[test]
    fn the_sum_is_that_of_cksum() {
        // As cksum(1) prints them.
        for (text, sum) in [(&b""[..], 4_294_967_295_u32), (b"123456789", 930_766_865), (b"a\n", 2_418_082_923)] {
            let mut own = Cksum::default();
            own.update(text);
            assert_eq!(own.finish(text.len() as u64), sum, "{text:?}");
        }
    }

    #[test]
    fn options_are_read() {
        let read = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            request(&parse(&TABLE, &words).unwrap(), &Console::new("sgather"))
        };
        assert_eq!(read(&["a"]).unwrap_err(), "Need two file names, have 1 names");
        assert_eq!(read(&["-F", "x", "a", "b"]).unwrap_err(), "Invalid --fanout specification: x");
        assert_eq!(read(&["-t", "0", "a", "b"]).unwrap_err(), "Invalid --timeout specification: 0");
        assert_eq!(read(&["-j", "x", "a", "b"]).unwrap_err(), "Invalid job id: x");
    }
}
