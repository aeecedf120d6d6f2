//! Pure rules about bytes that callers send: DIDs, aliases, proof timestamps and Ed25519 keys.
//! Nothing here reads storage or the clock.

use alloc::vec::Vec;
use curve25519_dalek::edwards::CompressedEdwardsY;
use sp_io::hashing::sha2_256;

/// The one DID method of this chain.
pub const METHOD: &[u8] = b"svc";
/// Method types that name Ed25519 keys.
pub const KEY_TYPES: [&[u8]; 2] = [b"Multikey", b"Ed25519VerificationKey2020"];

const ADDRESS_MIN: usize = 16;
const ADDRESS_MAX: usize = 96;

/// `did:svc:` and 16 to 96 base58btc characters, and nothing else.
pub fn is_did(did: &[u8]) -> bool {
	let Some(rest) = did.strip_prefix(b"did:") else { return false };
	let Some(rest) = rest.strip_prefix(METHOD) else { return false };
	let Some(address) = rest.strip_prefix(b":") else { return false };
	(ADDRESS_MIN..=ADDRESS_MAX).contains(&address.len()) && address.iter().all(is_base58)
}

/// What begins every name that its first root key and the chain decide, as base58 of the version bytes shows it.
const NAME_VERSION: [u8; 2] = [0xc9, 0xf4];
const NAME_PREFIX: &[u8] = b"did:svc:wp";
const NAME_LENGTH: usize = 38;
const NAME_DOMAIN: &[u8] = b"svc:did:v1|";

/// Whether a DID has the self-certifying form, whose rules then hold for it (docs/trust.md "Names").
pub fn is_self_certifying(did: &[u8]) -> bool {
	did.len() == NAME_LENGTH && did.starts_with(NAME_PREFIX) && is_did(did)
}

/// The self-certifying DID of a first root key on the chain with this genesis hash.
pub fn derived_did(genesis: &[u8], root_key: &[u8]) -> Vec<u8> {
	let digest = sha2_256(&[NAME_DOMAIN, genesis, root_key].concat());
	let name = bs58::encode([&NAME_VERSION[..], &digest[..20]].concat()).into_vec();
	[b"did:svc:", name.as_slice()].concat()
}

fn is_base58(byte: &u8) -> bool {
	byte.is_ascii_alphanumeric() && !matches!(byte, b'0' | b'O' | b'I' | b'l')
}

#[derive(Debug, PartialEq, Eq)]
pub enum AliasFlaw {
	Form,
	Length,
}

/// Trimmed ASCII white space, lower case; `a-z`, `0-9`, `_`, `-` and `.` only.
pub fn normal_alias(alias: &[u8], bytes_max: u32) -> Result<Vec<u8>, AliasFlaw> {
	let normal = alias.trim_ascii().to_ascii_lowercase();
	let known = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.');
	if normal.len() > bytes_max as usize {
		return Err(AliasFlaw::Length);
	}
	if normal.is_empty() || !normal.iter().all(known) {
		return Err(AliasFlaw::Form);
	}
	Ok(normal)
}

/// The `timestamp` of a registration or full-document proof.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum ProofTime {
	/// Version 1: a point in time.
	At { ms: u64 },
	/// Versions 2 and 3: `v2:<nonce>:<expiry ms>` and `v3:<nonce>:<expiry ms>`.
	Until { bound: bool, nonce: u64, expiry_ms: u64 },
}

impl ProofTime {
	/// Whether the proof is of version 3, which binds the chain and the account that submits it.
	pub fn is_bound(&self) -> bool {
		matches!(self, Self::Until { bound: true, .. })
	}
}

/// `None` when the text has neither form.
pub fn proof_time(text: &[u8]) -> Option<ProofTime> {
	for (version, bound) in [(b"v2:", false), (b"v3:", true)] {
		if let Some(rest) = text.strip_prefix(version) {
			let split = rest.iter().position(|byte| *byte == b':')?;
			let nonce = u64_text(&rest[..split])?;
			let expiry_ms = u64_text(&rest[split + 1..])?;
			return Some(ProofTime::Until { bound, nonce, expiry_ms });
		}
	}
	timestamp_ms(text).map(|ms| ProofTime::At { ms })
}

/// `0`, or digits without a leading zero, within u64.
fn u64_text(text: &[u8]) -> Option<u64> {
	if text.len() > 1 && text[0] == b'0' {
		return None;
	}
	decimal(text)
}

/// One or more ASCII digits, within u64.
fn decimal(text: &[u8]) -> Option<u64> {
	if text.is_empty() {
		return None;
	}
	text.iter().try_fold(0u64, |sum, byte| {
		let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
		sum.checked_mul(10)?.checked_add(digit)
	})
}

