//! Where cargo puts the library.

use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// The file that cargo builds.
const FILE: &str = "liborlop_cudasim.so";

/// Returns the path of the built library.
///
/// It is looked for beside the running program, where cargo puts the libraries of a test, and then in the
/// output folder of the build of this crate.
pub(crate) fn path() -> Result<PathBuf> {
    if cfg!(not(target_os = "linux")) {
        return Err(Error::Unsupported);
    }
    let program = std::env::current_exe().unwrap_or_default();
    let built = Path::new(env!("ORLOP_CUDASIM_PROFILE"));
    let folders = program.ancestors().skip(1).take(2).chain(std::iter::once(built));
    let places = folders.flat_map(|folder| [folder.join(FILE), folder.join("deps").join(FILE)]);
    let mut found = places.filter(|path| path.is_file());
    found.next().ok_or_else(|| Error::NotFound { name: FILE.to_owned() })
}
