//! [`Names`]: what the names and numbers in a function's text stand for.

use super::instruction::{Address, Operand, Program, Register, Space, Special, Type};
use super::shared::SharedVariables;
use std::collections::HashMap;

/// Why a text is refused.
pub(crate) type ParseError = String;

/// More are not made of one declaration.
const MAX_REGISTERS: u32 = 1 << 16;

/// What names stand for.
#[derive(Debug, Default)]
pub(super) struct Names<'a> {
    registers: HashMap<String, Register>,
    /// The types of the registers.
    pub(super) types: Vec<Type>,
    pub(super) parameters: HashMap<&'a str, usize>,
    /// The addresses of shared variables.
    shared: HashMap<&'a str, u64>,
    pub(super) variables: SharedVariables,
    pub(super) labels: HashMap<&'a str, usize>,
    pub(super) tables: HashMap<&'a str, Vec<&'a str>>,
}

impl<'a> Names<'a> {
    /// Reads `.b32 %a, %b` or `.b32 %r<8>`, which are `%r0` to `%r7`.
    pub(super) fn declare(&mut self, text: &'a str) -> Result<(), ParseError> {
        let (kind, list) = text.split_once(char::is_whitespace).ok_or("registers without names")?;
        let kind = kind.strip_prefix('.').and_then(Type::parse).ok_or(format!("registers of type {kind}"))?;
        for name in list.split(',').map(str::trim) {
            match name.strip_suffix('>').and_then(|name| name.split_once('<')) {
                None => self.add_register(name.to_owned(), kind)?,
                Some((name, count)) => {
                    let count: u32 = count.trim().parse().map_err(|_| format!("the count of {name}"))?;
                    for number in 0..count.min(MAX_REGISTERS) {
                        self.add_register(format!("{}{number}", name.trim()), kind)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn add_register(&mut self, name: String, kind: Type) -> Result<(), ParseError> {
        if self.registers.contains_key(&name) {
            return Err(format!("the register {name} is there twice"));
        }
        self.registers.insert(name, self.types.len());
        self.types.push(kind);
        Ok(())
    }

    /// Reads `.align 4 .b8 part[1024]`, or `part[]` for the memory that a launch adds.
    pub(super) fn declare_shared(&mut self, text: &'a str) -> Result<(), ParseError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let refused = || format!("the shared variable {text}");
        let (kind, name, alignment) = match words.as_slice() {
            [".align", alignment, kind, name] => (*kind, *name, alignment.parse::<usize>().ok()),
            [kind, name] => (*kind, *name, None),
            _ => return Err(refused()),
        };
        let of = kind.strip_prefix('.').and_then(Type::parse).ok_or_else(refused)?;
        let alignment = alignment.unwrap_or(of.bytes);
        if !alignment.is_power_of_two() {
            return Err(refused());
        }
        let (name, count) = name.split_once('[').unwrap_or((name, "1]"));
        let address = match count.strip_suffix(']').ok_or_else(refused)? {
            "" => self.variables.dynamic(alignment),
            count => {
                let count: usize = count.parse().map_err(|_| refused())?;
                count.checked_mul(of.bytes).and_then(|bytes| self.variables.add(bytes, alignment))
            }
        };
        self.shared.insert(name, address.ok_or_else(refused)?);
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
        if let Some(&address) = self.shared.get(text) {
            let is_address = of.is_integer() && of.bytes >= 4;
            return if is_address { Ok(Operand::Value(address)) } else { Err("its type".into()) };
        }
        if let Some(&index) = self.parameters.get(text) {
            let address = Operand::Value(Program::parameter_address(index));
            return if of == Type::ADDRESS { Ok(address) } else { Err("its type".into()) };
        }
        number(text, of).map(Operand::Value).ok_or(format!("the operand {text}"))
    }

    /// Returns the address of `[base+offset]`. A base is a register, or a variable of the space.
    pub(super) fn address(&self, text: &str, space: Space) -> Result<Address, ParseError> {
        let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        let inner = inner.ok_or(format!("the address {text}"))?;
        let (base, offset) = inner.split_once('+').unwrap_or((inner, "0"));
        let offset = number(offset.trim(), Type::ADDRESS).ok_or(format!("the offset {offset}"))?;
        let base = base.trim();
        let variable = match space {
            Space::Parameter => self.parameters.get(base).map(|&index| Program::parameter_address(index)),
            Space::Shared => self.shared.get(base).copied(),
            Space::Global | Space::Generic => None,
        };
        if let Some(address) = variable {
            return Ok(Address { base: None, offset: address.wrapping_add(offset) });
        }
        let register = self.register(base, Type::ADDRESS, Type::fits);
        let is_short = space == Space::Shared && register.is_err();
        let register = if is_short { self.register(base, Type::U32, Type::fits) } else { register };
        Ok(Address { base: Some(register?), offset })
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
