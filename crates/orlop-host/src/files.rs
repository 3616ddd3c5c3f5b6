//! Atomic replacement of files.
//!
//! Writing over an existing file and failing halfway would lose both the old and the new contents. So the new
//! contents are written to a temporary file in the same folder, which is renamed when all of it is on the
//! disk.
//!
//! Only regular files are replaced this way. A symbolic link stays: its target is replaced or created.
//! Anything that is neither a file nor a directory (a pipe, a terminal, `/dev/null`) is written into, and so
//! is the standard output under its name, whatever it is. Directories and read-only files are errors.
//!
//! If the folder does not allow new files, or the file is a mount point, the file is overwritten once the new
//! contents are complete. Only then can a full disk leave it half written.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, ErrorKind, Seek as _, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// The destination of a write.
#[derive(Debug)]
#[non_exhaustive]
pub struct Output<'a> {
    /// The file, buffered.
    pub file: BufWriter<&'a File>,
    /// True if it can seek back; a pipe cannot.
    pub is_seekable: bool,
}

/// What a path refers to.
enum ReplaceTarget {
    /// A regular file, or nothing yet.
    File { path: PathBuf, before: Option<Permissions> },
    /// Something that is written into, such as a pipe.
    Stream,
}

/// Writes the output of `write` to `path`. If that fails, an existing file is unchanged.
///
/// The new file has the permissions of the one it replaces, or the default ones.
///
/// ```
/// use orlop_host::files::replace;
/// use std::io::{Error, Write};
///
/// let path = std::env::temp_dir().join(format!("orlop-replace-{}", std::process::id()));
/// replace(&path, |error: Error| error, |output| output.file.write_all(b"new"))?;
/// assert_eq!(std::fs::read(&path)?, b"new");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
///
/// Those of `write`, and errors of the system, which `io_error` converts.
pub fn replace<E>(
    path: &Path,
    io_error: impl Fn(io::Error) -> E,
    write: impl FnOnce(&mut Output<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let whole = |file: &File, is_seekable| {
        let mut output = Output { file: BufWriter::with_capacity(1 << 20, file), is_seekable };
        write(&mut output)?;
        output.file.flush().map_err(&io_error)
    };
    if let Some(output) = standard_output(path) {
        return whole(&output.map_err(&io_error)?, false);
    }
    match target(path).map_err(&io_error)? {
        ReplaceTarget::Stream => {
            let file = OpenOptions::new().write(true).open(path).map_err(&io_error)?;
            whole(&file, false)
        }
        ReplaceTarget::File { path, before } => {
            let (file, is_beside) = temporary(&path, before).map_err(&io_error)?;
            whole(file.as_file(), true)?;
            put(file, is_beside, &path).map_err(&io_error)
        }
    }
}

/// Opens the standard output if `path` is its name. Earlier output stays even if it is redirected to a file:
/// opening that file by name, or replacing it, would lose it.
#[cfg(unix)]
fn standard_output(path: &Path) -> Option<io::Result<File>> {
    use std::os::fd::AsFd;
    let names = ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].map(Path::new);
    names.contains(&path).then(|| io::stdout().as_fd().try_clone_to_owned().map(File::from))
}

#[cfg(not(unix))]
fn standard_output(_: &Path) -> Option<io::Result<File>> {
    None
}

fn target(path: &Path) -> io::Result<ReplaceTarget> {
    match fs::metadata(path) {
        Ok(data) if data.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(data) if data.is_file() && data.permissions().readonly() => {
            Err(io::Error::new(ErrorKind::PermissionDenied, "the file is read-only"))
        }
        Ok(data) if data.is_file() => {
            Ok(ReplaceTarget::File { path: fs::canonicalize(path)?, before: Some(data.permissions()) })
        }
        Ok(_) => Ok(ReplaceTarget::Stream),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Ok(ReplaceTarget::File { path: end_of_links(path)?, before: None })
        }
        Err(error) => Err(error),
    }
}

