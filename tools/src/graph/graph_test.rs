#![allow(clippy::unwrap_used)]

use super::{
    check::Graph,
    parse,
    plan::{Plan, Share},
};
use crate::options::{
    minibatch::LABEL,
    table::{Command, OptionDef, options_of},
};
use proptest::prelude::*;
use std::{path::Path, sync::Arc};

fn graph(text: &str) -> Result<Graph, Vec<String>> {
    parse(text.as_bytes(), Path::new("/w"), &|file| file.ends_with("there"))
        .map_err(|problems| problems.into_iter().map(|p| format!("{}: {}", p.line, p.text)).collect())
}

fn options() -> Vec<&'static OptionDef> {
    options_of(Command::Srun).into_iter().map(|o| if o.long == "label" { &LABEL } else { o }).collect()
}

/// Every line: options and words.
fn lines_of(graph: Graph, shares: &[Share]) -> Vec<String> {
    let mut plan = Plan::new(Arc::new(graph), shares);
    let options = options();
    let mut lines = Vec::new();
    while let Some((_, line)) = plan.next(&options) {
        let value = |value: &Option<std::ffi::OsString>| {
            value.as_ref().map(|value| format!("={}", value.to_string_lossy())).unwrap_or_default()
        };
        let mut words: Vec<String> =
            line.options.iter().map(|o| format!("--{}{}", o.def.long, value(&o.value))).collect();
        words.extend(line.environment.split_terminator('\0').map(str::to_owned));
        words.extend(line.argv.iter().map(|word| String::from_utf8(word.clone()).unwrap()));
        lines.push(words.join(" "));
    }
    lines
}

fn lines(text: &str) -> Vec<String> {
    lines_of(graph(text).unwrap(), &[])
}

const PIPELINE: &str = r#"
[defaults]
retries = 1
environment = { LEVEL = 3 }

[[step]]
label = "reduce"
command = "cat part.* > all"
reads = "part.{index}"
writes = "all"
retries = 0

[[step]]
label = "work"
array = "0-9%4"
command = ["./work", "raw"]
reads = "raw"
writes = "part.{index}"
environment = { LEVEL = 4, MODE = "x" }

[[step]]
label = "prepare"
command = "./prepare"
writes = ["raw"]

[[step]]
label = "again"
array = "2-5"
command = "./again"
reads = "./x/../part.{index}"

[[step]]
label = "mend"
command = "./mend"
after = ["afternotok:work:reduce", "prepare"]
kill-on-bad-exit = true
"#;

#[test]
fn steps_stand_behind_those_that_they_wait_for_by_label_and_by_file() {
    assert_eq!(
        lines(PIPELINE),
        [
            "--retries=1 --label=prepare LEVEL=3 ./prepare",
            "--retries=1 --label=work --dependency=afterok:@prepare --array=0-9%4 LEVEL=4 MODE=x ./work raw",
            "--retries=0 --label=reduce --dependency=afterok:@work LEVEL=3 /bin/sh -c cat part.* > all",
            "--retries=1 --label=again --dependency=aftercorr:@work --array=2-5 LEVEL=3 ./again",
            "--retries=1 --kill-on-bad-exit --label=mend --dependency=afternotok:@work:@reduce,afterok:@prepare LEVEL=3 ./mend",
        ]
    );
    let graph = graph(PIPELINE).unwrap();
    let names = |all: Vec<usize>| all.into_iter().map(|at| graph.steps[at].label.clone()).collect::<Vec<_>>();
    assert_eq!(names(graph.longest_way()), ["prepare", "work", "reduce", "mend"]);
    assert_eq!((graph.count(), graph.widest()), (17, (1, 10)));
    assert_eq!(graph.counting(), [true, true, true, true, false]);
}

