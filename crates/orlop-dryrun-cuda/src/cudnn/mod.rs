//! cuDNN's graph interface: descriptors, and the workspaces of the plans that they describe.

mod constants;
mod descriptors;
mod learned;
mod recurrent;
mod workspaces;

pub(crate) use constants::VERSION;
pub(crate) use descriptors::{Attribute, Descriptors};
pub(crate) use recurrent::{Cell, Mode, RecurrentLayer, RecurrentLayers, Sequences};
pub(crate) use workspaces::Workspaces;
