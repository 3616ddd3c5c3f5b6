//! The text of instructions that compute.

use super::names::ParseError;
use super::opcode::Code;
use crate::ptx::instruction::{Binary, BitFunction, Comparison, Operand, Operation, Unary};
use crate::ptx::types::{FloatMode, Rounding, Type, TypeKind};

/// Reads an instruction of which the result is computed from registers.
pub(super) fn parse(code: &Code<'_, '_>) -> Result<Operation, ParseError> {
    match (code.name, code.operands.as_slice()) {
        ("cvt", operands) => conversion(code, operands),
        ("setp", operands) => comparison(code, operands),
        ("selp", &[to, a, b, predicate]) => {
            let (of, others) = code.typed()?;
            if !others.is_empty() {
                return Err(code.unknown());
            }
            let predicate = code.register(predicate, Type::PREDICATE)?;
            let (to, a, b) = (code.register(to, of)?, code.operand(a, of)?, code.operand(b, of)?);
            Ok(Operation::Select { to, a, b, predicate })
        }
        ("mul" | "mad", operands) if code.modifiers.first() == Some(&"wide") => wide(code, operands),
        ("lop3" | "shf" | "prmt" | "bfe" | "bfi", operands) => bit_function(code, operands),
        ("mad" | "fma", &[to, a, b, c]) => {
            let (of, others) = code.typed()?;
            let mode = match (code.name, others) {
                ("mad", ["lo"]) if of.is_integer() => FloatMode::default(),
                ("fma", modifiers) if is_float(of) => with_rounding(code, of, modifiers)?,
                _ => return Err(code.unknown()),
            };
            let (to, a) = (code.register(to, of)?, code.operand(a, of)?);
            Ok(Operation::MulAdd { of, mode, to, a, b: code.operand(b, of)?, c: code.operand(c, of)? })
        }
        (_, &[to, a]) => {
            let (of, others) = code.typed()?;
            let (what, mode) = unary_of(code, of, others)?;
            let is_count = matches!(what, Unary::CountOnes | Unary::LeadingZeros);
            let to = code.register(to, if is_count { Type::U32 } else { of })?;
            Ok(Operation::Unary { what, of, mode, to, a: code.operand(a, of)? })
        }
        (_, &[to, a, b]) => {
            let (of, others) = code.typed()?;
            let (what, mode) = binary_of(code, of, others)?;
            let shift = matches!(what, Binary::Shl | Binary::Shr);
            // The distance of a shift has 32 bits, whatever the type.
            let b = code.operand(b, if shift { Type::U32 } else { of })?;
            Ok(Operation::Binary { what, of, mode, to: code.register(to, of)?, a: code.operand(a, of)?, b })
        }
        _ => Err(code.unknown()),
    }
}

fn is_float(of: Type) -> bool {
    of.is_float() || of.half().is_some()
}

fn rounding_of(modifier: &str) -> Option<Rounding> {
    Some(match modifier {
        "rn" => Rounding::Nearest,
        "rz" => Rounding::Zero,
        "rm" => Rounding::Down,
        "rp" => Rounding::Up,
        _ => return None,
    })
}

/// Reads `.ftz` and `.sat` behind what else there is.
fn float_mode(code: &Code<'_, '_>, of: Type, modifiers: &[&str]) -> Result<FloatMode, ParseError> {
    let (flushes, rest) = match modifiers {
        ["ftz", rest @ ..] if of == Type::F32 => (true, rest),
        rest => (false, rest),
    };
    match rest {
        [] => Ok(FloatMode { flushes, ..FloatMode::default() }),
        ["sat"] if of.bytes < 8 => Ok(FloatMode { flushes, saturates: true, ..FloatMode::default() }),
        _ => Err(code.unknown()),
    }
}

/// Reads a rounding and what follows. Doubles are only rounded to the nearest.
fn with_rounding(code: &Code<'_, '_>, of: Type, modifiers: &[&str]) -> Result<FloatMode, ParseError> {
    let (first, rest) = modifiers.split_first().ok_or_else(|| code.unknown())?;
    let rounding = rounding_of(first).ok_or_else(|| code.unknown())?;
    if rounding != Rounding::Nearest && of != Type::F32 {
        return Err(code.unknown());
    }
    Ok(FloatMode { rounding, ..float_mode(code, of, rest)? })
}

