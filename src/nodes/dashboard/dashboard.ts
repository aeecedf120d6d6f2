/**
 * `GET /status` and `GET /status.json`: what this process does, for the operator, on the admin listener or on a node that
 * only this machine reaches. The page is one HTML text that fetches nothing but `/status.json`. The figures are the last
 * hour in memory: every ten seconds a sample of what `/metrics` shows (about 100 KiB for the hour), and the newest warnings.
 */
import { statusAnswer } from "../../core/schema/schema.ts";
import type { Log } from "../http/log.ts";
import type { Reading } from "../http/metrics.ts";
import type { Route } from "../http/route.ts";
import { nodeRoute } from "../http/status.ts";

type Sample = ReturnType<typeof sampleOf>;
type Warning = { readonly atMs: number; readonly level: "warn" | "error"; readonly message: string };

/** Figures of one store, as text. */
type Fact = { readonly name: string; readonly value: string };

export type HistoryView = {
  readonly samples: () => readonly Sample[];
  readonly warnings: () => readonly Warning[];
  readonly facts: () => Promise<readonly Fact[]>;
};

type History = HistoryView & {
  /** Takes a sample now; the timer calls it, and tests do. */
  readonly sample: () => Promise<void>;
  /** A log that also remembers warnings and errors. Fields are not kept: they can name recipients. */
  readonly watch: (log: Log) => Log;
  readonly close: () => void;
};

const sampleEveryMs = 10_000;
const samplesMax = 360;
const warningsMax = 50;

export function createHistory(readMetrics: () => Promise<Reading[]>, now: () => number): History {
  const samples: Sample[] = [];
  const warnings: Warning[] = [];
  let before: Sampled | null = null;
  const read = async (): Promise<Sampled> => {
    return { atMs: now(), values: Map.groupBy(await readMetrics(), ({ name }) => name) };
  };
  const sample = async (): Promise<void> => {
    const sampled = await read();
    if (before !== null) samples.push(sampleOf(before, sampled));
    if (samples.length > samplesMax) samples.shift();
    before = sampled;
  };
  const timer = setInterval(() => void sample().catch(() => undefined), sampleEveryMs);
  timer.unref();
  return {
    samples: () => samples,
    warnings: () => warnings,
    facts: async () => factsOf(await read()),
    sample,
    watch: (log) => (level, message, fields) => {
      log(level, message, fields);
      if (level !== "warn" && level !== "error") return;
      warnings.push({ atMs: now(), level, message });
      if (warnings.length > warningsMax) warnings.shift();
    },
    close: () => clearInterval(timer),
  };
}

// ------------------------------------------------------------------------------------------------ reading

type Sampled = { readonly atMs: number; readonly values: ReadonlyMap<string, readonly Reading[]> };
type Filter = (labels: Reading["labels"]) => boolean;
const everything: Filter = () => true;

function sum({ values }: Sampled, name: string, filter: Filter = everything): number {
  let total = 0;
  for (const { labels, value } of values.get(name) ?? []) if (filter(labels)) total += value;
  return total;
}

const storeFacts: Readonly<Record<string, readonly [name: string, render: (value: number) => string]>> = {
  ledger_finalized_block: ["finalized block", String],
  ledger_head_age_seconds: ["age of that block", (seconds) => `${seconds.toFixed(0)} s`],
  store_disk_free_bytes: ["free disk", (bytes) => `${(bytes / 2 ** 30).toFixed(1)} GiB`],
};

function factsOf({ values }: Sampled): Fact[] {
  return Object.entries(storeFacts).flatMap(([metric, [name, render]]) =>
    (values.get(metric) ?? []).map(({ labels, value }) => ({
      name: `${name} of ${labels["store"]}`,
      value: render(value),
    })),
  );
}

