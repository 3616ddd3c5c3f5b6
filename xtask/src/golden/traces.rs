//! Recorded allocation traces: checks that each is well formed, on which every replay relies.

use std::path::PathBuf;

use super::{Tally, text};
use crate::error::Result;

pub(super) fn form(files: &[PathBuf]) -> Result<Tally> {
    let mut tally = Tally::default();
    for path in files {
        let problem = problem(&text(path)?);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        tally.count(problem.is_none(), || format!("{name}: {}", problem.unwrap_or_default()));
    }
    Ok(tally)
}

/// Returns the first malformed line: ids must count up from zero, and only live ids are freed.
fn problem(text: &str) -> Option<String> {
    let mut live = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let fields: Vec<&str> = line.split(',').collect();
        let good = match fields[..] {
            ["a", id, bytes] => {
                live.push(true);
                id.parse() == Ok(live.len() - 1) && bytes.parse::<u64>().is_ok()
            }
            ["f", id] => {
                let slot = id.parse().ok().and_then(|id: usize| live.get_mut(id));
                slot.is_some_and(|live| std::mem::replace(live, false))
            }
            _ => false,
        };
        if !good {
            return Some(format!("line {}: {line:?} does not follow from the lines before", index + 1));
        }
    }
    live.is_empty().then(|| "no events".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_well_formed_traces_pass() {
        assert_eq!(problem("a,0,64\na,1,8\nf,0\nf,1\n"), None);
        for text in ["", "a,1,64\n", "a,0,64\nf,1\n", "a,0,64\nf,0\nf,0\n", "a,0,-1\n", "b,0\n"] {
            assert!(problem(text).is_some(), "{text}");
        }
    }
}
