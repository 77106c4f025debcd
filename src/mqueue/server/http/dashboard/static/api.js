// Calls to the server. What it refuses becomes a Problem that says why; who is no longer let in has to log in again.

export class Problem extends Error {
  constructor(status, code, message, retryable = false) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryable = retryable;
  }
}

const session = { csrf: "", known: null };
export const events = new EventTarget();

export function path(...parts) {
  return "/v1/" + parts.map(encodeURIComponent).join("/");
}

/** Ask the server; the answer from JSON, null if it is empty. `query`: names that have a value. */
export async function call(method, target, { query = {}, body, signal } = {}) {
  const answer = await send(method, target, { query, body, signal });
  return answer.status === 204 ? null : answer.json();
}

export const get = (target, query, signal) => call("GET", target, { query, signal });
export const post = (target, body, query) => call("POST", target, { body, query });

/** The answer itself, for those who read it piece by piece. Raises a Problem for anything but success. */
export async function send(method, target, { query = {}, body, signal, accept } = {}) {
  const headers = {};
  if (session.csrf && method !== "GET") headers["X-Mqueue-Csrf"] = session.csrf;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (accept) headers.Accept = accept;
  let answer;
  try {
    answer = await fetch(withQuery(target, query), {
      method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body), credentials: "same-origin",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "unreachable", "The server cannot be reached. Nothing is known of what was asked for.", true);
  }
  if (answer.ok) return answer;
  const problem = await told(answer);
  if (answer.status === 401 && target !== "/v1/session") events.dispatchEvent(new Event("ended"));
  throw problem;
}

async function told(answer) {
  try {
    const { error } = await answer.json();
    return new Problem(answer.status, error.code, error.message, error.retryable);
  } catch {
    return new Problem(answer.status, "unknown", `The server answered ${answer.status}.`);
  }
}

function withQuery(target, query) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `${target}?${new URLSearchParams(given)}` : target;
}

// Who we are

export async function whoami() {
  return remember(await get("/v1/session"));
}

export async function login(credential) {
  return remember(await post("/v1/session", { credential }));
}

export async function logout() {
  await call("DELETE", "/v1/session");
  return remember({ login: true });
}

function remember(known) {
  session.known = known;
  session.csrf = known.csrf ?? "";
  return known;
}

const NEEDED = { read: ["read", "admin"], publish: ["write", "admin"], manage: ["admin"] };

/** Whether the one who is logged in may do something; the server decides, this only tells which buttons are shown. */
export function may(verb, namespace, topic) {
  return (session.known?.grants ?? []).some((grant) => {
    const [scope, place] = grant.split(":");
    const [space, topics = "*"] = place.split("/");
    if (!NEEDED[verb].includes(scope) || (space !== "*" && space !== namespace)) return false;
    const origin = (topic ?? "").replace(/(\.dlq)+$/, "");
    if (topics.endsWith(".*")) return origin.startsWith(topics.slice(0, -1));
    return topics === "*" || topics === topic || topics === origin;
  });
}

/** The namespaces that somebody's grants name; null: any. */
export function namespacesGranted() {
  const spaces = new Set((session.known?.grants ?? []).map((grant) => grant.split(":")[1].split("/")[0]));
  return spaces.has("*") ? null : [...spaces].sort();
}
