//! [`Descriptors`]: the objects that a program builds operation graphs and plans from.
//!
//! Values are kept as they were set and returned as they were. Heuristics return a configuration that is not
//! deterministic, which PyTorch leaves out if it is told to, one that is, and one without a workspace, which
//! it takes if the device has no memory for the other. Destroyed descriptors are kept, because others refer
//! to them: a few hundred bytes for each plan of a program.

use super::constants::{BACKEND_DESCRIPTOR, NONDETERMINISTIC, name, size_of};
use super::workspaces::Workspaces;
use crate::code::{Failure, Outcome};
use std::collections::{BTreeMap, HashMap};

/// The configurations that heuristics return, in this order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Configuration {
    NonDeterministic,
    /// Without a workspace if there is a plan of the one before.
    #[default]
    Deterministic,
    WithoutWorkspace,
}

impl Configuration {
    const ALL: [Self; 3] = [Self::NonDeterministic, Self::Deterministic, Self::WithoutWorkspace];
}

/// Values of a descriptor.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attribute {
    pub(crate) kind: i32,
    pub(crate) bytes: Vec<u8>,
}

impl Attribute {
    /// The type of an attribute that refers to descriptors.
    pub(crate) const DESCRIPTOR: i32 = BACKEND_DESCRIPTOR;

    fn count(&self) -> usize {
        self.bytes.len() / size_of(self.kind)
    }

    pub(super) fn i64s(&self) -> Vec<i64> {
        let values = self.bytes.chunks_exact(8).map(|bytes| bytes.try_into().map_or(0, i64::from_le_bytes));
        values.collect()
    }

    pub(super) fn handles(&self) -> Vec<usize> {
        self.i64s().into_iter().map(|value| usize::try_from(value).unwrap_or(0)).collect()
    }

    pub(super) fn i32(&self) -> Option<i32> {
        self.bytes.get(..4).and_then(|bytes| bytes.try_into().ok()).map(i32::from_le_bytes)
    }

    fn of_i64(value: i64) -> Self {
        Self { kind: 3, bytes: value.to_le_bytes().to_vec() }
    }

    fn of_i32(value: i32) -> Self {
        Self { kind: 23, bytes: value.to_le_bytes().to_vec() }
    }

    fn of_note(note: i32) -> Self {
        Self { kind: 11, bytes: note.to_le_bytes().to_vec() }
    }
}

/// A descriptor.
#[derive(Debug, Clone, Default)]
pub(super) struct Descriptor {
    pub(super) kind: i32,
    pub(super) attributes: BTreeMap<i32, Attribute>,
    /// The operation graph of heuristics, engines and configurations.
    pub(super) graph: usize,
    /// Which of the configurations this is, or of which it is the engine.
    pub(super) configuration: Configuration,
    /// Of an operation graph: whether it has a plan that is not deterministic.
    pub(super) has_plan: bool,
}

/// All descriptors, by their handles.
#[derive(Debug, Default)]
pub(crate) struct Descriptors {
    all: HashMap<usize, Descriptor>,
}

impl Descriptors {
    pub(crate) fn create(&mut self, handle: usize, kind: i32) {
        self.all.insert(handle, Descriptor { kind, ..Descriptor::default() });
    }

    pub(super) fn get(&self, handle: usize) -> Option<&Descriptor> {
        self.all.get(&handle)
    }

    pub(super) fn get_mut(&mut self, handle: usize) -> Option<&mut Descriptor> {
        self.all.get_mut(&handle)
    }

    /// Returns the descriptor to which an attribute refers.
    pub(super) fn referred(&self, descriptor: &Descriptor, attribute: i32) -> Option<&Descriptor> {
        let handle = *descriptor.attributes.get(&attribute)?.handles().first()?;
        self.get(handle)
    }

    /// Returns the bytes of `count` values of `kind`, which the caller reads.
    pub(crate) fn bytes_of(kind: i32, count: usize) -> Outcome<usize> {
        count.checked_mul(size_of(kind)).ok_or(Failure::INVALID_VALUE)
    }

    pub(crate) fn set(&mut self, handle: usize, attribute: i32, value: Attribute) -> Outcome {
        let descriptor = self.all.get_mut(&handle).ok_or(Failure::INVALID_VALUE)?;
        if matches!(attribute, name::HEURISTICS_GRAPH | name::ENGINE_GRAPH) {
            descriptor.graph = value.handles().first().copied().unwrap_or(0);
        }
        descriptor.attributes.insert(attribute, value);
        Ok(())
    }

    /// Returns the number of values of an attribute, and those that are returned by value. Descriptors are
    /// returned in `filled`, which the caller created.
    pub(crate) fn read(
        &mut self,
        handle: usize,
        attribute: i32,
        kind: i32,
        filled: &[usize],
        workspaces: &mut Workspaces,
    ) -> Outcome<(usize, Option<Attribute>)> {
        let descriptor = self.all.get(&handle).ok_or(Failure::INVALID_VALUE)?.clone();
        match attribute {
            name::HEURISTICS_RESULTS => {
                for (result, configuration) in filled.iter().zip(Configuration::ALL) {
                    if let Some(result) = self.all.get_mut(result) {
                        result.graph = descriptor.graph;
                        result.configuration = configuration;
                    }
                }
                return Ok((Configuration::ALL.len(), None));
            }
            name::PLAN_WORKSPACE => {
                let bytes = workspaces.of_plan(self, &descriptor);
                return Ok((1, Some(Attribute::of_i64(bytes))));
            }
            name::ENGINE_NUMERICAL_NOTE if descriptor.configuration == Configuration::NonDeterministic => {
                return Ok((1, Some(Attribute::of_note(NONDETERMINISTIC))));
            }
            name::CONFIGURATION_WORKSPACE => return Ok((1, Some(Attribute::of_i64(0)))),
            name::CONFIGURATION_SHARED_MEMORY => return Ok((1, Some(Attribute::of_i32(0)))),
            _ => {}
        }
        let value = descriptor.attributes.get(&attribute);
        if kind == BACKEND_DESCRIPTOR {
            let source = value.and_then(|value| self.all.get(value.handles().first()?).cloned());
            if let Some(target) = filled.first().and_then(|handle| self.all.get_mut(handle)) {
                match source {
                    Some(source) => *target = source,
                    None => {
                        (target.graph, target.configuration) = (descriptor.graph, descriptor.configuration);
                    }
                }
            }
            return Ok((1, None));
        }
        match value {
            // The caller's buffer is for values of the type that it names.
            Some(value) if value.kind != kind => Err(Failure::CUDNN_BAD_PARAMETER),
            Some(value) => Ok((value.count(), Some(value.clone()))),
            None if attribute == name::ENGINE_INDEX => Ok((1, Some(Attribute::of_i64(0)))),
            None => Ok((0, None)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_only_as_what_they_were_set() {
        let (mut descriptors, mut workspaces) = (Descriptors::default(), Workspaces::default());
        descriptors.create(1, 0);
        descriptors.set(1, 7, Attribute { kind: 26, bytes: vec![3; 32] }).unwrap();
        assert_eq!(descriptors.read(1, 7, 26, &[], &mut workspaces).unwrap().0, 2);
        let wrong = descriptors.read(1, 7, 24, &[], &mut workspaces);
        assert_eq!(wrong.map(drop), Err(Failure::CUDNN_BAD_PARAMETER));
    }
}
