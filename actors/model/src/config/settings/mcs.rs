//! Multi-category security: `MCSPlugin` and `MCSParameters` say which label a job has, and whether nodes are kept to it.

use crate::{
    config::syntax::{
        report::SettingError,
        values::{self, Value},
    },
    spec::Sharing,
};

/// What a label is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum McsPlugin {
    /// `mcs/none`: there are no labels.
    #[default]
    None,
    /// `mcs/user`: the name of the job's user.
    User,
    /// `mcs/group`: a group of the job's user.
    Group,
    /// `mcs/account`: the job's account.
    Account,
    /// `mcs/label`: any text.
    Label,
}

/// When nodes are kept to the label of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum McsSelect {
    /// `noselect`.
    Never,
    /// `select`: to each that has a label.
    Always,
    /// `ondemandselect`: with `--exclusive=mcs`.
    #[default]
    OnDemand,
}

/// Labels of jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mcs {
    /// `MCSPlugin`.
    pub plugin: McsPlugin,
    /// `enforced`: each job has a label. Otherwise those that ask for one (`ondemand`).
    pub enforced: bool,
    /// Whether nodes are kept to labels.
    pub select: McsSelect,
    /// Groups that may be labels; empty: all.
    pub groups: Vec<String>,
}

/// Whose job is to have a label.
#[derive(Clone, Copy, Debug)]
pub struct Labelled<'a> {
    /// Name of the user.
    pub user: &'a str,
    /// The user's groups, first the one that the job runs with.
    pub groups: &'a [String],
    /// The job's account.
    pub account: Option<&'a str>,
}

const PLUGINS: &[(&str, McsPlugin)] = &[
    ("mcs/none", McsPlugin::None),
    ("mcs/user", McsPlugin::User),
    ("mcs/group", McsPlugin::Group),
    ("mcs/account", McsPlugin::Account),
    ("mcs/label", McsPlugin::Label),
];

impl Mcs {
    /// Takes an `MCSPlugin`.
    pub fn set_plugin(&mut self, text: &str) -> Value<()> {
        let names: Vec<&str> = PLUGINS.iter().map(|(name, _)| *name).collect();
        let name = values::choice(text, &names)?;
        self.plugin = PLUGINS.iter().find(|(known, _)| *known == name).map_or(McsPlugin::None, |(_, plugin)| *plugin);
        Ok(())
    }

