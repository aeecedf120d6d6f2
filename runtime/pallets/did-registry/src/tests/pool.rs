//! What enters the pool, and under which key, priority and life.

use crate::{mock::*, *};
use codec::Encode;
use frame_support::assert_ok;
use sp_core::hashing::blake2_256;
use sp_runtime::transaction_validity::{InvalidTransaction, TransactionValidityError};

fn refused(error: Error<Test>) -> Result<(), TransactionValidityError> {
	let sp_runtime::DispatchError::Module(module) = error.into() else { unreachable!() };
	Err(InvalidTransaction::Custom(module.error[0]).into())
}

fn bad_proof() -> Result<(), TransactionValidityError> {
	Err(InvalidTransaction::BadProof.into())
}

fn remove_authentication(nonce: u64) -> Call<Test> {
	let mut payload = document_payload(DocumentAction::RemoveAuthentication, nonce);
	payload.id = Some(bytes(&id("k1")));
	let signed_payload = payload.encode();
	let signature = sign(&root(), &signed_payload);
	Call::remove_authentication {
		did: DID.to_vec(),
		method_id: id("k1"),
		signed_payload,
		signature,
		signer_key_id: ROOT.to_vec(),
	}
}

fn add_agreement(nonce: u64) -> Call<Test> {
	let mut payload = document_payload(DocumentAction::AddKeyAgreement, nonce);
	payload.key_agreement = Some(agreement("x25519-1"));
	let signed_payload = payload.encode();
	let signature = sign(&root(), &signed_payload);
	Call::add_key_agreement {
		did: DID.to_vec(),
		key_agreement: agreement("x25519-1"),
		signed_payload,
		signature,
		signer_key_id: ROOT.to_vec(),
	}
}

#[test]
fn no_registration_enters_without_an_account() {
	use frame_support::{pallet_prelude::TransactionSource, traits::Authorize};
	test(|| {
		let call = Call::<Test>::register_with_document_proof_signed {
			did: DID.to_vec(),
			alias: None,
			timestamp: TIME.to_vec(),
			pubkey: key_of(&root()),
			signature: v1_registration(DID, TIME),
			doc_blob: document().encode(),
		};
		assert!(call.authorize(TransactionSource::External).is_none());
		let call = Call::<Test>::register_with_proof {
			did: DID.to_vec(),
			alias: None,
			timestamp: TIME.to_vec(),
			pubkey: key_of(&root()),
			signature: v1_registration(DID, TIME),
		};
		assert!(call.authorize(TransactionSource::External).is_none());
	});
}

#[test]
fn a_rotation_goes_before_a_document_and_both_before_an_extrinsic_without_a_tip_and_that_before_an_alias() {
	// The most extrinsics that a block can hold: of 100 bytes each, or of the cheapest call's weight.
	let by_length = 5 * 1024 * 1024 * 3 / 4 / 100;
	let order = [priority::ROTATION, priority::CONTROL, priority::DOCUMENT, priority::POLICY, by_length];
	assert!(order.windows(2).all(|pair| pair[0] > pair[1]), "{order:?}");
	// Anyone who names an alias in a registration pays for it. The largest registration has the lowest priority.
	let largest = 5 * 1024 * 1024 * 3 / 4 / 17_000;
	assert!(priority::ALIAS < largest);
}

#[test]
fn a_document_is_verified_before_it_enters() {
	test(|| {
		register();
		let blob = document().encode();
		let call = |time: &[u8], signature| Call::set_document_with_proof {
			did: DID.to_vec(),
			doc_blob: blob.clone(),
			timestamp: time.to_vec(),
			pubkey: key_of(&root()),
			signature,
		};
		let time = (TIME_MS + 1).to_string().into_bytes();
		let message = [b"svc:set_document:v1|", DID, b"|", &blake2_256(&blob), b"|", &time].concat();
		let validity = admit(call(&time, sign(&root(), &message))).unwrap();
		assert_eq!((validity.priority, validity.longevity), (priority::DOCUMENT, 64));
		assert_eq!(admit(call(&time, vec![1; 64])).map(|_| ()), bad_proof());
		assert_eq!(admit(call(TIME, vec![1; 64])).map(|_| ()), refused(Error::DocumentStale));

		// A version 2 document takes the same place in the pool as a component update.
		let tail = (DID.to_vec(), blake2_256(&blob), 0u64, NOW + 1).encode();
		let signature = sign(&root(), &[b"svc:set_document:v2|", &tail[..]].concat());
		let whole = admit(call(format!("v2:0:{}", NOW + 1).as_bytes(), signature)).unwrap();
		assert_eq!(whole.provides, admit(add_agreement(0)).unwrap().provides);
	});
}

#[test]
fn updates_with_one_nonce_collide_and_others_do_not() {
	test(|| {
		register();
		let (one, two) = (admit(remove_authentication(0)).unwrap(), admit(add_agreement(0)).unwrap());
		assert_eq!((one.priority, one.longevity, one.propagate), (priority::DOCUMENT, 64, true));
		assert_eq!(one.provides, two.provides);
		assert_ok!(DidRegistry::do_own(alice(), DID, ControlAction::ClearDeliveryPolicyLinks));
		let control = control_payload(ControlAction::DeactivateDid, 0).encode();
		let call = Call::apply_control_with_proof {
			signature: sign(&root(), &control),
			signed_payload: control,
			signer_key_id: ROOT.to_vec(),
		};
		let control = admit(call).unwrap();
		assert_eq!(control.priority, priority::CONTROL);
		assert_ne!(control.provides, one.provides);
	});
}

