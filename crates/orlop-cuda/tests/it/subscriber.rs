//! A subscriber of traces that runs code of a test at the first event of a thread.

use std::sync::{Mutex, PoisonError};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

type Action = Box<dyn FnOnce() + Send>;

struct ActingSubscriber(Mutex<Option<Action>>);

impl Subscriber for ActingSubscriber {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        let action = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(action) = action {
            action();
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Calls `run`. `action` runs once, inside the first event that it emits on this thread.
pub(crate) fn acting_at_the_first_event<R>(
    action: impl FnOnce() + Send + 'static,
    run: impl FnOnce() -> R,
) -> R {
    tracing::subscriber::with_default(ActingSubscriber(Mutex::new(Some(Box::new(action)))), run)
}
