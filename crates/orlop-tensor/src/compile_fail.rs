//! Programs that must not compile.
//!
//! A slice does not outlive its tensor:
//!
//! ```compile_fail,E0597
//! use orlop_tensor::Tensor;
//! let slice = {
//!     let tensor = Tensor::from_slice(&[1.0f32]).unwrap();
//!     tensor.as_slice::<f32>().unwrap()
//! };
//! println!("{}", slice[0]);
//! ```
//!
//! An element does not outlive the guard:
//!
//! ```compile_fail,E0716
//! use orlop_tensor::Tensor;
//! let tensor = Tensor::from_slice(&[1.0f32]).unwrap();
//! let element = tensor.as_slice::<f32>().unwrap().first();
//! println!("{element:?}");
//! ```
//!
//! A mutable element does not, either:
//!
//! ```compile_fail,E0716
//! use orlop_tensor::Tensor;
//! let tensor = Tensor::from_slice(&[1.0f32]).unwrap();
//! let element = tensor.elements_mut::<f32>().unwrap().iter_mut().next();
//! println!("{element:?}");
//! ```
//!
//! A sub-accessor does not outlive its accessor:
//!
//! ```compile_fail,E0505
//! use orlop_tensor::Tensor;
//! let tensor = Tensor::from_nested(&[[1.0f32]]).unwrap();
//! let accessor = tensor.accessor::<f32, 2>().unwrap();
//! let row = accessor.at(0).unwrap();
//! drop(accessor);
//! println!("{}", row[[0]]);
//! ```
//!
//! A tensor cannot be dropped while its guard exists:
//!
//! ```compile_fail,E0505
//! use orlop_tensor::Tensor;
//! let tensor = Tensor::from_slice(&[1.0f32]).unwrap();
//! let slice = tensor.as_slice::<f32>().unwrap();
//! drop(tensor);
//! println!("{}", slice[0]);
//! ```
//!
//! Its shape cannot change:
//!
//! ```compile_fail,E0502
//! use orlop_tensor::Tensor;
//! let mut tensor = Tensor::from_slice(&[1.0f32]).unwrap();
//! let slice = tensor.as_slice::<f32>().unwrap();
//! tensor.resize_([100]).unwrap();
//! println!("{}", slice[0]);
//! ```
//!
//! Two parts of one mutable accessor cannot be borrowed at once:
//!
//! ```compile_fail,E0499
//! use orlop_tensor::Tensor;
//! let tensor = Tensor::from_nested(&[[1.0f32], [2.0]]).unwrap();
//! let mut accessor = tensor.accessor_mut::<f32, 2>().unwrap();
//! let (mut first, mut second) = (accessor.at_mut(0).unwrap(), accessor.at_mut(0).unwrap());
//! first[[0]] = second[[0]];
//! ```
//!
//! A `bool` is not read directly from memory, where any byte may be:
//!
//! ```compile_fail,E0277
//! use orlop_tensor::Tensor;
//! let tensor = Tensor::from_slice(&[true]).unwrap();
//! let slice = tensor.as_slice::<bool>().unwrap();
//! ```
//!
//! A storage that outlives borrowed memory does not keep it alive:
//!
//! ```compile_fail,E0597
//! use orlop_core::MemoryKind;
//! use orlop_tensor::Storage;
//! use std::ptr::NonNull;
//! let storage = {
//!     let data = vec![0u8; 16];
//!     let owner: &Vec<u8> = &data;
//!     unsafe { Storage::foreign(NonNull::from(data.as_slice()).cast(), 16, MemoryKind::Default, owner) }
//! };
//! drop(storage);
//! ```
