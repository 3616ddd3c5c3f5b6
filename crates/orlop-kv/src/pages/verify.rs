//! The invariants of large pages.

use super::{LargePages, NULL};

impl LargePages {
    /// Recomputes every count. Returns the first difference.
    pub(crate) fn verify(&self) -> Result<(), &'static str> {
        let mut free = vec![0; self.classes.len()];
        let mut slack = vec![0; self.classes.len()];
        let (mut occupied, mut empty) = (0, 0);
        for (index, page) in self.large.iter().enumerate() {
            if page.class == NULL {
                empty += usize::from(!self.absent[index]);
                continue;
            }
            let class = &self.classes[page.class as usize];
            let more = &self.more_bits[index * self.more_words..(index + 1) * self.more_words];
            let set: u32 = more.iter().chain([&page.bits]).map(|word| word.count_ones()).sum();
            if set != page.free || page.free == class.per_large {
                return Err("the free pages of a large page");
            }
            free[page.class as usize] += u64::from(page.free);
            if page.live > 0 {
                occupied += 1;
                slack[page.class as usize] += u64::from(class.per_large - page.live);
            }
        }
        let sums_agree = self
            .classes
            .iter()
            .zip(free.iter().zip(&slack))
            .all(|(class, (&free, &slack))| (class.free, class.slack) == (free, slack));
        if !sums_agree {
            return Err("the free and slack pages of a class");
        }
        let mut listed = vec![0; self.classes.len()];
        for (list, &head) in self.heads.iter().enumerate() {
            let mut at = head;
            while at != NULL {
                let page = &self.large[at as usize];
                if self.list(page.owner, page.class) != list {
                    return Err("a large page is in another owner's list");
                }
                listed[page.class as usize] += u64::from(page.free);
                at = page.next;
            }
        }
        if listed != free {
            return Err("large pages with free pages are not listed once");
        }
        let agree = occupied == self.occupied && empty == self.empty.len();
        if agree { Ok(()) } else { Err("the number of occupied or empty large pages") }
    }
}
