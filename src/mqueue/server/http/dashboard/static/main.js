// The frame around all pages: who is logged in, which page is open, what the keys do, and whether the line is alive.

import { events, get, logout, namespacesGranted, whoami } from "./api.js";
import { fill, h, say } from "./dom.js";
import { clock, setServerTime } from "./format.js";
import { Live } from "./live.js";
import { loginForm } from "./login.js";
import { button, dialog, noticeBoard, reveal, route, select, tell, trouble, waiting } from "./parts.js";

const PAGES = {
  "": () => import("./overview.js"),
  t: () => import("./topic.js"),
  m: () => import("./message.js"),
  messages: () => import("./messages.js"),
  dead: () => import("./dead.js"),
  scheduled: () => import("./scheduled.js"),
  schedules: () => import("./schedules.js"),
  jobs: () => import("./jobs.js"),
  cluster: () => import("./cluster.js"),
};
const MENU = [
  ["", "Overview", "o"], ["messages", "Messages", "m"], ["dead", "Dead letters", "d"], ["scheduled", "Scheduled", "s"],
  ["schedules", "Schedules", "c"], ["jobs", "Archive & jobs", "a"], ["cluster", "Cluster", "n"],
];
const THEMES = ["auto", "light", "dark"];

const app = document.getElementById("app");
const live = new Live();
let open = null;
let frame = null;
let turn = 0;

// Where we are

