//! Options of commands: in full of those that make jobs and steps, and how those of the others are taken apart.
//!
//! | module | what it is |
//! |---|---|
//! | [`table`] | what an option is; [`size`], [`placement`], [`layout`], [`timing`], [`streams`], [`behaviour`], [`minibatch`], [`waiting`], [`unsupported`] hold them |
//! | [`getopt`] | splits arguments into options and the rest |
//! | [`arguments`] | arguments of the query and control commands |
//! | [`script_lines`] | `#SBATCH` lines of a batch script |
//! | [`sources`] | combines script lines, environment and command line |
//! | [`typed`] | the result: the values of all options |
//! | [`values`] | texts of single options |
//! | [`export`] | `--export`: the environment that is passed on |
//! | [`limits`] | resource limits and file mode mask that are passed on |
//! | [`job_spec`], [`step_spec`] | checks options and turns them into a job or step |
//! | [`stream_plan`] | where a step's streams go |
//! | [`origin`] | properties of the submitting process that are passed on |
//! | [`light`] | parses the arguments of the light `srun`, in the step manager |
//! | [`defined`] | what `-v` lists of the options |
//! | [`help`] | `--help` and `--usage` |

pub mod arguments;
pub mod behaviour;
pub mod defined;
pub mod export;
pub mod filtered;
pub mod getopt;
pub mod gres;
pub mod help;
pub mod job_spec;
pub mod layout;
pub mod light;
pub mod limits;
pub mod minibatch;
pub mod near;
pub mod origin;
pub mod placement;
pub mod script_lines;
pub mod sending;
pub mod size;
pub mod sources;
pub mod step_spec;
pub mod stream_plan;
pub mod streams;
pub mod table;
pub mod timing;
pub mod typed;
pub mod unsupported;
pub mod values;
pub mod waiting;
