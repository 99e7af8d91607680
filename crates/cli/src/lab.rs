//! `terrane lab`: runs `terrane-lab`.

use std::env;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::args::LabArguments;
use crate::failure::Failure;

const NAME: &str = "terrane-lab";

/// The laboratory beside this binary, else its bare name, which is searched on the PATH.
fn program() -> PathBuf {
    let beside = env::current_exe().ok().map(|binary| binary.with_file_name(NAME)).filter(|path| path.is_file());
    beside.unwrap_or_else(|| PathBuf::from(NAME))
}

pub fn run(arguments: &LabArguments) -> Result<(), Failure> {
    // Returns only on failure.
    let error = Command::new(program()).args(&arguments.arguments).exec();
    Err(match error.kind() {
        io::ErrorKind::NotFound => Failure::usage(format!(
            "{NAME} is neither beside this binary nor on the PATH; build it with `cargo build -p {NAME}`"
        )),
        _ => Failure::io(format_args!("run {NAME}"), &error),
    })
}
