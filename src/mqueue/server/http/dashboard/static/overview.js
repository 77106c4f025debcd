// Is it healthy, and what is stuck: all topics at a glance, with what they add up to over time.

import { h, refill } from "./dom.js";
import { age, count, rate, short } from "./format.js";
import { Chart, spark } from "./chart.js";
import { ageOf, badge, button, heading, input, link, note, number, table, tile, topicRoute } from "./parts.js";

const PAGE = 100;
const POINTS_MAX = 900;
/** Where in a point of the past each number stands. */
const PLACE = { in: 1, out: 2, ready: 3, waiting: 4, leased: 5, scheduled: 6, dead: 7 };

const COLUMNS = [
  { name: "Topic", sort: "name" },
  { name: "In /s", kind: "number", sort: "in", title: "Published per second" },
  { name: "Out /s", kind: "number", sort: "out", title: "Acknowledged per second" },
  { name: "Ready", kind: "number", sort: "ready", title: "Waiting for a consumer, of the group that is furthest behind" },
  { name: "In flight", kind: "number mid", sort: "leased", title: "Leased by consumers, of all groups" },
  { name: "Retrying", kind: "number mid", sort: "waiting", title: "Failed, and waiting for the next attempt, of all groups" },
  { name: "Scheduled", kind: "number wide", sort: "scheduled", title: "Not due yet" },
  { name: "Dead", kind: "number", sort: "dead", title: "Given up" },
  { name: "Oldest", kind: "number", sort: "age", title: "How long the message that is ready longest has waited" },
  { name: "Groups", kind: "number wide" },
];

export function pointOf(view) {
  const sums = view.totals;
  const of = (name) => sums[name] ?? 0;
  return [Date.parse(view.at), of("in_per_second"), of("out_per_second"), of("ready"), of("waiting"), of("leased"), of("scheduled"), of("dead")];
}

/** The past, and then every moment that was told since: never more points than can be drawn. What was missed meanwhile is
 * in the past that a new stream begins with. */
export class Past {
  constructor() {
    this.points = [];
  }

  take(view) {
    const point = pointOf(view);
    for (const one of [...(view.past ?? []), point]) if (!this.points.length || one[0] > this.points.at(-1)[0]) this.points.push(one);
    const oldest = point[0] - 30 * 60_000;
    while (this.points.length > POINTS_MAX || this.points[0][0] < oldest) this.points.shift();
    return this.points;
  }
}

export function rowOf(row, { named = true } = {}) {
  const of = (name) => row[name] ?? 0;
  return h("tr", { class: row.stuck ? "stuck" : "" },
    h("th", { scope: "row" }, link(topicRoute(row.namespace, row.topic), named ? h("span", { class: "space" }, row.namespace, " / ") : null, row.topic),
      row.stuck ? badge("stuck") : null),
    number(rate(of("in_per_second")), row.in_per_second),
    number(rate(of("out_per_second")), row.out_per_second),
    number(short(of("ready")), row.ready),
    number(short(of("leased")), row.leased, "mid"),
    number(short(of("waiting")), row.waiting, "mid"),
    h("td", { class: `number wide ${row.scheduled ? "" : "faint"}` }, short(of("scheduled"))),
    h("td", { class: `number ${row.dead ? "bad" : "faint"}` }, row.dead ? h("a", { href: `#/${topicRoute(row.namespace, row.topic, "dead")}` }, short(row.dead)) : "0"),
    h("td", { class: "number" }, ageOf(row.oldest_at)),
    h("td", { class: "number wide faint" }, count(of("groups"))));
}

function tilesOf() {
  const made = {
    in: tile("In", { kind: "in", hint: "Published per second" }),
    out: tile("Out", { kind: "out", hint: "Acknowledged per second" }),
    ready: tile("Ready", { kind: "ready", hint: "Waiting for a consumer" }),
    leased: tile("In flight", { kind: "leased", hint: "Leased by consumers" }),
    waiting: tile("Retrying", { kind: "waiting", hint: "Failed, waiting for the next attempt" }),
    scheduled: tile("Scheduled", { kind: "scheduled", href: "#/scheduled", hint: "Not due yet" }),
    dead: tile("Dead", { kind: "dead", href: "#/dead", hint: "Given up" }),
    oldest: tile("Oldest ready", { kind: "age", hint: "How long the message that is ready longest has waited" }),
  };
  const element = h("section", { class: "tiles", "aria-label": "Now" }, Object.values(made).map((one) => one.element));
  const set = (sums, points) => {
    const line = (name) => spark(points, PLACE[name], name);
    made.in.set(`${rate(sums.in_per_second ?? 0)} /s`, line("in"));
    made.out.set(`${rate(sums.out_per_second ?? 0)} /s`, line("out"));
    for (const name of ["ready", "leased", "waiting", "scheduled", "dead"]) made[name].set(short(sums[name] ?? 0), line(name));
    made.oldest.set(sums.oldest_at ? age(sums.oldest_at) : "–");
  };
  return { element, set };
}

