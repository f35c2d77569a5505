//! Generates random compositions of every kind of step.

use crate::dice::Dice;
use crate::draft::{Draft, Kind, Piece, Sketch};

/// What an author aims at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taste {
    /// All features of the language, including steps that fail by themselves.
    Wild,
    /// Only what succeeds when its tools do: no conditions that fail steps, no short timeouts.
    Sound,
}

/// Tools, the likelier the more often they are named.
const TOOLS: &[&str] = &[
    "t:read",
    "t:read",
    "t:add",
    "t:add",
    "t:add",
    "t:put",
    "t:put",
    "t:note",
    "t:send",
    "t:drop",
    "t:mystery",
    "t:strict",
];

struct Author {
    dice: Dice,
    taste: Taste,
    next: usize,
    /// Steps whose value has an `n`, from the outermost body inwards.
    known: Vec<String>,
    /// The innermost loop's item, and whether a body around is repeated.
    items: Vec<String>,
    callable: Vec<String>,
    /// Steps whose value holds a composition.
    makers: Vec<String>,
}

/// The composition of a seed, with those that it calls.
pub(crate) fn write(seed: u64, taste: Taste) -> Draft {
    let mut author = Author {
        dice: Dice::for_thing(seed, "author"),
        taste,
        next: 0,
        known: Vec::new(),
        items: Vec::new(),
        callable: Vec::new(),
        makers: Vec::new(),
    };
    let mut called = Vec::new();
    if author.dice.one_in(3) {
        for at in 0..=author.dice.small(2) {
            let name = format!("sub{at}");
            called.push(author.piece(&name, 3, 1));
            author.callable.push(name);
        }
    }
    let main = author.piece("sim", 6, 0);
    Draft { called, main }
}

impl Author {
    fn wild(&self) -> bool {
        self.taste == Taste::Wild
    }

    fn piece(&mut self, name: &str, steps_max: usize, depth: usize) -> Piece {
        self.known.clear();
        self.items.clear();
        self.makers.clear();
        let strategy = *self.dice.pick(&["fail_fast", "partial_success", "rollback", "retry"]);
        let rollback = self.dice.one_in(2);
        let jitter = self.dice.one_in(2);
        let retries = match (self.taste, self.dice.below(3)) {
            (Taste::Sound, _) => ", max_retries: 3".to_owned(),
            (_, 0) => format!(", max_retries: {}", self.dice.below(3)),
            _ => String::new(),
        };
        let mut fields = vec![
            format!("max_concurrency: {}", 1 + self.dice.below(4)),
            format!(
                "error_handling: {{ failure_strategy: {strategy}, rollback_on_failure: {rollback}, \
                 backoff: {{ initial: 3ms, max: 20ms, jitter: {jitter} }}{retries} }}"
            ),
        ];
        if self.wild() && self.dice.one_in(8) {
            fields.push(format!("timeout: {}ms", 10 + self.dice.below(110)));
        }
        if depth > 0 {
            fields.push("input: { type: object, properties: { v: { default: 4 } } }".to_owned());
        }
        let steps = self.steps(steps_max, depth);
        if self.dice.one_in(4) {
            let read = self.value();
            fields.push(format!("output: {{ result: {read} }}"));
        }
        Piece { name: name.to_owned(), fields, steps }
    }

    /// The steps of a body; outside, their values are not known.
    fn body(&mut self, depth: usize) -> Vec<Sketch> {
        let (known, makers) = (self.known.len(), self.makers.len());
        let steps = self.steps(2, depth);
        self.known.truncate(known);
        self.makers.truncate(makers);
        steps
    }

    fn steps(&mut self, most: usize, depth: usize) -> Vec<Sketch> {
        let (mut here, mut steps) = (Vec::<String>::new(), Vec::new());
        for _ in 0..=self.dice.small(most) {
            let step = self.step(&here, depth);
            here.push(step.id.clone());
            steps.push(step);
        }
        steps
    }

