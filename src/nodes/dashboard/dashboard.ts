/**
 * `GET /status`: what this process does, for the operator, on the admin listener or on a node that only this machine
 * reaches. The page is one HTML text that fetches `/metrics` and `/readyz` every ten seconds, and keeps what it has read
 * for an hour: first the figures since the start of the process. The node keeps nothing for it.
 */
import type { Route } from "../http/route.ts";
import { nodeRoute } from "../http/status.ts";

export function dashboardRoute(): Route {
  const body = { contentType: "text/html; charset=utf-8", content: renderStatusPage() };
  return nodeRoute({
    path: "/status",
    id: "statusPage",
    summary: "Status of this process, as a page",
    answer: [200, "A page without external assets."],
    handle: () => ({ status: 200, headers: pageHeaders, body }),
  });
}

/** It loads nothing, and no other page may frame it. */
const pageHeaders = {
  "content-security-policy":
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "x-content-type-options": "nosniff",
};

const style = `
:root { color-scheme: light dark; --soft: light-dark(#5d6470, #9aa3b2); --line: light-dark(#dfe3ea, #2a2f39) }
body { margin: 0; background: light-dark(#f6f7f9, #101216); color: light-dark(#16181d, #e8eaee); font: 15px/1.45 system-ui }
main { max-width: 72rem; margin: auto; padding: 1rem }
h1 { display: inline; font-size: 1.35rem; margin-right: 1rem }
h2, .soft, .name, td:first-child { color: var(--soft); font-size: .9rem; font-weight: 500 }
.good { color: light-dark(#067647, #6ce9a6) }
.bad { color: light-dark(#b42318, #ff8a80) }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: .7rem; margin-top: 1rem }
.card, table { background: light-dark(#fff, #191c22); border: 1px solid var(--line); border-radius: .6rem; padding: .7rem }
.value { font-size: 1.3rem }
small { margin-left: .5rem; color: var(--soft); font-size: .8rem }
svg { display: block; width: 100%; height: 3rem }
path { fill: none; stroke: light-dark(#2f5bd3, #8fb0ff); stroke-width: 1.6; vector-effect: non-scaling-stroke }
table { width: 100% }
td:first-child { width: 12rem }
`;

/** Figures out of two readings of `/metrics`. Rates are per second between the two. */
const figures = String.raw`
function readingsOf(text) {
  const found = new Map();
  for (const [, name, labels = "", value] of text.matchAll(/^waypost_(\w+)(?:{(.*)})? (\S+)$/gm)) {
    const pairs = [...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, label, text]) => [label, text]);
    if (!found.has(name)) found.set(name, []);
    found.get(name).push({ labels: Object.fromEntries(pairs), value: Number(value) });
  }
  return found;
}
function sum(readings, name, fits = () => true) {
  return (readings.get(name) ?? []).reduce((total, { labels, value }) => total + (fits(labels) ? value : 0), 0);
}
function figuresOf(before, now) {
  const seconds = (now.atMs - before.atMs) / 1000;
  const held = (name) => sum(now.readings, name);
  const change = (name, fits) => Math.max(0, sum(now.readings, name, fits) - sum(before.readings, name, fits));
  const rate = (name, fits) => change(name, fits) / seconds;
  const statusFrom = (from) => ({ status }) => status >= from && status < from + 100;
  const isDelivery = ({ route, status }) => route.startsWith("/relay") && (status === "200" || status === "202");
  return {
    requests: rate("http_requests_total"),
    refusals: rate("http_requests_total", statusFrom(400)),
    serverErrors: rate("http_requests_total", statusFrom(500)),
    stored: rate("http_requests_total", ({ route, status }) => route === "/cache/store" && status === "202"),
    delivered: rate("http_requests_total", isDelivery),
    p50: quantile(now, change, 0.5),
    p99: quantile(now, change, 0.99),
    inFlight: held("http_requests_in_flight"),
    residentBytes: held("process_resident_memory_bytes"),
    processors: rate("process_cpu_seconds"),
    loopLagSeconds: held("event_loop_lag_seconds"),
    entries: held("mailbox_entries"),
    entryBytes: held("mailbox_bytes"),
    liveSessions: held("relay_live_sockets"),
  };
}
/** The upper bound of the bucket that holds it; of the last one, the largest bound. */
function quantile({ readings }, change, part) {
  const bounds = new Set((readings.get("http_request_seconds_bucket") ?? []).map(({ labels }) => labels.le));
  const within = (bound) => change("http_request_seconds_bucket", ({ le }) => le === bound);
  const total = within("+Inf");
  const finite = [...bounds].filter((bound) => bound !== "+Inf").sort((a, b) => a - b);
  return total === 0 ? null : Number(finite.find((bound) => within(bound) >= part * total) ?? finite.at(-1));
}
`;

