//! What the owner of a storage says about it, when somebody is refused (P3, P24).

use std::sync::{Mutex, PoisonError};

/// A message, or none. Rarely set, and read only on the way to an error.
#[derive(Debug, Default)]
pub(super) struct Notes {
    message: Mutex<Option<Box<str>>>,
}

impl Notes {
    pub(super) fn get(&self) -> Option<Box<str>> {
        self.message.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set(&self, message: &str) {
        *self.message.lock().unwrap_or_else(PoisonError::into_inner) = Some(message.into());
    }
}
