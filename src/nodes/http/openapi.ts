/**
 * The description of the interface as OpenAPI 3.1, made of the same routes and schemas that serve it:
 * what a route takes, what it answers, and every code it can refuse with.
 * Source: rules section 9 ("/openapi.json"); OpenAPI 3.1.
 */
import type { TSchema } from "@sinclair/typebox";
import { didForm } from "../../core/codec/did.ts";
import { describeFault, type Fault, type FaultCode, fault } from "../../core/fault.ts";
import { exampleDid } from "../../core/ledger/example.ts";
import { tagForm } from "../../core/message/envelope.ts";
import { deliveryResultShape } from "../../core/schema/messages.ts";
import { exampleTxHash, problemShape } from "../../core/schema/schema.ts";
import { type SchemeName, type Signed, type SignedExample, schemes } from "../../core/schema/signing.ts";
import { renderDeliveryFault, renderProblem } from "./render.ts";
import type { Route } from "./route.ts";

export type InterfaceDescription = {
  readonly openapi: "3.1.0";
  readonly info: { readonly title: string; readonly version: string; readonly description: string };
  readonly servers: readonly { readonly url: string }[];
  readonly tags: readonly { readonly name: string }[];
  readonly paths: Readonly<Record<string, Readonly<Record<string, DescribedOperation>>>>;
  readonly components: {
    readonly schemas: Readonly<Record<string, unknown>>;
    readonly securitySchemes: Readonly<Record<SchemeName, DescribedScheme>>;
  };
};

export type DescribedOperation = {
  readonly operationId: string;
  readonly summary: string;
  readonly tags: readonly string[];
  /** One of these is needed; an empty one says that none is. */
  readonly security?: readonly Readonly<Record<string, readonly never[]>>[];
  /** The exact signed text of an example that verifies. */
  readonly "x-signed-text"?: SignedExample;
  readonly parameters: readonly DescribedParameter[];
  readonly requestBody?: { readonly required: true; readonly content: DescribedContent };
  readonly responses: Readonly<Record<string, DescribedResponse>>;
};

export type DescribedScheme =
  | { readonly type: "apiKey"; readonly in: "header"; readonly name: string; readonly description: string }
  | { readonly type: "http"; readonly scheme: string; readonly description: string };

export type DescribedParameter = {
  readonly name: string;
  readonly in: "path" | "query" | "header";
  readonly required: boolean;
  readonly schema: DescribedText;
};

type DescribedText = {
  readonly type: "string";
  readonly description?: string;
  readonly pattern?: string;
  readonly format?: string;
  readonly examples?: readonly string[];
};

export type DescribedResponse = {
  readonly description: string;
  readonly content?: DescribedContent;
  /** The codes behind the status. */
  readonly "x-codes"?: readonly FaultCode[];
};

export type DescribedContent = Readonly<Record<string, { readonly schema: unknown; readonly example?: unknown }>>;

/** Codes that the server itself answers on any route, and on routes that take a body. */
export const serverCodes: readonly FaultCode[] = [
  "invalid_request",
  "internal_error",
  "service_unavailable",
  "shutting_down",
];
export const bodyCodes: readonly FaultCode[] = ["invalid_json", "too_large", "unsupported_media_type"];

export function describeInterface(options: {
  readonly version: string;
  readonly routes: readonly Route[];
  /** What has no place among the routes, such as live sessions. */
  readonly notes: readonly string[];
  /** URLs at which the node is reached from outside. */
  readonly servers: readonly string[];
}): InterfaceDescription {
  const paths: Record<string, Record<string, DescribedOperation>> = {};
  for (const route of options.routes) {
    const path = route.path.replace(/:([A-Za-z]+)/g, "{$1}");
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: describeRoute(route) };
  }
  const tags = [...new Set(options.routes.map((route) => route.operation.tag))];
  return {
    openapi: "3.1.0",
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
function describeSchemes(): Record<SchemeName, DescribedScheme> {
  const described = Object.entries(schemes).map(([name, { title, carried, layout, notes }]) => {
    const description = `${title}: an Ed25519 signature. Carried in ${carried}. Signed: ${layout.join("; ")}. ${notes}`;
    const scheme: DescribedScheme = carried.includes("headers")
      ? { type: "apiKey", in: "header", name: "X-Signature", description }
      : { type: "http", scheme: `svc-${name}`, description };
    return [name, scheme];
  });
  return Object.fromEntries(described) as Record<SchemeName, DescribedScheme>;
}

function describeSigned(signed: Signed | undefined): Pick<DescribedOperation, "security" | "x-signed-text"> {
  if (signed === undefined) return {};
  const needed = { [signed.scheme]: [] };
  return { security: signed.optional ? [{}, needed] : [needed], "x-signed-text": signed.example() };
}

function describeRoute(route: Route): DescribedOperation {
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
    responses: { ...describeAnswers(route), ...describeRefusals(route) },
  };
}

