//! The engine's word in a block's record.
//!
//! ```text
//!  63        50 49      44 43        32 31                 0
//! ┌────────────┬──────────┬────────────┬────────────────────┐
//! │ note       │ slot     │ class      │ place              │
//! └────────────┴──────────┴────────────┴────────────────────┘
//! ```
//!
//! The place is the number of the block's chunk in the heap or, with its highest bit set, the mark of the
//! plan that the block was served from. The slot is the one that handed the block out. The note is for the
//! period learner or the plan: which allocation of the period it is.

use crate::bfc::chunks::LIMIT;

const CLASS: u32 = 32;
const SLOT: u32 = 44;
const NOTE: u32 = 50;

const SLOT_AND_CLASS: usize = (1 << (NOTE - CLASS)) - 1;

/// Notes are below this.
pub(super) const NOTES: usize = 1 << (64 - NOTE);

const _: () = assert!(super::classes::CLASSES < 1 << (SLOT - CLASS));
const _: () = assert!(orlop_sync::thread_slot::SLOTS <= 1 << (NOTE - SLOT));

/// See the head of this file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token(pub(super) usize);

impl Token {
    #[inline(always)]
    pub(super) fn new(place: usize, class: usize, slot: usize) -> Self {
        Self((place & u32::MAX as usize) | ((class & 0xfff) << CLASS) | (slot << SLOT))
    }

    #[inline(always)]
    pub(super) fn noted(self, note: usize) -> Self {
        debug_assert!(note < NOTES);
        Self((self.0 & ((1 << NOTE) - 1)) | (note << NOTE))
    }

    /// [`Token::noted`], where there is no note yet.
    #[inline(always)]
    pub(super) fn with_note(self, note: usize) -> Self {
        debug_assert!(self.note() == 0 && note < NOTES);
        Self(self.0 | (note << NOTE))
    }

    #[inline(always)]
    pub(super) fn class(self) -> usize {
        (self.0 >> CLASS) & 0xfff
    }

    /// Returns the class if the block was handed out by the slot of [`Token::slot_bits`], and a number above
    /// all classes if not: one comparison for both.
    #[inline(always)]
    pub(super) fn class_of_slot(self, slot_bits: usize) -> usize {
        ((self.0 >> CLASS) & SLOT_AND_CLASS).wrapping_sub(slot_bits)
    }

    /// Returns the bits of a slot for [`Token::class_of_slot`].
    pub(super) fn slot_bits(slot: usize) -> usize {
        slot << (SLOT - CLASS)
    }

    #[inline(always)]
    pub(super) fn owner_slot(self) -> usize {
        (self.0 >> SLOT) & 0x3f
    }

    #[inline(always)]
    pub(super) fn note(self) -> usize {
        self.0 >> NOTE
    }

    /// A chunk's number, or a plan's mark.
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    #[inline(always)]
    pub(super) fn place(self) -> u32 {
        self.0 as u32
    }

    /// Whether the block was served from a plan, of now or of before.
    #[inline(always)]
    pub(super) fn is_planned(self) -> bool {
        self.0 & LIMIT as usize != 0
    }
}
