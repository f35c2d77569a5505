// One line per test, every figure, and whole messages of failures.
const seconds = (ms) => `${(ms / 1000).toFixed(1)} s`;

export default async function* report(source) {
  const failures = [];
  for await (const { type, data } of source) {
    const isSuite = data.details?.type === "suite";
    if (type === "test:pass" && !isSuite) yield `  ${data.skip === undefined ? "ok  " : "skip"} ${data.name} (${seconds(data.details.duration_ms)})\n`;
    if (type === "test:fail" && !isSuite) {
      failures.push(data);
      yield `  FAIL ${data.name} (${seconds(data.details.duration_ms)})\n`;
    }
    if (type === "test:diagnostic" && data.message.startsWith("figure: ")) yield `       ${data.message.slice(8)}\n`;
    if (type === "test:fail" && isSuite && data.details.error?.failureType !== "subtestsFailed") failures.push(data);
  }
  for (const { name, details } of failures) yield `\n${name}\n${details.error?.cause?.stack ?? details.error?.cause ?? details.error}\n`;
  yield failures.length === 0 ? "browser tests: all good\n" : `browser tests: ${failures.length} failed\n`;
}
