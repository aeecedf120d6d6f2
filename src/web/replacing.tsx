/**
 * New keys when somebody may have the old ones: what would go is shown first,
 * and what is ticked stays.
 */
import { useState } from "preact/hooks";
import type { Device, Replacement } from "../client/package.ts";
import { Button, Check, Form } from "./parts.tsx";
import { deviceLabel, me, toast, warnOfState } from "./session.ts";
import { dateTimeOf } from "./text.ts";
import { t } from "./words/language.ts";

export function addingOf(at: Date | null, by: Device | undefined): string {
  const when = dateTimeOf(at ?? new Date());
  if (by === undefined) return t.addedAt(when);
  return by.isThis ? t.addedByThis(when) : t.addedBy(when, deviceLabel(by.name));
}

export function ReplaceKeys() {
  const [shown, setShown] = useState<ShownReplacement | null>(null);
  const showPlan = async () =>
    setShown({ ...(await me.devices.replacement()), all: await me.devices.list() });
  if (shown === null)
    return (
      <p>
        <Button danger onClick={showPlan}>
          {t.replaceKeys}
        </Button>
      </p>
    );
  return <Staying shown={shown} onDone={() => setShown(null)} />;
}

type ShownReplacement = Replacement & { readonly all: readonly Device[] };
type StayingProps = { readonly shown: ShownReplacement; readonly onDone: () => void };

function Staying({ shown, onDone }: StayingProps) {
  const { all, devices, methods, agreements, services } = shown;
  const begun = [...methods, ...services].filter(({ stays }) => stays).map(({ id }) => id);
  const [kept, setKept] = useState<ReadonlySet<string>>(
    new Set([...devices.map(({ did }) => did as string), ...begun]),
  );
  const turn = (id: string) =>
    setKept((now) =>
      now.has(id) ? new Set([...now].filter((one) => one !== id)) : new Set([...now, id]),
    );
  const keptOf = (some: readonly { readonly id: string }[]) =>
    some.map(({ id }) => id).filter((id) => kept.has(id));
  const replace = async () => {
    const keep = devices.map(({ did }) => did as string).filter((did) => kept.has(did));
    const [methodIds, serviceIds] = [keptOf(methods), keptOf(services)];
    await me.devices.replaceKeys({ keep, methods: methodIds, services: serviceIds });
    toast(t.keysAreNew);
    await warnOfState();
    onDone();
  };
  return (
    <Form submit={t.makeNewKeys} onSubmit={replace}>
      <p>{t.replaceKeysAsk}</p>
      <fieldset class="plainlist">
        <legend>{t.whatStays}</legend>
        <ul>
          {devices.map((device) => (
            <li key={device.did}>
              <Check isOn={kept.has(device.did)} onChange={() => turn(device.did)}>
                <bdi>{deviceLabel(device.name)}</bdi>
                <span class="size">
                  {addingOf(
                    device.addedAt,
                    all.find(({ did }) => did === device.addedBy),
                  )}
                </span>
              </Check>
            </li>
          ))}
          {methods.map(({ id, stays }) => (
            <li key={id}>
              <Check isOn={kept.has(id)} onChange={() => turn(id)}>
                {stays ? t.ownKey(partOf(id)) : t.strangeKey(partOf(id))}
              </Check>
            </li>
          ))}
          {agreements.map(({ id }) => (
            <li key={id}>
              <Check isOn={false} disabled onChange={() => undefined}>
                {t.strangeSealing}
              </Check>
            </li>
          ))}
          {services.map((service) => (
            <li key={service.id}>
              <Check
                isOn={kept.has(service.id)}
                disabled={service.stays}
                onChange={() => turn(service.id)}
              >
                {service.stays ? nameOfService(service) : t.strangeService(nameOfService(service))}
              </Check>
            </li>
          ))}
        </ul>
      </fieldset>
    </Form>
  );
}

function nameOfService({ type, endpoints }: Replacement["services"][number]): string {
  const address = endpoints.join(", ");
  if (type === "SvcRelayService") return t.relayAt(address);
  return type === "SvcCacheService" ? t.cacheAt(address) : t.serviceAt(type, address);
}

const partOf = (id: string): string => id.slice(id.indexOf("#"));
