// What is read within ten seconds: who is hurt, by which limit, because of whom, and what to do.

import { askPause, askRaise, end } from "./acts.js";
import { bdi, el, grade, number, percent, rate, refusals, refusedSum, spoken, visible } from "./format.js";

const SIGNS = { degraded: "\u25bc", posture: "\u25c6", paused: "\u2016", shadow: "\u25cc", off: "\u25cb", exempt: "\u25b2", warning: "!" };
const WORDS = { degraded: "Degraded", posture: "Posture", paused: "Paused", shadow: "In shadow", off: "Off", exempt: "Exempt", warning: "Warning" };
const ACTS = { paused: "pause", posture: "posture", exempt: "exemptions" };
const SHOWN = 6;

const button = (text, act, cls = "") => el("button", { type: "button", class: cls, on: { click: act } }, text);

function link(id) {
  return el("a", { href: `#/tenant/${encodeURIComponent(id)}`, class: "who-link" }, bdi(id));
}

// The same entries are not drawn again: a button under the pointer must stay.
function changed(host, key) {
  const text = JSON.stringify(key);
  if (host.dataset.key === text) return false;
  host.dataset.key = text;
  return true;
}

export function showBand(host, entries) {
  host.hidden = !entries.length;
  if (!changed(host, entries)) return;
  const one = (entry) => el("li", { class: `entry ${entry.kind}` },
    el("span", { class: "sign", "aria-hidden": "true" }, SIGNS[entry.kind] || "!"), el("b", {}, WORDS[entry.kind] || entry.kind), " ",
    el("span", {}, visible(entry.text)),
    entry.act ? button("End", () => end(ACTS[entry.kind], entry.act, entry.text), "small") : null);
  const lines = entries.map(one);
  const rest = lines.splice(SHOWN);
  const list = el("ul", {}, lines);
  if (rest.length) list.append(el("li", {}, el("details", {}, el("summary", {}, `${rest.length} more`), el("ul", {}, rest))));
  host.replaceChildren(list);
}

// Those whose requests their own limits let through and that were not served, or that were refused at all.
const hurt = (row) => row.in_profile_success !== null && row.in_profile_success < 0.99 && row.offered >= 20;

export function showVerdict(host, snapshot) {
  const heavy = snapshot.heavy[0] || null;
  const heavies = new Set(snapshot.heavy.map((row) => row.tenant));
  const victims = snapshot.tenants.filter((row) => hurt(row) && !row.share_over && !heavies.has(row.tenant));
  const worst = snapshot.tenants.find((row) => snapshot.worst && row.tenant === snapshot.worst.tenant) || null;
  const { mark, lead } = said(snapshot, victims, worst);
  if (!host.querySelector(".todo")) {
    host.replaceChildren(el("p", { class: "lead" }), el("p", { class: "why" }), el("div", { class: "todo" }));
  }
  const [first, why, todo] = host.children;
  host.className = `verdict ${mark.name}`;
  const sign = el("span", { class: "sign", "aria-hidden": "true" }, mark.sign);
  if (changed(first, [mark.name, lead.map((part) => part.textContent ?? part)])) first.replaceChildren(sign, " ", el("span", {}, lead));
  const reasons = because(snapshot, victims, heavy);
  if (changed(why, reasons.map((part) => part.textContent ?? part))) why.replaceChildren(...reasons);
  // Buttons stay as they are while they do the same: one that is being pressed must not be replaced.
  const [limit] = victims.length ? refusals(victims[0])[0] || [] : [];
  const raise = limit === "key" || limit === "tenant" ? victims[0].tenant : null;
  const stop = heavy && (victims.length || snapshot.contended) ? heavy.tenant : null;
  const batch = stop !== null && hasBatch(heavy);
  if (!changed(todo, [raise, stop, batch])) return;
  todo.replaceChildren(...[
    batch && button(["Pause batch of ", visible(stop)], () => askPause({ tenant: stop, class: "batch" }), "primary"),
    stop !== null && button(["Pause all of ", visible(stop)], () => askPause({ tenant: stop }), batch ? "" : "primary"),
    raise !== null && button(["Raise the quota of ", visible(raise)], () => askRaise(raise)),
  ].filter(Boolean));
}

// Whether there is batch of it to pause; where that is not known, there may be.
const hasBatch = (row) => !row.classes || !row.classes.length || row.classes.includes("batch");

function said(snapshot, victims, worst) {
  const low = snapshot.worst ? snapshot.worst.in_profile_success : null;
  if (!snapshot.aggregate.offered) return { mark: grade(null), lead: ["No requests in this window."] };
  if (low === null) return { mark: grade(null), lead: ["Too few requests to say who is worst."] };
  if (victims.length) {
    const least = victims[0].in_profile_success;
    return { mark: grade(least), lead: [link(victims[0].tenant), ...(victims.length > 1 ? [` and ${victims.length - 1} more are hurt; the worst of them got `] : [" is hurt: it got "]),
      el("b", {}, percent(least)), " of what its own limits let through."] };
  }
  if (low < 0.99 && worst) {
    return { mark: { name: "fair", sign: "\u25b2" }, lead: ["Nobody within its share is hurt. ", link(worst.tenant), " asks for more than its share and gets ", el("b", {}, percent(low)), "."] };
  }
  if (low < 0.99) return { mark: grade(low), lead: [link(snapshot.worst.tenant), " is worst: ", el("b", {}, percent(low)), "."] };
  return { mark: grade(low), lead: ["Nobody is hurt. The worst of ", el("b", {}, number(snapshot.count)), " tenants, ", link(snapshot.worst.tenant), ", got ", el("b", {}, percent(low)), "."] };
}

