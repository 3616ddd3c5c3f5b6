//! [`Tensor::diagnose`]: the state of a tensor as a value.
//!
//! A [`Diagnosis`] answers the questions that come up when a tensor is not as expected: whether it owns its
//! memory or shares it, and with how many; its layout; which allocator it came from; when the memory will be
//! freed. It has public fields, and prints as a report.
//!
//! For the memory use of parts of a program, see [`orlop_context::profile`].

mod report;

use crate::storage::{Storage, TensorImpl};
use crate::tensor::Tensor;
use orlop_alloc::{Access, AllocationId, MemoryBlock, Tag};
use orlop_core::{Alignment, DType, Device, MemoryFormat, MemoryKind, Overlap, Shape, StreamId, Strides};

/// The state of a tensor; see [`Tensor::diagnose`]. Prints as a list of two columns.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnosis {
    /// Whether the tensor is defined. If not, the other fields are those of an undefined tensor, without a
    /// storage.
    pub defined: bool,
    /// The sizes.
    pub shape: Shape,
    /// The strides, in elements.
    pub strides: Strides,
    /// The position of the first element in the storage, in elements.
    pub storage_offset: usize,
    /// The type of the elements.
    pub dtype: DType,
    /// The device of the memory.
    pub device: Device,
    /// The purpose of the memory.
    pub kind: MemoryKind,
    /// Whether the elements are row-major without gaps.
    pub contiguous: bool,
    /// Whether they are contiguous in the channels-last order of four dimensions.
    pub channels_last: bool,
    /// Whether they are contiguous in the channels-last order of five dimensions.
    pub channels_last_3d: bool,
    /// Whether they fill a range, each position once, in any order of dimensions.
    pub dense: bool,
    /// Whether elements share memory.
    pub internal_overlap: Overlap,
    /// Whether every element is inside the storage. A storage that shrank, or a hand-made layout, can leave
    /// elements outside.
    pub within_storage: bool,
    /// The number of elements.
    pub numel: usize,
    /// The bytes of an element.
    pub itemsize: usize,
    /// The bytes of all elements: their number times their size.
    pub tensor_bytes: usize,
    /// The bytes of the storage in use; for a tensor over a part of a storage, of that part.
    pub storage_bytes: usize,
    /// The number of handles to this tensor. Views are separate tensors.
    pub tensor_use_count: usize,
    /// The number of handles to the storage, most of them tensors.
    pub storage_use_count: usize,
    /// The number of writes to the storage.
    pub version: u64,
    /// Whether the next write may have to copy the bytes.
    pub copy_on_write: bool,
    /// Whether the storage can be resized.
    pub resizable: bool,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether the storage is unbound: it has no memory until its size is known.
    pub unbound: bool,
    /// Whether the memory belongs to another process.
    pub foreign_process: bool,
    /// The reason why the elements cannot be read now, if they cannot.
    pub unreadable: Option<Box<str>>,
    /// The address of the first element. `None` during a write of the whole, and for tensors without elements
    /// inside the storage.
    pub address: Option<usize>,
    /// The bytes that the storage can use without reallocation. `None` during a write.
    pub capacity: Option<usize>,
    /// The block of memory. `None` during a write.
    pub block: Option<BlockDiagnosis>,
}

/// The state of the block of memory behind a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockDiagnosis {
    /// The address.
    pub address: usize,
    /// The requested bytes.
    pub requested: usize,
    /// The granted bytes.
    pub granted: usize,
    /// The requested alignment of the address.
    pub align: Alignment,
    /// Which processors can access the bytes.
    pub access: Access,
    /// The tag of the request.
    pub tag: Tag,
    /// The id of the allocation; [`AllocationId::NONE`] for empty blocks.
    pub id: AllocationId,
    /// Whether the block returns to an allocator of orlop.
    pub has_allocator: bool,
    /// The name of that allocator.
    pub allocator: Option<Box<str>>,
    /// The number of storages that own the block: more than one while copies are deferred.
    pub owners: usize,
    /// The stream of the allocation.
    pub stream: StreamId,
    /// Other streams that used the block, latest first.
    pub stream_uses: Vec<StreamId>,
}

impl Tensor {
    /// Returns the state of this tensor. It never fails and never reads the data: fields that cannot be read
    /// during a write are `None`. If other threads use the tensor, fields may be from slightly different
    /// times.
    ///
    /// ```
    /// use orlop_alloc::Tag;
    /// use orlop_core::DType;
    /// use orlop_tensor::{Tensor, TensorOptions};
    ///
    /// let weights = Tensor::zeros([64, 32], TensorOptions::from(DType::F16).tag(Tag::new("attention.q")))?;
    /// let row = weights.select(0, 3)?;
    /// let diagnosis = row.diagnose();
    /// assert_eq!(diagnosis.storage_offset, 96);
    /// assert_eq!((diagnosis.tensor_bytes, diagnosis.storage_bytes), (64, 4096));
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
        let readable = tensor.imp().and_then(TensorImpl::read);
        self.unreadable = readable.err().map(|error| error.to_string().into());
        // Access to the bytes may be refused, but the block can be inspected unless the whole is written.
        if let Ok(guard) = storage.cell().inspect() {
            self.add_block(storage, guard.block());
        }
    }

    fn add_block(&mut self, storage: &Storage, block: &MemoryBlock) {
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
            owners: block.owners(),
            stream: block.stream,
            stream_uses: block.stream_uses().collect(),
        });
    }
}
