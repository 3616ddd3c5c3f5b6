//! Code of a test that runs inside the first event of a thread.

use orlop_testkit::subscriber::EventSubscriber;
use std::sync::{Mutex, PoisonError};
use tracing::Event;

/// Calls `run`. `action` runs once, inside the first event that it emits on this thread.
pub(crate) fn acting_at_the_first_event<R>(
    action: impl FnOnce() + Send + 'static,
    run: impl FnOnce() -> R,
) -> R {
    let action = Mutex::new(Some(action));
    let act = move |_: &Event<'_>| {
        let action = action.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(action) = action {
            action();
        }
    };
    tracing::subscriber::with_default(EventSubscriber(act), run)
}
