//! The thread's current context is as it was.

use crate::machine::Machine;
use cudarc::driver::result::ctx::get_current;

#[test]
fn a_thread_keeps_its_context() {
    let machine = Machine::new(5);
    let stream = machine.device.create_stream().unwrap();
    let other = orlop_cuda::CudaDevice::new(6).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(get_current().unwrap().is_none());
            let block = machine.malloc(8 << 20, &stream);
            assert!(get_current().unwrap().is_none());
            machine.free(block, &stream);
            other.context().bind_to_thread().unwrap();
            let block = machine.malloc(64 << 20, &stream);
            machine.free(block, &stream);
            orlop_torch::orlop_torch_trim(machine.number);
            assert_eq!(get_current().unwrap(), Some(other.context().cu_ctx()));
        });
    });
}
