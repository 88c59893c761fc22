//! Texts that users write for commands.

use super::{choice, plain};
use crate::target::Target;
use garrick_frame::light::{self, Launch, word};
use garrick_model::{ids::JobId, time::Timestamp};
use garrick_tools::grammar;
use std::{ffi::OsString, os::unix::ffi::OsStringExt};

/// Command lines: words with newlines between them.
pub(super) const WORDS: Target = Target {
    name: "command_lines",
    read: |input| {
        let (command, rest) = choice(input);
        let command = grammar::COMMANDS[command % grammar::COMMANDS.len()];
        let words = rest.split(|byte| *byte == b'\n').filter(|word| !word.contains(&0));
        let words: Vec<OsString> = words.map(|word| OsString::from_vec(word.to_vec())).collect();
        grammar::read_words(command, &words);
    },
    // Lists of nodes and tasks are written out.
    bytes_per_byte: 1000,
    base_bytes: 16 << 20,
    seeds: || {
        let lines: [(&str, &[&str]); 16] = [
            ("sbatch", &["-N2-4", "--mem=4G", "--array=0-9%2", "--dependency=afterok:1", "-w", "n[1-4]", "job.sh"]),
            (
                "sbatch",
                &["--gres=gpu:2", "--constraint=a&b", "--time=1-0", "--begin=now+1hour", "--signal=B:USR1@60", "-Jx"],
            ),
            ("salloc", &["-n4", "--mem-per-cpu=100M", "--gpus-per-task=1", "-Lmatlab:2", "bash"]),
            ("srun", &["-n8", "--async", "--array=0-9", "--retries=2", "--retry-on=1-3", "-m", "cyclic:block", "true"]),
            ("srun", &["--cpu-bind=map_cpu:0,1", "--overlap", "-o", "out.%t", "-l", "--multi-prog", "conf"]),
            ("swait", &["--timeout=60", "5609.7", "7_[1-4]"]),
            ("squeue", &["-o", "%.18i %.9P %j", "-S", "-p,i", "-t", "PD,R", "-j5", "-O", "JobID:10,Name"]),
            ("sinfo", &["-N", "-o", "%N %T", "-t", "idle,drain", "-S", "+N"]),
            ("sprio", &["-o", "%i %Y", "-w"]),
            ("sshare", &["-a", "-A", "physics", "-o", "account,levelfs%30", "-P"]),
            ("sdiag", &["-i", "--json"]),
            ("scancel", &["12_[1-4]", "-s", "USR1", "-t", "PD", "5609.7"]),
            ("sattach", &["5609.7", "--output-filter=3"]),
            ("update", &["JobId=12", "TimeLimit+=10", "Nice=5", "NumNodes=1-3", "Features=a&b"]),
            ("reservation", &["StartTime=now", "Duration=60", "Users=alice", "Nodes=n[1-2]", "Flags=MAINT,DAILY"]),
            ("cat", &["--step=7_[1-10],batch", "file"]),
        ];
        let input = |(command, words): &(&str, &[&str])| {
            let number = grammar::COMMANDS.iter().position(|known| known == command).unwrap_or(0);
            [vec![u8::try_from(number).unwrap_or(0)], words.join("\n").into_bytes()].concat()
        };
        lines.iter().map(input).collect()
    },
};

/// What the light `srun` sends, read by root: bytes as they come, or words with newlines between them, then an empty line, then
/// an environment.
pub(super) const LIGHT: Target = Target {
    name: "light",
    read: |input| {
        let (form, rest) = choice(input);
        let body = if form % 2 == 0 { rest.to_vec() } else { light_body(rest) };
        if let Some(launch) = Launch::read(&body) {
            let now = Timestamp::from_secs(1_800_000_000);
            if let Some(asked) = garrick_options::light::read(&launch, JobId(7), "host", now) {
                assert!(!asked.spec.argv.is_empty() && asked.spec.multi_prog.is_empty());
            }
        }
    },
    // Lists of nodes are written out.
    bytes_per_byte: 1000,
    base_bytes: 16 << 20,
    seeds: || {
        let job = "SLURM_JOB_ID=7\nSLURM_NTASKS=1\nSLURM_NNODES=2\nPATH=/bin";
        let lines = [
            "srun\n-n1\n/bin/true",
            "srun\n-n1\n--exact\n-J\nx\n--mem=4G\n-c\n2\n-t5\n./a\nb",
            "srun\n-w\nn[1-4]\n--cpu-bind=map_cpu:0,1\n-m\nplane=2\n--gres=gpu:1\n/a",
            "srun\n--propagate=NOFILE\n--export=ALL\n-D\n/tmp\n-K\n-W3\n-r1\n/a\n:\n/b",
        ];
        let seeds = lines.iter().map(|line| [b"\x01", line.as_bytes(), b"\n\n", job.as_bytes()].concat());
        let whole = light_body(format!("{}\n\n{job}", lines[0]).as_bytes());
        seeds.chain([[vec![0], whole].concat()]).collect()
    },
};

