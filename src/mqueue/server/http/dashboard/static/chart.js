// Lines over time, as SVG: a few series, an axis that reads well, the values under the pointer. And small ones, without.

import { fill, h, s, say } from "./dom.js";
import { clock, rate, short } from "./format.js";

const HEIGHT = 168;
const PAD = { top: 10, right: 12, bottom: 22, left: 44 };

/** Numbers that an axis shows: two to five of them, round, and whole where there are no halves. */
function ticks(most, least) {
  const rough = Math.max(most / 4, least);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const found = [];
  for (let value = 0; value <= most + step * 0.999; value += step) found.push(value);
  return found;
}

/** Whole minutes, some four of them. */
function moments(from, to) {
  const minutes = (to - from) / 60000;
  const step = [1, 2, 5, 10, 15, 30].find((size) => minutes / size <= 5) ?? 60;
  const found = [];
  const size = step * 60000;
  for (let at = Math.ceil(from / size) * size; at <= to; at += size) found.push(at);
  return found;
}

function line(points, x, y) {
  return points.map(([at, value], number) => `${number ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
}

/** A chart with a title. `series`: [{ name, kind, place }], `place` being where in a point its value stands. */
export class Chart {
  constructor(title, series, { perSecond = false } = {}) {
    this.title = title;
    this.series = series;
    this.show = perSecond ? rate : short;
    this.least = perSecond ? 1e-9 : 1;
    this.points = [];
    this.svg = s("svg", { class: "chart", role: "img", "aria-label": title, preserveAspectRatio: "none" });
    this.values = series.map(() => h("b", {}, "–"));
    this.when = h("span", { class: "when" });
    const legend = series.map((one, number) =>
      h("span", { class: `key ${one.kind}` }, one.name, " ", this.values[number]));
    this.element = h("figure", { class: "panel chartbox" },
      h("figcaption", {}, h("h2", {}, title), h("div", { class: "legend" }, this.when, legend)), this.svg);
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.leave());
    this.width = 0;
    this.watcher = new ResizeObserver(() => {
      const width = Math.round(this.svg.getBoundingClientRect().width);
      if (width && width !== this.width) { this.width = width; this.draw(); }
    });
    this.watcher.observe(this.svg);
  }

  /** All points, oldest first: [at in ms, values …]. */
  set(points) {
    this.points = points;
    this.draw();
  }

  draw() {
    const { points, series, svg, width } = this;
    if (!width) return;
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    if (points.length < 2) {
      fill(svg, s("text", { class: "nothing", x: width / 2, y: HEIGHT / 2, "text-anchor": "middle" }, "Counting…"));
      this.label();
      return;
    }
    const from = points[0][0], to = points.at(-1)[0];
    const marks = ticks(Math.max(...points.flatMap((point) => series.map(({ place }) => point[place])), 1), this.least);
    const most = marks.at(-1);
    const x = (at) => PAD.left + ((at - from) / Math.max(1, to - from)) * (width - PAD.left - PAD.right);
    const y = (value) => HEIGHT - PAD.bottom - (value / most) * (HEIGHT - PAD.top - PAD.bottom);
    this.x = x;
    this.y = y;
    const floor = y(0).toFixed(1);
    fill(svg,
      marks.map((value) => [
        s("line", { class: value ? "grid" : "base", x1: PAD.left, x2: width - PAD.right, y1: y(value), y2: y(value) }),
        s("text", { class: "tick", x: PAD.left - 8, y: y(value) + 4, "text-anchor": "end" }, this.show(value)),
      ]),
      moments(from, to).map((at) =>
        s("text", { class: "tick", x: x(at), y: HEIGHT - 5, "text-anchor": "middle" }, clock(at).slice(0, 5))),
      series.map(({ kind, place }) => {
        const path = line(points.map((point) => [point[0], point[place]]), x, y);
        return [
          s("path", { class: `area ${kind}`, d: `${path}L${x(to).toFixed(1)} ${floor}L${x(from).toFixed(1)} ${floor}Z` }),
          s("path", { class: `line ${kind}`, d: path }),
        ];
      }),
      (this.cross = s("g", { class: "cross", visibility: "hidden" })),
    );
    this.label();
  }

  label(point = this.points.at(-1), when = "") {
    if (!point) return;
    this.series.forEach(({ place }, number) => say(this.values[number], this.show(point[place])));
    say(this.when, when);
    const told = this.series.map(({ name, place }) => `${name} ${this.show(this.points.at(-1)[place])}`).join(", ");
    this.svg.setAttribute("aria-label", `${this.title}, now: ${told}`);
  }

  point(event) {
    if (!this.x || this.points.length < 2) return;
    const at = event.clientX - this.svg.getBoundingClientRect().left;
    const near = this.points.reduce((best, one) =>
      (Math.abs(this.x(one[0]) - at) < Math.abs(this.x(best[0]) - at) ? one : best));
    const x = this.x(near[0]);
    fill(this.cross,
      s("line", { x1: x, x2: x, y1: PAD.top, y2: HEIGHT - PAD.bottom }),
      this.series.map(({ kind, place }) => s("circle", { class: kind, cx: x, cy: this.y(near[place]), r: 3.5 })));
    this.cross.setAttribute("visibility", "visible");
    this.label(near, clock(near[0]));
  }

  leave() {
    this.cross?.setAttribute("visibility", "hidden");
    this.label();
  }

  close() {
    this.watcher.disconnect();
  }
}

/** A line without an axis, for a tile. It says nothing that the number beside it does not. */
export function spark(points, place, kind) {
  const values = points.map((point) => point[place]);
  const most = Math.max(...values, 1);
  const shown = values.map((value, number) => [number, value]);
  const x = (number) => (number / Math.max(1, values.length - 1)) * 100;
  const y = (value) => 23 - (value / most) * 21;
  return s("svg", { class: `spark ${kind}`, viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true" },
    values.length > 1 ? s("path", { d: line(shown, x, y) }) : null);
}
