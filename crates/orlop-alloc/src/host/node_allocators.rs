//! An allocator for each NUMA node, made when first asked for.
//!
//! Memory is fastest from the node it is on. TensorFlow's `ProcessState` therefore keeps one CPU allocator
//! per node and makes it lazily, since most processes use one node only. Where there is one node, or none
//! that anyone knows of, all requests share one allocator.

use crate::context::CpuConfig;
use crate::registry::{Registry, registry};
use crate::{AllocatorRef, Error, Result, numa};
use orlop_sync::Mutex;
use std::fmt;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

type Make = Box<dyn Fn(Option<u32>) -> Result<AllocatorRef> + Send + Sync>;

/// Allocators by NUMA node.
///
/// ```
/// use orlop_alloc::{NodeAllocators, Request};
///
/// let allocators = NodeAllocators::named("bfc");
/// let block = allocators.for_node(Some(0))?.allocate(&Request::new(100))?;
/// let anywhere = allocators.for_node(None)?.allocate(&Request::new(100))?;
/// # drop((block, anywhere));
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
pub struct NodeAllocators {
    make: Make,
    /// Held while an allocator is made, so that each is made once.
    making: Mutex<()>,
    anywhere: Place,
    /// One per node; empty where there is only one.
    nodes: Box<[Place]>,
}

/// Where a node's allocator is put when it is made.
#[derive(Default)]
struct Place {
    made: OnceLock<AllocatorRef>,
    /// It is being made, by the thread that holds the lock.
    begun: AtomicBool,
}

/// Says that nothing is being made any more, also after a panic.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl NodeAllocators {
    /// For this machine's nodes, by a function that gets the node, or `None` for no affinity.
    pub fn new(make: impl Fn(Option<u32>) -> Result<AllocatorRef> + Send + Sync + 'static) -> Self {
        Self::with_nodes(numa::nodes(), make)
    }

    /// For this machine's nodes, by this configuration: its rule chooses the engine, and its limit, growth and other settings
    /// apply to each node's allocator. `configured(CpuConfig::from_env())` follows the environment.
    #[must_use]
    pub fn configured(config: CpuConfig) -> Self {
        Self::new(move |node| match node {
            Some(node) => config.clone().node(node).make(),
            None => config.make(),
        })
    }

    /// For this machine's nodes, the allocators that the process's registry keeps of this factory
    /// ([`Registry::allocator`]): who else asks there shares them. An unknown name is an error when an allocator is first
    /// asked for.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self::from_registry(registry(), name)
    }

    /// The same from another registry.
    #[must_use]
    pub fn from_registry(registry: &'static Registry, name: &str) -> Self {
        let name: Box<str> = name.into();
        Self::new(move |node| registry.allocator(&name, node))
    }

    /// As if the machine had `count` nodes: to try on a small machine what a large one would do.
    pub fn with_nodes(
        count: u32,
        make: impl Fn(Option<u32>) -> Result<AllocatorRef> + Send + Sync + 'static,
    ) -> Self {
        let count = if count > 1 { count } else { 0 };
        Self {
            make: Box::new(make),
            making: Mutex::new(()),
            anywhere: Place::default(),
            nodes: (0..count).map(|_| Place::default()).collect(),
        }
    }

    /// How many nodes are told apart; at least one.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        u32::try_from(self.nodes.len()).unwrap_or(u32::MAX).max(1)
    }

    /// The allocator of `node`, made now if it is the first time; `None` is the one without affinity.
    ///
    /// Where there is one node, and for nodes that do not exist, it is the one without affinity too.
    ///
    /// The function that makes it may ask for other nodes' allocators, and may panic: the next call tries again.
    ///
    /// # Errors
    ///
    /// What making it failed with; the next call tries again. [`Error::Reentrant`] for the one that is being made just then.
    pub fn for_node(&self, node: Option<u32>) -> Result<&AllocatorRef> {
        let place = node.and_then(|node| self.nodes.get(usize::try_from(node).ok()?));
        let (place, node) = match place {
            Some(place) => (place, node),
            None => (&self.anywhere, None),
        };
        if let Some(made) = place.made.get() {
            return Ok(made);
        }
        // None: a function that is making another one asks, and this thread has the lock. Nothing behind it can be left
        // half-done: a place is set or not.
        let _making = self.making.lock_unless_held();
        if let Some(made) = place.made.get() {
            return Ok(made);
        }
        // Relaxed, as all of these: read and written with the lock held.
        if place.begun.swap(true, Ordering::Relaxed) {
            let inside = node.map_or("the making of this allocator".into(), |node| {
                format!("the making of the allocator of node {node}")
            });
            return Err(Error::Reentrant { inside: inside.into() });
        }
        let _ended = Ended(&place.begun);
        let allocator = (self.make)(node)?;
        Ok(place.made.get_or_init(|| allocator))
    }

    /// The node of the page at `ptr`; `None` if nobody knows, as for a page never touched.
    #[must_use]
    pub fn node_of(&self, ptr: NonNull<u8>) -> Option<u32> {
        numa::node_of(ptr)
    }

    /// Those made so far, with their nodes.
    pub fn made(&self) -> impl Iterator<Item = (Option<u32>, &AllocatorRef)> {
        let by_node =
            (0u32..).zip(&self.nodes).filter_map(|(node, place)| Some((Some(node), place.made.get()?)));
        self.anywhere.made.get().map(|allocator| (None, allocator)).into_iter().chain(by_node)
    }
}

