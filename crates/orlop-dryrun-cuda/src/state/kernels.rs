//! [`Kernels`]: the kernels that libraries registered, and the one that was launched last.

use std::collections::HashMap;

/// Part of the mangled name of PyTorch's and-reduction: `all()` and what is built on it.
const AND_REDUCTION: &str = "15and_kernel_cuda";

/// Kernels by the address of their stub on the host.
#[derive(Debug, Default)]
pub(crate) struct Kernels {
    /// Copies of their names: a library that registered them can be unloaded.
    names: HashMap<usize, String>,
    last: usize,
}

impl Kernels {
    pub(crate) fn register(&mut self, stub: usize, name: String) {
        self.names.insert(stub, name);
    }

    pub(crate) fn launch(&mut self, stub: usize) {
        self.last = stub;
    }

    /// Returns the name of the kernel that was launched last.
    pub(crate) fn last_name(&self) -> &str {
        self.names.get(&self.last).map_or("an unregistered kernel", |name| name)
    }
}

/// Returns `true` for the name of an and-reduction.
pub(crate) fn is_and_reduction(name: &str) -> bool {
    name.contains(AND_REDUCTION)
}
