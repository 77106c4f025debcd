// Schedules: messages that are published again and again, by the calendar.

import { call, get, may, namespacesGranted, path, post } from "./api.js";
import { fill, h } from "./dom.js";
import { count, span } from "./format.js";
import { attempt, badge, button, confirmed, dialog, field, heading, input, link, moment, note, panel, select, since, table, tell, topicRoute, trouble, waiting } from "./parts.js";

const SPACES_MAX = 50;

export default function schedules({ namespace: chosen, live }) {
  const list = h("div", {}, waiting());
  const stop = new AbortController();
  const load = async (found = null) => {
    try {
      const spaces = chosen ? [chosen] : await spacesOf(stop.signal);
      const pages = found ?? (await pagesOf(spaces.slice(0, SPACES_MAX), stop.signal));
      const all = pages.flatMap((page) => page.schedules.map((one) => [page.namespace, one]));
      const more = async (page) => {
        const next = await get("/v1/schedules", { namespace: page.namespace, limit: 100, after: page.next }, stop.signal);
        load(pages.map((one) => (one === page ? { namespace: page.namespace, schedules: [...page.schedules, ...next.schedules], next: next.next } : one)));
      };
      fill(list, table("Schedules", [{ name: "Name" }, { name: "Topic" }, { name: "When" }, { name: "Next", kind: "mid" }, { name: "Last", kind: "wide" }, { name: "Published", kind: "number wide" }, { name: "" }],
        all.map(([namespace, one]) => row(namespace, one, load, !chosen)), { empty: `No schedules in namespace ${spaces[0]}${spaces.length > 1 ? ", nor in any other" : ""}.` }),
        spaces.length > SPACES_MAX ? note(`Of ${count(spaces.length)} namespaces, ${SPACES_MAX} are shown: choose one.`) : null,
        pages.filter((page) => page.next).map((page) => h("p", { class: "pager" }, button(`More of ${page.namespace}`, () => attempt(() => more(page))))));
    } catch (problem) {
      if (problem.name !== "AbortError") fill(list, trouble(problem, () => load()));
    }
  };
  live.watch({ namespace: chosen ?? undefined, limit: 1 });
  load();
  const home = chosen ?? (may("manage", "default") ? "default" : namespacesGranted()?.[0] ?? "default");
  const actions = [button("Add a schedule", () => add(home, load), { kind: "main" })];
  return { title: "Schedules", close: () => stop.abort(), element: h("div", {}, heading("Schedules", { above: chosen ? `Namespace ${chosen}` : "All namespaces", actions }), panel(null, list)) };
}

/** The namespaces somebody may look into. */
async function spacesOf(signal) {
  return namespacesGranted() ?? [...new Set(["default", ...(await get("/v1/namespaces", { limit: 1000 }, signal)).namespaces.map((one) => one.namespace)])];
}

/** The first schedules of each namespace. One may have rights there, and not this one: that is an answer if it is so of all. */
async function pagesOf(spaces, signal) {
  const answers = await Promise.all(spaces.map((namespace) =>
    get("/v1/schedules", { namespace, limit: 100 }, signal).then((page) => ({ ...page, namespace }), (problem) => problem)));
  const pages = answers.filter((one) => !(one instanceof Error));
  const failed = answers.filter((one) => one instanceof Error && (one.status !== 403 || !pages.length));
  if (failed.length) throw failed[0];
  return pages;
}

function row(namespace, one, load, named) {
  const target = path("schedules", one.name), query = { namespace, topic: one.topic };
  const mine = may("manage", namespace, one.topic);
  const toggle = () => attempt(() => call("PATCH", target, { query, body: { paused: !one.paused } }), one.paused ? `${one.name} goes on.` : `${one.name} is paused.`).then(() => load());
  return h("tr", {},
    h("th", { scope: "row" }, one.name, one.paused ? badge("paused") : null), h("td", {}, link(topicRoute(namespace, one.topic), named ? h("span", { class: "space" }, namespace, " / ") : null, one.topic)),
    h("td", {}, one.cron ? [h("code", {}, one.cron), " ", h("span", { class: "faint" }, one.tz)] : `every ${span(one.every)}`),
    h("td", { class: "mid" }, one.paused ? "–" : moment(one.next_at)), h("td", { class: "wide" }, one.last_id ? [since(one.last_at), " ", h("a", { href: `#/m/${encodeURIComponent(namespace)}/${one.last_id}` }, "message")] : "never"), h("td", { class: "number wide" }, count(one.count)),
    h("td", { class: "actions" }, mine ? [button(one.paused ? "Resume" : "Pause", toggle), button("Run now", () => attempt(() => call("POST", `${target}/run`, { query }), "It is published.").then(() => load())),
      button("Delete…", () => confirmed(`Delete schedule ${one.name}?`, "It is not published any more. What was published stays.", "Delete", async () => { await call("DELETE", target, { query }); tell(`${one.name} is deleted.`); load(); }), { kind: "danger" })] : null));
}

function add(namespace, load) {
  const space = input({ value: namespace, required: true }), topic = input({ required: true }), name = input({ required: true }), cron = input({ placeholder: "0 9 * * 1-5" }), every = input({ placeholder: "15m" }), tz = input({ value: "UTC" });
  const misfire = select([["once", "once"], ["skip", "skip"], ["all", "all"]], "once");
  const payload = h("textarea", { rows: 4, value: "{}" });
  dialog("Add a schedule", [note("By the calendar (cron and a time zone), or every so often: one of both."),
    h("div", { class: "fields" }, field("Name", name), field("Namespace", space), field("Topic", topic), field("Cron", cron), field("Time zone", tz), field("Or every", every), field("If it was missed", misfire)), field("Payload", payload)], {
    name: "Add", wide: true, act: async () => {
      const body = { topic: topic.value.trim(), name: name.value.trim(), tz: tz.value.trim() || "UTC", misfire: misfire.value, message: { payload: payload.value } };
      if (cron.value.trim()) body.cron = cron.value.trim();
      if (every.value.trim()) body.every = every.value.trim();
      await post("/v1/schedules", body, { namespace: space.value.trim() });
      tell(`Schedule ${body.name} is added.`);
      load();
    } });
}
