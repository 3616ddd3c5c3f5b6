//! What the driver does where its documentation promises nothing: the switches of `SimulationConfig`, and
//! more of that kind.

mod captures;
mod handles;
mod pending;
mod pools;
mod queue;
mod raw;
mod waits;

pub(super) use self::handles::print_context_ids;
pub(super) use self::waits::call_in_use;
use super::{Facts, Result, Section, calls, child, head, row, timed};
use cudarc::driver::DriverError;

/// Prints a table for each kind of behaviour. A table that fails does not end the others.
pub(super) fn behaviours(facts: &Facts) -> Result<()> {
    let tables: [(&str, Section); 5] = [
        ("Calls while a stream is busy", waits::waits),
        ("Requests while freed memory is pending", pools::pools),
        ("Handles and addresses that are given again", handles::handles),
        ("Submissions behind pending work", queue::queue),
        ("Calls in a capture", captures::captures),
    ];
    let mut failed = Vec::new();
    for (name, table) in tables {
        println!("### {name}\n");
        facts.device.context().bind_to_thread()?;
        let (ms, outcome) = timed(|| table(facts));
        if let Err(error) = outcome {
            println!("\nFAILED: {error}");
            failed.push(name);
        }
        println!("\n({:.1} s)\n", ms / 1e3);
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join(", ").into()) }
}

/// Returns the name of the driver's answer.
fn answer<T>(outcome: &Result<T>) -> String {
    match outcome {
        Ok(_) => "ok".to_owned(),
        Err(error) => match error.downcast_ref::<DriverError>() {
            Some(DriverError(code)) => format!("{code:?}").replace("CUDA_ERROR_", ""),
            None => error.to_string(),
        },
    }
}
