use crate::{mock::*, *};
use codec::Encode;
use frame_support::{
	assert_noop, assert_ok, dispatch::DispatchResult, storage::with_storage_layer, traits::Hooks, weights::Weight,
};

fn payload(action: AliasAction, names: [Option<&[u8]>; 3], nonce: u64) -> AliasAuthorizationPayload<Test> {
	let [alias, old_alias, new_alias] = names.map(|name| name.map(bytes::<Alias<Test>>));
	AliasAuthorizationPayload {
		did: bytes(DID),
		action,
		alias,
		old_alias,
		new_alias,
		nonce,
		valid_until: VALID_UNTIL,
		signer_key_id: bytes(ROOT),
	}
}

fn submit(arguments: [&[u8]; 2], payload: Vec<u8>, seed: u8, signer: &[u8]) -> DispatchResult {
	let signature = sign(&pair(seed), &payload);
	let [first, second] = arguments.map(<[u8]>::to_vec);
	let action = payload.get(31).copied().unwrap_or_default();
	with_storage_layer(|| match action {
		0 => DidRegistry::add_alias(none(), DID.to_vec(), first, payload, signature, signer.to_vec()),
		1 => DidRegistry::update_alias(none(), DID.to_vec(), first, second, payload, signature, signer.to_vec()),
		_ => DidRegistry::remove_alias(none(), DID.to_vec(), first, payload, signature, signer.to_vec()),
	})
}

fn add(alias: &[u8], nonce: u64) -> DispatchResult {
	submit([alias, b""], payload(AliasAction::Add, [Some(alias), None, None], nonce).encode(), 7, ROOT)
}

fn update(old: &[u8], new: &[u8], nonce: u64) -> DispatchResult {
	submit([old, new], payload(AliasAction::Update, [None, Some(old), Some(new)], nonce).encode(), 7, ROOT)
}

fn remove(alias: &[u8], nonce: u64) -> DispatchResult {
	submit([alias, b""], payload(AliasAction::Remove, [Some(alias), None, None], nonce).encode(), 7, ROOT)
}

fn aliases() -> Vec<Vec<u8>> {
	record(DID).aliases.iter().flatten().map(|alias| alias.to_vec()).collect()
}

fn holder(alias: &[u8]) -> Option<Vec<u8>> {
	AliasIndex::<Test>::get(bytes::<Alias<Test>>(alias)).map(|did| did.to_vec())
}

/// The other DID, of the same owner, with an alias of its own.
fn register_other(alias: &[u8]) {
	let document = DidDocument::<Test>::empty(bytes(OTHER)).encode();
	register_as(OTHER, TIME, &document).unwrap();
	DidRegistry::set_alias(signed(alice()), OTHER.to_vec(), alias.to_vec()).unwrap();
}

#[test]
fn aliases_are_added_updated_in_place_and_removed() {
	test(|| {
		register();
		assert_ok!(add(b"one", 0));
		assert_eq!(last_event(), Event::AliasAdded(bytes(DID), bytes(b"one")));
		assert_ok!(add(b"two", 1));
		assert_ok!(update(b"one", b"three", 2));
		assert_eq!(last_event(), Event::AliasUpdated(bytes(DID), bytes(b"one"), bytes(b"three")));
		assert_eq!(aliases(), [b"three".to_vec(), b"two".to_vec()]);
		assert_eq!((holder(b"one"), holder(b"three")), (None, Some(DID.to_vec())));
		assert_ok!(remove(b"three", 3));
		assert_eq!(last_event(), Event::AliasRemoved(bytes(DID), bytes(b"three")));
		assert_ok!(remove(b"two", 4));
		assert_eq!((record(DID).aliases, holder(b"two")), (None, None));
		assert_eq!((record(DID).version, counters()), (6, [0, 5, 0, 0]));
	});
}

#[test]
fn arguments_are_normalized_and_payloads_must_be_normal() {
	test(|| {
		register();
		let signed = payload(AliasAction::Add, [Some(b"salesgroup"), None, None], 0).encode();
		assert_ok!(submit([b" SalesGroup ", b""], signed, 7, ROOT));
		assert_eq!(aliases(), [b"salesgroup".to_vec()]);
		let raw = payload(AliasAction::Add, [Some(b"Other"), None, None], 1).encode();
		assert_noop!(submit([b"Other", b""], raw, 7, ROOT), Error::<Test>::InvalidAliasPayload);
	});
}

