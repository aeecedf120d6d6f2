/**
 * The keys of a local store: which rows there are, and where. Names in keys are keyed hashes
 * (`Table.name`), numbers have leading zeros, so that keys are in the order of what they number. No
 * other file knows a prefix.
 */
import { decodeHex } from "../../core/codec/bytes.ts";
import { parseUuid } from "../../core/codec/did.ts";
import { uuidOf } from "../keys/crypto.ts";

/** The prefix of each kind of row. */
export const rowsOf = {
  people: "p/",
  profiles: "b/",
  groups: "g/",
  /** Where the conversation of a group is that was handed over, by each id that it has had. */
  groupNames: "G/",
  conversations: "c/",
  /** By conversation and time. */
  messages: "m/",
  /** By conversation, message and person. */
  reactions: "r/",
  /** Places of messages by their ids. */
  ids: "i/",
  /** Places of messages with files, by age. */
  files: "a/",
  /** What was chosen in a conversation, and words that were not sent. */
  chosen: "w/",
  /** What `messages` has not handed over. */
  toHandOver: "l/",
  /** Envelopes that were received, until when they may come again. */
  seen: "s/",
  /** Copies on their way out, by lane. */
  outbox: "o/",
  /** What went last to a recipient, by lane. */
  laneEnds: "E/",
  /** Copies that failed, outside the lanes. */
  aside: "u/",
  pieces: "f/",
  /** Marks of files whose rows are not written so far. */
  unfinished: "t/",
  /** Messages that a group's state may show elsewhere. */
  misfiled: "J/",
  /** Files that arrive in runs of chunks. */
  arriving: "e/",
  removals: "q/",
  devices: "d/",
  removedDevices: "x/",
  /** What a device is still to get of all that there is. */
  histories: "h/",
  /** Keys of rows that changed, by the number of their last change. */
  log: "y/",
  /** Passes that people gave. */
  passes: "j/",
  /** The number of a row in the log. */
  logged: "n/",
  /** Proofs of others' keys, and heads of logs. */
  evidence: "z/",
} as const;

/** In the log: what became of a message, without its content; and the keys of the identity. */
const deliveries = "v/";
export const keysKey = "k";
/** What the own Caches were told of passes. */
export const passesKey = "z";
/** The keyring of this device, which is in no log. */
export const ringKey = "e";
/** What a new device still lacks before it files anything; in a history, the end of that. */
export const factsKey = "j";

/** Hashes a name; the same text has the same hash in one store. */
type KeyNames = { readonly name: (text: string) => string };

/** Numbers in keys, in their order. */
export const digits = (value: number): string =>
  String(Math.max(0, Math.floor(value))).padStart(16, "0");

/** The end of the range of all keys that begin with a prefix. */
export const endOf = (prefix: string): string => `${prefix}~`;

/** The first key behind another one. */
export const after = (key: string): string => `${key}!`;

/** The last part of a key. */
export const numberInKey = (key: string): number => Number(key.slice(key.lastIndexOf("/") + 1));

// ----------------------------------------------------------------------------- people and messages

export const keyOfPerson = (names: KeyNames, did: string): string =>
  `${rowsOf.people}${names.name(did)}`;
export const keyOfProfile = (names: KeyNames, did: string): string =>
  `${rowsOf.profiles}${names.name(did)}`;
export const keyOfPass = (names: KeyNames, did: string): string =>
  `${rowsOf.passes}${names.name(did)}`;
export const keyOfEvidence = (names: KeyNames, of: string): string =>
  `${rowsOf.evidence}${names.name(of)}`;
export const keyOfGroup = (names: KeyNames, id: string): string =>
  `${rowsOf.groups}${names.name(id)}`;
export const nameOfGroup = (names: KeyNames, id: string): string =>
  `${rowsOf.groupNames}${names.name(id)}`;
export const misfiledOf = (names: KeyNames, group: string): string =>
  `${rowsOf.misfiled}${names.name(group)}/`;
export const misfiledKey = (names: KeyNames, group: string, message: string): string =>
  `${misfiledOf(names, group)}${names.name(message)}`;
export const keyOfConversation = (names: KeyNames, id: string): string =>
  `${rowsOf.conversations}${names.name(id)}`;
export const keyOfChosen = (names: KeyNames, id: string): string =>
  `${rowsOf.chosen}${names.name(id)}`;
export const keyOfId = (names: KeyNames, id: string): string =>
  `${rowsOf.ids}${names.name(id.toLowerCase())}`;

/** Of an author whose message has the same name as an earlier one of somebody else. */
export const keyOfAuthored = (names: KeyNames, author: string, id: string): string =>
  `${rowsOf.ids}${names.name(`${author} ${id.toLowerCase()}`)}`;

/** The id of a message's copy for one recipient, which no other recipient can compute. */
export const copyIdOf = (names: KeyNames, id: string, to: string): string =>
  uuidOf(decodeHex(names.name(`copy ${id.toLowerCase()} ${to}`)) ?? new Uint8Array(16));

export const messagesOf = (names: KeyNames, conversation: string): string =>
  `${rowsOf.messages}${names.name(conversation)}/`;

/** From a time on. */
export const messagesFrom = (names: KeyNames, conversation: string, atMs: number): string =>
  `${messagesOf(names, conversation)}${digits(atMs)}`;

