//! Whose a proof is: of one chain, of the account that submits it, of the key and not of the owner.

use crate::{mock::*, *};
use codec::Encode;
use frame_support::{assert_noop, assert_ok, dispatch::DispatchResult, storage::with_storage_layer};
use sp_core::hashing::blake2_256;
use sp_runtime::AccountId32;

const EXPIRY: u64 = NOW + 300_000;

/// The message of version 3, byte for byte, for a chain and an account.
fn message(genesis: [u8; 32], who: Option<[u8; 32]>) -> Vec<u8> {
	let hash = blake2_256(&document().encode());
	let tail = (DID.to_vec(), None::<Vec<u8>>, key_of(&root()), hash, 0u64, EXPIRY, genesis, who);
	[b"svc:register:v3|", &tail.encode()[..]].concat()
}

fn register_v3(who: AccountId32, message: &[u8]) -> DispatchResult {
	let time = format!("v3:0:{EXPIRY}").into_bytes();
	let signature = sign(&root(), message);
	let (did, key, blob) = (DID.to_vec(), key_of(&root()), document().encode());
	let who = signed(who);
	with_storage_layer(|| DidRegistry::register_with_document_proof_signed(who, did, None, time, key, signature, blob))
}

fn registered() {
	register_v3(alice(), &message(genesis(), Some([1; 32]))).unwrap();
}

#[test]
fn a_registration_is_for_one_account_on_one_chain() {
	strict(|| {
		let good = message(genesis(), Some([1; 32]));
		// Anyone who sees it on its way can't have it.
		assert_noop!(register_v3(bob(), &good), Error::<Test>::InvalidSignature);
		assert_noop!(register_v3(alice(), &message(genesis(), Some([2; 32]))), Error::<Test>::InvalidSignature);
		assert_noop!(register_v3(alice(), &message(genesis(), None)), Error::<Test>::InvalidSignature);
		assert_noop!(register_v3(alice(), &message([9; 32], Some([1; 32]))), Error::<Test>::InvalidSignature);
		assert_ok!(register_v3(alice(), &good));
		assert_eq!(record(DID).owner, Some(alice()));
		assert_ok!(control_v3(ControlAction::DeleteDid, 0));
		assert_noop!(register_v3(alice(), &good), Error::<Test>::DocumentStale);
	});
}

#[test]
fn older_versions_are_refused_unless_the_chain_takes_them() {
	let register = |time: &[u8]| with_storage_layer(|| register_as(DID, time, &document().encode()));
	strict(|| {
		let refused = Error::<Test>::ProofVersionRefused;
		assert_noop!(register(TIME), refused);
		assert_noop!(register(format!("v2:0:{EXPIRY}").as_bytes()), Error::<Test>::ProofVersionRefused);
		registered();
		let blob = document().encode();
		for time in [(NOW + 1).to_string(), format!("v2:0:{EXPIRY}")] {
			let (did, key) = (DID.to_vec(), key_of(&root()));
			let call = DidRegistry::set_document_with_proof(none(), did, blob.clone(), time.into(), key, vec![1; 64]);
			assert_noop!(call, Error::<Test>::ProofVersionRefused);
		}
		assert_noop!(control(ControlAction::DeactivateDid, 0), Error::<Test>::InvalidSignature);
	});
	test(|| {
		assert_ok!(register(TIME));
		assert_ok!(control(ControlAction::ClearDeliveryPolicyLinks, 0));
		// Version 3 works there as well.
		assert_ok!(control_v3(ControlAction::DeactivateDid, 1));
	});
}

#[test]
fn a_document_is_for_one_chain() {
	strict(|| {
		registered();
		let blob = DidDocument::<Test>::empty(bytes(DID)).encode();
		let set = |genesis: [u8; 32]| {
			let tail = (DID.to_vec(), blake2_256(&blob), 0u64, EXPIRY, genesis);
			let signature = sign(&root(), &[b"svc:set_document:v3|", &tail.encode()[..]].concat());
			let time = format!("v3:0:{EXPIRY}").into_bytes();
			let (did, key) = (DID.to_vec(), key_of(&root()));
			with_storage_layer(|| DidRegistry::set_document_with_proof(none(), did, blob.clone(), time, key, signature))
		};
		assert_noop!(set([9; 32]), Error::<Test>::InvalidSignature);
		assert_ok!(set(genesis()));
		assert_eq!((record(DID).version, counters()), (2, [1, 0, 0, 0]));
	});
}

fn control_v3(action: ControlAction<Test>, nonce: u64) -> DispatchResult {
	let payload = control_payload(action, nonce).encode();
	let signature = sign_v3(&root(), Domain::Control, &payload);
	with_storage_layer(|| DidRegistry::apply_control_with_proof(none(), payload, signature, ROOT.to_vec()))
}

