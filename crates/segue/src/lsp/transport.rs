//! Bytes of standard input → messages, and messages → bytes of standard output, each on a thread of its own.
//!
//! A body that is no message is reported and the next one is read; a header that cannot be read ends the
//! connection, because nothing says where the next message begins.

use std::io::{self, BufRead, Read as _, Write as _};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use lsp_server::{ErrorCode, Message, RequestId};
use serde_json::{Value, json};

use super::Input;

/// The largest message. A document is limited, too, but its JSON may be larger than its text.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The longest line of a header.
const HEADER_BYTES_MAX: u64 = 4 << 10;

/// A body that is no message.
pub(super) struct Malformed {
    code: ErrorCode,
    message: String,
    id: Option<RequestId>,
}

/// Writes messages. Never blocks: a client that does not read must not stop the server.
#[derive(Clone)]
pub(super) struct Outbox(Sender<Vec<u8>>);

impl Outbox {
    pub(super) fn send(&self, message: &Message) {
        let mut bytes = Vec::new();
        if message.write(&mut bytes).is_ok() {
            // Once the client is gone, nothing is written any more.
            let _ = self.0.send(bytes);
        }
    }

    /// Answers a body that is no message. Its id is `null` if it has none, which the library's type of
    /// answers does not have.
    pub(super) fn refuse(&self, Malformed { code, message, id }: &Malformed) {
        let error = json!({ "code": *code as i32, "message": message });
        let answer = json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string();
        let head = format!("Content-Length: {}\r\n\r\n", answer.len());
        let _ = self.0.send([head.into_bytes(), answer.into_bytes()].concat());
    }
}

/// Starts to write to standard output. The second part is closed once everything is written.
pub(super) fn write_stdout() -> (Outbox, Receiver<()>) {
    let (sender, receiver) = channel::<Vec<u8>>();
    let (written, all_written) = channel();
    thread::spawn(move || {
        let _written = written;
        let mut out = io::stdout().lock();
        for bytes in receiver {
            if out.write_all(&bytes).and_then(|()| out.flush()).is_err() {
                return;
            }
        }
    });
    (Outbox(sender), all_written)
}

/// Starts to read standard input.
pub(super) fn read_stdin(inputs: Sender<Input>) {
    thread::spawn(move || {
        let mut from = io::stdin().lock();
        loop {
            let input = match read_body(&mut from) {
                Ok(Some(body)) => match parse(&body) {
                    Ok(message) => Input::Message(message),
                    Err(malformed) => Input::Malformed(malformed),
                },
                Ok(None) => Input::Closed,
                Err(error) => {
                    tracing::error!("the connection ends: {error}");
                    Input::Closed
                }
            };
            let is_last = matches!(input, Input::Closed);
            if inputs.send(input).is_err() || is_last {
                return;
            }
        }
    });
}

/// The body of the next message; none at the end of the input.
fn read_body(from: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let wrong = |message: &str| io::Error::new(io::ErrorKind::InvalidData, message.to_owned());
    let mut length = None;
    loop {
        let mut line = Vec::new();
        let count = from.by_ref().take(HEADER_BYTES_MAX).read_until(b'\n', &mut line)?;
        if count == 0 {
            return Ok(None);
        }
        let Some(line) = line.strip_suffix(b"\n") else {
            return Err(wrong("a line of a header is too long or cut off"));
        };
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            break;
        }
        let line = std::str::from_utf8(line).map_err(|_| wrong("a header is not text"))?;
        let (name, value) = line.split_once(':').ok_or_else(|| wrong("a header has no colon"))?;
        if name.eq_ignore_ascii_case("Content-Length") {
            let bytes = value.trim().parse::<usize>();
            length = Some(bytes.map_err(|_| wrong("`Content-Length` is not a number"))?);
        }
    }
    let length = length.ok_or_else(|| wrong("a header has no `Content-Length`"))?;
    if length > MESSAGE_BYTES_MAX {
        return Err(wrong("a message is larger than 64 MiB"));
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok(Some(body))
}

fn parse(body: &[u8]) -> Result<Message, Malformed> {
    let value: Value = serde_json::from_slice(body).map_err(|error| Malformed {
        code: ErrorCode::ParseError,
        message: format!("the message is not JSON: {error}"),
        id: None,
    })?;
    let id = value.get("id").and_then(|id| serde_json::from_value(id.clone()).ok());
    let wrong = |message: &str| Malformed {
        code: ErrorCode::InvalidRequest,
        message: message.to_owned(),
        id: id.clone(),
    };
    if value.get("id").is_some() && id.is_none() {
        return Err(wrong("the id of a request is a 32-bit integer or a string"));
    }
    serde_json::from_value(value)
        .map_err(|_| wrong("the message is no request, response or notification"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str) -> io::Result<Option<Vec<u8>>> {
        read_body(&mut text.as_bytes())
    }

    #[test]
    fn headers_are_read_as_the_specification_says() {
        let read = |text: &str| body(text).unwrap().map(|it| String::from_utf8(it).unwrap());
        assert_eq!(read("Content-Length: 2\r\n\r\n{}").as_deref(), Some("{}"));
        let typed =
            "Content-Type: application/vscode-jsonrpc; charset=utf-8\r\ncontent-length:2\r\n\r\n[]";
        assert_eq!(read(typed).as_deref(), Some("[]"));
        assert_eq!(read(""), None);
        for wrong in [
            "Content-Length: x\r\n\r\n",
            "\r\n",
            "Content-Length: 99999999999\r\n\r\n",
            "Content-Length: 3\r\n\r\n{}",
            "no colon\r\n",
        ] {
            assert!(body(wrong).is_err(), "{wrong:?}");
        }
        assert!(body(&"x".repeat(10_000)).is_err());
    }

    #[test]
    fn a_body_that_is_no_message_says_why() {
        let code = |text: &str| parse(text.as_bytes()).err().map(|it| (it.code as i32, it.id));
        assert_eq!(code("{"), Some((-32700, None)));
        assert_eq!(code("[]"), Some((-32600, None)));
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":7}"#), Some((-32600, Some(7.into()))));
        assert_eq!(code(r#"{"id":1.5,"method":"x"}"#), Some((-32600, None)));
        assert_eq!(code(r#"{"id":1,"method":"x"}"#), None);
    }
}
