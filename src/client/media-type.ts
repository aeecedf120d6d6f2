/**
 * The media type of a message: the sender's own, and behind `waypost=1` who wrote the message and how it relates to
 * others. It is sealed, so only the recipient reads it.
 * Source: docs/protocol.md ("Content").
 */
import { parseUuid } from "../core/codec/did.ts";

export type Relations = {
  /** The message that this one answers. */
  readonly replyTo: string | null;
  /** The conversation of several that it belongs to. */
  readonly group: string | null;
  /** The sender asks for a receipt when the recipient has it. */
  readonly wantsReceipt: boolean;
};

export type MediaType = {
  /** Lower case, without parameters. */
  readonly essence: string;
  /** The media type as its sender named it, without the parameters of these conventions. */
  readonly plain: string;
  readonly relations: Relations;
};

const marker = "waypost=1";

/** `text/plain;charset=utf-8;waypost=1;reply-to=<id>`; without relations nothing is added. */
export function withRelations(mediaType: string, { replyTo, group, wantsReceipt }: Relations): string {
  return withParameters(mediaType, [
    ...(replyTo === null ? [] : [`reply-to=${replyTo}`]),
    ...(group === null ? [] : [`group=${group}`]),
    ...(wantsReceipt ? ["receipt=1"] : []),
  ]);
}

/** What the author of an unsigned message is called. */
const anonymous = "none";

/** Names the author inside of what is sealed: a stranger who signs the same ciphertext again is not its author. */
export function withAuthor(mediaType: string, did: string | null): string {
  return withParameters(mediaType, [`from=${did ?? anonymous}`]);
}

/** `null` when the sender named none, as other clients do. */
export function authorOf(mediaType: string): string | null {
  return parameterOf(split(mediaType).own, "from");
}

export function withoutAuthor(mediaType: string): string {
  const { own } = split(mediaType);
  if (parameterOf(own, "from") === null) return mediaType;
  const plain = parts(mediaType)
    .slice(0, -own.length - 1)
    .join(";");
  return withParameters(
    plain,
    own.filter((parameter) => !parameter.toLowerCase().startsWith("from=")),
  );
}

/** Reads untrusted text: values of another form are ignored. */
export function parseMediaType(text: string): MediaType {
  const { essence, plain, own } = split(text);
  return {
    essence: essence.toLowerCase(),
    plain,
    relations: {
      replyTo: parseUuid(parameterOf(own, "reply-to") ?? ""),
      group: parseUuid(parameterOf(own, "group") ?? ""),
      wantsReceipt: parameterOf(own, "receipt") === "1",
    },
  };
}

function withParameters(mediaType: string, parameters: readonly string[]): string {
  if (parameters.length === 0) return mediaType;
  return [mediaType, ...(parts(mediaType).includes(marker) ? [] : [marker]), ...parameters].join(";");
}

const parts = (mediaType: string): string[] => mediaType.split(";").map((part) => part.trim());

function split(mediaType: string): { essence: string; plain: string; own: readonly string[] } {
  const [essence = "", ...rest] = parts(mediaType);
  const at = rest.indexOf(marker);
  const plain = [essence, ...(at < 0 ? rest : rest.slice(0, at))].join(";");
  return { essence, plain, own: at < 0 ? [] : rest.slice(at + 1) };
}

function parameterOf(parameters: readonly string[], name: string): string | null {
  const found = parameters.find((parameter) => parameter.toLowerCase().startsWith(`${name}=`));
  return found?.slice(name.length + 1) ?? null;
}
