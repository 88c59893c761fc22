//! The time to start 64 tasks on four nodes: of `/bin/true`, and of a program that begins and ends its MPI, as `srun` starts it and
//! as the MPI's own launcher does without a cluster.

use super::seconds;
use crate::minibatch::{
    cluster::{Embedded, Stage, fresh_home, remove, run},
    figures::{Findings, median},
    inside::Fallible,
};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

const NODES: usize = 4;
const TASKS: usize = 64;
/// Starts of each kind, in turns.
const ROUNDS: usize = 3;

const PROGRAM: &str = "#include <mpi.h>\nint main(int c, char **v) { MPI_Init(&c, &v); MPI_Finalize(); return 0; }\n";

/// An MPI that may be installed.
struct Mpi {
    name: &'static str,
    compiler: &'static str,
    launcher: &'static [&'static str],
    option: &'static str,
}

const MPIS: [Mpi; 2] = [
    Mpi { name: "MPICH", compiler: "mpicc.mpich", launcher: &["mpiexec.mpich"], option: "--mpi=pmi2" },
    Mpi {
        name: "Open MPI",
        compiler: "mpicc.openmpi",
        launcher: &["mpirun.openmpi", "--oversubscribe"],
        option: "--mpi=pmix",
    },
];

/// Nodes of one machine have one name for Open MPI, which therefore must not use shared memory between their tasks; and it refuses
/// to be started by root. There are more tasks than CPUs: who waits lets others go first.
const VARIABLES: [(&str, &str); 5] = [
    ("OMPI_MCA_btl", "^vader"),
    ("OMPI_MCA_btl_tcp_if_include", "lo"),
    ("OMPI_MCA_mpi_yield_when_idle", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
];

/// One of the starts that are compared.
struct Start {
    what: String,
    words: Vec<String>,
    by_srun: bool,
    times: Vec<f64>,
}

impl Start {
    fn new(what: String, words: Vec<String>, by_srun: bool) -> Self {
        Self { what, words, by_srun, times: Vec::new() }
    }

    fn once(&mut self, cluster: &Embedded) -> Fallible<()> {
        let mut command = if self.by_srun { cluster.command("srun") } else { Command::new(&self.words[0]) };
        command.args(&self.words[usize::from(!self.by_srun)..]).envs(VARIABLES);
        self.times.push(seconds(&mut command)?);
        Ok(())
    }
}

/// The program of that MPI; `None` where it is not installed.
fn built(mpi: &Mpi, folder: &Path) -> Fallible<Option<PathBuf>> {
    if Command::new(mpi.compiler).arg("--version").output().is_err() {
        return Ok(None);
    }
    let (source, program) = (folder.join("start.c"), folder.join(mpi.compiler));
    std::fs::write(&source, PROGRAM)?;
    run(Command::new(mpi.compiler).arg(&source).arg("-o").arg(&program))?;
    Ok(Some(program))
}

/// Measures. An MPI that is not installed is left out, and that is said.
pub fn start() -> Fallible<Findings> {
    let folder = fresh_home("start")?;
    let found = in_folder(&folder);
    remove(&folder)?;
    found
}

fn in_folder(folder: &Path) -> Fallible<Findings> {
    let mut found = Findings::default();
    let cluster = Embedded::up(NODES, Some(TASKS / NODES))?;
    let sized = |more: &[&str], program: &str| {
        let size = [format!("-N{NODES}"), format!("-n{TASKS}")];
        size.into_iter()
            .chain(more.iter().map(|word| (*word).to_owned()))
            .chain([program.to_owned()])
            .collect::<Vec<_>>()
    };
    let mut starts = vec![Start::new("srun /bin/true".to_owned(), sized(&[], "/bin/true"), true)];
    for mpi in MPIS {
        let Some(program) = built(&mpi, folder)? else {
            found.note(format!("{} is not installed: {} is missing", mpi.name, mpi.compiler));
            continue;
        };
        let program = program.to_string_lossy().into_owned();
        let words = sized(&[mpi.option], &program);
        starts.push(Start::new(format!("srun {} with {}", mpi.option, mpi.name), words, true));
        let tasks = TASKS.to_string();
        let words = mpi.launcher.iter().copied().chain(["-n", &tasks, &program]).map(str::to_owned).collect();
        starts.push(Start::new(format!("{}, on this machine alone", mpi.launcher[0]), words, false));
    }
    for _ in 0..ROUNDS {
        for start in &mut starts {
            start.once(&cluster)?;
        }
    }
    cluster.down()?;
    let bare = median(starts[0].times.clone());
    let rows = starts.into_iter().map(|start| {
        let time = median(start.times);
        vec![start.what, format!("{:.0}", time * 1e3), format!("{:.1}", time / bare)]
    });
    let title = format!("{TASKS} tasks on {NODES} nodes, from the command to its end (median of {ROUNDS})");
    found.table(title, &["", "ms", "of the bare launch"], rows.collect());
    Ok(found)
}
