/**
 * A second, naive ledger: mutable objects, no signatures, no SCALE, no code shared with
 * `src/core/ledger/rules.ts`. For each call it answers what docs/ledger.md 2 and rules section 4
 * demands: the names of the events, or the name of the refusal.
 */

export type Domain = "document" | "alias" | "rootPubkey" | "control";

export type Operation =
  | {
      op: "addMethod" | "updateMethod" | "removeMethod" | "addAuth" | "removeAuth";
      name: string;
      key: string;
    }
  | {
      op:
        | "addAgreement"
        | "updateAgreement"
        | "removeAgreement"
        | "addService"
        | "updateService"
        | "removeService";
      name: string;
      key: string;
    }
  | { op: "addAlias" | "removeAlias"; name: string; key: string }
  | { op: "updateAlias"; name: string; key: string; to: string }
  | { op: "rotate" | "deactivate" | "delete"; name: string; key: string };

export type Move =
  | {
      kind: "authorized";
      who: number;
      what: Operation;
      signer: string;
      nonceOffset: number;
      expired: boolean;
      forged: boolean;
    }
  | {
      kind: "register";
      who: number;
      alias: string | null;
      version: 1 | 2;
      atOffset: number;
      forged: boolean;
    }
  | {
      kind: "setDocument";
      who: number;
      version: 1 | 2;
      methods: number;
      nonceOffset: number;
      atOffset: number;
      forged: boolean;
    }
  | { kind: "setAlias"; who: number; alias: string }
  | { kind: "setPolicy"; who: number };

export type TwinRecord = {
  root: string;
  aliases: string[];
  methods: { name: string; key: string }[];
  auth: string[];
  agreements: { name: string; key: string }[];
  services: { name: string; key: string }[];
  version: number;
  updated: number;
  deactivated: boolean;
};

export type TwinAccount = {
  record: TwinRecord | null;
  nonces: Record<Domain, number>;
  documentTime: number;
  registrationExpiry: number;
  life: number;
};

const lists = {
  Method: { field: "methods", max: 5, full: "InvalidDocument", word: "VerificationMethod" },
  Agreement: { field: "agreements", max: 5, full: "InvalidDocument", word: "KeyAgreement" },
  Service: { field: "services", max: 4, full: "ServiceTooLong", word: "Service" },
} as const;

export class Twin {
  now = 0;
  accounts: TwinAccount[] = [];
  aliases: Record<string, number> = {};
  /** Who released an alias last, in which life, and until when it is reserved. */
  released: Record<string, { who: number; life: number; until: number }> = {};
  policies: number[] = [];

  constructor(count: number) {
    for (let i = 0; i < count; i++) {
      const nonces = { document: 0, alias: 0, rootPubkey: 0, control: 0 };
      this.accounts.push({ record: null, nonces, documentTime: 0, registrationExpiry: 0, life: 0 });
    }
  }

  domainOf(what: Operation): Domain {
    if (what.op.endsWith("Alias")) return "alias";
    if (what.op === "rotate") return "rootPubkey";
    return ["deactivate", "delete"].includes(what.op) ? "control" : "document";
  }

  play(move: Move): string[] | string {
    const account = this.accounts[move.who]!;
    if (move.kind === "register") return this.register(move, account);
    if (move.kind === "setDocument") return this.setDocument(move, account);
    const record = account.record;
    if (move.kind === "setPolicy") {
      if (record === null || record.deactivated) return "DidNotFound";
      if (!this.policies.includes(move.who)) this.policies.push(move.who);
      return ["PolicySet"];
    }
    if (move.kind === "setAlias") {
      if (record === null) return "DidNotFound";
      if (record.deactivated) return "DidDeactivated";
      if (record.aliases.some((alias) => alias !== move.alias)) return "RootKeyRequired";
      if (this.aliases[move.alias] !== move.who && !this.isFree(move.alias, move.who))
        return "AliasTaken";
      this.take(move.alias, move.who);
      record.aliases = [move.alias];
      return this.touch(record, "AliasSet");
    }
    return this.authorized(move, account);
  }

