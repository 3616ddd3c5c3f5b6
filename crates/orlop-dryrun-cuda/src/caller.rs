//! The lines of the program at which values were decided by noise.
//!
//! The code that starts the recording gives a function that writes the innermost line of the program. It
//! takes Python's lock, which a thread can hold that waits for the machine: so it is called after the machine
//! is unlocked, and what was noted until then is of this thread.

use crate::call;
use crate::machine::Machine;
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Guess {
    /// A value read as zero.
    Zero,
    /// A value read as zero from which programs derive a size.
    Size,
    /// How many elements of a mask are true.
    Mask,
    /// How many distinct values there are.
    Distinct,
    /// The maximum of integers.
    Maximum,
    /// How often elements are repeated.
    Repeats,
    /// How elements are spread over bins.
    Bins,
    /// How many elements a product or a sum of sparse matrices has.
    Products,
}

impl Guess {
    pub(crate) const ALL: [Self; 8] = [
        Self::Zero,
        Self::Size,
        Self::Mask,
        Self::Distinct,
        Self::Maximum,
        Self::Repeats,
        Self::Bins,
        Self::Products,
    ];
}

/// Writes a line of the program as a C string into a buffer of this size.
type NameCaller = extern "C" fn(*mut u8, usize);

/// The address of a [`NameCaller`], or 0. Relaxed: it is given once, before the program runs.
static NAME_CALLER: AtomicUsize = AtomicUsize::new(0);

/// The longest line that is written.
const MAX_NAME: usize = 512;

thread_local! {
    /// How many of each kind this thread noted since its last call. Without a destructor.
    static NOTED: Cell<[u64; Guess::ALL.len()]> = const { Cell::new([0; Guess::ALL.len()]) };
    /// Whether what this thread does decides nothing of the program.
    static IS_SILENT: Cell<bool> = const { Cell::new(false) };
}

/// Notes what the current call decided.
pub(crate) fn note(guess: Guess) {
    if IS_SILENT.get() {
        return;
    }
    let mut noted = NOTED.get();
    noted[guess as usize] += 1;
    NOTED.set(noted);
}

/// Counts what the call that ended noted, by the line of the program.
pub(crate) fn attribute() {
    let noted = NOTED.get();
    if noted == [0; Guess::ALL.len()] {
        return;
    }
    NOTED.set([0; Guess::ALL.len()]);
    let line = line();
    if let Some(machine) = call::lock().as_mut() {
        for (guess, count) in Guess::ALL.into_iter().zip(noted) {
            if count > 0 {
                add(machine, guess, &line, count);
            }
        }
    }
}

fn add(machine: &mut Machine, guess: Guess, line: &str, count: u64) {
    *machine.counters.guesses.entry((guess, line.to_owned())).or_default() += count;
}

/// Returns the line of the program that this thread runs. The machine is not locked.
pub(crate) fn line() -> String {
    let address = NAME_CALLER.load(Relaxed);
    let mut name = [0_u8; MAX_NAME];
    if address != 0 {
        // SAFETY: only `orlop_dry_run_name_callers` stores an address: that of a function of this type, which
        // is valid until another, or none, takes its place.
        let function = unsafe {
            std::mem::transmute::<*const (), NameCaller>(std::ptr::with_exposed_provenance(address))
        };
        function(name.as_mut_ptr(), MAX_NAME);
    }
    let text = name.split(|&byte| byte == 0).next().unwrap_or_default();
    match text {
        [] => "a thread without a program".to_owned(),
        text => String::from_utf8_lossy(text).into_owned(),
    }
}

/// Gives the function that names lines of the program; none with a null pointer.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn orlop_dry_run_name_callers(function: Option<NameCaller>) {
    NAME_CALLER.store(function.map_or(0, |function| (function as *const ()).expose_provenance()), Relaxed);
}

/// Sets whether what this thread does decides nothing of the program, such as printing a tensor. Returns
/// whether it was so.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn orlop_dry_run_swap_silence(is_silent: i32) -> i32 {
    i32::from(IS_SILENT.replace(is_silent != 0))
}
