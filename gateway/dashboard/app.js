// Where the page is (the address says it, so every view can be sent to somebody), and the stream that feeds it.

import { askPause, askPosture, askReload, toast } from "./acts.js";
import { Headline } from "./chart.js";
import { SECONDS, WINDOWS, el, visible } from "./format.js";
import { List, PAGE } from "./list.js";
import { showBand, showHeavy, showNumbers, showVerdict } from "./overview.js";
import { Tenant } from "./tenant.js";

const $ = (id) => document.getElementById(id);
const state = { window: "5m", sort: "worst", q: "", offset: 0, tenant: null };
let source = null, poll = null, beat = 0, failures = 0;

export async function fetchJson(path) {
  const answer = await fetch(path, { headers: { accept: "application/json" } });
  if (answer.status === 401) location.assign("/login");
  if (!answer.ok) throw new Error(String(answer.status));
  return answer.json();
}

const list = new List($("list"), {
  open: (id) => { location.hash = `#/tenant/${encodeURIComponent(id)}?window=${state.window}`; },
  ask: (wanted) => { Object.assign(state, wanted); wanted.sort ? write() : null; listen(); },
});
const headline = new Headline($("chart"), $("legend"), $("chart-text"));
const tenant = new Tenant($("tenant"), fetchJson);

// Whose figures these are, where several instances share a store.
function whose(snapshot) {
  if (!snapshot.scope) return "live";
  if (snapshot.scope !== "fleet") return "live, this instance alone";
  return snapshot.instances === 1 ? "live" : `live, ${snapshot.instances} instances`;
}

function live(text, cls) {
  $("live").className = `live ${cls}`;
  if ($("live-text").textContent !== text) $("live-text").textContent = text;
}

// The address.

