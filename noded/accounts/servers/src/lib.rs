//! PostgreSQL and MariaDB for tests: Debian's programs, in a folder of their own, as a user without rights, listening on a socket there
//! and on a free port. Tests that run at a time share a server; each has a database of its own. A server ends with the last test
//! that has it, and with the process of the tests whatever happens to that (`PR_SET_PDEATHSIG`).
//!
//! Where the programs are not installed, [`Server::shared`] says so and gives nothing.
#![allow(clippy::unwrap_used)]

mod certificates;

use garrick_kernel::{signals, users};
use std::{
    fs::{self, File},
    io::Write as _,
    net::{TcpListener, TcpStream},
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

/// Whom tests connect as.
pub const USER: &str = "garrick";
/// With this password, over TCP.
pub const PASSWORD: &str = "se=cret";
/// Somebody who needs a certificate too.
pub const CERTIFIED: &str = "certified";
/// SIGQUIT: PostgreSQL ends at once.
const QUIT: i32 = 3;
const STOP: i32 = 19;
const CONT: i32 = 18;
/// A server that has not answered by then never will.
const START: Duration = Duration::from_secs(60);

/// Which program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    MariaDb,
}

static SHARED: [Mutex<Weak<Server>>; 2] = [const { Mutex::new(Weak::new()) }; 2];

/// A server, with TLS.
#[derive(Debug)]
pub struct Server {
    program: Program,
    folder: PathBuf,
    /// Where it listens on 127.0.0.1.
    pub port: u16,
    running: Mutex<Option<Child>>,
}

impl Server {
    /// The server of all tests that run now; `None`, with a message, where it is not installed.
    pub fn shared(program: Program) -> Option<Arc<Self>> {
        let mut shared = SHARED[program as usize].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = shared.upgrade() {
            return Some(running);
        }
        let started = Arc::new(Self::start(program)?);
        *shared = Arc::downgrade(&started);
        Some(started)
    }

    /// A server of one's own, which may be killed.
    pub fn start(program: Program) -> Option<Self> {
        if !program.is_installed() {
            eprintln!("skipped: {program:?} is not installed");
            return None;
        }
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("garrick-{program:?}-{}-{number}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let server = Self { program, folder, port, running: Mutex::new(None) };
        certificates::make(&server.folder);
        server.give_folder();
        server.create();
        server.run();
        server.admit();
        Some(server)
    }

    /// Where its socket is: of PostgreSQL the folder.
    pub fn socket(&self) -> PathBuf {
        match self.program {
            Program::Postgres => self.folder.clone(),
            Program::MariaDb => self.folder.join("socket"),
        }
    }

    /// A file of the test's certificates: `ca.pem`, `other-ca.pem`, `client.pem`, `client.key`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes an empty database of that name, for [`USER`] and [`CERTIFIED`].
    pub fn create_database(&self, name: &str) {
        let (database, sql) = match self.program {
            Program::Postgres => {
                let sql = format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' OWNER {USER}");
                ("postgres", sql)
            }
            Program::MariaDb => {
                let grant = |user| format!("GRANT ALL ON {name}.* TO '{user}'@'%'");
                ("mysql", format!("CREATE DATABASE {name}; {}; {}", grant(USER), grant(CERTIFIED)))
            }
        };
        self.sql(database, &sql);
    }

    /// What the server's own program answers to SQL in a database, without headings.
    #[track_caller]
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let answer = self.try_sql(database, sql);
        assert!(answer.status.success(), "{sql}: {}", String::from_utf8_lossy(&answer.stderr));
        String::from_utf8(answer.stdout).unwrap().trim().to_owned()
    }

    fn try_sql(&self, database: &str, sql: &str) -> Output {
        let socket = self.socket();
        let mut command = match self.program {
            Program::Postgres => {
                let mut psql = self.unprivileged(&self.binary("psql"), None);
                psql.args([
                    "-X",
                    "-q",
                    "-A",
                    "-t",
                    "-v",
                    "ON_ERROR_STOP=1",
                    "-U",
                    "postgres",
                    "-d",
                    database,
                    "-c",
                    sql,
                ]);
                psql.arg("-h").arg(socket).arg("-p").arg(self.port.to_string());
                psql
            }
            Program::MariaDb => {
                let mut client = self.unprivileged(&self.binary("mariadb"), None);
                client.arg("--no-defaults").arg("-S").arg(socket);
                client.args(["-u", "root", "-N", "-B", database, "-e", sql]);
                client
            }
        };
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// Ends it like a machine that loses power.
    pub fn kill(&self) {
        self.end();
        if self.program == Program::Postgres {
            // A killed server leaves it; a new one must not take a process of that number for the old one.
            let _ = fs::remove_file(self.folder.join("data/postmaster.pid"));
        }
    }

    /// PostgreSQL has a process for each connection: they see that the first one is gone, in their own time.
    fn end(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut child) = running {
            let _ = child.kill();
            let _ = child.wait();
            while self.has_processes() {
                thread::yield_now();
            }
        }
    }

