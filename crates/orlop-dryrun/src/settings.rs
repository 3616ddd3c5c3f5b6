//! [`DryRunSettings`]: what a dry run is told, and how it travels in the environment of the process.

use crate::assumptions::Assumptions;
use crate::error::{DryRunError, Result};
use crate::gpu::GpuModel;
use std::ffi::OsString;
use std::path::PathBuf;

/// The variable that a program can read to know that nothing is computed: `1` in a dry run.
pub const MARKER: &str = "ORLOP_DRY_RUN";
/// The folder into which a dry run writes its snapshots and reports.
pub const OUTPUT: &str = "ORLOP_DRY_RUN_OUTPUT";

const GPU: &str = "ORLOP_DRY_RUN_GPU";
const MEMORY: &str = "ORLOP_DRY_RUN_MEMORY";
const DEVICES: &str = "ORLOP_DRY_RUN_DEVICES";
const COMPLETION: &str = "ORLOP_DRY_RUN_COMPLETION";
const CHECKPOINTS: &str = "ORLOP_DRY_RUN_ALLOW_CHECKPOINTS";
const WORKSPACES: &str = "ORLOP_DRY_RUN_WORKSPACES";
const CONVOLUTIONS: &str = "ORLOP_DRY_RUN_CONVOLUTIONS";
const ASSUMPTIONS: &str = "ORLOP_DRY_RUN_ASSUMPTIONS";

/// The highest number of devices of a process.
pub const MAX_DEVICES: u32 = 16;

/// When the work of a stream completes, as seen by the host. A real run is between the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Completion {
    /// As soon as it is submitted.
    #[default]
    Earliest,
    /// Only when the host waits for the device.
    Latest,
}

/// The workspaces of convolutions that are in no table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WorkspaceRule {
    /// No bytes: less than a real run takes.
    None,
    /// Estimated by what was learned from measurements.
    #[default]
    Learned,
    /// More than nearly all measured convolutions took.
    Most,
}

impl WorkspaceRule {
    const ALL: [(&str, Self); 3] = [("none", Self::None), ("learned", Self::Learned), ("most", Self::Most)];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, rule)| *rule == self).map_or("", |(name, _)| name)
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(other, _)| *other == name).map(|(_, rule)| *rule)
    }
}

/// The settings of a dry run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DryRunSettings {
    /// The model of the devices.
    pub gpu: GpuModel,
    /// The number of devices.
    pub devices: u32,
    /// When work completes.
    pub completion: Completion,
    /// The workspaces of convolutions that the table does not have.
    pub workspaces: WorkspaceRule,
    /// A table of the workspaces of convolutions.
    pub convolutions: Option<PathBuf>,
    /// Whether checkpoints are written to files. Their values are noise.
    pub allow_checkpoints: bool,
    /// What is assumed of values that kernels compute and that decide sizes.
    pub assumptions: Assumptions,
}

impl DryRunSettings {
    /// Creates the settings of a run on one device of this model.
    #[must_use]
    pub fn new(gpu: GpuModel) -> Self {
        Self {
            gpu,
            devices: 1,
            completion: Completion::default(),
            workspaces: WorkspaceRule::default(),
            convolutions: None,
            allow_checkpoints: false,
            assumptions: Assumptions::default(),
        }
    }

    /// Sets the total memory of each device, in bytes.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.gpu.memory = bytes;
        self
    }

    /// Returns the variables from which [`DryRunSettings::from_variables`] reads the settings.
    #[must_use]
    pub fn variables(&self) -> Vec<(&'static str, OsString)> {
        let completion = match self.completion {
            Completion::Earliest => "earliest",
            Completion::Latest => "latest",
        };
        let mut variables: Vec<(&'static str, OsString)> = vec![
            (MARKER, "1".into()),
            (GPU, self.gpu.key.into()),
            (MEMORY, self.gpu.memory.to_string().into()),
            (DEVICES, self.devices.to_string().into()),
            (COMPLETION, completion.into()),
            (WORKSPACES, self.workspaces.name().into()),
            (ASSUMPTIONS, self.assumptions.to_string().into()),
        ];
        if self.allow_checkpoints {
            variables.push((CHECKPOINTS, "1".into()));
        }
        variables.extend(self.convolutions.clone().map(|path| (CONVOLUTIONS, path.into_os_string())));
        variables
    }

    /// Reads the settings from variables. Those that are missing have their defaults: one H100.
    ///
    /// # Errors
    ///
    /// [`DryRunError::InvalidSetting`] and [`DryRunError::UnknownGpu`].
    pub fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self> {
        let text = |name: &'static str| {
            let value = variable(name).map(|value| value.to_string_lossy().into_owned());
            value.filter(|value| !value.is_empty())
        };
        let number = |name: &'static str| -> Result<Option<u64>> {
            let Some(value) = text(name) else { return Ok(None) };
            value.parse().map(Some).map_err(|_| DryRunError::InvalidSetting { variable: name, value })
        };
        let mut settings = Self::new(GpuModel::named(&text(GPU).unwrap_or_else(|| "h100".to_owned()))?);
        if let Some(bytes) = number(MEMORY)? {
            settings = settings.memory(bytes);
        }
        if let Some(devices) = number(DEVICES)? {
            settings.devices = u32::try_from(devices)
                .ok()
                .filter(|devices| (1..=MAX_DEVICES).contains(devices))
                .ok_or_else(|| DryRunError::InvalidSetting {
                    variable: DEVICES,
                    value: devices.to_string(),
                })?;
        }
        settings.completion = match text(COMPLETION).as_deref() {
            None | Some("earliest") => Completion::Earliest,
            Some("latest") => Completion::Latest,
            Some(other) => {
                let value = other.to_owned();
                return Err(DryRunError::InvalidSetting { variable: COMPLETION, value });
            }
        };
        if let Some(value) = text(WORKSPACES) {
            let rule = WorkspaceRule::named(&value);
            settings.workspaces = rule.ok_or(DryRunError::InvalidSetting { variable: WORKSPACES, value })?;
        }
        if let Some(value) = text(ASSUMPTIONS) {
            let assumptions = value.split(',').try_fold(Assumptions::default(), Assumptions::with);
            settings.assumptions =
                assumptions.ok_or(DryRunError::InvalidSetting { variable: ASSUMPTIONS, value })?;
        }
        settings.allow_checkpoints = text(CHECKPOINTS).is_some();
        settings.convolutions = variable(CONVOLUTIONS).map(PathBuf::from);
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn settings_survive_the_environment() {
        let mut settings = DryRunSettings::new(GpuModel::named("t4").unwrap()).memory(8 << 30);
        settings.devices = 2;
        settings.completion = Completion::Latest;
        settings.convolutions = Some("/tmp/table".into());
        settings.allow_checkpoints = true;
        settings.workspaces = WorkspaceRule::Most;
        settings.assumptions = Assumptions::default().with("mask=0.3").unwrap().with("max=9").unwrap();
        let variables: HashMap<_, _> = settings.variables().into_iter().collect();
        assert_eq!(variables[MARKER], "1");
        let read = DryRunSettings::from_variables(|name| variables.get(name).cloned());
        assert_eq!(read.unwrap(), settings);
    }

    #[test]
    fn an_invalid_number_of_devices_is_named() {
        let read = DryRunSettings::from_variables(|name| (name == DEVICES).then(|| "17".into()));
        assert!(read.unwrap_err().to_string().contains("ORLOP_DRY_RUN_DEVICES"));
    }
}
