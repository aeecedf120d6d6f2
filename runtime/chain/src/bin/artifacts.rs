//! Turns freshly built runtimes into the files that are kept: in `artifacts` the compressed runtime with its
//! SHA-256, the metadata with its hash and the raw chain specifications of the presets; in `canary` the runtime of the
//! differential test that breaks rules on command, compressed and with its SHA-256 as well.

use codec::Decode;
use frame_metadata::RuntimeMetadataPrefixed;
use merkleized_metadata::{generate_metadata_digest, ExtraInfo};
use sp_core::storage::well_known_keys;
use sp_genesis_builder::{DEV_RUNTIME_PRESET, LOCAL_TESTNET_RUNTIME_PRESET};
use sp_maybe_compressed_blob::{compress_strongly, CODE_BLOB_BOMB_LIMIT};
use std::{env, fs, path::Path, process::exit};
use waypost_runtime::{genesis, Runtime, ADDRESS_PREFIX, TOKEN_DECIMALS, TOKEN_SYMBOL, VERSION};

const METADATA_VERSION: u32 = 15;

fn main() {
	let arguments: Vec<String> = env::args().collect();
	let arguments: Vec<&str> = arguments.iter().skip(1).map(String::as_str).collect();
	match arguments[..] {
		["metadata-hash"] => println!("{}", metadata_hash()),
		["spec", code, preset] => print!("{}", specification(&read(code), preset)),
		[runtime, canary, folder] => keep(runtime, canary, Path::new(folder)),
		_ => {
			eprintln!("usage: artifacts <runtime.wasm> <canary.wasm> <folder> | artifacts spec <code> <preset> | artifacts metadata-hash");
			exit(2);
		},
	}
}

fn read(path: &str) -> Vec<u8> {
	fs::read(path).unwrap_or_else(|error| panic!("{path} can't be read: {error}"))
}

fn keep(runtime: &str, canary: &str, folder: &Path) {
	let write = |name: &str, bytes: &[u8]| {
		fs::write(folder.join(name), bytes).expect("the folder can be written");
	};
	let write_compressed = |path: &str, place: &str, name: &str| {
		let wasm = read(path);
		let compressed = compress_strongly(&wasm, CODE_BLOB_BOMB_LIMIT).expect("a runtime is below the limit");
		let hash = digits(&sp_io::hashing::sha2_256(&compressed));
		let name = format!("{name}.compact.compressed.wasm");
		write(&format!("{place}/{name}"), &compressed);
		write(&format!("{place}/{name}.sha256"), format!("{hash}  {name}\n").as_bytes());
		println!("{name}: {} bytes of wasm, {} compressed, sha256 {hash}", wasm.len(), compressed.len());
		compressed
	};
	let compressed = write_compressed(runtime, "artifacts", "waypost-runtime");
	write_compressed(canary, "canary", "waypost-canary");
	write("artifacts/waypost-runtime.metadata.hex", format!("0x{}\n", digits(&metadata())).as_bytes());
	write("artifacts/waypost-runtime.metadata-hash.txt", format!("{}\n", metadata_hash()).as_bytes());
	write("artifacts/waypost-dev.raw.json", specification(&compressed, DEV_RUNTIME_PRESET).as_bytes());
}

fn metadata() -> Vec<u8> {
	Runtime::metadata_at_version(METADATA_VERSION).expect("the version is known").to_vec()
}

/// What `CheckMetadataHash` compares in its mode 1 with the metadata by which a wallet showed a call (RFC 78). The build of
/// the runtime gets it in `RUNTIME_METADATA_HASH`; the metadata is the same without.
fn metadata_hash() -> String {
	let metadata = RuntimeMetadataPrefixed::decode(&mut &metadata()[..]).expect("the metadata is whole").1;
	let extra = ExtraInfo {
		spec_version: VERSION.spec_version,
		spec_name: VERSION.spec_name.to_string(),
		base58_prefix: ADDRESS_PREFIX,
		decimals: TOKEN_DECIMALS,
		token_symbol: TOKEN_SYMBOL.to_string(),
	};
	let digest = generate_metadata_digest(&metadata, extra).expect("the version has a digest");
	format!("0x{}", digits(&digest.hash()))
}

/// The raw specification of a chain that starts with this code and one of the runtime's presets.
fn specification(code: &[u8], preset: &str) -> String {
	let (name, id, kind) = match preset {
		DEV_RUNTIME_PRESET => ("Waypost Development", "waypost_dev", "Development"),
		LOCAL_TESTNET_RUNTIME_PRESET => ("Waypost Local", "waypost_local", "Local"),
		_ => panic!("presets are {DEV_RUNTIME_PRESET} and {LOCAL_TESTNET_RUNTIME_PRESET}"),
	};
	let mut state = genesis::first_state(preset).expect("the preset is known");
	state.insert(well_known_keys::CODE.to_vec(), code.to_vec());
	let entry = |(key, value): (&Vec<u8>, &Vec<u8>)| format!("        \"0x{}\": \"0x{}\"", digits(key), digits(value));
	let entries: Vec<String> = state.iter().map(entry).collect();
	format!(
		r#"{{
  "name": "{name}",
  "id": "{id}",
  "chainType": "{kind}",
  "bootNodes": [],
  "telemetryEndpoints": null,
  "protocolId": null,
  "properties": {{ "ss58Format": {ADDRESS_PREFIX}, "tokenDecimals": {TOKEN_DECIMALS}, "tokenSymbol": "{TOKEN_SYMBOL}" }},
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

fn digits(bytes: &[u8]) -> String {
	bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
