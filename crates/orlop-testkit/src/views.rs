//! Programs of views with PyTorch's results (`views.jsonl.gz`), run on tensors and compared step by step.
//!
//! A program begins with `arange(numel, int32)` in some shape and applies operations in sequence. An
//! operation that fails leaves the tensor unchanged.

use orlop_core::{DType, MemoryFormat, Scalar, dispatch};
use orlop_tensor::{Error, Result, Tensor};
use serde::Deserialize;
use serde_json::Value;

/// A program of view operations, with PyTorch's results.
#[derive(Debug, Deserialize)]
pub struct ViewProgram {
    shape: Vec<usize>,
    ops: Vec<ViewOp>,
}

/// A view operation and its result.
#[derive(Debug, Deserialize)]
struct ViewOp {
    op: String,
    args: Vec<Value>,
    #[serde(default)]
    error: bool,
    out: Option<ViewResult>,
}

#[derive(Debug, Deserialize, PartialEq)]
struct ViewResult {
    sizes: Vec<usize>,
    strides: Vec<usize>,
    offset: usize,
    dtype: String,
    contiguous: bool,
    channels_last: bool,
    channels_last_3d: bool,
    dense: bool,
    shares: bool,
    /// The first elements; not of floats.
    #[serde(default)]
    head: Option<Vec<Value>>,
    #[serde(default)]
    sum: Option<f64>,
}

/// The number of elements in a result.
const HEAD: usize = 24;

impl ViewProgram {
    /// Runs the program and returns the first difference, if there is one.
    ///
    /// # Errors
    ///
    /// An error of a tensor where PyTorch has none.
    pub fn disagreement(&self) -> Result<Option<String>> {
        let count = self.shape.iter().product::<usize>();
        #[expect(clippy::cast_precision_loss, reason = "a few thousand elements")]
        let base = Tensor::arange(0.0, count as f64, 1.0, DType::I32)?.view(&self.shape)?;
        let mut tensor = base.clone();
        for (number, op) in self.ops.iter().enumerate() {
            let differs = |what: &str| {
                Some(format!("{:?}, step {number}, {} {:?}: {what}", self.shape, op.op, op.args))
            };
            match (apply(&tensor, &op.op, &op.args), &op.out) {
                (Some(Ok(result)), Some(recorded)) => {
                    let ours = answer(&result, &base, recorded)?;
                    if ours != *recorded {
                        return Ok(differs(&format!("{ours:?}, recorded {recorded:?}")));
                    }
                    tensor = result;
                }
                (Some(Err(_)), None) if op.error => {}
                (Some(Err(error)), _) => return Ok(differs(&format!("refused ({error})"))),
                (Some(Ok(_)), None) => return Ok(differs("not refused")),
                (None, _) => return Ok(differs("no such operation, or other arguments")),
            }
        }
        Ok(None)
    }
}

/// Returns the tensor's result, for the parts that were recorded.
fn answer(tensor: &Tensor, base: &Tensor, recorded: &ViewResult) -> Result<ViewResult> {
    let values = |tensor: &Tensor| -> Result<Vec<f64>> {
        dispatch!(tensor.dtype(), T => {
            Ok(tensor.to_vec::<T>()?.into_iter().map(|value| number(value.into())).collect())
        })
    };
    let numbers =
        if recorded.head.is_some() || recorded.sum.is_some() { values(tensor)? } else { Vec::new() };
    let same_head = |head: &Vec<Value>| {
        let theirs: Vec<_> = head.iter().map(Value::as_f64).collect();
        let ours: Vec<_> = numbers.iter().take(HEAD).map(|&value| Some(value)).collect();
        ours == theirs
    };
    let json = |value: f64| serde_json::Number::from_f64(value).map_or(Value::Null, Value::Number);
    let head = recorded.head.as_ref().map(|head| match same_head(head) {
        true => head.clone(),
        false => numbers.iter().take(HEAD).map(|&value| json(value)).collect(),
    });
    Ok(ViewResult {
        sizes: tensor.sizes().to_vec(),
        strides: tensor.strides().to_vec(),
        offset: tensor.storage_offset(),
        dtype: tensor.dtype().name().to_owned(),
        contiguous: tensor.is_contiguous(),
        channels_last: tensor.is_contiguous_in(MemoryFormat::ChannelsLast),
        channels_last_3d: tensor.is_contiguous_in(MemoryFormat::ChannelsLast3d),
        dense: tensor.layout().is_non_overlapping_and_dense(),
        // An empty storage has no address, and was recorded as not shared.
        shares: !base.is_empty() && tensor.is_alias_of(base),
        head,
        sum: recorded.sum.map(|_| numbers.iter().sum()),
    })
}

