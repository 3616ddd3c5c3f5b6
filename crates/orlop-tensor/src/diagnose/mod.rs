//! What a tensor is, all of it, at one moment (P21).
//!
//! [`Tensor::diagnose`] answers the questions that come up when a tensor is not what somebody thought: does it own its
//! memory or share it, with how many; does it lie densely, in which order; who allocated it, and when does it go back. The
//! answer is a value with public fields, and a print-out.
//!
//! Which steps of a program need how much memory, and what is still alive after it, is [`orlop_alloc::profile`]'s.

mod report;

use crate::storage::Storage;
use crate::tensor::Tensor;
use orlop_alloc::{Access, AllocationId, MemoryBlock, Tag};
use orlop_core::{Alignment, DType, Device, MemoryFormat, MemoryKind, Overlap, Shape, StreamId, Strides};

/// Everything about a tensor: see [`Tensor::diagnose`]. Prints as a list of two columns.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnosis {
    /// Whether there is a value. If not, all else is what an undefined tensor shows, and there is no storage.
    pub defined: bool,
    /// The sizes.
    pub shape: Shape,
    /// How far apart neighbours are along each dimension, in elements.
    pub strides: Strides,
    /// Where in the storage the first element is, in elements.
    pub storage_offset: usize,
    /// The type of the elements.
    pub dtype: DType,
    /// Where it is.
    pub device: Device,
    /// What the memory is for.
    pub kind: MemoryKind,
    /// Whether the elements lie row-major and without gaps.
    pub contiguous: bool,
    /// Whether they lie so with four dimensions and the channels innermost.
    pub channels_last: bool,
    /// Whether they lie so with five dimensions and the channels innermost.
    pub channels_last_3d: bool,
    /// Whether they fill a range, each place once, in whatever order of dimensions.
    pub dense: bool,
    /// Whether elements share memory.
    pub internal_overlap: Overlap,
    /// Whether every element lies inside the storage: not so where it has shrunk, or the layout was set by hand.
    pub within_storage: bool,
    /// The number of elements.
    pub numel: usize,
    /// Bytes of an element.
    pub itemsize: usize,
    /// Bytes of all elements, each counted once wherever it lies.
    pub tensor_bytes: usize,
    /// Bytes of the storage in use: of its part, where the tensor looks at one that was cut out.
    pub storage_bytes: usize,
    /// Handles to this tensor. Views are tensors of their own.
    pub tensor_use_count: usize,
    /// Handles to the storage: tensors, mostly.
    pub storage_use_count: usize,
    /// How often the storage was written.
    pub version: u64,
    /// Whether the next write may have to copy the bytes first.
    pub copy_on_write: bool,
    /// Whether the storage can be resized.
    pub resizable: bool,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether the storage waits for its size.
    pub unbound: bool,
    /// Whether the memory is another process's.
    pub foreign_process: bool,
    /// Why the elements cannot be read at this moment, if they cannot.
    pub unreadable: Option<Box<str>>,
    /// Where the first element is. `None` while somebody writes, and without elements inside the storage.
    pub address: Option<usize>,
    /// Bytes that the storage can use without other memory. `None` while somebody writes.
    pub capacity: Option<usize>,
    /// The block of memory. `None` while somebody writes.
    pub block: Option<BlockDiagnosis>,
}

/// Everything about the block of memory behind a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockDiagnosis {
    /// Where it begins.
    pub address: usize,
    /// Bytes that were asked for.
    pub requested: usize,
    /// Bytes that were granted.
    pub granted: usize,
    /// What its address is a multiple of, as asked for.
    pub align: Alignment,
    /// Who can reach the bytes.
    pub access: Access,
    /// Who asked.
    pub tag: Tag,
    /// Which allocation it is; [`AllocationId::NONE`] for empty blocks.
    pub id: AllocationId,
    /// Whether it goes back to an allocator of orlop.
    pub has_allocator: bool,
    /// The name of that allocator.
    pub allocator: Option<Box<str>>,
    /// Storages that own it: more than one while copies are put off.
    pub owners: usize,
    /// The stream it was allocated for.
    pub stream: StreamId,
    /// Other streams that used it, latest first.
    pub stream_uses: Vec<StreamId>,
}

