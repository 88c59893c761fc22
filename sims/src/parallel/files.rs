//! The time to copy one file to many nodes, as a multiple of one copy over one connection of this machine's loopback.

use super::seconds;
use crate::minibatch::{
    cluster::{Embedded, Stage, fresh_home, remove},
    figures::{Findings, median},
    inside::Fallible,
};
use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    time::Instant,
};

/// Copies of each kind, in turns.
const ROUNDS: usize = 3;
/// Memory as a file system, where copies cost no disk.
const MEMORY: &str = "/dev/shm";
/// Bytes of a mebibyte.
const MIB: usize = 1 << 20;

/// Measures: `mebibytes` to 1 and to `nodes` nodes. All nodes write below [`MEMORY`], each its own copy.
pub fn files(mebibytes: usize, nodes: usize) -> Fallible<Findings> {
    let source = Scratch::new(mebibytes)?;
    let cluster = Embedded::up(nodes, Some(1))?;
    let mut times: [Vec<f64>; 3] = Default::default();
    for _ in 0..ROUNDS {
        times[0].push(over_loopback(&source.file(), &source.target())?);
        times[1].push(broadcast(&cluster, &source, 1)?);
        times[2].push(broadcast(&cluster, &source, nodes)?);
    }
    cluster.down()?;
    let mut found = Findings::default();
    let [link, one, all] = times.map(median);
    let whats = [("one copy over one connection", 1, link), ("sbcast to one node", 1, one), ("sbcast", nodes, all)];
    let rows = whats.into_iter().map(|(what, nodes, time)| {
        let mib = (mebibytes * nodes) as f64 / time;
        vec![
            what.to_owned(),
            nodes.to_string(),
            format!("{time:.2}"),
            format!("{:.1}", time / link),
            format!("{:.2}", time / link / nodes as f64),
            format!("{mib:.0}"),
        ]
    });
    let head = ["", "nodes", "s", "of one copy", "of as many copies", "MiB/s written"];
    found.table(format!("a file of {mebibytes} MiB (median of {ROUNDS})"), &head, rows.collect());
    found.note("all nodes are on this machine: each copy costs its CPUs the same as one over a connection");
    Ok(found)
}

/// The source and what is written.
struct Scratch {
    folder: PathBuf,
    memory: PathBuf,
}

impl Scratch {
    fn new(mebibytes: usize) -> Fallible<Self> {
        let folder = fresh_home("files")?;
        let memory = Path::new(MEMORY).join(folder.file_name().unwrap_or_default());
        fs::create_dir(&memory)?;
        let scratch = Self { folder, memory };
        let mut file = File::create(scratch.file())?;
        // No two parts alike, and nothing that is easily packed.
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut part = vec![0; MIB];
        for _ in 0..mebibytes {
            for bytes in part.chunks_exact_mut(8) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                bytes.copy_from_slice(&state.to_le_bytes());
            }
            file.write_all(&part)?;
        }
        Ok(scratch)
    }

    fn file(&self) -> PathBuf {
        self.memory.join("source")
    }

    fn target(&self) -> PathBuf {
        self.memory.join("copy")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.memory);
        let _ = remove(&self.folder);
    }
}

fn broadcast(cluster: &Embedded, source: &Scratch, nodes: usize) -> Fallible<f64> {
    let list = if nodes == 1 { "-wn1".to_owned() } else { format!("-wn[1-{nodes}]") };
    let mut salloc = cluster.command("salloc");
    let sbcast = cluster.bin().join("sbcast");
    salloc.args(["--quiet", &format!("-N{nodes}"), &list]).arg(sbcast).arg("--force");
    seconds(salloc.arg(source.file()).arg(source.target()))
}

fn over_loopback(from: &Path, to: &Path) -> Fallible<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let began = Instant::now();
    let from = from.to_owned();
    let sender = std::thread::spawn(move || -> io::Result<()> {
        let mut stream = TcpStream::connect(address)?;
        let mut file = File::open(from)?;
        let mut part = vec![0; MIB];
        loop {
            let read = file.read(&mut part)?;
            if read == 0 {
                return Ok(());
            }
            stream.write_all(&part[..read])?;
        }
    });
    let (mut stream, _) = listener.accept()?;
    io::copy(&mut stream, &mut File::create(to)?)?;
    let took = began.elapsed().as_secs_f64();
    sender.join().map_err(|_| "the sender panicked")??;
    Ok(took)
}
