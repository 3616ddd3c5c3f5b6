//! The text of one instruction, as an [`Operation`].

use super::instruction::{Binary, Comparison, Operand, Operation, Space, Type, TypeKind, Unary};
use super::names::{Names, ParseError};
use super::shared::WINDOW;

/// Splits operands at commas that are not within braces or brackets.
fn split_operands(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut operands) = (0_i32, 0, Vec::new());
    for (at, letter) in text.char_indices() {
        match letter {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
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

/// Reads an instruction without its guard.
pub(super) fn parse(text: &str, names: &Names<'_>) -> Result<Operation, ParseError> {
    let (opcode, operands) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let operands = split_operands(operands);
    let words: Vec<&str> = opcode.split('.').collect();
    let unknown = || format!("the instruction {opcode} is not known");
    let (name, modifiers) = words.split_first().ok_or_else(unknown)?;
    let of = modifiers.last().and_then(|word| Type::parse(word));
    // Everything that decides the meaning, apart from the types at the end.
    let known = |count: usize| modifiers.get(..modifiers.len().saturating_sub(count)).unwrap_or(&[]);
    let typed = of.ok_or_else(unknown);
    match (*name, known(1), operands.as_slice()) {
        ("mov", [], &[to, from]) => {
            let of = typed?;
            let to = names.register(to, of, Type::fits)?;
            Ok(Operation::Move { to, from: names.operand(from, of, Type::fits)? })
        }
        ("cvta", ["to", "global"], &[to, from]) if of == Some(Type::ADDRESS) => {
            let to = names.register(to, Type::ADDRESS, Type::fits)?;
            Ok(Operation::Move { to, from: names.operand(from, Type::ADDRESS, Type::fits)? })
        }
        ("cvta", &["shared"] | &["to", "shared"], &[to, from]) if of == Some(Type::ADDRESS) => {
            let what = if modifiers.len() == 2 { Binary::Add } else { Binary::Sub };
            let (to, of) = (names.register(to, Type::ADDRESS, Type::fits)?, Type::ADDRESS);
            let a = names.operand(from, of, Type::fits)?;
            Ok(Operation::Binary { what, of, to, a, b: Operand::Value(WINDOW) })
        }
        ("mul", ["wide"], &[to, a, b]) => {
            let of = typed?;
            let to = names.register(to, of.wide().ok_or_else(unknown)?, Type::fits)?;
            let operand = |text| names.operand(text, of, Type::fits);
            Ok(Operation::MulWide { of, to, a: operand(a)?, b: operand(b)? })
        }
        ("neg" | "abs" | "not", [], &[to, a]) => {
            let of = typed?;
            let what = unary_of(name, of).ok_or_else(unknown)?;
            let to = names.register(to, of, Type::fits)?;
            Ok(Operation::Unary { what, of, to, a: names.operand(a, of, Type::fits)? })
        }
        ("bar" | "barrier", _, &["0"]) if matches!(modifiers, ["sync"] | ["sync", "aligned"]) => {
            Ok(Operation::Barrier)
        }
        ("mad", ["lo"], &[to, a, b, c]) | ("fma", ["rn"], &[to, a, b, c]) => {
            let is_known = |of: Type| if *name == "fma" { of.is_float() } else { of.is_integer() };
            let of = typed.and_then(|of| if is_known(of) { Ok(of) } else { Err(unknown()) })?;
            let operand = |text| names.operand(text, of, Type::fits);
            let to = names.register(to, of, Type::fits)?;
            Ok(Operation::MulAdd { of, to, a: operand(a)?, b: operand(b)?, c: operand(c)? })
        }
        ("setp", &[comparison], &[to, a, b]) => {
            let of = typed?;
            let what = comparison_of(comparison, of).ok_or_else(unknown)?;
            let operand = |text| names.operand(text, of, Type::fits);
            let to = names.register(to, Type::PREDICATE, Type::fits)?;
            Ok(Operation::Compare { what, of, to, a: operand(a)?, b: operand(b)? })
        }
        ("selp", [], &[to, a, b, predicate]) => {
            let of = typed?;
            let operand = |text| names.operand(text, of, Type::fits);
            let to = names.register(to, of, Type::fits)?;
            let predicate = names.register(predicate, Type::PREDICATE, Type::fits)?;
            Ok(Operation::Select { to, a: operand(a)?, b: operand(b)?, predicate })
        }
        ("cvt", _, &[to, from]) => {
            let to_type = modifiers.iter().rev().nth(1).and_then(|word| Type::parse(word));
            let (to_type, from_type) = (to_type.ok_or_else(unknown)?, typed?);
            if !converts(to_type, from_type, known(2)) {
                return Err(unknown());
            }
            let to = names.register(to, to_type, Type::holds)?;
            let from = names.operand(from, from_type, Type::holds)?;
            Ok(Operation::Convert { to, to_type, from, from_type })
        }
        ("ld", accessed, &[to, from]) => {
            let of = typed?;
            let (space, vector) = space_of(accessed);
            // The cache for memory that no thread of the launch writes.
            let vector = vector.strip_prefix(&["nc"]).filter(|_| space == Space::Global).unwrap_or(vector);
            let list = elements(to, vector).ok_or_else(unknown)?;
            let to =
                list.iter().map(|name| names.register(name, of, Type::holds)).collect::<Result<_, _>>()?;
            let from = names.address(from, space)?;
            Ok(match space {
                Space::Parameter => Operation::LoadParameter { of, to, from },
                space => Operation::Load { space, of, to, from },
            })
        }
        ("st", accessed, &[to, from]) => {
            let of = typed?;
            let (space, vector) = space_of(accessed);
            if space == Space::Parameter {
                return Err(unknown());
            }
            let list = elements(from, vector).ok_or_else(unknown)?;
            let from = list.iter().map(|name| names.operand(name, of, Type::holds));
            let (to, from) = (names.address(to, space)?, from.collect::<Result<_, _>>()?);
            Ok(Operation::Store { space, of, to, from })
        }
        ("bra", _, &[target]) if matches!(modifiers, [] | ["uni"]) => {
            Ok(Operation::Branch { target: names.label(target)? })
        }
        ("brx", _, &[index, table]) if matches!(modifiers, ["idx"] | ["idx", "uni"]) => {
            let index = names.operand(index, Type::U32, Type::fits)?;
            Ok(Operation::BranchTable { index, targets: names.table(table)? })
        }
        ("ret" | "exit", _, []) if modifiers.is_empty() => Ok(Operation::Return),
        (name, known, &[to, a, b]) => {
            let of = typed?;
            let what = binary_of(name, known, of).ok_or_else(unknown)?;
            let shift = matches!(what, Binary::Shl | Binary::Shr);
            let to = names.register(to, of, Type::fits)?;
            let a = names.operand(a, of, Type::fits)?;
            // The distance of a shift has 32 bits, whatever the type.
            let b = names.operand(b, if shift { Type::U32 } else { of }, Type::fits)?;
            Ok(Operation::Binary { what, of, to, a, b })
        }
        _ => Err(unknown()),
    }
}

/// Splits the state space off the modifiers of an access.
fn space_of<'m, 't>(modifiers: &'m [&'t str]) -> (Space, &'m [&'t str]) {
    let Some((first, rest)) = modifiers.split_first() else { return (Space::Generic, modifiers) };
    match *first {
        "param" => (Space::Parameter, rest),
        "global" => (Space::Global, rest),
        "shared" => (Space::Shared, rest),
        _ => (Space::Generic, modifiers),
    }
}

