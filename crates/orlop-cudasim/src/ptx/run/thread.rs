//! [`Thread`]: the instructions of one thread.

use super::arithmetic::{binary, bits, compare, convert, cut, extend, mul_add, mul_wide, unary};
use super::atomics::changed;
use super::blocks::Shape;
use super::bytes::{LOCAL_WINDOW, LocalMemory, SHARED_WINDOW, SharedMemory};
use super::frame::Frame;
use super::memory::GlobalMemory;
use super::races::{ThreadAccessKind, WARP};
use super::warp::{Arrival, Known, Received};
use crate::codes::{Failure, Outcome};
use crate::ptx::instruction::{Address, Comparison, Operand, Operation, Space, Special};
use crate::ptx::program::Program;
use crate::ptx::types::Type;

/// The instructions that a thread executes without a barrier before it counts as endless.
const LIMIT: usize = 1 << 20;

/// The most functions that a thread is in, and the most registers that they have.
const MAX_FRAMES: usize = 1 << 10;
const MAX_REGISTERS: usize = 1 << 20;

/// Where a thread stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// At a barrier of its block: the function and the number of the instruction behind it.
    Barrier(usize, usize),
    /// At an instruction that threads of its warp execute together.
    Collective(Arrival),
    Ended,
}

pub(super) struct Thread<'a> {
    program: &'a Program,
    arguments: &'a [Vec<u8>],
    shape: Shape,
    block: [u32; 3],
    thread: [u32; 3],
    /// The number in its block.
    pub(super) number: u32,
    frame: Frame<'a>,
    callers: Vec<Frame<'a>>,
    local: LocalMemory,
}

impl<'a> Thread<'a> {
    pub(super) fn new(
        program: &'a Program,
        arguments: &'a [Vec<u8>],
        shape: Shape,
        (block, thread): ([u32; 3], [u32; 3]),
        number: u32,
    ) -> Outcome<Self> {
        let mut local = LocalMemory::new();
        let frame = Frame::new(program, 0, &mut local)?;
        Ok(Self { program, arguments, shape, block, thread, number, frame, callers: Vec::new(), local })
    }

    /// Returns the function and the line of the last instruction.
    pub(super) fn place(&self) -> (&'a str, usize) {
        let function = self.frame.function();
        let last = function.instructions.get(self.frame.next.saturating_sub(1));
        (&function.name, last.map_or(0, |instruction| instruction.line))
    }

    /// Runs up to the next barrier, or to the end. `budget` is how many instructions the launch has left.
    pub(super) fn run(
        &mut self,
        shared: &mut SharedMemory,
        memory: &mut impl GlobalMemory,
        budget: &mut u64,
    ) -> Outcome<Stop> {
        for _ in 0..LIMIT {
            *budget = budget.checked_sub(1).ok_or(Failure::LAUNCH_TIMEOUT)?;
            // The end of a function is a return.
            let Some(instruction) = self.frame.function().instructions.get(self.frame.next) else {
                if !self.leave()? {
                    return Ok(Stop::Ended);
                }
                continue;
            };
            self.frame.next += 1;
            if let Some((predicate, wanted)) = instruction.guard
                && (certain(self.frame.registers[predicate])? != 0) != wanted
            {
                continue;
            }
            match &instruction.operation {
                Operation::Branch { target } => self.frame.next = *target,
                Operation::BranchTable { index, targets } => {
                    let index = certain(self.value(*index))?;
                    let target = usize::try_from(index).ok().and_then(|index| targets.get(index));
                    // Undefined by the architecture.
                    self.frame.next = *target.ok_or(Failure::INVALID_PC)?;
                }
                Operation::Call { function, arguments, .. } => self.enter(*function, arguments)?,
                Operation::Return if self.leave()? => {}
                Operation::Return | Operation::Exit => return Ok(Stop::Ended),
                Operation::Trap => return Err(Failure::LAUNCH_FAILED),
                Operation::Barrier => return Ok(Stop::Barrier(self.frame.index, self.frame.next)),
                Operation::Collective { what, from, mask, .. } => {
                    let mut values = [None; 3];
                    for (value, &from) in values.iter_mut().zip(from) {
                        *value = self.value(from);
                    }
                    let mask = cut32(certain(self.value(*mask))?);
                    return Ok(Stop::Collective(Arrival { what: *what, mask, from: values }));
                }
                operation => self.step(operation, shared, memory)?,
            }
        }
        Err(Failure::LAUNCH_TIMEOUT)
    }

    /// Ends the wait at an instruction of several threads.
    pub(super) fn receive(&mut self, (value, is_valid): Received) {
        let function = self.frame.function();
        let Some(instruction) = function.instructions.get(self.frame.next.wrapping_sub(1)) else { return };
        if let Operation::Collective { to, valid, .. } = instruction.operation {
            self.set_if(to, value);
            self.set_if(valid, is_valid);
        }
    }

