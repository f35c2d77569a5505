//! Exposure: definitions for other hosts, the loss report, and the conversion of arguments back.

#![allow(clippy::unwrap_used, reason = "a broken fixture ends the test")]

use std::sync::Arc;

use proptest::prelude::*;
use segue_core::diagnostic::Code;
use segue_core::expose::{
    Adapter, ArgumentsEffect, Export, ExportFormat, ExposeError, Loss, LossHandling, RestoreError,
    export,
};
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::schema::Schema;
use segue_core::tool::{Annotations, Backend, ToolSpec};
use segue_core::toolset::Toolset;
use segue_core::value::Value;
use serde_json::json;

fn schema(json: serde_json::Value) -> Arc<Schema> {
    Arc::new(Schema::new(Value::from(json)))
}

fn tool(id: &str, input: serde_json::Value) -> ToolSpec {
    ToolSpec::new(ToolId::from(id), "Does it.", schema(input))
}

fn toolset(tools: impl IntoIterator<Item = ToolSpec>) -> Toolset {
    Toolset::builder("t").from_tools(tools.into_iter().map(Arc::new)).build().unwrap()
}

fn exported(tools: impl IntoIterator<Item = ToolSpec>, adapter: Adapter) -> Export {
    export(Some(&toolset(tools)), Some(adapter), &Limits::default()).unwrap()
}

fn adapters() -> Vec<Adapter> {
    let strict = ExportFormat::ALL.iter().filter_map(|format| Adapter::strict(*format));
    ExportFormat::ALL.iter().map(|format| Adapter::new(*format)).chain(strict).collect()
}

fn plain(format: ExportFormat) -> Adapter {
    Adapter::new(format)
}

fn strict(format: ExportFormat) -> Adapter {
    Adapter::strict(format).unwrap()
}

fn json_of(value: &Value) -> serde_json::Value {
    serde_json::Value::from(value)
}

fn names(export: &Export) -> Vec<&str> {
    export.tools.iter().map(|tool| &*tool.name).collect()
}

fn lost(export: &Export) -> Vec<(&str, &str, LossHandling, ArgumentsEffect)> {
    let parts = |loss: &Loss| (loss.done, loss.arguments);
    export
        .losses
        .iter()
        .map(|loss| (loss.path.as_str(), loss.feature.as_str(), parts(loss).0, parts(loss).1))
        .collect()
}

/// S2-30, S2-31, S2-60: the known defect of a missing toolset that ended the process.
#[test]
fn without_a_toolset_or_a_format_there_is_an_error() {
    let limits = Limits::default();
    let none = export(None, Some(plain(ExportFormat::Mcp)), &limits).unwrap_err();
    assert_eq!((none, none.code()), (ExposeError::NilToolset, Code::NilToolset));
    let none = export(Some(&toolset([])), None, &limits).unwrap_err();
    assert_eq!((none, none.code()), (ExposeError::NilAdapter, Code::NilAdapter));
    for adapter in adapters() {
        assert!(exported([], adapter).tools.is_empty());
    }
}

