use crate::{mock::*, *};
use codec::Encode;
use frame_support::{assert_noop, assert_ok, dispatch::DispatchResult, storage::with_storage_layer};

fn devices() -> Vec<(Vec<u8>, u64, bool)> {
	let devices = record(DID).devices;
	devices.iter().flatten().map(|device| (device.device_id.to_vec(), device.added_at, device.tombstoned)).collect()
}

fn added(device: &[u8]) -> ControlAction<Test> {
	ControlAction::AddDevice { device_id: bytes(device) }
}

fn links(reference: &[u8]) -> DeliveryPolicyLinks<Test> {
	DeliveryPolicyLinks {
		recipient_policy: Some(bytes(reference)),
		tag_policies: vec![bytes(b"work")].try_into().unwrap(),
		persona_policies: Default::default(),
	}
}

#[test]
fn the_owner_keeps_devices_of_a_did_without_a_root_key() {
	test(|| {
		register();
		without_key(DID);
		let (owner, did) = (|| signed(alice()), || DID.to_vec());
		assert_ok!(DidRegistry::add_device(owner(), did(), b"phone".to_vec()));
		assert_eq!(last_event(), Event::DeviceAdded(bytes(DID), bytes(b"phone")));
		set_time(NOW + 1);
		assert_ok!(DidRegistry::add_device(owner(), did(), b"desk".to_vec()));
		assert_ok!(DidRegistry::tombstone_device(owner(), did(), b"phone".to_vec()));
		assert_eq!(last_event(), Event::DeviceTombstoned(bytes(DID), bytes(b"phone")));
		assert_eq!(devices(), [(b"phone".to_vec(), NOW, true), (b"desk".to_vec(), NOW + 1, false)]);
		assert_ok!(DidRegistry::add_device(owner(), did(), b"phone".to_vec()));
		assert_eq!(devices()[0], (b"phone".to_vec(), NOW, false));
		assert_ok!(DidRegistry::update_device(owner(), did(), b"phone".to_vec(), b"tablet".to_vec()));
		assert_eq!(last_event(), Event::DeviceUpdated(bytes(DID), bytes(b"phone"), bytes(b"tablet")));
		assert_ok!(DidRegistry::remove_device(owner(), did(), b"tablet".to_vec()));
		assert_eq!(last_event(), Event::DeviceRemoved(bytes(DID), bytes(b"tablet")));
		assert_ok!(DidRegistry::remove_device(owner(), did(), b"desk".to_vec()));
		assert_eq!((record(DID).devices, record(DID).version, counters()), (None, 8, [0; 4]));
	});
}

#[test]
fn every_refusal_of_a_device_operation() {
	test(|| {
		register();
		without_key(DID);
		let long = vec![b'd'; 65];
		let add = |who, did: &[u8], device: &[u8]| {
			with_storage_layer(|| DidRegistry::add_device(signed(who), did.to_vec(), device.to_vec()))
		};
		let update = |old: &[u8], new: &[u8]| {
			with_storage_layer(|| DidRegistry::update_device(signed(alice()), DID.to_vec(), old.to_vec(), new.to_vec()))
		};
		assert_noop!(add(alice(), &[b'1'; 129], b"d"), Error::<Test>::DidTooLong);
		assert_noop!(add(alice(), OTHER, &long), Error::<Test>::DidNotFound);
		assert_noop!(add(bob(), DID, &long), Error::<Test>::NotDidOwner);
		assert_noop!(add(alice(), DID, &long), Error::<Test>::DidTooLong);
		assert_noop!(add(alice(), OTHER, b"d"), Error::<Test>::DidNotFound);
		assert_noop!(add(bob(), DID, b"d"), Error::<Test>::NotDidOwner);
		assert_noop!(update(b"d", &long), Error::<Test>::DidTooLong);
		assert_noop!(add(alice(), DID, &[0xff]), Error::<Test>::InvalidControlPayload);
		assert_noop!(update(b"d", b"e"), Error::<Test>::DeviceNotFound);
		let result = DidRegistry::tombstone_device(signed(alice()), DID.to_vec(), b"d".to_vec());
		assert_noop!(result, Error::<Test>::DeviceNotFound);
		let result = DidRegistry::remove_device(signed(alice()), DID.to_vec(), b"d".to_vec());
		assert_noop!(result, Error::<Test>::DeviceNotFound);
		for at in 0..10 {
			assert_ok!(add(alice(), DID, &[b'0' + at]));
		}
		assert_noop!(add(alice(), DID, b"d"), Error::<Test>::TooManyDevices);
		assert_ok!(add(alice(), DID, b"1"));
		assert_noop!(update(b"1", b"2"), Error::<Test>::DeviceAlreadyExists);
		assert_noop!(update(b"1", b"1"), Error::<Test>::DeviceAlreadyExists);
		Dids::<Test>::mutate(bytes::<Did<Test>>(DID), |record| record.as_mut().unwrap().deactivated = true);
		assert_noop!(add(bob(), DID, b"d"), Error::<Test>::DidDeactivated);
	});
}

