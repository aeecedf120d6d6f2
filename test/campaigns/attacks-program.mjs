/**
 * The attacks of `attacks.ts` that need no more than the packed SDK, in any runtime, behind a
 * Directory and a Relay that lie as they are told. Prints a line of JSON for each: its name, what
 * came of it, and what had to come.
 */
import {
  ClientError,
  lockedKeys,
  memoryKeys,
  memoryStore,
  passphraseLock,
  restore,
  Waypost,
} from "@waypost/client";
import {
  activeDocument,
  bytesSource,
  change,
  planSend,
  senderOf,
  sendPlan,
} from "@waypost/client/parts";

const { WAYPOST_URL: url, WAYPOST_LIAR: liar, WAYPOST_CANARY: canary } = globalThis.process.env;
const waiting = { timeoutMs: 60_000, intervalMs: 20 };
const lie = async (what) => {
  await fetch(`${liar}/lie`, { method: "POST", body: JSON.stringify(what) });
};
const opened = [];
const keep = async (opening) => {
  const me = await opening;
  opened.push(me);
  return me;
};
const place = (more = {}) => ({
  url,
  keys: memoryKeys(),
  store: memoryStore(),
  waiting,
  rotateMs: false,
  ...more,
});
const behind = (more = {}) => place({ directoryUrl: liar, relayUrl: url, cacheUrl: url, ...more });
const open = (options = place()) => keep(Waypost.open(options));
const codeOf = (work) =>
  work.then(
    () => "done",
    (error) => (error instanceof ClientError ? error.code : String(error)),
  );
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
async function comes(holds, seconds = 20) {
  for (
    const endMs = performance.now() + seconds * 1_000;
    performance.now() < endMs;
    await pause(30)
  )
    if (await holds()) return true;
  return false;
}
async function meet(...all) {
  for (const me of all)
    for (const other of all)
      if (me !== other) await me.store.savePerson(other.did, { isKnown: true });
}
async function linked(first, where = place()) {
  const linking = await Waypost.link(where);
  await first.devices.acceptLink(linking.code, "second");
  return keep(linking.opened);
}
const textsAt = async (me, conversation) =>
  (await me.store.messages(conversation, { limit: 1_000 })).map(({ text }) => text);
const rootOf = ({ identity }) => ({ keyId: "root", seed: identity.rootSeed });
async function removeOther(me) {
  const other = (await me.devices.list()).find(({ isThis }) => !isThis);
  await me.devices.remove(other.did);
}
async function proofOf(did) {
  const answer = await fetch(`${url}/dids/${encodeURIComponent(did)}/proof`);
  return Buffer.from(await answer.arrayBuffer()).toString("base64");
}
/** Words under a name, or with relations, that the sender chooses. */
async function say(me, to, text, type) {
  const sender = await senderOf(me.client, me.identity);
  const source = bytesSource("", `text/plain;waypost=1;${type}`, new TextEncoder().encode(text));
  const plan = await planSend(me.client, to, source.file, { sender });
  await sendPlan(plan, source, { relay: me.client.relay, retries: 0 });
}
const withoutNames = { limits: { self_certifying_dids: false } };

