// Archive and jobs: what is known of them from their cursors. Each says how far it has read, and holds retention there.

import { get, path } from "./api.js";
import { fill, h, refill } from "./dom.js";
import { count } from "./format.js";
import { heading, link, moment, note, number, panel, since, table, topicRoute, trouble, waiting } from "./parts.js";

const TOPICS_MAX = 50;

export default function jobs({ namespace, live }) {
  const list = h("div", {}, waiting());
  const stop = new AbortController();
  let busy = false, at = 0;
  const load = async () => {
    if (busy || Date.now() - at < 4000) return;
    busy = true;
    try {
      const topics = live.view.rows.filter((row) => row.cursors).slice(0, TOPICS_MAX);
      const found = (await Promise.all(topics.map((row) => cursorsOf(row, stop.signal)))).flat();
      refill(list, table("Cursors", [{ name: "Job" }, { name: "Topic" }, { name: "Watermark" }, { name: "Behind", kind: "number" }, { name: "Last run" }, { name: "Expires", kind: "wide" }, { name: "Since", kind: "wide" }],
        found.map(row), { empty: "No job has a cursor. The pipeline's jobs (mqueue pipeline archive …) set one for each topic they read." }),
        live.view.topics > TOPICS_MAX ? note(`Of ${count(live.view.topics)} topics with cursors, ${TOPICS_MAX} are shown: choose a namespace.`) : null);
    } catch (problem) {
      if (problem.name !== "AbortError") fill(list, trouble(problem, () => { at = 0; load(); }));
    } finally {
      busy = false;
      at = Date.now();
    }
  };
  live.addEventListener("view", load);
  live.watch({ namespace: namespace ?? undefined, sort: "cursors", nonzero: true, limit: 200 });
  return { title: "Archive and jobs", close: () => { stop.abort(); live.removeEventListener("view", load); },
    element: h("div", {}, heading("Archive & jobs"), note("Jobs that read a topic by scanning keep a cursor in it: how far they are, and that nothing behind it is dropped. A cursor that is not renewed expires."), panel(null, list)) };
}

async function cursorsOf({ namespace, topic }, signal) {
  const [{ cursors }, { partitions }] = await Promise.all([get(path("topics", topic, "cursors"), { namespace }, signal), get(path("topics", topic, "partitions"), { namespace }, signal)]);
  return cursors.map((cursor) => ({ ...cursor, namespace, topic, partitions }));
}

function row(one) {
  const places = one.partitions.map(({ partition, start, end }) => [partition, one.offsets[partition] ?? start, end]);
  const behind = places.reduce((sum, [, offset, end]) => sum + Math.max(0, end - offset), 0);
  const shown = places.slice(0, 6).map(([partition, offset]) => `${partition}: ${count(offset)}`).join(", ");
  return h("tr", {}, h("th", { scope: "row" }, one.name), h("td", {}, link(topicRoute(one.namespace, one.topic), one.topic)),
    h("td", { title: "Partition: the offset it goes on from" }, shown, places.length > 6 ? " …" : ""), number(count(behind), behind),
    h("td", { title: "When it last said how far it is" }, since(one.set_at)), h("td", { class: "wide" }, moment(one.expires_at)), h("td", { class: "wide" }, since(one.made_at)));
}
