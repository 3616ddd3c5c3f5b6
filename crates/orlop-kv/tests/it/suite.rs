//! The testkit's suite over this crate's pool.

use crate::oracle::ENTRY;
use orlop_kv::{
    AdmissionRequest, ChainFields, KvError, KvGeometry, KvPool, LayerGroup, Sequence, StepId, Tenant,
};
use orlop_testkit::kv::{
    HostKvDevice, KvBooks, KvCopy, KvDevice, KvLayers, KvManager, KvOutcome, KvPrompt, KvRefusal, KvSetup,
    KvTruncation, run_kv_suite,
};

/// The pool as the suite sees it: its pages are in host memory, or in that of a simulated GPU.
#[derive(Debug)]
struct SuitePool<const ON_GPU: bool> {
    pool: KvPool,
}

fn refusal(error: KvError) -> KvRefusal {
    match error {
        KvError::NeverFits { .. } => KvRefusal::Never,
        KvError::OutOfPages { .. } => KvRefusal::NoRoom,
        KvError::StateNotSaved { .. } | KvError::WindowGone { .. } => KvRefusal::CannotReturn,
        error => panic!("{error}"),
    }
}

fn request<'a>(prompt: &KvPrompt<'a>) -> AdmissionRequest<'a> {
    let fields = ChainFields::new(Tenant::Named(prompt.tenant), "weights", "bf16");
    AdmissionRequest { drafts: prompt.drafts, ..AdmissionRequest::new(fields, prompt.tokens, prompt.max_new) }
}

impl<const ON_GPU: bool> KvManager for SuitePool<ON_GPU> {
    type Sequence = Sequence;

    fn make(setup: &KvSetup) -> Option<Self> {
        let groups = setup.groups.iter().enumerate().map(|(at, spec)| {
            let name = format!("group {at}");
            match spec.layers {
                KvLayers::Full => LayerGroup::full(&name, 1, ENTRY).with_block_tokens(spec.block_tokens),
                KvLayers::Window { tokens } => {
                    LayerGroup::window(&name, 1, ENTRY, tokens).with_block_tokens(spec.block_tokens)
                }
                KvLayers::State => LayerGroup::state(&name, 1, ENTRY * u64::from(spec.block_tokens)),
            }
        });
        let geometry = KvGeometry::new(groups.collect()).unwrap();
        let builder = KvPool::builder(geometry).large_pages(setup.blocks).match_unit(setup.unit);
        Some(Self { pool: builder.steps_in_flight(setup.lag).build_detached().unwrap() })
    }

    fn device(setup: &KvSetup) -> Box<dyn KvDevice> {
        #[cfg(target_os = "linux")]
        if ON_GPU {
            let slots = setup.groups.iter().map(|spec| spec.block_tokens).max().unwrap_or(0) * setup.blocks;
            return Box::new(crate::simulated::SimulatedGpu::new(slots.into()));
        }
        let _ = setup;
        Box::new(HostKvDevice::default())
    }

    fn admit(&mut self, prompt: &KvPrompt<'_>) -> Result<(Sequence, u32), KvRefusal> {
        let admission = self.pool.admit(&request(prompt)).map_err(refusal)?;
        Ok((admission.sequence, admission.hit))
    }

    fn append(&mut self, sequence: &Sequence, tokens: u32) -> Result<(), KvRefusal> {
        self.pool.append(sequence, tokens).map_err(refusal)
    }

    fn append_drafts(&mut self, sequence: &Sequence, drafts: u32) -> Result<(), KvRefusal> {
        self.pool.append_drafts(sequence, drafts).map_err(refusal)
    }

    fn truncate(&mut self, sequence: &Sequence, len: u32) -> Result<KvTruncation, KvRefusal> {
        let done = self.pool.truncate(sequence, len).map_err(refusal)?;
        Ok(KvTruncation { len: done.len, known: done.known })
    }

    fn push_tokens(&mut self, sequence: &Sequence, position: u32, tokens: &[u32]) {
        self.pool.push_tokens(sequence, position, tokens).unwrap();
    }

    fn fork(&mut self, sequence: &Sequence, max_tokens: u32) -> Result<Sequence, KvRefusal> {
        self.pool.fork(sequence, max_tokens).map_err(refusal)
    }

    fn tokens_to_checkpoint(&self, sequence: &Sequence) -> Option<u32> {
        self.pool.tokens_to_checkpoint(sequence).unwrap()
    }

    fn table(&self, sequence: &Sequence, group: usize) -> Vec<Option<u32>> {
        if let Ok(page) = self.pool.state_page(sequence, group, 0) {
            return vec![page];
        }
        let mut row = vec![u32::MAX; 1 << 10];
        let entries = self.pool.write_block_table(sequence, group, 0, u32::MAX, &mut row).unwrap();
        row[..entries].iter().map(|&page| (page != u32::MAX).then_some(page)).collect()
    }

    fn place(&self, _group: usize, page: u32) -> u64 {
        // All pages have the same size: one budget.
        page.into()
    }

    fn copies(&self) -> Vec<KvCopy> {
        let copies = self.pool.copies().iter();
        copies
            .map(|copy| KvCopy { group: copy.group, from: copy.from, to: copy.to, tokens: copy.tokens })
            .collect()
    }

    fn close_step(&mut self) -> u64 {
        self.pool.close_step().0
    }

    fn settle(&mut self, step: u64) {
        self.pool.settle(StepId(step)).unwrap();
    }

    fn finish(&mut self, sequence: Sequence) {
        self.pool.finish(sequence).unwrap();
    }

    fn probe(&mut self, prompt: &KvPrompt<'_>) -> u32 {
        self.pool.probe(&request(prompt))
    }

    fn evict(&mut self) -> bool {
        self.pool.evict()
    }

    fn books(&mut self) -> KvBooks {
        let (stats, block) = (self.pool.stats(), self.pool.geometry().large_page_bytes());
        KvBooks {
            total: stats.total_bytes / block,
            free: stats.free_bytes / block,
            used: stats.used_bytes / block,
            cached: stats.cached_bytes / block,
            in_flight: stats.in_flight_bytes / block,
        }
    }

    fn check(&mut self) -> Result<(), String> {
        self.pool.verify().map_err(str::to_string)
    }
}

fn passes_on<const ON_GPU: bool>() {
    let results = run_kv_suite::<SuitePool<ON_GPU>>();
    for result in &results {
        println!("{result:?}");
    }
    let passes = |result: &&orlop_testkit::kv::KvResult| matches!(result.outcome, KvOutcome::Passed { .. });
    assert_eq!(results.iter().filter(passes).count(), results.len());
}

#[test]
fn the_pool_passes_the_suite() {
    passes_on::<false>();
}

#[cfg(target_os = "linux")]
#[test]
fn the_pool_passes_the_suite_on_a_simulated_gpu() {
    let _turn = crate::simulated::turn();
    passes_on::<true>();
}