/** Rates are per second since the sample before, of which latencies are in seconds, and processors the average in use. */
function sampleOf(before: Sampled, now: Sampled) {
  const seconds = Math.max(0.001, (now.atMs - before.atMs) / 1_000);
  const rate = (name: string, filter?: Filter): number =>
    Math.max(0, sum(now, name, filter) - sum(before, name, filter)) / seconds;
  const isRefusal: Filter = ({ status }) => Number(status) >= 400 && Number(status) < 500;
  const isError: Filter = ({ status }) => Number(status) >= 500;
  const isStore: Filter = ({ route, status }) => route === "/cache/store" && status === "202";
  const isDelivery: Filter = ({ route, status }) => (route ?? "").startsWith("/relay") && /^20[02]$/.test(status ?? "");
  return {
    atMs: now.atMs,
    requests: rate("http_requests_total"),
    refusals: rate("http_requests_total", isRefusal),
    serverErrors: rate("http_requests_total", isError),
    stored: rate("http_requests_total", isStore),
    delivered: rate("http_requests_total", isDelivery),
    p50: quantile(before, now, 0.5),
    p99: quantile(before, now, 0.99),
    inFlight: sum(now, "http_requests_in_flight"),
    residentBytes: sum(now, "process_resident_memory_bytes"),
    processors: rate("process_cpu_seconds"),
    loopLagSeconds: sum(now, "event_loop_lag_seconds"),
    entries: sum(now, "mailbox_entries"),
    entryBytes: sum(now, "mailbox_bytes"),
    liveSessions: sum(now, "relay_live_sockets"),
  };
}

/** The upper bound of the bucket that holds the quantile, over the requests between two readings. */
function quantile(before: Sampled, now: Sampled, part: number): number | null {
  const bounds = new Map<number, number>();
  for (const [sampled, sign] of [[now, 1] as const, [before, -1] as const])
    for (const { labels, value } of sampled.values.get("http_request_seconds_bucket") ?? []) {
      const bound = labels["le"] === "+Inf" ? Number.POSITIVE_INFINITY : Number(labels["le"]);
      bounds.set(bound, (bounds.get(bound) ?? 0) + sign * value);
    }
  const sorted = [...bounds].sort(([a], [b]) => a - b);
  const total = sorted.at(-1)?.[1] ?? 0;
  if (total <= 0) return null;
  const found = sorted.find(([, within]) => within >= part * total)?.[0] ?? null;
  const largestFinite = sorted.filter(([bound]) => Number.isFinite(bound)).at(-1)?.[0] ?? null;
  return found === null || Number.isFinite(found) ? found : largestFinite;
}

// -------------------------------------------------------------------------------------------------------------- routes

type DashboardParts = {
  readonly version: string;
  readonly roles: readonly string[];
  readonly startedAtMs: number;
  readonly history: HistoryView;
  /** Name of each thing that must work, and whether it does. */
  readonly checks: () => Promise<readonly { readonly name: string; readonly ok: boolean }[]>;
};

export function dashboardRoutes(parts: DashboardParts): Route[] {
  const page = { contentType: "text/html; charset=utf-8", content: renderStatusPage() };
  return [
    nodeRoute({
      path: "/status",
      id: "statusPage",
      summary: "Status of this process, as a page",
      answer: [200, "A page without external assets."],
      handle: () => ({ status: 200, headers: pageHeaders, body: page }),
    }),
    nodeRoute({
      path: "/status.json",
      id: "statusData",
      summary: "The figures of the page",
      answer: [200, "The last hour of this process.", statusAnswer],
      handle: async () => ({ status: 200, json: await readStatus(parts) }),
    }),
  ];
}

async function readStatus({ version, roles, startedAtMs, history, ...parts }: DashboardParts) {
  const [checks, facts] = await Promise.all([parts.checks(), history.facts()]);
  return {
    version,
    roles,
    started_at_ms: startedAtMs,
    ready: checks.every(({ ok }) => ok),
    samples: history.samples(),
    checks,
    facts,
    warnings: history.warnings(),
  };
}

// ------------------------------------------------------------------------------------------------------- page

/** It loads nothing, and no other page may frame it. */
const pageHeaders = {
  "content-security-policy":
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "x-content-type-options": "nosniff",
};

