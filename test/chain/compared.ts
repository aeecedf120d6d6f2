/**
 * What the host of these tests makes of a call, held against what the library's interpreter makes
 * of it.
 */
import { type JsCallback, run_task } from "@acala-network/chopsticks-executor";
import { compactFromU8a } from "@polkadot/util";
import type { Call, Called } from "./host.ts";

type Outcome = { readonly Call: Called } | { readonly Error: string };

/** Throws unless both answer the same and change the same, or both fail. */
export async function compareWithLibrary(call: Call, storage: JsCallback, ours: Called | Error) {
  const { code, method, args, isMocked } = call;
  const task = {
    ...{ id: 0, wasm: code, calls: [[method, args]], storageProofSize: 0, runtimeLogLevel: 0 },
    ...{ mockSignatureHost: isMocked ? 2 : 0, allowUnresolvedImports: false },
  };
  const outcome: Outcome = await run_task(task, storage);
  const own = ours instanceof Error ? "a failure" : facts(method, ours);
  const library = "Call" in outcome ? facts(method, outcome.Call) : "a failure";
  if (own === library) return;
  const both = `here: ${own} ${ours instanceof Error ? ours : ""}\nin the library: ${library}`;
  throw new Error(`${method} ${args} has another outcome in the library\n${both}`);
}

function facts(method: string, { result, storageDiff }: Called): string {
  const changes = [...storageDiff].sort(([one], [other]) => (one < other ? -1 : 1));
  return JSON.stringify([method.endsWith("finalize_block") ? rootless(result) : result, changes]);
}

/** A header without the root of the state, which the library puts into no block. */
function rootless(header: string): string {
  const bytes = Uint8Array.fromHex(header.slice(2));
  const [numberLength] = compactFromU8a(bytes.subarray(32));
  bytes.fill(0, 32 + numberLength, 64 + numberLength);
  return bytes.toHex();
}