#[test]
fn every_refusal_of_an_alias_operation() {
	test(|| {
		register();
		register_other(b"theirs");
		assert_ok!(add(b"mine", 0));
		assert_noop!(add(b"theirs", 1), Error::<Test>::AliasTaken);
		assert_noop!(add(b"mine", 1), Error::<Test>::AliasAlreadyExists);
		assert_noop!(update(b"mine", b"mine", 1), Error::<Test>::AliasAlreadyExists);
		assert_noop!(update(b"mine", b"theirs", 1), Error::<Test>::AliasTaken);
		assert_noop!(update(b"absent", b"mine", 1), Error::<Test>::AliasAlreadyExists);
		assert_noop!(update(b"absent", b"new", 1), Error::<Test>::AliasNotFound);
		// An alias of another DID is not in this record.
		assert_noop!(update(b"theirs", b"new", 1), Error::<Test>::AliasNotFound);
		assert_noop!(remove(b"theirs", 1), Error::<Test>::AliasNotFound);
		for at in 1..8 {
			assert_ok!(add(format!("alias{at}").as_bytes(), at));
		}
		assert_noop!(add(b"ninth", 8), Error::<Test>::TooManyAliases);
		assert_eq!(holder(b"ninth"), None);
	});
}

#[test]
fn the_authorization_of_an_alias_is_checked_in_order() {
	test(|| {
		let expected = |result: DispatchResult, error: Error<Test>| assert_eq!(result, Err(error.into()));
		let good = || payload(AliasAction::Add, [Some(b"one"), None, None], 0);
		let long = DidRegistry::add_alias(none(), vec![b'1'; 129], b"one".to_vec(), vec![], vec![], vec![]);
		expected(long, Error::DidTooLong);
		expected(submit([b"o ne", b""], good().encode(), 7, &[b'k'; 193]), Error::InvalidAlias);
		expected(submit([&[b'a'; 65], b""], good().encode(), 7, ROOT), Error::AliasTooLong);
		expected(submit([b"one", b""], good().encode(), 7, &[b'k'; 193]), Error::InvalidAliasPayload);
		expected(submit([b"one", b""], [good().encode(), vec![0]].concat(), 7, ROOT), Error::InvalidAliasPayload);
		expected(submit([b"two", b""], good().encode(), 7, ROOT), Error::InvalidAliasPayload);
		expected(submit([b"one", b""], good().encode(), 7, &id("k1")), Error::InvalidAliasPayload);
		let more = payload(AliasAction::Add, [Some(b"one"), Some(b"one"), None], 0);
		expected(submit([b"one", b""], more.encode(), 7, ROOT), Error::InvalidAliasPayload);
		let late = AliasAuthorizationPayload { valid_until: NOW, ..good() };
		expected(submit([b"one", b""], late.encode(), 7, ROOT), Error::AliasAuthorizationExpired);
		expected(add(b"one", 0), Error::DidNotFound);
		register();
		expected(add(b"one", 1), Error::InvalidAliasNonce);
		expected(submit([b"one", b""], good().encode(), 8, ROOT), Error::InvalidSignature);
		assert_ok!(add(b"one", 0));
		assert_ok!(control(ControlAction::DeactivateDid, 0));
		expected(add(b"two", 1), Error::DidDeactivated);
	});
}