/** Each answers what came of it; `held` is what has to come. */
const attacks = {
  "C1 a device is linked under a lie in /limits": async () => {
    await lie(withoutNames);
    return codeOf(Waypost.link(behind()));
  },
  "C1 the Directory names its own key for a device that is being linked": async () => {
    const phone = await open(behind());
    const bob = await open();
    await (await phone.send(bob.did, "private words")).delivered;
    const linking = await Waypost.link(place());
    await lie({ key: await keyOf(await open()) });
    void codeOf(phone.devices.acceptLink(linking.code, "laptop"));
    const code = await Promise.race([codeOf(linking.opened), pause(1_500).then(() => "nothing")]);
    await lie({});
    await linking.cancel();
    return code === "done" ? "linked honestly" : code;
  },
  "C2 a removed device reads on": async () => {
    const [phone, bob] = [await open(), await open()];
    await meet(phone, bob);
    const thief = await linked(phone);
    await removeOther(phone);
    await (await bob.send(phone.did, "after the removal")).delivered;
    await comes(async () => (await textsAt(phone, bob.did)).includes("after the removal"));
    await pause(500);
    return (await textsAt(thief, bob.did)).length === 0 ? "nothing read" : "read";
  },
  "C2 a thief's method and service outlive a removal": async () => {
    const phone = await open();
    const thief = await linked(phone);
    const { did } = phone;
    const id = `${did}#evil`;
    const before = await activeDocument(phone.client, did);
    const { publicKeyMultibase } = before.verificationMethod[0];
    const method = { id, type: "Multikey", controller: did, publicKeyMultibase };
    const service = {
      ...{ id: `${did}#evil-cache`, type: "SvcCacheService", authorization: null, priority: null },
      serviceEndpoint: ["https://evil.example"],
    };
    const options = { signer: rootOf(thief), waiting };
    const added = { action: "AddVerificationMethod", did, verificationMethod: method };
    await change(thief.client, added, options);
    await change(thief.client, { action: "AddService", did, service }, options);
    await removeOther(phone);
    const after = JSON.stringify(await activeDocument(phone.client, did));
    return after.includes("evil") ? "in the document" : "gone";
  },
  "C2 who had copied the keys signs after new ones": async () => {
    const phone = await open();
    const signer = rootOf({ identity: { rootSeed: phone.identity.rootSeed.slice() } });
    await phone.devices.replaceKeys();
    const id = `${phone.did}#evil`;
    const intent = { action: "AddAuthentication", did: phone.did, id };
    const code = await codeOf(change(phone.client, intent, { signer, waiting }));
    return code === "done" ? "signed" : "refused";
  },
  "H1 an identity is made under a lie in /limits": async () => {
    await lie(withoutNames);
    // Who asks for a random DID has what a Directory says.
    return codeOf(open(behind(canary === "1" ? { allowRandom: true } : {})));
  },
  "H1 an identity is made where the ledger has no name": async () => {
    await lie({ limits: { genesis_hash: null } });
    return codeOf(open(behind()));
  },
  "H4 the Directory names the guardians": async () => {
    const me = await open();
    const alias = `guardian-${Date.now()}`;
    await open(place({ alias }));
    const to = { to: alias, fingerprint: "" };
    return codeOf(me.appointGuardians([to, to, to]));
  },
  "H5 a new device believes what the old one refused": async () => {
    const [phone, friend] = [await open(), await open()];
    await meet(phone, friend);
    const old = await proofOf(friend.did);
    await friend.devices.replaceKeys();
    await (await phone.send(friend.did, "to your new keys")).delivered;
    const laptop = await linked(phone, behind());
    await comes(async () => (await textsAt(laptop, friend.did)).length > 0);
    await lie({ proofs: { [friend.did]: old } });
    const sent = await laptop.send(friend.did, "from the laptop", { retries: 0 });
    const code = await Promise.race([codeOf(sent.delivered), pause(2_500).then(() => "waits")]);
    await lie({});
    return code === "done" ? "sealed to the old keys" : "refused";
  },
  "M1 the Relay dates a signature": async () => {
    const keys = memoryKeys();
    await open(place({ keys }));
    const [alice, bob] = [await open(place({ keys, relayUrl: liar })), await open()];
    await meet(alice, bob);
    await lie({ dateMs: Date.now() + 400 * 86_400_000 });
    const sent = await alice.send(bob.did, "dated", { receipt: false });
    await Promise.race([codeOf(sent.delivered), pause(2_000)]);
    await lie({});
    await comes(async () => (await textsAt(bob, alice.did)).length > 0, 5);
    const [message] = await bob.store.messages(alice.did);
    const aheadMs = message === undefined ? 0 : message.sentAt.getTime() - Date.now();
    return aheadMs > 3_700_000 ? "dated by the Relay" : "dated within an hour";
  },
  "M4 stolen keys of an only device can't be replaced": async () => {
    const me = await open();
    const before = Buffer.from(me.identity.rootSeed).toString("hex");
    await me.devices.replaceKeys();
    const after = Buffer.from(me.identity.rootSeed).toString("hex");
    return before === after ? "the same" : "replaced";
  },
  "M7 locked keys are replaced by plain ones": async () => {
    const inner = memoryKeys();
    const keys = lockedKeys(inner);
    await keys.setUp(passphraseLock("a long passphrase"));
    await (await open(place({ keys }))).close();
    const others = memoryKeys();
    await (await open(place({ keys: others }))).close();
    await inner.save("default", await others.load("default"));
    const locked = lockedKeys(inner);
    return codeOf(
      locked.unlock(passphraseLock("a long passphrase")).then(() => open(place({ keys: locked }))),
    );
  },
  "a quotation names a message of another conversation": async () => {
    const [alice, bob, mallory] = [await open(), await open(), await open()];
    await meet(alice, bob, mallory);
    const { id } = await bob.send(alice.did, "private words");
    await comes(async () => (await textsAt(alice, bob.did)).length > 0);
    await say(mallory, alice.did, "look", `reply-to=${id};reply-from=${bob.did}`);
    await comes(async () => (await textsAt(alice, mallory.did)).length > 0);
    const [look] = await alice.store.messages(mallory.did);
    return (await alice.store.answered(look)) === null ? "not quoted" : "quoted";
  },
  "who sees a code first gives another identity": async () => {
    const phone = await open();
    const laptop = await linked(phone);
    const [one, two] = [await phone.ownFingerprint(), await laptop.ownFingerprint()];
    return one === two && one.length > 10 ? "both show whose it is" : "nothing to compare";
  },
  "a backup from before new keys brings the thief back": async () => {
    const me = await open();
    const file = await new Response(await me.backup({ passphrase: "p" })).arrayBuffer();
    await me.devices.replaceKeys();
    const options = { ...place(), passphrase: "p", areOthersLost: true, directoryUrl: url };
    const { isHistoryOnly } = await restore(new Response(file).body, options);
    return isHistoryOnly ? "history alone" : "the identity";
  },
};

