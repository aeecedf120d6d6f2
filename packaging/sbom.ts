/**
 * The bill of materials of the executable, in CycloneDX: each package that is compiled into it,
 * with version, license and the sum of its archive from the lockfile; the libraries inside the
 * addon of lmdb; and the runtime. The same commit makes the same text.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Enums, Models, Serialize, SPDX, Spec } from "@cyclonedx/cyclonedx-library";
import { locate, type Manifest, packages, readManifest } from "./notices.ts";

const root = join(import.meta.dir, "..");

/** JSON of CycloneDX 1.6. `sourceDateSeconds` is the time of the commit. */
export function renderSbom(sourceDateSeconds: number): string {
  const whole = componentOf(readManifest(root), Enums.ComponentType.Application);
  const timestamp = new Date(sourceDateSeconds * 1_000);
  const bom = new Models.Bom({ metadata: new Models.Metadata({ component: whole, timestamp }) });

  // One version can be installed in several folders.
  const byPurl = new Map<string, Models.Component>();
  const byFolder = new Map([[root, whole]]);
  for (const { folder, manifest } of packages().values()) {
    const made = componentOf(manifest, Enums.ComponentType.Library);
    const known = byPurl.get(String(made.purl)) ?? made;
    byPurl.set(String(made.purl), known);
    byFolder.set(folder, known);
  }
  for (const [folder, component] of byFolder) {
    for (const name of Object.keys(readManifest(folder).dependencies ?? {})) {
      const dependency = byFolder.get(locate(name, folder) ?? "");
      if (dependency !== undefined) component.dependencies.add(dependency.bomRef);
    }
    if (component !== whole) bom.components.add(component);
  }

  const addon = byFolder.get(join(root, "node_modules", "lmdb"));
  for (const library of librariesInside()) {
    bom.components.add(library);
    addon?.dependencies.add(library.bomRef);
  }
  const bun = component("bun", Bun.version, "MIT", `pkg:github/oven-sh/bun@bun-v${Bun.version}`);
  bom.components.add(bun);
  whole.dependencies.add(bun.bomRef);

  const serializer = new Serialize.JsonSerializer(
    new Serialize.JSON.Normalize.Factory(Spec.Spec1dot6),
  );
  return `${serializer.serialize(bom, { sortLists: true, space: 1 })}\n`;
}

function componentOf(manifest: Manifest, type: Enums.ComponentType): Models.Component {
  const { name, version, license } = manifest;
  const purl = `pkg:npm/${name.replace("@", "%40")}@${version}`;
  const made = component(name, version, license, purl, type);
  const sum = lockedSum(name, version);
  if (sum !== null) made.hashes.set(Enums.HashAlgorithm["SHA-512"], sum);
  return made;
}

function component(
  name: string,
  version: string,
  license: string | undefined,
  purl: string,
  type = Enums.ComponentType.Library,
): Models.Component {
  const made = new Models.Component(type, name, { version, bomRef: purl, purl });
  if (license !== undefined) made.licenses.add(licenseOf(license));
  return made;
}

/** By its SPDX id; "MIT OR Apache-2.0" is an expression. */
function licenseOf(text: string): Models.License {
  const id = SPDX.fixupSpdxId(text);
  return id === undefined ? new Models.LicenseExpression(text) : new Models.SpdxLicense(id);
}

const lockfile = readFileSync(join(root, "bun.lock"), "utf8");

/** In hex, of the archive in the registry; `null` for this package itself. */
function lockedSum(name: string, version: string): string | null {
  const entry = lockfile.split("\n").find((line) => line.includes(`["${name}@${version}",`));
  const base64 = entry?.match(/"sha512-([A-Za-z0-9+/=]+)"/)?.[1];
  return base64 === undefined ? null : Buffer.from(base64, "base64").toString("hex");
}

/** What the addon of lmdb is compiled from; their headers have the versions. */
function librariesInside(): Models.Component[] {
  const sources = join(root, "node_modules", "lmdb", "dependencies");
  const lmdb = readFileSync(join(sources, "lmdb", "libraries", "liblmdb", "lmdb.h"), "utf8");
  const lz4 = readFileSync(join(sources, "lz4", "lib", "lz4.h"), "utf8");
  const lmdbVersion = versionIn(lmdb, [
    "MDB_VERSION_MAJOR",
    "MDB_VERSION_MINOR",
    "MDB_VERSION_PATCH",
  ]);
  const lz4Version = versionIn(lz4, [
    "LZ4_VERSION_MAJOR",
    "LZ4_VERSION_MINOR",
    "LZ4_VERSION_RELEASE",
  ]);
  return [
    component("liblmdb", lmdbVersion, "OLDAP-2.8", `pkg:generic/liblmdb@${lmdbVersion}`),
    component("lz4", lz4Version, "BSD-2-Clause", `pkg:github/lz4/lz4@v${lz4Version}`),
  ];
}

function versionIn(header: string, names: readonly string[]): string {
  const numberOf = (name: string) => header.match(new RegExp(`#define ${name}\\s+(\\d+)`))?.[1];
  const numbers = names.map(numberOf);
  if (numbers.includes(undefined)) throw new Error(`a header of lmdb names no ${names.join(", ")}`);
  return numbers.join(".");
}
