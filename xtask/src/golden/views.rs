//! Programs of views, run as PyTorch ran them: layouts, refusals, who shares storage, and the values that are reached.
//!
//! A tensor here is a layout over a list of bytes. That is enough to prove the layouts: each value is read from where
//! its layout says.

use std::path::PathBuf;

use orlop_core::{DType, Layout, MemoryFormat, Reshaped, Shape};
use serde::Deserialize;
use serde_json::Value;

use super::{Tally, parse, text};
use crate::error::Result;

#[derive(Deserialize)]
struct Program {
    shape: Vec<i64>,
    ops: Vec<Op>,
}

#[derive(Debug, Deserialize)]
struct Op {
    op: String,
    args: Vec<Value>,
    #[serde(default)]
    error: bool,
    out: Option<Answer>,
}

/// What PyTorch says of a result.
#[derive(Debug, Deserialize, PartialEq)]
struct Answer {
    sizes: Vec<usize>,
    strides: Vec<usize>,
    offset: usize,
    dtype: String,
    contiguous: bool,
    channels_last: bool,
    channels_last_3d: bool,
    dense: bool,
    shares: bool,
    /// The first values in logical order, and the sum of all; absent for floats.
    head: Option<Vec<i64>>,
    sum: Option<f64>,
}

/// How many values an answer shows.
const HEAD: usize = 24;

pub(super) fn programs(files: &[PathBuf]) -> Result<Tally> {
    let mut tally = Tally::default();
    for path in files {
        for line in text(path)?.lines() {
            let program: Program = parse(path, line)?;
            let difference = program.difference();
            tally.count(difference.is_none(), || difference.unwrap_or_default());
        }
    }
    Ok(tally)
}

impl Program {
    /// Where we first answer something else.
    fn difference(&self) -> Option<String> {
        let mut tensor = match Tensor::arange(&self.shape) {
            Ok(tensor) => tensor,
            Err(error) => return Some(format!("arange {:?}: {error}", self.shape)),
        };
        for op in &self.ops {
            let before = format!("{:?} {} {:?}", tensor.layout, op.op, op.args);
            match (tensor.apply(op), &op.out) {
                (Ok(after), Some(answer)) => {
                    let ours = after.answer(answer);
                    if ours != *answer {
                        return Some(format!("{before}: {ours:?}, recorded {answer:?}"));
                    }
                    tensor = after;
                }
                (Err(Failure::Refused(_)), None) if op.error => {}
                (Ok(after), None) => {
                    return Some(format!("{before}: {:?}, recorded a refusal", after.layout));
                }
                (Err(failure), _) => return Some(format!("{before}: {failure:?}")),
            }
        }
        None
    }
}

type Tried<T> = std::result::Result<T, Failure>;

/// Why an operation gave nothing.
#[derive(Debug)]
enum Failure {
    /// It is refused; an answer like any other.
    Refused(#[expect(dead_code, reason = "shown where a refusal is none of PyTorch's")] orlop_core::Error),
    /// Arguments that this program does not understand.
    Unread,
}

impl From<orlop_core::Error> for Failure {
    fn from(error: orlop_core::Error) -> Self {
        Self::Refused(error)
    }
}

struct Tensor {
    layout: Layout,
    dtype: DType,
    storage: Vec<u8>,
    /// Whether the storage is the one that the program began with. One without bytes has no address, and PyTorch's is
    /// never the same as any.
    shares: bool,
}

/// What an operation makes of a tensor.
enum After {
    View(Layout),
    Reinterpreted(Layout, DType),
    /// A copy into a storage of its own.
    Copy(Layout),
}

impl From<Reshaped> for After {
    fn from(reshaped: Reshaped) -> Self {
        match reshaped {
            Reshaped::View(layout) => Self::View(layout),
            Reshaped::Copy(layout) => Self::Copy(layout),
        }
    }
}

impl Tensor {
    /// 0, 1, 2, ... in row-major order.
    fn arange(shape: &[i64]) -> orlop_core::Result<Self> {
        let layout = Layout::contiguous(Shape::new(shape)?);
        let storage: Vec<u8> = (0_i32..).take(layout.numel()).flat_map(i32::to_le_bytes).collect();
        Ok(Self { shares: !storage.is_empty(), layout, dtype: DType::I32, storage })
    }

