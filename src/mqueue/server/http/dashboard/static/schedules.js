// Schedules: messages that are published again and again, by the calendar.

import { call, get, may, path, post } from "./api.js";
import { fill, h } from "./dom.js";
import { count, span } from "./format.js";
import { attempt, badge, button, confirmed, dialog, field, heading, input, link, moment, note, panel, select, since, table, tell, topicRoute, trouble, waiting } from "./parts.js";

export default function schedules({ namespace: chosen, live }) {
  const namespace = chosen ?? "default";
  const list = h("div", {}, waiting());
  const stop = new AbortController();
  const load = async (after = "", into = []) => {
    try {
      const page = await get("/v1/schedules", { namespace, limit: 100, after }, stop.signal);
      const all = [...into, ...page.schedules];
      fill(list, table("Schedules", [{ name: "Name" }, { name: "Topic" }, { name: "When" }, { name: "Next", kind: "mid" }, { name: "Last", kind: "wide" }, { name: "Published", kind: "number wide" }, { name: "" }],
        all.map((one) => row(namespace, one, load)), { empty: `No schedules in namespace ${namespace}.` }),
        page.next ? h("p", { class: "pager" }, button("More", () => load(page.next, all))) : null);
    } catch (problem) {
      if (problem.name !== "AbortError") fill(list, trouble(problem, () => load()));
    }
  };
  live.watch({ namespace: chosen ?? undefined, limit: 1 });
  load();
  const actions = [button("Add a schedule", () => add(namespace, load), { kind: "main" })];
  return { title: "Schedules", close: () => stop.abort(), element: h("div", {}, heading("Schedules", { above: `Namespace ${namespace}`, actions }), panel(null, list)) };
}

function row(namespace, one, load) {
  const target = path("schedules", one.name), query = { namespace, topic: one.topic };
  const mine = may("manage", namespace, one.topic);
  const toggle = () => attempt(() => call("PATCH", target, { query, body: { paused: !one.paused } }), one.paused ? `${one.name} goes on.` : `${one.name} is paused.`).then(() => load());
  return h("tr", {},
    h("th", { scope: "row" }, one.name, one.paused ? badge("paused") : null), h("td", {}, link(topicRoute(namespace, one.topic), one.topic)),
    h("td", {}, one.cron ? [h("code", {}, one.cron), " ", h("span", { class: "faint" }, one.tz)] : `every ${span(one.every)}`),
    h("td", { class: "mid" }, one.paused ? "–" : moment(one.next_at)), h("td", { class: "wide" }, one.last_id ? [since(one.last_at), " ", h("a", { href: `#/m/${encodeURIComponent(namespace)}/${one.last_id}` }, "message")] : "never"), h("td", { class: "number wide" }, count(one.count)),
    h("td", { class: "actions" }, mine ? [button(one.paused ? "Resume" : "Pause", toggle), button("Run now", () => attempt(() => call("POST", `${target}/run`, { query }), "It is published.").then(() => load())),
      button("Delete…", () => confirmed(`Delete schedule ${one.name}?`, "It is not published any more. What was published stays.", "Delete", async () => { await call("DELETE", target, { query }); tell(`${one.name} is deleted.`); load(); }), { kind: "danger" })] : null));
}

function add(namespace, load) {
  const topic = input({ required: true }), name = input({ required: true }), cron = input({ placeholder: "0 9 * * 1-5" }), every = input({ placeholder: "15m" }), tz = input({ value: "UTC" });
  const misfire = select([["once", "once"], ["skip", "skip"], ["all", "all"]], "once");
  const payload = h("textarea", { rows: 4, value: "{}" });
  dialog("Add a schedule", [note("By the calendar (cron and a time zone), or every so often: one of both."),
    h("div", { class: "fields" }, field("Name", name), field("Topic", topic), field("Cron", cron), field("Time zone", tz), field("Or every", every), field("If it was missed", misfire)), field("Payload", payload)], {
    name: "Add", wide: true, act: async () => {
      const body = { topic: topic.value.trim(), name: name.value.trim(), tz: tz.value.trim() || "UTC", misfire: misfire.value, message: { payload: payload.value } };
      if (cron.value.trim()) body.cron = cron.value.trim();
      if (every.value.trim()) body.every = every.value.trim();
      await post("/v1/schedules", body, { namespace });
      tell(`Schedule ${body.name} is added.`);
      load();
    } });
}
