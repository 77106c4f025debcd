// Publishing one message: a test, or an edited copy of one that died.

import { path, post } from "./api.js";
import { h } from "./dom.js";
import { dialog, field, input, messageLink, select, tell } from "./parts.js";

const PRIORITIES = [["critical", "critical"], ["high", "high"], ["normal", "normal"], ["low", "low"], ["background", "background"]];

/** The fields of a message, and what they say. Throws where that cannot be read. */
export function draftFields(given = {}) {
  const payload = h("textarea", { rows: 8, spellcheck: "false", value: given.payload ?? "" });
  const key = input({ value: given.key ?? "" });
  const headers = h("textarea", { rows: 3, spellcheck: "false", placeholder: '{"name": "value"}', value: given.headers && Object.keys(given.headers).length ? JSON.stringify(given.headers, null, 1) : "" });
  const lane = PRIORITIES.some(([name]) => name === given.priority) || given.priority === undefined;
  const priority = lane ? select(PRIORITIES, given.priority ?? "normal") : input({ value: String(given.priority), inputmode: "numeric" });
  const delay = input({ placeholder: "none; 30s, 5m, 2h" });
  const element = h("div", { class: "fields" },
    whole(field("Payload", payload)), field("Key", key), field("Priority", priority), given.timeless ? null : field("Delay", delay), whole(field("Headers, as JSON", headers)));
  const read = () => {
    const message = { payload: payload.value };
    if (key.value) message.key = key.value;
    message.priority = /^-?\d+$/.test(priority.value) ? Number(priority.value) : priority.value;
    if (delay.value.trim()) message.delay = delay.value.trim();
    if (headers.value.trim()) {
      let found;
      try {
        found = JSON.parse(headers.value);
      } catch (problem) {
        throw new Error(`The headers are no JSON: ${problem.message}`);
      }
      if (found === null || typeof found !== "object" || Array.isArray(found) || Object.values(found).some((value) => typeof value !== "string"))
        throw new Error("Headers are an object of texts: {\"name\": \"value\"}.");
      message.headers = found;
    }
    return message;
  };
  return { element, read };
}

const whole = (element) => { element.classList.add("whole"); return element; };

export function publishDialog(namespace, topic, done = () => {}) {
  const draft = draftFields({ payload: '{"test": true}' });
  dialog(`Publish to ${topic}`, draft.element, {
    name: "Publish", wide: true, act: async () => {
      const answer = await post(path("topics", topic, "messages"), { messages: [draft.read()] }, { namespace });
      const [receipt] = answer.receipts;
      tell(`Published to partition ${receipt.partition}, offset ${receipt.offset} (${answer.durability}).`, "good", messageLink(namespace, receipt.id));
      done();
    } });
}
