use crate::{mock::*, *};
use codec::Encode;
use frame_support::{assert_noop, assert_ok, dispatch::DispatchResult, storage::with_storage_layer};
use sp_runtime::DispatchError;

/// One call on a component, with everything a test may spoil.
#[derive(Clone)]
struct Update {
	did: Vec<u8>,
	payload: DocumentAuthorizationPayload<Test>,
	signer: Vec<u8>,
	seed: u8,
	/// Bytes put behind the payload.
	tail: Vec<u8>,
	signature: Option<Vec<u8>>,
	/// The call's own arguments, where they differ from the payload.
	method: Option<VerificationMethod<Test>>,
	agreement: Option<KeyAgreement<Test>>,
	service: Option<Service<Test>>,
	id: Option<Vec<u8>>,
}

impl Update {
	fn new(action: DocumentAction, nonce: u64) -> Self {
		let payload = document_payload(action, nonce);
		let (did, signer) = (DID.to_vec(), ROOT.to_vec());
		Self {
			did,
			payload,
			signer,
			seed: 7,
			tail: vec![],
			signature: None,
			method: None,
			agreement: None,
			service: None,
			id: None,
		}
	}

	fn submit(self) -> DispatchResult {
		self.submit_from(none())
	}

	fn submit_from(self, origin: RuntimeOrigin) -> DispatchResult {
		let Self { did, payload, signer, tail, .. } = self;
		let signed_payload = [payload.encode(), tail].concat();
		let signature = self.signature.unwrap_or_else(|| sign(&pair(self.seed), &signed_payload));
		let method = || self.method.or(payload.verification_method).expect("a method");
		let agreement = || self.agreement.or(payload.key_agreement).expect("an agreement");
		let service = || self.service.or(payload.service).expect("a service");
		let id = || self.id.or(payload.id.map(|id| id.to_vec())).expect("an id");
		with_storage_layer(|| match payload.action {
			DocumentAction::AddVerificationMethod => {
				DidRegistry::add_verification_method(origin, did, method(), signed_payload, signature, signer)
			},
			DocumentAction::UpdateVerificationMethod => {
				DidRegistry::update_verification_method(origin, did, method(), signed_payload, signature, signer)
			},
			DocumentAction::RemoveVerificationMethod => {
				DidRegistry::remove_verification_method(origin, did, id(), signed_payload, signature, signer)
			},
			DocumentAction::AddAuthentication => {
				DidRegistry::add_authentication(origin, did, id(), signed_payload, signature, signer)
			},
			DocumentAction::RemoveAuthentication => {
				DidRegistry::remove_authentication(origin, did, id(), signed_payload, signature, signer)
			},
			DocumentAction::AddKeyAgreement => {
				DidRegistry::add_key_agreement(origin, did, agreement(), signed_payload, signature, signer)
			},
			DocumentAction::UpdateKeyAgreement => {
				DidRegistry::update_key_agreement(origin, did, agreement(), signed_payload, signature, signer)
			},
			DocumentAction::RemoveKeyAgreement => {
				DidRegistry::remove_key_agreement(origin, did, id(), signed_payload, signature, signer)
			},
			DocumentAction::AddService => {
				DidRegistry::add_service(origin, did, service(), signed_payload, signature, signer)
			},
			DocumentAction::UpdateService => {
				DidRegistry::update_service(origin, did, service(), signed_payload, signature, signer)
			},
			DocumentAction::RemoveService => {
				DidRegistry::remove_service(origin, did, id(), signed_payload, signature, signer)
			},
		})
	}
}

fn with_method(action: DocumentAction, nonce: u64, method: VerificationMethod<Test>) -> Update {
	let mut update = Update::new(action, nonce);
	update.payload.verification_method = Some(method);
	update
}

fn with_agreement(action: DocumentAction, nonce: u64, agreement: KeyAgreement<Test>) -> Update {
	let mut update = Update::new(action, nonce);
	update.payload.key_agreement = Some(agreement);
	update
}

fn with_service(action: DocumentAction, nonce: u64, service: Service<Test>) -> Update {
	let mut update = Update::new(action, nonce);
	update.payload.service = Some(service);
	update
}

