//! Environments and settings that the launcher keeps under numbers, so that what thousands of tasks share is encoded and sent
//! once. An environment has layers, each set over the one before. Steps share layers. Layers that were sent are recognised by
//! their content, so steps that were made separately share them too.

use crate::env_entry::entry;
use garrick_model::{
    config::PropagatePriority,
    env_vars::{self, GARRICK_STEPD_DOOR},
    messages::{
        launcher::{TaskSetting, ToLauncher},
        shepherd::StepLaunch,
    },
    spec::{EnvEntry, SiteOfSrun},
};
use std::{collections::HashMap, hash::Hash, sync::Arc};

/// How many of each kind the launcher keeps; an environment takes some kilobytes there.
const KEPT: usize = 64;
/// How many recent launches are recognised without comparing their content.
const RECENT: usize = 8;

/// Values by content, with the number under which they were sent.
#[derive(Debug)]
struct Kept<T> {
    /// Number, and when it was used last.
    known: HashMap<T, (u32, u64)>,
    next: u32,
    uses: u64,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { known: HashMap::new(), next: 1, uses: 0 }
    }
}

/// What the launcher must be told first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lookup {
    /// The number.
    id: u32,
    /// The value must be sent first.
    new: bool,
    /// This number is to be dropped.
    dropped: Option<u32>,
}

impl<T: Hash + Eq + Clone> Kept<T> {
    /// The number of a value. When there are too many, the least recently used one is dropped.
    fn get(&mut self, thing: &T) -> Lookup {
        self.uses += 1;
        if let Some((id, used)) = self.known.get_mut(thing) {
            *used = self.uses;
            return Lookup { id: *id, new: false, dropped: None };
        }
        let full = self.known.len() >= KEPT;
        let oldest = self.known.iter().filter(|_| full).min_by_key(|(_, (_, used))| *used).map(|(t, _)| t.clone());
        let dropped = oldest.and_then(|t| self.known.remove(&t)).map(|(id, _)| id);
        let id = self.next;
        self.next += 1;
        self.known.insert(thing.clone(), (id, self.uses));
        Lookup { id, new: true, dropped }
    }
}

/// What a step's tasks here are started with, as received.
#[derive(Clone, Debug)]
struct Recent {
    launch: Arc<StepLaunch>,
    env: Arc<Vec<EnvEntry>>,
    node_env: Arc<Vec<EnvEntry>>,
    setting: u32,
}

/// The settings that the launcher keeps.
#[derive(Debug)]
pub struct LauncherSettings {
    /// Second layer of all environments: the address of this process, and programs of the site.
    door: Arc<Vec<EnvEntry>>,
    /// How the nice value of the submitting command is used.
    priority: PropagatePriority,
    environments: Kept<(Option<u32>, Arc<Vec<EnvEntry>>)>,
    settings: Kept<TaskSetting>,
    /// The latest, in order of use.
    recent: Vec<Recent>,
}

impl LauncherSettings {
    /// For tasks that find this process at `door`, and what their `srun`s run of the site.
    pub fn new(door: &str, priority: PropagatePriority, srun: &SiteOfSrun) -> Self {
        let mut all = vec![entry(GARRICK_STEPD_DOOR, door)];
        all.extend(env_vars::of_srun(srun).iter().map(|(name, value)| entry(name, value)));
        Self {
            door: Arc::new(all),
            priority,
            environments: Kept::default(),
            settings: Kept::default(),
            recent: Vec::new(),
        }
    }

    /// The number of the setting for tasks of a launch with these layers of variables; `tell` gets what the launcher must know
    /// before a task that names it.
    pub fn get(
        &mut self,
        launch: &Arc<StepLaunch>,
        env: &Arc<Vec<EnvEntry>>,
        node_env: &Arc<Vec<EnvEntry>>,
        mut tell: impl FnMut(ToLauncher),
    ) -> u32 {
        let same = |r: &Recent| {
            Arc::ptr_eq(&r.launch, launch) && Arc::ptr_eq(&r.env, env) && Arc::ptr_eq(&r.node_env, node_env)
        };
        if let Some(at) = self.recent.iter().position(same) {
            self.recent[..=at].rotate_right(1);
            return self.recent[0].setting;
        }
        let mut environment = None;
        for layer in [&launch.environment, &self.door, env, node_env] {
            if layer.is_empty() {
                continue;
            }
            let lookup = self.environments.get(&(environment, Arc::clone(layer)));
            if let Some(id) = lookup.dropped {
                tell(ToLauncher::DropEnvironment { id });
            }
            if lookup.new {
                tell(ToLauncher::SetEnvironment { id: lookup.id, over: environment, entries: Arc::clone(layer) });
            }
            environment = Some(lookup.id);
        }
        let setting = TaskSetting {
            environment: environment.unwrap_or_default(),
            work_dir: launch.work_dir.clone(),
            umask: launch.umask,
            nice: self.priority.of(launch.process_nice),
            rlimits: launch.rlimits.iter().map(|l| (l.resource, l.soft)).collect(),
        };
        let lookup = self.settings.get(&setting);
        if let Some(id) = lookup.dropped {
            self.recent.retain(|r| r.setting != id);
            tell(ToLauncher::DropSetting { id });
        }
        if lookup.new {
            tell(ToLauncher::SetSetting { id: lookup.id, setting });
        }
        self.recent.truncate(RECENT - 1);
        let (launch, env, node_env) = (Arc::clone(launch), Arc::clone(env), Arc::clone(node_env));
        self.recent.insert(0, Recent { launch, env, node_env, setting: lookup.id });
        lookup.id
    }

