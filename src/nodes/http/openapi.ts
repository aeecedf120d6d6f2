/**
 * The description of the interface as OpenAPI 3.1, and the pages `/docs` and `/docs/signing` that show it. Both are
 * made from the routes and schemas that serve the interface: what a route accepts, what it answers, and every code it
 * can refuse with. The pages are HTML texts with their own style, without scripts and without external assets.
 * Source: OpenAPI 3.1.
 */
import type { TSchema } from "@sinclair/typebox";
import { didForm } from "../../core/codec/did.ts";
import { describeFault, type Fault, type FaultCode, fault } from "../../core/fault.ts";
import { tagForm } from "../../core/message/envelope.ts";
import { deliveryResultShape } from "../../core/schema/messages.ts";
import { exampleDid, exampleTxHash, problemShape } from "../../core/schema/schema.ts";
import {
  type SchemeName,
  type Signed,
  schemes,
  sealedMembers,
  sealingExample,
  sealingSteps,
} from "../../core/schema/signing.ts";
import { type Route, renderDeliveryFault, renderProblem } from "./route.ts";

export type InterfaceDescription = ReturnType<typeof describeInterface>;
export type DescribedOperation = ReturnType<typeof describeRoute>;

type DescribedText = {
  readonly type: "string";
  readonly description?: string;
  readonly pattern?: string;
  readonly format?: string;
  readonly examples?: readonly string[];
};

type DescribedResponse = {
  readonly description: string;
  readonly content?: DescribedContent;
  /** The codes behind the status. */
  readonly "x-codes"?: readonly FaultCode[];
};

type DescribedContent = Readonly<Record<string, { readonly schema: unknown; readonly example?: unknown }>>;

/** Codes that the server itself answers on any route, and on routes with a body. */
const serverCodes: readonly FaultCode[] = ["invalid_request", "internal_error", "service_unavailable", "shutting_down"];
const bodyCodes: readonly FaultCode[] = ["invalid_json", "too_large", "unsupported_media_type"];

export function describeInterface(options: {
  readonly version: string;
  readonly routes: readonly Route[];
  /** What has no place among the routes, such as live sessions. */
  readonly notes: readonly string[];
  /** URLs at which the node is reached from outside. */
  readonly servers: readonly string[];
}) {
  const paths: Record<string, Record<string, DescribedOperation>> = {};
  for (const route of options.routes) {
    const path = route.path.replace(/:([A-Za-z]+)/g, "{$1}");
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: describeRoute(route) };
  }
  const tags = [...new Set(options.routes.map((route) => route.operation.tag))];
  return {
    openapi: "3.1.0" as const,
    info: {
      title: "Waypost",
      version: options.version,
      description: ["End-to-end encrypted messaging: Directory, Relay and Cache.", ...options.notes].join(" "),
    },
    servers: (options.servers.length === 0 ? ["/"] : options.servers).map((url) => ({ url })),
    tags: tags.map((name) => ({ name })),
    paths,
    components: {
      schemas: { Problem: problemShape, DeliveryResult: deliveryResultShape },
      securitySchemes: describeSchemes(),
    },
  };
}

/** Proofs in headers are an API key to OpenAPI; signatures in bodies are a scheme of HTTP that it does not know. */
function describeSchemes() {
  const described = Object.entries(schemes).map(([name, { title, sentIn, layout, notes }]) => {
    const description = `${title}: an Ed25519 signature. Sent in ${sentIn}. Signed: ${layout.join("; ")}. ${notes}`;
    const scheme = sentIn.includes("headers")
      ? { type: "apiKey", in: "header", name: "X-Signature", description }
      : { type: "http", scheme: `svc-${name}`, description };
    return [name, scheme] as const;
  });
  return Object.fromEntries(described) as Record<SchemeName, (typeof described)[number][1]>;
}

/** One of `security` is needed; an empty one means that none is. The text is that of an example that verifies. */
function describeSigned(signed: Signed | undefined) {
  if (signed === undefined) return {};
  const needed: Record<string, never[]> = { [signed.scheme]: [] };
  return { security: signed.optional ? [{}, needed] : [needed], "x-signed-text": signed.example() };
}

function describeRoute(route: Route) {
  const { operation } = route;
  return {
    operationId: operation.id,
    summary: operation.summary,
    tags: [operation.tag],
    ...describeSigned(operation.signed),
    parameters: describeParameters(route),
    ...(operation.request === undefined
      ? {}
      : { requestBody: { required: true, content: jsonContent(operation.request) } }),
    responses: { ...describeAnswers(route), ...describeRefusals(route) } as Record<string, DescribedResponse>,
  };
}

