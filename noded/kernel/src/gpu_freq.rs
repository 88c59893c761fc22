//! Clocks of the machine's GPUs (srun(1), `--gpu-freq`), set through the library of their driver. What a GPU had is kept in a file
//! while a step has changed it, with whose it is: the last who set it puts it back, also after a crash.

use crate::{
    files::FileError,
    gpu::GpuError,
    kept::{Entry, Kept},
};
use garrick_model::gpu_freq::{GpuClock, GpuFreq};
use std::path::PathBuf;

/// The clocks of a GPU under load, MHz.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// Of its memory.
    pub memory: u32,
    /// Of itself.
    pub gpu: u32,
}

/// Something that sets them. GPUs are known by the numbers of their device files (`/dev/nvidia2`).
pub trait GpuClocks {
    /// What the GPU has.
    fn clocks(&self, gpu: u32) -> Result<Clocks, GpuError>;
    /// What its memory can have, MHz, in any order.
    fn memory_clocks(&self, gpu: u32) -> Result<Vec<u32>, GpuError>;
    /// What it can have itself beside that clock of its memory.
    fn gpu_clocks(&self, gpu: u32, memory: u32) -> Result<Vec<u32>, GpuError>;
    /// Sets both.
    fn set_clocks(&self, gpu: u32, to: Clocks) -> Result<(), GpuError>;
}

/// A GPU whose clocks could not be set or put back.
#[derive(Debug, thiserror::Error)]
pub enum GpuFreqError {
    /// The library, or what it answered.
    #[error("GPU {gpu}: {cause}")]
    Gpu {
        /// Which.
        gpu: u32,
        /// Why not.
        #[source]
        cause: GpuError,
    },
    /// There is no library.
    #[error(transparent)]
    Library(GpuError),
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The driver names no clocks.
    #[error("GPU {0}: its driver names no clocks that it could have")]
    None(u32),
}

/// What GPUs had whose clocks steps have set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptClocks(Kept);

impl Clocks {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let (memory, gpu) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Self { memory, gpu })
    }
}

fn of_gpu(gpu: u32) -> impl Fn(GpuError) -> GpuFreqError {
    move |cause| GpuFreqError::Gpu { gpu, cause }
}

fn sorted(mut all: Vec<u32>) -> Vec<u32> {
    all.sort_unstable();
    all.dedup();
    all
}

impl KeptClocks {
    /// Kept in that folder, which only this daemon writes to.
    pub fn new(kept: impl Into<PathBuf>) -> Self {
        Self(Kept::new(kept.into(), "gpu"))
    }

    /// Sets these GPUs for `owner`. Returns what each has now. The first failure is told when all have been tried.
    ///
    /// # Errors
    /// The library does not do it, or the file of what it had cannot be written.
    pub fn set(
        &self,
        by: &impl GpuClocks,
        gpus: &[u32],
        asked: GpuFreq,
        owner: &str,
    ) -> (Vec<(u32, Clocks)>, Result<(), GpuFreqError>) {
        let mut all = Vec::new();
        let _lock = match self.0.begin() {
            Ok(lock) => lock,
            Err(error) => return (all, Err(error.into())),
        };
        let mut failure = Ok(());
        for gpu in gpus {
            let set = self.set_one(by, *gpu, asked, owner).map(|now| all.push((*gpu, now)));
            failure = failure.and(set);
        }
        (all, failure)
    }

    fn set_one(&self, by: &impl GpuClocks, gpu: u32, asked: GpuFreq, owner: &str) -> Result<Clocks, GpuFreqError> {
        let now = by.clocks(gpu).map_err(of_gpu(gpu))?;
        let before = self.0.get(gpu)?;
        let had = before.as_ref().and_then(|entry| Clocks::parse(&entry.had)).unwrap_or(now);
        let memories = sorted(by.memory_clocks(gpu).map_err(of_gpu(gpu))?);
        // What is not asked for stays as it is.
        let memory = asked.memory.unwrap_or(GpuClock::Mhz(now.memory)).of(&memories).ok_or(GpuFreqError::None(gpu))?;
        let own = sorted(by.gpu_clocks(gpu, memory).map_err(of_gpu(gpu))?);
        let own = asked.gpu.unwrap_or(GpuClock::Mhz(now.gpu)).of(&own).ok_or(GpuFreqError::None(gpu))?;
        let to = Clocks { memory, gpu: own };
        // Before anything changes: a crash must not lose it.
        let had = format!("{} {}", had.memory, had.gpu);
        self.0.put(gpu, &Entry { owner: owner.to_owned(), had })?;
        if let Err(cause) = by.set_clocks(gpu, to) {
            // It is still what those who set it before made of it, if anybody did.
            match before {
                Some(entry) => self.0.put(gpu, &entry)?,
                None => self.0.remove(gpu)?,
            }
            return Err(of_gpu(gpu)(cause));
        }
        Ok(to)
    }