#[test]
fn every_control_action_applies_by_a_key() {
	test(|| {
		register();
		assert_ok!(control(added(b"phone"), 0));
		assert_ok!(control(ControlAction::TombstoneDevice { device_id: bytes(b"phone") }, 1));
		let update = ControlAction::UpdateDevice { old_device_id: bytes(b"phone"), new_device_id: bytes(b"desk") };
		assert_ok!(control(update, 2));
		assert_eq!(devices(), [(b"desk".to_vec(), NOW, true)]);
		assert_ok!(control(ControlAction::RemoveDevice { device_id: bytes(b"desk") }, 3));
		assert_ok!(control(ControlAction::SetDeliveryPolicyLinks { links: links(DID) }, 4));
		assert_eq!(record(DID).delivery_policy_links, Some(links(DID)));
		assert_eq!(last_event(), Event::DeliveryPolicyLinksSet(bytes(DID)));
		assert_ok!(control(ControlAction::ClearDeliveryPolicyLinks, 5));
		assert_eq!(record(DID).delivery_policy_links, None);
		assert_eq!(last_event(), Event::DeliveryPolicyLinksCleared(bytes(DID)));
		assert_eq!((record(DID).version, counters()), (7, [0, 0, 0, 6]));
		assert_ok!(control(ControlAction::DeactivateDid, 6));
		assert!(record(DID).deactivated);
		assert_eq!(last_event(), Event::DidDeactivated(bytes(DID)));
	});
}

#[test]
fn control_actions_have_their_discriminants() {
	let device = || bytes::<DeviceId<Test>>(b"d");
	let actions: [ControlAction<Test>; 8] = [
		ControlAction::AddDevice { device_id: device() },
		ControlAction::TombstoneDevice { device_id: device() },
		ControlAction::UpdateDevice { old_device_id: device(), new_device_id: device() },
		ControlAction::RemoveDevice { device_id: device() },
		ControlAction::DeactivateDid,
		ControlAction::SetDeliveryPolicyLinks { links: links(DID) },
		ControlAction::ClearDeliveryPolicyLinks,
		ControlAction::DeleteDid,
	];
	for (at, action) in actions.iter().enumerate() {
		assert_eq!(usize::from(action.encode()[0]), at);
	}
}

#[test]
fn deletion_frees_did_and_aliases_and_keeps_the_counters() {
	test(|| {
		register();
		assert_ok!(DidRegistry::set_alias(signed(alice()), DID.to_vec(), b"one".to_vec()));
		assert_ok!(control(added(b"phone"), 0));
		let did: Did<Test> = bytes(DID);
		DocumentNonces::<Test>::insert(&did, 3);
		AliasNonces::<Test>::insert(&did, 4);
		RootPubkeyNonces::<Test>::insert(&did, 5);
		assert_ok!(control(ControlAction::DeleteDid, 1));
		assert_eq!(last_event(), Event::DidDeleted(bytes(DID)));
		assert!(!exists(DID));
		assert!(!AliasIndex::<Test>::contains_key(bytes::<Alias<Test>>(b"one")));
		assert_eq!(counters(), [3, 4, 5, 2]);
		assert_eq!(DocumentTimes::<Test>::get(&did), TIME_MS);
		assert_eq!(Lives::<Test>::get(&did), 1);
		assert_noop!(control(ControlAction::DeleteDid, 2), Error::<Test>::DidNotFound);
		// Registered again, what was signed before the deletion is dead.
		register_as(DID, (TIME_MS + 1).to_string().as_bytes(), &document().encode()).unwrap();
		assert_noop!(control(added(b"phone"), 0), Error::<Test>::InvalidControlNonce);
		assert_noop!(control(ControlAction::DeleteDid, 1), Error::<Test>::InvalidControlNonce);
		assert_ok!(control(added(b"phone"), 2));
	});
}

