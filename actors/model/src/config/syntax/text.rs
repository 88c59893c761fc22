//! What was written: comments, continued lines, quotes and included files, turned into `Key=Value` pairs with their place.

use super::report::{ConfigReport, Place, SettingError};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Files may include files to this depth.
const MAX_DEPTH: usize = 32;

/// `Key=Value` as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) struct Pair {
    pub key: String,
    pub value: String,
    pub place: Place,
}

impl Pair {
    pub fn is(&self, key: &str) -> bool {
        self.key.eq_ignore_ascii_case(key)
    }
    pub fn what(&self) -> String {
        format!("{}={}", self.key, self.value)
    }
}

/// Reads a file's text. Tests give made-up files.
pub(in crate::config) type ReadFile<'f> = dyn Fn(&Path) -> io::Result<String> + 'f;

/// All lines of a file and of what it includes, as the pairs on each logical line.
pub(in crate::config) fn lines(main: &Path, read_file: &ReadFile<'_>, report: &mut ConfigReport) -> Vec<Vec<Pair>> {
    let folder = main.parent().map(Path::to_owned).unwrap_or_default();
    let mut reader = Reader { folder, cluster: None, open: Vec::new(), read_file, report, lines: Vec::new() };
    reader.file(main, None);
    reader.lines
}

struct Reader<'a> {
    folder: PathBuf,
    cluster: Option<String>,
    open: Vec<PathBuf>,
    read_file: &'a ReadFile<'a>,
    report: &'a mut ConfigReport,
    lines: Vec<Vec<Pair>>,
}

impl Reader<'_> {
    /// `from`: the include line that names the file.
    fn file(&mut self, path: &Path, from: Option<(&Place, &str)>) {
        let this: Arc<Path> = Arc::from(path);
        let whole = Place { file: this.clone(), line: 0 };
        let (place, what) = from.map_or((&whole, String::new()), |(place, what)| (place, what.to_owned()));
        let what = if what.is_empty() { path.display().to_string() } else { what };
        if self.open.iter().any(|open| open == path) {
            let chain: Vec<String> = self.open.iter().map(|p| p.display().to_string()).collect();
            self.report.error(
                place,
                what,
                SettingError::new(format!("the file includes itself through {}", chain.join(", "))),
            );
            return;
        }
        if self.open.len() >= MAX_DEPTH {
            self.report.error(place, what, SettingError::new(format!("files are included more than {MAX_DEPTH} deep")));
            return;
        }
        let text = match (self.read_file)(path) {
            Ok(text) => text,
            Err(e) => {
                let wrong = SettingError::new(format!("cannot read {}: {e}", path.display()));
                self.report.error(place, what, wrong);
                return;
            }
        };
        self.report.files.push(path.to_owned());
        self.open.push(path.to_owned());
        let mut logical = Logical::default();
        for (n, physical) in text.lines().enumerate() {
            let number = u32::try_from(n + 1).unwrap_or(u32::MAX);
            let continued = logical.add(physical, number);
            if !continued {
                let line = std::mem::take(&mut logical);
                self.line(&line, &this);
            }
        }
        // A backslash on the very last line.
        self.line(&logical, &this);
        self.open.pop();
    }

    fn line(&mut self, line: &Logical, file: &Arc<Path>) {
        let Some(&(_, first)) = line.starts.first() else { return };
        let start = Place { file: file.clone(), line: first };
        let trimmed = line.text.trim_start();
        let word = trimmed.split(|c: char| c.is_whitespace()).next().unwrap_or_default();
        if word.eq_ignore_ascii_case("include") {
            self.include(trimmed[word.len()..].trim(), &start);
            return;
        }
        let (pairs, wrong) = pairs(&line.text, |offset| Place { file: file.clone(), line: line.number_at(offset) });
        if let Some(cluster) = pairs.iter().find(|pair| pair.is("ClusterName")) {
            self.cluster = Some(cluster.value.to_ascii_lowercase());
        }
        if let Some((place, what, wrong)) = wrong {
            self.report.error(&place, what, wrong);
        }
        if !pairs.is_empty() {
            self.lines.push(pairs);
        }
    }

    fn include(&mut self, name: &str, place: &Place) {
        let name = name.strip_prefix('"').and_then(|n| n.strip_suffix('"')).unwrap_or(name);
        let what = format!("Include {name}");
        if name.is_empty() {
            self.report.error(place, what.trim_end(), SettingError::new("no file is named"));
            return;
        }
        let name = match &self.cluster {
            Some(cluster) => name.replace("%c", cluster),
            None if name.contains("%c") => {
                let wrong = SettingError::new("%c stands for ClusterName, which is not known yet")
                    .suggest("put ClusterName above");
                self.report.error(place, what, wrong);
                return;
            }
            None => name.to_owned(),
        };
        let path = self.folder.join(name);
        self.file(&path, Some((place, &what)));
    }
}

/// A line with its continuations, and where each physical line starts in it.
#[derive(Default)]
struct Logical {
    text: String,
    starts: Vec<(usize, u32)>,
    in_quotes: bool,
}

impl Logical {
    /// Adds a physical line without its comment; true when it ends in a backslash.
    fn add(&mut self, physical: &str, number: u32) -> bool {
        self.starts.push((self.text.len(), number));
        let (text, commented) = without_comment(physical, &mut self.in_quotes);
        let trimmed = text.trim_end();
        match trimmed.strip_suffix('\\') {
            Some(kept) if !commented => {
                self.text.push_str(kept);
                true
            }
            _ => {
                self.text.push_str(trimmed);
                false
            }
        }
    }
    fn number_at(&self, offset: usize) -> u32 {
        let after = self.starts.partition_point(|(start, _)| *start <= offset);
        self.starts.get(after.saturating_sub(1)).map_or(0, |s| s.1)
    }
}

