//! The report of a dry run, for the code that ends it.

use crate::abi::Text;
use crate::call::library_calls;
use crate::code::Failure;

library_calls! {
    in enter_uninitialized;

    fn orlop_dry_run_report(path: Text) |machine| {
        let path = path.get();
        machine.counters.estimated_convolutions.clone_from(&machine.workspaces.estimated);
        std::fs::write(&path, machine.counters.json()).map_err(|error| {
            eprintln!("orlop dry-run: {path}: {error}");
            Failure::UNKNOWN
        })
    }
}
