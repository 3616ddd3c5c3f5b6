//! The shared state of all handles to a tensor: a view of a storage.
//!
//! # Placement
//!
//! The first tensor over a storage is inside the storage's cell ([`NewCell`]), so that creating both takes
//! one allocation instead of two; all others are in slots of their own. The first one may be there because:
//!
//! 1. it has a handle to the cell, in a field that never changes, so the cell outlives it;
//! 2. the room is used once, because `first_of` consumes the proof that the cell is new;
//! 3. when it ends, it drops its handle to the cell last ([`TensorImpl`]'s `end`): other owners of the cell
//!    see it ended (the count's release and acquire), and no reference into the cell is left when the cell is
//!    freed.

use super::{NewCell, Storage, StorageCell};
use crate::recycle::recycle_slot;
use crate::shared::{Counted, Room, Shared};
use orlop_core::{DType, Layout};
use std::ptr::NonNull;

/// The shared state; see the module documentation.
#[derive(Debug, Clone)]
pub(crate) struct TensorImpl {
    pub(crate) layout: Layout,
    /// See rule 1: only this file can access the field.
    storage: Storage,
    pub(crate) dtype: DType,
}

crate::recycle::recycled!(
    TensorImpl,
    companion(),
    // Not inlined into every drop of a handle.
    #[inline(never)]
    unsafe fn end(address: NonNull<Counted<Self>>) {
        // SAFETY: a tensor was written there (guaranteed by the caller).
        let imp = unsafe { Counted::value(address) };
        // SAFETY: inside of the tensor.
        let layout = unsafe { &raw mut (*imp).layout };
        // SAFETY: as above.
        let storage = unsafe { &raw const (*imp).storage };
        // SAFETY: moved out once, and not used there afterwards (guaranteed by the caller).
        let storage = unsafe { storage.read() };
        // SAFETY: dropped once, as above.
        unsafe { layout.drop_in_place() };
        // Both addresses are valid while the storage exists, and a slot of its own is never inside another
        // object.
        if StorageCell::room_of_first(storage.shared_cell()) == address {
            // The value is inside the cell, which this may free.
            return drop(storage);
        }
        drop(storage);
        // SAFETY: from `allocate_slot`, because only the first tensor is elsewhere (`first_of`); its fields
        // were dropped or moved out.
        unsafe { recycle_slot(address) };
    }
);

// The drop of a tensor drops only a layout and a storage.
const _: () = assert!(!std::mem::needs_drop::<DType>());

impl TensorImpl {
    /// Creates it in a slot of its own.
    #[inline(always)]
    pub(crate) fn of(storage: Storage, layout: Layout, dtype: DType) -> Shared<Self> {
        Shared::new(Self { layout, storage, dtype })
    }

    /// Creates the first tensor over a new storage, inside its cell.
    #[inline(always)]
    pub(crate) fn first_of(cell: NewCell, layout: impl FnOnce() -> Layout, dtype: DType) -> Shared<Self> {
        let cell = cell.into_cell();
        let room = StorageCell::room_of_first(&cell);
        // SAFETY: 1. a new cell's room, for this type. 2. the value has a handle to the cell, and its `end`
        // drops it last.
        let room = unsafe { Room::inside(room) };
        let layout = layout();
        room.fill(Self { layout, storage: Storage::whole(cell), dtype })
    }

    /// Returns the storage.
    #[inline(always)]
    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Returns the fields that may change while there is one handle.
    #[inline(always)]
    pub(crate) fn metadata_mut(&mut self) -> (&mut Layout, &mut DType) {
        (&mut self.layout, &mut self.dtype)
    }

    /// Copies the tensor. With few dimensions it is copied bitwise: cloning each field elsewhere and moving
    /// the result takes several times as long.
    #[inline(always)]
    pub(crate) fn copied(&self) -> Shared<Self> {
        if !self.layout.is_inline() {
            return self.cloned();
        }
        // First, because the atomic increment waits for all stores before it.
        self.storage.count_copy();
        let room = Room::<Self>::new();
        let address = room.value();
        // Field by field, because larger copies become calls of `memcpy`.
        // SAFETY: inside the room for a value.
        let layout = unsafe { &raw mut (*address).layout };
        // SAFETY: as above.
        let storage = unsafe { &raw mut (*address).storage };
        // SAFETY: as above.
        let dtype = unsafe { &raw mut (*address).dtype };
        // SAFETY: nothing else uses the room. The copy is a layout: this one has nothing on the heap.
        unsafe { layout.copy_from_nonoverlapping(&self.layout, 1) };
        // SAFETY: nothing else uses the room. The copy is a storage: the new handle was counted.
        unsafe { storage.copy_from_nonoverlapping(&self.storage, 1) };
        // SAFETY: nothing else uses the room.
        unsafe { dtype.write(self.dtype) };
        // SAFETY: all fields are written.
        unsafe { room.filled() }
    }

    #[cold]
    #[inline(never)]
    fn cloned(&self) -> Shared<Self> {
        Shared::new(self.clone())
    }
}
