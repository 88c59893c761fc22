//! A thread that writes lines to files, or sends them to a server. Lines wait in a buffer of limited size; when it is full the oldest go,
//! are counted, and the log says so.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use garrick_kernel::{files, spawn::Identity, thread_ids};
use garrick_model::profile::InfluxServer;
use std::{
    collections::VecDeque,
    fmt,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Bytes of lines that wait at most: some minutes of the samples of a large node, once a second.
const MOST_WAITING: usize = 4 << 20;
/// Bytes of a request to a server: it is sent when there are so many (InfluxDB's documentation recommends some thousand lines).
const REQUEST: usize = 256 << 10;
/// Pause after what could not be written is tried again, the longest one too.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// How long the end of a run waits for lines that are not written yet.
const END_LIMIT: Duration = Duration::from_secs(2);

/// Lines of one sample.
#[derive(Debug)]
pub(super) struct Lines {
    /// Name of the file that they go to.
    pub file: Option<String>,
    /// Whole lines.
    pub text: String,
    /// How many.
    pub count: u64,
}

impl Lines {
    /// May others be added that go to the same place?
    pub(super) fn has_room_for(&self, others: &Self) -> bool {
        self.text.len() < REQUEST && self.file == others.file
    }

    /// Adds others that go to the same place.
    pub(super) fn append(&mut self, others: &Self) {
        self.text.push_str(&others.text);
        self.count += others.count;
    }
}

/// As whom files are written.
#[derive(Clone, Debug)]
pub(super) struct FileOwner(pub Identity);

/// Where lines go.
pub(super) enum To {
    /// Files of this folder, which is the user's.
    Files {
        /// The folder; the one above it is the site's.
        folder: PathBuf,
        /// Whose they are; `None`: this process's user's.
        owner: Option<FileOwner>,
    },
    /// A server.
    Server(Box<Server>),
}

pub(super) struct Server {
    settings: InfluxServer,
    agent: ureq::Agent,
}

impl To {
    /// A server.
    pub(super) fn server(settings: InfluxServer) -> Self {
        let limit = Duration::from_secs(settings.timeout_secs.into());
        let config = ureq::Agent::config_builder().timeout_global(Some(limit)).build();
        Self::Server(Box::new(Server { settings, agent: config.into() }))
    }

    /// How long lines wait for others.
    fn patience(&self) -> Duration {
        match self {
            Self::Files { .. } => Duration::ZERO,
            Self::Server(server) => Duration::from_secs(server.settings.every_secs.into()),
        }
    }
}

/// Why lines are not written.
#[derive(Debug)]
enum Failure {
    /// It is tried again.
    Now(String),
    /// They are refused for what they are.
    ForEver(String),
}

impl fmt::Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files { folder, .. } => write!(f, "{}", folder.display()),
            Self::Server(server) => write!(f, "{}", server.settings.url),
        }
    }
}

#[derive(Default)]
struct Waiting {
    lines: VecDeque<Lines>,
    bytes: usize,
    /// Since when the first of them waits.
    since: Option<Instant>,
    /// Lines that were dropped and of which nothing was said yet.
    dropped: u64,
    hurry: bool,
    closing: bool,
    done: bool,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// The oldest go where there is no room.
    fn push(&mut self, lines: Lines) {
        self.since.get_or_insert_with(Instant::now);
        self.bytes += lines.text.len();
        self.lines.push_back(lines);
        while self.bytes > MOST_WAITING {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.bytes -= oldest.text.len();
            self.dropped += oldest.count;
        }
    }

    /// Lines for one file or one request.
    fn take(&mut self) -> Option<Lines> {
        let mut first = self.lines.pop_front()?;
        self.bytes -= first.text.len();
        while self.lines.front().is_some_and(|next| first.has_room_for(next)) {
            let Some(next) = self.lines.pop_front() else { break };
            self.bytes -= next.text.len();
            first.append(&next);
        }
        Some(first)
    }

    /// They come first again, if there is still room.
    fn put_back(&mut self, lines: Lines) {
        if self.bytes + lines.text.len() > MOST_WAITING {
            self.dropped += lines.count;
        } else {
            self.bytes += lines.text.len();
            self.lines.push_front(lines);
        }
    }
}

