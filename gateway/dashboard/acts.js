// Acts: each is confirmed, ends by itself, and leaves an audit line. They go through the admin API like anybody's.

import { el, visible } from "./format.js";

const TIMES = [["15m", "15 minutes"], ["30m", "30 minutes"], ["1h", "1 hour"], ["4h", "4 hours"], ["24h", "a day"]];

export function toast(text, bad = false) {
  const host = document.getElementById("toast");
  host.className = bad ? "toast shown bad" : "toast shown";
  host.textContent = text;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { host.className = "toast"; }, bad ? 12000 : 6000);
}

export async function send(method, path, members) {
  const answer = await fetch(path, {
    method, headers: { "content-type": "application/json", accept: "application/json" },
    body: members === undefined ? undefined : JSON.stringify(members),
  });
  if (answer.status === 401) location.assign("/login");
  const said = answer.status === 204 ? {} : await answer.json().catch(() => ({}));
  if (!answer.ok) {
    const faults = (said.errors || []).map((fault) => `${fault.path}: ${fault.message}`).join("; ");
    throw new Error(faults || said.detail || said.title || `${answer.status}`);
  }
  return said;
}

const field = (label, input) => el("label", { class: "field" }, el("span", {}, label), input);

// A dialog that asks for the rest of an act. `fields` are [name, label, input]; `done` gets their values.
function ask({ title, what, fields, confirm, done }) {
  const dialog = el("dialog", { class: "act", "aria-labelledby": "act-title" });
  const fault = el("p", { class: "fault", role: "alert" });
  const form = el("form", { method: "dialog" }, el("h2", { id: "act-title" }, title), el("p", {}, what),
    fields.map(([, label, input]) => field(label, input)), fault,
    el("div", { class: "todo" }, el("button", { class: "primary", type: "submit" }, confirm),
      el("button", { type: "button", on: { click: () => dialog.close() } }, "Cancel")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const values = Object.fromEntries(fields.map(([name, , input]) => [name, input.value.trim()]));
      toast(await done(values));
      dialog.close();
    } catch (error) {
      fault.textContent = visible(error.message);
    }
  });
  dialog.append(form);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

function times(chosen = "30m") {
  return el("select", { name: "for" }, TIMES.map(([value, text]) => el("option", { value, selected: value === chosen }, text)));
}

const remembered = () => { try { return localStorage.getItem("owner") || ""; } catch { return ""; } };
const owner = () => el("input", { name: "owner", value: remembered(), autocomplete: "email", maxlength: 128, required: true });
const remember = (name) => { try { localStorage.setItem("owner", name); } catch { /* a browser that keeps nothing */ } };
const reason = (text) => el("input", { name: "reason", value: text, maxlength: 200, required: true });

function spell(match) {
  const parts = [match.class ? `class ${match.class}` : "everything", match.tenant ? `of tenant ${visible(match.tenant)}` : "of everybody"];
  return parts.join(" ");
}

export function askPause(match) {
  ask({
    title: "Pause", confirm: `Pause ${spell(match)}`,
    what: `Refuses ${spell(match)} at once, with the time at which it may come back. Nothing else changes, and it ends by itself.`,
    fields: [["for", "For", times()], ["reason", "Reason", reason("incident")], ["owner", "Who answers for it", owner()]],
    done: async (values) => {
      remember(values.owner);
      const act = await send("POST", "/api/pause", { match, ...values });
      return `Paused ${spell(match)} until ${act.expires}.`;
    },
  });
}

export function askRaise(tenant, credential = null) {
  const whose = credential ? `credential ${visible(credential)} of tenant ${visible(tenant)}` : `tenant ${visible(tenant)}`;
  ask({
    title: "Raise a quota", confirm: "Raise it",
    what: `Rate and burst of ${whose} times a factor, until a time. It still counts: share and backstop stay as they are.`,
    fields: [["multiplier", "Factor", el("input", { name: "multiplier", type: "number", min: 1, max: 1000, step: "any", value: 2, required: true })],
      ["for", "For", times("1h")], ["reason", "Reason", reason("")], ["owner", "Who answers for it", owner()]],
    done: async (values) => {
      remember(values.owner);
      const match = credential ? { tenant, credential } : { tenant };
      const act = await send("POST", "/api/exemptions", { match, ...values, multiplier: Number(values.multiplier) });
      return `Raised ${whose} until ${act.expires}.`;
    },
  });
}

// What is answered while the shared store does not: for everything, or for one route.
export async function askPosture() {
  const now = await send("GET", "/api/posture");
  const kinds = [["safe-capacity", "Safe capacity: a part of every limit"], ["open", "Open: let everything through"],
    ["closed", "Closed: let nothing through"], ["deny", "Deny a part, at random"]];
  const choice = el("select", { name: "kind" }, kinds.map(([value, text]) => el("option", { value, selected: now.posture.startsWith(value) }, text)));
  const part = el("input", { name: "part", type: "number", min: 0, max: 100, step: 1, value: now.posture.split(":")[1] || 20 });
  const routes = [["", `Wherever a route says nothing (now ${now.posture})`], ...Object.entries(now.routes).map(([name, posture]) => [name, `${visible(name)} (now ${posture})`])];
  const route = el("select", { name: "route" }, routes.map(([value, text]) => el("option", { value }, text)));
  ask({
    title: "Set the posture", confirm: "Set it",
    what: `What is answered while the store gives no answer. ${now.store.up ? "It answers now, so nothing changes until it is lost." : "It does not answer now, so this takes effect at once."}`,
    fields: [["kind", "Posture", choice], ["part", "Per cent refused, of deny", part], ["route", "Where", route], ["for", "For", times("1h")],
      ["reason", "Reason", reason("store outage")], ["owner", "Who answers for it", owner()]],
    done: async ({ kind, part: denied, route: where, ...values }) => {
      remember(values.owner);
      const posture = kind === "deny" ? `deny:${denied}` : kind;
      const act = await send("POST", "/api/posture", { posture, ...(where ? { route: where } : {}), ...values });
      return `Posture ${posture} until ${act.expires}.`;
    },
  });
}

export function end(kind, id, text) {
  ask({
    title: "End it now", confirm: "End it", what: visible(text), fields: [],
    done: async () => { await send("DELETE", `/api/${kind}/${encodeURIComponent(id)}`); return "Ended."; },
  });
}

export function askReload() {
  ask({
    title: "Reload the configuration", confirm: "Reload",
    what: "Reads gateway.toml again. If something in it is wrong, all of that is listed, and what is in force stays.", fields: [],
    done: async () => {
      const said = await send("POST", "/api/reload");
      return said.warnings?.length ? `Reloaded, with ${said.warnings.length} warnings.` : "Reloaded.";
    },
  });
}
