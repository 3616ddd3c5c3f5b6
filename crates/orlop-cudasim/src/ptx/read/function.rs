//! The text of a function's body, as a [`Function`].

use super::linker::Linker;
use super::module::FunctionText;
use super::names::{Names, ParseError, Shared};
use super::opcode;
use crate::ptx::instruction::{Instruction, Operation};
use crate::ptx::program::Function;
use crate::ptx::types::Type;

/// A statement that is not a declaration.
struct Statement<'a> {
    text: &'a str,
    line: usize,
    scope: usize,
}

impl Function {
    /// Reads a function. The shared variables are those of the module, to which its own are added.
    pub(super) fn parse<'a>(
        text: &'a FunctionText<'a>,
        shared: &mut Shared<'a>,
        linker: &mut Linker<'a>,
    ) -> Result<Self, ParseError> {
        let mut names = Names::new(text);
        let statements = declare(text, &mut names, shared)?;
        let mut instructions = Vec::new();
        for Statement { text: code, line, scope } in statements {
            names.scope = scope;
            let read = instruction(code, &names, shared, linker);
            let (guard, operation) = read.map_err(|error| at(text, line, &one_line(code), &error))?;
            instructions.push(Instruction { guard, operation, line });
        }
        Ok(Self {
            name: text.name.to_owned(),
            variables: names.variables,
            parameters: text.parameters.len(),
            results: text.results.len(),
            registers: names.types,
            local: names.local,
            instructions,
        })
    }
}

fn at(function: &FunctionText<'_>, line: usize, code: &str, error: &str) -> ParseError {
    format!("{}, line {line}: {code}: {error}", function.name)
}

/// Returns the code of a report: calls are written in several lines.
fn one_line(code: &str) -> String {
    code.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Reads the declarations and the labels. Returns what else there is.
fn declare<'a>(
    function: &FunctionText<'a>,
    names: &mut Names<'a>,
    shared: &mut Shared<'a>,
) -> Result<Vec<Statement<'a>>, ParseError> {
    let mut statements: Vec<Statement<'_>> = Vec::new();
    let parts = function.body.unwrap_or("").split(';').collect::<Vec<_>>();
    let (rest, parts) = parts.split_last().ok_or("an empty body")?;
    let mut line = function.line;
    for &whole in parts {
        let mut part = whole.trim_start();
        let mut statement_line = line + newlines(&whole[..whole.len() - part.len()]);
        line += newlines(whole);
        let error = |line: usize, part: &str, error: &str| at(function, line, &one_line(part), error);
        loop {
            // A statement does not begin with a vector: this brace is that of a block.
            let after = if let Some(after) = part.strip_prefix('{') {
                names.enter();
                after
            } else if let Some(after) = part.strip_prefix('}') {
                names.leave().map_err(|why| error(statement_line, part, &why))?;
                after
            } else if let Some((label, after)) = split_label(part) {
                if let Some(list) = after.trim_start().strip_prefix(".branchtargets") {
                    names.add_table(label, list.split(',').map(str::trim).collect());
                    part = "";
                    break;
                }
                let added = names.add_label(label, statements.len());
                added.map_err(|why| error(statement_line, part, &why))?;
                after
            } else {
                break;
            };
            let trimmed = after.trim_start();
            statement_line += newlines(&after[..after.len() - trimmed.len()]);
            part = trimmed;
        }
        let part = part.trim_end();
        let declared = if let Some(declaration) = part.strip_prefix(".reg") {
            names.declare(declaration.trim())
        } else if let Some(declaration) = part.strip_prefix(".shared") {
            names.declare_shared(declaration.trim(), shared)
        } else if let Some(declaration) = part.strip_prefix(".local") {
            names.declare_local(declaration.trim())
        } else if part.starts_with(".param") {
            names.declare_variable(part)
        } else if part.starts_with(".pragma") || part.starts_with(".loc") || part.is_empty() {
            // Advice to the assembler and to debuggers.
            Ok(())
        } else {
            statements.push(Statement { text: part, line: statement_line, scope: names.scope });
            Ok(())
        };
        declared.map_err(|why| error(statement_line, part, &why))?;
    }
    // Blocks may end there, and labels be.
    let mut rest = rest.trim();
    loop {
        rest = if let Some(after) = rest.strip_prefix('}') {
            names.leave().map_err(|why| at(function, line, "}", &why))?;
            after.trim()
        } else if let Some((label, after)) = split_label(rest) {
            names.add_label(label, statements.len()).map_err(|why| at(function, line, label, &why))?;
            after.trim()
        } else {
            break;
        };
    }
    match rest {
        "" => Ok(statements),
        rest => Err(at(function, line, &one_line(rest), "no `;` after it")),
    }
}

fn newlines(text: &str) -> usize {
    text.bytes().filter(|&byte| byte == b'\n').count()
}

/// Splits off a label and its colon.
fn split_label(text: &str) -> Option<(&str, &str)> {
    let (label, after) = text.split_once(':')?;
    let label = label.trim();
    let is_name = !label.is_empty()
        && label.chars().all(|letter| letter.is_ascii_alphanumeric() || "_$%".contains(letter));
    is_name.then_some((label, after))
}

type Guarded = (Option<(usize, bool)>, Operation);

fn instruction<'a>(
    text: &str,
    names: &Names<'a>,
    shared: &Shared<'a>,
    linker: &mut Linker<'a>,
) -> Result<Guarded, ParseError> {
    let Some(guarded) = text.strip_prefix('@') else {
        return Ok((None, opcode::parse(text, names, shared, linker)?));
    };
    let (guard, text) = guarded.split_once(char::is_whitespace).ok_or("a guard without instruction")?;
    let (name, wanted) = guard.strip_prefix('!').map_or((guard, true), |name| (name, false));
    let guard = names.register(name, Type::PREDICATE, Type::fits)?;
    Ok((Some((guard, wanted)), opcode::parse(text.trim(), names, shared, linker)?))
}
