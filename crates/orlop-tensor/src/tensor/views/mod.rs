//! Views: other tensors over the same storage, without a copy of elements.
//!
//! [`Layout`](orlop_core::Layout) defines what each does to sizes and strides, with PyTorch's rules and
//! errors; here the storage is added. Negative dimensions count from the end.
//!
//! | module | methods |
//! |---|---|
//! | `indexing` | `slice`, `narrow`, `select`, `as_strided`, `diagonal`, `unfold` |
//! | `dimensions` | `transpose`, `permute`, `t`, `movedim`, `squeeze`, `unsqueeze`, `expand` and their kin |
//! | `regroup` | `view`, `reshape`, `flatten`, `unflatten`, `view_dtype` |
//! | `split` | `split`, `split_with_sizes`, `chunk` |

mod dimensions;
mod indexing;
mod regroup;
mod split;
