/** A bot that answers with what it gets. Its keys lie in ./bot-keys: `bun examples/echo-bot.ts`. */
import { Waypost } from "waypost/client";
import { fileKeys } from "waypost/client/node";

const { WAYPOST_URL: url = "http://127.0.0.1:7400", BOT_KEYS = "bot-keys" } = process.env;
const bot = await Waypost.open({ url, keys: fileKeys(BOT_KEYS), name: "bot" });
bot.on((event) => {
  if (event.type === "unreadable") void event.discard();
});
console.log(bot.did);
for await (const message of bot.messages()) {
  if (message.verified) await message.reply(message.text ?? message.file);
  await message.ack();
}
