//! NumPy's files.

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NpyError {
    /// A placeholder.
    #[error("nothing")]
    Nothing,
}
