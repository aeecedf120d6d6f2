/**
 * What the runtime offers, as one table read from its metadata: versions, transaction extensions,
 * and of the two pallets of our own the calls, storage, constants, events and errors.
 * `bun run interface` writes the table next to the runtime; the smoke test holds the runtime to it.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { type ApiPromise, WsProvider } from "@polkadot/api";
import { apiOver } from "./api.ts";
import { startChain } from "./start.ts";

export const interfaceFile = new URL(
  "../../runtime/artifacts/waypost-runtime.interface.json",
  import.meta.url,
).pathname;

/** The table as JSON text. */
export function describeInterface(api: ApiPromise): string {
  const lookup = api.registry.lookup;
  const typeName = (id: Parameters<typeof lookup.getTypeDef>[0]) => lookup.getTypeDef(id).type;
  const pallets = api.runtimeMetadata.asLatest.pallets;
  const variants = (type: Parameters<typeof lookup.getSiType>[0]) =>
    lookup.getSiType(type).def.asVariant.variants.map((variant) => ({
      index: variant.index.toNumber(),
      name: variant.name.toString(),
      fields: variant.fields.map((field) => {
        const name = field.name.isSome ? `${field.name.unwrap().toString()}: ` : "";
        return `${name}${field.typeName.isSome ? field.typeName.unwrap().toString() : typeName(field.type)}`;
      }),
    }));
  const own = ["DidRegistry", "DeliveryPolicy"];
  const table = {
    specName: api.runtimeVersion.specName.toString(),
    specVersion: api.runtimeVersion.specVersion.toNumber(),
    transactionVersion: api.runtimeVersion.transactionVersion.toNumber(),
    extensions: api.registry.signedExtensions,
    pallets: Object.fromEntries(
      pallets.map((pallet) => [pallet.name.toString(), pallet.index.toNumber()]),
    ),
    ...Object.fromEntries(
      pallets
        .filter((pallet) => own.includes(pallet.name.toString()))
        .map((pallet) => [
          pallet.name.toString(),
          {
            calls: variants(pallet.calls.unwrap().type),
            storage: pallet.storage.unwrap().items.map((item) => ({
              name: item.name.toString(),
              hasher: item.type.isMap
                ? item.type.asMap.hashers.map((hasher) => hasher.type).join()
                : "",
              optional: item.modifier.isOptional,
              value: typeName(item.type.isMap ? item.type.asMap.value : item.type.asPlain),
            })),
            constants: Object.fromEntries(
              pallet.constants.map((constant) => [
                constant.name.toString(),
                api.createType(typeName(constant.type), constant.value.toU8a(true)).toString(),
              ]),
            ),
            events: variants(pallet.events.unwrap().type),
            errors: variants(pallet.errors.unwrap().type).map(({ index, name }) => ({
              index,
              name,
            })),
          },
        ]),
    ),
  };
  return `${JSON.stringify(table, null, 2)}\n`;
}

/** Throws when the running runtime offers something else than the kept table says. */
export function checkInterface(api: ApiPromise): void {
  if (describeInterface(api) !== readFileSync(interfaceFile, "utf8")) {
    throw new Error(
      "the runtime offers something else than the kept table: run `bun run interface` and look at the difference",
    );
  }
}

if (import.meta.main) {
  const chain = await startChain({ port: 0, mode: "manual" });
  const api = await apiOver(new WsProvider(chain.endpoint));
  writeFileSync(interfaceFile, describeInterface(api));
  console.log(`wrote ${interfaceFile}`);
  await api.disconnect();
  await chain.stop();
  process.exit(0);
}
