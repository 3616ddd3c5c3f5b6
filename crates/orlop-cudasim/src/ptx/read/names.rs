//! [`Names`]: what the names and numbers in a function's text stand for.

use super::module::{FunctionText, parameter};
use crate::ptx::instruction::{Address, Comparison, Operand, Register, Space, Special};
use crate::ptx::program::{Parameter, Program};
use crate::ptx::run::{MAX_LOCAL, SharedVariables};
use crate::ptx::types::Type;
use std::collections::HashMap;

/// Why a text is refused.
pub(crate) type ParseError = String;

/// The most registers of a function.
const MAX_REGISTERS: usize = 1 << 16;

/// The most bytes of a variable for calls.
const MAX_VARIABLE: usize = 1 << 16;

/// The shared variables of a module, and of the functions that were read.
#[derive(Debug, Default)]
pub(super) struct Shared<'a> {
    addresses: HashMap<&'a str, u64>,
    pub(super) variables: SharedVariables,
}

impl<'a> Shared<'a> {
    /// Reads `.align 4 .b8 part[1024]`, or `part[]` for the memory that a launch adds.
    pub(super) fn declare(&mut self, text: &'a str) -> Result<(), ParseError> {
        let (name, address) = self.allocate(text)?;
        self.addresses.insert(name, address);
        Ok(())
    }

    fn allocate(&mut self, text: &'a str) -> Result<(&'a str, u64), ParseError> {
        let refused = || format!("the shared variable {text}");
        let (name, alignment, bytes) = variable(text).ok_or_else(refused)?;
        let address = match bytes {
            None => Some(SharedVariables::dynamic()),
            Some(bytes) => self.variables.add(bytes, alignment),
        };
        Ok((name, address.ok_or_else(refused)?))
    }
}

/// Reads a variable: its name, its alignment, and its bytes unless they are left out.
fn variable(text: &str) -> Option<(&str, usize, Option<usize>)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (kind, name, alignment) = match words.as_slice() {
        [".align", alignment, kind, name] => (*kind, *name, Some(alignment.parse::<usize>().ok()?)),
        [kind, name] => (*kind, *name, None),
        _ => return None,
    };
    let of = kind.strip_prefix('.').and_then(Type::parse)?;
    let alignment = alignment.unwrap_or(of.bytes);
    let (name, count) = name.split_once('[').unwrap_or((name, "1]"));
    let bytes = match count.strip_suffix(']')? {
        "" => None,
        count => Some(count.parse::<usize>().ok()?.checked_mul(of.bytes)?),
    };
    alignment.is_power_of_two().then_some((name, alignment, bytes))
}

/// What is declared between two braces.
#[derive(Debug, Default)]
struct Scope<'a> {
    parent: Option<usize>,
    registers: HashMap<String, Register>,
    variables: HashMap<String, usize>,
    /// The addresses of shared variables, and those of local ones from the first of them.
    shared: HashMap<&'a str, u64>,
    local: HashMap<&'a str, u64>,
    labels: HashMap<&'a str, usize>,
    tables: HashMap<&'a str, Vec<&'a str>>,
}

/// What names stand for.
#[derive(Debug)]
pub(super) struct Names<'a> {
    /// The first one is that of the function.
    scopes: Vec<Scope<'a>>,
    /// The current one.
    pub(super) scope: usize,
    /// The types of the registers.
    pub(super) types: Vec<Type>,
    pub(super) variables: Vec<Parameter>,
    /// The bytes of the local variables.
    pub(super) local: usize,
}

impl<'a> Names<'a> {
    pub(super) fn new(function: &FunctionText<'_>) -> Self {
        let variables: Vec<Parameter> =
            function.parameters.iter().chain(&function.results).cloned().collect();
        let by_name = variables.iter().enumerate().map(|(index, it)| (it.name.clone(), index)).collect();
        let scope = Scope { variables: by_name, ..Scope::default() };
        Self { scopes: vec![scope], scope: 0, types: Vec::new(), variables, local: 0 }
    }

    /// Begins a scope within the current one.
    pub(super) fn enter(&mut self) {
        self.scopes.push(Scope { parent: Some(self.scope), ..Scope::default() });
        self.scope = self.scopes.len() - 1;
    }

    pub(super) fn leave(&mut self) -> Result<(), ParseError> {
        self.scope = self.scopes[self.scope].parent.ok_or("a brace too many")?;
        Ok(())
    }

