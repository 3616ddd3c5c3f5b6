//! Blocks of regions that another process opens.

use super::child::{OPENS_BLOCK, Process};
use super::{Facts, Result, head, row};
use orlop_alloc::{Allocator, AllocatorRef, Request};
use orlop_cuda::{CudaMemory, DriverAllocator};
use orlop_device::{DeviceAllocator, Policy};

const BYTES: usize = 100_000;

/// The other process reads what this one has written, and this one what the other has; the block before the
/// shared one stays as it is.
pub(super) fn processes(facts: &Facts) -> Result<()> {
    let device = &facts.device;
    let regions = DeviceAllocator::new(CudaMemory::in_regions(device), Policy::orlop_without_pages());
    let allocators: [(&str, AllocatorRef); 2] = [
        ("`DriverAllocator::direct`", DriverAllocator::direct(device).into_ref().erase()),
        ("`CudaMemory::in_regions`", regions.into_ref().erase()),
    ];
    head(&[
        "exported from",
        "bytes of the export",
        "wrong bytes there",
        "wrong bytes written back",
        "wrong bytes of the neighbour",
        "opened in its own process",
    ]);
    let mut failed = 0;
    for (name, allocator) in allocators {
        let [before, shared] =
            [allocator.allocate(&Request::new(BYTES))?, allocator.allocate(&Request::new(BYTES))?];
        for (block, byte) in [(&before, 1), (&shared, 7)] {
            facts.fill_on(block.stream(), block, byte)?;
        }
        facts.device.synchronize()?;
        let exported = device.export_memory(&shared)?;
        let text: String = exported.iter().map(|byte| format!("{byte:02x}")).collect();
        let there = Process::start(facts, OPENS_BLOCK, &text).and_then(Process::finish);
        let written = facts.wrong_bytes_on(shared.stream(), &shared, 8)?;
        let neighbour = facts.wrong_bytes_on(before.stream(), &before, 1)?;
        // SAFETY: the block is live, and nothing accesses it.
        let own = match unsafe { device.import_memory(&exported) } {
            Ok(_) => "yes".to_owned(),
            Err(error) => error.to_string(),
        };
        let read = match &there {
            Ok(printed) => printed.trim().to_owned(),
            Err(error) => error.to_string(),
        };
        failed += usize::from(read != "0" || written + neighbour > 0);
        row(name, [exported.len().to_string(), read, written.to_string(), neighbour.to_string(), own]);
    }
    if failed > 0 { Err(format!("{failed} blocks are wrong").into()) } else { Ok(()) }
}

/// Opens a block twice, prints the number of wrong bytes, and writes others.
pub(super) fn open_block(facts: &Facts, exported: &str) -> Result<()> {
    let pairs = exported.as_bytes().chunks(2).map(|pair| Ok(u8::from_str_radix(str::from_utf8(pair)?, 16)?));
    let exported = pairs.collect::<Result<Vec<u8>>>()?;
    // SAFETY: the other process waits for this one, and keeps the block.
    let first = unsafe { facts.device.import_memory(&exported) }?;
    // SAFETY: as above.
    let second = unsafe { facts.device.import_memory(&exported) }?;
    if first.len() != BYTES || first.as_ptr() != second.as_ptr() {
        return Err("the opened blocks differ".into());
    }
    println!("{}", facts.wrong_bytes_on(first.stream(), &first, 7)?);
    drop(first);
    facts.fill_on(second.stream(), &second, 8)?;
    facts.device.synchronize()?;
    drop(second);
    match facts.device.open_imports() {
        0 => Ok(()),
        open => Err(format!("{open} regions are open").into()),
    }
}
