//! PMI, by which the processes of an MPI program find each other when they start: the messages between a task and its node, of
//! both versions of the protocol that MPICH and its relatives speak. Without state beyond what is needed to cut messages apart.
//!
//! A task has one end of a socket as descriptor `PMI_FD`, and waits for the answer to each request. In version 1 a message is a
//! line of words, `cmd=get kvsname=1.0 key=x`. In version 2 the first line is the same, and later messages are
//! `cmd=kvs-get;key=x;` behind their length in six characters; a semicolon in a value is doubled. Sources: "PMI-2" in MPICH's
//! design documents (wiki.mpich.org, "PMI v2 Wire Protocol") and its "Simple PMI" for version 1.
//!
//! The PMIx server of a node speaks version 2 as well, for all tasks there: `rank` names the one that a message is about, and
//! `begin` says that it has begun its MPI program.

use std::fmt::Write as _;

/// Longest message, bytes.
pub const MOST_BYTES: usize = 64 << 10;
/// Longest name of a key, bytes.
pub const MOST_KEY: usize = 256;
/// Longest value, bytes.
pub const MOST_VALUE: usize = 4096;
/// Most bytes of keys and values that all tasks of a step may tell between two fences: they travel in one message between hosts
/// (`REQUEST` of the frames' limits, less what surrounds them).
pub const MOST_FENCED: usize = 8 << 20;
/// The name under which the placement of tasks is asked for.
pub const MAPPING_KEY: &str = "PMI_process_mapping";
/// Descriptor, step, rank and number of tasks: the variables by which a task finds its node.
pub const VARIABLES: [&str; 4] = ["PMI_FD", "PMI_JOBID", "PMI_RANK", "PMI_SIZE"];
/// Digits of a length in version 2.
const LENGTH_DIGITS: usize = 6;

/// What a task asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// It speaks this version.
    Init(u32),
    /// Version 2: its place.
    FullInit,
    /// Version 1: lengths of names and values.
    Maxes,
    /// Version 1: number of its program.
    AppNum,
    /// Version 1: how many tasks there may be.
    UniverseSize,
    /// The name of the step, or of its keys and values.
    Name,
    /// Tell others.
    Put(String, String),
    /// What was told.
    Get(String),
    /// Wait for all tasks; then all have what each told.
    Fence,
    /// Version 2: a fact about the step.
    JobAttr(String),
    /// Version 2: tell the tasks of this node.
    PutNodeAttr(String, String),
    /// Version 2: what was told on this node; true: wait until it is.
    NodeAttr(String, bool),
    /// Of a PMIx server: a task has begun its MPI program.
    Begin,
    /// It goes on without the others.
    Finalize,
    /// The step is to end, with this text.
    Abort(String),
    /// Something that is not done here, by its name.
    Other(String),
    /// It does not keep to the protocol, in words.
    Malformed(String),
}

/// A request, and the thread that its answer is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// What.
    pub request: Request,
    /// Version 2: the thread of the task.
    pub thread: Option<String>,
    /// Of a PMIx server: the rank that it is about.
    pub rank: Option<u32>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The version is spoken here.
    Init(u32),
    /// The task's rank, and how many tasks there are.
    FullInit {
        /// Rank.
        rank: u32,
        /// Tasks.
        size: u32,
    },
    /// Lengths.
    Maxes,
    /// Number of the program.
    AppNum,
    /// How many tasks.
    UniverseSize(u32),
    /// Name.
    Name(String),
    /// Done, to `Put`, `Fence`, `PutNodeAttr` and `Finalize`.
    Done,
    /// What was asked for, to `Get`, `JobAttr` and `NodeAttr`; `None`: there is no such thing.
    Value(Option<String>),
    /// Not done, and why.
    Refused(String),
}

/// Cuts what a task writes into requests.
#[derive(Debug, Default)]
pub struct Reader {
    buffer: Vec<u8>,
    /// So much of it has been searched for the end of a line.
    searched: usize,
    second: bool,
    broken: bool,
}

