//! Files that are there whole or not at all.
//!
//! Who writes a file over an older one, and fails halfway, has lost both. So what is new is written beside
//! it, and takes its place when all of it is on the disk.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Puts what `write` writes in the place of the file at `path`. If that fails, the file is what it was.
///
/// The new file has the permissions of the one it replaces, or else the usual ones.
pub(super) fn replace<E>(
    path: &Path,
    io_error: impl Fn(io::Error) -> E,
    write: impl FnOnce(&mut BufWriter<&mut File>) -> Result<(), E>,
) -> Result<(), E> {
    let mut file = beside(path).map_err(&io_error)?;
    let mut buffered = BufWriter::new(file.as_file_mut());
    write(&mut buffered)?;
    buffered.flush().map_err(&io_error)?;
    drop(buffered);
    // Else a crash could leave the name with nothing behind it.
    file.as_file().sync_all().map_err(&io_error)?;
    file.persist(path).map_err(|failed| io_error(failed.error))?;
    Ok(())
}

/// An empty file in the same folder, which goes away unless it is kept.
fn beside(path: &Path) -> io::Result<tempfile::NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".orlop-").suffix(".tmp");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // What `File::create` asks for; the umask takes away from it.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    let file = builder.tempfile_in(folder)?;
    if let Ok(before) = fs::metadata(path) {
        file.as_file().set_permissions(before.permissions())?;
    }
    Ok(file)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_failure_leaves_the_file_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        replace(&path, |error| error, |file| file.write_all(b"before")).unwrap();
        let failure = replace(
            &path,
            |error| error,
            |file| {
                file.write_all(b"after")?;
                Err(io::Error::other("no more"))
            },
        );
        assert_eq!(failure.unwrap_err().to_string(), "no more");
        assert_eq!(fs::read(&path).unwrap(), b"before");
        replace(&path, |error| error, |file| file.write_all(b"after")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"after");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn permissions_stay() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, b"before").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        replace(&path, |error| error, |file| file.write_all(b"after")).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
