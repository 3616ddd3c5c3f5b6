//! [`NamedTensors`]: the contents of a file of several tensors.

use crate::Tensor;
use crate::error::{NoSuchTensor, Result};
#[cfg(feature = "safetensors")]
use std::collections::BTreeMap;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;
use std::sync::Arc;
use std::{fmt, slice, vec};

/// Tensors by unique name, in the order of their file.
///
/// Iterating gives names and tensors, which is what writers accept.
///
/// ```
/// use orlop_tensor::Tensor;
/// use orlop_tensor::interchange::NamedTensors;
///
/// fn elements(tensors: &NamedTensors) -> usize {
///     tensors.iter().map(|(_, tensor)| tensor.numel()).sum()
/// }
/// # let _ = elements;
/// ```
#[derive(Clone, Default)]
pub struct NamedTensors {
    tensors: Vec<(Arc<str>, Tensor)>,
    /// The index of each name in `tensors`.
    places: HashMap<Arc<str>, usize>,
    /// The file that they came from.
    path: Option<Arc<Path>>,
}

type Named = (Arc<str>, Tensor);

impl NamedTensors {
    /// Creates the empty contents of a file.
    pub(super) fn of_file(path: Option<&Path>) -> Self {
        Self { path: path.map(Arc::from), ..Self::default() }
    }

    /// Creates the contents of a file whose order is that of the names.
    #[cfg(feature = "safetensors")]
    pub(super) fn of_map(path: Option<&Path>, tensors: BTreeMap<String, Tensor>) -> Self {
        let mut all = Self::of_file(path);
        for (name, tensor) in tensors {
            let _is_new = all.insert(&name, tensor);
        }
        all
    }

    /// Appends a tensor. Returns `false`, and does nothing, if the name is taken.
    #[must_use]
    pub(super) fn insert(&mut self, name: &str, tensor: Tensor) -> bool {
        let name = Arc::<str>::from(name);
        match self.places.entry(Arc::clone(&name)) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(self.tensors.len());
                self.tensors.push((name, tensor));
                true
            }
        }
    }

    /// Returns the tensor with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        let place = *self.places.get(name)?;
        self.tensors.get(place).map(|(_, tensor)| tensor)
    }

    /// Returns the tensor with this name.
    ///
    /// # Errors
    ///
    /// [`NoSuchTensor`](crate::NoSuchTensor), with the nearest name.
    pub fn tensor(&self, name: &str) -> Result<&Tensor> {
        let missing = || NoSuchTensor::among(self.names(), name, self.path.as_deref());
        Ok(self.get(name).ok_or_else(missing)?)
    }

    /// Returns the number of tensors.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Returns `true` if there are no tensors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// Returns the names, in order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tensors.iter().map(|(name, _)| &**name)
    }

    /// Returns the names and tensors, in order.
    pub fn iter(&self) -> <&Self as IntoIterator>::IntoIter {
        self.into_iter()
    }
}

impl<'a> IntoIterator for &'a NamedTensors {
    type Item = (&'a str, &'a Tensor);
    type IntoIter = std::iter::Map<slice::Iter<'a, Named>, fn(&'a Named) -> (&'a str, &'a Tensor)>;

    fn into_iter(self) -> Self::IntoIter {
        self.tensors.iter().map(|(name, tensor)| (name, tensor))
    }
}

impl IntoIterator for NamedTensors {
    type Item = (String, Tensor);
    type IntoIter = std::iter::Map<vec::IntoIter<Named>, fn(Named) -> (String, Tensor)>;

    fn into_iter(self) -> Self::IntoIter {
        self.tensors.into_iter().map(|(name, tensor)| (String::from(&*name), tensor))
    }
}

impl fmt::Debug for NamedTensors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shapes = self.iter().map(|(name, tensor)| (name, (tensor.dtype(), tensor.shape())));
        f.debug_map().entries(shapes).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_in_order_and_once() {
        let mut tensors = NamedTensors::default();
        assert!(tensors.insert("b", Tensor::from_slice(&[1u8]).unwrap()));
        assert!(tensors.insert("a", Tensor::undefined()));
        assert!(!tensors.insert("b", Tensor::undefined()));
        assert_eq!(tensors.names().collect::<Vec<_>>(), ["b", "a"]);
        assert!(tensors.get("b").is_some_and(Tensor::is_defined) && tensors.get("c").is_none());
        assert_eq!((tensors.len(), tensors.is_empty()), (2, false));
        assert_eq!(tensors.into_iter().map(|(name, _)| name).collect::<Vec<_>>(), ["b", "a"]);
    }
}
