/** The lies of docs/trust.md, told to the SDK by a proxy in front of honest nodes: each ends with its own code. */
import { afterAll, beforeAll, test } from "bun:test";
import { ClientError } from "../../src/client/http.ts";
import { type LieStage, openHonest, startLieStage, type Victim } from "../support/lie-stage.ts";
import { lies, tell } from "../support/lies.ts";
import type { LyingDirectory } from "../support/lying-directory.ts";

type Stand = { readonly proxy: LyingDirectory; readonly victim: Victim };

let stage: LieStage;
let [plain, witnessed]: (Stand | null)[] = [null, null];
beforeAll(async () => {
  stage = await startLieStage("source");
  [plain, witnessed] = await Promise.all([standOf({}), standOf({ policy: stage.policy })]);
}, 60_000);
afterAll(() => stage.stop());

const orCode = (work: Promise<string>): Promise<string> =>
  work.catch((error: unknown) => (error instanceof ClientError ? error.code : String(error)));

async function standOf(options: { readonly policy?: string }): Promise<Stand> {
  const proxy = stage.proxied();
  const me = await openHonest(stage.made.nodes.url, { directoryUrl: proxy.url, ...options });
  const victim: Victim = {
    did: me.did,
    send: (to, trust) =>
      orCode(me.send(to, "hello", trust === undefined ? {} : { trust }).then((sent) => sent.recipient.trust)),
    look: (did) => orCode(me.fingerprint(did).then(() => "proven")),
    receive: async () => {
      for await (const message of me.messages()) {
        await message.ack();
        return message.distrusted ?? message.trust ?? "unverified";
      }
      return "nothing";
    },
  };
  return { proxy, victim };
}

test.each(lies.map((row) => [row.name, row.code, row] as const))(
  "%s: %s",
  async (_name, _code, row) => {
    await tell(row, { stage, ...((row.policy === undefined ? plain : witnessed) as Stand) });
  },
  120_000,
);
