//! Users and groups by name and number. The commands are linked without shared libraries (`build.rs`), but the C library needs
//! those for directory services. So local accounts are read from their files, and for all others the system's program `getent` is
//! called, which takes a millisecond.

use std::{ffi::OsStr, fs, process::Stdio};

/// A user's account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Name.
    pub name: String,
    /// Number.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Full name; empty where there is none.
    pub full_name: String,
    /// Home folder.
    pub home: String,
    /// Login shell.
    pub shell: String,
}

impl User {
    /// A line of passwd(5).
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _password, uid, gid, comment, home, shell] = fields[..] else { return None };
        let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
        // Rooms and telephones may follow.
        let full_name = comment.split(',').next().unwrap_or_default().to_owned();
        Some(Self { name: name.to_owned(), uid, gid, full_name, home: home.to_owned(), shell: shell.to_owned() })
    }

    /// By the id, where the text is a number; else by name.
    pub fn by_number_or_name(text: &str) -> Option<Self> {
        text.parse().map_or_else(|_| Self::by_name(text), Self::by_uid)
    }

    /// By name.
    pub fn by_name(name: &str) -> Option<Self> {
        let known = local("/etc/passwd", Self::parse, |user| user.name == name);
        // Digits alone are a number to `getent`.
        if known.is_some() || name.bytes().all(|b| b.is_ascii_digit()) {
            return known;
        }
        getent("passwd", name).lines().find_map(Self::parse).filter(|user| user.name == name)
    }

    /// By number.
    pub fn by_uid(uid: u32) -> Option<Self> {
        local("/etc/passwd", Self::parse, |user| user.uid == uid)
            .or_else(|| getent("passwd", &uid.to_string()).lines().find_map(Self::parse).filter(|user| user.uid == uid))
    }

    /// All groups it is in, with this one as the primary.
    pub fn groups(&self, primary: u32) -> Vec<u32> {
        // `alice                 1000 24 27`
        let listed = getent("initgroups", &self.name);
        let listed = listed.split_whitespace().skip(1).filter_map(|gid| gid.parse().ok());
        let mut groups: Vec<u32> = std::iter::once(primary).chain(listed).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }
}

/// The line of passwd(5) of a user, and those of group(5) of the groups that it is in.
pub fn entries(uid: u32) -> (Option<String>, Vec<String>) {
    let line = local(
        "/etc/passwd",
        |line| User::parse(line).map(|user| (user.uid, line.to_owned())),
        |(found, _)| *found == uid,
    );
    let line =
        line.map(|(_, line)| line).or_else(|| getent("passwd", &uid.to_string()).lines().next().map(str::to_owned));
    let user = line.as_deref().and_then(User::parse);
    let gids = user.map(|user| user.groups(user.gid)).unwrap_or_default();
    let group = |gid: &u32| getent("group", &gid.to_string()).lines().next().map(str::to_owned);
    (line, gids.iter().filter_map(group).collect())
}

/// A group's number.
pub fn gid_of(group: &str) -> Option<u32> {
    a_group(group, |(name, _)| name == group).map(|(_, gid)| gid)
}

/// A group's name.
pub fn group_name(gid: u32) -> Option<String> {
    a_group(&gid.to_string(), |(_, found)| *found == gid).map(|(name, _)| name)
}

/// Name and number of the group with this key.
fn a_group(key: &str, is: impl Fn(&(String, u32)) -> bool) -> Option<(String, u32)> {
    let parse = |line: &str| {
        let mut fields = line.split(':');
        let (name, _password, gid) = (fields.next()?, fields.next()?, fields.next()?);
        Some((name.to_owned(), gid.parse::<u32>().ok()?))
    };
    local("/etc/group", parse, &is).or_else(|| getent("group", key).lines().find_map(parse).filter(is))
}

fn local<T>(file: &str, parse: impl Fn(&str) -> Option<T>, is: impl Fn(&T) -> bool) -> Option<T> {
    let bytes = fs::read(file).ok()?;
    String::from_utf8_lossy(&bytes).lines().filter_map(parse).find(is)
}

/// What `getent` says; nothing when it knows nothing or is not there.
fn getent(database: &str, key: &str) -> String {
    // A key that looks like an option is no name.
    if key.is_empty() || key.starts_with('-') {
        return String::new();
    }
    let asked = std::process::Command::new("getent")
        .args([OsStr::new(database), OsStr::new(key)])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn root_is_known_by_name_and_number() {
        let root = User::by_name("root").unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(User::by_uid(0), Some(root.clone()));
        assert!(root.groups(0).contains(&0));
        assert_eq!(gid_of("root"), Some(0));
    }

    #[test]
    fn getent_gives_lines_of_the_same_form() {
        let asked = getent("passwd", "root");
        assert_eq!(asked.lines().find_map(User::parse), User::by_name("root"));
    }

    #[test]
    fn nobody_is_made_up() {
        for name in ["", "-s", "--help", "garrick-nosuch-user", "a:b"] {
            assert_eq!(User::by_name(name), None);
            assert_eq!(gid_of(name), None);
        }
        assert_eq!(User::by_uid(u32::MAX - 7), None);
        assert_eq!(User::parse("alice:x:1000:1000:Alice:/home/alice"), None);
        assert_eq!(User::parse("alice:x:many:1000:Alice:/home/alice:/bin/sh"), None);
    }
}
