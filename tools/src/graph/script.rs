//! The batch script of `sbatch --graph`: the graph's text travels in it, so that what becomes of the file does not matter.

use super::GraphText;
use crate::submit::batch_script::{self, BatchScript, ScriptError};
use std::path::Path;

/// Makes it. `resume`: the jobs whose completed steps are not run again. Lines `#SBATCH` at the head of the file are the
/// script's.
pub fn of(graph: &GraphText, resume: Option<&str>) -> Result<BatchScript, ScriptError> {
    let lines: Vec<&[u8]> = graph.text.split(|byte| *byte == b'\n').map(without_return).collect();
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
        let zero = GraphText { file: "p".into(), text: b"\0".to_vec() };
        assert!(matches!(of(&zero, None), Err(ScriptError::Nul)));
    }
}
