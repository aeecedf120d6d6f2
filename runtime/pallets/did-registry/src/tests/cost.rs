//! What writing for good costs, and that it is given back.

use crate::{mock::*, weights, *};
use codec::{Encode, MaxEncodedLen};
use frame_support::{assert_noop, assert_ok, dispatch::DispatchResult, traits::fungible::InspectHold};

fn held() -> u64 {
	Balances::balance_on_hold(&HoldReason::Registration.into(), &alice())
}

#[test]
fn a_record_holds_a_deposit_from_its_owner_until_it_is_deleted() {
	test(|| {
		let aliases = 8 * (Alias::<Test>::max_encoded_len() + Did::<Test>::max_encoded_len());
		let deposit = 10_000 + (DidRecord::<Test>::max_encoded_len() + aliases) as u64;
		assert_eq!((DidRegistry::deposit(), held()), (deposit, 0));
		register();
		assert_eq!(held(), deposit);
		// The record may grow: it is paid for.
		assert_ok!(control(ControlAction::AddDevice { device_id: bytes(b"phone") }, 0));
		assert_eq!(held(), deposit);
		register_as(OTHER, TIME, &DidDocument::<Test>::empty(bytes(OTHER)).encode()).unwrap();
		assert_eq!(held(), 2 * deposit);
		assert_ok!(control(ControlAction::DeleteDid, 1));
		assert_eq!(held(), deposit);
		assert!(!Deposits::<Test>::contains_key(bytes::<Did<Test>>(DID)));
	});
}

#[test]
fn who_cannot_pay_the_deposit_registers_nothing() {
	test(|| {
		let poor = sp_runtime::AccountId32::new([3; 32]);
		let call = DidRegistry::register_with_document_proof_signed(
			signed(poor),
			DID.to_vec(),
			None,
			TIME.to_vec(),
			key_of(&root()),
			v1_registration(DID, TIME),
			document().encode(),
		);
		assert_noop!(call, Error::<Test>::DepositUnavailable);
	});
}

#[test]
fn a_deactivated_record_keeps_its_deposit() {
	test(|| {
		register();
		let before = held();
		assert_ok!(control(ControlAction::DeactivateDid, 0));
		assert_eq!(held(), before);
	});
}

/// Adds the device and takes it away again, `count` calls in all, and answers the counter after them.
fn change_devices(from: u64, count: u64) -> u64 {
	for nonce in from..from + count {
		assert_ok!(control(device(nonce), nonce));
	}
	from + count
}

fn device(nonce: u64) -> ControlAction<Test> {
	let device_id = bytes(b"phone");
	if nonce % 2 == 0 {
		ControlAction::AddDevice { device_id }
	} else {
		ControlAction::RemoveDevice { device_id }
	}
}

/// The block at which the allowance of the DID is whole again.
fn whole_at() -> u64 {
	ProofAllowances::<Test>::get(bytes::<Did<Test>>(DID))
}

#[test]
fn a_did_makes_sixteen_calls_at_once_and_one_more_for_each_hundred_blocks() {
	test(|| {
		register();
		assert_eq!(whole_at(), 0);
		let nonce = change_devices(0, 16);
		assert_eq!(whole_at(), 1 + 1_600);
		assert_noop!(control(device(nonce), nonce), Error::<Test>::TooManyProofs);
		System::set_block_number(100);
		assert_noop!(control(device(nonce), nonce), Error::<Test>::TooManyProofs);
		System::set_block_number(101);
		let nonce = change_devices(nonce, 1);
		assert_noop!(control(device(nonce), nonce), Error::<Test>::TooManyProofs);
		// However long it rests, it does not save up more.
		System::set_block_number(1_000_000);
		let nonce = change_devices(nonce, 16);
		assert_noop!(control(device(nonce), nonce), Error::<Test>::TooManyProofs);
	});
}

#[test]
fn every_kind_of_proof_draws_on_one_allowance() {
	test(|| {
		register();
		let calls: [fn() -> DispatchResult; 4] = [
			|| control(device(0), 0),
			|| {
				let mut payload = document_payload(DocumentAction::RemoveAuthentication, 0);
				payload.id = Some(bytes(&id("k1")));
				let payload = payload.encode();
				let signature = sign(&root(), &payload);
				DidRegistry::remove_authentication(none(), DID.to_vec(), id("k1"), payload, signature, ROOT.to_vec())
			},
			|| {
				let blob = document().encode();
				let tail = (DID.to_vec(), sp_io::hashing::blake2_256(&blob), 1u64, NOW + 1).encode();
				let signature = sign(&root(), &[b"svc:set_document:v2|", &tail[..]].concat());
				let time = format!("v2:1:{}", NOW + 1).into_bytes();
				DidRegistry::set_document_with_proof(none(), DID.to_vec(), blob, time, key_of(&root()), signature)
			},
			|| rotate(0, &root()),
		];
		for (done, call) in calls.into_iter().enumerate() {
			assert_ok!(call());
			assert_eq!(whole_at(), 1 + 100 * (done as u64 + 1));
		}
		// What an account signs is paid for.
		assert_ok!(DidRegistry::set_alias(signed(alice()), DID.to_vec(), b"team".to_vec()));
		assert_eq!(whole_at(), 401);
	});
}

/// Puts the root key in the place of itself.
fn rotate(nonce: u64, signer: &sp_core::ed25519::Pair) -> DispatchResult {
	let key = key_of(&root());
	let payload = RootPubkeyAuthorizationPayload::<Test> {
		did: bytes(DID),
		new_root_pubkey: bytes(&key),
		nonce,
		valid_until: VALID_UNTIL,
		signer_key_id: bytes(ROOT),
	}
	.encode();
	let signature = sign(signer, &payload);
	DidRegistry::update_root_pubkey(none(), DID.to_vec(), key, payload, signature, ROOT.to_vec())
}

