/**
 * THE table of signed actions: what a key of a DID can authorize. Payloads, calls,
 * requests, the client, OpenAPI and the documents are made of it. A new action is one row
 * here, one in `actionTexts` of `core/schema/directory.ts`, its rule in `action-rules.ts`,
 * and its test. An intent is an action with its items (`intents.ts` parses and renders it).
 * Source: interface "Signed DID-document updates", docs/ledger.md 1.4, 1.5, 1.7 and 1.8,
 * rules section 4.
 */
import type { Did } from "../codec/did.ts";
import type { CounterName, KeyAgreement, Service, VerificationMethod } from "./account.ts";

// ------------------------------------------------------------------------------------------- items

/** What an action is about. The items of a row name members of this. */
export type Items = {
  readonly verificationMethod: VerificationMethod;
  readonly keyAgreement: KeyAgreement;
  readonly service: Service;
  /** Absolute id of a method, key agreement or service. */
  readonly id: string;
  /** Aliases in normal form. */
  readonly alias: string;
  readonly oldAlias: string;
  readonly newAlias: string;
  readonly newRootPubkey: Uint8Array;
};
export type ActionItem = keyof Items;

// ------------------------------------------------------------------------------------------- table

type ActionRow = {
  /** The counter whose value the authorization uses up; it also decides the payload's structure. */
  readonly counter: CounterName;
  /** The byte of the action within that structure; `null`: the structure has none. */
  readonly discriminant: number | null;
  readonly call: string;
  /** In the pallet did-registry. */
  readonly callIndex: number;
  /**
   * The items that the payload holds, in the order of the call's arguments. Every other
   * item of the structure is none.
   */
  readonly items: readonly ActionItem[];
  /**
   * The root key alone signs it: a method that `authentication` lists can't take over or
   * end the identity.
   */
  readonly isOnlyForRoot: boolean;
  /** It removes the DID with all that it has, except its counters. */
  readonly deletesDid: boolean;
  readonly route: {
    readonly method: "POST" | "PUT" | "PATCH" | "DELETE";
    /** A parameter behind the DID names the subject of the first item. */
    readonly path: string;
  };
};

/** The ledger's other control actions change devices and links: no route offers them. */
const control = {
  counter: "control",
  call: "apply_control_with_proof",
  callIndex: 29,
  items: [],
  isOnlyForRoot: true,
} as const;

const ofAnySigner = { isOnlyForRoot: false, deletesDid: false } as const;

/**
 * The calls for one list of a document, in the order of the discriminants, which is that of
 * the pallet's calls as well.
 */
function callsFor(path: string, id: string) {
  return <const Call extends string, const Item extends ActionItem>(
    discriminant: number,
    call: Call,
    item: Item,
    method: "POST" | "PUT" | "DELETE",
  ) => {
    const route = {
      method,
      path: `/dids/:did/document/${path}${method === "POST" ? "" : `/:${id}`}`,
    };
    return {
      counter: "document",
      discriminant,
      call,
      callIndex: 14 + discriminant,
      items: [item],
      ...ofAnySigner,
      route,
    } as const;
  };
}

const ofMethod = callsFor("verification-methods", "methodId");
const ofAuthentication = callsFor("authentication", "methodId");
const ofAgreement = callsFor("key-agreements", "keyAgreementId");
const ofService = callsFor("services", "serviceId");