/// A body with these texts, whose lengths fit.
fn light_body(texts: &[u8]) -> Vec<u8> {
    let (args, environment) = match texts.windows(2).position(|two| two == b"\n\n") {
        Some(at) => (&texts[..at], &texts[at + 2..]),
        None => (texts, &[][..]),
    };
    let ended = |text: &[u8]| -> Vec<u8> {
        let text = text.split(|byte| *byte == b'\n').filter(|text| !text.is_empty());
        text.flat_map(|text| [text, &[0]].concat()).collect()
    };
    let (directory, args, environment) = (b"/w\0".to_vec(), ended(args), ended(environment));
    let mut words = [0_u64; light::WORDS];
    words[word::VERSION] = light::VERSION;
    words[word::FOUND] = 2;
    words[word::DIRECTORY] = directory.len() as u64;
    words[word::ARGUMENTS] = args.len() as u64;
    words[word::ENVIRONMENT] = environment.len() as u64;
    [words.map(u64::to_le_bytes).concat(), directory, args, environment].concat()
}

/// Batch scripts, with `#SBATCH` and `#SRUN` lines, and the lines of other files that commands read.
pub(super) const SCRIPTS: Target = Target {
    name: "scripts",
    read: |input| {
        grammar::read_script(input, false);
        grammar::read_script(input, true);
        if let Ok(text) = std::str::from_utf8(input) {
            grammar::read_multi_prog(text);
            let _ = grammar::read_prompt(text);
        }
    },
    bytes_per_byte: 1000,
    base_bytes: 16 << 20,
    seeds: || {
        plain(&[
            "#!/bin/bash\n#SBATCH -N2 --time=10\n#SBATCH -J 'a b' # c\ntrue\n#SBATCH -n5\n",
            "#!/bin/sh\n#SBATCH -n1\n#SBATCH hetjob\n#SRUN -n2\ntrue\n",
            "#!/bin/sh\r\n#SBATCH\t-n1\r\n",
            "0-3 echo %t\n4 ./prog \"a b\" %o\n* true\n",
            "show job 1\n",
        ])
    },
};

/// Graphs of `sbatch --graph`.
pub(super) const GRAPHS: Target = Target {
    name: "graphs",
    read: |input| {
        let tables = input.iter().filter(|byte| matches!(byte, b'{' | b'[')).count();
        assert!(grammar::read_graph(input) <= tables);
    },
    // An array's files are told apart by their names.
    bytes_per_byte: 20_000,
    base_bytes: 512 << 20,
    seeds: || {
        plain(&[
            "[defaults]\nretries = 1\nenvironment = { A = 1 }\n[[step]]\nlabel = 'a'\ncommand = './a $X'\nwrites = 'f'\n\
             [[step]]\nlabel = \"b\"\narray = \"0-9%4\"\ncommand = ['./b']\nreads = ['f']\nwrites = 'p.{index}'\n",
            "[[step]]\nlabel = 'c'\neach = { n = '1..3', m = ['x', 'y'] }\ncommand = ['c', '{n}', '{m}']\n\
             after = ['afternotok:a', 'c']\nzip = true\n",
            "{\"step\": [{\"label\": \"a\", \"command\": [\"x\"], \"after\": \"b\", \"overlap\": true},\n\
             {\"label\": \"b\", \"command\": \"y z\", \"mem\": 10, \"retry-on\": [75]}]}",
        ])
    },
};

/// Lists of `srun --from-file`.
pub(super) const STEP_LISTS: Target = Target {
    name: "step_lists",
    read: |input| {
        let lines = input.split(|byte| *byte == b'\n').count();
        assert!(grammar::read_step_list(input) <= lines);
    },
    bytes_per_byte: 2000,
    base_bytes: 1 << 20,
    seeds: || {
        plain(&[
            "true\n-n2 --mem=100 prog 'a b' \"c $d\"\n# comment\necho $((1 + 2)) | cat\n",
            "--array=0-9 true\n-d afterok:1 x\\ y\n",
            "'unclosed\n-n 'x\n\\\n",
        ])
    },
};
