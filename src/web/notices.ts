/** What the operator of the server says to everybody: maintenance, and a text for who is about to register. */
import { useEffect, useState } from "preact/hooks";
import { about } from "../client/net/about.ts";
import { timeoutMsDefault } from "../client/net/http.ts";
import { me, node, warn } from "./session.ts";
import { t } from "./words/language.ts";

const askEveryMs = 60_000;

/** Asks now and each minute while the page is seen; the function ends it. */
export function followMaintenance(): () => void {
  let shown: string | null = null;
  const ask = async (): Promise<void> => {
    if (document.hidden) return;
    const { maintenance = null } = await about(me.client.directory.endpoint);
    const text =
      maintenance === null ? null : `${t.maintenance} ${maintenance.message ?? ""}`.trim();
    // Who has put it away sees it again when it says something else.
    if (text !== shown) warn("maintenance", text);
    shown = text;
  };
  const askLater = () => void ask().catch(() => undefined);
  askLater();
  const timer = setInterval(askLater, askEveryMs);
  document.addEventListener("visibilitychange", askLater);
  return () => {
    clearInterval(timer);
    document.removeEventListener("visibilitychange", askLater);
  };
}

/** The operator's text for who registers; `null` without one, and until the server has answered. */
export function useWelcome(): string | null {
  const [text, setText] = useState<string | null>(null);
  useEffect(() => {
    const clock = { aheadMs: 0, answers: 0 };
    about({ url: node.directoryUrl, timeoutMs: timeoutMsDefault, clock }).then(
      ({ operator }) => setText(operator?.welcome ?? null),
      () => undefined,
    );
  }, []);
  return text;
}