/** The values of a path, by name. */
const pathValues: Readonly<Record<string, DescribedText>> = {
  ...nameEach(["did", "personaDid", "target"], { pattern: didForm.source, examples: [exampleDid] }),
  ...nameEach(["methodId", "keyAgreementId", "serviceId"], {
    description: "<did>#<fragment>, percent-encoded like any value of a path, or #<fragment>",
    examples: [`${exampleDid}#k1`],
  }),
  ...nameEach(["messageId", "messageGroupId"], { format: "uuid", examples: ["0190b3b4-0000-7000-8000-000000000001"] }),
  ...nameEach(["alias"], { description: "1 to 64 of a-z 0-9 _ - . after lowering", examples: ["team.one"] }),
  ...nameEach(["tag"], { description: `a tag: ${tagForm}; only a DID has a policy`, examples: [exampleDid] }),
  ...nameEach(["txHash"], { pattern: "^0x[0-9a-fA-F]{64}$", examples: [exampleTxHash] }),
  ...nameEach(["deviceId"], { description: "a device of the recipient, by its own name", examples: ["phone"] }),
  ...nameEach(["code"], { description: "a code of /problems", examples: ["nonce_mismatch"] }),
};

function nameEach(names: readonly string[], text: Omit<DescribedText, "type">): Record<string, DescribedText> {
  return Object.fromEntries(names.map((name) => [name, { type: "string", ...text }]));
}

function describeParameters({ path, operation }: Route) {
  const inPath = [...path.matchAll(/:([A-Za-z]+)/g)].map((m) => m[1] as string);
  const describe = (place: "path" | "query" | "header", required: boolean) => (name: string) => {
    const schema: DescribedText = (place === "path" ? pathValues[name] : undefined) ?? { type: "string" };
    return { name, in: place, required, schema };
  };
  return [
    ...inPath.map(describe("path", true)),
    ...(operation.query ?? []).map(describe("query", false)),
    ...(operation.requiredHeaders ?? []).map(describe("header", true)),
    ...(operation.headers ?? []).map(describe("header", false)),
  ];
}

function jsonContent(schema: TSchema): DescribedContent {
  const example = exampleOf(schema);
  return { "application/json": { schema, ...(example === undefined ? {} : { example }) } };
}

/** A schema has its example as `examples[0]` or `example`. */
function exampleOf(schema: TSchema): unknown {
  const { examples, example } = schema as { examples?: unknown; example?: unknown };
  return Array.isArray(examples) && examples.length > 0 ? examples[0] : example;
}

function describeAnswers(route: Route): Record<string, DescribedResponse> {
  const answers: Record<string, DescribedResponse> = {};
  for (const [status, { description, schema }] of Object.entries(route.operation.responses)) {
    answers[status] = { description, ...(schema === undefined ? {} : { content: jsonContent(schema) }) };
  }
  return answers;
}

/** All codes a route can refuse with, those of the server among them. */
function codesOf(route: Route): FaultCode[] {
  const own = [...route.operation.codes, ...serverCodes];
  return [...new Set(route.bodyBytesMax === null ? own : [...own, ...bodyCodes])];
}

function describeRefusals(route: Route): Record<string, DescribedResponse> {
  const byStatus = new Map<number, FaultCode[]>();
  for (const code of codesOf(route)) {
    const { status } = describeFault(code);
    byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
  }
  const refusals: Record<string, DescribedResponse> = {};
  for (const [status, codes] of [...byStatus].sort(([a], [b]) => a - b)) {
    refusals[String(status)] = {
      description: codes.map((code) => `\`${code}\`: ${describeFault(code).title}.`).join(" "),
      content: faultContent(route.faults, codes),
      "x-codes": codes,
    };
  }
  return refusals;
}

function faultContent(faults: Route["faults"], codes: readonly FaultCode[]): DescribedContent {
  const [type, name, render] =
    faults === "delivery"
      ? (["application/json", "DeliveryResult", renderDeliveryFault] as const)
      : (["application/problem+json", "Problem", renderProblem] as const);
  return {
    [type]: { schema: { $ref: `#/components/schemas/${name}` }, example: render(exampleFault(codes), exampleId) },
  };
}

function exampleFault([code]: readonly FaultCode[]): Fault {
  return fault(code as FaultCode, "what was wrong with this request");
}

const exampleId = "7a0c0b4e-6d3c-4a52-9d1c-0f6f5f6f6b10";

export function renderDocumentation(description: InterfaceDescription): string {
  const { info, tags } = description;
  const operations = operationsOf(description);
  const sections = tags.map(({ name }) => {
    const own = operations.filter(({ operation }) => operation.tags.includes(name));
    const index = own.map(
      ({ path, method, operation }) =>
        `<li><a href="#${text(operation.operationId)}"><b>${method}</b> <code>${text(path)}</code></a> ${text(operation.summary)}</li>`,
    );
    return `<h2>${text(name)}</h2><ul class="index">${index.join("")}</ul>${own.map(renderOperation).join("")}`;
  });
  return page(
    `${info.title} ${info.version}`,
    `<h1>${text(info.title)} <small>${text(info.version)}</small></h1><p>${ticks(info.description)}
The same as data: <a href="/openapi.json">/openapi.json</a>. All codes with cause and remedy: <a href="/problems">/problems</a>.
Limits of this node: <a href="/limits">/limits</a>. What clients sign: <a href="/docs/signing">Signing</a>.</p>
${renderWalkThrough(operations)}${sections.join("")}`,
  );
}

