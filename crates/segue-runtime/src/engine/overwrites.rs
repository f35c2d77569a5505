//! Which compositions may overwrite files without asking.

use std::sync::Arc;

use segue_core::composition::Composition;
use segue_core::plan::Plan;

use super::Engine;

/// Whose `overwrites` field takes effect, among the engine's compositions.
#[derive(Clone, Default)]
pub(super) enum OverwriteTrust {
    /// Every composition's.
    #[default]
    Trusted,
    /// Those of compositions for which this function returns true.
    TrustedIf(Arc<dyn Fn(&Composition) -> bool + Send + Sync>),
}

impl OverwriteTrust {
    fn is_trusted(&self, composition: &Composition) -> bool {
        match self {
            OverwriteTrust::Trusted => true,
            OverwriteTrust::TrustedIf(is_trusted) => is_trusted(composition),
        }
    }
}

impl Engine {
    /// Whether a plan belongs to a composition of this engine that is trusted to overwrite files.
    pub(super) fn trusts(&self, plan: &Plan) -> bool {
        let Composition { name, source, overwrites, .. } = &*plan.composition;
        let is_it =
            |own: &&Arc<Composition>| own.name == *name && own.source.text() == source.text();
        !overwrites.is_empty()
            && self.own_compositions().find(is_it).is_some_and(|own| {
                // The decision uses the engine's own copy, whose source names the file.
                self.inner.overwrites.is_trusted(own)
            })
    }

    fn own_compositions(&self) -> impl Iterator<Item = &Arc<Composition>> {
        self.inner.catalog.tools().filter_map(|tool| tool.composition.as_ref())
    }

    /// The files of compositions whose `overwrites` field has no effect.
    pub fn untrusted_overwrites(&self) -> Vec<Arc<str>> {
        let lists = self.own_compositions().filter(|own| !own.overwrites.is_empty());
        let untrusted = lists.filter(|own| !self.inner.overwrites.is_trusted(own));
        untrusted.map(|own| own.source.name().clone()).collect()
    }
}
