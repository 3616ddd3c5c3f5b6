//! The name of a call site: its informative frames.
//!
//! A recorded stack has fifty frames or more, and most are the same for every allocation: the recorder, the
//! allocator, the dispatcher, the interpreter. The informative ones are the line of the program and what that
//! line called, so a name has two parts: `model.py:101 forward < aten::rsqrt`. Memory that the backward pass
//! allocates has no line of the program, only the node of the graph: `MulBackward0 < aten::mul_Tensor`. A
//! profiler records nested operators by name: `aten::linear < aten::addmm`.

use orlop_trace::history::{Frame, SiteId, Sites};
use std::fmt::{self, Write as _};

/// The maximum length of a name; mostly template arguments are cut.
pub(super) const MAX_NAME_LENGTH: usize = 96;

/// The maximum length of a frame in a full stack.
const MAX_FRAME_LENGTH: usize = 400;

/// The name of an unknown call site.
pub const NO_SITE: &str = "(no call site)";

/// The name for memory that was live when the recording began and has no call site.
pub const LIVE_AT_START: &str = "(held before the recording)";

/// The informative frames of a call site.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct SiteName {
    /// The callers of [`SiteName::user`], nearest first, as many as requested.
    pub callers: Vec<Frame>,
    /// The innermost line of the program itself: Python outside of installed packages; else the innermost
    /// line outside of PyTorch. Without Python, the node of the backward pass, a name that the program set,
    /// or the outermost operator of a profiler.
    pub user: Option<Frame>,
    /// What that line called: the innermost line of a package, or else the outermost operator. For a stack of
    /// a profiler's operators, the innermost that does more than allocate memory.
    pub op: Option<Frame>,
}

impl SiteName {
    /// Finds the informative frames of a call site.
    ///
    /// ```
    /// use orlop_lab::analyze::SiteName;
    /// use orlop_trace::history::Sites;
    ///
    /// let mut sites = Sites::default();
    /// let frames = [
    ///     sites.frame("c10::cuda::CUDACachingAllocator::malloc()", "??", 0),
    ///     sites.frame("forward", "/usr/lib/python3/dist-packages/torch/nn/modules/linear.py", 125),
    ///     sites.frame("_call_impl", "/usr/lib/python3/dist-packages/torch/nn/modules/module.py", 1790),
    ///     sites.frame("step", "/srv/proj/train.py", 41),
    /// ];
    /// let site = sites.stack(&frames);
    /// let name = SiteName::of(&sites, site);
    /// assert_eq!(name.display(&sites).to_string(), "train.py:41 step < linear.py:125 forward");
    /// ```
    #[must_use]
    pub fn of(sites: &Sites, site: SiteId) -> Self {
        Self::with_depth(sites, site, 1)
    }

    /// Finds the informative frames of a call site, with `depth` lines of the program.
    #[must_use]
    pub fn with_depth(sites: &Sites, site: SiteId, depth: usize) -> Self {
        let frames: Vec<(Frame, FrameOrigin)> =
            sites.frames(site).map(|frame| (frame, FrameOrigin::of(sites, frame))).collect();
        name(sites, &frames, depth)
    }

    /// Returns `true` if no frame is informative.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.user.is_none() && self.op.is_none()
    }

    /// Displays the name, outermost first: `train.py:41 step < linear.py:125 forward`.
    pub fn display<'a>(&'a self, sites: &'a Sites) -> impl fmt::Display + 'a {
        SiteLabel { name: self, sites, lines: true }
    }

    /// Returns the name without line numbers, which is stable when lines move.
    #[must_use]
    pub fn key(&self, sites: &Sites) -> String {
        SiteLabel { name: self, sites, lines: false }.to_string()
    }
}

struct SiteLabel<'a> {
    name: &'a SiteName,
    sites: &'a Sites,
    lines: bool,
}

impl fmt::Display for SiteLabel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let frames = self.name.callers.iter().rev().chain(&self.name.user).chain(&self.name.op);
        let mut between = "";
        for &frame in frames {
            f.write_str(between)?;
            f.write_str(&frame_text(self.sites, frame, self.lines))?;
            between = " < ";
        }
        if between.is_empty() { f.write_str(NO_SITE) } else { Ok(()) }
    }
}

/// Returns all frames of a call site as text, innermost first.
#[must_use]
pub fn stack_lines(sites: &Sites, site: SiteId) -> Vec<String> {
    let text = |frame: Frame| {
        let (file, function) = (sites.name(frame.file), sites.name(frame.function));
        let known = !matches!(file, "" | "??");
        let text = if known { format!("{file}:{} {function}", frame.line) } else { function.to_owned() };
        cleaned(&text, MAX_FRAME_LENGTH)
    };
    sites.frames(site).map(text).collect()
}

/// The origin of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrameOrigin {
    /// Python of the program.
    Program,
    /// Python of a package.
    Package,
    /// Python of PyTorch.
    Torch,
    /// Python that only forwards calls.
    Forwarding,
    /// A node of the backward pass.
    Node,
    /// The entry of an operator.
    Operator,
    /// An operator in the form of a profiler.
    Profiled,
    /// C++ of frameworks, the interpreter, the system.
    Glue,
    /// Other compiled code.
    Native,
}

