//! [`EventSubscriber`]: a subscriber of traces that is a closure.

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Calls a function with every event that is traced on the threads that it is set for.
#[derive(Debug, Clone)]
pub struct EventSubscriber<F>(pub F);

impl<F: Fn(&Event<'_>) + 'static> Subscriber for EventSubscriber<F> {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        (self.0)(event);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
