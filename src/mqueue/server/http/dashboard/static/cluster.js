// The nodes and what they stand on: whether they take messages, what they own, and how their servers are.

import { get } from "./api.js";
import { fill, h, refill } from "./dom.js";
import { ago, bytes, count, span, took } from "./format.js";
import { badge, facts, heading, note, number, panel, table, trouble, waiting } from "./parts.js";

export default function cluster({ live, namespace }) {
  const body = h("div", {}, waiting());
  const stop = new AbortController();
  let busy = false, at = 0;
  const load = async () => {
    if (busy || Date.now() - at < 1500) return;
    busy = true;
    try {
      refill(body, shown(await get("/v1/cluster", {}, stop.signal)));
    } catch (problem) {
      if (problem.name !== "AbortError") fill(body, trouble(problem, () => { at = 0; load(); }));
    } finally {
      busy = false;
      at = Date.now();
    }
  };
  live.addEventListener("view", load);
  live.watch({ namespace: namespace ?? undefined, limit: 1 });
  load();
  return { title: "Cluster", close: () => { stop.abort(); live.removeEventListener("view", load); }, element: h("div", {}, heading("Cluster"), body) };
}

function shown(found) {
  const alone = found.nodes.length === 1 && !found.nodes[0].shards;
  return [
    found.moving ? note(`${count(found.moving)} virtual shards are on their way to another server.`) : null,
    found.conflicts ? note(`Servers contradict each other about ${count(found.conflicts)} virtual shards.`) : null,
    alone ? single(found.nodes[0]) : [nodes(found.nodes), shards(found.nodes)],
  ];
}

const state = (node) => (node.missing ? badge("no answer", "dead") : node.trouble ? badge("trouble", "dead") : badge("takes messages", "good"));

const named = (node) => node.address.replace(/^https?:\/\//, "");

function single(node) {
  return panel("One server", facts([
    ["Address", node.address], ["State", [state(node), node.trouble ? ` ${node.trouble}` : ""]], ["Version", node.version], ["Started", ago(node.started_at)],
    ["Storage", node.storage === "memory" ? "memory: nothing outlives it" : "disk: synced before it is answered"], ["Connections", count(node.connections ?? 0)], ["Leases", count(node.leases ?? 0)],
    ["Log", node.disk ? `${bytes(node.disk.bytes)} in ${node.disk.segments === 1 ? "one segment" : `${count(node.disk.segments)} segments`}` : null], ["Disk free", node.disk ? bytes(node.disk.free_bytes) : null],
    ["Damage", node.disk?.damage ? badge(`${node.disk.damage} reports`, "dead") : node.disk ? "none" : null],
  ]));
}

function nodes(found) {
  return panel("Nodes", table("Nodes", [{ name: "Node" }, { name: "State" }, { name: "Owns", kind: "number", title: "Virtual shards it delivers from" }, { name: "Connections", kind: "number wide" }, { name: "Redis" }, { name: "Version", kind: "wide" }, { name: "Started", kind: "wide" }],
    found.map((node) => h("tr", {}, h("th", { scope: "row" }, named(node)), h("td", { class: "text" }, state(node), node.trouble ? ` ${node.trouble}` : ""),
      number(count((node.shards ?? []).reduce((sum, shard) => sum + (shard.owned ?? 0), 0)), 1), h("td", { class: "number wide" }, count(node.connections ?? 0)),
      h("td", {}, !node.redis ? h("span", { class: "faint" }, "none") : node.redis.away ? badge("away", "waiting") : badge("there", "good")), h("td", { class: "wide" }, node.version ?? ""), h("td", { class: "wide" }, node.started_at ? ago(node.started_at) : "")))));
}

const BREAKER = { closed: "good", half_open: "waiting", open: "dead" };

function shards(found) {
  const rows = found.flatMap((node) => (node.shards ?? []).map((shard) => [node, shard]))
    .sort(([, one], [, other]) => one.name.localeCompare(other.name, "en", { numeric: true }));
  return panel("PostgreSQL servers, as each node sees them", table("PostgreSQL servers", [{ name: "Server" }, { name: "Seen by" }, { name: "Up" }, { name: "Breaker" }, { name: "Owned", kind: "number" }, { name: "Unowned", kind: "number" }, { name: "Last beat", kind: "number" }, { name: "Buffered", kind: "number wide" }, { name: "Flush lag", kind: "number wide" }, { name: "Standbys", kind: "wide" }],
    rows.map(([node, shard]) => h("tr", {}, h("th", { scope: "row" }, shard.name), h("td", {}, named(node)), h("td", {}, shard.up ? badge("up", "good") : badge("down", "dead")), h("td", {}, badge(shard.breaker, BREAKER[shard.breaker])),
      number(count(shard.owned ?? 0), shard.owned), h("td", { class: `number ${shard.unowned ? "bad" : "faint"}` }, count(shard.unowned ?? 0)), h("td", { class: "number" }, shard.beat_age_seconds === undefined ? "–" : `${span(shard.beat_age_seconds)} ago`),
      h("td", { class: "number wide" }, shard.buffered_messages ? `${count(shard.buffered_messages)}, ${bytes(shard.buffered_bytes)}` : "0"), h("td", { class: "number wide" }, took(shard.flush_lag_seconds ?? 0)),
      h("td", { class: "wide" }, (shard.standbys ?? []).map((one) => `${one.name} ${one.sync ?? ""} ${one.lag_bytes === undefined ? "" : bytes(one.lag_bytes)} behind`).join("; ") || h("span", { class: "faint" }, "none"))))));
}
