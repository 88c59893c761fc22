//! The audit log: an append-only file with one JSON object a line, closed and begun anew when it is large. A thread of its own
//! writes it, so that a slow disk delays nothing else.

use file_rotate::{ContentLimit, FileRotate, compression::Compression, suffix::AppendCount};
use garrick_actors::controller::shells::{audit::AuditRecord, ports::AuditPort};
use std::{
    fs::OpenOptions,
    io::Write,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
};

/// The file grows to this size.
const MOST_BYTES: usize = 64 << 20;
/// So many older ones are kept (`audit.log.1`, the newest, to `audit.log.8`).
const KEPT: usize = 8;
/// Records that wait for the disk at most.
const WAITING: usize = 65_536;
/// Longest line; of a longer request its size is kept.
const MOST_LINE: usize = 16 << 10;

/// See the module. Without a file nothing is kept.
pub struct AuditLog {
    queue: Option<SyncSender<AuditRecord>>,
    lost: AtomicU64,
}

impl AuditLog {
    /// Appends to a file; `None`: keeps nothing.
    pub fn start(path: Option<&Path>) -> std::io::Result<Self> {
        let Some(path) = path else { return Ok(Self { queue: None, lost: AtomicU64::new(0) }) };
        let mut options = OpenOptions::new();
        options.create(true).append(true).read(true).mode(0o600);
        // A file that cannot be written is told now, not with the first record.
        options.open(path)?;
        let limit = ContentLimit::BytesSurpassed(MOST_BYTES);
        let file = FileRotate::new(path, AppendCount::new(KEPT), limit, Compression::None, Some(options));
        let (queue, records) = sync_channel(WAITING);
        std::thread::Builder::new().name("audit".into()).spawn(move || write(file, &records))?;
        Ok(Self { queue: Some(queue), lost: AtomicU64::new(0) })
    }
}

impl AuditPort for AuditLog {
    fn keep(&self, record: AuditRecord) {
        let Some(queue) = &self.queue else { return };
        if let Err(TrySendError::Full(record) | TrySendError::Disconnected(record)) = queue.try_send(record) {
            let lost = self.lost.fetch_add(1, Ordering::Relaxed) + 1;
            if lost.is_power_of_two() {
                tracing::error!(
                    lost,
                    what = record.what,
                    uid = record.uid,
                    "the audit log cannot be written: records are lost"
                );
            }
        }
    }
}

fn line(record: &AuditRecord) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(record)?;
    if line.len() > MOST_LINE {
        let mut short = serde_json::to_value(record)?;
        if let Some(fields) = short.as_object_mut() {
            fields.remove("request");
            fields.insert("bytes".to_owned(), line.len().into());
        }
        line = serde_json::to_vec(&short)?;
    }
    line.push(b'\n');
    Ok(line)
}

fn write(mut file: FileRotate<AppendCount>, records: &Receiver<AuditRecord>) {
    let mut failed = false;
    for record in records {
        let written = line(&record).map_err(std::io::Error::other).and_then(|line| file.write_all(&line));
        match written.and_then(|()| file.flush()) {
            Err(e) if !std::mem::replace(&mut failed, true) => {
                tracing::error!(error = %e, "the audit log is not written");
            }
            Err(_) => {}
            Ok(()) => failed = false,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_actors::controller::shells::audit::AuditedRequest;
    use garrick_model::{messages::command::CommandRequest, time::Timestamp};

    fn record(request: CommandRequest) -> AuditRecord {
        AuditRecord {
            time: Timestamp(1_790_000_000_000),
            uid: 1001,
            pid: 7,
            host: "n1".into(),
            what: "Reconfigure",
            request: AuditedRequest::Request(Box::new(request)),
            outcome: "Access/permission denied".into(),
            refused: true,
        }
    }

    #[test]
    fn a_line_is_one_object_however_large_the_request() {
        let short = line(&record(CommandRequest::Reconfigure)).unwrap();
        let read: serde_json::Value = serde_json::from_slice(&short).unwrap();
        assert_eq!((read["uid"].as_u64(), read["request"].as_str()), (Some(1001), Some("Reconfigure")));
        let nodes = vec!["n\n".repeat(100_000)];
        let long = line(&record(CommandRequest::RevokeCerts { nodes })).unwrap();
        assert!(long.len() < MOST_LINE && long.iter().filter(|byte| **byte == b'\n').count() == 1);
        let read: serde_json::Value = serde_json::from_slice(&long).unwrap();
        assert!(read["bytes"].as_u64().unwrap() > 200_000 && read["outcome"] == "Access/permission denied");
    }
}
