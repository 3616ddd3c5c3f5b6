//! Writing tensors to files.

use super::Metadata;
use super::plan::{FilePlan, PlannedTensor, check_names};
use crate::Tensor;
use crate::error::safetensors::SafetensorsError;
use crate::error::{Error, Result};
use orlop_host::files::replace;
use std::borrow::Borrow;
use std::io::Write as _;
use std::path::Path;

/// Returns a file of these tensors as bytes. See [`save`].
///
/// # Errors
///
/// Those of [`save`], except for I/O errors; [`SafetensorsError::OutOfMemory`].
pub fn to_bytes(
    tensors: impl IntoIterator<Item = (impl AsRef<str>, impl Borrow<Tensor>)>,
    metadata: &Metadata,
) -> Result<Vec<u8>> {
    let tensors: Vec<_> = tensors.into_iter().collect();
    let plan = FilePlan::new(items(&tensors)?, metadata)?;
    let mut file = Vec::new();
    let no_room = |source| SafetensorsError::OutOfMemory { bytes: plan.bytes, source };
    file.try_reserve_exact(plan.bytes).map_err(no_room)?;
    plan.write(|bytes| {
        file.extend_from_slice(bytes);
        Ok(())
    })?;
    Ok(file)
}

/// Writes tensors to a file and replaces an existing one atomically: no partial file is ever visible, and
/// mappings of the old file keep its contents.
///
/// Tensors may have any strides and devices; they are written one at a time, and tensors that share memory
/// are written separately. Bytes of bools become 0 or 1. The same tensors and metadata give the same bytes,
/// whatever their order.
///
/// ```
/// use orlop_core::DType;
/// use orlop_tensor::Tensor;
/// use orlop_tensor::interchange::safetensors::{Metadata, SafeTensors, save};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("model.safetensors");
/// save(&path, [("step", Tensor::full((), 7, DType::I64)?)], &Metadata::new())?;
/// let file = SafeTensors::read(&path)?;
/// assert_eq!(file.tensor("step")?.item::<i64>()?, 7);
/// // What was read can be written back.
/// save(&path, file.iter(), file.metadata())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`SafetensorsError::Io`]; [`SafetensorsError::NoSuchDType`]; [`SafetensorsError::DuplicateName`] and
/// [`SafetensorsError::ReservedName`]; [`SafetensorsError::HeaderTooLarge`];
/// [`Error::Undefined`](crate::Error::Undefined); [`Error::Borrowed`](crate::Error::Borrowed) if a tensor is
/// being written; out of memory if elements must be copied into row-major order.
pub fn save(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (impl AsRef<str>, impl Borrow<Tensor>)>,
    metadata: &Metadata,
) -> Result<()> {
    let tensors: Vec<_> = tensors.into_iter().collect();
    save_plan(path.as_ref(), &FilePlan::new(items(&tensors)?, metadata)?)
}

fn items<'a, N: AsRef<str>, T: Borrow<Tensor>>(tensors: &'a [(N, T)]) -> Result<Vec<PlannedTensor<'a>>> {
    let items: Result<Vec<_>> =
        tensors.iter().map(|(name, tensor)| PlannedTensor::new(name.as_ref(), tensor.borrow())).collect();
    let items = items?;
    check_names(&items)?;
    Ok(items)
}

fn save_plan(path: &Path, plan: &FilePlan<'_>) -> Result<()> {
    let failed = |error| Error::from(SafetensorsError::io(path)(error));
    replace(path, failed, |out| plan.write(|bytes| out.file.write_all(bytes).map_err(failed)))
}
