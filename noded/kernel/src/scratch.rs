//! What tests have on this machine for themselves: folders, programs, disks.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A fresh folder under the system's temporary folder, for one test: gone when the test ends.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A fresh one, with that in its name.
    pub fn new(name: &str) -> Self {
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("garrick-{name}-{}-{n}", std::process::id()));
        // Left by a process of the same number that was killed.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("the temporary folder is writable");
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of what is in it under that name.
    pub fn join(&self, sub: &str) -> PathBuf {
        self.0.join(sub)
    }

    /// Writes `text` at `sub`, making folders on the way.
    pub fn put(&self, sub: &str, text: &str) {
        let path = self.join(sub);
        let parent = path.parent().expect("a file in the folder has a parent");
        std::fs::create_dir_all(parent).expect("folder of a test file");
        std::fs::write(path, text).expect("test file");
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A program. Another process writes it: children that other tests start in this moment would have this one's open file until
/// they execute theirs, and what somebody has open for writing cannot be executed.
pub fn put_program(path: &Path, text: &str) {
    let write = "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\"";
    let written = std::process::Command::new("/bin/sh").args(["-c", write]).arg(path).arg(text).status();
    assert!(written.expect("a shell").success(), "{}", path.display());
}

/// A disk in memory of its own, for tests that fill it. Gone when the test ends.
pub struct SmallDisk(Scratch);

impl SmallDisk {
    /// Of so many bytes. `None`, with a message, for who may not mount.
    pub fn mount(name: &str, bytes: usize) -> Option<Self> {
        let disk = Self(Scratch::new(name));
        let (tmpfs, flags, size) = (Some("tmpfs"), nix::mount::MsFlags::empty(), format!("size={bytes}"));
        match nix::mount::mount(tmpfs, disk.path(), tmpfs, flags, Some(size.as_str())) {
            Ok(()) => Some(disk),
            Err(e) => {
                #[allow(clippy::print_stderr)]
                {
                    eprintln!("skipped: a small disk cannot be mounted ({e}; root may)");
                }
                None
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file that takes what room there is. Returns it.
    pub fn fill(&self) -> PathBuf {
        use std::io::Write;
        let filler = self.0.join("filler");
        let mut file = std::fs::File::create(&filler).expect("a file on the small disk");
        while file.write_all(&[0; 4096]).is_ok() {}
        filler
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Threads may hold files there for a moment longer.
        let _ = nix::mount::umount2(self.path(), nix::mount::MntFlags::MNT_DETACH);
    }
}

/// True for root; else says that the test is skipped.
pub fn root_or_skip(test: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        #[allow(clippy::print_stderr)]
        {
            eprintln!("skipped: {test} needs root");
        }
    }
    root
}

/// Variable that makes this test program do something else, as a process of its own with one thread.
pub const ENTRY: &str = "GARRICK_TEST_ENTRY";
