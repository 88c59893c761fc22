//! Which modules import from which, according to the sources: `use` items and paths that begin with `crate`, `self`, `super` or a
//! module's own child. Test code is left out. A re-exported item (`pub use`) counts as imported from the module that defines it.
//!
//! A folder means all files in it, and the file with its name (`plan.rs` belongs to `plan/`). Files in `src` itself are examined
//! one by one, and may import in cycles as long as those lead through no folder.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

mod cycles;
mod source;

pub use cycles::{against, circle};
use source::{Child, source};

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
fn read(modules: &mut Modules, file: &Path, folder: &Path, path: Vec<String>, root: &Path) -> io::Result<()> {
    let mut module = Module { file: file.to_owned(), ..Module::default() };
    // What lies in `src` itself is no more than in one place.
    let alone = !folder.is_dir() && path.len() > 1;
    let inside = if alone { folder.parent().unwrap_or(folder) } else { folder };
    module.folder = inside.strip_prefix(root).unwrap_or(inside).display().to_string();
    let text = fs::read_to_string(file)?;
    let written = source(&text).map_err(|error| io::Error::other(format!("{}: {error}", file.display())))?;
    module.names.extend(written.names);
    module.globs = written.globs;
    module.paths = written.paths;
    for Child { name, file: other } in written.children {
        let alone = folder.join(format!("{name}.rs"));
        let file = match other {
            Some(other) => file.parent().unwrap_or(folder).join(other),
            None if alone.is_file() => alone,
            None => folder.join(&name).join("mod.rs"),
        };
        // One that a macro writes.
        if !file.is_file() {
            continue;
        }
        let path = path.iter().cloned().chain([name.clone()]).collect();
        read(modules, &file, &folder.join(&name), path, root)?;
        module.children.insert(name);
    }
    modules.insert(path, module);
    Ok(())
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
