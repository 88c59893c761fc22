//! Folders of this workspace import from one another in one direction.

use garrick_imports::{circle, imports};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folders of the workspace's crates.
fn members() -> Vec<String> {
    let text = fs::read_to_string(workspace().join("Cargo.toml")).expect("the workspace has a manifest");
    let line = text.lines().find(|line| line.starts_with("members")).expect("the manifest lists members");
    line.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The crates of the workspace with the files of their roots.
fn roots() -> Vec<(String, PathBuf)> {
    let files = members().into_iter().flat_map(|member| {
        ["lib.rs", "main.rs"].map(|file| (member.clone(), workspace().join(&member).join("src").join(file)))
    });
    files.filter(|(_, file)| file.is_file()).collect()
}

#[test]
fn folders_import_from_one_another_in_one_direction() {
    let roots = roots();
    assert!(roots.len() > 10, "only {} crates were found", roots.len());
    let mut wrong = Vec::new();
    for (member, root) in roots {
        let imports = imports(&root).unwrap_or_else(|error| panic!("{}: {error}", root.display()));
        let edges = imports.between_folders();
        if let Some(way) = circle(&edges, &imports.real) {
            let steps = way.windows(2).map(|pair| {
                let edge = (pair[0].clone(), pair[1].clone());
                format!("    {member}: {} -> {}    at {}", edge.0, edge.1, edges[&edge])
            });
            wrong.push(steps.collect::<Vec<_>>().join("\n"));
        }
    }
    assert!(
        wrong.is_empty(),
        "these folders import from one another in a circle:\n{}\n\
         Move the type or function that the lower folder needs down to it (a `pub use` changes nothing), or hand it in as \
         an argument or behind a trait of the lower folder's own.",
        wrong.join("\n")
    );
}

/// The crates of this workspace that each of them is built with, tests apart.
fn built_with() -> BTreeMap<String, BTreeSet<String>> {
    let mut crates = BTreeMap::new();
    for member in members() {
        let manifest = workspace().join(&member).join("Cargo.toml");
        let text = fs::read_to_string(manifest).unwrap_or_else(|error| panic!("{member}: {error}"));
        let section = |name: &str| text.split("\n[").find_map(|part| part.strip_prefix(name)).unwrap_or_default();
        let own = text.lines().find_map(|line| line.strip_prefix("name = "));
        let own = own.unwrap_or_else(|| panic!("{member} has no name")).trim_matches('"').to_owned();
        let names = section("dependencies]").lines().filter_map(|line| line.split(['.', ' ']).next());
        crates.insert(own, names.filter(|name| name.starts_with("garrick-")).map(str::to_owned).collect());
    }
    crates
}

/// That crate, and all that it is built with.
fn all_of<'c>(crates: &'c BTreeMap<String, BTreeSet<String>>, program: &'c str) -> BTreeSet<&'c str> {
    let (mut found, mut next) = (BTreeSet::new(), vec![program]);
    while let Some(name) = next.pop() {
        if found.insert(name) {
            next.extend(crates[name].iter().map(String::as_str));
        }
    }
    found
}

/// A change in the scheduler leaves the programs alone that run steps and those that ask.
#[test]
fn the_scheduler_is_in_the_controller_and_in_what_plans_only() {
    let crates = built_with();
    for program in ["garrick-noded", "garrick-planning", "garrick-simulator"] {
        assert!(all_of(&crates, program).contains("garrick-plan"), "{program}");
    }
    for program in ["garrick-stepd", "garrick-tools", "garrick-light", "garrick-events", "garrick-run", "garrick-agent"]
    {
        let found = all_of(&crates, program);
        for other in ["garrick-plan", "garrick-actors"] {
            assert!(!found.contains(other), "{program} is built with {other}: {found:?}");
        }
    }
    assert_eq!(
        all_of(&crates, "garrick-plan"),
        BTreeSet::from(["garrick-model", "garrick-plan"]),
        "plans are pure functions"
    );
}

#[test]
fn a_circle_is_found_whatever_passes_it_on_and_not_in_tests() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("imports-sample");
    let _ = fs::remove_dir_all(&folder);
    let write = |name: &str, text: &str| {
        let file = folder.join("src").join(name);
        fs::create_dir_all(file.parent().expect("it is in a folder")).expect("a folder can be made");
        fs::write(file, text).expect("a file can be written");
    };
    write("lib.rs", "mod a;\nmod b;\npub use b::deep::Thing;\n");
    write(
        "a/mod.rs",
        "#[cfg(test)]\nmod tests { use crate::b; }\n// use crate::b;\nconst TEXT: &str = \"crate::b\";\n",
    );
    write("b/mod.rs", "pub mod deep;\nuse super::a::{self, other as another};\n");
    write("b/deep.rs", "pub struct Thing;\n");
    let look = || imports(&folder.join("src/lib.rs")).expect("the sample can be read");
    let sample = look();
    let edges = sample.between_folders();
    assert!(edges.contains_key(&("b".to_owned(), "a".to_owned())), "{edges:?}");
    assert_eq!(circle(&edges, &sample.real), None);
    write("b/far/mod.rs", "pub struct Far;\n");
    write("b/mod.rs", "pub mod deep;\npub mod far;\nuse super::a::{self, other as another};\n");
    write("a/mod.rs", "use crate::b;\nuse b::far::Far;\n");
    let edges = look().between_folders();
    assert!(edges.contains_key(&("a".to_owned(), "b/far".to_owned())), "{edges:?}");
    write("a/mod.rs", "fn f<'a>(c: char) -> impl Sized + use<'a> { let _ = c == '\\''; crate::Thing }\n");
    let sample = look();
    let circle = circle(&sample.between_folders(), &sample.real).expect("a imports what b defines");
    assert_eq!(circle, ["a", "b", "a"]);
}

#[test]
fn what_a_feature_brings_counts_and_a_file_of_another_name_is_read() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("features-sample");
    let _ = fs::remove_dir_all(&folder);
    let write = |name: &str, text: &str| {
        let file = folder.join("src").join(name);
        fs::create_dir_all(file.parent().expect("it is in a folder")).expect("a folder can be made");
        fs::write(file, text).expect("a file can be written");
    };
    write("lib.rs", "mod a;\nmod b;\nmod c;\n");
    write(
        "a/mod.rs",
        "#[cfg(any(test, feature = \"x\"))]\nuse crate::b::One;\n#[cfg(all(test, unix))]\nuse crate::c::Three;\n\
         enum E { #[cfg(test)] A(crate::c::Three), B }\n",
    );
    write("b/mod.rs", "#[path = \"other.rs\"]\nmod named;\npub struct One;\n");
    write("b/other.rs", "fn f() { println!(\"{}\", crate::c::TWO); }\n");
    write("c/mod.rs", "pub(in crate::c) struct Three;\npub const TWO: u32 = 2;\nm! { pub(in crate::a) struct F; }\n");
    let sample = imports(&folder.join("src/lib.rs")).expect("the sample can be read");
    let edges: Vec<(String, String)> = sample.between_folders().into_keys().collect();
    let edge = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    assert_eq!(edges, [edge("a", "b"), edge("b", "c")]);
}