    fn enter(&mut self, function: usize, arguments: &[usize]) -> Outcome {
        let registers: usize = self.callers.iter().map(|caller| caller.registers.len()).sum();
        if self.callers.len() >= MAX_FRAMES || registers > MAX_REGISTERS {
            return Err(Failure::HARDWARE_STACK_ERROR);
        }
        let mut frame = Frame::new(self.program, function, &mut self.local)?;
        frame.take(&self.frame, arguments);
        self.callers.push(std::mem::replace(&mut self.frame, frame));
        Ok(())
    }

    /// Returns to the caller. Returns `false` if there is none.
    fn leave(&mut self) -> Outcome<bool> {
        let Some(caller) = self.callers.pop() else { return Ok(false) };
        let left = std::mem::replace(&mut self.frame, caller);
        self.local.pop(left.local);
        let call = self.frame.function().instructions.get(self.frame.next.wrapping_sub(1));
        match call.map(|call| &call.operation) {
            Some(Operation::Call { results, .. }) => self.frame.give(&left, results),
            _ => return Err(Failure::INVALID_PC),
        }
        Ok(true)
    }

    fn step(
        &mut self,
        operation: &Operation,
        shared: &mut SharedMemory,
        memory: &mut impl GlobalMemory,
    ) -> Outcome {
        match operation {
            &Operation::Move { to, from } => self.set(to, self.value(from)),
            &Operation::Pack { to, ref from, bytes } => {
                let values = from.iter().rev().map(|&part| self.value(part).map(|part| cut(part, bytes)));
                let all = values.reduce(|all, part| Some(all? << (8 * bytes) | part?));
                self.set(to, all.flatten());
            }
            &Operation::Unpack { ref to, from, bytes } => {
                let value = self.value(from);
                for (index, &to) in to.iter().enumerate() {
                    self.set_if(to, value.map(|value| value >> (8 * bytes * index)));
                }
            }
            &Operation::Binary { what, of, mode, to, a, b } => {
                let result = self.both(a, b).map(|(a, b)| binary(what, of, mode, a, b));
                self.set(to, result);
            }
            &Operation::Unary { what, of, mode, to, a } => {
                self.set(to, self.value(a).map(|a| unary(what, of, mode, a)));
            }
            &Operation::MulWide { of, to, a, b, c } => {
                let result = self.both(a, b).zip(self.value(c)).map(|((a, b), c)| mul_wide(of, a, b, c));
                self.set(to, result);
            }
            &Operation::MulAdd { of, mode, to, a, b, c } => {
                let values = self.both(a, b).zip(self.value(c));
                self.set(to, values.map(|((a, b), c)| mul_add(of, mode, a, b, c)));
            }
            &Operation::Bits { what, of, to, ref from } => {
                let mut values = [Some(0); 4];
                for (value, &from) in values.iter_mut().zip(from) {
                    *value = self.value(from);
                }
                let known = values.iter().all(Option::is_some);
                self.set(to, known.then(|| bits(what, of, values.map(Option::unwrap_or_default))));
            }
            &Operation::Compare { what, nan, of, mode, to, opposite, a, b, with } => {
                let is_so = self.both(a, b).map(|(a, b)| compare(what, nan, of, mode, a, b));
                for (to, result) in [(to, is_so), (opposite, is_so.map(|is_so| !is_so))] {
                    let result = result.map(u64::from);
                    self.set_if(
                        to,
                        match with {
                            Some((what, predicate)) => {
                                self.value(predicate).zip(result).map(|(predicate, result)| {
                                    binary(what, Type::PREDICATE, Default::default(), result, predicate)
                                })
                            }
                            None => result,
                        },
                    );
                }
            }
            &Operation::Select { to, a, b, predicate } => {
                let chosen = self.frame.registers[predicate]
                    .and_then(|is_a| self.value(if is_a != 0 { a } else { b }));
                self.set(to, chosen);
            }
            &Operation::Convert { to, to_type, mode, from, from_type } => {
                let result = self.value(from).map(|value| convert(to_type, from_type, mode, value));
                self.set(to, result);
            }
            &Operation::ConvertPair { to, to_type, high, low } => {
                let half = |value| convert(to_type, Type::F32, Default::default(), value);
                let result = self.both(high, low).map(|(high, low)| half(high) << 16 | half(low));
                self.set(to, result);
            }
            Operation::Load { space, of, to, from } => {
                let (space, address) = in_space(*space, self.address(*from)?);
                aligned(address, of.bytes * to.len())?;
                for (index, &to) in to.iter().enumerate() {
                    let address = address.wrapping_add((index * of.bytes) as u64);
                    let value = match space {
                        Space::Parameter => self.frame.load(self.arguments, address, of.bytes)?,
                        Space::Local => self.local.load(address, of.bytes)?,
                        Space::Shared => {
                            memory.note_shared(address, of.bytes, ThreadAccessKind::Read);
                            shared.load(address, of.bytes)?
                        }
                        Space::Global | Space::Generic => memory.load(address, of.bytes)?,
                    };
                    self.set_if(to, value.map(|value| extend(value, *of)));
                }
            }
            Operation::Store { space, of, to, from } => {
                let (space, address) = in_space(*space, self.address(*to)?);
                aligned(address, of.bytes * from.len())?;
                for (index, &from) in from.iter().enumerate() {
                    let address = address.wrapping_add((index * of.bytes) as u64);
                    let value = self.value(from);
                    match space {
                        Space::Parameter => self.frame.store(address, of.bytes, value)?,
                        Space::Local => self.local.store(address, of.bytes, value)?,
                        Space::Shared => {
                            memory.note_shared(address, of.bytes, ThreadAccessKind::Write);
                            shared.store(address, of.bytes, value)?;
                        }
                        Space::Global | Space::Generic => {
                            memory.store(address, of.bytes, cut(value.unwrap_or(0), of.bytes))?;
                        }
                    }
                }
            }
            &Operation::Atomic { what, scope, space, of, to, at, a, b } => {
                let (space, address) = in_space(space, self.address(at)?);
                aligned(address, of.bytes)?;
                let operands = self.both(a, b);
                let old = match space {
                    Space::Shared => {
                        memory.note_shared(address, of.bytes, ThreadAccessKind::Atomic(scope));
                        let old = shared.load(address, of.bytes)?;
                        let new =
                            old.zip(operands).map(|(old, operands)| changed(what, of, true, old, operands));
                        shared.store(address, of.bytes, new)?;
                        old
                    }
                    Space::Global | Space::Generic => {
                        let operands = operands.unwrap_or_default();
                        let change = |old| cut(changed(what, of, false, old, operands), of.bytes);
                        memory.update(address, of.bytes, scope, &change)?
                    }
                    Space::Local | Space::Parameter => return Err(Failure::INVALID_ADDRESS_SPACE),
                };
                self.set_if(to, old.map(|old| extend(old, of)));
            }
            // No other thread is known to be at the same instruction.
            &Operation::ActiveMask { to } => self.set(to, Some(1 << self.lane())),
            // The loop of `run` does the others.
            _ => {}
        }
        Ok(())
    }