#[test]
fn json_says_the_same_as_toml() {
    let json = r#"{"defaults": {"retries": 1},
        "step": [{"label": "b", "command": ["./b"], "after": "a", "overlap": true},
                 {"label": "a", "command": "./a x", "mem": 10, "retry-on": [75, "NODE_FAIL"]}]}"#;
    let toml = "defaults.retries = 1\n[[step]]\nlabel = 'b'\ncommand = ['./b']\nafter = 'a'\noverlap = true\n\
                [[step]]\nlabel = 'a'\ncommand = './a x'\nmem = 10\nretry-on = [75, 'NODE_FAIL']\n";
    let want = [
        "--retries=1 --mem=10 --retry-on=75,NODE_FAIL --label=a ./a x",
        "--retries=1 --overlap --label=b --dependency=afterok:@a ./b",
    ];
    assert_eq!((lines(json), lines(toml)), (want.map(str::to_owned).to_vec(), want.map(str::to_owned).to_vec()));
}

#[test]
fn combinations_are_steps_of_their_own_with_one_label() {
    let text = "[[step]]\nlabel = 'sim'\neach = { seed = '1..2', size = ['s', 'l'] }\n\
                command = './sim {seed} {size} $X'\noutput = 'out.{seed}'\nwrites = 'r.{seed}.{size}'\n\
                [[step]]\nlabel = 'sum'\ncommand = './sum'\nreads = ['r.1.s', 'there']\n";
    let made = lines(text);
    assert_eq!(made.len(), 5, "{made:?}");
    assert_eq!(made[1], "--output=out.1 --label=sim /bin/sh -c ./sim 1 l $X");
    assert_eq!(made[4], "--label=sum --dependency=afterok:@sim ./sum");
    let some = lines_of(graph(text).unwrap(), &[Share::Combinations(vec![0, 3]), Share::All]);
    assert_eq!(
        some[..2],
        ["--output=out.1 --label=sim /bin/sh -c ./sim 1 s $X", "--output=out.2 --label=sim /bin/sh -c ./sim 2 l $X"]
    );
}

#[test]
fn what_completed_is_left_out_and_tasks_whose_counterpart_did_wait_for_nobody() {
    let text = "[[step]]\nlabel = 'a'\narray = '0-3'\ncommand = 'a'\n\
                [[step]]\nlabel = 'b'\narray = '0-3%2'\ncommand = 'b'\nafter = 'aftercorr:a'\n\
                [[step]]\nlabel = 'c'\narray = '0-3'\ncommand = 'c'\nafter = 'aftercorr:b'\n\
                [[step]]\nlabel = 'd'\ncommand = 'd'\nafter = ['c', 'e']\n\
                [[step]]\nlabel = 'e'\ncommand = 'e'\n";
    let shares =
        [Share::Tasks(vec![3]), Share::Tasks(vec![1, 2, 3]), Share::Tasks(vec![0, 1, 3]), Share::All, Share::Nothing];
    assert_eq!(
        lines_of(graph(text).unwrap(), &shares),
        [
            "--label=a --array=3 a",
            "--label=b --label=b.0 --array=1-2%1 b",
            "--label=b --label=b.1 --dependency=aftercorr:@a --array=3%1 b",
            "--label=c --label=c.0 --array=0 c",
            "--label=c --label=c.1 --dependency=aftercorr:@b.0 --array=1 c",
            "--label=c --label=c.2 --dependency=aftercorr:@b.1 --array=3 c",
            "--label=d --dependency=afterok:@c d",
        ]
    );
}

