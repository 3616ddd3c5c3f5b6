//! `golden`: comparison with recorded results of other systems.
//!
//! A check is a line in [`CHECKS`]: its name, its file and a function that compares.

mod casts;
mod layouts;
mod promote;
mod torch;
mod traces;
mod views;

use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};
use crate::report::{Outcome, Report};
use crate::shell::Shell;

/// The number of differences that are shown in full.
const SHOWN: usize = 5;

/// A comparison with reference data.
struct ReferenceCheck {
    name: &'static str,
    /// The folder and its file, which is also accepted without the folder. A star stands for any text: at the
    /// end of a folder name, at the start of a file name.
    folder: &'static str,
    file: &'static str,
    compare: fn(&[PathBuf]) -> Result<Tally>,
}

const CHECKS: [ReferenceCheck; 8] = [
    ReferenceCheck {
        name: "dtypes.promote",
        folder: "torch-views",
        file: "dtypes.json.gz",
        compare: promote::compare,
    },
    ReferenceCheck {
        name: "dtypes.casts",
        folder: "torch-views",
        file: "dtypes.json.gz",
        compare: casts::compare,
    },
    ReferenceCheck {
        name: "views.flags",
        folder: "torch-views",
        file: "views.jsonl.gz",
        compare: layouts::flags,
    },
    ReferenceCheck {
        name: "views.programs",
        folder: "torch-views",
        file: "views.jsonl.gz",
        compare: views::programs,
    },
    ReferenceCheck {
        name: "preserve",
        folder: "torch-views",
        file: "preserve.json.gz",
        compare: layouts::preserve,
    },
    ReferenceCheck { name: "traces.form", folder: "cpu-traces", file: "*.csv.gz", compare: traces::form },
    ReferenceCheck {
        name: "torch.conf",
        folder: "torch-conf",
        file: "answers.tsv",
        compare: torch::settings,
    },
    ReferenceCheck {
        name: "torch.allocator",
        folder: "torch-golden*",
        file: "*.ops.gz",
        compare: torch::allocator,
    },
];

/// Returns the recorded programs of PyTorch's allocator.
pub(crate) fn torch_programs(data: &Path) -> Result<Vec<PathBuf>> {
    let check = CHECKS.iter().find(|check| check.name == "torch.allocator");
    check.map_or(Ok(Vec::new()), |check| check.files(data))
}

/// Returns a folder, which is relative to the working folder or else to the workspace root: `cargo xtask` can
/// run in any folder of the workspace.
pub(crate) fn folder(shell: &Shell, data: &Path) -> PathBuf {
    if data.exists() { data.to_path_buf() } else { shell.root().join(data) }
}

/// Runs every check on the data below a [`folder`].
pub(crate) fn run(shell: &Shell, report: &mut Report, data: &Path) {
    let data = folder(shell, data);
    if let Err(source) = fs::read_dir(&data) {
        return report.step("golden", || Err(Error::Io { path: data, source }));
    }
    let mut with_data = 0;
    for check in CHECKS {
        report.self_reporting_step(&format!("golden: {}", check.name), || {
            let outcome = check.run(&data);
            with_data += usize::from(!matches!(outcome, Ok(Outcome::Skipped(_))));
            outcome
        });
    }
    if with_data == 0 {
        report.step("golden", || Err(no_data(&data)));
    }
}

/// Returns the error of a folder that no check has data in.
fn no_data(data: &Path) -> Error {
    Error::EmptySelection { what: "reference data", selection: format!("is in {}", data.display()) }
}

impl ReferenceCheck {
    fn run(&self, data: &Path) -> Result<Outcome> {
        let files = self.files(data)?;
        if files.is_empty() {
            println!("{}: no data", self.name);
            return Ok(Outcome::Skipped("no data".to_owned()));
        }
        let tally = (self.compare)(&files).inspect_err(|error| println!("{}: {error}", self.name))?;
        for line in tally.shown.iter().chain(&tally.notes) {
            println!("{}: {line}", self.name);
        }
        println!("{}: {tally}", self.name);
        match tally.total - tally.agree {
            0 => Ok(Outcome::Passed(tally.to_string())),
            count => Err(Error::Found { count, what: "disagreements" }),
        }
    }

    /// Returns the files in the check's folders, or, if there are none, those without a folder.
    fn files(&self, data: &Path) -> Result<Vec<PathBuf>> {
        let folders = match self.folder.strip_suffix('*') {
            Some(beginning) => entries(data, |name| name.starts_with(beginning))?,
            None => vec![data.join(self.folder)],
        };
        let fits = |name: &str| match self.file.strip_prefix('*') {
            Some(ending) => name.ends_with(ending),
            None => name == self.file,
        };
        let mut found = Vec::new();
        for folder in folders.iter().filter(|folder| folder.is_dir()) {
            found.extend(entries(folder, fits)?);
        }
        if found.is_empty() { entries(data, fits) } else { Ok(found) }
    }
}

/// Returns the entries of a folder whose names match, sorted.
fn entries(folder: &Path, fits: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io(folder))? {
        let path = entry.map_err(Error::io(folder))?.path();
        if fits(&path.file_name().unwrap_or_default().to_string_lossy()) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The number of results that agree.
#[derive(Debug, Default)]
struct Tally {
    agree: usize,
    total: usize,
    shown: Vec<String>,
    /// What was not compared, with the reason.
    notes: Vec<String>,
}

impl Tally {
    /// Counts a result; `difference` describes it, for the first few that differ.
    fn count(&mut self, agrees: bool, difference: impl FnOnce() -> String) {
        self.total += 1;
        if agrees {
            self.agree += 1;
        } else if self.shown.len() < SHOWN {
            self.shown.push(difference());
        }
    }

    /// Counts a result that must equal the recorded one.
    fn equal<T: PartialEq + fmt::Debug>(
        &mut self,
        ours: &T,
        recorded: &T,
        question: impl FnOnce() -> String,
    ) {
        self.count(ours == recorded, || format!("{}: {ours:?}, recorded {recorded:?}", question()));
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} agree", self.agree, self.total)?;
        if self.notes.is_empty() { Ok(()) } else { write!(f, "; {} notes", self.notes.len()) }
    }
}

/// Returns the text of a compressed file.
fn text(path: &Path) -> Result<String> {
    let mut text = String::new();
    let file = File::open(path).map_err(Error::io(path))?;
    GzDecoder::new(file).read_to_string(&mut text).map_err(Error::io(path))?;
    Ok(text)
}

/// Parses a compressed JSON file as Python writes it: infinities and NaN, which JSON lacks, become strings.
fn json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = text(path)?.replace("-Infinity", "\"-inf\"").replace("Infinity", "\"inf\"");
    parse(path, &text.replace("NaN", "\"NaN\""))
}

fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|source| Error::Json { origin: path.display().to_string(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disagreements_are_counted_and_the_first_are_shown() {
        let mut tally = Tally::default();
        tally.equal(&1, &1, || "one".to_owned());
        for _ in 0..SHOWN + 3 {
            tally.equal(&1, &2, || "two".to_owned());
        }
        assert_eq!(tally.to_string(), format!("1 of {} agree", SHOWN + 4));
        assert_eq!(tally.shown.len(), SHOWN);
        assert_eq!(tally.shown[0], "two: 1, recorded 2");
    }
}
