/**
 * `waypost init` at a terminal: a wrong answer is asked for again, and nothing before it is lost;
 * Ctrl-C ends it in a line.
 */
import { expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { executable } from "../support/executable.ts";
import { scratchPaths } from "../support/scratch.ts";

const freshFolder = scratchPaths("init");

/**
 * Answers each question, or sends a key, once the text before it is on the screen. Returns the exit
 * code and the screen.
 */
async function atTerminal(
  folder: string,
  turns: readonly (readonly [question: string, typed: string])[],
) {
  const shown: Uint8Array[] = [];
  const screenNow = () => Buffer.concat(shown).toString();
  const terminal = new Bun.Terminal({ data: (_, bytes) => void shown.push(bytes) });
  const child = Bun.spawn([await executable(), "init", "--out", folder], { terminal });
  let from = 0;
  for (const [question, typed] of turns) {
    for (let tries = 0; !screenNow().includes(question, from); tries++) {
      if (tries > 2_000) throw new Error(`not shown: ${question}; but: ${screenNow()}`);
      await Bun.sleep(10);
    }
    from = screenNow().indexOf(question, from) + question.length;
    terminal.write(typed);
  }
  const code = await child.exited;
  terminal.close();
  return { code, screen: screenNow() };
}

test("a wrong answer is asked for again, and the answers before it count", async () => {
  const folder = freshFolder();
  const { code } = await atTerminal(folder, [
    ["URL by which", "waypost.example.org\r"],
    ["must be https://", ""],
    ["URL by which", "https://waypost.example.org\r"],
    ["Folder of the data", "\r"],
  ]);
  expect(code).toBe(0);
  const text = readFileSync(join(folder, "waypost.toml"), "utf8");
  expect(text).toContain('public_endpoints = ["https://waypost.example.org"]');
}, 60_000);

test("Ctrl-C ends it without a stack, and nothing is written", async () => {
  const folder = freshFolder();
  const { code, screen } = await atTerminal(folder, [
    ["URL by which", "\u0003"],
    ["nothing was written", ""],
  ]);
  expect([code, / at .*\(/.test(screen)]).toEqual([1, false]);
  expect(existsSync(folder)).toBe(false);
}, 60_000);
