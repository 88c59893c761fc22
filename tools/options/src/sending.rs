//! Options about the program's way to the nodes (`srun --bcast`).

use super::{
    table::{
        Arg::{Optional, Required},
        OptionDef, RUN,
    },
    typed::TypedBcast,
};

/// The options.
pub const OPTIONS: &[OptionDef] = &[
    OptionDef::new("bcast", None, Optional("dest"), RUN, "copy the executable to the nodes", |t, g| {
        t.bcast.dest = g.string()?;
        Ok(())
    })
    .env(&["SLURM_BCAST"]),
    OptionDef::new("bcast-exclude", None, Required("paths"), RUN, "libraries not to copy", |t, g| {
        t.bcast.exclude = g.string()?;
        Ok(())
    })
    .env(&["SLURM_BCAST_EXCLUDE"]),
    OptionDef::new("compress", None, Optional("library"), RUN, "compress a broadcast file", |t, g| {
        t.bcast.compress = Some(g.value.map(|name| name.to_string_lossy().into_owned()));
        Ok(())
    })
    .env(&["SLURM_COMPRESS"]),
    OptionDef::new("send-libs", None, Optional("yes|no"), RUN, "copy libraries with a broadcast file", |t, g| {
        t.bcast.send_libs = match g.text()?.to_ascii_lowercase().as_str() {
            "" | "yes" => Some(true),
            "no" => Some(false),
            _ => return Err(g.invalid()),
        };
        Ok(())
    })
    .env(&["SLURM_SEND_LIBS"]),
];

impl TypedBcast {
    /// The executable is sent.
    pub const fn is_wanted(&self) -> bool {
        self.dest.is_some()
    }
}
