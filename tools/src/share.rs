//! What an installation has below `share`: man pages, completions, pages of docs.

use crate::{
    complete::shells,
    manual::{man, topics},
};

/// The files: paths below `share`, and what is in them.
pub fn files() -> Vec<(String, String)> {
    let pages = man::pages().into_iter().map(|page| (format!("man/{}", page.path), page.text));
    let topics = topics::PAGES.iter().map(|(name, text)| (format!("doc/garrick/{name}.md"), (*text).to_owned()));
    pages.chain(shells::files()).chain(topics).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_pages_and_completions_of_every_command() {
        let files = files();
        for path in [
            "man/man1/sbatch.1",
            "man/man5/slurm.conf.5",
            "bash-completion/completions/squeue",
            "zsh/site-functions/_srun",
            "fish/vendor_completions.d/scontrol.fish",
            "doc/garrick/minibatch.md",
        ] {
            assert!(files.iter().any(|(name, text)| name == path && !text.is_empty()), "{path}");
        }
    }
}
