// Checks what a .vsix holds: the files of the extension, all of them text, and no program of any platform.

import { readFileSync } from "node:fs";
import { inflateRawSync } from "node:zlib";

const EXPECTED = [
  "[Content_Types].xml",
  "extension.vsixmanifest",
  "extension/LICENSE.txt",
  "extension/dist/extension.js",
  "extension/package.json",
  "extension/readme.md",
];
const BYTES_MAX = 2 * 1024 * 1024;

/** The files of a ZIP archive, from its central directory. */
function filesOf(archive) {
  let end = archive.length - 22;
  while (end >= 0 && archive.readUInt32LE(end) !== 0x06054b50) end -= 1;
  if (end < 0) throw new Error("it is not a ZIP archive");
  const files = new Map();
  let at = archive.readUInt32LE(end + 16);
  for (let count = archive.readUInt16LE(end + 10); count > 0; count -= 1) {
    const [method, size] = [archive.readUInt16LE(at + 10), archive.readUInt32LE(at + 20)];
    const lengths = [28, 30, 32].map((offset) => archive.readUInt16LE(at + offset));
    const local = archive.readUInt32LE(at + 42);
    const name = archive.toString("utf8", at + 46, at + 46 + lengths[0]);
    const start = local + 30 + archive.readUInt16LE(local + 26) + archive.readUInt16LE(local + 28);
    const packed = archive.subarray(start, start + size);
    files.set(name, method === 0 ? packed : inflateRawSync(packed));
    at += 46 + lengths[0] + lengths[1] + lengths[2];
  }
  return files;
}

const file = process.argv[2];
const archive = readFileSync(file);
const files = filesOf(archive);
const problems = [];
const names = [...files.keys()].filter((name) => !name.endsWith("/")).sort();
if (names.join("\n") !== EXPECTED.join("\n")) problems.push(`it holds:\n  ${names.join("\n  ")}`);
for (const [name, bytes] of files) {
  // Programs have bytes that text does not have.
  if (bytes.includes(0)) problems.push(`${name} is no text`);
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    problems.push(`${name} is not UTF-8`);
  }
}
if (archive.length > BYTES_MAX) problems.push(`it has ${archive.length} bytes, more than ${BYTES_MAX}`);
if (problems.length > 0) {
  console.error(problems.map((problem) => `${file}: ${problem}`).join("\n"));
  process.exit(1);
}
console.log(`${file}: ${names.length} files, ${archive.length} bytes, no program`);
