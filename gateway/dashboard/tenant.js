// One tenant's day: keys and quotas, refusals over time and by limit, the last ones with their request ids, and why.

import { askPause, askRaise } from "./acts.js";
import { Peaks, Refusals } from "./chart.js";
import { SECONDS, bdi, clock, el, grade, number, percent, rate, refusals, spoken, visible, wait } from "./format.js";

const button = (text, act, cls = "") => el("button", { type: "button", class: cls, on: { click: act } }, text);
const cells = (...inside) => inside.map((one) => el("td", {}, one));

function table(caption, heads, rows, empty) {
  if (!rows.length) return el("p", { class: "dim empty" }, empty);
  return el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {}, el("caption", { class: "hidden" }, caption), el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))), el("tbody", {}, rows)));
}

const quota = (limit) => (limit && limit.quota ? `${rate(limit.quota.per_second)}, burst ${number(limit.quota.burst)}` : "\u2013");

export class Tenant {
  constructor(host, fetchJson) {
    this.host = host;
    this.fetchJson = fetchJson;
    this.id = null;
  }

  open(id, window) {
    this.id = id;
    this.window = window;
    this.top = el("div", {});
    this.legend = el("div", { class: "legend" });
    this.plot = el("div", {});
    this.rest = el("div", {});
    const title = el("h1", { tabindex: "-1" }, bdi(id));
    this.host.replaceChildren(el("p", {}, el("a", { href: "#/" }, "\u2190 All tenants")), title, this.top,
      el("h2", {}, "Refusals over time"), this.legend, this.plot, this.peaks(), this.rest);
    this.chart = new Refusals(this.plot);
    this.reached = new Peaks(this.days);
    this.key.addEventListener("change", () => this.drawPeaks(this.key.value).catch(() => {}));
    this.drawPeaks("").catch(() => {});
    title.focus({ preventScroll: true });
    document.title = `${visible(id)} - Evenhand`;
    return this.refresh();
  }

  peaks() {
    this.key = el("select", { name: "key", "aria-label": "Whose peaks and quota" });
    this.kept = el("div", { class: "legend" });
    this.days = el("div", {});
    this.section = el("section", { id: "peaks", hidden: true },
      el("div", { class: "titled" }, el("h2", {}, "Peaks and quota, by day"), this.key), this.kept, this.days);
    return this.section;
  }

  // What is drawn changes once a day, so it is asked for when the page opens and when another key is chosen.
  async drawPeaks(credential) {
    const id = this.id;
    const said = await this.fetchJson(`/dashboard/peaks/${encodeURIComponent(id)}?credential=${encodeURIComponent(credential)}`).catch(() => null);
    if (id !== this.id || !said) return;
    const option = (value, text) => el("option", { value, selected: value === credential }, text);
    this.key.replaceChildren(option("", "All its credentials together"), ...said.keys.map((name) => option(name, visible(name))));
    this.section.hidden = !said.days.length && !said.keys.length;
    this.days.hidden = !said.days.length;
    const lines = said.days.length ? this.reached.draw(said.days, said.quota) : [];
    this.kept.replaceChildren(...lines.map(([name, colour]) => el("span", { class: "key" }, el("span", { class: `swatch ${colour}`, "aria-hidden": "true" }), name)),
      lines.length ? "" : el("span", { class: "dim" }, "No hour of it is over yet."));
  }

  close() { this.id = null; }

  async refresh() {
    const id = this.id, path = encodeURIComponent(id);
    const long = SECONDS[this.window] > 600;
    const from = new Date(Date.now() - SECONDS[this.window] * 1000).toISOString();
    const [known, now, past] = await Promise.all([
      this.fetchJson(`/api/tenants/${path}`).catch((error) => ({ fault: error.message })),
      this.fetchJson(`/dashboard/tenants/${path}`),
      long ? this.fetchJson(`/api/tenants/${path}?from=${from}`).catch(() => null) : null,
    ]);
    if (id !== this.id) return;
    if (known.fault) {
      this.top.replaceChildren(el("p", { class: "dim" }, "Nothing is known of this tenant: it is not listed and has had no request."));
      return;
    }
    this.head(known, now.explain);
    this.draw(past && past.history && past.history.points?.length ? past.history : null, now);
    this.below(known, now);
  }

