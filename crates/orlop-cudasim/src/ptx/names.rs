//! [`Names`]: what the names and numbers in a function's text stand for.

use super::instruction::{Address, Operand, Program, Register, Special, Type};
use std::collections::HashMap;

/// Why a text is refused.
pub(crate) type ParseError = String;

/// What names stand for.
#[derive(Debug, Default)]
pub(super) struct Names<'a> {
    registers: HashMap<&'a str, Register>,
    /// The types of the registers.
    pub(super) types: Vec<Type>,
    pub(super) parameters: HashMap<&'a str, usize>,
    pub(super) labels: HashMap<&'a str, usize>,
    pub(super) tables: HashMap<&'a str, Vec<&'a str>>,
}

impl<'a> Names<'a> {
    /// Reads `.b32 %a, %b` or `.b32 %r<8>`.
    pub(super) fn declare(&mut self, text: &'a str) -> Result<(), ParseError> {
        let (kind, list) = text.split_once(char::is_whitespace).ok_or("registers without names")?;
        let kind = kind.strip_prefix('.').and_then(Type::parse).ok_or(format!("registers of type {kind}"))?;
        for name in list.split(',').map(str::trim) {
            if name.contains('<') {
                return Err(format!("numbered registers: {name}"));
            }
            if self.registers.insert(name, self.types.len()).is_some() {
                return Err(format!("the register {name} is there twice"));
            }
            self.types.push(kind);
        }
        Ok(())
    }

    /// Returns a register whose type `fits` that of an operand.
    pub(super) fn register(
        &self,
        name: &str,
        of: Type,
        fits: fn(Type, Type) -> bool,
    ) -> Result<Register, ParseError> {
        let register = *self.registers.get(name).ok_or(format!("no register {name}"))?;
        if fits(self.types[register], of) { Ok(register) } else { Err(format!("the type of {name}")) }
    }

    /// Returns an operand: a register, a number, or a special register.
    pub(super) fn operand(
        &self,
        text: &str,
        of: Type,
        fits: fn(Type, Type) -> bool,
    ) -> Result<Operand, ParseError> {
        if self.registers.contains_key(text) {
            return Ok(Operand::Register(self.register(text, of, fits)?));
        }
        if let Some(special) = special(text) {
            return if of == Type::U32 { Ok(Operand::Special(special)) } else { Err("its type".into()) };
        }
        if let Some(&index) = self.parameters.get(text) {
            let address = Operand::Value(Program::parameter_address(index));
            return if of == Type::ADDRESS { Ok(address) } else { Err("its type".into()) };
        }
        number(text, of).map(Operand::Value).ok_or(format!("the operand {text}"))
    }

    /// Returns the address of `[base+offset]`. A base is a register, or a parameter where `parameters`.
    pub(super) fn address(&self, text: &str, parameters: bool) -> Result<Address, ParseError> {
        let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        let inner = inner.ok_or(format!("the address {text}"))?;
        let (base, offset) = inner.split_once('+').unwrap_or((inner, "0"));
        let offset = number(offset.trim(), Type::ADDRESS).ok_or(format!("the offset {offset}"))?;
        let base = base.trim();
        match self.parameters.get(base) {
            Some(&index) if parameters => {
                Ok(Address { base: None, offset: Program::parameter_address(index).wrapping_add(offset) })
            }
            _ => Ok(Address { base: Some(self.register(base, Type::ADDRESS, Type::fits)?), offset }),
        }
    }

    pub(super) fn label(&self, name: &str) -> Result<usize, ParseError> {
        self.labels.get(name).copied().ok_or(format!("no label {name}"))
    }

    pub(super) fn table(&self, name: &str) -> Result<Vec<usize>, ParseError> {
        let table = self.tables.get(name).ok_or(format!("no branch targets {name}"))?;
        table.iter().map(|label| self.label(label)).collect()
    }
}

/// Reads a number: decimal or hexadecimal, or the bits of a float (`0f`, `0d`).
fn number(text: &str, of: Type) -> Option<u64> {
    let (text, is_negative) = text.strip_prefix('-').map_or((text, false), |text| (text, true));
    let (digits, radix, float_bytes) = match text.get(..2) {
        Some("0x" | "0X") => (&text[2..], 16, 0),
        Some("0f" | "0F") => (&text[2..], 16, 4),
        Some("0d" | "0D") => (&text[2..], 16, 8),
        _ => (text, 10, 0),
    };
    let value = u64::from_str_radix(digits, radix).ok()?;
    if (float_bytes != 0) != of.is_float() || (float_bytes != 0 && float_bytes != of.bytes) {
        return None;
    }
    // A number that the type cannot hold is an error here; PTX would cut it.
    let bits = 8 * of.bytes;
    let fits = bits == 64 || value >> bits == 0;
    let value = if is_negative { value.wrapping_neg() } else { value };
    (fits && of != Type::PREDICATE && !(is_negative && of.is_float())).then_some(value)
}

fn special(text: &str) -> Option<Special> {
    let (name, axis) = text.split_once('.')?;
    let axis = ["x", "y", "z"].iter().position(|known| *known == axis)?;
    Some(match name {
        "%tid" => Special::Thread(axis),
        "%ntid" => Special::Threads(axis),
        "%ctaid" => Special::Block(axis),
        "%nctaid" => Special::Blocks(axis),
        _ => return None,
    })
}
