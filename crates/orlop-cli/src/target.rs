//! Writing files: either completely, or not at all (see `orlop::files`). Read-only files, and the files that
//! the results come from, are refused.

use crate::inputs::DASH;
use orlop::files::replace;
use orlop::trace::check_output;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

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
    let is_replaced = put(path, write).map_err(named)?;
    Ok(fs::metadata(path).ok().filter(|_| is_replaced).map(|data| data.len()))
}

fn write_failure(error: io::Error) -> String {
    format!("cannot be written: {error}")
}

/// Writes the output of `write` to `path`. On failure, an existing file is unchanged. Returns `false` if the
/// path is not that of a regular file, or is the standard output.
fn put(path: &Path, write: impl FnOnce(&mut BufWriter<&File>) -> Result<(), String>) -> Result<bool, String> {
    let mut is_replaced = false;
    replace(path, write_failure, |output| {
        is_replaced = output.is_seekable;
        write(&mut output.file)
    })?;
    Ok(is_replaced)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn text(path: &Path, text: &str) -> Result<bool, String> {
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
