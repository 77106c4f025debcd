// One topic: what it holds, who reads it, how it is set. Its parts are pages of their own below it.

import { call, get, may, path, post } from "./api.js";
import { Chart } from "./chart.js";
import { fill, h, refill } from "./dom.js";
import { bytes, count, priority, rate, short } from "./format.js";
import { Past } from "./overview.js";
import { ageOf, badge, button, confirmed, dialog, facts, field, heading, input, link, note, number, panel, table, tabs, tell, tile, topicRoute, trouble, waiting } from "./parts.js";
import { publishDialog } from "./publish.js";
import dead from "./dead.js";
import group from "./group.js";
import messages from "./messages.js";
import scheduled from "./scheduled.js";

const PARTS = { messages, dead, scheduled, g: group, settings };

export default function topic(context) {
  const [namespace, name, part] = context.parts;
  if (!name) throw Object.assign(new Error("No topic is named."), { status: 404 });
  if (part && !PARTS[part]) throw Object.assign(new Error(`A topic has no page “${part}”.`), { status: 404 });
  const about = { ...context, namespace, topic: name, parts: context.parts.slice(3) };
  return part ? PARTS[part](about) : summary(about);
}

/** What stands above all pages of a topic. */
export function topicHead({ namespace, topic: name, go, again }, open) {
  const deadOf = name.endsWith(".dlq") ? name.slice(0, -4) : null;
  const actions = [
    may("publish", namespace, name) ? button("Publish a message", () => publishDialog(namespace, name, again), { kind: "main" }) : null,
    deadOf ? h("a", { class: "button", href: `#/${topicRoute(namespace, deadOf, "dead")}` }, `Workbench of ${deadOf}`) : null,
  ];
  return [
    heading(name, { above: [link("", "Topics"), " / ", namespace], actions }),
    tabs(open, [
      ["", "Summary", topicRoute(namespace, name)], ["messages", "Messages", topicRoute(namespace, name, "messages")],
      deadOf ? null : ["dead", "Dead letters", topicRoute(namespace, name, "dead")],
      ["scheduled", "Scheduled", topicRoute(namespace, name, "scheduled")], ["settings", "Settings", topicRoute(namespace, name, "settings")],
    ]),
  ];
}

function summary(context) {
  const { live, namespace, topic: name } = context;
  const base = path("topics", name);
  const past = new Past();
  const rates = new Chart("Messages per second", [{ name: "in", kind: "in", place: 1 }, { name: "out", kind: "out", place: 2 }], { perSecond: true });
  const depth = new Chart("Backlog", [{ name: "ready", kind: "ready", place: 3 }, { name: "in flight", kind: "leased", place: 5 }, { name: "retrying", kind: "waiting", place: 4 }]);
  const tiles = Object.fromEntries([["in", "In"], ["out", "Out"], ["ready", "Ready"], ["leased", "In flight"], ["waiting", "Retrying"], ["scheduled", "Scheduled"], ["dead", "Dead"], ["retained", "Kept"]]
    .map(([key, text]) => [key, tile(text, { kind: key })]));
  const body = h("div", {}, waiting());
  const stop = new AbortController();
  let busy = false, at = 0;

  const show = async () => {
    const row = live.view.rows[0];
    if (row) {
      const points = past.take({ at: live.view.at, totals: row, past: live.view.past });
      rates.set(points);
      depth.set(points);
      tiles.in.set(`${rate(row.in_per_second ?? 0)} /s`);
      tiles.out.set(`${rate(row.out_per_second ?? 0)} /s`);
      for (const key of ["ready", "leased", "waiting", "scheduled", "dead"]) tiles[key].set(short(row[key] ?? 0));
    }
    if (busy || Date.now() - at < 3000) return;
    busy = true;
    try {
      const [stats, partitions, priorities] = await Promise.all([
        get(`${base}/stats`, { namespace }, stop.signal), get(`${base}/partitions`, { namespace }, stop.signal),
        get(`${base}/priorities`, { namespace, group: busiest }, stop.signal)]);
      busiest = Object.entries(stats.groups).sort(([, a], [, b]) => b.ready - a.ready)[0]?.[0] ?? "default";
      tiles.retained.set(short(stats.retained));
      refill(body, details(context, stats, partitions.partitions, priorities.priorities, busiest));
    } catch (problem) {
      if (problem.name !== "AbortError") fill(body, trouble(problem, () => { at = 0; show(); }));
    } finally {
      busy = false;
      at = Date.now();
    }
  };
  let busiest = "default";
  live.addEventListener("view", show);
  live.watch({ namespace, topic: name, limit: 1 });
  const element = h("div", {}, topicHead(context, ""), h("section", { class: "tiles", "aria-label": "Now" }, Object.values(tiles).map((one) => one.element)),
    h("div", { class: "charts" }, rates.element, depth.element), body);
  return { title: name, element, close: () => { stop.abort(); live.removeEventListener("view", show); rates.close(); depth.close(); } };
}

