//! Tensors as text: exact strings, and PyTorch's output.

#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in test functions, but not in what they call")]

use orlop_alloc::{
    Access, Deleter,
    engine_support::{DeviceOps, DevicePtr, Record},
};
use orlop_context::Context;
use orlop_core::{Complex, DType, Device, Element, Layout, Scalar, Shape, StreamId, dispatch};
use orlop_tensor::{PrintOptions, Storage, Tensor, TensorOptions};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The output of PyTorch 1.13.1, made by `golden/torch_prints.py`, which describes its format.
const TORCH: &str = include_str!("golden/torch_prints.txt");

struct PrintCase<'a> {
    head: &'a str,
    tensor: Tensor,
    options: PrintOptions,
    expected: String,
}

fn case<'a>(head: &'a str, lines: &[&str]) -> PrintCase<'a> {
    let [dtype, sizes, named, values] = *head.split(';').collect::<Vec<_>>() else { panic!("{head}") };
    let sizes: Vec<usize> = sizes.split_whitespace().map(|size| size.parse().unwrap()).collect();
    let options = named.split_whitespace().fold(PrintOptions::new(), |options, option| {
        let (name, value) = option.split_once('=').unwrap();
        let value = value.parse().unwrap();
        match name {
            "precision" => options.precision(value),
            "threshold" => options.threshold(value),
            "edgeitems" => options.edge_items(value),
            "linewidth" => options.line_width(value),
            _ => panic!("{name}"),
        }
    });
    let values: Vec<Scalar> = values.split_whitespace().map(scalar).collect();
    let dtype: DType = dtype.parse().unwrap();
    let tensor = dispatch!(dtype, T => tensor::<T>(&sizes, &values));
    PrintCase { head, tensor, options, expected: lines.join("\n") }
}

fn scalar(text: &str) -> Scalar {
    if let Some((re, im)) = text.split_once(',') {
        return Scalar::Complex(Complex::new(re.parse().unwrap(), im.parse().unwrap()));
    }
    text.parse().map_or_else(|_| Scalar::Float(text.parse().unwrap()), Scalar::Int)
}

fn tensor<E: Element>(sizes: &[usize], values: &[Scalar]) -> Tensor {
    let values: Vec<E> = values.iter().map(|&value| E::from_scalar(value)).collect();
    let count = sizes.iter().product();
    let elements: Vec<E> = values.iter().copied().cycle().take(count).collect();
    Tensor::from_slice_in(sizes, &elements, TensorOptions::new()).unwrap()
}

fn cases() -> Vec<PrintCase<'static>> {
    let mut cases = Vec::new();
    let mut lines = TORCH.lines().peekable();
    while let Some(head) = lines.next() {
        let mut printed = Vec::new();
        while let Some(line) = lines.peek().and_then(|line| line.strip_prefix('|')) {
            printed.push(line);
            lines.next();
        }
        cases.push(case(head, &printed));
    }
    cases
}

#[test]
fn as_pytorch_prints() {
    let cases = cases();
    assert!(cases.len() > 400);
    for PrintCase { head, tensor, options, expected } in &cases {
        assert_eq!(&tensor.display(*options).to_string(), expected, "{head}");
    }
}

#[test]
fn strides_do_not_show() {
    for PrintCase { head, tensor, options, expected } in &cases() {
        let Ok(apart) = tensor.unsqueeze(-1).and_then(|tensor| {
            let mut sizes = tensor.sizes().to_vec();
            *sizes.last_mut().unwrap() = 2;
            tensor.expand(&sizes)?.duplicate()?.select(-1, 1)
        }) else {
            panic!("{head}");
        };
        assert!(apart.numel() <= 1 || !apart.is_contiguous());
        assert_eq!(&apart.display(*options).to_string(), expected, "{head}");
    }
}

