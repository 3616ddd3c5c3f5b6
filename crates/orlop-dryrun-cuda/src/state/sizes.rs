//! [`SizeResult`]: results of kernels which sizes of tensors follow from.
//!
//! PyTorch counts the true elements of a mask with a reduction, reads the count, and allocates as many
//! indices: `nonzero`, and with it `x[mask]`, `masked_select` and `where`. It reads the number of distinct
//! values after the kernel that finds them, and the maximum of a tensor for its classes.

use crate::caller::Guess;

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

/// The result of the last kernel if programs read it as a size, until another kernel is launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SizeResult {
    pub(crate) value: u64,
    /// What it is assumed to be; `None` if it follows from what was copied to the device.
    pub(crate) guess: Option<Guess>,
}

/// A kernel of CUB or Thrust that counts distinct neighbours: the part of its mangled name, another part, and
/// the index of the number of elements among its arguments.
const DISTINCT: [(&str, &str, usize); 4] = [
    ("DeviceSelectSweepKernel", "equal_to", 7),
    ("DeviceUniqueByKeySweepKernel", "", 7),
    ("DeviceReduceByKeyKernel", "6encode", 9),
    ("__unique11UniqueAgent", "", 4),
];

/// Returns the index of the argument with the number of elements of a kernel that counts distinct values:
/// `unique`, `unique_consecutive` and `coalesce`.
pub(crate) fn distinct_elements_argument(kernel: &str) -> Option<usize> {
    let found = DISTINCT.iter().find(|(name, part, _)| kernel.contains(name) && kernel.contains(part));
    found.map(|&(_, _, argument)| argument)
}

/// Parts of the mangled names of the maximum of a tensor of 64-bit and of 32-bit integers.
const INTEGER_MAXIMUM: [&str; 2] = ["MaxNanFunctorIlE", "MaxNanFunctorIiE"];

/// Returns `true` for the maximum of a tensor of integers.
pub(crate) fn is_integer_maximum(kernel: &str) -> bool {
    INTEGER_MAXIMUM.iter().any(|part| kernel.contains(part))
}

/// Returns `true` if the count of the reduction before is still the last result.
pub(crate) fn is_second_pass(kernel: &str) -> bool {
    kernel.contains(SECOND_PASS) && !kernel.contains("NonZeroOp")
}

/// Returns `true` for another kernel whose result programs use as a size: a selection, a scan, a minimum.
pub(crate) fn is_of_sizes(kernel: &str) -> bool {
    const KERNELS: [&str; 5] = ["DeviceSelect", "DeviceScan", "DeviceReduce", "MinNanFunctorIl", "unique"];
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

    #[test]
    fn kernels_of_distinct_values_and_maxima_are_known_by_name() {
        let select = "23DeviceSelectSweepKernelINS2_10policy_hubIl…equal_toIvEEi";
        assert_eq!(distinct_elements_argument(select), Some(7));
        assert_eq!(distinct_elements_argument("6reduce23DeviceReduceByKeyKernelINS1_3rle6encode"), Some(9));
        assert_eq!(distinct_elements_argument("DeviceSelectSweepKernel…NonZeroOp"), None);
        let maximum = |letter| is_integer_maximum(&format!("13reduce_kernel…13MaxNanFunctorI{letter}EE"));
        assert_eq!(["l", "i", "f"].map(maximum), [true, true, false]);
    }
}
