//! What the code that records a program knows of values: it computes small tensors on the host.

use crate::abi::{read_bytes, write_bytes};
use crate::call::library_calls;
use crate::caller::{Guess, note};
use crate::code::Failure;
use crate::state::contents::Origin;

/// What is assumed of values, by the numbers that the code in Python has for it.
const ASSUMED: [Guess; 2] = [Guess::Repeats, Guess::Bins];

library_calls! {
    in enter_uninitialized;

    // Copies what is known of exactly these bytes; fails if they are not known.
    fn orlop_dry_run_read(address: usize, bytes: usize, into: usize) |machine| {
        write_bytes(into, &machine.contents.read(address, bytes).ok_or(Failure::NOT_FOUND)?);
        Ok(())
    }

    // Keeps what the host computed for these bytes.
    fn orlop_dry_run_write(address: usize, bytes: usize, values: usize) |machine| {
        machine.contents.write(address, read_bytes(values, bytes), Origin::Computed);
        Ok(())
    }

    // The tensor with these bytes is not known: they are not what was copied there for another one.
    fn orlop_dry_run_distrust(address: usize, bytes: usize) |machine| {
        machine.contents.distrust(address, bytes);
        Ok(())
    }

    // The next read of these bytes has these values.
    fn orlop_dry_run_expect(address: usize, bytes: usize, values: usize) |machine| {
        machine.thread().expected = Some((address, read_bytes(values, bytes)));
        Ok(())
    }

    // The next operation whose result has as many rows as its values tell has this many; none is known with a
    // negative number.
    fn orlop_dry_run_expect_size(rows: i64) |machine| {
        machine.thread().known_size = u64::try_from(rows).ok();
        Ok(())
    }

    // Counts something that the code in Python assumed.
    fn orlop_dry_run_assume(number: usize) |_machine| {
        if let Some(&guess) = ASSUMED.get(number) {
            note(guess);
        }
        Ok(())
    }
}