/// The thread.
pub(super) struct Sink {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Sink {
    /// Starts it. Where it cannot be started nothing is recorded, and the log says so.
    pub(super) fn start(to: To) -> Self {
        let shared = Arc::<Shared>::default();
        let of_thread = Arc::clone(&shared);
        let started = std::thread::Builder::new().name("profile".to_owned()).spawn(move || {
            serve(&to, &of_thread);
            of_thread.lock().done = true;
            of_thread.changed.notify_all();
        });
        let thread = started.map_err(|error| tracing::error!(%error, "no time series are recorded: no thread")).ok();
        Self { shared, thread }
    }

    /// Takes lines. Never waits.
    pub(super) fn put(&self, lines: Lines) {
        if self.thread.is_some() && lines.count > 0 {
            self.shared.lock().push(lines);
            self.shared.changed.notify_all();
        }
    }

    /// What waits is to be written now.
    pub(super) fn hurry(&self) {
        self.shared.lock().hurry = true;
        self.shared.changed.notify_all();
    }

    /// Waits a short time for what is not written yet.
    pub(super) fn close(mut self) {
        let Some(thread) = self.thread.take() else { return };
        let end = Instant::now() + END_LIMIT;
        let mut waiting = self.shared.lock();
        waiting.closing = true;
        self.shared.changed.notify_all();
        while !waiting.done {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let woken = self.shared.changed.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        let lost = waiting.lines.iter().map(|lines| lines.count).sum::<u64>() + waiting.dropped;
        let done = waiting.done;
        drop(waiting);
        if lost > 0 {
            tracing::warn!(lines = lost, "lines of time series were not written before the end of the run");
        }
        // One that hangs in a file system or a request ends with this process.
        if done {
            let _ = thread.join();
        }
    }
}

/// Writes lines until the end.
fn serve(to: &To, shared: &Shared) {
    if let To::Files { folder, owner } = to
        && let Err(error) = prepare(folder, owner.as_ref())
    {
        tracing::error!("no time series are recorded: {error}");
        let mut waiting = shared.lock();
        while !waiting.closing {
            waiting.lines.clear();
            (waiting.bytes, waiting.dropped) = (0, 0);
            waiting = shared.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        waiting.lines.clear();
        waiting.dropped = 0;
        return;
    }
    let mut pause: Option<Duration> = None;
    while let Some(lines) = next(to, shared, pause) {
        match write(to, &lines) {
            Ok(()) => {
                if pause.take().is_some() {
                    tracing::info!("time series are written to {to} again");
                }
            }
            Err(Failure::ForEver(cause)) => {
                tracing::error!(lines = lines.count, "lines of time series are dropped: {to}: {cause}");
            }
            Err(Failure::Now(cause)) => {
                let mut waiting = shared.lock();
                if pause.is_none() {
                    let count = waiting.lines.iter().map(|lines| lines.count).sum::<u64>() + lines.count;
                    tracing::warn!(lines = count, "time series wait: {to}: {cause}");
                }
                waiting.put_back(lines);
                pause = Some(pause.map_or(PAUSES[0], |pause| (pause * 2).min(PAUSES[1])));
                if waiting.closing {
                    return;
                }
            }
        }
    }
}

/// The next lines; `None`: there are none left, and no others will come. After a failure they are tried again after that time.
fn next(to: &To, shared: &Shared, pause: Option<Duration>) -> Option<Lines> {
    let try_again = pause.map(|pause| Instant::now() + pause);
    let mut waiting = shared.lock();
    loop {
        let now = Instant::now();
        let due = match (waiting.since, try_again) {
            _ if waiting.closing => Some(now),
            (_, Some(at)) => Some(at),
            (Some(_), None) if waiting.hurry || waiting.bytes >= REQUEST => Some(now),
            (Some(since), None) => Some(since + to.patience()),
            (None, None) => None,
        };
        if due.is_some_and(|due| due <= now) {
            let dropped = std::mem::take(&mut waiting.dropped);
            if dropped > 0 {
                tracing::warn!(lines = dropped, "lines of time series were dropped: {to} did not take them in time");
            }
            let lines = waiting.take();
            if waiting.lines.is_empty() {
                (waiting.since, waiting.hurry) = (None, false);
            }
            if lines.is_some() || waiting.closing {
                return lines;
            }
        }
        let left = due.map(|due| due.saturating_duration_since(now)).filter(|left| !left.is_zero());
        waiting = match left {
            Some(left) => shared.changed.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0,
            None => shared.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner),
        };
    }
}

fn write(to: &To, lines: &Lines) -> Result<(), Failure> {
    match (to, &lines.file) {
        (To::Files { folder, .. }, Some(file)) => {
            let path = folder.join(file);
            append(&path, &lines.text).map_err(|error| Failure::Now(format!("{}: {error}", path.display())))
        }
        (To::Server(server), _) => server.post(&lines.text),
        (To::Files { .. }, None) => Ok(()),
    }
}

/// Makes the user's folder where there is none, and lets this thread open files as that user from then on: what is in the folder is
/// the user's, and may be links to anything.
fn prepare(folder: &Path, owner: Option<&FileOwner>) -> Result<(), String> {
    let Some(FileOwner(identity)) = owner else {
        return files::create_folder(folder, 0o700).map_err(|error| error.to_string());
    };
    files::create_folder_for(folder, 0o700, identity.uid, identity.gid).map_err(|error| error.to_string())?;
    thread_ids::open_files_as(identity).map_err(|error| format!("opening files as uid {}: {error}", identity.uid))
}

/// Appends whole lines. Where the last line of an earlier writer was cut, they begin on a line of their own; where not all could be
/// written, nothing of it stays.
fn append(path: &Path, text: &str) -> io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let mut file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let length = file.seek(SeekFrom::End(0))?;
    let mut last = [b'\n'];
    if length > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    let text = if last == *b"\n" { text.to_owned() } else { format!("\n{text}") };
    let written = file.write_all(text.as_bytes());
    if written.is_err() {
        file.set_len(length)?;
    }
    written
}

impl Server {
    /// As `POST /write` of InfluxDB's API 1.x, which 2.x has too. Times are in nanoseconds, the default there.
    fn post(&self, text: &str) -> Result<(), Failure> {
        let InfluxServer { url, database, policy, user, password, .. } = &self.settings;
        let mut request = self.agent.post(format!("{url}/write")).query("db", database);
        if let Some(policy) = policy {
            request = request.query("rp", policy);
        }
        if let Some(user) = user {
            let pair = format!("{user}:{}", password.as_deref().unwrap_or_default());
            request = request.header("Authorization", format!("Basic {}", STANDARD.encode(pair)));
        }
        match request.header("Content-Type", "text/plain; charset=utf-8").send(text) {
            Ok(_) => Ok(()),
            Err(ureq::Error::StatusCode(code @ (400 | 413 | 422))) => Err(Failure::ForEver(format!("status {code}"))),
            Err(error) => Err(Failure::Now(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_kernel::{scratch::Scratch, users};
    use std::{
        io::{BufRead as _, BufReader},
        net::{TcpListener, TcpStream},
        os::unix::fs::PermissionsExt as _,
    };

    fn lines(file: Option<&str>, text: &str) -> Lines {
        Lines { file: file.map(str::to_owned), text: text.to_owned(), count: text.lines().count() as u64 }
    }

    #[test]
    fn files_get_whole_lines_in_a_folder_of_their_owner() {
        let dir = Scratch::new("profile");
        let folder = dir.join("profiles/alice");
        let sink = Sink::start(To::Files { folder: folder.clone(), owner: None });
        sink.put(lines(Some("7_0_n1.lp"), "a 1\nb 2\n"));
        sink.put(lines(Some("7_1_n1.lp"), "c 3\n"));
        sink.close();
        let path = folder.join("7_0_n1.lp");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a 1\nb 2\n");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&folder)), (0o600, 0o700));
        // An earlier writer was killed in the middle of a line.
        std::fs::write(&path, "a 1\nb").unwrap();
        let sink = Sink::start(To::Files { folder: folder.clone(), owner: None });
        sink.put(lines(Some("7_0_n1.lp"), "d 4\n"));
        sink.close();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a 1\nb\nd 4\n");
        assert_eq!(std::fs::read_to_string(folder.join("7_1_n1.lp")).unwrap(), "c 3\n");
    }

    #[test]
    fn root_writes_as_the_user_and_follows_no_link_of_his() {
        if users::effective_uid() != 0 {
            return eprintln!("skipped: only root has files of others to write");
        }
        let dir = Scratch::new("profile-of");
        let (folder, secret) = (dir.join("bob"), dir.join("secret"));
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let identity = Identity { uid: 65_534, gid: 65_534, groups: vec![65_534] };
        let to = || To::Files { folder: folder.clone(), owner: Some(FileOwner(identity.clone())) };
        let sink = Sink::start(to());
        sink.put(lines(Some("own"), "a 1\n"));
        sink.close();
        let owner = |path: &Path| std::os::unix::fs::MetadataExt::uid(&std::fs::symlink_metadata(path).unwrap());
        assert_eq!((owner(&folder), owner(&folder.join("own"))), (65_534, 65_534));
        std::fs::write(&secret, "secret\n").unwrap();
        std::fs::hard_link(&secret, folder.join("hard")).unwrap();
        std::os::unix::fs::symlink(&secret, folder.join("soft")).unwrap();
        let sink = Sink::start(to());
        sink.put(lines(Some("hard"), "a 1\n"));
        sink.put(lines(Some("soft"), "a 1\n"));
        sink.close();
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "secret\n");
        // Nor a folder that is somebody else's.
        assert!(files::create_folder_for(&folder, 0o700, 65_533, 65_533).is_err());
        // Other threads are as they were.
        std::fs::write(dir.join("of-root"), "").unwrap();
        assert_eq!(owner(&dir.join("of-root")), 0);
    }

    #[test]
    fn the_oldest_lines_go_when_there_is_no_room_and_are_counted() {
        let mut waiting = Waiting::default();
        let big = "x".repeat(MOST_WAITING / 4);
        for n in 0..6 {
            waiting.push(Lines { file: Some(n.to_string()), text: big.clone(), count: 10 });
        }
        assert_eq!((waiting.dropped, waiting.lines.len(), waiting.bytes), (20, 4, MOST_WAITING));
        let taken = waiting.take().unwrap();
        assert_eq!(taken.file.as_deref(), Some("2"));
        waiting.push(Lines { file: None, text: big, count: 5 });
        waiting.put_back(taken);
        assert_eq!((waiting.dropped, waiting.bytes), (30, MOST_WAITING));
    }

    /// A request: its first line, its headers, and its body.
    fn request(stream: &TcpStream) -> (String, Vec<String>, String) {
        let mut reader = BufReader::new(stream);
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if line.trim_end().is_empty() {
                break;
            }
            head.push(line.trim_end().to_ascii_lowercase());
        }
        let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        (head.remove(0), head, String::from_utf8(body).unwrap())
    }

    #[test]
    fn a_server_that_was_away_gets_what_waited() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let settings = InfluxServer {
            url: format!("http://{}", listener.local_addr().unwrap()),
            database: "slurm db".to_owned(),
            policy: Some("weeks".to_owned()),
            user: Some("writer".to_owned()),
            password: Some("pass".to_owned()),
            every_secs: 3600,
            timeout_secs: 10,
        };
        let sink = Sink::start(To::server(settings));
        sink.put(lines(None, "a 1\n"));
        sink.hurry();
        let answer_after = |status: &str, meanwhile: &dyn Fn()| {
            let (mut stream, _) = listener.accept().unwrap();
            let seen = request(&stream);
            meanwhile();
            write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
            seen
        };
        let answer = |status: &str| answer_after(status, &|| {});
        let (first, headers, body) = answer_after("503 Service Unavailable", &|| sink.put(lines(None, "b 2\n")));
        assert!(
            first.starts_with("post /write?db=slurm%20db&rp=weeks ")
                || first.starts_with("post /write?db=slurm+db&rp=weeks "),
            "{first}"
        );
        let encoded = format!("authorization: basic {}", STANDARD.encode("writer:pass").to_ascii_lowercase());
        assert!(headers.contains(&encoded), "{headers:?}");
        assert_eq!(body, "a 1\n");
        assert_eq!(answer("204 No Content").2, "a 1\nb 2\n");
        // Refused for what it is: it is not sent again.
        sink.put(lines(None, "nonsense\n"));
        sink.hurry();
        assert_eq!(answer("400 Bad Request").2, "nonsense\n");
        sink.put(lines(None, "c 3\n"));
        sink.hurry();
        assert_eq!(answer("204 No Content").2, "c 3\n");
        sink.close();
    }
}
