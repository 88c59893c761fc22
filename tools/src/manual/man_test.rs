use super::*;
use crate::manual::commands::COMMANDS;
use std::{env, fs, path::PathBuf, process::Command as Program};

/// The pages as files, in a folder of their own.
fn as_files() -> (PathBuf, Vec<PathBuf>) {
    let root = env::temp_dir().join(format!("garrick-man-{}", std::process::id()));
    drop(fs::remove_dir_all(&root));
    let write = |page: Page| {
        let path = root.join(&page.path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, page.text).unwrap();
        path
    };
    let files = pages().into_iter().map(write).collect();
    (root, files)
}

#[test]
fn every_command_has_a_page_with_all_its_options_and_words() {
    let pages = pages();
    assert_eq!(pages.len(), COMMANDS.len() + 1);
    for command in &COMMANDS {
        let page = pages.iter().find(|page| page.path == format!("man1/{}.1", command.name())).unwrap();
        let text = page.text.replace('\\', "");
        for option in command.options() {
            assert!(text.contains(&format!("--{}", option.long)), "{}: {}", page.path, option.long);
        }
        for word in command.words() {
            assert!(text.contains(&format!("fB{}fR", word.name)), "{}: {}", page.path, word.name);
        }
    }
    let conf = &pages.last().unwrap().text;
    assert!(conf.contains("KillWait") && conf.contains("MaxTime") && conf.contains("RealMemory"));
}

#[test]
fn formatters_have_nothing_to_say_about_the_pages() {
    let (root, files) = as_files();
    let mut checks = 0;
    for (program, args) in [("groff", &["-man", "-ww", "-z", "-Tutf8"][..]), ("mandoc", &["-T", "lint", "-W", "error"])]
    {
        for file in &files {
            match Program::new(program).args(args).arg(file).output() {
                Err(error) => {
                    eprintln!("skipped: no {program} here: {error}");
                    break;
                }
                Ok(output) => {
                    let said = [output.stdout, output.stderr].concat();
                    assert_eq!(String::from_utf8_lossy(&said), "", "{program} {}", file.display());
                    checks += 1;
                }
            }
        }
    }
    fs::remove_dir_all(root).unwrap();
    eprintln!("{checks} pages checked");
}
