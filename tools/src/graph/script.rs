//! The batch script of `sbatch --graph`: it contains the graph's text, so that later changes of the file do not matter.

use super::GraphText;
use crate::{
    batch_script::{self, BatchScript, ScriptError},
    options::{
        getopt::{self, Occurrence},
        script_lines::{self, ScriptHead, ScriptLine, ScriptLineError},
        table::{Command, options_of},
    },
};
use std::path::Path;

/// Options of a job that cannot stand in a graph.
const NOT_IN_A_GRAPH: &[&str] = &["graph", "array", "wrap"];

/// The lines `#SBATCH` at the head of the file.
pub fn head(graph: &GraphText) -> Result<ScriptHead, ScriptLineError> {
    script_lines::read(without_mark(&graph.text), script_lines::OF_SBATCH)
}

/// An option of those lines, the last of its name, with its value.
pub fn in_head(lines: &[ScriptLine], name: &str) -> Option<Occurrence> {
    let options = options_of(Command::Sbatch);
    let of = |line: &ScriptLine| getopt::parse(&options, &line.words).map(|parsed| parsed.options).unwrap_or_default();
    lines.iter().flat_map(of).rfind(|option| option.def.long == name)
}

/// Is something there that makes no sense in a graph?
pub fn check_head(lines: &[ScriptLine]) -> Result<(), String> {
    match NOT_IN_A_GRAPH.iter().find(|name| in_head(lines, name).is_some()) {
        Some(name) => Err(format!("#SBATCH --{name} cannot stand in a graph")),
        None => Ok(()),
    }
}

/// Makes it. `resume`: the jobs whose completed steps are not run again. Lines `#SBATCH` at the head of the file are the
/// script's.
pub fn of(graph: &GraphText, resume: Option<&str>) -> Result<BatchScript, ScriptError> {
    let lines: Vec<&[u8]> = without_mark(&graph.text).split(|byte| *byte == b'\n').map(without_return).collect();
    let mut end = "END_OF_GRAPH".to_owned();
    while lines.contains(&end.as_bytes()) {
        end.push('_');
    }
    let mut text = b"#!/bin/sh\n# This script was created by sbatch --graph.\n".to_vec();
    let head = lines.iter().take_while(|line| {
        let line = line.trim_ascii_start();
        line.is_empty() || line.starts_with(b"#")
    });
    for line in head.filter(|line| line.starts_with(b"#SBATCH")) {
        text.extend([line, &b"\n"[..]].concat());
    }
    let resume = resume.map(|jobs| format!(" --resume-from='{}'", jobs.replace('\'', ""))).unwrap_or_default();
    text.extend(format!("exec srun{resume} --graph=- <<'{end}'\n").into_bytes());
    for line in lines {
        text.extend([line, &b"\n"[..]].concat());
    }
    text.extend(format!("{end}\n").into_bytes());
    batch_script::check(&text)?;
    let path = Path::new(&graph.file);
    let name = path.file_name().map_or_else(|| graph.file.clone(), |name| name.to_string_lossy().into_owned());
    Ok(BatchScript { text, path: None, name })
}

/// Without the mark that some editors put before a text.
fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_text_travels_as_it_is_behind_the_options_at_its_head() {
        let text = b"# x\r\n#SBATCH -n2\n\n[[step]]\ncommand = 'echo $X'\nEND_OF_GRAPH\n#SBATCH -n3\n".to_vec();
        let script = of(&GraphText { file: "d/p.toml".into(), text }, Some("5,7")).unwrap();
        let want = "#!/bin/sh\n# This script was created by sbatch --graph.\n#SBATCH -n2\n\
                    exec srun --resume-from='5,7' --graph=- <<'END_OF_GRAPH_'\n\
                    # x\n#SBATCH -n2\n\n[[step]]\ncommand = 'echo $X'\nEND_OF_GRAPH\n#SBATCH -n3\n\nEND_OF_GRAPH_\n";
        assert_eq!((String::from_utf8(script.text).unwrap().as_str(), script.name.as_str()), (want, "p.toml"));
        let marked = GraphText { file: "p".into(), text: b"\xef\xbb\xbf#SBATCH -n2\n[[step]]\n".to_vec() };
        let script = String::from_utf8(of(&marked, None).unwrap().text).unwrap();
        assert!(
            script.contains(".\n#SBATCH -n2\nexec srun --graph=- <<'END_OF_GRAPH'\n#SBATCH -n2\n[[step]]\n"),
            "{script}"
        );
        let zero = GraphText { file: "p".into(), text: b"\0".to_vec() };
        assert!(matches!(of(&zero, None), Err(ScriptError::Nul)));
    }

    #[test]
    fn options_at_the_head_are_found_and_those_that_make_no_sense_there_are_refused() {
        let lines = |text: &str| head(&GraphText { file: "p".into(), text: text.into() }).unwrap().lines;
        let two = lines("\u{feff}#SBATCH -n2 -D a\r\n\n# x\n#SBATCH --chdir=b --time=5\n[[step]]\n#SBATCH -D c\n");
        let value =
            |name| in_head(&two, name).and_then(|option| option.value).map(|value| value.into_string().unwrap());
        assert_eq!((value("chdir").as_deref(), value("resume-from")), (Some("b"), None));
        assert_eq!(check_head(&two), Ok(()));
        for name in NOT_IN_A_GRAPH {
            let wrong = check_head(&lines(&format!("#SBATCH -n2\n#SBATCH --{name}=1\n")));
            assert_eq!(wrong, Err(format!("#SBATCH --{name} cannot stand in a graph")));
        }
    }
}