/// Cuts at a `#` outside quotes; `\#` is a `#`.
fn without_comment(line: &str, in_quotes: &mut bool) -> (String, bool) {
    let mut text = String::with_capacity(line.len());
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' => *in_quotes = !*in_quotes,
            '\\' if chars.peek() == Some(&'#') => {
                chars.next();
                text.push('#');
                continue;
            }
            '#' if !*in_quotes => return (text, true),
            _ => {}
        }
        text.push(c);
    }
    (text, false)
}

type Wrong = (Place, String, SettingError);

/// The pairs of a logical line up to the first thing that is none. `Nodes= State=UP` has an empty value.
fn pairs(line: &str, place_at: impl Fn(usize) -> Place) -> (Vec<Pair>, Option<Wrong>) {
    let mut found = Vec::new();
    let mut at = 0;
    let skip = |from: usize| from + line[from..].len() - line[from..].trim_start().len();
    let word_end = |from: usize| line[from..].find(char::is_whitespace).map_or(line.len(), |n| from + n);
    loop {
        at = skip(at);
        if at >= line.len() {
            return (found, None);
        }
        let place = place_at(at);
        let key_end = line[at..].find(|c: char| c == '=' || c.is_whitespace()).map_or(line.len(), |n| at + n);
        let key = &line[at..key_end];
        let equals = skip(key_end);
        if key.is_empty() || !line[equals..].starts_with('=') {
            let word = &line[at..word_end(at)];
            let wrong = SettingError::new("expected Key=Value").suggest("put quotes around a value with blanks");
            return (found, Some((place, word.to_owned(), wrong)));
        }
        let after = equals + 1;
        let start = skip(after);
        let next = &line[start..word_end(start)];
        let blank_value = start > after && !next.starts_with('"') && next.contains('=');
        let (value, end) = if blank_value || start >= line.len() {
            ("", after)
        } else if line[start..].starts_with('"') {
            match line[start + 1..].find('"') {
                Some(length) => (&line[start + 1..start + 1 + length], start + length + 2),
                None => {
                    let wrong = SettingError::new("the quote is not closed");
                    return (found, Some((place, line[at..].to_owned(), wrong)));
                }
            }
        } else {
            (next, word_end(start))
        };
        if !line[end..].is_empty() && !line[end..].starts_with(char::is_whitespace) {
            let wrong = SettingError::new("something follows the closing quote");
            return (found, Some((place, line[at..word_end(end)].to_owned(), wrong)));
        }
        found.push(Pair { key: key.to_owned(), value: value.to_owned(), place });
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn read(files: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        let files: HashMap<PathBuf, String> = files.iter().map(|(p, t)| (PathBuf::from(p), (*t).to_owned())).collect();
        let mut report = ConfigReport::default();
        let read_file = |path: &Path| files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into());
        let lines = lines(Path::new("/etc/slurm.conf"), &read_file, &mut report);
        let shown = lines.iter().map(|pairs| {
            let pairs = pairs.iter().map(|p| format!("{}:{}=<{}>", p.place.line, p.key, p.value));
            pairs.collect::<Vec<_>>().join(" ")
        });
        (shown.collect(), report.problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn comments_quotes_and_continuations() {
        let text = "# all of it \\\n  A=1 # rest\nB = 2\\\n  C=\"x # y\" \\\n D=\\#4\n\nE=\nF= G=7\nH=\"\" I=i\"q\n";
        let (lines, problems) = read(&[("/etc/slurm.conf", text)]);
        let want = ["2:A=<1>", "3:B=<2> 4:C=<x # y> 5:D=<#4>", "7:E=<>", "8:F=<> 8:G=<7>", "9:H=<> 9:I=<i\"q>"];
        assert_eq!((lines, problems), (want.map(str::to_owned).to_vec(), vec![]));
    }

    #[test]
    fn what_is_no_pair_is_an_error_with_its_line() {
        let (lines, problems) = read(&[("/etc/slurm.conf", "A=1\nB 2\nC=\"x\nD=\"x\"y\nE=1 \\\n=3")]);
        assert_eq!(lines, ["1:A=<1>", "5:E=<1>"]);
        let want = [
            "/etc/slurm.conf:2: error: B: expected Key=Value (put quotes around a value with blanks)",
            "/etc/slurm.conf:3: error: C=\"x: the quote is not closed",
            "/etc/slurm.conf:4: error: D=\"x\"y: something follows the closing quote",
            "/etc/slurm.conf:6: error: =3: expected Key=Value (put quotes around a value with blanks)",
        ];
        assert_eq!(problems, want);
    }

    #[test]
    fn files_are_included_in_place() {
        let (lines, problems) = read(&[
            ("/etc/slurm.conf", "ClusterName=one\nA=1\ninclude nodes/%c.conf\nInclude /x.conf\nZ=1"),
            ("/etc/nodes/one.conf", "N=1"),
            ("/x.conf", "include slurm.conf\nX=1\ninclude missing"),
        ]);
        assert_eq!(lines, ["1:ClusterName=<one>", "2:A=<1>", "1:N=<1>", "2:X=<1>", "5:Z=<1>"]);
        let want = [
            "/x.conf:1: error: Include slurm.conf: the file includes itself through /etc/slurm.conf, /x.conf",
            "/x.conf:3: error: Include missing: cannot read /etc/missing: entity not found",
        ];
        assert_eq!(problems, want);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(s in "(\\PC|\n|\\\\|\"|=|#| ){0,80}") {
            let _ = read(&[("/etc/slurm.conf", &s)]);
        }
    }
}