const style = `
:root{--bg:#f6f7f9;--card:#fff;--ink:#16181d;--soft:#5d6470;--line:#dfe3ea;--main:#2f5bd3;--second:#c2410c;--bad:#b42318;--good:#067647}
@media(prefers-color-scheme:dark){:root{--bg:#101216;--card:#191c22;--ink:#e8eaee;--soft:#9aa3b2;--line:#2a2f39;--main:#8fb0ff;--second:#fdba74;--bad:#ff8a80;--good:#6ce9a6}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.45 system-ui,sans-serif}
main{max-width:72rem;margin:0 auto;padding:1.2rem}header{display:flex;flex-wrap:wrap;gap:.4rem 1rem;align-items:baseline;margin-bottom:1rem}
h1{font-size:1.35rem;margin:0}h2{font-size:.95rem;margin:1.6rem 0 .6rem;color:var(--soft);font-weight:600}
.state{font-weight:600}.good{color:var(--good)}.bad{color:var(--bad)}.soft{color:var(--soft)}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(19rem,1fr));gap:.8rem}
.card{background:var(--card);border:1px solid var(--line);border-radius:.7rem;padding:.8rem .9rem}
.card .name{color:var(--soft);font-size:.85rem;display:flex;justify-content:space-between;gap:.5rem}.card .value{font-size:1.45rem;font-variant-numeric:tabular-nums}
.card .value small{font-size:.85rem;color:var(--soft)}svg{display:block;width:100%;height:3.6rem;margin-top:.4rem}
svg path{fill:none;stroke-width:1.6;stroke-linecap:round;stroke-linejoin:round;vector-effect:non-scaling-stroke}svg .area{stroke:none;opacity:.12}
table{width:100%;border-collapse:collapse;background:var(--card);border:1px solid var(--line);border-radius:.7rem;overflow:hidden}
td,th{text-align:left;padding:.4rem .7rem;border-top:1px solid var(--line);font-variant-numeric:tabular-nums}th{color:var(--soft);font-weight:500;border-top:0}
tr:first-child td{border-top:0}td:first-child{width:15rem;color:var(--soft)}#warnings td:nth-child(2){width:5rem}
@media(max-width:40rem){main{padding:.8rem}.grid{grid-template-columns:1fr 1fr;gap:.5rem}.card{padding:.6rem .7rem}.card .value{font-size:1.15rem}.card .name span:last-child:not(:first-child){display:none}svg{height:2.6rem}td:first-child{width:7.5rem}#warnings td:first-child{width:6.2rem;white-space:nowrap}#warnings td:nth-child(2){width:3.4rem}td,th{padding:.4rem .5rem}}
`;

