/** Values of options: what is read, and to what; and the help of every command. */
import { describe, expect, test } from "bun:test";
import type { Command } from "commander";
import { parseBetween, parseUrl } from "../../../src/cli/command.ts";
import { createProgram } from "../../../src/cli/program.ts";

const refused = (parse: (text: string) => unknown, texts: readonly string[]): string[] =>
  texts.filter((text) => {
    try {
      parse(text);
      return false;
    } catch {
      return true;
    }
  });

const program = await createProgram(false);

describe("the help of every command", () => {
  const leaves = (command: Command): Command[] =>
    command.commands.length === 0 ? [command] : command.commands.flatMap(leaves);
  const pathOf = (command: Command): string =>
    command.parent === null ? command.name() : `${pathOf(command.parent)} ${command.name()}`;
  const helps = leaves(program).map((command) => {
    let text = "";
    command.configureOutput({ writeOut: (part) => (text += part) }).outputHelp();
    return { command, path: pathOf(command), text };
  });

  test("has no examples of commands that are not loaded", async () => {
    const serving = await createProgram(false, "serve");
    expect(serving.commands.map((command) => command.name())).not.toContain("send");
    let text = "";
    serving.configureOutput({ writeOut: (part) => (text += part) }).outputHelp();
    expect(text).not.toContain("Example:");
  });

  test("is the same where no other command is loaded", async () => {
    const names = program.commands.map((command) => command.name());
    const alone = await Promise.all(names.map((name) => createProgram(false, name)));
    const found = alone.map(({ commands }, n) => {
      const command = commands.find((one) => one.name() === names[n]);
      return { loads: commands.length, help: command?.helpInformation() };
    });
    expect(found.map(({ help }) => help)).toEqual(
      program.commands.map((command) => command.helpInformation()),
    );
    // With `licenses`, and those of the same file.
    const most = found.filter(({ loads }, n) => names[n] !== "licenses" && loads > 5);
    expect(most).toEqual([]);
  });

  test("ends with an example where people begin, which names flags that the command has, and all that it needs", () => {
    expect(helps.length).toBeGreaterThan(50);
    const begun: string[] = [];
    for (const { command, path, text } of helps) {
      const found = [...text.matchAll(/\nExample:\n {2}(.*)/g)].map(([, example]) => example ?? "");
      if (found.length === 0) continue;
      begun.push(path);
      expect([path, found]).toEqual([path, [expect.stringContaining(path)]]);
      const flags = found[0]?.match(/ --[a-z-]+/g)?.map((flag) => flag.trim()) ?? [];
      const known = command.options.map(({ long }) => long ?? "");
      expect([path, flags.filter((flag) => !known.includes(flag))]).toEqual([path, []]);
      const needed = command.options
        .filter(({ mandatory }) => mandatory)
        .map(({ long }) => long ?? "");
      expect([path, needed.filter((flag) => !flags.includes(flag))]).toEqual([path, []]);
    }
    const first = ["did create", "send", "receive", "device link", "init"];
    expect(begun).toEqual(first.map((command) => `waypost ${command}`));
  });

  test("lists the options of one command before those that commands share", () => {
    const sent = helps.find(({ path }) => path === "waypost send")?.text ?? "";
    const [own = "", shared = ""] = sent.split("\nShared options:\n");
    expect([own.includes("--to <target>"), own.includes("--relay <url>")]).toEqual([true, false]);
    expect(
      ["--as", "--url", "--keys", "--json", "--help"].filter((flag) => !shared.includes(flag)),
    ).toEqual([]);
  });

  test("begins with a verb, and shows no default that only a program can read", () => {
    for (const { command, text } of helps) {
      expect(command.description()).toMatch(/^(?!an? |the |what |why |how )[a-z]+,? /);
      expect(text).not.toMatch(/default: (""|\d{6,})\)$/m);
    }
  });
});

test("a number lies between its bounds", () => {
  const parse = parseBetween(2, 5);
  expect(["2", "5"].map(parse)).toEqual([2, 5]);
  const wrong = ["1", "6", "", "x", "2.5", "-3", "0x3"];
  expect(refused(parse, wrong)).toEqual(wrong);
});

test("the address of a node is one of HTTP", () => {
  expect(parseUrl("http://127.0.0.1:7400")).toBe("http://127.0.0.1:7400");
  const wrong = ["", "node", "ftp://node", "file:///etc/passwd"];
  expect(refused(parseUrl, wrong)).toEqual(wrong);
});