impl Tensor {
    /// Everything about this tensor. Never fails, and never looks at the data: what is being written, or refuses access, is
    /// diagnosed all the same, with `None` for what nobody can know at the moment. On a tensor that other threads use,
    /// figures may be of slightly different moments.
    ///
    /// ```
    /// use orlop_alloc::Tag;
    /// use orlop_core::DType;
    /// use orlop_tensor::{Tensor, TensorOptions};
    ///
    /// let weights = Tensor::zeros([64, 32], TensorOptions::from(DType::F16).tag(Tag::new("attention.q")))?;
    /// let row = weights.select(0, 3)?;
    /// let diagnosis = row.diagnose();
    /// assert_eq!((diagnosis.storage_offset, diagnosis.tensor_bytes, diagnosis.storage_bytes), (96, 64, 4096));
    /// assert_eq!((diagnosis.tensor_use_count, diagnosis.storage_use_count), (1, 2));
    /// assert_eq!(diagnosis.block.map(|block| block.tag.name()), Some("attention.q"));
    ///
    /// let writing = weights.as_mut_slice::<orlop_core::f16>()?;
    /// let diagnosis = row.diagnose();
    /// assert_eq!((diagnosis.block, diagnosis.storage_bytes), (None, 4096));
    /// println!("{}", row.diagnose());
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    #[must_use]
    pub fn diagnose(&self) -> Diagnosis {
        let layout = self.layout();
        let mut diagnosis = Diagnosis {
            defined: self.is_defined(),
            shape: layout.shape().clone(),
            strides: layout.strides().clone(),
            storage_offset: layout.offset(),
            dtype: self.dtype(),
            device: self.device(),
            kind: self.memory_kind(),
            contiguous: layout.is_contiguous(),
            channels_last: layout.is_contiguous_in(MemoryFormat::ChannelsLast),
            channels_last_3d: layout.is_contiguous_in(MemoryFormat::ChannelsLast3d),
            dense: layout.is_non_overlapping_and_dense(),
            internal_overlap: layout.internal_overlap(),
            within_storage: false,
            numel: layout.numel(),
            itemsize: self.itemsize(),
            tensor_bytes: self.nbytes(),
            storage_bytes: 0,
            tensor_use_count: self.use_count(),
            storage_use_count: 0,
            version: self.version(),
            copy_on_write: false,
            resizable: false,
            read_only: false,
            unbound: false,
            foreign_process: false,
            unreadable: None,
            address: None,
            capacity: None,
            block: None,
        };
        if let Ok(storage) = self.storage() {
            diagnosis.add_storage(self, storage);
        }
        diagnosis
    }
}

impl Diagnosis {
    fn add_storage(&mut self, tensor: &Tensor, storage: &Storage) {
        self.storage_bytes = storage.nbytes();
        self.within_storage = tensor.layout().check_within(self.storage_bytes, self.itemsize).is_ok();
        self.storage_use_count = storage.use_count();
        self.copy_on_write = storage.is_copy_on_write();
        self.resizable = storage.is_resizable();
        self.read_only = storage.is_read_only();
        self.unbound = storage.is_unbound();
        self.foreign_process = storage.is_foreign_process();
        match storage.cell().read() {
            Ok(guard) => self.add_block(storage, guard.block(), guard.block().owners()),
            Err(error) => {
                self.unreadable = Some(error.to_string().into());
                // Its bytes are refused, but the block can be looked at, unless somebody writes. One owner is the
                // handle that is looked at.
                if let Ok(block) = storage.block() {
                    self.add_block(storage, &block, block.owners().saturating_sub(1));
                }
            }
        }
    }

    fn add_block(&mut self, storage: &Storage, block: &MemoryBlock, owners: usize) {
        self.capacity = Some(storage.bytes_of(block.requested));
        if self.within_storage && self.numel > 0 {
            // Inside the block, so neither overflows; a diagnosis does not rely on it.
            let offset = self.storage_offset.saturating_mul(self.itemsize);
            self.address = block.address().checked_add(storage.start().saturating_add(offset));
        }
        self.block = Some(BlockDiagnosis {
            address: block.address(),
            requested: block.requested,
            granted: block.granted,
            align: block.align,
            access: block.access,
            tag: block.tag,
            id: block.id,
            has_allocator: block.has_allocator(),
            allocator: block.allocator_name().map(Into::into),
            owners,
            stream: block.stream,
            stream_uses: block.uses.iter().collect(),
        });
    }
}
