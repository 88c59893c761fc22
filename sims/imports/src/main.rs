//! Prints import cycles between folders, for crates by their root files: `garrick-imports FILE...`.

use garrick_imports::{against, imports};
use std::{collections::BTreeSet, env, error::Error, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    for root in env::args().skip(1) {
        let imports = imports(Path::new(&root))?;
        let edges = imports.between_folders();
        let both = |(from, to): &&(String, String)| edges.contains_key(&(to.clone(), from.clone()));
        let real = |(from, to): &&(String, String)| imports.real.contains(from) || imports.real.contains(to);
        let pairs: BTreeSet<_> = edges.keys().filter(|(from, to)| from < to).filter(both).filter(real).collect();
        println!("{root}: {} folders that import from each other", pairs.len());
        for (from, to) in against(&edges, &imports.real) {
            println!("    {from} -> {to} ({})", edges[&(from.clone(), to.clone())]);
        }
    }
    Ok(())
}
