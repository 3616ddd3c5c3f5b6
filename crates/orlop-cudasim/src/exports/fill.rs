//! Fills. One without a stream runs in the legacy default stream and does not wait, so that a capture allows
//! it.

use crate::call::calls;
use crate::codes::{Failure, Outcome};
use crate::guard::DriverGuard;
use crate::memory::MemoryAccess;
use crate::state::work::{Submission, Work};

/// A fill as the call describes it: `count` values of `width` bytes in each of `rows` rows.
#[derive(Debug, Clone, Copy)]
struct FillShape {
    name: &'static str,
    to: usize,
    pitch: usize,
    count: usize,
    rows: usize,
    value: u32,
    width: usize,
}

impl FillShape {
    fn line(name: &'static str, to: usize, value: u32, width: usize, count: usize) -> Self {
        Self { name, to, pitch: 0, count, rows: 1, value, width }
    }
}

fn submit(driver: &mut DriverGuard, fill: FillShape, stream: u64) -> Outcome {
    let FillShape { name, to, pitch, count, rows, value, width } = fill;
    if count == 0 || rows == 0 {
        return Ok(());
    }
    let row = count.checked_mul(width).ok_or(Failure::INVALID_VALUE)?;
    if !to.is_multiple_of(width) || (rows > 1 && (pitch < row || !pitch.is_multiple_of(width))) {
        return Err(Failure::INVALID_VALUE);
    }
    let id = driver.stream_of(stream)?;
    let accesses: Vec<MemoryAccess> =
        (0..rows).map(|index| MemoryAccess::write(to + index * pitch, row)).collect();
    for access in &accesses {
        driver.check_range(access.address, access.bytes)?;
    }
    let work = Work::Fill { to, pitch, count, rows, value, width };
    driver.submit(id, Submission::new(name, work, accesses))
}

calls! {
    fn cuMemsetD8_v2(to: usize, value: u8, count: usize) Context |driver| {
        submit(driver, FillShape::line("cuMemsetD8", to, value.into(), 1, count), 0)
    }

    fn cuMemsetD16_v2(to: usize, value: u16, count: usize) Context |driver| {
        submit(driver, FillShape::line("cuMemsetD16", to, value.into(), 2, count), 0)
    }

    fn cuMemsetD32_v2(to: usize, value: u32, count: usize) Context |driver| {
        submit(driver, FillShape::line("cuMemsetD32", to, value, 4, count), 0)
    }

    fn cuMemsetD8Async(to: usize, value: u8, count: usize, stream: u64) Context |driver| {
        submit(driver, FillShape::line("cuMemsetD8Async", to, value.into(), 1, count), stream)
    }

    fn cuMemsetD16Async(to: usize, value: u16, count: usize, stream: u64) Context |driver| {
        submit(driver, FillShape::line("cuMemsetD16Async", to, value.into(), 2, count), stream)
    }

    fn cuMemsetD32Async(to: usize, value: u32, count: usize, stream: u64) Context |driver| {
        submit(driver, FillShape::line("cuMemsetD32Async", to, value, 4, count), stream)
    }

    fn cuMemsetD2D8_v2(to: usize, pitch: usize, value: u8, count: usize, rows: usize) Context |driver| {
        let (name, value, width) = ("cuMemsetD2D8", u32::from(value), 1);
        submit(driver, FillShape { name, to, pitch, count, rows, value, width }, 0)
    }

    fn cuMemsetD2D16_v2(to: usize, pitch: usize, value: u16, count: usize, rows: usize) Context |driver| {
        let (name, value, width) = ("cuMemsetD2D16", u32::from(value), 2);
        submit(driver, FillShape { name, to, pitch, count, rows, value, width }, 0)
    }

    fn cuMemsetD2D32_v2(to: usize, pitch: usize, value: u32, count: usize, rows: usize) Context |driver| {
        submit(driver, FillShape { name: "cuMemsetD2D32", to, pitch, count, rows, value, width: 4 }, 0)
    }

    fn cuMemsetD2D8Async(
        to: usize,
        pitch: usize,
        value: u8,
        count: usize,
        rows: usize,
        stream: u64,
    ) Context |driver| {
        let (name, value, width) = ("cuMemsetD2D8Async", u32::from(value), 1);
        submit(driver, FillShape { name, to, pitch, count, rows, value, width }, stream)
    }

    fn cuMemsetD2D16Async(
        to: usize,
        pitch: usize,
        value: u16,
        count: usize,
        rows: usize,
        stream: u64,
    ) Context |driver| {
        let (name, value, width) = ("cuMemsetD2D16Async", u32::from(value), 2);
        submit(driver, FillShape { name, to, pitch, count, rows, value, width }, stream)
    }

    fn cuMemsetD2D32Async(
        to: usize,
        pitch: usize,
        value: u32,
        count: usize,
        rows: usize,
        stream: u64,
    ) Context |driver| {
        let (name, width) = ("cuMemsetD2D32Async", 4);
        submit(driver, FillShape { name, to, pitch, count, rows, value, width }, stream)
    }
}
