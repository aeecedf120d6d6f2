//! The worked byte vectors of the specification.

use crate::{mock::*, *};
use codec::Encode;
use frame_support::assert_ok;
use sp_core::hashing::blake2_256;

const METHOD: &str = "846469643a7376633a31313131313131313131313131313131313131313131236b31204d756c74696b6579786469643a7376633a31313131313131313131313131313131313131313131c07a364d6b76447147543534635865735947764142704631556170564e776a43715263616669345078365468763554335a";
const UPDATE: &str = "786469643a7376633a313131313131313131313131313131313131313131310101846469643a7376633a31313131313131313131313131313131313131313131236b31204d756c74696b6579786469643a7376633a31313131313131313131313131313131313131313131c07a364d6b76447147543534635865735947764142704631556170564e776a43715263616669345078365468763554335a000000050000000000000000b4c5dab801000010726f6f74";
const REMOVE_METHOD: &str = "786469643a7376633a313131313131313131313131313131313131313131310200000001846469643a7376633a31313131313131313131313131313131313131313131236b31050000000000000000b4c5dab801000010726f6f74";
const REMOVE_AGREEMENT: &str = "786469643a7376633a3131313131313131313131313131313131313131313107000000019c6469643a7376633a31313131313131313131313131313131313131313131237832353531392d31050000000000000000b4c5dab801000010726f6f74";
const ROTATION: &str = "786469643a7376633a31313131313131313131313131313131313131313131802a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a000000000000000000b4c5dab801000010726f6f74";
const ALIAS: &str = "786469643a7376633a313131313131313131313131313131313131313131310001207465616d2e6f6e650000040000000000000000b4c5dab801000010726f6f74";
const SERVICE: &str = "906469643a7376633a313131313131313131313131313131313131313131312363616368653c537663436163686553657276696365045468747470733a2f2f63616368652e6578616d706c650104846469643a7376633a31313131313131313131313131313131313131313131236b3100";
const DOCUMENT: &str = "786469643a7376633a3131313131313131313131313131313131313131313104846469643a7376633a31313131313131313131313131313131313131313131236b31204d756c74696b6579786469643a7376633a31313131313131313131313131313131313131313131c07a364d6b76447147543534635865735947764142704631556170564e776a43715263616669345078365468763554335a0104846469643a7376633a31313131313131313131313131313131313131313131236b31000104906469643a7376633a313131313131313131313131313131313131313131312363616368653c537663436163686553657276696365045468747470733a2f2f63616368652e6578616d706c650104846469643a7376633a31313131313131313131313131313131313131313131236b3100";
const DOCUMENT_MESSAGE: &str = "7376633a7365745f646f63756d656e743a76317c6469643a7376633a313131313131313131313131313131313131313131317cb3a8914b989df4c7f0478e861c6a44595bd17bb21ff4a5e6bc379077a8ef84c07c323032362d30372d31365431323a30303a30305a";
const STORAGE_KEY: &str = "72b29c5d16546b7d2c5310d5fbada68b13f72fd4db0687b2a6a53903e54be0cfc989a551168363f0d59df6cf60c9c49a786469643a7376633a31313131313131313131313131313131313131313131";

fn base64(text: &str) -> Vec<u8> {
	let value = |byte: u8| match byte {
		b'A'..=b'Z' => byte - b'A',
		b'a'..=b'z' => byte - b'a' + 26,
		b'0'..=b'9' => byte - b'0' + 52,
		b'+' => 62,
		_ => 63,
	};
	let bits: Vec<u8> = text.trim_end_matches('=').bytes().map(value).collect();
	let groups = bits.chunks(4).flat_map(|chunk| {
		let word = chunk.iter().fold(0u32, |word, bits| word << 6 | u32::from(*bits)) << (6 * (4 - chunk.len()));
		word.to_be_bytes()[1..chunk.len()].to_vec()
	});
	groups.collect()
}

