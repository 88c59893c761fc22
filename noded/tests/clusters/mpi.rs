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
    assert_eq!(a.out, "MPI plugin types are...\n\tnone\n\tpmi2\n");
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

/// A program linked with MPICH; `None` where that is not installed.
fn built_with_mpich(c: &Cluster) -> Option<PathBuf> {
    let (source, program) = (c.work.join("sums.c"), c.work.join("sums"));
    std::fs::write(&source, SUMS_RANKS).unwrap();
    let built = Command::new("mpicc.mpich").arg(&source).arg("-o").arg(&program).output();
    match built {
        Ok(built) => {
            assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
            Some(program)
        }
        Err(e) => {
            eprintln!("skipped: mpicc.mpich: {e}");
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
    let Some(program) = built_with_mpich(&c) else { return };
    assert_sums(&c.run("srun", &["-N4", "-n8", "--mpi=pmi2", program.to_str().unwrap()]).ok().out);
    let line = format!("srun -m cyclic --mpi=pmi2 {0}; mpirun.mpich {0} >by-mpirun", program.display());
    assert_sums(&c.run("salloc", &["-N4", "-n8", "sh", "-c", &line]).ok().out);
    assert_sums(&c.read("by-mpirun"));
}