    /// Finds something in the current scope or one around it.
    fn find<T>(&self, find: impl Fn(&Scope<'a>) -> Option<T>) -> Option<T> {
        let mut scope = &self.scopes[self.scope];
        loop {
            match (find(scope), scope.parent) {
                (None, Some(parent)) => scope = &self.scopes[parent],
                (found, _) => return found,
            }
        }
    }

    /// Reads `.b32 %a, %b` or `.b32 %r<8>`, which are `%r0` to `%r7`.
    pub(super) fn declare(&mut self, text: &str) -> Result<(), ParseError> {
        let (kind, list) = text.split_once(char::is_whitespace).ok_or("registers without names")?;
        let kind = kind.strip_prefix('.').and_then(Type::parse).ok_or(format!("registers of type {kind}"))?;
        for name in list.split(',').map(str::trim) {
            match name.strip_suffix('>').and_then(|name| name.split_once('<')) {
                None => self.add_register(name.to_owned(), kind)?,
                Some((name, count)) => {
                    let count: u32 = count.trim().parse().map_err(|_| format!("the count of {name}"))?;
                    for number in 0..count {
                        self.add_register(format!("{}{number}", name.trim()), kind)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn add_register(&mut self, name: String, kind: Type) -> Result<(), ParseError> {
        if self.types.len() == MAX_REGISTERS {
            return Err("too many registers".into());
        }
        if self.scopes[self.scope].registers.contains_key(&name) {
            return Err(format!("the register {name} is there twice"));
        }
        self.scopes[self.scope].registers.insert(name, self.types.len());
        self.types.push(kind);
        Ok(())
    }

    pub(super) fn declare_shared(
        &mut self,
        text: &'a str,
        shared: &mut Shared<'a>,
    ) -> Result<(), ParseError> {
        let (name, address) = shared.allocate(text)?;
        self.scopes[self.scope].shared.insert(name, address);
        Ok(())
    }

    pub(super) fn declare_local(&mut self, text: &'a str) -> Result<(), ParseError> {
        let refused = || format!("the local variable {text}");
        let (name, alignment, bytes) = variable(text).ok_or_else(refused)?;
        // A function's variables begin at a multiple of 16.
        let start = self.local.checked_next_multiple_of(alignment).filter(|_| alignment <= 16);
        let (start, bytes) = start.zip(bytes).ok_or_else(refused)?;
        self.local = start.checked_add(bytes).filter(|&end| end <= MAX_LOCAL).ok_or_else(refused)?;
        self.scopes[self.scope].local.insert(name, start as u64);
        Ok(())
    }

    /// Reads a variable of a call: `.param .b32 param0`.
    pub(super) fn declare_variable(&mut self, text: &str) -> Result<(), ParseError> {
        let refused = || format!("the variable {text}");
        let found = parameter(text).filter(|it| it.bytes <= MAX_VARIABLE).ok_or_else(refused)?;
        self.scopes[self.scope].variables.insert(found.name.clone(), self.variables.len());
        self.variables.push(found);
        Ok(())
    }

    pub(super) fn add_label(&mut self, label: &'a str, at: usize) -> Result<(), ParseError> {
        match self.scopes[self.scope].labels.insert(label, at) {
            Some(_) => Err(format!("the label {label} is there twice")),
            None => Ok(()),
        }
    }

    pub(super) fn add_table(&mut self, label: &'a str, targets: Vec<&'a str>) {
        self.scopes[self.scope].tables.insert(label, targets);
    }

    /// Returns a register whose type `fits` that of an operand.
    pub(super) fn register(
        &self,
        name: &str,
        of: Type,
        fits: fn(Type, Type) -> bool,
    ) -> Result<Register, ParseError> {
        let found = self.find(|scope| scope.registers.get(name).copied());
        let register = found.ok_or(format!("no register {name}"))?;
        if fits(self.types[register], of) { Ok(register) } else { Err(format!("the type of {name}")) }
    }

    /// Returns a register, or nothing for `_`, where a result goes that is not needed.
    pub(super) fn sink(
        &self,
        name: &str,
        of: Type,
        fits: fn(Type, Type) -> bool,
    ) -> Result<Option<Register>, ParseError> {
        if name == "_" { Ok(None) } else { self.register(name, of, fits).map(Some) }
    }

    /// Returns a predicate, which `!` turns into its opposite.
    pub(super) fn predicate(&self, text: &str) -> Result<Operand, ParseError> {
        let (name, is_negated) = text.strip_prefix('!').map_or((text, false), |name| (name, true));
        let register = self.register(name, Type::PREDICATE, Type::fits)?;
        Ok(if is_negated { Operand::Negated(register) } else { Operand::Register(register) })
    }

    /// Returns the number of a variable, of the function or of a call.
    pub(super) fn variable(&self, name: &str) -> Result<usize, ParseError> {
        self.find(|scope| scope.variables.get(name).copied()).ok_or(format!("no variable {name}"))
    }

    /// Returns an operand: a register, a number, a special register, or the address of a variable.
    pub(super) fn operand(
        &self,
        text: &str,
        of: Type,
        shared: &Shared<'a>,
        fits: fn(Type, Type) -> bool,
    ) -> Result<Operand, ParseError> {
        if self.find(|scope| scope.registers.get(text).copied()).is_some() {
            return Ok(Operand::Register(self.register(text, of, fits)?));
        }
        if let Some(special) = special(text) {
            let is_word = of == Type::U32 || of == Type::B32;
            return if is_word { Ok(special) } else { Err("its type".into()) };
        }
        if let Some(address) = self.shared_address(text, shared) {
            let is_address = of.is_integer() && of.bytes >= 4;
            return if is_address { Ok(Operand::Value(address)) } else { Err("its type".into()) };
        }
        let local = self.find(|scope| scope.local.get(text).copied()).map(Operand::Local);
        let variable = || self.variable(text).ok().map(|it| Operand::Value(Program::variable_address(it)));
        if let Some(address) = local.or_else(variable) {
            let is_address = of.bytes == 8 && !of.is_float();
            return if is_address { Ok(address) } else { Err("its type".into()) };
        }
        number(text, of).map(Operand::Value).ok_or(format!("the operand {text}"))
    }

    fn shared_address(&self, name: &str, shared: &Shared<'a>) -> Option<u64> {
        self.find(|scope| scope.shared.get(name).copied()).or_else(|| shared.addresses.get(name).copied())
    }

    /// Returns the address of `[base+offset]`. A base is a register, or a variable of the space.
    pub(super) fn address(
        &self,
        text: &str,
        space: Space,
        shared: &Shared<'a>,
    ) -> Result<Address, ParseError> {
        let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        let inner = inner.ok_or(format!("the address {text}"))?;
        let (base, offset) = inner.split_once('+').unwrap_or((inner, "0"));
        let offset = number(offset.trim(), Type::ADDRESS).ok_or(format!("the offset {offset}"))?;
        let base = base.trim();
        let variable = match space {
            Space::Parameter => {
                self.variable(base).ok().map(|index| Operand::Value(Program::variable_address(index)))
            }
            Space::Shared => self.shared_address(base, shared).map(Operand::Value),
            Space::Local => self.find(|scope| scope.local.get(base).copied()).map(Operand::Local),
            Space::Global | Space::Generic => None,
        };
        if let Some(base) = variable {
            return Ok(Address { base: Some(base), offset });
        }
        let register = self.register(base, Type::ADDRESS, Type::fits);
        let is_short = matches!(space, Space::Shared | Space::Local) && register.is_err();
        let register = if is_short { self.register(base, Type::U32, Type::fits) } else { register };
        Ok(Address { base: Some(Operand::Register(register?)), offset })
    }

    pub(super) fn label(&self, name: &str) -> Result<usize, ParseError> {
        self.find(|scope| scope.labels.get(name).copied()).ok_or(format!("no label {name}"))
    }

    pub(super) fn table(&self, name: &str) -> Result<Vec<usize>, ParseError> {
        let table = self.find(|scope| scope.tables.get(name).cloned());
        let table = table.ok_or(format!("no branch targets {name}"))?;
        table.iter().map(|label| self.label(label)).collect()
    }
}

/// Reads a number: decimal or hexadecimal, or the bits of a float (`0f`, `0d`).
fn number(text: &str, of: Type) -> Option<u64> {
    if of == Type::PREDICATE {
        return ["0", "1", "-1"].iter().position(|known| *known == text).map(|at| u64::from(at > 0));
    }
    let (text, is_negative) = text.strip_prefix('-').map_or((text, false), |text| (text, true));
    let (digits, radix, float_bytes) = match text.get(..2) {
        Some("0x" | "0X") => (&text[2..], 16, 0),
        Some("0f" | "0F") => (&text[2..], 16, 4),
        Some("0d" | "0D") => (&text[2..], 16, 8),
        _ => (text, 10, 0),
    };
    let value = u64::from_str_radix(digits, radix).ok()?;
    let is_float = of.is_float() && of.bytes > 2;
    if (float_bytes != 0) != is_float || (float_bytes != 0 && float_bytes != of.bytes) {
        return None;
    }
    // A number that the type cannot hold is an error here; PTX would cut it.
    let bits = 8 * of.bytes;
    let fits = bits == 64 || value >> bits == 0;
    let value = if is_negative { value.wrapping_neg() } else { value };
    (fits && !(is_negative && is_float)).then_some(value)
}

fn special(text: &str) -> Option<Operand> {
    let lanes = |which| Some(Operand::Special(Special::Lanes(which)));
    match text {
        "WARP_SZ" => return Some(Operand::Value(32)),
        "%laneid" => return Some(Operand::Special(Special::Lane)),
        "%lanemask_eq" => return lanes(Comparison::Eq),
        "%lanemask_lt" => return lanes(Comparison::Lt),
        "%lanemask_le" => return lanes(Comparison::Le),
        "%lanemask_gt" => return lanes(Comparison::Gt),
        "%lanemask_ge" => return lanes(Comparison::Ge),
        _ => {}
    }
    let (name, axis) = text.split_once('.')?;
    let axis = ["x", "y", "z"].iter().position(|known| *known == axis)?;
    Some(Operand::Special(match name {
        "%tid" => Special::Thread(axis),
        "%ntid" => Special::Threads(axis),
        "%ctaid" => Special::Block(axis),
        "%nctaid" => Special::Blocks(axis),
        _ => return None,
    }))
}