#[test]
fn types_that_older_pytorch_does_not_have() {
    let tensor = |dtype| Tensor::from_slice(&[0.5f32, 448.0]).unwrap().to_dtype(dtype).unwrap().to_string();
    assert_eq!(tensor(DType::F8E4M3), "tensor([  0.5000, 448.0000], dtype=float8_e4m3fn)");
    assert_eq!(tensor(DType::F8E5M2), "tensor([  0.5000, 448.0000], dtype=float8_e5m2)");
    assert_eq!(tensor(DType::U16), "tensor([  0, 448], dtype=uint16)");
    let most = Tensor::from_slice(&[u64::MAX, 1]).unwrap();
    assert_eq!(most.to_string(), "tensor([18446744073709551615,                    1], dtype=uint64)");
}

#[test]
fn formatting_flags() {
    let tensor = Tensor::from_slice(&[1.0f64, 2.345]).unwrap();
    assert_eq!(format!("{tensor:.2}"), "tensor([1.00, 2.35], dtype=float64)");
    assert_eq!(format!("{tensor:.0}"), "tensor([1, 2], dtype=float64)");
    assert_eq!(format!("{tensor:#.1}"), "float64 [2] on cpu, 16 B\ntensor([1.0, 2.3], dtype=float64)");
    let second = tensor.slice(0, Some(1), None, 1).unwrap();
    assert_eq!(
        format!("{second:#}"),
        "float64 [1] on cpu, 8 B, strides [1], offset 1\ntensor([2.3450], dtype=float64)"
    );
    let scientific = PrintOptions::new().precision(1).scientific(Some(true));
    assert_eq!(tensor.display(scientific).to_string(), "tensor([1.0e+00, 2.3e+00], dtype=float64)");
    let plain = PrintOptions::new().precision(1).scientific(Some(false));
    let far = Tensor::from_slice(&[1e-9f32, 2e9]).unwrap();
    assert_eq!(far.display(plain).to_string(), "tensor([         0.0, 2000000000.0])");
    assert_eq!(format!("{far:.60000}").len(), 2 * (1100 + 4) + 24);
}

#[test]
fn debug_is_one_line_of_metadata() {
    let tensor = Tensor::zeros([2, 3], DType::BF16).unwrap().t().unwrap();
    let line = "Tensor { shape: [3, 2], dtype: bfloat16, device: cpu, strides: [1, 3], offset: 0, .. }";
    assert_eq!(format!("{tensor:?}"), line);
    let _writing = tensor.storage().unwrap().write().unwrap();
    assert_eq!(format!("{tensor:?}"), line);
    assert_eq!(format!("{:?}", Tensor::undefined()), "Tensor::undefined()");
}

#[test]
fn what_cannot_be_read_says_why() {
    let tensor = Tensor::zeros([2, 3], DType::F32).unwrap();
    assert_eq!(Tensor::undefined().to_string(), "Tensor::undefined()");
    {
        let _writing = tensor.as_mut_slice::<f32>().unwrap();
        assert_eq!(
            tensor.to_string(),
            "tensor(..., size=(2, 3),\n       \
             unreadable: the storage is borrowed by a writer: drop that accessor or slice first)"
        );
    }
    let _reading = tensor.as_slice::<f32>().unwrap();
    assert_eq!(tensor.to_string(), "tensor([[0., 0., 0.],\n        [0., 0., 0.]])");
    tensor.storage().unwrap().refuse_access("freed by the planner");
    assert!(tensor.to_string().ends_with("the storage refuses access to its data: freed by the planner)"));

    let unbound = Storage::unbound(&TensorOptions::new()).unwrap();
    let mut waiting = Tensor::from_storage(unbound, Layout::contiguous(shape(&[0])), DType::F16).unwrap();
    assert_eq!(waiting.to_string(), "tensor([], dtype=float16)");
    waiting.set_shape([4]).unwrap();
    assert_eq!(
        waiting.to_string(),
        "tensor(..., size=(4,), dtype=float16,\n       \
         unreadable: the storage has no memory yet: bind it to a size first)"
    );

    let mut outside = Tensor::zeros([4], DType::F32).unwrap();
    outside.set_shape([1usize << 40, 1 << 10]).unwrap();
    assert!(outside.to_string().starts_with("tensor(..., size=(1099511627776, 1024),\n       unreadable: "));
}

fn shape(sizes: &[usize]) -> Shape {
    Shape::new(sizes).unwrap()
}

