/**
 * Scenarios of a ledger that can't be read, is full, refuses, or accepts no more calls of a DID:
 * the same for every mutation.
 */
import type { Reply } from "../../support/directory.ts";
import type { Scenario, Stage } from "./stage.ts";

/** What the ledger's outages look like from outside, for any mutation that would be accepted. */
export function outages(route: string, act: (stage: Stage) => Promise<Reply>): Scenario[] {
  const during = (how: Parameters<Stage["breakLedger"]>[0]) => async (stage: Stage) => {
    stage.breakLedger(how);
    try {
      return await act(stage);
    } finally {
      stage.restore();
    }
  };
  return [
    {
      name: "answers 502 while the ledger can't be read",
      route,
      status: 502,
      code: "chain_unavailable",
      act: during("unreadable"),
    },
    {
      name: "answers 507 when the ledger is full",
      route,
      status: 507,
      code: "storage_full",
      act: during("full"),
    },
    {
      name: "hands on the refusal of the chain",
      route,
      status: 422,
      code: "chain_submission_rejected",
      act: during("refusing"),
    },
    {
      name: "answers 429 when the chain takes no more changes of the DID for now",
      route,
      status: 429,
      code: "rate_limited",
      act: during("exhausted"),
    },
  ];
}
