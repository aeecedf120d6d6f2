//! Turns freshly built runtimes into the files that are kept: the compressed runtime with its SHA-256,
//! the metadata, the raw chain specification of a development chain, and the canary of the differential
//! test, compressed and with its SHA-256 as well.

use sp_core::storage::well_known_keys;
use sp_maybe_compressed_blob::{compress_strongly, CODE_BLOB_BOMB_LIMIT};
use sp_runtime::BuildStorage;
use std::{env, fs, path::Path, process::exit};
use waypost_runtime::{development_genesis, Runtime};

/// The well-known sr25519 development accounts.
const ALICE: &str = "d43593c715fdd31c61141abd04a99fd6822c8558854ccde39a5684e7a56da27d";
const BOB: &str = "8eaf04151687736326c9fea17e25fc5287613693c912909cb226aa4794f26a48";
const CHARLIE: &str = "90b5ab205c6974c9ea841be688864633dc9ca8a357843eeacf2314649965fe22";

const METADATA_VERSION: u32 = 15;

fn main() {
	let arguments: Vec<String> = env::args().collect();
	let [_, runtime, canary, folder] = &arguments[..] else {
		eprintln!("usage: artifacts <runtime.wasm> <canary.wasm> <folder>");
		exit(2);
	};
	let write = |name: &str, bytes: &[u8]| {
		fs::write(Path::new(folder).join(name), bytes).expect("the folder can be written");
	};
	let write_compressed = |path: &str, name: &str| {
		let wasm = fs::read(path).expect("the runtime can be read");
		let compressed = compress_strongly(&wasm, CODE_BLOB_BOMB_LIMIT).expect("a runtime is below the limit");
		let hash = digits(&sp_io::hashing::sha2_256(&compressed));
		let name = format!("{name}.compact.compressed.wasm");
		write(&name, &compressed);
		write(&format!("{name}.sha256"), format!("{hash}  {name}\n").as_bytes());
		println!("{name}: {} bytes of wasm, {} compressed, sha256 {hash}", wasm.len(), compressed.len());
		compressed
	};
	let compressed = write_compressed(runtime, "waypost-runtime");
	write_compressed(canary, "waypost-canary");
	let metadata = Runtime::metadata_at_version(METADATA_VERSION).expect("the version is known");
	write("waypost-runtime.metadata.hex", format!("0x{}\n", digits(&metadata)).as_bytes());
	write("waypost-dev.raw.json", specification(&compressed).as_bytes());
}

fn specification(code: &[u8]) -> String {
	let genesis = development_genesis(account(ALICE), &[account(BOB), account(CHARLIE)]);
	let mut state = genesis.build_storage().expect("the development state can be built").top;
	state.insert(well_known_keys::CODE.to_vec(), code.to_vec());
	let entry = |(key, value): (&Vec<u8>, &Vec<u8>)| format!("        \"0x{}\": \"0x{}\"", digits(key), digits(value));
	let entries: Vec<String> = state.iter().map(entry).collect();
	format!(
		r#"{{
  "name": "Waypost Development",
  "id": "waypost_dev",
  "chainType": "Development",
  "bootNodes": [],
  "telemetryEndpoints": null,
  "protocolId": null,
  "properties": {{ "ss58Format": 42, "tokenDecimals": 12, "tokenSymbol": "UNIT" }},
  "codeSubstitutes": {{}},
  "genesis": {{
    "raw": {{
      "top": {{
{}
      }},
      "childrenDefault": {{}}
    }}
  }}
}}
"#,
		entries.join(",\n")
	)
}

fn account(hex: &str) -> [u8; 32] {
	let byte = |at: usize| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("two hex digits");
	core::array::from_fn(byte)
}

fn digits(bytes: &[u8]) -> String {
	bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
