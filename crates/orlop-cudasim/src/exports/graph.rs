//! Graphs. They come from captures; building them node by node is not simulated.

use crate::abi::Out;
use crate::call::calls;
use crate::codes::{Failure, Outcome};
use crate::guard::DriverGuard;
use crate::state::graph::Executable;

fn instantiate(driver: &mut DriverGuard, executable: &Out<u64>, graph: u64) -> Outcome {
    let made = Executable::new(driver.graphs.get(&graph).ok_or(Failure::INVALID_VALUE)?);
    let handle = driver.handle();
    executable.set(handle)?;
    driver.executables.insert(handle, made);
    Ok(())
}

calls! {
    fn cuGraphInstantiateWithFlags(executable: Out<u64>, graph: u64, _flags: u64) Unsafe |driver| {
        instantiate(driver, &executable, graph)
    }

    fn cuGraphUpload(executable: u64, stream: u64) Context |driver| {
        driver.stream_of(stream)?;
        driver.executables.get(&executable).map(|_| ()).ok_or(Failure::INVALID_HANDLE)
    }

    fn cuGraphLaunch(executable: u64, stream: u64) Context |driver| {
        let id = driver.stream_of(stream)?;
        driver.launch_graph(executable, id)
    }

    fn cuGraphGetNodes(graph: u64, nodes: Out<u64>, count: Out<usize>) Context |driver| {
        let found = driver.graphs.get(&graph).ok_or(Failure::INVALID_VALUE)?.nodes();
        if !nodes.is_null() {
            return Err(Failure::NOT_SUPPORTED);
        }
        count.set(found)
    }

    fn cuGraphDestroy(graph: u64) Context |driver| {
        let graph = driver.graphs.remove(&graph).ok_or(Failure::INVALID_VALUE)?;
        driver.drop_graph(graph);
        Ok(())
    }

    fn cuGraphExecDestroy(executable: u64) Context |driver| {
        let executable = driver.executables.remove(&executable).ok_or(Failure::INVALID_VALUE)?;
        driver.drop_graph(executable.graph);
        Ok(())
    }
}