#[test]
fn the_owner_sets_a_first_alias_and_changes_none() {
	test(|| {
		register();
		let set = |who, did: &[u8], alias: &[u8]| {
			with_storage_layer(|| DidRegistry::set_alias(signed(who), did.to_vec(), alias.to_vec()))
		};
		assert_ok!(set(alice(), DID, b" Two "));
		assert_eq!(last_event(), Event::AliasSet(bytes(DID), bytes(b"two")));
		assert_eq!((aliases(), holder(b"two")), (vec![b"two".to_vec()], Some(DID.to_vec())));
		assert_noop!(set(alice(), DID, b"one"), Error::<Test>::RootKeyRequired);
		// What is there already can be set again.
		assert_ok!(set(alice(), DID, b"two"));
		assert_ok!(add(b"one", 0));
		assert_noop!(set(alice(), DID, b"two"), Error::<Test>::RootKeyRequired);
		// A DID of the family without a root key has no one else.
		let rooted = record(DID);
		without_key(DID);
		assert_ok!(set(alice(), DID, b"two"));
		assert_eq!(aliases(), [b"two".to_vec()]);
		assert_eq!((holder(b"one"), holder(b"two")), (None, Some(DID.to_vec())));
		assert_eq!(counters(), [0, 1, 0, 0]);
		Dids::<Test>::mutate(bytes::<Did<Test>>(DID), |record| {
			let record = record.as_mut().unwrap();
			(record.root_pubkey, record.aliases) = (rooted.root_pubkey, None);
		});
		AliasIndex::<Test>::remove(bytes::<Alias<Test>>(b"two"));
		register_other(b"theirs");
		assert_noop!(set(alice(), &[b'1'; 129], b"a b"), Error::<Test>::DidTooLong);
		assert_noop!(set(alice(), b"unknown", b"a b"), Error::<Test>::InvalidAlias);
		assert_noop!(set(alice(), b"unknown", &[b'a'; 65]), Error::<Test>::AliasTooLong);
		assert_noop!(set(alice(), b"unknown", b"new"), Error::<Test>::DidNotFound);
		assert_noop!(set(bob(), DID, b"theirs"), Error::<Test>::NotDidOwner);
		assert_noop!(set(alice(), DID, b"theirs"), Error::<Test>::AliasTaken);
		assert_ok!(control(ControlAction::DeactivateDid, 0));
		assert_noop!(set(bob(), DID, b"new"), Error::<Test>::DidDeactivated);
	});
}

#[test]
fn a_record_without_owner_is_out_of_every_accounts_reach() {
	test(|| {
		register();
		Dids::<Test>::mutate(bytes::<Did<Test>>(DID), |record| record.as_mut().unwrap().owner = None);
		let result = DidRegistry::set_alias(signed(alice()), DID.to_vec(), b"one".to_vec());
		assert_noop!(result, Error::<Test>::NotDidOwner);
	});
}

fn free_for(did: &[u8], alias: &[u8]) -> bool {
	// The owner of both may set a first alias, so only the reserve can be in the way.
	with_storage_layer(|| DidRegistry::set_alias(signed(alice()), did.to_vec(), alias.to_vec())).map_or_else(
		|error| {
			assert_eq!(error, Error::<Test>::AliasTaken.into());
			false
		},
		|()| true,
	)
}

fn reserves() -> usize {
	ReleasedAliases::<Test>::iter().count()
}

#[test]
fn a_released_alias_is_for_its_last_holder_until_its_reserve_ends() {
	// A removal and a rename release alike.
	for rename in [false, true] {
		test(|| {
			register();
			register_as(OTHER, TIME, &DidDocument::<Test>::empty(bytes(OTHER)).encode()).unwrap();
			assert_ok!(add(b"bank", 0));
			assert_ok!(if rename { update(b"bank", b"new", 1) } else { remove(b"bank", 1) });
			assert_eq!(holder(b"bank"), None);
			assert!(!free_for(OTHER, b"bank"));
			// Its last holder takes it again, and the reserve is over.
			assert_ok!(add(b"bank", 2));
			assert_eq!((holder(b"bank"), reserves()), (Some(DID.to_vec()), 0));
			assert_ok!(remove(b"bank", 3));
			set_time(NOW + 999_999);
			assert!(!free_for(OTHER, b"bank"));
			set_time(NOW + 1_000_000);
			assert!(free_for(OTHER, b"bank"));
			assert_eq!((holder(b"bank"), reserves()), (Some(OTHER.to_vec()), 0));
			assert!(!ReleasesOf::<Test>::contains_key(bytes::<Did<Test>>(DID)));
		});
	}
}

#[test]
fn a_registration_goes_without_an_alias_that_is_reserved() {
	test(|| {
		register();
		assert_ok!(add(b"bank", 0));
		assert_ok!(remove(b"bank", 1));
		let register_with = |bare: bool| {
			let (did, alias, time) = (OTHER.to_vec(), Some(b"bank".to_vec()), TIME.to_vec());
			let (key, signature) = (key_of(&root()), v1_registration(OTHER, TIME));
			let blob = DidDocument::<Test>::empty(bytes(OTHER)).encode();
			with_storage_layer(|| match bare {
				true => DidRegistry::register_with_proof(signed(alice()), did, alias, time, key, signature),
				false => DidRegistry::register_with_document_proof_signed(
					signed(alice()),
					did,
					alias,
					time,
					key,
					signature,
					blob,
				),
			})
		};
		assert_noop!(register_with(true), Error::<Test>::AliasTaken);
		assert_ok!(register_with(false));
		assert_eq!(last_event(), Event::AliasConflict(bytes(OTHER), bytes(b"bank")));
	});
}