#[test]
fn an_authorization_is_for_one_chain_and_one_kind_of_payload() {
	strict(|| {
		registered();
		let payload = control_payload(ControlAction::DeactivateDid, 0).encode();
		let call = |message: &[u8]| {
			let signature = sign(&root(), message);
			with_storage_layer(|| {
				DidRegistry::apply_control_with_proof(none(), payload.clone(), signature, ROOT.to_vec())
			})
		};
		let of = |domain, genesis: [u8; 32]| DidRegistry::authorization_message(domain, &genesis, &payload);
		assert_noop!(call(&payload), Error::<Test>::InvalidSignature);
		assert_noop!(call(&of(Domain::Control, [9; 32])), Error::<Test>::InvalidSignature);
		for domain in [Domain::Document, Domain::RootPubkey, Domain::Alias, Domain::Policy] {
			assert_noop!(call(&of(domain, genesis())), Error::<Test>::InvalidSignature);
		}
		let expected = [b"svc:authorization:v3:control|", &genesis()[..], &payload].concat();
		assert_ok!(call(&expected));
		assert!(record(DID).deactivated);
	});
}

#[test]
fn every_kind_of_payload_has_its_domain() {
	strict(|| {
		registered();
		let mut component = document_payload(DocumentAction::RemoveAuthentication, 0);
		component.id = Some(bytes(&id("k1")));
		let component = component.encode();
		let signature = sign(&root(), &[b"svc:authorization:v3:document|", &genesis()[..], &component].concat());
		let (did, method) = (DID.to_vec(), id("k1"));
		assert_ok!(DidRegistry::remove_authentication(none(), did, method, component, signature, ROOT.to_vec()));

		let alias = AliasAuthorizationPayload::<Test> {
			did: bytes(DID),
			action: AliasAction::Add,
			alias: Some(bytes(b"team")),
			old_alias: None,
			new_alias: None,
			nonce: 0,
			valid_until: VALID_UNTIL,
			signer_key_id: bytes(ROOT),
		}
		.encode();
		let signature = sign(&root(), &[b"svc:authorization:v3:alias|", &genesis()[..], &alias].concat());
		assert_ok!(DidRegistry::add_alias(none(), DID.to_vec(), b"team".to_vec(), alias, signature, ROOT.to_vec()));

		let key = key_of(&pair(8));
		let rotation = RootPubkeyAuthorizationPayload::<Test> {
			did: bytes(DID),
			new_root_pubkey: bytes(&key),
			nonce: 0,
			valid_until: VALID_UNTIL,
			signer_key_id: bytes(ROOT),
		}
		.encode();
		let signature = sign(&root(), &[b"svc:authorization:v3:root_pubkey|", &genesis()[..], &rotation].concat());
		assert_ok!(DidRegistry::update_root_pubkey(none(), DID.to_vec(), key, rotation, signature, ROOT.to_vec()));
		assert_eq!(counters(), [1, 1, 1, 0]);
	});
}

#[test]
fn the_owners_account_decides_nothing_that_the_key_decides() {
	strict(|| {
		registered();
		let before = record(DID);
		let (owner, did) = (|| signed(alice()), || DID.to_vec());
		let calls: [DispatchResult; 6] = [
			DidRegistry::set_document(owner(), did(), DidDocument::<Test>::empty(bytes(DID)).encode()),
			DidRegistry::add_device(owner(), did(), b"phone".to_vec()),
			DidRegistry::tombstone_device(owner(), did(), b"phone".to_vec()),
			DidRegistry::update_device(owner(), did(), b"phone".to_vec(), b"desk".to_vec()),
			DidRegistry::remove_device(owner(), did(), b"phone".to_vec()),
			DidRegistry::deactivate_did(owner(), did()),
		];
		assert_eq!(calls, [Err(Error::<Test>::RootKeyRequired.into()); 6]);
		// Deletion never had a call of an account.
		let payload = control_payload(ControlAction::DeleteDid, 0).encode();
		let forged = DidRegistry::apply_control_with_proof(owner(), payload, vec![1; 64], ROOT.to_vec());
		assert_noop!(forged, sp_runtime::DispatchError::BadOrigin);
		assert_eq!(record(DID), before);
		// What is left to the owner.
		assert_ok!(DidRegistry::set_alias(owner(), did(), b"team".to_vec()));
		assert_ok!(DidRegistry::set_delivery_policy_links(owner(), did(), None, vec![], vec![]));
		assert_ok!(DidRegistry::clear_delivery_policy_links(owner(), did()));
	});
}
