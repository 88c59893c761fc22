//! Text forms of generic resources: `Gres=` of `slurm.conf` (`gpu:h100:4,bandwidth:lustre:no_consume:4G`), `--gres`
//! (`gpu:h100:2,craynetwork`), `--gpus` (`h100:2`) and `--tres-per-task` (`gres/gpu:1`), as `gres.conf(5)`, `slurm.conf(5)`
//! and `sbatch(1)` write them.

use crate::gres::{GPU, GpuBind, GresCount, GresEntry};

/// Text that names no generic resources.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GresTextError {
    /// Not a list of them.
    #[error("\"{0}\" is not a generic resource: expected NAME[:TYPE][:COUNT]")]
    Malformed(String),
    /// Understood, and not built.
    #[error("{0} is not supported yet")]
    NotSupported(String),
}

/// GRES of Slurm that are parts of others, which Garrick does not divide yet.
const SHARING: [&str; 1] = ["mps"];

/// A whole number with `K`, `M`, `G`, `T` or `P` for powers of 1024.
pub fn count(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        "P" => 50,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn word(text: &str) -> bool {
    // What begins with a minus is a number below 0.
    !text.is_empty()
        && !text.starts_with('-')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'+' | b'/'))
}

fn supported(name: &str) -> Result<(), GresTextError> {
    if SHARING.contains(&name) {
        return Err(GresTextError::NotSupported(format!("GRES {name} (parts of a GPU)")));
    }
    Ok(())
}

/// `name[:type][:count]`.
fn one(text: &str) -> Result<GresCount, GresTextError> {
    let wrong = || GresTextError::Malformed(text.to_owned());
    let mut parts = text.split(':');
    let name = parts.next().filter(|name| word(name)).ok_or_else(wrong)?;
    let (kind, amount) = match (parts.next(), parts.next(), parts.next()) {
        (None, ..) => (None, 1),
        (Some(only), None, _) => match count(only) {
            Some(n) => (None, n),
            None => (Some(only), 1),
        },
        (Some(kind), Some(n), None) => (Some(kind), count(n).ok_or_else(wrong)?),
        _ => return Err(wrong()),
    };
    if !kind.is_none_or(word) {
        return Err(wrong());
    }
    supported(name)?;
    Ok(GresCount { name: name.to_owned(), kind: kind.map(str::to_owned), count: amount })
}

fn add(all: &mut Vec<GresCount>, asked: GresCount) {
    match all.iter_mut().find(|known| known.name == asked.name && known.kind == asked.kind) {
        Some(known) => known.count = known.count.saturating_add(asked.count),
        None => all.push(asked),
    }
}

/// `--gres`: what is named twice counts together. `none` is nothing, which is [`None`].
pub fn request(text: &str) -> Result<Option<Vec<GresCount>>, GresTextError> {
    if text.trim().eq_ignore_ascii_case("none") {
        return Ok(None);
    }
    let mut all = Vec::new();
    for part in text.split(',').map(str::trim) {
        let bare = part.strip_prefix("gres/").or_else(|| part.strip_prefix("gres:")).unwrap_or(part);
        add(&mut all, one(bare)?);
    }
    Ok(Some(all))
}

/// `--gpus` and its relatives: `[type:]count`, several with commas.
pub fn gpus(text: &str) -> Result<Vec<GresCount>, GresTextError> {
    let mut all = Vec::new();
    for part in text.split(',').map(str::trim) {
        let asked = one(&format!("{GPU}:{part}")).map_err(|_| GresTextError::Malformed(text.to_owned()))?;
        // A type alone is not a number of GPUs.
        if part.is_empty() || (asked.kind.is_some() && !part.contains(':')) {
            return Err(GresTextError::Malformed(text.to_owned()));
        }
        add(&mut all, asked);
    }
    Ok(all)
}