    /// A number for a parameter or a condition: a literal, or what an earlier step returned.
    fn number(&mut self) -> String {
        let items = self.items.len();
        match self.dice.below(6) {
            0 => self.dice.below(10).to_string(),
            1 if items > 0 => self.items[items - 1].clone(),
            2 if items > 0 => "loop.index".to_owned(),
            _ if self.known.is_empty() => self.dice.below(10).to_string(),
            3 => format!("{}.n | default(5)", self.known()),
            _ => format!("{}.n", self.known()),
        }
    }

    fn known(&mut self) -> String {
        self.dice.pick(&self.known).clone()
    }

    fn value(&mut self) -> String {
        format!("\"{{{{ {} }}}}\"", self.number())
    }

    /// A condition that holds or not, whatever the world answers; never a constant one.
    fn condition(&mut self) -> String {
        let (number, limit) = (self.number(), self.dice.below(10));
        format!("\"{{{{ ({number}) >= {limit} }}}}\"")
    }

    fn step(&mut self, here: &[String], depth: usize) -> Sketch {
        let id = format!("s{}", self.next);
        self.next += 1;
        let mut fields = Vec::new();
        if !here.is_empty() && self.dice.one_in(2) {
            fields.push(format!("depends_on: [{}]", self.dice.pick(here).clone()));
        }
        if self.wild() && self.dice.one_in(8) {
            fields.push(format!("when: {}", self.condition()));
        }
        self.on_failure(&mut fields);
        let kind = match self.dice.small(if depth < 2 { 22 } else { 12 }) {
            0..=7 => self.tool(&id, &mut fields),
            8 => Kind::Leaf(vec![format!("set: {{ name_{id}: {} }}", self.value())]),
            9 => self.wait(),
            10 if !self.callable.is_empty() => self.call_composition(&mut fields),
            10 => self.tool(&id, &mut fields),
            11 if self.dice.one_in(2) => self.expand(&id),
            11 => self.approve(),
            12..=14 => self.parallel(depth, &mut fields),
            15..=17 => self.each(&id, depth, &mut fields),
            18 | 19 => self.choose(depth, &mut fields),
            _ => self.repeat(depth, &mut fields),
        };
        let has_body =
            !matches!(&kind, Kind::Leaf(lines) if !lines.iter().any(|l| l.starts_with("expand")));
        if has_body && self.dice.one_in(3) {
            self.body_retry(&mut fields);
        }
        if matches!(&kind, Kind::Leaf(lines) if lines.iter().any(|l| l.starts_with("tool: t:"))) {
            self.known.push(id.clone());
        }
        Sketch { id, fields, kind }
    }

    fn on_failure(&mut self, fields: &mut Vec<String>) {
        match self.dice.below(24) {
            0..=2 => fields.push("on_failure: { action: continue, default: { n: 3 } }".to_owned()),
            3 => fields.push("on_failure: { action: continue }".to_owned()),
            4 => fields.push("on_failure: { action: stop }".to_owned()),
            5 => fields
                .push("on_failure: { action: continue, default: \"{{ error.code }}\" }".into()),
            _ => {}
        }
    }

    /// A step with bodies is tried again.
    fn body_retry(&mut self, fields: &mut Vec<String>) {
        let retries = 1 + self.dice.below(2);
        let has_own = fields.iter().any(|field| field.starts_with("on_failure"));
        match self.dice.below(4) {
            0 => fields.push(format!("retry: {{ max: {retries}, on: [tool-error, timeout] }}")),
            1 => fields.push(format!("retry_count: {retries}")),
            _ if has_own => fields.push(format!("retry: {{ max: {retries} }}")),
            2 => fields.push(format!(
                "on_failure: {{ action: retry, max_retries: {retries}, \
                 continue_on_max_retries: true }}"
            )),
            _ => fields.push(format!("on_failure: {{ action: retry, max_retries: {retries} }}")),
        }
    }

