// The workbench of the dead: what they died of, and what is to become of them: back, back at a pace, changed, or gone.

import { get, may, path, post, send } from "./api.js";
import { fill, h, refill, say } from "./dom.js";
import { bytes, count, payloadBytes, preview, span } from "./format.js";
import { eventsOf } from "./live.js";
import { pick } from "./overview.js";
import { attempt, badge, button, confirmed, dialog, field, input, messageLink, note, panel, since, table, tell, topicRoute, trouble, waiting } from "./parts.js";
import { draftFields } from "./publish.js";
import { topicHead } from "./topic.js";

const SHOWN = 50;
const AGAIN_MS = 3000;

export default function dead(context) {
  if (!context.topic) return pick(context, { title: "Dead letters", about: "Topics with messages that were given up. Choose one to see what they died of, and to bring them back.", sort: "dead", part: "dead", empty: "Nothing is dead." });
  const { namespace, topic, query, go, live } = context;
  const base = path("topics", topic, "dlq");
  const mine = may("manage", namespace, topic);
  const stop = new AbortController();
  const errors = h("div", {}, waiting());
  const list = h("div", {}, waiting());
  const filter = input({ value: query.filter ?? "", placeholder: 'reason = max_retries and error ~ "timed out"' });
  const choose = (text) => go(topicRoute(namespace, topic, "dead"), { filter: text }, { keep: true });
  const form = h("form", { class: "filters", onsubmit: (event) => { event.preventDefault(); choose(filter.value.trim()); } },
    grow(field("Filter", filter)), h("button", { class: "button" }, "Show"), query.filter ? button("All", () => choose("")) : null);
  const bench = new Bench(context, base, query.filter, () => load());
  let known, later, busy = false;

  const load = async () => {
    clearTimeout(later);
    busy = true;
    known = live.view?.rows[0]?.dead;
    try {
      const [sorted, found] = await Promise.all([get(`${base}/errors`, { namespace }, stop.signal), get(base, { namespace, filter: query.filter, limit: SHOWN, preview: 256 }, stop.signal)]);
      refill(errors, errorTable(sorted.errors, query.filter, choose));
      bench.found(found.count);
      refill(list, ...deadTable(context, found, mine, load));
    } catch (problem) {
      if (problem.name === "AbortError") return;
      fill(list, trouble(problem, load));
      if (errors.querySelector(".waiting")) fill(errors);
    } finally {
      busy = false;
      if (!stop.signal.aborted) later = setTimeout(notice, AGAIN_MS);
    }
  };
  /** What died, came back or was deleted since the list was asked for. To ask is to walk through all: not at every count. */
  const notice = () => {
    later = null;
    const row = live.view?.rows[0];
    if (row && row.dead !== known && !bench.stop) load();
  };
  const see = () => { if (!busy && !later) notice(); };
  live.addEventListener("view", see);
  live.watch({ namespace, topic, limit: 1 });
  load();
  return {
    title: `${topic} dead letters`, close: () => { stop.abort(); clearTimeout(later); live.removeEventListener("view", see); bench.close(); },
    element: h("div", {}, topicHead({ ...context, again: load }, "dead"), panel("What they died of", errors), panel("The dead", form, mine ? bench.element : null, list)),
  };
}

function errorTable(errors, filter, choose) {
  return table("Errors", [{ name: "Error" }, { name: "Messages", kind: "number" }, { name: "Reason" }, { name: "Last", kind: "wide" }, { name: "Groups", kind: "wide" }],
    errors.map((one) => {
      const wanted = `fingerprint = ${one.fingerprint}`;
      return h("tr", { "aria-selected": String(wanted === filter) },
        h("td", { class: "text" }, h("button", { type: "button", class: "aslink", onclick: () => choose(wanted === filter ? "" : wanted) }, one.error || "(nothing was said)"), " ", one.transient ? badge("transient") : null),
        h("td", { class: "number" }, count(one.count)), h("td", {}, one.reason), h("td", { class: "wide" }, since(one.last_at)), h("td", { class: "wide" }, one.groups.join(", ")));
    }), { empty: "Nobody died here." });
}

function deadTable(context, found, mine, load) {
  const { namespace } = context;
  return [
    table("The dead", [{ name: "Id" }, { name: "Error and payload" }, { name: "Reason", kind: "wide" }, { name: "Group", kind: "wide" }, { name: "Attempts", kind: "number wide" }, { name: "Died", kind: "wide" }, ...(mine ? [{ name: "" }] : [])],
      found.messages.map((one) => h("tr", {},
        h("th", { scope: "row" }, messageLink(namespace, one.id)), h("td", { class: "text" }, cut(one.error ?? ""), h("div", { class: "beneath" }, preview(one))), h("td", { class: "wide" }, one.reason ?? ""), h("td", { class: "wide" }, one.group ?? ""),
        h("td", { class: "number wide" }, count(one.attempts ?? 0)), h("td", { class: "wide" }, since(one.published_at)),
        mine ? h("td", { class: "actions" }, button("Edit…", () => edit(context, one, load)), button("Redrive", () => attempt(() => post(`${path("topics", context.topic, "dlq")}/redrive`, { filter: `id = ${one.id}` }, { namespace }), (done) => (done.redriven ? "It is ready again." : "It could not be brought back: its group is gone.")).then(load))) : null)),
      { empty: "None match." }),
    h("p", { class: "faint" }, `${count(found.messages.length)} of ${count(found.count)}`),
  ];
}

const cut = (text) => (text.length > 240 ? `${text.slice(0, 240)}…` : text);
const grow = (element) => { element.classList.add("grow"); return element; };

