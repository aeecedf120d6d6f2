use crate::{mock::*, *};
use codec::Encode;
use frame_support::{assert_noop, assert_ok, dispatch::DispatchResult, storage::with_storage_layer};
use sp_core::hashing::blake2_256;

fn v1(blob: &[u8], time: &[u8]) -> DispatchResult {
	v1_with(DID, blob, time, key_of(&root()), None)
}

fn v1_with(did: &[u8], blob: &[u8], time: &[u8], key: Vec<u8>, signature: Option<Vec<u8>>) -> DispatchResult {
	let message = [b"svc:set_document:v1|", did, b"|", &blake2_256(blob), b"|", time].concat();
	let signature = signature.unwrap_or_else(|| sign(&root(), &message));
	with_storage_layer(|| {
		DidRegistry::set_document_with_proof(none(), did.to_vec(), blob.to_vec(), time.to_vec(), key, signature)
	})
}

fn v2(blob: &[u8], nonce: u64, expiry_ms: u64) -> DispatchResult {
	let tail = (DID.to_vec(), blake2_256(blob), nonce, expiry_ms).encode();
	let signature = sign(&root(), &[b"svc:set_document:v2|", &tail[..]].concat());
	let time = format!("v2:{nonce}:{expiry_ms}").into_bytes();
	with_storage_layer(|| {
		DidRegistry::set_document_with_proof(none(), DID.to_vec(), blob.to_vec(), time, key_of(&root()), signature)
	})
}

fn empty() -> Vec<u8> {
	DidDocument::<Test>::empty(bytes(DID)).encode()
}

fn later(ms: u64) -> Vec<u8> {
	(TIME_MS + ms).to_string().into_bytes()
}

fn document_time() -> u64 {
	DocumentTimes::<Test>::get(bytes::<Did<Test>>(DID))
}

#[test]
fn a_v1_proof_replaces_the_document_and_uses_up_its_time() {
	test(|| {
		register();
		set_time(NOW + 6_000);
		assert_ok!(v1(&empty(), &later(1)));
		let record = record(DID);
		assert_eq!(record.document, Some(DidDocument::empty(bytes(DID))));
		assert_eq!((record.version, record.updated_at), (2, NOW + 6_000));
		assert_eq!(counters(), [0; 4]);
		assert_eq!(document_time(), TIME_MS + 1);
		assert_eq!(last_event(), Event::DocumentSet(bytes(DID)));
		assert_noop!(v1(&document().encode(), &later(1)), Error::<Test>::DocumentStale);
		assert_noop!(v1(&document().encode(), &later(0)), Error::<Test>::DocumentStale);
		assert_ok!(v1(&document().encode(), &later(2)));
	});
}

#[test]
fn the_time_of_the_registration_counts() {
	test(|| {
		register();
		assert_eq!(document_time(), TIME_MS);
		assert_noop!(v1(&empty(), TIME), Error::<Test>::DocumentStale);
	});
}

#[test]
fn a_v2_proof_uses_up_the_document_counter_and_ends_older_v1_proofs() {
	test(|| {
		register();
		assert_noop!(v2(&empty(), 1, NOW + 1), Error::<Test>::InvalidDocumentNonce);
		assert_noop!(v2(&empty(), 0, NOW), Error::<Test>::DocumentAuthorizationExpired);
		assert_noop!(v2(&empty(), 0, NOW + 3_600_001), Error::<Test>::ProofTooFarAhead);
		assert_ok!(v2(&empty(), 0, NOW + 3_600_000));
		assert_eq!(counters(), [1, 0, 0, 0]);
		assert_eq!(document_time(), NOW);
		assert_noop!(v2(&empty(), 0, NOW + 3_600_000), Error::<Test>::InvalidDocumentNonce);
		assert_noop!(v1(&document().encode(), &later(2)), Error::<Test>::DocumentStale);
	});
}

