/**
 * The text forms of bytes without the runtime's own methods, as in Node and older browsers: this process
 * removes them before the module is loaded, and compares with what they answered.
 */
import { expect, test } from "bun:test";
import { join } from "node:path";

const program = `
const texts = ["", "AA==", "AAA=", "AAAA", "AB==", "A A=", "AA", "AA=A", "-_8=", "+/8=", "!!!!", "AAAA\\n"];
const native = await import(${JSON.stringify(join(import.meta.dir, "../../src/core/codec/bytes.ts"))});
const every = Uint8Array.from({ length: 70_000 }, (_, i) => (i * 7) & 255);
const answers = (codec) => [
  codec.encodeHex(every), codec.encodeBase64(every), codec.decodeHex("0xZZ"), codec.decodeHex("0A0b")?.join(),
  codec.decodeBase64(codec.encodeBase64(every))?.join(), ...texts.map((text) => codec.decodeBase64(text)?.join() ?? null),
  ...texts.map((text) => codec.decodePayloadText(text)?.join() ?? null),
];
const before = answers(native);
delete Uint8Array.prototype.toHex; delete Uint8Array.fromBase64;
const portable = await import(${JSON.stringify(join(import.meta.dir, "../../src/core/codec/bytes.ts?portable"))});
const after = answers(portable);
console.log(portable !== native, JSON.stringify(before) === JSON.stringify(after));
before.forEach((one, i) => one === after[i] || console.log(i, String(one).slice(0, 60), String(after[i]).slice(0, 60)));
`;

test("JavaScript answers what the runtime's own methods answer", async () => {
  const child = Bun.spawn([process.execPath, "-e", program], { stdout: "pipe", stderr: "pipe" });
  const [stdout, stderr] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()]);
  expect([stdout.trim(), stderr]).toEqual(["true true", ""]);
});
