/**
 * Where the app is: the open conversation in the address, so that the browser's Back closes
 * it; and links that invite.
 */
import { useEffect, useReducer } from "preact/hooks";
import type { StoredMessage } from "../client/package.ts";

export type Panel =
  | { readonly is: "invite" }
  | { readonly is: "write"; readonly to: Invited }
  | { readonly is: "settings" }
  | { readonly is: "forward"; readonly message: StoredMessage }
  | { readonly is: "report"; readonly message: StoredMessage }
  | { readonly is: "person"; readonly did: string }
  | { readonly is: "group"; readonly id: string | null };

/** What stands behind `#`, which is sent to no server. */
const linkParameters = (link: string): URLSearchParams =>
  new URLSearchParams(link.slice(link.indexOf("#") + 1));

/** The open conversation, and the message in it that a search has found. */
export function usePlace(): {
  readonly conversation: string | null;
  readonly message: string | null;
} {
  const [, again] = useReducer((count: number) => count + 1, 0);
  useEffect(() => {
    const drawAgain = () => again(undefined);
    addEventListener("hashchange", drawAgain);
    return () => removeEventListener("hashchange", drawAgain);
  }, []);
  const parts = linkParameters(location.hash);
  return { conversation: parts.get("c"), message: parts.get("m") };
}

export function showConversation(conversation: string | null, message?: string): void {
  const parts = new URLSearchParams(conversation === null ? {} : { c: conversation });
  if (message !== undefined) parts.set("m", message);
  if (`#${parts}` !== location.hash) location.hash = `#${parts}`;
}

/** The link by which others write to this person. */
export function invitationLink(
  did: string,
  { name, secret, invitation }: Omit<Invited, "to"> & { readonly invitation: string | null },
): string {
  const parts = new URLSearchParams({ to: did });
  if (name !== "") parts.set("name", name);
  if (secret !== null) parts.set("s", secret);
  if (invitation !== null) parts.set("invite", invitation);
  return `${location.origin}/#${parts}`;
}

export type Invited = {
  readonly to: string;
  readonly name: string;
  /** With which this person is accepted there. */
  readonly secret: string | null;
};

/** Of a link or a bare address that somebody pasted. */
export function parseInvited(text: string): Invited {
  const parts = linkParameters(text.trim());
  const to = parts.get("to");
  if (to === null) return { to: text.trim(), name: "", secret: null };
  return { to, name: parts.get("name") ?? "", secret: parts.get("s") };
}

/** What another device of the same person shows, where the server takes only who is invited. */
export const deviceLink = (code: string): string => `${location.origin}/#link=${code}`;

/**
 * What a link brought: whom to write to, an invitation of the operator, one of another
 * device. Kept until it was used.
 */
export function arrivedBy(): {
  readonly invited: Invited | null;
  readonly invitation: string | null;
  readonly ofDevice: string | null;
} {
  const parts = linkParameters(location.hash);
  return {
    invited: parts.has("to") ? parseInvited(location.hash) : null,
    invitation: parts.get("invite"),
    ofDevice: parts.get("link"),
  };
}

export function forgetArrival(): void {
  history.replaceState(null, "", location.pathname);
}
