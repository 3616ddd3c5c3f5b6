//! [`Linker`]: the functions that an entry point calls, each read once.

use super::module::{FunctionText, ModuleText};
use super::names::{ParseError, Shared};
use crate::ptx::program::{Function, Program};
use std::collections::HashMap;

pub(super) struct Linker<'a> {
    module: &'a ModuleText<'a>,
    /// The functions of the program, by their numbers in the module.
    numbers: HashMap<usize, usize>,
    /// In the order of the program.
    functions: Vec<&'a FunctionText<'a>>,
}

impl<'a> Linker<'a> {
    /// Returns the number of a function in the program, which a call names.
    pub(super) fn function(&mut self, name: &str) -> Result<(usize, &'a FunctionText<'a>), ParseError> {
        let found = self.module.functions.iter().position(|function| function.name == name);
        let index = found.ok_or(format!("no function {name}"))?;
        let text = &self.module.functions[index];
        if text.body.is_none() {
            return Err(format!("{name} has no code in this module"));
        }
        if text.is_entry {
            return Err(format!("{name} is an entry point"));
        }
        Ok((self.add(index), text))
    }

    fn add(&mut self, index: usize) -> usize {
        let next = self.functions.len();
        let number = *self.numbers.entry(index).or_insert(next);
        if number == next {
            self.functions.push(&self.module.functions[index]);
        }
        number
    }
}

/// Reads an entry point of a module, and all that it calls.
pub(super) fn link(module: &ModuleText<'_>, entry: usize) -> Result<Program, ParseError> {
    let mut shared = Shared::default();
    for &variable in &module.shared {
        shared.declare(variable)?;
    }
    let mut linker = Linker { module, numbers: HashMap::new(), functions: Vec::new() };
    linker.add(entry);
    let mut functions = Vec::new();
    while let Some(&text) = linker.functions.get(functions.len()) {
        functions.push(Function::parse(text, &mut shared, &mut linker)?);
    }
    Ok(Program { functions, shared: shared.variables })
}
