/** How a command ends: exit codes and texts by the kind of the failure. */
import { expect, spyOn, test } from "bun:test";
import { CommandFailure } from "../../../src/app/failure.ts";
import { asksForJson, createReport, endingOf } from "../../../src/cli/command.ts";
import { ClientError } from "../../../src/client/base/failure.ts";

const timedOut = new ClientError("timed_out", "timed_out", "nothing came in time");
const refused = new ClientError("refused", "policy_denied", "no", { status: 403 });

test("what did not come in time has an exit code of its own", () => {
  expect(endingOf(timedOut, false)).toEqual({
    text: "nothing came in time (timed_out)",
    exitCode: 2,
  });
  expect(endingOf(refused, false)).toEqual({ text: "no (policy_denied)", exitCode: 1 });
});

test("with --json a failure is one line with code, message and status", () => {
  const { text, exitCode } = endingOf(refused, true);
  expect(JSON.parse(text ?? "")).toEqual({
    ok: false,
    code: "policy_denied",
    message: "no",
    status: 403,
  });
  expect(exitCode).toBe(1);
  expect(JSON.parse(endingOf(timedOut, true).text ?? "")).toMatchObject({
    code: "timed_out",
    status: null,
  });
});

test("no control character reaches a terminal, and JSON keeps its value", () => {
  const hostile = "a\u001b[2J\u007f\u009b31m\u202egpj\u2028b\u{e0041}";
  const written: string[] = [];
  const spy = spyOn(process.stdout, "write").mockImplementation((text) => {
    written.push(String(text));
    return true;
  });
  try {
    createReport(true).result({ name: hostile }, "");
    createReport(false).result({}, `first\n${hostile}`);
  } finally {
    spy.mockRestore();
  }
  const [json = "", text = ""] = written;
  expect(JSON.parse(json)).toEqual({ name: hostile });
  expect(text.split("\n").length).toBe(3);
  const failure = endingOf(new ClientError("refused", "x", hostile), true).text ?? "";
  expect(JSON.parse(failure).message).toBe(hostile);
  for (const line of [json.trimEnd(), failure, ...text.split("\n")])
    expect(line).not.toMatch(/[\p{Cc}\p{Cf}\p{Zl}]/u);
});

test("a refusal of a proof's time names the clocks", () => {
  const expired = new ClientError("refused", "proof_expired", "too old", { status: 401 });
  expect(endingOf(expired, false).text).toContain("clocks");
});

test("any other error is a bug and shows its stack", () => {
  const { text, exitCode } = endingOf(new TypeError("broken"), true);
  expect(JSON.parse(text ?? "")).toMatchObject({ ok: false, code: "internal_error" });
  expect([exitCode, text?.includes("report.test.ts")]).toEqual([1, true]);
});

test("a failure of a command keeps its exit code, and prints nothing beside a result that says it", () => {
  expect(endingOf(new CommandFailure("late", 2), false)).toEqual({ text: "late", exitCode: 2 });
  expect(endingOf(new CommandFailure("two of three", 1, true), true)).toEqual({
    text: null,
    exitCode: 1,
  });
});

test("behind -- there are no options", () => {
  expect(asksForJson(["send", "--json"])).toBe(true);
  expect(asksForJson(["send", "--", "--json"])).toBe(false);
});

test("a Directory that wants an invitation is answered by a flag, not by a header", () => {
  const asked = new ClientError("refused", "invitation_required", "send it in Svc-Invitation");
  expect(endingOf(asked, false).text).toBe(
    "this Directory registers who is invited: give the code by --invitation <code> (invitation_required)",
  );
});
