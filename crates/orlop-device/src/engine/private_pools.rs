//! Private pools: memory that a captured graph has to itself, so that what it wrote stays where it is.

use super::chunks::Index;
use super::pools::Pool;
use super::{Engine, PoolRequest};
use crate::DeviceError;
use crate::backing::DeviceBacking;
use crate::policy::IndexKind;
use orlop_core::StreamId;

/// A private pool's name (PyTorch: `MempoolId_t`); (0, 0) is none.
pub type PoolId = (u64, u64);

/// The streams whose requests go to a private pool. Data and no function: requests are sorted with the allocator locked.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamFilter {
    /// Every stream.
    All,
    /// These streams and no other.
    Only(Box<[StreamId]>),
}

impl StreamFilter {
    /// Takes the requests of these streams.
    pub fn only(streams: impl IntoIterator<Item = StreamId>) -> Self {
        Self::Only(streams.into_iter().collect())
    }

    #[inline]
    fn takes(&self, stream: StreamId) -> bool {
        match self {
            Self::All => true,
            Self::Only(streams) => streams.contains(&stream),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct PrivatePools {
    pools: Vec<PrivatePool>,
    /// Captures that are going on: the place of their pool, and whose requests go there.
    underway: Vec<(usize, StreamFilter)>,
}

#[derive(Debug, Clone, Copy)]
struct PrivatePool {
    /// `None`: nobody uses it and it has no memory; the next new one may have its pools.
    id: Option<PoolId>,
    users: u32,
    small: u16,
    large: u16,
    on_oom: bool,
}

impl PrivatePools {
    #[inline]
    pub(crate) fn is_capturing(&self) -> bool {
        !self.underway.is_empty()
    }

    /// The pools, small and large, that a stream's requests go to; `None`: the common ones.
    #[inline]
    pub(crate) fn captures(&self, stream: StreamId) -> Option<(u16, u16)> {
        let (place, _) = self.underway.iter().find(|(_, streams)| streams.takes(stream))?;
        self.pools.get(*place).map(|pool| (pool.small, pool.large))
    }

    fn place(&self, id: PoolId) -> Option<usize> {
        self.pools.iter().position(|pool| pool.id == Some(id))
    }

    /// The pools of those that nobody uses any more.
    pub(crate) fn freeable(&self) -> impl Iterator<Item = usize> + '_ {
        let unused = self.pools.iter().filter(|pool| pool.id.is_some() && pool.users == 0);
        unused.flat_map(|pool| [pool.large as usize, pool.small as usize])
    }

    /// Whether this is a private pool that somebody uses.
    pub(crate) fn has_users(&self, place: Option<u32>) -> bool {
        let pool = place.and_then(|place| self.pools.get(place as usize));
        pool.is_some_and(|pool| pool.users > 0)
    }

    /// The name of the pool at a place.
    pub(crate) fn id(&self, place: u32) -> Option<PoolId> {
        self.pools.get(place as usize)?.id
    }
}

impl<B: DeviceBacking> Engine<B> {
    /// From now on requests of these streams are served by a private pool, which is made if it is new (PyTorch:
    /// `begin_allocate_to_pool`). Until the end no event is asked about, no stream waits for another and no page moves;
    /// cached memory goes back by PyTorch's rules for it alone: by age, and blocks that are never split.
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
        self.private.underway.push((place, streams));
        Ok(())
    }

    /// Ends what [`begin_allocate_to_pool`](Self::begin_allocate_to_pool) began.
    ///
    /// # Errors
    ///
    /// [`DeviceError::NoPool`] if that did not happen.
    pub fn end_allocate_to_pool(&mut self, id: PoolId) -> Result<(), DeviceError> {
        let underway = self.private.underway.iter();
        let place = underway.rev().position(|&(place, _)| self.private.pools[place].id == Some(id));
        let place = place.ok_or(DeviceError::NoPool { id })?;
        let last = self.private.underway.len() - 1;
        self.private.underway.remove(last - place);
        Ok(())
    }

    /// One user fewer; what nobody uses may go back to the device (PyTorch: `release_pool`).
    ///
    /// # Errors
    ///
    /// [`DeviceError::NoPool`] if nobody uses it.
    pub fn release_pool(&mut self, id: PoolId) -> Result<(), DeviceError> {
        let place = self.private.place(id).ok_or(DeviceError::NoPool { id })?;
        let pool = &mut self.private.pools[place];
        pool.users = pool.users.checked_sub(1).ok_or(DeviceError::NoPool { id })?;
        Ok(())
    }

    /// Lets requests of others have free memory of a private pool before they fail (PyTorch: `use_on_oom`).
    ///
    /// # Errors
    ///
    /// [`DeviceError::NoPool`] if there is none of this name.
    pub fn use_pool_on_oom(&mut self, id: PoolId, allowed: bool) -> Result<(), DeviceError> {
        let place = self.private.place(id).ok_or(DeviceError::NoPool { id })?;
        self.private.pools[place].on_oom = allowed;
        Ok(())
    }

    /// The pools, small and large, of a private pool that is there before the first request.
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
        let granule = self.policy.granule;
        if small == u16::MAX {
            return Err(DeviceError::TooManyPools);
        }
        self.pools.push(Pool::new(true, Some(number), self.policy.small_index, granule));
        self.pools.push(Pool::new(false, Some(number), IndexKind::Ordered, granule));
        self.private.pools.push(PrivatePool {
            id: Some(id),
            users: 0,
            small,
            large: small + 1,
            on_oom: false,
        });
        Ok(place)
    }

    /// Forgets private pools without users and without memory.
    pub(crate) fn drop_empty_private(&mut self) {
        let PrivatePools { pools, underway } = &mut self.private;
        for (place, pool) in pools.iter_mut().enumerate() {
            let has_memory =
                |region: &super::pools::Region| region.pool == pool.small || region.pool == pool.large;
            // A pool may lose its users while requests go to it.
            let is_used = pool.users > 0 || underway.iter().any(|&(other, _)| other == place);
            if !is_used && !self.regions.iter().any(|(_, region)| has_memory(region)) {
                pool.id = None;
            }
        }
    }

    /// The last thing to try: free memory of private pools that allow it.
    pub(crate) fn search_lending_pools(&mut self, request: PoolRequest) -> Option<Index> {
        if self.pools[request.pool as usize].private.is_some() {
            return None;
        }
        let allowed: Vec<PrivatePool> =
            self.private.pools.iter().filter(|pool| pool.id.is_some() && pool.on_oom).copied().collect();
        let small = request.size <= self.policy.small_limit;
        allowed.into_iter().find_map(|pool| {
            let pool = if small { pool.small } else { pool.large };
            self.search(PoolRequest { pool, ..request })
        })
    }
}
