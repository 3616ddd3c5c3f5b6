//! What a buffer is in which space for: its accesses, and the spaces in which it may be.

use crate::{Problem, ProblemBuilder, ProblemError};
use std::collections::BTreeMap;

/// The preferences of buffers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Preferences {
    accesses: BTreeMap<usize, u64>,
    spaces: BTreeMap<usize, Vec<Box<str>>>,
}

impl Preferences {
    pub(crate) fn set_accesses(&mut self, accesses: impl IntoIterator<Item = (usize, u64)>) {
        self.accesses = accesses.into_iter().collect();
    }
}

impl ProblemBuilder {
    /// Sets how often a buffer is accessed, otherwise once. It matters only to
    /// [`SpacePlanner`](crate::SpacePlanner).
    ///
    /// # Errors
    ///
    /// [`ProblemError::NoBuffer`]
    pub fn accesses(&mut self, index: usize, accesses: u64) -> Result<(), ProblemError> {
        self.existing(index)?;
        self.problem.preferences.accesses.insert(index, accesses);
        Ok(())
    }

    /// Sets the names of the [spaces](crate::Space) in which a buffer may be, otherwise all.
    ///
    /// # Errors
    ///
    /// [`ProblemError::NoBuffer`]
    pub fn allow_spaces<'a>(
        &mut self,
        index: usize,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), ProblemError> {
        self.existing(index)?;
        let names: Vec<Box<str>> = names.into_iter().map(Into::into).collect();
        self.problem.preferences.spaces.insert(index, names);
        Ok(())
    }
}

impl Problem {
    /// Returns how often a buffer is accessed.
    #[must_use]
    pub fn accesses(&self, index: usize) -> u64 {
        self.accesses_if_set(index).unwrap_or(1)
    }

    pub(crate) fn accesses_if_set(&self, index: usize) -> Option<u64> {
        self.preferences.accesses.get(&index).copied()
    }

    /// Returns the names of the spaces in which a buffer may be; empty for all of them.
    #[must_use]
    pub fn spaces(&self, index: usize) -> &[Box<str>] {
        self.preferences.spaces.get(&index).map_or(&[], |names| names)
    }

    /// Returns `true` if there is a buffer that may only be in some spaces.
    #[must_use]
    pub fn prefers_spaces(&self) -> bool {
        !self.preferences.spaces.is_empty()
    }

    /// Returns `true` if there is a buffer that is not accessed once.
    pub(crate) fn has_accesses(&self) -> bool {
        !self.preferences.accesses.is_empty()
    }
}
