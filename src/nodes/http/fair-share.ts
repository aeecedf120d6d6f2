/**
 * Bytes held for clients: bounded in all, and for each client to half of that, so that nobody alone can
 * use up the room of everybody. The table has an entry only for clients that hold something.
 * Source: decisions section 9, `docs/decisions.md` ("Over capacity").
 */
export type Shares = {
  /** `false`, and nothing taken, when the client's half or the whole would be exceeded. */
  readonly take: (client: string, bytes: number) => boolean;
  readonly give: (client: string, bytes: number) => void;
  readonly bytes: () => number;
};

/** `alone`: whoever comes while nothing is held may take more than there is, so that one always goes. */
export function createShares(bytesMax: number, { alone }: { readonly alone: boolean }): Shares {
  const held = new Map<string, number>();
  let total = 0;
  return {
    take: (client, bytes) => {
      const mine = (held.get(client) ?? 0) + bytes;
      const fits = mine <= bytesMax / 2 && total + bytes <= bytesMax;
      if (!fits && !(alone && total === 0)) return false;
      held.set(client, mine);
      total += bytes;
      return true;
    },
    give: (client, bytes) => {
      const mine = (held.get(client) ?? 0) - bytes;
      if (mine > 0) held.set(client, mine);
      else held.delete(client);
      total -= bytes;
    },
    bytes: () => total,
  };
}
