//! Writing files: either completely, or not at all.
//!
//! The new contents are written to a temporary file in the same folder, which then replaces the file. Targets
//! that cannot be replaced are written directly: devices, pipes, the standard output, and files whose folder
//! or mount does not allow it. Symbolic links are kept, and read-only files are refused.
//!
//! Tensors are written by the same rules in separate code: `interchange/replace.rs` in `orlop-tensor`.
//! Changes here have to be made there, too.

use crate::inputs::DASH;
use orlop::trace::check_output;
use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Writes these bytes, derived from `input`, to `path`. Returns the length of the file, or `None` if `path`
/// is not a regular file: it may be the standard output. Errors have the path.
pub(crate) fn put_bytes(path: &Path, input: &Path, bytes: &[u8]) -> Result<Option<u64>, String> {
    put_named(path, input, |file| file.write_all(bytes).map_err(write_failure))
}

/// Writes the output of `write`, derived from `input`, to `path`, unless that is the same file. Results are
/// those of [`put_bytes`].
pub(crate) fn put_named(
    path: &Path,
    input: &Path,
    write: impl FnOnce(&mut BufWriter<&File>) -> Result<(), String>,
) -> Result<Option<u64>, String> {
    if path == Path::new(DASH) {
        return Err(format!(
            "{DASH}: write /dev/stdout for the standard output, or ./{DASH} for a file of this name"
        ));
    }
    check_output(path, [input]).map_err(|error| error.to_string())?;
    let named = |error| format!("{}: {error}", path.display());
    if let Some(output) = standard_output(path) {
        whole(&output.map_err(write_failure).map_err(named)?, write).map_err(named)?;
        return Ok(None);
    }
    put(path, write).map_err(named)?;
    Ok(fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|data| data.len()))
}

/// Returns the standard output for its path. If it is redirected to a file, opening that path or replacing
/// the file would lose what others wrote to it.
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

fn write_failure(error: io::Error) -> String {
    format!("cannot be written: {error}")
}

fn whole(file: &File, write: impl FnOnce(&mut BufWriter<&File>) -> Result<(), String>) -> Result<(), String> {
    let mut buffered = BufWriter::new(file);
    write(&mut buffered)?;
    buffered.flush().map_err(write_failure)
}

/// Writes the output of `write` to `path`. On failure, an existing file is unchanged.
fn put(path: &Path, write: impl FnOnce(&mut BufWriter<&File>) -> Result<(), String>) -> Result<(), String> {
    if fs::metadata(path).is_ok_and(|data| data.is_file() && data.permissions().readonly()) {
        return Err(write_failure(io::Error::new(ErrorKind::PermissionDenied, "the file is read-only")));
    }
    let new = match file_to_replace(path) {
        Some(real) => create_beside(&real).map_err(write_failure)?.map(|new| (new, real)),
        None => None,
    };
    let Some((new, real)) = new else {
        return whole(&File::create(path).map_err(write_failure)?, write);
    };
    whole(new.as_file(), write)?;
    match new.persist(&real) {
        Ok(_) => Ok(()),
        // The path is a mount point.
        Err(failed) if failed.error.kind() == ErrorKind::ResourceBusy => {
            copy(&failed.file, path).map_err(write_failure)
        }
        Err(failed) => Err(write_failure(failed.error)),
    }
}

/// Returns the file to replace or create; `None` if `path` exists and is not a
/// regular file.
fn file_to_replace(path: &Path) -> Option<PathBuf> {
    match fs::canonicalize(path) {
        Ok(real) => real.is_file().then_some(real),
        // A dangling link exists.
        Err(_) => fs::symlink_metadata(path).is_err().then(|| path.to_owned()),
    }
}

/// Creates an empty temporary file in the same folder; `None` if that is impossible.
fn create_beside(path: &Path) -> io::Result<Option<NamedTempFile>> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let before = fs::metadata(path).ok().map(|before| before.permissions());
    let mut builder = tempfile::Builder::new();
    builder.prefix(".orlop-");
    if let Some(permissions) = default_permissions() {
        builder.permissions(permissions);
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

/// Returns the permissions of `File::create`, to which the umask applies.
#[cfg(unix)]
fn default_permissions() -> Option<Permissions> {
    use std::os::unix::fs::PermissionsExt;
    Some(Permissions::from_mode(0o666))
}

#[cfg(not(unix))]
fn default_permissions() -> Option<Permissions> {
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