fn with_id(action: DocumentAction, nonce: u64, fragment: &str) -> Update {
	let mut update = Update::new(action, nonce);
	update.payload.id = Some(bytes(&id(fragment)));
	update
}

fn second() -> VerificationMethod<Test> {
	method_of(&id("k2"), &multibase_of(&pair(8)))
}

fn standing() -> DidDocument<Test> {
	record(DID).document.expect("a document")
}

use DocumentAction::*;

#[test]
fn all_eleven_operations_apply_in_turn() {
	test(|| {
		register();
		let mut changed = second();
		changed.type_ = bytes(b"Ed25519VerificationKey2020");
		let mut moved = service("relay");
		moved.priority = Some(7);
		let did = || bytes::<Did<Test>>(DID);
		let name = |fragment: &str| bytes::<Id<Test>>(&id(fragment));
		let steps: Vec<(Update, Event<Test>)> = vec![
			(with_method(AddVerificationMethod, 0, second()), Event::VerificationMethodAdded(did(), name("k2"))),
			(
				with_method(UpdateVerificationMethod, 1, changed.clone()),
				Event::VerificationMethodUpdated(did(), name("k2")),
			),
			(with_id(AddAuthentication, 2, "k2"), Event::AuthenticationAdded(did(), name("k2"))),
			(with_agreement(AddKeyAgreement, 3, agreement("x1")), Event::KeyAgreementAdded(did(), name("x1"))),
			(with_agreement(UpdateKeyAgreement, 4, agreement("x1")), Event::KeyAgreementUpdated(did(), name("x1"))),
			(with_service(AddService, 5, service("relay")), Event::ServiceAdded(did(), name("relay"))),
			(with_service(UpdateService, 6, moved.clone()), Event::ServiceUpdated(did(), name("relay"))),
		];
		for (at, (update, event)) in steps.into_iter().enumerate() {
			set_time(NOW + at as u64);
			assert_ok!(update.submit());
			assert_eq!(last_event(), event);
			assert_eq!(record(DID).version, at as u64 + 2);
			assert_eq!(record(DID).updated_at, NOW + at as u64);
		}
		let document = standing();
		assert_eq!(document.verification_method.to_vec(), vec![method(), changed]);
		assert_eq!(document.authentication.unwrap().to_vec(), vec![name("k1"), name("k2")]);
		assert_eq!(document.key_agreement.to_vec(), vec![agreement("x1")]);
		assert_eq!(document.service.unwrap().to_vec(), vec![service("cache"), moved]);
		let steps: Vec<(Update, Event<Test>)> = vec![
			(with_id(RemoveAuthentication, 7, "k1"), Event::AuthenticationRemoved(did(), name("k1"))),
			(with_id(RemoveVerificationMethod, 8, "k1"), Event::VerificationMethodRemoved(did(), name("k1"))),
			(with_id(RemoveAuthentication, 9, "k2"), Event::AuthenticationRemoved(did(), name("k2"))),
			(with_id(RemoveKeyAgreement, 10, "x1"), Event::KeyAgreementRemoved(did(), name("x1"))),
			(with_id(RemoveService, 11, "cache"), Event::ServiceRemoved(did(), name("cache"))),
			(with_id(RemoveService, 12, "relay"), Event::ServiceRemoved(did(), name("relay"))),
		];
		for (update, event) in steps {
			assert_ok!(update.submit());
			assert_eq!(last_event(), event);
		}
		let document = standing();
		assert_eq!((document.authentication, document.service), (None, None));
		assert_eq!(counters(), [13, 0, 0, 0]);
	});
}

