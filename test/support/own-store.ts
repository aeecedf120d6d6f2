/**
 * The local store of an identity without nodes: its rows, and what sends for it, of which a test
 * replaces what it looks at.
 */
import { type DeviceMail, type Speech, Sync } from "../../src/client/devices/sync.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import {
  createIdentity,
  type Identity,
  parseIdentity,
  renderIdentity,
} from "../../src/client/keys/keys.ts";
import type { StoreChange } from "../../src/client/mail/message.ts";
import { OwnIdentity } from "../../src/client/mail/own-identity.ts";
import { endpoint } from "../../src/client/net/http.ts";
import { Copies } from "../../src/client/store/copies.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { GroupHanding } from "../../src/client/store/group-handing.ts";
import { GroupTalk } from "../../src/client/store/group-talk.ts";
import { Groups } from "../../src/client/store/groups.ts";
import { Incoming } from "../../src/client/store/incoming.ts";
import { Outbox } from "../../src/client/store/outbox.ts";
import { OwnStore, soleTab } from "../../src/client/store/own-store.ts";
import { Sending } from "../../src/client/store/sending.ts";
import { LocalStore } from "../../src/client/store/store.ts";
import type { Table } from "../../src/client/store/table.ts";
import { joinTabs } from "../../src/client/store/tabs.ts";
import type { Client } from "../../src/client/trust/client.ts";
import type { Did } from "../../src/core/codec/did.ts";

/** Of nodes that have said nothing of the time. */
function clientAt(): Client {
  const at = endpoint("http://127.0.0.1:1");
  return Object.assign({} as Client, { directory: { endpoint: at }, relay: at });
}

type OwnOptions = { readonly nowMs?: () => number; readonly secrets?: Identity };

/**
 * Of a DID, whose keys are its own or those that are given; what the program is told is in `events`
 * of the identity.
 */
export async function ownStoreOf(table: Table, did: Did, options: OwnOptions = {}) {
  const { secrets = { ...createIdentity("own"), did }, nowMs = Date.now } = options;
  const text = renderIdentity(secrets);
  // A copy: an identity wipes the secrets that it replaces.
  const own = parseIdentity(text, secrets.name) ?? secrets;
  const keys = memoryKeys(new Map([[secrets.name, text]]));
  const client = Object.assign(clientAt(), { known: { memory: memoryKeys() } });
  const identity = new OwnIdentity(client, own, { keys, nowMs });
  return new OwnStore(identity, table, await joinTabs(memoryStore(), table.place));
}

type Replaced = Partial<Pick<Sending, "send" | "find" | "wereRead">>;

/** Its parts, where sending is replaced. */
export async function partsOf(own: OwnStore, replaced: Replaced = {}) {
  const outbox = new Outbox(own);
  const copies = new Copies(own);
  const unsent = { send: () => Promise.reject(new Error("nothing is sent")) };
  const sending = Object.assign(new Sending(own, outbox, false), unsent, replaced);
  const store = new LocalStore(own, outbox, { copies, sending });
  const talk = new GroupTalk(own, sending);
  const handing = new GroupHanding(own, talk);
  const groups = new Groups(own, { sending, store, talk, handing });
  const incoming = (isSyncing: boolean | null) => {
    const sync = isSyncing === null ? null : { isSyncing, synced: async () => undefined };
    return new Incoming(own, { sending, copies, talk, devices: { sync } });
  };
  return { store, groups, talk, incoming };
}

type SyncParts = DeviceMail & {
  readonly speech: Speech;
  readonly table: Table;
  readonly nowMs: () => number;
  readonly tell: (change: StoreChange) => void;
};

/** Replication of a store without nodes, until the signal. */
export function syncOf(parts: SyncParts, logged: number, signal: AbortSignal): Sync {
  const { table, nowMs, tell, send, receive, speech } = parts;
  const secrets = createIdentity("own");
  const identity = new OwnIdentity(clientAt(), secrets, { keys: memoryKeys(), nowMs });
  identity.on((event) => {
    if (event.type === "changed") tell(event);
  });
  const own = new OwnStore(identity, table, { ...soleTab });
  signal.addEventListener("abort", () => own.stop());
  return new Sync(own, { send, receive }, speech, logged);
}
