//! Private pools: memory that only a captured graph uses, so that its blocks keep their addresses.

use super::chunks::Index;
use super::pools::Pool;
use super::{Engine, PoolRequest};
use crate::DeviceError;
use crate::backing::{CaptureCount, DeviceBacking};
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
    /// Routes to private pools: the index of the pool, and the streams whose requests go there.
    routes: Vec<(usize, StreamFilter)>,
    /// The captures in progress that are marked at this engine.
    captures: u32,
    /// The captures that are noted at the device.
    of_device: CaptureCount,
}

#[derive(Debug, Clone, Copy)]
struct PrivatePool {
    /// `None` if it has neither users nor memory: the next new one reuses it.
    id: Option<PoolId>,
    users: u32,
    small: u16,
    large: u16,
    on_oom: bool,
}

impl PrivatePools {
    /// Creates the pools of a device with this count of captures.
    pub(crate) fn new(of_device: Option<CaptureCount>) -> Self {
        Self { of_device: of_device.unwrap_or_default(), ..Self::default() }
    }

    /// Returns `true` if a stream captures.
    #[inline]
    pub(crate) fn is_capturing(&self) -> bool {
        self.captures > 0 || self.of_device.is_capturing()
    }

    /// Returns the private pools, small and large, for the requests of a stream; `None` if the common ones
    /// serve it.
    #[inline]
    pub(crate) fn route(&self, stream: StreamId) -> Option<(u16, u16)> {
        let (place, _) = self.routes.iter().find(|(_, streams)| streams.matches(stream))?;
        self.pools.get(*place).map(|pool| (pool.small, pool.large))
    }

    fn place(&self, id: PoolId) -> Option<usize> {
        self.pools.iter().position(|pool| pool.id == Some(id))
    }

    /// Returns the pools of private pools without users.
    pub(crate) fn freeable(&self) -> impl Iterator<Item = usize> + '_ {
        let unused = self.pools.iter().filter(|pool| pool.id.is_some() && pool.users == 0);
        unused.flat_map(|pool| [pool.small as usize, pool.large as usize])
    }

    /// Returns the pools, small and large, of a private pool; `None` if it has users.
    pub(crate) fn unused(&self, id: PoolId) -> Option<[u16; 2]> {
        let pool = self.pools.get(self.place(id)?).filter(|pool| pool.users == 0)?;
        Some([pool.small, pool.large])
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
            None => self.add_private(id)?,
        };
        let users = &mut self.private.pools[place].users;
        *users = users.checked_add(1).ok_or(DeviceError::TooManyPools)?;
        self.private.routes.push((place, streams));
        Ok(())
    }

    /// Ends what [`begin_allocate_to_pool`](Self::begin_allocate_to_pool) began. The pool keeps its users.
    ///
    /// # Errors
    ///
    /// [`DeviceError::NoPool`] if no requests go to it.
    pub fn end_allocate_to_pool(&mut self, id: PoolId) -> Result<(), DeviceError> {
        let routes = self.private.routes.iter();
        let place = routes.rev().position(|&(place, _)| self.private.pools[place].id == Some(id));
        let place = place.ok_or(DeviceError::NoPool { id })?;
        let last = self.private.routes.len() - 1;
        self.private.routes.remove(last - place);
        Ok(())
    }

    /// Marks the begin of a capture (PyTorch: `mark_capture_begin`). Until its end no event is recorded or
    /// queried, no stream waits for another or is waited for, and no memory is released or moved. Captures
    /// may overlap.
    pub fn mark_capture_begin(&mut self) {
        self.private.captures = self.private.captures.saturating_add(1);
    }

    /// Marks the end of a capture, after it has ended: the events of blocks that were freed meanwhile are
    /// recorded.
    ///
    /// # Errors
    ///
    /// [`DeviceError::NoCapture`] if there is none.
    pub fn mark_capture_end(&mut self) -> Result<(), DeviceError> {
        self.private.captures = self.private.captures.checked_sub(1).ok_or(DeviceError::NoCapture)?;
        if !self.private.is_capturing() {
            // Foreign streams may end now.
            self.retry_events();
        }
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
        Ok(())
    }

    /// Lends free memory of a private pool to other requests, or not, before they fail (PyTorch:
    /// `use_on_oom`).
    ///
    /// # Errors
    ///
    /// [`DeviceError::NoPool`] if there is none of this id.
    pub fn use_pool_on_oom(&mut self, id: PoolId, allowed: bool) -> Result<(), DeviceError> {
        let place = self.private.place(id).ok_or(DeviceError::NoPool { id })?;
        self.private.pools[place].on_oom = allowed;
        Ok(())
    }

    /// Returns the pools, small and large, of a private pool that an engine begins with: it has a user.
    pub(crate) fn private_pools(&mut self, id: PoolId) -> Result<(u16, u16), DeviceError> {
        let place = match self.private.place(id) {
            Some(place) => place,
            None => self.add_private(id)?,
        };
        let pool = &mut self.private.pools[place];
        pool.users = pool.users.max(1);
        Ok((pool.small, pool.large))
    }

    fn add_private(&mut self, id: PoolId) -> Result<usize, DeviceError> {
        let vacant = self.private.pools.iter().position(|pool| pool.id.is_none());
        if let Some(place) = vacant {
            let pool = &mut self.private.pools[place];
            (pool.id, pool.on_oom) = (Some(id), false);
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
        self.private.pools.push(PrivatePool {
            id: Some(id),
            users: 0,
            small,
            large: small + 1,
            on_oom: false,
        });
        Ok(place)
    }

    /// Removes private pools that have neither users nor memory.
    pub(crate) fn drop_empty_private(&mut self) {
        let PrivatePools { pools, routes, .. } = &mut self.private;
        for (place, pool) in pools.iter_mut().enumerate() {
            let has_memory =
                |region: &super::pools::Region| region.pool == pool.small || region.pool == pool.large;
            // A pool can lose its users while requests go to it.
            let is_used = pool.users > 0 || routes.iter().any(|&(other, _)| other == place);
            if !is_used && !self.regions.iter().any(|(_, region)| has_memory(region)) {
                pool.id = None;
            }
        }
    }

    /// Searches the private pools that lend their free memory.
    pub(crate) fn search_lending_pools(&mut self, request: &PoolRequest) -> Option<Index> {
        if !self.policy.lends_pools() || self.pools[request.pool as usize].private.is_some() {
            return None;
        }
        let allowed: Vec<PrivatePool> =
            self.private.pools.iter().filter(|pool| pool.id.is_some() && pool.on_oom).copied().collect();
        let small = request.size <= self.policy.small_limit;
        allowed.into_iter().find_map(|pool| {
            let pool = if small { pool.small } else { pool.large };
            self.search(&PoolRequest { pool, ..*request })
        })
    }
}