#[test]
fn the_key_of_the_vectors() {
	assert_eq!(key_of(&root()), unhex("ea4a6c63e29c520abef5507b132ec5f9954776aebebe7b92421eea691446d22c"));
	assert_eq!(text::multibase_key(MULTIBASE).unwrap().to_vec(), key_of(&root()));
	let bare = b"zGmaDrppBC7P5ARKV8g3djiwP89vz1jLK23V2GBjuAEGB";
	assert_eq!(text::multibase_key(bare).unwrap().to_vec(), key_of(&root()));
}

#[test]
fn structures_and_payloads_encode_to_the_vectors() {
	assert_eq!(method().encode(), unhex(METHOD));
	assert_eq!(service("cache").encode(), unhex(SERVICE));
	assert_eq!(document().encode(), unhex(DOCUMENT));

	let mut update = document_payload(DocumentAction::UpdateVerificationMethod, 5);
	update.verification_method = Some(method());
	assert_eq!(update.encode(), unhex(UPDATE));

	let mut remove = document_payload(DocumentAction::RemoveVerificationMethod, 5);
	remove.id = Some(bytes(&id("k1")));
	assert_eq!(remove.encode(), unhex(REMOVE_METHOD));

	let mut remove = document_payload(DocumentAction::RemoveKeyAgreement, 5);
	remove.id = Some(bytes(&id("x25519-1")));
	assert_eq!(remove.encode(), unhex(REMOVE_AGREEMENT));

	let rotation = RootPubkeyAuthorizationPayload::<Test> {
		did: bytes(DID),
		new_root_pubkey: bytes(&[0x2a; 32]),
		nonce: 0,
		valid_until: VALID_UNTIL,
		signer_key_id: bytes(ROOT),
	};
	assert_eq!(rotation.encode(), unhex(ROTATION));

	let alias = AliasAuthorizationPayload::<Test> {
		did: bytes(DID),
		action: AliasAction::Add,
		alias: Some(bytes(b"team.one")),
		old_alias: None,
		new_alias: None,
		nonce: 4,
		valid_until: VALID_UNTIL,
		signer_key_id: bytes(ROOT),
	};
	assert_eq!(alias.encode(), unhex(ALIAS));
	let removal = AliasAuthorizationPayload::<Test> { action: AliasAction::Remove, ..alias };
	let mut expected = unhex(ALIAS);
	expected[31] = 2;
	assert_eq!(removal.encode(), expected);
}

#[test]
fn signatures_of_the_vectors_are_the_root_keys() {
	let signatures = [
		(UPDATE, "Kd1auYPwKavuUkO8ZcyRJsw6x4QJ8/mMV+Hx+f/qgKT0Z23cYj+NmLmAEhBpnv2aTT93XeZst/0CJBIk3hAqBA=="),
		(REMOVE_AGREEMENT, "h4McUwhQ+HYGztVxfteX4EMbz7w1RraoINW/mYoJSR1BzWjLBN5ba8dzXKnLetYuZYKt/eUZ46Kibz0YF478Bg=="),
		(ROTATION, "mGK9ZwQScm+ePzJuFE8cCdXIwdZ1cwZ0x0Wq7Zc4srb1HycljJIeVcJGycJ8Br+9pPITjWXHEpFwOGWPAtA9AQ=="),
		(ALIAS, "EUvt2OoX4w1eops8y/K7vVcjPBjtsVVL+2NgWklR2/eiHPEmHELdbjF+65dt3/Wp8nuOQd2TeWkzPwzqSxNuCg=="),
		(DOCUMENT_MESSAGE, "zup4ggIDpxrZ+yz5mttS46p/iX8cx8+RtQxUBkIeLk1j4EqG/Z+I7N4CXbxnx+zAOWinOyOZw7ZB8HL/3kD0Cw=="),
	];
	for (message, signature) in signatures {
		assert_eq!(sign(&root(), &unhex(message)), base64(signature));
	}
}