function because(snapshot, victims, heavy) {
  const why = [];
  if (victims.length) {
    const [limit] = refusals(victims[0])[0] || [];
    why.push(limit ? `Refused by ${visible(limit)}: ${spoken(limit)}. ` : "Not refused: the service behind failed or was too slow. ");
  }
  if (heavy) {
    const times = heavy.share ? heavy.rate / heavy.share : null;
    const [limit] = refusals(heavy)[0] || [];
    why.push(victims.length ? "Because of " : "Most is asked by ", link(heavy.tenant), `: ${rate(heavy.rate)}`,
      times && times > 1.05 ? `, ${times >= 10 ? Math.round(times) : times.toFixed(1)} times its share of ${rate(heavy.share)}` : "",
      limit ? `; refused by ${visible(limit)} (${spoken(limit)}).` : ".");
  } else if (snapshot.contended) {
    why.push("More is asked than the backstop has, by many at once, and nobody is over its share: it is time for capacity.");
  }
  return why;
}

export function showNumbers(host, snapshot) {
  const total = snapshot.aggregate, worst = snapshot.worst, back = snapshot.backstop || null;
  const card = (cls, name, value, below) => el("div", { class: `card ${cls}` }, el("p", { class: "name" }, name), el("p", { class: "big" }, value), el("p", { class: "below" }, below));
  const mark = grade(worst && worst.in_profile_success);
  const cards = [
    card("aggregate", "Aggregate success", percent(total.success), `mean over tenants ${percent(total.success_by_tenant)}`),
    card(`worst ${mark.name}`, "Worst tenant", [el("span", { class: "sign", role: "img", "aria-label": mark.word }, mark.sign), " ", percent(worst && worst.in_profile_success)],
      worst ? [link(worst.tenant), worst.interval ? ` 95\u202f%: ${percent(worst.interval[0])} to ${percent(worst.interval[1])}` : ""] : "nobody has 20 requests"),
    card(total.within_share_refused ? "within poor" : "within", "Refused within share", number(total.within_share_refused), total.within_share_refused ? "must be 0" : "must be 0, and is"),
    card("offered", "Offered", snapshot.seconds ? rate(total.offered / snapshot.seconds) : number(total.offered), `${number(total.served)} served, ${number(total.refused)} refused, ${number(total.upstream_error)} failed behind`),
  ];
  if (back && back.used !== undefined) {
    const used = Math.min(1, back.used);
    cards.push(card(snapshot.contended ? "backstop fair" : "backstop", "Backstop", [percent(back.used), " ", el("meter", { min: 0, max: 1, high: 0.85, optimum: 0, value: used, "aria-label": "Backstop in use" })],
      `of ${rate(back.capacity)}; ${snapshot.contended ? "\u25b2 contended, " : ""}level ${rate(back.level)} for each weight`));
  }
  host.replaceChildren(...cards);
}

export function showHeavy(host, rows) {
  if (!changed(host, rows.map((row) => [row.tenant, Math.round(row.rate), Math.round(row.share || 0)]))) return;
  if (!rows.length) {
    host.replaceChildren(el("p", { class: "dim empty" }, "Nobody asks for more than its share."));
    return;
  }
  const top = Math.max(...rows.map((row) => row.rate));
  host.replaceChildren(el("ol", { class: "heavies" }, rows.map((row) => el("li", {},
    el("p", {}, link(row.tenant), " ", el("span", { class: "tag over" }, "over share")),
    bar("offered", row.rate, top), bar("its share", row.share, top),
    el("p", { class: "dim" }, `${number(refusedSum(row))} refused: ${refusals(row).slice(0, 3).map(([limit, count]) => `${visible(limit)} ${number(count)}`).join(", ")}`),
    el("div", { class: "todo" }, hasBatch(row) ? button("Pause batch", () => askPause({ tenant: row.tenant, class: "batch" }), "small") : null,
      button("Pause all", () => askPause({ tenant: row.tenant }), "small"))))));
}

function bar(name, value, top) {
  const part = value === null || !top ? 0 : Math.max(0.5, Math.min(100, (100 * value) / top));
  const fill = el("span", { class: "fill" });
  fill.style.width = `${part}%`;
  return el("div", { class: `bar ${name === "offered" ? "is-offered" : "is-share"}` }, el("span", { class: "bar-name" }, name), el("span", { class: "track", "aria-hidden": "true" }, fill), el("span", { class: "num" }, rate(value)));
}
