//! Sessions of ONNX Runtime in memory of orlop. `ORT_DYLIB_PATH` names the library; without it, every test is
//! skipped.

mod budgets;
mod outputs;
mod sessions;
mod small_model;

use flate2::read::GzDecoder;
use orlop::prelude::*;
use orlop_ort::OrtMemory;
use ort::environment::Environment;
use ort::session::Session;
use std::io::Read;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// A model with its weights.
const CLASSIFIER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../testdata/onnx-wild/rapidocr_onnxruntime__ch_ppocr_mobile_v2.0_cls_infer.onnx.gz"
);

/// A process has one environment, so the tests share it, in turns.
struct OrtFixture {
    environment: Environment,
    context: Context,
    memory: OrtMemory,
    classifier: Vec<u8>,
}

static FIXTURE: LazyLock<Option<Mutex<OrtFixture>>> = LazyLock::new(|| {
    std::env::var_os("ORT_DYLIB_PATH")?;
    let environment = ort::init().build().expect("the library of ORT_DYLIB_PATH is loaded");
    let context = Context::new();
    let memory =
        OrtMemory::register(&environment, context.clone()).expect("the environment has no allocator");
    let mut classifier = Vec::new();
    let file = std::fs::read(CLASSIFIER).expect("the repository has the model");
    GzDecoder::new(&*file).read_to_end(&mut classifier).expect("the model is compressed");
    Some(Mutex::new(OrtFixture { environment, context, memory, classifier }))
});

/// Returns the fixture, or `None` if the test is to be skipped.
fn fixture() -> Option<MutexGuard<'static, OrtFixture>> {
    let Some(fixture) = &*FIXTURE else {
        println!("skipped: ORT_DYLIB_PATH is not set");
        return None;
    };
    Some(fixture.lock().unwrap_or_else(PoisonError::into_inner))
}

impl OrtFixture {
    /// Creates a session in orlop's memory.
    fn session(&self, model: &[u8], threads: usize) -> ort::Result<Session> {
        let builder = Session::builder(&self.environment)?.with_intra_threads(threads)?;
        builder.with_env_allocators()?.commit_from_memory(model)
    }

    /// Returns the live bytes of a kind in the context.
    fn live(&self, kind: MemoryKind) -> u64 {
        self.context.stats(Device::CPU).kind(kind).live_bytes
    }
}

/// Returns an input of the classifier, and allocates it outside the context.
fn images(count: usize) -> Tensor {
    let elements = count * 3 * 48 * 192;
    let images: Vec<f32> = (0..elements).map(|index| (index % 255) as f32 / 255.0).collect();
    Tensor::from_vec([count, 3, 48, 192], images).expect("one element for each place")
}
