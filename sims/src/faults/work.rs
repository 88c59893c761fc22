//! The jobs: the parts of each, its script, and how every part is to end. All of it follows from the seed.
//!
//! A step is identified by its job's serial number and its index in the job, whatever numbers Garrick gives. Job and step write
//! to the witness's log (see [`super::witness`]) when they begin and when they end.

use super::site::{Site, write_program};
use crate::minibatch::cluster::ClusterError;
use garrick_simulator::random::Random;
use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

/// Seconds that a lasting step takes, as its program is told.
pub const LASTING: &str = "12";
/// So many of them a job has that lasts: it has two CPUs on each node.
const LASTING_STEPS: u32 = 6;

/// One job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPlan {
    /// Its number here.
    pub serial: u32,
    /// Nodes.
    pub nodes: u32,
    /// Steps that the script waits for, one after the other.
    pub blocking: u32,
    /// Steps of a list.
    pub list: u32,
    /// Steps of an array.
    pub array: u32,
    /// Steps of an array that are over all nodes of the job.
    pub wide: u32,
    /// These take [`LASTING`] each, so that the job lasts longer than half a minute.
    pub lasts: bool,
    /// May run again where it was lost.
    pub requeue: bool,
    /// Is cancelled while it runs.
    pub cancel: bool,
}

impl JobPlan {
    /// Draws one. `may_last`: it may be one that lasts.
    pub fn draw(serial: u32, steps: u32, may_last: bool, random: &mut Random) -> Self {
        let steps = steps.max(4);
        let blocking = random.between(1, 4.min(steps / 2));
        let lasts = may_last && steps >= 2 * LASTING_STEPS && random.one_in_thousand(60);
        let nodes = match random.between(0, 9) {
            0 => 3,
            1..=3 => 2,
            _ if lasts => 2,
            _ => 1,
        };
        let wide = match nodes {
            1 => 0,
            _ if lasts => LASTING_STEPS,
            _ => random.between(1, (steps - blocking) / 2),
        };
        let rest = steps - blocking - wide;
        let list = match random.between(0, 3) {
            0 => 0,
            1 => rest,
            _ => random.between(1, rest),
        };
        Self {
            serial,
            nodes,
            blocking,
            list,
            array: rest - list,
            wide,
            lasts,
            requeue: random.one_in_thousand(100),
            cancel: random.one_in_thousand(40),
        }
    }

    /// All its steps.
    pub const fn steps(&self) -> u32 {
        self.blocking + self.list + self.array + self.wide
    }

    /// Tasks of a step.
    pub const fn tasks_of(&self, index: u32) -> u32 {
        if index >= self.blocking + self.list + self.array {
            self.nodes
        } else if self.nodes > 1 && index < self.blocking && index.is_multiple_of(2) {
            2
        } else {
            1
        }
    }

    /// Job name.
    pub fn name(&self) -> String {
        format!("f{}", self.serial)
    }

    /// What its script exits with.
    pub const fn exit_code(&self) -> u8 {
        if self.serial.is_multiple_of(9) { (self.serial % 5) as u8 + 1 } else { 0 }
    }

    /// Options of `sbatch`.
    pub fn options(&self, home: &Path) -> Vec<String> {
        let mut all = vec![
            "--parsable".to_owned(),
            format!("--job-name={}", self.name()),
            format!("--nodes={}", self.nodes),
            format!("--ntasks={}", 2 * self.nodes),
            "--mem=500".to_owned(),
            format!("--chdir={}", home.display()),
            format!("--output={}/out/{}", home.display(), self.name()),
        ];
        all.push(if self.requeue { "--requeue" } else { "--no-requeue" }.to_owned());
        all
    }