#[test]
fn the_document_time_never_goes_back() {
	test(|| {
		register();
		let ahead = (NOW + 60_000).to_string().into_bytes();
		assert_ok!(v1(&document().encode(), &ahead));
		assert_ok!(v2(&empty(), 0, NOW + 1));
		assert_noop!(v1(&document().encode(), &ahead), Error::<Test>::DocumentStale);
	});
}

#[test]
fn every_refusal_of_a_document_proof() {
	test(|| {
		register();
		let (good, root_key) = (document().encode(), key_of(&root()));
		let long = vec![b'1'; 129];
		let some = Some(vec![1; 64]);
		let cases: [(DispatchResult, Error<Test>); 9] = [
			(v1_with(DID, &good, &later(1), vec![1; 31], None), Error::InvalidSignature),
			(v1_with(DID, &good, &later(1), root_key.clone(), Some(vec![1; 63])), Error::InvalidSignature),
			(v1_with(&long, &good, &later(1), root_key.clone(), None), Error::DidTooLong),
			(v1_with(DID, &good, b"soon", root_key.clone(), None), Error::InvalidProofTimestamp),
			// A bad document before an unknown DID, a stale time or a wrong signature.
			(v1_with(OTHER, &[], &later(0), root_key.clone(), some.clone()), Error::InvalidDocument),
			(
				v1_with(
					OTHER,
					&DidDocument::<Test>::empty(bytes(OTHER)).encode(),
					&later(0),
					root_key.clone(),
					some.clone(),
				),
				Error::DidNotFound,
			),
			(v1_with(DID, &good, &later(0), root_key.clone(), some.clone()), Error::DocumentStale),
			(v1_with(DID, &good, &later(1), root_key, some), Error::InvalidSignature),
			(v1_with(DID, &good, &later(1), key_of(&pair(8)), None), Error::InvalidSignature),
		];
		for (at, (result, error)) in cases.into_iter().enumerate() {
			assert_eq!(result, Err(error.into()), "case {at}");
		}
		assert_eq!(record(DID).version, 1);
		assert_eq!(document_time(), TIME_MS);
		assert_ok!(control(ControlAction::DeactivateDid, 0));
		assert_noop!(v1(&good, &later(1)), Error::<Test>::DidDeactivated);
	});
}

#[test]
fn a_method_of_the_document_does_not_sign_whole_documents() {
	test(|| {
		let other = pair(8);
		let mut standing = document();
		standing.verification_method[0].public_key_multibase = bytes(&multibase_of(&other));
		register_as(DID, TIME, &standing.encode()).unwrap();
		let message = [b"svc:set_document:v1|", DID, b"|", &blake2_256(&empty()), b"|", &later(1)].concat();
		let result = v1_with(DID, &empty(), &later(1), key_of(&other), Some(sign(&other, &message)));
		assert_noop!(result, Error::<Test>::InvalidSignature);
	});
}

#[test]
fn the_owner_sets_documents_of_a_did_without_a_root_key() {
	test(|| {
		register();
		without_key(DID);
		assert_ok!(DidRegistry::set_document(signed(alice()), DID.to_vec(), empty()));
		assert_eq!(record(DID).document, Some(DidDocument::empty(bytes(DID))));
		assert_eq!(last_event(), Event::DocumentSet(bytes(DID)));
		assert_noop!(v1(&document().encode(), &later(1)), Error::<Test>::DocumentStale);
		let set = |who, did: &[u8], blob: Vec<u8>| DidRegistry::set_document(signed(who), did.to_vec(), blob);
		assert_noop!(set(alice(), &[b'1'; 129], vec![]), Error::<Test>::DidTooLong);
		assert_noop!(set(alice(), OTHER, vec![]), Error::<Test>::DidNotFound);
		assert_noop!(set(bob(), DID, vec![]), Error::<Test>::NotDidOwner);
		assert_noop!(set(alice(), DID, vec![]), Error::<Test>::InvalidDocument);
		Dids::<Test>::mutate(bytes::<Did<Test>>(DID), |record| record.as_mut().unwrap().deactivated = true);
		assert_noop!(set(bob(), DID, vec![]), Error::<Test>::DidDeactivated);
	});
}

