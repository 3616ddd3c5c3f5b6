//! Finds the named atomic orderings in the sources: `ordering!("life.close", AcqRel)`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::source::{SourceText, rust_files};

/// A call of the macro.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OrderingCall {
    /// The name, unique in the crate.
    pub(crate) name: String,
    /// The ordering in the code.
    pub(crate) ordering: String,
}

impl OrderingCall {
    /// Returns the weaker orderings, for one mutant each.
    pub(crate) fn weaker(&self) -> &'static [&'static str] {
        weaker(&self.ordering).unwrap_or_default()
    }
}

fn weaker(ordering: &str) -> Option<&'static [&'static str]> {
    match ordering {
        "Acquire" | "Release" => Some(&["Relaxed"]),
        "AcqRel" => Some(&["Acquire", "Release"]),
        "SeqCst" => Some(&["AcqRel"]),
        _ => None,
    }
}

/// Returns all calls below a folder, in the order of file and line.
pub(crate) fn ordering_calls(folder: &Path) -> Result<Vec<OrderingCall>> {
    let mut all = Vec::new();
    let mut seen = BTreeMap::<String, PathBuf>::new();
    for path in rust_files(folder)? {
        let source = SourceText::read(&path)?;
        for (line, found) in scan(&source) {
            let fail = |problem| Error::Ordering { path: path.clone(), line, problem };
            let call = found.map_err(fail)?;
            if seen.insert(call.name.clone(), path.clone()).is_some() {
                return Err(fail("this name is taken by another ordering"));
            }
            all.push(call);
        }
    }
    Ok(all)
}

const CALL: &str = "ordering!(";

fn scan(source: &SourceText) -> Vec<(usize, std::result::Result<OrderingCall, &'static str>)> {
    let ordering_calls = source.words(CALL);
    ordering_calls.map(|at| (source.line(at), parse(&source.uncommented[at + CALL.len()..]))).collect()
}

/// Parses `"name", Ordering)`, possibly over several lines.
fn parse(arguments: &str) -> std::result::Result<OrderingCall, &'static str> {
    let rest =
        arguments.trim_start().strip_prefix('"').ok_or("the first argument must be a string literal")?;
    let (name, rest) = rest.split_once('"').ok_or("the name does not end")?;
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '.' || c == '_') {
        return Err("a name is letters, digits, dots and underscores");
    }
    let rest = rest.trim_start().strip_prefix(',').ok_or("the second argument must be an ordering")?;
    let (path, _) = rest.split_once(')').ok_or("the call does not end")?;
    let path = path.trim().trim_end_matches(',').trim_end();
    let ordering = path.rsplit("::").next().unwrap_or(path).trim();
    if weaker(ordering).is_none() {
        return Err("the second argument must be Acquire, Release or AcqRel");
    }
    Ok(OrderingCall { name: name.to_owned(), ordering: ordering.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan_text(text: &str) -> Vec<(usize, std::result::Result<OrderingCall, &'static str>)> {
        scan(&SourceText::new(text.to_owned()))
    }

    #[test]
    fn reads_calls_and_nothing_else() {
        let found = scan_text(
            "// ordering!(\"in.comment\", Acquire)\nmacro_rules! ordering { () => {} }\n\
             x.load(ordering!(\"life.open\", Acquire));\n\
             y.swap(1, crate::ordering!(\n    \"life.close\",\n    Ordering::AcqRel,\n));\n\
             let s = \"ordering!(\";\nmy_ordering!(1);",
        );
        let names: Vec<_> = found
            .iter()
            .map(|(line, call)| {
                (*line, call.as_ref().map(|call| (call.name.as_str(), call.ordering.as_str())))
            })
            .collect();
        assert_eq!(names, [(3, Ok(("life.open", "Acquire"))), (4, Ok(("life.close", "AcqRel")))]);
    }

    #[test]
    fn each_ordering_has_its_weaker_ones() {
        let call = |ordering: &str| OrderingCall { name: "a".to_owned(), ordering: ordering.to_owned() };
        assert_eq!(call("Acquire").weaker(), ["Relaxed"]);
        assert_eq!(call("Release").weaker(), ["Relaxed"]);
        assert_eq!(call("AcqRel").weaker(), ["Acquire", "Release"]);
    }

    #[test]
    fn unreadable_calls_are_errors() {
        for text in [
            "ordering!(NAME, Acquire)",
            "ordering!(\"a b\", Acquire)",
            "ordering!(\"\", Acquire)",
            "ordering!(\"a\", Relaxed)",
            "ordering!(\"a\", Weak)",
            "ordering!(\"a\")",
            "ordering!(\"a\", Acquire",
        ] {
            assert!(scan_text(text)[0].1.is_err(), "{text}");
        }
    }
}