/** Publish an edited copy, and then be rid of the dead one. The copy is new: every group gets it. */
async function edit({ namespace, topic }, shown, load) {
  let one = shown;
  if (one.cut && !(await attempt(async () => { one = { ...shown, ...(await get(path("messages", shown.id), { namespace })) }; }))) return;
  if (one.payload === undefined) return tell(`The payload is binary (${bytes(payloadBytes(one).length)}): it can be redriven as it is, but not edited here.`, "bad");
  const own = Object.fromEntries(Object.entries(one.headers ?? {}).filter(([name]) => !/^x-(origin-(topic|partition|offset|id)|group|attempts|reason|error|consumer|first-failure|last-failure)$/.test(name)));
  const origin = one.headers?.["x-origin-id"];
  const original = origin ? await get(path("messages", origin), { namespace }).catch(() => ({})) : {};
  const draft = draftFields({ payload: one.payload, key: one.key, headers: own, priority: one.priority, timeless: true });
  dialog("Republish an edited copy", [note(`The copy is published to ${topic}, for all its groups; then the dead message is deleted.`), draft.element], {
    name: "Republish", wide: true, act: async () => {
      const message = { ...draft.read(), fairness_key: original.fairness_key, headers_base64: one.headers_base64, idempotency_key: `edited-${one.id}` };
      if (message.key === undefined) message.key_base64 = one.key_base64;
      const answer = await post(path("topics", topic, "messages"), { messages: [message] }, { namespace });
      const { deleted } = await post(path("topics", topic, "dlq", "delete"), { filter: `id = ${one.id}` }, { namespace });
      const [said, kind] = deleted ? ["The copy is published, the dead message is deleted.", "good"] : ["The copy is published, but the dead message was there no more: somebody has brought it back or deleted it meanwhile.", "bad"];
      tell(said, kind, messageLink(namespace, answer.receipts[0].id));
      load();
    } });
}

/** What is done to all that match: to as many as were shown, whatever dies meanwhile. One thing at a time; a redrive tells
 * how far it is. */
class Bench {
  constructor({ namespace, topic }, base, filter, done) {
    Object.assign(this, { namespace, topic, base, filter, done, stop: null, count: 0 });
    this.rate = input({ value: "100", inputmode: "decimal" });
    this.bar = h("progress", { max: 1, value: 0, "aria-label": "Redriven so far" });
    this.said = h("span", { role: "status" });
    this.progress = h("div", { class: "progress", hidden: true }, this.bar, h("div", { class: "buttons" }, this.said, (this.halt = button("Stop", () => this.stop?.abort(), { kind: "small" }))));
    this.buttons = [button("Dry run", () => this.dry()), button("Redrive", () => this.ask(), { kind: "main" }), button("Delete…", () => this.remove(), { kind: "danger" })];
    this.element = h("div", {}, h("div", { class: "filters" }, field("Rate, messages per second", this.rate), h("div", { class: "buttons" }, this.buttons)), this.progress);
  }

  found(number) {
    this.count = number;
    for (const one of this.buttons) one.disabled = !number || this.stop !== null;
  }

  get body() {
    return this.filter ? { filter: this.filter } : {};
  }

  async dry() {
    await attempt(() => post(`${this.base}/redrive`, { ...this.body, dry_run: true }, { namespace: this.namespace }), (done) => `${count(done.matched)} messages would be redriven. Nothing was changed.`);
  }

  ask() {
    const rate = Number(this.rate.value);
    if (this.rate.value && !(rate > 0)) return tell(`A rate is a number above 0, not “${this.rate.value}”.`, "bad");
    const most = this.count;
    const pace = rate ? `at ${count(rate)} a second: about ${span(most / rate)}` : "all at once";
    confirmed(`Redrive ${count(most)} messages?`, `Each becomes ready again in the group that it died in, ${pace}. It can be stopped, and goes on when it is started again. Who leaves this page stops it.`, "Redrive", async () => { this.redrive(most, rate || null); });
  }

  async redrive(most, rate) {
    this.stop = new AbortController();
    this.found(this.count);
    this.progress.hidden = false;
    this.halt.hidden = false;
    this.bar.value = 0;
    let last = { redriven: 0, matched: 0 };
    const tellHow = (data) => { last = data; this.bar.value = data.redriven / most; say(this.said, `${count(data.redriven)} of ${count(most)} are ready again`); };
    try {
      tellHow(last);
      const answer = await send("POST", `${this.base}/redrive`, { query: { namespace: this.namespace }, body: { ...this.body, limit: most, rate }, signal: this.stop.signal, accept: "text/event-stream" });
      for await (const { event, data } of eventsOf(answer)) {
        if (event === "progress" || event === "done") tellHow(data);
        if (event === "failed") throw new Error(data.error.message);
      }
      this.bar.value = 1;
      tell(`${count(last.redriven)} messages are ready again.`);
    } catch (problem) {
      if (problem.name === "AbortError") this.stopped(last.redriven);
      else tell(problem.message, "bad");
    } finally {
      this.stop = null;
      this.halt.hidden = true;
      this.done();
    }
  }

  /** Told where it is seen, also by who has left the page. */
  stopped(number) {
    const told = `Stopped: ${count(number)} are ready again, the rest are where they were.`;
    say(this.said, told);
    if (!this.element.isConnected) tell(`The redrive of ${this.topic}: ${told}`, "bad");
  }

  remove() {
    const most = this.count;
    confirmed(`Delete ${count(most)} dead messages?`, "They are listed no more and cannot be redriven. This cannot be taken back.", "Delete", async () => {
      const done = await post(`${this.base}/delete`, { ...this.body, limit: most }, { namespace: this.namespace });
      tell(`${count(done.deleted)} messages are deleted.`);
      this.done();
    });
  }

  close() {
    this.stop?.abort();
  }
}
