//! Slurm's error numbers: what programs and sites' scripts name them by, and what is said for them.

/// A line each: number, name (`-`: none that scripts have), text. As `scontrol errnumstr` and the `slurm` table of
/// `job_submit.lua` have them in Slurm 26.05.
const NUMBERS: &str = include_str!("error_numbers.txt");

/// An error of Slurm's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlurmError {
    /// Its number.
    pub number: i32,
    /// `ESLURM_ACCESS_DENIED`; `None`: scripts have no name for it.
    pub name: Option<&'static str>,
    /// What is said.
    pub text: &'static str,
}

/// All of them, by ascending number.
pub fn all() -> impl Iterator<Item = SlurmError> {
    NUMBERS.lines().filter_map(|line| {
        let mut words = line.splitn(3, ' ');
        let (number, name, text) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
        Some(SlurmError { number, name: Some(name).filter(|name| *name != "-"), text })
    })
}

/// What is said for a number; `None`: Slurm has no error of that number.
pub fn text(number: i32) -> Option<&'static str> {
    all().find(|error| error.number == number).map(|error| error.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_an_error() {
        assert_eq!(all().count(), NUMBERS.lines().count());
        assert!(all().is_sorted_by(|a, b| a.number < b.number));
        assert_eq!(text(2000), Some("Invalid partition name specified"));
        assert!(all().any(|error| error.name == Some("ESLURM_INVALID_PARTITION_NAME") && error.number == 2000));
        assert_eq!(text(1), None);
    }
}