/// `--tres-per-task`: GRES are `gres/name[:type][:count]` or with `=`. CPUs are answered apart.
pub fn tres_per_task(text: &str) -> Result<(Vec<GresCount>, Option<u32>), GresTextError> {
    let wrong = || GresTextError::Malformed(text.to_owned());
    let (mut all, mut cpus) = (Vec::new(), None);
    for part in text.split(',').map(str::trim) {
        let part = part.replace('=', ":");
        if let Some(gres) = part.strip_prefix("gres/").or_else(|| part.strip_prefix("gres:")) {
            add(&mut all, one(gres)?);
        } else if let Some(n) = part.strip_prefix("cpu:") {
            cpus = Some(n.parse().ok().filter(|n| *n > 0).ok_or_else(wrong)?);
        } else if part.starts_with("license") || part.starts_with("bb/") || part.starts_with("mem") {
            return Err(GresTextError::NotSupported(format!("--tres-per-task={part}")));
        } else {
            return Err(wrong());
        }
    }
    Ok((all, cpus))
}

/// `Gres=` of a node: `name[:type][:no_consume]:count`, with an optional list of sockets in brackets, which says nothing
/// that `gres.conf` does not.
pub fn entries(text: &str) -> Result<Vec<GresEntry>, GresTextError> {
    let mut all: Vec<GresEntry> = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let bare = part.split_once('(').map_or(part, |(bare, _)| bare);
        let words: Vec<&str> = bare.split(':').collect();
        let no_consume = words.iter().any(|w| w.eq_ignore_ascii_case("no_consume"));
        let rest: Vec<&str> = words.into_iter().filter(|w| !w.eq_ignore_ascii_case("no_consume")).collect();
        let GresCount { name, kind, count } = one(&rest.join(":"))?;
        match all.iter_mut().find(|known| known.name == name && known.kind == kind) {
            Some(known) => known.count = known.count.saturating_add(count),
            None => all.push(GresEntry {
                name,
                kind,
                count,
                no_consume,
                devices: false,
                places: Vec::new(),
                shards: Vec::new(),
            }),
        }
    }
    // Devices of a name follow each other whatever the order they are written in.
    let order: Vec<String> = all.iter().map(|e| e.name.clone()).collect();
    all.sort_by_key(|e| order.iter().position(|name| *name == e.name));
    Ok(all)
}

/// `--gpu-bind`, an optional `verbose,` in front of it.
pub fn gpu_bind(text: &str) -> Result<GpuBind, GresTextError> {
    let lower = text.trim().to_ascii_lowercase();
    let lower = lower.strip_prefix("verbose,").or_else(|| lower.strip_prefix("v,")).unwrap_or(&lower);
    let wrong = || GresTextError::Malformed(text.to_owned());
    let (word, value) = lower.split_once(':').map_or((lower, None), |(word, value)| (word, Some(value)));
    let number = |value: Option<&str>| value.and_then(|v| v.parse::<u32>().ok()).filter(|n| *n > 0).ok_or_else(wrong);
    Ok(match word {
        "none" if value.is_none() => GpuBind::None,
        "per_task" => GpuBind::PerTask(number(value)?),
        "single" => GpuBind::Single(number(value)?),
        "map_gpu" | "map" => {
            let numbers = value.ok_or_else(wrong)?.split(',').map(|n| repeated(n, |n| n.parse::<u32>().ok()));
            GpuBind::Map(numbers.collect::<Option<Vec<_>>>().ok_or_else(wrong)?.concat())
        }
        "mask_gpu" | "mask" => {
            let mask = |text: &str| u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok();
            let masks = value.ok_or_else(wrong)?.split(',').map(|m| repeated(m, mask));
            GpuBind::Mask(masks.collect::<Option<Vec<_>>>().ok_or_else(wrong)?.concat())
        }
        "closest" if value.is_none() => GpuBind::Closest,
        _ => return Err(wrong()),
    })
}

