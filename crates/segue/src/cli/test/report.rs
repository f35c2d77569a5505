//! Results of tests: as text, as JSON and as a JUnit report.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use segue_core::value::Value;

use super::super::{Exit, to_json};
use crate::api::composition_tests::{TestFileReport, TestReport, TestsReport};
use crate::print::{escape_control, unified_diff};

impl TestReport {
    /// One line, and one for each expectation that was not met.
    pub(super) fn summary_line(&self, file: &Path) -> String {
        let word = if self.ok { "ok  " } else { "FAIL" };
        let mut text = format!("{word}  {} · {}", file.display(), escape_control(&self.name));
        text.push_str(&self.details(&file.display().to_string(), "      "));
        text
    }

    fn details(&self, file: &str, indent: &str) -> String {
        let mut text = String::new();
        for miss in &self.misses {
            let _ =
                write!(text, "\n{indent}{file}:{}: {}", miss.line, escape_control(&miss.message));
            if let Some(help) = &miss.help {
                let _ = write!(text, "\n{indent}help: {}", escape_control(help));
            }
            if let (Some(expected), Some(actual)) = (&miss.expected, &miss.actual) {
                for line in difference(expected, actual).lines() {
                    let _ = write!(text, "\n{indent}  {}", escape_control(line));
                }
            }
        }
        text
    }
}

/// The difference of two values as a unified diff.
fn difference(expected: &Value, actual: &Value) -> String {
    let lines = |value: &Value| format!("{}\n", to_json(value));
    let (expected, actual) = (lines(expected), lines(actual));
    format!("--- expected\n+++ actual\n{}", unified_diff(&expected, &actual, 2))
}

impl TestsReport {
    /// Whether no test ran and no file is broken.
    pub(super) fn is_empty(&self) -> bool {
        self.passed + self.failed + self.broken == 0
    }

    pub(super) fn summary(&self) -> String {
        let mut text = format!("{} passed, {} failed", self.passed, self.failed);
        if self.broken > 0 {
            let files = if self.broken == 1 { "file" } else { "files" };
            let _ = write!(text, ", {} {files} cannot be tested", self.broken);
        }
        text
    }

    pub(super) fn exit(&self) -> Exit {
        match (self.broken, self.failed) {
            (0, 0) => Exit::Success,
            (0, _) => Exit::RunFailed,
            _ => Exit::Usage,
        }
    }

    /// The report in the format of JUnit, which build servers read.
    pub(super) fn junit(&self) -> String {
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let (tests, failed) = (self.passed + self.failed + self.broken, self.failed);
        let _ = writeln!(
            xml,
            "<testsuites name=\"segue\" tests=\"{tests}\" failures=\"{failed}\" errors=\"{}\">",
            self.broken
        );
        self.files.iter().for_each(|file| file.write_junit(&mut xml));
        xml.push_str("</testsuites>\n");
        xml
    }
}

impl TestFileReport {
    fn write_junit(&self, xml: &mut String) {
        let file = escaped(&self.file);
        let failed = self.tests.iter().filter(|test| !test.ok).count();
        let broken = usize::from(!self.diagnostics.is_empty());
        let tests = self.tests.len() + broken;
        let _ = writeln!(
            xml,
            "  <testsuite name=\"{file}\" tests=\"{tests}\" failures=\"{failed}\" \
             errors=\"{broken}\">"
        );
        // A broken file is reported as one test case.
        if let Some(found) = self.diagnostics.first() {
            let (message, code) = (escaped(&found.message), found.code);
            let place = format!("{}:{}:{}", escaped(&found.file), found.line, found.column);
            let _ = writeln!(
                xml,
                "    <testcase classname=\"{file}\" name=\"{file}\">\n      \
                 <error type=\"{code}\" message=\"{message}\">{place}</error>\n    </testcase>"
            );
        }
        self.tests.iter().for_each(|test| test.write_junit(&self.file, xml));
        xml.push_str("  </testsuite>\n");
    }
}

impl TestReport {
    fn write_junit(&self, file: &str, xml: &mut String) {
        let name = escaped(&self.name);
        let seconds = Duration::from_millis(self.duration_ms).as_secs_f64();
        let file_name = escaped(file);
        let _ = write!(
            xml,
            "    <testcase classname=\"{file_name}\" name=\"{name}\" file=\"{file_name}\" \
             line=\"{}\" time=\"{seconds:.3}\"",
            self.line
        );
        let Some(first) = self.misses.first() else {
            xml.push_str("/>\n");
            return;
        };
        let (message, details) = (escaped(&first.message), escaped(&self.details(file, "")));
        let _ = writeln!(
            xml,
            ">\n      <failure message=\"{message}\">{details}\n</failure>\n    </testcase>"
        );
    }
}

/// Escapes text for XML and its attributes. Characters that XML cannot hold are left out.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(letter),
            '\u{fffe}' | '\u{ffff}' => {}
            letter if letter.is_control() => {}
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_breaks_out_of_xml() {
        assert_eq!(
            escaped("a<b> & \"c\"\u{1}\u{1b}[0m\nd"),
            "a&lt;b&gt; &amp; &quot;c&quot;[0m\nd"
        );
    }
}