function place() {
  const [path, asked = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { parts: path.split("/").filter(Boolean).map(decoded), query: Object.fromEntries(new URLSearchParams(asked)) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Go to a page. `keep`: the step before is not worth a place in the history. */
function go(path, query = {}, { keep = false } = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const target = `#/${path}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
  if (keep) {
    history.replaceState(null, "", target);
    show({ focus: false });
  } else {
    location.hash = target;
  }
}

const chosen = () => sessionStorage.getItem("namespace") || null;
function choose(namespace) {
  if (namespace) sessionStorage.setItem("namespace", namespace);
  else sessionStorage.removeItem("namespace");
  if (frame) frame.spaces.value = namespace ?? "";
  show();
}

// Pages

async function show({ focus = true } = {}) {
  const mine = (turn += 1);
  const { parts, query } = place();
  const name = parts[0] ?? "";
  const load = PAGES[name];
  const finder = document.activeElement?.matches?.("main input[type=search]") ? document.activeElement.selectionStart : null;
  let page;
  try {
    if (!load) throw Object.assign(new Error(`There is no page at “${parts.join("/")}”.`), { status: 404 });
    const module = await load();
    if (mine !== turn) return;
    open?.close?.();
    open = null;
    page = module.default({ live, parts: parts.slice(1), query, namespace: chosen(), go, choose, again: show });
  } catch (problem) {
    if (mine !== turn) return;
    open?.close?.();
    page = { title: "Problem", element: trouble(problem, () => show()) };
  }
  open = page;
  document.title = `${page.title} · mqueue`;
  fill(frame.main, page.element);
  for (const { dataset, firstChild } of frame.menu.children) {
    if (dataset.name === menuOf(parts)) firstChild.setAttribute("aria-current", "page");
    else firstChild.removeAttribute("aria-current");
  }
  app.querySelectorAll("nav [aria-current]").forEach(reveal);
  const again = frame.main.querySelector("input[type=search]");
  if (finder !== null && again) { again.focus(); again.setSelectionRange(finder, finder); }
  else if (focus) { frame.main.querySelector("h1")?.focus({ preventScroll: true }); scrollTo(0, 0); }
}

/** Which entry of the menu a page belongs to. */
function menuOf([name = "", , , part]) {
  if (name === "m") return "messages";
  if (name !== "t") return name;
  return MENU.some(([one]) => one === part) ? part : "";
}

// The frame

function build() {
  const search = h("input", { type: "search", class: "jump", placeholder: "Message id or topic", "aria-label": "Find a message by its id, or a topic", "aria-keyshortcuts": "/", autocomplete: "off", spellcheck: "false", enterkeyhint: "search" });
  const form = h("form", { role: "search", class: "searchbox" }, search, h("kbd", { "aria-hidden": "true" }, "/"));
  form.addEventListener("submit", (event) => { event.preventDefault(); find(search.value.trim()); search.value = ""; search.blur(); });
  const spaces = select([["", "All namespaces"]], "", { "aria-label": "Namespace", onchange: () => choose(spaces.value || null) });
  const menu = h("ul", {}, MENU.map(([name, text, key]) =>
    h("li", { "data-name": name }, h("a", { href: `#/${name}`, "aria-keyshortcuts": `g ${key}` }, text))));
  const main = h("main", { id: "main", tabindex: "-1" }, waiting());
  const dot = h("span", { class: "dot", "aria-hidden": "true" });
  const line = h("span", { class: "line", role: "status" }, dot, h("span", {}, "connecting"));
  const banner = h("div", { class: "banner", role: "alert", hidden: true });
  const theme = button("Theme", nextTheme, { kind: "plain" });
  const user = h("span", { class: "user" });
  frame = { main, menu, spaces, line, dot, banner, search, theme, user };
  fill(app,
    h("a", { class: "skip", href: "#main", onclick: (event) => { event.preventDefault(); main.focus(); } }, "Skip to the page"),
    h("div", { class: "side" },
      h("a", { class: "brand", href: "#/" }, h("img", { src: "/dashboard/icon.svg", alt: "", width: 22, height: 22 }), "mqueue"),
      h("nav", { "aria-label": "Pages" }, menu),
      h("div", { class: "foot" }, line, h("a", { href: "/docs" }, "API"), theme, button("Keys", help, { kind: "plain" }))),
    h("div", { class: "body" },
      h("header", { class: "top" }, form, spaces, user), banner, main),
    noticeBoard());
  applyTheme();
}

async function listSpaces() {
  let names = namespacesGranted();
  if (names === null) {
    try {
      names = (await get("/v1/namespaces", { limit: 1000 })).namespaces.map((one) => one.namespace);
    } catch {
      names = [];
    }
  }
  const now = chosen();
  if (now && !names.includes(now)) names.push(now);
  fill(frame.spaces, h("option", { value: "" }, "All namespaces"), names.map((name) => h("option", { value: name }, name)));
  frame.spaces.value = now ?? "";
}

/** A number is the id of a message; anything else a part of a topic's name. */
function find(text) {
  if (!text) return;
  if (/^\d{5,20}$/.test(text)) go(route("m", chosen() ?? "*", text));
  else go("", { search: text });
}

// The line

live.addEventListener("view", () => setServerTime(live.view.at));
live.addEventListener("state", () => {
  if (!frame) return;
  const { state } = live;
  frame.dot.className = `dot ${state}`;
  say(frame.line.lastChild, state);
  if (state === "refused") fill(frame.main, trouble(live.problem, () => show()));
  const lost = state === "lost";
  if (lost && frame.banner.hidden) {
    const since = live.heardAt ? ` What is shown is from ${clock(live.heardAt)}.` : "";
    fill(frame.banner, h("span", {}, `The connection to the server is lost.${since} It is tried again by itself.`), button("Try now", () => live.retry(), { kind: "small" }));
  }
  if (state !== "connecting") frame.banner.hidden = !lost;
});

// Themes: what the system says, unless somebody chose

function applyTheme() {
  const theme = localStorage.getItem("theme") ?? "auto";
  if (theme === "auto") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.setAttribute("data-theme", theme);
  if (frame) { frame.theme.setAttribute("aria-label", `Theme: ${theme}`); say(frame.theme, { auto: "Auto", light: "Light", dark: "Dark" }[theme]); }
}

function nextTheme() {
  const theme = localStorage.getItem("theme") ?? "auto";
  localStorage.setItem("theme", THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]);
  applyTheme();
}

// Keys

let went = 0;
document.addEventListener("keydown", (event) => {
  if (!frame || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest?.("input,textarea,select,dialog")) {
    if (event.key === "Escape" && event.target === frame.search) frame.search.blur();
    return;
  }
  if (event.key === "/") { event.preventDefault(); frame.search.focus(); frame.search.select(); }
  else if (event.key === "?") help();
  else if (event.key === "g") went = Date.now();
  else if (Date.now() - went < 1500) {
    const item = MENU.find(([, , key]) => key === event.key);
    if (item) { went = 0; go(item[0]); }
  }
});

function help() {
  dialog("Keys", h("dl", { class: "keys" },
    [["/", "find a message by its id, or a topic"], ...MENU.map(([, text, key]) => [`g ${key}`, text]), ["?", "this list"], ["Esc", "close"]]
      .map(([key, text]) => h("div", {}, h("dt", {}, key.split(" ").map((one) => h("kbd", {}, one))), h("dd", {}, text)))));
}

// Beginning

function enter(known) {
  build();
  fill(frame.user, known.via === "open" ? null : [h("span", { title: known.grants.join(", ") }, known.subject), button("Log out", leave, { kind: "plain" })]);
  listSpaces();
  show();
}

function turnAway(why) {
  live.close();
  open?.close?.();
  open = frame = null;
  document.querySelectorAll("dialog").forEach((one) => one.remove());
  document.title = "Log in · mqueue";
  fill(app, loginForm(why, enter), noticeBoard());
  app.querySelector("input").focus();
}

async function leave() {
  await logout();
  turnAway("You are logged out.");
}

events.addEventListener("ended", () => { if (frame) turnAway("Your login has ended: the key or token is no longer accepted. Log in again to go on."); });
addEventListener("hashchange", () => { if (frame) show(); });
addEventListener("unhandledrejection", (event) => { if (event.reason?.name !== "AbortError") tell(event.reason?.message ?? "Something went wrong.", "bad"); });

async function begin() {
  applyTheme();
  try {
    const known = await whoami();
    if (known.login) turnAway("");
    else enter(known);
  } catch (problem) {
    fill(app, h("main", { class: "alone" }, trouble(problem, begin)));
  }
}

begin();
