/**
 * `examples/chain.toml` for the development chain of this machine: its folder, no proxy, and HTTP
 * on the loopback.
 */
import { readFileSync } from "node:fs";

const example = new URL("../../examples/chain.toml", import.meta.url);

export function chainExampleAt(folder: string, url: string): string {
  return readFileSync(example, "utf8")
    .replaceAll("/var/lib/waypost", folder)
    .replaceAll("https://waypost.example.org", url)
    .replaceAll("127.0.0.1:7400", new URL(url).host)
    .replace(/^trusted_proxies = .*\n/m, "")
    .replace("[relay]\n", '[relay]\nallow_http = true\nallow_private = ["127.0.0.0/8"]\n')
    .replace(/^#:schema .*\n/, "");
}
