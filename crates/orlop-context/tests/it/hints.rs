//! The hint of an out-of-memory report is true: with the budget that it names the request fits.

#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in test functions, but not in what they call")]

use orlop_alloc::{Block, Error, OutOfMemory, Request};
use orlop_context::registry::Registry;
use orlop_context::{AllocatorConfig, Budget, Context};
use orlop_core::{ByteSize, Device, MemoryKind};

const MIB: u64 = 1 << 20;
const KV: MemoryKind = MemoryKind::KvCache;
const WORKSPACE: MemoryKind = MemoryKind::Workspace;

fn allocate(context: &Context, bytes: usize, kind: MemoryKind) -> Result<Block, Box<OutOfMemory>> {
    match context.allocate(Device::CPU, &Request::new(bytes).kind(kind)) {
        Ok(block) => Ok(block),
        Err(Error::OutOfMemory(report)) => Err(report),
        Err(error) => panic!("{error}"),
    }
}

fn context(budgets: &[(MemoryKind, Budget)]) -> Context {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    for &(kind, budget) in budgets {
        context.set_budget(Device::CPU, kind, budget).unwrap();
    }
    context
}

/// Returns the two sizes of a hint, what is needed and what there is, and whether the first is a minimum:
/// that of a request whose rounding was not known.
fn sizes(report: &OutOfMemory, bound: &str) -> Option<(u64, u64, bool)> {
    let hint = report.hint();
    let text = hint.strip_prefix(&format!("a {bound} of "))?;
    let (text, is_minimum) = match text.strip_prefix("at least ") {
        Some(text) => (text.strip_suffix(" is needed")?, true),
        None => (text.strip_suffix(" would have fitted")?, false),
    };
    let (enough, instead) = text.split_once(" instead of ")?;
    let parsed = |text: &str| text.parse::<ByteSize>().expect(text).0;
    Some((parsed(enough), parsed(instead), is_minimum))
}

/// Sets the budget to the size in the hint, and makes the request again: it is granted, or its rounding is
/// known now, and it is granted with the budget of the next hint. Returns the old budget in the first hint.
fn follow(context: &Context, bytes: usize, kind: MemoryKind, report: &OutOfMemory) -> u64 {
    let (enough, instead, is_minimum) = sizes(report, "budget").unwrap();
    context.set_budget(Device::CPU, kind, Budget::hard(enough)).unwrap();
    if let Err(report) = allocate(context, bytes, kind) {
        assert!(is_minimum, "{}", report.report());
        let (enough, _, is_minimum) = sizes(&report, "budget").unwrap();
        assert!(!is_minimum, "{}", report.report());
        context.set_budget(Device::CPU, kind, Budget::hard(enough)).unwrap();
        drop(allocate(context, bytes, kind).unwrap());
    }
    instead
}

#[test]
fn a_budget_that_is_named_fits() {
    let context = context(&[(KV, Budget::hard(4 * MIB))]);
    let _held = allocate(&context, 3 << 20, KV).unwrap();
    let report = allocate(&context, 2 << 20, KV).unwrap_err();
    assert_eq!(follow(&context, 2 << 20, KV, &report), 4 * MIB);
}

/// Three digits are printed: rounded up, or the size as printed would not be enough.
#[test]
fn a_budget_that_is_named_fits_as_printed() {
    for bytes in [1_000_500, 1_000_100, 5_230_000, 17_777_777, 150_000_001] {
        let context = context(&[(KV, Budget::hard(1000))]);
        let report = allocate(&context, bytes, KV).unwrap_err();
        assert_eq!(follow(&context, bytes, KV, &report), 1000);
    }
}

/// The part of a budget that another kind has borrowed counts too.
#[test]
fn a_budget_that_is_lent_is_named_with_what_is_lent() {
    let context = context(&[(KV, Budget::hard(4 * MIB)), (WORKSPACE, Budget::hard(8 * MIB))]);
    let _cache = allocate(&context, 7 << 20, KV).unwrap();
    assert_eq!(context.budget_status(Device::CPU, WORKSPACE).lent, 3 * MIB);
    let _some = allocate(&context, 1 << 20, WORKSPACE).unwrap();
    let report = allocate(&context, 6 << 20, WORKSPACE).unwrap_err();
    assert_eq!((report.limit, report.lent), (Some(5 * MIB), 3 * MIB));
    let text = report.to_string();
    assert!(text.contains("budget 5.00 MiB beside 3.00 MiB that are lent to other kinds"), "{text}");
    assert_eq!(follow(&context, 6 << 20, WORKSPACE, &report), 8 * MIB);
}

#[test]
fn a_budget_that_borrows_is_named() {
    let context = context(&[(KV, Budget::hard(4 * MIB)), (WORKSPACE, Budget::hard(8 * MIB))]);
    let _cache = allocate(&context, 7 << 20, KV).unwrap();
    let report = allocate(&context, 6 << 20, KV).unwrap_err();
    assert!(report.lent == 0 && !report.to_string().contains("lent"), "{report}");
    follow(&context, 6 << 20, KV, &report);
}

/// Every engine with a limit: the program that failed gets its memory with the limit that is named.
#[test]
fn a_limit_that_is_named_fits() {
    let registry = Registry::with_builtin();
    let run = |name: &str, limit: u64| {
        let config = AllocatorConfig::new().limit(usize::try_from(limit).unwrap());
        let allocator = registry.make(name, &config).unwrap();
        let mut held = Vec::new();
        for round in 1..200usize {
            match allocator.allocate(&Request::new(round * 7919 % 90_000 + 1)) {
                Ok(block) => held.push(block),
                Err(Error::OutOfMemory(report)) => return Err((round, report)),
                Err(error) => panic!("{error}"),
            }
            if round % 5 == 0 {
                drop(held.remove(round % held.len()));
            }
        }
        Ok(())
    };
    let mut hints = 0;
    for entry in registry.registered() {
        let mut limit = 1 << 20;
        while let Err((failed, report)) = run(&entry.name, limit) {
            let Some((enough, instead, is_minimum)) = sizes(&report, "limit") else { break };
            hints += 1;
            assert!(instead == limit && enough > limit, "{}: {}", entry.name, report.report());
            if !is_minimum && let Err((now, report)) = run(&entry.name, enough) {
                assert!(now > failed, "{} {limit} {enough}: {}", entry.name, report.report());
            }
            // Sizes that are printed exactly.
            limit = enough.next_multiple_of(1 << 20);
        }
    }
    assert!(hints > 10, "{hints}");
}
