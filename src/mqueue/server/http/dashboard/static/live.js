// The one stream of what happens: server-sent events, read by hand, so that a refusal is seen and a silence is noticed.

import { events, send } from "./api.js";

const SILENCE_MS = 30_000;
/** What does not get better by asking again. */
const REFUSALS = /^4(?!08|29)..$/;
const WAITS_MS = [500, 1000, 2000, 4000, 8000];

/** The events of a stream, as { event, data }; data comes from JSON. Ends with the stream. */
export async function* eventsOf(answer, heard = () => {}) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (true) {
    const { value, done } = await reader.read();
    if (done) return;
    heard();
    rest += value;
    const blocks = rest.split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const lines = block.split("\n");
      const field = (name) => lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
      const data = field("data");
      if (data !== undefined) yield { event: field("event") ?? "message", data: JSON.parse(data) };
    }
  }
}

/**
 * Watches the overview. `view`: what is known now, put together from what came; `state`: live, connecting or lost.
 * Tells its listeners "view" and "state". One window is watched at a time; another one takes its place. While nobody sees
 * the page nothing is watched: browsers open six connections to a server, for all of their tabs.
 */
export class Live extends EventTarget {
  constructor() {
    super();
    this.view = null;
    this.state = "connecting";
    this.heardAt = 0;
    this.again = 0;
    this.window = null;
    this.stop = null;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.halt() : this.begin()));
  }

  /** Watch a window: namespace, topic, search, sort, skip, limit, nonzero. */
  watch(window) {
    if (this.stop && JSON.stringify(this.window) === JSON.stringify(window)) {
      if (this.view) this.tell("view");
      return;
    }
    this.close();
    this.window = window;
    this.view = null;
    if (!document.hidden) this.begin();
  }

  begin() {
    if (this.stop || !this.window) return;
    const stop = (this.stop = new AbortController());
    this.run(this.window, stop).catch(() => {});
  }

  /** For a while: what is known stays, and `begin` goes on. */
  halt() {
    this.stop?.abort();
    this.stop = null;
  }

  close() {
    this.halt();
    this.window = null;
  }

  /** Try now, not when the time has come. */
  retry() {
    this.hurry?.();
  }

  async run(window, stop) {
    let failures = 0;
    while (!stop.signal.aborted) {
      try {
        await this.follow(window, stop, () => { failures = 0; });
      } catch (error) {
        if (stop.signal.aborted) return;
        if (error.status === 401) return this.become("lost");
        if (REFUSALS.test(error.status)) {
          this.problem = error;
          this.stop = null;
          return this.become("refused");
        }
      }
      if (stop.signal.aborted) return;
      const wait = WAITS_MS[Math.min(failures, WAITS_MS.length - 1)];
      failures += 1;
      this.again = Date.now() + wait;
      this.become(failures > 1 || this.view === null ? "lost" : "connecting");
      await new Promise((done) => { this.hurry = done; setTimeout(done, wait); });
    }
  }

  async follow(window, stop, well) {
    const attempt = new AbortController();
    const over = () => attempt.abort();
    stop.signal.addEventListener("abort", over);
    let watchdog;
    const heard = () => { clearTimeout(watchdog); watchdog = setTimeout(over, SILENCE_MS); };
    try {
      heard();
      const answer = await send("GET", "/v1/overview/stream", { query: window, signal: attempt.signal });
      for await (const { event, data } of eventsOf(answer, heard)) {
        if (event === "failed") {
          if (data.error.code === "unauthorized") events.dispatchEvent(new Event("ended"));
          throw Object.assign(new Error(data.error.message), { status: data.error.code === "unauthorized" ? 401 : 0 });
        }
        if (event !== "view" && event !== "change") continue;
        well();
        this.take(event, data);
      }
    } finally {
      clearTimeout(watchdog);
      stop.signal.removeEventListener("abort", over);
      attempt.abort();
    }
  }

  take(event, data) {
    if (event === "view" || this.view === null) {
      this.view = { namespaces: [], past: [], ...data };
    } else {
      const rows = new Map(this.view.rows.map((row) => [`${row.namespace}/${row.topic}`, row]));
      for (const row of data.rows) rows.set(`${row.namespace}/${row.topic}`, row);
      const order = data.order ?? [...rows.keys()];
      this.view = {
        ...this.view,
        at: data.at,
        topics: data.topics,
        totals: data.totals,
        missing: data.missing,
        away: data.away,
        namespaces: data.namespaces?.length ? data.namespaces : this.view.namespaces,
        rows: order.map((key) => rows.get(key)).filter(Boolean),
      };
    }
    this.heardAt = Date.now();
    this.become("live");
    this.tell("view");
  }

  become(state) {
    this.state = state;
    this.tell("state");
  }

  tell(name) {
    this.dispatchEvent(new Event(name));
  }
}
