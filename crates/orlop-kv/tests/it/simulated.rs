//! A GPU of the simulated CUDA driver as a device of the suite and of the oracle. Steps run on one stream,
//! the clearing of fresh pages and transfers on others, which nothing orders but the settling of steps: the
//! driver checks every access for races.

use orlop_alloc::{Block, Request};
use orlop_context::Context;
use orlop_cuda::{CudaDevice, DeviceStream, install};
use orlop_cudasim_control::{ExclusiveDriver, KernelMemory, KernelRun, SimulatedDriver, SimulationConfig};
use orlop_testkit::kv::{CLEARED, KvDevice, KvLaunch};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex};
use std::time::Duration;

thread_local! {
    static TURN: RefCell<Weak<ExclusiveDriver>> = const { RefCell::new(Weak::new()) };
}

/// Returns the simulated driver for this thread alone, until the last handle is dropped.
pub(crate) fn turn() -> Rc<ExclusiveDriver> {
    TURN.with_borrow_mut(|turn| {
        turn.upgrade().unwrap_or_else(|| {
            let driver = Rc::new(SimulatedDriver::exclusive(&SimulationConfig::new()).unwrap());
            *turn = Rc::downgrade(&driver);
            driver
        })
    })
}

/// What a step's kernels found in the place of a stamp.
type Wrong = Arc<Mutex<Vec<String>>>;

/// A GPU with memory of a fixed number of slots. It needs the thread's [`turn`].
pub(crate) struct SimulatedGpu {
    driver: SimulatedDriver,
    steps: DeviceStream,
    clears: DeviceStream,
    transfers: DeviceStream,
    base: usize,
    wrong: Wrong,
    /// The steps in flight, each with a wait of the host for its end.
    in_flight: VecDeque<(u64, Box<dyn FnOnce() + Send>)>,
    _memory: Block,
    _context: Context,
}

impl fmt::Debug for SimulatedGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedGpu").field("in_flight", &self.in_flight.len()).finish_non_exhaustive()
    }
}

impl SimulatedGpu {
    pub(crate) fn new(slots: u64) -> Self {
        let driver = **turn();
        let device = CudaDevice::new(0).unwrap();
        let context = Context::new();
        install(&context, &device).unwrap();
        let bytes = usize::try_from(slots * 8).unwrap();
        let memory = context.allocate(device.device(), &Request::new(bytes)).unwrap();
        let base = memory.as_ptr().as_ptr().addr();
        let stream = || device.create_stream().unwrap();
        let (steps, clears, transfers) = (stream(), stream(), stream());
        let (wrong, in_flight) = (Wrong::default(), VecDeque::new());
        driver.write(base, &CLEARED.to_le_bytes().repeat(bytes / 8)).unwrap();
        Self { driver, steps, clears, transfers, base, wrong, in_flight, _memory: memory, _context: context }
    }

    fn run(
        &self,
        stream: &DeviceStream,
        name: &str,
        reads: impl IntoIterator<Item = u64>,
        writes: impl IntoIterator<Item = u64>,
        effect: impl FnMut(&mut KernelMemory) + Send + 'static,
    ) {
        let mut run = KernelRun::new(name).takes(Duration::from_millis(1)).effect(effect);
        for slots in ranges(reads.into_iter().collect()) {
            run = run.reads(address(self.base, slots.start), bytes(&slots));
        }
        for slots in ranges(writes.into_iter().collect()) {
            run = run.writes(address(self.base, slots.start), bytes(&slots));
        }
        self.driver.run_kernel(stream.cudarc().cu_stream().addr() as u64, run).unwrap();
    }

    fn check(&self) {
        let wrong = self.wrong.lock().unwrap();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        let races = self.driver.counts().races;
        assert_eq!(races, 0, "{}", self.driver.races()[0]);
    }
}

fn address(base: usize, slot: u64) -> usize {
    base + usize::try_from(slot).unwrap() * 8
}

fn bytes(slots: &Range<u64>) -> usize {
    usize::try_from(slots.end - slots.start).unwrap() * 8
}

/// Merges slots to ranges.
fn ranges(mut slots: Vec<u64>) -> Vec<Range<u64>> {
    slots.sort_unstable();
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for slot in slots {
        match ranges.last_mut() {
            Some(last) if slot <= last.end => last.end = last.end.max(slot + 1),
            _ => ranges.push(slot..slot + 1),
        }
    }
    ranges
}

fn read(memory: &mut KernelMemory, base: usize, slot: u64) -> u64 {
    let stamp = memory.read(address(base, slot), 8);
    stamp.try_into().map_or(0, u64::from_le_bytes)
}

