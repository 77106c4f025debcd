// What pages are made of: tiles, tables, badges, notes, dialogs, messages of what was done. They look the same everywhere.

import { append, fill, h, say } from "./dom.js";
import { age, ago, relative, stamp, time } from "./format.js";

export const link = (route, ...children) => h("a", { href: `#/${route}` }, children);

/** A place of the dashboard as the address has it. */
export const route = (...parts) => parts.map(encodeURIComponent).join("/");

export const topicRoute = (namespace, topic, ...more) => route("t", namespace, topic, ...more);
export const messageLink = (namespace, id) =>
  h("a", { href: `#/${route("m", namespace, id)}`, class: "mono id" }, id);

export function button(name, act, { kind = "", disabled = false, title } = {}) {
  return h("button", { type: "button", class: `button ${kind}`, disabled, title, onclick: act }, name);
}

const TONES = {
  ready: "ready", leased: "leased", waiting: "waiting", scheduled: "scheduled", settled: "quiet", expired: "quiet",
  cancelled: "quiet", before_start: "quiet", dead: "dead", stuck: "dead", paused: "quiet", transient: "waiting",
};
export const badge = (name, tone = TONES[name] ?? "quiet") => h("span", { class: `badge ${tone}` }, name.replace("_", " "));

/** A number with a name. Tells its parts so that they can be changed in place. */
export function tile(name, { kind = "", href, hint } = {}) {
  const value = h("strong", {}, "–");
  const picture = h("div", { class: "picture" });
  const inside = [h("span", { class: "name" }, name), value, picture];
  const element = href
    ? h("a", { class: `tile ${kind}`, href, title: hint }, inside)
    : h("div", { class: `tile ${kind}`, title: hint }, inside);
  return { element, set: (text, drawing) => { say(value, text); if (drawing) fill(picture, drawing); } };
}

/** When something is to be, was, or since when it is: how far away, and on request the very moment. */
const timed = (text, told) => (text ? h("time", { datetime: text, title: time(text) }, told(text)) : h("span", { class: "faint" }, "–"));
export const moment = (text) => timed(text, relative);
export const since = (text) => timed(text, ago);
export const ageOf = (text) => timed(text, age);

const MOMENT = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g;

/** A sentence of the server, with its times as those of whoever reads. */
export function sentence(text) {
  const times = text.match(MOMENT) ?? [];
  return text.split(MOMENT).flatMap((part, number) => [part, times[number] ? h("time", { datetime: times[number], title: `${time(times[number])}, ${relative(times[number])}` }, stamp(times[number]).slice(0, -4)) : null]);
}

/** A number in a table; nothing is shown faintly. */
export const number = (text, value, kind = "") => h("td", { class: `number ${value ? "" : "faint"} ${kind}` }, text);

/** `columns`: [{ name, kind, title, sort }]; `rows`: cells of each row. A caption is for those who cannot see the heading. */
export function table(caption, columns, rows, { empty = "Nothing here.", sorted, onsort } = {}) {
  const heads = columns.map((column) => {
    const on = column.sort !== undefined && column.sort === sorted;
    const inside = column.sort !== undefined && onsort
      ? h("button", { type: "button", class: "sort", onclick: () => onsort(column.sort) }, column.name, on ? h("span", { "aria-hidden": "true" }, " ↓") : null)
      : column.name;
    return h("th", { scope: "col", class: column.kind, title: column.title, "aria-sort": on ? "descending" : null }, inside);
  });
  const body = h("tbody", {}, rows);
  const element = h("div", { class: "tablebox", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {}, h("caption", { class: "unseen" }, caption), h("thead", {}, h("tr", {}, heads)), body));
  if (!rows.length) append(body, h("tr", {}, h("td", { class: "nothing", colspan: columns.length }, empty)));
  return element;
}

export const note = (...children) => h("p", { class: "note" }, children);

