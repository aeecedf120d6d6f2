/**
 * A user of the packed SDK: each line on standard input names a method of `Victim` in
 * `support/lie-stage.ts` and its arguments as JSON, each line on standard output has what it found.
 */
import { createInterface } from "node:readline";
import { ClientError, memoryKeys, Waypost } from "@waypost/client";

const { WAYPOST_URL: url, WAYPOST_DIRECTORY_URL: directoryUrl, POLICY: policy } = process.env;
const me = await Waypost.open({
  url,
  directoryUrl,
  policy: policy || undefined,
  keys: memoryKeys(),
  rotateMs: false,
});

const methods = {
  send: async (to, trust) => (await me.send(to, "hello", trust ? { trust } : {})).recipient.trust,
  look: async (did) => (await me.fingerprint(did)).distrusted ?? "proven",
  receive: async () => {
    for await (const message of me.messages()) {
      await message.ack();
      return message.distrusted ?? message.trust ?? "unverified";
    }
  },
};

console.log(JSON.stringify(me.did));
for await (const line of createInterface({ input: process.stdin })) {
  const [name, ...args] = JSON.parse(line);
  const answer = await methods[name](...args).catch((error) =>
    error instanceof ClientError ? error.code : `${error}`,
  );
  console.log(JSON.stringify(answer));
}
process.exit(0);