function details({ namespace, topic: name }, stats, partitions, priorities, busiest) {
  const groups = Object.entries(stats.groups);
  return [
    panel("Groups", table("Groups", [{ name: "Group" }, { name: "Lag", kind: "number", title: "What it has still to do" }, { name: "Ready", kind: "number" }, { name: "In flight", kind: "number mid" }, { name: "Retrying", kind: "number mid" }, { name: "Dead", kind: "number" }, { name: "Acked", kind: "number wide" }, { name: "Oldest", kind: "number" }, { name: "Members", kind: "number wide" }],
      groups.map(([group, one]) => h("tr", {},
        h("th", { scope: "row" }, link(topicRoute(namespace, name, "g", group), group), one.assigned ? badge("assigned") : null, one.blocked_keys ? badge(`${one.blocked_keys} keys blocked`, "dead") : null, one.diverted_keys ? badge(`${one.diverted_keys} keys diverted`, "waiting") : null),
        number(short(one.ready + one.waiting + one.leased), one.ready + one.waiting + one.leased), number(short(one.ready), one.ready), number(short(one.leased), one.leased, "mid"), number(short(one.waiting), one.waiting, "mid"),
        h("td", { class: `number ${one.dead ? "bad" : "faint"}` }, short(one.dead)), h("td", { class: "number wide" }, short(one.acked)),
        h("td", { class: "number" }, one.oldest_ready_seconds === null ? "–" : ageOf(new Date(Date.now() - one.oldest_ready_seconds * 1000).toISOString())), h("td", { class: "number wide faint" }, one.assigned ? count(one.members) : "shared"))),
      { empty: "Nobody has read this topic yet. A group is made when it first asks for messages." })),
    h("div", { class: "columns" },
      panel(`Priorities, of group ${busiest}`, priorities.length ? bars(priorities) : note("Nothing is ready, in flight or retrying.")),
      panel("Partitions", table("Partitions", [{ name: "Partition" }, { name: "First", kind: "number" }, { name: "Next", kind: "number" }, { name: "Kept", kind: "number" }],
        partitions.slice(0, 64).map((one) => h("tr", {}, h("th", { scope: "row" }, link(`${topicRoute(namespace, name, "messages")}?partition=${one.partition}`, count(one.partition))), number(count(one.start), 1), number(count(one.end), 1), number(count(one.messages), one.messages)))),
        partitions.length > 64 ? note(`${count(partitions.length - 64)} more.`) : null,
        h("p", { class: "faint" }, `${count(stats.published)} published in all, ${bytes(stats.bytes)} kept`))),
  ];
}

function bars(priorities) {
  const most = Math.max(...priorities.map((one) => one.ready + one.waiting + one.leased), 1);
  const part = (value, kind) => { const bar = h("i", { class: kind }); bar.style.width = `${(100 * value) / most}%`; return bar; };
  return h("div", { class: "bars" }, priorities.slice(0, 16).map((one) => h("div", {}, h("span", {}, priority(one.priority)),
    h("span", { class: "stack", role: "img", "aria-label": `${one.ready} ready, ${one.leased} in flight, ${one.waiting} retrying` }, part(one.ready, "ready"), part(one.leased, "leased"), part(one.waiting, "waiting")),
    h("span", { class: "value" }, short(one.ready + one.waiting + one.leased)))));
}

// Settings

const HINTS = {
  partitions: "can only grow", max_retries: "empty: never give up", backoff: "seconds, or 250ms, 30s, 5m", backoff_max: "seconds", visibility: "how long a lease lasts, seconds",
  default_ttl: "empty: messages do not expire", max_delay: "empty: any", max_depth: "empty: no limit", hold: "of a silent group, on retention; seconds", dedup_window: "seconds", dlq: "true, false, or the name of a topic", age_limit: "seconds",
};
const CHOICES = { overflow: ["refuse", "drop_oldest", "drop_ready"], dedup: ["window", "until_acked", "forever"], start: ["earliest", "latest"], policy: ["strict", "weighted", "ageing"], on_failure: ["block", "skip", "divert"] };

