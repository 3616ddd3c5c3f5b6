//! The allocation log of a context, switched and numbered while the program runs.

use orlop_alloc::{Request, Tag};
use orlop_context::observe::LogSwitch;
use orlop_context::{AllocatorConfig, Context};
use orlop_core::Device;
use orlop_testkit::child;

/// Allocates and frees a block of `bytes` bytes in a step of the log; without a step the log is off.
fn act(context: &Context, log: &LogSwitch, step: Option<u64>, bytes: usize) {
    log.set_enabled(step.is_some());
    log.set_step(step.unwrap_or(99));
    drop(
        context.allocate(Device::CPU, &Request::new(bytes).tag(Tag::new("batch"))).expect("there is memory"),
    );
}

/// Returns the lines of a log, with the columns that do not vary: action, size, tag and step.
fn lines(log: &str) -> Vec<String> {
    let row = |line: &str| {
        let columns: Vec<_> = line.split(',').collect();
        match columns[..] {
            // The default is wrapped for tracking, which gives ids.
            [_, _, action, _, bytes, _, tag, step, id, allocator] if step.parse::<u64>().is_ok() => {
                assert!(
                    id.parse::<u64>().is_ok_and(|id| id > 0) && allocator.starts_with("tracking"),
                    "{line}"
                );
                Some([action, bytes, tag, step].join(" "))
            }
            _ => None,
        }
    };
    log.lines().filter_map(row).collect()
}

#[test]
fn a_context_has_the_switch_of_its_log() {
    const TEST: &str = "logs::a_context_has_the_switch_of_its_log";
    if child::plays("environment") {
        let context = Context::current();
        let log = context.cpu_log().expect("asked for by the environment");
        assert!(log.enabled());
        act(&context, log, Some(7), 1000);
        act(&context, log, None, 2000);
        act(&context, log, Some(8), 3000);
        return;
    }
    if child::plays("builder") {
        let log = LogSwitch::new();
        log.set_enabled(false);
        let context = Context::with(Device::CPU, AllocatorConfig::new().logged_by(log.clone()));
        drop(context.allocate(Device::CPU, &Request::new(500)).unwrap());
        act(&context, context.cpu_log().unwrap(), Some(7), 1000);
        act(&context, &log, None, 2000);
        act(&context, &log, Some(8), 3000);
        return;
    }
    let expected =
        ["allocate 1000 batch 7", "free 1000 batch 7", "allocate 3000 batch 8", "free 3000 batch 8"];
    assert_eq!(lines(&child::run(TEST, "builder", &[]).1), expected);
    assert_eq!(lines(&child::run(TEST, "environment", &[("ORLOP_CPU_LOG", "1")]).1), expected);
}

#[test]
fn without_a_log_there_is_no_switch() {
    assert!(Context::with(Device::CPU, AllocatorConfig::new()).cpu_log().is_none());
    let logged = AllocatorConfig::new().logged();
    assert!(Context::with(Device::CPU, logged).cpu_log().is_some_and(LogSwitch::enabled));
}
