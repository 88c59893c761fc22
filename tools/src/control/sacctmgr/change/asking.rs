//! Questions before something is changed.

use super::world::{Key, World};

/// Asks; `n` is what holds without an answer.
pub fn is_sure(world: &mut dyn World, question: &str) -> bool {
    world.out(&format!("{question} (You have 30 seconds to decide)\n"));
    loop {
        world.out("(N/y): ");
        match world.key() {
            Key::Typed(b'y' | b'Y') => {
                world.out("\n");
                return true;
            }
            Key::Typed(b'n' | b'N' | b'\n') => {
                world.out("\n");
                return false;
            }
            Key::Typed(_) => world.out("\nY or N please\n"),
            Key::Nothing => {
                world.out("timeout\n");
                return false;
            }
            Key::End(why) => {
                world.out("\n");
                world.err(&format!("error: {why}\n"));
                return false;
            }
        }
    }
}

/// Asks whether what was told shall be done.
pub fn commits(world: &mut dyn World) -> bool {
    let sure = is_sure(world, "Would you like to commit changes?");
    if !sure {
        world.out(" Changes Discarded\n");
    }
    sure
}
