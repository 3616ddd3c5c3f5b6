//! [`Frame`]: a function that a thread is in.

use super::bytes::{KnownBytes, LocalMemory};
use super::warp::Known;
use crate::codes::{Failure, Outcome};
use crate::ptx::program::{Function, Program};

pub(super) struct Frame<'a> {
    program: &'a Program,
    /// The number of the function.
    pub(super) index: usize,
    /// The number of the next instruction.
    pub(super) next: usize,
    /// A register that was never written has an arbitrary value.
    pub(super) registers: Vec<Known>,
    /// Parameters, results, and those of calls. The parameters of an entry point are not here.
    variables: Vec<KnownBytes>,
    /// Where its local variables are.
    pub(super) local: u64,
}

impl<'a> Frame<'a> {
    pub(super) fn new(program: &'a Program, index: usize, local: &mut LocalMemory) -> Outcome<Self> {
        let function = &program.functions[index];
        let kept = function.variables.iter().skip(own_from(function, index));
        let variables = kept.map(|variable| KnownBytes(vec![None; variable.bytes])).collect();
        let registers = vec![None; function.registers.len()];
        let local = local.push(function.local)?;
        Ok(Self { program, index, next: 0, registers, variables, local })
    }

    pub(super) fn function(&self) -> &'a Function {
        &self.program.functions[self.index]
    }

    /// Copies the arguments of a call, which are variables of the caller.
    pub(super) fn take(&mut self, caller: &Self, arguments: &[usize]) {
        for (to, &from) in self.variables.iter_mut().zip(arguments) {
            if let Some(from) = caller.own(from) {
                to.0.clone_from(&from.0);
            }
        }
    }

    /// Copies the results of a function that was called to variables.
    pub(super) fn give(&mut self, called: &Self, results: &[usize]) {
        for (&to, from) in results.iter().zip(called.variables.iter().skip(called.function().parameters)) {
            let own = to.checked_sub(own_from(self.function(), self.index));
            if let Some(to) = own.and_then(|to| self.variables.get_mut(to)) {
                to.0.clone_from(&from.0);
            }
        }
    }

    fn own(&self, variable: usize) -> Option<&KnownBytes> {
        self.variables.get(variable.checked_sub(own_from(self.function(), self.index))?)
    }

    /// Reads a variable, within its bytes and as aligned as it is.
    pub(super) fn load(&self, arguments: &[Vec<u8>], address: u64, bytes: usize) -> Outcome<Known> {
        let (index, start) = self.variable(address, bytes)?;
        if let Some(own) = self.own(index) {
            return own.load(start, bytes);
        }
        let argument = arguments.get(index).ok_or(Failure::ILLEGAL_ADDRESS)?;
        let start = usize::try_from(start).map_err(|_| Failure::ILLEGAL_ADDRESS)?;
        let value = argument.get(start..start + bytes).ok_or(Failure::ILLEGAL_ADDRESS)?;
        let mut all = [0; 8];
        all[..bytes].copy_from_slice(value);
        Ok(Some(u64::from_le_bytes(all)))
    }

    pub(super) fn store(&mut self, address: u64, bytes: usize, value: Known) -> Outcome {
        let (index, start) = self.variable(address, bytes)?;
        let own = index.checked_sub(own_from(self.function(), self.index));
        let own = own.and_then(|own| self.variables.get_mut(own)).ok_or(Failure::ILLEGAL_ADDRESS)?;
        own.store(start, bytes, value)
    }

    /// Returns the number of the variable at an address, and where in it.
    fn variable(&self, address: u64, bytes: usize) -> Outcome<(usize, u64)> {
        let index = usize::try_from((address >> 32).wrapping_sub(1)).map_err(|_| Failure::ILLEGAL_ADDRESS)?;
        let variable = self.function().variables.get(index).ok_or(Failure::ILLEGAL_ADDRESS)?;
        if variable.alignment < bytes {
            return Err(Failure::MISALIGNED_ADDRESS);
        }
        Ok((index, address & u64::from(u32::MAX)))
    }
}

/// Returns the first variable that is kept in a frame: the arguments of a launch are kept once.
fn own_from(function: &Function, index: usize) -> usize {
    if index == 0 { function.parameters } else { 0 }
}