    fn tool(&mut self, id: &str, fields: &mut Vec<String>) -> Kind {
        let tool = *self.dice.pick(TOOLS);
        let value = self.value();
        self.attempts(fields);
        if self.wild() && self.dice.one_in(12) {
            let limit = self.dice.below(4);
            fields.push(format!("success_when: \"{{{{ output.n >= {limit} }}}}\""));
        }
        if self.wild() && self.dice.one_in(12) {
            let limit = 5 + self.dice.below(5);
            fields.push(format!("fail_when: \"{{{{ output.n >= {limit} }}}}\""));
        }
        if self.dice.one_in(6) {
            let fallback: Vec<String> = (0..=self.dice.small(2))
                .map(|_| {
                    let other = *self.dice.pick(TOOLS);
                    let value = self.value();
                    format!("{{ tool: \"{other}\", parameters: {{ v: {value} }} }}")
                })
                .collect();
            fields.push(format!("fallback: [{}]", fallback.join(", ")));
        }
        match self.dice.below(14) {
            0 => fields.push("rollback: none".to_owned()),
            1 => fields.push("rollback: { impossible: \"it is gone\" }".to_owned()),
            2 | 3 => fields.push(
                "rollback: { tool: \"t:remove\", parameters: { of: \"{{ args.v }}\" } }".to_owned(),
            ),
            4 => fields.push(
                "rollback: { tool: \"t:remove\", parameters: { id: \"{{ output.id }}\" } }".into(),
            ),
            5 => fields.push("rollback: { tool: \"t:take\" }".to_owned()),
            _ => {}
        }
        if self.dice.one_in(6) {
            let found = if self.dice.one_in(3) {
                ", output: { id: found, n: \"{{ output.n - 5 }}\", list: [], got: \"{{ args.v }}\" }"
            } else {
                ""
            };
            fields.push(format!(
                "probe: {{ tool: \"t:read\", parameters: {{ of: \"{{{{ args.v }}}}\" }}, \
                 done_when: \"{{{{ output.n >= 5 }}}}\"{found} }}"
            ));
        }
        if self.dice.one_in(12) {
            fields.push(format!("idempotent: {}", self.dice.one_in(2)));
        }
        if self.dice.one_in(10) {
            fields.push(format!(
                "on_success: {{ map_outputs: {{ n: got_{id} }}, transform: {{ twice_{id}: \"{{{{ output.n * 2 }}}}\" }} }}"
            ));
        }
        Kind::Leaf(vec![format!("tool: {tool}"), format!("parameters: {{ v: {value} }}")])
    }

    fn attempts(&mut self, fields: &mut Vec<String>) {
        if self.wild() && self.dice.one_in(3) {
            match self.dice.below(4) {
                0 => fields.push("retry: { max: 2, on: [timeout] }".to_owned()),
                1 => fields.push(
                    "retry: { max: 2, backoff: { initial: 1ms, factor: 3, max: 4ms } }".to_owned(),
                ),
                _ => fields.push(format!("retry_count: {}", self.dice.below(3))),
            }
        }
        if self.wild() && self.dice.one_in(6) {
            fields.push(format!("timeout_ms: {}", 5 + self.dice.below(30)));
        }
    }

    fn call_composition(&mut self, fields: &mut Vec<String>) -> Kind {
        let name = self.dice.pick(&self.callable).clone();
        let value = self.value();
        self.attempts(fields);
        if self.dice.one_in(6) {
            fields.push(
                "rollback: { tool: \"t:remove\", parameters: { of: \"{{ args.v }}\" } }".to_owned(),
            );
        }
        if self.dice.one_in(8) {
            fields.push("fallback: [{ tool: \"t:put\", parameters: { v: 1 } }]".to_owned());
        }
        Kind::Leaf(vec![
            format!("tool: composition:{name}"),
            format!("parameters: {{ v: {value} }}"),
        ])
    }

    /// A step that runs a composition which another one made; that one, when there is none yet.
    fn expand(&mut self, id: &str) -> Kind {
        if self.makers.is_empty() {
            self.makers.push(id.to_owned());
            return Kind::Leaf(vec!["tool: t:plan".to_owned()]);
        }
        let maker = self.dice.pick(&self.makers);
        Kind::Leaf(vec![format!("expand: \"{{{{ {maker}.made }}}}\"")])
    }

