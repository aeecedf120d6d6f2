use crate::{mock::*, *};
use codec::Encode;
use frame_support::{assert_noop, assert_ok, dispatch::DispatchResult, BoundedVec};
use sp_core::hashing::blake2_256;
use sp_runtime::DispatchError;

/// The arguments of a registration, each of which a test may spoil.
#[derive(Clone)]
struct Registration {
	did: Vec<u8>,
	alias: Option<Vec<u8>>,
	time: Vec<u8>,
	key: Vec<u8>,
	signature: Option<Vec<u8>>,
	blob: Vec<u8>,
}

impl Registration {
	fn good() -> Self {
		let (did, time) = (DID.to_vec(), TIME.to_vec());
		Self { did, alias: None, time, key: key_of(&root()), signature: None, blob: document().encode() }
	}

	fn v2(expiry_ms: u64) -> Self {
		let good = Self::good();
		let tail =
			(DID.to_vec(), good.alias.clone(), key_of(&root()), blake2_256(&good.blob), 0u64, expiry_ms).encode();
		let signature = sign(&root(), &[b"svc:register:v2|", &tail[..]].concat());
		Self { time: format!("v2:0:{expiry_ms}").into_bytes(), signature: Some(signature), ..good }
	}

	fn signature(&self) -> Vec<u8> {
		self.signature.clone().unwrap_or_else(|| v1_registration(&self.did, &self.time))
	}

	fn submit(&self, origin: RuntimeOrigin) -> DispatchResult {
		let Self { did, alias, time, key, blob, .. } = self.clone();
		DidRegistry::register_with_document_proof_signed(origin, did, alias, time, key, self.signature(), blob)
	}

	fn submit_bare(&self, origin: RuntimeOrigin) -> DispatchResult {
		let Self { did, alias, time, key, .. } = self.clone();
		DidRegistry::register_with_proof(origin, did, alias, time, key, self.signature())
	}
}

fn spoiled(spoil: impl FnOnce(&mut Registration)) -> Registration {
	let mut registration = Registration::good();
	spoil(&mut registration);
	registration
}

#[test]
fn a_registration_makes_the_first_version_of_a_record() {
	test(|| {
		assert_ok!(Registration::good().submit(signed(alice())));
		let record = record(DID);
		assert_eq!((record.owner, record.version, record.updated_at), (Some(alice()), 1, NOW));
		assert_eq!(record.document, Some(document()));
		assert_eq!(record.root_pubkey.unwrap().to_vec(), key_of(&root()));
		assert_eq!((record.aliases, record.devices, record.delivery_policy_links), (None, None, None));
		assert!(!record.deactivated);
		assert_eq!(counters(), [0; 4]);
		assert_eq!(events(), [Event::Registered(bytes(DID), Some(alice())), Event::DocumentSet(bytes(DID))]);
	});
}

#[test]
fn the_signing_account_becomes_the_owner() {
	test(|| {
		assert_ok!(Registration::good().submit(signed(alice())));
		assert_eq!(record(DID).owner, Some(alice()));
		assert_eq!(events()[0], Event::Registered(bytes(DID), Some(alice())));
	});
}