function page(title: string, body: string): string {
  return `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>${text(title)}</title><style>${style}</style></head><body>
${body}</body></html>`;
}

function operationsOf({ paths }: InterfaceDescription): Listed[] {
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method: method.toUpperCase(), operation })),
  );
}

// ----------------------------------------------------------------------------------------- walk-through

/** From nothing to a message that was read, by the operations of a node that is all three. */
const steps: readonly { readonly id: string; readonly title: string; readonly what: string }[] = [
  {
    id: "register",
    title: "Register",
    what: "Make an Ed25519 key, choose a DID or derive it from the key, write its document, sign, and send. Then ask `GET /registration-status/{did}` until it answers `confirmed`.",
  },
  {
    id: "AddKeyAgreement",
    title: "Publish a key to seal to",
    what: "Make an X25519 key and publish it in the document: senders seal to the first one that `GET /delivery-resolution/{did}` finds. The registered document may already have it.",
  },
  {
    id: "AddService",
    title: "Publish",
    what: "Publish in the document where messages go: a service of type `SvcCacheService` with this node's address, and in `authorization` the key that may retrieve. The registered document may already have it, as in the first example.",
  },
  {
    id: "cacheStore",
    title: "Send",
    what: "Seal the content for the recipient's key agreement, as `/docs/signing` shows (Sealing), and put the payload into an envelope. `POST /relay` finds the recipient's destinations; `POST /cache/store` writes to this Cache. Send a message that is larger than `/limits` allows in chunks: each is an envelope with its own `message_id`, the same `message_group_id`, `sequence_number` from 0, `total_chunks`, and `delivery_hint` `chunked`. A signature of the sender is optional.",
  },
  {
    id: "cacheMessages",
    title: "Retrieve",
    what: "Prove that you are the recipient: sign the proof with the key that the service authorizes, and send it in headers. `GET /cache/stream/{did}` and live sessions announce new messages at once.",
  },
  {
    id: "cacheAck",
    title: "Acknowledge",
    what: "When a message is stored safely on the device, acknowledge it: the Cache removes it. Until then the Cache returns it again.",
  },
];

function renderWalkThrough(operations: readonly Listed[]): string {
  const shown = steps.flatMap(({ id, title, what }) => {
    const found = operations.find(({ operation }) => operation.operationId === id);
    if (found === undefined) return [];
    return [`<li><h3 id="step-${id}">${title}</h3><p>${ticks(what)}</p>${renderRequest(found)}</li>`];
  });
  if (shown.length === 0) return "";
  return `<h2 id="walk-through">From nothing to a message</h2><p>All examples are of one identity, whose key is
public (a seed of 32 bytes <code>07</code>), at noon on 16 July 2026; every signature verifies.</p><ol>${shown.join("")}</ol>`;
}

/** The example of an operation as it goes over the wire. */
function renderRequest({ method, path, operation }: Listed): string {
  const signed = operation["x-signed-text"];
  const example = Object.values(operation.requestBody?.content ?? {})[0]?.example;
  const filled = operation.parameters
    .filter((one) => one.in === "path")
    .reduce((filling, { name, schema }) => filling.replace(`{${name}}`, schema.examples?.[0] ?? ""), path);
  const headers = Object.entries(signed?.headers ?? {}).map(([name, value]) => `${name}: ${value}`);
  const type = example === undefined ? [] : ["Content-Type: application/json"];
  const body = example === undefined ? [] : ["", JSON.stringify(example, null, 2)];
  const lines = [`${method} ${filled} HTTP/1.1`, ...type, ...headers, ...body];
  return `<pre>${text(lines.join("\n"))}</pre><p><a href="#${text(operation.operationId)}">Details</a></p>${renderSigned(signed)}`;
}

function renderSigned(signed: DescribedOperation["x-signed-text"]): string {
  if (signed === undefined) return "";
  const shown = signed.text === null ? signed.hex : signed.text;
  return `<details><summary>signed text (${text(signed.scheme)})</summary><pre>${text(shown)}</pre>
<p>key <code>${text(signed.public_key_multibase)}</code>, signature <code>${text(signed.signature_b64)}</code></p></details>`;
}

// ---------------------------------------------------------------------------------------------- signing