  private isFree(alias: string, who: number): boolean {
    const reserve = this.released[alias];
    if (alias in this.aliases) return false;
    if (reserve === undefined || reserve.until <= this.now) return true;
    return reserve.who === who && reserve.life === this.accounts[who]!.life;
  }

  private take(alias: string, who: number): void {
    this.aliases[alias] = who;
    delete this.released[alias];
  }

  private release(alias: string, who: number): void {
    delete this.aliases[alias];
    this.released[alias] = {
      who,
      life: this.accounts[who]!.life,
      until: this.now + 30 * 86_400_000,
    };
  }

  private touch(record: TwinRecord, event: string): string[] {
    record.version++;
    record.updated = this.now;
    return [event];
  }

  private register(
    move: Extract<Move, { kind: "register" }>,
    account: TwinAccount,
  ): string[] | string {
    const at = this.now + move.atOffset;
    if (move.version === 2 && at <= this.now) return "RegistrationExpired";
    if (account.record !== null) return "DidAlreadyExists";
    if (at <= (move.version === 1 ? account.documentTime : account.registrationExpiry))
      return "DocumentStale";
    if (move.forged) return "InvalidSignature";
    account.documentTime = Math.max(account.documentTime, move.version === 1 ? at : this.now);
    if (move.version === 2) account.registrationExpiry = at;
    const free = move.alias !== null && this.isFree(move.alias, move.who);
    if (free) this.take(move.alias!, move.who);
    account.record = {
      root: `root${move.who}`,
      aliases: free ? [move.alias!] : [],
      methods: [{ name: "m0", key: "k0" }],
      auth: ["m0"],
      agreements: [],
      services: [],
      version: 1,
      updated: this.now,
      deactivated: false,
    };
    const events = ["Registered", "DocumentSet"];
    if (move.alias !== null) events.push(free ? "AliasSet" : "AliasConflict");
    return events;
  }

  private setDocument(
    move: Extract<Move, { kind: "setDocument" }>,
    account: TwinAccount,
  ): string[] | string {
    const at = this.now + move.atOffset;
    if (move.methods > 5) return "InvalidDocument";
    if (move.version === 2 && at <= this.now) return "DocumentAuthorizationExpired";
    const record = account.record;
    if (record === null) return "DidNotFound";
    if (record.deactivated) return "DidDeactivated";
    if (move.version === 1 && at <= account.documentTime) return "DocumentStale";
    if (move.version === 2 && move.nonceOffset !== 0) return "InvalidDocumentNonce";
    if (move.forged || record.root !== `root${move.who}`) return "InvalidSignature";
    if (move.version === 2) account.nonces.document++;
    account.documentTime = Math.max(account.documentTime, move.version === 1 ? at : this.now);
    record.methods = Array.from({ length: move.methods }, (_, i) => ({
      name: `m${i}`,
      key: `k${i}`,
    }));
    record.auth = record.methods.slice(0, 2).map(({ name }) => name);
    record.agreements = [];
    record.services = [];
    return this.touch(record, "DocumentSet");
  }

  private authorized(
    move: Extract<Move, { kind: "authorized" }>,
    account: TwinAccount,
  ): string[] | string {
    const domain = this.domainOf(move.what);
    const word = {
      document: "Document",
      alias: "Alias",
      rootPubkey: "RootPubkey",
      control: "Control",
    }[domain];
    if (move.expired) return `${word}AuthorizationExpired`;
    const record = account.record;
    if (record === null) return "DidNotFound";
    if (record.deactivated) return "DidDeactivated";
    if (move.nonceOffset !== 0) return `Invalid${word}Nonce`;
    if (move.forged || !this.maySign(record, move)) return "InvalidSignature";
    const outcome = this.change(move.what, record, { ...move, account });
    if (typeof outcome === "string") return outcome;
    account.nonces[domain]++;
    return account.record === null ? outcome : this.touch(record, outcome[0]!);
  }

