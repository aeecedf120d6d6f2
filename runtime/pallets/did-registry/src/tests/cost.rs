//! What writing for good costs, and that it is given back.

use crate::{mock::*, *};
use codec::{Encode, MaxEncodedLen};
use frame_support::{
	assert_noop, assert_ok,
	dispatch::{DispatchResult, GetDispatchInfo},
	storage::with_storage_layer,
	traits::{fungible::InspectHold, Authorize},
	weights::Weight,
};
use sp_runtime::AccountId32;

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

fn reclaim(who: AccountId32, did: &[u8]) -> DispatchResult {
	with_storage_layer(|| DidRegistry::reclaim_deposit(signed(who), did.to_vec()))
}

#[test]
fn the_deposit_of_a_deactivated_did_comes_back_and_its_name_stays_taken() {
	test(|| {
		register();
		assert_ok!(DidRegistry::set_alias(signed(alice()), DID.to_vec(), b"team".to_vec()));
		assert_ok!(control(ControlAction::DeactivateDid, 0));
		assert_eq!(held(), DidRegistry::deposit());
		assert_noop!(reclaim(bob(), DID), Error::<Test>::NotDidOwner);
		assert_noop!(reclaim(alice(), b"unknown"), Error::<Test>::DidNotFound);
		assert_ok!(reclaim(alice(), DID));
		assert_eq!(held(), 0);
		assert_eq!(last_event(), Event::DepositReturned(bytes(DID), alice()));
		let left = record(DID);
		assert!(left.deactivated);
		assert_eq!((left.aliases, left.devices, left.document), (None, None, None));
		assert_eq!((left.delivery_policy_links, left.version), (None, 4));
		// As large as what a deletion leaves in counters and times.
		assert!(record(DID).encoded_size() < 128);
		assert!(!AliasIndex::<Test>::contains_key(bytes::<Alias<Test>>(b"team")));
		assert!(ReleasedAliases::<Test>::contains_key(bytes::<Alias<Test>>(b"team")));
		assert_noop!(reclaim(alice(), DID), Error::<Test>::NotDidOwner);
		let again = register_as(DID, (TIME_MS + 1).to_string().as_bytes(), &document().encode());
		assert_eq!(again, Err(Error::<Test>::DidAlreadyExists.into()));
	});
}

#[test]
fn the_deposit_of_a_did_that_was_given_up_comes_back_after_its_silence() {
	test(|| {
		register();
		assert_noop!(reclaim(alice(), DID), Error::<Test>::DidInUse);
		set_time(NOW + 5_000_000);
		// A change by its keys shows that it is in use.
		assert_ok!(control(ControlAction::AddDevice { device_id: bytes(b"phone") }, 0));
		set_time(NOW + 14_999_999);
		assert_noop!(reclaim(alice(), DID), Error::<Test>::DidInUse);
		set_time(NOW + 15_000_000);
		assert_ok!(reclaim(alice(), DID));
		assert_eq!((held(), record(DID).deactivated), (0, true));
		let ended = [Event::DidDeactivated(bytes(DID)), Event::DepositReturned(bytes(DID), alice())];
		assert!(events().ends_with(&ended));
		let late = control(ControlAction::RemoveDevice { device_id: bytes(b"phone") }, 1);
		assert_eq!(late, Err(Error::<Test>::DidDeactivated.into()));
	});
}

fn held_of(who: &AccountId32) -> u64 {
	Balances::balance_on_hold(&HoldReason::Registration.into(), who)
}

fn adopt(who: AccountId32, named: AccountId32, nonce: u64) -> DispatchResult {
	let payload = control_payload(ControlAction::ChangeOwner { owner: named }, nonce).encode();
	let signature = sign_v3(&root(), Domain::Control, &payload);
	with_storage_layer(|| DidRegistry::adopt(signed(who), payload, signature, ROOT.to_vec()))
}

