//! Blocks of every engine can be shared until the first write; foreign memory, in a context's account or not,
//! is copied at once.

#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in test functions, but not in what they call")]

use orlop_alloc::AllocatorRef;
use orlop_alloc::adaptor::Tracking;
use orlop_alloc::{Allocator, backing::System, engine::Arena};
use orlop_context::registry::Registry;
use orlop_context::{AllocatorConfig, Budget, Context};
use orlop_core::{DType, Device, MemoryKind};
use orlop_tensor::{Tensor, TensorOptions};

fn check(name: &str, options: TensorOptions<'_>) {
    let tensor = Tensor::full([100], 5, options.dtype(DType::I32)).unwrap();
    let clone = tensor.lazy_clone().unwrap();
    let address = |tensor: &Tensor| tensor.storage().unwrap().as_ptr().unwrap().addr();
    assert_eq!(address(&tensor), address(&clone), "{name}");
    clone.fill_(6).unwrap();
    assert_ne!(address(&tensor), address(&clone), "{name}");
    assert_eq!((tensor.to_vec::<i32>().unwrap()[9], clone.to_vec::<i32>().unwrap()[9]), (5, 6), "{name}");
}

#[test]
fn blocks_of_all_engines_are_shared_until_the_first_write() {
    let registry = Registry::with_builtin();
    for entry in registry.registered() {
        let mut config = AllocatorConfig::new();
        if &*entry.name == "bfc-fixed" {
            config = config.limit(1 << 20);
        }
        let allocator = registry.make(&entry.name, &config).unwrap();
        check(&entry.name, TensorOptions::new().allocator(&allocator));
        let tracked: AllocatorRef = Tracking::new(allocator).into_ref().erase();
        check(&entry.name, TensorOptions::new().allocator(&tracked));
    }
    let arena = Arena::new(System::new(), 1 << 16).into_ref().erase();
    check("arena", TensorOptions::new().allocator(&arena));
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    context.set_budget(Device::CPU, MemoryKind::Workspace, Budget::hard(1 << 20)).unwrap();
    for kind in MemoryKind::ALL {
        check(kind.name(), TensorOptions::new().kind(kind).context(&context));
    }
}
