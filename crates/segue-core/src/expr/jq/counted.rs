//! jq values that charge the budget for every operation on them.
//!
//! A wrapper around a value of the jq library that the library treats as the value itself. Every
//! copy is an operation, so no loop is free. Operations that create data charge for it first;
//! operations that read whole values charge while they read.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, Div, Mul, Neg, Rem, Sub};

use jaq_core::path::Opt;
use jaq_core::val::Range;
use jaq_core::{Exn, ValR, ValT, ValX};
use jaq_json::{Map, Num, Rc, Val};
use jaq_std::ValT as StdT;

use crate::budget::{
    BYTES_PER_OPERATION, BudgetExceeded, charge_or_unwind, spend_or_unwind, unwind,
};

/// Maximum nesting of arrays and objects. The library recurses as deep as values nest.
pub(super) const DEPTH_MAX: usize = 128;

/// Maximum size of an integer, in bits.
const NUMBER_BITS_MAX: u64 = 1 << 16;

/// Bytes of an array item.
const ITEM_BYTES: usize = std::mem::size_of::<Val>();

/// Bytes of an object member.
const MEMBER_BYTES: usize = 3 * ITEM_BYTES;

pub(super) type JqValueError = jaq_core::Error<MeteredValue>;
type Boxed<T> = Box<dyn Iterator<Item = T>>;

/// A value that charges for operations on it.
#[derive(Debug)]
pub(super) struct MeteredValue {
    val: Val,
    /// An upper bound of its depth: a value taken out of it is assumed to be one level less deep.
    depth: usize,
}

impl MeteredValue {
    /// A value from outside; its depth is measured.
    pub(super) fn new(val: Val) -> MeteredValue {
        let depth = weigh(&val).1;
        MeteredValue { val, depth }
    }

    pub(super) fn val(&self) -> &Val {
        &self.val
    }

    fn flat(val: Val) -> MeteredValue {
        MeteredValue { val, depth: 0 }
    }

    /// A value of at most this depth. It is measured only if the bound exceeds the limit.
    fn within(val: Val, depth: usize) -> MeteredValue {
        let depth = if depth > DEPTH_MAX { weigh(&val).1 } else { depth };
        MeteredValue { val, depth }
    }

    fn inside(&self, val: Val) -> MeteredValue {
        MeteredValue { val, depth: self.depth.saturating_sub(1) }
    }

    /// The library's result, with its own error message.
    fn outcome(result: jaq_json::ValR, depth: usize) -> ValR<MeteredValue> {
        match result {
            Ok(val) => Ok(MeteredValue::within(val, depth)),
            Err(error) => Err(JqValueError::new(MeteredValue::new(error.into_val()))),
        }
    }

    pub(super) fn text(&self) -> Option<&[u8]> {
        match &self.val {
            Val::TStr(text) | Val::BStr(text) => Some(text),
            _ => None,
        }
    }

    fn iterable(self) -> JqValueError {
        JqValueError::typ(self, "iterable (array or object)")
    }

    /// Charges for reading all of it, and for its text.
    pub(super) fn charge_text(&self) {
        charge_or_unwind(weigh(&self.val).0);
    }

    fn position(index: &MeteredValue, length: usize) -> Option<usize> {
        let index = index.val.as_isize()?;
        let from_end = index < 0;
        let index = index.unsigned_abs();
        let at = if from_end { length.checked_sub(index)? } else { index };
        (at < length).then_some(at)
    }
}

/// The text size and the depth of a value, charging for each part.
fn weigh(val: &Val) -> (usize, usize) {
    fn walk(val: &Val, depth: usize) -> (usize, usize) {
        if depth > DEPTH_MAX {
            unwind(BudgetExceeded::Depth(DEPTH_MAX));
        }
        spend_or_unwind(1);
        match val {
            Val::Null | Val::Bool(_) => (5, 0),
            Val::Num(Num::BigInt(int)) => {
                (usize::try_from(int.bits() / 3).unwrap_or(usize::MAX), 0)
            }
            Val::Num(Num::Dec(text)) => (text.len(), 0),
            Val::Num(_) => (24, 0),
            Val::BStr(text) | Val::TStr(text) => {
                spend_or_unwind((text.len() / BYTES_PER_OPERATION) as u64);
                (text.len() + 2, 0)
            }
            Val::Arr(items) => {
                items.iter().fold((2, 1), |sum, item| join(sum, walk(item, depth + 1)))
            }
            Val::Obj(members) => members.iter().fold((2, 1), |sum, (key, member)| {
                join(join(sum, walk(key, depth + 1)), walk(member, depth + 1))
            }),
        }
    }
    fn join((bytes, depth): (usize, usize), (more, inner): (usize, usize)) -> (usize, usize) {
        (bytes.saturating_add(more).saturating_add(1), depth.max(inner + 1))
    }
    walk(val, 0)
}

