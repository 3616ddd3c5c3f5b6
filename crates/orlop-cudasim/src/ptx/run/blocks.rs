//! The blocks of a launch: the warps of each run one after the other, from barrier to barrier.

use super::bytes::SharedMemory;
use super::memory::GlobalMemory;
use super::races::{Turn, WARP};
use super::thread::{Stop, Thread};
use super::warp::{Arrivals, complete, receive};
use crate::codes::{Failure, Outcome};
use crate::ptx::instruction::Collective;
use crate::ptx::program::Program;

/// The instructions that a launch executes before it counts as endless.
const LIMIT: u64 = 1 << 30;

/// The blocks of a launch, and the threads of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
}

/// Why a launch ends early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) failure: Failure,
    /// The function and the line.
    pub(crate) place: String,
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
    ) -> Result<(), Fault> {
        self.execute_within(shape, shared, arguments, memory, &mut { LIMIT })
    }

    /// Executes all threads. `budget` is how many instructions they may execute.
    pub(in crate::ptx) fn execute_within(
        &self,
        shape: Shape,
        shared: u32,
        arguments: &[Vec<u8>],
        memory: &mut impl GlobalMemory,
        budget: &mut u64,
    ) -> Result<(), Fault> {
        for (number, block) in (0..).zip(coordinates(shape.grid)) {
            let threads = (0..).zip(coordinates(shape.block));
            let threads = threads.map(|(number, thread)| {
                let thread = Thread::new(self, arguments, shape, (block, thread), number)?;
                Ok(Member { thread, meeting: 0, state: MemberState::Ready })
            });
            let members: Outcome<Vec<Member<'_>>> = threads.collect();
            let members =
                members.map_err(|failure| Fault { failure, place: self.functions[0].name.clone() })?;
            let mut block = Block { number, phase: 0, members, shared: self.shared.memory(shared) };
            block.execute(memory, budget)?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MemberState {
    Ready,
    Stopped(Stop),
}

/// A thread of a block.
struct Member<'a> {
    thread: Thread<'a>,
    /// The last barrier of a part of its warp: its number, or 0.
    meeting: usize,
    state: MemberState,
}

impl Member<'_> {
    fn fault(&self, failure: Failure) -> Fault {
        let (name, line) = self.thread.place();
        Fault { failure, place: format!("{name}, line {line}") }
    }

    fn has_ended(&self) -> bool {
        self.state == MemberState::Stopped(Stop::Ended)
    }
}

struct Block<'a> {
    number: u64,
    phase: usize,
    members: Vec<Member<'a>>,
    shared: SharedMemory,
}

impl Block<'_> {
    fn execute(&mut self, memory: &mut impl GlobalMemory, budget: &mut u64) -> Result<(), Fault> {
        loop {
            let Self { number, phase, members, shared } = self;
            for warp in members.chunks_mut(WARP as usize) {
                loop {
                    let turn = Turn { block: *number, phase: *phase, ..Turn::default() };
                    run_ready(warp, turn, shared, memory, budget)?;
                    if !meet(warp, memory)? {
                        break;
                    }
                }
            }
            let mut waiting = members.iter_mut().filter(|member| !member.has_ended());
            let Some(first) = waiting.next() else { break };
            // Threads that wait at different places may wait for ever.
            if !matches!(first.state, MemberState::Stopped(Stop::Barrier(..))) {
                return Err(first.fault(Failure::LAUNCH_TIMEOUT));
            }
            let state = std::mem::replace(&mut first.state, MemberState::Ready);
            first.meeting = 0;
            for member in waiting {
                if member.state != state {
                    return Err(member.fault(Failure::LAUNCH_TIMEOUT));
                }
                (member.state, member.meeting) = (MemberState::Ready, 0);
            }
            *phase += 1;
        }
        memory.end_block();
        Ok(())
    }
}

/// Runs the threads of a warp that wait for nothing.
fn run_ready(
    warp: &mut [Member<'_>],
    turn: Turn,
    shared: &mut SharedMemory,
    memory: &mut impl GlobalMemory,
    budget: &mut u64,
) -> Result<(), Fault> {
    for member in warp.iter_mut().filter(|member| member.state == MemberState::Ready) {
        memory.begin_turn(Turn { thread: member.thread.number, meeting: member.meeting, ..turn });
        let stop = member.thread.run(shared, memory, budget).map_err(|failure| member.fault(failure))?;
        member.state = MemberState::Stopped(stop);
    }
    Ok(())
}

/// Lets the threads of a warp go on that are at one instruction together. Returns `true` if there are some.
fn meet(warp: &mut [Member<'_>], memory: &mut impl GlobalMemory) -> Result<bool, Fault> {
    let mut arrivals: Arrivals = [None; WARP as usize];
    let (mut alive, mut has_met) = (0, false);
    for (lane, member) in warp.iter().enumerate() {
        alive |= u32::from(!member.has_ended()) << lane;
        if let MemberState::Stopped(Stop::Collective(arrival)) = member.state {
            arrivals[lane] = Some(arrival);
        }
    }
    while let Some(members) =
        complete(&arrivals, alive).map_err(|(lane, failure)| warp[lane].fault(failure))?
    {
        has_met = true;
        let lanes: Vec<usize> = (0..warp.len()).filter(|lane| members >> lane & 1 == 1).collect();
        let is_barrier = lanes
            .iter()
            .any(|&lane| arrivals[lane].is_some_and(|arrival| arrival.what == Collective::Barrier));
        let meeting = is_barrier
            .then(|| memory.meet(&lanes.iter().map(|&lane| (lane, warp[lane].meeting)).collect::<Vec<_>>()));
        let received: Vec<_> = lanes.iter().map(|&lane| receive(&arrivals, members, lane)).collect();
        for (&lane, received) in lanes.iter().zip(received) {
            let member = &mut warp[lane];
            member.thread.receive(received);
            member.meeting = meeting.unwrap_or(member.meeting);
            member.state = MemberState::Ready;
            arrivals[lane] = None;
        }
    }
    Ok(has_met)
}