#[test]
fn every_refusal_in_its_order() {
	test(|| {
		type Spoil = fn(&mut Registration);
		// Each case keeps the flaws of the cases after it out, and some have a later flaw as well.
		let cases: [(&str, Spoil, Error<Test>); 18] = [
			("short key", |r| r.key = vec![1; 31], Error::InvalidSignature),
			("long key", |r| r.key = vec![1; 33], Error::InvalidSignature),
			("short signature", |r| r.signature = Some(vec![1; 63]), Error::InvalidSignature),
			("long DID", |r| (r.did, r.time) = (vec![b'1'; 129], vec![]), Error::DidTooLong),
			("malformed DID", |r| (r.did, r.time) = (b"did:svc:1".to_vec(), vec![]), Error::InvalidDidFormat),
			("other method", |r| r.did = b"did:web:1111111111111111".to_vec(), Error::InvalidDidFormat),
			("no time", |r| r.time = b"soon".to_vec(), Error::InvalidProofTimestamp),
			("counter in a v2 time", |r| r.time = format!("v2:1:{}", NOW + 1).into(), Error::InvalidProofTimestamp),
			("expired v2", |r| r.time = format!("v2:0:{NOW}").into(), Error::RegistrationExpired),
			("v2 too far ahead", |r| r.time = format!("v2:0:{}", NOW + 3_600_001).into(), Error::ProofTooFarAhead),
			("v1 from the future", |r| r.time = (NOW + 300_001).to_string().into(), Error::ProofTooFarAhead),
			("small-order key", |r| (r.key, r.signature) = (vec![0; 32], Some(vec![1; 64])), Error::InvalidRootPubkey),
			("wrong signature", |r| (r.signature, r.blob) = (Some(vec![1; 64]), vec![]), Error::InvalidSignature),
			("other key", |r| r.key = key_of(&pair(8)), Error::InvalidSignature),
			("no document", |r| r.blob = vec![], Error::InvalidDocument),
			("trailing byte", |r| r.blob.push(0), Error::InvalidDocument),
			("long blob", |r| r.blob = vec![0; 16_385], Error::InvalidDocument),
			(
				"document of another DID",
				|r| r.blob = DidDocument::<Test>::empty(bytes(OTHER)).encode(),
				Error::InvalidDocument,
			),
		];
		for (name, spoil, error) in cases {
			let error = sp_runtime::DispatchError::from(error);
			let before = sp_io::storage::root(sp_core::storage::StateVersion::V1);
			let result = frame_support::storage::with_storage_layer(|| spoiled(spoil).submit(signed(alice())));
			assert_eq!(result, Err(error), "{name}");
			assert_eq!(before, sp_io::storage::root(sp_core::storage::StateVersion::V1), "{name}");
		}
	});
}

#[test]
fn a_did_is_registered_once() {
	test(|| {
		register();
		assert_noop!(Registration::good().submit(signed(alice())), Error::<Test>::DidAlreadyExists);
		let other_key = spoiled(|r| r.signature = Some(vec![0; 64]));
		assert_noop!(other_key.submit(signed(alice())), Error::<Test>::DidAlreadyExists);
	});
}

#[test]
fn version_2_binds_document_alias_and_expiry() {
	test(|| {
		let good = Registration::v2(NOW + 300_000);
		let mut other_alias = good.clone();
		other_alias.alias = Some(b"team".to_vec());
		assert_noop!(other_alias.submit(signed(alice())), Error::<Test>::InvalidSignature);
		let mut other_document = good.clone();
		other_document.blob = DidDocument::<Test>::empty(bytes(DID)).encode();
		assert_noop!(other_document.submit(signed(alice())), Error::<Test>::InvalidSignature);
		let mut other_expiry = good.clone();
		other_expiry.time = format!("v2:0:{}", NOW + 300_001).into();
		assert_noop!(other_expiry.submit(signed(alice())), Error::<Test>::InvalidSignature);
		assert_ok!(good.submit(signed(alice())));
		assert_eq!(DocumentTimes::<Test>::get(bytes::<Did<Test>>(DID)), NOW);
		assert_eq!(RegistrationExpiries::<Test>::get(bytes::<Did<Test>>(DID)), NOW + 300_000);
	});
}

#[test]
fn version_2_signs_the_alias_in_normal_form() {
	test(|| {
		let expiry = NOW + 3_600_000;
		let mut registration = Registration::v2(expiry);
		let tail =
			(DID.to_vec(), Some(b"team".to_vec()), key_of(&root()), blake2_256(&registration.blob), 0u64, expiry);
		registration.signature = Some(sign(&root(), &[b"svc:register:v2|", &tail.encode()[..]].concat()));
		registration.alias = Some(b" Team ".to_vec());
		assert_ok!(registration.submit(signed(alice())));
		assert_eq!(record(DID).aliases.unwrap().to_vec(), vec![bytes::<Alias<Test>>(b"team")]);
	});
	test(|| {
		// No one can have signed an alias that has no normal form.
		let mut registration = Registration::v2(NOW + 1);
		registration.alias = Some(b"a b".to_vec());
		assert_noop!(registration.submit(signed(alice())), Error::<Test>::InvalidSignature);
	});
}

#[test]
fn a_proof_does_not_work_again_after_a_deletion() {
	test(|| {
		let v2 = Registration::v2(NOW + 300_000);
		assert_ok!(v2.submit(signed(alice())));
		assert_ok!(control(ControlAction::DeleteDid, 0));
		assert_noop!(v2.submit(signed(alice())), Error::<Test>::DocumentStale);
		// A version 1 proof from before the version 2 registration is dead too.
		assert_noop!(Registration::good().submit(signed(alice())), Error::<Test>::DocumentStale);
		let later = spoiled(|r| r.time = (NOW + 1).to_string().into());
		assert_ok!(later.submit(signed(alice())));
		assert_ok!(control(ControlAction::DeleteDid, 1));
		assert_noop!(later.submit(signed(alice())), Error::<Test>::DocumentStale);
		assert_ok!(Registration::v2(NOW + 300_001).submit(signed(alice())));
		assert_eq!(counters(), [0, 0, 0, 2]);
	});
}

