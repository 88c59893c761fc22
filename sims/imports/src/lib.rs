//! Which modules import from which, read from the sources: `use` items and paths that begin with `crate`, `self`, `super` or
//! a module's own child. Code for tests only is left out. What a module passes on (`pub use`) counts as where it is defined.
//!
//! A folder is all files that lie in it, with the file of its own name beside it (`plan.rs` belongs to `plan/`). What lies in
//! `src` itself is looked at file by file, and may import in circles as long as those lead through no folder.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

mod cycles;
mod tokens;

pub use cycles::{against, circle};
use tokens::{Token, tokens};

/// From which module to which, with a place in the sources where that is written (`file:line`).
pub type Edges = BTreeMap<(String, String), String>;

/// What one crate's modules import from each other, each by its path below the crate's root (which is the empty path).
#[derive(Debug, Default)]
pub struct Imports {
    /// From one module to another.
    pub modules: Edges,
    /// The folder that each module is in; of a file in `src` itself its own path, of the crate's root the empty one.
    pub folders: BTreeMap<String, String>,
    /// Those that are folders indeed.
    pub real: BTreeSet<String>,
}

impl Imports {
    /// Between folders.
    pub fn between_folders(&self) -> Edges {
        let mut edges = Edges::new();
        for ((from, to), place) in &self.modules {
            let (from, to) = (&self.folders[from], &self.folders[to]);
            if from != to {
                edges.entry((from.clone(), to.clone())).or_insert_with(|| place.clone());
            }
        }
        edges
    }
}

#[derive(Default)]
struct Module {
    file: PathBuf,
    folder: String,
    children: BTreeSet<String>,
    /// Names that it imports, and from where.
    names: BTreeMap<String, Vec<String>>,
    /// Whose names it imports all.
    globs: Vec<Vec<String>>,
    /// Paths that are written in it, with their lines.
    paths: Vec<(Vec<String>, usize)>,
}

/// Reads a crate, from the file of its root.
///
/// # Errors
/// A file that cannot be read.
pub fn imports(root: &Path) -> io::Result<Imports> {
    let mut modules = BTreeMap::new();
    let folder = root.parent().unwrap_or(root);
    read(&mut modules, root, folder, Vec::new(), folder)?;
    let mut imports = Imports::default();
    for (path, module) in &modules {
        let from = path.join("::");
        imports.folders.insert(from.clone(), module.folder.clone());
        if !module.folder.is_empty() && folder.join(&module.folder).is_dir() {
            imports.real.insert(module.folder.clone());
        }
        for (written, line) in &module.paths {
            let Some(to) = resolve(&modules, path, written, 0) else { continue };
            let to = to.join("::");
            if to != from {
                let place = || format!("{}:{line}", module.file.display());
                imports.modules.entry((from.clone(), to)).or_insert_with(place);
            }
        }
    }
    Ok(imports)
}

type Modules = BTreeMap<Vec<String>, Module>;

/// Reads a module's file, and those of its children in `folder`.
fn read(modules: &mut Modules, file: &Path, folder: &Path, path: Vec<String>, source: &Path) -> io::Result<()> {
    let mut module = Module { file: file.to_owned(), ..Module::default() };
    // What lies in `src` itself is no more than in one place.
    let alone = !folder.is_dir() && path.len() > 1;
    let inside = if alone { folder.parent().unwrap_or(folder) } else { folder };
    module.folder = inside.strip_prefix(source).unwrap_or(inside).display().to_string();
    let text = fs::read_to_string(file)?;
    let mut children = Vec::new();
    scan(&tokens(&text), &mut module, &mut children);
    for child in children {
        let alone = folder.join(format!("{child}.rs"));
        let file = if alone.is_file() { alone } else { folder.join(&child).join("mod.rs") };
        // One that a macro writes.
        if !file.is_file() {
            continue;
        }
        let path = path.iter().cloned().chain([child.clone()]).collect();
        read(modules, &file, &folder.join(&child), path, source)?;
        module.children.insert(child);
    }
    modules.insert(path, module);
    Ok(())
}

fn scan(tokens: &[Token], module: &mut Module, children: &mut Vec<String>) {
    let mut at = 0;
    // Inline modules are part of the file: how deep we are in how many of them.
    let (mut depth, mut inline): (usize, Vec<usize>) = (0, Vec::new());
    while at < tokens.len() {
        let text = |n: usize| tokens.get(at + n).map_or("", |token| token.text.as_str());
        match text(0) {
            "#" if text(1) == "[" && is_for_tests(&tokens[at..]) => at = after_item(tokens, at),
            "{" => (depth, at) = (depth + 1, at + 1),
            "}" => {
                depth = depth.saturating_sub(1);
                inline.pop_if(|opened| *opened == depth);
                at += 1;
            }
            "mod" if text(2) == ";" => {
                children.push(text(1).to_owned());
                at += 3;
            }
            "mod" if text(2) == "{" => {
                inline.push(depth);
                (depth, at) = (depth + 1, at + 3);
            }
            "use" if text(1) != "<" => {
                let line = tokens[at].line;
                let mut all = Vec::new();
                at = tree(tokens, at + 1, &[], &mut all);
                for (mut path, name) in all {
                    // `super` of a module that is written in its parent's file is that file.
                    let own = inline.len().min(path.iter().take_while(|part| *part == "super").count());
                    path.drain(..own);
                    if own > 0 {
                        path.insert(0, "self".to_owned());
                    }
                    if name == "*" {
                        module.globs.push(path.clone());
                    } else if inline.is_empty() && depth == 0 {
                        module.names.insert(name, path.clone());
                    }
                    module.paths.push((path, line));
                }
            }
            first if is_name(first) && text(1) == "::" && !follows(tokens, at) => {
                let line = tokens[at].line;
                let mut path = vec![first.to_owned()];
                at += 1;
                while at + 1 < tokens.len() && tokens[at].text == "::" && is_name(&tokens[at + 1].text) {
                    path.push(tokens[at + 1].text.clone());
                    at += 2;
                }
                let own = inline.len().min(path.iter().take_while(|part| *part == "super").count());
                path.drain(..own);
                if own > 0 {
                    path.insert(0, "self".to_owned());
                }
                module.paths.push((path, line));
            }
            _ => at += 1,
        }
    }
}