#[test]
fn the_authorization_of_a_control_is_checked_in_order() {
	test(|| {
		let submit = |payload: Vec<u8>, seed: u8, signer: &[u8]| -> DispatchResult {
			let signature = sign(&pair(seed), &payload);
			with_storage_layer(|| DidRegistry::apply_control_with_proof(none(), payload, signature, signer.to_vec()))
		};
		let expected = |result: DispatchResult, error: Error<Test>| assert_eq!(result, Err(error.into()));
		let good = || control_payload(ControlAction::DeactivateDid, 0);
		expected(submit(vec![], 7, ROOT), Error::InvalidControlPayload);
		expected(submit([good().encode(), vec![0]].concat(), 7, ROOT), Error::InvalidControlPayload);
		expected(submit(good().encode(), 7, &id("k1")), Error::InvalidControlPayload);
		let no_text = control_payload(added(&[0xff]), 0);
		expected(submit(no_text.encode(), 7, ROOT), Error::InvalidControlPayload);
		let no_text = control_payload(ControlAction::SetDeliveryPolicyLinks { links: links(&[0xff]) }, 0);
		expected(submit(no_text.encode(), 7, ROOT), Error::InvalidControlPayload);
		let late = ControlAuthorizationPayload { valid_until: NOW, ..good() };
		expected(submit(late.encode(), 7, ROOT), Error::ControlAuthorizationExpired);
		expected(submit(good().encode(), 7, ROOT), Error::DidNotFound);
		register();
		expected(submit(control_payload(ControlAction::DeleteDid, 1).encode(), 8, ROOT), Error::InvalidControlNonce);
		expected(submit(good().encode(), 8, ROOT), Error::InvalidSignature);
		let unknown = control_payload(ControlAction::TombstoneDevice { device_id: bytes(b"d") }, 0);
		expected(submit(unknown.encode(), 7, ROOT), Error::DeviceNotFound);
		assert_ok!(submit(good().encode(), 7, ROOT));
		// A deactivated DID can't be deleted with a key of its own.
		expected(submit(control_payload(ControlAction::DeleteDid, 1).encode(), 7, ROOT), Error::DidDeactivated);
	});
}

#[test]
fn a_method_in_authentication_controls_too() {
	test(|| {
		register();
		let mut payload = control_payload(ControlAction::DeleteDid, 0);
		payload.signer_key_id = bytes(&id("k1"));
		let signature = sign(&root(), &payload.encode());
		assert_ok!(DidRegistry::apply_control_with_proof(none(), payload.encode(), signature, id("k1")));
		assert!(!exists(DID));
	});
}

#[test]
fn the_owner_deactivates_a_did_without_a_root_key_once() {
	test(|| {
		register();
		without_key(DID);
		let deactivate = |who, did: &[u8]| DidRegistry::deactivate_did(signed(who), did.to_vec());
		assert_noop!(deactivate(alice(), &[b'1'; 129]), Error::<Test>::DidTooLong);
		assert_noop!(deactivate(alice(), OTHER), Error::<Test>::DidNotFound);
		assert_noop!(deactivate(bob(), DID), Error::<Test>::NotDidOwner);
		assert_ok!(deactivate(alice(), DID));
		assert_eq!((record(DID).version, last_event()), (2, Event::DidDeactivated(bytes(DID))));
		assert_noop!(deactivate(alice(), DID), Error::<Test>::DidAlreadyDeactivated);
		assert_noop!(deactivate(bob(), DID), Error::<Test>::DidAlreadyDeactivated);
	});
}

#[test]
fn the_owner_sets_and_clears_links() {
	test(|| {
		register();
		let set = |who, did: &[u8], recipient: Option<Vec<u8>>, tags: Vec<Vec<u8>>| {
			DidRegistry::set_delivery_policy_links(signed(who), did.to_vec(), recipient, tags, vec![])
		};
		assert_ok!(set(alice(), DID, Some(DID.to_vec()), vec![b"work".to_vec()]));
		assert_eq!(record(DID).delivery_policy_links, Some(links(DID)));
		assert_eq!(last_event(), Event::DeliveryPolicyLinksSet(bytes(DID)));
		let (nine, long) = (vec![b"t".to_vec(); 9], vec![b'r'; 129]);
		assert_noop!(set(alice(), &[b'1'; 129], None, nine.clone()), Error::<Test>::DidTooLong);
		assert_noop!(set(alice(), OTHER, None, nine.clone()), Error::<Test>::DidNotFound);
		assert_noop!(set(bob(), DID, None, nine.clone()), Error::<Test>::NotDidOwner);
		assert_noop!(set(alice(), DID, Some(long.clone()), nine), Error::<Test>::TooManyPolicyRefs);
		assert_noop!(set(alice(), DID, Some(long.clone()), vec![]), Error::<Test>::PolicyRefTooLong);
		assert_noop!(set(alice(), DID, None, vec![long]), Error::<Test>::PolicyRefTooLong);
		assert_noop!(set(alice(), DID, Some(vec![0xff]), vec![]), Error::<Test>::InvalidControlPayload);
		let clear = |who| DidRegistry::clear_delivery_policy_links(signed(who), DID.to_vec());
		assert_noop!(clear(bob()), Error::<Test>::NotDidOwner);
		assert_ok!(clear(alice()));
		assert_eq!((record(DID).delivery_policy_links, record(DID).version), (None, 3));
		assert_ok!(control(ControlAction::DeactivateDid, 0));
		assert_noop!(clear(alice()), Error::<Test>::DidDeactivated);
		assert_noop!(set(alice(), DID, None, vec![]), Error::<Test>::DidDeactivated);
	});
}
