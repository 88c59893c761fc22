//! The shared objects that a program needs, for `--send-libs` of `sbcast` and `srun`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Those of a program that are not below one of these folders, as the dynamic linker finds them here. None for what is no
/// dynamically linked program.
pub fn needed(program: &Path, exclude: &[String]) -> Vec<PathBuf> {
    let list = |ldd: &str| Command::new(ldd).arg(program).stdin(Stdio::null()).stderr(Stdio::null()).output();
    // Where the C library's package has it, whatever the path of the job is.
    let Ok(listed) = list("/usr/bin/ldd").or_else(|_| list("ldd")) else { return Vec::new() };
    let output = String::from_utf8_lossy(&listed.stdout);
    let is_excluded = |path: &Path| exclude.iter().any(|folder| path.starts_with(folder));
    let mut found = Vec::new();
    for path in output.lines().filter_map(object) {
        let real = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        if !is_excluded(&path) && !is_excluded(&real) && !found.contains(&path) {
            found.push(path);
        }
    }
    found
}

/// `libc.so.6 => /lib/libc.so.6 (0x7f..)`, `/lib64/ld-linux-x86-64.so.2 (0x7f..)`.
fn object(line: &str) -> Option<PathBuf> {
    let found = line.split_once("=> ").map_or(line, |(_, found)| found).trim();
    let (path, _) = found.rsplit_once(" (")?;
    path.starts_with('/').then(|| PathBuf::from(path))
}

/// The folders of an exclude list, `NONE` for none. Only absolute ones count (sbcast(1)).
pub fn excluded(text: &str) -> Vec<String> {
    if text.eq_ignore_ascii_case("NONE") {
        return Vec::new();
    }
    text.split(',').filter(|folder| folder.starts_with('/')).map(str::to_owned).collect()
}

/// The folder in which a program's shared objects go: beside it.
pub fn folder_of(program: &Path) -> PathBuf {
    let mut name = program.as_os_str().to_owned();
    name.push("_libs");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_linker_lists_is_read() {
        let path = |line| object(line).map(|path| path.display().to_string());
        assert_eq!(path("\tlibc.so.6 => /lib/x/libc.so.6 (0x00007f)"), Some("/lib/x/libc.so.6".to_owned()));
        assert_eq!(path("\t/lib64/ld-linux-x86-64.so.2 (0x00007f)"), Some("/lib64/ld-linux-x86-64.so.2".to_owned()));
        assert_eq!(path("\tlinux-vdso.so.1 (0x00007f)"), None);
        assert_eq!(path("\tlibx.so => not found"), None);
        assert_eq!(path("\tstatically linked"), None);
    }

    #[test]
    fn lists_of_folders_have_absolute_ones() {
        assert_eq!(excluded("/lib,x,/opt/lib"), ["/lib", "/opt/lib"]);
        assert!(excluded("none").is_empty());
    }

    #[test]
    fn objects_below_excluded_folders_are_left_out() {
        // Any dynamically linked program of the system.
        let program = Path::new("/bin/ls");
        assert!(needed(program, &[]).iter().any(|path| path.to_string_lossy().contains("libc.so")));
        let exclude: Vec<String> = ["/lib", "/lib64", "/usr"].map(str::to_owned).to_vec();
        assert!(needed(program, &exclude).is_empty());
        assert!(needed(Path::new("/etc/passwd"), &[]).is_empty());
    }
}
