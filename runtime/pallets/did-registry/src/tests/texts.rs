use crate::text::*;

#[test]
fn dids_are_of_the_one_method_and_16_to_96_base58_characters() {
	let address = |count: usize| [b"did:svc:", "1".repeat(count).as_bytes()].concat();
	assert!(is_did(&address(16)) && is_did(&address(96)));
	assert!(!is_did(&address(15)) && !is_did(&address(97)));
	for text in [
		"svc:1111111111111111",
		"did:web:1111111111111111",
		"did:Svc:1111111111111111",
		"did:svc:11111111:1111111",
		"did:svc:1111111111111110",
		"did:svc:111111111111111O",
		"did:svc:111111111111111I",
		"did:svc:111111111111111l",
		"did:svc:1111111111111111#",
		"did:svc:",
		"",
	] {
		assert!(!is_did(text.as_bytes()), "{text}");
	}
}

#[test]
fn aliases_are_trimmed_and_lowered() {
	assert_eq!(normal_alias(b" \tSales_Group-1.x\n", 64).unwrap(), b"sales_group-1.x");
	for text in ["", "   ", "a b", "a@b", "a#b", "\u{e4}"] {
		assert_eq!(normal_alias(text.as_bytes(), 64), Err(AliasFlaw::Form), "{text}");
	}
	assert!(normal_alias(&[b'a'; 64], 64).is_ok());
	assert_eq!(normal_alias(&[b'a'; 65], 64), Err(AliasFlaw::Length));
	assert_eq!(normal_alias(&[b'@'; 65], 64), Err(AliasFlaw::Length));
}

#[test]
fn timestamps_in_every_form() {
	for (text, ms) in [
		("2026-07-16T12:00:00Z", 1_784_203_200_000),
		("2026-07-16T14:00:00+02:00", 1_784_203_200_000),
		("2026-07-16T10:30:00-01:30", 1_784_203_200_000),
		("2026-07-16T12:00:00.1Z", 1_784_203_200_100),
		("2026-07-16T12:00:00.123456789Z", 1_784_203_200_123),
		("2024-02-29T00:00:00Z", 1_709_164_800_000),
		("2000-02-29T00:00:00Z", 951_782_400_000),
		("1970-01-01T00:00:00Z", 0),
		("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
		("1784203200", 1_784_203_200_000),
		("1784203200000", 1_784_203_200_000),
		("99999999999", 99_999_999_999_000),
		("100000000000", 100_000_000_000),
		("0", 0),
	] {
		assert_eq!(timestamp_ms(text.as_bytes()), Some(ms), "{text}");
	}
	for text in [
		"",
		"now",
		"2026-07-16",
		"2026-07-16T12:00Z",
		"2026-07-16T12:00:00",
		"2026-07-16t12:00:00Z",
		"2026-07-16T12:00:00z",
		"2026-02-31T12:00:00Z",
		"2023-02-29T00:00:00Z",
		"1900-02-29T00:00:00Z",
		"2026-13-01T12:00:00Z",
		"2026-00-01T12:00:00Z",
		"2026-07-00T12:00:00Z",
		"2026-07-16T24:00:00Z",
		"2026-07-16T12:60:00Z",
		"2026-07-16T12:00:60Z",
		"2026-07-16T12:00:00.Z",
		"2026-07-16T12:00:00.1234567890Z",
		"2026-07-16T12:00:00,1Z",
		"2026-07-16T12:00:00+0200",
		"2026-07-16T12:00:00+24:00",
		"2026-07-16T12:00:00+00:60",
		"1969-12-31T23:59:59Z",
		"-1",
		"+1",
		"1.5",
		"12345678901234567",
		"253402300800000",
		"0x10",
	] {
		assert_eq!(timestamp_ms(text.as_bytes()), None, "{text}");
	}
}

#[test]
fn proof_times_of_every_version() {
	assert_eq!(proof_time(b"1784203200"), Some(ProofTime::At { ms: 1_784_203_200_000 }));
	assert_eq!(proof_time(b"v2:3:99"), Some(ProofTime::Until { bound: false, nonce: 3, expiry_ms: 99 }));
	assert_eq!(proof_time(b"v3:3:99"), Some(ProofTime::Until { bound: true, nonce: 3, expiry_ms: 99 }));
	let most = "v2:18446744073709551615:18446744073709551615";
	assert_eq!(
		proof_time(most.as_bytes()),
		Some(ProofTime::Until { bound: false, nonce: u64::MAX, expiry_ms: u64::MAX })
	);
	for text in [
		"v2:",
		"v2:0",
		"v2::1",
		"v2:0:",
		"v2:00:1",
		"v2:0:01",
		"v2:0:1:2",
		"v2:-1:1",
		"v2:0:18446744073709551616",
		"v4:0:1",
		"v3:0",
		"v3:01:5",
		"V2:0:1",
	] {
		assert_eq!(proof_time(text.as_bytes()), None, "{text}");
	}
}

#[test]
fn keys_of_small_order_or_odd_form_are_not_admissible() {
	let key = |text: &str| <[u8; 32]>::try_from(crate::mock::unhex(text)).unwrap();
	for text in [
		// The eight points of small order, and the sign bit on x = 0.
		"0100000000000000000000000000000000000000000000000000000000000000",
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"0000000000000000000000000000000000000000000000000000000000000000",
		"0000000000000000000000000000000000000000000000000000000000000080",
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
		"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
		"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
		"0100000000000000000000000000000000000000000000000000000000000080",
		// y at or above the prime.
		"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"f0ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
		// No point of the curve.
		"0200000000000000000000000000000000000000000000000000000000000000",
	] {
		assert!(!is_admissible_key(&key(text)), "{text}");
	}
	assert!(is_admissible_key(&key("ea4a6c63e29c520abef5507b132ec5f9954776aebebe7b92421eea691446d22c")));
}

#[test]
fn key_texts_other_than_multibase_are_none() {
	let bytes = crate::mock::key_of(&crate::mock::root());
	assert_eq!(multibase_key(&bytes), None);
	for text in [
		"",
		"z",
		"z0",
		"mAAAA",
		"Z6MkvDqGT54cXesYGvABpF1UapVNwjCqRcafi4Px6Thv5T3Z",
		"z6LSbysY2xFMRpGMhb7tFTLMpeuPRaqaWM1yECx2AtzE3KCc",
	] {
		assert_eq!(multibase_key(text.as_bytes()), None, "{text}");
	}
	assert_eq!(multibase_key("z".repeat(50).as_bytes()), None);
}