/// Follows symbolic links to a target that does not exist yet; other paths are returned unchanged.
fn end_of_links(path: &Path) -> io::Result<PathBuf> {
    /// The limit of Linux.
    const LINKS: usize = 40;
    let mut end = path.to_owned();
    for _ in 0..LINKS {
        match fs::read_link(&end) {
            Ok(next) => end = end.parent().unwrap_or(Path::new("")).join(next),
            Err(_) => return Ok(end),
        }
    }
    Err(io::Error::other("too many links"))
}

/// Creates an empty temporary file in the same folder; if a file exists and its folder allows no new one, in
/// the system's temporary folder. Returns whether it is in the same folder.
fn temporary(path: &Path, before: Option<Permissions>) -> io::Result<(NamedTempFile, bool)> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".orlop-").suffix(".tmp");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // The mode of `File::create`, to which the umask applies.
        builder.permissions(Permissions::from_mode(0o666));
    }
    let closed = [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem];
    match (builder.tempfile_in(folder), before) {
        (Ok(file), Some(before)) => {
            file.as_file().set_permissions(before)?;
            Ok((file, true))
        }
        (Err(error), Some(_)) if closed.contains(&error.kind()) => Ok((NamedTempFile::new()?, false)),
        (file, _) => Ok((file?, true)),
    }
}

/// Moves a complete file to `path`.
fn put(file: NamedTempFile, is_beside: bool, path: &Path) -> io::Result<()> {
    if !is_beside {
        return copy(&file, path);
    }
    // Otherwise a crash could leave the name without contents.
    file.as_file().sync_all()?;
    match file.persist(path) {
        Ok(_) => Ok(()),
        // The path is a mount point.
        Err(failed) if failed.error.kind() == ErrorKind::ResourceBusy => copy(&failed.file, path),
        Err(failed) => Err(failed.error),
    }
}

fn copy(from: &NamedTempFile, to: &Path) -> io::Result<()> {
    let mut from = from.as_file();
    from.rewind()?;
    let mut to = OpenOptions::new().write(true).truncate(true).open(to)?;
    io::copy(&mut from, &mut to)?;
    to.sync_all()
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    fn text(path: &Path, text: &str) -> io::Result<()> {
        replace(path, |error| error, |out| out.file.write_all(text.as_bytes()))
    }

    #[test]
    fn a_failure_leaves_the_file_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let fails = || {
            let write = |out: &mut Output<'_>| {
                out.file.write_all(b"half")?;
                Err(io::Error::other("no more"))
            };
            replace(&path, |error| error, write).unwrap_err().to_string()
        };
        assert_eq!((fails().as_str(), fs::read_dir(&folder).unwrap().count()), ("no more", 0));
        text(&path, "before").unwrap();
        assert_eq!((fails().as_str(), fs::read(&path).unwrap()), ("no more", b"before".to_vec()));
        text(&path, "after").unwrap();
        assert_eq!(
            (fs::read(&path).unwrap(), fs::read_dir(&folder).unwrap().count()),
            (b"after".to_vec(), 1)
        );
        assert!(text(&folder.path().join("no/such"), "").is_err());
    }

    #[test]
    fn directories_and_read_only_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(text(folder.path(), "x").unwrap_err().kind(), ErrorKind::IsADirectory);
        let path = folder.path().join("file");
        text(&path, "before").unwrap();
        let mut permissions = fs::metadata(&path).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(&path, permissions).unwrap();
        assert_eq!(text(&path, "after").unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert_eq!(fs::read(&path).unwrap(), b"before");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn permissions_stay() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, b"before").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        text(&path, "after").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[cfg(unix)]
    #[test]
    fn links_stay_links() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        fs::create_dir(place("far")).unwrap();
        symlink("far/file", place("link")).unwrap();
        symlink("link", place("chain")).unwrap();
        // First as a new file, then over an existing one.
        for words in ["made", "replaced"] {
            text(&place("chain"), words).unwrap();
            assert_eq!(fs::read_to_string(place("far/file")).unwrap(), words);
            assert!(["link", "chain"].iter().all(|name| place(name).is_symlink()));
        }
        symlink("loop", place("loop")).unwrap();
        assert!(text(&place("loop"), "x").is_err() && place("loop").is_symlink());
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_cannot_be_replaced_is_overwritten_when_all_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        text(&path, "before, and longer").unwrap();
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(b"after").unwrap();
        put(file, false, &path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"after");
    }
}