/// A tool with everything that a definition can have.
fn rich() -> ToolSpec {
    ToolSpec {
        output: Some(schema(json!({"type": "object", "properties": {"id": {"type": "string"}}}))),
        annotations: Annotations { read_only: Some(true), ..Annotations::default() },
        backend: Backend::Mcp,
        ..tool(
            "crm:find",
            json!({"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}),
        )
    }
}

/// S2-22, S2-23, S2-24: the shape of each host.
#[test]
fn definitions_have_the_shape_of_their_host() {
    let input =
        json!({"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]});
    let output = json!({"type": "object", "properties": {"id": {"type": "string"}}});
    let closed = json!({"type": "object", "properties": {"q": {"type": "string"}},
        "required": ["q"], "additionalProperties": false});
    let of = |adapter| json_of(&exported([rich()], adapter).definitions());
    assert_eq!(
        of(plain(ExportFormat::Mcp)),
        json!({"tools": [{"name": "crm__find", "description": "Does it.", "inputSchema": input,
            "outputSchema": output, "annotations": {"readOnlyHint": true},
            "_meta": {"segue/id": "crm:find"}}]})
    );
    assert_eq!(
        of(plain(ExportFormat::OpenAi)),
        json!([{"type": "function", "function": {"name": "crm__find", "description": "Does it.",
            "parameters": input, "strict": false}}])
    );
    assert_eq!(
        of(strict(ExportFormat::OpenAiResponses)),
        json!([{"type": "function", "name": "crm__find", "description": "Does it.",
            "parameters": closed, "strict": true}])
    );
    assert_eq!(
        of(plain(ExportFormat::Anthropic)),
        json!([{"name": "crm__find", "description": "Does it.", "input_schema": input}])
    );
    assert_eq!(of(strict(ExportFormat::Anthropic))[0]["strict"], json!(true));
    assert_eq!(
        of(plain(ExportFormat::Gemini)),
        json!([{"functionDeclarations": [{"name": "crm__find", "description": "Does it.",
            "parametersJsonSchema": input, "responseJsonSchema": output}]}])
    );
}

/// S2-25, S2-26, S2-28: the known defect of an output schema and annotations that went silently.
#[test]
fn what_a_host_has_no_place_for_is_reported() {
    let whole = |adapter| exported([rich()], adapter);
    assert_eq!(lost(&whole(plain(ExportFormat::Mcp))), []);
    for format in [ExportFormat::OpenAi, ExportFormat::OpenAiResponses, ExportFormat::Anthropic] {
        let features: Vec<(String, LossHandling)> =
            whole(plain(format)).losses.into_iter().map(|loss| (loss.feature, loss.done)).collect();
        let expected = [
            ("annotations".to_owned(), LossHandling::Dropped),
            ("outputSchema".to_owned(), LossHandling::Dropped),
        ];
        assert_eq!(features, expected);
    }
    assert_eq!(
        lost(&whole(plain(ExportFormat::Gemini))),
        [("/annotations", "annotations", LossHandling::Dropped, ArgumentsEffect::Same)]
    );
    let export = whole(plain(ExportFormat::OpenAi));
    let said = export.losses[0].to_string();
    assert_eq!(
        said,
        "Feature annotations lost converting mcp → openai: `crm:find` at /annotations, dropped"
    );
    let own = ToolSpec { backend: Backend::Command, ..rich() };
    assert_eq!(exported([own], plain(ExportFormat::OpenAi)).losses[0].from, "canonical");
}

/// Every one of these, wherever it stands.
const NOT_PORTABLE: &[&str] = &[
    "$ref",
    "$defs",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "pattern",
    "format",
    "title",
    "examples",
    "nullable",
    "deprecated",
    "readOnly",
    "writeOnly",
];

fn everything() -> ToolSpec {
    let leaf = json!({"type": "string", "pattern": "^a", "format": "uri", "title": "T",
        "examples": ["a"], "nullable": true, "deprecated": true, "readOnly": true,
        "writeOnly": true, "not": {"const": "b"}});
    tool(
        "a:b",
        json!({"type": "object", "$defs": {"d": {"type": "integer"}}, "properties": {
            "deep": {"type": "array", "items": {"type": "object", "properties": {"x": leaf}}},
            "r": {"$ref": "#/$defs/d"},
            "any": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            "one": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
            "all": {"allOf": [{"type": "string"}, {"minLength": 1}]}}}),
    )
}

fn keywords_of(schema: &serde_json::Value, found: &mut Vec<String>) {
    let serde_json::Value::Object(members) = schema else { return };
    for (keyword, value) in members {
        found.push(keyword.clone());
        match (keyword.as_str(), value) {
            ("properties" | "$defs" | "patternProperties", serde_json::Value::Object(inner)) => {
                inner.values().for_each(|schema| keywords_of(schema, found));
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", serde_json::Value::Array(inner)) => {
                inner.iter().for_each(|schema| keywords_of(schema, found));
            }
            ("items" | "additionalProperties" | "not", schema) => keywords_of(schema, found),
            _ => {}
        }
    }
}

/// S2-27, S2-32, S2-33
#[test]
fn the_portable_forms_drop_what_not_every_server_takes_and_say_so() {
    let cases = [(ExportFormat::OpenAi, None), (ExportFormat::Anthropic, Some("anyOf"))];
    for (format, kept) in cases {
        let export = exported([everything()], plain(format));
        let mut found = Vec::new();
        keywords_of(&json_of(&export.tools[0].input), &mut found);
        for keyword in NOT_PORTABLE {
            let is_kept = kept == Some(*keyword);
            assert_eq!(found.iter().any(|k| k == keyword), is_kept, "{keyword} of {format:?}");
            let is_lost = export.losses.iter().any(|loss| loss.feature == *keyword);
            assert_eq!(is_lost, !is_kept, "{keyword} of {format:?}");
        }
        let deep = export.losses.iter().find(|loss| loss.feature == "pattern").unwrap();
        assert_eq!(deep.path, "/input_schema/properties/deep/items/properties/x/pattern");
        assert_eq!((deep.done, deep.arguments), (LossHandling::Described, ArgumentsEffect::Wider));
        let input = json_of(&export.tools[0].input);
        let x = &input["properties"]["deep"]["items"]["properties"]["x"];
        assert!(x["description"].as_str().unwrap().contains(r#"pattern: "^a""#), "{x}");
        assert_eq!(input["properties"]["r"], json!({"type": "integer"}));
        assert_eq!(input["properties"]["all"], json!({"type": "string", "minLength": 1}));
    }
}

/// S2-34
#[test]
fn mcp_loses_no_schema_feature() {
    let export = exported([everything()], plain(ExportFormat::Mcp));
    assert_eq!(lost(&export), []);
    let original = json_of(everything().input.json());
    assert_eq!(json_of(&export.definitions())["tools"][0]["inputSchema"], original);
}

/// S2-27: the known defect of warnings in random order. Also S2-36.
#[test]
fn everything_comes_in_a_fixed_order() {
    let tools = || {
        let ids = ["z:a", "a:z", "m:m", "a:a"];
        ids.map(|id| ToolSpec { id: ToolId::from(id), ..everything() })
    };
    for adapter in adapters() {
        let export = exported(tools(), adapter);
        let mut turned = tools();
        turned.reverse();
        let again = exported(turned, adapter);
        assert_eq!(export.losses, again.losses);
        assert_eq!(export.definitions().to_json(), again.definitions().to_json());
        assert!(export.losses.is_sorted());
        let ids: Vec<&str> = export.tools.iter().map(|tool| tool.id().as_str()).collect();
        assert_eq!(ids, ["a:a", "a:z", "m:m", "z:a"]);
    }
}

/// S2-35: the known defect of namespaces lost on export.
#[test]
fn names_keep_their_namespace_and_are_unique() {
    let any = || json!({"type": "object"});
    let ids = ["a:search", "b:search", "search", "a:b:c", "a b:c", "a_b:c", "über:tool"];
    for adapter in adapters() {
        let export = exported(ids.map(|id| tool(id, any())), adapter);
        assert_eq!(export.tools.len(), ids.len(), "{:?}", export.errors);
        let mut unique = names(&export);
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), ids.len(), "{unique:?}");
        for (tool, own) in [("a:search", "a__search"), ("b:search", "b__search")] {
            let found = export.tools.iter().find(|t| t.id().as_str() == tool).unwrap();
            assert_eq!(&*found.name, own);
            assert!(
                !export
                    .losses
                    .iter()
                    .any(|loss| loss.tool.as_str() == tool && loss.feature == "name")
            );
        }
        // Which of two alike is called what depends on its id alone.
        let alone = exported([tool("a b:c", any()), tool("a_b:c", any())], adapter);
        let name = |export: &Export| {
            export.tools.iter().find(|t| t.id().as_str() == "a b:c").unwrap().name.clone()
        };
        assert_eq!(name(&alone), name(&export));
        let renamed = |loss: &&Loss| loss.feature == "name" && loss.tool.as_str() == "a b:c";
        assert_eq!(export.losses.iter().find(renamed).unwrap().done, LossHandling::Renamed);
    }
}

#[test]
fn long_names_are_shortened_alike() {
    let long = |end: &str| format!("crm:{}{end}", "x".repeat(80));
    for (format, max) in
        [(ExportFormat::Mcp, 40), (ExportFormat::OpenAi, 64), (ExportFormat::Gemini, 64)]
    {
        let tools = [long("1"), long("2")].map(|id| tool(&id, json!({"type": "object"})));
        let export = exported(tools, plain(format));
        let names = names(&export);
        assert!(names.iter().all(|name| name.len() == max), "{names:?}");
        assert_ne!(names[0], names[1]);
        assert!(names[0].starts_with("crm__xxx"));
    }
}

/// S2-29, S2-35: what cannot be converted is named; the others are exported.
#[test]
fn a_tool_that_cannot_be_converted_stops_no_other() {
    let tools = || {
        [
            tool("a:good", json!({"type": "object"})),
            tool("a:list", json!({"type": "array"})),
            tool(
                "a:remote",
                json!({"type": "object", "properties": {"x": {"$ref": "https://x/y"}}}),
            ),
        ]
    };
    for adapter in adapters() {
        let export = exported(tools(), adapter);
        let failed: Vec<&str> = export.errors.iter().map(|error| error.tool.as_str()).collect();
        let expected: &[&str] =
            if adapter.format == ExportFormat::Mcp { &["a:list"] } else { &["a:list", "a:remote"] };
        assert_eq!(failed, expected);
        assert!(export.errors.iter().all(|error| error.code == Code::Conversion));
        assert_eq!(export.tools[0].id().as_str(), "a:good");
    }
    // Somebody has taken the very name that another one would get.
    let any = || json!({"type": "object"});
    let export =
        exported([tool("a b:c", any()), tool("a_b:c", any())], plain(ExportFormat::OpenAi));
    let stolen = names(&export)[0].to_owned();
    let tools = [tool("a b:c", any()), tool("a_b:c", any()), tool(&stolen, any())];
    let export = exported(tools, plain(ExportFormat::OpenAi));
    assert_eq!((export.tools.len(), export.errors.len()), (2, 1));
    assert!(export.errors[0].message.contains(&stolen));
}

/// The strict form of OpenAI: everything listed, everything required, and what cannot be is text.
#[test]
fn strict_arguments_come_back_as_they_were_meant() {
    let input = json!({"type": "object", "required": ["to"], "properties": {
        "to": {"type": "string"},
        "cc": {"type": "string"},
        "note": {"type": ["string", "null"]},
        "extra": {"type": "object", "additionalProperties": {"type": "integer"}},
        "anything": true}});
    let export = exported([tool("mail:send", input)], strict(ExportFormat::OpenAi));
    let exposed = json_of(&export.tools[0].input);
    let required = exposed["required"].as_array().unwrap();
    let members = exposed["properties"].as_object().unwrap();
    assert_eq!(required.len(), 5);
    assert!(members.keys().all(|name| required.contains(&json!(name))));
    assert_eq!(exposed["additionalProperties"], json!(false));
    assert_eq!(exposed["properties"]["cc"]["type"], json!(["string", "null"]));
    assert_eq!(exposed["properties"]["extra"]["type"], json!(["string", "null"]));
    let back = |args: serde_json::Value| export.restore_arguments("mail__send", &Value::from(args));
    let given = json!({"to": "a", "cc": null, "note": null, "extra": "{\"n\":1}", "anything": "7"});
    let (id, args) = back(given).unwrap();
    assert_eq!(id.as_str(), "mail:send");
    assert_eq!(json_of(&args), json!({"to": "a", "note": null, "extra": {"n": 1}, "anything": 7}));
    // What the tool would refuse is refused here, by its own schema.
    let wrong = back(json!({"to": "a", "cc": null, "note": null, "extra": "{\"n\":\"x\"}",
        "anything": null}));
    assert!(matches!(wrong, Err(RestoreError::Unfit { .. })), "{wrong:?}");
    let unknown = export.restore_arguments("mail__sent", &Value::empty_object()).unwrap_err();
    let nearest = Some("mail__send".to_owned());
    assert_eq!(unknown, RestoreError::UnknownName { name: "mail__sent".to_owned(), nearest });
}

/// A choice in place of the arguments, and an object that takes anything, are wrapped.
#[test]
fn arguments_that_cannot_be_listed_are_wrapped() {
    let choice = json!({"type": "object", "anyOf": [
        {"properties": {"id": {"type": "integer"}}, "required": ["id"]},
        {"properties": {"name": {"type": "string"}, "exact": {"type": "boolean"}},
         "required": ["name"]}]});
    let export = exported(
        [tool("a:find", choice), tool("a:open", json!(true))],
        strict(ExportFormat::OpenAi),
    );
    let find = json_of(&export.tools[0].input);
    assert_eq!(find["required"], json!(["arguments"]));
    assert_eq!(find["properties"]["arguments"]["anyOf"].as_array().unwrap().len(), 2);
    let given = json!({"arguments": {"name": "x", "exact": null}});
    let (_, args) = export.restore_arguments("a__find", &Value::from(given)).unwrap();
    assert_eq!(json_of(&args), json!({"name": "x"}));
    let given = json!({"arguments": "{\"x\": [1, 2]}"});
    let (_, args) = export.restore_arguments("a__open", &Value::from(given)).unwrap();
    assert_eq!(json_of(&args), json!({"x": [1, 2]}));
}

/// Names of members that a host refuses, and schemas that contain themselves.
#[test]
fn members_are_renamed_and_endless_schemas_end() {
    let input = json!({"type": "object", "additionalProperties": false,
        "properties": {"due date": {"type": "string"}, "tree": {"$ref": "#/$defs/node"}},
        "$defs": {"node": {"type": "object", "properties": {
            "value": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}}}}});
    let export = exported([tool("a:b", input.clone())], plain(ExportFormat::Anthropic));
    let exposed = json_of(&export.tools[0].input);
    assert_eq!(exposed["properties"]["p_due_date"], json!({"type": "string"}));
    assert_eq!(exposed["properties"]["tree"]["properties"]["next"], json!({}));
    let given = json!({"p_due_date": "today", "tree": {"value": 1, "next": {"value": 2}}});
    let (_, args) = export.restore_arguments("a__b", &Value::from(given)).unwrap();
    assert_eq!(json_of(&args)["due date"], json!("today"));
    let export = exported([tool("a:b", input)], strict(ExportFormat::OpenAi));
    let next = &json_of(&export.tools[0].input)["properties"]["tree"]["properties"]["next"];
    assert_eq!(next["type"], json!(["string", "null"]));
}

/// What only the strict form has a bound for is exported without it.
#[test]
fn what_is_too_large_for_strict_is_not_strict() {
    let mut deep = json!({"type": "string"});
    for _ in 0..12 {
        deep = json!({"type": "object", "properties": {"x": deep}, "required": ["x"],
            "additionalProperties": false});
    }
    let export = exported([tool("a:b", deep)], strict(ExportFormat::OpenAi));
    assert_eq!(json_of(&export.definitions())[0]["function"]["strict"], json!(false));
    assert!(lost(&export).contains(&(
        "/input_schema",
        "strict",
        LossHandling::Dropped,
        ArgumentsEffect::Wider
    )));
}

/// S2-18
#[test]
fn an_export_is_read_by_many_threads() {
    let export = exported([rich()], strict(ExportFormat::OpenAi));
    let args = Value::from(json!({"q": "x"}));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(export.restore_arguments("crm__find", &args).is_ok()));
        }
    });
}

