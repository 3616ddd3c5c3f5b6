//! Plans as metadata of TensorFlow Lite models, for the offline memory planner of TensorFlow Lite Micro.

use crate::{Plan, PlanError, Problem};

/// The version of the format.
const VERSION: i32 = 1;

impl Plan {
    /// Returns the contents of the buffer that a TensorFlow Lite model's metadata `OfflineMemoryAllocation`
    /// names: 32-bit integers in little-endian order. They are the version 1, the index of the subgraph, the
    /// number of tensors, and the offset in the arena of each of the problem's buffers, by index. So the
    /// problem has one buffer for each tensor of the subgraph, in the order of its tensors.
    ///
    /// ```
    /// use orlop_plan::{Buffer, Planner, Problem};
    ///
    /// let problem = Problem::new([Buffer::unaligned(0..2, 16), Buffer::unaligned(1..3, 4)])?;
    /// let plan = Planner::new().plan(&problem);
    /// let bytes = plan.tflite_metadata(&problem, 0)?;
    /// assert_eq!(bytes, [1, 0, 2, 0, 16].map(i32::to_le_bytes).concat());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`PlanError::TooHigh`] if an offset does not fit into 31 bits, [`PlanError::Count`] if the plan is of
    /// another problem or the tensors are too many for the format.
    pub fn tflite_metadata(&self, problem: &Problem, subgraph: u16) -> Result<Vec<u8>, PlanError> {
        let wrong = PlanError::Count { offsets: self.offsets().len(), buffers: problem.len() };
        let Ok(count) = i32::try_from(self.offsets().len()) else { return Err(wrong) };
        if self.offsets().len() != problem.len() {
            return Err(wrong);
        }
        let mut bytes = [VERSION, i32::from(subgraph), count].map(i32::to_le_bytes).concat();
        for (index, &offset) in self.offsets().iter().enumerate() {
            let too_high = || PlanError::TooHigh {
                buffer: problem.buffer_ref(index),
                offset,
                limit: i32::MAX.unsigned_abs().into(),
            };
            bytes.extend(i32::try_from(offset).map_err(|_| too_high())?.to_le_bytes());
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buffer;

    #[test]
    fn offsets_beyond_31_bits_are_refused() {
        let problem = Problem::new([1, 2].map(|size| Buffer::unaligned(0..1, size))).unwrap();
        let at = |offset| Plan::new(&problem, vec![0, offset]).unwrap().tflite_metadata(&problem, 3);
        assert_eq!(at(0x7fff_ffff).unwrap()[16..], [0xff, 0xff, 0xff, 0x7f]);
        let error = at(0x8000_0000).unwrap_err();
        assert_eq!(
            error.to_string(),
            "buffer 1: the offset 2147483648 is above 2147483647, the largest of the format"
        );
        let other = Problem::new([Buffer::unaligned(0..1, 1)]).unwrap();
        let plan = Plan::new(&problem, vec![0, 1]).unwrap();
        assert_eq!(plan.tflite_metadata(&other, 0), Err(PlanError::Count { offsets: 2, buffers: 1 }));
    }
}