impl Reader {
    /// Adds what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        if !self.broken {
            self.buffer.extend_from_slice(bytes);
        }
    }

    fn message(&mut self) -> Result<Option<Vec<u8>>, String> {
        if !self.second {
            // A request to start more tasks has several lines.
            let end: &[u8] = if self.buffer.starts_with(b"mcmd=") { b"\nendcmd\n" } else { b"\n" };
            let from = self.searched.saturating_sub(end.len() - 1);
            let found = self.buffer[from..].windows(end.len()).position(|window| window == end);
            let Some(at) = found.map(|at| from + at) else {
                self.searched = self.buffer.len();
                return Ok(None);
            };
            self.searched = 0;
            let mut text: Vec<u8> = self.buffer.drain(..at + end.len()).collect();
            text.truncate(at);
            return Ok(Some(text));
        }
        let Some(digits) = self.buffer.get(..LENGTH_DIGITS) else { return Ok(None) };
        let length = std::str::from_utf8(digits).ok().and_then(|digits| digits.trim().parse::<usize>().ok());
        let length = length.filter(|length| *length <= MOST_BYTES).ok_or("a message without a length")?;
        if self.buffer.len() < LENGTH_DIGITS + length {
            return Ok(None);
        }
        Ok(Some(self.buffer.drain(..LENGTH_DIGITS + length).skip(LENGTH_DIGITS).collect()))
    }
}

/// The requests that are there as a whole. After [`Request::Malformed`] there is none.
impl Iterator for Reader {
    type Item = Asked;

    fn next(&mut self) -> Option<Asked> {
        if self.broken {
            return None;
        }
        let asked = match self.message() {
            Ok(None) if self.buffer.len() > MOST_BYTES => Err("a message without an end".to_owned()),
            Ok(None) => return None,
            Ok(Some(text)) => String::from_utf8(text).map_err(|_| "a message that is no text".to_owned()),
            Err(why) => Err(why),
        };
        let asked = asked.and_then(|text| if self.second { second(&text) } else { first(&text) });
        let asked = asked.unwrap_or_else(|why| Asked { request: Request::Malformed(why), thread: None, rank: None });
        match asked.request {
            Request::Init(version) => self.second = version == 2,
            Request::Malformed(_) => self.broken = true,
            _ => {}
        }
        Some(asked)
    }
}

/// A line of version 1, or the first line of both.
fn first(line: &str) -> Result<Asked, String> {
    let words = || line.split([' ', '\n']).filter_map(|word| word.split_once('='));
    let find = |name: &str| words().find(|(found, _)| *found == name).map(|(_, value)| value);
    let text = |name: &str| find(name).map(str::to_owned).ok_or_else(|| format!("{name} is missing in {line:?}"));
    // A value may have blanks in it, and is last.
    let value = || line.split_once("value=").map(|(_, value)| value.to_owned()).ok_or("a value is missing".to_owned());
    let request = match find("cmd").or(find("mcmd")) {
        Some("init") => match find("pmi_version").and_then(|v| v.parse().ok()) {
            Some(version @ (1 | 2)) => Request::Init(version),
            _ => return Err(format!("version 1 or 2 is spoken here, not that of {line:?}")),
        },
        Some("get_maxes") => Request::Maxes,
        Some("get_appnum") => Request::AppNum,
        Some("get_universe_size") => Request::UniverseSize,
        Some("get_my_kvsname") => Request::Name,
        Some("put") => Request::Put(text("key")?, value()?),
        Some("get") => Request::Get(text("key")?),
        Some("barrier_in") => Request::Fence,
        Some("finalize") => Request::Finalize,
        Some("abort") => Request::Abort(format!("exit code {}", find("exitcode").unwrap_or("1"))),
        Some(other) => Request::Other(other.to_owned()),
        None => return Err(format!("no command in {line:?}")),
    };
    Ok(Asked { request, thread: None, rank: None })
}

