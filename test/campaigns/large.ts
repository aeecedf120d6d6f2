/**
 * A large file between two people who know each other, each with a store in a file and in a process
 * of their own, over a node whose mailboxes have their default size; and a text behind it. The file
 * must be whole at the receiver, the text must not wait for it, and nothing may be left in the
 * mailbox.
 *
 * `bun test/campaigns/large.ts --mb 150` prints times and the most memory of the three processes,
 * and ends with 1 on a finding.
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { scratchFolder } from "../support/executable.ts";
import { Findings, openStage } from "./stage.ts";

const { values } = parseArgs({ options: { mb: { type: "string", default: "150" } } });
const sizeBytes = Number(values.mb) * 1_000_000;
const findings = new Findings();
const scratch = scratchFolder();
const stage = await openStage();

/** Of a program: what it says, a line each, by its first word. */
type Program = {
  readonly said: (word: string) => Promise<string>;
  readonly say: (line: string) => void;
  readonly peakMib: () => Promise<number>;
  readonly end: () => Promise<unknown>;
};

function begin(role: "sender" | "receiver"): Program {
  const folder = join(scratch.path, role);
  mkdirSync(folder);
  const program = join(import.meta.dir, "large-program.ts");
  const child = Bun.spawn([process.execPath, program, role, stage.url, folder, String(sizeBytes)], {
    stdin: "pipe",
    stdout: "pipe",
    stderr: "inherit",
  });
  const lines: string[] = [];
  let isOver = false;
  const read = async () => {
    let rest = "";
    const decoder = new TextDecoder();
    for await (const chunk of child.stdout) {
      const all = (rest + decoder.decode(chunk, { stream: true })).split("\n");
      rest = all.pop() ?? "";
      lines.push(...all);
    }
    isOver = true;
  };
  void read();
  return {
    said: async (word) => {
      for (;;) {
        const line = lines.find((one) => one.startsWith(`${word} `));
        if (line !== undefined) return line.slice(word.length + 1);
        if (isOver) throw new Error(`the ${role} ended without ${word}`);
        await Bun.sleep(5);
      }
    },
    say: (line) => {
      child.stdin.write(`${line}\n`);
      void child.stdin.flush();
    },
    peakMib: () => peakOf(child.pid),
    end: () => {
      child.kill("SIGKILL");
      return child.exited;
    },
  };
}

/** The most that was resident since the process began, in MiB. Linux only. */
async function peakOf(pid: number): Promise<number> {
  const status = await Bun.file(`/proc/${pid}/status`).text();
  return Math.round(Number(/VmHWM:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1_024);
}

const [sender, receiver] = [begin("sender"), begin("receiver")];
const [from, to] = [await sender.said("did"), await receiver.said("did")];
sender.say(to);
receiver.say(from);
await Promise.all([sender.said("met"), receiver.said("met")]);
const sentDigest = await sender.said("digest");
sender.say("send");
const began = Number(await sender.said("began"));
const stored = Number(await sender.said("stored")) / 1_000;
const since = async (word: string) => (Number(await receiver.said(word)) - began) / 1_000;
const [text, whole] = [await since("text"), await since("whole")];
const digest = await receiver.said("digest");
const left = await receiver.said("left");
const peaks = await Promise.all([sender.peakMib(), receiver.peakMib(), peakOf(stage.node().pid)]);
findings.expect(digest === sentDigest, `the file came as ${digest} instead of ${sentDigest}`);
findings.expect(
  text < whole || text - stored < 1,
  `the text came ${text} s after the send, the file ${whole} s`,
);
findings.expect(left === "0", `${left} messages are left in the mailbox`);
console.log(
  `${values.mb} MB: in the store after ${stored.toFixed(1)} s, whole after ${whole.toFixed(1)} s; ` +
    `the text behind it after ${text.toFixed(2)} s; at most ${peaks[0]} MiB at the sender, ` +
    `${peaks[1]} at the receiver, ${peaks[2]} at the node; ${left} left in the mailbox`,
);
await Promise.all([sender.end(), receiver.end(), stage.close()]);
scratch.remove();
findings.exit();
