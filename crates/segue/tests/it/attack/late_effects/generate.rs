//! Random compositions: writes that take their time, failures beside them, in every kind of body.

use std::collections::BTreeSet;

use crate::kill::Chance;
use crate::support::{Json, json};

/// Bodies inside bodies.
const DEPTH_MAX: u64 = 2;

/// A composition, and what its author knows of it.
pub(super) struct Generated {
    pub(super) composition: Json,
    /// Steps without a rollback.
    pub(super) without_undo: BTreeSet<String>,
}

pub(super) fn generate(chance: &mut Chance) -> Generated {
    let mut author = Author { chance, steps: 0, items: Vec::new(), without_undo: BTreeSet::new() };
    let count = 2 + author.chance.below(3);
    let mut steps = author.body(0, count);
    if author.chance.below(10) < 6 {
        steps.push(author.failure());
    }
    let strategies = ["rollback", "rollback", "rollback", "fail_fast", "partial_success"];
    let strategy = author.pick(&strategies);
    let mut composition = json!({
        "name": "random", "steps": steps, "output": "done",
        "error_handling": { "failure_strategy": strategy },
    });
    if author.chance.below(5) == 0 {
        composition["timeout"] = json!(format!("{}ms", 40 + author.chance.below(300)));
    }
    Generated { composition, without_undo: author.without_undo }
}

struct Author<'a> {
    chance: &'a mut Chance,
    steps: u64,
    /// Names of the items of the loops around.
    items: Vec<String>,
    without_undo: BTreeSet<String>,
}

impl Author<'_> {
    fn pick<'b>(&mut self, from: &[&'b str]) -> &'b str {
        from[usize::try_from(self.chance.below(from.len() as u64)).unwrap()]
    }

    fn id(&mut self) -> String {
        self.steps += 1;
        format!("s{}", self.steps)
    }

    /// Seconds, up to 150 ms.
    fn seconds(&mut self) -> String {
        format!("0.{:03}", self.chance.below(150))
    }

    /// An id with the items around it, so that each piece of work has a name of its own.
    fn who(&self, id: &str) -> String {
        self.items.iter().fold(id.to_owned(), |name, item| format!("{name}.{{{{ {item} }}}}"))
    }

    fn body(&mut self, depth: u64, count: u64) -> Vec<Json> {
        let mut steps: Vec<Json> = Vec::new();
        for _ in 0..count {
            let mut step = self.step(depth);
            if let Some(before) = steps.last().filter(|_| self.chance.below(3) == 0) {
                step["depends_on"] = json!([before["id"]]);
            }
            steps.push(step);
        }
        steps
    }

    fn step(&mut self, depth: u64) -> Json {
        match self.chance.below(12) {
            8 if depth < DEPTH_MAX => self.parallel(depth),
            9 if depth < DEPTH_MAX => self.each(depth),
            10 => self.nested(),
            11 if depth > 0 => self.failure(),
            _ => self.write(),
        }
    }

    fn write(&mut self) -> Json {
        let id = self.id();
        let source = self.pick(&["command", "http", "world"]);
        let parameters = json!({
            "name": format!("{{{{ run.id }}}}:{}", self.who(&id)),
            "before": self.seconds(), "after": self.seconds(),
        });
        let mut step =
            json!({ "id": id, "tool": format!("{source}:write"), "parameters": parameters });
        if self.chance.below(10) == 0 {
            self.without_undo.insert(id);
        } else {
            let parameters = json!({ "name": "{{ args.name }}", "token": "{{ output.token }}" });
            step["rollback"] =
                json!({ "tool": format!("{source}:undo"), "parameters": parameters });
        }
        step
    }

    fn failure(&mut self) -> Json {
        let id = self.id();
        let name = format!("{{{{ run.id }}}}:{}", self.who(&id));
        let parameters = json!({ "name": name, "before": self.seconds(), "after": "0" });
        json!({ "id": id, "tool": "command:fail", "parameters": parameters, "rollback": "none" })
    }

    fn nested(&mut self) -> Json {
        let id = self.id();
        let parameters = json!({
            "who": self.who(&id), "before": self.seconds(), "after": self.seconds(),
        });
        json!({ "id": id, "tool": "inner", "parameters": parameters })
    }

    fn parallel(&mut self, depth: u64) -> Json {
        let id = self.id();
        let wait_for = self.pick(&["all", "any", "first_success"]);
        let branches: Vec<Json> = (0..2 + self.chance.below(2))
            .map(|_| {
                let branch = self.id();
                let count = 1 + self.chance.below(2);
                json!({ "id": branch, "steps": self.body(depth + 1, count) })
            })
            .collect();
        json!({ "id": id, "parallel": branches, "wait_for": wait_for })
    }

    fn each(&mut self, depth: u64) -> Json {
        let id = self.id();
        let item = format!("of_{id}");
        self.items.push(item.clone());
        let count = 1 + self.chance.below(2);
        let steps = self.body(depth + 1, count);
        self.items.pop();
        let at_once = 1 + self.chance.below(3);
        json!({ "id": id, "loop": {
            "over": ["a", "b", "c"], "as": item, "max_concurrency": at_once, "steps": steps } })
    }
}
