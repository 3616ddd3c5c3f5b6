//! [`TrueCount`]: how many elements of a mask are true, which sizes of tensors follow from.
//!
//! PyTorch counts them with a reduction, reads the count, and allocates as many indices: `nonzero`, and with
//! it `x[mask]`, `masked_select` and `where`.

/// Parts of the mangled name of the reduction over the elements of a mask.
const REDUCTION: [&str; 2] = ["DeviceReduce", "NonZeroOp"];

/// The name of the second pass of the reduction.
const SECOND_PASS: &str = "DeviceReduceSingleTileKernel";

/// The types of PyTorch's one-byte elements in the name of the reduction: boolean, unsigned, signed.
const ONE_BYTE: [&str; 3] = ["NonZeroOpIbE", "NonZeroOpIhE", "NonZeroOpIaE"];

/// The reduction of a mask: what its name says of its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MaskReduction {
    /// Whether an element is a byte.
    pub(crate) is_bytes: bool,
    /// Whether the number of elements, the third argument, has 64 bits.
    pub(crate) is_long: bool,
}

impl MaskReduction {
    /// Returns the reduction of which this is the mangled name.
    pub(crate) fn named(kernel: &str) -> Option<Self> {
        if !REDUCTION.iter().all(|part| kernel.contains(part)) {
            return None;
        }
        // The types of the arguments: an iterator, a pointer to the count (`Pi`), the number of elements.
        let number = kernel.rsplit_once("EPi").and_then(|(_, rest)| rest.chars().next());
        let is_long = number.is_some_and(|letter| "lmxy".contains(letter));
        Some(Self { is_bytes: ONE_BYTE.iter().any(|name| kernel.contains(name)), is_long })
    }
}

/// The number of true elements of the mask that was reduced last, until another kernel is launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TrueCount {
    pub(crate) count: u64,
    /// Whether it follows from an assumption, and not from what was copied to the device.
    pub(crate) is_assumed: bool,
}

/// Returns `true` if the count of the reduction before is still the last result.
pub(crate) fn is_second_pass(kernel: &str) -> bool {
    kernel.contains(SECOND_PASS) && !kernel.contains("NonZeroOp")
}

/// Returns `true` for a kernel whose result programs use as a size: a selection, a scan, an integer extremum.
pub(crate) fn is_of_sizes(kernel: &str) -> bool {
    const KERNELS: [&str; 6] =
        ["DeviceSelect", "DeviceScan", "DeviceReduce", "MaxNanFunctorIl", "MinNanFunctorIl", "unique"];
    KERNELS.iter().any(|part| kernel.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reductions_of_masks_are_known_by_name() {
        let name = "26DeviceReduceSingleTileKernel…9NonZeroOpIbEEPKbNSD_11use_defaultESM_EEPiyS9_ii";
        assert_eq!(MaskReduction::named(name), Some(MaskReduction { is_bytes: true, is_long: true }));
        let name = "18DeviceReduceKernel…9NonZeroOpIfEEPKfEEPijS9_";
        assert_eq!(MaskReduction::named(name), Some(MaskReduction { is_bytes: false, is_long: false }));
        assert_eq!(MaskReduction::named("DeviceReduceSingleTileKernel"), None);
        assert_eq!(MaskReduction::named("DeviceSelectSweepKernel…NonZeroOpIb"), None);
        assert!(is_second_pass("28DeviceReduceSingleTileKernelEPiSC_iS9_ii"));
    }
}
