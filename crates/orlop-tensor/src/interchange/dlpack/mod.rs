//! Tensors from and for other frameworks, in memory.

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DlpackError {
    /// A placeholder.
    #[error("nothing")]
    Nothing,
}
