//! What handles to a tensor share: a view of a storage.
//!
//! # Where it is
//!
//! The first tensor over a storage lies in the storage's cell ([`NewCell`]), so that making both takes one place and not two;
//! all others are in places of their own. That the first may lie there:
//!
//! 1. it has a handle to the cell, in a field that nobody changes, so the cell lives as long as it does;
//! 2. the room is used once, because `first_of` consumes what says that the cell is new;
//! 3. at its end it lets go of the cell last of all ([`TensorImpl`]'s `end`): other owners of the cell see it ended (the
//!    count's release and acquire), and no reference into the cell is left when that goes.

use crate::recycle::give_place;
use crate::shared::{Counted, Room, Shared};
use crate::storage::{Cell, NewCell, Storage};
use orlop_core::{DType, Layout};
use std::ptr::NonNull;

/// See the head of this file.
#[derive(Debug, Clone)]
pub(crate) struct TensorImpl {
    pub(crate) layout: Layout,
    /// Rule 1: nothing outside of this file can change it.
    storage: Storage,
    pub(crate) dtype: DType,
}

crate::recycle::recycled!(
    TensorImpl,
    beside(),
    // Not everywhere that a handle goes.
    #[inline(never)]
    unsafe fn end(place: NonNull<Counted<Self>>) {
        // SAFETY: a tensor was written there (the caller's promise).
        let imp = unsafe { Counted::value(place) };
        // SAFETY: inside of the tensor.
        let layout = unsafe { &raw mut (*imp).layout };
        // SAFETY: as above.
        let storage = unsafe { &raw const (*imp).storage };
        // SAFETY: taken out once, and not used there afterwards (the caller's promise).
        let storage = unsafe { storage.read() };
        // SAFETY: dropped once, as above.
        unsafe { layout.drop_in_place() };
        // Both are there while we have the storage, and a place of its own is nowhere inside of another.
        if Cell::room_of_first(storage.shared_cell()) == place {
            // It lies in what may go now.
            return drop(storage);
        }
        drop(storage);
        // SAFETY: from `place`, because only the first is elsewhere (`first_of`); what has to be dropped is, or was taken out.
        unsafe { give_place(place) };
    }
);

// All that its end drops is a layout and a storage.
const _: () = assert!(!std::mem::needs_drop::<DType>());

impl TensorImpl {
    /// In a place of its own.
    #[inline(always)]
    pub(super) fn of(storage: Storage, layout: Layout, dtype: DType) -> Shared<Self> {
        Shared::new(Self { layout, storage, dtype })
    }

    /// Over the whole of a new storage, and in its cell.
    #[inline(always)]
    pub(crate) fn first_of(cell: NewCell, layout: impl FnOnce() -> Layout, dtype: DType) -> Shared<Self> {
        let cell = cell.into_cell();
        let room = Cell::room_of_first(&cell);
        // SAFETY: 1. a new cell's room, of this type. 2. the value has a handle to the cell, and its end keeps it to the last.
        let room = unsafe { Room::inside(room) };
        let layout = layout();
        room.fill(Self { layout, storage: Storage::whole(cell), dtype })
    }

    /// What it looks at.
    #[inline(always)]
    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }

    /// What may change while there is one handle.
    #[inline(always)]
    pub(super) fn metadata_mut(&mut self) -> (&mut Layout, &mut DType) {
        (&mut self.layout, &mut self.dtype)
    }

    /// Another one like this. With few dimensions its bytes are copied as they are: a clone of each field, put together
    /// elsewhere and then moved, takes several times as long.
    #[inline(always)]
    pub(super) fn copied(&self) -> Shared<Self> {
        if !self.layout.is_inline() {
            return self.cloned();
        }
        // First of all: counting waits for all stores before it.
        self.storage.count_copy();
        let room = Room::<Self>::new();
        let place = room.value();
        // In parts, because what is longer is copied by a call.
        // SAFETY: inside the room for a value.
        let layout = unsafe { &raw mut (*place).layout };
        // SAFETY: as above.
        let storage = unsafe { &raw mut (*place).storage };
        // SAFETY: as above.
        let dtype = unsafe { &raw mut (*place).dtype };
        // SAFETY: ours alone. The copy is a layout: this one has nothing on the heap.
        unsafe { layout.copy_from_nonoverlapping(&self.layout, 1) };
        // SAFETY: ours alone. The copy is a storage: the new handle was counted.
        unsafe { storage.copy_from_nonoverlapping(&self.storage, 1) };
        // SAFETY: ours alone.
        unsafe { dtype.write(self.dtype) };
        // SAFETY: written as a whole.
        unsafe { room.filled() }
    }

    #[cold]
    #[inline(never)]
    fn cloned(&self) -> Shared<Self> {
        Shared::new(self.clone())
    }
}
