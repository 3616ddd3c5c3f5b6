//! Executes code one instruction at a time, and counts the locked instructions: an exact test that a path
//! takes no lock and changes no shared count.
//!
//! On x86-64 a lock, a reference count and every other atomic change of memory is an instruction with the
//! prefix `lock`, or an exchange with memory. The test runs again in a child process, which is traced by its
//! parent (`ptrace`): the parent executes what [`watched`] encloses instruction by instruction, and looks at
//! each before it is executed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::hint::black_box;
use std::io::{Error, Result};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio, exit};
use std::{env, ptr};

/// The variable that tells the child process which test to run.
const VARIABLE: &str = "ORLOP_STEPPED_TEST";

/// The exit status of a child that may not be traced here.
const NOT_TRACED: i32 = 77;

/// The instruction `int3`.
const BREAKPOINT: u8 = 0xcc;

/// What was executed in one call of [`watched`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Executed {
    /// The number of instructions.
    pub instructions: u64,
    /// How many of them changed memory atomically: locks, shared counts.
    pub locked: u64,
}

/// Runs the test of this name again in a child process, in which `action` calls [`watched`]. Returns what was
/// executed in each of these calls, in order; `None`, with a message, where processes may not be traced.
///
/// # Panics
///
/// If `action` panics, or tracing fails.
#[expect(clippy::zombie_processes, reason = "`trace` waits for the child")]
pub fn step_through(test: &str, action: impl FnOnce()) -> Option<Vec<Executed>> {
    if env::var_os(VARIABLE).is_some_and(|set| set == test) {
        trace_me();
        action();
        exit(0);
    }
    let mut command = Command::new(env::current_exe().expect("the test's executable"));
    command.args(["--exact", test, "--nocapture"]).env(VARIABLE, test).stdout(Stdio::null());
    // The thread that starts the child traces it.
    let child = command.process_group(0).spawn().expect("the child process");
    let (executed, status) = trace(&child).expect("the child is traced");
    if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == NOT_TRACED {
        println!("SKIPPED: {test}: processes may not be traced here");
        return None;
    }
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "the child ended with {status:#x}");
    assert!(!executed.is_empty(), "no test is called {test}, or it watches nothing");
    Some(executed)
}

/// Calls `body`, which is executed instruction by instruction. Only for the action of [`step_through`].
pub fn watched<R>(body: impl FnOnce() -> R) -> R {
    breakpoint();
    let result = black_box(body());
    breakpoint();
    result
}

fn breakpoint() {
    // SAFETY: a traced process stops here; `step_through` calls `trace_me` first. It changes no register.
    unsafe { std::arch::asm!("int3") };
}

/// Lets the parent trace this thread, or ends the process.
fn trace_me() {
    // SAFETY: this request takes no pointers.
    let code = unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, ptr::null_mut::<u8>(), ptr::null_mut::<u8>()) };
    if code != 0 {
        exit(NOT_TRACED);
    }
}

/// Traces the child until it ends. Returns what was executed between breakpoints, and the child's status.
fn trace(child: &Child) -> Result<(Vec<Executed>, i32)> {
    let leader = libc::pid_t::try_from(child.id()).map_err(Error::other)?;
    let mut code = Code::new(child)?;
    let mut executed = Vec::new();
    let mut watching = None::<Executed>;
    loop {
        let (thread, status) = wait()?;
        if !libc::WIFSTOPPED(status) {
            if thread == leader {
                return Ok((executed, status));
            }
            continue;
        }
        let signal = libc::WSTOPSIG(status);
        if signal != libc::SIGTRAP {
            resume(libc::PTRACE_CONT, thread, signal)?;
            continue;
        }
        let next = code.at(registers(thread)?.rip)?;
        match &mut watching {
            // Stopped behind the first breakpoint.
            None => watching = Some(Executed { instructions: 0, locked: 0 }),
            Some(so_far) if next[0] == BREAKPOINT => {
                executed.push(*so_far);
                watching = None;
                // Executes the second breakpoint, and the stop behind it.
                resume(libc::PTRACE_CONT, thread, 0)?;
                wait()?;
                resume(libc::PTRACE_CONT, thread, 0)?;
                continue;
            }
            Some(_) => {}
        }
        if let Some(so_far) = &mut watching {
            so_far.instructions += 1;
            so_far.locked += u64::from(is_locked(&next));
        }
        resume(libc::PTRACE_SINGLESTEP, thread, 0)?;
    }
}