function settings(context) {
  const { namespace, topic: name, go } = context;
  const body = h("div", {}, waiting());
  const mine = may("manage", namespace, name);
  const load = async () => {
    try {
      const answer = await get(path("topics", name), { namespace });
      fill(body, form(context, answer.settings, mine, load), mine ? danger(context) : null);
    } catch (problem) {
      fill(body, trouble(problem, load));
    }
  };
  context.live.watch({ namespace, topic: name, limit: 1 });
  load();
  return { title: `${name} settings`, element: h("div", {}, topicHead(context, "settings"), body) };
}

function form({ namespace, topic: name }, found, mine, load) {
  const inputs = {};
  const control = (key, value) => {
    const disabled = !mine;
    if (CHOICES[key]) {
      const element = h("select", { disabled }, CHOICES[key].map((option) => h("option", { value: option }, option)));
      element.value = value;
      return element;
    }
    if (key === "dlq") return input({ value: String(value), disabled });
    if (typeof value === "boolean") return h("select", { disabled }, ["true", "false"].map((option) => h("option", { value: option, selected: option === String(value) }, option)));
    if (value !== null && typeof value === "object") return h("textarea", { rows: 1, disabled, value: JSON.stringify(value) });
    return input({ value: value === null ? "" : String(value), disabled });
  };
  const isLong = ([, value]) => value !== null && typeof value === "object";
  const fields = Object.entries(found).sort((one, other) => isLong(one) - isLong(other)).map(([key, value]) => {
    const element = (inputs[key] = control(key, value));
    const shown = field(key, element, HINTS[key]);
    if (element.matches("textarea")) shown.classList.add("whole");
    return shown;
  });
  const changed = () => Object.fromEntries(Object.entries(found).map(([key, value]) => [key, read(key, value, inputs[key].value)]).filter(([key, value]) => JSON.stringify(value) !== JSON.stringify(found[key])));
  const save = async (event) => {
    event.preventDefault();
    let wanted;
    try {
      wanted = changed();
    } catch (problem) {
      return tell(`This is no JSON: ${problem.message}`, "bad");
    }
    const names = Object.keys(wanted);
    if (!names.length) return tell("Nothing is different.");
    dialog("Change settings", [note(`Of topic ${name}, from now on:`), facts(names.map((key) => [key, `${JSON.stringify(found[key])} → ${JSON.stringify(wanted[key])}`]))], {
      name: "Change", act: async () => { await call("PATCH", path("topics", name), { query: { namespace }, body: wanted }); tell("The settings are changed."); load(); } });
  };
  return h("form", { class: "panel", onsubmit: save }, h("h2", {}, "Settings"), h("div", { class: "fields" }, fields),
    mine ? h("p", { class: "buttons" }, h("button", { class: "button main" }, "Change…")) : note("To change these takes the right to manage the topic."));
}

/** What was typed, in the kind that it had. */
function read(key, was, text) {
  if (key === "dlq") return ["true", "false"].includes(text) ? text === "true" : text;
  if (typeof was === "boolean") return text === "true";
  if (was !== null && typeof was === "object") return key === "labels" ? withoutThose(was, JSON.parse(text)) : JSON.parse(text);
  if (text === "") return null;
  return /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : text;
}

/** Labels are added to those that there are: one that was taken out goes if it is named, with nothing. */
function withoutThose(was, labels) {
  const gone = Object.keys(was).filter((name) => labels?.constructor === Object && !(name in labels));
  return gone.length ? { ...labels, ...Object.fromEntries(gone.map((name) => [name, null])) } : labels;
}

function danger({ namespace, topic: name, go }) {
  const base = path("topics", name);
  return panel("Beyond recall", h("div", { class: "buttons" },
    button("Purge…", () => confirmed(`Purge ${name}?`, "Everything in the topic that is not settled is cancelled, for all groups. This cannot be taken back.", "Purge", async () => {
      const done = await post(`${base}/purge`, undefined, { namespace });
      tell(`${count(done.purged)} messages are cancelled.`);
    }), { kind: "danger" }),
    button("Delete…", () => confirmed(`Delete ${name}?`, "The topic, its messages, its groups and its settings are deleted. This cannot be taken back.", "Delete", async () => {
      await call("DELETE", base, { query: { namespace } });
      tell(`Topic ${name} is deleted.`);
      go("");
    }), { kind: "danger" })));
}
