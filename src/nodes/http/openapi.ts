/**
 * The description of the interface as OpenAPI 3.1, made from the routes and schemas that
 * serve it: what a route accepts, what it answers, and every code it can refuse with.
 */
import type { TSchema, TString } from "@sinclair/typebox";
import { didForm } from "../../core/codec/did.ts";
import { describeFault, type FaultCode } from "../../core/fault.ts";
import { deliveryResultShape } from "../../core/schema/messages.ts";
import {
  aliasText,
  didText,
  didUrlText,
  problemShape,
  tagForm,
  txHashText,
  uuidText,
} from "../../core/schema/schema.ts";
import type { Credential, MediaType, Route } from "./route.ts";

export type InterfaceDescription = ReturnType<typeof describeInterface>;
type DescribedResponse = {
  readonly description: string;
  readonly content?: Readonly<Record<string, { readonly schema: unknown }>>;
  /** The codes behind the status. */
  readonly "x-codes"?: readonly FaultCode[];
};

/** Codes that the server itself answers on any route, and on routes with a body. */
const serverCodes: readonly FaultCode[] = [
  "invalid_request",
  "internal_error",
  "service_unavailable",
  "shutting_down",
];
/** And on those that write. */
const writeCodes: readonly FaultCode[] = ["maintenance"];
const bodyCodes: readonly FaultCode[] = ["invalid_json", "too_large", "unsupported_media_type"];

export function describeInterface(options: {
  readonly version: string;
  readonly routes: readonly Route[];
  /** URLs at which the node is reached from outside. */
  readonly servers: readonly string[];
}) {
  const paths: Record<string, Record<string, ReturnType<typeof describeRoute>>> = {};
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
    // Reads are public; an operation that needs a proof says which.
    security: [],
    components: {
      schemas: { Problem: problemShape, DeliveryResult: deliveryResultShape },
      securitySchemes,
    },
  };
}

const inHeader = (name: string, description: string) => {
  return { type: "apiKey", in: "header", name, description } as const;
};

/**
 * Signatures have no scheme of their own in OpenAPI: each is named by the header that
 * carries it.
 */
const securitySchemes = {
  cacheProof: inHeader(
    "X-Signature",
    "The signed Cache proof; its other values are in five more headers.",
  ),
  updateProof: inHeader(
    "X-Signature",
    "The Directory update proof; its other values are in four more headers.",
  ),
  invitation: inHeader("Svc-Invitation", "A code, where /limits has `registration`: `invite`."),
} as const satisfies Record<Credential, unknown>;

type Security = readonly Readonly<Partial<Record<Credential, readonly []>>>[];

/** `{}` among them: the request is also taken without one. */
function securityOf({ credential, requiredHeaders = [] }: Route): Security {
  if (credential === undefined) return [];
  const needed = { [credential]: [] as const };
  return requiredHeaders.includes(securitySchemes[credential].name) ? [needed] : [{}, needed];
}

function describeRoute(route: Route) {
  const { id, summary, tag, request } = route;
  return {
    operationId: id,
    summary,
    tags: [tag],
    security: securityOf(route),
    parameters: describeParameters(route),
    ...(request === undefined
      ? {}
      : { requestBody: { required: true, content: jsonContent(request) } }),
    responses: { ...describeAnswers(route), ...describeRefusals(route) } as Record<
      string,
      DescribedResponse
    >,
  };
}

const anyText = { type: "string" } as TString;
const didName = { ...didText, pattern: didForm.source };

/** The values of a path, by name. */
const pathValues: Readonly<Record<string, TString>> = {
  did: didName,
  personaDid: didName,
  target: didName,
  methodId: didUrlText,
  keyAgreementId: didUrlText,
  serviceId: didUrlText,
  messageId: uuidText,
  messageGroupId: uuidText,
  alias: aliasText,
  tag: { ...didName, description: `a tag: ${tagForm}; only a DID has a policy` },
  txHash: { ...txHashText, pattern: "^0x[0-9a-fA-F]{64}$" },
  deviceId: {
    ...anyText,
    description: "a device of the recipient, by its own name",
    examples: ["phone"],
  },
  code: { ...anyText, description: "a code of /problems", examples: ["nonce_mismatch"] },
};

function describeParameters({ path, query = [], requiredHeaders = [], headers = [] }: Route) {
  const inPath = [...path.matchAll(/:([A-Za-z]+)/g)].map((m) => m[1] as string);
  const describe = (place: "path" | "query" | "header", required: boolean) => (name: string) => {
    return { name, in: place, required, schema: (place === "path" && pathValues[name]) || anyText };
  };
  return [
    ...inPath.map(describe("path", true)),
    ...query.map(describe("query", false)),
    ...requiredHeaders.map(describe("header", true)),
    ...headers.map(describe("header", false)),
  ];
}

function jsonContent(schema: TSchema) {
  return { "application/json": { schema } };
}

/** Texts are texts, and other bytes are binary. */
function describedContent(content: TSchema | MediaType): NonNullable<DescribedResponse["content"]> {
  if (typeof content !== "string") return jsonContent(content);
  const type = content.split(";")[0] as string;
  const schema = type.startsWith("text/") ? anyText : { ...anyText, format: "binary" };
  return { [type]: { schema } };
}

function describeAnswers({ answer, also }: Route): Record<string, DescribedResponse> {
  const answers: Record<string, DescribedResponse> = {};
  for (const [status, description, content] of also === undefined ? [answer] : [answer, also])
    answers[status] = {
      description,
      ...(content === undefined ? {} : { content: describedContent(content) }),
    };
  return answers;
}

/** All codes a route can refuse with, those of the server among them, by status. */
function describeRefusals(route: Route): Record<string, DescribedResponse> {
  const ofBody = route.bodyBytesMax === undefined ? [] : bodyCodes;
  const isWrite = route.method !== "GET" && route.capacity === "normal";
  const ofWrite = isWrite ? writeCodes : [];
  const codes = new Set([...(route.codes ?? []), ...serverCodes, ...ofWrite, ...ofBody]);
  const byStatus = Object.groupBy(codes, (code) => describeFault(code).status);
  return Object.fromEntries(
    Object.entries(byStatus).map(([status, codes = []]) => {
      const description = codes
        .map((code) => `\`${code}\`: ${describeFault(code).title}.`)
        .join(" ");
      return [status, { description, content: faultContent(route.faults), "x-codes": codes }];
    }),
  );
}

function faultContent(faults: Route["faults"]): NonNullable<DescribedResponse["content"]> {
  const [type, name] =
    faults === "delivery"
      ? ["application/json", "DeliveryResult"]
      : ["application/problem+json", "Problem"];
  return { [type]: { schema: { $ref: `#/components/schemas/${name}` } } };
}
