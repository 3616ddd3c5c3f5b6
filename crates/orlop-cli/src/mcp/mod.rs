//! `orlop mcp`: answers for agents and editors, over the Model Context Protocol on the standard input and
//! output.
//!
//! The protocol is served by its [official SDK](rmcp); the server has [`tools`] only. One call runs at a
//! time, because a large recording takes much memory. The server ends with the standard input: a call that
//! still runs then has five seconds.

mod tools;

use crate::isolated::ProgramCommand;
use crate::output::Failures;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, Implementation, ListToolsResult, PaginatedRequestParams,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, RoleServer, ServerInitializeError};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ErrorData, ServerHandler, ServiceExt};
use std::fmt;
use std::sync::Arc;
use tokio::sync::Mutex;

/// The maximum length of a message in bytes: a log may be in it.
const MAX_MESSAGE: usize = 64 << 20;

const INSTRUCTIONS: &str = "Analyzes recordings of device memory: PyTorch's memory snapshots, traces of \
                            torch.profiler, logs of RMM, profiles of JAX. Sizes are in bytes.";

struct LabServer {
    program: ProgramCommand,
    /// Held during a call.
    call: Arc<Mutex<()>>,
}

impl ServerHandler for LabServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("orlop", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::list()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let program = self.program.clone();
        let guard = Arc::clone(&self.call).lock_owned().await;
        let call = move || {
            let _guard = guard;
            tools::call(&request.name, &request.arguments.unwrap_or_default(), &program)
        };
        let called = tokio::task::spawn_blocking(call).await;
        let result = called.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        result.map(Into::into).map_err(|message| ErrorData::invalid_params(message, None))
    }
}

/// Runs `orlop mcp`.
pub(crate) fn run(program: &ProgramCommand) -> Result<(), Failures> {
    let failed = |error: &dyn fmt::Display| Failures::from(format!("the client cannot be reached: {error}"));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| failed(&error))?;
    let server = LabServer { program: program.clone(), call: Arc::default() };
    let served = runtime.block_on(async {
        let (input, output) = rmcp::transport::stdio();
        let transport = AsyncRwTransport::new(input, output).with_max_line_length(MAX_MESSAGE);
        match server.serve(transport).await {
            Ok(service) => service.waiting().await.map(drop).map_err(|error| failed(&error)),
            // The client left before it said anything.
            Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(error) => Err(failed(&error)),
        }
    });
    // A thread of the runtime may still wait for the standard input.
    runtime.shutdown_background();
    served
}