fn write(memory: &mut KernelMemory, base: usize, (slot, stamp): (u64, u64)) {
    memory.write(address(base, slot), &stamp.to_le_bytes());
}

/// Runs a step in the memory, and returns the stamps that are not as expected.
fn run_step(launch: &KvLaunch, memory: &mut KernelMemory, base: usize) -> Vec<String> {
    let copied = launch.copies.iter().map(|&(from, to)| (to, read(memory, base, from)));
    for stamp in copied.collect::<Vec<_>>() {
        write(memory, base, stamp);
    }
    let mut wrong = Vec::new();
    let mut check = |memory: &mut KernelMemory, reads: &[(u64, u64)]| {
        for &(slot, expected) in reads {
            let found = read(memory, base, slot);
            if found != expected {
                wrong.push(format!("slot {slot} in step {}: {found:#x}, not {expected:#x}", launch.step));
            }
        }
    };
    check(memory, &launch.reads_before);
    for &stamp in &launch.writes {
        write(memory, base, stamp);
    }
    check(memory, &launch.reads_after);
    wrong
}

impl KvDevice for SimulatedGpu {
    fn launch(&mut self, launch: KvLaunch) {
        let (base, wrong) = (self.base, Arc::clone(&self.wrong));
        let fresh = launch.fresh.clone();
        if !fresh.is_empty() {
            self.run(&self.clears, "clear", [], launch.fresh.iter().copied(), move |memory| {
                for &slot in &fresh {
                    write(memory, base, (slot, CLEARED));
                }
            });
            self.steps.wait_for(self.clears.id()).unwrap();
        }
        let slots = |stamps: &[(u64, u64)]| stamps.iter().map(|&(slot, _)| slot).collect::<Vec<_>>();
        let reads = [&launch.copies, &launch.reads_before, &launch.reads_after].map(|stamps| slots(stamps));
        let copied = launch.copies.iter().map(|&(_, to)| to);
        let writes: Vec<u64> = slots(&launch.writes).into_iter().chain(copied).collect();
        let step = launch.step;
        self.run(&self.steps, "step", reads.concat(), writes, move |memory| {
            wrong.lock().unwrap().extend(run_step(&launch, memory, base));
        });
        let end = self.steps.cudarc().record_event(None).unwrap();
        self.in_flight.push_back((step, Box::new(move || end.synchronize().unwrap())));
    }

    fn settle(&mut self) -> Option<u64> {
        let (step, wait) = self.in_flight.pop_front()?;
        wait();
        self.check();
        Some(step)
    }

    fn write(&mut self, stamps: &[(u64, u64)]) {
        let (base, written) = (self.base, stamps.to_vec());
        self.run(&self.transfers, "load", [], stamps.iter().map(|&(slot, _)| slot), move |memory| {
            for &stamp in &written {
                write(memory, base, stamp);
            }
        });
        self.transfers.synchronize().unwrap();
        self.check();
    }

    fn read(&mut self, slots: &[u64]) -> Vec<u64> {
        let (base, wanted) = (self.base, slots.to_vec());
        let found = Arc::new(Mutex::new(Vec::new()));
        let result = Arc::clone(&found);
        self.run(&self.transfers, "store", slots.iter().copied(), [], move |memory| {
            *result.lock().unwrap() = wanted.iter().map(|&slot| read(memory, base, slot)).collect();
        });
        self.transfers.synchronize().unwrap();
        self.check();
        let found = found.lock().unwrap();
        found.clone()
    }
}

impl Drop for SimulatedGpu {
    fn drop(&mut self) {
        for stream in [&self.steps, &self.clears, &self.transfers] {
            stream.synchronize().unwrap();
        }
        if !std::thread::panicking() {
            self.check();
        }
    }
}

/// A page that is handed out while a step may access it is a race, although the steps run in order.
#[test]
fn a_page_that_is_handed_out_too_early_is_a_race() {
    for (settles, races) in [(true, 0), (false, 1)] {
        let turn = turn();
        let mut gpu = SimulatedGpu::new(32);
        let writes: Vec<(u64, u64)> = (0..16).map(|slot| (slot, slot + 1)).collect();
        gpu.launch(KvLaunch { step: 1, writes: writes.clone(), reads_after: writes, ..KvLaunch::default() });
        if settles {
            gpu.settle();
        }
        let fresh = (0..16).collect();
        gpu.launch(KvLaunch { step: 2, fresh, writes: vec![(0, 7)], ..KvLaunch::default() });
        assert_eq!(turn.take_races().len(), races);
        gpu.in_flight.clear();
        gpu.steps.synchronize().unwrap();
        drop(gpu);
    }
}
