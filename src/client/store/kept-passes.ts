/**
 * Passes without a local store, as a command that only sends needs them: next to the keys lies what the store of the
 * identity last had of people's passes, and whether its own are given.
 * Source: docs/interface.md "Passes", docs/client.md "Sending".
 */
import { utf8 } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { minuteMs } from "../../core/codec/time.ts";
import {
  makePass,
  type Pass,
  parsePass,
  passPeriod,
  renderPass,
  showPass,
} from "../../core/message/pass.ts";
import { attempt } from "../base/failure.ts";
import { keptPassesShape } from "../base/kept.ts";
import { renderKept } from "../base/shapes.ts";
import { hkdf } from "../keys/crypto.ts";
import type { TextStore } from "../keys/key-stores.ts";
import type { OwnIdentity } from "../mail/own-identity.ts";
import type { ShowPass } from "../mail/send.ts";
import { knowsPasses } from "../net/about.ts";
import type { Endpoint } from "../net/http.ts";
import { recall } from "../trust/trust.ts";

const keptKey = "passes";
/** 90 bytes each. */
const keptMax = 1_024;
const handedKeptMs = 5 * minuteMs;

/** A pass that somebody gave, as text. */
export type GivenPass = { readonly did: Did; readonly pass: string };

/** The own secrets, from the root key: new keys end all passes. */
export function passKeysOf(rootSeed: Uint8Array): {
  readonly secret: Uint8Array;
  readonly namingKey: Uint8Array;
} {
  const derive = (purpose: string) => hkdf(rootSeed, null, utf8(`waypost:passes:${purpose}`), 32);
  return { secret: derive("secret"), namingKey: derive("name") };
}

/** Whether a Relay hands passes on, as it last said. */
export class PassRelay {
  #isKnown = false;
  #untilMs = 0;

  async handsOn(relay: Endpoint): Promise<boolean> {
    if (this.#untilMs < Date.now()) {
      this.#isKnown = (await attempt(() => knowsPasses(relay))) === true;
      this.#untilMs = Date.now() + handedKeptMs;
    }
    return this.#isKnown;
  }
}

/** `areGiven`: the own Caches know the secret. Of more passes than are kept, the first ones. */
export async function keepPasses(
  memory: TextStore,
  { areGiven, passes }: { readonly areGiven: boolean; readonly passes: readonly GivenPass[] },
): Promise<void> {
  const isEmpty = !areGiven && passes.length === 0;
  const next = isEmpty ? null : renderKept({ areGiven, passes: passes.slice(0, keptMax) });
  if ((await memory.load(keptKey)) !== next) await memory.save(keptKey, next);
}

/** What `Passing` gives and shows. */
export class KeptPasses {
  readonly #identity: OwnIdentity;
  readonly #relay = new PassRelay();

  constructor(identity: OwnIdentity) {
    this.#identity = identity;
  }

  /** Who is written to is accepted. */
  async given(to: Did): Promise<string | null> {
    if ((await this.#kept())?.areGiven !== true) return null;
    const keys = passKeysOf(this.#identity.secrets.rootSeed);
    return renderPass(makePass(keys, to, passPeriod(this.#identity.nowMs())));
  }

  async shownTo(to: Did): Promise<ShowPass | null> {
    const { passes = [] } = (await this.#kept()) ?? {};
    const pass: Pass | null = parsePass(passes.find(({ did }) => did === to)?.pass ?? "");
    if (pass === null || !(await this.#relay.handsOn(this.#identity.client.relay))) return null;
    return (envelope) => showPass(pass, envelope);
  }

  #kept() {
    return recall(this.#identity.client.known.memory, keptKey, keptPassesShape);
  }
}
