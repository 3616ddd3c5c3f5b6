//! The text of a function's body, as a [`Program`].

use super::instruction::{Instruction, Operation, Parameter, Program, Type};
use super::names::{Names, ParseError};
use super::opcode;

/// A statement that is not a declaration, and the labels before it.
type Statement<'a> = &'a str;

impl Program {
    /// Reads a body: the text between its braces, without comments.
    /// `shared` has the declarations of shared variables outside of it.
    pub(crate) fn parse(body: &str, shared: &str, parameters: Vec<Parameter>) -> Result<Self, ParseError> {
        let mut names = Names::default();
        let listed = parameters.clone();
        names.parameters = listed.iter().enumerate().map(|(index, it)| (it.name.as_str(), index)).collect();
        for declaration in shared.split(';').map(str::trim) {
            // Of several words, such as `.visible`, the last one before the type is the space.
            if let Some((_, variable)) = declaration.split_once(".shared") {
                names.declare_shared(variable.trim())?;
            }
        }
        let mut statements: Vec<Statement<'_>> = Vec::new();
        let parts = body.split(';').map(str::trim).collect::<Vec<_>>();
        let (rest, parts) = parts.split_last().ok_or("an empty body")?;
        for &part in parts {
            let mut part = part;
            while let Some((label, after)) = split_label(part) {
                if names.labels.insert(label, statements.len()).is_some() {
                    return Err(format!("the label {label} is there twice"));
                }
                part = after;
                if let Some(list) = part.strip_prefix(".branchtargets") {
                    names.labels.remove(label);
                    names.tables.insert(label, list.split(',').map(str::trim).collect());
                    part = "";
                }
            }
            if let Some(declaration) = part.strip_prefix(".reg") {
                names.declare(declaration.trim())?;
            } else if let Some(declaration) = part.strip_prefix(".shared") {
                names.declare_shared(declaration.trim())?;
            } else if part.starts_with(".pragma") {
                // Advice to the assembler.
            } else if !part.is_empty() {
                statements.push(part);
            }
        }
        if !rest.is_empty() {
            return Err(format!("no `;` after {rest}"));
        }
        let instructions = statements.iter().map(|text| instruction(text, &names)).collect::<Result<_, _>>();
        let (registers, shared) = (names.types, names.variables);
        Ok(Self { parameters, registers, shared, instructions: instructions? })
    }
}

/// Splits off a label and its colon.
fn split_label(text: &str) -> Option<(&str, &str)> {
    let (label, after) = text.split_once(':')?;
    let label = label.trim();
    let is_name = !label.is_empty()
        && label.chars().all(|letter| letter.is_ascii_alphanumeric() || "_$%".contains(letter));
    is_name.then(|| (label, after.trim()))
}

fn instruction(text: &str, names: &Names<'_>) -> Result<Instruction, ParseError> {
    let (guard, text) = match text.strip_prefix('@') {
        None => (None, text),
        Some(guarded) => {
            let (guard, text) =
                guarded.split_once(char::is_whitespace).ok_or("a guard without instruction")?;
            let (name, wanted) = guard.strip_prefix('!').map_or((guard, true), |name| (name, false));
            (Some((names.register(name, Type::PREDICATE, Type::fits)?, wanted)), text.trim())
        }
    };
    let operation: Operation = opcode::parse(text, names).map_err(|error| format!("{text}: {error}"))?;
    Ok(Instruction { guard, operation })
}
