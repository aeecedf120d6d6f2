//! What writing for good costs, and that it is given back.

use crate::{mock::*, weights, *};
use codec::{Encode, MaxEncodedLen};
use frame_support::{assert_noop, assert_ok, traits::fungible::InspectHold};

fn held() -> u64 {
	Balances::balance_on_hold(&HoldReason::Registration.into(), &alice())
}

#[test]
fn a_record_holds_a_deposit_from_its_owner_until_it_is_deleted() {
	test(|| {
		let deposit = 10_000 + DidRecord::<Test>::max_encoded_len() as u64;
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
	let damages: [(Damage, &str); 4] = [
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