    /// Its script.
    pub fn script(&self, works: &Works) -> String {
        let Works { bin, witness, step } = works;
        let (bin, witness, step) = (bin.display(), witness.display(), step.display());
        let serial = self.serial;
        let mut s = format!(
            "#!/bin/bash\nsay() {{ echo \"$@\" >> {witness}; }}\n\
             say B {serial} $SLURM_JOB_SLUID $SLURM_JOB_ID ${{SLURM_RESTART_COUNT:-0}} $$\n"
        );
        let hand_over = |s: &mut String, first: u32, count: u32, command: String| {
            if count > 0 {
                let _ = writeln!(
                    s,
                    "ids=$({command}) && say A {serial} $SLURM_JOB_SLUID {first} {count} \"$ids\" || say N {serial} $SLURM_JOB_SLUID {first}"
                );
            }
        };
        let (list, array) = (self.blocking, self.blocking + self.list);
        let (wide, nodes) = (array + self.array, self.nodes);
        let each = format!("--mem=20 -o {}/out/{}.steps --open-mode=append", works.home().display(), self.name());
        hand_over(
            &mut s,
            list,
            self.list,
            format!(
                "seq {list} {} | sed 's|^|{step} {serial} |' | {bin}/srun --async --parsable {each} --from-file -",
                (list + self.list).saturating_sub(1)
            ),
        );
        hand_over(
            &mut s,
            array,
            self.array,
            format!(
                "{bin}/srun --async --parsable {each} --array={array}-{} {step} {serial}",
                (array + self.array).saturating_sub(1)
            ),
        );
        let lasting = if self.lasts { LASTING } else { "" };
        hand_over(
            &mut s,
            wide,
            self.wide,
            format!(
                "{bin}/srun --async --parsable {each} -N{nodes} -n{nodes} --ntasks-per-node=1 --array={wide}-{} {step} {serial} '' {lasting}",
                (wide + self.wide).saturating_sub(1)
            ),
        );
        for index in 0..self.blocking {
            let shape = if self.tasks_of(index) == 2 { "-N2 -n2" } else { "-N1 -n1" };
            let _ = writeln!(
                s,
                "{bin}/srun {shape} --exact --mem=20 {step} {serial} {index}; say R {serial} $SLURM_JOB_SLUID {index} $?"
            );
        }
        let _ = write!(
            s,
            "n=0; until {bin}/swait; do n=$((n+1)); [ $n -ge 100 ] && break; sleep 0.3; done\n\
             say F {serial} $SLURM_JOB_SLUID {code}\nexit {code}\n",
            code = self.exit_code()
        );
        s
    }
}

/// What a step exits with.
pub const fn step_code(serial: u32, index: u32) -> u8 {
    let x = (index * 31 + serial * 17) % 23;
    if x < 3 { x as u8 + 1 } else { 0 }
}

/// Where the work's files are.
#[derive(Clone, Debug)]
pub struct Works {
    /// Commands.
    pub bin: PathBuf,
    /// The file that all write to.
    pub witness: PathBuf,
    /// The program of every step.
    pub step: PathBuf,
}

impl Works {
    /// Writes the steps' program.
    pub fn prepare(site: &Site) -> Result<Self, ClusterError> {
        let works = Self { bin: site.bin(), witness: site.home.join("witness"), step: site.home.join("step.sh") };
        // A pause for some: most steps are as short as can be, some last long enough to be hit.
        let text = format!(
            "#!/bin/sh\ni=${{2:-$SLURM_STEP_ARRAY_TASK_ID}}\n\
             w=\"$1 $SLURM_JOB_SLUID $i $SLURM_STEP_ID ${{SLURM_STEP_ARRAY_TASK_ID:--}} $SLURM_PROCID ${{GARRICK_STEP_RETRY:-0}} $$\"\n\
             echo \"S $w\" >> {witness}\n\
             x=$(( (i * 31 + $1 * 17) % 23 ))\nc=0\n[ $x -lt 3 ] && c=$((x + 1))\n\
             [ -n \"$3\" ] && sleep $3\n\
             case $(( (i * 7 + $1) % 40 )) in 1) sleep 2;; 2|3) sleep 0.5;; 4|5|6|7) sleep 0.1;; esac\n\
             echo \"E $w $c\" >> {witness}\nexit $c\n",
            witness = works.witness.display()
        );
        write_program(&works.step, &text)?;
        Ok(works)
    }

    fn home(&self) -> &Path {
        self.witness.parent().unwrap_or(Path::new("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_the_steps_that_were_asked_for() {
        let mut random = Random::new(1);
        let (mut wide, mut lasting) = (0, 0);
        for serial in 0..200 {
            let plan = JobPlan::draw(serial, 25, true, &mut random);
            assert_eq!(plan.steps(), 25);
            assert!(plan.blocking > 0, "{plan:?}");
            assert_eq!(plan.wide > 0, plan.nodes > 1, "{plan:?}");
            assert_eq!(plan.tasks_of(24), plan.nodes, "{plan:?}");
            wide += u32::from(plan.wide > 0);
            lasting += u32::from(plan.lasts);
            assert!(!JobPlan::draw(serial, 25, false, &mut random).lasts);
        }
        assert!(wide > 50 && lasting > 3, "{wide} {lasting}");
    }
}
