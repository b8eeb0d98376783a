// Words and numbers, and the only place where elements are made. Nothing that a caller chose ever becomes markup: text
// is set as text, and what would not be seen (controls, marks that turn the direction of writing) is spelled out.

export const WINDOWS = ["1m", "5m", "15m", "1h", "24h", "90d"];
export const SECONDS = { "1m": 60, "5m": 300, "15m": 900, "1h": 3600, "24h": 86400, "90d": 7776000 };

// Controls, invisible and direction marks, lone surrogates.
const UNSEEN = /[\u0000-\u001f\u007f-\u00a0\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202f\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff\ud800-\udfff]/g;

export function visible(id) {
  const text = typeof id.toWellFormed === "function" ? id.toWellFormed() : id;
  let out = "";
  for (const letter of text) {
    const code = letter.codePointAt(0);
    UNSEEN.lastIndex = 0;
    const unseen = letter.length === 1 ? UNSEEN.test(letter) : code >= 0xe0000;
    out += unseen ? `\u27e8U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9` : letter;
  }
  return out;
}

// Make an element: properties by name (`class`, `on` for listeners, anything else an attribute), then children.
export function el(name, properties = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") node.className = value;
    else if (key === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function svg(name, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, String(value));
  node.append(...children);
  return node;
}

export const bdi = (id, cls = "id") => el("bdi", { class: cls, dir: "ltr" }, visible(id));

// Nothing short of all reads as 100 %.
export function percent(share) {
  if (share === null || share === undefined) return "\u2013";
  return `${(Math.floor(share * 1000 + 1e-9) / 10).toFixed(1)}\u202f%`;
}

export function number(value) {
  if (value === null || value === undefined) return "\u2013";
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)}M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(value >= 1e5 ? 0 : 1)}k`;
  if (value >= 100 || Number.isInteger(value)) return String(Math.round(value));
  return value >= 10 ? value.toFixed(1) : value.toFixed(value && value < 0.1 ? 3 : 2);
}

export const rate = (value) => (value === null || value === undefined ? "\u2013" : `${number(value)}/s`);

export function wait(ms) {
  if (ms === null || ms === undefined) return "\u2013";
  if (ms < 1000) return `${ms} ms`;
  const seconds = Math.ceil(ms / 1000);
  if (seconds < 120) return `${seconds} s`;
  return seconds < 7200 ? `${Math.ceil(seconds / 60)} min` : `${Math.ceil(seconds / 3600)} h`;
}

export const clock = (ms) => new Date(ms).toISOString().slice(11, 19);

export const refusals = (row) => Object.entries(row.refused).sort((a, b) => b[1] - a[1]);
export const refusedSum = (row) => Object.values(row.refused).reduce((sum, count) => sum + count, 0);

// A ratio has a word and a sign besides its colour.
export function grade(share) {
  if (share === null || share === undefined) return { name: "none", sign: "\u00b7", word: "no traffic to rank" };
  if (share >= 0.99) return { name: "good", sign: "\u25cf", word: "well" };
  if (share >= 0.9) return { name: "fair", sign: "\u25b2", word: "hurt" };
  return { name: "poor", sign: "\u25bc", word: "badly hurt" };
}

// What a limit's refusals mean, in the words of the README.
export const LIMITS = {
  key: "its credential's own quota",
  tenant: "its own quota, all credentials together",
  concurrency: "its own cap on requests in flight",
  paused: "a pause by an operator",
  share: "more than its fair share while others need theirs",
  class: "the ceiling of its class",
  backstop: "the service has no more",
  posture: "limits cannot be checked",
  connections: "no connection to the service came free",
};
export const spoken = (limit) => LIMITS[limit] || `policy ${visible(limit)}`;

export function spark(values, { max = null, cls = "", label = "" } = {}) {
  const width = 90, height = 22, top = Math.max(max ?? 0, ...values.map((value) => value ?? 0)) || 1;
  const step = width / Math.max(1, values.length - 1);
  let path = "", pen = false;
  values.forEach((value, index) => {
    if (value === null) { pen = false; return; }
    path += `${pen ? "L" : "M"}${(index * step).toFixed(1)} ${(height - 2 - (value / top) * (height - 4)).toFixed(1)}`;
    if (!pen) path += "h.01";
    pen = true;
  });
  return svg("svg", { class: `spark ${cls}`, viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label },
    svg("path", { d: path || "M0 0", fill: "none" }));
}