#[test]
fn after_a_deletion_an_alias_is_for_nobody_until_its_reserve_ends() {
	test(|| {
		register();
		assert_ok!(add(b"bank", 0));
		assert_ok!(add(b"shop", 1));
		assert_ok!(remove(b"shop", 2));
		assert_ok!(control(ControlAction::DeleteDid, 0));
		// Another key may have registered the DID.
		register_as(DID, (TIME_MS + 1).to_string().as_bytes(), &document().encode()).unwrap();
		for alias in [b"bank", b"shop"] {
			assert!(!free_for(DID, alias));
		}
		set_time(NOW + 1_000_000);
		assert!(free_for(DID, b"bank"));
	});
}

#[test]
fn of_many_releases_the_last_ones_are_reserved() {
	test(|| {
		register();
		register_as(OTHER, TIME, &DidDocument::<Test>::empty(bytes(OTHER)).encode()).unwrap();
		for at in 0..9u64 {
			let alias = format!("alias{at}");
			// The allowance of a DID is tested elsewhere.
			ProofAllowances::<Test>::remove(bytes::<Did<Test>>(DID));
			assert_ok!(add(alias.as_bytes(), 2 * at));
			assert_ok!(remove(alias.as_bytes(), 2 * at + 1));
		}
		assert_eq!(reserves(), 8);
		assert!(!free_for(OTHER, b"alias1"));
		assert!(free_for(OTHER, b"alias0"));
	});
}

#[test]
fn reserves_that_have_ended_leave_the_state() {
	test(|| {
		register();
		let sweep = <Test as Config>::WeightInfo::sweep();
		let block = || DidRegistry::on_idle(1, Weight::MAX);
		assert_ok!(add(b"one", 0));
		assert_ok!(remove(b"one", 1));
		set_time(NOW + 500_000);
		assert_ok!(add(b"two", 2));
		assert_ok!(remove(b"two", 3));
		// The DID, and the end of the list.
		assert_eq!(block(), sweep * 2);
		assert_eq!(reserves(), 2);
		set_time(NOW + 1_000_000);
		assert_eq!(block(), sweep * 2);
		assert_eq!(reserves(), 1);
		set_time(NOW + 1_500_000);
		assert_eq!(DidRegistry::on_idle(1, Weight::from_parts(1, 1)), Weight::zero());
		assert_eq!(reserves(), 1);
		assert_eq!(block(), sweep * 2);
		assert_eq!((reserves(), ReleasesOf::<Test>::iter().count()), (0, 0));
		assert_eq!(block(), sweep);
	});
}

/// Releases of one ended reserve each.
fn releases_of(dids: usize) {
	for n in 0..dids {
		let (did, alias) = (bytes::<Did<Test>>(format!("did:svc:{n}").as_bytes()), bytes(format!("a{n}").as_bytes()));
		ReleasedAliases::<Test>::insert(&alias, Reserve { did: did.clone(), life: 0, until_ms: NOW });
		ReleasesOf::<Test>::insert(did, frame_support::BoundedVec::truncate_from(vec![alias]));
	}
}

#[test]
fn a_block_sweeps_as_many_dids_as_its_rest_holds_and_at_most_32() {
	test(|| {
		let sweep = <Test as Config>::WeightInfo::sweep();
		let rest = sweep * 4 - Weight::from_parts(1, 0);
		releases_of(40);
		set_time(NOW + 1);
		assert_eq!(DidRegistry::on_idle(1, rest), sweep * 3);
		assert_eq!(reserves(), 37);
		assert_eq!(DidRegistry::on_idle(2, Weight::MAX), sweep * 32);
		assert_eq!(reserves(), 5);
		// Those behind the last one, the end of the list, and none from its beginning.
		assert_eq!(DidRegistry::on_idle(3, Weight::MAX), sweep * 6);
		assert_eq!((reserves(), ReleasesOf::<Test>::iter().count()), (0, 0));
	});
}
