use crate as pallet_delivery_policy;
use crate::*;
use codec::Encode;
use frame_support::{
	assert_noop, assert_ok, derive_impl,
	dispatch::DispatchResult,
	pallet_prelude::TransactionSource,
	storage::with_storage_layer,
	traits::{Authorize, ConstU128, ConstU32, ConstU64, ConstU8, Hooks},
};
use pallet_did_registry::{ControlAction, ControlAuthorizationPayload, DidDocument};
use sp_core::{ed25519, Pair};
use sp_runtime::{
	traits::IdentityLookup,
	transaction_validity::{InvalidTransaction, TransactionValidityError},
	AccountId32, BuildStorage, DispatchError,
};

type Block = frame_system::mocking::MockBlockU32<Test>;

frame_support::construct_runtime!(
	pub enum Test {
		System: frame_system,
		Timestamp: pallet_timestamp,
		Balances: pallet_balances,
		DidRegistry: pallet_did_registry,
		DeliveryPolicies: pallet_delivery_policy,
	}
);

#[derive_impl(frame_system::config_preludes::TestDefaultConfig)]
impl frame_system::Config for Test {
	type Block = Block;
	type AccountId = AccountId32;
	type Lookup = IdentityLookup<AccountId32>;
	type AccountData = pallet_balances::AccountData<u64>;
}

#[derive_impl(pallet_balances::config_preludes::TestDefaultConfig)]
impl pallet_balances::Config for Test {
	type AccountStore = System;
}

impl pallet_timestamp::Config for Test {
	type Moment = u64;
	type OnTimestampSet = ();
	type MinimumPeriod = ConstU64<1>;
	type WeightInfo = ();
}

impl pallet_did_registry::Config for Test {
	type Time = Timestamp;
	type OnDidDeleted = DeliveryPolicies;
	type Currency = Balances;
	type RecordDeposit = ConstU64<10_000>;
	type ByteDeposit = ConstU64<1>;
	type MaxDidLen = ConstU32<128>;
	type MaxIdLen = ConstU32<192>;
	type MaxVMs = ConstU32<5>;
	type MaxKAs = ConstU32<5>;
	type MaxVMTypeLen = ConstU32<64>;
	type MaxKaTypeLen = ConstU32<64>;
	type MaxServiceTypeLen = ConstU32<64>;
	type MaxKeyMultibaseLen = ConstU32<128>;
	type MaxRefsPerRel = ConstU32<4>;
	type MaxServices = ConstU32<4>;
	type MaxServiceEndpoints = ConstU32<5>;
	type MaxServiceEndpointUrlLen = ConstU32<128>;
	type MaxServiceAuthorizationKeys = ConstU32<8>;
	type MaxDocLen = ConstU32<16_384>;
	type MaxAliasLen = ConstU32<64>;
	type MaxAliases = ConstU32<8>;
	type MaxDevices = ConstU32<10>;
	type MaxDeviceIdLen = ConstU32<64>;
	type MaxPolicyRefs = ConstU32<8>;
	type MaxPolicyRefLen = ConstU32<128>;
	type MaxProofAheadMs = ConstU64<3_600_000>;
	type MaxClockSkewMs = ConstU64<300_000>;
	type ProofLongevity = ConstU64<64>;
	type ProofsAtOnce = ConstU32<16>;
	type ProofsInReserve = ConstU32<4>;
	type ProofInterval = ConstU32<100>;
	type MaxComponentCalls = ConstU32<8>;
	type MaxRotations = ConstU64<200>;
	type AliasReserveMs = ConstU64<1_000_000>;
	type SilenceMs = ConstU64<10_000_000>;
	type WeightInfo = pallet_did_registry::weights::Measured<Self>;
}

impl Config for Test {
	type MaxTtl = ConstU32<432_000>;
	type MaxMessageBytes = ConstU32<16_777_216>;
	type MaxReplication = ConstU8<4>;
	type MaxHeaderPreviewBytes = ConstU32<4_096>;
	type MaxReleaseFee = ConstU128<1_000_000_000_000_000>;
	type MaxAssetLen = ConstU32<32>;
	type MaxAllowedRelays = ConstU32<16>;
	type MaxRelayIdLen = ConstU32<128>;
	type MaxSignerKeyIdLen = ConstU32<256>;
	type WeightInfo = weights::Measured<Self>;
}