#[test]
fn all_that_is_wrong_is_said_with_its_line() {
    let text = "\
[defaults]
label = 'x'
tmie = 5
[[step]]
label = 'a'
command = './a'
ntasks = 'many'
after = ['b', 'afterwards:a', 'nobdy']
[[step]]
label = 'a'
commnad = './a'
pty = true
[[step]]
label = 'nobody'
command = []
array = '5-1'
overlap = 1
[[step]]
command = 'x \"y'
each = { n = '1..3' }
[[step]]
label = 'z 1'
command = './z'
each = { n = '1..3' }
[[step]]
label = 'corr'
command = 'x'
after = 'aftercorr:a'
reads = ['gone', 'there', 'p.{index}', 'q.{n}']
dependency = 'afterok:1'
environment = 'X=1'
[[stp]]
";
    let said = graph(text).unwrap_err();
    let want = [
        "2: \"label\" is of one step, and not for all of them",
        "3: \"tmie\" is neither a key of a step nor an option (did you mean \"time\"?)",
        "7: Invalid numeric value \"many\" for --ntasks.",
        "8: \"afterwards:a\": \"afterwards\" is none of afterok, afterany, afternotok, aftercorr, after",
        "8: step \"a\" waits for \"b\", and no step has that label",
        "8: step \"a\" waits for \"nobdy\", and no step has that label (did you mean \"nobody\"?)",
        "9: \"a\" is the label of line 4 too",
        "9: step \"a\" has no command",
        "11: \"commnad\" is neither a key of a step nor an option (did you mean \"command\"?)",
        "12: \"pty\" is neither a key of a step nor an option",
        "15: \"command\" has no program",
        "16: \"array\": array \"5-1\": the range \"5-1\" runs backwards",
        "17: \"overlap\" is true or false, not a number",
        "18: the step has no label: others wait for it by that, and it is shown by it",
        "19: \"command\": quote \" is never closed",
        "22: \"z 1\" is no label (letters, digits, _ and -)",
        "24: {n} is nowhere in the command: its steps would be the same for every value",
        "28: aftercorr is for an array that waits for an array: \"corr\" and \"a\" are not both one",
        "29: \"corr\" reads /w/gone, which is not there, and no step writes it",
        "29: \"p.{index}\": no array writes files that are named so; {{index}} stands for itself",
        "29: \"reads\": {n} is none of the parameters ({index}); {{n}} stands for itself",
        "30: \"dependency\" is neither a key of a step nor an option (a graph has \"after\")",
        "31: \"environment\" is a table of variables, not a text",
        "32: \"stp\" is nothing that a graph has: [defaults] and [[step]] are",
    ];
    assert_eq!(said, want);
    assert_eq!(graph("# nothing\n").unwrap_err(), ["1: there is no step: write [[step]] with a label and a command"]);
}

#[test]
fn a_circle_is_named_whole_with_its_lines() {
    let text = "\
[[step]]
label = 'first'
command = 'x'
after = 'c'
[[step]]
label = 'a'
command = 'x'
after = 'b'
[[step]]
label = 'b'
command = 'x'
reads = 'f'
[[step]]
label = 'c'
command = 'x'
writes = 'f'
after = ['afterany:a', 'ready']
[[step]]
label = 'ready'
command = 'x'
[[step]]
label = 'own'
command = 'x'
after = 'own'
";
    assert_eq!(
        graph(text).unwrap_err(),
        [
            "5: a circle, in which none could ever start: \"a\" waits for \"b\" (line 8), \"b\" waits for \"c\" to write f \
             (line 12), \"c\" waits for \"a\" (line 17); take one of these out",
            "21: a circle, in which none could ever start: \"own\" waits for \"own\" (line 24); take one of these out",
        ]
    );
}

#[test]
fn a_file_has_one_writer_and_who_says_how_it_waits_is_believed() {
    let two = "[[step]]\nlabel = 'a'\ncommand = 'x'\nwrites = 'd/f'\n[[step]]\nlabel = 'b'\ncommand = 'x'\n\
               chdir = 'd'\nwrites = ['g', 'f']\n";
    assert_eq!(
        graph(two).unwrap_err(),
        ["9: /w/d/f is written by \"b\" and by \"a\" (line 4): a file is written by one step"]
    );
    let said = "[[step]]\nlabel = 'a'\ncommand = 'x'\nwrites = 'there'\nreads = 'there'\n[[step]]\nlabel = 'b'\ncommand = 'x'\n\
                reads = 'there'\nafter = 'afterany:a'\n";
    assert_eq!(lines(said)[1], "--label=b --dependency=afterany:@a x");
}

