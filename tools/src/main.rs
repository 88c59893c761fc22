//! The one program of all commands: see the library.

fn main() {
    std::process::exit(garrick_tools::run(std::env::args_os().collect()));
}
