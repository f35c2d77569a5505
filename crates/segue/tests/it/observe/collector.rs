//! A minimal collector of spans: it keeps everything that is sent.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use prost::Message as _;

/// A span, in words.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub(super) trace_id: String,
    pub(super) id: String,
    pub(super) parent: String,
    pub(super) name: String,
    pub(super) is_client: bool,
    pub(super) began: u64,
    pub(super) ended: u64,
    /// 1 is well, 2 an error.
    pub(super) status: i32,
    pub(super) status_message: String,
    pub(super) attributes: BTreeMap<String, String>,
}

impl Span {
    #[track_caller]
    pub(super) fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).unwrap_or_else(|| panic!("no `{name}` in {self:?}"))
    }
}

/// Everything that was sent.
#[derive(Default)]
struct Taken {
    spans: Vec<Span>,
    /// What each request began with.
    heads: Vec<String>,
    /// Every byte of every body.
    bytes: Vec<u8>,
    services: Vec<String>,
}

/// The collector.
pub(super) struct Collector {
    pub(super) address: String,
    taken: Arc<Mutex<Taken>>,
}

impl Collector {
    pub(super) fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let taken = Arc::<Mutex<Taken>>::default();
        let takes = taken.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let takes = takes.clone();
                std::thread::spawn(move || while take(&stream, &takes).is_some() {});
            }
        });
        Collector { address, taken }
    }

    /// The spans sent so far. A process that has exited has sent all of its spans.
    pub(super) fn spans(&self) -> Vec<Span> {
        self.taken.lock().unwrap().spans.clone()
    }

    pub(super) fn heads(&self) -> Vec<String> {
        self.taken.lock().unwrap().heads.clone()
    }

    pub(super) fn services(&self) -> Vec<String> {
        self.taken.lock().unwrap().services.clone()
    }

    /// Whether a text was sent anywhere.
    pub(super) fn has(&self, text: &str) -> bool {
        let taken = self.taken.lock().unwrap();
        taken.bytes.windows(text.len()).any(|part| part == text.as_bytes())
    }
}

/// Takes one request, and says that it has.
fn take(stream: &TcpStream, taken: &Mutex<Taken>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        if let Some(given) = line.to_lowercase().strip_prefix("content-length: ") {
            length = given.trim().parse().unwrap();
        }
        head += &line;
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let request = ExportTraceServiceRequest::decode(&*body).expect("OTLP as protobuf");
    let mut all = taken.lock().unwrap();
    all.heads.push(head);
    all.bytes.extend(&body);
    for resource in request.resource_spans {
        let attributes = resource.resource.map(|it| it.attributes).unwrap_or_default();
        all.services.extend(named(&attributes).remove("service.name"));
        let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
        all.spans.extend(spans.map(|span| {
            let status = span.status.clone().unwrap_or_default();
            Span {
                trace_id: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                attributes: named(&span.attributes),
                is_client: span.kind == 3,
                name: span.name,
                began: span.start_time_unix_nano,
                ended: span.end_time_unix_nano,
                status: status.code,
                status_message: status.message,
            }
        }));
    }
    drop(all);
    let mut writer = stream;
    let answer =
        "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n";
    writer.write_all(answer.as_bytes()).ok()
}

fn named(
    attributes: &[opentelemetry_proto::tonic::common::v1::KeyValue],
) -> BTreeMap<String, String> {
    let text = |value: &Any| match value {
        Any::StringValue(text) => text.clone(),
        Any::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    let known = attributes.iter().filter_map(|attribute| {
        let value = attribute.value.as_ref()?.value.as_ref()?;
        Some((attribute.key.clone(), text(value)))
    });
    known.collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}