#[test]
fn additions_begin_a_document_and_other_operations_do_not() {
	let bare = || {
		let signature = v1_registration(DID, TIME);
		DidRegistry::register_with_proof(
			signed(alice()),
			DID.to_vec(),
			None,
			TIME.to_vec(),
			key_of(&root()),
			signature,
		)
		.unwrap();
	};
	for add in [
		with_method(AddVerificationMethod, 0, method()),
		with_agreement(AddKeyAgreement, 0, agreement("x1")),
		with_service(AddService, 0, service("cache")),
	] {
		test(|| {
			bare();
			assert_ok!(add.submit());
			assert_eq!(standing().id, bytes::<Did<Test>>(DID));
		});
	}
	for other in [
		with_method(UpdateVerificationMethod, 0, method()),
		with_id(RemoveVerificationMethod, 0, "k1"),
		with_id(AddAuthentication, 0, "k1"),
		with_id(RemoveAuthentication, 0, "k1"),
		with_agreement(UpdateKeyAgreement, 0, agreement("x1")),
		with_id(RemoveKeyAgreement, 0, "x1"),
		with_service(UpdateService, 0, service("cache")),
		with_id(RemoveService, 0, "cache"),
	] {
		test(|| {
			bare();
			assert_noop!(other.submit(), Error::<Test>::InvalidDocument);
		});
	}
}

#[test]
fn every_refusal_of_an_operation() {
	test(|| {
		register();
		let cases: Vec<(Update, Error<Test>)> = vec![
			(with_method(AddVerificationMethod, 0, method()), Error::VerificationMethodAlreadyExists),
			(with_method(UpdateVerificationMethod, 0, second()), Error::VerificationMethodNotFound),
			(with_id(RemoveVerificationMethod, 0, "k2"), Error::VerificationMethodNotFound),
			(with_id(RemoveVerificationMethod, 0, "k1"), Error::VerificationMethodInUse),
			(with_id(AddAuthentication, 0, "k2"), Error::VerificationMethodNotFound),
			(with_id(AddAuthentication, 0, "k1"), Error::AuthenticationAlreadyExists),
			(with_id(RemoveAuthentication, 0, "k2"), Error::AuthenticationNotFound),
			(with_agreement(UpdateKeyAgreement, 0, agreement("x1")), Error::KeyAgreementNotFound),
			(with_id(RemoveKeyAgreement, 0, "x1"), Error::KeyAgreementNotFound),
			(with_service(AddService, 0, service("cache")), Error::ServiceAlreadyExists),
			(with_service(UpdateService, 0, service("relay")), Error::ServiceNotFound),
			(with_id(RemoveService, 0, "relay"), Error::ServiceNotFound),
			(with_method(AddVerificationMethod, 0, method_of(&[], MULTIBASE)), Error::InvalidDocument),
			(with_method(AddVerificationMethod, 0, method_of(&id("k2"), b"z1")), Error::InvalidDocument),
			(with_method(UpdateVerificationMethod, 0, method_of(&id("k1"), b"")), Error::InvalidDocument),
			(
				with_method(AddVerificationMethod, 0, VerificationMethod { controller: bytes(OTHER), ..second() }),
				Error::InvalidDocument,
			),
			(
				with_agreement(AddKeyAgreement, 0, KeyAgreement { controller: bytes(OTHER), ..agreement("x1") }),
				Error::InvalidDocument,
			),
			(
				with_service(AddService, 0, Service { service_endpoint: Default::default(), ..service("relay") }),
				Error::InvalidDocument,
			),
		];
		for (at, (update, error)) in cases.into_iter().enumerate() {
			assert_eq!(update.submit(), Err(error.into()), "case {at}");
		}
		assert_ok!(with_agreement(AddKeyAgreement, 0, agreement("x1")).submit());
		assert_noop!(
			with_agreement(AddKeyAgreement, 1, agreement("x1")).submit(),
			Error::<Test>::KeyAgreementAlreadyExists
		);
		assert_eq!(counters(), [1, 0, 0, 0]);
	});
}

