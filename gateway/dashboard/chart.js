// The chart: aggregate and worst tenant, always together. And the chart of one tenant's refusals.

import { SECONDS, el, percent, visible } from "./format.js";

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function axes(unit) {
  const grid = { stroke: style("--line"), width: 1 };
  const common = { stroke: style("--dim"), grid, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  return [{ ...common, size: 32, values: (_, all, __, ___, step) => all.map((at) => stamp(at, step)) }, { ...common, size: 52, values: (_, all) => all.map((value) => `${value}${unit}`) }];
}

// Always UTC, as in the log: `02:20:10`, `02:20` or `12-24`, as coarse as the step between two marks.
function stamp(at, step) {
  const text = new Date(at * 1000).toISOString();
  if (step >= 86400) return text.slice(5, 10);
  return text.slice(11, step >= 60 ? 16 : 19);
}

class Plot {
  constructor(host, height) {
    this.host = host;
    this.height = height;
    this.plot = null;
    new ResizeObserver(() => {
      if (this.plot && host.clientWidth) this.plot.setSize({ width: host.clientWidth, height: this.height });
    }).observe(host);
  }

  draw(options, data) {
    this.plot?.destroy();
    const tz = (at) => new Date(at * 1000 + new Date().getTimezoneOffset() * 60000);
    this.plot = new uPlot(
      { width: this.host.clientWidth || 600, height: this.height, legend: { show: false }, tzDate: tz, ...options },
      data, this.host);
  }
}

export class Headline {
  constructor(host, legend, text) {
    this.chart = new Plot(host, 210);
    this.legend = legend;
    this.text = text;
    this.columns = [[], [], []];
    this.window = "5m";
    this.live = true;
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
  }

  async load(window, fetchJson) {
    this.window = window;
    this.live = SECONDS[window] <= 3600;
    const head = await fetchJson(this.live ? "/dashboard/head" : `/dashboard/head?window=${window}`);
    if (window !== this.window) return;
    const scaled = (share) => (share === null ? null : share * 100);
    this.columns = [head.at.map((at) => at / 1000), head.aggregate.map(scaled), head.worst.map(scaled)];
    this.redraw();
  }

  push(at, aggregate, worst) {
    if (!this.live) return;
    const [times, totals, lows] = this.columns;
    if (times.length && at <= times[times.length - 1]) return;
    times.push(at);
    totals.push(aggregate === null ? null : aggregate * 100);
    lows.push(worst === null ? null : worst * 100);
    const keep = at - 3600;
    while (times.length && times[0] < keep) for (const column of this.columns) column.shift();
    this.chart.plot ? this.chart.plot.setData(this.cut()) : this.redraw();
  }

  // At least a minute is shown, so that the first points are not a wall.
  cut() {
    const [times] = this.columns;
    const span = Math.max(60, Math.min(this.live ? Math.max(SECONDS[this.window], 300) : SECONDS[this.window], 7776000));
    const from = (times.length ? times[times.length - 1] : Date.now() / 1000) - span;
    const index = times.findIndex((at) => at >= from);
    return this.columns.map((column) => (index > 0 ? column.slice(index) : column));
  }

  redraw() {
    const line = (label, stroke, dash, width) => ({
      label, stroke, dash, width, spanGaps: false, points: { show: false }, scale: "y",
    });
    this.chart.draw({
      scales: { x: { time: true }, y: { range: [0, 102] } },
      series: [{}, line("aggregate", style("--blue"), [], 2), line("worst", style("--orange"), [7, 4], 2.5)],
      axes: axes("\u202f%"),
      cursor: { points: { size: 7 }, drag: { x: false, y: false } },
    }, this.cut());
  }

  tell(aggregate, worst) {
    const key = (cls, name, value, who) => el("span", { class: "key" },
      el("span", { class: `swatch ${cls}`, "aria-hidden": "true" }), `${name} `, el("b", {}, percent(value)), who);
    const who = worst ? el("bdi", { class: "id", dir: "ltr" }, ` ${visible(worst.tenant)}`) : null;
    this.legend.replaceChildren(
      key("blue", "Aggregate", aggregate, null), key("orange", "Worst tenant", worst && worst.in_profile_success, who));
    this.text.textContent =
      `Aggregate ${percent(aggregate)}, worst tenant ${worst ? `${visible(worst.tenant)} ${percent(worst.in_profile_success)}` : "none"}`;
  }
}

// What a key reached day by day, and the quota that it had: a number is judged by its distance to the line.
export class Peaks {
  constructor(host) { this.chart = new Plot(host, 190); }

  // `days`: {at (ms), peak, offered, censored}; `quota`: [at (ms), per second], each until the next.
  draw(days, quota) {
    const times = [...new Set([...days.map((day) => day.at), ...quota.map(([at]) => at)])].sort((a, b) => a - b);
    const of = new Map(days.map((day) => [day.at, day]));
    const steps = [];
    let index = 0, now = null;
    for (const at of times) {
      while (index < quota.length && quota[index][0] <= at) now = quota[index++][1];
      steps.push(now);
    }
    const column = (name) => times.map((at) => of.get(at)?.[name] ?? null);
    const held = times.map((at) => (of.get(at)?.censored ? of.get(at).peak : null));
    const line = (label, stroke, dash, width, more = {}) => ({ label, stroke: style(stroke), dash, width, spanGaps: true, points: { show: days.length < 40, size: 5 }, ...more });
    this.chart.draw({
      scales: { x: { time: true }, y: { range: (_, low, high) => [0, (high || 1) * 1.08] } },
      series: [{}, line("offered", "--dim", [3, 3], 1.5), line("peak", "--blue", [], 2),
        line("held", "--orange", [], 0, { paths: () => null, points: { show: true, size: 9 } }),
        line("quota", "--violet", [2, 3], 2, { paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } })],
      axes: axes("/s"),
      cursor: { drag: { x: false, y: false } },
    }, [times.map((at) => at / 1000), column("offered"), column("peak"), held, steps]);
    return [["offered (highest 10 s)", "dim"], ["admitted (highest 10 s)", "blue"], ["held back that day", "orange"], ["quota", "violet"]];
  }
}

const DASHES = [[], [6, 3], [2, 3], [10, 3, 2, 3]];

export class Refusals {
  constructor(host) { this.chart = new Plot(host, 190); }

  // `points`: {at (ms), offered, served, refused: {limit: n}}, each of `step` seconds.
  draw(points, step) {
    const limits = [...new Set(points.flatMap((point) => Object.keys(point.refused)))].sort();
    const per = (count) => count / step;
    const columns = [
      points.map((point) => point.at / 1000), points.map((point) => per(point.offered)),
      points.map((point) => per(point.served)), ...limits.map((limit) => points.map((point) => per(point.refused[limit] || 0))),
    ];
    const colours = ["--orange", "--violet", "--green", "--red"];
    const line = (label, stroke, dash, width) => ({ label, stroke, dash, width, points: { show: points.length < 40, size: 4 } });
    this.chart.draw({
      scales: { x: { time: true }, y: { range: (_, low, high) => [0, (high || 1) * 1.08] } },
      series: [{}, line("offered", style("--dim"), [3, 3], 1.5), line("served", style("--blue"), [], 2),
        ...limits.map((limit, index) => line(limit, style(colours[index % 4]), DASHES[(index + 1) % 4], 2))],
      axes: axes("/s"),
      cursor: { drag: { x: false, y: false } },
    }, columns);
    return [["offered", "dim"], ["served", "blue"],
      ...limits.map((limit, index) => [limit, ["orange", "violet", "green", "red"][index % 4]])];
  }
}