const DID: &[u8] = b"did:svc:1111111111111111111111";
const OTHER: &[u8] = b"did:svc:2222222222222222222222";
const ROOT: &[u8] = b"root";
const TIME: &[u8] = b"2026-07-16T12:00:00Z";
const NOW: u64 = 1_800_000_000_000;

fn alice() -> RuntimeOrigin {
	RuntimeOrigin::signed(AccountId32::new([1; 32]))
}

fn bob() -> RuntimeOrigin {
	RuntimeOrigin::signed(AccountId32::new([2; 32]))
}

fn root() -> ed25519::Pair {
	ed25519::Pair::from_seed(&[7; 32])
}

fn bytes<B: TryFrom<Vec<u8>>>(bytes: &[u8]) -> B {
	B::try_from(bytes.to_vec()).ok().expect("within the bound")
}

/// A chain that takes proofs of every version, on which `alice` owns the DID.
fn test(run: impl FnOnce()) {
	let config = RuntimeGenesisConfig {
		balances: pallet_balances::GenesisConfig {
			balances: vec![(AccountId32::new([1; 32]), 1_000_000)],
			..Default::default()
		},
		did_registry: pallet_did_registry::GenesisConfig { plain_proofs: true, ..Default::default() },
		..Default::default()
	};
	sp_io::TestExternalities::new(config.build_storage().unwrap()).execute_with(|| {
		System::set_block_number(1);
		Timestamp::set_timestamp(NOW);
		Timestamp::on_finalize(1);
		register();
		run();
		DeliveryPolicies::do_try_state().unwrap();
	});
}

fn register() {
	register_at(TIME);
}

fn register_at(time: &[u8]) {
	let document = DidDocument::<Test>::empty(bytes(DID)).encode();
	let signature = root().sign(&[DID, b"|", time].concat()).0.to_vec();
	let key = root().public().0.to_vec();
	DidRegistry::register_with_document_proof_signed(
		alice(),
		DID.to_vec(),
		None,
		time.to_vec(),
		key,
		signature,
		document,
	)
	.unwrap();
}

fn control(action: ControlAction<Test>, nonce: u64) {
	let payload = ControlAuthorizationPayload {
		did: bytes(DID),
		action,
		nonce,
		valid_until: NOW + 1,
		signer_key_id: bytes(ROOT),
	};
	let payload = payload.encode();
	let signature = root().sign(&payload).0.to_vec();
	DidRegistry::apply_control_with_proof(RuntimeOrigin::none(), payload, signature, ROOT.to_vec()).unwrap();
}

/// Policy 11 of the worked vectors.
fn policy() -> DeliveryPolicy<Test> {
	DeliveryPolicy {
		effective_ttl: 14_400,
		max_message_bytes: 1_048_576,
		cache_eligible: true,
		replication: Some(2),
		encrypted_header_preview_bytes: Some(256),
		release_pricing: Some(ReleasePricing { base_fee: 10, per_kib_fee: 1 }),
		expiration_behavior: Some(ExpirationBehavior::DeleteOnExpiry),
	}
}

fn persona() -> PersonaPolicy<Test> {
	PersonaPolicy {
		release_pricing: Some(PersonaPricing { asset: bytes(b"UNIT"), amount: 5 }),
		expiration_behavior: Some(PersonaExpiration {
			mode: ExpirationBehavior::TombstoneReference,
			retain_until: Some(9),
		}),
		allowed_relays: vec![bytes(b"relay-1")].try_into().unwrap(),
	}
}

fn recipient_policy() -> Option<DeliveryPolicy<Test>> {
	RecipientPolicies::<Test>::get(bytes::<pallet_did_registry::Did<Test>>(DID))
}

fn nonce() -> u64 {
	PolicyNonces::<Test>::get(bytes::<pallet_did_registry::Did<Test>>(DID))
}

fn last_event() -> Event<Test> {
	match System::events().pop().expect("an event").event {
		RuntimeEvent::DeliveryPolicies(event) => event,
		other => panic!("an event of another pallet: {other:?}"),
	}
}