fn unary_of(code: &Code<'_, '_>, of: Type, modifiers: &[&str]) -> Result<(Unary, FloatMode), ParseError> {
    let (signed, bits) = (of.is_signed() && of.bytes > 1, of.is_bits() && of.bytes >= 4);
    let plain = FloatMode::default();
    Ok(match (code.name, modifiers) {
        ("neg", []) if signed => (Unary::Neg, plain),
        ("abs", []) if signed => (Unary::Abs, plain),
        ("neg", rest) if is_float(of) => (Unary::Neg, float_mode(code, of, rest)?),
        ("abs", rest) if is_float(of) => (Unary::Abs, float_mode(code, of, rest)?),
        ("not", []) if of.is_bits() && of.bytes > 1 || of == Type::PREDICATE => (Unary::Not, plain),
        ("popc", []) if bits => (Unary::CountOnes, plain),
        ("clz", []) if bits => (Unary::LeadingZeros, plain),
        ("brev", []) if bits => (Unary::Reverse, plain),
        ("sqrt", ["rn" | "approx", rest @ ..]) if of == Type::F32 => {
            (Unary::Sqrt, float_mode(code, of, rest)?)
        }
        ("rcp", ["rn" | "approx", rest @ ..]) if of == Type::F32 => {
            (Unary::Reciprocal, float_mode(code, of, rest)?)
        }
        ("sqrt", ["rn"]) if of.is_float() && of.bytes == 8 => (Unary::Sqrt, plain),
        ("rcp", ["rn"]) if of.is_float() && of.bytes == 8 => (Unary::Reciprocal, plain),
        ("rsqrt", ["approx", rest @ ..]) if of == Type::F32 => {
            (Unary::ReciprocalSqrt, float_mode(code, of, rest)?)
        }
        ("ex2", ["approx", rest @ ..]) if of == Type::F32 => (Unary::Exp2, float_mode(code, of, rest)?),
        ("lg2", ["approx", rest @ ..]) if of == Type::F32 => (Unary::Log2, float_mode(code, of, rest)?),
        _ => return Err(code.unknown()),
    })
}

fn binary_of(code: &Code<'_, '_>, of: Type, modifiers: &[&str]) -> Result<(Binary, FloatMode), ParseError> {
    let (integer, float) = (of.is_integer() && of.bytes > 1, is_float(of));
    let bits = of.is_bits() && of.bytes > 1;
    let logical = bits || of == Type::PREDICATE;
    let plain = FloatMode::default();
    let what = match (code.name, modifiers) {
        ("add", []) if integer => Binary::Add,
        ("sub", []) if integer => Binary::Sub,
        ("mul", ["lo"]) if integer => Binary::Mul,
        ("mul", ["hi"]) if integer => Binary::MulHigh,
        ("div", []) if integer => Binary::Div,
        ("rem", []) if integer => Binary::Rem,
        ("min", []) if integer => Binary::Min,
        ("max", []) if integer => Binary::Max,
        ("and", []) if logical => Binary::And,
        ("or", []) if logical => Binary::Or,
        ("xor", []) if logical => Binary::Xor,
        ("shl", []) if bits => Binary::Shl,
        ("shr", []) if bits || integer => Binary::Shr,
        ("add" | "sub" | "mul", rest) if float => {
            let what = match code.name {
                "add" => Binary::Add,
                "sub" => Binary::Sub,
                _ => Binary::Mul,
            };
            // Without one, the rounding is to the nearest even number.
            let is_rounded = rest.first().is_some_and(|first| rounding_of(first).is_some());
            let mode = if is_rounded { with_rounding(code, of, rest)? } else { float_mode(code, of, rest)? };
            return Ok((what, mode));
        }
        ("div", ["rn", rest @ ..]) if of.is_float() && of.bytes > 2 => {
            return Ok((Binary::Div, float_mode(code, of, rest)?));
        }
        ("div", ["full" | "approx", rest @ ..]) if of == Type::F32 => {
            return Ok((Binary::Div, float_mode(code, of, rest)?));
        }
        ("min" | "max", rest) if float => {
            let what = if code.name == "min" { Binary::Min } else { Binary::Max };
            let (rest, keeps_nan) = match rest.split_last() {
                Some((&"NaN", rest)) if of.bytes < 8 => (rest, true),
                _ => (rest, false),
            };
            let mode = float_mode(code, of, rest)?;
            return if mode.saturates {
                Err(code.unknown())
            } else {
                Ok((what, FloatMode { keeps_nan, ..mode }))
            };
        }
        _ => return Err(code.unknown()),
    };
    Ok((what, plain))
}