#[test]
fn every_rule_of_a_document() {
	type Spoil = fn(&mut DidDocument<Test>);
	let cases: [(&str, Spoil, Error<Test>); 28] = [
		("another id", |d| d.id = bytes(OTHER), Error::InvalidDocument),
		("a method without id", |d| d.verification_method[0].id = bytes(b""), Error::InvalidDocument),
		("a method without type", |d| d.verification_method[0].type_ = bytes(b""), Error::InvalidDocument),
		(
			"a method without key",
			|d| d.verification_method[0].public_key_multibase = bytes(b""),
			Error::InvalidDocument,
		),
		("a foreign controller", |d| d.verification_method[0].controller = bytes(OTHER), Error::InvalidDocument),
		("a type that is no text", |d| d.verification_method[0].type_ = bytes(&[0xff]), Error::InvalidDocument),
		(
			"a method twice",
			|d| d.verification_method.try_push(method()).unwrap(),
			Error::VerificationMethodAlreadyExists,
		),
		(
			"an unknown method",
			|d| d.authentication = Some(vec![bytes(&id("k2"))].try_into().unwrap()),
			Error::VerificationMethodNotFound,
		),
		(
			"an entry twice",
			|d| d.authentication.as_mut().unwrap().try_push(bytes(&id("k1"))).unwrap(),
			Error::AuthenticationAlreadyExists,
		),
		("an agreement without id", |d| push_agreement(d, |a| a.id = bytes(b"")), Error::InvalidDocument),
		("an agreement without type", |d| push_agreement(d, |a| a.type_ = bytes(b"")), Error::InvalidDocument),
		(
			"an agreement without key",
			|d| push_agreement(d, |a| a.public_key_multibase = bytes(b"")),
			Error::InvalidDocument,
		),
		("an agreement of another", |d| push_agreement(d, |a| a.controller = bytes(OTHER)), Error::InvalidDocument),
		(
			"an agreement twice",
			|d| (push_agreement(d, |_| ()), push_agreement(d, |_| ())).0,
			Error::KeyAgreementAlreadyExists,
		),
		("a service without id", |d| with_service(d, |s| s.id = bytes(b"")), Error::InvalidDocument),
		("a service without type", |d| with_service(d, |s| s.type_ = bytes(b"")), Error::InvalidDocument),
		(
			"a service without URL",
			|d| with_service(d, |s| s.service_endpoint = Default::default()),
			Error::InvalidDocument,
		),
		(
			"a URL that is no text",
			|d| with_service(d, |s| s.service_endpoint[0] = bytes(&[0xff])),
			Error::InvalidDocument,
		),
		(
			"an empty authorization entry",
			|d| with_service(d, |s| s.authorization = Some(vec![bytes(b"")].try_into().unwrap())),
			Error::InvalidDocument,
		),
		(
			"a service twice",
			|d| d.service.as_mut().unwrap().try_push(service("cache")).unwrap(),
			Error::ServiceAlreadyExists,
		),
		("a key of small order", |d| with_key(d, b"Multikey", &[0; 32]), Error::InvalidDocument),
		(
			"the same by the other type",
			|d| with_key(d, b"Ed25519VerificationKey2020", &[0; 32]),
			Error::InvalidDocument,
		),
		("a key that is no point", |d| with_key(d, b"Multikey", &[2; 32]), Error::InvalidDocument),
		("a key of 31 bytes", |d| with_key(d, b"Multikey", &[9; 31]), Error::InvalidDocument),
		(
			"a key of another curve",
			|d| {
				d.verification_method[0].public_key_multibase =
					bytes(b"z6LSbysY2xFMRpGMhb7tFTLMpeuPRaqaWM1yECx2AtzE3KCc")
			},
			Error::InvalidDocument,
		),
		("no base58", |d| d.verification_method[0].public_key_multibase = bytes(b"z0OIl"), Error::InvalidDocument),
		("hex digits", |d| d.verification_method[0].public_key_multibase = bytes(b"0xea4a"), Error::InvalidDocument),
		// The key rule comes last.
		(
			"a bad key and a service twice",
			|d| (with_key(d, b"Multikey", &[0; 32]), d.service.as_mut().unwrap().try_push(service("cache")).unwrap()).0,
			Error::ServiceAlreadyExists,
		),
	];
	for (name, spoil, error) in cases {
		test(|| {
			let mut flawed = document();
			spoil(&mut flawed);
			let result = with_storage_layer(|| register_as(DID, TIME, &flawed.encode()));
			assert_eq!(result, Err(error.into()), "{name}");
			assert!(!exists(DID), "{name}");
		});
	}
}

