/**
 * People of the community with the whole SDK: conversations, groups and own devices, and the book
 * of what was said. Each text must be at its reader once, whatever happened to the node and to the
 * reader's devices.
 */
import { attempt, ClientError } from "../../src/client/base/failure.ts";
import type { WaypostOptions } from "../../src/client/identity/opening.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { Waypost } from "../../src/client/waypost.ts";
import type { Findings } from "./stage.ts";

export type Invitation = {
  readonly id: string;
  readonly code: string;
  readonly tier: string | null;
  used: number;
};

export type Person = {
  me: Waypost;
  readonly name: string;
  readonly invitation: Invitation;
  /** Its device. */
  place: Pick<WaypostOptions, "url" | "keys" | "waiting" | "invitation"> & {
    readonly store: ReturnType<typeof memoryStore>;
  };
};

export type Group = { readonly id: string; readonly people: readonly Person[] };

type Spoken = { readonly to: string; readonly where: string; readonly text: string };

const textsAt = async ({ store }: Waypost, where: string): Promise<(string | null)[]> =>
  (await store.messages(where, { limit: 10_000 })).map(({ text }) => text);

export class People {
  readonly all: Person[] = [];
  readonly spoken: Spoken[] = [];
  readonly #url: string;
  readonly #findings: Findings;
  #said = 0;

  constructor(url: string, findings: Findings) {
    this.#url = url;
    this.#findings = findings;
  }

  /** Resolves when it is so; a finding after two minutes. */
  async settled(what: string, isSo: () => Promise<boolean> | boolean): Promise<void> {
    for (const endMs = performance.now() + 120_000; performance.now() < endMs; await Bun.sleep(100))
      if (await isSo()) return;
    this.#findings.expect(false, `${what}: not within two minutes`);
  }

  async open(name: string, invitation: Invitation): Promise<void> {
    const place = this.#placeBy(invitation);
    const me = await Waypost.open({ ...place, alias: name });
    invitation.used++;
    this.all.push({ me, name, invitation, place });
  }

  /** As an app that is started again: no timer of theirs has seen the clock jump. */
  async openAgain(): Promise<void> {
    for (const person of this.all) {
      await person.me.close();
      person.me = await Waypost.open(person.place);
    }
  }

  async speak({ me }: Person, to: Person): Promise<void> {
    const text = `message ${++this.#said}`;
    await me.send(to.me.did, text);
    this.spoken.push({ to: to.me.did, where: me.did, text });
  }

  async speakIn({ me }: Person, { id, people }: Group): Promise<void> {
    const text = `words ${++this.#said}`;
    await this.settled(`a group at ${me.did}`, async () => {
      const group = await me.groups.get(id);
      // Who has put it there may be unknown yet.
      if (group?.standing === "asked") await group.join();
      const sent = await attempt(async () => (await me.groups.get(id))?.send(text));
      return sent !== undefined && !(sent instanceof ClientError);
    });
    for (const { me: other } of people)
      if (other.did !== me.did) this.spoken.push({ to: other.did, where: id, text });
  }

  /** All that was said is there once. */
  async check(): Promise<void> {
    for (const { me } of this.all) {
      for (const [where, some] of Map.groupBy(this.#saidTo(me), (one) => one.where))
        await this.#checkConversation(me, where, some);
    }
  }

  #saidTo({ did }: Waypost): Spoken[] {
    return this.spoken.filter(({ to }) => to === did);
  }

  async #checkConversation(me: Waypost, where: string, some: readonly Spoken[]): Promise<void> {
    await this.settled(`what was said to ${me.did}`, async () => {
      const texts = new Set(await textsAt(me, where));
      return some.every(({ text }) => texts.has(text));
    });
    const texts = await textsAt(me, where);
    for (const { text } of some) {
      const times = texts.filter((one) => one === text).length;
      this.#findings.expect(times === 1, `"${text}" is ${times} times at ${me.did}`);
    }
  }

  /**
   * Goes on with another device, from which the lost one is removed. Takes a use of the person's
   * invitation.
   */
  async loseDevice(person: Person): Promise<void> {
    const lost = person.me;
    const { invitation } = person;
    const place = this.#placeBy(invitation);
    // The first device gets a DID of its own now, by an invitation that the person makes.
    const linking = await Waypost.link(place);
    await lost.devices.acceptLink(linking.code, "new");
    const me = await linking.opened;
    invitation.used += 1;
    await this.settled(`the history of ${person.name}`, async () => {
      const own = await lost.devices.list();
      return own.length === 2 && own.every(({ isCurrent }) => isCurrent);
    });
    for (const where of new Set(this.#saidTo(person.me).map((one) => one.where)))
      await this.settled(`${person.name}'s history of ${where}`, async () => {
        const there = new Set(await textsAt(me, where));
        return (await textsAt(lost, where)).every((text) => there.has(text));
      });
    await lost.close();
    const other = (await me.devices.list()).find(({ isThis }) => !isThis);
    if (other === undefined) throw new Error("the lost device is not listed");
    await me.devices.remove(other.did);
    [person.me, person.place] = [me, place];
  }

  #placeBy({ code: invitation }: Invitation): Person["place"] {
    const waiting = { timeoutMs: 60_000, intervalMs: 50 };
    return { url: this.#url, keys: memoryKeys(), store: memoryStore(), waiting, invitation };
  }
}
