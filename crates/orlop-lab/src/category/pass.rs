//! The pass of a training step that a call site belongs to.

use orlop_trace::history::{Frame, SiteId, Sites};

/// A pass of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Pass {
    /// The model is built, moved to the device, or loaded.
    Setup,
    Forward,
    Backward,
    Optimizer,
}

/// Functions that make parameters or move them.
const SETUP: [&str; 6] =
    ["_apply", "convert", "reset_parameters", "load_state_dict", "from_pretrained", "__init__"];

/// Files in which parameters are made.
const SETUP_FILES: [&str; 4] =
    ["torch/nn/init.py", "torch/nn/parameter.py", "torch/serialization.py", "/safetensors/"];

impl Pass {
    /// Returns the pass of a call site. `None` without frames: PyTorch's threads of the backward pass have no
    /// Python, but other recorders leave frames out, too.
    pub(super) fn of(sites: &Sites, site: SiteId) -> Option<Self> {
        let (mut calls_module, mut sets_up, mut has_frames) = (false, false, false);
        for Frame { function, file, .. } in sites.frames(site) {
            let (function, file) = (sites.name(function), sites.name(file));
            has_frames |= !matches!(function, "" | "??");
            if is_backward(function, file) {
                return Some(Self::Backward);
            }
            if is_optimizer(function, file) {
                return Some(Self::Optimizer);
            }
            calls_module |= function == "_call_impl";
            let of_module = SETUP.contains(&function) && file.ends_with(".py");
            sets_up |= of_module || SETUP_FILES.iter().any(|part| file.contains(part));
        }
        match (calls_module, sets_up) {
            (false, true) => Some(Self::Setup),
            _ => has_frames.then_some(Self::Forward),
        }
    }
}

fn is_backward(function: &str, file: &str) -> bool {
    let node = function.trim_start_matches("autograd::engine::evaluate_function: ");
    let node = node.split_once("::apply(").map_or(node, |(node, _)| node);
    let name = node.trim_end_matches(|letter: char| letter.is_ascii_digit());
    name.ends_with("Backward")
        || function.starts_with("torch::autograd::Engine")
        || file.ends_with("torch/autograd/graph.py") && function == "_engine_run_backward"
        || file.ends_with("torch/autograd/__init__.py") && matches!(function, "backward" | "grad")
}

fn is_optimizer(function: &str, file: &str) -> bool {
    let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
    file.contains("torch/optim/") && function != "zero_grad"
        || function.starts_with("Optimizer.step")
        || name.contains("optim") && matches!(function, "__init__" | "step")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(frames: &[(&str, &str)]) -> Option<Pass> {
        let mut sites = Sites::default();
        let frames: Vec<u32> = frames.iter().map(|(function, file)| sites.frame(function, file, 1)).collect();
        let site = sites.stack(&frames);
        Pass::of(&sites, site)
    }

    #[test]
    fn the_pass_follows_from_the_frames() {
        let torch = |file: &str| format!("/env/site-packages/torch/{file}");
        let (module, adam) = (torch("nn/modules/module.py"), torch("optim/adam.py"));
        let engine = torch("autograd/graph.py");
        assert_eq!(pass(&[]), None);
        assert_eq!(pass(&[("??", "??")]), None);
        assert_eq!(pass(&[("convert", &module), ("_apply", &module), ("main", "a.py")]), Some(Pass::Setup));
        assert_eq!(pass(&[("forward", "model.py"), ("_call_impl", &module)]), Some(Pass::Forward));
        assert_eq!(pass(&[("__init__", "layer.py"), ("_call_impl", &module)]), Some(Pass::Forward));
        assert_eq!(pass(&[("_init_group", &adam), ("main", "a.py")]), Some(Pass::Optimizer));
        assert_eq!(pass(&[("__init__", "my_optimizer.py"), ("main", "a.py")]), Some(Pass::Optimizer));
        assert_eq!(pass(&[("_engine_run_backward", &engine), ("main", "a.py")]), Some(Pass::Backward));
        let node = "torch::autograd::generated::MulBackward0::apply(std::vector<at::Tensor>&&)";
        assert_eq!(pass(&[(node, "??")]), Some(Pass::Backward));
        assert_eq!(pass(&[("main", "train.py")]), Some(Pass::Forward));
    }
}