#[test]
fn a_wrong_alias_does_not_fail_the_registration() {
	test(|| {
		assert_ok!(spoiled(|r| r.alias = Some(b"Team ".to_vec())).submit(signed(alice())));
		let (did, alias) = (|| bytes(DID), bytes(b"team"));
		let expected =
			[Event::Registered(did(), Some(alice())), Event::DocumentSet(did()), Event::AliasSet(did(), alias)];
		assert_eq!(events(), expected);
		let registration = Registration {
			did: OTHER.to_vec(),
			alias: Some(b"team".to_vec()),
			blob: DidDocument::<Test>::empty(bytes(OTHER)).encode(),
			..Registration::good()
		};
		assert_ok!(registration.submit(signed(alice())));
		assert_eq!(last_event(), Event::AliasConflict(bytes(OTHER), bytes(b"team")));
		assert_eq!(record(OTHER).aliases, None);
		assert_eq!(AliasIndex::<Test>::get(bytes::<Alias<Test>>(b"team")), Some(bytes(DID)));
	});
	for alias in [b"a b".to_vec(), vec![b'a'; 65], vec![]] {
		test(|| {
			assert_ok!(spoiled(|r| r.alias = Some(alias)).submit(signed(alice())));
			assert_eq!(last_event(), Event::AliasInvalid(bytes(DID)));
			assert_eq!(record(DID).aliases, None);
		});
	}
}

#[test]
fn a_bare_registration_has_an_owner_and_no_document() {
	test(|| {
		assert_ok!(spoiled(|r| r.alias = Some(b"team".to_vec())).submit_bare(signed(bob())));
		assert_eq!((record(DID).owner, record(DID).document), (Some(bob()), None));
		assert_eq!(record(DID).aliases.map(BoundedVec::into_inner), Some(vec![bytes(b"team")]));
	});
}

#[test]
fn every_refusal_of_a_bare_registration() {
	test(|| {
		type Spoil = fn(&mut Registration);
		let cases: [(Spoil, Error<Test>); 9] = [
			(|r| (r.key, r.signature) = (vec![1; 31], Some(vec![])), Error::InvalidRootPubkey),
			(|r| r.signature = Some(vec![1; 65]), Error::InvalidSignature),
			(|r| r.key = vec![0; 32], Error::InvalidRootPubkey),
			(|r| r.did = vec![b'1'; 129], Error::DidTooLong),
			(|r| r.did = b"did:svc:1".to_vec(), Error::InvalidDidFormat),
			(|r| r.time = b"".to_vec(), Error::InvalidProofTimestamp),
			(|r| r.signature = Some(vec![1; 64]), Error::InvalidSignature),
			(|r| r.alias = Some(b"a b".to_vec()), Error::InvalidAlias),
			(|r| r.alias = Some(vec![b'a'; 65]), Error::AliasTooLong),
		];
		for (spoil, error) in cases {
			let result = frame_support::storage::with_storage_layer(|| spoiled(spoil).submit_bare(signed(alice())));
			assert_eq!(result, Err(error.into()));
		}
		assert_ok!(spoiled(|r| r.alias = Some(b"team".to_vec())).submit_bare(signed(alice())));
		let again = spoiled(|r| (r.did, r.alias) = (OTHER.to_vec(), Some(b"team".to_vec())));
		let result = frame_support::storage::with_storage_layer(|| again.submit_bare(signed(alice())));
		assert_eq!(result, Err(Error::<Test>::AliasTaken.into()));
		assert_noop!(Registration::good().submit_bare(signed(alice())), Error::<Test>::DidAlreadyExists);
	});
}

#[test]
fn nobody_registers_without_an_account() {
	test(|| {
		assert_noop!(Registration::good().submit(none()), DispatchError::BadOrigin);
		assert_noop!(Registration::good().submit_bare(none()), DispatchError::BadOrigin);
		let authorized = || frame_system::RawOrigin::Authorized.into();
		assert_noop!(Registration::good().submit(authorized()), DispatchError::BadOrigin);
	});
}
