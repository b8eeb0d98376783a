// The list of tenants: the server sorts and searches, the page holds only the rows that are looked at. Ten thousand
// tenants are forty rows and a tall empty box.

import { bdi, el, grade, number, percent, rate, refusals, spark, spoken, visible } from "./format.js";

const COLUMNS = [
  { name: "Tenant", sort: "tenant" },
  { name: "In profile", sort: "worst" },
  { name: "10 min", spark: true },
  { name: "Offered", sort: "offered" },
  { name: "10 min", spark: true },
  { name: "Refused by", sort: "refused" },
  { name: "Quota" },
  { name: "Share" },
];
const SPARE = 10;
export const PAGE = 60;

export class List {
  // `open(id)` shows a tenant; `ask({sort, offset})` wants other rows.
  constructor(host, { open, ask }) {
    this.ask = ask;
    this.open = open;
    this.sort = "worst";
    this.offset = 0;
    this.total = 0;
    this.rows = [];
    this.at = -1;
    this.span = "10 min";
    this.lines = new Map();
    this.body = el("div", { class: "rows", role: "presentation" });
    this.scroller = el("div", { class: "scroller", tabindex: "0", role: "rowgroup", "aria-label": "Tenants; arrow keys move, Enter opens" }, this.body);
    this.head = el("div", { class: "row head", role: "row" });
    this.table = el("div", { class: "table", role: "table", "aria-label": "Tenants" }, el("div", { role: "rowgroup" }, this.head), this.scroller);
    this.empty = el("p", { class: "dim empty", hidden: true }, "No tenant has had a request in this window.");
    host.replaceChildren(this.table, this.empty);
    this.scroller.addEventListener("scroll", () => this.look(), { passive: true });
    this.scroller.addEventListener("keydown", (event) => this.key(event));
    this.scroller.addEventListener("focusin", (event) => {
      const row = event.target.closest?.("[data-index]");
      if (row) this.at = Number(row.dataset.index);
    });
    this.heads();
  }

  height() { return Number.parseFloat(getComputedStyle(this.table).getPropertyValue("--row")) || 40; }

  heads() {
    this.head.replaceChildren(...COLUMNS.map((column) => {
      const on = column.sort === this.sort;
      const arrow = column.sort === "worst" || column.sort === "tenant" ? " \u25b4" : " \u25be";
      const inside = column.sort
        ? el("button", { type: "button", class: "sort", on: { click: () => this.sortBy(column.sort) } }, column.name, on ? arrow : "")
        : column.spark ? this.span : column.name;
      return el("span", { role: "columnheader", class: "cell", "aria-sort": on ? (arrow === " \u25b4" ? "ascending" : "descending") : null }, inside);
    }));
  }

  // A window that reaches further back than ten minutes has lines of its own, which come after the rows.
  spanOf(window) {
    const span = window === "24h" ? "24 h" : window === "90d" ? "90 d" : "10 min";
    if (span === this.span) return;
    this.span = span;
    this.lines.clear();
    this.heads();
  }

  sortBy(sort) {
    this.sort = sort;
    this.heads();
    this.scroller.scrollTop = 0;
    this.offset = 0;
    this.ask({ sort, offset: 0 });
  }

  // Ask for other rows if those in view are not at hand.
  look() {
    const row = this.height();
    const first = Math.floor(this.scroller.scrollTop / row);
    const last = first + Math.ceil(this.scroller.clientHeight / row);
    this.draw();
    const have = this.offset + this.rows.length;
    if ((first >= this.offset && (last <= have || have >= this.total)) || !this.total) return;
    const offset = Math.max(0, first - SPARE);
    if (offset === this.offset) return;
    this.offset = offset;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask({ offset }), 80);
  }

  show(snapshot) {
    this.total = snapshot.total;
    this.at = Math.min(this.at, this.total - 1);
    this.offset = snapshot.offset;
    this.rows = snapshot.tenants;
    this.empty.hidden = this.total > 0;
    this.table.setAttribute("aria-rowcount", String(this.total + 1));
    this.draw();
  }

  draw() {
    const row = this.height();
    this.body.style.height = `${this.total * row}px`;
    const focused = this.body.contains(document.activeElement) ? this.at : -1;
    this.body.replaceChildren(...this.rows.map((one, index) => {
      const line = this.line(one, this.offset + index);
      line.style.top = `${(this.offset + index) * row}px`;
      return line;
    }));
    if (focused >= 0) this.body.querySelector(`[data-index="${focused}"] a`)?.focus({ preventScroll: true });
  }

  line(row, index) {
    const mark = grade(row.in_profile_success);
    const by = refusals(row);
    const cell = (cls, ...inside) => el("span", { role: "cell", class: `cell ${cls}` }, ...inside);
    const quota = row.quota, lines = this.lines.get(row.tenant) || row.spark;
    return el("div", { class: `row ${mark.name}`, role: "row", "data-index": index, "aria-rowindex": index + 2,
      on: { click: (event) => { if (!event.target.closest("a")) this.open(row.tenant); } } },
      cell("who", el("a", { href: `#/tenant/${encodeURIComponent(row.tenant)}`, tabindex: "-1", title: visible(row.tenant) }, bdi(row.tenant)),
        row.share_over ? el("span", { class: "tag over", title: "asks for more than its share" }, "over") : null),
      cell("success", el("span", { class: "sign", title: mark.word, "aria-label": mark.word, role: "img" }, mark.sign), el("b", {}, percent(row.in_profile_success)),
        row.success !== row.in_profile_success ? el("small", { class: "dim" }, ` ${percent(row.success)} raw`) : null),
      cell("line", spark(lines.success, { max: 100, cls: "of-success", label: `In-profile success, last ${this.span}` })),
      cell("num", rate(row.rate)),
      cell("line", spark(lines.offered, { cls: "of-offered", label: `Offered, last ${this.span}` })),
      cell("by", by.length ? by.slice(0, 3).map(([limit, count]) => el("span", { class: "chip", title: spoken(limit) }, `${visible(limit)} `, el("b", {}, number(count)))) : el("span", { class: "dim" }, "none"),
        row.within_share_refused ? el("span", { class: "tag within", title: "refused within its share: must not happen" }, `! ${number(row.within_share_refused)} within share`) : null),
      cell("quota", quota ? `${rate(quota.rate)} ` : "\u2013", quota ? el("small", { class: "dim" }, quota.provenance) : null),
      cell("num share", rate(row.share)));
  }

  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 12, PageUp: -12, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Enter" && this.at >= 0) {
      const row = this.rows[this.at - this.offset];
      if (row) this.open(row.tenant);
      event.preventDefault();
      return;
    }
    if (step === undefined || !this.total) return;
    event.preventDefault();
    this.at = Math.max(0, Math.min(this.total - 1, this.at + step));
    const row = this.height(), top = this.at * row;
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    else if (top + row > this.scroller.scrollTop + this.scroller.clientHeight) this.scroller.scrollTop = top + row - this.scroller.clientHeight;
    this.look();
    this.body.querySelector(`[data-index="${this.at}"] a`)?.focus({ preventScroll: true });
  }
}
