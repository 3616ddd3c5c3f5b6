//! [`Faults`]: call counters and injected failures.

use crate::codes::Failure;
use std::collections::BTreeMap;

/// Fails calls of one function.
#[derive(Debug, Clone)]
struct FaultRule {
    function: String,
    /// Calls that still succeed before the first failing one.
    skip: u64,
    /// Calls that still fail.
    count: u64,
    failure: Failure,
}

#[derive(Debug, Default)]
pub(crate) struct Faults {
    calls: BTreeMap<&'static str, u64>,
    rules: Vec<FaultRule>,
}

impl Faults {
    pub(crate) fn count(&mut self, name: &'static str) {
        *self.calls.entry(name).or_insert(0) += 1;
    }

    pub(crate) fn calls(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.calls.iter().map(|(name, calls)| (*name, *calls))
    }

    pub(crate) fn reset_calls(&mut self) {
        self.calls.clear();
    }

    /// Fails `count` calls of `function` (`*`: any), beginning with the `nth` from now, which is at least 1.
    pub(crate) fn add(&mut self, function: String, nth: u64, count: u64, failure: Failure) {
        self.rules.push(FaultRule { function, skip: nth.saturating_sub(1), count, failure });
    }

    pub(crate) fn clear(&mut self) {
        self.rules.clear();
    }

    /// Returns the failure of this call, if it is its turn. Every matching rule counts the call.
    pub(crate) fn next(&mut self, name: &str) -> Option<Failure> {
        let mut found = None;
        for rule in self.rules.iter_mut().filter(|rule| rule.function == name || rule.function == "*") {
            if rule.skip > 0 {
                rule.skip -= 1;
            } else if rule.count > 0 && found.is_none() {
                rule.count -= 1;
                found = Some(rule.failure);
            }
        }
        self.rules.retain(|rule| rule.count > 0);
        found
    }
}