/** By the name in the JSON member `action`. */
export const actions = {
  AddVerificationMethod: ofMethod(0, "add_verification_method", "verificationMethod", "POST"),
  UpdateVerificationMethod: ofMethod(1, "update_verification_method", "verificationMethod", "PUT"),
  RemoveVerificationMethod: ofMethod(2, "remove_verification_method", "id", "DELETE"),
  AddAuthentication: ofAuthentication(3, "add_authentication", "id", "POST"),
  RemoveAuthentication: ofAuthentication(4, "remove_authentication", "id", "DELETE"),
  AddKeyAgreement: ofAgreement(5, "add_key_agreement", "keyAgreement", "POST"),
  UpdateKeyAgreement: ofAgreement(6, "update_key_agreement", "keyAgreement", "PUT"),
  RemoveKeyAgreement: ofAgreement(7, "remove_key_agreement", "id", "DELETE"),
  AddService: ofService(8, "add_service", "service", "POST"),
  UpdateService: ofService(9, "update_service", "service", "PUT"),
  RemoveService: ofService(10, "remove_service", "id", "DELETE"),
  UpdateRootPubkey: {
    counter: "rootPubkey",
    discriminant: null,
    call: "update_root_pubkey",
    callIndex: 25,
    items: ["newRootPubkey"],
    isOnlyForRoot: true,
    deletesDid: false,
    route: { method: "PUT", path: "/dids/:did/root-pubkey" },
  },
  add_alias: {
    counter: "alias",
    discriminant: 0,
    call: "add_alias",
    callIndex: 11,
    items: ["alias"],
    ...ofAnySigner,
    route: { method: "POST", path: "/dids/:did/aliases" },
  },
  update_alias: {
    counter: "alias",
    discriminant: 1,
    call: "update_alias",
    callIndex: 12,
    items: ["oldAlias", "newAlias"],
    ...ofAnySigner,
    route: { method: "PATCH", path: "/dids/:did/aliases/:alias" },
  },
  remove_alias: {
    counter: "alias",
    discriminant: 2,
    call: "remove_alias",
    callIndex: 13,
    items: ["alias"],
    ...ofAnySigner,
    route: { method: "DELETE", path: "/dids/:did/aliases/:alias" },
  },
  deactivate_did: {
    ...control,
    discriminant: 4,
    deletesDid: false,
    route: { method: "POST", path: "/dids/:did/deactivate" },
  },
  delete_did: {
    ...control,
    discriminant: 7,
    deletesDid: true,
    route: { method: "DELETE", path: "/dids/:did" },
  },
} as const satisfies Readonly<Record<string, ActionRow>>;

export type ActionName = keyof typeof actions;
/** The actions of one counter. */
export type ActionOf<C extends CounterName> = {
  [A in ActionName]: (typeof actions)[A]["counter"] extends C ? A : never;
}[ActionName];

/** A component call: its name says what it does to which list of the document. */
export type DocumentAction = ActionOf<"document">;

export function isDocumentAction(action: ActionName): action is DocumentAction {
  return actionRows[action].counter === "document";
}

/** The table as rows of one type. */
export const actionRows: Readonly<Record<ActionName, ActionRow>> = actions;
export const actionNames = Object.keys(actions) as readonly ActionName[];

/** The actions of one structure, each at its discriminant. */
export function actionsOf<C extends CounterName>(counter: C): readonly (ActionOf<C> | undefined)[] {
  const found: ActionOf<C>[] = [];
  for (const name of actionNames) {
    const { counter: own, discriminant } = actionRows[name];
    if (own === counter && discriminant !== null) found[discriminant] = name as ActionOf<C>;
  }
  return found;
}

const counterOf = <const D extends string, const N extends string>(domain: D, name: N) =>
  ({
    /** In the text that version 3 signs. */
    domain,
    /** The member of `GET /dids/{did}/nonces` that shows the counter. */
    nonceDomain: `${domain}_nonce`,
    payloadError: `Invalid${name}Payload`,
    nonceError: `Invalid${name}Nonce`,
    expiredError: `${name}AuthorizationExpired`,
  }) as const;

/** The four counters, each with the errors of the ledger for it. */
export const counters = {
  document: counterOf("document", "Document"),
  alias: counterOf("alias", "Alias"),
  rootPubkey: counterOf("root_pubkey", "RootPubkey"),
  control: counterOf("control", "Control"),
} as const satisfies Readonly<Record<CounterName, object>>;

// ----------------------------------------------------------------------------------------- intents

/** What a key is asked to authorize, without when and by whom. */
export type IntentOf<A extends ActionName> = { readonly action: A; readonly did: Did } & Pick<
  Items,
  (typeof actions)[A]["items"][number]
>;
export type Intent = { [A in ActionName]: IntentOf<A> }[ActionName];

/** The items of an intent and nothing else. */
export function itemsOf(intent: Intent): Partial<Items> {
  const given = intent as Partial<Items>;
  return Object.fromEntries(actionRows[intent.action].items.map((name) => [name, given[name]]));
}
