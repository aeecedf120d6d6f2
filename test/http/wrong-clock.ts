/**
 * A program of the SDK on a machine whose clock is wrong:
 * `wrong-clock.ts <url> <folder of keys> <minutes>`. Its clock is changed before the SDK is loaded.
 * Receives one message live, answers it, and tries what a wrong clock makes unsafe.
 */
const [url = "", folder = "", minutes = ""] = process.argv.slice(2);
const now = Date.now;
Date.now = () => now() + Number(minutes) * 60_000;

const { fileKeys } = await import("../../src/cli/files/files.ts");
const { ClientError } = await import("../../src/client/base/failure.ts");
const { memoryKeys } = await import("../../src/client/keys/key-stores.ts");
const { Waypost } = await import("../../src/client/waypost.ts");

const me = await Waypost.open({ url, keys: fileKeys(folder), rotateMs: false });
const seen: string[] = [];
me.on((event) => {
  if (event.type === "connected") console.log("connected");
  if (event.type === "failed") seen.push(event.error.message);
  if (event.type === "disconnected" && event.error !== null) seen.push(event.error.code);
});
for await (const message of me.messages()) {
  await message.reply(`got ${message.text}`);
  await message.ack();
  break;
}
const fresh = await Waypost.open({ url, keys: memoryKeys() }).catch((error: unknown) => error);
const refused = fresh instanceof ClientError ? [fresh.code, fresh.message] : ["opened"];
console.log(JSON.stringify({ seen, refused }));

export {};
