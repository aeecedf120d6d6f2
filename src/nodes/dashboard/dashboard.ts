/**
 * `GET /status`: what this process does, for the operator, on the admin listener or on a node that only this machine
 * reaches. The page is one HTML text that fetches `/metrics` and `/readyz` every ten seconds, and keeps what it has read
 * for an hour. The node keeps nothing for it.
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
tr:first-child td{border-top:0}td:first-child{width:15rem;color:var(--soft)}
@media(max-width:40rem){main{padding:.8rem}.grid{grid-template-columns:1fr 1fr;gap:.5rem}.card{padding:.6rem .7rem}.card .value{font-size:1.15rem}.card .name span:last-child:not(:first-child){display:none}svg{height:2.6rem}td:first-child{width:7.5rem}td,th{padding:.4rem .5rem}}
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
 const svg=vector("svg",{viewBox:"0 0 100 40",preserveAspectRatio:"none",role:"img","aria-label":name});
 const d=line(values,max);if(d&&!values.includes(null))svg.append(vector("path",{class:"area",d:d+"L100 40L0 40Z",style:"fill:var(--main)"}));
 svg.append(vector("path",{d,style:"stroke:var(--main)"}));if(second)svg.append(vector("path",{d:line(others,max),style:"stroke:var(--second)"}));
 box.append(svg);return box}
function rows(target,list,empty){target.replaceChildren(...(list.length?list:[[empty]]).map(cells=>{const tr=node("tr",{});cells.forEach(c=>tr.append(typeof c==="string"?node("td",{},c):c));return tr}))}
const clock=(ms)=>new Date(ms).toLocaleTimeString();
const storeFacts=[["ledger_finalized_block","finalized block",String],["ledger_head_age_seconds","age of that block",v=>v.toFixed(0)+" s"],["store_disk_free_bytes","free disk",bytes]];
const samples=[];let before=null;
async function refresh(){
 try{
  const [metrics,ready]=await Promise.all(["metrics","readyz"].map(path=>fetch(path,{cache:"no-store"})));
  const now={atMs:Date.now(),readings:readingsOf(await metrics.text())},state=await ready.json();
  if(before)samples.push({atMs:now.atMs,...figuresOf(before,now)});
  if(samples.length>360)samples.shift();
  before=now;
  const first=(name)=>(now.readings.get(name)??[{labels:{},value:0}])[0];
  $("state").textContent=ready.ok?"ready":"not ready";$("state").className="state "+(ready.ok?"good":"bad");
  $("about").textContent="version "+first("build_info").labels.version+" · up since "+new Date(first("process_start_time_seconds").value*1000).toLocaleString();
  $("cards").replaceChildren(...cards.map(c=>card(c,samples)));
  const checks=Object.entries(state.checks??{"":state.detail});
  rows($("checks"),checks.map(([name,text])=>[name,node("td",{class:text==="ok"?"good":"bad"},text)]),"no stores");
  const facts=storeFacts.flatMap(([metric,name,form])=>(now.readings.get(metric)??[]).map(({labels,value})=>[name+" of "+labels.store,form(value)]));
  rows($("facts"),facts,"nothing");
  $("note").textContent=samples.length?"From "+clock(samples[0].atMs)+" to "+clock(now.atMs)+", one point every ten seconds. The page keeps an hour while it is open.":"The first figures come in ten seconds.";
 }catch{$("state").textContent="does not answer";$("state").className="state bad"}
}
refresh();setInterval(refresh,10000);
`;

function renderStatusPage(): string {
  return `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>Waypost status</title><style>${style}</style></head><body><main>
<header><h1>Waypost</h1><span id="state" class="state soft">…</span><span id="about" class="soft"></span></header>
<div id="cards" class="grid"></div><p id="note" class="soft"></p>
<h2>Checks</h2><table><tbody id="checks"></tbody></table>
<h2>Ledger and disk</h2><table><tbody id="facts"></tbody></table>
</main><script>"use strict";${figures}${script}</script></body></html>`;
}
