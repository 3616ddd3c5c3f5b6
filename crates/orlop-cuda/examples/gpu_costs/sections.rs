//! Sections of a program, and their tables.

use super::Result;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// A named part of a program, with what it is given.
pub(crate) type Section<T> = fn(&T) -> Result<()>;

/// Runs the sections with these names, or all, and returns the number of those that failed.
pub(crate) fn run_sections<T>(sections: &[(&str, Section<T>)], names: &[&str], given: &T) -> usize {
    let mut failed = 0;
    for (name, section) in sections {
        if !names.is_empty() && !names.contains(name) {
            continue;
        }
        println!("\n## {name}\n");
        let start = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| section(given)));
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                failed += 1;
                println!("\nFAILED: {error}");
            }
            Err(_) => {
                failed += 1;
                println!("\nFAILED: it panicked");
            }
        }
        println!("\n({name}: {:.1} s)", start.elapsed().as_secs_f64());
    }
    failed
}

/// Prints a row of a Markdown table.
pub(crate) fn row<T: Display>(name: impl Display, cells: impl IntoIterator<Item = T>) {
    let cells: Vec<_> = cells.into_iter().map(|cell| cell.to_string()).collect();
    println!("| {name} | {} |", cells.join(" | "));
}

/// Prints the head of a Markdown table.
pub(crate) fn head(columns: &[&str]) {
    println!("| {} |\n|{}", columns.join(" | "), "---|".repeat(columns.len()));
}