/** The page of all that clients sign. */
export function renderSigning(description: InterfaceDescription): string {
  const operations = operationsOf(description);
  const sections = Object.entries(schemes).map(([name, { title, sentIn, layout, notes }]) => {
    const own = operations.filter(({ operation }) => operation["x-signed-text"]?.scheme === name);
    const [first] = own;
    const links = own.map(
      ({ method, path, operation }) =>
        `<li><a href="/docs#${text(operation.operationId)}"><b>${method}</b> <code>${text(path)}</code></a></li>`,
    );
    return `<section id="${name}"><h2>${text(title)}</h2><p>${text(notes)}</p><h4>Sent in</h4><p>${text(sentIn)}</p>
<h4>Signed</h4><pre>${text(layout.join("\n"))}</pre>${renderSigned(first?.operation["x-signed-text"])}
<ul class="index">${links.join("")}</ul></section>`;
  });
  return page(
    "Signing",
    `<h1>Signing</h1><p>All signatures are Ed25519 over the bytes themselves, in standard Base64. Private keys stay with
the client. How a message is encrypted: <a href="#sealing">Sealing</a>. <a href="/docs">Back to the interface</a>.</p>
${sections.join("")}${renderSealing()}`,
  );
}

/** How a payload is sealed for its recipient, with an example that opens. */
function renderSealing(): string {
  const rows = sealedMembers.map(
    ([name, type, meaning]) => `<tr><td><code>${name}</code></td><td>${type}</td><td>${text(meaning)}</td></tr>`,
  );
  const { payload, ...made } = sealingExample;
  const lines = Object.entries(made).map(([name, value]) => `${name}=${value}`);
  return `<section id="sealing"><h2>Sealing</h2><p>A payload is encrypted for one recipient, one message id and one
place in a file. Nodes can't open it.</p><ol>${sealingSteps.map((step) => `<li>${text(step)}</li>`).join("")}</ol>
<h4>The record</h4><p>A CBOR map in deterministic form (RFC 8949 section 4.2.1) with exactly these members.</p>
<table>${rows.join("")}</table><h4>An example that opens</h4><p>The recipient is the identity of the examples.
Keys are hex.</p><pre>${text(lines.join("\n"))}\npayload=${text(JSON.stringify(payload, null, 2))}</pre></section>`;
}

// ------------------------------------------------------------------------------------------- operations

type Listed = { readonly path: string; readonly method: string; readonly operation: DescribedOperation };

function renderOperation({ path, method, operation }: Listed): string {
  const parameters = operation.parameters.map(
    (one) =>
      `<tr><td><code>${text(one.name)}</code></td><td>${one.in}</td><td>${one.required ? "required" : ""}</td></tr>`,
  );
  const responses = Object.entries(operation.responses).map(
    ([status, response]) =>
      `<tr><td>${status}</td><td>${ticks(response.description)}${response["x-codes"] === undefined ? renderContent(response.content) : ""}</td></tr>`,
  );
  return `<section id="${text(operation.operationId)}"><h3><b>${method}</b> <code>${text(path)}</code></h3>
<p>${text(operation.summary)}</p>
${parameters.length === 0 ? "" : `<table>${parameters.join("")}</table>`}
${operation.requestBody === undefined ? "" : `<h4>Body</h4>${renderContent(operation.requestBody.content)}`}
${renderSigned(operation["x-signed-text"])}
<h4>Answers</h4><table>${responses.join("")}</table></section>`;
}

function renderContent(content: DescribedContent | undefined): string {
  if (content === undefined) return "";
  return Object.values(content)
    .map(({ schema, example }) => {
      const shown = example === undefined ? "" : `<pre>${text(JSON.stringify(example, null, 2))}</pre>`;
      return `${shown}<details><summary>schema</summary><pre>${text(JSON.stringify(schema, null, 2))}</pre></details>`;
    })
    .join("");
}

function text(value: string): string {
  return value.replace(/[&<>"]/g, (c) => escapes[c] as string);
}

const escapes: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

/** Text whose words in backticks become code. */
function ticks(value: string): string {
  return text(value).replace(/`([^`]*)`/g, "<code>$1</code>");
}

const style = `
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1b1f;background:#fff}
h2{margin-top:3rem;border-bottom:2px solid #ccc}section{border-top:1px solid #ddd;margin-top:2rem}
code,pre{font:14px/1.4 ui-monospace,monospace}pre{background:#f4f4f6;padding:.7rem;overflow:auto}
table{border-collapse:collapse}td{border:1px solid #ddd;padding:.2rem .6rem;vertical-align:top}
ul.index{list-style:none;padding:0}h3 b,li b{color:#3455a4}summary{cursor:pointer;color:#3455a4}
@media(prefers-color-scheme:dark){body{color:#e4e4e8;background:#17171a}pre{background:#232328}td,section{border-color:#444}
a,h3 b,li b,summary{color:#9db4ff}}`;