fn unary_of(name: &str, of: Type) -> Option<Unary> {
    let signed = of.is_signed() && of.bytes > 1;
    Some(match name {
        "neg" if signed || of.is_float() => Unary::Neg,
        "abs" if signed || of.is_float() => Unary::Abs,
        "not" if of.is_bits() && of.bytes > 1 || of == Type::PREDICATE => Unary::Not,
        _ => return None,
    })
}

fn binary_of(name: &str, modifiers: &[&str], of: Type) -> Option<Binary> {
    let (integer, float) = (of.is_integer() && of.bytes > 1, of.is_float());
    let bits = of.is_bits() && of.bytes > 1;
    let logical = bits || of == Type::PREDICATE;
    // Without one, the rounding of floats is to the nearest even number.
    Some(match (name, modifiers) {
        ("add", []) if integer => Binary::Add,
        ("add", [] | ["rn"]) if float => Binary::Add,
        ("sub", []) if integer => Binary::Sub,
        ("sub", [] | ["rn"]) if float => Binary::Sub,
        ("mul", ["lo"]) if integer => Binary::Mul,
        ("mul", [] | ["rn"]) if float => Binary::Mul,
        ("div", []) if integer => Binary::Div,
        ("div", ["rn"]) if float => Binary::Div,
        ("rem", []) if integer => Binary::Rem,
        ("min", []) if integer => Binary::Min,
        ("max", []) if integer => Binary::Max,
        ("and", []) if logical => Binary::And,
        ("or", []) if logical => Binary::Or,
        ("xor", []) if logical => Binary::Xor,
        ("shl", []) if bits => Binary::Shl,
        ("shr", []) if bits || integer => Binary::Shr,
        _ => return None,
    })
}

fn comparison_of(name: &str, of: Type) -> Option<Comparison> {
    let ordered = (of.is_integer() || of.is_float()) && of.bytes > 1;
    Some(match name {
        "eq" if ordered || of.is_bits() => Comparison::Eq,
        "ne" if ordered || of.is_bits() => Comparison::Ne,
        "lt" if ordered => Comparison::Lt,
        "le" if ordered => Comparison::Le,
        "gt" if ordered => Comparison::Gt,
        "ge" if ordered => Comparison::Ge,
        "nan" if of.is_float() => Comparison::Nan,
        "num" if of.is_float() => Comparison::Num,
        _ => return None,
    })
}

/// Returns `true` if there is this conversion: with the rounding that it needs, and none where it is illegal.
fn converts(to: Type, from: Type, modifiers: &[&str]) -> bool {
    let is_number = |of: Type| of.is_integer() || of.is_float();
    let needed: &[&str] = match (to.kind, from.kind) {
        (TypeKind::Float, TypeKind::Float) if to.bytes < from.bytes => &["rn"],
        // Of one size it rounds to whole numbers.
        (TypeKind::Float, TypeKind::Float) if to.bytes == from.bytes => return false,
        (TypeKind::Float, TypeKind::Float) => &[],
        (TypeKind::Float, _) => &["rn"],
        (_, TypeKind::Float) => &["rzi"],
        _ => &[],
    };
    is_number(to) && is_number(from) && modifiers == needed
}

/// Returns the elements of `%a` or, for a vector, of `{%a, %b}`.
fn elements<'a>(text: &'a str, vector: &[&str]) -> Option<Vec<&'a str>> {
    let count = match vector {
        [] => return Some(vec![text]),
        ["v2"] => 2,
        ["v4"] => 4,
        _ => return None,
    };
    let inner = text.strip_prefix('{')?.strip_suffix('}')?;
    let list: Vec<&str> = inner.split(',').map(str::trim).collect();
    (list.len() == count).then_some(list)
}