fn hex(bytes: &[u8]) -> String {
	bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_policy_of_the_vectors() {
	assert_eq!(
		hex(&policy().encode()),
		"40380000000010000101020100010000010a000000000000000000000000000000010000000000000000000000000000000100"
	);
}

#[test]
fn the_persona_policy_encodes_field_after_field() {
	let expected =
		concat!("01", "10554e4954", "05000000000000000000000000000000", "0102010900000000000000", "041c72656c61792d31");
	assert_eq!(hex(&persona().encode()), expected);
	let least =
		PersonaPolicy::<Test> { release_pricing: None, expiration_behavior: None, allowed_relays: Default::default() };
	assert_eq!(hex(&least.encode()), "000000");
}

#[test]
fn the_owner_sets_and_clears() {
	test(|| {
		let scopes = [PolicyScope::Recipient, PolicyScope::Tag, PolicyScope::Persona];
		let results: [fn() -> DispatchResult; 3] = [
			|| DeliveryPolicies::set_delivery_policy(alice(), DID.to_vec(), policy()),
			|| DeliveryPolicies::set_tag_policy(alice(), DID.to_vec(), policy()),
			|| DeliveryPolicies::set_persona_policy(alice(), DID.to_vec(), persona()),
		];
		for (scope, set) in scopes.into_iter().zip(results) {
			assert_ok!(set());
			assert_eq!(last_event(), Event::PolicySet { scope, did: bytes(DID) });
		}
		let did = || bytes::<pallet_did_registry::Did<Test>>(DID);
		assert_eq!(recipient_policy(), Some(policy()));
		assert_eq!(TagPolicies::<Test>::get(did()), Some(policy()));
		assert_eq!(PersonaPolicies::<Test>::get(did()), Some(persona()));
		assert_ok!(DeliveryPolicies::clear_delivery_policy(alice(), DID.to_vec()));
		assert_eq!(last_event(), Event::PolicyCleared { scope: PolicyScope::Recipient, did: bytes(DID) });
		assert_eq!(recipient_policy(), None);
		assert_noop!(DeliveryPolicies::clear_delivery_policy(alice(), DID.to_vec()), Error::<Test>::PolicyNotFound);
		assert_ok!(DeliveryPolicies::clear_tag_policy(alice(), DID.to_vec()));
		assert_eq!(last_event(), Event::PolicyCleared { scope: PolicyScope::Tag, did: bytes(DID) });
		assert_ok!(DeliveryPolicies::clear_persona_policy(alice(), DID.to_vec()));
		assert_eq!(last_event(), Event::PolicyCleared { scope: PolicyScope::Persona, did: bytes(DID) });
		assert_eq!((TagPolicies::<Test>::get(did()), PersonaPolicies::<Test>::get(did())), (None, None));
		assert_noop!(DeliveryPolicies::clear_tag_policy(alice(), DID.to_vec()), Error::<Test>::PolicyNotFound);
		assert_noop!(DeliveryPolicies::clear_persona_policy(alice(), DID.to_vec()), Error::<Test>::PolicyNotFound);
		assert_eq!(nonce(), 0);
	});
}

#[test]
fn texts_of_a_persona_policy_are_utf8() {
	test(|| {
		let mut flawed = persona();
		flawed.allowed_relays = vec![bytes(&[0xff])].try_into().unwrap();
		let set = |policy| DeliveryPolicies::set_persona_policy(alice(), DID.to_vec(), policy);
		assert_noop!(set(flawed), Error::<Test>::InvalidConstraints);
		let mut flawed = persona();
		flawed.release_pricing.as_mut().unwrap().asset = bytes(&[0xff]);
		assert_noop!(set(flawed), Error::<Test>::InvalidConstraints);
	});
}

#[test]
fn only_the_owner_of_an_active_did_sets() {
	let calls: [fn(RuntimeOrigin, &[u8]) -> DispatchResult; 6] = [
		|origin, did| DeliveryPolicies::set_delivery_policy(origin, did.to_vec(), policy()),
		|origin, did| DeliveryPolicies::clear_delivery_policy(origin, did.to_vec()),
		|origin, did| DeliveryPolicies::set_tag_policy(origin, did.to_vec(), policy()),
		|origin, did| DeliveryPolicies::set_persona_policy(origin, did.to_vec(), persona()),
		|origin, did| DeliveryPolicies::clear_tag_policy(origin, did.to_vec()),
		|origin, did| DeliveryPolicies::clear_persona_policy(origin, did.to_vec()),
	];
	for call in calls {
		test(|| {
			assert_noop!(call(alice(), &[b'1'; 129]), Error::<Test>::DidTooLong);
			assert_noop!(call(alice(), OTHER), Error::<Test>::DidNotFound);
			assert_noop!(call(bob(), DID), Error::<Test>::NotPolicyController);
			assert_noop!(call(RuntimeOrigin::none(), DID), DispatchError::BadOrigin);
			control(ControlAction::DeactivateDid, 0);
			assert_noop!(call(alice(), DID), Error::<Test>::DidNotFound);
		});
	}
}

#[test]
fn every_bound_of_a_policy() {
	type Change = fn(&mut DeliveryPolicy<Test>);
	let refused: [(Change, Error<Test>); 10] = [
		(|p| p.effective_ttl = 0, Error::InvalidTtl),
		(|p| p.effective_ttl = 432_001, Error::InvalidTtl),
		(|p| p.max_message_bytes = 0, Error::MaxMessageSizeExceeded),
		(|p| p.max_message_bytes = 16_777_217, Error::MaxMessageSizeExceeded),
		(|p| p.replication = Some(0), Error::InvalidReplication),
		(|p| p.replication = Some(5), Error::InvalidReplication),
		(|p| p.encrypted_header_preview_bytes = Some(4_097), Error::HeaderPreviewTooLarge),
		(|p| p.release_pricing.as_mut().unwrap().base_fee = 1_000_000_000_000_001, Error::ReleaseFeeTooLarge),
		(|p| p.release_pricing.as_mut().unwrap().per_kib_fee = 1_000_000_000_000_001, Error::ReleaseFeeTooLarge),
		// The first of several.
		(|p| (p.effective_ttl, p.replication) = (0, Some(5)), Error::InvalidTtl),
	];
	for (change, error) in refused {
		test(|| {
			let mut flawed = policy();
			change(&mut flawed);
			let error = DispatchError::from(error);
			let result =
				with_storage_layer(|| DeliveryPolicies::set_delivery_policy(alice(), DID.to_vec(), flawed.clone()));
			assert_eq!(result, Err(error));
			let result = with_storage_layer(|| DeliveryPolicies::set_tag_policy(alice(), DID.to_vec(), flawed));
			assert_eq!(result, Err(error));
		});
	}
	let accepted: [Change; 3] = [
		|p| {
			(p.effective_ttl, p.max_message_bytes, p.replication) = (432_000, 16_777_216, Some(4));
			p.encrypted_header_preview_bytes = Some(4_096);
			p.release_pricing =
				Some(ReleasePricing { base_fee: 1_000_000_000_000_000, per_kib_fee: 1_000_000_000_000_000 });
		},
		|p| (p.effective_ttl, p.max_message_bytes, p.replication) = (1, 1, Some(1)),
		|p| {
			(p.replication, p.encrypted_header_preview_bytes) = (None, None);
			(p.release_pricing, p.expiration_behavior) = (None, None);
		},
	];
	for change in accepted {
		test(|| {
			let mut policy = policy();
			change(&mut policy);
			assert_ok!(DeliveryPolicies::set_delivery_policy(alice(), DID.to_vec(), policy.clone()));
			assert_eq!(recipient_policy(), Some(policy));
		});
	}
}

fn payload(action: PolicyAction<Test>, nonce: u64) -> PolicyAuthorizationPayload<Test> {
	PolicyAuthorizationPayload { did: bytes(DID), action, nonce, valid_until: NOW + 1, signer_key_id: bytes(ROOT) }
}

fn prove(payload: Vec<u8>, signer: &[u8]) -> DispatchResult {
	let signature = root().sign(&payload).0.to_vec();
	with_storage_layer(|| {
		DeliveryPolicies::apply_policy_with_proof(RuntimeOrigin::none(), payload, signature, signer.to_vec())
	})
}

#[test]
fn a_key_of_the_did_sets_and_clears() {
	test(|| {
		assert_ok!(prove(payload(PolicyAction::SetRecipient(policy()), 0).encode(), ROOT));
		assert_ok!(prove(payload(PolicyAction::SetTag(policy()), 1).encode(), ROOT));
		assert_ok!(prove(payload(PolicyAction::SetPersona(persona()), 2).encode(), ROOT));
		assert_eq!(recipient_policy(), Some(policy()));
		assert_ok!(prove(payload(PolicyAction::ClearRecipient, 3).encode(), ROOT));
		assert_eq!((recipient_policy(), nonce()), (None, 4));
		assert_eq!(last_event(), Event::PolicyCleared { scope: PolicyScope::Recipient, did: bytes(DID) });
		// The two that clear the others stand behind the family's actions.
		assert_eq!(
			(PolicyAction::<Test>::ClearTag.encode(), PolicyAction::<Test>::ClearPersona.encode()),
			(vec![4], vec![5])
		);
		assert_ok!(prove(payload(PolicyAction::ClearTag, 4).encode(), ROOT));
		assert_ok!(prove(payload(PolicyAction::ClearPersona, 5).encode(), ROOT));
		let did = || bytes::<pallet_did_registry::Did<Test>>(DID);
		assert_eq!((TagPolicies::<Test>::get(did()), PersonaPolicies::<Test>::get(did())), (None, None));
		assert_eq!(last_event(), Event::PolicyCleared { scope: PolicyScope::Persona, did: bytes(DID) });
		let record = pallet_did_registry::Dids::<Test>::get(bytes::<pallet_did_registry::Did<Test>>(DID)).unwrap();
		assert_eq!(record.version, 1);
	});
}

#[test]
fn a_policy_by_proof_draws_on_the_allowance_of_the_did() {
	test(|| {
		for nonce in 0..16 {
			assert_ok!(prove(payload(PolicyAction::SetRecipient(policy()), nonce).encode(), ROOT));
		}
		let refused = pallet_did_registry::Error::<Test>::TooManyProofs;
		let one_more = || prove(payload(PolicyAction::ClearRecipient, 16).encode(), ROOT);
		assert_noop!(one_more(), refused);
		// The owner's account pays for what it signs.
		assert_ok!(DeliveryPolicies::set_tag_policy(alice(), DID.to_vec(), policy()));
		System::set_block_number(101);
		assert_ok!(one_more());
	});
}

#[test]
fn the_deposit_of_a_record_pays_for_its_policies() {
	test(|| {
		use codec::MaxEncodedLen;
		use pallet_did_registry::{Alias, Did, DidRecord};
		let aliases = 8 * (Alias::<Test>::max_encoded_len() + Did::<Test>::max_encoded_len());
		let policies = 2 * DeliveryPolicy::<Test>::max_encoded_len() + PersonaPolicy::<Test>::max_encoded_len();
		let bytes = DidRecord::<Test>::max_encoded_len() + aliases + policies;
		assert_eq!(DidRegistry::deposit(), 10_000 + bytes as u64);
	});
}

#[test]
fn the_authorization_of_a_policy_is_checked_in_order() {
	test(|| {
		let expected = |result: DispatchResult, error: Error<Test>| assert_eq!(result, Err(error.into()));
		let good = || payload(PolicyAction::ClearRecipient, 0);
		expected(prove(vec![], ROOT), Error::InvalidPolicyPayload);
		expected(prove([good().encode(), vec![0]].concat(), ROOT), Error::InvalidPolicyPayload);
		expected(prove(good().encode(), b"other"), Error::InvalidPolicyPayload);
		let late = PolicyAuthorizationPayload { valid_until: NOW, ..good() };
		expected(prove(late.encode(), ROOT), Error::PolicyAuthorizationExpired);
		let unknown = PolicyAuthorizationPayload { did: bytes(OTHER), ..good() };
		expected(prove(unknown.encode(), ROOT), Error::DidNotFound);
		expected(prove(payload(PolicyAction::ClearRecipient, 1).encode(), ROOT), Error::InvalidPolicyNonce);
		let forged = DeliveryPolicies::apply_policy_with_proof(
			RuntimeOrigin::none(),
			good().encode(),
			vec![1; 64],
			ROOT.to_vec(),
		);
		expected(forged, Error::InvalidSignature);
		expected(prove(good().encode(), ROOT), Error::PolicyNotFound);
		let flawed = DeliveryPolicy { effective_ttl: 0, ..policy() };
		expected(prove(payload(PolicyAction::SetRecipient(flawed), 0).encode(), ROOT), Error::InvalidTtl);
		assert_eq!(nonce(), 0);
		control(ControlAction::DeactivateDid, 0);
		expected(prove(payload(PolicyAction::SetTag(policy()), 0).encode(), ROOT), Error::DidNotFound);
	});
}

#[test]
fn accounts_may_not_submit_proofs() {
	test(|| {
		let payload = payload(PolicyAction::SetTag(policy()), 0).encode();
		let signature = root().sign(&payload).0.to_vec();
		let call = |origin| {
			DeliveryPolicies::apply_policy_with_proof(origin, payload.clone(), signature.clone(), ROOT.to_vec())
		};
		assert_noop!(call(alice()), DispatchError::BadOrigin);
		assert_ok!(call(frame_system::RawOrigin::Authorized.into()));
	});
}

#[test]
fn deletion_takes_the_policies_along_and_keeps_the_counter() {
	test(|| {
		assert_ok!(prove(payload(PolicyAction::SetRecipient(policy()), 0).encode(), ROOT));
		assert_ok!(prove(payload(PolicyAction::SetTag(policy()), 1).encode(), ROOT));
		assert_ok!(prove(payload(PolicyAction::SetPersona(persona()), 2).encode(), ROOT));
		control(ControlAction::DeleteDid, 0);
		let did = || bytes::<pallet_did_registry::Did<Test>>(DID);
		assert_eq!(recipient_policy(), None);
		assert_eq!(TagPolicies::<Test>::get(did()), None);
		assert_eq!(PersonaPolicies::<Test>::get(did()), None);
		assert_eq!(nonce(), 3);
		register_at(b"2026-07-16T12:00:01Z");
		let old = payload(PolicyAction::SetRecipient(policy()), 0).encode();
		assert_noop!(prove(old, ROOT), Error::<Test>::InvalidPolicyNonce);
	});
}

#[test]
fn a_proof_is_verified_before_it_enters_the_pool() {
	let admit = |payload: Vec<u8>, signature: Vec<u8>| {
		let call =
			Call::<Test>::apply_policy_with_proof { signed_payload: payload, signature, signer_key_id: ROOT.to_vec() };
		call.authorize(TransactionSource::External).expect("the call brings a proof").map(|(validity, _)| validity)
	};
	test(|| {
		let before = System::event_count();
		let good = payload(PolicyAction::SetTag(policy()), 0).encode();
		let signature = root().sign(&good).0.to_vec();
		let validity = admit(good.clone(), signature).unwrap();
		assert_eq!(
			(validity.priority, validity.longevity, validity.propagate),
			(pallet_did_registry::priority::POLICY, 64, true)
		);
		let other = payload(PolicyAction::SetRecipient(policy()), 0).encode();
		let signature = root().sign(&other).0.to_vec();
		assert_eq!(validity.provides, admit(other, signature).unwrap().provides);
		let refusal = |reason: InvalidTransaction| Err(TransactionValidityError::Invalid(reason));
		assert_eq!(admit(good, vec![1; 64]), refusal(InvalidTransaction::BadProof));
		let stale = payload(PolicyAction::SetTag(policy()), 1).encode();
		assert_eq!(admit(stale, vec![1; 64]), refusal(InvalidTransaction::Custom(10)));
		assert_eq!((nonce(), System::event_count()), (0, before));
	});
}

#[test]
fn a_policy_of_version_3_is_for_one_chain() {
	test(|| {
		pallet_did_registry::PlainProofs::<Test>::put(false);
		let good = payload(PolicyAction::SetTag(policy()), 0).encode();
		let call = |message: &[u8]| {
			let signature = root().sign(message).0.to_vec();
			with_storage_layer(|| {
				DeliveryPolicies::apply_policy_with_proof(RuntimeOrigin::none(), good.clone(), signature, ROOT.to_vec())
			})
		};
		let message = |genesis: &[u8]| [b"svc:authorization:v3:policy|", genesis, &good].concat();
		assert_noop!(call(&good), Error::<Test>::InvalidSignature);
		assert_noop!(call(&message(&[9; 32])), Error::<Test>::InvalidSignature);
		assert_ok!(call(&message(DidRegistry::genesis_hash().as_ref())));
		assert_eq!(nonce(), 1);
	});
}