/// Decimal timestamps below this are seconds, the others milliseconds.
const SECONDS_BELOW: u64 = 100_000_000_000;
/// The last millisecond of the year 9999.
const MS_MAX: i64 = 253_402_300_799_999;
const TEXT_MAX: usize = 40;
const EPOCH_DIGITS_MAX: usize = 16;

/// Epoch milliseconds of decimal digits or of ISO-8601 with seconds and an explicit zone.
pub fn timestamp_ms(text: &[u8]) -> Option<u64> {
	if text.len() > TEXT_MAX {
		return None;
	}
	let ms = if text.iter().all(u8::is_ascii_digit) {
		if text.len() > EPOCH_DIGITS_MAX {
			return None;
		}
		let value = decimal(text)?;
		i64::try_from(if value < SECONDS_BELOW { value * 1_000 } else { value }).ok()?
	} else {
		iso_ms(text)?
	};
	(0..=MS_MAX).contains(&ms).then_some(ms as u64)
}

/// `YYYY-MM-DDThh:mm:ss`, a fraction of 1 to 9 digits or none, then `Z` or `±hh:mm`.
fn iso_ms(text: &[u8]) -> Option<i64> {
	let (head, tail) = text.split_at_checked(19)?;
	for (at, mark) in [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')] {
		if head[at] != mark {
			return None;
		}
	}
	let number = |from: usize, to: usize| decimal(&head[from..to]).map(|value| value as i64);
	let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
	let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
	if hour > 23 || minute > 59 || second > 59 || !is_date(year, month, day) {
		return None;
	}
	let (fraction_ms, zone) = fraction_ms(tail)?;
	let seconds = days_from_epoch(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
	Some(seconds * 1_000 + fraction_ms - zone_ms(zone)?)
}

/// The milliseconds of a leading fraction, cut off after three digits, and what stands behind it.
fn fraction_ms(tail: &[u8]) -> Option<(i64, &[u8])> {
	let Some(rest) = tail.strip_prefix(b".") else { return Some((0, tail)) };
	let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
	if !(1..=9).contains(&digits) {
		return None;
	}
	let ms = (0..3).fold(0, |sum, at| sum * 10 + if at < digits { i64::from(rest[at] - b'0') } else { 0 });
	Some((ms, &rest[digits..]))
}

fn zone_ms(zone: &[u8]) -> Option<i64> {
	if zone == b"Z" {
		return Some(0);
	}
	if zone.len() != 6 || zone[3] != b':' {
		return None;
	}
	let sign = match zone[0] {
		b'+' => 1,
		b'-' => -1,
		_ => return None,
	};
	let (hours, minutes) = (decimal(&zone[1..3])? as i64, decimal(&zone[4..6])? as i64);
	(hours <= 23 && minutes <= 59).then_some(sign * (hours * 3_600 + minutes * 60) * 1_000)
}

fn is_date(year: i64, month: i64, day: i64) -> bool {
	let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
	let days = match month {
		1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
		4 | 6 | 9 | 11 => 30,
		2 => 28 + i64::from(leap),
		_ => return false,
	};
	(1..=days).contains(&day)
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar. Years start in March here, so that the
/// leap day is the last of its year.
fn days_from_epoch(year: i64, month: i64, day: i64) -> i64 {
	let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
	let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
	year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

/// Whether a key may enter a record: the canonical encoding of a point of the curve that is not of
/// small order. Under a small-order key signatures verify that no one made.
pub fn is_admissible_key(key: &[u8; 32]) -> bool {
	let Some(point) = CompressedEdwardsY(*key).decompress() else { return false };
	point.compress().as_bytes() == key && !point.is_small_order()
}

/// Longest base58btc text of 34 bytes, with its `z`. Decoding is quadratic, so length comes first.
const MULTIBASE_MAX: usize = 49;

/// 32 bytes from `z` and base58btc of the bare key or of `ed 01` and the key.
pub fn multibase_key(text: &[u8]) -> Option<[u8; 32]> {
	if text.len() > MULTIBASE_MAX {
		return None;
	}
	let bytes = bs58::decode(text.strip_prefix(b"z")?).into_vec().ok()?;
	match bytes.len() {
		32 => bytes.try_into().ok(),
		34 => bytes.strip_prefix(&[0xed, 0x01])?.try_into().ok(),
		_ => None,
	}
}

/// The Ed25519 key of a method, if its type names one and the key is admissible.
pub fn method_key(type_: &[u8], multibase: &[u8]) -> Option<[u8; 32]> {
	KEY_TYPES.contains(&type_).then(|| multibase_key(multibase)).flatten().filter(is_admissible_key)
}
