//! Self-certifying DIDs: whose they are, how often, and what only `root` may do with them.

use crate::{
	mock::*,
	text::{derived_did, is_self_certifying},
	*,
};
use codec::Encode;
use frame_support::{assert_noop, assert_ok, dispatch::DispatchResult, storage::with_storage_layer};
use sp_core::{ed25519, hashing::blake2_256};

const EXPIRY: u64 = NOW + 300_000;
const PLAIN: u64 = VALID_UNTIL;

fn name() -> Vec<u8> {
	derived_did(&genesis(), &key_of(&root()))
}

fn method_id() -> Vec<u8> {
	[&name()[..], b"#k1"].concat()
}

/// A document whose method 1 may sign.
fn document_of(did: &[u8]) -> DidDocument<Test> {
	let method = VerificationMethod { controller: bytes(did), ..method_of(&method_id(), &multibase_of(&pair(8))) };
	DidDocument {
		id: bytes(did),
		verification_method: vec![method].try_into().unwrap(),
		authentication: Some(vec![bytes(&method_id())].try_into().unwrap()),
		key_agreement: Default::default(),
		service: None,
	}
}

fn register_under(did: &[u8], by: &ed25519::Pair, expiry: u64) -> DispatchResult {
	let blob = document_of(did).encode();
	let tail =
		(did.to_vec(), None::<Vec<u8>>, key_of(by), blake2_256(&blob), 0u64, expiry, genesis(), Some([1u8; 32]));
	let signature = sign(by, &[b"svc:register:v3|", &tail.encode()[..]].concat());
	let (time, key) = (format!("v3:0:{expiry}").into_bytes(), key_of(by));
	with_storage_layer(|| {
		DidRegistry::register_with_document_proof_signed(
			signed(alice()),
			did.to_vec(),
			None,
			time,
			key,
			signature,
			blob.clone(),
		)
	})
}

fn control_by(action: ControlAction<Test>, nonce: u64, signer: (&[u8], &ed25519::Pair)) -> DispatchResult {
	let payload = ControlAuthorizationPayload {
		did: bytes(&name()),
		action,
		nonce,
		valid_until: PLAIN,
		signer_key_id: bytes(signer.0),
	}
	.encode();
	let signature = sign_v3(signer.1, Domain::Control, &payload);
	with_storage_layer(|| DidRegistry::apply_control_with_proof(none(), payload, signature, signer.0.to_vec()))
}

fn rotate_by(to: &ed25519::Pair, nonce: u64, signer: (&[u8], &ed25519::Pair)) -> DispatchResult {
	let payload = RootPubkeyAuthorizationPayload::<Test> {
		did: bytes(&name()),
		new_root_pubkey: bytes(&key_of(to)),
		nonce,
		valid_until: PLAIN,
		signer_key_id: bytes(signer.0),
	}
	.encode();
	let signature = sign_v3(signer.1, Domain::RootPubkey, &payload);
	with_storage_layer(|| {
		DidRegistry::update_root_pubkey(none(), name(), key_of(to), payload, signature, signer.0.to_vec())
	})
}

fn add_service(nonce: u64, fragment: &str) -> DispatchResult {
	let service = Service::<Test> {
		id: bytes(&[&name()[..], b"#", fragment.as_bytes()].concat()),
		authorization: None,
		..service(fragment)
	};
	let payload = DocumentAuthorizationPayload {
		did: bytes(&name()),
		service: Some(service.clone()),
		..document_payload(DocumentAction::AddService, nonce)
	}
	.encode();
	let signature = sign_v3(&root(), Domain::Document, &payload);
	with_storage_layer(|| DidRegistry::add_service(none(), name(), service, payload, signature, ROOT.to_vec()))
}

fn remove_service(nonce: u64, fragment: &str) -> DispatchResult {
	let id = [&name()[..], b"#", fragment.as_bytes()].concat();
	let payload = DocumentAuthorizationPayload {
		did: bytes(&name()),
		id: Some(bytes(&id)),
		..document_payload(DocumentAction::RemoveService, nonce)
	}
	.encode();
	let signature = sign_v3(&root(), Domain::Document, &payload);
	with_storage_layer(|| DidRegistry::remove_service(none(), name(), id.clone(), payload, signature, ROOT.to_vec()))
}

fn set_document(nonce: u64, by: &ed25519::Pair) -> DispatchResult {
	let blob = document_of(&name()).encode();
	let tail = (name(), blake2_256(&blob), nonce, EXPIRY, genesis());
	let signature = sign(by, &[b"svc:set_document:v3|", &tail.encode()[..]].concat());
	let time = format!("v3:{nonce}:{EXPIRY}").into_bytes();
	let key = key_of(by);
	with_storage_layer(|| DidRegistry::set_document_with_proof(none(), name(), blob.clone(), time, key, signature))
}

