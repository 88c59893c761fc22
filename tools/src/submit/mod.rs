//! Commands that make jobs and steps.
//!
//! | module | what it is |
//! |---|---|
//! | [`sbatch`], [`salloc`], [`srun`], [`swait`], [`attach`], [`sbcast`], [`sgather`], [`scrontab`] | the commands |
//! | [`startup`] | their common start: options, help, messages about them |
//! | [`filter`] | the site's filters of options |
//! | [`submitter`] | properties of this process that are passed on with a job or step |
//! | [`het`] | heterogeneous jobs: components separated by ` : ` |
//! | [`parts`] | a step over several components: the parts as one step |
//! | [`allocation`], [`allocation_wait`] | an allocation while it is waited for: its changes; watching it |
//! | [`job_variables`] | `SLURM_JOB_*` for the command of `salloc` |
//! | [`command_process`] | the command of `salloc` |
//! | [`step_files`], [`labels`] | a step's streams: the files, `-l` |
//! | [`minibatch`] | minibatch steps: one, an array, a list |
//! | [`multi_prog`] | `--multi-prog` files |
//! | [`launch`], [`conversation`], [`step_loop`] | `srun` and its step: the request; decisions; the poll loop around them |
//! | [`light`] | a step that the light `srun` had begun |
//! | [`file_sending`], [`file_settings`], [`shared_objects`], [`sent_program`] | a file to nodes, what is asked for, what a program needs beside it, and `srun --bcast` |
//! | [`way_back`] | returns to a step manager that was lost |
//! | [`task_report`] | messages about the ends of a step's tasks |
//! | [`no_step`] | messages when there is no step |

pub mod allocation;
pub mod allocation_wait;
pub mod attach;
pub mod command_process;
pub mod conversation;
pub mod file_sending;
pub mod file_settings;
pub mod filter;
pub mod het;
pub mod job_variables;
pub mod labels;
pub mod launch;
pub mod light;
pub mod minibatch;
pub mod multi_prog;
pub mod no_step;
pub mod parts;
pub mod salloc;
pub mod sbatch;
pub mod sbcast;
pub mod scrontab;
pub mod sent_program;
pub mod sgather;
pub mod shared_objects;
pub mod srun;
pub mod startup;
pub mod step_files;
pub mod step_loop;
pub mod submitter;
pub mod swait;
pub mod task_report;
pub mod way_back;