#[test]
fn full_lists_take_no_more() {
	test(|| {
		register();
		let mut nonce = 0;
		let mut next = |update: fn(u64, &str) -> Update, name: &str| {
			let result = update(nonce, name).submit();
			nonce += u64::from(result.is_ok());
			result
		};
		for name in ["k2", "k3", "k4", "k5"] {
			assert_ok!(next(
				|nonce, name| with_method(AddVerificationMethod, nonce, method_of(&id(name), MULTIBASE)),
				name
			));
		}
		let add_method =
			|nonce: u64, name: &str| with_method(AddVerificationMethod, nonce, method_of(&id(name), MULTIBASE));
		assert_eq!(next(add_method, "k6"), Err(Error::<Test>::InvalidDocument.into()));
		for name in ["k2", "k3", "k4"] {
			assert_ok!(next(|nonce, name| with_id(AddAuthentication, nonce, name), name));
		}
		assert_eq!(
			next(|nonce, name| with_id(AddAuthentication, nonce, name), "k5"),
			Err(Error::<Test>::InvalidDocument.into())
		);
		for name in ["x1", "x2", "x3", "x4", "x5"] {
			assert_ok!(next(|nonce, name| with_agreement(AddKeyAgreement, nonce, agreement(name)), name));
		}
		let result = next(|nonce, name| with_agreement(AddKeyAgreement, nonce, agreement(name)), "x6");
		assert_eq!(result, Err(Error::<Test>::InvalidDocument.into()));
		for name in ["s2", "s3", "s4"] {
			assert_ok!(next(|nonce, name| with_service(AddService, nonce, service(name)), name));
		}
		let result = next(|nonce, name| with_service(AddService, nonce, service(name)), "s5");
		assert_eq!(result, Err(Error::<Test>::ServiceTooLong.into()));
	});
}

fn spoiled(spoil: impl FnOnce(&mut Update)) -> DispatchResult {
	let mut update = with_method(AddVerificationMethod, 0, second());
	spoil(&mut update);
	update.submit()
}

#[test]
fn the_authorization_is_checked_in_order() {
	test(|| {
		let expected = |result: DispatchResult, error: Error<Test>| assert_eq!(result, Err(error.into()));
		// No DID is registered yet: whatever is reported before that must be a flaw of the call itself.
		expected(spoiled(|u| u.did = vec![b'1'; 129]), Error::DidTooLong);
		expected(spoiled(|u| u.signer = vec![b'k'; 193]), Error::InvalidDocumentPayload);
		expected(spoiled(|u| u.tail = vec![0]), Error::InvalidDocumentPayload);
		expected(spoiled(|u| u.payload.did = bytes(OTHER)), Error::InvalidDocumentPayload);
		expected(spoiled(|u| u.did = OTHER.to_vec()), Error::InvalidDocumentPayload);
		expected(spoiled(|u| u.method = Some(method())), Error::InvalidDocumentPayload);
		expected(spoiled(|u| u.payload.key_agreement = Some(agreement("x"))), Error::InvalidDocumentPayload);
		expected(spoiled(|u| u.payload.service = Some(service("x"))), Error::InvalidDocumentPayload);
		expected(spoiled(|u| u.payload.id = Some(bytes(&id("k2")))), Error::InvalidDocumentPayload);
		expected(spoiled(|u| u.payload.signer_key_id = bytes(&id("k1"))), Error::InvalidDocumentPayload);
		expected(spoiled(|u| u.payload.valid_until = NOW), Error::DocumentAuthorizationExpired);
		expected(spoiled(|_| ()), Error::DidNotFound);
		register();
		expected(spoiled(|u| (u.payload.nonce, u.seed) = (1, 9)), Error::InvalidDocumentNonce);
		expected(spoiled(|u| (u.seed, u.payload.verification_method) = (9, Some(method()))), Error::InvalidSignature);
		expected(spoiled(|u| u.signature = Some(vec![0; 63])), Error::InvalidSignature);
		expected(spoiled(|u| u.payload.verification_method = Some(method())), Error::VerificationMethodAlreadyExists);
		assert_ok!(spoiled(|u| u.payload.valid_until = NOW + 1));
		expected(spoiled(|_| ()), Error::InvalidDocumentNonce);
		assert_ok!(control(ControlAction::DeactivateDid, 0));
		expected(spoiled(|u| u.payload.nonce = 1), Error::DidDeactivated);
	});
}

#[test]
fn a_payload_of_another_action_is_refused() {
	test(|| {
		register();
		let payload = with_method(UpdateVerificationMethod, 0, method()).payload.encode();
		let signature = sign(&root(), &payload);
		let result =
			DidRegistry::add_verification_method(none(), DID.to_vec(), method(), payload, signature, ROOT.to_vec());
		assert_noop!(result, Error::<Test>::InvalidDocumentPayload);
		// The argument is longer than any id: it can't equal the payload's.
		let mut update = with_id(RemoveService, 0, "cache");
		update.id = Some(vec![b'x'; 193]);
		assert_noop!(update.submit(), Error::<Test>::InvalidDocumentPayload);
	});
}

