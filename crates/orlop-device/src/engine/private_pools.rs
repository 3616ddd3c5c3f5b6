//! Private pools: memory that only a captured graph uses, so that its blocks keep their addresses.

use super::chunks::Index;
use super::pool_table::PoolTable;
use super::pools::Pool;
use super::{Engine, PoolRequest};
use crate::DeviceError;
use crate::backing::DeviceBacking;
use crate::policy::IndexKind;
use orlop_core::StreamId;

/// The id of a private pool (PyTorch: `MempoolId_t`); (0, 0) is none.
pub type PoolId = (u64, u64);

/// The streams whose requests a private pool serves. It is data, not a function, because it is read with the
/// allocator locked.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamFilter {
    /// Every stream.
    All,
    /// These streams.
    Only(Box<[StreamId]>),
}

impl StreamFilter {
    /// Creates a filter for these streams.
    pub fn only(streams: impl IntoIterator<Item = StreamId>) -> Self {
        Self::Only(streams.into_iter().collect())
    }

    #[inline]
    fn matches(&self, stream: StreamId) -> bool {
        match self {
            Self::All => true,
            Self::Only(streams) => streams.contains(&stream),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct PrivatePools {
    pools: Vec<PrivatePool>,
    routes: Vec<Route>,
    /// Those that lend their free memory to other requests before these fail.
    pub(crate) lending: PoolTable,
    /// Those without users.
    unused: PoolTable,
    /// The indexes of those that were dropped, the last one at the end. A new pool takes the place of the one
    /// that was dropped last, as PyTorch's does on the C++ heap.
    dropped: Vec<usize>,
}

/// The streams whose requests go to a private pool. By PyTorch's rules it can be dropped before the route
/// ends.
#[derive(Debug)]
struct Route {
    id: PoolId,
    /// The index of the pool of this id, or of that which was dropped last.
    place: usize,
    streams: StreamFilter,
}

#[derive(Debug, Clone, Copy)]
struct PrivatePool {
    /// `None` if it was dropped.
    id: Option<PoolId>,
    users: u32,
    small: u16,
    large: u16,
    /// The number of times that the engine grew for it, less the releases of its memory (PyTorch:
    /// `cudaMalloc_count`).
    growths: u32,
}

impl PrivatePools {
    /// Returns the private pools, small and large, for the requests of a stream: of its routes the newest
    /// counts. `None` if the common ones serve it.
    #[inline]
    pub(crate) fn route(&self, stream: StreamId) -> Option<(u16, u16)> {
        let mut matching = self.routes.iter().rev().filter(|route| route.streams.matches(stream));
        matching.find_map(|route| {
            let pool = self.pools.get(route.place).filter(|pool| pool.id == Some(route.id))?;
            Some((pool.small, pool.large))
        })
    }

    /// Returns `true` if requests of some streams go to private pools.
    pub(crate) fn has_routes(&self) -> bool {
        !self.routes.is_empty()
    }

    fn place(&self, id: PoolId) -> Option<usize> {
        self.pools.iter().position(|pool| pool.id == Some(id))
    }

    /// Returns the pools of private pools without users.
    pub(crate) fn freeable(&self) -> impl Iterator<Item = usize> + '_ {
        self.unused.iter().filter_map(|id| self.pools_of(id)).flatten().map(usize::from)
    }

    /// Returns the pools, small and large, of a private pool.
    pub(crate) fn pools_of(&self, id: PoolId) -> Option<[u16; 2]> {
        let pool = self.pools.get(self.place(id)?)?;
        Some([pool.small, pool.large])
    }

    /// Returns the pools, small and large, of a private pool; `None` if it has users.
    pub(crate) fn unused(&self, id: PoolId) -> Option<[u16; 2]> {
        self.pools_of(id).filter(|_| self.unused.contains(id))
    }

    /// Counts that the engine grew for a pool, which may be private.
    pub(crate) fn count_growth(&mut self, private: Option<u32>) {
        if let Some(pool) = private.and_then(|place| self.pools.get_mut(place as usize)) {
            pool.growths = pool.growths.saturating_add(1);
        }
    }

    /// Counts that memory of a pool was released, which may be private.
    pub(crate) fn count_release(&mut self, private: Option<u32>) {
        if let Some(pool) = private.and_then(|place| self.pools.get_mut(place as usize)) {
            pool.growths = pool.growths.saturating_sub(1);
        }
    }

    /// Returns `true` for a private pool with users.
    pub(crate) fn has_users(&self, place: Option<u32>) -> bool {
        let pool = place.and_then(|place| self.pools.get(place as usize));
        pool.is_some_and(|pool| pool.users > 0)
    }

    /// Returns the id of a private pool.
    pub(crate) fn id(&self, place: u32) -> Option<PoolId> {
        self.pools.get(place as usize)?.id
    }
}

impl<B: DeviceBacking> Engine<B> {
    /// Serves requests of these streams from a private pool, which is created if it is new and has one user
    /// more (PyTorch: `begin_allocate_to_pool`). Nothing else changes: for a capture, see
    /// [`mark_capture_begin`](Self::mark_capture_begin).
    ///
    /// # Errors
    ///
    /// [`DeviceError::TooManyPools`].
    pub fn begin_allocate_to_pool(&mut self, id: PoolId, streams: StreamFilter) -> Result<(), DeviceError> {
        let place = match self.private.place(id) {
            Some(place) => place,
            None => {
                let place = self.add_private(id)?;
                // Routes that did not end before the pool was dropped.
                let routes = self.private.routes.iter_mut().filter(|route| route.id == id);
                routes.for_each(|route| route.place = place);
                place
            }
        };
        let users = &mut self.private.pools[place].users;
        *users = users.checked_add(1).ok_or(DeviceError::TooManyPools)?;
        self.private.unused.remove(id);
        self.private.routes.push(Route { id, place, streams });
        Ok(())
    }

    /// Ends what [`begin_allocate_to_pool`](Self::begin_allocate_to_pool) began. The pool keeps its users.
    ///
    /// # Errors
    ///
    /// [`DeviceError::NoPool`] if no requests go to it.
    pub fn end_allocate_to_pool(&mut self, id: PoolId) -> Result<(), DeviceError> {
        let newest = self.private.routes.iter().rposition(|route| route.id == id);
        self.private.routes.remove(newest.ok_or(DeviceError::NoPool { id })?);
        Ok(())
    }

    /// Removes a user of a private pool. The memory of a pool without users can be released to the device
    /// (PyTorch: `release_pool`).
    ///
    /// # Errors
    ///
    /// [`DeviceError::NoPool`] if it has no users.
    pub fn release_pool(&mut self, id: PoolId) -> Result<(), DeviceError> {
        let place = self.private.place(id).ok_or(DeviceError::NoPool { id })?;
        let pool = &mut self.private.pools[place];
        pool.users = pool.users.checked_sub(1).ok_or(DeviceError::NoPool { id })?;
        if pool.users == 0 {
            self.private.unused.insert(id);
        }
        Ok(())
    }

    /// Lends free memory of a private pool to other requests, or not, before they fail (PyTorch:
    /// `use_on_oom`).
    ///
    /// # Errors
    ///
    /// [`DeviceError::NoPool`] if there is none of this id.
    pub fn use_pool_on_oom(&mut self, id: PoolId, allowed: bool) -> Result<(), DeviceError> {
        self.private.place(id).ok_or(DeviceError::NoPool { id })?;
        if allowed {
            self.private.lending.insert(id);
        } else {
            self.private.lending.remove(id);
        }
        Ok(())
    }

    /// Searches the private pools that lend their free memory.
    pub(crate) fn search_lending_pools(&mut self, request: &PoolRequest) -> Option<Index> {
        if !self.policy.lends_pools() || self.pools[request.pool as usize].private.is_some() {
            return None;
        }
        let small = request.size <= self.policy.small_limit;
        let lenders: Vec<[u16; 2]> =
            self.private.lending.iter().filter_map(|id| self.private.pools_of(id)).collect();
        lenders.into_iter().find_map(|[small_pool, large_pool]| {
            let pool = if small { small_pool } else { large_pool };
            self.search(&PoolRequest { pool, ..*request })
        })
    }

    /// Returns the pools, small and large, of a private pool that an engine begins with: it has a user, and
    /// another region.
    pub(crate) fn private_pools(&mut self, id: PoolId) -> Result<(u16, u16), DeviceError> {
        let place = match self.private.place(id) {
            Some(place) => place,
            None => self.add_private(id)?,
        };
        let pool = &mut self.private.pools[place];
        pool.users = pool.users.max(1);
        pool.growths = pool.growths.saturating_add(1);
        Ok((pool.small, pool.large))
    }

    fn add_private(&mut self, id: PoolId) -> Result<usize, DeviceError> {
        if let Some(place) = self.private.dropped.pop() {
            let pool = &mut self.private.pools[place];
            (pool.id, pool.growths) = (Some(id), 0);
            for number in [pool.small, pool.large] {
                self.pools[usize::from(number)].forget_free();
            }
            return Ok(place);
        }
        let place = self.private.pools.len();
        let (Ok(small), Ok(number)) = (u16::try_from(self.pools.len()), u32::try_from(place)) else {
            return Err(DeviceError::TooManyPools);
        };
        if small == u16::MAX {
            return Err(DeviceError::TooManyPools);
        }
        self.pools.push(Pool::new(Some(number), self.policy.small_index, &self.policy));
        self.pools.push(Pool::new(Some(number), IndexKind::Ordered, &self.policy));
        self.private.pools.push(PrivatePool { id: Some(id), users: 0, small, large: small + 1, growths: 0 });
        Ok(place)
    }

    /// Returns `true` if a private pool has regions.
    fn has_memory(&self, pool: &PrivatePool) -> bool {
        self.regions.iter().any(|(_, region)| region.pool == pool.small || region.pool == pool.large)
    }

    /// Drops a private pool that has neither users nor memory, or all of them. By PyTorch's rules the number
    /// of growths counts: of several pages that a pool grew by at once, those that are not released with the
    /// first stay reserved. Blocks that are freed there later are free for the next new pool, which takes the
    /// place of this one.
    pub(crate) fn drop_empty_private(&mut self, only: Option<PoolId>) {
        let counts_growths = !self.policy.mixes_streams();
        let unused: Vec<PoolId> =
            self.private.unused.iter().filter(|&id| only.is_none_or(|only| only == id)).collect();
        for id in unused {
            let Some(place) = self.private.place(id) else { continue };
            let pool = self.private.pools[place];
            // A pool can lose its users while requests go to it.
            let has_routes = || self.private.routes.iter().any(|route| route.place == place);
            let is_needed =
                if counts_growths { pool.growths > 0 } else { self.has_memory(&pool) || has_routes() };
            if !is_needed {
                self.private.pools[place].id = None;
                self.private.lending.remove(id);
                self.private.unused.remove(id);
                self.private.dropped.push(place);
            }
        }
    }
}
