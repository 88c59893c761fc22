//! What the machine sends and receives, and what it reads from Lustre and writes there, by the kernel's counters. They are those of the
//! whole machine.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Counters of network interfaces together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkCount {
    /// Bytes received.
    pub bytes_in: u64,
    /// Packets received.
    pub packets_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Packets sent.
    pub packets_out: u64,
}

/// Reads `net/dev` of proc(5) below this folder. `interfaces`: those that count; empty: all but `lo`.
///
/// # Errors
/// It cannot be read.
pub fn network(proc_root: &Path, interfaces: &[String]) -> io::Result<NetworkCount> {
    let text = fs::read_to_string(proc_root.join("net/dev"))?;
    let mut count = NetworkCount::default();
    for line in text.lines() {
        let Some((name, numbers)) = line.split_once(':') else { continue };
        let name = name.trim();
        let counts = if interfaces.is_empty() { name != "lo" } else { interfaces.iter().any(|one| one == name) };
        if !counts {
            continue;
        }
        let numbers: Vec<u64> = numbers.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
        // Received are bytes, packets, errs, drop, fifo, frame, compressed, multicast; then the same of what was sent.
        if let [bytes_in, packets_in, _, _, _, _, _, _, bytes_out, packets_out, ..] = numbers[..] {
            count.bytes_in = count.bytes_in.wrapping_add(bytes_in);
            count.packets_in = count.packets_in.wrapping_add(packets_in);
            count.bytes_out = count.bytes_out.wrapping_add(bytes_out);
            count.packets_out = count.packets_out.wrapping_add(packets_out);
        }
    }
    Ok(count)
}

/// Where Lustre's client shows what its mounts read and write: in newer versions in debugfs, which is root's, before in `/proc`.
pub const LUSTRE: [&str; 2] = ["/sys/kernel/debug/lustre/llite", "/proc/fs/lustre/llite"];

/// Counters of all Lustre mounts together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LustreCount {
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
}

/// Reads `stats` of each mount (Lustre's operations manual, `llite.*.stats`) in the first of these folders that is there.
///
/// # Errors
/// None of them is there, or it cannot be read.
pub fn lustre(folders: &[PathBuf]) -> io::Result<LustreCount> {
    let mut count = LustreCount::default();
    let folder = folders.iter().find(|folder| folder.is_dir()).ok_or(io::ErrorKind::NotFound)?;
    for mount in fs::read_dir(folder)? {
        let text = fs::read_to_string(mount?.path().join("stats")).unwrap_or_default();
        for line in text.lines() {
            // read_bytes 12 samples [bytes] 4096 1048576 8388608
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let [name @ ("read_bytes" | "write_bytes"), samples, "samples", "[bytes]", _, _, sum, ..] = words[..]
            else {
                continue;
            };
            let (samples, sum) = (samples.parse().unwrap_or(0), sum.parse().unwrap_or(0));
            let (times, bytes) = match name {
                "read_bytes" => (&mut count.reads, &mut count.bytes_read),
                _ => (&mut count.writes, &mut count.bytes_written),
            };
            (*times, *bytes) = (times.wrapping_add(samples), bytes.wrapping_add(sum));
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn interfaces_are_added_up_and_the_machine_with_itself_does_not_count() {
        let proc = Scratch::new("net");
        assert!(network(proc.path(), &[]).is_err());
        let heading = "Inter-|   Receive                                                |  Transmit\n \
                       face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n";
        let lines = "    lo: 900 9 0 0 0 0 0 0 900 9 0 0 0 0 0 0\n  eth0: 1000 10 1 2 3 4 5 6 200 2 0 0 0 0 0 0\n   ib0:7 1 0 0 0 0 0 0 8 3 0 0 0 0 0 0\n";
        proc.put("net/dev", &format!("{heading}{lines}"));
        let all = NetworkCount { bytes_in: 1007, packets_in: 11, bytes_out: 208, packets_out: 5 };
        assert_eq!(network(proc.path(), &[]).unwrap(), all);
        let one = NetworkCount { bytes_in: 7, packets_in: 1, bytes_out: 8, packets_out: 3 };
        assert_eq!(network(proc.path(), &["ib0".to_owned(), "none".to_owned()]).unwrap(), one);
        // This machine's own.
        network(Path::new(crate::proc_tree::PROC), &[]).unwrap();
    }

    #[test]
    fn mounts_of_lustre_are_added_up() {
        let sys = Scratch::new("llite");
        let folders = [sys.join("debug"), sys.join("proc")];
        assert!(lustre(&folders).is_err());
        let stats = "snapshot_time 1795868431.5 secs.usecs\nread_bytes 3 samples [bytes] 4096 8192 16384\n\
                     write_bytes 2 samples [bytes] 1 9 10\nopen 4 samples [regs]\n";
        sys.put("proc/scratch-ffff1/stats", stats);
        sys.put("proc/home-ffff2/stats", "read_bytes 1 samples [bytes] 7 7 7 49\n");
        let count = LustreCount { reads: 4, bytes_read: 16_391, writes: 2, bytes_written: 10 };
        assert_eq!(lustre(&folders).unwrap(), count);
        fs::create_dir(&folders[0]).unwrap();
        assert_eq!(lustre(&folders).unwrap(), LustreCount::default(), "the first that is there");
    }
}
