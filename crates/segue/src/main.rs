//! The `segue` command.

use std::process::ExitCode;

/// Small values come and go in great numbers; this allocator is made for that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    segue::cli::main()
}
