//! Tensors of elements with constructors and destructors.

use orlop_alloc::Request;
use orlop_context::{Budget, Context};
use orlop_core::{Device, Layout, MemoryKind, Shape};
use orlop_tensor::{ElementTensor, Error, TensorOptions};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::thread;

fn labels(context: &Context) -> ElementTensor<String> {
    let options = TensorOptions::new().context(context).kind(MemoryKind::KvCache);
    ElementTensor::from_fn([2, 3], options, |index| format!("label {index}")).expect("memory")
}

#[test]
fn strings_are_counted_and_viewed() {
    let context = Context::new();
    let labels = labels(&context);
    let live = || context.stats(Device::CPU).kind(MemoryKind::KvCache).live_bytes;
    assert!(live() >= u64::try_from(6 * size_of::<String>()).unwrap());
    let texts = |tensor: &ElementTensor<String>| tensor.iter().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(texts(&labels), "label 0 label 1 label 2 label 3 label 4 label 5");
    let turned = labels.permute(&[1, 0]).unwrap();
    assert_eq!(texts(&turned), "label 0 label 3 label 1 label 4 label 2 label 5");
    assert_eq!(turned.get(&[2, 1]).unwrap(), "label 5");
    assert!(turned.get(&[3, 0]).is_none() && turned.get(&[0]).is_none());
    assert!(matches!(turned.view(&[6]), Err(Error::Layout(_))));
    assert_eq!(texts(&labels.view(&[3, 2]).unwrap().select(0, 1).unwrap()), "label 2 label 3");
    let mut last = turned.narrow(0, 2, 1).unwrap();
    assert!(last.get_mut(&[0, 0]).is_none(), "there are other handles");
    drop((labels, turned));
    last.get_mut(&[0, 0]).unwrap().push('!');
    assert_eq!((texts(&last), last.numel()), ("label 2! label 5".into(), 2));
    thread::spawn(move || assert_eq!(last.clone().sizes(), [1, 2])).join().unwrap();
    assert_eq!(live(), 0);
}

#[test]
fn elements_are_made_and_dropped_once() {
    let context = Context::new();
    let witness = Rc::new(());
    let options = TensorOptions::new().context(&context);
    let make = |stop: usize| {
        let witness = &witness;
        move |index| if index == stop { panic!("constructor") } else { Rc::clone(witness) }
    };
    let made = catch_unwind(AssertUnwindSafe(|| ElementTensor::from_fn([4, 2], options, make(5))));
    assert!(made.is_err());
    let failing = |index| if index == 3 { Err(Error::Undefined) } else { Ok(Rc::clone(&witness)) };
    assert!(matches!(ElementTensor::try_from_fn([4], options, failing), Err(Error::Undefined)));
    assert_eq!((Rc::strong_count(&witness), context.stats(Device::CPU).live()), (1, 0));
    let tensor = ElementTensor::from_vec([4, 2], options, vec![Rc::clone(&witness); 8]).unwrap();
    let view = tensor.select(1, 0).unwrap();
    drop(tensor);
    assert_eq!(Rc::strong_count(&witness), 9);
    drop(view);
    assert_eq!((Rc::strong_count(&witness), context.stats(Device::CPU).live()), (1, 0));
    let wrong = ElementTensor::from_vec([3], options, vec![Rc::clone(&witness); 8]);
    assert!(matches!(wrong, Err(Error::CountMismatch { expected: 3, actual: 8 })));
    assert_eq!(Rc::strong_count(&witness), 1);
}

#[test]
fn shapes_and_alignments() {
    #[repr(align(256))]
    struct Wide(u8);
    let wide = ElementTensor::from_fn([3], TensorOptions::new(), |_| Wide(7)).unwrap();
    let first: *const Wide = wide.get(&[0]).unwrap();
    assert_eq!((first.addr() % 256, wide.get(&[2]).unwrap().0), (0, 7));
    let none = ElementTensor::from_fn([0, 3], TensorOptions::new(), |_| String::new()).unwrap();
    assert_eq!((none.iter().count(), none.numel()), (0, 0));
    let scalar = ElementTensor::from_fn((), TensorOptions::new(), |_| "one").unwrap();
    assert_eq!((scalar.get(&[]), scalar.iter().count()), (Some(&"one"), 1));
    let huge = ElementTensor::from_fn([usize::MAX / 16], TensorOptions::new(), |_| String::new());
    assert!(huge.is_err());
    // Elements that a context made, divided.
    let context = Context::new();
    let elements = context.allocate_typed(&Request::new(0), 6, |index| index).unwrap().share();
    let half = elements.get_range(3..6).unwrap();
    let layout = |count| Layout::contiguous(Shape::new(&[count]).unwrap());
    assert!(ElementTensor::from_elements(half.clone(), layout(4)).is_err());
    let half = ElementTensor::from_elements(half, layout(3)).unwrap();
    assert_eq!(half.iter().copied().collect::<Vec<_>>(), [3, 4, 5]);
    assert_eq!(half.elements().len(), 3);
}

/// A context's budgets hold for elements, too.
#[test]
fn elements_are_within_budgets() {
    let context = Context::new();
    context.set_budget(Device::CPU, MemoryKind::KvCache, Budget::hard(64)).unwrap();
    let options = TensorOptions::new().context(&context).kind(MemoryKind::KvCache);
    let refused = ElementTensor::from_fn([100], options, |_| String::new()).unwrap_err();
    assert!(matches!(refused, Error::Alloc(orlop_alloc::Error::OutOfMemory(_))), "{refused}");
    let request = Request::new(0).kind(MemoryKind::KvCache);
    assert!(context.allocate_typed(&request, 100, |_| String::new()).is_err());
    assert_eq!(context.stats(Device::CPU).live(), 0);
}
