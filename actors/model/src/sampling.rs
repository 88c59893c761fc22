//! How often it is looked at what runs: `--acctg-freq` of srun(1), and `JobAcctGatherFrequency` of slurm.conf(5).

/// Reads seconds, or a list of `type=seconds`. The answer is that of tasks, which a number alone means too; `None`: nothing is
/// said of them.
///
/// # Errors
/// The part that is no such thing.
pub fn task_secs(text: &str) -> Result<Option<u32>, &str> {
    let mut of_tasks = None;
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (kind, number) = part.split_once('=').unwrap_or(("task", part));
        let secs = number.parse::<u32>().ok().filter(|_| number.bytes().all(|b| b.is_ascii_digit())).ok_or(part)?;
        match kind {
            "task" => of_tasks = Some(secs),
            "energy" | "network" | "filesystem" => {}
            _ => return Err(part),
        }
    }
    Ok(of_tasks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_alone_is_that_of_tasks() {
        assert_eq!(task_secs("30"), Ok(Some(30)));
        assert_eq!(task_secs("energy=5,task=0,network=1,"), Ok(Some(0)));
        assert_eq!((task_secs(""), task_secs("filesystem=7")), (Ok(None), Ok(None)));
        for wrong in ["x", "+3", "task=", "task=5s", "memory=3", "Task=5", "99999999999"] {
            assert_eq!(task_secs(wrong), Err(wrong));
        }
        assert_eq!(task_secs("task=5,x=3"), Err("x=3"));
    }
}
