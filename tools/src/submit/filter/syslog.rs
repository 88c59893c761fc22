//! `cli_filter/syslog`: a line for each job and step in the system's log, in the words of 26.05.

use super::text;
use garrick_model::ids::JobId;
use std::{os::unix::net::UnixDatagram, path::Path};

/// Where the system's log listens.
const LOG: &str = "/dev/log";
/// `LOG_USER | LOG_NOTICE` of syslog(3).
const PRIORITY: u8 = 13;

/// Tells of a job. Where nobody listens, nobody is told.
pub fn tell(job: JobId, step: u32, options: &str) {
    let _ = send(Path::new(LOG), &line(job, step, options, &text::environment()));
}

fn line(job: JobId, step: u32, options: &str, environment: &str) -> String {
    let pid = std::process::id();
    let what = format!(r#"{{ "jobid":{job},"stepid":{step},"options":{options},"env":{environment}}}"#);
    format!("<{PRIORITY}>slurm/cli_filter/syslog[{pid}]: post_submit: {what}")
}

fn send(to: &Path, line: &str) -> std::io::Result<usize> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to(line.as_bytes(), to)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_job_is_a_line_of_the_log() {
        let path = std::env::temp_dir().join(format!("garrick-log-{:x}", garrick_model::ids::RequestId::random().0));
        let log = UnixDatagram::bind(&path).unwrap();
        send(&path, &line(JobId(7), 0, r#"{"argv":[]}"#, r#"{"A":"b"}"#)).unwrap();
        let mut room = [0; 1000];
        let len = log.recv(&mut room).unwrap();
        std::fs::remove_file(&path).unwrap();
        let want = format!(
            r#"<13>slurm/cli_filter/syslog[{}]: post_submit: {{ "jobid":7,"stepid":0,"options":{{"argv":[]}},"env":{{"A":"b"}}}}"#,
            std::process::id()
        );
        assert_eq!(std::str::from_utf8(&room[..len]).unwrap(), want);
    }
}