const script = `
const $ = (id) => document.getElementById(id);
const number = (value) => value.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 3 });
const rate = (value) => number(value) + "/s";
const bytes = (value) => number(value) + "B";
const time = (value) => (value === null ? "–" : number(value * 1000) + " ms");
const percent = (value) => number(value * 100) + " %";
/** Name, form and value of a figure, and what is said beside it. */
const cards = [
  ["Requests", rate, (s) => s.requests, (s) => rate(s.serverErrors) + " errors"],
  ["Latency, median", time, (s) => s.p50, (s) => "p99 " + time(s.p99)],
  ["Envelopes stored", rate, (s) => s.stored],
  ["Envelopes relayed", rate, (s) => s.delivered],
  ["Refusals", rate, (s) => s.refusals],
  ["Active requests", number, (s) => s.inFlight],
  ["Live sessions", number, (s) => s.liveSessions],
  ["Envelopes waiting", number, (s) => s.entries],
  ["Bytes waiting", bytes, (s) => s.entryBytes],
  ["Memory", bytes, (s) => s.residentBytes],
  ["Processor", percent, (s) => s.processors],
  ["Event loop delay", time, (s) => s.loopLagSeconds],
];
const facts = [
  ["ledger_finalized_block", "finalized block", String],
  ["ledger_head_age_seconds", "age of that block", (value) => value.toFixed(0) + " s"],
  ["store_disk_free_bytes", "free disk", bytes],
];
const node = (name, properties, ...children) => {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
};
function plot(values) {
  const max = Math.max(1e-9, ...values);
  const points = values.map((value, i) => (i / Math.max(1, values.length - 1)) * 100 + " " + (39 - (value / max) * 38));
  return '<svg viewBox="0 0 100 40" preserveAspectRatio="none"><path d="M' + points.join("L") + '"></svg>';
}
function card([name, form, valueOf, beside = () => ""]) {
  const last = samples.at(-1);
  const value = node("div", { className: "value" }, form(valueOf(last)), node("small", {}, beside(last)));
  const box = node("div", { className: "card" }, node("div", { className: "name" }, node("span", {}, name)), value);
  box.insertAdjacentHTML("beforeend", plot(samples.map((s) => valueOf(s) ?? 0)));
  return box;
}
const row = ([name, text, className = ""]) => node("tr", {}, node("td", {}, name), node("td", { className }, text));
const show = (text, className) => Object.assign($("state"), { textContent: text, className });
const samples = [];
let before = null;
async function refresh() {
  try {
    const [metrics, ready] = await Promise.all(["metrics", "readyz"].map((path) => fetch(path, { cache: "no-store" })));
    const now = { atMs: Date.now(), readings: readingsOf(await metrics.text()) };
    const { checks, detail } = await ready.json();
    const { version } = now.readings.get("build_info")[0].labels;
    const sinceMs = sum(now.readings, "process_start_time_seconds") * 1000;
    samples.push(figuresOf(before ?? { atMs: sinceMs, readings: new Map() }, now));
    if (samples.length > 360) samples.shift();
    before = now;
    show(ready.ok ? "ready" : "not ready", ready.ok ? "good" : "bad");
    $("about").textContent = "version " + version + " · up since " + new Date(sinceMs).toLocaleString();
    $("cards").replaceChildren(...cards.map(card));
    const states = Object.entries(checks ?? { "": detail });
    $("checks").replaceChildren(...states.map(([name, text]) => row([name, text, text === "ok" ? "good" : "bad"])));
    const found = facts.flatMap(([metric, name, form]) =>
      (now.readings.get(metric) ?? []).map(({ labels, value }) => [name + " of " + labels.store, form(value)]),
    );
    $("facts").replaceChildren(...found.map(row));
  } catch {
    show("does not answer", "bad");
  }
}
refresh();
setInterval(refresh, 10_000);
`;

function renderStatusPage(): string {
  return `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>Waypost status</title><style>${style}</style></head><body><main>
<h1>Waypost</h1><b id="state"></b> <span id="about" class="soft"></span>
<div id="cards" class="grid"></div><p class="soft">One point every ten seconds; the page keeps an hour while it is open.</p>
<h2>Checks</h2><table><tbody id="checks"></tbody></table>
<h2>Ledger and disk</h2><table><tbody id="facts"></tbody></table>
</main><script>"use strict";${figures}${script}</script></body></html>`;
}