    /// Takes `MCSParameters`: words, and groups after a colon. Answers which of the words have no effect yet.
    pub fn set_parameters(&mut self, text: &str) -> Value<Option<&'static str>> {
        let (words, groups) = text.split_once(':').unwrap_or((text, ""));
        let mut without_effect = None;
        for word in words.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word.to_ascii_lowercase().as_str() {
                "ondemand" => self.enforced = false,
                "enforced" => self.enforced = true,
                "noselect" => self.select = McsSelect::Never,
                "select" => self.select = McsSelect::Always,
                "ondemandselect" => self.select = McsSelect::OnDemand,
                "privatedata" => without_effect = Some("privatedata"),
                _ => {
                    return Err(SettingError::new(format!("MCSParameters has no {word}")).suggest(
                        "ondemand or enforced, noselect, select or ondemandselect, privatedata; groups after a colon, \
                         for example enforced,select:staff|students",
                    ));
                }
            }
        }
        self.groups = groups.split('|').map(str::trim).filter(|group| !group.is_empty()).map(str::to_owned).collect();
        Ok(without_effect)
    }

    /// What may not be as it was meant, and in which of the two keys; `given`: there are parameters.
    pub fn doubts(&self, given: bool) -> Vec<(&'static str, SettingError)> {
        let mut doubts = Vec::new();
        let mut doubt = |key, cause: &str, instead: &str| doubts.push((key, SettingError::new(cause).suggest(instead)));
        match self.plugin {
            McsPlugin::None if given => doubt("MCSParameters", "has no effect without MCSPlugin", "set MCSPlugin too"),
            McsPlugin::Account => doubt(
                "MCSPlugin",
                "mcs/account takes the accounts that users name, and there is no accounting yet that says whose they are",
                "AllowAccounts of partitions limits which can be named",
            ),
            McsPlugin::User | McsPlugin::Label if !self.groups.is_empty() => {
                doubt("MCSParameters", "names groups, which only mcs/group takes", "leave out what is after the colon");
            }
            McsPlugin::None | McsPlugin::User | McsPlugin::Group | McsPlugin::Label => {}
        }
        doubts
    }

    /// The label of a job that asks for this one, or for none. `None`: it may not have that.
    pub fn label(&self, asked: Option<&str>, of: Labelled<'_>) -> Option<Option<String>> {
        let asked = asked.filter(|label| !label.is_empty());
        if asked.is_none() && !self.enforced {
            return Some(None);
        }
        let label = match self.plugin {
            McsPlugin::None => return Some(None),
            McsPlugin::User => Some(of.user),
            McsPlugin::Account => of.account,
            McsPlugin::Label => asked,
            McsPlugin::Group => {
                let allowed = |group: &&String| self.groups.is_empty() || self.groups.contains(group);
                let mut own = of.groups.iter().filter(allowed).map(String::as_str);
                match asked {
                    Some(asked) => own.find(|group| *group == asked),
                    None => own.next(),
                }
            }
        };
        let label = label.filter(|label| asked.is_none_or(|asked| asked == *label))?;
        Some(Some(label.to_owned()))
    }

    /// How a job shares its nodes that wishes this and has a label or not.
    pub fn sharing(&self, wish: Sharing, has_label: bool) -> Sharing {
        match (wish, self.select) {
            (Sharing::Mcs, McsSelect::Never) => Sharing::Default,
            (Sharing::Mcs, _) if !has_label => Sharing::Default,
            // One user's jobs of one label: nobody else's in any case.
            (Sharing::User, McsSelect::Always) if has_label && self.plugin != McsPlugin::User => Sharing::Exclusive,
            (Sharing::Default | Sharing::Oversubscribe | Sharing::User, McsSelect::Always) if has_label => Sharing::Mcs,
            (wish, _) => wish,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn mcs(plugin: &str, parameters: &str) -> Mcs {
        let mut mcs = Mcs::default();
        mcs.set_plugin(plugin).unwrap();
        mcs.set_parameters(parameters).unwrap();
        mcs
    }

    fn label(mcs: &Mcs, asked: Option<&str>) -> Option<Option<String>> {
        let groups = ["users".to_owned(), "physics".to_owned(), "staff".to_owned()];
        mcs.label(asked, Labelled { user: "alice", groups: &groups, account: Some("lab") })
    }

    fn is(text: &str) -> Option<Option<String>> {
        Some(Some(text.to_owned()))
    }

    #[test]
    fn a_label_is_what_the_plugin_says() {
        for (plugin, own) in [("mcs/user", "alice"), ("mcs/account", "lab"), ("mcs/group", "physics")] {
            let on_demand = mcs(plugin, "");
            assert_eq!(label(&on_demand, None), Some(None), "{plugin}");
            assert_eq!(label(&on_demand, Some(own)), is(own), "{plugin}");
            assert_eq!(label(&on_demand, Some("other")), None, "{plugin}");
        }
        let any = mcs("mcs/label", "ondemand,select");
        assert_eq!((label(&any, None), label(&any, Some("secret"))), (Some(None), is("secret")));
        let none = mcs("mcs/none", "enforced");
        assert_eq!((label(&none, None), label(&none, Some("secret"))), (Some(None), Some(None)), "it has no effect");
    }

    #[test]
    fn enforced_labels_have_defaults() {
        assert_eq!(label(&mcs("mcs/user", "enforced,select"), None), is("alice"));
        assert_eq!(label(&mcs("mcs/account", "enforced"), None), is("lab"));
        assert_eq!(label(&mcs("mcs/group", "enforced"), None), is("users"));
        assert_eq!(label(&mcs("mcs/group", "enforced:staff|physics"), None), is("physics"));
        assert_eq!(label(&mcs("mcs/group", "enforced:staff|physics"), Some("users")), None);
        assert_eq!(label(&mcs("mcs/group", "enforced:admin"), None), None);
        assert_eq!(label(&mcs("mcs/label", "enforced"), None), None, "there is no label to choose");
        let nobody = Labelled { user: "alice", groups: &[], account: None };
        assert_eq!(mcs("mcs/account", "enforced").label(None, nobody), None);
    }

    #[test]
    fn nodes_are_kept_to_labels_always_never_or_on_demand() {
        let shared = |parameters: &str, wish, has| mcs("mcs/label", parameters).sharing(wish, has);
        assert_eq!(shared("", Sharing::Mcs, true), Sharing::Mcs);
        assert_eq!(shared("", Sharing::Default, true), Sharing::Default);
        assert_eq!(shared("noselect", Sharing::Mcs, true), Sharing::Default);
        assert_eq!(shared("select", Sharing::Default, true), Sharing::Mcs);
        assert_eq!(shared("select", Sharing::Default, false), Sharing::Default);
        assert_eq!(shared("select", Sharing::Exclusive, true), Sharing::Exclusive);
        assert_eq!(shared("select", Sharing::User, true), Sharing::Exclusive);
        assert_eq!(mcs("mcs/user", "select").sharing(Sharing::User, true), Sharing::Mcs);
        assert_eq!(shared("", Sharing::Mcs, false), Sharing::Default);
    }

    #[test]
    fn unknown_words_are_refused_and_privatedata_is_named() {
        let mut mcs = Mcs::default();
        assert_eq!(mcs.set_parameters("enforced,select,privatedata").unwrap(), Some("privatedata"));
        assert_eq!((mcs.enforced, mcs.select), (true, McsSelect::Always));
        assert!(mcs.set_parameters("enforce").is_err());
        assert!(mcs.set_plugin("mcs/colour").is_err());
        mcs.set_parameters("ondemand,noselect:a|b|c").unwrap();
        let keys = |plugin: &str, given| {
            let mcs = Mcs { plugin: PLUGINS.iter().find(|(name, _)| *name == plugin).unwrap().1, ..mcs.clone() };
            mcs.doubts(given).into_iter().map(|(key, _)| key).collect::<Vec<_>>()
        };
        assert_eq!((keys("mcs/group", true), keys("mcs/none", false)), (vec![], vec![]));
        assert_eq!((keys("mcs/none", true), keys("mcs/user", true)), (vec!["MCSParameters"], vec!["MCSParameters"]));
        assert_eq!(keys("mcs/account", true), ["MCSPlugin"]);
        assert_eq!(mcs.groups, ["a", "b", "c"]);
    }
}