async function keyOf({ did }) {
  const answer = await fetch(`${url}/delivery-resolution/${encodeURIComponent(did)}`);
  const { recipient_public_key_multibase, recipient_key_id } = await answer.json();
  return { recipient_public_key_multibase, recipient_key_id };
}

const held = {
  "C1 a device is linked under a lie in /limits": "proof_missing",
  "C1 the Directory names its own key for a device that is being linked": [
    "nothing",
    "linked honestly",
    "proof_invalid",
  ],
  "C2 a removed device reads on": "nothing read",
  "C2 a thief's method and service outlive a removal": "gone",
  "C2 who had copied the keys signs after new ones": "refused",
  "H1 an identity is made under a lie in /limits": "proof_missing",
  "H1 an identity is made where the ledger has no name": "proof_missing",
  "H4 the Directory names the guardians": "guardian_unknown",
  "H5 a new device believes what the old one refused": "refused",
  "M1 the Relay dates a signature": "dated within an hour",
  "M4 stolen keys of an only device can't be replaced": "replaced",
  "M7 locked keys are replaced by plain ones": "keys_unreadable",
  "a quotation names a message of another conversation": "not quoted",
  "who sees a code first gives another identity": "both show whose it is",
  "a backup from before new keys brings the thief back": "history alone",
};

for (const [name, play] of Object.entries(attacks)) {
  const came = await play().catch((error) => `failed: ${error.stack ?? error}`);
  await lie({});
  const isHeld = [held[name]].flat().includes(came);
  console.log(JSON.stringify({ name, came, isHeld }));
}
for (const me of opened) await me.close().catch(() => undefined);
globalThis.process.exit(0);
