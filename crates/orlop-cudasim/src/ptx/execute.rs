//! Threads: each executes the instructions from the first one until it returns.

use super::arithmetic::{binary, compare, convert, cut, extend, mul_add};
use super::instruction::{Address, Operand, Operation, Program, Register, Special, Type};
use super::memory::GlobalMemory;
use crate::codes::{Failure, Outcome};

/// The instructions that a thread executes before it counts as endless.
const LIMIT: usize = 1 << 20;

/// The blocks of a launch, and the threads of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
}

/// A value, or `None` if it depends on memory whose content is not known.
type Known = Option<u64>;

struct Thread<'a> {
    program: &'a Program,
    arguments: &'a [Vec<u8>],
    shape: Shape,
    block: [u32; 3],
    thread: [u32; 3],
    /// A register that was never written has an arbitrary value.
    registers: &'a mut [Known],
}

/// Calls `visit` with all coordinates, the first one fastest.
fn each(sizes: [u32; 3], mut visit: impl FnMut([u32; 3]) -> Outcome) -> Outcome {
    for z in 0..sizes[2] {
        for y in 0..sizes[1] {
            for x in 0..sizes[0] {
                visit([x, y, z])?;
            }
        }
    }
    Ok(())
}

impl Program {
    /// Executes all threads, one after the other: they have no means to wait for each other.
    ///
    /// # Errors
    ///
    /// `NOT_SUPPORTED` if an address or a branch depends on a value that is not known; otherwise what ends a
    /// context.
    pub(crate) fn execute(
        &self,
        shape: Shape,
        arguments: &[Vec<u8>],
        memory: &mut impl GlobalMemory,
    ) -> Outcome {
        let mut registers = vec![None; self.registers.len()];
        each(shape.grid, |block| {
            each(shape.block, |thread| {
                registers.fill(None);
                memory.begin_thread();
                let registers = registers.as_mut_slice();
                Thread { program: self, arguments, shape, block, thread, registers }.run(memory)
            })
        })
    }
}

impl Thread<'_> {
    fn run(mut self, memory: &mut impl GlobalMemory) -> Outcome {
        let mut next = 0;
        for _ in 0..LIMIT {
            // The end of a function is a return.
            let Some(instruction) = self.program.instructions.get(next) else { return Ok(()) };
            next += 1;
            if let Some((predicate, wanted)) = instruction.guard
                && (self.certain(self.registers[predicate])? != 0) != wanted
            {
                continue;
            }
            match &instruction.operation {
                Operation::Branch { target } => next = *target,
                Operation::BranchTable { index, targets } => {
                    let index = self.certain(self.value(*index))?;
                    let target = usize::try_from(index).ok().and_then(|index| targets.get(index));
                    // Undefined by the architecture.
                    next = *target.ok_or(Failure::INVALID_PC)?;
                }
                Operation::Return => return Ok(()),
                operation => self.step(operation, memory)?,
            }
        }
        Err(Failure::LAUNCH_TIMEOUT)
    }

    fn step(&mut self, operation: &Operation, memory: &mut impl GlobalMemory) -> Outcome {
        match operation {
            &Operation::Move { to, from } => self.set(to, self.value(from)),
            &Operation::Binary { what, of, to, a, b } => {
                let result = self.both(a, b).map(|(a, b)| binary(what, of, a, b));
                self.set(to, result);
            }
            &Operation::MulAdd { of, to, a, b, c } => {
                let result = self.both(a, b).zip(self.value(c)).map(|((a, b), c)| mul_add(of, a, b, c));
                self.set(to, result);
            }
            &Operation::Compare { what, of, to, a, b } => {
                let result = self.both(a, b).map(|(a, b)| u64::from(compare(what, of, a, b)));
                self.set(to, result);
            }
            &Operation::Select { to, a, b, predicate } => {
                let chosen =
                    self.registers[predicate].and_then(|is_a| self.value(if is_a != 0 { a } else { b }));
                self.set(to, chosen);
            }
            &Operation::Convert { to, to_type, from, from_type } => {
                let result = self.value(from).map(|value| convert(to_type, from_type, value));
                self.set(to, result);
            }
            Operation::LoadParameter { of, to, from } => {
                let address = self.address(*from)?;
                aligned(address, of.bytes * to.len())?;
                for (index, &to) in to.iter().enumerate() {
                    let value = self.parameter(address + (index * of.bytes) as u64, of.bytes)?;
                    self.set(to, Some(extend(value, *of)));
                }
            }
            Operation::Load { of, to, from } => {
                let address = self.address(*from)?;
                aligned(address, of.bytes * to.len())?;
                for (index, &to) in to.iter().enumerate() {
                    let value = memory.load(address + (index * of.bytes) as u64, of.bytes)?;
                    self.set(to, value.map(|value| extend(value, *of)));
                }
            }
            Operation::Store { of, to, from } => {
                let address = self.address(*to)?;
                aligned(address, of.bytes * from.len())?;
                for (index, &from) in from.iter().enumerate() {
                    let value = self.value(from).unwrap_or(0);
                    memory.store(address + (index * of.bytes) as u64, of.bytes, cut(value, of.bytes))?;
                }
            }
            Operation::Branch { .. } | Operation::BranchTable { .. } | Operation::Return => {}
        }
        Ok(())
    }

    fn set(&mut self, to: Register, value: Known) {
        let Type { bytes, .. } = self.program.registers[to];
        self.registers[to] = value.map(|value| cut(value, bytes));
    }

    fn value(&self, operand: Operand) -> Known {
        match operand {
            Operand::Register(register) => self.registers[register],
            Operand::Value(value) => Some(value),
            Operand::Special(special) => Some(u64::from(match special {
                Special::Thread(axis) => self.thread[axis],
                Special::Threads(axis) => self.shape.block[axis],
                Special::Block(axis) => self.block[axis],
                Special::Blocks(axis) => self.shape.grid[axis],
            })),
        }
    }

    fn both(&self, a: Operand, b: Operand) -> Option<(u64, u64)> {
        self.value(a).zip(self.value(b))
    }

    fn certain(&self, value: Known) -> Outcome<u64> {
        value.ok_or(Failure::NOT_SUPPORTED)
    }

    fn address(&self, address: Address) -> Outcome<u64> {
        let base = address.base.map_or(Ok(0), |base| self.certain(self.registers[base]))?;
        Ok(base.wrapping_add(address.offset))
    }

    /// Reads a parameter, within its bytes and as aligned as it is.
    fn parameter(&self, address: u64, bytes: usize) -> Outcome<u64> {
        let index = usize::try_from((address >> 32).wrapping_sub(1)).map_err(|_| Failure::ILLEGAL_ADDRESS)?;
        let start = usize::try_from(cut(address, 4)).map_err(|_| Failure::ILLEGAL_ADDRESS)?;
        let found = self.program.parameters.get(index).zip(self.arguments.get(index));
        let (parameter, argument) = found.ok_or(Failure::ILLEGAL_ADDRESS)?;
        if parameter.alignment < bytes {
            return Err(Failure::MISALIGNED_ADDRESS);
        }
        let value = argument.get(start..start + bytes).ok_or(Failure::ILLEGAL_ADDRESS)?;
        let mut all = [0; 8];
        all[..bytes].copy_from_slice(value);
        Ok(u64::from_le_bytes(all))
    }
}

/// Every access is aligned to its size.
fn aligned(address: u64, bytes: usize) -> Outcome {
    if address.is_multiple_of(bytes as u64) { Ok(()) } else { Err(Failure::MISALIGNED_ADDRESS) }
}
