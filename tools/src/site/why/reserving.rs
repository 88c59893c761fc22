//! For which jobs plans reserve resources, according to the configuration.

/// For whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reserving {
    /// Everybody whom a plan looks at.
    #[default]
    Everybody,
    /// The first so many of a partition, by this parameter.
    First(usize, &'static str),
    /// Nobody, by this one: jobs start in their order.
    Nobody(&'static str),
}

impl Reserving {
    /// By the pairs of `scontrol show config`.
    pub fn of(pairs: &[(String, String)]) -> Self {
        let shown = |key: &str| pairs.iter().find(|(known, _)| known == key).map_or("", |(_, value)| value.as_str());
        let words: Vec<(&str, &str)> =
            shown("SchedulerParameters").split(',').filter_map(|word| word.trim().split_once('=')).collect();
        let value = |name: &str| words.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, v)| *v);
        let number = |name: &str| value(name).and_then(|text| text.parse::<usize>().ok());
        match (value("bf_algorithm"), number("bf_job_part_count_reserve")) {
            _ if shown("SchedulerType") == "sched/builtin" => Self::Nobody("SchedulerType=sched/builtin"),
            _ if value("bf_interval") == Some("-1") => Self::Nobody("bf_interval=-1"),
            (Some("easy"), _) => Self::First(number("bf_reservations").unwrap_or(1), "bf_algorithm=easy"),
            (_, Some(most @ 1..)) => Self::First(most, "bf_job_part_count_reserve"),
            _ => Self::Everybody,
        }
    }

    /// Why a job that so many are before has no room reserved. `None`: not for that.
    pub fn why_not(self, before: usize) -> Option<String> {
        match self {
            Self::Nobody(rule) if before == 0 => Some(format!(
                "room is reserved for nobody ({rule}): it is the first, and starts as soon as there is room for it"
            )),
            Self::Nobody(rule) => {
                Some(format!("room is reserved for nobody ({rule}): jobs start in order, and it is not its turn yet"))
            }
            Self::First(most, rule) if before >= most => {
                let whom = if most == 1 { "job".to_owned() } else { format!("{most} jobs") };
                Some(format!(
                    "no room is reserved for it: only the first {whom} of a partition that cannot start has that ({rule}); \
                     it starts as soon as there is room for it that takes nothing from them"
                ))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: &str, parameters: &str) -> Reserving {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        Reserving::of(&[pair("SchedulerParameters", parameters), pair("SchedulerType", kind)])
    }

    #[test]
    fn the_parameters_say_for_whom() {
        let backfill = "sched/backfill";
        assert_eq!(of(backfill, "(null)"), Reserving::Everybody);
        assert_eq!(of(backfill, "bf_window=60,bf_algorithm=easy"), Reserving::First(1, "bf_algorithm=easy"));
        assert_eq!(of(backfill, "bf_algorithm=easy,bf_reservations=3"), Reserving::First(3, "bf_algorithm=easy"));
        let partition = Reserving::First(2, "bf_job_part_count_reserve");
        assert_eq!(of(backfill, "bf_job_part_count_reserve=2"), partition);
        assert_eq!(of(backfill, "bf_job_part_count_reserve=0"), Reserving::Everybody);
        assert_eq!(of(backfill, "bf_interval=-1,bf_algorithm=easy"), Reserving::Nobody("bf_interval=-1"));
        assert_eq!(of("sched/builtin", "(null)"), Reserving::Nobody("SchedulerType=sched/builtin"));
    }
}
