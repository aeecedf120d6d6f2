/** Where the app is: the open conversation in the address, so that the browser's Back closes it. */
import { useEffect, useState } from "preact/hooks";
import { type Invited, parseInvited } from "./session.ts";

export type Panel =
  | { readonly is: "invite" }
  | { readonly is: "write"; readonly to: Invited }
  | { readonly is: "settings" }
  | { readonly is: "person"; readonly did: string }
  | { readonly is: "group"; readonly id: string | null };

const readPlace = (): URLSearchParams => new URLSearchParams(location.hash.slice(1));

type Place = {
  readonly conversation: string | null;
  /** The one that a search has found. */
  readonly message: string | null;
};

const placeNow = (): Place => ({ conversation: readPlace().get("c"), message: readPlace().get("m") });

/** What the address shows. */
export function usePlace(): Place {
  const [place, setPlace] = useState(placeNow());
  useEffect(() => {
    const read = () => setPlace(placeNow());
    addEventListener("hashchange", read);
    return () => removeEventListener("hashchange", read);
  }, []);
  return place;
}

export function show(conversation: string | null, message?: string): void {
  const parts = {
    ...(conversation === null ? {} : { c: conversation }),
    ...(message === undefined ? {} : { m: message }),
  };
  const next = `#${new URLSearchParams(parts)}`;
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