const script = `
"use strict";
const $=(id)=>document.getElementById(id);
const number=(v)=>v==null?"–":v>=1e6?(v/1e6).toFixed(1)+" M":v>=1e4?(v/1e3).toFixed(1)+" k":v>=100?v.toFixed(0):v>=10?v.toFixed(1):v.toFixed(v%1?2:0);
const bytes=(v)=>{const u=["B","KiB","MiB","GiB","TiB"];let i=0;while(v>=1024&&i<4){v/=1024;i++}return v.toFixed(i&&v<100?1:0)+" "+u[i]};
const time=(v)=>v==null?"–":v<1?(v*1000).toFixed(v<.01?1:0)+" ms":v.toFixed(1)+" s";
const cards=[["Requests",s=>s.requests,number,"/s",s=>s.serverErrors,"errors"],["Latency, median",s=>s.p50,time,"",s=>s.p99,"p99"],
["Envelopes stored",s=>s.stored,number,"/s"],["Envelopes relayed",s=>s.delivered,number,"/s"],["Refusals",s=>s.refusals,number,"/s"],
["Active requests",s=>s.inFlight,number,""],["Live sessions",s=>s.liveSessions,number,""],["Envelopes waiting",s=>s.entries,number,""],
["Bytes waiting",s=>s.entryBytes,bytes,""],["Memory",s=>s.residentBytes,bytes,""],["Processor",s=>s.processors,v=>v==null?"–":(v*100).toFixed(0)+" %",""],["Event loop delay",s=>s.loopLagSeconds,time,""]];
const line=(values,max)=>{const n=values.length;let d="",pen=false;values.forEach((v,i)=>{if(v==null){pen=false;return}d+=(pen?"L":"M")+(n<2?0:i/(n-1)*100).toFixed(2)+" "+(38-(max>0?v/max:0)*36).toFixed(2)+(pen?"":"h0");pen=true});return d};
const node=(name,attributes,text)=>{const e=document.createElement(name);for(const k in attributes)e.setAttribute(k,attributes[k]);if(text!==undefined)e.textContent=text;return e};
const vector=(name,attributes)=>{const e=document.createElementNS("http://www.w3.org/2000/svg",name);for(const k in attributes)e.setAttribute(k,attributes[k]);return e};
function card([name,first,form,unit,second,label],samples){
 const values=samples.map(first),others=second?samples.map(second):[];
 const max=Math.max(1e-9,...values.filter(v=>v!=null),...others.filter(v=>v!=null));
 const box=node("div",{class:"card"});const title=node("div",{class:"name"});const peak=Math.max(...values.filter(v=>v!=null),0);title.append(node("span",{},name),node("span",{},peak>0?"peak "+form(peak)+unit:""));box.append(title);
 const value=node("div",{class:"value"},form(values.at(-1)));value.append(node("small",{},unit+" \u00a0"));if(second)value.append(node("small",{style:"color:var(--second)"},label+" "+form(others.at(-1))));box.append(value);
 const svg=vector("svg",{viewBox:"0 0 100 40",preserveAspectRatio:"none",role:"img","aria-label":name+", last hour"});
 const d=line(values,max);if(d&&!values.includes(null))svg.append(vector("path",{class:"area",d:d+"L100 40L0 40Z",style:"fill:var(--main)"}));
 svg.append(vector("path",{d,style:"stroke:var(--main)"}));if(second)svg.append(vector("path",{d:line(others,max),style:"stroke:var(--second)"}));
 box.append(svg);return box}
function rows(target,list,empty){target.replaceChildren(...(list.length?list:[[empty]]).map(cells=>{const tr=node("tr",{});cells.forEach(c=>tr.append(typeof c==="string"?node("td",{},c):c));return tr}))}
const clock=(ms)=>new Date(ms).toLocaleTimeString();
async function refresh(){
 try{const s=await (await fetch("status.json",{cache:"no-store"})).json();
  $("state").textContent=s.ready?"ready":"not ready";$("state").className="state "+(s.ready?"good":"bad");
  $("about").textContent=s.roles.join(", ")+" · version "+s.version+" · up since "+new Date(s.started_at_ms).toLocaleString();
  $("cards").replaceChildren(...cards.map(c=>card(c,s.samples)));
  rows($("checks"),s.checks.map(c=>[c.name,node("td",{class:c.ok?"good":"bad"},c.ok?"ok":"failing")]),"no stores");
  rows($("facts"),s.facts.map(f=>[f.name,f.value]),"nothing");
  rows($("warnings"),s.warnings.slice().reverse().map(w=>[clock(w.atMs),node("td",{class:w.level==="error"?"bad":""},w.level),w.message]),"no warnings since the start");
  $("note").textContent=(s.samples.length?"From "+clock(s.samples[0].atMs)+", at most an hour ago, to ":"The first figures come ten seconds after the start: ")+clock(Date.now())+". One point every ten seconds.";
 }catch{$("state").textContent="does not answer";$("state").className="state bad"}}
refresh();setInterval(refresh,10000);
`;

function renderStatusPage(): string {
  return `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>Waypost status</title><style>${style}</style></head><body><main>
<header><h1>Waypost</h1><span id="state" class="state soft">…</span><span id="about" class="soft"></span></header>
<div id="cards" class="grid"></div><p id="note" class="soft"></p>
<h2>Checks</h2><table><tbody id="checks"></tbody></table>
<h2>Ledger and disk</h2><table><tbody id="facts"></tbody></table>
<h2>Warnings and errors</h2><table><tbody id="warnings"></tbody></table>
</main><script>${script}</script></body></html>`;
}