/// Compares two values, charging for the parts that it reads.
pub(super) fn order(one: &Val, other: &Val) -> Ordering {
    spend_or_unwind(1);
    match (one, other) {
        (Val::Arr(one), Val::Arr(other)) => {
            let orders = one.iter().zip(other.iter()).map(|(one, other)| order(one, other));
            let first = orders.into_iter().find(|order| order.is_ne());
            first.unwrap_or_else(|| one.len().cmp(&other.len()))
        }
        (Val::Obj(one), Val::Obj(other)) => order_members(one, other),
        (Val::BStr(one) | Val::TStr(one), Val::BStr(other) | Val::TStr(other)) => {
            spend_or_unwind((one.len().min(other.len()) / BYTES_PER_OPERATION) as u64);
            one.cmp(other)
        }
        (one, other) => one.cmp(other),
    }
}

fn order_members(one: &Map, other: &Map) -> Ordering {
    spend_or_unwind((one.len() + other.len()) as u64);
    let sorted = |members: &Map| {
        let mut members: Vec<(Val, Val)> =
            members.iter().map(|(key, member)| (key.clone(), member.clone())).collect();
        members.sort_by(|(one, _), (other, _)| order(one, other));
        members
    };
    let (one, other) = (sorted(one), sorted(other));
    let keys = one.iter().zip(&other).map(|((one, _), (other, _))| order(one, other));
    let keys = keys.into_iter().find(|order| order.is_ne());
    let keys = keys.unwrap_or_else(|| one.len().cmp(&other.len()));
    let members = || {
        let orders = one.iter().zip(&other).map(|((_, one), (_, other))| order(one, other));
        orders.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    };
    keys.then_with(members)
}

/// Whether two values are equal, charging for the parts that it reads.
pub(super) fn same(one: &Val, other: &Val) -> bool {
    spend_or_unwind(1);
    match (one, other) {
        (Val::Arr(one), Val::Arr(other)) => {
            one.len() == other.len() && one.iter().zip(other.iter()).all(|(a, b)| same(a, b))
        }
        (Val::Obj(one), Val::Obj(other)) => {
            let is_there =
                |(key, member): (&Val, &Val)| other.get(key).is_some_and(|o| same(member, o));
            one.len() == other.len() && one.iter().all(is_there)
        }
        (Val::BStr(text) | Val::TStr(text), _) => {
            spend_or_unwind((text.len() / BYTES_PER_OPERATION) as u64);
            one == other
        }
        (one, other) => one == other,
    }
}

/// Charges for copying a shared list or object.
fn pay_for_copy(val: &Val) {
    match val {
        Val::Arr(items) if Rc::strong_count(items) > 1 => {
            spend_or_unwind(1 + items.len() as u64 / 8);
        }
        Val::Obj(members) if Rc::strong_count(members) > 1 => {
            spend_or_unwind(1 + members.len() as u64);
        }
        _ => spend_or_unwind(1),
    }
}

/// Charges for a sum: for the right side, and for the left one if it must be copied.
fn pay_for_sum(left: &Val, right: &Val) {
    spend_or_unwind(1);
    match (left, right) {
        (Val::Arr(left), Val::Arr(right)) => {
            let kept = if Rc::strong_count(left) == 1 { 0 } else { left.len() };
            charge_or_unwind((kept + right.len()).saturating_mul(ITEM_BYTES));
        }
        (Val::Obj(left), Val::Obj(right)) => {
            let kept = if Rc::strong_count(left) == 1 { 0 } else { left.len() };
            charge_or_unwind((kept + right.len()).saturating_mul(MEMBER_BYTES));
        }
        (Val::TStr(left) | Val::BStr(left), Val::TStr(right) | Val::BStr(right)) => {
            let kept = if left.is_unique() { 0 } else { left.len() };
            charge_or_unwind(kept + right.len());
        }
        (Val::Num(left), Val::Num(right)) => pay_for_digits(left, right),
        _ => {}
    }
}