#[test]
fn of_two_calls_that_take_one_alias_one_stays_in_the_pool() {
	test(|| {
		register();
		register_as(OTHER, TIME, &DidDocument::<Test>::empty(bytes(OTHER)).encode()).unwrap();
		let payload = |did: &[u8], [alias, old_alias, new_alias]: [Option<&[u8]>; 3]| {
			AliasAuthorizationPayload::<Test> {
				did: bytes(did),
				action: if alias.is_some() { AliasAction::Add } else { AliasAction::Update },
				alias: alias.map(bytes),
				old_alias: old_alias.map(bytes),
				new_alias: new_alias.map(bytes),
				nonce: AliasNonces::<Test>::get(bytes::<Did<Test>>(did)),
				valid_until: VALID_UNTIL,
				signer_key_id: bytes(ROOT),
			}
			.encode()
		};
		let add = |did: &[u8], alias: &[u8], text: &[u8]| {
			let signed_payload = payload(did, [Some(alias), None, None]);
			let signature = sign(&root(), &signed_payload);
			let (did, alias, signer_key_id) = (did.to_vec(), text.to_vec(), ROOT.to_vec());
			Call::add_alias { did, alias, signed_payload, signature, signer_key_id }
		};
		let tags = |call| admit(call).unwrap().provides;
		let shared = |one: Vec<Vec<u8>>, two: Vec<Vec<u8>>| one.iter().filter(|tag| two.contains(tag)).count();
		assert_eq!(shared(tags(add(DID, b"bank", b"bank")), tags(add(OTHER, b"bank", b" Bank "))), 1);
		assert_eq!(shared(tags(add(DID, b"bank", b"bank")), tags(add(OTHER, b"shop", b"shop"))), 0);
		// Calls with one counter value collide too.
		assert_eq!(shared(tags(add(DID, b"bank", b"bank")), tags(add(DID, b"shop", b"shop"))), 1);
		assert_ok!(DidRegistry::set_alias(signed(alice()), OTHER.to_vec(), b"old".to_vec()));
		let signed_payload = payload(OTHER, [None, Some(b"old"), Some(b"bank")]);
		let rename = Call::update_alias {
			did: OTHER.to_vec(),
			old_alias: b"old".to_vec(),
			new_alias: b"bank".to_vec(),
			signature: sign(&root(), &signed_payload),
			signed_payload,
			signer_key_id: ROOT.to_vec(),
		};
		assert_eq!(shared(tags(add(DID, b"bank", b"bank")), tags(rename)), 1);
	});
}

#[test]
fn refusals_say_which_error() {
	test(|| {
		assert_eq!(admit(add_agreement(0)).map(|_| ()), refused(Error::DidNotFound));
		register();
		assert_eq!(admit(add_agreement(1)).map(|_| ()), refused(Error::InvalidDocumentNonce));
		let Call::add_key_agreement { did, key_agreement, signed_payload, signer_key_id, .. } = add_agreement(0) else {
			unreachable!()
		};
		let forged =
			Call::add_key_agreement { did, key_agreement, signed_payload, signature: vec![1; 64], signer_key_id };
		assert_eq!(admit(forged).map(|_| ()), bad_proof());
		// A rule of the operation itself, not of the authorization.
		let mut payload = document_payload(DocumentAction::RemoveVerificationMethod, 0);
		payload.id = Some(bytes(&id("k1")));
		let signed_payload = payload.encode();
		let call = Call::remove_verification_method {
			did: DID.to_vec(),
			method_id: id("k1"),
			signature: sign(&root(), &signed_payload),
			signed_payload,
			signer_key_id: ROOT.to_vec(),
		};
		assert_eq!(admit(call).map(|_| ()), refused(Error::VerificationMethodInUse));
		let call = Call::apply_control_with_proof { signed_payload: vec![1], signature: vec![], signer_key_id: vec![] };
		assert_eq!(admit(call).map(|_| ()), refused(Error::InvalidControlPayload));
		set_time(VALID_UNTIL);
		assert_eq!(admit(add_agreement(0)).map(|_| ()), refused(Error::DocumentAuthorizationExpired));
	});
}

#[test]
fn a_call_beyond_the_allowance_does_not_enter() {
	test(|| {
		register();
		assert_ok!(admit(add_agreement(0)).map(|_| ()));
		for _ in 0..16 {
			DidRegistry::spend(&bytes(DID), Allowance::Common).unwrap();
		}
		assert_eq!(admit(add_agreement(0)).map(|_| ()), refused(Error::TooManyProofs));
		// Looking at a call uses up nothing.
		System::set_block_number(101);
		for _ in 0..3 {
			assert_ok!(admit(add_agreement(0)).map(|_| ()));
		}
	});
}

#[test]
fn calls_of_accounts_bring_no_proof() {
	use frame_support::{pallet_prelude::TransactionSource, traits::Authorize};
	test(|| {
		let call = Call::<Test>::deactivate_did { did: DID.to_vec() };
		assert!(call.authorize(TransactionSource::External).is_none());
	});
}
