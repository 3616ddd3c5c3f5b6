//! Classes of streams, which say how many addresses a new range for pages gets.

use super::{Engine, PoolRequest};
use crate::backing::DeviceBacking;
use orlop_core::StreamId;
use orlop_core::torch::AddressReserve;

impl<B: DeviceBacking> Engine<B> {
    /// Gives a stream a class: its ranges for pages get the addresses that the policy has for that class
    /// ([`Policy::address_reserve_by_class`](crate::Policy::address_reserve_by_class)). The empty class is
    /// none, and so is that of a stream that has ended. Ranges from before stay as they are (PyTorch:
    /// `setExpandableSegmentReserveClassForStream`).
    pub fn set_reserve_class(&mut self, stream: StreamId, class: &str) {
        if class.is_empty() {
            self.reserve_classes.remove(&stream);
        } else {
            self.reserve_classes.insert(stream, class.to_owned());
        }
    }

    /// Returns the addresses of a new range for a request, where the policy says them.
    pub(super) fn address_reserve(&self, request: &PoolRequest) -> Option<AddressReserve> {
        let class = self.reserve_classes.get(&self.streams.id(request.stream));
        let of_class = class.and_then(|class| self.policy.address_reserve_by_class.get(class));
        of_class.or(self.policy.address_reserve)
    }
}