  /**
   * `signer` is `root`, whose key is always the first one, or a method's name with the key
   * `k<digit>`.
   */
  private maySign(record: TwinRecord, move: { who: number; signer: string }): boolean {
    if (move.signer === "root") return record.root === `root${move.who}`;
    const method = record.methods.find(({ name }) => name === move.signer);
    return (
      method !== undefined &&
      method.key === `k${move.signer.slice(1)}` &&
      record.auth.includes(move.signer)
    );
  }

  private change(
    what: Operation,
    record: TwinRecord,
    at: { who: number; account: TwinAccount },
  ): string[] | string {
    switch (what.op) {
      case "rotate":
        record.root = what.key;
        return ["RootPubkeyUpdated"];
      case "deactivate":
        record.deactivated = true;
        return ["DidDeactivated"];
      case "delete":
        for (const alias of record.aliases) this.release(alias, at.who);
        at.account.life++;
        this.policies = this.policies.filter((who) => who !== at.who);
        at.account.record = null;
        return ["DidDeleted"];
      case "addAlias":
      case "updateAlias":
      case "removeAlias":
        return this.changeAlias(what, record, at.who);
      case "addAuth":
        if (!record.methods.some(({ name }) => name === what.name))
          return "VerificationMethodNotFound";
        if (record.auth.includes(what.name)) return "AuthenticationAlreadyExists";
        if (record.auth.length === 4) return "InvalidDocument";
        record.auth.push(what.name);
        return ["AuthenticationAdded"];
      case "removeAuth":
        if (!record.auth.includes(what.name)) return "AuthenticationNotFound";
        record.auth.splice(record.auth.indexOf(what.name), 1);
        return ["AuthenticationRemoved"];
      default:
        return this.changeList(what, record);
    }
  }

  private changeAlias(what: Operation, record: TwinRecord, who: number): string[] | string {
    const target = what.op === "updateAlias" ? what.to : what.name;
    if (what.op === "removeAlias") {
      if (!record.aliases.includes(target)) return "AliasNotFound";
      record.aliases.splice(record.aliases.indexOf(target), 1);
      this.release(target, who);
      return ["AliasRemoved"];
    }
    if (what.op === "updateAlias" && what.name === target) return "AliasAlreadyExists";
    if (this.aliases[target] === who) return "AliasAlreadyExists";
    if (!this.isFree(target, who)) return "AliasTaken";
    if (what.op === "updateAlias") {
      const index = record.aliases.indexOf(what.name);
      if (index < 0) return "AliasNotFound";
      record.aliases[index] = target;
      this.release(what.name, who);
    } else {
      if (record.aliases.length === 8) return "TooManyAliases";
      record.aliases.push(target);
    }
    this.aliases[target] = who;
    return [what.op === "addAlias" ? "AliasAdded" : "AliasUpdated"];
  }

  private changeList(what: Operation, record: TwinRecord): string[] | string {
    const [, verb, noun] = /^(add|update|remove)(Method|Agreement|Service)$/.exec(what.op)!;
    const { field, max, full, word } = lists[noun as keyof typeof lists];
    const list = record[field];
    const index = list.findIndex(({ name }) => name === what.name);
    if (verb === "add") {
      if (index >= 0) return `${word}AlreadyExists`;
      if (list.length === max) return full;
      list.push({ name: what.name, key: what.key });
      return [`${word}Added`];
    }
    if (index < 0) return `${word}NotFound`;
    if (verb === "update") {
      list[index] = { name: what.name, key: what.key };
      return [`${word}Updated`];
    }
    if (noun === "Method" && record.auth.includes(what.name)) return "VerificationMethodInUse";
    list.splice(index, 1);
    return [`${word}Removed`];
  }
}