/// A schema of any kind that the language has, up to a depth.
fn any_schema() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(json!(true)),
        Just(json!({})),
        Just(json!({"type": "string"})),
        Just(json!({"type": "string", "minLength": 2})),
        Just(json!({"type": "string", "pattern": "^[a-z]*$", "title": "P"})),
        Just(json!({"type": "integer", "minimum": 0, "maximum": 3})),
        Just(json!({"type": "number", "exclusiveMinimum": -1})),
        Just(json!({"type": ["string", "null"]})),
        Just(json!({"type": "boolean", "default": true})),
        Just(json!({"enum": ["a", "b", null]})),
        Just(json!({"enum": ["a", 1]})),
        Just(json!({"const": "k"})),
        Just(json!({"type": "object"})),
        Just(json!({"type": "null"})),
        Just(json!({"$ref": "#/$defs/d"})),
        Just(json!({"$ref": "#/$defs/d", "description": "beside"})),
    ];
    leaf.prop_recursive(4, 40, 4, |inner| {
        let name = prop_oneof![Just("a"), Just("b"), Just("c d"), Just("ü"), Just("2z")];
        let others = prop_oneof![
            Just(None),
            Just(Some(json!(false))),
            Just(Some(json!(true))),
            inner.clone().prop_map(Some),
        ];
        let members = prop::collection::btree_map(name, (inner.clone(), any::<bool>()), 0..4);
        let object = (members, others).prop_map(|(members, others)| {
            let required: Vec<&str> =
                members.iter().filter(|(_, (_, must))| *must).map(|(name, _)| *name).collect();
            let properties: serde_json::Map<String, serde_json::Value> =
                members.iter().map(|(name, (schema, _))| ((*name).to_owned(), schema.clone())).collect();
            let mut schema =
                json!({"type": "object", "properties": properties, "required": required});
            if let Some(others) = others {
                schema["additionalProperties"] = others;
            }
            schema
        });
        let several = |inner| prop::collection::vec(inner, 1..4);
        prop_oneof![
            3 => object,
            1 => inner.clone().prop_map(|items| json!({"type": "array", "items": items})),
            1 => several(inner.clone()).prop_map(|first| json!({"type": "array", "prefixItems": first})),
            1 => several(inner.clone()).prop_map(|any| json!({"anyOf": any})),
            1 => several(inner.clone()).prop_map(|one| json!({"oneOf": one})),
            1 => several(inner).prop_map(|all| json!({"allOf": all})),
        ]
    })
}

