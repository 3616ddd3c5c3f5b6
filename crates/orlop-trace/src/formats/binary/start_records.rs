//! The order of records: the start state of a device comes before its events, so that a streaming replay has
//! it in time.

use super::super::BlockFault;
use super::payload::PayloadResult;
use super::record::BinaryRecord;
use std::collections::HashSet;

/// The devices that have had events.
#[derive(Debug, Default)]
pub(super) struct StartOrder {
    devices: HashSet<u32>,
    /// The device of the records that follow, and whether it has had events.
    device: u32,
    begun: bool,
}

impl StartOrder {
    /// Checks that a record may occur here.
    pub(super) fn check(&mut self, record: &BinaryRecord) -> PayloadResult<()> {
        match *record {
            BinaryRecord::Event(_) if !self.begun => {
                self.begun = true;
                self.devices.insert(self.device);
            }
            BinaryRecord::Device(device) => {
                self.device = device;
                self.begun = self.devices.contains(&device);
            }
            BinaryRecord::Segment { .. } | BinaryRecord::Chunk(_) | BinaryRecord::Unplaced(_)
                if self.begun =>
            {
                return Err(BlockFault::Late);
            }
            BinaryRecord::Refusal(_) if !self.begun => return Err(BlockFault::Order),
            _ => {}
        }
        Ok(())
    }
}
