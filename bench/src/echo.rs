//! A tiny server for the benchmarks: it returns its arguments, at once or after a delay.

use std::sync::Arc;
use std::time::Duration;

use axum::serve::ListenerExt as _;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ErrorData, JsonObject,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService, stdio_pipes};
use rmcp::{ServerHandler, ServiceExt as _};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt as _, DuplexStream};

use crate::measure::print;
use crate::workload::runtime;

/// How long the slow tool takes.
pub(crate) const SLOW: Duration = Duration::from_millis(20);

/// The server.
#[derive(Clone)]
struct Echo {
    tools: Arc<[Tool]>,
}

impl Echo {
    fn new() -> Echo {
        let tool = |name: &'static str| {
            Tool::new(name, "answers with what it was given", schema())
                .with_raw_output_schema(schema())
                .with_annotations(ToolAnnotations::new().read_only(true))
        };
        Echo { tools: Arc::new([tool("echo"), tool("slow")]) }
    }
}

/// The input and output schema: a record with every member described.
fn schema() -> Arc<JsonObject> {
    let text = json!({ "type": "string" });
    let schema = json!({
        "type": "object",
        "properties": { "value": {
            "type": "object",
            "properties": {
                "id": text, "name": text, "email": text,
                "score": { "type": "number", "minimum": 0 },
                "active": { "type": "boolean" },
                "tags": { "type": "array", "items": text },
                "address": {
                    "type": "object",
                    "properties": { "street": text, "city": text, "code": text },
                    "required": ["street", "city", "code"],
                },
            },
            "required": ["id", "name", "email", "score", "active", "tags", "address"],
        } },
        "required": ["value"],
    });
    match schema {
        Json::Object(members) => Arc::new(members),
        _ => unreachable!("it is written as an object"),
    }
}

impl ServerHandler for Echo {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.to_vec()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools.iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if params.name == "slow" {
            tokio::time::sleep(SLOW).await;
        }
        let given = Json::Object(params.arguments.unwrap_or_default());
        Ok(CallToolResult::structured(given).into())
    }
}

/// The server in this process; returns the client's end.
pub(crate) fn local() -> DuplexStream {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    tokio::spawn(async move {
        if let Ok(service) = Echo::new().serve(theirs).await {
            let _ = service.waiting().await;
        }
    });
    ours
}

/// Serves on stdin and stdout until they are closed.
pub(crate) fn on_stdio() -> Result<(), String> {
    runtime().block_on(async {
        let service = Echo::new().serve(stdio_pipes()).await.map_err(|error| error.to_string())?;
        service.waiting().await.map(drop).map_err(|error| error.to_string())
    })
}

/// Serves at a free local port, which it prints, until its stdin is closed.
pub(crate) fn on_http() -> Result<(), String> {
    runtime().block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.map_err(|error| error.to_string())?;
        let at = listener.local_addr().map_err(|error| error.to_string())?;
        print(&format!("http://{at}/mcp"));
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        let service = StreamableHttpService::new(
            || Ok(Echo::new()),
            Arc::new(LocalSessionManager::default()),
            StreamableHttpServerConfig::default(),
        );
        let router = axum::Router::new().route_service("/mcp", service);
        let (mut input, _) = stdio_pipes();
        tokio::select! {
            served = axum::serve(listener, router) => served.map_err(|error| error.to_string()),
            _ = input.read_u8() => Ok(()),
        }
    })
}
