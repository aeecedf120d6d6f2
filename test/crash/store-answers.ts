/**
 * What LMDB stores answer, one line for each path: `store-answers.ts ask|verify path...`. Damage
 * may end it by a signal.
 */
import { verifyStore } from "../../src/plugins/lmdb/maintenance.ts";
import { type Store, StoreError } from "../../src/storage/contract.ts";
import { did, ids, listAll, pageOf } from "../conformance/samples.ts";
import { openStore } from "./store-rig.ts";

const textOf = (error: StoreError) => error.code;

export async function answersOf(store: Store): Promise<string> {
  const { mailbox, replay, receipts } = store.capabilities;
  const answers: unknown[] = [await mailbox!.stats(2_000)];
  for (let r = 0; r < 7; r++) answers.push(ids(await listAll(mailbox!, did(r), pageOf())));
  for (let n = 0; n < 300; n += 11) {
    const value = await receipts!.get(`key-${n}`, 2_000).catch(textOf);
    answers.push(value instanceof Uint8Array ? Bun.hash(value).toString() : value);
    answers.push(await replay!.claim(`tag ${n}`, 5_000, 2_000).catch(textOf));
  }
  return JSON.stringify(answers);
}

async function ask(path: string): Promise<string> {
  const store = await openStore(path);
  const answers = await answersOf(store);
  await store.close();
  return `answers ${Bun.hash(answers)}`;
}

async function verify(path: string): Promise<string> {
  return (await verifyStore(path)).problems[0]?.replaceAll("\n", " ") ?? "sound";
}

if (import.meta.main) {
  const [work, ...paths] = process.argv.slice(2);
  for (const path of paths) {
    const refused = (error: unknown) =>
      `refused ${error instanceof StoreError ? error.code : String(error)}`;
    console.log(await (work === "ask" ? ask(path) : verify(path)).catch(refused));
  }
}