#[test]
fn registration_and_document_proofs_of_the_vectors_apply() {
	test(|| {
		let registration =
			base64("fJ9WFgMbg97QOBgI8kuDgjymv66HWVq3tAEcaew25dCHeFE3mqTkcPRODbU4Yln4+IwvZkEm1VJJ8kqo6PHDBg==");
		let blob = unhex(DOCUMENT);
		assert_ok!(DidRegistry::register_with_document_proof_signed(
			signed(alice()),
			DID.to_vec(),
			None,
			b"2026-07-16T12:00:00Z".to_vec(),
			key_of(&root()),
			registration,
			blob.clone(),
		));
		assert_eq!(sp_io::storage::get(&unhex(STORAGE_KEY)).unwrap().to_vec(), record(DID).encode());

		// The same time again would be stale; the proof itself is what counts here.
		DocumentTimes::<Test>::insert(bytes::<Did<Test>>(DID), 0);
		assert_eq!(
			blake2_256(&blob).to_vec(),
			unhex("b3a8914b989df4c7f0478e861c6a44595bd17bb21ff4a5e6bc379077a8ef84c0")
		);
		let signature =
			base64("zup4ggIDpxrZ+yz5mttS46p/iX8cx8+RtQxUBkIeLk1j4EqG/Z+I7N4CXbxnx+zAOWinOyOZw7ZB8HL/3kD0Cw==");
		assert_ok!(DidRegistry::set_document_with_proof(
			none(),
			DID.to_vec(),
			blob,
			TIME.to_vec(),
			key_of(&root()),
			signature,
		));
		assert_eq!(record(DID).version, 2);
	});
}

#[test]
fn component_and_alias_proofs_of_the_vectors_apply() {
	test(|| {
		register();
		let did: Did<Test> = bytes(DID);
		DocumentNonces::<Test>::insert(&did, 5);
		AliasNonces::<Test>::insert(&did, 4);
		assert_ok!(DidRegistry::update_verification_method(
			none(),
			DID.to_vec(),
			method(),
			unhex(UPDATE),
			base64("Kd1auYPwKavuUkO8ZcyRJsw6x4QJ8/mMV+Hx+f/qgKT0Z23cYj+NmLmAEhBpnv2aTT93XeZst/0CJBIk3hAqBA=="),
			ROOT.to_vec(),
		));
		assert_ok!(DidRegistry::add_alias(
			none(),
			DID.to_vec(),
			b"team.one".to_vec(),
			unhex(ALIAS),
			base64("EUvt2OoX4w1eops8y/K7vVcjPBjtsVVL+2NgWklR2/eiHPEmHELdbjF+65dt3/Wp8nuOQd2TeWkzPwzqSxNuCg=="),
			ROOT.to_vec(),
		));
		assert_eq!(counters(), [6, 5, 0, 0]);
	});
}

/// The vectors of version 3 that the program's tests hold as well, for a ledger of bytes `11` and an account of `22`.
#[test]
fn messages_of_version_3_are_the_vectors() {
	let vector = |name: &str| {
		let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../test/vectors/scale/valid/");
		let text = std::fs::read_to_string(format!("{path}{name}.json")).unwrap();
		let member = |name: &str| {
			let rest = text.split(&format!("\"{name}\": \"")).last().unwrap();
			rest.split('"').next().unwrap().to_string()
		};
		assert_eq!(sign(&root(), &unhex(&member("bytes"))), base64(&member("signature")));
		unhex(&member("bytes"))
	};
	let (genesis, hash, expiry) = ([0x11; 32], blake2_256(&unhex(DOCUMENT)), VALID_UNTIL);
	let submitter = Some(sp_runtime::AccountId32::new([0x22; 32]));
	let alias = Some(b"team.one".to_vec());
	let tail = (DID.to_vec(), alias, key_of(&root()), hash, 0u64, expiry, genesis, submitter).encode();
	assert_eq!([b"svc:register:v3|", &tail[..]].concat(), vector("13-registration-v3-message"));
	let tail = (DID.to_vec(), hash, 5u64, expiry, genesis).encode();
	assert_eq!([b"svc:set_document:v3|", &tail[..]].concat(), vector("14-set-document-v3-message"));
	let message = DidRegistry::authorization_message(Domain::Alias, &genesis, &unhex(ALIAS));
	assert_eq!(message, vector("15-authorization-v3-message"));
}
