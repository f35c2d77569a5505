//! Renders a plan as SVG: rows by order, lines by dependency, and in a program its transitions.
//! Equal plans give equal pictures.

use std::fmt::Write as _;

use super::explain::effect_label;
use crate::composition::tool::Impact;
use crate::view::{PlanStepView, PlanView, TransitionCause};

const CHAR_WIDTH: usize = 8;
const BOX_HEIGHT: usize = 44;
const GAP_X: usize = 28;
const GAP_Y: usize = 44;
const PAD: usize = 16;
const TITLE_HEIGHT: usize = 22;

/// Draws a plan.
pub fn svg(plan: &PlanView) -> String {
    let picture = Picture::of_steps(&plan.steps);
    let (width, height) = (picture.width + 2 * PAD, picture.height + 2 * PAD);
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"ui-monospace, monospace\" font-size=\"13\">"
    );
    let _ = writeln!(out, "<title>{}</title>", escape(&plan.name));
    out.push_str(
        "<defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" \
         markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0 8 4 0 8z\" fill=\"#667\"/></marker></defs>\n",
    );
    let _ = writeln!(out, "<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>");
    picture.draw(PAD, PAD, &mut out);
    out.push_str("</svg>\n");
    out
}

/// The steps of one body with their positions, relative to the body.
struct Picture<'a> {
    width: usize,
    height: usize,
    boxes: Vec<StepBox<'a>>,
    lines: Vec<Arrow>,
}

/// An arrow between two boxes.
struct Arrow {
    from: usize,
    to: usize,
    /// After a failure or a skip.
    dashed: bool,
    /// How far it bends around the side of the boxes; zero is straight down.
    swing: usize,
}

struct StepBox<'a> {
    step: &'a PlanStepView,
    x: usize,
    y: usize,
    width: usize,
    height: usize,
    inner: Vec<(&'a str, Picture<'a>)>,
}

