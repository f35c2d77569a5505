// Formats that people get wrong. Others are left to the server.
const DATE = /^(\d{4})-(\d{2})-(\d{2})$/;
const TIME = /^([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$/i;

function isDate(text: string): boolean {
  const match = DATE.exec(text);
  if (!match) return false;
  const [year, month, day] = match.slice(1).map(Number) as [number, number, number];
  const date = new Date(Date.UTC(year, month - 1, day));
  return date.getUTCMonth() === month - 1 && date.getUTCDate() === day;
}

const TESTS: Record<string, [(text: string) => boolean, string]> = {
  date: [isDate, "must be a date such as 2026-01-31"],
  time: [(text) => TIME.test(text), "must be a time with its zone such as 09:30:00Z"],
  "date-time": [(text) => isDate(text.slice(0, 10)) && /^[Tt ]$/.test(text[10] ?? "") && TIME.test(text.slice(11)), "must be a date and time with its zone such as 2026-01-31T09:30:00Z"],
  email: [(text) => /^[^\s@]+@[^\s@]+$/.test(text), "must be an e-mail address"],
  uri: [(text) => /^[a-z][a-z0-9+.-]*:/i.test(text) && URL.canParse(text), "must be an address with its scheme such as https://example.org/"],
  uuid: [(text) => /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text), "must be a UUID"],
  ipv4: [(text) => /^(25[0-5]|2[0-4]\d|1?\d?\d)(\.(25[0-5]|2[0-4]\d|1?\d?\d)){3}$/.test(text), "must be an IPv4 address"],
  hostname: [(text) => text.length <= 253 && text.split(".").every((label) => /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/i.test(label)), "must be a host name"],
};

export function checkFormat(format: string, text: string): string | null {
  const test = Object.hasOwn(TESTS, format) ? TESTS[format] : undefined;
  return test && !test[0](text) ? test[1] : null;
}