/** What went wrong, never less than a sentence; with a way to try again where there is one. */
export function trouble(problem, again) {
  const heading = problem.status === 404 ? "Not found" : problem.status === 403 ? "Not allowed" : "That did not work";
  return h("div", { class: "panel trouble", role: "alert" },
    h("h2", {}, heading),
    h("p", {}, problem.message || String(problem)),
    problem.code ? h("p", { class: "faint" }, h("code", {}, problem.code), problem.status ? ` · status ${problem.status}` : "") : null,
    again ? button("Try again", again) : null);
}

export const waiting = (text = "Loading…") => h("p", { class: "note waiting", "aria-busy": "true" }, text);

export function panel(title, ...children) {
  return h("section", { class: "panel" }, title ? h("h2", {}, title) : null, children);
}

export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

export function field(name, input, hint) {
  const id = `field-${(fields += 1)}`;
  const control = input.matches("input,select,textarea") ? input : input.querySelector("input,select,textarea");
  control.id = id;
  return h("div", { class: "field" }, h("label", { for: id }, name), input, hint ? h("small", {}, hint) : null);
}
let fields = 0;

export const input = (attributes = {}) => h("input", { autocomplete: "off", spellcheck: "false", ...attributes });
export function select(options, value, attributes = {}) {
  const element = h("select", attributes, options.map(([key, name]) => h("option", { value: key }, name)));
  element.value = value;
  return element;
}

// What was done

const notices = h("div", { class: "notices", role: "status", "aria-live": "polite" });
export const noticeBoard = () => notices;

export function tell(text, kind = "good", more = null) {
  const shown = h("div", { class: `notice ${kind}` }, h("span", {}, text), more,
    h("button", { type: "button", class: "close", "aria-label": "Close", onclick: () => shown.remove() }, "×"));
  notices.append(shown);
  while (notices.children.length > 4) notices.firstChild.remove();
  setTimeout(() => shown.remove(), kind === "bad" ? 20_000 : 8_000);
}

/** Do something; what goes wrong is told. Whether it went well. */
export async function attempt(act, done) {
  try {
    const answer = await act();
    if (done) tell(typeof done === "function" ? done(answer) : done);
    return true;
  } catch (problem) {
    if (problem.name !== "AbortError") tell(problem.message, "bad");
    return false;
  }
}

// Dialogs

/** A dialog with a form. `act` is called when it is sent; what it throws is shown inside, and the dialog stays. */
export function dialog(title, body, { act, name = "OK", kind = "main", wide = false, closing = () => {} } = {}) {
  const said = h("p", { class: "said", role: "alert" });
  const send = h("button", { class: `button ${kind}` }, name);
  const form = h("form", { method: "dialog" }, h("h2", {}, title), h("div", { class: "inside" }, body), said,
    h("div", { class: "buttons" }, button(act ? "Cancel" : "Close", () => element.close()), act ? send : null));
  const element = h("dialog", { class: wide ? "wide" : "", "aria-label": title, onclose: () => { closing(); element.remove(); } }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    send.disabled = true;
    say(said, "");
    try {
      await act();
      element.close();
    } catch (problem) {
      say(said, problem.message);
    } finally {
      send.disabled = false;
    }
  });
  document.body.append(element);
  element.showModal();
  return element;
}

/** Ask before something is done that cannot be taken back. */
export function confirmed(title, text, name, act) {
  dialog(title, note(text), { act, name, kind: "danger" });
}

/** Of a row that is too long for a phone, the part that shows where one is. */
export function reveal(item) {
  const box = item.closest("nav");
  box.scrollLeft += item.getBoundingClientRect().left - box.getBoundingClientRect().left - 40;
}

/** Files of a page, one of which is open; each is a place of its own. */
export function tabs(open, entries) {
  return h("nav", { class: "tabs", "aria-label": "Parts of this page" },
    entries.filter(Boolean).map(([key, name, href, more]) =>
      h("a", { href: `#/${href}`, "aria-current": key === open ? "page" : null }, name,
        more ? h("span", { class: "count" }, more) : null)));
}

export function heading(title, { above, actions = [], mono = false } = {}) {
  return h("header", { class: "heading" },
    h("div", {}, above ? h("div", { class: "above" }, above) : null,
      h("h1", { class: mono ? "mono" : "", tabindex: "-1" }, title)),
    h("div", { class: "actions" }, actions));
}
