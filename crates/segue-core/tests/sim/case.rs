//! A seed: its composition, compiled, and its world.

use std::sync::{Arc, OnceLock};

use segue_core::catalog::Catalog;
use segue_core::compile::{self, compile};
use segue_core::composition::Composition;
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::plan::{Plan, annotations_of, plan};
use segue_core::run::Failure;
use segue_core::schema::Schema;
use segue_core::source::Source;
use segue_core::tool::{COMPOSITION, ToolSpec};
use segue_core::value::Value;

use crate::draft::Draft;
use crate::support::catalog_of;

/// The tools of the simulator.
fn tools() -> &'static Catalog {
    static TOOLS: OnceLock<Catalog> = OnceLock::new();
    TOOLS.get_or_init(|| catalog_of(include_str!("tools.yaml")))
}

/// The plan of a draft, or its errors.
pub(crate) fn planned(draft: &Draft) -> Result<Arc<Plan>, String> {
    let limits = Limits::default();
    let mut catalog = tools().clone();
    let mut last = None;
    for (name, text) in draft.texts() {
        let compiled = compile(&Source::new("sim.yaml", text.as_str()), &catalog, &limits);
        let Some(composition) = compiled.composition else {
            let findings =
                compiled.diagnostics.iter().map(|d| format!("{}: {}", d.code, d.message));
            let findings: Vec<String> = findings.collect();
            return Err(format!("{name}: {}", findings.join("; ")));
        };
        catalog.insert(Arc::new(as_tool(&composition)));
        last = Some(composition);
    }
    let composition = last.ok_or("nothing to run")?;
    plan(&composition, &limits).map(Arc::new).map_err(|error| error.to_string())
}

/// The plan of a composition that was made at run time, or why there is none.
pub(crate) fn expanded(document: &Value) -> Result<Arc<Plan>, Failure> {
    let limits = Limits::default();
    let source = Source::new("made.json", document.to_string());
    let compiled = compile(&source, tools(), &limits);
    match compiled.composition {
        Some(composition) => Ok(Arc::new(plan(&composition, &limits).unwrap())),
        None => {
            let first = &compiled.diagnostics[0];
            Err(Failure::permanent(first.code, first.message.clone()))
        }
    }
}

/// A composition as a tool, as the engine makes one.
fn as_tool(composition: &Arc<Composition>) -> ToolSpec {
    let id = ToolId::new(COMPOSITION, &composition.name);
    let input = composition.input.clone().unwrap_or_else(Schema::any_object);
    let mut spec = ToolSpec::new(id, "a part", input);
    spec.output = Some(Arc::new(Schema::new(compile::output_type(composition).to_schema())));
    spec.annotations = annotations_of(composition);
    spec.composition = Some(composition.clone());
    spec
}