    fn apply(&self, op: &Op) -> Tried<Self> {
        let (layout, dtype) = match self.after(&op.op, &Args(&op.args))? {
            After::View(layout) => (layout, self.dtype),
            After::Reinterpreted(layout, dtype) => (layout, dtype),
            After::Copy(layout) => return Ok(self.copied(layout)),
        };
        // Only `as_strided` can leave the storage; for all others this is one more thing to find out.
        layout.check_within(self.storage.len(), dtype.size())?;
        Ok(Self { layout, dtype, storage: self.storage.clone(), shares: self.shares })
    }

    fn after(&self, op: &str, args: &Args<'_>) -> Tried<After> {
        let layout = &self.layout;
        Ok(After::View(match op {
            "slice" => layout.slice(args.int(0)?, args.bound(1)?, args.bound(2)?, args.size(3)?)?,
            "select" => layout.select(args.int(0)?, args.int(1)?)?,
            "narrow" => layout.narrow(args.int(0)?, args.int(1)?, args.size(2)?)?,
            "as_strided" => layout.as_strided(&args.ints(0)?, &args.ints(1)?, args.bound(2)?)?,
            "diagonal" => layout.diagonal(args.int(0)?, args.int(1)?, args.int(2)?)?,
            "unfold" => layout.unfold(args.int(0)?, args.size(1)?, args.size(2)?)?,
            "transpose" => layout.transpose(args.int(0)?, args.int(1)?)?,
            "permute" => layout.permute(&args.ints(0)?)?,
            "t" => layout.t()?,
            "movedim" => layout.movedim(&args.ints(0)?, &args.ints(1)?)?,
            "squeeze" => match args.0 {
                [] => layout.squeeze(),
                [Value::Array(_)] => layout.squeeze_dims(&args.ints(0)?)?,
                _ => layout.squeeze_dim(args.int(0)?)?,
            },
            "unsqueeze" => layout.unsqueeze(args.int(0)?)?,
            "expand" => layout.expand(&args.ints(0)?)?,
            "broadcast_to" => layout.broadcast_to(&args.ints(0)?)?,
            "view" => layout.view(&args.ints(0)?)?,
            "unflatten" => layout.unflatten(args.int(0)?, &args.ints(1)?)?,
            "split" if matches!(args.0, [Value::Array(_), ..]) => layout
                .split_with_sizes(&args.ints(0)?, args.int(1)?)?
                .nth(args.size(2)?)
                .ok_or(Failure::Unread)?,
            "split" => {
                layout.split(args.size(0)?, args.int(1)?)?.nth(args.size(2)?).ok_or(Failure::Unread)?
            }
            "chunk" => {
                layout.chunk(args.size(0)?, args.int(1)?)?.nth(args.size(2)?).ok_or(Failure::Unread)?
            }
            "view_dtype" => {
                let dtype: DType = args.text(0)?.parse().map_err(|_| Failure::Unread)?;
                let layout = layout.view_dtype(self.dtype.size(), dtype.size())?;
                return Ok(After::Reinterpreted(layout, dtype));
            }
            "reshape" => return Ok(layout.reshape(&args.ints(0)?)?.into()),
            "flatten" => return Ok(layout.flatten(args.int(0)?, args.int(1)?)?.into()),
            "contiguous" => {
                let name = if args.0.is_empty() { "contiguous" } else { args.text(0)? };
                return self.contiguous(name.parse().map_err(|_| Failure::Unread)?);
            }
            _ => return Err(Failure::Unread),
        }))
    }

    fn contiguous(&self, format: MemoryFormat) -> Tried<After> {
        if format != MemoryFormat::Preserve && self.layout.is_contiguous_in(format) {
            return Ok(After::View(self.layout.clone()));
        }
        Ok(After::Copy(Layout::in_format(self.layout.shape().clone(), format)?))
    }

    /// The same values in a storage of their own.
    fn copied(&self, layout: Layout) -> Self {
        let itemsize = self.dtype.size();
        let mut storage = vec![0; layout.numel() * itemsize];
        for (from, to) in places(&self.layout).into_iter().zip(places(&layout)) {
            storage[to * itemsize..][..itemsize]
                .copy_from_slice(&self.storage[from * itemsize..][..itemsize]);
        }
        Self { layout, dtype: self.dtype, storage, shares: false }
    }

