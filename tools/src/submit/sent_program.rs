//! `srun --bcast`: the program of a step is sent to its nodes once they are known, before it starts there (srun(1)).

use super::{
    file_sending::{self, Manner, Unsent},
    file_settings::{self, Settings},
    shared_objects, startup,
};
use crate::{
    executable::{in_path, is_program},
    options::typed::Typed,
    output::Console,
};
use garrick_asking::{
    cluster::{Answer, Cluster, ClusterError},
    manager::Way,
    search::{Search, Until},
};
use garrick_frame::DoorClient;
use garrick_model::{
    config::Config,
    ids::StepId,
    messages::{
        files::{FileOrder, FileRequest},
        step::{CommandToStepMgr, StepLayout, StepMgrToCommand},
    },
    spec::{EnvEntry, SentProgram as Sent, StepSpec},
};
use serde_bytes::ByteBuf;
use std::{
    ffi::OsStr,
    fs::File,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

/// A program on its way.
#[derive(Debug)]
pub struct SentProgram<'a> {
    step: StepId,
    way: Way,
    /// As it is called in messages.
    name: PathBuf,
    files: Vec<(PathBuf, FileOrder)>,
    manner: Manner,
    width: u16,
    console: &'a Console,
}

/// What the site and the options say about it. Remarks are said.
fn settings(typed: &Typed, config: Option<&Config>, console: &Console) -> Settings {
    let mut remarks = Vec::new();
    let mut settings = Settings::of_site(config);
    if let Some(name) = &typed.bcast.compress {
        settings.packed = file_settings::compression(name.as_deref(), &mut remarks);
    }
    if let Some(exclude) = &typed.bcast.exclude {
        settings.exclude.clone_from(exclude);
    }
    settings.send_libs = typed.bcast.send_libs.unwrap_or(settings.send_libs);
    remarks.iter().for_each(|remark| remark.tell(console));
    settings
}

impl<'a> SentProgram<'a> {
    /// Reserves the step's number at this door and makes the step one of a program that is sent. The error is the exit code, when
    /// everything has been said. `None`: its program is not to be sent.
    pub fn prepare(
        typed: &Typed,
        console: &'a Console,
        way: Way,
        door: &mut DoorClient,
        spec: &mut StepSpec,
    ) -> Result<Option<Self>, i32> {
        let wanted = typed.bcast.is_wanted();
        if !wanted && typed.bcast.compress.is_none() {
            return Ok(None);
        }
        let cluster = Cluster::find(typed.conf.as_deref()).ok();
        let config = cluster.as_ref().map(Cluster::config);
        let settings = settings(typed, config, console);
        let Some(dest) = typed.bcast.dest.as_deref().filter(|_| wanted) else { return Ok(None) };
        if spec.script.is_some() || !spec.multi_prog.is_empty() {
            console.error("--bcast with --batch or --multi-prog is not supported yet");
            return Err(startup::exit_code(1));
        }
        let folder = PathBuf::from(spec.work_dir.as_deref().unwrap_or("/"));
        let program = spec.argv.first().map(|name| OsStr::from_bytes(name).to_owned()).unwrap_or_default();
        let found = find(&folder, &program).ok_or_else(|| {
            console.fatal(format_args!("Can not execute {}", program.display()));
            startup::exit_code(1)
        })?;
        let step = reserve(door).map_err(|error| {
            console.error(format_args!("Unable to create step for job {}: {error}", way.job()));
            startup::exit_code(1)
        })?;
        let (to, named_by_node) = destination(dest, step, config, &folder);
        let mut this = Self {
            step,
            way,
            name: folder.join(&program),
            files: Vec::new(),
            manner: settings.manner(config),
            width: settings.tree_width(),
            console,
        };
        this.files = this.files(&found, &to, named_by_node, &settings)?;
        if settings.send_libs {
            add_library_folder(&mut spec.environment, &shared_objects::folder_of(&to));
        }
        spec.argv[0] = ByteBuf::from(to.as_os_str().as_bytes());
        spec.sent = Some(Sent { named_by_node });
        Ok(Some(this))
    }

    fn files(
        &self,
        from: &Path,
        to: &Path,
        named_by_node: bool,
        settings: &Settings,
    ) -> Result<Vec<(PathBuf, FileOrder)>, i32> {
        let order = |from: &Path, to: &Path| from.metadata().map(|found| file_sending::order(to, &found, true, true));
        let program = order(from, to).map_err(|error| self.aborted(&format!("{}: {error}", from.display())))?;
        let mut files = vec![(from.to_owned(), FileOrder { named_by_node, ..program })];
        if settings.send_libs {
            let folder = shared_objects::folder_of(to);
            for object in shared_objects::needed(from, &settings.excluded()) {
                let Some(name) = object.file_name() else { continue };
                let one = order(&object, &folder.join(name));
                let one = one.map_err(|error| self.aborted(&format!("{}: {error}", object.display())))?;
                files.push((object, FileOrder { folders: true, ..one }));
            }
        }
        Ok(files)
    }

    fn aborted(&self, why: &str) -> i32 {
        self.console.error(why);
        let name = self.name.display();
        self.console.fatal(format_args!("Failed to broadcast '{name}'. Step launch aborted."));
        startup::exit_code(1)
    }