/// `mul.wide` and `mad.wide`.
fn wide(code: &Code<'_, '_>, operands: &[&str]) -> Result<Operation, ParseError> {
    let (of, others) = code.typed()?;
    let double = of.wide().filter(|_| others.len() == 1).ok_or_else(|| code.unknown())?;
    let (to, a, b, c) = match (code.name, operands) {
        ("mul", &[to, a, b]) => (to, a, b, Operand::Value(0)),
        ("mad", &[to, a, b, c]) => (to, a, b, code.operand(c, double)?),
        _ => return Err(code.unknown()),
    };
    let (to, a, b) = (code.register(to, double)?, code.operand(a, of)?, code.operand(b, of)?);
    Ok(Operation::MulWide { of, to, a, b, c })
}

fn bit_function(code: &Code<'_, '_>, operands: &[&str]) -> Result<Operation, ParseError> {
    let (of, others) = code.typed()?;
    let word = of == Type::B32;
    let (&to, from) = operands.split_first().ok_or_else(|| code.unknown())?;
    let (what, types): (BitFunction, &[Type]) = match (code.name, others, from) {
        ("lop3", [], &[_, _, _, table]) if word => {
            let table = table.strip_prefix("0x").map_or(table.parse(), |table| u8::from_str_radix(table, 16));
            (BitFunction::Lookup(table.map_err(|_| code.unknown())?), &[of; 3])
        }
        ("shf", &[side @ ("l" | "r"), mode @ ("wrap" | "clamp")], [_, _, _]) if word => {
            let (is_left, wraps) = (side == "l", mode == "wrap");
            (BitFunction::Funnel { is_left, wraps }, &[Type::B32, Type::B32, Type::U32])
        }
        ("prmt", [], [_, _, _]) if word => (BitFunction::Permute, &[of; 3]),
        ("bfe", [], [_, _, _]) if of.is_integer() && of.bytes >= 4 => {
            (BitFunction::Extract, &[of, Type::U32, Type::U32])
        }
        ("bfi", [], [_, _, _, _]) if of.is_bits() && of.bytes >= 4 => {
            (BitFunction::Insert, &[of, of, Type::U32, Type::U32])
        }
        _ => return Err(code.unknown()),
    };
    let from = from.iter().zip(types).map(|(text, &of)| code.operand(text, of));
    Ok(Operation::Bits { what, of, to: code.register(to, of)?, from: from.collect::<Result<_, _>>()? })
}

fn comparison(code: &Code<'_, '_>, operands: &[&str]) -> Result<Operation, ParseError> {
    let (of, others) = code.typed()?;
    let (flushes, others) = match others.split_last() {
        Some((&"ftz", others)) if of == Type::F32 => (true, others),
        _ => (false, others),
    };
    let (name, with) = match (others, operands) {
        (&[name], [_, _, _]) => (name, None),
        (&[name, with], &[_, _, _, predicate]) => {
            let what = match with {
                "and" => Binary::And,
                "or" => Binary::Or,
                "xor" => Binary::Xor,
                _ => return Err(code.unknown()),
            };
            (name, Some((what, code.names.predicate(predicate)?)))
        }
        _ => return Err(code.unknown()),
    };
    let (what, nan) = comparison_of(name, of).ok_or_else(|| code.unknown())?;
    let (to, opposite) = operands[0].split_once('|').map_or((operands[0], "_"), |(to, other)| (to, other));
    let predicate = |name: &str| code.names.sink(name.trim(), Type::PREDICATE, Type::fits);
    let (to, opposite) = (predicate(to)?, predicate(opposite)?);
    let (a, b) = (code.operand(operands[1], of)?, code.operand(operands[2], of)?);
    let mode = FloatMode { flushes, ..FloatMode::default() };
    Ok(Operation::Compare { what, nan, of, mode, to, opposite, a, b, with })
}

