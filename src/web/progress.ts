/** How far files are that this tab sends, by the id of their message. A reload forgets it; the outbox goes on. */
import { useEffect, useReducer } from "preact/hooks";
import type { Sent } from "../client/package.ts";
import type { Progress } from "./session.ts";

const under = new Map<string, number>();
const listeners = new Set<() => void>();

function set(id: string, part: number | null): void {
  if (part === null) under.delete(id);
  else under.set(id, part);
  for (const listener of listeners) listener();
}

export async function trackProgress(
  send: (onProgress: (progress: Progress) => void) => Promise<Sent | undefined>,
): Promise<void> {
  let id: string | null = null;
  const sent = await send(({ sentBytes, totalBytes }) => {
    if (id !== null) set(id, sentBytes < totalBytes ? sentBytes / totalBytes : null);
  });
  id = sent?.id ?? null;
}

/** From 0 to 1; `null` for what is not being sent here. */
export function useProgress(id: string): number | null {
  const [, again] = useReducer((count: number) => count + 1, 0);
  useEffect(() => {
    const listener = () => again(undefined);
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }, []);
  return under.get(id) ?? null;
}