/// Rejects integers with very many digits, and charges for long ones.
fn pay_for_digits(left: &Num, right: &Num) {
    let bits = |number: &Num| match number {
        Num::BigInt(int) => int.bits(),
        _ => 0,
    };
    let (left, right) = (bits(left), bits(right));
    if left.saturating_add(right) > NUMBER_BITS_MAX {
        unwind(BudgetExceeded::Bytes(usize::try_from(NUMBER_BITS_MAX / 8).unwrap_or(usize::MAX)));
    }
    spend_or_unwind(1 + (left / 64) * (right / 64) / 64);
}

fn pay_for_product(left: &Val, right: &Val) {
    match (left, right) {
        (Val::Num(left), Val::Num(right)) => pay_for_digits(left, right),
        (Val::TStr(text) | Val::BStr(text), Val::Num(times))
        | (Val::Num(times), Val::TStr(text) | Val::BStr(text)) => {
            let times = match times {
                Num::Int(times) => usize::try_from(*times).unwrap_or(0),
                _ => usize::MAX,
            };
            charge_or_unwind(text.len().saturating_mul(times));
        }
        (Val::Obj(_), Val::Obj(_)) => {
            let (left, right) = (weigh(left).0, weigh(right).0);
            charge_or_unwind(left.saturating_add(right));
        }
        _ => spend_or_unwind(1),
    }
}

impl Clone for MeteredValue {
    fn clone(&self) -> MeteredValue {
        spend_or_unwind(1);
        MeteredValue { val: self.val.clone(), depth: self.depth }
    }
}

impl fmt::Display for MeteredValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.charge_text();
        self.val.fmt(f)
    }
}

impl PartialEq for MeteredValue {
    fn eq(&self, other: &MeteredValue) -> bool {
        same(&self.val, &other.val)
    }
}

impl Eq for MeteredValue {}

impl PartialOrd for MeteredValue {
    fn partial_cmp(&self, other: &MeteredValue) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for MeteredValue {
    fn cmp(&self, other: &MeteredValue) -> Ordering {
        order(&self.val, &other.val)
    }
}

impl From<bool> for MeteredValue {
    fn from(bool: bool) -> MeteredValue {
        MeteredValue::flat(bool.into())
    }
}

impl From<isize> for MeteredValue {
    fn from(int: isize) -> MeteredValue {
        MeteredValue::flat(int.into())
    }
}

impl From<usize> for MeteredValue {
    fn from(int: usize) -> MeteredValue {
        MeteredValue::flat(int.into())
    }
}

impl From<f64> for MeteredValue {
    fn from(float: f64) -> MeteredValue {
        MeteredValue::flat(float.into())
    }
}

impl From<String> for MeteredValue {
    fn from(text: String) -> MeteredValue {
        charge_or_unwind(text.len());
        MeteredValue::flat(text.into())
    }
}

impl From<Range<MeteredValue>> for MeteredValue {
    fn from(range: Range<MeteredValue>) -> MeteredValue {
        let depth = |bound: &Option<MeteredValue>| bound.as_ref().map_or(0, |bound| bound.depth);
        let depth = 1 + depth(&range.start).max(depth(&range.end));
        let val = |bound: Option<MeteredValue>| bound.map(|bound| bound.val);
        MeteredValue::within(Val::from(val(range.start)..val(range.end)), depth)
    }
}

impl FromIterator<MeteredValue> for MeteredValue {
    fn from_iter<T: IntoIterator<Item = MeteredValue>>(items: T) -> MeteredValue {
        let mut depth = 1;
        let val = items.into_iter().map(|item| {
            charge_or_unwind(ITEM_BYTES);
            depth = depth.max(item.depth + 1);
            item.val
        });
        let val = val.collect();
        MeteredValue::within(val, depth)
    }
}

macro_rules! operator {
    ($trait:ident $method:ident $pay:expr) => {
        impl $trait for MeteredValue {
            type Output = ValR<MeteredValue>;

            fn $method(self, right: MeteredValue) -> ValR<MeteredValue> {
                let pay: fn(&Val, &Val) = $pay;
                pay(&self.val, &right.val);
                let depth = self.depth.max(right.depth);
                MeteredValue::outcome(self.val.$method(right.val), depth)
            }
        }
    };
}

operator!(Add add pay_for_sum);
operator!(Mul mul pay_for_product);
operator!(Rem rem |left, right| match (left, right) {
    (Val::Num(left), Val::Num(right)) => pay_for_digits(left, right),
    _ => spend_or_unwind(1),
});

impl Sub for MeteredValue {
    type Output = ValR<MeteredValue>;

