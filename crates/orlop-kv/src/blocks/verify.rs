//! The invariants of blocks.

use super::{Blocks, ORPHAN};

impl Blocks {
    /// Checks that every page is in one place, and the sums. Returns the first violation.
    pub(crate) fn verify(&self) -> Result<(), &'static str> {
        self.pages.verify()?;
        let classes = self.pages.classes().len();
        let (mut live, mut idle, mut orphans) = (vec![0; classes], vec![0; classes], vec![0; classes]);
        let (mut used, mut tenants) = (0, vec![(0, 0); self.tenants.len()]);
        for (index, group) in self.groups.iter().enumerate() {
            let (class, parts) = (group.class as usize, group.parts as u64);
            for (_, record) in self.allocated(index) {
                if record.pins < record.users {
                    return Err("a used block is not pinned");
                }
                let count = if record.pins > 0 { &mut live[class] } else { &mut idle[class] };
                *count += parts;
                used += if record.users > 0 { self.block_bytes(index) } else { 0 };
                let (tenant_live, tenant_idle) = &mut tenants[record.tenant as usize];
                *(if record.pins > 0 { tenant_live } else { tenant_idle }) += self.block_bytes(index);
                orphans[class] += if record.owner == ORPHAN { parts } else { 0 };
            }
        }
        for (class, (&live, &idle)) in self.pages.classes().iter().zip(live.iter().zip(&idle)) {
            if (class.live, class.idle) != (live, idle) {
                return Err("the live or idle pages of a class");
            }
        }
        let by_class = |class| self.pledges.iter().skip(class).step_by(classes).sum::<u64>();
        if (0..classes).any(|class| by_class(class) != self.pledged[class]) || orphans != self.orphans {
            return Err("the sum of the pledges");
        }
        let mut pledges = vec![0; self.tenants.len()];
        for (owner, &tenant) in self.owner_tenants.iter().enumerate() {
            pledges[tenant as usize] += self.pages.bytes_of(&self.pledges[owner * classes..][..classes]);
        }
        let of_tenants = self.tenants.iter().map(|tenant| ((tenant.live, tenant.idle), tenant.pledged));
        let tenants_agree = of_tenants.eq(tenants.into_iter().zip(pledges));
        if used == self.used_bytes && tenants_agree { Ok(()) } else { Err("the bytes in use") }
    }
}
