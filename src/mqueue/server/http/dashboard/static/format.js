// Numbers, times and payloads as people read them. Pure: nothing here knows the page.

const WHOLE = new Intl.NumberFormat("en-US");
const SHORT = [[1e9, "G"], [1e6, "M"], [1e4, "k"]];

export function count(value) {
  return value === null || value === undefined ? "–" : WHOLE.format(value);
}

/** Short where it is long: 12,345 is 12.3k. */
export function short(value) {
  if (value === null || value === undefined) return "–";
  for (const [size, name] of SHORT) {
    if (value >= size) return trimmed(value / (name === "k" ? 1e3 : size)) + name;
  }
  return WHOLE.format(Math.round(value));
}

function trimmed(value) {
  return value >= 100 ? String(Math.round(value)) : value.toFixed(1).replace(/\.0$/, "");
}

export function rate(value) {
  if (!value) return "0";
  if (value >= 1e4) return short(value);
  return value >= 100 ? WHOLE.format(Math.round(value)) : trimmed(value);
}

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${unit ? trimmed(value) : value} ${units[unit]}`;
}

/** 75 seconds are 1m 15s. Two units at most: nobody wants to know how many seconds three days have. */
export function span(seconds) {
  if (seconds < 0) return "0s";
  if (seconds < 10) return `${seconds.toFixed(1).replace(/\.0$/, "")}s`;
  const units = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];
  const from = units.findIndex(([size]) => seconds >= size);
  const parts = [];
  for (const [size, name] of units.slice(from, from + 2)) {
    const whole = Math.floor(seconds / size);
    if (whole) parts.push(`${whole}${name}`);
    seconds -= whole * size;
  }
  return parts.join(" ");
}

/** How long something took: to the millisecond where it was short. */
export function took(seconds) {
  return seconds > 0 && seconds < 1 ? `${Math.max(1, Math.round(seconds * 1000))}ms` : span(seconds);
}

/** How far the server's clock is ahead of this one, in ms: ages are told by the server's. What is told was true a moment
 * ago, never later: so of all that was heard the most counts. */
let ahead = -Infinity;
export function setServerTime(text) {
  ahead = Math.max(ahead, Date.parse(text) - Date.now());
}
export function serverNow() {
  return Date.now() + (ahead === -Infinity ? 0 : ahead);
}

export function age(text) {
  return text ? span(Math.max(0, serverNow() - Date.parse(text)) / 1000) : "–";
}

/** "in 5m", "2h ago". */
export function relative(text) {
  const seconds = (Date.parse(text) - serverNow()) / 1000;
  return seconds >= 0 ? `in ${span(seconds)}` : `${span(-seconds)} ago`;
}

/** "2h ago": of what has happened, so it is never later than now. */
export function ago(text) {
  setServerTime(text);
  return relative(text).replace(/^in .*/, "0s ago");
}

const DAY = new Intl.DateTimeFormat("en-CA", { year: "numeric", month: "2-digit", day: "2-digit" });
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** In the time of whoever reads, to the millisecond. */
export function time(text) {
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return String(text);
  return `${DAY.format(at)} ${CLOCK.format(at)}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

/** The same without the day, if that is today. */
export function stamp(text) {
  const at = new Date(text);
  return DAY.format(at) === DAY.format(new Date()) ? time(text).slice(11) : time(text);
}

export function clock(at) {
  return CLOCK.format(at);
}

const LANES = { 0: "critical", 25: "high", 50: "normal", 75: "low", 100: "background" };
export function priority(value) {
  return LANES[value] ? `${LANES[value]} ${value}` : String(value);
}

/** The bytes of a payload, as a route told them: as text, or as base64. */
export function payloadBytes(message) {
  if (message.payload_base64 === undefined) return new TextEncoder().encode(message.payload ?? "");
  const text = atob(message.payload_base64);
  return Uint8Array.from(text, (letter) => letter.charCodeAt(0));
}

/** `wide`: how many bytes stand in a line. */
export function hex(data, most, wide = 16) {
  const lines = [];
  for (let at = 0; at < Math.min(data.length, most); at += wide) {
    const row = [...data.subarray(at, Math.min(at + wide, most))];
    const digits = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${digits.padEnd(3 * wide - 1)}  ${letters}`);
  }
  return lines.join("\n");
}

const TOKEN = /"(?:[^"\\]+|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;
const PRETTY_MAX = 1 << 24;

/** JSON set out in lines; null if it is none, or nested so deep that it would be all indent. Made of its own text: numbers
 * keep all their digits, names that come twice come twice. */
export function pretty(text) {
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  const parts = [];
  let depth = 0, size = 0, before = "";
  for (const [token] of text.matchAll(TOKEN)) {
    const first = before === "{" || before === "[", ends = token === "}" || token === "]";
    if (ends) depth -= 1;
    const line = (ends ? !first : first || before === ",") ? `\n${"  ".repeat(depth)}` : "";
    if (token === "{" || token === "[") depth += 1;
    parts.push(line, token === ":" ? ": " : token);
    before = token;
    size += line.length + token.length;
    if (size > PRETTY_MAX) return null;
  }
  return parts.join("");
}

/** One line of a payload, for a table. Signs that would not be seen are shown as dots. */
export function preview(message) {
  if (message.payload_base64 !== undefined) return hex(payloadBytes(message), 24).slice(10).split("  ")[0] + " …";
  const text = (message.payload ?? "").replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "·");
  return text.length > 160 || message.cut ? `${text.slice(0, 160)}…` : text;
}
