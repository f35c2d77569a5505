//! `context_fold`: properties of the result.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use segue_core::limits::Limits;
use segue_runtime::tools::builtin::{TextModel, TextRequest, fold_with_model};

use crate::support::{Bench, Json, call, json};

const TEXT: &str = "# Saga pattern\n\n\
    A saga splits one large transaction into steps, and every step has a compensation. \
    When a step fails, the compensations of the finished steps run in reverse order. \
    The weather was nice that day. \
    Compensations must be idempotent, because a coordinator may run them twice after a crash. \
    Dr. Smith wrote about this in 1987, e.g. in a paper with H. Garcia-Molina.\n\n\
    ## Costs\n\n\
    - A compensation is business logic and not a database rollback.\n\
    - Readers may see the state between steps.\n\n\
    ```rust\nfn compensate(step: Step) -> Result<()> {\n    step.undo()\n}\n```\n\n\
    A saga without isolation needs countermeasures. A saga without isolation needs countermeasures.\n";

fn chars(text: &Json) -> usize {
    text.as_str().unwrap().chars().count()
}

#[tokio::test]
async fn what_stays_is_part_of_the_text_in_its_order() {
    let bench = Bench::new();
    for ratio in [0.1, 0.2, 0.3, 0.5, 0.8, 1.0] {
        let args = json!({"content": TEXT, "target_ratio": ratio});
        let folded = bench.ok("context_fold", args.clone()).await;
        let text = folded["folded"].as_str().unwrap();
        let mut from = 0;
        for piece in text.split("\n\n").flat_map(|block| block.split_inclusive(". ")) {
            let piece = piece.trim();
            let found = TEXT[from..].find(piece);
            from += found.unwrap_or_else(|| panic!("{piece:?} is not there, or not in order"));
        }
        assert!(chars(&folded["folded"]) as f64 <= TEXT.chars().count() as f64 * ratio, "{ratio}");
        assert!(folded["ratio"].as_f64().unwrap() <= ratio, "{folded}");
        assert_eq!(folded["sentences_total"], 10, "{folded}");
        assert_eq!(folded, bench.ok("context_fold", args).await, "deterministic");
        assert!(chars(&folded["summary"]) > 0 && chars(&folded["summary"]) <= 400);
    }
}

#[tokio::test]
async fn more_room_keeps_more_and_repetition_goes_first() {
    let bench = Bench::new();
    let fold =
        |ratio: f64| bench.ok("context_fold", json!({"content": TEXT, "target_ratio": ratio}));
    let (small, large) = (fold(0.3).await, fold(0.97).await);
    assert!(small["sentences_kept"].as_u64() < large["sentences_kept"].as_u64());
    let text = large["folded"].as_str().unwrap();
    assert_eq!(text.matches("needs countermeasures").count(), 1, "{text}");
    assert!(text.contains("    step.undo()\n}\n```"), "code stays whole: {text}");
    assert!(text.contains("# Saga pattern"), "a heading stays with its text: {text}");
    assert!(small["folded"].as_str().unwrap().contains("ompensation"), "{small}");
    assert_eq!(fold(1.0).await["folded"], TEXT.trim());
}

#[tokio::test]
async fn a_query_decides_what_stays() {
    let bench = Bench::new();
    let args = json!({"content": TEXT, "target_ratio": 0.15, "query": "What was the weather?"});
    let folded = bench.ok("context_fold", args).await;
    assert!(folded["folded"].as_str().unwrap().contains("weather"), "{folded}");
    assert!(folded["summary"].as_str().unwrap().contains("weather"), "{folded}");
}

#[tokio::test]
async fn a_length_is_a_length() {
    let bench = Bench::new();
    for max in [1, 2, 10, 40, 100, 300] {
        let folded = bench.ok("context_fold", json!({"content": TEXT, "max_chars": max})).await;
        assert!(chars(&folded["folded"]) <= max, "{max}: {folded}");
        assert!(chars(&folded["folded"]) > 0);
    }
}

/// Without a model `abstractive` is extractive, says so, and never fails.
#[tokio::test]
async fn without_a_model_an_abstract_is_an_extract() {
    let bench = Bench::new();
    let folded =
        bench.ok("context_fold", json!({"content": TEXT, "strategy": "abstractive"})).await;
    assert_eq!(folded["strategy"], "extractive");
    assert!(folded["note"].as_str().unwrap().contains("no model"));
    let plain = bench.ok("context_fold", json!({"content": TEXT})).await;
    assert_eq!(plain["note"], Json::Null);
}

#[tokio::test]
async fn nothing_folds_to_nothing() {
    let bench = Bench::new();
    for content in [json!(""), json!("  \n\n "), json!([]), json!(["", " "])] {
        let folded = bench.ok("context_fold", json!({"content": content})).await;
        assert_eq!((&folded["folded"], &folded["summary"]), (&json!(""), &json!("")));
        assert_eq!((&folded["sentences_kept"], &folded["ratio"]), (&json!(0), &json!(0.0)));
    }
}

