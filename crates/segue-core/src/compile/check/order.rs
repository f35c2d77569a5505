//! Circular dependencies between steps.

use std::sync::Arc;

use crate::composition::{Body, Composition};
use crate::diagnostic::{Code, Diagnostic};

/// One finding per cycle, in every body.
pub(in crate::compile) fn check(composition: &Composition) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    check_body(&composition.body, &mut findings);
    findings
}

fn check_body(body: &Body, findings: &mut Vec<Diagnostic>) {
    for circle in circles(body) {
        let first = &body.steps[circle[0]];
        let ids: Vec<Arc<str>> =
            circle.iter().chain(&circle[..1]).map(|at| body.steps[*at].id.clone()).collect();
        let message = format!("Circular dependency detected between tools: {}", ids.join(" → "));
        let mut finding = Diagnostic::error(Code::Cycle, message, first.id_span)
            .help("take one of the references or `depends_on` away");
        for at in &circle[1..] {
            finding = finding.related(body.steps[*at].id_span, "also in the circle");
        }
        findings.push(finding);
    }
    for step in &body.steps {
        for inner in step.kind.bodies() {
            check_body(inner, findings);
        }
    }
}

/// Each strongly connected group of steps as one cycle that starts at its first step and continues
/// with the step that depends on it. Linear time and no recursion, because bodies may be long.
fn circles(body: &Body) -> Vec<Vec<usize>> {
    let groups = groups(body);
    let mut circles: Vec<Vec<usize>> = groups
        .into_iter()
        .filter(|group| group.len() > 1)
        .map(|mut group| {
            group.sort_unstable();
            shortest_circle(body, &group)
        })
        .collect();
    circles.sort_unstable();
    circles
}

/// Tarjan's strongly connected components, with the stack on the heap.
fn groups(body: &Body) -> Vec<Vec<usize>> {
    let count = body.steps.len();
    let (mut next, mut groups) = (0, Vec::new());
    let mut number = vec![usize::MAX; count];
    let mut lowest = vec![0; count];
    let mut on_stack = vec![false; count];
    let (mut stack, mut work) = (Vec::new(), Vec::new());
    for start in 0..count {
        if number[start] != usize::MAX {
            continue;
        }
        work.push((start, 0));
        while let Some((at, edge)) = work.pop() {
            if edge == 0 {
                number[at] = next;
                lowest[at] = next;
                next += 1;
                stack.push(at);
                on_stack[at] = true;
            }
            let needs = &body.steps[at].needs;
            if edge > 0 {
                let child = needs[edge - 1].position;
                lowest[at] = lowest[at].min(lowest[child]);
            }
            let mut descended = false;
            for (offset, need) in needs.iter().enumerate().skip(edge) {
                if number[need.position] == usize::MAX {
                    work.push((at, offset + 1));
                    work.push((need.position, 0));
                    descended = true;
                    break;
                }
                if on_stack[need.position] {
                    lowest[at] = lowest[at].min(number[need.position]);
                }
            }
            if !descended && lowest[at] == number[at] {
                let mut group = Vec::new();
                while let Some(member) = stack.pop() {
                    on_stack[member] = false;
                    group.push(member);
                    if member == at {
                        break;
                    }
                }
                groups.push(group);
            }
        }
    }
    groups
}

/// The shortest cycle from the group's first step along "is needed by" back to that step.
fn shortest_circle(body: &Body, group: &[usize]) -> Vec<usize> {
    let start = group[0];
    let mut came_from: Vec<Option<usize>> = vec![None; body.steps.len()];
    let mut queue = std::collections::VecDeque::from([start]);
    // `a → b` reads "a needs b", as in the message.
    while let Some(at) = queue.pop_front() {
        for need in &body.steps[at].needs {
            if need.position == start {
                let mut circle = vec![at];
                let mut back = at;
                while let Some(before) = came_from[back] {
                    circle.push(before);
                    back = before;
                }
                circle.reverse();
                return circle;
            }
            let unseen = came_from[need.position].is_none() && need.position != start;
            if unseen && group.binary_search(&need.position).is_ok() {
                came_from[need.position] = Some(at);
                queue.push_back(need.position);
            }
        }
    }
    vec![start]
}