    /// A process works in its folder of data.
    fn has_processes(&self) -> bool {
        !self.processes().is_empty()
    }

    /// Numbers of the processes that work in its folder of data.
    fn processes(&self) -> Vec<String> {
        let data = self.folder.join("data");
        let there = fs::read_dir("/proc").unwrap().flatten();
        let works = there.filter(|process| fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd == data));
        works.map(|process| process.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Lets it fall silent, with all connections open, or go on.
    pub fn freeze(&self, frozen: bool) {
        let signal = if frozen { STOP } else { CONT };
        // One that has ended meanwhile is as good.
        for pid in self.processes().iter().filter_map(|pid| pid.parse().ok()) {
            let _ = signals::send_child(pid, signal);
        }
    }

    /// Starts it, and waits until it answers.
    pub fn run(&self) {
        let (binary, data) = (self.binary(self.program.daemon()), self.folder.join("data"));
        let mut command = self.unprivileged(&binary, Some("QUIT"));
        let (port, folder) = (self.port.to_string(), self.folder.display());
        match self.program {
            Program::Postgres => {
                command.arg("-D").arg(&data).args(["-p", &port, "-k"]).arg(&self.folder);
                for setting in
                    ["listen_addresses=127.0.0.1", "ssl=on", "fsync=off", "full_page_writes=off", "max_connections=100"]
                {
                    command.args(["-c", setting]);
                }
                for (key, file) in
                    [("ssl_cert_file", "server.pem"), ("ssl_key_file", "server.key"), ("ssl_ca_file", "ca.pem")]
                {
                    command.arg("-c").arg(format!("{key}={folder}/{file}"));
                }
            }
            Program::MariaDb => {
                command.arg("--no-defaults").arg(format!("--datadir={}", data.display()));
                command.arg(format!("--socket={}", self.socket().display()));
                command.arg(format!("--pid-file={folder}/pid"));
                command.args(["--bind-address=127.0.0.1", "--skip-name-resolve", "--innodb-log-file-size=8M"]);
                // What is committed survives the end of the process; not of the machine, which tests do not end.
                command.args(["--innodb-flush-log-at-trx-commit=2", "--innodb-doublewrite=0"]);
                command.args(["--skip-log-bin", "--innodb-buffer-pool-size=32M"]);
                command.arg(format!("--port={port}"));
                for (key, file) in [("cert", "server.pem"), ("key", "server.key"), ("ca", "ca.pem")] {
                    command.arg(format!("--ssl-{key}={folder}/{file}"));
                }
            }
        }
        let log = File::options().create(true).append(true).open(self.folder.join("log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        *self.running.lock().unwrap() = Some(spawn(command));
        self.await_answer();
    }

    fn await_answer(&self) {
        let began = Instant::now();
        loop {
            let database = if self.program == Program::Postgres { "postgres" } else { "mysql" };
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok()
                && self.try_sql(database, "SELECT 1").status.success()
            {
                return;
            }
            let log = || fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            let ended = self.running.lock().unwrap().as_mut().and_then(|child| child.try_wait().unwrap());
            assert!(ended.is_none(), "{:?} ended: {ended:?}\n{}", self.program, log());
            assert!(began.elapsed() < START, "{:?} does not answer\n{}", self.program, log());
            thread::yield_now();
        }
    }

    /// Its files as they are after an installation.
    fn create(&self) {
        let data = self.folder.join("data");
        let mut command = match self.program {
            Program::Postgres => {
                let mut initdb = self.unprivileged(&self.binary("initdb"), None);
                initdb.args(["--no-sync", "-U", "postgres", "--auth-local=trust", "--auth-host=scram-sha-256", "-D"]);
                initdb.arg(&data);
                initdb
            }
            Program::MariaDb => {
                let mut install = self.unprivileged(&self.binary("mariadb-install-db"), None);
                install.args(["--no-defaults", "--skip-test-db", "--auth-root-authentication-method=normal"]);
                install.arg("--innodb-log-file-size=8M").arg(format!("--datadir={}", data.display()));
                install
            }
        };
        let made = command.stdin(Stdio::null()).output().unwrap();
        assert!(made.status.success(), "{:?} {}", made.status, String::from_utf8_lossy(&made.stderr));
        if self.program == Program::Postgres {
            let mut rules = File::create(data.join("pg_hba.conf")).unwrap();
            writeln!(rules, "local all postgres trust\nlocal all all scram-sha-256").unwrap();
            writeln!(rules, "hostssl all {CERTIFIED} 127.0.0.1/32 scram-sha-256 clientcert=verify-ca").unwrap();
            writeln!(rules, "host all {USER} 127.0.0.1/32 scram-sha-256").unwrap();
        }
    }

    /// Makes the users of tests.
    fn admit(&self) {
        let (database, all) = match self.program {
            Program::Postgres => (
                "postgres",
                vec![
                    format!("CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'"),
                    format!("CREATE ROLE {CERTIFIED} LOGIN PASSWORD '{PASSWORD}' IN ROLE {USER}"),
                    format!("ALTER ROLE {CERTIFIED} SET ROLE {USER}"),
                ],
            ),
            Program::MariaDb => (
                "mysql",
                vec![
                    format!("CREATE USER '{USER}'@'%' IDENTIFIED BY '{PASSWORD}'"),
                    format!("CREATE USER '{CERTIFIED}'@'%' IDENTIFIED BY '{PASSWORD}' REQUIRE X509"),
                ],
            ),
        };
        all.iter().for_each(|sql| drop(self.sql(database, sql)));
    }

    fn binary(&self, name: &str) -> PathBuf {
        let found = binaries(self.program).unwrap().join(name);
        if found.exists() { found } else { Path::new("/usr/bin").join(name) }
    }

    /// As the user that the package made: PostgreSQL refuses to be root.
    fn unprivileged(&self, program: &Path, death: Option<&str>) -> Command {
        let mut command = Command::new("setpriv");
        if let Some((uid, gid)) = self.account() {
            command.args(["--reuid", &uid.to_string(), "--regid", &gid.to_string(), "--clear-groups"]);
        }
        if let Some(death) = death {
            command.args(["--pdeathsig", death]);
        }
        command.arg("--").arg(program).env_clear();
        // MariaDB deletes what earlier servers left in a folder for temporary files that others have too.
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", &self.folder).env("TMPDIR", &self.folder);
        command.current_dir(&self.folder);
        command
    }

    /// User and group of the server where root starts it.
    fn account(&self) -> Option<(u32, u32)> {
        let name = match self.program {
            Program::Postgres => "postgres",
            Program::MariaDb => "mysql",
        };
        let account = || users::by_name_or_uid(name).unwrap();
        (users::effective_uid() == 0).then(account).map(|account| (account.uid, account.gid))
    }

    fn give_folder(&self) {
        if let Some((uid, gid)) = self.account() {
            chown(&self.folder, Some(uid), Some(gid)).unwrap();
            for file in fs::read_dir(&self.folder).unwrap() {
                chown(file.unwrap().path(), Some(uid), Some(gid)).unwrap();
            }
        }
        fs::set_permissions(&self.folder, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A frozen one takes no other signal, and would be waited for for ever.
        self.freeze(false);
        if self.program == Program::Postgres {
            // So it leaves no shared memory behind.
            if let Some(child) = &*self.running.lock().unwrap_or_else(PoisonError::into_inner) {
                let _ = signals::send_child(child.id(), QUIT);
            }
            if let Some(mut child) = self.running.lock().unwrap_or_else(PoisonError::into_inner).take() {
                let _ = child.wait();
            }
        }
        self.end();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Program {
    /// Can tests start it, and ask it by hand?
    pub fn is_installed(self) -> bool {
        binaries(self).is_some()
    }

    const fn daemon(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::MariaDb => "mariadbd",
        }
    }
}

/// The folder of a program, if it is installed.
fn binaries(program: Program) -> Option<PathBuf> {
    let folders = match program {
        Program::MariaDb => vec![PathBuf::from("/usr/sbin")],
        Program::Postgres => {
            let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
            versions.map(|version| version.path().join("bin")).collect()
        }
    };
    let client = match program {
        Program::Postgres => "/usr/bin/psql",
        Program::MariaDb => "/usr/bin/mariadb",
    };
    let found = folders.into_iter().find(|folder| folder.join(program.daemon()).exists());
    found.filter(|_| Path::new(client).exists())
}

/// Starts it from a thread that ends with the process: what is started is to end with the process, and not with the thread of the
/// test that needed it first.
fn spawn(command: Command) -> Child {
    type Order = (Command, mpsc::Sender<std::io::Result<Child>>);
    static STARTER: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (orders, taken) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in taken {
                let _ = answer.send(command.spawn());
            }
        });
        orders
    });
    let (answer, started) = mpsc::channel();
    starter.send((command, answer)).unwrap();
    started.recv().unwrap().unwrap()
}
