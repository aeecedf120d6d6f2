/**
 * Two providers, each with a ledger of its own: Alice is at home in the north, Bob in the south.
 * They write to each other, the south dies and comes back.
 * `WAYPOST=dist/waypost bun examples/providers/exchange.ts` runs it; data lie in a new folder.
 */
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { memoryKeys, memoryStore, Waypost } from "waypost/client";

const [program = "waypost", ...before] = (process.env["WAYPOST"] ?? "waypost").split(" ");
const configs = resolve(process.argv[2] ?? import.meta.dir);
const folder = mkdtempSync(join(tmpdir(), "providers-"));

async function start(name: string) {
  const config = join(configs, `${name}.toml`);
  const home =
    /^public_endpoint = "http:\/\/(.+)"$/m.exec(await Bun.file(config).text())?.[1] ?? "";
  const node = Bun.spawn([program, ...before, "serve", "--config", config], {
    cwd: folder,
    stdout: "ignore",
  });
  const isReady = () =>
    fetch(`http://${home}/readyz`).then(
      ({ ok }) => ok,
      () => false,
    );
  while (!(await isReady())) await Bun.sleep(100);
  const kill = async () => {
    node.kill("SIGKILL");
    await node.exited;
  };
  return { home, kill };
}

async function open(name: string, home: string) {
  const keeping = { keys: memoryKeys(), store: memoryStore(), receipts: true };
  const me = await Waypost.open({ url: `http://${home}`, alias: name, ...keeping });
  const receipt = new Promise<void>((resolve) => {
    me.on((event) => {
      if (event.type !== "receipt") return;
      console.log(`${name}: a receipt`);
      resolve();
    });
  });
  const messages = me.messages();
  const next = async () => {
    const { value } = await messages.next();
    if (value === undefined) throw new Error("no more messages");
    await value.ack();
    console.log(
      `${name}: ${value.text} (${value.verified ? "verified" : "not verified"}, ${value.trust})`,
    );
    return value;
  };
  return { me, next, receipt };
}

const north = await start("north");
let south = await start("south");
const [alice, bob] = [await open("alice", north.home), await open("bob", south.home)];
// Strangers learn of no receipt.
await bob.me.store.savePerson(alice.me.did, { isKnown: true });

await alice.me.send(`bob@${south.home}`, "hello from the north");
await (await bob.next()).reply("hello from the south");
await alice.next();
await Promise.all([alice.receipt, bob.receipt]);

await south.kill();
await alice.me.send(bob.me.did, "are you back?");
south = await start("south");
await (await bob.next()).reply("here I am");
await alice.next();

await Promise.all([alice.me.close(), bob.me.close()]);
await Promise.all([north.kill(), south.kill()]);
process.exit(0);