fn number(value: Scalar) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "values of the programs are small, or compared as rounded"
    )]
    match value {
        Scalar::Int(value) => value as f64,
        Scalar::UInt(value) => value as f64,
        Scalar::Bool(value) => f64::from(u8::from(value)),
        Scalar::Float(value) => value,
        _ => f64::NAN,
    }
}

/// Applies an operation. Returns `None` if it is unknown.
fn apply(tensor: &Tensor, op: &str, args: &[Value]) -> Option<Result<Tensor>> {
    let integer =
        |at: usize| args.get(at).and_then(Value::as_i64).and_then(|value| isize::try_from(value).ok());
    let list = |at: usize| -> Option<Vec<isize>> {
        let values = args.get(at)?.as_array()?;
        values.iter().map(|value| value.as_i64().and_then(|value| isize::try_from(value).ok())).collect()
    };
    let natural = |at: usize| integer(at).map(|value| usize::try_from(value).map_err(|_| refused()));
    let one_or_list = |at: usize| integer(at).map(|value| vec![value]).or_else(|| list(at));
    let piece = |pieces: Result<Vec<Tensor>>, at: usize| {
        let index = args.get(at).and_then(Value::as_u64).and_then(|value| usize::try_from(value).ok());
        pieces.and_then(|pieces| index.and_then(|index| pieces.get(index).cloned()).ok_or_else(refused))
    };
    Some(match op {
        "slice" => {
            let step = natural(3).unwrap_or(Ok(1));
            let dim = integer(0)?;
            step.and_then(|step| tensor.slice(dim, integer(1), integer(2), step))
        }
        "select" => tensor.select(integer(0)?, integer(1)?),
        "narrow" => {
            let (dim, start) = (integer(0)?, integer(1)?);
            natural(2)?.and_then(|length| tensor.narrow(dim, start, length))
        }
        "as_strided" => tensor.as_strided(list(0)?, list(1)?, integer(2)),
        "diagonal" => {
            tensor.diagonal(integer(0).unwrap_or(0), integer(1).unwrap_or(0), integer(2).unwrap_or(1))
        }
        "unfold" => {
            let dim = integer(0)?;
            let (size, step) = (natural(1)?, natural(2)?);
            size.and_then(|size| tensor.unfold(dim, size, step?))
        }
        "transpose" => tensor.transpose(integer(0)?, integer(1)?),
        "permute" => tensor.permute(list(0)?),
        "t" => tensor.t(),
        "movedim" => tensor.movedim(one_or_list(0)?, one_or_list(1)?),
        "squeeze" => match (integer(0), list(0)) {
            (Some(dim), _) => tensor.squeeze_dim(dim),
            (None, Some(dims)) => tensor.squeeze_dims(dims),
            (None, None) => tensor.squeeze(),
        },
        "unsqueeze" => tensor.unsqueeze(integer(0)?),
        "expand" => tensor.expand(list(0)?),
        "broadcast_to" => tensor.broadcast_to(list(0)?),
        "view" => tensor.view(list(0)?),
        "reshape" => tensor.reshape(list(0)?),
        "flatten" => tensor.flatten(integer(0).unwrap_or(0), integer(1).unwrap_or(-1)),
        "unflatten" => tensor.unflatten(integer(0)?, list(1)?),
        "split" => {
            let dim = integer(1).unwrap_or(0);
            match list(0) {
                Some(sizes) => piece(tensor.split_with_sizes(sizes, dim), 2),
                None => piece(natural(0)?.and_then(|size| tensor.split(size, dim)), 2),
            }
        }
        "chunk" => {
            let dim = integer(1).unwrap_or(0);
            piece(natural(0)?.and_then(|count| tensor.chunk(count, dim)), 2)
        }
        "view_dtype" => tensor.view_dtype(args.first()?.as_str()?.parse().ok()?),
        "contiguous" => {
            let format = match args.first() {
                None => MemoryFormat::Contiguous,
                Some(name) => {
                    name.as_str()?.trim_start_matches("torch.").trim_end_matches("_format").parse().ok()?
                }
            };
            tensor.contiguous(format)
        }
        _ => return None,
    })
}

/// Returns the error for arguments that cannot be expressed: a negative count.
fn refused() -> Error {
    orlop_core::Error::ZeroStep.into()
}
