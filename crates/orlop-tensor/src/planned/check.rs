//! The check of parts before they are used.

use super::{PlannedError, PlannedPart};
use orlop_core::Alignment;
use orlop_plan::{Buffer, Plan, ProblemBuilder, verify};

/// Checks that parts are inside a block of `bytes` bytes with this alignment, tensors inside their parts and
/// aligned, and that parts which share bytes are not live at once.
pub(super) fn check(parts: &[PlannedPart], bytes: usize, align: Alignment) -> Result<(), PlannedError> {
    let mut problem = ProblemBuilder::new();
    let mut tensors = 0;
    for (index, part) in parts.iter().enumerate() {
        if part.offset.checked_add(part.bytes).is_none_or(|end| end > bytes) {
            let range = part.offset..part.offset.saturating_add(part.bytes);
            return Err(PlannedError::OutsideBlock { part: index, range, bytes });
        }
        for tensor in &part.tensors {
            let refused = |source| PlannedError::OutsidePart { tensor: tensors, source };
            tensor.layout.check_within(part.bytes, tensor.dtype.size()).map_err(refused)?;
            let needed = tensor.dtype.alignment();
            if part.bytes > 0 && (needed > align || !needed.is_aligned(part.offset)) {
                return Err(PlannedError::Misaligned { tensor: tensors, offset: part.offset, align: needed });
            }
            if tensor.lifetime.is_empty() {
                return Err(PlannedError::EmptyLifetime {
                    tensor: tensors,
                    lifetime: tensor.lifetime.clone(),
                });
            }
            tensors += 1;
        }
        problem.push(Buffer::unaligned(part.lifetime(), part.bytes as u64)).map_err(PlannedError::Parts)?;
    }
    let problem = problem.finish();
    let offsets = parts.iter().map(|part| part.offset as u64).collect();
    let plan = Plan::new(&problem, offsets)?;
    Ok(verify(&problem, &plan)?)
}