/// Folders of PyTorch, if it is not installed as a package.
const TORCH_FOLDERS: [&str; 12] = [
    "/torch/nn/",
    "/torch/optim/",
    "/torch/autograd/",
    "/torch/utils/",
    "/torch/cuda/",
    "/torch/distributed/",
    "/torch/fx/",
    "/torch/_dynamo/",
    "/torch/_inductor/",
    "/torch/_functorch/",
    "/torch/functional.py",
    "/torch/_tensor.py",
];

/// Files of PyTorch that wrap every call, or every step.
const FORWARDING: [&str; 8] = [
    "/nn/modules/module.py",
    "/utils/_contextlib.py",
    "/utils/_device.py",
    "/optim/optimizer.py",
    "/_dynamo/eval_frame.py",
    "/autograd/function.py",
    "/torch/_ops.py",
    "/torch/overrides.py",
];

/// Prefixes of compiled functions that are below every allocation.
const GLUE: [&str; 24] = [
    "at::",
    "c10::",
    "torch::",
    "caffe2::",
    "std::",
    "pybind11::",
    "void at::",
    "void c10::",
    "_Py",
    "Py",
    "_PyObject",
    "cfunction_",
    "method_",
    "vectorcall",
    "slot_tp_",
    "type_call",
    "object_",
    "pthread_",
    "start_thread",
    "clone",
    "__",
    "_start",
    // From profilers.
    "<built-in ",
    "ProfilerStep#",
];

/// Operators of a profiler that only allocate memory.
const EMPTY: [&str; 3] = ["aten::empty", "aten::new_empty", "aten::resize_"];

impl FrameOrigin {
    fn of(sites: &Sites, frame: Frame) -> Self {
        let (file, function) = (sites.name(frame.file), sites.name(frame.function));
        if file.ends_with(".py") || (file.starts_with('<') && file.ends_with('>')) {
            return Self::of_python(file);
        }
        if operator(function).is_some() {
            Self::Operator
        } else if function.starts_with("aten::") {
            Self::Profiled
        } else if node(function).is_some() {
            Self::Node
        } else if function.is_empty()
            || function == "??"
            || GLUE.iter().any(|glue| function.starts_with(glue))
        {
            Self::Glue
        } else {
            Self::Native
        }
    }

    fn of_python(file: &str) -> Self {
        let installed = file.contains("site-packages/") || file.contains("dist-packages/");
        let torch = file.contains("-packages/torch/")
            || file.starts_with("torch/")
            || (!installed && TORCH_FOLDERS.iter().any(|folder| file.contains(folder)));
        if torch {
            let wraps = FORWARDING.iter().any(|end| file.ends_with(end));
            return if wraps { Self::Forwarding } else { Self::Torch };
        }
        if installed {
            return Self::Package;
        }
        if file.contains("/lib/python3") || file.starts_with("<frozen") {
            Self::Forwarding
        } else {
            Self::Program
        }
    }
}

fn name(sites: &Sites, frames: &[(Frame, FrameOrigin)], depth: usize) -> SiteName {
    let first = |from: &[(Frame, FrameOrigin)], wanted: &[FrameOrigin]| {
        from.iter().position(|(_, origin)| wanted.contains(origin))
    };
    let user = [FrameOrigin::Program, FrameOrigin::Package, FrameOrigin::Torch]
        .into_iter()
        .find_map(|origin| first(frames, &[origin]).map(|index| (index, origin)));
    let Some((index, origin)) = user else { return compiled(sites, frames) };
    let inner = &frames[..index];
    // The nearest line of a package is more informative than PyTorch's below it: `einops.py einsum`, not
    // `functional.py einsum`.
    let called = first(inner, &[FrameOrigin::Package]).or_else(|| first(inner, &[FrameOrigin::Torch]));
    let entry =
        |(_, origin): &(Frame, FrameOrigin)| matches!(origin, FrameOrigin::Operator | FrameOrigin::Profiled);
    let op = called.or_else(|| inner.iter().rposition(entry));
    let callers = frames[index + 1..].iter().filter(|(_, caller)| *caller == origin);
    SiteName {
        callers: callers.take(depth.saturating_sub(1)).map(|&(frame, _)| frame).collect(),
        user: Some(frames[index].0),
        op: op.map(|op| inner[op].0),
    }
}

