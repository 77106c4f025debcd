// Leafing through a topic: messages by state, offset or time, each with what became of it in a group.

import { get, path } from "./api.js";
import { fill, h } from "./dom.js";
import { bytes, count, preview, priority, time } from "./format.js";
import { pick } from "./overview.js";
import { badge, button, field, input, messageLink, moment, panel, select, since, table, topicRoute, trouble, waiting } from "./parts.js";
import { topicHead } from "./topic.js";

const STATES = [["all", "all, newest first"], ["ready", "ready"], ["leased", "in flight"], ["waiting", "retrying"], ["scheduled", "scheduled"]];
const COLUMNS = [{ name: "Id" }, { name: "State" }, { name: "Published", kind: "wide" }, { name: "Place", kind: "number wide" }, { name: "Priority", kind: "wide" }, { name: "Key", kind: "wide" }, { name: "Size", kind: "number" }, { name: "Payload" }];

export default function messages(context) {
  if (!context.topic) return pick(context, { title: "Messages", about: "Choose a topic to look at its messages, or press / and type the id of one.", sort: "interest", part: "messages", empty: "There are no topics." });
  const { namespace, topic, query, go, live } = context;
  const list = h("div", {}, waiting());
  const stop = new AbortController();
  const base = path("topics", topic);
  const state = select(STATES, query.state ?? "all");
  const group = input({ value: query.group ?? "default", list: "groups" });
  const partition = input({ value: query.partition ?? "", inputmode: "numeric", placeholder: "all" });
  const from = input({ value: query.from ?? "", placeholder: "offset, or 2026-01-14T15:00:00Z" });
  const names = h("datalist", { id: "groups" });
  const reload = () => go(topicRoute(namespace, topic, "messages"), { state: state.value === "all" ? undefined : state.value, group: group.value, partition: partition.value, from: from.value.trim() }, { keep: true });
  const form = h("form", { class: "filters", onsubmit: (event) => { event.preventDefault(); reload(); } },
    field("State", state), field("Group", group), names, field("Partition", partition), grow(field("From", from)), h("button", { class: "button main" }, "Show"));
  state.addEventListener("change", reload);
  /** States are those of a group: of the one that was asked for, else of one that there is. */
  const settled = get(`${base}/groups`, { namespace, limit: 100 }, stop.signal).then(({ groups }) => {
    fill(names, groups.map((one) => h("option", { value: one.group })));
    if (!query.group && groups.length && !groups.some((one) => one.group === "default")) group.value = groups[0].group;
  }, () => {});

  const load = async (cursor = "", into = []) => {
    await settled;
    const start = (query.from ?? "").trim();
    const asked = { namespace, state: query.state, group: group.value, partition: query.partition, cursor, limit: 50,
      start_offset: /^\d+$/.test(start) ? start : undefined, start_time: start && !/^\d+$/.test(start) ? start : undefined };
    try {
      const page = await get(`${base}/browse`, asked, stop.signal);
      const all = [...into, ...page.messages];
      fill(list, table("Messages", COLUMNS, all.map((one) => row(namespace, one)), { empty: "No messages here." }),
        h("p", { class: "pager" }, `${count(all.length)} shown`, page.next ? button("More", () => load(page.next, all)) : null));
    } catch (problem) {
      if (problem.name !== "AbortError") fill(list, trouble(problem, () => load()));
    }
  };
  live.watch({ namespace, topic, limit: 1 });
  load();
  return { title: `${topic} messages`, element: h("div", {}, topicHead({ ...context, again: () => load() }, "messages"), panel(null, form, list)), close: () => stop.abort() };
}

function row(namespace, one) {
  return h("tr", {},
    h("th", { scope: "row" }, messageLink(namespace, one.id)),
    h("td", {}, badge(one.state), one.until ? [" ", h("span", { class: "faint" }, moment(one.until))] : null, one.by ? h("span", { class: "faint" }, ` ${one.by}`) : null),
    h("td", { class: "wide", title: time(one.published_at) }, since(one.published_at)),
    h("td", { class: "number wide" }, `${one.partition} · ${count(one.offset)}`),
    h("td", { class: "wide" }, priority(one.priority)),
    h("td", { class: "wide text" }, one.key ?? (one.key_base64 ? `base64 ${one.key_base64}` : "")),
    h("td", { class: "number" }, bytes(one.payload_bytes ?? 0)),
    h("td", { class: "payload" }, preview(one)));
}

const grow = (element) => { element.classList.add("grow"); return element; };
