//! A cluster of one door, played by the test: a configuration, a run folder, and a Unix socket behind which a closure
//! answers. The commands under test are the real program.

pub mod views;

use garrick_frame::{Decoder, Hello, HelloReply, PROTOCOL, Traced, encode, limits};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    fs,
    io::{Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

/// One connection, after its greeting.
pub struct Conversation {
    socket: UnixStream,
    decoder: Decoder,
    /// What the command said first.
    pub hello: Hello,
}

impl Conversation {
    fn accept(socket: UnixStream) -> Option<Self> {
        let hello = Hello::new(garrick_frame::LinkKind::CommandToDaemon, "nobody");
        let mut conversation = Self { socket, decoder: Decoder::new(limits::DOOR), hello };
        conversation.hello = conversation.frame()?;
        conversation.write(&HelloReply::Welcome { version: PROTOCOL.max, program: "fake".to_owned() });
        Some(conversation)
    }

    fn frame<T: DeserializeOwned>(&mut self) -> Option<T> {
        let mut piece = [0; 4096];
        loop {
            if let Some(message) = self.decoder.next().expect("the command sends well-formed frames") {
                return Some(message);
            }
            match self.socket.read(&mut piece) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.decoder.feed(&piece[..count]),
            }
        }
    }

    fn write<T: Serialize>(&mut self, message: &T) {
        let frame = encode(message, limits::DOOR).expect("the answer fits");
        // A command may go away at any time.
        let _ = self.socket.write_all(&frame);
    }

    /// The next message; `None` when the command closed.
    pub fn hear<T: DeserializeOwned>(&mut self) -> Option<T> {
        self.frame::<Traced<T>>().map(|traced| traced.msg)
    }

    /// Says something.
    pub fn say<T: Serialize>(&mut self, message: T) {
        self.write(&Traced::untraced(message));
    }
}

/// A folder with a configuration and a door.
pub struct FakeCluster {
    /// The folder.
    pub home: PathBuf,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

impl FakeCluster {
    /// Without anybody at the door.
    pub fn dead() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let home = std::env::temp_dir().join(format!("gtt-{}-{number}", std::process::id()));
        fs::create_dir_all(home.join("etc")).expect("a temporary folder can be made");
        fs::create_dir_all(home.join("run")).expect("a temporary folder can be made");
        let conf = "ClusterName=fake\nSlurmctldHost=localhost\nNodeName=n[1-2] CPUs=4\nPartitionName=debug Nodes=ALL Default=YES\n";
        fs::write(home.join("etc/slurm.conf"), conf).expect("a temporary file can be written");
        Self { home }
    }

    /// With a controller that answers each conversation by `answer`, on a thread of its own.
    pub fn with_controller(answer: impl Fn(Conversation) + Send + Sync + 'static) -> Self {
        let cluster = Self::dead();
        cluster.serve("run/ctl.sock", answer);
        cluster
    }

    /// Serves a socket at a path in the folder.
    pub fn serve(&self, path: &str, answer: impl Fn(Conversation) + Send + Sync + 'static) -> PathBuf {
        let path = self.home.join(path);
        serve(&path, answer);
        path
    }

    /// A command line of the program, in an environment of its own.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_garrick"));
        command
            .args(args)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("SLURM_CONF", self.home.join("etc/slurm.conf"))
            .env("TZ", "UTC")
            .current_dir(&self.home)
            .stdin(Stdio::null());
        garrick_testing::interrupts::interruptible(&mut command);
        command
    }

    /// Runs it.
    pub fn run(&self, args: &[&str]) -> Shown {
        Shown::of(self.command(args).output().expect("the program can be started"))
    }

    /// A file in the folder.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.home.join(name);
        fs::write(&path, text).expect("a temporary file can be written");
        path
    }
}

/// Serves a socket, each conversation on a thread of its own.
pub fn serve(path: &Path, answer: impl Fn(Conversation) + Send + Sync + 'static) {
    listen(path, move |socket| {
        if let Some(conversation) = Conversation::accept(socket) {
            answer(conversation);
        }
    });
}

/// Serves a socket where everybody is turned away in good order, as a relay does that cannot reach its other end.
pub fn turn_away(path: &Path, reason: &'static str, tell: impl Fn() + Send + Sync + 'static) {
    listen(path, move |socket| {
        let hello = Hello::new(garrick_frame::LinkKind::CommandToDaemon, "nobody");
        let mut conversation = Conversation { socket, decoder: Decoder::new(limits::DOOR), hello };
        if conversation.frame::<Hello>().is_some() {
            tell();
            conversation.write(&HelloReply::Refused { reason: reason.to_owned(), versions: PROTOCOL });
        }
    });
}

fn listen(path: &Path, take: impl Fn(UnixStream) + Send + Sync + 'static) {
    let listener = UnixListener::bind(path).expect("a socket can be made in a temporary folder");
    let take = Arc::new(take);
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let take = Arc::clone(&take);
            thread::spawn(move || take(socket));
        }
    });
}

impl Drop for FakeCluster {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(Path::new(&self.home));
    }
}

/// What a command showed.
#[derive(Debug, PartialEq, Eq)]
pub struct Shown {
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
    /// Exit code.
    pub code: Option<i32>,
}

impl Shown {
    /// From a finished process.
    pub fn of(output: Output) -> Self {
        Self {
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
            code: output.status.code(),
        }
    }
}
