// One group of a topic: how far it is, who is in it, what they hold, and what changed hands.

import { call, get, may, path, post } from "./api.js";
import { fill, h, refill } from "./dom.js";
import { count, short, took } from "./format.js";
import { badge, button, confirmed, dialog, field, heading, input, link, messageLink, moment, note, number, panel, since, table, tell, tile, topicRoute, trouble, waiting } from "./parts.js";

export default function group({ namespace, topic, parts, live, go }) {
  const [name] = parts;
  const base = path("topics", topic, "groups", name ?? "");
  const body = h("div", {}, waiting());
  const stop = new AbortController();
  let busy = false, at = 0;
  const load = async () => {
    if (busy || Date.now() - at < 1500) return;
    busy = true;
    try {
      const asked = { namespace, group: name, limit: 50 };
      const [stats, members, leased, retrying] = await Promise.all([
        get(base, { namespace }, stop.signal), get(`${base}/members`, { namespace }, stop.signal),
        get(path("topics", topic, "browse"), { ...asked, state: "leased" }, stop.signal), get(path("topics", topic, "browse"), { ...asked, state: "waiting" }, stop.signal)]);
      refill(body, tiles(stats), stats.assigned ? assigned(members) : note("A shared group: whoever asks gets messages of all partitions, so it has no members to list. Who holds what is below."),
        h("div", { class: "columns" }, held("In flight", namespace, leased, "Nobody holds anything."), held("Retrying", namespace, retrying, "Nothing waits for a retry.")),
        stats.assigned ? history(members) : null);
    } catch (problem) {
      if (problem.name !== "AbortError") fill(body, trouble(problem, () => { at = 0; load(); }));
    } finally {
      busy = false;
      at = Date.now();
    }
  };
  const actions = may("manage", namespace, topic) ? [
    button("Move…", () => seek(base, namespace, name, () => { at = 0; load(); })),
    button("Delete…", () => confirmed(`Delete group ${name}?`, "It forgets what it has done: if it comes back it begins anew.", "Delete", async () => {
      await call("DELETE", base, { query: { namespace } });
      tell(`Group ${name} is deleted.`);
      go(topicRoute(namespace, topic));
    }), { kind: "danger" })] : [];
  live.addEventListener("view", load);
  live.watch({ namespace, topic, limit: 1 });
  load();
  return { title: `Group ${name}`, close: () => { stop.abort(); live.removeEventListener("view", load); },
    element: h("div", {}, heading(name, { above: [link("", "Topics"), " / ", namespace, " / ", link(topicRoute(namespace, topic), topic), " / group"], actions }), body) };
}

function tiles(stats) {
  const names = [["ready", "Ready"], ["leased", "In flight"], ["waiting", "Retrying"], ["acked", "Acked"], ["dead", "Dead"], ["delivered", "Delivered"], ["lapsed", "Lapsed"]];
  return h("section", { class: "tiles", "aria-label": "Now" }, names.map(([key, text]) => {
    const one = tile(text, { kind: key, hint: key === "lapsed" ? "Dropped by retention before the group had settled them" : undefined });
    one.set(short(stats[key]));
    return one.element;
  }));
}

function assigned(found) {
  return h("div", { class: "columns" },
    panel("Members", table("Members", [{ name: "Member" }, { name: "Partitions" }, { name: "Heard" }, { name: "Joined", kind: "wide" }, { name: "Generation", kind: "number wide" }],
      found.members.map((one) => h("tr", {}, h("th", { scope: "row" }, one.member), h("td", {}, one.partitions.join(", ") || "none", one.revoked.length ? [" ", badge(`gives up ${one.revoked.join(", ")}`, "waiting")] : null),
        h("td", {}, since(one.heard_at)), h("td", { class: "wide" }, since(one.joined_at)), h("td", { class: "number wide" }, count(one.generation)))),
      { empty: "Nobody is in the group now." })),
    panel("Assignment", table("Assignment", [{ name: "Partition" }, { name: "Member" }, { name: "Ready", kind: "number" }, { name: "In flight", kind: "number" }, { name: "Retrying", kind: "number" }],
      found.partitions.map((one) => h("tr", {}, h("th", { scope: "row" }, count(one.partition)), h("td", {}, one.member || h("span", { class: "faint" }, "nobody"), one.moving_to ? [" ", badge(`to ${one.moving_to}`, "waiting")] : null),
        number(short(one.ready), one.ready), number(short(one.leased), one.leased), number(short(one.waiting), one.waiting))))));
}

function history(found) {
  return panel("Rebalances", table("Rebalances", [{ name: "When" }, { name: "Why" }, { name: "Members", kind: "number" }, { name: "Moved", kind: "number" }, { name: "Took", kind: "number" }, { name: "Paused", kind: "number wide" }],
    [...found.history].reverse().map((one) => h("tr", {}, h("th", { scope: "row" }, since(one.at)), h("td", { class: "text" }, one.reason), number(count(one.members), 1), number(count(one.moved), one.moved), h("td", { class: "number" }, took(one.seconds ?? 0)), h("td", { class: "number wide" }, took(one.paused_seconds ?? 0)))),
    { empty: "There was none." }));
}

function held(title, namespace, { messages, next }, empty) {
  return panel(title, table(title, [{ name: "Id" }, { name: "By", kind: "wide" }, { name: "Attempt", kind: "number" }, { name: title === "Retrying" ? "Again" : "Until" }, { name: "Key", kind: "wide" }],
    messages.map((one) => h("tr", {}, h("th", { scope: "row" }, messageLink(namespace, one.id)), h("td", { class: "wide" }, one.by ?? ""), h("td", { class: "number" }, count(one.attempt)), h("td", {}, moment(one.until)), h("td", { class: "wide text" }, one.key ?? ""))), { empty }), next ? note(`The first ${count(messages.length)}; there are more.`) : null);
}

function seek(base, namespace, name, done) {
  const to = input({ value: "earliest", placeholder: "earliest, latest, an offset, a time" });
  dialog(`Move group ${name}`, [note("It goes on from there: what it had done after that place is handed out again, what it had before it is left out."), field("To", to, "earliest, latest, an offset, or a time as 2026-01-14T15:00:00Z")], {
    name: "Move", act: async () => {
      const text = to.value.trim();
      await post(`${base}/seek`, { to: /^\d+$/.test(text) ? Number(text) : text }, { namespace });
      tell(`Group ${name} is moved.`);
      done();
    } });
}
