//! [`EntryPoint`]: the kernels of a module's text.

use super::linker::link;
use super::names::ParseError;
use crate::ptx::program::{Parameter, Program};
use std::sync::Arc;

/// The most bytes of the parameters of an entry point.
const MAX_PARAMETERS: usize = 32_764;

/// An entry point of a module: its name, its parameters, and its code, or why that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntryPoint {
    pub(crate) name: Arc<str>,
    pub(crate) sizes: Vec<usize>,
    pub(crate) program: Result<Arc<Program>, Arc<str>>,
}

/// The text of a function, in parts.
#[derive(Debug)]
pub(super) struct FunctionText<'a> {
    pub(super) name: &'a str,
    pub(super) is_entry: bool,
    pub(super) parameters: Vec<Parameter>,
    pub(super) results: Vec<Parameter>,
    /// `None` for a function of another module.
    pub(super) body: Option<&'a str>,
    /// The line where the body begins.
    pub(super) line: usize,
}

/// The text of a module, in parts.
#[derive(Debug, Default)]
pub(super) struct ModuleText<'a> {
    pub(super) functions: Vec<FunctionText<'a>>,
    /// The declarations of shared variables outside of functions.
    pub(super) shared: Vec<&'a str>,
}

/// Returns the entry points of PTX text.
///
/// # Errors
///
/// What is not PTX. An entry point with code that is not known says so itself.
pub(crate) fn entry_points(ptx: &str) -> Result<Vec<EntryPoint>, ParseError> {
    let text = without_comments(ptx);
    if !text.contains(".version") || !text.contains(".target") {
        return Err("the text has no `.version` or no `.target`".into());
    }
    let module = split(&text)?;
    let entries = module.functions.iter().enumerate().filter(|(_, function)| function.is_entry);
    let entry = |(index, text): (usize, &FunctionText<'_>)| {
        let program = link(&module, index).map(Arc::new).map_err(Arc::from);
        let sizes = text.parameters.iter().map(|parameter| parameter.bytes).collect();
        EntryPoint { name: Arc::from(text.name), sizes, program }
    };
    Ok(entries.map(entry).collect())
}

/// Replaces comments by spaces. Lines stay where they are.
fn without_comments(ptx: &str) -> String {
    let mut text = String::with_capacity(ptx.len());
    let mut rest = ptx;
    while let Some(start) = rest.find('/') {
        let (before, comment) = rest.split_at(start);
        text.push_str(before);
        let end = match comment.get(..2) {
            Some("//") => comment.find('\n').unwrap_or(comment.len()),
            Some("/*") => comment.find("*/").map_or(comment.len(), |end| end + 2),
            _ => {
                text.push('/');
                rest = &comment[1..];
                continue;
            }
        };
        text.push(' ');
        text.extend(comment[..end].chars().filter(|&letter| letter == '\n'));
        rest = &comment[end..];
    }
    text.push_str(rest);
    text
}

/// Returns the line of a part of a text, from 1.
pub(super) fn line_of(text: &str, part: &str) -> usize {
    let start = (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    1 + text.as_bytes().iter().take(start).filter(|&&byte| byte == b'\n').count()
}

fn split(text: &str) -> Result<ModuleText<'_>, ParseError> {
    let mut module = ModuleText::default();
    let mut rest = text;
    while let Some(end) = rest.find([';', '{']) {
        let (head, after) = rest.split_at(end);
        let body = after.strip_prefix('{').map(inside).transpose()?;
        rest = &after[1 + body.map_or(0, |body| body.len() + 1)..];
        let is_function = head.split(|letter: char| letter.is_whitespace() || letter == '(');
        let kind = is_function.into_iter().find(|word| matches!(*word, ".entry" | ".func"));
        if let Some(kind) = kind {
            let line = line_of(text, body.unwrap_or(head));
            let signature = head.split_once(kind).map_or("", |(_, signature)| signature);
            let function = function(signature, kind == ".entry", body, line)
                .map_err(|error| format!("line {line}: {error}"))?;
            // A declaration comes before the function.
            module.functions.retain(|other| other.name != function.name || other.body.is_some());
            module.functions.push(function);
        } else if let Some((_, variable)) = head.split_once(".shared") {
            // Of several words, such as `.visible`, the last one before the type is the space.
            module.shared.push(variable.trim());
        }
    }
    Ok(module)
}

/// Returns the text up to the brace that closes it.
fn inside(text: &str) -> Result<&str, ParseError> {
    let mut depth = 1;
    let end = text.char_indices().find(|&(_, letter)| {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        depth == 0
    });
    end.map(|(end, _)| &text[..end]).ok_or("a brace is not closed".into())
}