    fn wait(&mut self) -> Kind {
        let millis = self.dice.below(12);
        Kind::Leaf(vec![format!("wait: {millis}ms")])
    }

    fn approve(&mut self) -> Kind {
        let mut inside = "message: \"Go on?\"".to_owned();
        if self.dice.one_in(2) {
            let silence = *self.dice.pick(&["deny", "approve"]);
            let millis = 5 + self.dice.below(30);
            inside = format!("{inside}, timeout: {millis}ms, on_timeout: {silence}");
        }
        Kind::Leaf(vec![format!("approve: {{ {inside} }}")])
    }

    fn body_timeout(&mut self, fields: &mut Vec<String>) {
        if self.wild() && self.dice.one_in(9) {
            fields.push(format!("timeout_ms: {}", 10 + self.dice.below(50)));
        }
    }

    fn parallel(&mut self, depth: usize, fields: &mut Vec<String>) -> Kind {
        self.body_timeout(fields);
        let wait_for = *self.dice.pick(&["all", "any", "first_success"]);
        let first = self.next;
        let branches = (0..2 + self.dice.small(2))
            .map(|at| (format!("b{first}_{at}"), self.body(depth + 1)))
            .collect();
        Kind::Parallel { wait_for, branches }
    }

    fn each(&mut self, id: &str, depth: usize, fields: &mut Vec<String>) -> Kind {
        self.body_timeout(fields);
        let over = match (self.known.len(), self.dice.below(8)) {
            (1.., 0..=2) => format!("\"{{{{ {}.list }}}}\"", self.known()),
            (1.., 3) if self.wild() => format!("\"{{{{ {}.got }}}}\"", self.known()),
            _ => {
                let items = (0..self.dice.below(5)).map(|n| (n + 3).to_string());
                format!("[{}]", items.collect::<Vec<_>>().join(", "))
            }
        };
        let policy = *self.dice.pick(&["stop", "continue"]);
        let mut lines = vec![
            format!("over: {over}"),
            format!("as: item_{id}"),
            format!("max_concurrency: {}", 1 + self.dice.below(3)),
            format!("on_item_failure: {policy}"),
        ];
        if self.wild() && self.dice.one_in(8) {
            lines.push("max_iterations: 3".to_owned());
        }
        self.items.push(format!("item_{id}"));
        if self.dice.one_in(4) {
            let read = [format!("item_{id}"), "loop.index".to_owned()];
            lines.push(format!("output: \"{{{{ {} }}}}\"", self.dice.pick(&read)));
        }
        let steps = self.body(depth + 1);
        self.items.pop();
        Kind::Rounds { word: "loop", lines, steps }
    }

    fn choose(&mut self, depth: usize, fields: &mut Vec<String>) -> Kind {
        self.body_timeout(fields);
        let mut cases = Vec::new();
        for _ in 0..=self.dice.small(2) {
            let when = self.condition();
            cases.push((Some(when), self.body(depth + 1)));
        }
        if self.dice.one_in(2) {
            cases.push((None, self.body(depth + 1)));
        }
        Kind::Choose(cases)
    }

    fn repeat(&mut self, depth: usize, fields: &mut Vec<String>) -> Kind {
        self.body_timeout(fields);
        let mut steps = self.body(depth + 1);
        // The last step of the round is one whose value the condition can read.
        let id = format!("s{}", self.next);
        self.next += 1;
        let mut own = Vec::new();
        let kind = self.tool(&id, &mut own);
        own.retain(|field| !field.starts_with("on_success"));
        steps.push(Sketch { id: id.clone(), fields: own, kind });
        let limit = self.dice.below(if self.wild() { 10 } else { 1 });
        let mut lines = vec![
            format!("until: \"{{{{ {id}.n >= {limit} }}}}\""),
            format!("max_iterations: {}", 1 + self.dice.below(3)),
        ];
        if self.dice.one_in(2) {
            lines.push(format!("delay: {}ms", self.dice.below(6)));
        }
        Kind::Rounds { word: "repeat", lines, steps }
    }
}