#[test]
fn accounts_may_not_submit_proofs() {
	test(|| {
		register();
		let update = with_method(AddVerificationMethod, 0, second());
		assert_noop!(update.clone().submit_from(signed(alice())), DispatchError::BadOrigin);
		assert_noop!(update.clone().submit_from(RuntimeOrigin::root()), DispatchError::BadOrigin);
		assert_ok!(update.submit_from(frame_system::RawOrigin::Authorized.into()));
	});
}

#[test]
fn only_ed25519_methods_in_authentication_sign() {
	let signed_by = |fragment: &str, seed: u8| {
		let mut update = with_agreement(AddKeyAgreement, 0, agreement("x1"));
		update.signer = id(fragment);
		update.payload.signer_key_id = bytes(&id(fragment));
		update.seed = seed;
		update.submit()
	};
	let registered = |change: fn(&mut DidDocument<Test>)| {
		let mut document = document();
		document.verification_method.try_push(second()).unwrap();
		change(&mut document);
		register_as(DID, TIME, &document.encode()).unwrap();
	};
	// k1 is in `authentication`, k2 is not.
	test(|| {
		registered(|_| ());
		assert_noop!(signed_by("k2", 8), Error::<Test>::InvalidSignature);
		assert_noop!(signed_by("k3", 7), Error::<Test>::InvalidSignature);
		assert_noop!(signed_by("k1", 8), Error::<Test>::InvalidSignature);
		assert_ok!(signed_by("k1", 7));
	});
	test(|| {
		registered(|d| d.authentication.as_mut().unwrap().try_push(bytes(&id("k2"))).unwrap());
		assert_ok!(signed_by("k2", 8));
	});
	test(|| {
		registered(|d| d.verification_method[0].type_ = bytes(b"Ed25519VerificationKey2020"));
		assert_ok!(signed_by("k1", 7));
	});
	// The bare form of the key text.
	test(|| {
		registered(|d| {
			d.verification_method[0].public_key_multibase = bytes(b"zGmaDrppBC7P5ARKV8g3djiwP89vz1jLK23V2GBjuAEGB");
		});
		assert_ok!(signed_by("k1", 7));
	});
	// A type that names no Ed25519 key, though the text would be one.
	test(|| {
		registered(|d| d.verification_method[0].type_ = bytes(b"JsonWebKey"));
		assert_noop!(signed_by("k1", 7), Error::<Test>::InvalidSignature);
	});
	test(|| {
		registered(|d| d.authentication = None);
		assert_noop!(signed_by("k1", 7), Error::<Test>::InvalidSignature);
	});
}

#[test]
fn the_root_signer_is_the_record_key_and_not_a_method_of_that_name() {
	test(|| {
		let mut standing = document();
		standing.verification_method[0].id = bytes(b"root");
		standing.verification_method[0].public_key_multibase = bytes(&multibase_of(&pair(8)));
		standing.authentication = Some(vec![bytes(b"root")].try_into().unwrap());
		register_as(DID, TIME, &standing.encode()).unwrap();
		let mut update = with_agreement(AddKeyAgreement, 0, agreement("x1"));
		update.seed = 8;
		assert_noop!(update.submit(), Error::<Test>::InvalidSignature);
	});
}

#[test]
fn a_method_of_another_controller_does_not_sign() {
	test(|| {
		register();
		// No call puts such a method into a document; a chain that inherits one must still not heed it.
		Dids::<Test>::mutate(bytes::<Did<Test>>(DID), |record| {
			let document = record.as_mut().unwrap().document.as_mut().unwrap();
			document.verification_method[0].controller = bytes(OTHER);
		});
		let mut update = with_agreement(AddKeyAgreement, 0, agreement("x1"));
		update.signer = id("k1");
		update.payload.signer_key_id = bytes(&id("k1"));
		assert_noop!(update.submit(), Error::<Test>::InvalidSignature);
	});
}