    /// What we say of this tensor, as far as `asked` does.
    fn answer(&self, asked: &Answer) -> Answer {
        let layout = &self.layout;
        let asked_places = if asked.head.is_some() { places(layout) } else { Vec::new() };
        let values: Vec<i64> = asked_places.into_iter().map(|place| self.value(place)).collect();
        #[expect(clippy::cast_precision_loss, reason = "Python's float() did the same")]
        let sum = values.iter().fold(0, |sum: i64, value| sum.wrapping_add(*value)) as f64;
        Answer {
            sizes: layout.shape().to_vec(),
            strides: layout.strides().to_vec(),
            offset: layout.offset(),
            dtype: self.dtype.name().to_owned(),
            contiguous: layout.is_contiguous(),
            channels_last: layout.is_contiguous_in(MemoryFormat::ChannelsLast),
            channels_last_3d: layout.is_contiguous_in(MemoryFormat::ChannelsLast3d),
            dense: layout.is_non_overlapping_and_dense(),
            shares: self.shares,
            head: asked.head.as_ref().map(|_| values.iter().take(HEAD).copied().collect()),
            sum: asked.sum.map(|_| sum),
        }
    }

    /// The integer at a place.
    fn value(&self, place: usize) -> i64 {
        let itemsize = self.dtype.size();
        let own = &self.storage[place * itemsize..][..itemsize];
        let negative = self.dtype != DType::U8 && own.last().is_some_and(|&highest| highest >= 0x80);
        let mut bytes = [if negative { 0xff } else { 0 }; 8];
        bytes[..itemsize].copy_from_slice(own);
        i64::from_le_bytes(bytes)
    }
}

/// The place of each element in the storage, in logical order.
fn places(layout: &Layout) -> Vec<usize> {
    let dims = layout.shape().iter().zip(layout.strides().iter());
    dims.fold(vec![layout.offset()], |places, (&size, &stride)| {
        places.iter().flat_map(|place| (0..size).map(move |index| place + index * stride)).collect()
    })
}

/// The arguments of an operation, by position.
struct Args<'a>(&'a [Value]);

impl Args<'_> {
    fn int(&self, position: usize) -> Tried<isize> {
        self.0.get(position).and_then(to_int).ok_or(Failure::Unread)
    }

    /// An index that may be left out.
    fn bound(&self, position: usize) -> Tried<Option<isize>> {
        match self.0.get(position) {
            None | Some(Value::Null) => Ok(None),
            Some(_) => self.int(position).map(Some),
        }
    }

    /// A number that our types do not let be negative, and PyTorch refuses.
    fn size(&self, position: usize) -> Tried<usize> {
        let size = self.int(position)?;
        let refusal =
            || orlop_core::Error::NegativeSize { dim: 0, size: i64::try_from(size).unwrap_or(i64::MIN) };
        Ok(usize::try_from(size).map_err(|_| refusal())?)
    }

    /// A list; a number alone is a list of one.
    fn ints(&self, position: usize) -> Tried<Vec<isize>> {
        match self.0.get(position) {
            Some(Value::Array(items)) => {
                items.iter().map(to_int).collect::<Option<_>>().ok_or(Failure::Unread)
            }
            _ => self.int(position).map(|int| vec![int]),
        }
    }

    fn text(&self, position: usize) -> Tried<&str> {
        self.0.get(position).and_then(Value::as_str).ok_or(Failure::Unread)
    }
}

fn to_int(value: &Value) -> Option<isize> {
    value.as_i64().and_then(|int| isize::try_from(int).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(text: &str) -> Program {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_difference_is_told() {
        let transposed = r#"{"shape": [2, 3], "ops": [{"op": "t", "args": [], "out": {"sizes": [3, 2],
            "strides": [1, 3], "offset": 0, "dtype": "int32", "contiguous": false, "channels_last": false,
            "channels_last_3d": false, "dense": true, "shares": true, "head": [0, 3, 1, 4, 2, 5], "sum": 15.0}}]}"#;
        assert_eq!(program(transposed).difference(), None);
        for (right, wrong) in [("[1, 3]", "[2, 1]"), ("[0, 3, 1", "[0, 1, 3"), ("15.0", "14.0")] {
            assert!(program(&transposed.replace(right, wrong)).difference().is_some(), "{wrong}");
        }
    }

    #[test]
    fn refusals_are_answers() {
        let refused = r#"{"shape": [2, 3], "ops": [{"op": "view", "args": [[7]], "error": true}]}"#;
        assert_eq!(program(refused).difference(), None);
        assert!(program(&refused.replace('7', "6")).difference().is_some());
        assert!(program(&refused.replace("view", "vieuw")).difference().is_some());
    }

    #[test]
    fn values_are_read_as_their_dtype() {
        let mut tensor = Tensor::arange(&[2]).unwrap();
        tensor.storage = vec![0xff; 8];
        assert_eq!(tensor.value(1), -1);
        tensor.dtype = DType::U8;
        assert_eq!(tensor.value(1), 255);
    }
}
