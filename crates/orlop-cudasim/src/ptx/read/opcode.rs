//! The text of one instruction, as an [`Operation`]: moves and branches here, the others by their kind.

use super::linker::Linker;
use super::names::{Names, ParseError, Shared};
use super::{accesses, arithmetic, collectives};
use crate::ptx::instruction::{Address, Binary, Operand, Operation, Register, Space};
use crate::ptx::run::{LOCAL_WINDOW, SHARED_WINDOW};
use crate::ptx::types::{FloatMode, Type};

/// An instruction without its guard, and what its names stand for.
pub(super) struct Code<'c, 'a> {
    /// The whole opcode.
    opcode: &'c str,
    pub(super) name: &'c str,
    pub(super) modifiers: Vec<&'c str>,
    pub(super) operands: Vec<&'c str>,
    pub(super) names: &'c Names<'a>,
    shared: &'c Shared<'a>,
}

impl<'c> Code<'c, '_> {
    pub(super) fn unknown(&self) -> ParseError {
        format!("the instruction {} is not known", self.opcode)
    }

    /// Returns the type at the end, and the other modifiers.
    pub(super) fn typed(&self) -> Result<(Type, &[&'c str]), ParseError> {
        let (last, others) = self.modifiers.split_last().ok_or_else(|| self.unknown())?;
        Ok((Type::parse(last).ok_or_else(|| self.unknown())?, others))
    }

    pub(super) fn register(&self, name: &str, of: Type) -> Result<Register, ParseError> {
        self.names.register(name, of, Type::fits)
    }

    pub(super) fn operand(&self, text: &str, of: Type) -> Result<Operand, ParseError> {
        self.names.operand(text, of, self.shared, Type::fits)
    }

    /// Returns an operand of a store or a conversion.
    pub(super) fn held(&self, text: &str, of: Type) -> Result<Operand, ParseError> {
        self.names.operand(text, of, self.shared, Type::holds)
    }

    pub(super) fn address(&self, text: &str, space: Space) -> Result<Address, ParseError> {
        self.names.address(text, space, self.shared)
    }
}

/// Splits operands at commas that are not within braces, brackets or parentheses.
fn split_operands(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut operands) = (0_i32, 0, Vec::new());
    for (at, letter) in text.char_indices() {
        match letter {
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth -= 1,
            ',' if depth == 0 => {
                operands.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    let last = text[start..].trim();
    if !last.is_empty() {
        operands.push(last);
    }
    operands
}

/// Returns the names in parentheses.
fn list(text: &str) -> Option<Vec<&str>> {
    let inner = text.strip_prefix('(')?.strip_suffix(')')?;
    Some(inner.split(',').map(str::trim).filter(|name| !name.is_empty()).collect())
}

/// Returns the elements of `%a` or, for a vector, of `{%a, %b}`.
pub(super) fn elements<'c>(text: &'c str, vector: &[&str]) -> Option<Vec<&'c str>> {
    let count = match vector {
        [] => return Some(vec![text]),
        ["v2"] => 2,
        ["v4"] => 4,
        _ => return None,
    };
    braced(text).filter(|list| list.len() == count)
}

/// Returns the elements between braces.
fn braced(text: &str) -> Option<Vec<&str>> {
    let inner = text.strip_prefix('{')?.strip_suffix('}')?;
    Some(inner.split(',').map(str::trim).collect())
}

/// Reads an instruction without its guard.
pub(super) fn parse<'a>(
    text: &str,
    names: &Names<'a>,
    shared: &Shared<'a>,
    linker: &mut Linker<'a>,
) -> Result<Operation, ParseError> {
    let (opcode, operands) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let mut words = opcode.split('.');
    let name = words.next().unwrap_or("");
    let (modifiers, operands) = (words.collect(), split_operands(operands));
    let code = Code { opcode, name, modifiers, operands, names, shared };
    match name {
        "mov" => move_of(&code),
        "cvta" => address_of(&code),
        "ld" | "st" | "atom" | "red" | "membar" | "fence" => accesses::parse(&code),
        "shfl" | "vote" | "match" | "redux" | "activemask" => collectives::parse(&code),
        "bar" | "barrier" => collectives::barrier(&code),
        "call" => call(&code, linker),
        "bra" | "brx" | "ret" | "exit" | "trap" => branch(&code),
        _ => arithmetic::parse(&code),
    }
}