#[test]
fn a_name_is_registered_with_a_document() {
	test(|| {
		let tail = (name(), None::<Vec<u8>>, key_of(&root()), blake2_256(&[]), 0u64, EXPIRY, genesis(), Some([1u8; 32]));
		let signature = sign(&root(), &[b"svc:register:v3|", &tail.encode()[..]].concat());
		let time = format!("v3:0:{EXPIRY}").into_bytes();
		assert_noop!(
			DidRegistry::register_with_proof(signed(alice()), name(), None, time, key_of(&root()), signature),
			Error::<Test>::DocumentNeeded
		);
		assert_ok!(register_under(&name(), &root(), EXPIRY));
	});
}

#[test]
fn a_name_is_derived_from_the_chain_and_the_first_key() {
	// Of test/vectors/names/valid.json.
	assert_eq!(derived_did(&[0x11; 32], &key_of(&root())), b"did:svc:wp9NJiEz5xd4VUtRixum9gB37c9P3m");
	for seed in 0..50 {
		let did = derived_did(&[seed; 32], &[seed.wrapping_mul(7); 32]);
		assert!(did.starts_with(b"did:svc:wp") && did.len() == 38 && is_self_certifying(&did));
	}
	assert!(!is_self_certifying(DID));
	assert_ne!(derived_did(&[1; 32], &[2; 32]), derived_did(&[2; 32], &[2; 32]));
	strict(|| {
		assert_noop!(register_under(&name(), &pair(9), EXPIRY), Error::<Test>::NameNotDerived);
		assert_ok!(register_under(&name(), &root(), EXPIRY));
	});
}

#[test]
fn a_deleted_name_is_retired() {
	strict(|| {
		register_under(&name(), &root(), EXPIRY).unwrap();
		assert_ok!(control_by(ControlAction::DeleteDid, 0, (ROOT, &root())));
		assert_noop!(register_under(&name(), &root(), EXPIRY + 1), Error::<Test>::NameRetired);
	});
}

#[test]
fn only_version_3_counts_also_where_others_are_taken() {
	test(|| {
		let (did, time) = (name(), TIME.to_vec());
		let call = register_as(&did, &time, &document_of(&did).encode());
		assert_noop!(call, Error::<Test>::ProofVersionRefused);
		register_under(&did, &root(), EXPIRY).unwrap();
		let payload = ControlAuthorizationPayload::<Test> {
			did: bytes(&did),
			action: ControlAction::ClearDeliveryPolicyLinks,
			nonce: 0,
			valid_until: PLAIN,
			signer_key_id: bytes(ROOT),
		}
		.encode();
		let signature = sign(&root(), &payload);
		let plain = DidRegistry::apply_control_with_proof(none(), payload, signature, ROOT.to_vec());
		assert_noop!(plain, Error::<Test>::InvalidSignature);
		assert_ok!(control_by(ControlAction::ClearDeliveryPolicyLinks, 0, (ROOT, &root())));
	});
}

#[test]
fn a_method_neither_rotates_nor_deactivates_nor_deletes() {
	strict(|| {
		register_under(&name(), &root(), EXPIRY).unwrap();
		let (id, key) = (method_id(), pair(8));
		let method = (&id[..], &key);
		assert_noop!(rotate_by(&pair(9), 0, method), Error::<Test>::OnlyRootSigns);
		for action in [ControlAction::DeactivateDid, ControlAction::DeleteDid] {
			assert_noop!(control_by(action, 0, method), Error::<Test>::OnlyRootSigns);
		}
		assert_ok!(control_by(ControlAction::ClearDeliveryPolicyLinks, 0, method));
		assert_ok!(rotate_by(&pair(9), 0, (ROOT, &root())));
		assert_ok!(control_by(ControlAction::DeactivateDid, 1, (ROOT, &pair(9))));
	});
}

#[test]
fn after_eight_component_calls_and_after_a_rotation_comes_a_whole_document() {
	strict(|| {
		register_under(&name(), &root(), EXPIRY).unwrap();
		for nonce in 0..4 {
			assert_ok!(add_service(2 * nonce, "a"));
			assert_ok!(remove_service(2 * nonce + 1, "a"));
		}
		assert_noop!(add_service(8, "a"), Error::<Test>::DocumentNeeded);
		assert_ok!(set_document(8, &root()));
		assert_ok!(add_service(9, "a"));
		assert_ok!(rotate_by(&pair(9), 0, (ROOT, &root())));
		let by_method = remove_service(10, "a");
		assert_noop!(by_method, Error::<Test>::InvalidSignature);
		assert_ok!(set_document(10, &pair(9)));
	});
}

#[test]
fn the_root_key_is_replaced_two_hundred_times_at_most() {
	strict(|| {
		register_under(&name(), &root(), EXPIRY).unwrap();
		RootPubkeyNonces::<Test>::insert(bytes::<Did<Test>>(&name()), 199);
		assert_ok!(rotate_by(&pair(9), 199, (ROOT, &root())));
		assert_noop!(rotate_by(&root(), 200, (ROOT, &pair(9))), Error::<Test>::TooManyRootKeys);
	});
}

#[test]
fn a_chain_may_take_no_other_names() {
	strict(|| {
		SelfCertifyingOnly::<Test>::put(true);
		assert_noop!(register_under(DID, &root(), EXPIRY), Error::<Test>::NameNotDerived);
		assert_ok!(register_under(&name(), &root(), EXPIRY));
	});
}
