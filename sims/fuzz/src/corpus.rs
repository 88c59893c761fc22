//! Saved inputs: `corpus/TARGET.txt`, one a line, with unprintable bytes as in Rust strings (`\xff`). One text file for each
//! target, so that changes can be reviewed.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Longer inputs are not kept.
pub const MOST_INPUT_BYTES: usize = 4 << 10;
/// All of a target that is kept.
pub const MOST_CORPUS_BYTES: usize = 32 << 10;

fn file(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(format!("{target}.txt"))
}

/// What is kept of a target.
pub fn kept(target: &str) -> Vec<Vec<u8>> {
    fs::read_to_string(file(target)).unwrap_or_default().lines().map(unescape).collect()
}

/// Keeps the shortest of the inputs in `folder`, as many as there is room for, in place of what was kept before. Returns
/// how many.
///
/// # Errors
/// When a file cannot be read or written.
pub fn keep(target: &str, folder: &Path) -> io::Result<usize> {
    let mut inputs = Vec::new();
    for entry in fs::read_dir(folder)? {
        let input = fs::read(entry?.path())?;
        if input.len() <= MOST_INPUT_BYTES {
            inputs.push(escape(&input));
        }
    }
    inputs.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    inputs.dedup();
    let mut text = String::new();
    let mut count = 0;
    for input in inputs.iter().take_while(|input| input.len() < MOST_CORPUS_BYTES) {
        if text.len() + input.len() >= MOST_CORPUS_BYTES {
            break;
        }
        text.push_str(input);
        text.push('\n');
        count += 1;
    }
    fs::write(file(target), text)?;
    Ok(count)
}

/// Writes seeds and kept inputs of a target into `folder`, a file each, as libFuzzer wants them.
///
/// # Errors
/// When a file cannot be written.
pub fn unpack(target: &crate::target::Target, folder: &Path) -> io::Result<usize> {
    fs::create_dir_all(folder)?;
    let inputs = target.inputs();
    for (number, input) in inputs.iter().enumerate() {
        fs::write(folder.join(format!("kept-{number}")), input)?;
    }
    Ok(inputs.len())
}

fn escape(input: &[u8]) -> String {
    input.escape_ascii().to_string()
}

fn unescape(line: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = line.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'n') => out.push(b'\n'),
            Some(b'r') => out.push(b'\r'),
            Some(b't') => out.push(b'\t'),
            Some(b'x') => {
                let digits = [bytes.next().unwrap_or(b'0'), bytes.next().unwrap_or(b'0')];
                let text = std::str::from_utf8(&digits).unwrap_or_default();
                out.push(u8::from_str_radix(text, 16).unwrap_or_default());
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_reads_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unescape(&escape(&all)), all);
    }
}
