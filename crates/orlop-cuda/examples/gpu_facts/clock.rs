//! The times of a profile's steps on the device.

use super::{Facts, Result, head, row, timed};
use orlop_alloc::{Allocator, Request};
use orlop_context::Context;
use orlop_context::profile::{MemorySteps, StepOrder};
use orlop_cuda::{DriverAllocator, StreamClock};
use std::time::Duration;

/// Steps of 1, 8 and 4 fills, which the host submits without waiting.
pub(super) fn clock(facts: &Facts) -> Result<()> {
    let stream = facts.device.create_stream()?;
    let allocator = DriverAllocator::direct(&facts.device).into_ref();
    let bytes = facts.or_simulated(1 << 30, 8 << 20);
    let block = allocator.allocate(&Request::new(bytes).stream(stream.id()))?;
    let fill = |times: u8| (0..times).try_for_each(|_| facts.fill_on(stream.id(), &block, times));
    fill(8)?;
    stream.synchronize()?;
    let steps = MemorySteps::on(&Context::new()).time_on(StreamClock::new(&stream));
    let (host, submitted) = timed(|| -> Result<()> {
        for (name, times) in [("1 fill", 1), ("8 fills", 8), ("4 fills", 4)] {
            let _step = steps.step(name);
            fill(times)?;
        }
        Ok(())
    });
    stream.synchronize()?;
    submitted?;
    let table = steps.table().sort_by(StepOrder::DeviceTime);
    head(&["step", "device, ms", "host, ms"]);
    let mut times = Vec::new();
    for step in table.rows() {
        let time = step.device_time.ok_or("a step has no time on the device")?;
        let ms = [time, step.host_time].map(|time| format!("{:.3}", time.as_secs_f64() * 1e3));
        row(&step.name, ms);
        times.push((step.name.to_string(), time));
    }
    let names: Vec<_> = times.iter().map(|(name, _)| name.as_str()).collect();
    if names != ["8 fills", "4 fills", "1 fill"] {
        return Err(format!("the order is {names:?}").into());
    }
    let total: Duration = times.iter().map(|(_, time)| *time).sum();
    let device = total.as_secs_f64() * 1e3;
    let ratio = times[0].1.as_secs_f64() / times[2].1.as_secs_f64();
    println!("\n8 fills take {ratio:.2} times as long as 1. Host: {host:.3} ms, device: {device:.3} ms.");
    // The simulated time has nothing to do with the host's, and varies.
    if !facts.is_simulated && !(5.6..10.4).contains(&ratio) {
        return Err(format!("8 fills take {ratio:.2} times as long as 1").into());
    }
    if !facts.is_simulated && host >= device {
        return Err("the host has waited".into());
    }
    Ok(())
}