function namespacesOf(view, choose) {
  return table("Namespaces", [{ name: "Namespace" }, { name: "Topics", kind: "number mid" }, ...COLUMNS.slice(1, 9).map(({ sort, ...rest }) => rest)],
    view.namespaces.map((row) => {
      const of = (name) => row[name] ?? 0;
      return h("tr", {},
        h("th", { scope: "row" }, h("button", { type: "button", class: "aslink", onclick: () => choose(row.namespace) }, row.namespace), row.stuck ? badge(`${row.stuck} stuck`, "dead") : null),
        number(count(of("topics")), row.topics, "mid"), number(rate(of("in_per_second")), row.in_per_second), number(rate(of("out_per_second")), row.out_per_second),
        number(short(of("ready")), row.ready), number(short(of("leased")), row.leased, "mid"), number(short(of("waiting")), row.waiting, "mid"),
        h("td", { class: `number wide ${row.scheduled ? "" : "faint"}` }, short(of("scheduled"))), h("td", { class: `number ${row.dead ? "bad" : "faint"}` }, short(of("dead"))), h("td", { class: "number" }, ageOf(row.oldest_at)));
    }));
}

export default function overview({ live, namespace, query, go, choose }) {
  const window = { namespace: namespace ?? undefined, search: query.search ?? "", sort: query.sort ?? "interest", skip: Number(query.skip ?? 0), limit: PAGE };
  const past = new Past();
  const tiles = tilesOf();
  const rates = new Chart("Messages per second", [{ name: "in", kind: "in", place: PLACE.in }, { name: "out", kind: "out", place: PLACE.out }], { perSecond: true });
  const depth = new Chart("Backlog", [
    { name: "ready", kind: "ready", place: PLACE.ready }, { name: "in flight", kind: "leased", place: PLACE.leased },
    { name: "retrying", kind: "waiting", place: PLACE.waiting }, { name: "dead", kind: "dead", place: PLACE.dead }]);
  const health = h("p", { class: "health", role: "status" });
  const spaces = h("section", { class: "panel spaces", hidden: true });
  const topics = h("div");
  const pages = h("div", { class: "pager" });
  const finder = input({ type: "search", placeholder: "Filter topics", value: window.search, "aria-label": "Filter topics by name" });
  let typing;
  finder.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => go("", { ...query, search: finder.value, skip: undefined }, { keep: true }), 250);
  });
  const sortBy = (sort) => go("", { ...query, sort: sort === window.sort ? undefined : sort, skip: undefined }, { keep: true });

  const show = () => {
    const view = live.view;
    const points = past.take(view);
    tiles.set(view.totals, points);
    rates.set(points);
    depth.set(points);
    refill(health, verdict(view));
    spaces.hidden = view.namespaces.length < 2;
    if (!spaces.hidden) refill(spaces, h("h2", {}, "Namespaces"), namespacesOf(view, choose));
    refill(topics, table("Topics", COLUMNS, view.rows.map((row) => rowOf(row, { named: namespace === null })), {
      empty: window.search ? `No topic has “${window.search}” in its name.` : "No topics yet. A topic is made when something is published to it.", sorted: window.sort, onsort: sortBy }));
    refill(pages, pagerOf(view.topics));
  };
  const pagerOf = (all) => {
    const last = Math.min(all, window.skip + PAGE);
    const step = (skip) => go("", { ...query, skip: skip || undefined }, { keep: true });
    return [h("span", {}, all ? `${count(window.skip + 1)}–${count(last)} of ${count(all)}` : ""),
      all > PAGE ? [button("Previous", () => step(Math.max(0, window.skip - PAGE)), { disabled: !window.skip }), button("Next", () => step(window.skip + PAGE), { disabled: last >= all })] : null];
  };

  live.addEventListener("view", show);
  live.watch(window);
  const element = h("div", {},
    heading("Overview", { actions: [health] }), tiles.element,
    h("div", { class: "charts" }, rates.element, depth.element), spaces,
    h("section", { class: "panel" }, h("div", { class: "bar" }, h("h2", {}, "Topics"), finder, pages), topics));
  return { title: "Overview", element, close: () => { clearTimeout(typing); live.removeEventListener("view", show); rates.close(); depth.close(); } };
}

/** One sentence before all numbers. */
function verdict(view) {
  const { stuck = 0, dead = 0 } = view.totals;
  if (view.away?.length) return [badge("incomplete", "dead"), ` ${view.away.join(", ")} cannot be reached: topics there stand still, and are not shown. `, link("cluster", "Cluster")];
  if (view.missing?.length) return [badge("incomplete", "waiting"), ` ${view.missing.join(", ")} did not answer: topics there are not shown. `, link("cluster", "Cluster")];
  if (stuck) return [badge("stuck", "dead"), ` ${stuck === 1 ? "One topic has" : `${count(stuck)} topics have`} a group with messages ready for over a minute, of which it acknowledges none`];
  if (dead) return [badge("healthy", "good"), ` Nothing is stuck; ${count(dead)} dead to look at`];
  if (!view.topics && !view.totals.topics) return " Nothing was published yet";
  return [badge("healthy", "good"), " Nothing is stuck, nothing is dead"];
}

/** Topics that have something, to choose one: for pages that are about one topic. */
export function pick({ live, namespace }, { title, about, sort, part, empty }) {
  const list = h("div", {});
  const show = () => refill(list, table(title, COLUMNS.map(({ sort: unused, ...rest }) => rest), live.view.rows.map((row) => {
    const element = rowOf(row, { named: namespace === null });
    element.querySelector("a").setAttribute("href", `#/${topicRoute(row.namespace, row.topic, part)}`);
    return element;
  }), { empty }));
  live.addEventListener("view", show);
  live.watch({ namespace: namespace ?? undefined, sort, nonzero: sort !== "interest", limit: 200 });
  return { title, element: h("div", {}, heading(title), note(about), h("section", { class: "panel" }, list)), close: () => live.removeEventListener("view", show) };
}
