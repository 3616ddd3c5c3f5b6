//! Files that are there whole or not at all.

use super::SafetensorsError;
use crate::error::Result;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often another name is tried, if files of a process that died are in the way.
const ATTEMPTS: usize = 1000;

/// A file beside the one that it is to become; removed unless it does.
struct Temporary {
    path: PathBuf,
    file: Option<File>,
}

impl Temporary {
    fn beside(path: &Path) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        for _ in 0..ATTEMPTS {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = path.with_file_name(format!(".orlop-{}-{number}.tmp", process::id()));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                opened => return Ok(Self { file: Some(opened?), path }),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.file.take().is_some()
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "a temporary file stays");
        }
    }
}

/// Puts what `write` writes in the place of the file at `path`, in one step, once all of it is on the disk. Until then, or
/// if anything fails, whatever was there is there; and it stays as it was for whoever has mapped it.
pub(super) fn replace(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let io = SafetensorsError::io(path);
    let mut temporary = Temporary::beside(path).map_err(&io)?;
    if let Some(file) = &temporary.file {
        let mut buffered = BufWriter::with_capacity(1 << 20, file);
        write(&mut buffered)?;
        buffered.flush().map_err(&io)?;
        drop(buffered);
        file.sync_all().map_err(&io)?;
    }
    fs::rename(&temporary.path, path).map_err(&io)?;
    temporary.file = None;
    Ok(())
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn all_or_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let names = || fs::read_dir(folder.path()).unwrap().count();

        let fails = replace(&path, |out| {
            out.write_all(b"half").map_err(SafetensorsError::io(&path))?;
            Err(Error::Undefined)
        });
        assert!(fails.is_err() && names() == 0);
        replace(&path, |out| Ok(out.write_all(b"whole").map_err(SafetensorsError::io(&path))?)).unwrap();
        assert_eq!((fs::read(&path).unwrap(), names()), (b"whole".to_vec(), 1));
        assert!(replace(&path, |_| Err(Error::Undefined)).is_err());
        assert_eq!((fs::read(&path).unwrap(), names()), (b"whole".to_vec(), 1));
        assert!(replace(&folder.path().join("no/such"), |_| Ok(())).is_err());
    }
}
