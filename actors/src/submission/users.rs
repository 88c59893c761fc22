//! Users, as the site's user database has them.

/// A user, from the site's user database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Id.
    pub uid: u32,
    /// Name.
    pub name: String,
    /// Primary group.
    pub gid: u32,
    /// All groups: id and name, the primary one included.
    pub groups: Vec<(u32, String)>,
}

/// Looks users up. Must not block: implementations answer with what they know, and look up the rest in the background.
pub trait UserDirectory: Send + Sync + 'static {
    /// By id. `None`: the user does not exist, or is not known yet.
    fn user(&self, uid: u32) -> Option<User>;
    /// Is it known whether the user exists, and who it is?
    fn is_known(&self, _uid: u32) -> bool {
        true
    }
    /// A group's name.
    fn group_name(&self, gid: u32) -> Option<String>;
    /// The name of a user given by name, or by id in digits. `None`: there is none. If that cannot be found out now, the text
    /// itself.
    fn user_called(&self, text: &str) -> Option<String>;
    /// The same for a group.
    fn group_called(&self, text: &str) -> Option<String>;
}

/// Names of a user's groups.
pub fn group_names(user: Option<&User>) -> Vec<&str> {
    user.iter().flat_map(|user| &user.groups).map(|(_, name)| name.as_str()).collect()
}
