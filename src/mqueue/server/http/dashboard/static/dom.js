// Elements, made in one way only: text stays text. There is no innerHTML anywhere, and the browser would refuse it.

const SVG = "http://www.w3.org/2000/svg";

/** An element. Attributes that are null, undefined or false are left out; `on…` are listeners; children may be nested. */
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function s(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

export function append(element, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/** Put other children in the place of those that are there. */
export function fill(element, ...children) {
  element.replaceChildren();
  return append(element, children);
}

/** The same for what is shown again and again. Who has the focus in it keeps it, what was scrolled aside stays there, and
 * text that somebody is marking is not pulled from under the pointer. What is equal stays as it is. */
export function refill(element, ...children) {
  if (Date.now() - markedAt < MARKING_MS && isMarked(element)) return element;
  const next = append(element.cloneNode(false), children);
  if (next.isEqualNode(element)) return element;
  const held = element.contains(document.activeElement) ? document.activeElement : null;
  const place = held ? alike(element, held).indexOf(held) : -1;
  const aside = [...element.querySelectorAll(".tablebox")].filter((box) => box.scrollLeft).map((box) => [box, box.scrollLeft]);
  element.replaceChildren(...next.childNodes);
  for (const [box, left] of aside) for (const again of alike(element, box)) again.scrollLeft = left;
  if (held) alike(element, held)[place]?.focus({ preventScroll: true });
  return element;
}

const MARKING_MS = 10_000;
let markedAt = 0;
document.addEventListener("selectionchange", () => { markedAt = Date.now(); });

function isMarked(element) {
  const marked = getSelection();
  return !marked.isCollapsed && marked.containsNode(element, true);
}

/** Elements that are the same to whoever uses them. */
function alike(element, wanted) {
  const sign = (one) => one.getAttribute("href") ?? one.getAttribute("aria-label") ?? one.textContent;
  return [...element.getElementsByTagName(wanted.tagName)].filter((one) => sign(one) === sign(wanted));
}

/** Change the text only where it is another: a screen reader is not told the same again and again. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