/// Waits for the next change of a child or traced thread of this thread.
fn wait() -> Result<(libc::pid_t, i32)> {
    let mut status = 0;
    // SAFETY: the status is a variable of its own.
    let thread = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
    if thread < 0 { Err(Error::last_os_error()) } else { Ok((thread, status)) }
}

fn resume(how: libc::c_uint, thread: libc::pid_t, signal: libc::c_int) -> Result<()> {
    // SAFETY: these requests take no pointers; the thread is stopped.
    let code = unsafe { libc::ptrace(how, thread, ptr::null_mut::<u8>(), libc::c_long::from(signal)) };
    if code == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

fn registers(thread: libc::pid_t) -> Result<libc::user_regs_struct> {
    // SAFETY: registers are numbers.
    let mut registers = unsafe { std::mem::zeroed::<libc::user_regs_struct>() };
    // SAFETY: the request writes one such struct; the thread is stopped.
    let code =
        unsafe { libc::ptrace(libc::PTRACE_GETREGS, thread, ptr::null_mut::<u8>(), &raw mut registers) };
    if code == 0 { Ok(registers) } else { Err(Error::last_os_error()) }
}

/// The code of the child, which does not change.
struct Code {
    memory: File,
    pages: HashMap<u64, [u8; Self::PAGE]>,
}

impl Code {
    const PAGE: usize = 4096;
    /// The longest instruction, in bytes.
    const LONGEST: usize = 15;

    fn new(child: &Child) -> Result<Self> {
        let memory = File::open(format!("/proc/{}/mem", child.id()))?;
        Ok(Self { memory, pages: HashMap::new() })
    }

    /// Returns the instruction at an address, and zeros or what follows it.
    fn at(&mut self, address: u64) -> Result<[u8; Self::LONGEST]> {
        let mut code = [0; Self::LONGEST];
        for (byte, at) in code.iter_mut().zip(address..) {
            let offset = usize::try_from(at % Self::PAGE as u64).map_err(Error::other)?;
            match self.page(at - offset as u64) {
                Ok(page) => *byte = page[offset],
                // The instruction may be the last one of the code.
                Err(error) if at == address => return Err(error),
                Err(_) => break,
            }
        }
        Ok(code)
    }

    fn page(&mut self, start: u64) -> Result<&[u8; Self::PAGE]> {
        Ok(match self.pages.entry(start) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let mut page = [0; Self::PAGE];
                self.memory.read_exact_at(&mut page, start)?;
                new.insert(page)
            }
        })
    }
}

/// Returns `true` if the instruction changes memory atomically: it has the prefix `lock`, or is an exchange
/// with memory (Intel's manual, volume 3, section "Locked Atomic Operations").
fn is_locked(code: &[u8]) -> bool {
    let is_prefix = |byte: u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3);
    let prefixes = code.iter().take_while(|&&byte| is_prefix(byte)).count();
    if code[..prefixes].contains(&0xf0) {
        return true;
    }
    let rest = &code[prefixes..];
    let rest = if rest.first().is_some_and(|&byte| byte & 0xf0 == 0x40) { &rest[1..] } else { rest };
    matches!(rest, [0x86 | 0x87, operands, ..] if operands >> 6 != 0b11)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    #[cfg_attr(orlop_asan, ignore = "the search for leaks cannot suspend a thread that is traced")]
    fn locked_instructions_are_counted_exactly() {
        let counter = AtomicU64::new(0);
        let lock = Mutex::new(0_u64);
        let executed = step_through("stepping::tests::locked_instructions_are_counted_exactly", || {
            watched(|| black_box(&counter).store(1, Ordering::Relaxed));
            watched(|| (0..10).map(|_| black_box(&counter).fetch_add(1, Ordering::Relaxed)).sum::<u64>());
            watched(|| black_box(&counter).swap(1, Ordering::Relaxed));
            watched(|| black_box(&counter).store(1, Ordering::SeqCst));
            watched(|| *black_box(&lock).lock().unwrap() += 1);
        });
        let Some(executed) = executed else { return };
        let locked: Vec<u64> = executed.iter().map(|region| region.locked).collect();
        assert_eq!(locked[..4], [0, 10, 1, 1]);
        // One to lock, one to unlock.
        assert_eq!(locked[4], 2);
        assert!(executed.iter().all(|region| region.instructions > 2));
    }
}
