//! What calls cost, as functions of the lengths that they bring. Not generated: the benchmarking tool of the
//! framework is a node of its own, so the constants below are derived by hand. The times of the operations
//! were taken natively by `cargo test --release -- --ignored --nocapture times` on one core of a busy virtual
//! machine: a signature 55 us, a point 11 us, a document 3.8 ns a byte to decode and encode, a hash 0.9 ns a
//! byte. What runs inside the runtime is four times that here, which is more than compiled WebAssembly loses,
//! and what the host does (signatures, hashes) is twice that. Storage has the framework's own figures for
//! RocksDB. The second figure of a weight is the size of a storage proof: every entry that is read, at its
//! largest, and 2 KiB of trie nodes beside it.

use crate::{Config, DidRecord};
use codec::MaxEncodedLen;
use frame_support::{traits::Get, weights::Weight};

/// Picoseconds. Decoding the call, its origin, its events.
const CALL: u64 = 25_000_000;
/// Two checks of an Ed25519 signature by the host: a chain that takes plain proofs may need both.
const SIGNATURE: u64 = SIGNATURE_ONCE * 2;
const SIGNATURE_ONCE: u64 = 110_000_000;
/// Whether a key is an admissible point: decompression and multiplication by eight, in the runtime.
const POINT: u64 = 45_000_000;
/// A byte that is decoded, compared, hashed and encoded again.
const BYTE: u64 = 20_000;
/// The fewest bytes that a method can have: four lengths, two ids, a type and a key.
const METHOD_BYTES_MIN: u64 = 64;
const TRIE_BYTES: u64 = 2_048;
/// Entries other than records: a counter, a time, a balance, an alias.
const ENTRY_BYTES: u64 = 512;

/// What a call does, in numbers.
#[derive(Clone, Copy, Default)]
pub struct Work {
	pub signatures: u64,
	/// Keys that are looked at as points.
	pub points: u64,
	/// Bytes of arguments and of records that are decoded and encoded.
	pub bytes: u64,
	/// Entries that are read and written; records and policies are counted in `bytes` as well.
	pub reads: u64,
	pub writes: u64,
}

pub fn weight<T: Config>(work: Work) -> Weight {
	let time = CALL
		.saturating_add(work.signatures.saturating_mul(SIGNATURE))
		.saturating_add(work.points.saturating_mul(POINT))
		.saturating_add(work.bytes.saturating_mul(BYTE));
	let proof = work.reads.saturating_mul(TRIE_BYTES + ENTRY_BYTES).saturating_add(work.bytes);
	Weight::from_parts(time, proof).saturating_add(T::DbWeight::get().reads_writes(work.reads, work.writes))
}

fn record_bytes<T: Config>() -> u64 {
	DidRecord::<T>::max_encoded_len() as u64
}

/// Keys that a document of this length can bring.
fn methods<T: Config>(blob: usize) -> u64 {
	(blob as u64 / METHOD_BYTES_MIN).min(u64::from(T::MaxVMs::get()))
}

/// Reads the record's place, two times, the alias, the deposit's account twice, the clock, the chain and the
/// switch; writes the record, two times, the alias, the deposit and the account with its holds.
pub fn registration<T: Config>(blob: usize) -> Weight {
	let points = 1 + methods::<T>(blob);
	weight::<T>(Work { signatures: 1, points, bytes: 2 * blob as u64, reads: 9, writes: 7 })
}

/// Reads the record, a counter, a time, the allowance, the clock, the chain and the switch; writes the first four.
pub fn document<T: Config>(blob: usize) -> Weight {
	let bytes = record_bytes::<T>() + 2 * blob as u64;
	weight::<T>(Work { signatures: 1, points: methods::<T>(blob), bytes, reads: 7, writes: 4 })
}

/// One component, or the root key: the argument is a part of the payload.
pub fn component<T: Config>(payload: usize) -> Weight {
	let bytes = 2 * record_bytes::<T>() + 2 * payload as u64;
	weight::<T>(Work { signatures: 1, points: 1, bytes, reads: 6, writes: 3 })
}

pub fn alias<T: Config>(payload: usize) -> Weight {
	let bytes = 2 * record_bytes::<T>() + payload as u64;
	weight::<T>(Work { signatures: 1, bytes, reads: 7, writes: 5, ..Default::default() })
}

/// The record and every entry of its aliases, and one more.
pub fn primary_alias<T: Config>() -> Weight {
	let writes = 2 + u64::from(T::MaxAliases::get());
	weight::<T>(Work { bytes: 2 * record_bytes::<T>(), reads: 3, writes, ..Default::default() })
}

/// A change of a record by its owner.
pub fn owned<T: Config>() -> Weight {
	weight::<T>(Work { bytes: 2 * record_bytes::<T>(), reads: 2, writes: 1, ..Default::default() })
}

/// The dearest control action is the deletion: the record, the counter, the allowance, every alias, the life, the
/// deposit, the account with its holds, and three policies.
pub fn control<T: Config>(payload: usize) -> Weight {
	let writes = 10 + u64::from(T::MaxAliases::get());
	let bytes = 2 * record_bytes::<T>() + payload as u64;
	weight::<T>(Work { signatures: 1, bytes, reads: 10, writes, ..Default::default() })
}