fn push_agreement(document: &mut DidDocument<Test>, spoil: fn(&mut KeyAgreement<Test>)) {
	let mut entry = agreement("x25519-1");
	spoil(&mut entry);
	document.key_agreement.try_push(entry).unwrap();
}

fn with_service(document: &mut DidDocument<Test>, spoil: fn(&mut Service<Test>)) {
	spoil(&mut document.service.as_mut().unwrap()[0]);
}

fn with_key(document: &mut DidDocument<Test>, type_: &[u8], key: &[u8]) {
	let bytes_ = [&[0xed, 0x01][..], key].concat();
	document.verification_method[0].type_ = bytes(type_);
	document.verification_method[0].public_key_multibase =
		bytes(&[b"z", bs58::encode(bytes_).into_vec().as_slice()].concat());
}

#[test]
fn what_a_document_may_be() {
	type Change = fn(&mut DidDocument<Test>);
	let cases: [(&str, Change); 6] = [
		("empty", |d| *d = DidDocument::empty(bytes(DID))),
		("empty lists as some", |d| {
			(d.authentication, d.service) = (Some(Default::default()), Some(Default::default()))
		}),
		("an authorization that authorizes nobody", |d| {
			with_service(d, |s| s.authorization = Some(Default::default()))
		}),
		("an empty URL", |d| with_service(d, |s| s.service_endpoint[0] = bytes(b""))),
		("a key of a type that can't be checked", |d| {
			d.verification_method[0].type_ = bytes(b"JsonWebKey");
			d.verification_method[0].public_key_multibase = bytes(b"anything");
		}),
		("one id in two lists", |d| push_agreement(d, |a| a.id = bytes(&id("k1")))),
	];
	for (name, change) in cases {
		test(|| {
			let mut odd = document();
			change(&mut odd);
			assert_eq!(register_as(DID, TIME, &odd.encode()), Ok(()), "{name}");
			assert_eq!(record(DID).document, Some(odd), "{name}");
		});
	}
}

#[test]
fn what_exceeds_a_bound_does_not_decode() {
	test(|| {
		// Six methods where five fit: the list's length is the byte behind the DID.
		let six = (0..6).map(|at| method_of(&id(&at.to_string()), MULTIBASE)).collect::<Vec<_>>();
		let blob = (DID.to_vec(), six, 0u8, 0u8, 0u8).encode();
		assert_noop!(register_as(DID, TIME, &blob), Error::<Test>::InvalidDocument);
		let long_id = [&id("")[..], &[b'k'; 192]].concat();
		let long =
			(DID.to_vec(), vec![(long_id, b"t".to_vec(), DID.to_vec(), MULTIBASE.to_vec())], 0u8, 0u8, 0u8).encode();
		assert_noop!(register_as(DID, TIME, &long), Error::<Test>::InvalidDocument);
	});
}