impl<'a> Picture<'a> {
    fn of_steps(steps: &'a [PlanStepView]) -> Picture<'a> {
        let mut boxes: Vec<StepBox<'a>> = steps.iter().map(StepBox::of).collect();
        let is_program = steps.iter().any(|step| !step.ways.is_empty());
        let lines = if is_program { ways(steps) } else { needs(steps) };
        let levels =
            if is_program { (0..steps.len()).collect() } else { levels(steps.len(), &lines) };
        let rows = levels.iter().max().map_or(0, |max| max + 1);
        let (mut y, mut width) = (0, 0);
        for row in 0..rows {
            let (mut x, mut height) = (0, 0);
            for (at, placed) in boxes.iter_mut().enumerate() {
                if levels[at] == row {
                    (placed.x, placed.y) = (x, y);
                    x += placed.width + GAP_X;
                    height = height.max(placed.height);
                }
            }
            width = width.max(x.saturating_sub(GAP_X));
            y += height + GAP_Y;
        }
        center_rows(&mut boxes, &levels, rows, width);
        width += lines.iter().map(|line| line.swing).max().unwrap_or(0);
        Picture { width, height: y.saturating_sub(GAP_Y), boxes, lines }
    }

    fn draw(&self, x: usize, y: usize, out: &mut String) {
        for Arrow { from, to, dashed, swing } in &self.lines {
            let (from, to) = (&self.boxes[*from], &self.boxes[*to]);
            let curve = if *swing == 0 {
                let (x1, y1) = (x + from.x + from.width / 2, y + from.y + from.height);
                let (x2, y2) = (x + to.x + to.width / 2, y + to.y);
                let middle = usize::midpoint(y1, y2);
                format!("M{x1} {y1}C{x1} {middle} {x2} {middle} {x2} {y2}")
            } else {
                let (x1, y1) = (x + from.x + from.width, y + from.y + from.height / 2);
                let (x2, y2) = (x + to.x + to.width, y + to.y + to.height / 2);
                let side = x1.max(x2) + swing;
                format!("M{x1} {y1}C{side} {y1} {side} {y2} {x2} {y2}")
            };
            let dashes = if *dashed { " stroke-dasharray=\"5 4\"" } else { "" };
            let _ = writeln!(
                out,
                "<path d=\"{curve}\" fill=\"none\" stroke=\"#667\"{dashes} marker-end=\"url(#arrow)\"/>"
            );
        }
        for placed in &self.boxes {
            placed.draw(x, y, out);
        }
    }
}

fn position(steps: &[PlanStepView], id: &str) -> Option<usize> {
    steps.iter().position(|step| &*step.id == id)
}

fn needs(steps: &[PlanStepView]) -> Vec<Arrow> {
    let lines = steps.iter().enumerate().flat_map(|(to, step)| {
        let from = step.needs.iter().filter_map(|need| position(steps, need));
        from.map(move |from| Arrow { from, to, dashed: false, swing: 0 })
    });
    lines.collect()
}

/// The transitions of a program. An arrow that does not lead to the next row bends around the
/// boxes, the wider the further it leads.
fn ways(steps: &[PlanStepView]) -> Vec<Arrow> {
    let lines = steps.iter().enumerate().flat_map(|(from, step)| {
        let to = step
            .ways
            .iter()
            .filter_map(move |way| Some((way.after, position(steps, way.to.as_deref()?)?)));
        to.map(move |(after, to)| {
            let rows = from.abs_diff(to).min(8);
            let swing = if to == from + 1 { 0 } else { GAP_X + rows * PAD };
            Arrow { from, to, dashed: after != TransitionCause::Success, swing }
        })
    });
    lines.collect()
}

impl<'a> StepBox<'a> {
    fn of(step: &'a PlanStepView) -> StepBox<'a> {
        let inner: Vec<(&str, Picture<'a>)> =
            step.bodies.iter().map(|b| (b.label.as_str(), Picture::of_steps(&b.steps))).collect();
        let own =
            step.id.chars().count().max(subtitle(step).chars().count()) * CHAR_WIDTH + 2 * PAD;
        let inner_width: usize =
            inner.iter().map(|(label, p)| label_width(label).max(p.width) + PAD).sum();
        let inner_height =
            inner.iter().map(|(_, picture)| picture.height + TITLE_HEIGHT + PAD).max().unwrap_or(0);
        let width = own.max(inner_width + PAD);
        StepBox { step, x: 0, y: 0, width, height: BOX_HEIGHT + inner_height, inner }
    }

    fn draw(&self, x: usize, y: usize, out: &mut String) {
        let (x, y) = (x + self.x, y + self.y);
        let (fill, stroke) = colours(self.step.effect);
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" rx=\"6\" fill=\"{fill}\" stroke=\"{stroke}\"/>",
            self.width, self.height
        );
        let text_x = x + PAD;
        let _ = writeln!(
            out,
            "<text x=\"{text_x}\" y=\"{}\" font-weight=\"bold\">{}</text>",
            y + 18,
            escape(&self.step.id)
        );
        let _ = writeln!(
            out,
            "<text x=\"{text_x}\" y=\"{}\" fill=\"#556\">{}</text>",
            y + 35,
            escape(&subtitle(self.step))
        );
        let mut inner_x = x + PAD;
        for (label, picture) in &self.inner {
            let top = y + BOX_HEIGHT;
            let _ = writeln!(
                out,
                "<text x=\"{inner_x}\" y=\"{}\" fill=\"#556\" font-style=\"italic\">{}</text>",
                top + 14,
                escape(label)
            );
            picture.draw(inner_x, top + TITLE_HEIGHT, out);
            inner_x += label_width(label).max(picture.width) + PAD;
        }
    }
}

fn label_width(label: &str) -> usize {
    label.chars().count() * CHAR_WIDTH
}

fn subtitle(step: &PlanStepView) -> String {
    format!("{} · {}", step.tool.as_deref().unwrap_or(step.kind), effect_label(step.effect))
}

/// The box also has the word, so colour is not the only sign.
fn colours(effect: Impact) -> (&'static str, &'static str) {
    match effect {
        Impact::None => ("#f4f4f7", "#99a"),
        Impact::Reads => ("#eef6ff", "#4a86c5"),
        Impact::Writes => ("#fff7e6", "#c08a1e"),
        Impact::Destroys => ("#ffeceb", "#c0392b"),
        Impact::Unknown => ("#f6eefc", "#8e5bb5"),
    }
}

/// The minimal number of boxes above each; lines lead from earlier to later steps.
fn levels(count: usize, lines: &[Arrow]) -> Vec<usize> {
    let mut below = vec![Vec::new(); count];
    let mut above = vec![0usize; count];
    for Arrow { from, to, .. } in lines {
        below[*from].push(*to);
        above[*to] += 1;
    }
    let mut levels = vec![0; count];
    let mut free: Vec<usize> = (0..count).filter(|at| above[*at] == 0).collect();
    while let Some(at) = free.pop() {
        for next in &below[at] {
            levels[*next] = levels[*next].max(levels[at] + 1);
            above[*next] -= 1;
            if above[*next] == 0 {
                free.push(*next);
            }
        }
    }
    levels
}

fn center_rows(boxes: &mut [StepBox<'_>], levels: &[usize], rows: usize, width: usize) {
    let mut ends = vec![0; rows];
    for (placed, level) in boxes.iter().zip(levels) {
        ends[*level] = ends[*level].max(placed.x + placed.width);
    }
    for (placed, level) in boxes.iter_mut().zip(levels) {
        placed.x += (width - ends[*level]) / 2;
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
