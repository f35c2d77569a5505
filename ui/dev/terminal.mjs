// What a terminal shows after a program has written to it, as an SVG of text spans.
// Understands what Segue writes: line ends, wrapping, cursor up and down, erasing, and colours.
const COLORS = { 31: "#e5534b", 32: "#57ab5a", 33: "#c69026", 34: "#539bf5", 35: "#b083f0", 36: "#39c5cf", 90: "#768390" };
const PLAIN = { color: null, bold: false, dim: false };

class Screen {
  constructor(columns) {
    this.columns = columns;
    this.rows = [[]];
    [this.x, this.y] = [0, 0];
    this.style = PLAIN;
  }

  put(char) {
    if (this.x >= this.columns) this.feed(), (this.x = 0);
    const row = this.rows[this.y];
    while (row.length < this.x) row.push({ char: " ", style: PLAIN });
    row[this.x++] = { char, style: this.style };
  }

  feed() {
    this.y++;
    while (this.rows.length <= this.y) this.rows.push([]);
  }

  control(parameters, command) {
    const n = Number(parameters || 1);
    if (command === "A") this.y = Math.max(0, this.y - n);
    if (command === "B") for (let i = 0; i < n; i++) this.feed();
    if (command === "G") this.x = n - 1;
    if (command === "K") this.rows[this.y] = parameters === "2" ? [] : this.rows[this.y].slice(0, this.x);
    if (command === "J") this.rows.length = this.y + 1;
    if (command === "m") for (const code of (parameters || "0").split(";")) this.paint(Number(code));
  }

  paint(code) {
    if (code === 0) this.style = PLAIN;
    if (code === 1) this.style = { ...this.style, bold: true };
    if (code === 2) this.style = { ...this.style, dim: true };
    if (code === 39) this.style = { ...this.style, color: null };
    if (COLORS[code]) this.style = { ...this.style, color: COLORS[code] };
  }
}

export function screenOf(text, columns) {
  const screen = new Screen(columns);
  const token = /\u001b\[\??([\d;]*)([A-Za-z])|\u001b[=>]|([\s\S])/gu;
  for (const [, parameters, command, char] of text.matchAll(token)) {
    if (command) screen.control(parameters, command);
    else if (char === "\r") screen.x = 0;
    else if (char === "\n") screen.feed();
    else if (char && char >= " ") screen.put(char);
  }
  return screen.rows.map((row) => row.slice(0, row.findLastIndex((cell) => cell.char !== " ") + 1));
}

const escape = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

/** Cells of one style next to each other are one span. */
function spans(row) {
  const out = [];
  for (const { char, style } of row) {
    const last = out.at(-1);
    if (last && JSON.stringify(last.style) === JSON.stringify(style)) last.text += char;
    else out.push({ text: char, style });
  }
  return out;
}

function line(row, y) {
  const parts = spans(row).map(({ text, style }) => {
    const look = `${style.color ? ` fill="${style.color}"` : ""}${style.bold ? ' font-weight="700"' : ""}${style.dim ? ' opacity="0.65"' : ""}`;
    return look ? `<tspan${look}>${escape(text)}</tspan>` : escape(text);
  });
  return `<text x="20" y="${y}" xml:space="preserve">${parts.join("")}</text>`;
}

const [LINE, CHAR, TOP] = [20, 8.43, 54];

export function svgOf(rows, columns, title) {
  const [width, height] = [Math.ceil(columns * CHAR) + 40, TOP + rows.length * LINE + 8];
  const dots = ["#ff5f57", "#febc2e", "#28c840"].map((color, i) => `<circle cx="${22 + i * 20}" cy="20" r="6" fill="${color}"/>`);
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img" aria-label="${escape(title)}">
<title>${escape(title)}</title>
<rect width="${width}" height="${height}" rx="10" fill="#1c2128"/>
${dots.join("")}
<g font-family="ui-monospace, 'Cascadia Mono', 'DejaVu Sans Mono', Menlo, Consolas, monospace" font-size="14" fill="#cdd9e5">
${rows.map((row, i) => line(row, TOP + i * LINE)).join("\n")}
</g>
</svg>
`;
}
