/**
 * Makes the recording of the README, `docs/terminal.svg`: its commands in a real run, at the pace
 * at which they answered. `bun test/e2e/recording.ts`.
 */
import { join } from "node:path";
import { executable, freePort, run, scratchFolder, startNode } from "../support/executable.ts";

const root = join(import.meta.dir, "..", "..");
const readme = await Bun.file(join(root, "README.md")).text();
const commands = [
  ...(/```console\n([\s\S]*?)```/.exec(readme)?.[1] ?? "").matchAll(/^\$ (.*)$/gm),
].map(([, line = ""]) => line.replace("npx -y bun@1.4.5 run ", ""));
await executable();
const scratch = scratchFolder();
const port = freePort();
const url = `http://127.0.0.1:${port}`;
const node = await startNode(["dev", "--port", String(port)], { cwd: scratch.path, url });

type Line = { readonly text: string; readonly isTyped: boolean; readonly atMs: number };
const lines: Line[] = [];
let atMs = 400;
/** How long somebody types, and looks at an answer. */
const [letterMs, lookMs] = [28, 900];

try {
  for (const command of commands) {
    lines.push({ text: command, isTyped: true, atMs });
    atMs += command.length * letterMs + 200;
    const startMs = performance.now();
    const output = command.startsWith("waypost ")
      ? (await run(command.split(" ").slice(1), { cwd: scratch.path, env: { WAYPOST_URL: url } }))
          .stdout
      : await new Response(
          Bun.spawn(["sh", "-c", command], { cwd: scratch.path, stdout: "pipe" }).stdout,
        ).text();
    atMs += Math.min(performance.now() - startMs, 1_500);
    for (const text of output.trimEnd().split("\n").filter(Boolean))
      lines.push({ text: text.replaceAll(scratch.path, "…"), isTyped: false, atMs });
    atMs += lookMs;
  }
} finally {
  await node.kill("SIGKILL");
  scratch.remove();
}

const totalMs = atMs + 4_000;
const [width, lineHeight, top] = [940, 24, 62];
const letterWidth = 10;
const escaped = (text: string) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
const row = ({ text, isTyped, atMs: from }: Line, i: number) => {
  const prompt = isTyped ? '<tspan class="p">$ </tspan>' : "";
  const part = ((from / totalMs) * 100).toFixed(2);
  const steps = isTyped ? text.length : 1;
  const end = (((from + (isTyped ? text.length * letterMs : 1)) / totalMs) * 100).toFixed(2);
  const shown = isTyped ? (text.length + 2) * letterWidth : width;
  const rules = `@keyframes k${i}{0%,${part}%{width:0;animation-timing-function:steps(${steps})}${end}%,100%{width:${shown}px}}#c${i} rect{animation:k${i} ${totalMs.toFixed(0)}ms linear infinite}`;
  const y = top + i * lineHeight;
  return {
    rules,
    clip: `<clipPath id="c${i}"><rect x="24" y="${y - 18}" width="${width}" height="${lineHeight}"/></clipPath>`,
    drawn: `<text x="24" y="${y}" clip-path="url(#c${i})"${isTyped ? "" : ' class="o"'}>${prompt}${escaped(text)}</text>`,
  };
};
const rows = lines.map(row);
const height = top + lines.length * lineHeight;
const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" role="img" aria-label="Two people are made, one sends a file, the other receives it">
<style>text{font:15px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#e9eaea;white-space:pre}.p{fill:#62c9ac}.o{fill:#a0a7a9}${rows.map(({ rules }) => rules).join("")}@media (prefers-reduced-motion:reduce){clipPath rect{animation:none!important}}</style>
<defs>${rows.map(({ clip }) => clip).join("")}</defs>
<rect width="${width}" height="${height}" rx="12" fill="#15171a"/><circle cx="24" cy="22" r="6" fill="#3a4046"/><circle cx="44" cy="22" r="6" fill="#3a4046"/><circle cx="64" cy="22" r="6" fill="#3a4046"/>
${rows.map(({ drawn }) => drawn).join("\n")}
</svg>
`;
await Bun.write(join(root, "docs", "terminal.svg"), svg);
process.exit();