    fn sub(self, right: MeteredValue) -> ValR<MeteredValue> {
        match (&self.val, &right.val) {
            // The library would compare without a charge.
            (Val::Arr(left), Val::Arr(gone)) => {
                let mut gone: Vec<&Val> = gone.iter().collect();
                gone.sort_by(|one, other| order(one, other));
                let stays = |item: &&Val| gone.binary_search_by(|gone| order(gone, item)).is_err();
                let items = left.iter().filter(stays).map(|item| self.inside(item.clone()));
                Ok(items.collect())
            }
            (left, gone) => {
                pay_for_sum(left, gone);
                MeteredValue::outcome(self.val - right.val, self.depth)
            }
        }
    }
}

impl Div for MeteredValue {
    type Output = ValR<MeteredValue>;

    fn div(self, right: MeteredValue) -> ValR<MeteredValue> {
        match (&self.val, &right.val) {
            (Val::TStr(text), Val::TStr(by)) => {
                spend_or_unwind((by.len() / BYTES_PER_OPERATION) as u64);
                let parts = if by.is_empty() {
                    text.len()
                } else {
                    let by = String::from_utf8_lossy(by);
                    String::from_utf8_lossy(text).matches(&*by).count() + 1
                };
                // Each part is a string of its own, beside the whole.
                charge_or_unwind(text.len().saturating_add(parts.saturating_mul(MEMBER_BYTES)));
            }
            (Val::Num(left), Val::Num(right)) => pay_for_digits(left, right),
            _ => spend_or_unwind(1),
        }
        MeteredValue::outcome(self.val / right.val, 1)
    }
}

impl Neg for MeteredValue {
    type Output = ValR<MeteredValue>;

    fn neg(self) -> ValR<MeteredValue> {
        spend_or_unwind(1);
        MeteredValue::outcome(-self.val, self.depth)
    }
}

impl ValT for MeteredValue {
    fn from_num(text: &str) -> ValR<MeteredValue> {
        charge_or_unwind(text.len());
        if (text.len() as u64).saturating_mul(3) > NUMBER_BITS_MAX {
            unwind(BudgetExceeded::Bytes(text.len()));
        }
        MeteredValue::outcome(Val::from_num(text), 0)
    }

    fn from_map<I: IntoIterator<Item = (MeteredValue, MeteredValue)>>(
        members: I,
    ) -> ValR<MeteredValue> {
        let mut depth = 1;
        let mut map = Map::default();
        for (key, member) in members {
            charge_or_unwind(MEMBER_BYTES);
            // The library accepts any value as a key, and would traverse it.
            if key.text().is_none() {
                return Err(JqValueError::typ(key, "string"));
            }
            depth = depth.max(member.depth + 1);
            map.insert(key.val, member.val);
        }
        Ok(MeteredValue::within(Val::obj(map), depth))
    }

    fn key_values(
        self,
    ) -> jaq_core::box_iter::BoxIter<'static, ValR<(MeteredValue, MeteredValue), MeteredValue>>
    {
        pay_for_copy(&self.val);
        if !matches!(self.val, Val::Arr(_) | Val::Obj(_)) {
            return Box::new(std::iter::once(Err(self.iterable())));
        }
        let depth = self.depth.saturating_sub(1);
        Box::new(self.val.key_values().map(move |pair| match pair {
            Ok((key, val)) => {
                spend_or_unwind(1);
                Ok((MeteredValue::flat(key), MeteredValue { val, depth }))
            }
            Err(error) => Err(JqValueError::new(MeteredValue::new(error.into_val()))),
        }))
    }

    fn values(self) -> Boxed<ValR<MeteredValue>> {
        pay_for_copy(&self.val);
        if !matches!(self.val, Val::Arr(_) | Val::Obj(_)) {
            return Box::new(std::iter::once(Err(self.iterable())));
        }
        let depth = self.depth.saturating_sub(1);
        Box::new(self.val.values().map(move |val| {
            spend_or_unwind(1);
            MeteredValue::outcome(val, depth)
        }))
    }

