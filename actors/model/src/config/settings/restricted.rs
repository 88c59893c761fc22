//! `RestrictedCoresPerGPU`: which cores of a node are for jobs with one of its GPUs only.

use crate::{
    config::syntax::{report::SettingError, values::Value},
    gres::{GPU, GresEntry, place_of_device},
    node_shape::NodeShape,
    resources::CpuSet,
};

/// So many cores near to each GPU of the node, by number of the GPU. GPUs with few cores near to them choose first, each the
/// lowest cores that no other has.
pub(in crate::config) fn cpus_of_gpus(
    node: &str,
    shape: &NodeShape,
    entries: &[GresEntry],
    cores: u32,
) -> Value<Vec<CpuSet>> {
    let of_gpus: Vec<&GresEntry> = entries.iter().filter(|entry| entry.name == GPU).collect();
    let gpus: u64 = of_gpus.iter().map(|entry| entry.count).sum();
    let gpus = u32::try_from(gpus).unwrap_or(u32::MAX);
    if gpus == 0 {
        let wrong = SettingError::new(format!("node {node} has no GPUs"));
        return Err(wrong.suggest("Gres=gpu:COUNT, or leave RestrictedCoresPerGPU out"));
    }
    if of_gpus.iter().any(|entry| !entry.devices) {
        return Err(SettingError::new(format!("which GPUs of node {node} a job has is only counted")));
    }
    let mut near = Vec::new();
    for gpu in 0..gpus {
        let cpus = place_of_device(entries, GPU, gpu).map(|place| &place.cpus).filter(|cpus| !cpus.is_empty());
        let Some(cpus) = cpus else {
            let wrong = SettingError::new(format!("gres.conf says of GPU {gpu} of node {node} no Cores"));
            return Err(wrong.suggest("Cores= for each GPU of the node"));
        };
        let own: CpuSet = cpus.iter().map(|cpu| shape.core_of_cpu(cpu)).collect();
        let free = |core: &u32| shape.cpus_of_core(*core).all(|cpu| !shape.reserved_cpus.contains(cpu));
        near.push(own.iter().filter(free).collect::<Vec<u32>>());
    }
    let mut order: Vec<usize> = (0..near.len()).collect();
    order.sort_by_key(|gpu| near[*gpu].len());
    let mut taken = CpuSet::new();
    let mut of_gpu = vec![CpuSet::new(); near.len()];
    for gpu in order {
        let own: Vec<u32> = near[gpu].iter().copied().filter(|core| !taken.contains(*core)).collect();
        if own.len() < cores as usize {
            let wrong = SettingError::new(format!(
                "of the cores near to GPU {gpu} of node {node} {} are left for it",
                own.len()
            ));
            return Err(wrong.suggest("fewer cores per GPU, or more in Cores= of gres.conf"));
        }
        for core in own.into_iter().take(cores as usize) {
            taken.insert(core);
            shape.cpus_of_core(core).for_each(|cpu| _ = of_gpu[gpu].insert(cpu));
        }
    }
    Ok(of_gpu)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::config::read_files;
    use std::path::Path;

    fn read(node: &str, gres: &str) -> Result<Vec<String>, Vec<String>> {
        let slurm = format!(
            "ClusterName=c\nSlurmctldHost=a\nPartitionName=p Nodes=ALL\nGresTypes=gpu\n\
             NodeName=n[1-2] Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 {node}\n"
        );
        let files = [("/x/slurm.conf", slurm.as_str()), ("/x/gres.conf", gres)];
        let (config, report) = read_files(Path::new("/x/slurm.conf"), &files);
        let said = || report.problems.iter().map(ToString::to_string).collect::<Vec<String>>();
        let config = config.ok_or_else(said)?;
        let shape = &config.node("n2").unwrap().settings.shape;
        Ok(shape.gpu_cpus.iter().map(ToString::to_string).collect())
    }

    const GRES: &str = "Name=gpu File=/dev/x[0-1] Cores=0-3\nName=gpu File=/dev/x2 Cores=4-7\n";

    #[test]
    fn each_gpu_has_the_lowest_cores_near_to_it_that_no_other_has() {
        assert_eq!(read("Gres=gpu:3 RestrictedCoresPerGPU=1", GRES).unwrap(), ["0-1", "2-3", "8-9"]);
        assert_eq!(read("Gres=gpu:3 RestrictedCoresPerGPU=2", GRES).unwrap(), ["0-3", "4-7", "8-11"]);
        assert_eq!(read("Gres=gpu:3", GRES).unwrap(), Vec::<String>::new());
        let spared = read("Gres=gpu:3 CpuSpecList=0 RestrictedCoresPerGPU=1", GRES);
        assert_eq!(spared.unwrap(), ["2-3", "4-5", "8-9"]);
        let narrow = "Name=gpu File=/dev/x0 Cores=0-3\nName=gpu File=/dev/x1 Cores=0\n";
        assert_eq!(read("Gres=gpu:2 RestrictedCoresPerGPU=1", narrow).unwrap(), ["2-3", "0-1"]);
    }

    #[test]
    fn more_than_the_node_has_is_said_once_with_its_place() {
        for (node, gres, cause) in [
            ("RestrictedCoresPerGPU=1", "", "node n1 has no GPUs"),
            ("Gres=gpu:3 RestrictedCoresPerGPU=3", GRES, "of the cores near to GPU 1 of node n1 1 are left for it"),
            ("Gres=gpu:1 RestrictedCoresPerGPU=1", "Name=gpu File=/dev/x0\n", "says of GPU 0 of node n1 no Cores"),
            ("Gres=gpu:1 RestrictedCoresPerGPU=x", GRES, "\"x\""),
        ] {
            let said = read(node, gres).unwrap_err();
            let errors: Vec<&String> = said.iter().filter(|text| text.contains("error: RestrictedCores")).collect();
            assert_eq!(errors.len(), 1, "{said:?}");
            assert!(errors[0].starts_with("/x/slurm.conf:5") && errors[0].contains(cause), "{said:?}");
        }
    }
}
