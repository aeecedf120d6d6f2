/**
 * What the operator of the server says to everybody: maintenance, and a text for
 * who is about to register.
 */
import { useEffect, useState } from "preact/hooks";
import { about } from "../client/net/about.ts";
import type { About } from "../client/net/answers.ts";
import { endpoint } from "../client/net/http.ts";
import type { OperatorNotice } from "../client/trust/notice.ts";
import { me, node, warn } from "./session.ts";
import { t } from "./words/language.ts";

const askEveryMs = 60_000;

/** Where a page keeps which notice was put away. */
const seenAt = "notice-seen";
let latest: string | null = null;

/** The notice was read: this browser shows it no more. */
export function noticeSeen(): void {
  if (latest !== null) localStorage.setItem(seenAt, latest);
  warn("notice", null);
}

/** What checks one is loaded with the first one. */
async function noticeOf(said: About): Promise<OperatorNotice | null> {
  if (said.notice == null) return null;
  const { noticeIn } = await import("../client/trust/notice.ts");
  return noticeIn(me.client, said);
}

/** Asks now and each minute while the page is seen; the function ends it. */
export function followOperator(): () => void {
  let shown: string | null = null;
  let noticed: string | null = null;
  const ask = async (): Promise<void> => {
    if (document.hidden) return;
    const said = await about(me.client.directory.endpoint);
    const { maintenance = null } = said;
    const text =
      maintenance === null ? null : `${t.maintenance} ${maintenance.message ?? ""}`.trim();
    // Who has put it away sees it again when it says something else.
    if (text !== shown) warn("maintenance", text);
    shown = text;
    const notice = await noticeOf(said);
    const isNew = notice !== null && notice.issuedAt !== localStorage.getItem(seenAt);
    const issued = isNew ? notice.issuedAt : null;
    if (issued !== noticed) warn("notice", isNew ? `${t.noticeOfOperator} ${notice.text}` : null);
    noticed = issued;
    latest = notice?.issuedAt ?? null;
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
    about(endpoint(node.directoryUrl)).then(
      ({ operator }) => setText(operator?.welcome ?? null),
      () => undefined,
    );
  }, []);
  return text;
}