fn move_of(code: &Code<'_, '_>) -> Result<Operation, ParseError> {
    let (of, others) = code.typed()?;
    let (&[], &[to, from]) = (others, code.operands.as_slice()) else { return Err(code.unknown()) };
    let parts = |text| {
        let list: Option<Vec<&str>> = braced(text);
        let count = list.as_ref().map_or(1, Vec::len);
        let is_known = matches!(count, 2 | 4) && of.bytes > count && of.is_bits();
        let part = Type { bytes: of.bytes / count, ..of };
        list.map(|list| if is_known { Ok((list, part)) } else { Err(code.unknown()) }).transpose()
    };
    if let Some((list, part)) = parts(from)? {
        let from = list.into_iter().map(|name| code.operand(name, part)).collect::<Result<_, _>>()?;
        return Ok(Operation::Pack { to: code.register(to, of)?, from, bytes: part.bytes });
    }
    if let Some((list, part)) = parts(to)? {
        let to = list.into_iter().map(|name| code.names.sink(name, part, Type::fits));
        let to = to.collect::<Result<_, _>>()?;
        return Ok(Operation::Unpack { to, from: code.operand(from, of)?, bytes: part.bytes });
    }
    Ok(Operation::Move { to: code.register(to, of)?, from: code.operand(from, of)? })
}

/// Between generic addresses and those of a space.
fn address_of(code: &Code<'_, '_>) -> Result<Operation, ParseError> {
    let of = Type::ADDRESS;
    let (what, space) = match *code.modifiers.as_slice() {
        ["to", space, "u64"] => (Binary::Sub, space),
        [space, "u64"] => (Binary::Add, space),
        _ => return Err(code.unknown()),
    };
    let window = match space {
        "global" => 0,
        "shared" => SHARED_WINDOW,
        "local" => LOCAL_WINDOW,
        _ => return Err(code.unknown()),
    };
    let &[to, from] = code.operands.as_slice() else { return Err(code.unknown()) };
    let (to, a) = (code.register(to, of)?, code.operand(from, of)?);
    Ok(Operation::Binary { what, of, mode: FloatMode::default(), to, a, b: Operand::Value(window) })
}

fn call<'a>(code: &Code<'_, 'a>, linker: &mut Linker<'a>) -> Result<Operation, ParseError> {
    if !matches!(code.modifiers.as_slice(), [] | ["uni"]) {
        return Err(code.unknown());
    }
    let (results, name, arguments) = match *code.operands.as_slice() {
        [name] => (Some(Vec::new()), name, Some(Vec::new())),
        [name, arguments] if arguments.starts_with('(') => (Some(Vec::new()), name, list(arguments)),
        [results, name] => (list(results), name, Some(Vec::new())),
        [results, name, arguments] => (list(results), name, list(arguments)),
        // Of several arguments after an address in a register, a prototype is the last one.
        _ => return Err(code.unknown()),
    };
    let (Some(results), Some(arguments)) = (results, arguments) else { return Err(code.unknown()) };
    let (function, called) = linker.function(name)?;
    let variables = |list: &[&str], expected: &[crate::ptx::program::Parameter], verb: &str, what: &str| {
        if list.len() != expected.len() {
            return Err(format!("{name} {verb} {} {what} and not {}", expected.len(), list.len()));
        }
        let variable = |(&variable, expected): (&&str, &crate::ptx::program::Parameter)| {
            let index = code.names.variable(variable)?;
            let bytes = code.names.variables[index].bytes;
            if bytes != expected.bytes {
                return Err(format!("{variable} has {bytes} bytes and not {}", expected.bytes));
            }
            Ok(index)
        };
        list.iter().zip(expected).map(variable).collect::<Result<Vec<usize>, ParseError>>()
    };
    let arguments = variables(&arguments, &called.parameters, "takes", "arguments")?;
    let results = variables(&results, &called.results, "has", "results")?;
    Ok(Operation::Call { function, arguments, results })
}

fn branch(code: &Code<'_, '_>) -> Result<Operation, ParseError> {
    match (code.name, code.modifiers.as_slice(), code.operands.as_slice()) {
        ("bra", [] | ["uni"], &[target]) => Ok(Operation::Branch { target: code.names.label(target)? }),
        ("brx", ["idx"] | ["idx", "uni"], &[index, table]) => {
            let index = code.operand(index, Type::U32)?;
            Ok(Operation::BranchTable { index, targets: code.names.table(table)? })
        }
        ("ret", [] | ["uni"], []) => Ok(Operation::Return),
        ("exit", [], []) => Ok(Operation::Exit),
        ("trap", [], []) => Ok(Operation::Trap),
        _ => Err(code.unknown()),
    }
}
