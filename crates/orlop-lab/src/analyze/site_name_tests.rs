//! Names of call sites for stacks as PyTorch records them.

use super::site_name::{MAX_NAME_LENGTH, NO_SITE, SiteName, stack_lines};
use orlop_trace::history::{SiteId, Sites};

const PACKAGES: &str = "/opt/venv/lib/python3.12/site-packages";

fn stack(frames: &[(&str, &str, u32)]) -> (Sites, SiteId) {
    let mut sites = Sites::default();
    let numbers: Vec<u32> = frames
        .iter()
        .map(|&(function, file, line)| sites.frame(function, &file.replace("PKG", PACKAGES), line))
        .collect();
    let site = sites.stack(&numbers);
    (sites, site)
}

fn shown(frames: &[(&str, &str, u32)], depth: usize) -> String {
    let (sites, site) = stack(frames);
    SiteName::with_depth(&sites, site, depth).display(&sites).to_string()
}

const BELOW: [(&str, &str, u32); 4] = [
    ("torch::unwind::unwind()", "??", 0),
    ("c10::cuda::CUDACachingAllocator::Native::malloc(void**)", "", 0),
    ("at::_ops::_to_copy::call(at::Tensor const&)", "??", 0),
    ("at::native::to(at::Tensor const&)", "??", 0),
];

fn on_top(rest: &[(&'static str, &'static str, u32)]) -> Vec<(&'static str, &'static str, u32)> {
    BELOW.iter().chain(rest).copied().collect()
}

#[test]
fn a_line_of_the_program_is_named_with_what_it_called() {
    let frames = on_top(&[
        ("at::_ops::exp::redispatch(c10::DispatchKeySet)", "??", 0),
        ("at::_ops::exp::call(at::Tensor const&)", "??", 0),
        ("PyCMethod_New", "??", 0),
        ("softmax", "/srv/proj/nn_utils.py", 6),
        ("_PyEval_EvalFrameDefault", "??", 0),
        ("_call_impl", "PKG/torch/nn/modules/module.py", 1790),
        ("attend", "/srv/proj/model.py", 432),
        ("<module>", "/srv/proj/train.py", 249),
    ]);
    assert_eq!(shown(&frames, 1), "nn_utils.py:6 softmax < aten::exp");
    assert_eq!(shown(&frames, 2), "model.py:432 attend < nn_utils.py:6 softmax < aten::exp");
    assert_eq!(
        shown(&frames, 9),
        "train.py:249 <module> < model.py:432 attend < nn_utils.py:6 softmax < aten::exp"
    );
    let (sites, site) = stack(&frames);
    assert_eq!(SiteName::of(&sites, site).key(&sites), "nn_utils.py softmax < aten::exp");
    assert_eq!(stack_lines(&sites, site).len(), frames.len());
    assert_eq!(stack_lines(&sites, site)[7], "/srv/proj/nn_utils.py:6 softmax");
}

#[test]
fn packages_are_named_before_pytorch_and_the_program_before_packages() {
    let einsum = on_top(&[
        ("einsum", "PKG/torch/functional.py", 373),
        ("einsum", "PKG/einops/_backends.py", 291),
        ("forward", "/srv/proj/model.py", 39),
    ]);
    assert_eq!(shown(&einsum, 1), "model.py:39 forward < _backends.py:291 einsum");
    let step = on_top(&[
        ("_multi_tensor_adamw", "PKG/torch/optim/adamw.py", 600),
        ("wrapper", "PKG/torch/optim/optimizer.py", 533),
        ("train", "/srv/proj/train.py", 12),
    ]);
    assert_eq!(shown(&step, 1), "train.py:12 train < adamw.py:600 _multi_tensor_adamw");
    let packaged = on_top(&[
        ("forward", "PKG/torch/nn/modules/linear.py", 125),
        ("_call_impl", "PKG/torch/nn/modules/module.py", 1790),
        ("forward", "PKG/transformers/models/llama/__init__.py", 80),
    ]);
    assert_eq!(shown(&packaged, 1), "llama/__init__.py:80 forward < linear.py:125 forward");
    let only_torch = on_top(&[
        ("_multi_tensor_adamw", "PKG/torch/optim/adamw.py", 600),
        ("wrapper", "PKG/torch/optim/optimizer.py", 533),
    ]);
    assert_eq!(shown(&only_torch, 1), "adamw.py:600 _multi_tensor_adamw < aten::_to_copy");
}