    /// Puts back what the GPUs had that `owner` set last, as far as it is the beginning of who did. The first failure is told when
    /// all have been tried; what could not be put back stays known. `load`: loads the library, where there is something to be put
    /// back.
    ///
    /// # Errors
    /// There is no library or it does not do it, or the files cannot be read.
    pub fn put_back<C: GpuClocks>(
        &self,
        load: impl FnOnce() -> Result<C, GpuError>,
        owner: &str,
    ) -> Result<(), GpuFreqError> {
        if !self.has(owner)? {
            return Ok(());
        }
        let by = load().map_err(GpuFreqError::Library)?;
        let _lock = self.0.lock()?;
        let mut first = Ok(());
        for (gpu, had) in self.0.of(owner)? {
            let Some(had) = Clocks::parse(&had) else { continue };
            let set = by.set_clocks(gpu, had).map_err(of_gpu(gpu));
            first = first.and(set.and_then(|()| Ok(self.0.remove(gpu)?)));
        }
        first
    }

    /// Are there GPUs that `owner` set last, as far as it is the beginning of who did?
    fn has(&self, owner: &str) -> Result<bool, GpuFreqError> {
        Ok(!self.0.of(owner)?.is_empty())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::scratch::Scratch;
    use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

    const BEFORE: Clocks = Clocks { memory: 1593, gpu: 1410 };

    /// GPUs 0 and 1; the slower memory leaves fewer clocks.
    #[derive(Clone)]
    struct Two(Rc<RefCell<BTreeMap<u32, Clocks>>>);

    impl Two {
        fn new() -> Self {
            Self(Rc::new(RefCell::new([(0, BEFORE), (1, BEFORE)].into())))
        }

        fn now(&self, gpu: u32) -> (u32, u32) {
            let now = self.0.borrow()[&gpu];
            (now.memory, now.gpu)
        }
    }

    impl GpuClocks for Two {
        fn clocks(&self, gpu: u32) -> Result<Clocks, GpuError> {
            self.0.borrow().get(&gpu).copied().ok_or(GpuError::Call { call: "clocks", code: 2 })
        }
        fn memory_clocks(&self, _: u32) -> Result<Vec<u32>, GpuError> {
            Ok(vec![1593, 810])
        }
        fn gpu_clocks(&self, _: u32, memory: u32) -> Result<Vec<u32>, GpuError> {
            Ok(if memory == 810 { vec![405, 300] } else { vec![1410, 1200, 900, 600, 300] })
        }
        /// One clock is refused.
        fn set_clocks(&self, gpu: u32, to: Clocks) -> Result<(), GpuError> {
            if to.gpu == 1200 {
                return Err(GpuError::Call { call: "set", code: 4 });
            }
            self.0.borrow_mut().insert(gpu, to);
            Ok(())
        }
    }

    fn asked(text: &str) -> GpuFreq {
        text.parse().unwrap()
    }

    #[test]
    fn gpus_are_set_within_what_they_can_have_and_put_back() {
        let (scratch, gpus) = (Scratch::new("gpu-clocks"), Two::new());
        let kept = KeptClocks::new(scratch.join("kept"));
        let (now, result) = kept.set(&gpus, &[0], asked("medium"), "7.0.");
        result.unwrap();
        assert_eq!(now, [(0, Clocks { memory: 1593, gpu: 900 })]);
        assert_eq!((gpus.now(0), gpus.now(1)), ((1593, 900), (1593, 1410)));
        kept.set(&gpus, &[0], asked("high,memory=low"), "7.1.").1.unwrap();
        assert_eq!(gpus.now(0), (810, 405), "the highest beside the slower memory");
        kept.put_back(|| Ok(gpus.clone()), "7.0.").unwrap();
        assert_eq!(gpus.now(0), (810, 405), "the last who set it puts it back");
        assert!(kept.has("7.").unwrap() && !kept.has("8.").unwrap());
        kept.put_back(|| Ok(gpus.clone()), "7.").unwrap();
        assert_eq!(gpus.now(0), (1593, 1410));
        assert!(!kept.has("7.").unwrap());
    }

    #[test]
    fn who_could_not_set_a_gpu_has_not_set_it() {
        let (scratch, gpus) = (Scratch::new("gpu-refused"), Two::new());
        let kept = KeptClocks::new(scratch.join("kept"));
        assert!(kept.set(&gpus, &[0], asked("1200"), "7.0.").1.is_err());
        assert!(!kept.has("7.").unwrap());
        kept.set(&gpus, &[0], asked("medium"), "8.0.").1.unwrap();
        assert!(kept.set(&gpus, &[0], asked("1200"), "7.0.").1.is_err());
        assert!(kept.has("8.").unwrap() && !kept.has("7.").unwrap());
        kept.put_back(|| Ok(gpus.clone()), "8.").unwrap();
        assert_eq!(gpus.now(0), (1593, 1410));
    }

    #[test]
    fn one_that_cannot_be_set_is_told_and_the_others_are_set() {
        let (scratch, gpus) = (Scratch::new("gpu-missing"), Two::new());
        let kept = KeptClocks::new(scratch.join("kept"));
        let (now, result) = kept.set(&gpus, &[9, 1], asked("low"), "7.0.");
        assert_eq!((now.len(), gpus.now(1)), (1, (1593, 300)));
        assert_eq!(result.unwrap_err().to_string(), "GPU 9: clocks: NVML error 2");
        kept.put_back(|| Ok(gpus.clone()), "7.0.").unwrap();
        assert_eq!(gpus.now(1), (1593, 1410));
    }
}
