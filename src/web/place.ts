/** Where the app is: the open conversation in the address, so that the browser's Back closes it. */
import { useEffect, useState } from "preact/hooks";
import { type Invited, parseInvited } from "./session.ts";

export type Panel =
  | { readonly is: "invite" }
  | { readonly is: "write"; readonly to: Invited }
  | { readonly is: "settings" }
  | { readonly is: "person"; readonly did: string };

const readPlace = (): URLSearchParams => new URLSearchParams(location.hash.slice(1));

/** The conversation in the address. */
export function usePlace(): string | null {
  const [place, setPlace] = useState(readPlace().get("c"));
  useEffect(() => {
    const read = () => setPlace(readPlace().get("c"));
    addEventListener("hashchange", read);
    return () => removeEventListener("hashchange", read);
  }, []);
  return place;
}

export function show(conversation: string | null): void {
  const next = conversation === null ? "#" : `#${new URLSearchParams({ c: conversation })}`;
  if (next !== location.hash) location.hash = next;
}

/** What a link brought: whom to write to, and an invitation of the operator. Kept until it was used. */
export function arrivedBy(): { readonly invited: Invited | null; readonly invitation: string | null } {
  const parts = readPlace();
  const invitation = parts.get("invite");
  return { invited: parts.get("to") === null ? null : parseInvited(location.hash), invitation };
}

export function forgetArrival(): void {
  history.replaceState(null, "", location.pathname);
}
