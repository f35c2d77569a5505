//! The filters, tests and functions of the expression language with their descriptions, for editors.

use super::filters;

/// A filter, test or function.
pub(crate) struct Word {
    /// Its name.
    pub(crate) name: &'static str,
    /// How it is called, with its arguments.
    pub(crate) form: &'static str,
    /// What it gives, in one line.
    pub(crate) about: &'static str,
}

macro_rules! words {
    ($($name:literal $form:literal $about:literal,)*) => {
        &[$(Word { name: $name, form: $form, about: $about },)*]
    };
}

/// Every filter, by name.
pub(crate) const FILTERS: &[Word] = words! {
    "abs" "abs" "The number without its sign.",
    "attr" "attr(name)" "A member of an object.",
    "batch" "batch(size, fill)" "A list in lists of this size.",
    "bool" "bool" "Whether the value is true.",
    "capitalize" "capitalize" "The text with a capital first letter.",
    "chain" "chain(list, …)" "Several lists one after the other.",
    "count" "count" "The number of items, members or characters.",
    "d" "d(value)" "The value, or another one if there is none.",
    "default" "default(value)" "The value, or another one if there is none.",
    "dictsort" "dictsort(by='key')" "The members of an object as sorted pairs.",
    "filter" "filter(lambda x: condition)" "The items for which a condition holds.",
    "first" "first" "The first item.",
    "float" "float" "The value as a number.",
    "groupby" "groupby(attribute)" "Items in groups of equal attributes.",
    "indent" "indent(width)" "The text with indented lines.",
    "int" "int" "The value as a whole number.",
    "items" "items" "The members of an object as pairs.",
    "join" "join(separator)" "The items of a list as one text.",
    "json_query" "json_query(program)" "The result of a jq program.",
    "last" "last" "The last item.",
    "length" "length" "The number of items, members or characters.",
    "lines" "lines" "The lines of a text.",
    "list" "list" "The value as a list.",
    "lower" "lower" "The text in lower case.",
    "map" "map(attribute=name)" "A filter, an attribute or a lambda, applied to each item.",
    "max" "max" "The greatest item.",
    "min" "min" "The least item.",
    "pprint" "pprint" "The value as readable text.",
    "reject" "reject(test)" "The items for which a test does not hold.",
    "rejectattr" "rejectattr(attribute, test)" "The items whose attribute does not pass a test.",
    "replace" "replace(old, new)" "The text with all occurrences replaced.",
    "reverse" "reverse" "The items or characters in reverse order.",
    "round" "round(precision)" "The rounded number.",
    "select" "select(test)" "The items for which a test holds.",
    "selectattr" "selectattr(attribute, test)" "The items whose attribute passes a test.",
    "slice" "slice(count)" "A list in this many lists.",
    "sort" "sort(attribute=name)" "The items in order.",
    "split" "split(separator)" "The parts of a text.",
    "string" "string" "The value as text.",
    "sum" "sum" "The sum of the items.",
    "title" "title" "The text with capital first letters.",
    "tojson" "tojson" "The value as JSON.",
    "trim" "trim" "The text without white space at its ends.",
    "unique" "unique" "The items, each once.",
    "upper" "upper" "The text in upper case.",
    "urlencode" "urlencode" "The text as a part of an address.",
    "zip" "zip(list, …)" "Items of several lists, put together by position.",
};

/// Every test, by name.
pub(crate) const TESTS: &[Word] = words! {
    "boolean" "boolean" "It is true or false.",
    "defined" "defined" "It has a value.",
    "divisibleby" "divisibleby(number)" "It is divisible by a number.",
    "endingwith" "endingwith(text)" "It ends with a text.",
    "eq" "eq(value)" "It is equal to a value.",
    "equalto" "equalto(value)" "It is equal to a value.",
    "even" "even" "It is an even number.",
    "false" "false" "It is `false`.",
    "filter" "filter" "It is the name of a filter.",
    "float" "float" "It is a number with a fraction.",
    "ge" "ge(value)" "It is at least a value.",
    "greaterthan" "greaterthan(value)" "It is greater than a value.",
    "gt" "gt(value)" "It is greater than a value.",
    "in" "in(list)" "It is in a list, an object or a text.",
    "integer" "integer" "It is a whole number.",
    "iterable" "iterable" "It has items.",
    "le" "le(value)" "It is at most a value.",
    "lessthan" "lessthan(value)" "It is less than a value.",
    "lower" "lower" "It is text in lower case.",
    "lt" "lt(value)" "It is less than a value.",
    "mapping" "mapping" "It is an object.",
    "ne" "ne(value)" "It is not equal to a value.",
    "none" "none" "It is null.",
    "number" "number" "It is a number.",
    "odd" "odd" "It is an odd number.",
    "sequence" "sequence" "It is a list.",
    "startingwith" "startingwith(text)" "It begins with a text.",
    "string" "string" "It is text.",
    "test" "test" "It is the name of a test.",
    "true" "true" "It is `true`.",
    "undefined" "undefined" "It has no value.",
    "upper" "upper" "It is text in upper case.",
};

/// Every function, by name.
pub(crate) const FUNCTIONS: &[Word] = words! {
    "dict" "dict(name=value)" "An object of named values.",
    "range" "range(start, stop, step)" "A list of numbers.",
};

/// The arguments that a filter takes by name.
pub(crate) fn named_arguments(filter: &str) -> &'static [&'static str] {
    filters::named_arguments(filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_the_language_is_described() {
        let names = |words: &[Word]| words.iter().map(|word| word.name).collect::<Vec<_>>();
        assert_eq!(names(FILTERS), filters::FILTERS);
        assert_eq!(names(TESTS), filters::TESTS);
        assert_eq!(names(FUNCTIONS), filters::FUNCTIONS);
    }
}
