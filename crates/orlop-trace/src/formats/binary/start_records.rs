//! The order of records: what a device had at the start comes before its events, so that a streaming replay
//! has it in time.

use super::super::BlockFault;
use super::payload::PayloadResult;
use super::record::BinaryRecord;
use std::collections::HashSet;

/// Which devices have had events.
#[derive(Debug, Default)]
pub(super) struct StartOrder {
    devices: HashSet<u32>,
    /// The device that records are of, and whether it is one of those.
    device: u32,
    begun: bool,
}

impl StartOrder {
    /// Takes note of a record of a device that may be there.
    pub(super) fn look(&mut self, item: &BinaryRecord) -> PayloadResult<()> {
        match *item {
            BinaryRecord::Event(_) if !self.begun => {
                self.begun = true;
                self.devices.insert(self.device);
            }
            BinaryRecord::Device(device) => {
                self.device = device;
                self.begun = self.devices.contains(&device);
            }
            BinaryRecord::Segment { .. } | BinaryRecord::Piece(_) | BinaryRecord::Unplaced(_)
                if self.begun =>
            {
                return Err(BlockFault::Late);
            }
            _ => {}
        }
        Ok(())
    }
}
