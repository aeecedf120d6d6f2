/**
 * The description of the interface as OpenAPI 3.1, and the page `/docs` that shows it. Both are made from the routes and
 * schemas that serve the interface: what a route accepts, what it answers, and every code it can refuse with. The page is
 * one HTML text with its own style, without scripts and without external assets.
 * Source: OpenAPI 3.1.
 */
import type { TSchema } from "@sinclair/typebox";
import { didForm } from "../../core/codec/did.ts";
import { describeFault, type Fault, type FaultCode, fault } from "../../core/fault.ts";
import { tagForm } from "../../core/message/envelope.ts";
import { deliveryResultShape } from "../../core/schema/messages.ts";
import { exampleDid, exampleTxHash, problemShape } from "../../core/schema/schema.ts";
import { type SchemeName, type Signed, schemes } from "../../core/schema/signing.ts";
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
  const described = Object.entries(schemes).map(([name, description]) => {
    const scheme = description.includes("headers X-")
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

// ------------------------------------------------------------------------------------------------------------- the page

/** The description for people: of each operation a request with its signed text, and what it answers. */
export function renderDocumentation({ info, tags, paths, components }: InterfaceDescription): string {
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method: method.toUpperCase(), operation })),
  );
  const sections = tags.map(({ name }) => {
    const own = operations.filter(({ operation }) => operation.tags.includes(name));
    return `<h2>${text(name)}</h2>${own.map(renderOperation).join("")}`;
  });
  const signing = Object.entries(components.securitySchemes).map(
    ([name, { description }]) => `<section id="${name}"><h3>${name}</h3><pre>${text(description)}</pre></section>`,
  );
  const title = `${info.title} ${info.version}`;
  return `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>${text(title)}</title><style>${style}</style></head><body><h1>${text(title)}</h1><p>${ticks(info.description)}
With all schemas, for tools: <a href="/openapi.json">/openapi.json</a>. All codes: <a href="/problems">/problems</a>.
Limits of this node: <a href="/limits">/limits</a>. What clients sign: <a href="#signing">Signing</a>.</p>
<p>All examples are of one identity, whose key is public (a seed of 32 bytes <code>07</code>), at noon on 16 July 2026;
every signature verifies.</p>${sections.join("")}<h2 id="signing">Signing</h2>${signing.join("")}</body></html>`;
}

type Listed = { readonly path: string; readonly method: string; readonly operation: DescribedOperation };

function renderOperation(listed: Listed): string {
  const { path, method, operation } = listed;
  const answers = Object.entries(operation.responses).map(
    ([status, { description }]) => `<tr><td>${status}</td><td>${ticks(description)}</td></tr>`,
  );
  return `<section id="${text(operation.operationId)}"><h3><b>${method}</b> <code>${text(path)}</code></h3>
<p>${text(operation.summary)}</p><pre>${text(exampleRequest(listed))}</pre>${renderSigned(operation["x-signed-text"])}
<table>${answers.join("")}</table></section>`;
}

/** The example of an operation as it goes over the wire. */
function exampleRequest({ method, path, operation }: Listed): string {
  const example = Object.values(operation.requestBody?.content ?? {})[0]?.example;
  const filled = operation.parameters
    .filter((one) => one.in === "path")
    .reduce((filling, { name, schema }) => filling.replace(`{${name}}`, schema.examples?.[0] ?? `{${name}}`), path);
  const signed = Object.entries(operation["x-signed-text"]?.headers ?? {});
  const body = example === undefined ? [] : ["Content-Type: application/json", "", JSON.stringify(example, null, 2)];
  return [`${method} ${filled} HTTP/1.1`, ...signed.map(([name, value]) => `${name}: ${value}`), ...body].join("\n");
}

function renderSigned(signed: DescribedOperation["x-signed-text"]): string {
  if (signed === undefined) return "";
  return `<details><summary>signed text (${text(signed.scheme)})</summary><pre>${text(signed.text ?? signed.hex)}</pre>
<p>key <code>${text(signed.public_key_multibase)}</code>, signature <code>${text(signed.signature_b64)}</code></p></details>`;
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
code,pre{font:14px/1.4 ui-monospace,monospace}pre{background:#f4f4f6;padding:.7rem;overflow:auto;white-space:pre-wrap}
table{border-collapse:collapse}td{border:1px solid #ddd;padding:.2rem .6rem;vertical-align:top}
h3 b{color:#3455a4}summary{cursor:pointer;color:#3455a4}
@media(prefers-color-scheme:dark){body{color:#e4e4e8;background:#17171a}pre{background:#232328}td,section{border-color:#444}
a,h3 b,summary{color:#9db4ff}}`;
