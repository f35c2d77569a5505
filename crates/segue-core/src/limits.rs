//! All limits of the core, as a table: each has its unit in its name.
//!
//! Exceeding a limit is an error that names it; nothing is truncated silently.

use serde::{Deserialize, Serialize};

/// Values that the tree of one static type names; beyond that parts of it are unknown.
pub const TYPE_NODES_MAX: usize = 20_000;

/// Nesting of one static type; deeper values are unknown.
pub const TYPE_DEPTH_MAX: usize = 32;

/// Alternatives of one static type; of more, none is known.
pub const TYPE_ALTERNATIVES_MAX: usize = 128;

/// Nesting of expressions and templates whose types are inferred together: a step that reads a step that
/// reads a step. Deeper types are unknown.
pub const INFERENCE_DEPTH_MAX: usize = 256;

/// Limits on a text, a plan and a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Size of one document.
    pub document_bytes_max: usize,
    /// Nesting of one document.
    pub document_depth_max: usize,
    /// Values in one document, after aliases are expanded.
    pub document_nodes_max: usize,
    /// Keys of one object in a document.
    pub document_keys_max: usize,
    /// YAML aliases in one document.
    pub document_aliases_max: usize,
    /// Nesting of JSON from a tool or a caller, and of values that expressions make.
    pub value_depth_max: usize,
    /// Values in JSON that comes from a tool or a caller.
    pub value_nodes_max: usize,
    /// Size of JSON from a tool or a caller, and of values that expressions make; shared parts
    /// count each time.
    pub value_bytes_max: usize,
    /// Length of one expression.
    pub expression_bytes_max: usize,
    /// Nesting of one expression.
    pub expression_depth_max: usize,
    /// Operations in one evaluation.
    pub expression_fuel_max: u64,
    /// How long a run, a dry run or a check may evaluate without a pause.
    pub evaluation_timeout_ms: u64,
    /// Bytes that one evaluation may create, intermediate values included.
    pub expression_output_bytes_max: usize,
    /// Steps in one composition, bodies included.
    pub steps_max: usize,
    /// Nesting of bodies, and of compositions that call compositions.
    pub nesting_depth_max: usize,
    /// Items of one loop.
    pub loop_items_max: usize,
    /// Rounds of one `repeat`.
    pub repeat_rounds_max: u32,
    /// Times that one step of a program may start.
    pub step_visits_max: u32,
    /// Times that the steps of programs may start in one run.
    pub run_visits_max: u64,
    /// Default timeout of one rollback attempt, where its step sets none.
    #[serde(alias = "undo_timeout_ms")]
    pub rollback_timeout_ms: u64,
    /// Size of the values of all steps of one run; shared parts count each time.
    pub run_value_bytes_max: usize,
    /// Number of sensitive texts and numbers of one run.
    pub sensitive_texts_max: usize,
    /// Their total size.
    pub sensitive_bytes_max: usize,
    /// How long a stopped run waits for a call that may write, where its step sets no timeout.
    pub settle_timeout_ms: u64,
    /// Calls that one run may make, attempts included.
    pub run_calls_max: u64,
    /// Calls of parts that one call of a code tool may make.
    pub part_calls_max: usize,
    /// Steps of one run that may be under way at once.
    pub concurrency_max: usize,
    /// Calls of all runs of a process that may be under way at once.
    pub calls_max: usize,
    /// Retries of one step.
    pub retries_max: u32,
    /// Retries of one tool, in percent of its calls by all runs of a process.
    pub retry_percent_max: u32,
    /// Retries of one tool that become available per second.
    pub retries_per_second_min: u32,
    /// Retries of one tool that are available at the start and may accumulate.
    pub retries_saved_max: u32,
    /// Consecutive unanswered calls that open a tool's circuit breaker; 0 is never.
    pub breaker_failures_max: u32,
    /// How long the breaker stays open before one call probes the tool.
    pub breaker_open_ms: u64,
    /// The longest duration in a composition or a request.
    pub duration_ms_max: u64,
    /// The longest wait that a tool may request with `Retry-After`.
    pub retry_after_ms_max: u64,
    /// Findings reported for one document; further ones are counted.
    pub diagnostics_max: usize,
    /// Length of one message that comes from a tool.
    pub message_bytes_max: usize,
    /// Size of a value inside a journal entry; a larger one is stored beside it, once.
    pub journal_value_bytes_max: usize,
    /// How long a running run waits for a store that cannot be written.
    pub store_wait_ms_max: u64,
    /// Size of one message of an MCP server.
    pub mcp_message_bytes_max: usize,
    /// Tools of one MCP server.
    pub mcp_tools_max: usize,
    /// How long an MCP server may take to start and list its tools.
    pub mcp_start_ms: u64,
    /// How long a call of an MCP server may take without progress, where its server sets nothing.
    pub mcp_idle_ms: u64,
    /// How long a call of an MCP server may take in all.
    pub mcp_call_ms: u64,
    /// Served runs that may be under way at once.
    pub served_runs_max: usize,
    /// How long a request waits for its run before it gets a reference to the run, if it receives
    /// no progress.
    pub served_wait_ms: u64,
    /// How long a request that receives progress waits at most.
    pub served_wait_ms_max: u64,
    /// Size of a result that is sent whole; of a larger one, its beginning and a link.
    pub served_result_bytes_max: usize,
    /// Size of images, audio and resources that are sent with a result; larger ones are links.
    pub served_content_bytes_max: usize,
    /// How long a question waits for a person before the run waits without it.
    pub served_question_ms: u64,
    /// How long the server waits at its start for tool servers that it has not seen before; the
    /// others are added when they answer.
    pub served_start_ms: u64,
    /// How long runs may continue after their client disconnected.
    pub served_leave_ms: u64,
    /// How often runs that are due are sent to the dispatcher again.
    pub dispatch_again_ms: u64,
    /// Connections of a server at once; a further one evicts the connection that has been idle
    /// longest.
    pub served_connections_max: usize,
    /// Clients that follow runs at once.
    pub served_streams_max: usize,
    /// Size of the headers of one request.
    pub served_header_bytes_max: usize,
    /// Timeout for the headers of one request, and for an idle connection.
    pub served_header_ms: u64,
    /// Size of the body of one request.
    pub served_body_bytes_max: usize,
    /// Timeout for the body of one request.
    pub served_body_ms: u64,
    /// Files of compositions that one list holds.
    pub served_files_max: usize,
    /// Size of the files of compositions that one list reads.
    pub served_files_bytes_max: u64,
    /// How much of a body that is too large is still read, so that its client sees the response.
    pub served_excess_bytes_max: usize,
    /// How long such a body is still read.
    pub served_excess_ms: u64,
    /// How long a client may read nothing of its response.
    pub served_stall_ms: u64,
    /// How long an idempotency key is remembered.
    pub served_key_ms: u64,
    /// Sessions of browsers; beyond that the oldest of the principal with the most sessions ends.
    pub served_sessions_max: usize,
    /// How long a session of a browser lasts.
    pub served_session_ms: u64,
    /// How long a sign-in link works.
    pub served_code_ms: u64,
    /// Failed sign-ins in a minute; beyond that the server refuses sign-ins until the minute has passed.
    pub served_sign_in_failures_max: u32,
    /// Size of one GraphQL request.
    pub graphql_body_bytes_max: usize,
    /// Size of one GraphQL document; larger data belongs into variables.
    pub graphql_document_bytes_max: usize,
    /// Tokens in one GraphQL document.
    pub graphql_tokens_max: usize,
    /// Nesting of fields in a GraphQL operation.
    pub graphql_depth_max: usize,
    /// Fields of a GraphQL operation; those of fragments count at each use.
    pub graphql_complexity_max: usize,
    /// Aliases in a GraphQL operation.
    pub graphql_aliases_max: usize,
    /// Directives of a GraphQL operation.
    pub graphql_directives_max: usize,
    /// Items on one page of a GraphQL answer.
    pub graphql_page_max: usize,
    /// Names of one kind, tools or compositions, with metrics of their own; the others share the
    /// name `other`.
    pub metrics_names_max: usize,
    /// Spans that may wait to be sent; later ones are dropped.
    pub traces_queue_max: usize,
    /// How long a terminating process waits until its spans are sent.
    pub traces_leave_ms: u64,
    /// Size of a planning request.
    pub llm_query_bytes_max: usize,
    /// Tokens for the tools in a model's prompt; of more tools, the best matches are listed.
    pub llm_tools_tokens_max: usize,
    /// Tokens of one answer of a model.
    pub llm_answer_tokens_max: usize,
    /// Size of one answer of a model on the wire.
    pub llm_answer_bytes_max: usize,
    /// Tokens that one planning request may cost; after that the model is not called again.
    pub llm_tokens_max: u64,
    /// Answers of a model that are tried before planning fails.
    pub llm_rounds_max: u32,
    /// Consecutive retries of a model that does not answer.
    pub llm_retries_max: u32,
    /// Timeout for one answer of a model, where its configuration sets none.
    pub llm_answer_ms: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            document_bytes_max: 4 * 1024 * 1024,
            document_depth_max: 64,
            document_nodes_max: 100_000,
            document_keys_max: 10_000,
            document_aliases_max: 1_000,
            value_depth_max: 64,
            value_nodes_max: 1_000_000,
            value_bytes_max: 64 * 1024 * 1024,
            expression_bytes_max: 16 * 1024,
            expression_depth_max: 128,
            expression_fuel_max: 10_000_000,
            evaluation_timeout_ms: 10_000,
            expression_output_bytes_max: 16 * 1024 * 1024,
            steps_max: 20_000,
            nesting_depth_max: 8,
            loop_items_max: 100_000,
            repeat_rounds_max: 10_000,
            step_visits_max: 100,
            run_visits_max: 10_000,
            rollback_timeout_ms: 60_000,
            run_value_bytes_max: 1024 * 1024 * 1024,
            sensitive_texts_max: 50_000,
            sensitive_bytes_max: 8 * 1024 * 1024,
            settle_timeout_ms: 30_000,
            run_calls_max: 1_000_000,
            part_calls_max: 10_000,
            concurrency_max: 1_024,
            calls_max: 256,
            retries_max: 100,
            retry_percent_max: 10,
            retries_per_second_min: 1,
            retries_saved_max: 100,
            breaker_failures_max: 20,
            breaker_open_ms: 5_000,
            duration_ms_max: 366 * 24 * 3600 * 1000,
            retry_after_ms_max: 60_000,
            diagnostics_max: 200,
            message_bytes_max: 16 * 1024,
            journal_value_bytes_max: 16 * 1024,
            store_wait_ms_max: 10_000,
            mcp_message_bytes_max: 8 * 1024 * 1024,
            mcp_tools_max: 10_000,
            mcp_start_ms: 30_000,
            mcp_idle_ms: 30_000,
            mcp_call_ms: 600_000,
            served_runs_max: 4_096,
            served_wait_ms: 45_000,
            served_wait_ms_max: 600_000,
            served_result_bytes_max: 32 * 1024,
            served_content_bytes_max: 1024 * 1024,
            served_question_ms: 900_000,
            served_start_ms: 8_000,
            served_leave_ms: 10_000,
            dispatch_again_ms: 60_000,
            served_connections_max: 4_096,
            served_streams_max: 256,
            served_header_bytes_max: 32 * 1024,
            served_header_ms: 10_000,
            served_body_bytes_max: 8 * 1024 * 1024,
            served_body_ms: 30_000,
            served_files_max: 10_000,
            served_files_bytes_max: 64 * 1024 * 1024,
            served_excess_bytes_max: 64 * 1024 * 1024,
            served_excess_ms: 2_000,
            served_stall_ms: 30_000,
            served_key_ms: 24 * 3600 * 1000,
            served_sessions_max: 1_024,
            served_session_ms: 12 * 3600 * 1000,
            served_code_ms: 10 * 60 * 1000,
            served_sign_in_failures_max: 30,
            graphql_body_bytes_max: 256 * 1024,
            graphql_document_bytes_max: 32 * 1024,
            graphql_tokens_max: 2_000,
            graphql_depth_max: 12,
            graphql_complexity_max: 500,
            graphql_aliases_max: 30,
            graphql_directives_max: 8,
            graphql_page_max: 100,
            metrics_names_max: 200,
            traces_queue_max: 8_192,
            traces_leave_ms: 2_000,
            llm_query_bytes_max: 16 * 1024,
            llm_tools_tokens_max: 24_000,
            llm_answer_tokens_max: 4_096,
            llm_answer_bytes_max: 1024 * 1024,
            llm_tokens_max: 200_000,
            llm_rounds_max: 4,
            llm_retries_max: 3,
            llm_answer_ms: 120_000,
        }
    }
}

impl Limits {
    /// Whether the limits are safe for the process: readers and evaluators recurse as deep as these
    /// allow, on a stack of a few megabytes.
    pub fn is_sane(&self) -> bool {
        const DEPTH_MAX: usize = 512;
        [self.document_depth_max, self.value_depth_max, self.expression_depth_max]
            .iter()
            .all(|depth| *depth <= DEPTH_MAX)
            && self.nesting_depth_max <= 64
    }
}