/// A message of version 2.
fn second(text: &str) -> Result<Asked, String> {
    let fields = fields(text);
    let find = |name: &str| fields.iter().find(|(found, _)| found == name).map(|(_, value)| value.clone());
    let needed = |name: &str| find(name).ok_or_else(|| format!("{name} is missing in {text:?}"));
    let command = needed("cmd")?;
    let request = match command.as_str() {
        "fullinit" => Request::FullInit,
        "job-getid" => Request::Name,
        "kvs-put" => Request::Put(needed("key")?, needed("value")?),
        "kvs-get" => Request::Get(needed("key")?),
        "kvs-fence" => Request::Fence,
        "info-getjobattr" => Request::JobAttr(needed("key")?),
        "info-putnodeattr" => Request::PutNodeAttr(needed("key")?, needed("value")?),
        "info-getnodeattr" => {
            let waits = find("wait").is_some_and(|wait| wait.eq_ignore_ascii_case("true"));
            Request::NodeAttr(needed("key")?, waits)
        }
        "begin" => Request::Begin,
        "finalize" => Request::Finalize,
        "abort" => Request::Abort(find("msg").unwrap_or_default()),
        _ => Request::Other(command),
    };
    Ok(Asked { request, thread: find("thrid"), rank: find("rank").and_then(|rank| rank.parse().ok()) })
}

/// The fields `name=value;` of a message of version 2, without the doubling of semicolons in values.
pub fn fields(text: &str) -> Vec<(String, String)> {
    let mut parts = vec![String::new()];
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, parts.last_mut()) {
            (';', Some(last)) if letters.next_if_eq(&';').is_some() => last.push(';'),
            (';', _) => parts.push(String::new()),
            (letter, Some(last)) => last.push(letter),
            (_, None) => {}
        }
    }
    parts.iter().filter_map(|part| part.split_once('=')).map(|(n, v)| (n.to_owned(), v.to_owned())).collect()
}

impl Answer {
    /// As a task that speaks this version reads it as the answer to a request.
    pub fn encode(&self, version: u32, request: &Request, thread: Option<&str>) -> Vec<u8> {
        if version != 2 || matches!(self, Self::Init(_)) {
            let mut line = self.first(request);
            line.push('\n');
            return line.into_bytes();
        }
        let mut text = format!("cmd={}-response;", name_of(request));
        if let Some(thread) = thread {
            let _ = write!(text, "thrid={};", doubled(thread));
        }
        text.push_str(&self.second());
        format!("{:6}{text}", text.len()).into_bytes()
    }

    fn first(&self, request: &Request) -> String {
        match (self, request) {
            (Self::Init(2), _) => "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0".to_owned(),
            (Self::Init(version), _) => format!("cmd=response_to_init rc=0 pmi_version={version} pmi_subversion=1"),
            (Self::FullInit { .. }, _) => "cmd=error rc=-1".to_owned(),
            (Self::Maxes, _) => {
                format!("cmd=maxes rc=0 kvsname_max={MOST_KEY} keylen_max={MOST_KEY} vallen_max={MOST_VALUE}")
            }
            (Self::AppNum, _) => "cmd=appnum rc=0 appnum=-1".to_owned(),
            (Self::UniverseSize(size), _) => format!("cmd=universe_size rc=0 size={size}"),
            (Self::Name(name), _) => format!("cmd=my_kvsname rc=0 kvsname={name}"),
            (Self::Done, Request::Put(..)) => "cmd=put_result rc=0".to_owned(),
            (Self::Done, Request::Fence) => "cmd=barrier_out rc=0".to_owned(),
            (Self::Done, Request::Finalize) => "cmd=finalize_ack rc=0".to_owned(),
            (Self::Done, _) => "cmd=done rc=0".to_owned(),
            (Self::Value(Some(value)), _) => format!("cmd=get_result rc=0 value={value}"),
            (Self::Value(None), _) => "cmd=get_result rc=-1 msg=key_not_found value=unknown".to_owned(),
            (Self::Refused(why), Request::Put(..)) => format!("cmd=put_result rc=-1 msg={}", why.replace(' ', "_")),
            (Self::Refused(why), Request::Other(name)) => {
                format!("cmd={}_result rc=-1 msg={}", name.trim_start_matches("get_"), why.replace(' ', "_"))
            }
            (Self::Refused(why), _) => format!("cmd=error rc=-1 msg={}", why.replace(' ', "_")),
        }
    }

