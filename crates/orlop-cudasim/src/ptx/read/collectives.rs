//! The text of instructions that threads execute together.

use super::names::ParseError;
use super::opcode::Code;
use crate::ptx::instruction::{Binary, Collective, Operation, Shuffle};
use crate::ptx::types::Type;

pub(super) fn parse(code: &Code<'_, '_>) -> Result<Operation, ParseError> {
    let words = code.modifiers.as_slice();
    match (code.name, words, code.operands.as_slice()) {
        ("shfl", &["sync", how, "b32"], &[to, from, by, bounds, mask]) => {
            let what = Collective::Shuffle(match how {
                "up" => Shuffle::Up,
                "down" => Shuffle::Down,
                "bfly" => Shuffle::Xor,
                "idx" => Shuffle::Index,
                _ => return Err(code.unknown()),
            });
            collective(
                code,
                what,
                (to, Type::B32),
                &[(from, Type::B32), (by, Type::U32), (bounds, Type::U32)],
                mask,
            )
        }
        ("vote", &["sync", how, kind], &[to, predicate, mask]) => {
            let (what, of) = match (how, kind) {
                ("all", "pred") => (Collective::All, Type::PREDICATE),
                ("any", "pred") => (Collective::Any, Type::PREDICATE),
                ("uni", "pred") => (Collective::Uniform, Type::PREDICATE),
                ("ballot", "b32") => (Collective::Ballot, Type::B32),
                _ => return Err(code.unknown()),
            };
            collective(code, what, (to, of), &[(predicate, Type::PREDICATE)], mask)
        }
        ("match", &[how @ ("any" | "all"), "sync", kind @ ("b32" | "b64")], &[to, from, mask]) => {
            let of = Type::parse(kind).ok_or_else(|| code.unknown())?;
            let what = if how == "any" { Collective::MatchAny(of) } else { Collective::MatchAll(of) };
            collective(code, what, (to, Type::B32), &[(from, of)], mask)
        }
        ("redux", &["sync", how, kind @ ("u32" | "s32" | "b32")], &[to, from, mask]) => {
            let of = Type::parse(kind).ok_or_else(|| code.unknown())?;
            let what = match how {
                "add" if of.is_integer() => Binary::Add,
                "min" if of.is_integer() => Binary::Min,
                "max" if of.is_integer() => Binary::Max,
                "and" if of.is_bits() => Binary::And,
                "or" if of.is_bits() => Binary::Or,
                "xor" if of.is_bits() => Binary::Xor,
                _ => return Err(code.unknown()),
            };
            collective(code, Collective::Reduce(what, of), (to, of), &[(from, of)], mask)
        }
        ("activemask", ["b32"], &[to]) => Ok(Operation::ActiveMask { to: code.register(to, Type::B32)? }),
        _ => Err(code.unknown()),
    }
}

/// Barriers of a block or of a warp.
pub(super) fn barrier(code: &Code<'_, '_>) -> Result<Operation, ParseError> {
    match (code.name, code.modifiers.as_slice(), code.operands.as_slice()) {
        (_, ["sync"] | ["sync", "aligned"], ["0"]) | ("bar", ["cta", "sync"], ["0"]) => {
            Ok(Operation::Barrier)
        }
        ("bar", ["warp", "sync"], &[mask]) => {
            let mask = code.operand(mask, Type::B32)?;
            let (to, valid, from) = (None, None, Vec::new());
            Ok(Operation::Collective { what: Collective::Barrier, to, valid, from, mask })
        }
        _ => Err(code.unknown()),
    }
}

/// Reads a result, `%r` or `%r|%p`, operands, and the mask of the threads that take part.
fn collective(
    code: &Code<'_, '_>,
    what: Collective,
    (to, of): (&str, Type),
    from: &[(&str, Type)],
    mask: &str,
) -> Result<Operation, ParseError> {
    let (to, valid) = to.split_once('|').map_or((to, None), |(to, valid)| (to, Some(valid)));
    let has_valid = matches!(what, Collective::Shuffle(_) | Collective::MatchAll(_));
    if valid.is_some() && !has_valid {
        return Err(code.unknown());
    }
    let valid = valid.map(|name| code.names.sink(name.trim(), Type::PREDICATE, Type::fits)).transpose()?;
    let operand = |&(text, of): &(&str, Type)| match of {
        Type::PREDICATE => code.names.predicate(text),
        of => code.operand(text, of),
    };
    let to = code.names.sink(to.trim(), of, Type::fits)?;
    let from = from.iter().map(operand).collect::<Result<_, _>>()?;
    Ok(Operation::Collective { what, to, valid: valid.flatten(), from, mask: code.operand(mask, Type::B32)? })
}