#[test]
fn the_backward_pass_is_named_by_its_nodes() {
    let node = on_top(&[
        ("at::_ops::mul_Tensor::call(at::Tensor const&)", "??", 0),
        ("torch::autograd::generated::MulBackward0_apply_functional(std::vector<at::Tensor>)", "F.cpp", 0),
        ("torch::autograd::generated::MulBackward0::apply(std::vector<at::Tensor>)", "??", 0),
        ("torch::autograd::Engine::evaluate_function(int)", "??", 0),
        ("__clone", "??", 0),
    ]);
    assert_eq!(shown(&node, 1), "MulBackward0 < aten::mul_Tensor");
    let engine =
        on_top(&[("torch::autograd::Engine::evaluate_function(int)", "??", 0), ("__clone", "??", 0)]);
    assert_eq!(shown(&engine, 1), "autograd < aten::_to_copy");
}

#[test]
fn unknown_sites_and_other_programs_have_names() {
    assert_eq!(shown(&[], 1), NO_SITE);
    assert_eq!(shown(&[("??", "??", 0)], 1), NO_SITE);
    let native = [
        ("std::vector<int>::push(int)", "??", 0),
        ("engine::run<int>(Plan const&)", "e.cpp", 3),
        ("main", "m.c", 1),
    ];
    assert_eq!(shown(&native, 1), "engine::run");
    assert_eq!(shown(&[("c10::cuda::malloc(int)", "", 0)], 1), "c10::cuda::malloc");
}

#[test]
fn control_characters_are_escaped() {
    assert_eq!(shown(&[("f\u{1b}[2J", "a\nb.py", 3)], 1), "a?b.py:3 f?[2J");
    let long = "x".repeat(1000);
    assert_eq!(shown(&[(&long, "a.py", 3)], 1).chars().count(), MAX_NAME_LENGTH + 1);
}

/// Operators in the form of a profiler, the outermost first.
fn profiled(names: &[&str]) -> String {
    let frames: Vec<_> = names.iter().rev().map(|&name| (name, "??", 0)).collect();
    shown(&frames, 1)
}

#[test]
fn profiler_operators_are_named_by_the_outermost_and_the_innermost() {
    for (names, expected) in [
        (&["aten::linear", "aten::addmm"][..], "aten::linear < aten::addmm"),
        (&["ProfilerStep#3", "aten::linear", "aten::matmul", "aten::mm"], "aten::linear < aten::mm"),
        (
            &["aten::dropout", "aten::native_dropout", "aten::empty_like", "aten::empty_strided"],
            "aten::dropout < aten::native_dropout",
        ),
        (&["aten::arange", "aten::arange", "aten::resize_"], "aten::arange"),
        (&["aten::empty"], "aten::empty"),
        (&["forward", "aten::linear", "aten::addmm"], "forward < aten::linear"),
        (
            &["Optimizer.step#AdamW.step", "aten::_foreach_sqrt", "aten::empty_strided"],
            "Optimizer.step#AdamW.step < aten::_foreach_sqrt",
        ),
        (
            &["autograd::engine::evaluate_function: AddmmBackward0", "AddmmBackward0", "aten::mm"],
            "AddmmBackward0 < aten::mm",
        ),
        (&["autograd::engine::evaluate_function: AddmmBackward0", "aten::sum"], "AddmmBackward0 < aten::sum"),
        (
            &[
                "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
                "torch::autograd::AccumulateGrad",
                "aten::new_empty_strided",
            ],
            "AccumulateGrad < aten::new_empty_strided",
        ),
        (&["Optimizer.zero_grad#SGD.zero_grad"], "Optimizer.zero_grad#SGD.zero_grad"),
        (
            &["ProfilerStep#3", "<built-in method zeros of type object>"],
            "<built-in method zeros of type object>",
        ),
    ] {
        assert_eq!(profiled(names), expected);
    }
    let frames = [
        ("aten::addmm", "??", 0),
        ("aten::linear", "??", 0),
        ("<built-in method linear of type object>", "??", 0),
        ("forward", "torch/nn/modules/linear.py", 114),
        ("nn.Module: Linear_0", "??", 0),
        ("_call_impl", "torch/nn/modules/module.py", 1518),
        ("step", "train.py", 41),
    ];
    assert_eq!(shown(&frames, 1), "train.py:41 step < linear.py:114 forward");
    assert_eq!(shown(&[frames[0], frames[6]], 1), "train.py:41 step < aten::addmm");
}
