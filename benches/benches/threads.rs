//! Threads side by side, as many as there are processors: each replays a trace of its own, and all share one
//! allocator.

use orlop_alloc::Allocator;
use orlop_alloc::backing::Mmap;
use orlop_alloc::bfc::Bfc;
use orlop_alloc::caching::Caching;
use orlop_alloc::engine::Pow2;
use orlop_benches::peers::{self, MutexMap};
use orlop_benches::scenes::{self, Contender};
use orlop_benches::{Named, traces};
use orlop_trace::formats::text::Trace;
use std::time::Duration;

const WINDOW: Duration = Duration::from_millis(300);

fn main() {
    let traces = traces();
    let most = std::thread::available_parallelism().map_or(1, usize::from);
    let counts: Vec<usize> = [1, 2, 4, 8, 16, 32, 64].into_iter().filter(|&count| count <= most).collect();
    println!(
        "ns per operation, geometric mean over threads and over which trace comes first; \
         in brackets the worst thread"
    );
    let print = |what: &str, make: &dyn Fn() -> Contender<'static>| {
        let column = |&count: &usize| {
            let each: Vec<f64> =
                (0..traces.len()).flat_map(|first| run(&make(), &traces, first, count)).collect();
            let worst = each.iter().copied().fold(0.0, f64::max);
            format!("{:>8.1} ({worst:>7.1})", scenes::mean(&each))
        };
        println!("{what:<18} {}", counts.iter().map(column).collect::<Vec<_>>().join(" "));
    };
    let heads: Vec<String> =
        counts.iter().map(|count| format!("{:>18}", format!("{count} threads"))).collect();
    println!("{:<18} {}", "", heads.join(" "));
    print("orlop caching", &|| Contender::Orlop(Caching::new(Mmap::new()).into_ref().erase()));
    print("orlop pow2", &|| Contender::Orlop(Pow2::new(Mmap::new()).into_ref().erase()));
    print("orlop bfc", &|| Contender::Orlop(Bfc::new(Mmap::new()).into_ref().erase()));
    let map: &'static MutexMap = Box::leak(Box::new(MutexMap::pow2()));
    print("map pow2, mutex", &|| Contender::Peer(map));
    let system: &'static _ = Box::leak(Box::new(peers::system()));
    print("system", &|| Contender::Peer(system));
    #[cfg(feature = "allocators")]
    {
        print("mimalloc", &|| Contender::Peer(&peers::Global(mimalloc::MiMalloc)));
        print("jemalloc", &|| Contender::Peer(&peers::Global(tikv_jemallocator::Jemalloc)));
        print("snmalloc", &|| Contender::Peer(&peers::Global(snmalloc_rs::SnMalloc)));
    }
}

/// So many threads, of which the first has this trace, the next the one after it, and so on.
fn run(contender: &Contender<'_>, traces: &[Named], first: usize, count: usize) -> Vec<f64> {
    let mine: Vec<&Trace> = (0..count).map(|thread| &traces[(first + thread) % traces.len()].1).collect();
    scenes::threads(contender, &mine, WINDOW)
}
