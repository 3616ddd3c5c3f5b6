//! The text of loads, stores, atomic operations and fences.

use super::names::ParseError;
use super::opcode::{Code, elements};
use crate::ptx::instruction::{Atomic, Binary, Operand, Operation, Scope, Space};
use crate::ptx::types::Type;

pub(super) fn parse(code: &Code<'_, '_>) -> Result<Operation, ParseError> {
    match (code.name, code.operands.as_slice()) {
        ("ld", &[to, from]) => {
            let (of, accessed) = code.typed()?;
            let (space, rest) = space_of(accessed);
            // The cache for memory that no thread of the launch writes, and advice to caches.
            let rest = match rest {
                ["nc", rest @ ..] if space == Space::Global => rest,
                ["ca" | "cg" | "cs", rest @ ..] => rest,
                rest => rest,
            };
            let list = elements(to, rest).ok_or_else(|| code.unknown())?;
            let to = list.into_iter().map(|name| code.names.sink(name, of, Type::holds));
            let (to, from) = (to.collect::<Result<_, _>>()?, code.address(from, space)?);
            Ok(Operation::Load { space, of, to, from })
        }
        ("st", &[to, from]) => {
            let (of, accessed) = code.typed()?;
            let (space, rest) = space_of(accessed);
            let rest = match rest {
                ["wb" | "cg" | "cs" | "wt", rest @ ..] => rest,
                rest => rest,
            };
            let list = elements(from, rest).ok_or_else(|| code.unknown())?;
            let from = list.iter().map(|name| code.held(name, of)).collect::<Result<_, _>>()?;
            Ok(Operation::Store { space, of, to: code.address(to, space)?, from })
        }
        ("atom" | "red", operands) => atomic(code, operands),
        // All threads of a launch run in one order, as if every access was strong.
        ("membar", []) if matches!(code.modifiers.as_slice(), ["cta" | "gl" | "sys"]) => {
            Ok(Operation::Nothing)
        }
        ("fence", []) => match code.modifiers.as_slice() {
            ["sc" | "acq_rel", "cta" | "gpu" | "sys"] => Ok(Operation::Nothing),
            _ => Err(code.unknown()),
        },
        _ => Err(code.unknown()),
    }
}

/// Splits the state space off the modifiers of an access.
fn space_of<'m, 't>(modifiers: &'m [&'t str]) -> (Space, &'m [&'t str]) {
    let Some((first, rest)) = modifiers.split_first() else { return (Space::Generic, modifiers) };
    match *first {
        "param" => (Space::Parameter, rest),
        "global" => (Space::Global, rest),
        "shared" => (Space::Shared, rest),
        "local" => (Space::Local, rest),
        _ => (Space::Generic, modifiers),
    }
}

/// Reads `atom{.sem}{.scope}{.space}.op.type to, [at], a {, b}`, and `red` without a result. The space is the
/// first one where nvcc writes it.
fn atomic(code: &Code<'_, '_>, operands: &[&str]) -> Result<Operation, ParseError> {
    let (of, mut rest) = code.typed()?;
    let (mut space, mut scope) = (Space::Generic, Scope::Device);
    while let Some((first, others)) = rest.split_first() {
        match *first {
            "relaxed" | "acquire" | "release" | "acq_rel" => {}
            "cta" => scope = Scope::Block,
            "gpu" => scope = Scope::Device,
            "sys" => scope = Scope::System,
            "global" => space = Space::Global,
            "shared" => space = Space::Shared,
            _ => break,
        }
        rest = others;
    }
    let what = atomic_of(rest, of).ok_or_else(|| code.unknown())?;
    let (to, operands) = match (code.name, operands) {
        ("atom", [to, operands @ ..]) => (code.names.sink(to, of, Type::fits)?, operands),
        ("red", operands) if !matches!(what, Atomic::Exchange | Atomic::CompareExchange) => (None, operands),
        _ => return Err(code.unknown()),
    };
    let (at, a, b) = match (what, operands) {
        (Atomic::CompareExchange, &[at, a, b]) => (at, a, code.operand(b, of)?),
        (Atomic::CompareExchange, _) => return Err(code.unknown()),
        (_, &[at, a]) => (at, a, Operand::Value(0)),
        _ => return Err(code.unknown()),
    };
    let (at, a) = (code.address(at, space)?, code.operand(a, of)?);
    Ok(Operation::Atomic { what, scope, space, of, to, at, a, b })
}

fn atomic_of(modifiers: &[&str], of: Type) -> Option<Atomic> {
    let word = of.bytes >= 4 && of.half().is_none();
    let integer = word && of.is_integer();
    Some(match modifiers {
        ["and"] if word && of.is_bits() => Atomic::Of(Binary::And),
        ["or"] if word && of.is_bits() => Atomic::Of(Binary::Or),
        ["xor"] if word && of.is_bits() => Atomic::Of(Binary::Xor),
        ["exch"] if word && of.is_bits() => Atomic::Exchange,
        ["cas"] if of.bytes >= 2 && of.is_bits() => Atomic::CompareExchange,
        ["add"] if integer && !(of.is_signed() && of.bytes == 8) || word && of.is_float() => {
            Atomic::Of(Binary::Add)
        }
        ["add", "noftz"] if of.is_half() => Atomic::Of(Binary::Add),
        ["min"] if integer => Atomic::Of(Binary::Min),
        ["max"] if integer => Atomic::Of(Binary::Max),
        ["inc"] if of == Type::U32 => Atomic::Increment,
        ["dec"] if of == Type::U32 => Atomic::Decrement,
        _ => return None,
    })
}