/// Names a stack without Python: the backward pass, or a program in another language.
fn compiled(sites: &Sites, frames: &[(Frame, FrameOrigin)]) -> SiteName {
    if frames.iter().any(|(_, origin)| *origin == FrameOrigin::Profiled) {
        return profiled(sites, frames);
    }
    let node = frames.iter().position(|(_, origin)| *origin == FrameOrigin::Node);
    let inner = node.map_or(frames, |node| &frames[..node]);
    let op = inner.iter().rposition(|(_, origin)| *origin == FrameOrigin::Operator);
    // The engine sums the results of several nodes; then there is an operator and no node.
    let engine = || {
        frames
            .iter()
            .position(|&(frame, _)| sites.name(frame.function).starts_with("torch::autograd::Engine"))
    };
    let native = || frames.iter().position(|(_, origin)| *origin == FrameOrigin::Native);
    let user = node.or_else(|| if op.is_some() { engine() } else { native() });
    // Only glue remains; its innermost name is better than none.
    let last = || frames.iter().position(|&(frame, _)| !matches!(sites.name(frame.function), "" | "??"));
    let user = user.or_else(|| if op.is_none() { last() } else { None });
    SiteName {
        callers: Vec::new(),
        user: user.and_then(|user| frames.get(user)).map(|&(frame, _)| frame),
        op: op.and_then(|op| inner.get(op)).map(|&(frame, _)| frame),
    }
}

/// Names a stack of a profiler's operators.
fn profiled(sites: &Sites, frames: &[(Frame, FrameOrigin)]) -> SiteName {
    let first = |wanted| frames.iter().position(|(_, origin)| *origin == wanted);
    let around = first(FrameOrigin::Node).or_else(|| first(FrameOrigin::Native));
    let inner = around.map_or(frames, |around| &frames[..around]);
    let outermost =
        inner.iter().rfind(|(_, origin)| *origin == FrameOrigin::Profiled).map(|&(frame, _)| frame);
    if let Some(&(around, _)) = around.and_then(|around| frames.get(around)) {
        return SiteName { callers: Vec::new(), user: Some(around), op: outermost };
    }
    let says_more = |frame: &Frame| {
        let function = sites.name(frame.function);
        Some(*frame) != outermost && !EMPTY.iter().any(|empty| function.starts_with(empty))
    };
    let ops = inner.iter().filter(|(_, origin)| *origin == FrameOrigin::Profiled);
    let op = ops.map(|&(frame, _)| frame).find(says_more);
    SiteName { callers: Vec::new(), user: outermost, op }
}

/// Returns `exp` for `at::_ops::exp::call(…)`.
fn operator(function: &str) -> Option<&str> {
    function.strip_prefix("at::_ops::")?.split_once("::call(").map(|(name, _)| name)
}

/// Returns `MulBackward0` for `torch::autograd::generated::MulBackward0::apply(…)` and for the forms of a
/// profiler, with and without the engine's prefix.
fn node(function: &str) -> Option<&str> {
    let path = match function.strip_prefix("autograd::engine::evaluate_function: ") {
        Some(path) => path,
        None if is_node(function) => function,
        None => function.strip_prefix("torch::autograd::")?.split_once("::apply(")?.0,
    };
    path.rsplit("::").next().filter(|name| !name.is_empty())
}

fn is_node(name: &str) -> bool {
    let ends = name.trim_end_matches(|letter: char| letter.is_ascii_digit()).ends_with("Backward");
    ends && name.chars().all(|letter| letter.is_alphanumeric() || letter == '_')
}

fn frame_text(sites: &Sites, frame: Frame, lines: bool) -> String {
    let (file, function) = (sites.name(frame.file), sites.name(frame.function));
    if file.ends_with(".py") || file.starts_with('<') {
        let file = short_file(file);
        let text = if lines && frame.line > 0 {
            format!("{file}:{} {function}", frame.line)
        } else {
            format!("{file} {function}")
        };
        return cleaned(&text, MAX_NAME_LENGTH);
    }
    if let Some(operator) = operator(function) {
        return cleaned(&format!("aten::{operator}"), MAX_NAME_LENGTH);
    }
    if let Some(node) = node(function) {
        return cleaned(node, MAX_NAME_LENGTH);
    }
    if function.starts_with("torch::autograd::Engine") {
        return "autograd".to_owned();
    }
    cleaned(&short_function(function), MAX_NAME_LENGTH)
}

/// Returns the name of a file; with its folder if the name is `__init__.py`.
fn short_file(file: &str) -> &str {
    let mut parts = file.rmatch_indices(['/', '\\']).map(|(at, _)| at + 1);
    let (name, folder) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if &file[name..] == "__init__.py" { &file[folder..] } else { &file[name..] }
}

/// Removes arguments and template arguments.
fn short_function(function: &str) -> String {
    let function = function.replace("(anonymous namespace)::", "");
    let end = function.find(['(', '<', '[']).filter(|&end| end > 0).unwrap_or(function.len());
    function[..end].trim_end().to_owned()
}

/// Replaces control characters, which a terminal would interpret, and limits the length.
pub(super) fn cleaned(text: &str, max: usize) -> String {
    let mut cleaned = String::new();
    for (index, letter) in text.chars().enumerate() {
        if index == max {
            cleaned.push('…');
            break;
        }
        // Writing to a String cannot fail.
        let _ = cleaned.write_char(if letter.is_control() { '?' } else { letter });
    }
    cleaned
}