#[test]
fn rotation_deactivation_and_deletion_have_calls_in_reserve() {
	test(|| {
		register();
		let nonce = change_devices(0, 16);
		for nonce in 0..3 {
			assert_ok!(rotate(nonce, &root()));
		}
		assert_noop!(control(device(nonce), nonce), Error::<Test>::TooManyProofs);
		assert_ok!(control(ControlAction::DeactivateDid, nonce));
	});
	test(|| {
		register();
		let nonce = change_devices(0, 16);
		for nonce in 0..4 {
			assert_ok!(rotate(nonce, &root()));
		}
		assert_noop!(rotate(4, &root()), Error::<Test>::TooManyProofs);
		assert_noop!(control(ControlAction::DeleteDid, nonce), Error::<Test>::TooManyProofs);
		// Who has no key uses up nothing.
		System::set_block_number(101);
		assert_noop!(rotate(4, &pair(8)), Error::<Test>::InvalidSignature);
		assert_ok!(control(ControlAction::DeleteDid, nonce));
	});
}

#[test]
fn another_registration_begins_another_allowance() {
	test(|| {
		register();
		let nonce = change_devices(0, 15);
		assert_ok!(control(ControlAction::DeleteDid, nonce));
		assert_eq!(ProofAllowances::<Test>::iter().count(), 0);
		register_as(DID, format!("{}", NOW + 1).as_bytes(), &document().encode()).unwrap();
		let nonce = change_devices(nonce + 1, 16);
		assert_noop!(control(device(nonce), nonce), Error::<Test>::TooManyProofs);
	});
}

#[test]
fn longer_arguments_weigh_more() {
	let documents = [0, 1_000, 16_384].map(|length| weights::document::<Test>(length).ref_time());
	assert!(documents.is_sorted() && documents[0] < documents[2]);
	let registrations = [0, 1_000, 16_384].map(|length| weights::registration::<Test>(length).proof_size());
	assert!(registrations.is_sorted() && registrations[0] < registrations[2]);
	// Nothing weighs a tenth of what a block of two seconds may, so that every call fits.
	let most = weights::registration::<Test>(16_384).max(weights::control::<Test>(16_384));
	assert!(most.ref_time() < 150_000_000_000, "{most:?}");
}

#[test]
fn what_does_not_fit_together_is_noticed() {
	type Damage = fn();
	let did = || bytes::<Did<Test>>(DID);
	let damages: [(Damage, &str); 5] = [
		(|| ProofAllowances::<Test>::insert(bytes::<Did<Test>>(OTHER), 1), "an allowance of no record"),
		(|| AliasIndex::<Test>::remove(bytes::<Alias<Test>>(b"team")), "an alias of a record leads elsewhere"),
		(
			|| AliasIndex::<Test>::insert(bytes::<Alias<Test>>(b"more"), bytes::<Did<Test>>(DID)),
			"an alias that its record lacks",
		),
		(|| Deposits::<Test>::remove(bytes::<Did<Test>>(DID)), ""),
		(|| Deposits::<Test>::insert(bytes::<Did<Test>>(OTHER), (alice(), 1)), "a deposit for no record"),
	];
	for (damage, words) in damages {
		test(|| {
			register();
			assert_ok!(DidRegistry::set_alias(signed(alice()), DID.to_vec(), b"team".to_vec()));
			assert_eq!(DidRegistry::do_try_state(), Ok(()));
			let whole = (AliasIndex::<Test>::iter().collect::<Vec<_>>(), Deposits::<Test>::get(did()));
			damage();
			let expected = if words.is_empty() { Ok(()) } else { Err(words.into()) };
			assert_eq!(DidRegistry::do_try_state(), expected);
			AliasIndex::<Test>::remove(bytes::<Alias<Test>>(b"more"));
			AliasIndex::<Test>::insert(bytes::<Alias<Test>>(b"team"), did());
			Deposits::<Test>::remove(bytes::<Did<Test>>(OTHER));
			ProofAllowances::<Test>::remove(bytes::<Did<Test>>(OTHER));
			Deposits::<Test>::set(did(), whole.1);
		});
	}
}

/// The times that `weights.rs` is derived from: `cargo test --release -- --ignored --nocapture times`.
#[test]
#[ignore = "prints times of this machine"]
fn times() {
	fn time(what: &str, mut run: impl FnMut()) {
		let rounds = 200;
		let start = std::time::Instant::now();
		for _ in 0..rounds {
			run();
		}
		println!("{what}: {} ns", start.elapsed().as_nanos() / rounds);
	}
	let (key, blob) = (key_of(&root()), document().encode());
	let signature = sign(&root(), &blob);
	let bytes: [u8; 32] = key.clone().try_into().unwrap();
	time("a signature", || assert!(crate::proofs::verifies(&signature, &blob, &key)));
	time("a point", || assert!(text::is_admissible_key(&bytes)));
	time("a key text", || assert!(method().key().is_some()));
	time("a document decoded and encoded", || {
		let document = <DidDocument<Test> as codec::Decode>::decode(&mut &blob[..]).unwrap();
		assert_eq!(document.encode().len(), blob.len());
	});
	println!("the document has {} bytes, a record at most {}", blob.len(), DidRecord::<Test>::max_encoded_len());
	let long = vec![7; 16_384];
	time("a hash of 16 KiB", || assert_eq!(sp_io::hashing::blake2_256(&long).len(), 32));
}
