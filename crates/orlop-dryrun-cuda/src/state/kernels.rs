//! [`Kernels`]: the kernels that libraries registered.

use std::collections::HashMap;

/// Parts of the mangled names of PyTorch's kernels whose result is true in healthy training: the
/// and-reduction of `all()`, and the product of booleans, with which `isfinite` ends.
const HEALTHY_IF_TRUE: [&str; 2] = ["15and_kernel_cuda", "10MulFunctorIbE"];

/// Kernels by the address of their stub on the host.
#[derive(Debug, Default)]
pub(crate) struct Kernels {
    /// Copies of their names: a library that registered them can be unloaded.
    names: HashMap<usize, String>,
}

impl Kernels {
    pub(crate) fn register(&mut self, stub: usize, name: String) {
        self.names.insert(stub, name);
    }

    /// Returns the name of a kernel.
    pub(crate) fn name(&self, stub: usize) -> &str {
        self.names.get(&stub).map_or("an unregistered kernel", |name| name)
    }
}

/// Returns `true` for the name of a kernel whose result is true in healthy training.
pub(crate) fn is_healthy_if_true(name: &str) -> bool {
    HEALTHY_IF_TRUE.iter().any(|part| name.contains(part))
}