    /// Sends it to the nodes of the step, over a conversation of its own. The error is the exit code, when everything has been
    /// said.
    pub fn send(&self, layout: &StepLayout) -> Result<(), i32> {
        for (from, order) in &self.files {
            let request = FileRequest {
                step: Some(self.step),
                nodes: layout.nodes.clone(),
                file: order.clone(),
                width: self.width,
            };
            let mut search = Search::new(self.way.clone(), self.console);
            let door = search.begin(Until::default()).map_err(|no_way| no_way.into_error().to_string());
            let mut door = door.map_err(|why| self.aborted(&why))?;
            let mut file = File::open(from).map_err(|e| self.aborted(&format!("{}: {e}", from.display())))?;
            match file_sending::send(&mut door, request, &mut file, self.manner, |_| {}) {
                Ok(_) => {}
                Err(Unsent::Nodes(failures)) => {
                    let said: Vec<String> = failures.iter().map(file_sending::failure_text).collect();
                    let (last, others) = said.split_last().ok_or_else(|| self.aborted("no node has it"))?;
                    others.iter().for_each(|line| self.console.error(line));
                    return Err(self.aborted(last));
                }
                Err(Unsent::Source(error)) => return Err(self.aborted(&format!("{}: {error}", from.display()))),
                Err(other) => return Err(self.aborted(&ClusterError::from(other).to_string())),
            }
        }
        Ok(())
    }
}

/// The program as it is here: in the step's folder if it is named by a path, else in `PATH`.
fn find(folder: &Path, program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(folder.join(program)).filter(|path| is_program(path));
    }
    in_path(program)
}

/// Where it goes, and whether its name ends with the node's.
fn destination(typed: &str, step: StepId, config: Option<&Config>, work_dir: &Path) -> (PathBuf, bool) {
    let path = Path::new(typed);
    if path.is_absolute() && !typed.ends_with('/') {
        return (path.to_owned(), false);
    }
    let folder = if path.is_absolute() { Some(path.to_owned()) } else { file_settings::dest_dir(config) };
    let folder = folder.unwrap_or_else(|| work_dir.to_owned());
    (folder.join(format!("slurm_bcast_{step}")), true)
}

/// The linker looks there first.
fn add_library_folder(environment: &mut Vec<EnvEntry>, folder: &Path) {
    let name = b"LD_LIBRARY_PATH=";
    let folder = folder.as_os_str().as_bytes();
    match environment.iter_mut().find(|entry| entry.starts_with(name)) {
        Some(entry) => {
            let before = entry[name.len()..].to_vec();
            let parts: [&[u8]; 4] = [name, folder, if before.is_empty() { b"" } else { b":" }, &before];
            *entry = ByteBuf::from(parts.concat());
        }
        None => environment.push(ByteBuf::from([name, folder].concat())),
    }
}

fn reserve(door: &mut DoorClient) -> Answer<StepId> {
    door.send(&CommandToStepMgr::ReserveStep { at_least: 0 })?;
    match door.recv()? {
        StepMgrToCommand::Reserved { step } => Ok(step),
        StepMgrToCommand::Refused(refusal) => Err(refusal.into()),
        _ => Err(ClusterError::Unexpected("asked for the number of a step")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_a_folder_the_sites_or_the_steps_folder_is_the_destination() {
        let step: StepId = "7.3".parse().unwrap();
        let text =
            "ClusterName=c\nSlurmctldHost=h\nNodeName=n1\nPartitionName=p Nodes=n1\nBcastParameters=DestDir=/scratch\n";
        let config = garrick_model::config::read_text(Path::new("/c"), text).0.unwrap();
        let to = |typed, config| {
            let (path, named) = destination(typed, step, config, Path::new("/home/a"));
            (path.display().to_string(), named)
        };
        assert_eq!(to("/tmp/x", None), ("/tmp/x".to_owned(), false));
        assert_eq!(to("/tmp/", Some(&config)), ("/tmp/slurm_bcast_7.3".to_owned(), true));
        assert_eq!(to("", Some(&config)), ("/scratch/slurm_bcast_7.3".to_owned(), true));
        assert_eq!(to("", None), ("/home/a/slurm_bcast_7.3".to_owned(), true));
        assert_eq!(to("x", None), ("/home/a/slurm_bcast_7.3".to_owned(), true));
    }

    #[test]
    fn the_folder_of_libraries_comes_first() {
        let entries = |list: &[&str]| list.iter().map(|entry| ByteBuf::from(*entry)).collect::<Vec<_>>();
        let added = |list: &[&str]| {
            let mut environment = entries(list);
            add_library_folder(&mut environment, Path::new("/l"));
            environment
        };
        assert_eq!(added(&["A=1"]), entries(&["A=1", "LD_LIBRARY_PATH=/l"]));
        assert_eq!(added(&["LD_LIBRARY_PATH=/x:/y"]), entries(&["LD_LIBRARY_PATH=/l:/x:/y"]));
        assert_eq!(added(&["LD_LIBRARY_PATH="]), entries(&["LD_LIBRARY_PATH=/l"]));
    }
}