    /// Forgets all numbers: a new launcher, or a new connection to one, knows none.
    pub fn forget(&mut self) {
        let door = Arc::clone(&self.door);
        *self = Self {
            door,
            priority: self.priority,
            environments: Kept::default(),
            settings: Kept::default(),
            recent: Vec::new(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{shepherd::adoption::unknown_launch, stepmgr::builders::bytes};

    fn layer(entries: &[&str]) -> Arc<Vec<EnvEntry>> {
        Arc::new(entries.iter().map(|e| bytes(e)).collect())
    }

    fn launch(entries: &[&str], work_dir: &str) -> Arc<StepLaunch> {
        Arc::new(StepLaunch { environment: layer(entries), work_dir: work_dir.into(), ..unknown_launch() })
    }

    fn get(settings: &mut LauncherSettings, launch: &Arc<StepLaunch>, env: &Arc<Vec<EnvEntry>>) -> (u32, Vec<String>) {
        let mut told = Vec::new();
        let none = layer(&[]);
        // Either only the node has variables, or only the step.
        let node_env = if env.is_empty() { env } else { &none };
        let id = settings.get(launch, env, node_env, |m| told.push(m));
        let names = told.iter().map(|m| match m {
            ToLauncher::SetEnvironment { id, over, .. } => format!("environment {id} over {over:?}"),
            ToLauncher::SetSetting { id, setting } => format!("setting {id} with {}", setting.environment),
            ToLauncher::DropEnvironment { id } => format!("drop environment {id}"),
            ToLauncher::DropSetting { id } => format!("drop setting {id}"),
            other => format!("{other:?}"),
        });
        (id, names.collect())
    }

    #[test]
    fn equal_layers_are_sent_once() {
        let mut settings = LauncherSettings::new("/run/door", PropagatePriority::No, &SiteOfSrun::default());
        let (first, told) = get(&mut settings, &launch(&["A=1"], "/home"), &layer(&["B=1"]));
        let sent =
            ["environment 1 over None", "environment 2 over Some(1)", "environment 3 over Some(2)", "setting 1 with 3"];
        assert_eq!((first, told), (1, sent.map(String::from).to_vec()));
        assert_eq!(get(&mut settings, &launch(&["A=1"], "/home"), &layer(&["B=1"])), (1, Vec::new()));
        let (second, told) = get(&mut settings, &launch(&["A=1"], "/home"), &layer(&["B=2"]));
        let sent = ["environment 4 over Some(2)", "setting 2 with 4"];
        assert_eq!((second, told), (2, sent.map(String::from).to_vec()));
        let (third, told) = get(&mut settings, &launch(&["A=1"], "/tmp"), &layer(&["B=1"]));
        assert_eq!((third, told), (3, vec!["setting 3 with 3".to_owned()]));
    }

    #[test]
    fn the_same_start_is_known_again_without_a_look() {
        let mut settings = LauncherSettings::new("/run/door", PropagatePriority::No, &SiteOfSrun::default());
        let (one, two, env) = (launch(&["A=1"], "/a"), launch(&["A=1"], "/b"), layer(&[]));
        let ids = [&one, &two, &one, &two].map(|l| get(&mut settings, l, &env).0);
        assert_eq!(ids, [1, 2, 1, 2]);
        assert_eq!(settings.recent.len(), 2);
        settings.forget();
        assert_eq!(get(&mut settings, &one, &env).1.len(), 3);
    }

    #[test]
    fn what_was_not_used_for_longest_is_dropped() {
        let mut settings = LauncherSettings::new("/run/door", PropagatePriority::No, &SiteOfSrun::default());
        let env = layer(&[]);
        for n in 0..KEPT {
            let (_, told) = get(&mut settings, &launch(&["A=1"], &format!("/{n}")), &env);
            assert!(!told.iter().any(|t| t.starts_with("drop")), "{told:?}");
        }
        get(&mut settings, &launch(&["A=1"], "/0"), &env);
        let (_, told) = get(&mut settings, &launch(&["A=1"], "/new"), &env);
        assert_eq!(told, ["drop setting 2", &format!("setting {} with 2", KEPT + 1)]);
        let (_, told) = get(&mut settings, &launch(&["A=1"], "/1"), &env);
        assert_eq!(told.len(), 2, "it is sent anew: {told:?}");
    }
}
