// Where is my message: one message, what is in it, its life as a timeline, and why it is not being delivered.

import { get, namespacesGranted, path } from "./api.js";
import { fill, h } from "./dom.js";
import { bytes, hex, payloadBytes, pretty, priority, stamp, time, took } from "./format.js";
import { badge, button, facts, heading, link, messageLink, moment, note, panel, sentence, topicRoute, trouble, waiting } from "./parts.js";

const SHOWN_BYTES = 64 * 1024;
const SPACES_MAX = 1000;
const SPACES_AT_ONCE = 10;
const WIDE_PX = 1440;
const TONES = { PUBLISHED: "in", SCHEDULED: "scheduled", DELIVERED: "leased", REDELIVERED: "leased", EXTENDED: "leased", NACKED: "waiting", RELEASED: "ready", ACKNOWLEDGED: "out", EXPIRED: "dead", CANCELLED: "dead", DEAD: "dead", REDRIVEN: "ready" };

export default function message({ live, parts, namespace: selected }) {
  const [namespace, id] = parts;
  const body = h("div", {}, waiting());
  const stop = new AbortController();
  const load = async () => {
    try {
      const [space, found] = namespace === "*" ? await anywhere(id, selected, stop.signal) : [namespace, await get(path("messages", id), { namespace }, stop.signal)];
      fill(body, await shown(space, found, stop.signal, load));
    } catch (problem) {
      if (problem.name !== "AbortError") fill(body, heading(`Message ${id}`), trouble(problem, load));
    }
  };
  live.watch({ namespace: namespace === "*" ? undefined : namespace, limit: 1 });
  load();
  return { title: `Message ${id}`, element: body, close: () => stop.abort() };
}

/** An id says nothing of its namespace: those that may be looked into are tried, the chosen one first. */
async function anywhere(id, selected, signal) {
  const known = namespacesGranted() ?? (await get("/v1/namespaces", { limit: 1000 }, signal)).namespaces.map((one) => one.namespace);
  const spaces = [...new Set([selected, "default", ...known].filter(Boolean))];
  let last;
  for (let first = 0; first < Math.min(spaces.length, SPACES_MAX); first += SPACES_AT_ONCE) {
    const asked = spaces.slice(first, first + SPACES_AT_ONCE).map((namespace) =>
      get(path("messages", id), { namespace }, signal).then((found) => [namespace, found], (problem) => problem));
    for (const answer of await Promise.all(asked)) {
      if (!(answer instanceof Error)) return answer;
      if (answer.name === "AbortError" || answer.status === 400 || answer.status === 0) throw answer;
      if (!last || answer.status !== 404) last = answer;
    }
  }
  if (known.length >= SPACES_MAX) last.message += ` The first ${SPACES_MAX} namespaces were looked into: choose another.`;
  throw last;
}

async function shown(namespace, found, signal, load) {
  const origin = found.headers?.["x-origin-id"];
  const trace = await get(path("messages", found.id, "trace"), { namespace }, signal).catch((problem) => problem);
  return [
    heading(found.id, { mono: true, above: [link("", "Topics"), " / ", namespace, " / ", link(topicRoute(namespace, found.topic), found.topic)], actions: [workbench(namespace, found), button("Reload", load)] }),
    h("div", { class: "columns" },
      h("div", {}, panel("Life", trace instanceof Error ? trouble(trace) : timeline(trace)), explanations(namespace, found, signal)),
      h("div", {}, panel("Payload", payload(found)),
        panel("Message", facts([
          ["Topic", link(topicRoute(namespace, found.topic), found.topic)], ["Place", `partition ${found.partition}, offset ${found.offset}`],
          ["Priority", priority(found.priority)], ["Published", time(found.published_at)], ["Due", found.deliver_at === found.published_at ? "at once" : time(found.deliver_at)],
          ["Expires", found.expires_at ? time(found.expires_at) : "never"], ["Key", found.key ?? (found.key_base64 ? `base64 ${found.key_base64}` : null)],
          ["Fairness key", found.fairness_key], ["Idempotency key", found.idempotency_key], ["Original", origin ? messageLink(namespace, origin) : null],
        ])),
        headers(found))),
  ];
}

