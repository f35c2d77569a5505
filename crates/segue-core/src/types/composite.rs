//! The parts of a type that is made of others, with a digest and a size that are computed once.
//!
//! Types are shared, so a short text can make a type whose tree has more nodes than there is memory. The
//! size keeps such types out ([`Composite::is_small`]), and the digest lets a comparison of different types
//! end at once.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::ops::Deref;
use std::sync::Arc;

use super::{ObjectType, OtherProperties, Type};
use crate::limits::{TYPE_DEPTH_MAX, TYPE_NODES_MAX};

/// A part of a type that cannot be changed.
#[derive(Clone, Debug)]
pub struct Composite<T> {
    parts: T,
    digest: u64,
    size: TypeSize,
}

/// How large the tree of a type is; shared parts count each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TypeSize {
    pub(crate) nodes: usize,
    pub(crate) depth: usize,
}

impl TypeSize {
    const ONE: TypeSize = TypeSize { nodes: 1, depth: 1 };

    fn around(inner: impl IntoIterator<Item = TypeSize>) -> TypeSize {
        inner.into_iter().fold(TypeSize::ONE, |whole, part| TypeSize {
            nodes: whole.nodes.saturating_add(part.nodes),
            depth: whole.depth.max(part.depth + 1),
        })
    }
}

impl<T> Composite<T> {
    /// Whether the type is small enough to be compared, shown and written as a schema.
    pub(super) fn is_small(&self) -> bool {
        self.size.nodes <= TYPE_NODES_MAX && self.size.depth <= TYPE_DEPTH_MAX
    }
}

impl<T> Deref for Composite<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.parts
    }
}

impl<T: PartialEq> PartialEq for Composite<T> {
    fn eq(&self, other: &Composite<T>) -> bool {
        let is_same = std::ptr::eq(self, other);
        is_same || (self.digest == other.digest && self.parts == other.parts)
    }
}

impl Composite<Type> {
    pub(super) fn array(item: Type) -> Arc<Composite<Type>> {
        let (digest, size) = (digest([item.digest()]), TypeSize::around([item.size()]));
        Arc::new(Composite { parts: item, digest, size })
    }
}

impl Composite<Vec<Type>> {
    pub(super) fn one_of(parts: Vec<Type>) -> Arc<Composite<Vec<Type>>> {
        let digest = digest(parts.iter().map(Type::digest));
        let size = TypeSize::around(parts.iter().map(Type::size));
        Arc::new(Composite { parts, digest, size })
    }
}

impl Composite<ObjectType> {
    pub(super) fn object(parts: ObjectType) -> Arc<Composite<ObjectType>> {
        let mut hasher = DefaultHasher::new();
        for (name, property) in &parts.properties {
            (name, property.required, property.ty.digest()).hash(&mut hasher);
        }
        let rest = parts.rest.ty().map(Type::digest);
        (std::mem::discriminant(&parts.rest), rest).hash(&mut hasher);
        let types = parts.properties.values().map(|property| &property.ty).chain(parts.rest.ty());
        let (digest, size) = (hasher.finish(), TypeSize::around(types.map(Type::size)));
        Arc::new(Composite { parts, digest, size })
    }
}

impl OtherProperties {
    fn ty(&self) -> Option<&Type> {
        match self {
            OtherProperties::Open(ty) => Some(ty),
            OtherProperties::Closed | OtherProperties::Unsaid => None,
        }
    }
}

impl Type {
    pub(crate) fn size(&self) -> TypeSize {
        match self {
            Type::Array(item) => item.size,
            Type::Object(object) => object.size,
            Type::OneOf(parts) => parts.size,
            _ => TypeSize::ONE,
        }
    }

    fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        std::mem::discriminant(self).hash(&mut hasher);
        match self {
            Type::Array(item) => item.digest.hash(&mut hasher),
            Type::Object(object) => object.digest.hash(&mut hasher),
            Type::OneOf(parts) => parts.digest.hash(&mut hasher),
            _ => {}
        }
        hasher.finish()
    }
}

fn digest(parts: impl IntoIterator<Item = u64>) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.into_iter().for_each(|part| part.hash(&mut hasher));
    hasher.finish()
}
