//! Tensors in a file of our own, as they are.

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// A placeholder.
    #[error("nothing")]
    Nothing,
}