/// `n` or `n*times`.
fn repeated<T: Clone>(text: &str, read: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    /// More entries than a node can have tasks mean nothing.
    const MOST: usize = 65_535;
    let (one, times) = match text.split_once('*') {
        Some((one, times)) => (one, times.parse().ok().filter(|n| (1..=MOST).contains(n))?),
        None => (text, 1),
    };
    Some(vec![read(one)?; times])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::gres::list;

    #[test]
    fn requests_name_types_and_counts() {
        let text = |t: &str| request(t).unwrap().map(|all| list(&all));
        assert_eq!(text("gpu").unwrap(), "gpu:1");
        assert_eq!(text("gpu:2").unwrap(), "gpu:2");
        assert_eq!(text("gpu:h100").unwrap(), "gpu:h100:1");
        assert_eq!(text("gres/gpu:h100:2,craynetwork,gpu:1").unwrap(), "gpu:h100:2,craynetwork:1,gpu:1");
        assert_eq!(text("bandwidth:lustre:4G,gpu:1,gpu:1").unwrap(), "bandwidth:lustre:4294967296,gpu:2");
        assert_eq!(text("none"), None);
        for wrong in ["", ",", "gpu:", "gpu::1", "gpu:h100:x", "gpu:a:1:2", "g pu", "gpu,"] {
            assert!(request(wrong).is_err(), "{wrong}");
        }
        assert!(request("gpu:-1").is_err() && request("gpu:h100:-1").is_err());
        assert!(matches!(request("mps:1"), Err(GresTextError::NotSupported(_))));
    }

    #[test]
    fn numbers_of_gpus_may_name_types() {
        assert_eq!(list(&gpus("2").unwrap()), "gpu:2");
        assert_eq!(list(&gpus("h100:2,a100:1").unwrap()), "gpu:h100:2,gpu:a100:1");
        for wrong in ["", "h100", "2,", "a:b:1", "-1", "h100:-1"] {
            assert!(gpus(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn nodes_have_them_by_name_and_type() {
        let all = entries("gpu:h100:4(S:0-1),bandwidth:lustre:no_consume:4G,craynetwork:1,gpu:a100:2").unwrap();
        assert_eq!(list(&all), "gpu:h100:4,gpu:a100:2,bandwidth:lustre:no_consume:4G,craynetwork:1");
        assert!(entries("gpu:no:such:4").is_err());
    }

    #[test]
    fn tasks_may_ask_for_cpus_with_them() {
        let (gres, cpus) = tres_per_task("cpu=2,gres/gpu:h100:1").unwrap();
        assert_eq!((list(&gres).as_str(), cpus), ("gpu:h100:1", Some(2)));
        assert!(matches!(tres_per_task("license/x:1"), Err(GresTextError::NotSupported(_))));
        assert!(tres_per_task("gpu").is_err());
    }

    #[test]
    fn bindings_are_read() {
        assert_eq!(gpu_bind("per_task:2"), Ok(GpuBind::PerTask(2)));
        assert_eq!(gpu_bind("verbose,single:3"), Ok(GpuBind::Single(3)));
        assert_eq!(gpu_bind("map_gpu:0*2,1"), Ok(GpuBind::Map(vec![0, 0, 1])));
        assert_eq!(gpu_bind("mask_gpu:0x3,4"), Ok(GpuBind::Mask(vec![3, 4])));
        assert_eq!(gpu_bind("closest").unwrap(), GpuBind::Closest);
        for text in ["none", "per_task:2", "single:3", "map_gpu:0,0,1", "mask_gpu:0x3,0x4", "closest"] {
            assert_eq!(gpu_bind(text).unwrap().to_string(), text);
        }
        for wrong in ["", "per_task", "single:0", "map_gpu:", "map_gpu:a", "near"] {
            assert!(matches!(gpu_bind(wrong), Err(GresTextError::Malformed(_))), "{wrong}");
        }
    }
}