    fn index(self, index: &MeteredValue) -> ValR<MeteredValue> {
        spend_or_unwind(1);
        match (&self.val, &index.val) {
            // Searching a list in a list is done here, because the library does it without a
            // charge.
            (Val::Arr(_), Val::Arr(_)) => super::natives::indices(&self, index),
            // Keys are strings; other values are rejected without traversing them.
            (Val::Obj(_), key) if !matches!(key, Val::TStr(_) | Val::BStr(_)) => {
                Err(JqValueError::index(self, index.clone()))
            }
            _ => {
                let depth = self.depth.saturating_sub(1);
                MeteredValue::outcome(self.val.index(&index.val), depth)
            }
        }
    }

    fn range(self, range: Range<&MeteredValue>) -> ValR<MeteredValue> {
        match &self.val {
            Val::Arr(items) => charge_or_unwind(items.len().saturating_mul(ITEM_BYTES)),
            Val::TStr(text) | Val::BStr(text) => {
                spend_or_unwind((text.len() / BYTES_PER_OPERATION) as u64);
            }
            _ => spend_or_unwind(1),
        }
        let val = |bound: Option<&MeteredValue>| bound.map(|bound| bound.val.clone());
        let (start, end) = (val(range.start), val(range.end));
        MeteredValue::outcome(self.val.range(start.as_ref()..end.as_ref()), self.depth)
    }

    fn map_values<'a, I: Iterator<Item = ValX<'a, MeteredValue>>>(
        self,
        opt: Opt,
        f: impl Fn(MeteredValue) -> I,
    ) -> ValX<'a, MeteredValue> {
        pay_for_copy(&self.val);
        let depth = self.depth.saturating_sub(1);
        match self.val {
            Val::Arr(items) => {
                let items = items.iter().map(|item| MeteredValue { val: item.clone(), depth });
                items.flat_map(f).collect()
            }
            Val::Obj(members) => {
                let members = members.iter().filter_map(|(key, member)| {
                    let member = f(MeteredValue { val: member.clone(), depth }).next()?;
                    Some(member.map(|member| (MeteredValue::flat(key.clone()), member)))
                });
                let members: Vec<(MeteredValue, MeteredValue)> =
                    members.collect::<Result<_, Exn<'_, _>>>()?;
                Ok(MeteredValue::from_map(members)?)
            }
            val => opt.fail(MeteredValue::flat(val), |value| Exn::from(value.iterable())),
        }
    }

