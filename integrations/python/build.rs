//! Puts the library of dry runs, which cargo builds as a dependency of this script, where maturin takes it
//! from for the wheel. Other systems than Linux on x86-64 have none.

use std::path::PathBuf;
use std::{env, fs, io};

const LIBRARY: &str = "liborlop_dryrun_cuda.so";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name: &str| env::var(name).map_err(io::Error::other);
    // The library is one for the machine that runs this script.
    if variable("HOST")? != variable("TARGET")? || !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Ok(());
    }
    // This script is `build/PACKAGE/build-script-build`, beside `deps`.
    let program = env::current_exe()?;
    let folder = program.ancestors().nth(3).ok_or_else(|| io::Error::other("no folder of builds"))?;
    let built = folder.join("deps").join(LIBRARY);
    println!("cargo::rerun-if-changed={}", built.display());
    fs::copy(built, PathBuf::from(variable("OUT_DIR")?).join(LIBRARY)).map(drop)
}