    fn second(&self) -> String {
        match self {
            Self::FullInit { rank, size } => format!(
                "pmi-version=2;pmi-subversion=0;rank={rank};size={size};appnum=0;debugged=FALSE;pmiverbose=FALSE;rc=0;"
            ),
            Self::Name(name) => format!("jobid={name};rc=0;"),
            Self::Done => "rc=0;".to_owned(),
            Self::Value(Some(value)) => format!("found=TRUE;value={};rc=0;", doubled(value)),
            Self::Value(None) => "found=FALSE;rc=0;".to_owned(),
            Self::Refused(why) => format!("rc=-1;errmsg={};", doubled(why)),
            Self::Init(_) | Self::Maxes | Self::AppNum | Self::UniverseSize(_) => "rc=-1;".to_owned(),
        }
    }
}

/// The name of a request in version 2.
fn name_of(request: &Request) -> &str {
    match request {
        Request::FullInit => "fullinit",
        Request::Put(..) => "kvs-put",
        Request::Get(_) => "kvs-get",
        Request::Fence => "kvs-fence",
        Request::JobAttr(_) => "info-getjobattr",
        Request::PutNodeAttr(..) => "info-putnodeattr",
        Request::NodeAttr(..) => "info-getnodeattr",
        Request::Begin => "begin",
        Request::Finalize => "finalize",
        Request::Name => "job-getid",
        Request::Other(name) => name,
        _ => "error",
    }
}

/// A value as it stands in a message of version 2: with its semicolons doubled.
pub fn doubled(value: &str) -> String {
    value.replace(';', ";;")
}

/// Bytes that a key and value count for: 16 more than their own, for what surrounds them in memory and in messages.
pub const fn pair_bytes(key: &str, value: &str) -> usize {
    key.len() + value.len() + 16
}

/// The same of several.
pub fn bytes_of(puts: &[(String, String)]) -> usize {
    puts.iter().map(|(key, value)| pair_bytes(key, value)).sum()
}

/// Where the tasks of a step are, as MPICH reads it: `(vector,(first node,nodes,tasks on each),...)`. `nodes`: the node of each
/// rank, in order of ranks, numbered within the step.
pub fn mapping(nodes: &[u32]) -> String {
    // Ranks that follow each other on one node, then nodes that follow each other with as many.
    let runs = nodes.chunk_by(|a, b| a == b).map(|run| (run[0], 1, run.len()));
    let mut blocks: Vec<(u32, u32, usize)> = Vec::new();
    for (node, count, tasks) in runs {
        match blocks.last_mut() {
            Some((first, nodes, each)) if *each == tasks && *first + *nodes == node => *nodes += count,
            _ => blocks.push((node, count, tasks)),
        }
    }
    let texts: Vec<String> = blocks.iter().map(|(node, count, tasks)| format!("({node},{count},{tasks})")).collect();
    format!("(vector,{})", texts.join(","))
}