#[tokio::test]
async fn several_texts_fold_into_one() {
    let bench = Bench::new();
    let content = json!(["Alpha is first. It is a letter.", "Beta follows alpha. It is one too."]);
    let folded = bench.ok("context_fold", json!({"content": content, "target_ratio": 0.6})).await;
    let text = folded["folded"].as_str().unwrap();
    assert!(text.contains("Alpha is first.") && text.contains("Beta follows"), "{text}");
}

/// A model that gives the same answer to every request.
struct FixedModel {
    name: Arc<str>,
    answer: Result<&'static str, &'static str>,
    requests: Mutex<Vec<TextRequest>>,
}

impl FixedModel {
    fn new(answer: Result<&'static str, &'static str>) -> Arc<FixedModel> {
        Arc::new(FixedModel { name: "small-1".into(), answer, requests: Mutex::default() })
    }
}

#[async_trait]
impl TextModel for FixedModel {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    async fn write(&self, request: TextRequest) -> Result<Arc<str>, String> {
        self.requests.lock().unwrap().push(request);
        self.answer.map(Arc::from).map_err(str::to_owned)
    }
}

/// With a model, `abstractive` is what the model writes, asked once and within its bounds; the note
/// names the model.
#[tokio::test]
async fn a_model_writes_an_abstractive_fold() {
    let limits = Limits::default();
    let model = FixedModel::new(Ok("Sagas compensate. They cost isolation."));
    let tool = fold_with_model(model.clone(), &limits);
    let args = json!({"content": TEXT, "strategy": "abstractive", "query": "costs"});
    let folded = call(&tool, args).await.unwrap();
    assert_eq!(folded["folded"], "Sagas compensate. They cost isolation.");
    assert_eq!(
        (&folded["strategy"], &folded["sentences_kept"]),
        (&json!("abstractive"), &json!(2))
    );
    assert_eq!(folded["note"], "written by the model `small-1`");
    let asked = model.requests.lock().unwrap().clone();
    assert_eq!(asked.len(), 1);
    assert!(
        asked[0].message.contains("\"query\":\"costs\"") && !asked[0].instructions.contains("saga")
    );
    // A long text is shortened before the model sees it, and a long answer afterwards.
    let long = "One more sentence about sagas and their costs. ".repeat(20_000);
    let args = json!({"content": long, "strategy": "abstractive", "max_chars": 20});
    let folded = call(&tool, args).await.unwrap();
    assert!(chars(&folded["folded"]) <= 20, "{folded}");
    assert!(folded["note"].as_str().unwrap().contains("too long for it"), "{folded}");
    let asked = model.requests.lock().unwrap().clone();
    assert!(
        asked[1].message.len() <= limits.llm_tools_tokens_max * 3,
        "{}",
        asked[1].message.len()
    );
    assert!(asked.iter().all(|request| request.answer_tokens_max <= limits.llm_answer_tokens_max));
    // Other folds ask nothing.
    call(&tool, json!({"content": TEXT})).await.unwrap();
    assert_eq!(model.requests.lock().unwrap().len(), 2);
}

/// A model that does not answer leaves an extractive fold, whose note says why.
#[tokio::test]
async fn without_an_answer_the_note_says_why() {
    for (answer, why) in [(Err("it is busy"), "it is busy"), (Ok(" "), "its answer is empty")] {
        let tool = fold_with_model(FixedModel::new(answer), &Limits::default());
        let args = json!({"content": TEXT, "strategy": "abstractive"});
        let folded = call(&tool, args).await.unwrap();
        let note = format!(
            "the model `small-1` wrote nothing ({why}), so the text was folded extractively"
        );
        assert_eq!((&folded["strategy"], &folded["note"]), (&json!("extractive"), &json!(note)));
    }
}

/// The time grows linearly with the text; these shapes are the expensive ones.
#[tokio::test]
async fn large_texts_cost_what_they_are_worth() {
    let bench = Bench::new();
    let word = |n: usize| format!("w{}", n * 7919 % 5_000);
    let sentence = |n: usize| {
        let words = [n, n + 1, n * 3, n / 2, n * n].map(word);
        format!("{} follows.", words.join(" "))
    };
    let varied = (0..12_000).map(sentence).collect::<Vec<_>>().join(" ");
    let shapes = [
        varied,
        "Same words again. ".repeat(60_000),
        "x".repeat(1 << 20),
        "a b ".repeat(1 << 18),
        ". ".repeat(1 << 19),
        "# h\n".repeat(1 << 18),
        "```\n".repeat(1 << 18),
    ];
    for content in shapes {
        let start = Instant::now();
        bench.ok("context_fold", json!({"content": content, "target_ratio": 0.5})).await;
        let took = start.elapsed();
        println!("{} bytes: {took:?}", content.len());
        assert!(took < Duration::from_secs(20), "{took:?}");
    }
}
