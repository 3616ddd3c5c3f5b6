//! The statistics by pool, their table and their peaks.

use orlop_alloc::{Allocator, Request};
use orlop_core::Device;
use orlop_core::torch::TorchConf;
use orlop_device::{DeviceAllocator, NullDevice, Policy};

const MIB: usize = 1 << 20;

/// Returns the numbers of a row, as printed.
fn row(table: &str, name: &str) -> Vec<String> {
    let line = table.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {table}"));
    line.as_bytes()[20..].chunks(12).map(|cell| String::from_utf8_lossy(cell).trim().to_owned()).collect()
}

#[test]
fn the_table_has_current_peak_added_and_taken_by_pool() {
    let device = NullDevice::new(Device::cuda(0), 1 << 30);
    let allocator = DeviceAllocator::new(device, Policy::torch(&TorchConf::default())).into_ref();
    let small = allocator.allocate(&Request::new(1000)).unwrap();
    let large = [3, 5].map(|count| allocator.allocate(&Request::new(count * MIB)).unwrap());
    drop(allocator.allocate(&Request::new(2 * MIB)).unwrap());
    let [_, freed] = large;
    drop(freed);
    let stats = allocator.device_stats();
    let bytes = &stats.allocated_bytes;
    assert_eq!((bytes.small.current, bytes.small.peak, bytes.small.freed), (1024, 1024, 0));
    assert_eq!((bytes.large.current, bytes.large.peak), (3 << 20, 10 << 20));
    assert_eq!((bytes.large.allocated, bytes.large.freed), (10 << 20, 7 << 20));
    assert_eq!(bytes.all.current, bytes.small.current + bytes.large.current);
    assert!(stats.reserved_bytes.all.current >= bytes.all.current);
    let table = stats.summary();
    assert_eq!(row(&table, "allocated memory"), ["3.00 MiB", "10.0 MiB", "10.0 MiB", "7.00 MiB"]);
    let small_row = table.lines().skip_while(|line| !line.starts_with("allocated")).nth(2).unwrap();
    assert!(small_row.starts_with("  small pools") && small_row.contains("1.00 KiB"), "{table}");
    assert_eq!(row(&table, "allocations"), ["2", "4", "4", "2"]);
    allocator.reset_peaks();
    let stats = allocator.device_stats();
    assert_eq!(stats.allocated_bytes.all.peak, stats.allocated_bytes.all.current);
    assert_eq!(stats.allocated_bytes.all.allocated, bytes.all.allocated);
    drop(small);
}