/// The node of each rank, from what [`mapping`] wrote. `None`: it is no such text.
pub fn nodes_of_mapping(text: &str) -> Option<Vec<u32>> {
    let blocks = text.strip_prefix("(vector,(")?.strip_suffix("))")?;
    let mut nodes = Vec::new();
    for block in blocks.split("),(") {
        let numbers: Option<Vec<u32>> = block.split(',').map(|number| number.parse().ok()).collect();
        let [first, count, tasks] = numbers?[..] else { return None };
        let range = first..first.checked_add(count)?;
        nodes.extend(range.flat_map(|node| std::iter::repeat_n(node, tasks as usize)));
    }
    Some(nodes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<Request> {
        let mut reader = Reader::default();
        let mut all = Vec::new();
        for piece in pieces {
            reader.push(piece);
            all.extend(reader.by_ref().map(|asked| asked.request));
        }
        all
    }

    #[test]
    fn lines_of_version_1_are_read_however_they_come() {
        let text = b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=put kvsname=k key=a value=b c=d\ncmd=barrier_in\n";
        let expected = [Request::Init(1), Request::Put("a".into(), "b c=d".into()), Request::Fence];
        assert_eq!(read(&[text]), expected);
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(read(&bytes), expected);
        let spawn = b"mcmd=spawn\nnprocs=1\nexecname=x\nendcmd\ncmd=finalize\n";
        assert_eq!(read(&[spawn]), [Request::Other("spawn".into()), Request::Finalize]);
    }

    #[test]
    fn messages_of_version_2_have_a_length_and_doubled_semicolons() {
        let put = "cmd=kvs-put;key=k;value=a;;b=c;thrid=7;";
        let text = format!("cmd=init pmi_version=2 pmi_subversion=0\n{:6}{put}{:6}{}", put.len(), 14, "cmd=kvs-fence;");
        let expected = [Request::Init(2), Request::Put("k".into(), "a;b=c".into()), Request::Fence];
        assert_eq!(read(&[text.as_bytes()]), expected);
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(read(&bytes), expected);
        let answer = Answer::Value(Some("a;b".into())).encode(2, &Request::Get("k".into()), Some("7"));
        let fields = "cmd=kvs-get-response;thrid=7;found=TRUE;value=a;;b;rc=0;";
        assert_eq!(String::from_utf8(answer).unwrap(), format!("{:6}{fields}", fields.len()));
    }

    #[test]
    fn what_is_no_message_ends_the_conversation() {
        let bad: [&[u8]; 5] = [
            b"cmd=init pmi_version=3\ncmd=finalize\n",
            b"hello\n",
            b"cmd=put key=a\n",
            b"cmd=init pmi_version=2\nabcdefcmd=x;",
            b"cmd=init pmi_version=2\n999999cmd=x;",
        ];
        for text in bad {
            let seen = read(&[text]);
            assert!(matches!(seen.last(), Some(Request::Malformed(_))), "{seen:?}");
        }
        let endless = vec![b'x'; MOST_BYTES + 1];
        assert!(matches!(read(&[&endless])[..], [Request::Malformed(_)]));
    }

    #[test]
    fn a_placement_is_told_in_blocks() {
        assert_eq!(mapping(&[0, 0, 1, 1, 2, 2]), "(vector,(0,3,2))");
        assert_eq!(mapping(&[0, 1, 2, 0, 1, 2]), "(vector,(0,3,1),(0,3,1))");
        assert_eq!(mapping(&[0, 0, 0, 1]), "(vector,(0,1,3),(1,1,1))");
        assert_eq!(mapping(&[0]), "(vector,(0,1,1))");
        for nodes in [vec![0, 0, 1, 1, 2, 2], vec![0, 1, 2, 0, 1, 2], vec![0, 0, 0, 1], vec![0], vec![3, 1, 1]] {
            assert_eq!(nodes_of_mapping(&mapping(&nodes)), Some(nodes));
        }
        for none in ["", "(vector)", "(vector,(0,1))", "(vector,(0,1,x))", "(vector,(4294967295,2,1))"] {
            assert_eq!(nodes_of_mapping(none), None, "{none}");
        }
    }
}
