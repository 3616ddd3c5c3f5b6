//! Plugins of TensorRT that detectors are exported with: as many results as their attributes say.

use super::{Operator, own};
use crate::infer::{Call, Fault, Outcome, Range, Tensor, one, types};

pub(super) const OPERATORS: &[Operator] = &[
    own("EfficientNMS_TRT", |call| {
        detections(call, Some(call.int_or("max_output_boxes", 100)), types::INT32)
    }),
    own("BatchedNMS_TRT", |call| detections(call, call.int("keepTopK"), types::FLOAT)),
    own("BatchedNMSDynamic_TRT", |call| detections(call, call.int("keepTopK"), types::FLOAT)),
];

/// The number of detections of each image, and their boxes, scores and classes.
fn detections(call: &Call<'_>, count: Option<i64>, classes: i32) -> Outcome {
    let (batch, data_type) = (call.size(0, 0)?, call.data_type(0));
    let count = Range::exactly(count.ok_or(Fault::Invalid("it does not say how many boxes it keeps"))?);
    let row = |data_type| Tensor::new(data_type, vec![batch, count]).into();
    let mut results = one(types::INT32, vec![batch, Range::exactly(1)])?;
    results.push(Tensor::new(data_type, vec![batch, count, Range::exactly(4)]).into());
    results.extend([row(data_type), row(classes)]);
    Ok(results)
}