#[test]
fn vast_views_show_their_edges() {
    let one = Tensor::full((), 0.5, DType::F32).unwrap();
    let vast = one.expand([1usize << 20, 1 << 20, 3]).unwrap();
    let text = vast.to_string();
    assert_eq!(text.matches("0.5000").count(), 6 * 6 * 3);
    let many = one.expand([2usize; 30]).unwrap();
    assert_eq!(many.to_string(), format!("tensor(...,\n       size=({}))", vec!["2"; 30].join(", ")));
    let edgeless = PrintOptions::new().edge_items(0);
    assert_eq!(vast.display(edgeless).to_string(), "tensor(..., size=(1048576, 1048576, 3))");
}

/// A device with host memory that copies and fills, and counts.
#[derive(Debug, Default)]
struct CountingOps {
    bytes: AtomicUsize,
}

// SAFETY: copies and fills only the given bytes.
unsafe impl DeviceOps for CountingOps {
    fn device(&self) -> Device {
        Device::custom(9, 2)
    }

    unsafe fn copy(
        &self,
        to: DevicePtr,
        from: DevicePtr,
        bytes: usize,
        _: StreamId,
    ) -> orlop_alloc::Result<()> {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { to.ptr.copy_from_nonoverlapping(from.ptr, bytes) };
        Ok(())
    }

    unsafe fn fill(&self, _: DevicePtr, _: &[u8], _: usize, stream: StreamId) -> orlop_alloc::Result<()> {
        self.synchronize(stream)
    }

    fn synchronize(&self, _: StreamId) -> orlop_alloc::Result<()> {
        Ok(())
    }
}

/// Returns the elements on a device.
fn on_device(device: Device, mut elements: Vec<f32>, sizes: &[usize]) -> Tensor {
    let bytes = size_of_val(elements.as_slice());
    let ptr = NonNull::from(elements.as_mut_slice()).cast();
    let mut record = Record::new(ptr, bytes, device, Access::Device);
    record.requested = bytes;
    // SAFETY: the vector's elements do not move until the deleter drops it, and nothing else uses them.
    let storage = unsafe { Storage::from_record(record, Deleter::from_owner(elements)) };
    Tensor::from_storage(storage, Layout::contiguous(shape(sizes)), DType::F32).unwrap()
}

#[test]
fn devices_are_asked_for_the_edges_only() {
    let (context, ops) = (Context::new(), Arc::new(CountingOps::default()));
    let device = Device::custom(9, 2);
    let on_host: Vec<f32> = (0..1 << 20).map(|index| index as f32 / 4.0).collect();
    let tensor = on_device(device, on_host.clone(), &[1 << 10, 1 << 10]);
    assert_eq!(
        context.scope(|| tensor.to_string()),
        "tensor(..., device='custom9:2', size=(1024, 1024),\n       \
         unreadable: no device operations are registered for custom9:2)"
    );
    context.register_ops(device, Arc::clone(&ops) as Arc<dyn DeviceOps>).unwrap();
    let host = Tensor::from_vec([1usize << 10, 1 << 10], on_host).unwrap();
    for (there, here) in [(tensor.clone(), host.clone()), (tensor.t().unwrap(), host.t().unwrap())] {
        ops.bytes.store(0, Ordering::Relaxed);
        let text = context.scope(|| there.to_string());
        let here = here.to_string();
        assert_eq!(text, here.replace("]])", "]], device='custom9:2')"));
        // Rows of the transposed tensor span two rows of the original.
        assert!(ops.bytes.load(Ordering::Relaxed) <= 12 * 3 * (1 << 10) * 4, "{ops:?}");
    }
    // A column that spans megabytes is read element by element.
    ops.bytes.store(0, Ordering::Relaxed);
    let column = tensor.slice(0, None, None, 100).unwrap().select(1, 0).unwrap();
    let text = context.scope(|| column.to_string());
    assert!(text.starts_with("tensor([     0.,  25600.,  51200.,"), "{text}");
    assert_eq!(ops.bytes.load(Ordering::Relaxed), 11 * 4);
}
