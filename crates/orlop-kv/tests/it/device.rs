//! Transfers by a device's operations, on a device whose streams run only when they have to.

use crate::cases::tokens;
use orlop_alloc::Block;
use orlop_context::Context;
use orlop_core::{Device, StreamId};
use orlop_kv::{
    AdmissionRequest, ChainFields, DeviceTransfer, KvGeometry, KvPool, KvTiers, LayerGroup, PageTransfer,
    PoolMemory, PoolMemoryMut, Sequence, Tenant,
};
use orlop_testkit::QueuedDevice;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Bytes of the pool, as a transfer has seen or given them: the start of each range, and its bytes.
type Seen = Arc<Mutex<Vec<(u64, Vec<u8>)>>>;

/// A transfer of a device that notes what it reads.
#[derive(Debug)]
struct Noting {
    device: DeviceTransfer,
    seen: Seen,
}

impl PageTransfer for Noting {
    fn read(
        &mut self,
        pool: &PoolMemory,
        ranges: &[Range<u64>],
        host: &mut Block,
    ) -> orlop_alloc::Result<()> {
        self.device.read(pool, ranges, host)?;
        let bytes = host.bytes()?;
        let mut at = 0;
        for range in ranges {
            let end = at + usize::try_from(range.end - range.start).unwrap();
            self.seen.lock().unwrap().push((range.start, bytes[at..end].to_vec()));
            at = end;
        }
        Ok(())
    }

    fn write(
        &mut self,
        pool: PoolMemoryMut<'_>,
        ranges: &[Range<u64>],
        host: &Block,
    ) -> orlop_alloc::Result<()> {
        self.device.write(pool, ranges, host)
    }
}

/// Gives pages a content, as kernels would: it reads a pattern whatever the device has.
#[derive(Debug)]
struct Pattern;

fn pattern(at: u64) -> u8 {
    u8::try_from(at.wrapping_mul(31) % 251).unwrap()
}

impl PageTransfer for Pattern {
    fn read(&mut self, _: &PoolMemory, ranges: &[Range<u64>], host: &mut Block) -> orlop_alloc::Result<()> {
        let bytes = ranges.iter().cloned().flatten().map(pattern);
        host.bytes_mut()?.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
        Ok(())
    }

    fn write(&mut self, _: PoolMemoryMut<'_>, _: &[Range<u64>], _: &Block) -> orlop_alloc::Result<()> {
        Ok(())
    }
}

fn serve(pool: &mut KvPool, prompt: &[u32]) -> (Sequence, u32) {
    let fields = ChainFields::new(Tenant::Shared, "weights", "bf16");
    let admission = pool.admit(&AdmissionRequest::new(fields, prompt, 1)).unwrap();
    pool.append(&admission.sequence, u32::try_from(prompt.len()).unwrap() - admission.hit).unwrap();
    let step = pool.close_step();
    pool.settle(step).unwrap();
    (admission.sequence, admission.hit)
}

/// vllm#45704, #46278: what is stored is what was there, and what is loaded is there for the next step.
#[test]
fn pages_come_back_from_host_memory() {
    let device = QueuedDevice::new(Device::cuda(0), 1 << 24);
    let context = device.context().unwrap();
    let geometry = KvGeometry::new(vec![LayerGroup::full("full", 2, 64), LayerGroup::full("index", 1, 128)]);
    let builder = KvPool::builder(geometry.unwrap()).large_pages(16).segment(3);
    let mut pool = builder.build(&context, Device::cuda(0)).unwrap();
    let stream = StreamId::from_raw(9);
    let seen = Seen::default();
    let ops = context.ops(Device::cuda(0)).unwrap();
    let transfer = || {
        Box::new(Noting { device: DeviceTransfer::new(Arc::clone(&ops), stream), seen: Arc::clone(&seen) })
    };
    assert!(pool.attach_tiers(KvTiers::new(&Context::new(), 1 << 20, transfer())).is_none());

    let prompt = tokens(1, 57);
    let (sequence, _) = serve(&mut pool, &prompt);
    // The pages get a content.
    pool.sleep_keep(&context, &mut Pattern).unwrap();
    pool.wake(&mut *transfer()).unwrap();
    let stored = pool.store(&sequence, 57).unwrap();
    let read = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(read.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>(), stored);
    let is_pattern =
        |(start, bytes): &(u64, Vec<u8>)| (*start..).zip(bytes).all(|(at, &byte)| byte == pattern(at));
    assert!(read.iter().all(is_pattern), "what was stored is not what the device had");
    pool.finish(sequence).unwrap();
    pool.discard_cache();

    // Other prompts take the pages, with zeros in them.
    let (other, _) = serve(&mut pool, &tokens(2, 20));
    let (_restored, hit) = serve(&mut pool, &prompt);
    assert_eq!(hit, 48);
    let read = |pool: &mut KvPool| {
        pool.sleep_keep(&context, &mut *transfer()).unwrap();
        pool.wake(&mut *transfer()).unwrap();
        std::mem::take(&mut *seen.lock().unwrap())
    };
    let after: Vec<u8> = read(&mut pool).into_iter().flat_map(|(_, bytes)| bytes).collect();
    // The content of the stored pages is on the device again, wherever they are.
    let page = usize::try_from(pool.geometry().page_bytes(0)).unwrap();
    let expected: Vec<u8> = (0..page as u64).map(pattern).collect();
    assert!(after.windows(page).any(|bytes| bytes == expected), "the first page is not there");
    drop(other);
    assert_eq!(pool.verify(), Ok(()));
}