type MessagePlace = {
  readonly conversation: string;
  readonly atMs: number;
  /** By its sender. */
  readonly sentMs: number;
  readonly id: string;
  /** Distinguishes different messages under one id. */
  readonly digest: string;
};

/**
 * By its place in time; at one place what was sent then, and behind it what stands
 * before its time; then by id.
 */
export function messageKey(names: KeyNames, message: MessagePlace): string {
  const { conversation, atMs, sentMs, id, digest } = message;
  const place = parseUuid(id) ?? names.name(id);
  const version = names.name(digest).slice(0, 8);
  const ahead = sentMs > atMs ? `:${digits(sentMs)}` : "";
  return `${messagesFrom(names, conversation, atMs)}${ahead}/${place}/${version}`;
}

export const reactionsOf = (names: KeyNames, conversation: string, target: string): string =>
  `${rowsOf.reactions}${names.name(conversation)}/${names.name(target.toLowerCase())}/`;

export const handOverKey = (number: number): string => `${rowsOf.toHandOver}${digits(number)}`;

/** Of an envelope, by its id or its digest. */
export const seenKey = (names: KeyNames, text: string): string =>
  `${rowsOf.seen}${names.name(text.toLowerCase())}`;

/** Under the same name as what was seen. */
export const removalKey = (seen: string): string =>
  `${rowsOf.removals}${seen.slice(rowsOf.seen.length)}`;

/**
 * Messages that last for a time: those whose life begins later, and those that end
 * at a time of this store.
 */
export const lastingKeys = {
  all: "lasting/",
  waiting: "lasting/waiting/",
  begun: "lasting/begun/",
  passed: "passed",
} as const;
export const lastingKey = (names: KeyNames, message: string): string =>
  `${lastingKeys.waiting}${names.name(message)}`;
export const begunKey = (names: KeyNames, endMs: number, message: string): string =>
  `${lastingKeys.begun}${digits(endMs)}/${names.name(message)}`;
/** When it ends. */
export const numberOfLife = (key: string): number =>
  Number(key.slice(lastingKeys.begun.length).split("/")[0]);

// ------------------------------------------------------------------------------------------- files

export const keyOfFile = ({ at, id }: { readonly at: number; readonly id: string }): string =>
  `${rowsOf.files}${digits(at)}/${id}`;
export const pieceKey = (id: string, number: number): string =>
  `${rowsOf.pieces}${id}/${digits(number)}`;
export const unfinishedKey = (id: string): string => `${rowsOf.unfinished}${id}`;
export const arrivingKey = (names: KeyNames, text: string): string =>
  `${rowsOf.arriving}${names.name(text)}`;
export const unfinishedIdOf = (key: string): string => key.slice(rowsOf.unfinished.length);

// -------------------------------------------------------------------------------------- the outbox

/** Of one recipient: files go in parallel with what is short. */
export const laneOf = (names: KeyNames, did: string, is: "short" | "file"): string =>
  `${rowsOf.outbox}${names.name(did)}${is === "file" ? "+" : ""}/`;
export const laneEndOf = (lane: string): string =>
  `${rowsOf.laneEnds}${lane.slice(rowsOf.outbox.length, -1)}`;
export const isFileLane = (lane: string): boolean => lane.endsWith("+/");
export const laneIn = (place: string): string => place.slice(0, place.lastIndexOf("/") + 1);
export const asideOf = (place: string): string =>
  `${rowsOf.aside}${place.slice(rowsOf.outbox.length)}`;
export const isAside = (place: string): boolean => place.startsWith(rowsOf.aside);

// ------------------------------------------------------------------------------------- own devices

export const peerKey = (names: KeyNames, did: string): string =>
  `${rowsOf.devices}${names.name(did)}`;
/** Of a device that was removed: its DID, for good. */
export const removedKey = (names: KeyNames, did: string): string =>
  `${rowsOf.removedDevices}${names.name(did)}`;
export const historyOf = (names: KeyNames, did: string): string =>
  `${rowsOf.histories}${names.name(did)}/`;
export const logKey = (number: number): string => `${rowsOf.log}${digits(number)}`;
export const placeInLog = (key: string): string => `${rowsOf.logged}${key}`;

/** In the log: what became of a message. */
export const deliveryKey = (message: string): string =>
  `${deliveries}${message.slice(rowsOf.messages.length)}`;
/** Of the message of such a key. */
export const messageOfDelivery = (key: string): string =>
  `${rowsOf.messages}${key.slice(deliveries.length)}`;

/** What a key of the log is about: the letter of its kind. */
export const rowKind = (key: string): string => key.slice(0, 1);

/** Rows that leave the log when they are removed. */
export const leavesLog = (key: string): boolean =>
  [rowsOf.messages, rowsOf.removals, rowsOf.reactions, deliveries].some((prefix) =>
    key.startsWith(prefix),
  );

/** What a new device gets, in this order: first what decides where a message belongs. */
export const factKinds: readonly string[] = [
  rowsOf.removals,
  rowsOf.people,
  rowsOf.evidence,
  rowsOf.profiles,
  rowsOf.passes,
  rowsOf.groups,
];
export const messageKinds: readonly string[] = [
  rowsOf.messages,
  rowsOf.reactions,
  rowsOf.conversations,
  rowsOf.chosen,
];