/** What stands in a path, by its name there. */
const pathValues: Readonly<Record<string, DescribedText>> = {
  ...nameEach(["did", "personaDid", "target"], { pattern: didForm.source, examples: [exampleDid] }),
  ...nameEach(["methodId", "keyAgreementId", "serviceId"], {
    description: "<did>#<fragment>, percent-encoded like any value of a path, or #<fragment>",
    examples: [`${exampleDid}#k1`],
  }),
  ...nameEach(["messageId", "messageGroupId"], {
    format: "uuid",
    examples: ["0190b3b4-0000-7000-8000-000000000001"],
  }),
  ...nameEach(["alias"], { description: "1 to 64 of a-z 0-9 _ - . after lowering", examples: ["team.one"] }),
  ...nameEach(["tag"], { description: `a tag: ${tagForm}; only a DID has a policy`, examples: [exampleDid] }),
  ...nameEach(["txHash"], { pattern: "^0x[0-9a-fA-F]{64}$", examples: [exampleTxHash] }),
  ...nameEach(["deviceId"], { description: "a device of the recipient, by its own name", examples: ["phone"] }),
  ...nameEach(["code"], { description: "a code of /problems", examples: ["nonce_mismatch"] }),
};

function nameEach(names: readonly string[], text: Omit<DescribedText, "type">): Record<string, DescribedText> {
  return Object.fromEntries(names.map((name) => [name, { type: "string", ...text }]));
}

function describeParameters(route: Route): DescribedParameter[] {
  const string = { type: "string" } as const;
  const inPath = [...route.path.matchAll(/:([A-Za-z]+)/g)].map((m) => m[1] as string);
  return [
    ...inPath.map((name) => ({ name, in: "path", required: true, schema: pathValues[name] ?? string }) as const),
    ...(route.operation.query ?? []).map((name) => ({ name, in: "query", required: false, schema: string }) as const),
    ...describeHeaders(route.operation.requiredHeaders, true),
    ...describeHeaders(route.operation.headers, false),
  ];
}

function describeHeaders(names: readonly string[] = [], required: boolean): DescribedParameter[] {
  return names.map((name) => ({ name, in: "header", required, schema: { type: "string" } }));
}

function jsonContent(schema: TSchema): DescribedContent {
  const example = exampleOf(schema);
  return { "application/json": { schema, ...(example === undefined ? {} : { example }) } };
}

/** A schema carries its example as `examples[0]` or `example`. */
export function exampleOf(schema: TSchema): unknown {
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
export function codesOf(route: Route): FaultCode[] {
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
      content: route.faults === "delivery" ? deliveryContent(codes) : problemContent(codes),
      "x-codes": codes,
    };
  }
  return refusals;
}

function problemContent(codes: readonly FaultCode[]): DescribedContent {
  const schema = { $ref: "#/components/schemas/Problem" };
  return { "application/problem+json": { schema, example: renderProblem(exampleFault(codes), exampleId) } };
}

function deliveryContent(codes: readonly FaultCode[]): DescribedContent {
  const schema = { $ref: "#/components/schemas/DeliveryResult" };
  return { "application/json": { schema, example: renderDeliveryFault(exampleFault(codes), exampleId) } };
}

function exampleFault([code]: readonly FaultCode[]): Fault {
  return fault(code as FaultCode, "what was wrong with this request");
}

const exampleId = "7a0c0b4e-6d3c-4a52-9d1c-0f6f5f6f6b10";
