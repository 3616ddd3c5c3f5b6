//! One allocator per NUMA node, created at first use.
//!
//! Memory is fastest on its own node. TensorFlow's `ProcessState` therefore keeps one CPU allocator per node
//! and creates it lazily, because most processes use one node only. On a machine with one node, or without
//! known nodes, all requests share one allocator.

use super::AllocatorConfig;
use orlop_alloc::{AllocatorRef, Error, Result};
use orlop_host::numa;
use orlop_sync::Mutex;
use std::fmt;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

type Make = Box<dyn Fn(Option<u32>) -> Result<AllocatorRef> + Send + Sync>;

/// Allocators by NUMA node.
///
/// ```
/// use orlop_alloc::Request;
/// use orlop_context::{AllocatorConfig, NodeAllocators};
///
/// let allocators = NodeAllocators::configured(AllocatorConfig::new().named("bfc"));
/// let block = allocators.for_node(Some(0))?.allocate(&Request::new(100))?;
/// let anywhere = allocators.for_node(None)?.allocate(&Request::new(100))?;
/// # drop((block, anywhere));
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
pub struct NodeAllocators {
    make: Make,
    /// Held while an allocator is created, so that each is created once.
    creating: Mutex<()>,
    anywhere: NodeEntry,
    /// One entry per node; empty on a machine with one node.
    nodes: Box<[NodeEntry]>,
}

/// The allocator of one node, once it is created.
#[derive(Default)]
struct NodeEntry {
    made: OnceLock<AllocatorRef>,
    /// True while the thread that holds the lock creates it.
    is_creating: AtomicBool,
}

/// Clears the flag when it is dropped, also during unwinding.
struct ClearOnDrop<'a>(&'a AtomicBool);

impl Drop for ClearOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl NodeAllocators {
    /// Creates a set for this machine's nodes. `make` creates an allocator for a node, or for `None` one
    /// without affinity.
    pub fn new(make: impl Fn(Option<u32>) -> Result<AllocatorRef> + Send + Sync + 'static) -> Self {
        Self::with_nodes(numa::nodes(), make)
    }

    /// Creates a set for this machine's nodes from a configuration, which chooses the engine; its limit,
    /// growth and other settings apply to each node's allocator. `configured(AllocatorConfig::from_env())`
    /// follows the environment.
    #[must_use]
    pub fn configured(config: AllocatorConfig) -> Self {
        Self::new(move |node| match node {
            Some(node) => config.clone().node(node).make(),
            None => config.make(),
        })
    }

    /// Creates a set for `count` nodes, to try on a small machine what a large one would do.
    pub fn with_nodes(
        count: u32,
        make: impl Fn(Option<u32>) -> Result<AllocatorRef> + Send + Sync + 'static,
    ) -> Self {
        let count = if count > 1 { count } else { 0 };
        Self {
            make: Box::new(make),
            creating: Mutex::new(()),
            anywhere: NodeEntry::default(),
            nodes: (0..count).map(|_| NodeEntry::default()).collect(),
        }
    }

    /// Returns the number of nodes; at least one.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        u32::try_from(self.nodes.len()).unwrap_or(u32::MAX).max(1)
    }

    /// Returns the allocator of `node`, creating it at the first call. `None` selects the one without
    /// affinity.
    ///
    /// On a machine with one node, and for nodes that do not exist, it is the one without affinity too.
    ///
    /// The function that creates it may request other nodes' allocators, and may panic: the next call tries
    /// again.
    ///
    /// # Errors
    ///
    /// The error of the function that creates it; the next call tries again. [`Error::Reentrant`] if that
    /// function requests the allocator that it is creating.
    pub fn for_node(&self, node: Option<u32>) -> Result<&AllocatorRef> {
        let entry = node.and_then(|node| self.nodes.get(usize::try_from(node).ok()?));
        let (entry, node) = match entry {
            Some(entry) => (entry, node),
            None => (&self.anywhere, None),
        };
        if let Some(made) = entry.made.get() {
            return Ok(made);
        }
        // `None` if this thread already has the lock, because a function that creates another allocator made
        // this call. The lock protects no data that a panic could leave inconsistent: an allocator is set or
        // not.
        let _creating = self.creating.lock_unless_held();
        if let Some(made) = entry.made.get() {
            return Ok(made);
        }
        // Relaxed, as all accesses of this flag: the lock is held.
        if entry.is_creating.swap(true, Ordering::Relaxed) {
            let inside = node.map_or("the creation of this allocator".into(), |node| {
                format!("the creation of the allocator of node {node}")
            });
            return Err(Error::Reentrant { inside: inside.into() });
        }
        let _clear = ClearOnDrop(&entry.is_creating);
        let allocator = (self.make)(node)?;
        Ok(entry.made.get_or_init(|| allocator))
    }

    /// Returns the node of the page at `ptr`. Returns `None` if it is unknown, as for a page that was never
    /// touched.
    #[must_use]
    pub fn node_of(&self, ptr: NonNull<u8>) -> Option<u32> {
        numa::node_of(ptr)
    }

    /// Returns the allocators created so far, with their nodes.
    pub fn made(&self) -> impl Iterator<Item = (Option<u32>, &AllocatorRef)> {
        let by_node =
            (0u32..).zip(&self.nodes).filter_map(|(node, entry)| Some((Some(node), entry.made.get()?)));
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
    use orlop_alloc::backing::{Mmap, System};
    use orlop_alloc::engine::Direct;
    use orlop_alloc::{Allocator, Request};
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    fn counted(nodes: u32) -> (NodeAllocators, Arc<AtomicU32>) {
        let made = Arc::new(AtomicU32::new(0));
        let count = made.clone();
        let allocators = NodeAllocators::with_nodes(nodes, move |node| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(node.map_or_else(
                || Direct::new(System::new()).into_ref().erase(),
                |node| Direct::new(Mmap::new().node(node)).into_ref().erase(),
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
    fn a_failure_is_returned_and_not_kept() {
        let calls = AtomicU32::new(0);
        let allocators =
            NodeAllocators::with_nodes(2, move |_| match calls.fetch_add(1, Ordering::Relaxed) {
                0 => Err(Error::NoRawDeleter),
                _ => Ok(Direct::new(System::new()).into_ref().erase()),
            });
        assert!(allocators.for_node(Some(1)).is_err());
        assert!(allocators.for_node(Some(1)).is_ok());
        let unknown = NodeAllocators::configured(AllocatorConfig::new().named("no such allocator"));
        assert!(matches!(unknown.for_node(None), Err(Error::UnknownName { .. })));
    }

    /// The function requests another node's allocator, then its own, and panics.
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
                        Ok(Direct::new(System::new()).into_ref().erase())
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
        let allocators = NodeAllocators::configured(AllocatorConfig::new().named("bfc"));
        let mut block = allocators.for_node(Some(0)).unwrap().allocate(&Request::new(4096)).unwrap();
        block.bytes_mut().unwrap().fill(1);
        assert!(allocators.node_of(block.as_ptr()).is_some());
    }
}