/// Is that inside of a path, or the extent of a visibility (`pub(in crate::a)`)?
fn follows(tokens: &[Token], at: usize) -> bool {
    at.checked_sub(1).is_some_and(|before| matches!(tokens[before].text.as_str(), "::" | "in"))
        && !(tokens[at - 1].text == "in" && tokens[..at - 1].last().is_none_or(|token| token.text != "("))
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Is that attribute `#[cfg(test)]` or one like it?
fn is_for_tests(tokens: &[Token]) -> bool {
    let words: Vec<&str> = tokens.iter().take(5).map(|token| token.text.as_str()).collect();
    let end = tokens.iter().position(|token| token.text == "]").unwrap_or(0);
    let names_test = tokens[..end].iter().any(|token| token.text == "test");
    let negated = tokens[..end].iter().any(|token| token.text == "not");
    matches!(words.as_slice(), ["#", "[", "cfg", "(", _]) && names_test && !negated
}

/// Past the item that begins here with its attributes.
fn after_item(tokens: &[Token], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while at < tokens.len() {
        match tokens[at].text.as_str() {
            "(" | "[" => depth += 1,
            ")" | "]" => depth = depth.saturating_sub(1),
            ";" | "," if depth == 0 => return at + 1,
            "{" if depth == 0 => {
                let mut open = 0_usize;
                while at < tokens.len() {
                    match tokens[at].text.as_str() {
                        "{" => open += 1,
                        "}" => open -= 1,
                        _ => {}
                    }
                    at += 1;
                    if open == 0 {
                        // `use a::{b};` ends a token later.
                        return at + usize::from(tokens.get(at).is_some_and(|token| token.text == ";"));
                    }
                }
            }
            "}" if depth == 0 => return at,
            _ => {}
        }
        at += 1;
    }
    at
}

/// Reads a tree of imports up to its end. Each is a path and the name that it has here.
fn tree(tokens: &[Token], mut at: usize, before: &[String], all: &mut Vec<(Vec<String>, String)>) -> usize {
    let mut path = before.to_vec();
    while at < tokens.len() {
        match tokens[at].text.as_str() {
            "{" => {
                at += 1;
                while at < tokens.len() && tokens[at].text != "}" {
                    at = tree(tokens, at, &path, all);
                    if tokens.get(at).is_some_and(|token| token.text == ",") {
                        at += 1;
                    }
                }
                return at + 1;
            }
            "*" => {
                all.push((path, "*".to_owned()));
                return at + 1;
            }
            "::" => at += 1,
            "as" => {
                all.push((path, tokens[at + 1].text.clone()));
                return at + 2;
            }
            "," | "}" | ";" => break,
            name => {
                path.push(name.to_owned());
                at += 1;
            }
        }
    }
    // `a::{self}` is `a`.
    path.pop_if(|last| last == "self" && !before.is_empty());
    if let Some(name) = path.last().cloned() {
        all.push((path, name));
    }
    at
}

/// The module in which what a path names is written.
fn resolve(modules: &Modules, here: &[String], written: &[String], hops: usize) -> Option<Vec<String>> {
    let first = written.first()?;
    let known = &modules[here];
    let (mut at, mut rest) = match first.as_str() {
        "crate" => (Vec::new(), &written[1..]),
        "self" => (here.to_vec(), &written[1..]),
        "super" => {
            let up = written.iter().take_while(|part| *part == "super").count();
            (here[..here.len().checked_sub(up)?].to_vec(), &written[up..])
        }
        name if known.children.contains(name) => (here.to_vec(), written),
        // By way of what the module imports: `use crate::a;` and then `a::b`.
        name if hops < 8 => {
            let path = known.names.get(name).filter(|path| path.first() != Some(first))?;
            let whole: Vec<String> = path.iter().chain(&written[1..]).cloned().collect();
            return resolve(modules, here, &whole, hops + 1);
        }
        _ => return None,
    };
    while let Some((name, after)) = rest.split_first() {
        let module = &modules[&at];
        if module.children.contains(name) {
            at.push(name.clone());
            rest = after;
            continue;
        }
        if hops < 8 {
            if let Some(path) = module.names.get(name) {
                let whole: Vec<String> = path.iter().chain(after).cloned().collect();
                // `None`: from another crate.
                return resolve(modules, &at, &whole, hops + 1);
            }
            for glob in &module.globs {
                let whole: Vec<String> = glob.iter().chain([name]).chain(after).cloned().collect();
                if let Some(found) = resolve(modules, &at, &whole, hops + 1)
                    && found != at
                    && modules.get(&found).is_some_and(|found| found.names.contains_key(name))
                {
                    return Some(found);
                }
            }
        }
        break;
    }
    Some(at)
}