/// Returns a comparison, and its result if an operand is NaN.
fn comparison_of(name: &str, of: Type) -> Option<(Comparison, bool)> {
    let (float, ordered) = (of.is_float(), (of.is_integer() || of.is_float()) && of.bytes > 1);
    let unsigned = of.is_integer() && !of.is_signed();
    Some(match name {
        "eq" if ordered || of.is_bits() => (Comparison::Eq, false),
        "ne" if ordered || of.is_bits() => (Comparison::Ne, false),
        "lt" if ordered => (Comparison::Lt, false),
        "le" if ordered => (Comparison::Le, false),
        "gt" if ordered => (Comparison::Gt, false),
        "ge" if ordered => (Comparison::Ge, false),
        // Other names of unsigned comparisons.
        "lo" if unsigned => (Comparison::Lt, false),
        "ls" if unsigned => (Comparison::Le, false),
        "hi" if unsigned => (Comparison::Gt, false),
        "hs" if unsigned => (Comparison::Ge, false),
        "equ" if float => (Comparison::Eq, true),
        "neu" if float => (Comparison::Ne, true),
        "ltu" if float => (Comparison::Lt, true),
        "leu" if float => (Comparison::Le, true),
        "gtu" if float => (Comparison::Gt, true),
        "geu" if float => (Comparison::Ge, true),
        "nan" if float => (Comparison::Nan, true),
        "num" if float => (Comparison::Num, false),
        _ => return None,
    })
}

fn conversion(code: &Code<'_, '_>, operands: &[&str]) -> Result<Operation, ParseError> {
    let (from_type, others) = code.typed()?;
    let (to_type, modifiers) = others.split_last().ok_or_else(|| code.unknown())?;
    let to_type = Type::parse(to_type).ok_or_else(|| code.unknown())?;
    match *operands {
        [to, high, low] if to_type.half().is_some() && from_type == Type::F32 && modifiers == ["rn"] => {
            let to_half = to_type.half().unwrap_or(to_type);
            let (high, low) = (code.operand(high, from_type)?, code.operand(low, from_type)?);
            Ok(Operation::ConvertPair { to: code.register(to, to_type)?, to_type: to_half, high, low })
        }
        [to, from] => {
            let mode = conversion_mode(to_type, from_type, modifiers).ok_or_else(|| code.unknown())?;
            let to = code.names.register(to, to_type, Type::holds)?;
            Ok(Operation::Convert { to, to_type, mode, from: code.held(from, from_type)?, from_type })
        }
        _ => Err(code.unknown()),
    }
}

/// Returns how a conversion rounds: with the rounding that it needs, and none where it is illegal.
fn conversion_mode(to: Type, from: Type, modifiers: &[&str]) -> Option<FloatMode> {
    let is_number = |of: Type| of.is_integer() || of.is_float();
    if !is_number(to) || !is_number(from) {
        return None;
    }
    let plain = FloatMode::default();
    let (mut mode, rest) = match modifiers.split_first() {
        Some((first, rest)) => match (rounding_of(first), first.strip_suffix('i').and_then(rounding_of)) {
            (Some(rounding), _) => (FloatMode { rounding, ..plain }, rest),
            (None, Some(rounding)) => (FloatMode { rounding, is_whole: true, ..plain }, rest),
            (None, None) => (plain, modifiers),
        },
        None => (plain, modifiers),
    };
    let (is_rounded, is_nearest) = (rest.len() < modifiers.len(), mode.rounding == Rounding::Nearest);
    let is_short = to.kind == TypeKind::Brain && from.bytes == 8;
    let is_known = match (to.is_float(), from.is_float()) {
        (false, false) => !is_rounded,
        (true, false) => {
            is_rounded && !mode.is_whole && !is_short && (is_nearest || from.bytes < 8 && to.bytes < 8)
        }
        (false, true) => mode.is_whole,
        // Of one size it rounds to whole numbers, or not at all.
        (true, true) if to.bytes == from.bytes => to.kind == from.kind && (mode.is_whole || !is_rounded),
        (true, true) if to.bytes < from.bytes => is_rounded && !mode.is_whole && !is_short,
        (true, true) => !is_rounded,
    };
    let rest = match rest {
        ["ftz", rest @ ..] if to == Type::F32 || from == Type::F32 => {
            mode.flushes = true;
            rest
        }
        rest => rest,
    };
    let rest = match rest {
        ["sat"] if to.is_float() && from.is_float() => {
            mode.saturates = true;
            &[]
        }
        rest => rest,
    };
    let is_same = to == from && !is_rounded && !mode.saturates && !mode.flushes && to.is_float();
    (is_known && rest.is_empty() && !is_same).then_some(mode)
}
