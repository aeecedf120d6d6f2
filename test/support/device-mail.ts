/**
 * Mail between own devices without nodes: what one sends lies in the other's box until that has
 * taken it.
 */

import { attempt, ClientError } from "../../src/client/base/failure.ts";
import type { Fill, Speech } from "../../src/client/devices/sync.ts";
import type { Content, Source } from "../../src/client/mail/content.ts";
import type { ReadMessage } from "../../src/client/mail/retrieve.ts";
import type { MessageOptions, Sent } from "../../src/client/mail/send.ts";
import { utf8 } from "../../src/core/codec/bytes.ts";
import type { Did } from "../../src/core/codec/did.ts";

/** Devices that speak without a keyring. */
export const plainSpeech: Speech = {
  mayTell: async () => true,
  holds: async () => false,
  stamp: async () => "",
  seal: async (_to, said) => said,
  open: async (_from, json) => ({ said: json, theirs: "", isEarly: false }),
  isBehind: async () => false,
  contentKey: () => new Uint8Array(32).fill(5),
};

export type Letter = {
  readonly from: Did;
  readonly to: Did;
  readonly facts: ReadMessage;
  readonly bytes: Uint8Array;
};

const isSource = (content: Content): content is Source =>
  typeof content === "object" && content !== null && "read" in content;

async function letterOf(
  from: Did,
  to: Did,
  content: Content,
  options: MessageOptions,
): Promise<Letter> {
  const bytes = isSource(content)
    ? await content.read(0, content.file.sizeBytes)
    : utf8(JSON.stringify(content));
  const { name, mediaType = "" } = isSource(content) ? content.file : { name: "", ...options };
  const facts: ReadMessage = {
    ...{
      id: crypto.randomUUID(),
      from,
      verified: true,
      trust: "proven",
      distrusted: null,
      name,
      mediaType,
    },
    ...{
      sizeBytes: bytes.length,
      replyTo: options.replyTo ?? null,
      group: null,
      wantsReceipt: false,
      messageIds: [],
    },
    ...{ sentMs: Date.now(), sha256: new Uint8Array(0), digests: new Set<string>() },
  };
  return { from, to, facts, bytes };
}

export class DeviceMail {
  readonly boxes = new Map<Did, Letter[]>();
  /** Throws what keeps it from being sent; `true` loses it. */
  readonly #isLost: (letter: Letter) => boolean | Promise<boolean>;

  constructor(isLost: (letter: Letter) => boolean | Promise<boolean> = () => false) {
    this.#isLost = isLost;
  }

  put(letter: Letter): void {
    this.boxes.set(letter.to, [...this.boxOf(letter.to), letter]);
  }

  boxOf(did: Did): Letter[] {
    return this.boxes.get(did) ?? [];
  }

  /** What a device sends, and takes until the signal. */
  link(did: Did) {
    const send = async (to: Did, content: Content, options: MessageOptions): Promise<Sent> => {
      const letter = await letterOf(did, to, content, options);
      if (!(await this.#isLost(letter))) this.put(letter);
      const recipient = { did: to, trust: "proven", name: null } as const;
      return { id: "", chunks: 1, groupId: null, messageIds: [], last: null, recipient };
    };
    const receive = async (
      take: (fill: Fill) => Promise<ReadMessage>,
      signal: AbortSignal,
    ): Promise<void> => {
      for (; !signal.aborted; await Bun.sleep(1)) {
        const [letter] = this.boxOf(did);
        if (letter === undefined) continue;
        const fill: Fill = async (write) => {
          await write(letter.bytes, letter.facts);
          return letter.facts;
        };
        if ((await attempt(() => take(fill))) instanceof ClientError || signal.aborted) continue;
        this.boxes.set(
          did,
          this.boxOf(did).filter((one) => one !== letter),
        );
      }
    };
    return { send, receive };
  }
}

/** What a letter of a device says. */
export const saidIn = ({ facts, bytes }: Letter): Record<string, unknown> =>
  facts.mediaType.endsWith("json")
    ? JSON.parse(new TextDecoder().decode(bytes))
    : { content: facts.name };
