//! [`EntryPoint`]: the kernels of a module's text.

use super::instruction::{Parameter, Program};
use std::sync::Arc;

/// An entry point of a module: its name, its parameters, and its code if that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntryPoint {
    pub(crate) name: Arc<str>,
    pub(crate) sizes: Vec<usize>,
    pub(crate) program: Option<Arc<Program>>,
}

/// Returns the entry points of PTX text, or `None` if it is not PTX.
pub(crate) fn entry_points(ptx: &str) -> Option<Vec<EntryPoint>> {
    let text: String =
        ptx.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join(" ");
    if !text.contains(".version") || !text.contains(".target") {
        return None;
    }
    let mut entries = Vec::new();
    let shared = text.split(".entry").next().unwrap_or("");
    for entry in text.split(".entry").skip(1) {
        let (head, rest) = entry.split_once('{')?;
        let (name, parameters) = match head.split_once('(') {
            Some((name, rest)) => (name, rest.split(')').next()?),
            None => (head, ""),
        };
        let parameters = parameters.split(',').filter(|parameter| !parameter.trim().is_empty());
        let parameters = parameters.map(parameter).collect::<Option<Vec<Parameter>>>()?;
        let sizes = parameters.iter().map(|parameter| parameter.bytes).collect();
        let program = Program::parse(body(rest)?, shared, parameters).ok().map(Arc::new);
        entries.push(EntryPoint { name: Arc::from(name.trim()), sizes, program });
    }
    Some(entries)
}

/// Returns the text up to the brace that closes it.
fn body(text: &str) -> Option<&str> {
    let mut depth = 1;
    let end = text.char_indices().find(|&(_, letter)| {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        depth == 0
    });
    Some(&text[..end?.0])
}

/// Reads a parameter such as `.param .u64 a`, `.param .align 8 .b8 b[24]` or `.param .u64 .ptr .align 1 c`,
/// where `.ptr` begins what is known of the memory behind it.
fn parameter(parameter: &str) -> Option<Parameter> {
    let (mut size, mut alignment, mut words) = (None, None, parameter.split_whitespace());
    let (mut name, mut is_pointer) = ("", false);
    while let Some(word) = words.next() {
        name = word;
        is_pointer |= word == ".ptr";
        if word == ".align" {
            let bytes = words.next()?.parse().ok()?;
            alignment = alignment.or((!is_pointer).then_some(bytes));
        }
        size = size.or_else(|| {
            let bits = word.strip_prefix(['.']).and_then(|word| word.strip_prefix(['u', 's', 'b', 'f']));
            bits.and_then(|bits| bits.parse::<usize>().ok()).map(|bits| bits / 8)
        });
    }
    let (name, count) = match name.split_once('[') {
        Some((name, rest)) => (name, rest.split(']').next()?.trim().parse().ok()?),
        None => (name, 1),
    };
    let bytes = size?.checked_mul(count)?;
    Some(Parameter { name: name.to_owned(), bytes, alignment: alignment.or(size)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_points_and_their_parameters_are_read() {
        let ptx = ".version 7.0\n.target sm_52\n.address_size 64\n// .entry no(\n.visible .entry fill(\n \
                   .param .u64 fill_0,\n .param .align 8 .b8 fill_1[24], // (a shape)\n \
                   .param .f32 fill_2\n)\n{\n ret;\n}\n.entry none\n{ ret; }";
        let entries = entry_points(ptx).unwrap_or_default();
        let found: Vec<(&str, &[usize])> =
            entries.iter().map(|entry| (&*entry.name, entry.sizes.as_slice())).collect();
        assert_eq!(found, [("fill", &[8, 24, 4][..]), ("none", &[])]);
        assert_eq!(entry_points("\u{7f}ELF"), None);
    }
}
