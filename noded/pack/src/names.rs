//! One pack per node: `FILE` on the node alone, `FILE.NODE` for each of several.

use crate::{PackError, block};
use std::{
    ffi::OsString,
    fs::{self, File},
    io::Read as _,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

/// The pack of one of several nodes.
pub fn on_node(file: &Path, node: &str) -> PathBuf {
    let mut name = OsString::from(file);
    name.push(".");
    name.push(node);
    name.into()
}

/// Is it a pack, of whatever version? Also false for a file that cannot be read.
pub fn is_pack(path: &Path) -> bool {
    let mut begin = [0; 8];
    // Not a pipe, which would wait for its other end.
    let plain = path.metadata().is_ok_and(|m| m.is_file());
    plain && File::open(path).and_then(|mut f| f.read_exact(&mut begin)).is_ok() && block::has_magic(&begin)
}

/// The packs `FILE.NODE` that there are, node 2 before node 10.
pub fn of_nodes(file: &Path) -> Result<Vec<PathBuf>, PackError> {
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let Some(name) = file.file_name() else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(PackError::file("cannot list", folder))? {
        let entry = entry.map_err(PackError::file("cannot list", folder))?.file_name();
        let node = entry.as_bytes().strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"."));
        if let Some(node) = node.filter(|node| !node.is_empty()) {
            let path = file.with_file_name(&entry);
            if is_pack(&path) {
                found.push((in_order(node), path));
            }
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// A name so that it sorts as people count: text, then the number that it ends with.
fn in_order(name: &[u8]) -> (Vec<u8>, u64, Vec<u8>) {
    let digits = name.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let (text, number) = name.split_at(name.len() - digits);
    let number = std::str::from_utf8(number).ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    (text.to_vec(), number, name.to_vec())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn packs_of_nodes_are_found_in_the_nodes_order() {
        let folder = std::env::temp_dir().join(format!("garrick-pack-names-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("out.pack");
        for node in ["n10", "n2", "n1"] {
            fs::write(on_node(&file, node), block::file_header()).unwrap();
        }
        fs::write(folder.join("out.pack.txt"), "a note of the user's").unwrap();
        fs::write(folder.join("other.pack.n1"), block::file_header()).unwrap();
        let found: Vec<PathBuf> = of_nodes(&file).unwrap();
        assert_eq!(found, ["n1", "n2", "n10"].map(|node| on_node(&file, node)));
        assert!(of_nodes(&folder.join("none/x")).unwrap_err().is_absent());
        fs::remove_dir_all(folder).unwrap();
    }
}
