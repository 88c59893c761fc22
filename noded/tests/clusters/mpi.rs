//! MPI programs: tasks that speak PMI with their nodes, and MPICH's own start-up where it is installed.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::Cluster;
use std::{path::PathBuf, process::Command};

const UP: &[&str] = &["--nodes", "4", "--cpus", "4", "--memory", "1000"];

/// PMI version 1 as a task speaks it, in a shell: each tells its rank, and reads those of all others.
const SPEAKS_PMI: &str = r#"#!/bin/bash
ask() { printf '%s\n' "$1" >&$PMI_FD; IFS= read -r -u $PMI_FD answer; }
ask 'cmd=init pmi_version=1 pmi_subversion=1'
[ "$answer" = 'cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1' ] || exit 11
ask 'cmd=get_my_kvsname'
name=${answer#*kvsname=}
for round in 1 2; do
    ask "cmd=put kvsname=$name key=rank-$PMI_RANK-$round value=task $PMI_RANK on $SLURMD_NODENAME, $round"
    [ "$answer" = 'cmd=put_result rc=0' ] || exit 12
    ask 'cmd=barrier_in'
    [ "$answer" = 'cmd=barrier_out rc=0' ] || exit 13
    for ((rank = 0; rank < PMI_SIZE; rank++)); do
        ask "cmd=get kvsname=$name key=rank-$rank-$round"
        echo "$PMI_RANK ${answer#*value=}"
    done
done
ask 'cmd=get kvsname=x key=PMI_process_mapping'
echo "$PMI_RANK ${answer#*value=}"
ask 'cmd=finalize'
[ "$answer" = 'cmd=finalize_ack rc=0' ] || exit 14
"#;

fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn tasks_on_four_nodes_tell_each_other_over_pmi() {
    let c = Cluster::up("pmi", UP);
    let script = c.script("speaks-pmi", SPEAKS_PMI);
    let a = c.run("srun", &["-N4", "-n8", "--ntasks-per-node=2", "--mpi=pmi2", script.to_str().unwrap()]).ok();
    let mut expected = Vec::new();
    for reader in 0..8 {
        for round in 1..=2 {
            expected.extend((0..8).map(|rank| format!("{reader} task {rank} on n{}, {round}", rank / 2 + 1)));
        }
        expected.push(format!("{reader} (vector,(0,4,2))"));
    }
    expected.sort();
    assert_eq!(sorted(&a.out), expected, "{a:?}");
    // Round robin, by the variable, in an allocation.
    let words = [
        "-N2",
        "-n4",
        "--ntasks-per-node=2",
        "sh",
        "-c",
        &format!("SLURM_MPI_TYPE=pmi2 srun -m cyclic {}", script.display()),
    ];
    let a = c.run("salloc", &words).ok();
    assert!(a.out.contains("3 (vector,(0,2,1),(0,2,1))"), "{a:?}");
}

#[test]
fn a_task_that_leaves_an_mpi_program_early_ends_its_step() {
    let c = Cluster::up("pmi-abort", UP);
    let leaves = "#!/bin/bash\nprintf 'cmd=init pmi_version=1 pmi_subversion=1\\n' >&$PMI_FD\nread -r -u $PMI_FD answer\n\
                  [ $PMI_RANK = 3 ] && exit 7\nprintf 'cmd=barrier_in\\n' >&$PMI_FD\nread -r -u $PMI_FD answer\n";
    let script = c.script("leaves", leaves);
    let a = c.run("srun", &["-N4", "-n4", "--mpi=pmi2", script.to_str().unwrap()]);
    assert_ne!(a.code, 0, "{a:?}");
    assert!(a.err.contains("ABORTED BY TASK 3: it ended before the end of its MPI program"), "{a:?}");
    let a = c.run("srun", &["--mpi=nosuch", "true"]);
    assert_eq!(
        (a.code, a.err.as_str()),
        (1, "srun: error: Invalid MPI type 'nosuch', --mpi=list for acceptable types\n")
    );
    let a = c.run("srun", &["--mpi=list"]).ok();
    assert_eq!(a.out, "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\n");
}

const SUMS_RANKS: &str = r#"#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
    int rank, size, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("%d of %d: %d\n", rank, size, sum);
    MPI_Finalize();
    return 0;
}
"#;

/// A program built with that MPI's compiler; `None` where that is not installed.
fn built(c: &Cluster, compiler: &str, name: &str, text: &str) -> Option<PathBuf> {
    let (source, program) = (c.work.join(format!("{name}.c")), c.work.join(name));
    std::fs::write(&source, text).unwrap();
    let built = Command::new(compiler).arg(&source).arg("-o").arg(&program).output();
    match built {
        Ok(built) => {
            assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
            Some(program)
        }
        Err(e) => {
            eprintln!("skipped: {compiler}: {e}");
            None
        }
    }
}

fn assert_sums(out: &str) {
    let expected: Vec<String> = (0..8).map(|rank| format!("{rank} of 8: 28")).collect();
    assert_eq!(sorted(out), expected);
}

