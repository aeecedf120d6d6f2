/**
 * Where an identity of this machine was made: commands that act for it find its nodes by
 * themselves. It lies with what the identity remembers, and goes with it.
 */
import { isRecord } from "../../client/base/shapes.ts";
import { memoryOf } from "../../client/keys/key-stores.ts";
import { nameForm } from "../../client/keys/keys.ts";
import { withoutTrailingSlashes } from "../../core/message/proof.ts";
import { fileKeys } from "./files.ts";

type NodeUrls = {
  readonly directoryUrl: string;
  readonly relayUrl: string;
  readonly cacheUrl: string;
};

type Given = { readonly [Node in "url" | "directory" | "relay" | "cache"]?: string };

/**
 * Flags win over the environment, that over where the identity was made, and that over the default.
 */
export function nodeUrls(flags: Given, home: NodeUrls | null, urlDefault: string): NodeUrls {
  const { env } = process;
  const urlOf = (node: "directory" | "relay" | "cache"): string =>
    withoutTrailingSlashes(
      flags[node] ??
        (flags.url || env[`WAYPOST_${node.toUpperCase()}_URL`]) ??
        env["WAYPOST_URL"] ??
        home?.[`${node}Url`] ??
        urlDefault,
    );
  return {
    directoryUrl: urlOf("directory"),
    relayUrl: urlOf("relay"),
    cacheUrl: urlOf("cache"),
  };
}

const homeKey = "home";

/** `null` for an identity that an earlier version has made, and for a name of none. */
export async function homeOf(
  keysFolder: string,
  name: string | undefined,
): Promise<NodeUrls | null> {
  if (name === undefined || !nameForm.test(name)) return null;
  const text = await memoryOf(fileKeys(keysFolder), name).load(homeKey);
  const { directoryUrl, relayUrl, cacheUrl } = parseHome(text);
  return typeof directoryUrl === "string" &&
    typeof relayUrl === "string" &&
    typeof cacheUrl === "string"
    ? { directoryUrl, relayUrl, cacheUrl }
    : null;
}

function parseHome(text: string | null): Readonly<Record<string, unknown>> {
  try {
    const home: unknown = JSON.parse(text ?? "null");
    return isRecord(home) ? home : {};
  } catch {
    return {};
  }
}

export function saveHome(keysFolder: string, name: string, urls: NodeUrls): Promise<void> {
  return memoryOf(fileKeys(keysFolder), name).save(homeKey, JSON.stringify(urls));
}