impl fmt::Debug for NodeAllocators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeAllocators")
            .field("nodes", &self.nodes())
            .field("made", &self.made().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Request;
    use crate::backing::{Mmap, System};
    use crate::engine::Direct;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    fn counted(nodes: u32) -> (NodeAllocators, Arc<AtomicU32>) {
        let made = Arc::new(AtomicU32::new(0));
        let count = made.clone();
        let allocators = NodeAllocators::with_nodes(nodes, move |node| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(node.map_or_else(
                || Direct::new(System::new()).erase(),
                |node| Direct::new(Mmap::new().node(node)).erase(),
            ))
        });
        (allocators, made)
    }

    #[test]
    fn each_node_has_its_own_made_once_and_late() {
        let (allocators, made) = counted(4);
        assert_eq!((allocators.nodes(), made.load(Ordering::Relaxed)), (4, 0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for node in [Some(2), None, Some(0)] {
                        assert!(allocators.for_node(node).unwrap().allocate(&Request::new(64)).is_ok());
                    }
                });
            }
        });
        assert_eq!(made.load(Ordering::Relaxed), 3);
        let (two, none) = (allocators.for_node(Some(2)).unwrap(), allocators.for_node(None).unwrap());
        assert!(!two.same_as(none));
        assert!(allocators.for_node(Some(99)).unwrap().same_as(none));
        assert_eq!(allocators.made().map(|(node, _)| node).collect::<Vec<_>>(), [None, Some(0), Some(2)]);
    }

    #[test]
    fn without_numa_there_is_one() {
        for count in [0, 1] {
            let (allocators, made) = counted(count);
            let none = allocators.for_node(None).unwrap();
            assert!(
                [Some(0), Some(7)].into_iter().all(|node| allocators.for_node(node).unwrap().same_as(none))
            );
            assert_eq!((allocators.nodes(), made.load(Ordering::Relaxed)), (1, 1));
        }
    }

    #[test]
    fn a_failure_is_told_and_not_kept() {
        let calls = AtomicU32::new(0);
        let allocators =
            NodeAllocators::with_nodes(2, move |_| match calls.fetch_add(1, Ordering::Relaxed) {
                0 => Err(Error::NoRawDeleter),
                _ => Ok(Direct::new(System::new()).erase()),
            });
        assert!(allocators.for_node(Some(1)).is_err());
        assert!(allocators.for_node(Some(1)).is_ok());
        let unknown = NodeAllocators::named("no such allocator");
        assert!(matches!(unknown.for_node(None), Err(Error::UnknownName { .. })));
    }

    /// The function asks for another node's allocator, for its own, and panics.
    #[test]
    fn the_function_may_come_back_and_panic() {
        let itself = Arc::new(OnceLock::<NodeAllocators>::new());
        let calls = AtomicU32::new(0);
        let allocators = NodeAllocators::with_nodes(2, {
            let itself = Arc::downgrade(&itself);
            move |node| {
                let itself = itself.upgrade().unwrap();
                let allocators = itself.get().unwrap();
                match node {
                    Some(1) => allocators.for_node(Some(0)).cloned(),
                    Some(0) => {
                        assert!(matches!(allocators.for_node(Some(0)), Err(Error::Reentrant { .. })));
                        assert!(calls.fetch_add(1, Ordering::Relaxed) > 0, "the first time");
                        Ok(Direct::new(System::new()).erase())
                    }
                    _ => allocators.for_node(None).cloned(),
                }
            }
        });
        let allocators = itself.get_or_init(|| allocators);
        let first =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| allocators.for_node(Some(1)).is_ok()));
        assert!(first.is_err());
        let (one, none) = (allocators.for_node(Some(1)).unwrap(), allocators.for_node(Some(0)).unwrap());
        assert!(one.same_as(none));
        let error = allocators.for_node(None).unwrap_err();
        assert!(
            matches!(&error, Error::Reentrant { inside } if inside.contains("this allocator")),
            "{error}"
        );
    }

    #[test]
    fn a_touched_block_is_on_some_node() {
        let allocators = NodeAllocators::named("bfc");
        let mut block = allocators.for_node(Some(0)).unwrap().allocate(&Request::new(4096)).unwrap();
        block.bytes_mut().unwrap().fill(1);
        assert!(allocators.node_of(block.as_ptr()).is_some());
    }
}