    fn lane(&self) -> u32 {
        self.number % WARP
    }

    fn set(&mut self, to: usize, value: Known) {
        let Type { bytes, .. } = self.frame.function().registers[to];
        self.frame.registers[to] = value.map(|value| cut(value, bytes));
    }

    fn set_if(&mut self, to: Option<usize>, value: Known) {
        if let Some(to) = to {
            self.set(to, value);
        }
    }

    fn value(&self, operand: Operand) -> Known {
        match operand {
            Operand::Register(register) => self.frame.registers[register],
            Operand::Negated(register) => self.frame.registers[register].map(|value| u64::from(value == 0)),
            Operand::Value(value) => Some(value),
            Operand::Local(offset) => Some(self.frame.local.wrapping_add(offset)),
            Operand::Special(special) => Some(u64::from(match special {
                Special::Thread(axis) => self.thread[axis],
                Special::Threads(axis) => self.shape.block[axis],
                Special::Block(axis) => self.block[axis],
                Special::Blocks(axis) => self.shape.grid[axis],
                Special::Lane => self.lane(),
                Special::Lanes(which) => {
                    let own = 1_u32 << self.lane();
                    match which {
                        Comparison::Lt => own - 1,
                        Comparison::Le => own | (own - 1),
                        Comparison::Gt => !(own | (own - 1)),
                        Comparison::Ge => !(own - 1),
                        _ => own,
                    }
                }
            })),
        }
    }

    fn both(&self, a: Operand, b: Operand) -> Option<(u64, u64)> {
        self.value(a).zip(self.value(b))
    }

    fn address(&self, address: Address) -> Outcome<u64> {
        let base = address.base.map_or(Ok(0), |base| certain(self.value(base)))?;
        Ok(base.wrapping_add(address.offset))
    }
}

fn certain(value: Known) -> Outcome<u64> {
    value.ok_or(Failure::NOT_SUPPORTED)
}

fn cut32(value: u64) -> u32 {
    u32::try_from(cut(value, 4)).unwrap_or(0)
}

/// Returns the space of an address, and its number there.
fn in_space(space: Space, address: u64) -> (Space, u64) {
    let windows = [(Space::Shared, SHARED_WINDOW), (Space::Local, LOCAL_WINDOW)];
    let found = windows.into_iter().find_map(|(space, window)| {
        let inside = address.checked_sub(window).filter(|&inside| inside <= u64::from(u32::MAX));
        Some((space, inside?))
    });
    found.filter(|_| space == Space::Generic).unwrap_or((space, address))
}

/// Every access is aligned to its size.
fn aligned(address: u64, bytes: usize) -> Outcome {
    if address.is_multiple_of(bytes as u64) { Ok(()) } else { Err(Failure::MISALIGNED_ADDRESS) }
}