#[test]
fn several_arrays_may_write_files_that_are_named_alike_and_a_reader_waits_for_each_that_writes_some() {
    let writers = "[[step]]\nlabel = 'a'\narray = '0-4'\ncommand = 'a'\nwrites = 'part.{index}'\n\
                   [[step]]\nlabel = 'b'\narray = '5-9'\ncommand = 'b'\nwrites = 'part.{index}'\n";
    let reader =
        |array: &str| format!("{writers}[[step]]\nlabel = 'c'\n{array}command = 'c'\nreads = 'part.{{index}}'\n");
    let last = |array: &str| lines(&reader(array)).pop().unwrap();
    assert_eq!(last(""), "--label=c --dependency=afterok:@a:@b c");
    assert_eq!(last("array = '6-7'\n"), "--label=c --dependency=aftercorr:@b --array=6-7 c");
    assert_eq!(last("array = '3-6'\n"), "--label=c --dependency=afterok:@a:@b --array=3-6 c");
    assert_eq!(
        graph(&reader("array = '3-12'\n")).unwrap_err(),
        ["15: \"part.{index}\": \"c\" has a task 10, and \"a\" and \"b\", which write it, have none"]
    );
    let twice = writers.replace("5-9", "4-9");
    assert_eq!(
        graph(&twice).unwrap_err(),
        ["10: /w/part.4 is written by \"b\" and by \"a\" (line 5): a file is written by one step"]
    );
}

#[test]
fn what_a_step_changes_has_to_be_there_and_no_task_reads_what_another_of_its_array_writes() {
    let one = |reads: &str, writes: &str, many: &str| {
        format!("[[step]]\nlabel = 'a'\n{many}command = ['x', '{{n}}']\nwrites = '{writes}'\nreads = '{reads}'\n")
    };
    let array = "array = '0-3'\n";
    assert!(graph(&one("there", "there", "")).is_ok());
    assert_eq!(
        graph(&one("x", "x", "")).unwrap_err(),
        ["5: \"a\" reads /w/x, which is not there, and no other step writes it"]
    );
    assert!(graph(&one("d.{index}/there", "d.{index}/there", array)).is_ok());
    assert_eq!(
        graph(&one("x.{index}", "x.{index}", array)).unwrap_err(),
        ["6: \"a\" reads /w/x.0 (and 3 more), which is not there, and no other step writes it"]
    );
    assert_eq!(
        graph(&one("x.0", "x.{index}", array)).unwrap_err(),
        ["6: \"a\" reads /w/x.0, which another step of \"a\" writes: these do not wait for each other"]
    );
    let each = "each = { n = '1..3' }\n";
    assert_eq!(
        graph(&one("x.2", "x.{n}", each)).unwrap_err(),
        ["6: \"a\" reads /w/x.2, which another step of \"a\" writes: these do not wait for each other"]
    );
    assert!(graph(&one("{n}/there", "{n}/there", each)).is_ok());
}

#[test]
fn false_undoes_a_default_of_any_kind() {
    let text = "[defaults]\nretries = 2\nmem = 5\nexclusive = true\n[[step]]\nlabel = 'a'\ncommand = 'a'\n\
                retries = false\nexclusive = false\n[[step]]\nlabel = 'b'\ncommand = 'b'\nmem = false\n";
    assert_eq!(lines(text), ["--mem=5 --label=a a", "--retries=2 --exclusive --label=b b"]);
}

#[test]
fn one_mistake_about_how_many_steps_it_is_brings_no_others_about_files() {
    let text = "[[step]]\nlabel = 'a'\narray = '5-1'\ncommand = 'a'\nreads = 'gone.{index}'\nwrites = 'part.{index}'\n\
                [[step]]\nlabel = 'b'\narray = '0-3'\ncommand = 'b'\nreads = 'part.{index}'\nafter = 'aftercorr:a'\n\
                [[step]]\nlabel = 'c'\ncommand = 'c'\nreads = ['part.{index}', 'part.3']\n";
    assert_eq!(graph(text).unwrap_err(), ["3: \"array\": array \"5-1\": the range \"5-1\" runs backwards"]);
    let each = "[[step]]\nlabel = 'a'\neach = { n = '3..1' }\ncommand = ['a', '{n}']\nwrites = 'part.{n}'\n";
    assert_eq!(graph(each).unwrap_err().len(), 1);
    let single = "[[step]]\nlabel = 'a'\ncommand = 'a'\nwrites = 'part.{index}'\n";
    assert_eq!(
        graph(single).unwrap_err(),
        [
            "4: \"part.{index}\": {index} is the index of an array's task, and this is a single step; write {{index}} for \
          the letters themselves"
        ]
    );
}