// ------------------------------------------------------------------------------------------- the root key

fn rotation(new: &[u8], nonce: u64) -> RootPubkeyAuthorizationPayload<Test> {
	RootPubkeyAuthorizationPayload {
		did: bytes(DID),
		new_root_pubkey: bytes(new),
		nonce,
		valid_until: VALID_UNTIL,
		signer_key_id: bytes(ROOT),
	}
}

fn rotate(new: &[u8], payload: Vec<u8>, seed: u8, signer: &[u8]) -> DispatchResult {
	let signature = sign(&pair(seed), &payload);
	with_storage_layer(|| {
		DidRegistry::update_root_pubkey(none(), DID.to_vec(), new.to_vec(), payload, signature, signer.to_vec())
	})
}

#[test]
fn rotation_replaces_the_root_key_and_nothing_in_the_document() {
	test(|| {
		register();
		let new = key_of(&pair(9));
		assert_ok!(rotate(&new, rotation(&new, 0).encode(), 7, ROOT));
		assert_eq!(record(DID).root_pubkey.unwrap().to_vec(), new);
		assert_eq!(record(DID).document, Some(document()));
		assert_eq!((record(DID).version, counters()), (2, [0, 0, 1, 0]));
		assert_eq!(last_event(), Event::RootPubkeyUpdated(bytes(DID)));
		assert_noop!(rotate(&new, rotation(&new, 1).encode(), 7, ROOT), Error::<Test>::InvalidSignature);
		assert_noop!(rotate(&new, rotation(&new, 0).encode(), 9, ROOT), Error::<Test>::InvalidRootPubkeyNonce);
		assert_ok!(rotate(&key_of(&root()), rotation(&key_of(&root()), 1).encode(), 9, ROOT));
	});
}

#[test]
fn every_refusal_of_a_rotation() {
	test(|| {
		let new = key_of(&pair(9));
		let good = || rotation(&new, 0);
		let expected = |result: DispatchResult, error: Error<Test>| assert_eq!(result, Err(error.into()));
		let signature = sign(&root(), &good().encode());
		let long = DidRegistry::update_root_pubkey(
			none(),
			vec![b'1'; 129],
			new.clone(),
			good().encode(),
			signature,
			ROOT.to_vec(),
		);
		expected(long, Error::DidTooLong);
		expected(rotate(&new, good().encode(), 7, &[b'k'; 193]), Error::InvalidRootPubkeyPayload);
		expected(rotate(&new[1..], good().encode(), 7, &[b'k'; 193]), Error::InvalidRootPubkey);
		expected(rotate(&new, [good().encode(), vec![0]].concat(), 7, ROOT), Error::InvalidRootPubkeyPayload);
		expected(rotate(&new, rotation(&key_of(&pair(8)), 0).encode(), 7, ROOT), Error::InvalidRootPubkeyPayload);
		let other = RootPubkeyAuthorizationPayload { did: bytes(OTHER), ..good() };
		expected(rotate(&new, other.encode(), 7, ROOT), Error::InvalidRootPubkeyPayload);
		expected(rotate(&new, good().encode(), 7, &id("k1")), Error::InvalidRootPubkeyPayload);
		let late = RootPubkeyAuthorizationPayload { valid_until: NOW, ..good() };
		expected(rotate(&new, late.encode(), 7, ROOT), Error::RootPubkeyAuthorizationExpired);
		expected(rotate(&new, good().encode(), 7, ROOT), Error::DidNotFound);
		register();
		expected(rotate(&new, rotation(&new, 1).encode(), 7, ROOT), Error::InvalidRootPubkeyNonce);
		expected(rotate(&new, good().encode(), 8, ROOT), Error::InvalidSignature);
		// A key that is not admissible, once everything else is in order.
		for key in [[0; 32], [2; 32], [0xff; 32]] {
			expected(rotate(&key, rotation(&key, 0).encode(), 7, ROOT), Error::InvalidRootPubkey);
		}
		assert_ok!(control(ControlAction::DeactivateDid, 0));
		expected(rotate(&new, good().encode(), 7, ROOT), Error::DidDeactivated);
	});
}