function read() {
  const [path, query = ""] = location.hash.replace(/^#/, "").split("?");
  const asked = new URLSearchParams(query);
  const window = WINDOWS.includes(asked.get("window")) ? asked.get("window") : state.window;
  const found = /^\/tenant\/(.+)$/.exec(path);
  let id = null;
  try { id = found ? decodeURIComponent(found[1]) : null; } catch { id = found[1]; }
  Object.assign(state, { window, q: asked.get("q") ?? (id === null ? "" : state.q), sort: asked.get("sort") || state.sort, tenant: id });
}

function write() {
  const query = new URLSearchParams({ window: state.window });
  if (state.q && state.tenant === null) query.set("q", state.q);
  if (state.sort !== "worst" && state.tenant === null) query.set("sort", state.sort);
  const path = state.tenant === null ? "/" : `/tenant/${encodeURIComponent(state.tenant)}`;
  history.replaceState(null, "", `#${path}?${query}`);
}

function go() {
  read();
  write();
  for (const button of $("windows").children) button.setAttribute("aria-pressed", String(button.dataset.window === state.window));
  const one = state.tenant !== null;
  $("overview").hidden = one;
  $("verdict").hidden = one;
  $("tenant").hidden = !one;
  if ($("search").value !== state.q) $("search").value = state.q;
  list.sort = state.sort;
  list.heads();
  tenant.close();
  if (one) tenant.open(state.tenant, state.window).catch(lost);
  else {
    document.title = "Evenhand";
    headline.load(state.window, fetchJson).catch(lost);
  }
  listen();
}

// The stream. Windows that reach further back than memory are asked of the stored series once in a while instead.

function lost() {
  failures += 1;
  live("reconnecting", "lost");
}

function listen() {
  source?.close();
  source = null;
  clearInterval(poll);
  const stored = SECONDS[state.window] > 86400;
  const query = new URLSearchParams({ window: stored ? "24h" : state.window, sort: state.sort, q: state.q, offset: state.offset, limit: PAGE });
  if (stored) {
    poll = setInterval(() => fromStore().catch(lost), 30000);
    fromStore().catch(lost);
    return;
  }
  source = new EventSource(`/api/stream?${query}`);
  source.addEventListener("fairness", (event) => { beat = Date.now(); failures = 0; show(JSON.parse(event.data)); });
  source.addEventListener("error", () => {
    lost();
    if (source?.readyState !== EventSource.CLOSED) return;
    // Not an interruption but an answer: the session is over, or too many pages are open.
    fetchJson("/readyz").catch(() => {});
    fetchJson("/dashboard/head").catch(() => {});
    setTimeout(listen, Math.min(8000, 500 * 2 ** failures));
  });
}

// Sparklines of a day or a quarter, for the rows at hand; asked for once a minute, or when others come into view.
let drawn = "";

async function sparks() {
  const window = state.window;
  if (SECONDS[window] < 86400 || state.tenant !== null) return;
  const names = list.rows.map((row) => row.tenant);
  const key = `${window} ${Math.floor(Date.now() / 60000)} ${names.join("\n")}`;
  if (key === drawn || !names.length) return;
  drawn = key;
  const query = new URLSearchParams([["window", window], ...names.map((name) => ["tenant", name])]);
  const lines = await fetchJson(`/dashboard/sparks?${query}`).catch(() => null);
  if (!lines || window !== state.window) return;
  for (const [name, both] of Object.entries(lines)) list.lines.set(name, both);
  list.draw();
}

async function fromStore() {
  const from = new Date(Date.now() - SECONDS[state.window] * 1000).toISOString();
  const order = { offered: "-offered", refused: "-refused", success: "success", tenant: "tenant" }[state.sort] || "in_profile_success";
  const said = await fetchJson(`/api/fairness?from=${from}&sort=${order}`);
  const wanted = state.q.toLowerCase();
  const rows = said.tenants.filter((row) => row.tenant.toLowerCase().includes(wanted));
  const blank = { spark: { success: [], offered: [] }, quota: null, share: null };
  const full = rows.map((row) => ({ ...row, ...blank, rate: row.offered / SECONDS[state.window] }));
  show({ ...said, seconds: SECONDS[state.window], at: new Date().toISOString(), count: said.tenants.length, total: full.length, offset: state.offset, tenants: full.slice(state.offset, state.offset + PAGE),
    heavy: full.filter((row) => row.share_over).sort((a, b) => b.offered - a.offered).slice(0, 5), band: null, backstop: null, stored: true });
}

let ticks = 0;

function show(snapshot) {
  live(snapshot.stored ? "stored series" : whose(snapshot), snapshot.stored ? "stored" : "on");
  if (snapshot.band) showBand($("band"), snapshot.band);
  ticks += 1;
  if (state.tenant !== null) {
    if (ticks % 2 === 0) tenant.refresh().catch(lost);
    return;
  }
  if (state.sort === "worst" && state.offset === 0 && !state.q) showVerdict($("verdict"), snapshot);
  showNumbers($("numbers"), snapshot);
  showHeavy($("heavy"), snapshot.heavy);
  headline.tell(snapshot.aggregate.success, snapshot.worst);
  if (!snapshot.stored) headline.push(Date.parse(snapshot.at) / 1000, snapshot.aggregate.success, snapshot.worst && snapshot.worst.in_profile_success);
  list.spanOf(state.window);
  if (snapshot.offset === state.offset) list.show(snapshot);
  sparks();
  $("tenants-title").textContent = `Tenants, ${state.sort === "worst" ? "worst first" : `by ${state.sort}`} (${snapshot.total}${state.q ? ` of ${snapshot.count}` : ""})`;
}

// Keys and buttons.

function theme(next) {
  const root = document.documentElement;
  if (next) root.dataset.theme = next;
  try { next ? localStorage.setItem("theme", next) : (next = localStorage.getItem("theme")); } catch { /* nothing is kept */ }
  if (next) root.dataset.theme = next;
  headline.redraw();
}

function dark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

for (const name of WINDOWS) {
  $("windows").append(el("button", { type: "button", "data-window": name, "aria-pressed": "false",
    on: { click: () => { state.window = name; state.offset = 0; write(); go(); } } }, name.replace(/(\d+)/, "$1\u202f")));
}
let typing = null;
$("search").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    Object.assign(state, { q: $("search").value, offset: 0, tenant: null });
    write();
    go();
  }, 150);
});
$("pause-batch").addEventListener("click", () => askPause({ class: "batch" }));
$("reload").addEventListener("click", askReload);
$("posture").addEventListener("click", () => askPosture().catch((error) => toast(visible(error.message), true)));
$("posture").hidden = document.documentElement.dataset.postures !== "yes";
$("theme").addEventListener("click", () => theme(dark() ? "light" : "dark"));
$("leave").hidden = document.documentElement.dataset.token !== "yes";
addEventListener("hashchange", go);
addEventListener("keydown", (event) => {
  if (event.target.matches?.("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) {
    if (event.key === "Escape" && event.target === $("search")) { $("search").value = ""; $("search").dispatchEvent(new Event("input")); $("search").blur(); }
    return;
  }
  const index = Number(event.key) - 1;
  if (event.key === "/") { event.preventDefault(); $("search").focus(); }
  else if (event.key === "Escape" && state.tenant !== null) location.hash = "#/";
  else if (WINDOWS[index]) $("windows").children[index].click();
  else if (event.key === "?") toast("Keys: / finds a tenant, 1 to 6 choose the window, arrows and Enter walk the list, Escape goes back.");
});
setInterval(() => { if (source && beat && Date.now() - beat > 4000) live("reconnecting", "lost"); }, 1000);
theme();
go();
document.body.dataset.ready = visible("yes");
