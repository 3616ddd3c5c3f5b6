//! `powerset: orlop-cuda beside others`: the CUDA crate in programs that choose how cudarc is built.
//!
//! Features of a dependency are united in a program. So what another crate asks of cudarc applies to
//! `orlop-cuda` too, and a choice of its own would forbid theirs.

use crate::error::{Error, Result};
use crate::report::Outcome;
use crate::shell::Shell;
use std::fs;

/// The crate.
const CUDA: &str = "orlop-cuda";

/// Features of cudarc that programs ask for.
const CHOICES: [(&str, &[&str]); 2] = [
    // Those of candle-core 0.11 with its feature `cuda`.
    (
        "candle-core",
        &["std", "driver", "cublas", "nvrtc", "cuda-version-from-build-system", "dynamic-linking"],
    ),
    // An old toolkit, and a driver that has to be there.
    ("cuda-11040", &["std", "driver", "cuda-11040", "dynamic-loading"]),
];

/// Checks the crate beside each choice. Nothing is linked, so no toolkit is needed.
pub(crate) fn run(shell: &Shell) -> Result<Outcome> {
    for (name, features) in CHOICES {
        let folder = shell.target().join("beside").join(name);
        let write = |path: &str, text: &str| {
            let path = folder.join(path);
            fs::write(&path, text).map_err(Error::io(&path))
        };
        fs::create_dir_all(folder.join("src")).map_err(Error::io(&folder))?;
        write("Cargo.toml", &manifest(shell, features))?;
        write("src/lib.rs", "pub use {cudarc, orlop_cuda};\n")?;
        // The versions that the workspace was tested with.
        let (lock, copy) = (shell.root().join("Cargo.lock"), folder.join("Cargo.lock"));
        fs::copy(&lock, &copy).map_err(Error::io(&lock))?;
        let mut command = shell.cargo(&["check", "--quiet"]);
        command.current_dir(&folder).env("CARGO_TARGET_DIR", shell.target().join("beside"));
        shell.run(&format!("beside-{name}"), &mut command)?;
    }
    let names: Vec<&str> = CHOICES.iter().map(|(name, _)| *name).collect();
    Ok(Outcome::Passed(names.join(", ")))
}

fn manifest(shell: &Shell, features: &[&str]) -> String {
    let path = shell.root().join("crates").join(CUDA);
    format!(
        "[package]\nname = \"beside\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\n{CUDA} = {{ path = {path:?} }}\n\
         cudarc = {{ version = \"0.19.10\", default-features = false, features = {features:?} }}\n"
    )
}
