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

/** Change the text only where it is another: a screen reader is not told the same again and again. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