/** A message that died is brought back elsewhere. */
function workbench(namespace, found) {
  const topic = found.headers?.["x-origin-topic"];
  return topic && found.headers["x-origin-id"] ? h("a", { class: "button", href: `#/${topicRoute(namespace, topic, "dead")}` }, `Workbench of ${topic}`) : null;
}

function timeline(trace) {
  const first = Date.parse(trace.events[0]?.time);
  const sum = [trace.attempts ? `${trace.attempts} ${trace.attempts === 1 ? "delivery" : "deliveries"}` : "not delivered yet", trace.latency_ms === null ? null : `acknowledged after ${took(trace.latency_ms / 1000)}`];
  return [
    note(sum.filter(Boolean).join(", ")),
    h("ol", { class: "timeline" }, trace.events.map((event) => h("li", { class: TONES[event.kind] ?? "" },
      h("time", { datetime: event.time, title: time(event.time) }, stamp(event.time)),
      h("p", {}, h("b", {}, event.kind), " ", sentence(event.detail), " ", h("span", { class: "later" }, `+${took((Date.parse(event.time) - first) / 1000)}`))))),
  ];
}

/** For each group: why it is not being delivered now. */
function explanations(namespace, found, signal) {
  const list = h("div", {}, waiting());
  const load = async () => {
    const { groups } = await get(path("topics", found.topic, "groups"), { namespace, limit: 20 }, signal).catch(() => ({ groups: [] }));
    const names = groups.length ? groups.map((one) => one.group) : ["default"];
    const told = await Promise.all(names.map((group) => get(path("messages", found.id, "explain"), { namespace, group }, signal).then((answer) => [group, answer], (problem) => [group, { code: "unknown", sentence: problem.message }])));
    fill(list, h("dl", { class: "facts lines" }, told.map(([group, one]) => h("div", {}, h("dt", {}, `group ${group}`), h("dd", {}, badge(one.code), " ", sentence(one.sentence), one.until ? [" (", moment(one.until), ")"] : null)))));
  };
  load().catch(() => {});
  return panel("Why is it not being delivered?", list);
}

function payload(found) {
  const data = payloadBytes(found);
  const text = found.payload;
  const json = text === undefined ? null : data.length <= 1 << 20 ? pretty(text) : null;
  const views = { json, text, hex: "" };
  const box = h("pre", { tabindex: "0", "aria-label": "Payload" });
  const more = h("p", { class: "buttons" });
  let all = false, kind = json !== null ? "json" : text !== undefined ? "text" : "hex";
  const show = () => {
    const most = all ? Infinity : SHOWN_BYTES;
    const whole = kind === "hex" ? hex(data, all ? Math.min(data.length, 1 << 20) : 4096, innerWidth < WIDE_PX ? 8 : 16) : views[kind];
    box.className = kind;
    box.textContent = data.length ? whole.slice(0, most) : "(empty)";
    const cut = kind === "hex" ? data.length > 4096 : whole.length > SHOWN_BYTES;
    fill(more, cut && !all ? button("Show all of it", () => { all = true; show(); }) : null);
    for (const one of choice.children) one.setAttribute("aria-pressed", String(one.dataset.kind === kind));
  };
  const choice = h("div", { class: "choice", role: "group", "aria-label": "Show the payload as" },
    [["json", "JSON"], ["text", "Text"], ["hex", "Hex"]].filter(([name]) => views[name] !== null && views[name] !== undefined)
      .map(([name, title]) => h("button", { type: "button", "data-kind": name, onclick: () => { kind = name; show(); } }, title)));
  show();
  return h("div", { class: "payloadbox" }, h("div", { class: "bar" }, choice, h("span", { class: "faint" }, bytes(data.length))), box, more);
}

function headers(found) {
  const pairs = [...Object.entries(found.headers ?? {}), ...Object.entries(found.headers_base64 ?? {}).map(([name, value]) => [name, `base64 ${value}`])];
  return pairs.length ? panel("Headers", facts(pairs)) : null;
}
