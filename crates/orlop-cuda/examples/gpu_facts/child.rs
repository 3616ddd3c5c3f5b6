//! The other process: this program, with an option that says what it does.

use super::{Facts, Result, behaviours, load, processes};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(super) const OPENS_BLOCK: &str = "--opens-block";
#[cfg(target_os = "linux")]
pub(super) const OPENS_PAGES: &str = "--opens-pages";
pub(super) const CALL_IN_USE: &str = "--call-in-use";
pub(super) const CONTEXT_IDS: &str = "--context-ids";

/// The time after which a process is no longer waited for.
pub(super) const TIMEOUT: Duration = Duration::from_secs(20);

/// Does what another process has started this one for, if it has.
pub(super) fn run(arguments: &[&str], is_simulated: bool) -> Option<Result<()>> {
    let (option, value) = match arguments {
        [option, value, ..] => (*option, *value),
        [option] => (*option, ""),
        [] => return None,
    };
    let with_device = |work: fn(&Facts, &str) -> Result<()>| work(&Facts::open(is_simulated)?, value);
    match option {
        OPENS_BLOCK => Some(with_device(processes::open_block)),
        #[cfg(target_os = "linux")]
        OPENS_PAGES => Some(with_device(super::process_pages::open_pages)),
        CALL_IN_USE => Some(with_device(behaviours::call_in_use)),
        CONTEXT_IDS => Some(load(is_simulated).and_then(|()| behaviours::print_context_ids())),
        _ => None,
    }
}

/// A process that was started; it is killed when it is dropped early.
pub(super) struct Process(Option<Child>);

impl Process {
    pub(super) fn start(facts: &Facts, option: &str, value: &str) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([option, value]).args(facts.is_simulated.then_some("--simulated"));
        Ok(Self(Some(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?)))
    }

    /// Returns `true` until the process has ended.
    pub(super) fn is_running(&mut self) -> Result<bool> {
        Ok(match &mut self.0 {
            Some(child) => child.try_wait()?.is_none(),
            None => false,
        })
    }

    /// Waits for the end of the process, and returns what it printed: a few lines.
    pub(super) fn finish(mut self) -> Result<String> {
        let start = Instant::now();
        while self.is_running()? {
            if start.elapsed() > TIMEOUT {
                return Err("the other process does not end".into());
            }
            sleep(Duration::from_millis(2));
        }
        let Some(mut child) = self.0.take() else { return Err("no process".into()) };
        let status = child.wait()?;
        let mut printed = String::new();
        if let Some(mut stdout) = child.stdout.take() {
            stdout.read_to_string(&mut printed)?;
        }
        if status.success() { Ok(printed) } else { Err(format!("the other process: {status}").into()) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // It fails if the process has ended.
            let _ended = child.kill();
            let _status = child.wait();
        }
    }
}
