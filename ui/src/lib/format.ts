/** `0.38 s`, `12.7 s`, `1 m 15 s`, `4 h 02 m`. */
export function duration(ms: number | null | undefined): string {
  if (ms == null) return "";
  if (ms < 10_000) return `${(ms / 1000).toFixed(2)} s`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  const two = (n: number) => String(n).padStart(2, "0");
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m ${two(seconds % 60)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 24 * 60) return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} m`;
  return `${Math.floor(minutes / 1440)} d ${Math.floor((minutes % 1440) / 60)} h`;
}

/** The clock time of today, else the day and the clock time. */
export function clock(iso: string | null | undefined, now = new Date()): string {
  if (!iso) return "";
  const at = new Date(iso);
  const time = at.toLocaleTimeString("en-GB", { hour12: false });
  if (at.toDateString() === now.toDateString()) return time;
  const year = at.getFullYear() === now.getFullYear() ? undefined : "numeric";
  return `${at.toLocaleDateString("en-GB", { day: "numeric", month: "short", year })} ${time.slice(0, 5)}`;
}

/** `3 m ago`, `in 2 h`. */
export function relative(iso: string, now = Date.now()): string {
  const ms = Date.parse(iso) - now;
  const s = Math.abs(ms) / 1000;
  const text = s < 60 ? `${Math.round(s)} s` : s < 3600 ? `${Math.round(s / 60)} m` : s < 86_400 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86_400)} d`;
  return ms < 0 ? `${text} ago` : `in ${text}`;
}

export function bytes(n: number): string {
  if (n < 1024) return `${n} B`;
  if (n < 1024 * 1024) return `${(n / 1024).toFixed(1)} KB`;
  if (n < 1024 ** 3) return `${(n / 1024 / 1024).toFixed(1)} MB`;
  return `${(n / 1024 ** 3).toFixed(2)} GB`;
}

export const count = (n: number): string => n.toLocaleString("en-US");
export const plural = (n: number, one: string, many = `${one}s`): string => `${count(n)} ${n === 1 ? one : many}`;
/** The last six characters: the random part of a UUIDv7. */
export const shortId = (id: string): string => id.slice(-6);
