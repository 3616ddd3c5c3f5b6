//! Sequences of views against PyTorch: sizes, strides, offsets and errors.
//!
//! `view_properties.rs` checks which elements the views reach.

use orlop_core::{DType, Error, Layout, MemoryFormat, Reshaped, Result, Shape};
use serde_json::Value;

use crate::{
    golden::{array, integers, text},
    layouts,
};

/// A layout over a storage of this number of bytes.
struct View {
    layout: Layout,
    dtype: DType,
    storage_bytes: usize,
}

impl View {
    fn after(&self, op: &Value) -> Result<Self> {
        let args = Args(array(op, "args"));
        let layout = &self.layout;
        let (mut dtype, mut storage_bytes) = (self.dtype, self.storage_bytes);
        let after = match op["op"].as_str().unwrap() {
            "slice" => layout.slice(args.int(0), args.bound(1), args.bound(2), args.size(3)),
            "select" => layout.select(args.int(0), args.int(1)),
            "narrow" => layout.narrow(args.int(0), args.int(1), args.size(2)),
            "as_strided" => layout.as_strided(&args.ints(0), &args.ints(1), args.bound(2)),
            "diagonal" => layout.diagonal(args.int(0), args.int(1), args.int(2)),
            "unfold" => layout.unfold(args.int(0), args.size(1), args.size(2)),
            "transpose" => layout.transpose(args.int(0), args.int(1)),
            "permute" => layout.permute(&args.ints(0)),
            "t" => layout.t(),
            "movedim" => layout.movedim(&[args.int(0)], &[args.int(1)]),
            "squeeze" if args.0.is_empty() => Ok(layout.squeeze()),
            "squeeze" => layout.squeeze_dim(args.int(0)),
            "unsqueeze" => layout.unsqueeze(args.int(0)),
            "expand" => layout.expand(&args.ints(0)),
            "broadcast_to" => layout.broadcast_to(&args.ints(0)),
            "view" => layout.view(&args.ints(0)),
            "unflatten" => layout.unflatten(args.int(0), &args.ints(1)),
            "split" => Ok(layout.split(args.size(0), args.int(1))?.nth(args.size(2)).unwrap()),
            "chunk" => Ok(layout.chunk(args.size(0), args.int(1))?.nth(args.size(2)).unwrap()),
            "view_dtype" => {
                dtype = args.0[0].as_str().unwrap().parse().unwrap();
                layout.view_dtype(self.dtype.size(), dtype.size())
            }
            copying => {
                let reshaped = match copying {
                    "reshape" => layout.reshape(&args.ints(0))?,
                    "flatten" => layout.flatten(args.int(0), args.int(1))?,
                    "contiguous" => contiguous(layout, args.0.first())?,
                    unknown => panic!("{unknown}"),
                };
                if let Reshaped::Copy(copy) = &reshaped {
                    storage_bytes = copy.shape().checked_bytes(dtype.size())?;
                }
                Ok(reshaped.layout().clone())
            }
        }?;
        match after.check_within(storage_bytes, dtype.size()) {
            Err(Error::OutOfStorage { .. }) if op["op"] != "as_strided" => {
                panic!("{after:?} exceeds its storage")
            }
            within => within?,
        }
        Ok(Self { layout: after, dtype, storage_bytes })
    }
}

fn contiguous(layout: &Layout, format: Option<&Value>) -> Result<Reshaped> {
    let format: MemoryFormat = format.map_or("contiguous", |name| name.as_str().unwrap()).parse()?;
    if layout.is_contiguous_in(format) {
        return Ok(Reshaped::View(layout.clone()));
    }
    Layout::in_format(layout.shape().clone(), format).map(Reshaped::Copy)
}

struct Args<'a>(&'a [Value]);

impl Args<'_> {
    fn int(&self, position: usize) -> isize {
        self.0[position].as_i64().unwrap().try_into().unwrap()
    }

    fn size(&self, position: usize) -> usize {
        self.int(position).try_into().unwrap()
    }

    fn bound(&self, position: usize) -> Option<isize> {
        self.0.get(position).map(|_| self.int(position))
    }

    fn ints(&self, position: usize) -> Vec<isize> {
        let items = self.0[position].as_array().unwrap();
        items.iter().map(|item| item.as_i64().unwrap().try_into().unwrap()).collect()
    }
}

#[test]
fn programs_step_by_step() {
    let (mut views, mut refusals) = (0, 0);
    for line in text("views.jsonl.gz").lines() {
        let program: Value = serde_json::from_str(line).unwrap();
        let layout = Layout::contiguous(Shape::new(&integers(&program, "shape")).unwrap());
        let storage_bytes = layout.shape().checked_bytes(4).unwrap();
        let mut view = View { layout, dtype: DType::I32, storage_bytes };
        for op in array(&program, "ops") {
            match (view.after(op), op.get("out")) {
                (Ok(after), Some(out)) => {
                    let before = &view.layout;
                    assert_eq!(after.layout, layouts::layout(out).unwrap(), "{before:?} {op}");
                    assert_eq!(after.dtype.name(), out["dtype"], "{before:?} {op}");
                    view = after;
                    views += 1;
                }
                (Err(_), None) => refusals += 1,
                (Ok(after), None) => panic!("{:?} {op}: {:?}, PyTorch refuses", view.layout, after.layout),
                (Err(error), Some(_)) => panic!("{:?} {op}: {error}", view.layout),
            }
        }
    }
    assert_eq!((views, refusals), (17057, 965));
}