/// What a model might write for a schema; not always what it should.
struct Model(u64);

impl Model {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound.max(1)
    }

    fn write(&mut self, schema: &serde_json::Value, depth: usize) -> serde_json::Value {
        let choices = |key: &str| schema.get(key).and_then(|list| list.as_array()).cloned();
        if let Some(branches) = choices("anyOf").filter(|branches| !branches.is_empty()) {
            let at = self.below(branches.len());
            return self.write(&branches[at], depth);
        }
        if let Some(values) = choices("enum").filter(|values| !values.is_empty()) {
            return values[self.below(values.len())].clone();
        }
        if let Some(value) = schema.get("const") {
            return value.clone();
        }
        let all = ["null", "boolean", "integer", "number", "string", "array", "object"];
        let word = match schema.get("type") {
            Some(serde_json::Value::String(word)) => word.clone(),
            Some(serde_json::Value::Array(words)) => {
                words[self.below(words.len())].as_str().unwrap().to_owned()
            }
            _ => all[self.below(if depth > 4 { 5 } else { 7 })].to_owned(),
        };
        let texts = ["", "a", "abc", "A b", "1", "null", "{}", "{\"a\":1}", "[true]", "k"];
        match word.as_str() {
            "null" => json!(null),
            "boolean" => json!(self.below(2) == 0),
            "integer" => json!(self.below(5)),
            "number" => [json!(0.5), json!(2), json!(-3)][self.below(3)].clone(),
            "string" => json!(texts[self.below(texts.len())]),
            "array" => self.array(schema, depth),
            _ => self.object(schema, depth),
        }
    }

    fn array(&mut self, schema: &serde_json::Value, depth: usize) -> serde_json::Value {
        let any = json!({});
        let first = schema.get("prefixItems").and_then(|list| list.as_array()).cloned();
        let first = first.unwrap_or_default();
        let count = self.below(3).max(if self.below(2) == 0 { first.len() } else { 0 });
        let items = (0..count).map(|at| {
            let item = first.get(at).or(schema.get("items")).unwrap_or(&any);
            self.write(item, depth + 1)
        });
        items.collect::<Vec<_>>().into()
    }

    fn object(&mut self, schema: &serde_json::Value, depth: usize) -> serde_json::Value {
        let mut object = serde_json::Map::new();
        let required = schema.get("required").and_then(|list| list.as_array()).cloned();
        let required = required.unwrap_or_default();
        for (name, member) in
            schema.get("properties").and_then(|p| p.as_object()).into_iter().flatten()
        {
            if required.contains(&json!(name)) || self.below(2) == 0 {
                object.insert(name.clone(), self.write(member, depth + 1));
            }
        }
        let others = schema.get("additionalProperties").unwrap_or(&json!({})).clone();
        if others != json!(false) && self.below(2) == 0 {
            let name = ["zz", "c d", "p_ü"][self.below(3)];
            let value = self.write(&others, depth + 1);
            object.entry(name).or_insert(value);
        }
        object.into()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// What fits the exposed schema comes back as what fits the original, unless the report says that
    /// it may not; and equal input gives equal bytes.
    #[test]
    fn arguments_that_fit_come_back_as_arguments_that_fit(
        root in any_schema(),
        shared in any_schema(),
        seed in any::<u64>(),
    ) {
        let mut input = if root.is_object() { root } else { json!({}) };
        if !matches!(input.get("type").and_then(|ty| ty.as_str()), Some("object")) {
            input = json!({"type": "object", "properties": {"v": input}, "required": ["v"]});
        }
        input["$defs"] = json!({"d": shared});
        for adapter in adapters() {
            let spec = tool("a:b", input.clone());
            let export = exported([spec.clone()], adapter);
            let again = exported([spec], adapter);
            prop_assert_eq!(export.definitions().to_json(), again.definitions().to_json());
            prop_assert_eq!(&export.losses, &again.losses);
            let Some(exposed) = export.tools.first() else { continue };
            let schema = Schema::new(exposed.input.clone());
            prop_assert!(schema.check().is_ok(), "{}", exposed.input);
            let may_be_refused = export.losses.iter().any(|loss| loss.arguments == ArgumentsEffect::Wider);
            let mut model = Model(seed);
            for _ in 0..8 {
                let args = Value::from(model.write(&json_of(&exposed.input), 0));
                if !schema.violations(&args).is_empty() {
                    continue;
                }
                let back = export.restore_arguments("a__b", &args);
                prop_assert!(
                    back.is_ok() || may_be_refused,
                    "{:?}: {} of {} from {}: {:?}; lost {:?}",
                    adapter, args, exposed.input, input, back, export.losses
                );
            }
        }
    }
}
