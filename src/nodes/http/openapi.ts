/**
 * The description of the interface as OpenAPI 3.1, made from the routes and schemas that serve it: what a route accepts,
 * what it answers, and every code it can refuse with.
 */
import type { TSchema } from "@sinclair/typebox";
import { didForm } from "../../core/codec/did.ts";
import { describeFault, type Fault, type FaultCode, fault } from "../../core/fault.ts";
import { tagForm } from "../../core/message/envelope.ts";
import { deliveryResultShape } from "../../core/schema/messages.ts";
import { exampleDid, exampleTxHash, problemShape } from "../../core/schema/schema.ts";
import { bodyBytesMaxOf, type Route, renderDeliveryFault, renderProblem } from "./route.ts";

export type InterfaceDescription = ReturnType<typeof describeInterface>;
type DescribedOperation = ReturnType<typeof describeRoute>;

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
  /** URLs at which the node is reached from outside. */
  readonly servers: readonly string[];
}) {
  const paths: Record<string, Record<string, DescribedOperation>> = {};
  for (const route of options.routes) {
    const path = route.path.replace(/:([A-Za-z]+)/g, "{$1}");
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: describeRoute(route) };
  }
  const tags = [...new Set(options.routes.map(({ tag }) => tag))];
  return {
    openapi: "3.1.0" as const,
    info: {
      title: "Waypost",
      version: options.version,
      description: "End-to-end encrypted messaging: Directory, Relay and Cache.",
    },
    servers: (options.servers.length === 0 ? ["/"] : options.servers).map((url) => ({ url })),
    tags: tags.map((name) => ({ name })),
    paths,
    components: { schemas: { Problem: problemShape, DeliveryResult: deliveryResultShape } },
  };
}

function describeRoute(route: Route) {
  const { id, summary, tag, request } = route;
  return {
    operationId: id,
    summary,
    tags: [tag],
    parameters: describeParameters(route),
    ...(request === undefined ? {} : { requestBody: { required: true, content: jsonContent(request) } }),
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

function describeParameters({ path, query = [], requiredHeaders = [], headers = [] }: Route) {
  const inPath = [...path.matchAll(/:([A-Za-z]+)/g)].map((m) => m[1] as string);
  const describe = (place: "path" | "query" | "header", required: boolean) => (name: string) => {
    const schema: DescribedText = (place === "path" ? pathValues[name] : undefined) ?? { type: "string" };
    return { name, in: place, required, schema };
  };
  return [
    ...inPath.map(describe("path", true)),
    ...query.map(describe("query", false)),
    ...requiredHeaders.map(describe("header", true)),
    ...headers.map(describe("header", false)),
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

function describeAnswers({ answer, also }: Route): Record<string, DescribedResponse> {
  const answers: Record<string, DescribedResponse> = {};
  for (const [status, description, schema] of also === undefined ? [answer] : [answer, also])
    answers[status] = { description, ...(schema === undefined ? {} : { content: jsonContent(schema) }) };
  return answers;
}

/** All codes a route can refuse with, those of the server among them. */
function codesOf(route: Route): FaultCode[] {
  const own = [...(route.codes ?? []), ...serverCodes];
  return [...new Set(bodyBytesMaxOf(route) === null ? own : [...own, ...bodyCodes])];
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
