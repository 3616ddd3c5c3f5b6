//! The blocks of a launch: the threads of each run one after the other, from barrier to barrier.

use super::instruction::Program;
use super::memory::GlobalMemory;
use super::races::Turn;
use super::thread::{Stop, Thread};
use crate::codes::{Failure, Outcome};

/// The blocks of a launch, and the threads of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
}

/// Returns all coordinates, the first one fastest.
fn coordinates([x, y, z]: [u32; 3]) -> impl Iterator<Item = [u32; 3]> {
    (0..z).flat_map(move |z| (0..y).flat_map(move |y| (0..x).map(move |x| [x, y, z])))
}

impl Program {
    /// Executes all threads. Blocks run one after the other: they have no means to wait for each other.
    /// `shared` is the bytes of shared memory that the launch adds.
    ///
    /// # Errors
    ///
    /// `NOT_SUPPORTED` if an address or a branch depends on a value that is not known; otherwise what ends a
    /// context.
    pub(crate) fn execute(
        &self,
        shape: Shape,
        shared: u32,
        arguments: &[Vec<u8>],
        memory: &mut impl GlobalMemory,
    ) -> Outcome {
        for (number, block) in (0..).zip(coordinates(shape.grid)) {
            let threads = coordinates(shape.block);
            let threads = threads.map(|thread| Thread::new(self, arguments, shape, (block, thread)));
            self.execute_block(number, threads.collect(), shared, memory)?;
        }
        Ok(())
    }

    fn execute_block(
        &self,
        block: u64,
        threads: Vec<Thread<'_>>,
        shared: u32,
        memory: &mut impl GlobalMemory,
    ) -> Outcome {
        let mut shared = self.shared.memory(shared);
        let mut running: Vec<(u32, Thread<'_>)> = (0..).zip(threads).collect();
        let mut phase = 0;
        while !running.is_empty() {
            let mut waiting = Vec::new();
            let mut barrier = None;
            for (number, mut thread) in running {
                memory.begin_turn(Turn { block, thread: number, phase });
                let Stop::Barrier(next) = thread.run(&mut shared, memory)? else { continue };
                // Threads that wait at different barriers may wait for ever.
                if *barrier.get_or_insert(next) != next {
                    return Err(Failure::LAUNCH_TIMEOUT);
                }
                waiting.push((number, thread));
            }
            (running, phase) = (waiting, phase + 1);
        }
        memory.end_block();
        Ok(())
    }
}
