//! Hugging Face's weight files.

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SafetensorsError {
    /// A placeholder.
    #[error("nothing")]
    Nothing,
}