#[test]
fn more_steps_than_can_be_looked_at_are_refused() {
    let text = "[[step]]\nlabel = 'a'\ncommand = ['x', '{n}{m}']\neach = { n = '1..60000', m = '1..60000' }\n\
                [[step]]\nlabel = 'b'\ncommand = 'x'\n";
    assert_eq!(graph(text).unwrap_err(), ["1: more than 10000000 steps with those of \"a\""]);
}

#[test]
fn files_of_values_are_looked_for_where_the_job_begins() {
    let dir = std::env::temp_dir().join(format!("garrick-graph-values-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("seeds"), "7\n8\n").unwrap();
    std::fs::write(dir.join("t.csv"), "n\n9\n").unwrap();
    let of = |each: &str| {
        let text = format!("[[step]]\nlabel = 'a'\ncommand = ['a', '{{n}}']\n{each}\n");
        parse(text.as_bytes(), &dir, &|_| false).map_err(|problems| problems[0].text.clone())
    };
    assert_eq!(lines_of(of("each = { n = '@seeds' }").unwrap(), &[]), ["--label=a a 7", "--label=a a 8"]);
    assert_eq!(lines_of(of("each-csv = 't.csv'").unwrap(), &[]), ["--label=a a 9"]);
    for each in ["each = { n = '@-' }", "each-csv = '-'"] {
        assert_eq!(of(each).unwrap_err(), "values come from a file, and not from standard input (-)");
    }
    let absent = of("each = { n = '@absent' }").unwrap_err();
    assert!(absent.contains(&dir.join("absent").display().to_string()), "{absent}");
    assert!(of("each = { '@x' = 'y' }").unwrap_err().contains("is no name for a parameter"));
    std::fs::remove_dir_all(&dir).unwrap();
}

proptest! {
    #[test]
    fn order_holds_and_circles_are_found_whatever_waits_for_what(
        waits in proptest::collection::vec((0usize..12, 0usize..12), 0..30)
    ) {
        let mut text = String::new();
        for n in 0..12 {
            let after: Vec<String> = waits.iter().filter(|(a, _)| *a == n).map(|(_, b)| format!("'s{b}'")).collect();
            text += &format!("[[step]]\nlabel = 's{n}'\ncommand = 'x'\nafter = [{}]\n", after.join(","));
        }
        match graph(&text) {
            Ok(graph) => {
                let order = graph.in_order();
                let place = |at: usize| order.iter().position(|other| *other == at).unwrap();
                prop_assert!(waits.iter().all(|(a, b)| place(*b) < place(*a)));
            }
            Err(problems) => {
                prop_assert!(problems.iter().all(|p| p.contains("a circle")), "{problems:?}");
                // Who waits for whom, closed over: somebody waits for itself.
                let mut reach = [[false; 12]; 12];
                waits.iter().for_each(|(a, b)| reach[*a][*b] = true);
                for k in 0..12 {
                    for i in 0..12 {
                        for j in 0..12 {
                            reach[i][j] |= reach[i][k] && reach[k][j];
                        }
                    }
                }
                prop_assert!((0..12).any(|n| reach[n][n]));
            }
        }
    }

    #[test]
    fn no_text_panics(text in "(\\[\\[step\\]\\]\n|label|command|after|array|each|reads|writes| = |'[a-c:{}@-]{0,5}'|\\[|\\]|\n|,|1){0,40}") {
        let _ = graph(&text);
    }
}
