//! [`Thread`]: the instructions of one thread.

use super::arithmetic::{binary, compare, convert, cut, extend, mul_add, mul_wide, unary};
use super::execute::Shape;
use super::instruction::{Address, Operand, Operation, Program, Register, Space, Special, Type};
use super::memory::GlobalMemory;
use super::shared::{SharedMemory, WINDOW};
use crate::codes::{Failure, Outcome};

/// The instructions that a thread executes without a barrier before it counts as endless.
const LIMIT: usize = 1 << 20;

/// A value, or `None` if it depends on memory whose content is not known.
type Known = Option<u64>;

/// Where a thread stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// At a barrier: the number of the instruction behind it.
    Barrier(usize),
    Returned,
}

pub(super) struct Thread<'a> {
    program: &'a Program,
    arguments: &'a [Vec<u8>],
    shape: Shape,
    block: [u32; 3],
    thread: [u32; 3],
    /// A register that was never written has an arbitrary value.
    registers: Vec<Known>,
    /// The number of the next instruction.
    next: usize,
}

impl<'a> Thread<'a> {
    pub(super) fn new(
        program: &'a Program,
        arguments: &'a [Vec<u8>],
        shape: Shape,
        (block, thread): ([u32; 3], [u32; 3]),
    ) -> Self {
        let registers = vec![None; program.registers.len()];
        Self { program, arguments, shape, block, thread, registers, next: 0 }
    }
}

impl Thread<'_> {
    /// Runs up to the next barrier, or to the end.
    pub(super) fn run(&mut self, shared: &mut SharedMemory, memory: &mut impl GlobalMemory) -> Outcome<Stop> {
        for _ in 0..LIMIT {
            // The end of a function is a return.
            let Some(instruction) = self.program.instructions.get(self.next) else {
                return Ok(Stop::Returned);
            };
            self.next += 1;
            if let Some((predicate, wanted)) = instruction.guard
                && (self.certain(self.registers[predicate])? != 0) != wanted
            {
                continue;
            }
            match &instruction.operation {
                Operation::Branch { target } => self.next = *target,
                Operation::BranchTable { index, targets } => {
                    let index = self.certain(self.value(*index))?;
                    let target = usize::try_from(index).ok().and_then(|index| targets.get(index));
                    // Undefined by the architecture.
                    self.next = *target.ok_or(Failure::INVALID_PC)?;
                }
                Operation::Return => return Ok(Stop::Returned),
                Operation::Barrier => return Ok(Stop::Barrier(self.next)),
                operation => self.step(operation, shared, memory)?,
            }
        }
        Err(Failure::LAUNCH_TIMEOUT)
    }

    fn step(
        &mut self,
        operation: &Operation,
        shared: &mut SharedMemory,
        memory: &mut impl GlobalMemory,
    ) -> Outcome {
        match operation {
            &Operation::Move { to, from } => self.set(to, self.value(from)),
            &Operation::Binary { what, of, to, a, b } => {
                let result = self.both(a, b).map(|(a, b)| binary(what, of, a, b));
                self.set(to, result);
            }
            &Operation::Unary { what, of, to, a } => {
                self.set(to, self.value(a).map(|a| unary(what, of, a)));
            }
            &Operation::MulWide { of, to, a, b } => {
                self.set(to, self.both(a, b).map(|(a, b)| mul_wide(of, a, b)));
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
            Operation::Load { space, of, to, from } => {
                let (is_shared, address) = in_space(*space, self.address(*from)?);
                aligned(address, of.bytes * to.len())?;
                for (index, &to) in to.iter().enumerate() {
                    let address = address + (index * of.bytes) as u64;
                    let value = if is_shared {
                        memory.note_shared(address, of.bytes, false);
                        shared.load(address, of.bytes)?
                    } else {
                        memory.load(address, of.bytes)?
                    };
                    self.set(to, value.map(|value| extend(value, *of)));
                }
            }
            Operation::Store { space, of, to, from } => {
                let (is_shared, address) = in_space(*space, self.address(*to)?);
                aligned(address, of.bytes * from.len())?;
                for (index, &from) in from.iter().enumerate() {
                    let (address, value) = (address + (index * of.bytes) as u64, self.value(from));
                    if is_shared {
                        memory.note_shared(address, of.bytes, true);
                        shared.store(address, of.bytes, value)?;
                    } else {
                        memory.store(address, of.bytes, cut(value.unwrap_or(0), of.bytes))?;
                    }
                }
            }
            // The loop of `run` does these.
            Operation::Branch { .. }
            | Operation::BranchTable { .. }
            | Operation::Barrier
            | Operation::Return => {}
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

/// Returns whether an address is in shared memory, and its number there.
fn in_space(space: Space, address: u64) -> (bool, u64) {
    match address.checked_sub(WINDOW) {
        Some(inside) if space == Space::Generic && inside < u64::from(u32::MAX) => (true, inside),
        _ => (space == Space::Shared, address),
    }
}

/// Every access is aligned to its size.
fn aligned(address: u64, bytes: usize) -> Outcome {
    if address.is_multiple_of(bytes as u64) { Ok(()) } else { Err(Failure::MISALIGNED_ADDRESS) }
}
