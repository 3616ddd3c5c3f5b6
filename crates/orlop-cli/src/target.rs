//! Files that are written: there whole, or as they were before.
//!
//! What is new is written beside the file, under a name that nobody else has, and takes its place in the end.
//! Where there is nothing to be replaced it is written directly: devices, pipes, the standard output, and
//! files whose folder or mount lets nobody take their place. Links stay links, and read-only files are
//! refused.
//!
//! Tensors are written by the same rule, with its own code: `interchange/replace.rs` in `orlop-tensor`. What
//! is changed here is to be changed there.

use crate::inputs::STANDARD;
use orlop::trace::check_output;
use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Puts these bytes, made of `input`, at `path`, or says why not, with its name. `None` if that is no file:
/// it may be the standard output, which is to have nothing else.
pub(crate) fn put_bytes(path: &Path, input: &Path, bytes: &[u8]) -> Result<Option<u64>, String> {
    put_named(path, input, |file| {
        file.write_all(bytes).map_err(|error| format!("cannot be written: {error}"))
    })
}

/// Puts what `write` writes, made of `input`, at `path`, unless that is the same file: how long it is, and
/// what goes wrong with its name, as for [`put_bytes`].
pub(crate) fn put_named(
    path: &Path,
    input: &Path,
    write: impl FnOnce(&mut BufWriter<&File>) -> Result<(), String>,
) -> Result<Option<u64>, String> {
    if path == Path::new(STANDARD) {
        return Err(format!(
            "{STANDARD}: the standard output is /dev/stdout, a file of this name ./{STANDARD}"
        ));
    }
    check_output(path, [input]).map_err(|error| error.to_string())?;
    let named = |error| format!("{}: {error}", path.display());
    if let Some(output) = standard_output(path) {
        whole(&output.map_err(fails).map_err(named)?, write).map_err(named)?;
        return Ok(None);
    }
    put(path, write).map_err(named)?;
    Ok(fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|data| data.len()))
}

/// The standard output by its name. Where the shell sends it to a file, what others wrote there stays: a file
/// that is opened by that name, or replaced, would lose it.
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

fn fails(error: io::Error) -> String {
    format!("cannot be written: {error}")
}

fn whole(file: &File, write: impl FnOnce(&mut BufWriter<&File>) -> Result<(), String>) -> Result<(), String> {
    let mut buffered = BufWriter::new(file);
    write(&mut buffered)?;
    buffered.flush().map_err(fails)
}

/// Puts what `write` writes at `path`. If that fails, a file that was there is what it was.
fn put(path: &Path, write: impl FnOnce(&mut BufWriter<&File>) -> Result<(), String>) -> Result<(), String> {
    if fs::metadata(path).is_ok_and(|data| data.is_file() && data.permissions().readonly()) {
        return Err(fails(io::Error::new(ErrorKind::PermissionDenied, "the file is read-only")));
    }
    let new = match replaced(path) {
        Some(real) => beside(&real).map_err(fails)?.map(|new| (new, real)),
        None => None,
    };
    let Some((new, real)) = new else {
        return whole(&File::create(path).map_err(fails)?, write);
    };
    whole(new.as_file(), write)?;
    match new.persist(&real) {
        Ok(_) => Ok(()),
        // Something is mounted there.
        Err(failed) if failed.error.kind() == ErrorKind::ResourceBusy => {
            copy(&failed.file, path).map_err(fails)
        }
        Err(failed) => Err(fails(failed.error)),
    }
}

/// The file that is replaced, or made; `None` if something is there that is no file.
fn replaced(path: &Path) -> Option<PathBuf> {
    match fs::canonicalize(path) {
        Ok(real) => real.is_file().then_some(real),
        // A link to nowhere is there.
        Err(_) => fs::symlink_metadata(path).is_err().then(|| path.to_owned()),
    }
}

/// An empty file in the same folder, which goes away unless it is kept; `None` where there can be none.
fn beside(path: &Path) -> io::Result<Option<NamedTempFile>> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let before = fs::metadata(path).ok().map(|before| before.permissions());
    let mut builder = tempfile::Builder::new();
    builder.prefix(".orlop-");
    if let Some(usual) = usual() {
        builder.permissions(usual);
    }
    let file = match builder.tempfile_in(folder) {
        Ok(file) => file,
        Err(error) => {
            let closed = [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem, ErrorKind::NotFound];
            return if closed.contains(&error.kind()) { Ok(None) } else { Err(error) };
        }
    };
    if let Some(before) = before {
        file.as_file().set_permissions(before)?;
    }
    Ok(Some(file))
}

/// What `File::create` asks for; the umask takes away from it.
#[cfg(unix)]
fn usual() -> Option<Permissions> {
    use std::os::unix::fs::PermissionsExt;
    Some(Permissions::from_mode(0o666))
}

#[cfg(not(unix))]
fn usual() -> Option<Permissions> {
    None
}

fn copy(from: &NamedTempFile, to: &Path) -> io::Result<()> {
    io::copy(&mut from.reopen()?, &mut File::create(to)?).map(|_| ())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn text(path: &Path, text: &str) -> Result<(), String> {
        put(path, |file| file.write_all(text.as_bytes()).map_err(|error| error.to_string()))
    }

    fn mode(path: &Path) -> Option<u32> {
        fs::metadata(path).ok().map(|data| data.permissions().mode() & 0o777)
    }

    #[test]
    fn a_failure_leaves_the_file_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        text(&path, "before").unwrap();
        let failed = put(&path, |file| {
            file.write_all(b"after").unwrap();
            Err("no more".to_owned())
        });
        assert_eq!(failed, Err("no more".to_owned()));
        assert_eq!(fs::read(&path).unwrap(), b"before");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn permissions_are_the_usual_ones_or_stay() {
        let folder = tempfile::tempdir().unwrap();
        let [usual, new, kept] = ["usual", "new", "kept"].map(|name| folder.path().join(name));
        fs::write(&usual, "").unwrap();
        text(&new, "new").unwrap();
        assert!(mode(&new).is_some() && mode(&new) == mode(&usual));
        fs::write(&kept, "").unwrap();
        fs::set_permissions(&kept, Permissions::from_mode(0o640)).unwrap();
        text(&kept, "new").unwrap();
        assert_eq!(mode(&kept), Some(0o640));
    }

    #[test]
    fn read_only_files_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "before").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
        assert!(text(&path, "after").is_err_and(|error| error.contains("read-only")));
        assert_eq!(fs::read(&path).unwrap(), b"before");
    }

    #[test]
    fn links_stay_links() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link, nowhere, far] =
            ["file", "link", "nowhere", "far"].map(|name| folder.path().join(name));
        fs::write(&file, "before").unwrap();
        symlink("file", &link).unwrap();
        symlink("far", &nowhere).unwrap();
        for (link, file) in [(&link, &file), (&nowhere, &far)] {
            text(link, "after").unwrap();
            assert!(link.is_symlink() && !file.is_symlink());
            assert_eq!(fs::read(file).unwrap(), b"after");
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 4);
    }
}