  head(known, explain) {
    const row = known.windows[this.window] || known.windows["24h"], mark = grade(row.in_profile_success);
    const by = refusals(row);
    const card = (cls, name, value, below) => el("div", { class: `card ${cls}` }, el("p", { class: "name" }, name), el("p", { class: "big" }, value), el("p", { class: "below" }, below));
    this.top.replaceChildren(
      el("div", { class: "numbers" },
        card(mark.name, "In-profile success", [el("span", { class: "sign", role: "img", "aria-label": mark.word }, mark.sign), " ", percent(row.in_profile_success)], "of what its own limits let through"),
        card("", "Success", percent(row.success), `${number(row.served)} of ${number(row.offered)} offered`),
        card(row.within_share_refused ? "poor" : "", "Refused within share", number(row.within_share_refused), "must be 0"),
        card("", "Quota of all its credentials", quota(known.limits), known.limits?.provenance || (known.listed ? "no tenant bucket" : "not listed: a token vouches for it"))),
      el("ul", { class: "why" }, by.map(([limit, count]) => el("li", {}, el("span", { class: "chip" }, `${visible(limit)} `, el("b", {}, number(count))), ` ${spoken(limit)}`))),
      explain.length ? el("div", { class: "explain" }, explain.map((line) => el("p", {}, visible(line)))) : "",
      el("div", { class: "todo" },
        button("Pause its batch", () => askPause({ tenant: this.id, class: "batch" }), "primary"),
        button("Pause all of it", () => askPause({ tenant: this.id })),
        known.listed ? button("Raise its quota", () => askRaise(this.id)) : null));
  }

  draw(stored, now) {
    let points = now.points, step = 10;
    if (stored) {
      step = stored.step_seconds;
      points = stored.points.map((point) => ({ ...point, at: Date.parse(point.at) }));
    }
    this.plot.hidden = !points.length;
    if (!points.length) {
      this.legend.replaceChildren(el("span", { class: "dim" }, "No request in the last ten minutes."));
      return;
    }
    const lines = this.chart.draw(points, step);
    this.legend.replaceChildren(...lines.map(([name, colour]) => el("span", { class: "key" }, el("span", { class: `swatch ${colour}`, "aria-hidden": "true" }), visible(name))));
  }

  below(known, now) {
    const keys = known.credentials.map((key) => el("tr", {}, cells(bdi(key.credential), quota(key), key.provenance || "\u2013", key.mode || "\u2013", key.concurrency ?? "\u2013",
      button("Raise", () => askRaise(this.id, key.credential), "small"))));
    const last = now.last.map((one) => el("tr", {}, cells(clock(one.at), el("code", {}, visible(one.id)), bdi(one.credential), one.class,
      el("span", { class: "chip", title: spoken(one.limit) }, visible(one.limit)), one.never ? "for ever" : wait(one.wait_ms), String(one.status))));
    const windows = Object.entries(known.windows).map(([name, row]) => el("tr", {}, cells(name, number(row.offered), percent(row.success), percent(row.in_profile_success),
      refusals(row).map(([limit, count]) => `${visible(limit)} ${number(count)}`).join(", ") || "none", number(row.rejected))));
    this.rest.replaceChildren(
      el("h2", {}, "Last refusals"), table("Last refusals", ["At (UTC)", "Request", "Credential", "Class", "Limit", "Told to wait", "Status"], last, "None since this process started."),
      el("h2", {}, "Keys"), table("Keys", ["Credential", "Quota", "From", "Mode", "In flight", ""], keys, "None is listed."),
      el("h2", {}, "Windows"), table("Windows", ["Window", "Offered", "Success", "In-profile", "Refused by", "Rejected"], windows, ""));
  }
}