/// Splits off a list in parentheses.
fn list(text: &str) -> Result<(Vec<Parameter>, &str), ParseError> {
    let Some(rest) = text.trim_start().strip_prefix('(') else { return Ok((Vec::new(), text)) };
    let (list, rest) = rest.split_once(')').ok_or("a parenthesis is not closed")?;
    let parameters = list.split(',').map(str::trim).filter(|parameter| !parameter.is_empty());
    let parameters = parameters.map(|text| parameter(text).ok_or(format!("the parameter {text}")));
    Ok((parameters.collect::<Result<_, _>>()?, rest))
}

/// Reads what follows `.entry` or `.func`: `(results) name (parameters)`, the lists of which may be missing.
fn function<'a>(
    signature: &'a str,
    is_entry: bool,
    body: Option<&'a str>,
    line: usize,
) -> Result<FunctionText<'a>, ParseError> {
    let signature = signature.trim_start();
    let signature = signature.strip_prefix(".noreturn").unwrap_or(signature);
    let (results, rest) = if is_entry { (Vec::new(), signature) } else { list(signature)? };
    let rest = rest.trim_start();
    let end = rest.find(|letter: char| letter.is_whitespace() || letter == '(').unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    let (parameters, _) = list(rest)?;
    let bytes = parameters.iter().chain(&results).try_fold(0_usize, |sum, it| sum.checked_add(it.bytes));
    if name.is_empty() || bytes.is_none_or(|bytes| bytes > MAX_PARAMETERS) {
        return Err(format!("the function {name}"));
    }
    Ok(FunctionText { name, is_entry, parameters, results, body, line })
}

/// Reads a parameter such as `.param .u64 a`, `.param .align 8 .b8 b[24]` or `.param .u64 .ptr .align 1 c`,
/// where `.ptr` begins what is known of the memory behind it.
pub(super) fn parameter(parameter: &str) -> Option<Parameter> {
    let (mut size, mut alignment, mut words) = (None, None, parameter.split_whitespace());
    let (mut name, mut is_pointer) = ("", false);
    if words.next()? != ".param" {
        return None;
    }
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
                   .param .f32 fill_2\n) .maxntid 32\n{\n ret;\n}\n/* .entry\n none { */ \
                   .entry none\n{ ret; }";
        let entries = entry_points(ptx).unwrap_or_default();
        let found: Vec<(&str, &[usize], bool)> = entries
            .iter()
            .map(|entry| (&*entry.name, entry.sizes.as_slice(), entry.program.is_ok()))
            .collect();
        assert_eq!(found, [("fill", &[8, 24, 4][..], true), ("none", &[], true)]);
        assert!(entry_points("\u{7f}ELF").is_err());
    }

    #[test]
    fn what_is_refused_is_named() {
        let refused = |text: &str| {
            let text = format!(".version 7.0 .target sm_70 .address_size 64\n{text}");
            match entry_points(&text) {
                Ok(entries) => {
                    entries.into_iter().find_map(|entry| entry.program.err()).map(|it| (*it).to_owned())
                }
                Err(error) => Some(error),
            }
        };
        let in_entry = |code: &str| refused(&format!(".entry main(.param .u64 a)\n{{\n\n{code}\n ret;\n}}"));
        assert_eq!(
            in_entry("// a comment\n tex.1d.v4.f32.f32 {%a}, [%b];").as_deref(),
            Some(
                "main, line 6: tex.1d.v4.f32.f32 {%a}, [%b]: the instruction tex.1d.v4.f32.f32 is not known"
            )
        );
        assert_eq!(in_entry("ret;"), None);
        let func = ".func (.param .b32 r) f(.param .b32 x) { ret; }\n";
        let call = |code: &str| {
            let names = ".param .b32 one; .param .b64 two; .param .b32 out;";
            refused(&format!("{func} .entry main() {{ {names}\n{code} ret; }}"))
        };
        assert_eq!(call("call (out), f, (one);"), None);
        for (code, why) in [
            ("call (out), f, (one, one);", "f takes 1 arguments and not 2"),
            ("call (out), f;", "f takes 1 arguments and not 0"),
            ("call f, (one);", "f has 1 results and not 0"),
            ("call (out), f, (two);", "two has 8 bytes and not 4"),
            ("call (out), f, (four);", "no variable four"),
            ("call (out), g, (one);", "no function g"),
            ("call (out), %rd1, (one), proto;", "the instruction call is not known"),
        ] {
            let expected = format!("main, line 4: {}: {why}", code.trim_end_matches(';'));
            assert_eq!(call(code), Some(expected));
        }
        let unknown = ".func f() {\n wmma.load; }\n.entry main() { call f; }";
        let expected = "f, line 3: wmma.load: the instruction wmma.load is not known";
        assert_eq!(refused(unknown).as_deref(), Some(expected));
        let extern_ = ".extern .func f();\n.entry main() { call f; }";
        assert_eq!(refused(extern_).as_deref(), Some("main, line 3: call f: f has no code in this module"));
        assert_eq!(refused(".entry main() {").as_deref(), Some("a brace is not closed"));
        assert_eq!(
            refused(".entry main(.param .b8 a[99999]) {}").as_deref(),
            Some("line 2: the function main")
        );
    }
}