    fn map_index<'a, I: Iterator<Item = ValX<'a, MeteredValue>>>(
        self,
        index: &MeteredValue,
        opt: Opt,
        f: impl Fn(MeteredValue) -> I,
    ) -> ValX<'a, MeteredValue> {
        if let (Val::TStr(_) | Val::BStr(_) | Val::Arr(_), Val::Obj(bounds)) =
            (&self.val, &index.val)
        {
            let bound = |name: &str| bounds.get(&Val::utf8_str(name.to_owned()));
            let bound = |name: &str| bound(name).cloned().map(MeteredValue::flat);
            let (start, end) = (bound("start"), bound("end"));
            return self.map_range(start.as_ref()..end.as_ref(), opt, f);
        }
        pay_for_copy(&self.val);
        let inner = self.depth.saturating_sub(1);
        match (self.val, &index.val) {
            (Val::Obj(mut members), Val::TStr(_) | Val::BStr(_)) => {
                let map = Rc::make_mut(&mut members);
                let before = map.get_mut(&index.val).map(std::mem::take);
                let is_new = before.is_none();
                let before = MeteredValue { val: before.unwrap_or_default(), depth: inner };
                let after = f(before).next().transpose()?;
                let depth = after.as_ref().map_or(0, |after| after.depth + 1).max(self.depth);
                match after {
                    Some(after) => {
                        charge_or_unwind(if is_new { MEMBER_BYTES } else { 0 });
                        map.insert(index.val.clone(), after.val);
                    }
                    None => drop(map.swap_remove(&index.val)),
                }
                Ok(MeteredValue::within(Val::Obj(members), depth))
            }
            (Val::Arr(mut items), _) => {
                let Some(at) = MeteredValue::position(index, items.len()) else {
                    let wrong = || JqValueError::str(format_args!("index {index} out of bounds"));
                    let items = MeteredValue { val: Val::Arr(items), depth: self.depth };
                    return opt.fail(items, |_| Exn::from(wrong()));
                };
                let list = Rc::make_mut(&mut items);
                let before = MeteredValue { val: std::mem::take(&mut list[at]), depth: inner };
                let after = f(before).next().transpose()?;
                let depth = after.as_ref().map_or(0, |after| after.depth + 1).max(self.depth);
                match after {
                    Some(after) => list[at] = after.val,
                    None => {
                        spend_or_unwind(list.len() as u64 / 8);
                        list.remove(at);
                    }
                }
                Ok(MeteredValue::within(Val::Arr(items), depth))
            }
            (val, _) => opt
                .fail(MeteredValue { val, depth: self.depth }, |value| Exn::from(value.iterable())),
        }
    }

    /// The part before, the new middle part, and the part after.
    fn map_range<'a, I: Iterator<Item = ValX<'a, MeteredValue>>>(
        self,
        range: Range<&MeteredValue>,
        opt: Opt,
        f: impl Fn(MeteredValue) -> I,
    ) -> ValX<'a, MeteredValue> {
        let part = match self.clone().range(range.start..range.end) {
            Ok(part) => part,
            Err(error) => return opt.fail(self, |_| Exn::from(error)),
        };
        let is_empty = match &part.val {
            Val::Arr(items) => items.is_empty(),
            _ => part.text().is_none_or(<[u8]>::is_empty),
        };
        let first = MeteredValue::from(0isize);
        let nothing = range.start.is_none_or(|start| start.val == Val::Null);
        let before = if nothing { Some(&first) } else { range.start };
        let before = self.clone().range(None..before)?;
        let behind = match (is_empty, range.end.filter(|end| end.val != Val::Null)) {
            (true, _) => self.range(if nothing { None..None } else { range.start..None })?,
            (false, Some(end)) => self.range(Some(end)..None)?,
            (false, None) => self.range(Some(&first)..Some(&first))?,
        };
        let sum = match f(part).next().transpose()? {
            Some(part) => (before + part)?,
            None => before,
        };
        Ok((sum + behind)?)
    }

    fn as_bool(&self) -> bool {
        self.val.as_bool()
    }

    fn into_string(self) -> MeteredValue {
        match self.val {
            Val::BStr(text) | Val::TStr(text) => MeteredValue::flat(Val::TStr(text)),
            _ => {
                self.charge_text();
                MeteredValue::flat(self.val.into_string())
            }
        }
    }
}

impl StdT for MeteredValue {
    fn into_seq<S: FromIterator<MeteredValue>>(self) -> Result<S, MeteredValue> {
        pay_for_copy(&self.val);
        let inner = self.depth.saturating_sub(1);
        match self.val {
            Val::Arr(items) => {
                charge_or_unwind(items.len().saturating_mul(2 * ITEM_BYTES));
                Ok(items
                    .iter()
                    .map(|item| MeteredValue { val: item.clone(), depth: inner })
                    .collect())
            }
            val => Err(MeteredValue { val, depth: self.depth }),
        }
    }

    fn is_int(&self) -> bool {
        self.val.is_int()
    }

    fn as_isize(&self) -> Option<isize> {
        self.val.as_isize()
    }

    fn as_f64(&self) -> Option<f64> {
        self.val.as_f64()
    }

    fn is_utf8_str(&self) -> bool {
        self.val.is_utf8_str()
    }

    /// A caller of this reads all bytes.
    fn as_bytes(&self) -> Option<&[u8]> {
        let bytes = self.val.as_bytes()?;
        spend_or_unwind(1 + (bytes.len() / BYTES_PER_OPERATION) as u64);
        Some(bytes)
    }

    fn as_sub_str(&self, sub: &[u8]) -> MeteredValue {
        charge_or_unwind(MEMBER_BYTES);
        MeteredValue::flat(self.val.as_sub_str(sub))
    }

    fn from_utf8_bytes(bytes: impl AsRef<[u8]> + Send + 'static) -> MeteredValue {
        charge_or_unwind(bytes.as_ref().len());
        MeteredValue::flat(Val::from_utf8_bytes(bytes))
    }
}