#[test]
fn programs_of_mpich_start_by_srun_and_by_mpirun_in_a_job() {
    let c = Cluster::up("mpich", UP);
    let Some(program) = built(&c, "mpicc.mpich", "sums", SUMS_RANKS) else { return };
    assert_sums(&c.run("srun", &["-N4", "-n8", "--mpi=pmi2", program.to_str().unwrap()]).ok().out);
    let line = format!("srun -m cyclic --mpi=pmi2 {0}; mpirun.mpich {0} >by-mpirun", program.display());
    assert_sums(&c.run("salloc", &["-N4", "-n8", "sh", "-c", &line]).ok().out);
    assert_sums(&c.read("by-mpirun"));
}

/// Ends in the way that its first argument names, after all tasks have met.
const ENDS: &str = r#"#include <mpi.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv) {
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 3) {
        if (!strcmp(argv[1], "abort")) MPI_Abort(MPI_COMM_WORLD, 5);
        _Exit(7);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
"#;

/// Nodes of one machine have one name for Open MPI, which therefore must not use shared memory between their tasks.
const OVER_TCP: &str = "--export=ALL,OMPI_MCA_btl=^vader,OMPI_MCA_btl_tcp_if_include=lo,OMPI_MCA_mpi_yield_when_idle=1";

#[test]
fn programs_of_open_mpi_start_by_srun_over_pmix() {
    let c = Cluster::up("open-mpi", UP);
    let Some(program) = built(&c, "mpicc.openmpi", "sums", SUMS_RANKS) else { return };
    let program = program.to_str().unwrap();
    let start = |words: &[&str]| c.run("srun", &[&[OVER_TCP, "--mpi=pmix"], words].concat());
    assert_sums(&start(&["-N4", "-n8", program]).ok().out);
    assert_sums(&start(&["-N2", "-n8", "-m", "cyclic", program]).ok().out);
    // A program that does not use it is none the worse for it, and one task is a step as well.
    assert_eq!(start(&["-N4", "-n8", "sh", "-c", "echo $PMIX_RANK"]).ok().out.lines().count(), 8);
    assert_eq!(start(&["-n1", program]).ok().out, "0 of 1: 0\n");
}

#[test]
fn mpirun_of_open_mpi_starts_its_daemons_as_steps_of_the_job() {
    let c = Cluster::up("mpirun", UP);
    let Some(program) = built(&c, "mpicc.openmpi", "sums", SUMS_RANKS) else { return };
    // Tests may run as root, which Open MPI refuses without being told twice.
    let allowed = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1";
    let line = format!(
        "env {allowed} OMPI_MCA_btl=^vader OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_mpi_yield_when_idle=1 mpirun.openmpi {}",
        program.display()
    );
    assert_sums(&c.run("salloc", &["-N4", "-n8", "sh", "-c", &line]).ok().out);
}

#[test]
fn a_step_with_pmix_ends_with_the_task_that_breaks_off() {
    let c = Cluster::up("pmix-ends", UP);
    let Some(program) = built(&c, "mpicc.openmpi", "ends", ENDS) else { return };
    for (how, said) in [("abort", "ABORTED BY TASK 3"), ("exit", "it ended before the end of its MPI program")] {
        let a = c.run("srun", &[OVER_TCP, "-N4", "-n4", "--mpi=pmix", program.to_str().unwrap(), how]);
        assert!(a.code != 0 && a.err.contains(said), "{a:?}");
    }
}

#[test]
fn a_node_without_the_library_of_pmix_says_so() {
    let c = Cluster::up("no-pmix", UP);
    // Found before that of the system, and not a library.
    c.script("libpmix.so.2", "");
    let folder = format!("--export=ALL,LD_LIBRARY_PATH={}", c.work.display());
    let a = c.run("srun", &[&folder, "-N2", "-n4", "--mpi=pmix", "true"]);
    assert!(a.code != 0 && a.err.contains("libpmix.so.2 cannot be loaded"), "{a:?}");
    assert!(a.err.contains("install it (Debian: libpmix2) on every node"), "{a:?}");
}

#[test]
fn tasks_find_each_other_as_the_site_says_where_srun_does_not() {
    let c = Cluster::up_with("pmi-default", UP, |_| "MpiDefault=pmi2".to_owned());
    let script = c.script("asks", "#!/bin/sh\necho ${PMI_FD:+over PMI}\n");
    let script = script.to_str().unwrap();
    assert_eq!(c.run("srun", &[script]).ok().out, "over PMI\n");
    assert_eq!(c.run("srun", &["--mpi=none", script]).ok().out, "\n");
    // In jobs, where srun reads no configuration.
    let words = ["sh", "-c", &format!("srun {script}; SLURM_MPI_TYPE=none srun {script}")];
    assert_eq!(c.run("salloc", &words).ok().out, "over PMI\n\n");
    let job = c.shell(&format!("sbatch -o out --wrap 'srun {script}; srun --mpi=none {script}'")).ok().job();
    c.await_state(&job, "COMPLETED");
    assert_eq!(c.read("out"), "over PMI\n\n");
}
