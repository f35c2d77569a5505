// Makes a screenshot smaller: colours that hardly differ become one of at most 256, and the file is packed
// well. Chromium writes 24-bit PNGs quickly, not tightly.
import { deflateSync, inflateSync, crc32 as zlibCrc32 } from "node:zlib";

const SIGNATURE = Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]);
const TABLE = Array.from({ length: 256 }, (_, n) => {
  for (let k = 0; k < 8; k++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n >>> 0;
});
const crc32 = zlibCrc32 ?? ((bytes) => (bytes.reduce((crc, byte) => TABLE[(crc ^ byte) & 255] ^ (crc >>> 8), 0xffffffff) ^ 0xffffffff) >>> 0);

function chunk(name, data) {
  const body = Buffer.concat([Buffer.from(name), data]);
  const out = Buffer.alloc(body.length + 8);
  out.writeUInt32BE(data.length, 0);
  body.copy(out, 4);
  out.writeUInt32BE(crc32(body), body.length + 4);
  return out;
}

function paeth(a, b, c) {
  const [pa, pb, pc] = [Math.abs(b - c), Math.abs(a - c), Math.abs(a + b - 2 * c)];
  return pa <= pb && pa <= pc ? a : pb <= pc ? b : c;
}

/** The pixels of an 8-bit RGB or RGBA picture, as RGB. */
function decode(file) {
  const data = [];
  let header;
  for (let at = 8; at < file.length; ) {
    const length = file.readUInt32BE(at);
    const name = file.toString("latin1", at + 4, at + 8);
    const body = file.subarray(at + 8, at + 8 + length);
    if (name === "IHDR") header = { width: body.readUInt32BE(0), height: body.readUInt32BE(4), bits: body[8], type: body[9] };
    if (name === "IDAT") data.push(body);
    at += length + 12;
  }
  const { width, height, bits, type } = header;
  if (bits !== 8 || (type !== 2 && type !== 6)) throw new Error(`a PNG of type ${type} with ${bits} bits`);
  const step = type === 6 ? 4 : 3;
  const raw = inflateSync(Buffer.concat(data));
  const rows = Buffer.alloc(width * height * step);
  const row = width * step;
  for (let y = 0; y < height; y++) {
    const filter = raw[y * (row + 1)];
    for (let x = 0; x < row; x++) {
      const to = y * row + x;
      const [a, b] = [x >= step ? rows[to - step] : 0, y > 0 ? rows[to - row] : 0];
      const c = x >= step && y > 0 ? rows[to - row - step] : 0;
      const add = [0, a, b, (a + b) >> 1, paeth(a, b, c)][filter];
      rows[to] = raw[y * (row + 1) + 1 + x] + add;
    }
  }
  const rgb = new Uint32Array(width * height);
  for (let i = 0; i < rgb.length; i++) rgb[i] = (rows[i * step] << 16) | (rows[i * step + 1] << 8) | rows[i * step + 2];
  return { width, height, rgb };
}

const distance = (a, b) => ((a >> 16) - (b >> 16)) ** 2 + (((a >> 8) & 255) - ((b >> 8) & 255)) ** 2 + ((a & 255) - (b & 255)) ** 2;

/** The most frequent colours that differ enough from each other; every other colour becomes the nearest of them. */
function palette(rgb) {
  const counts = new Map();
  for (const color of rgb) counts.set(color, (counts.get(color) ?? 0) + 1);
  const sorted = [...counts].sort((a, b) => b[1] - a[1] || a[0] - b[0]).map(([color]) => color);
  let colors = sorted;
  for (let apart = 4; colors.length > 256; apart *= 1.5) {
    colors = [];
    for (const color of sorted) if (colors.length <= 256 && colors.every((other) => distance(color, other) > apart)) colors.push(color);
  }
  const index = new Map();
  for (const color of sorted) {
    let best = 0;
    for (let i = 1; i < colors.length; i++) if (distance(color, colors[i]) < distance(color, colors[best])) best = i;
    index.set(color, best);
  }
  return { colors, index };
}

export function shrink(file) {
  const { width, height, rgb } = decode(file);
  const { colors, index } = palette(rgb);
  const lines = Buffer.alloc((width + 1) * height);
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) lines[y * (width + 1) + 1 + x] = index.get(rgb[y * width + x]);
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 3, 0, 0, 0], 8);
  const table = Buffer.from(colors.flatMap((color) => [color >> 16, (color >> 8) & 255, color & 255]));
  return Buffer.concat([SIGNATURE, chunk("IHDR", header), chunk("PLTE", table), chunk("IDAT", deflateSync(lines, { level: 9, memLevel: 9 })), chunk("IEND", Buffer.alloc(0))]);
}
