//! Selects the answer to a call from the mocks of a test, and counts their use.

use super::{Located, MockResponse, Test, ToolMock, includes, without_visits};
use crate::catalog::{Catalog, ToolLookup};
use crate::id::{ToolId, without_iterations};
use crate::run::{Call, Purpose};
use crate::source::Span;

/// The mocks of a test and of its file.
pub(super) struct MockQueue {
    own: Vec<QueuedMock>,
    shared: Vec<QueuedMock>,
}

/// A mock, and how often each of its answers was used.
struct QueuedMock {
    mock: ToolMock,
    /// The tool of its name, if there is one.
    tool: Option<ToolId>,
    used: Vec<u32>,
}

impl QueuedMock {
    fn new(mock: &ToolMock, catalog: &Catalog) -> QueuedMock {
        let tool = match catalog.find(&mock.name.value) {
            ToolLookup::Found(tool) => Some(tool.id.clone()),
            ToolLookup::Ambiguous(_) | ToolLookup::Missing { .. } => None,
        };
        QueuedMock { mock: mock.clone(), tool, used: vec![0; mock.responses.len()] }
    }

    /// How specifically it matches a call; `None` if it does not.
    fn rank(&self, call: &Call) -> Option<u8> {
        let name = &*self.mock.name.value;
        let path = without_visits(&call.step);
        let id = path.rsplit_once('/').map_or(&*path, |(_, id)| id);
        if is_own_work(call) {
            if name == path {
                return Some(3);
            }
            if name == without_iterations(&path) {
                return Some(2);
            }
            if name == id {
                return Some(1);
            }
        }
        (self.tool.as_ref() == Some(&call.tool)).then_some(0)
    }

    fn pick(&mut self, call: &Call) -> Option<MockResponse> {
        let fits = |(at, answer): &(usize, &MockResponse)| {
            answer.times.is_none_or(|times| self.used[*at] < times)
                && answer.when.as_ref().is_none_or(|when| includes(&call.args, &when.value))
        };
        let (at, answer) = self.mock.responses.iter().enumerate().find(fits)?;
        let answer = answer.clone();
        self.used[at] += 1;
        Some(answer)
    }
}

/// Whether a call is the step's own work, not a fallback, a rollback or a probe. The key of a
/// fallback contains its number.
fn is_own_work(call: &Call) -> bool {
    let last = call.key.rsplit_once('/').map_or(&*call.key, |(_, last)| last);
    call.purpose == Purpose::Work && !last.contains('~')
}

impl MockQueue {
    pub(super) fn new(test: &Test, shared: &[ToolMock], catalog: &Catalog) -> MockQueue {
        let lines =
            |mocks: &[ToolMock]| mocks.iter().map(|mock| QueuedMock::new(mock, catalog)).collect();
        MockQueue { own: lines(&test.mocks), shared: lines(shared) }
    }

    /// The answer to a call, from the most specific mock, the test's own first. `None` if no mock
    /// matches; an error if the matching one has no answer left.
    pub(super) fn answer(&mut self, call: &Call) -> Option<Result<MockResponse, String>> {
        let closest = |lines: &[QueuedMock]| {
            let ranks = lines.iter().enumerate().map(|(at, line)| (line.rank(call), at));
            ranks.filter(|(rank, _)| rank.is_some()).max_by_key(|(rank, at)| (*rank, !at))
        };
        let line = match (closest(&self.own), closest(&self.shared)) {
            (Some((_, at)), _) => &mut self.own[at],
            (None, Some((_, at))) => &mut self.shared[at],
            (None, None) => return None,
        };
        let name = line.mock.name.value.clone();
        let is_used_up = (line.mock.responses.iter().zip(&line.used))
            .all(|(answer, used)| answer.times.is_some_and(|times| *used >= times));
        Some(line.pick(call).ok_or_else(|| {
            if is_used_up {
                format!("all answers of `{name}` are used")
            } else {
                format!("no answer of `{name}` matches these arguments")
            }
        }))
    }

    /// Answers of the test that were used less often than declared, with both counts.
    pub(super) fn unused(&self) -> Vec<(Located<String>, u32, Option<u32>)> {
        let mut unused = Vec::new();
        for line in &self.own {
            for (answer, used) in line.mock.responses.iter().zip(&line.used) {
                if *used < answer.times.unwrap_or(1) {
                    let span = first_of(answer.span, line.mock.name.span);
                    let what = line.mock.name.value.to_string();
                    unused.push((Located { value: what, span }, *used, answer.times));
                }
            }
        }
        unused
    }
}

/// A single answer is reported at its name; one of a list at its own span.
fn first_of(answer: Span, name: Span) -> Span {
    if answer == Span::default() { name } else { answer }
}
