//! One run of a word that changes something: what is known, what is asked, and what it comes to.

use super::{
    asking, told,
    words::{Word, WordError, parts},
    world::{Changed, World},
};
use garrick_accounts::change::{Action, Affected, Applied, Change, ChangeRefusal};
use garrick_asking::accounting::AccountsError;
use garrick_model::entities::Entities;

/// What a word came to: an exit code.
pub type Code = Result<i32, AccountsError>;

/// One run.
pub struct Session<'w> {
    pub world: &'w mut dyn World,
    /// `-i`: without a question.
    pub immediate: bool,
    /// What there is now.
    pub entities: Entities,
}

impl<'w> Session<'w> {
    /// Begins with what there is now.
    ///
    /// # Errors
    /// The service does not answer.
    pub fn new(world: &'w mut dyn World, immediate: bool) -> Result<Self, AccountsError> {
        let entities = world.entities()?;
        Ok(Self { world, immediate, entities })
    }

    /// Does it, or where there is still a question to be answered, finds out what it would come to.
    pub fn attempt(&mut self, change: &Change) -> Result<Changed, AccountsError> {
        self.world.change(change, None, !self.immediate)
    }

    /// Asks, and does what was told. `version`: that which it was told of.
    pub fn commit(&mut self, change: &Change, version: u64) -> Code {
        if self.immediate || !asking::commits(self.world) {
            return Ok(0);
        }
        match self.world.change(change, Some(version), false)? {
            Ok(_) => Ok(0),
            Err(refusal) => self.fail(&format!(" Error with request: {}\n", told::sentence(&refusal))),
        }
    }

    /// `add`: `told` says what comes, then the question is asked. `refused` says why not.
    pub fn carry_out(
        &mut self,
        change: impl Into<Change>,
        told: impl FnOnce(&Applied) -> String,
        refused: impl FnOnce(&mut dyn World, &ChangeRefusal) -> i32,
    ) -> Code {
        let change = &change.into();
        match self.attempt(change)? {
            Ok((applied, version)) => {
                self.world.out(&told(&applied));
                self.commit(change, version)
            }
            Err(refusal) => Ok(refused(self.world, &refusal)),
        }
    }

    /// `delete` of what has a name and nothing else. `of` finds the names of what is deleted; `told` is the heading of those, and what is
    /// told where there are none.
    pub fn delete_named(
        &mut self,
        words: &[String],
        is_name: impl Fn(&Word<'_>) -> bool,
        action: impl FnOnce(Vec<String>) -> Action,
        of: fn(&Affected) -> Option<&String>,
        (heading, nothing): (&str, &str),
    ) -> Code {
        let mut names = Vec::new();
        for word in &parts(words).conditions {
            if !is_name(word) {
                told::unknown_condition(self.world, word);
                return Ok(1);
            }
            names.extend(word.names());
        }
        if names.is_empty() {
            return self.nothing_to_remove();
        }
        let deleted = |applied: &Applied| format!("{heading}{}", told::lines(&told::names(&applied.affected, of)));
        self.carry_out(action(names), deleted, |world, refusal| {
            match refusal {
                ChangeRefusal::NothingDeleted => world.out(nothing),
                // As it is told of QOS.
                ChangeRefusal::JobsActive(jobs) => world.err(&told::active(jobs, " ")),
                _ => told::refused(world, refusal, ""),
            }
            1
        })
    }

    /// Tells an error.
    pub fn fail(&mut self, text: &str) -> Code {
        self.world.err(text);
        Ok(1)
    }

    /// Tells of a word that is not understood.
    pub fn bad_word(&mut self, word: &Word<'_>, error: &WordError) -> Code {
        told::word_error(self.world, word, error);
        Ok(1)
    }

    /// Nothing is to be set.
    pub fn nothing_to_set(&mut self) -> Code {
        self.fail(" You didn't give me anything to set\n")
    }

    /// No condition was given.
    pub fn nothing_to_remove(&mut self) -> Code {
        self.fail(" No conditions given to remove, not executing.\n")
    }
}

/// Of `modify`: what went wrong below the heading. Slurm ends with 0 where an account would be below itself.
pub fn not_modified(world: &mut dyn World, refusal: &ChangeRefusal, heading: &str) -> i32 {
    if *refusal == ChangeRefusal::NothingModified {
        world.out(&format!("{heading}  Nothing modified\n"));
        return 1;
    }
    told::refused(world, refusal, heading);
    i32::from(!matches!(refusal, ChangeRefusal::Loop { .. }))
}
