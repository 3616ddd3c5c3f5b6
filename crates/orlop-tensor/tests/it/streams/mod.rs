//! Tensors on a device whose work runs late: memory that is reused too early, and bytes that are read too
//! early, have wrong contents.

mod copies;
mod order;
mod sent;

use orlop_context::Context;
use orlop_core::{DType, Device, StreamId};
use orlop_tensor::{Tensor, TensorOptions};
use orlop_testkit::QueuedDevice;

const FAR: Device = Device::custom(31, 0);
const OWN: StreamId = StreamId::default_of(FAR);

fn side() -> StreamId {
    StreamId::unique()
}

fn far(dtype: DType) -> TensorOptions<'static> {
    TensorOptions::new().dtype(dtype).device(FAR)
}

fn with_device(test: impl FnOnce(&QueuedDevice, &Context)) {
    let device = QueuedDevice::new(FAR, 64 << 20);
    let context = device.context().expect("a new context");
    context.scope(|| test(&device, &context));
}

fn numbers(count: i32) -> Tensor {
    Tensor::from_vec([count], (0..count).collect::<Vec<i32>>()).expect("as many as sizes")
}

fn vec_of(tensor: &Tensor) -> Vec<i32> {
    tensor.to_vec().expect("readable")
}
