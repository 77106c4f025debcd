// Logging in: with an API key or a token. The page keeps neither; the browser keeps a cookie that scripts cannot read.

import { login } from "./api.js";
import { h, say } from "./dom.js";
import { field, input } from "./parts.js";

export function loginForm(why, done) {
  const said = h("p", { class: "said", role: "alert" });
  const credential = input({ type: "password", name: "credential", required: true, autocomplete: "current-password", "aria-describedby": "login-hint" });
  const send = h("button", { class: "button main" }, "Log in");
  const form = h("form", { class: "login panel" },
    h("h1", { tabindex: "-1" }, "mqueue"),
    why ? h("p", { class: "note", role: "status" }, why) : null,
    field("API key or token", credential), said, send,
    h("p", { id: "login-hint", class: "faint" }, "Keys begin with mq_ and are made by an administrator: mqueue keys add. Tokens are JWTs."));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    send.disabled = true;
    say(said, "");
    try {
      const known = await login(credential.value);
      credential.value = "";
      done(known);
    } catch (problem) {
      say(said, problem.status === 401 ? "This key or token was not accepted: it is wrong, has ended, or was revoked." : problem.message);
      credential.focus();
    } finally {
      send.disabled = false;
    }
  });
  return h("main", { class: "alone" }, form);
}
