// What is not due yet: look at it, give it another time, cancel it.

import { call, get, may, path } from "./api.js";
import { fill, h } from "./dom.js";
import { count, preview, time } from "./format.js";
import { pick } from "./overview.js";
import { button, confirmed, dialog, field, input, messageLink, moment, note, panel, table, tell, trouble, waiting } from "./parts.js";
import { topicHead } from "./topic.js";

export default function scheduled(context) {
  if (!context.topic) return pick(context, { title: "Scheduled", about: "Topics with messages that are not due yet. Choose one to list, move or cancel them.", sort: "scheduled", part: "scheduled", empty: "Nothing is scheduled." });
  const { namespace, topic, live } = context;
  const list = h("div", {}, waiting());
  const stop = new AbortController();
  const mine = may("manage", namespace, topic);
  const load = async (after = "", into = []) => {
    try {
      const page = await get(path("topics", topic, "scheduled"), { namespace, limit: 50, after, preview: 256 }, stop.signal);
      const all = [...into, ...page.messages];
      fill(list, table("Scheduled messages", [{ name: "Id" }, { name: "Due" }, { name: "At", kind: "wide" }, { name: "Key", kind: "wide" }, { name: "Payload", kind: "wide" }, ...(mine ? [{ name: "" }] : [])],
        all.map((one) => h("tr", {}, h("th", { scope: "row" }, messageLink(namespace, one.id)), h("td", {}, moment(one.deliver_at)), h("td", { class: "wide" }, time(one.deliver_at)), h("td", { class: "wide text" }, one.key ?? ""), h("td", { class: "payload wide" }, preview(one)),
          mine ? h("td", { class: "actions" }, button("Move…", () => move(namespace, one, load)), button("Cancel…", () => cancel(namespace, one, load), { kind: "danger" })) : null)),
        { empty: "Nothing is scheduled." }),
        h("p", { class: "pager" }, `${count(all.length)} shown`, page.next ? button("More", () => load(page.next, all)) : null));
    } catch (problem) {
      if (problem.name !== "AbortError") fill(list, trouble(problem, () => load()));
    }
  };
  live.watch({ namespace, topic, limit: 1 });
  load();
  return { title: `${topic} scheduled`, close: () => stop.abort(), element: h("div", {}, topicHead({ ...context, again: () => load() }, "scheduled"), panel("Scheduled, soonest first", list)) };
}

function cancel(namespace, one, load) {
  confirmed("Cancel this message?", `Message ${one.id} is never delivered. This cannot be taken back.`, "Cancel it", async () => {
    await call("DELETE", path("messages", one.id), { query: { namespace } });
    tell(`Message ${one.id} is cancelled.`);
    load();
  });
}

function move(namespace, one, load) {
  const at = input({ placeholder: "5m, 2h, or 2027-01-01T00:00:00Z" });
  dialog("Give it another time", [note(`Message ${one.id} is due ${time(one.deliver_at)}.`), field("New time", at, "a delay from now on, or a time; with a Z it is UTC")], {
    name: "Move", act: async () => {
      const text = at.value.trim();
      const body = /^\d{4}-/.test(text) ? { deliver_at: text } : { delay: /^\d+(\.\d+)?$/.test(text) ? Number(text) : text };
      await call("PATCH", path("messages", one.id), { query: { namespace }, body });
      tell(`Message ${one.id} has another time.`);
      load();
    } });
}
