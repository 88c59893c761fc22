//! A line each way over a Unix socket, with a program of the site in any language.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

/// Connects, writes the line and reads one, or what there is of it. Each read and write may take as long as `patience`; of the
/// answer, `most` bytes are read.
///
/// # Errors
/// Nobody serves there, or takes too long.
pub fn exchange(path: &Path, mut line: Vec<u8>, patience: Duration, most: u64) -> io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = Vec::new();
    BufReader::new(stream.take(most)).read_until(b'\n', &mut answer)?;
    Ok(answer)
}
