//! Rules for a single Rust file.

use super::Violation;
use crate::source::SourceText;

/// The path prefixes, relative to the root, of files that may use `unsafe`.
const UNSAFE: [&str; 19] = [
    "crates/orlop-sync/",
    "crates/orlop-host/",
    "crates/orlop-alloc/",
    "crates/orlop-context/tests/", // They implement allocators and free bare addresses.
    "crates/orlop-device/",
    "crates/orlop-tensor/",
    "crates/orlop-cuda/",
    "crates/orlop-torch/",
    "crates/orlop-cudasim/",
    "crates/orlop-dryrun-cuda/",       // CUDA's C interface.
    "crates/orlop-cudasim-control/",   // It calls the functions of the loaded library.
    "crates/orlop/examples/",          // They show how a backing is implemented and a file is mapped.
    "crates/orlop-testkit/",           // Its mocks and its faulty allocators implement an unsafe trait.
    "benches/src/peers",               // Other allocators are called through their C interfaces.
    "integrations/arrow/",             // Foreign memory, on both sides.
    "integrations/burn/",              // Foreign memory, on both sides.
    "integrations/ort/",               // The C interface of ONNX Runtime.
    "integrations/peers/",             // Other allocators implement an unsafe trait.
    "integrations/python/src/tensor/", // Capsules and buffers of Python's C interface.
];

/// A longer file probably contains more than one concept.
const LONG: usize = 400;

/// A longer file must be split.
const TOO_LONG: usize = 600;

/// Checks all rules for the file at this path, relative to the root.
pub(super) fn all(path: &str, source: &SourceText) -> Vec<Violation> {
    let mut found = unsafety(path, source);
    found.extend(length(source));
    found.extend(reasons(source));
    if path.contains("/src/") {
        found.extend(head(source));
    }
    found
}

fn unsafety(path: &str, source: &SourceText) -> Vec<Violation> {
    if UNSAFE.iter().any(|allowed| path.starts_with(allowed)) {
        return Vec::new();
    }
    let message = "`unsafe` is not allowed in this crate";
    source.words("unsafe").map(|at| Violation::error(source.line(at), message)).collect()
}

fn length(source: &SourceText) -> Option<Violation> {
    let lines = source.text.lines().count();
    if lines <= LONG {
        return None;
    }
    let warning = lines <= TOO_LONG;
    let limit = if warning { LONG } else { TOO_LONG };
    Some(Violation { line: lines, message: format!("{lines} lines, more than {limit}: split it"), warning })
}

/// Checks that the file starts with its documentation.
fn head(source: &SourceText) -> Option<Violation> {
    let first = source.text.lines().find(|line| !line.trim().is_empty());
    let documented = first.is_some_and(|line| line.trim_start().starts_with("//!"));
    (!documented).then(|| Violation::error(1, "a source file begins with `//!`: what it is, then why"))
}

/// Checks that every disabled lint has a reason, as `reason` or in a comment at the end of its line.
fn reasons(source: &SourceText) -> Vec<Violation> {
    let mut found = Vec::new();
    for (start, _) in source.code.match_indices('#') {
        let after = source.code[start + 1..].trim_start_matches('!');
        if !after.starts_with('[') {
            continue;
        }
        let open = source.code.len() - after.len();
        let close = open + closing(&source.code[open..]);
        let attribute = SourceText::new(source.uncommented[open..close].to_owned());
        let silences = ["allow(", "expect("].iter().any(|word| attribute.words(word).next().is_some());
        if !silences || attribute.words("reason").next().is_some() {
            continue;
        }
        let rest = source.text[close..].lines().next().unwrap_or_default();
        if !rest.trim_start_matches(']').trim_start().starts_with("//") {
            found.push(Violation::error(source.line(start), "a lint is switched off without a reason"));
        }
    }
    found
}

/// Returns the position of the bracket that closes the first one.
fn closing(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in code.char_indices() {
        match c {
            '[' => depth += 1,
            ']' if depth == 1 => return at,
            ']' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> SourceText {
        SourceText::new(text.to_owned())
    }

    fn lines(found: impl IntoIterator<Item = Violation>) -> Vec<usize> {
        found.into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn unsafe_belongs_to_a_few_crates() {
        let text = source("// unsafe\nunsafe fn f() {}\n");
        assert_eq!(lines(unsafety("crates/orlop-plan/src/lib.rs", &text)), [2]);
        assert_eq!(lines(unsafety("crates/orlop-trace/tests/a.rs", &text)), [2]);
        assert_eq!(lines(unsafety("crates/orlop-cudasim-other/src/lib.rs", &text)), [2]);
        assert_eq!(lines(unsafety("crates/orlop-alloc/tests/a.rs", &text)), [0_usize; 0]);
        assert_eq!(lines(unsafety("crates/orlop-testkit/src/fill.rs", &text)), [0_usize; 0]);
        assert_eq!(
            lines(unsafety("crates/orlop-core/src/lib.rs", &source("#![forbid(unsafe_code)]"))),
            [0_usize; 0]
        );
    }

    #[test]
    fn long_files_warn_and_too_long_ones_fail() {
        let of = |lines: usize| length(&source(&"x\n".repeat(lines))).map(|violation| violation.warning);
        assert_eq!(of(400), None);
        assert_eq!(of(401), Some(true));
        assert_eq!(of(600), Some(true));
        assert_eq!(of(601), Some(false));
    }

    #[test]
    fn files_begin_with_what_they_are() {
        assert_eq!(head(&source("//! This.\n")), None);
        assert_eq!(head(&source("\n//! This.\n")), None);
        assert!(head(&source("// This.\n")).is_some());
        assert!(head(&source("use std::fs;\n//! Late.\n")).is_some());
        assert!(head(&source("")).is_some());
    }

    #[test]
    fn silenced_lints_have_reasons() {
        let good = "#[allow(dead_code, reason = \"later\")]\n#![expect(a, reason = \"b\")]\n\
                    #[allow(dead_code)] // The macro makes more than we use.\n#[derive(Debug)]\n\
                    // #[allow(x)]\nlet s = \"#[allow(x)]\";\nx.expect(\"y\"); [x.expect(\"z\")];\n";
        assert_eq!(lines(reasons(&source(good))), [0_usize; 0]);
        let bad = "#[allow(dead_code)]\n#![expect(\n    a,\n)]\n#[cfg_attr(test, allow(b))]\n\
                   #[allow(a)] fn f() {} // no\n";
        assert_eq!(lines(reasons(&source(bad))), [1, 2, 5, 6]);
    }
}