#[test]
fn an_owner_gives_the_record_away_with_its_deposit() {
	test(|| {
		register();
		let deposit = DidRegistry::deposit();
		let change = |who, owner| with_storage_layer(|| DidRegistry::change_owner(signed(who), DID.to_vec(), owner));
		assert_noop!(change(bob(), bob()), Error::<Test>::NotDidOwner);
		// The deposit can't go where no account is.
		assert_noop!(change(alice(), AccountId32::new([9; 32])), Error::<Test>::DepositUnavailable);
		assert_ok!(change(alice(), bob()));
		assert_eq!(last_event(), Event::OwnerChanged(bytes(DID), bob()));
		assert_eq!((record(DID).owner, held_of(&alice()), held_of(&bob())), (Some(bob()), 0, deposit));
		assert_noop!(change(alice(), alice()), Error::<Test>::NotDidOwner);
		assert_ok!(change(bob(), bob()));
		assert_eq!(held_of(&bob()), deposit);
		assert_ok!(control(ControlAction::DeleteDid, 0));
		assert_eq!((held_of(&bob()), Balances::free_balance(bob())), (0, MONEY + deposit));
	});
}

#[test]
fn the_keys_of_a_did_choose_its_owner_who_must_agree() {
	test(|| {
		register();
		let deposit = DidRegistry::deposit();
		assert_noop!(adopt(bob(), alice(), 0), Error::<Test>::InvalidControlPayload);
		assert_noop!(adopt(bob(), bob(), 1), Error::<Test>::InvalidControlNonce);
		let poor = AccountId32::new([9; 32]);
		assert_noop!(adopt(poor.clone(), poor, 0), Error::<Test>::DepositUnavailable);
		assert_ok!(adopt(bob(), bob(), 0));
		assert_eq!((record(DID).owner, held_of(&alice()), held_of(&bob())), (Some(bob()), 0, deposit));
		assert_eq!(counters(), [0, 0, 0, 1]);
		assert_noop!(adopt(bob(), bob(), 0), Error::<Test>::InvalidControlNonce);
		// No one pays for a control call without an account, so it changes no owner.
		let free = control(ControlAction::ChangeOwner { owner: alice() }, 1);
		assert_eq!(free, Err(Error::<Test>::InvalidControlPayload.into()));
		assert_eq!(record(DID).owner, Some(bob()));
		let payload = control_payload(ControlAction::ChangeOwner { owner: alice() }, 1).encode();
		let forged = DidRegistry::adopt(signed(alice()), payload.clone(), sign(&pair(8), &payload), ROOT.to_vec());
		assert_eq!(forged, Err(Error::<Test>::InvalidSignature.into()));
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

/// As the pool and a block count it: the call, and what it takes to look at its proof.
fn weight(call: Call<Test>) -> Weight {
	let info = call.get_dispatch_info();
	info.call_weight.saturating_add(call.weight_of_authorize())
}

#[test]
fn longer_arguments_weigh_more() {
	let (did, timestamp, pubkey, signature) = (DID.to_vec(), TIME.to_vec(), key_of(&root()), vec![0; 64]);
	let registration = |doc_blob| {
		let (did, timestamp, pubkey, signature) = (did.clone(), timestamp.clone(), pubkey.clone(), signature.clone());
		Call::register_with_document_proof_signed { did, alias: None, timestamp, pubkey, signature, doc_blob }
	};
	let document = |doc_blob| {
		let (did, timestamp, pubkey, signature) = (did.clone(), timestamp.clone(), pubkey.clone(), signature.clone());
		Call::set_document_with_proof { did, doc_blob, timestamp, pubkey, signature }
	};
	let addition = |signed_payload| Call::add_service {
		did: did.clone(),
		service: service("cache"),
		signed_payload,
		signature: signature.clone(),
		signer_key_id: ROOT.to_vec(),
	};
	let control = |signed_payload| Call::apply_control_with_proof {
		signed_payload,
		signature: signature.clone(),
		signer_key_id: ROOT.to_vec(),
	};
	let calls: [&dyn Fn(Vec<u8>) -> Call<Test>; 4] = [&registration, &document, &addition, &control];
	for call in calls {
		let weights = [0, 100, 1_000, 16_384].map(|length| weight(call(vec![0; length])).ref_time());
		assert!(weights.is_sorted() && weights[0] < weights[3], "{weights:?}");
		// Nothing weighs a tenth of what a block of two seconds may, so that every call fits.
		assert!(weights[0] > 100_000_000 && weights[3] < 150_000_000_000, "{weights:?}");
	}
	let [deletion, other] = [ControlAction::DeleteDid, ControlAction::DeactivateDid]
		.map(|action| weight(control(control_payload(action, 0).encode())).ref_time());
	assert!(deletion > other && deletion < 150_000_000_000, "{deletion} {other}");
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
