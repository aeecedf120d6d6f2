//! A runtime of this pallet alone, the keys of the worked vectors, and builders for what they sign.

use crate as pallet_did_registry;
use crate::*;
use codec::Encode;
use frame_support::{
	derive_impl,
	dispatch::DispatchResult,
	traits::{ConstU32, ConstU64, Hooks},
};
use sp_core::{ed25519, Pair};
use sp_runtime::{
	traits::IdentityLookup,
	transaction_validity::{TransactionValidityError, ValidTransaction},
	AccountId32, BuildStorage,
};

type Block = frame_system::mocking::MockBlock<Test>;

frame_support::construct_runtime!(
	pub enum Test {
		System: frame_system,
		Timestamp: pallet_timestamp,
		Balances: pallet_balances,
		DidRegistry: pallet_did_registry,
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

impl Config for Test {
	type Time = Timestamp;
	type OnDidDeleted = ();
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
	type ProofInterval = ConstU64<100>;
	type MaxComponentCalls = ConstU32<8>;
	type MaxRotations = ConstU64<200>;
	type AliasReserveMs = ConstU64<1_000_000>;
	type SilenceMs = ConstU64<10_000_000>;
	type WeightInfo = weights::Measured<Self>;
}

pub const DID: &[u8] = b"did:svc:1111111111111111111111";
pub const OTHER: &[u8] = b"did:svc:2222222222222222222222";
pub const TIME: &[u8] = b"2026-07-16T12:00:00Z";
pub const TIME_MS: u64 = 1_784_203_200_000;
/// The time of the block in every test that does not set another.
pub const NOW: u64 = 1_800_000_000_000;
pub const VALID_UNTIL: u64 = 1_893_456_000_000;
pub const MULTIBASE: &[u8] = b"z6MkvDqGT54cXesYGvABpF1UapVNwjCqRcafi4Px6Thv5T3Z";
pub const ROOT: &[u8] = b"root";

pub fn alice() -> AccountId32 {
	AccountId32::new([1; 32])
}

pub fn bob() -> AccountId32 {
	AccountId32::new([2; 32])
}

pub fn pair(seed: u8) -> ed25519::Pair {
	ed25519::Pair::from_seed(&[seed; 32])
}

/// The root key of the worked vectors.
pub fn root() -> ed25519::Pair {
	pair(7)
}

pub fn key_of(pair: &ed25519::Pair) -> Vec<u8> {
	pair.public().0.to_vec()
}

pub fn multibase_of(pair: &ed25519::Pair) -> Vec<u8> {
	let bytes = [&[0xed, 0x01][..], &pair.public().0].concat();
	[b"z", bs58::encode(bytes).into_vec().as_slice()].concat()
}

pub fn sign(pair: &ed25519::Pair, message: &[u8]) -> Vec<u8> {
	pair.sign(message).0.to_vec()
}

/// A chain that takes proofs of every version, as one of the family does.
pub fn test(run: impl FnOnce()) {
	on_chain(true, run);
}

/// A chain that takes version 3 only, as every chain does whose first state does not say otherwise.
pub fn strict(run: impl FnOnce()) {
	on_chain(false, run);
}

pub const MONEY: u64 = 1_000_000;

fn on_chain(plain_proofs: bool, run: impl FnOnce()) {
	let config = RuntimeGenesisConfig {
		balances: pallet_balances::GenesisConfig {
			balances: vec![(alice(), MONEY), (bob(), MONEY)],
			..Default::default()
		},
		did_registry: GenesisConfig { plain_proofs, ..Default::default() },
		..Default::default()
	};
	sp_io::TestExternalities::new(config.build_storage().unwrap()).execute_with(|| {
		System::set_block_number(1);
		set_time(NOW);
		run();
		DidRegistry::do_try_state().unwrap();
	});
}

pub fn set_time(ms: u64) {
	Timestamp::set_timestamp(ms);
	Timestamp::on_finalize(1);
}

pub fn unhex(text: &str) -> Vec<u8> {
	(0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

pub fn bytes<B: TryFrom<Vec<u8>>>(bytes: &[u8]) -> B {
	B::try_from(bytes.to_vec()).ok().expect("within the bound")
}

pub fn id(fragment: &str) -> Vec<u8> {
	[DID, b"#", fragment.as_bytes()].concat()
}

pub fn method_of(id: &[u8], multibase: &[u8]) -> VerificationMethod<Test> {
	VerificationMethod {
		id: bytes(id),
		type_: bytes(b"Multikey"),
		controller: bytes(DID),
		public_key_multibase: bytes(multibase),
	}
}

/// Method 1 of the worked vectors.
pub fn method() -> VerificationMethod<Test> {
	method_of(&id("k1"), MULTIBASE)
}

pub fn agreement(fragment: &str) -> KeyAgreement<Test> {
	KeyAgreement {
		id: bytes(&id(fragment)),
		type_: bytes(b"X25519KeyAgreementKey2020"),
		controller: bytes(DID),
		public_key_multibase: bytes(b"z6LSbysY2xFMRpGMhb7tFTLMpeuPRaqaWM1yECx2AtzE3KCc"),
	}
}

/// Service 8 of the worked vectors, under any fragment.
pub fn service(fragment: &str) -> Service<Test> {
	Service {
		id: bytes(&id(fragment)),
		type_: bytes(b"SvcCacheService"),
		service_endpoint: vec![bytes(b"https://cache.example")].try_into().unwrap(),
		authorization: Some(vec![bytes(&id("k1"))].try_into().unwrap()),
		priority: None,
	}
}

/// Document 9 of the worked vectors.
pub fn document() -> DidDocument<Test> {
	DidDocument {
		id: bytes(DID),
		verification_method: vec![method()].try_into().unwrap(),
		authentication: Some(vec![bytes(&id("k1"))].try_into().unwrap()),
		key_agreement: Default::default(),
		service: Some(vec![service("cache")].try_into().unwrap()),
	}
}

pub fn none() -> RuntimeOrigin {
	RuntimeOrigin::none()
}

pub fn signed(account: AccountId32) -> RuntimeOrigin {
	RuntimeOrigin::signed(account)
}

pub fn v1_registration(did: &[u8], time: &[u8]) -> Vec<u8> {
	sign(&root(), &[did, b"|", time].concat())
}

/// Registers the DID of the vectors for `alice`, with document 9.
pub fn register() {
	register_as(DID, TIME, &document().encode()).unwrap();
}

pub fn register_as(did: &[u8], time: &[u8], blob: &[u8]) -> DispatchResult {
	DidRegistry::register_with_document_proof_signed(
		signed(alice()),
		did.to_vec(),
		None,
		time.to_vec(),
		key_of(&root()),
		v1_registration(did, time),
		blob.to_vec(),
	)
}

pub fn record(did: &[u8]) -> DidRecord<Test> {
	Dids::<Test>::get(bytes::<Did<Test>>(did)).expect("the record exists")
}

pub fn exists(did: &[u8]) -> bool {
	Dids::<Test>::contains_key(bytes::<Did<Test>>(did))
}

/// Document, alias, root-key and control counter.
pub fn counters() -> [u64; 4] {
	let did: Did<Test> = bytes(DID);
	[
		DocumentNonces::<Test>::get(&did),
		AliasNonces::<Test>::get(&did),
		RootPubkeyNonces::<Test>::get(&did),
		ControlNonces::<Test>::get(&did),
	]
}

pub fn events() -> Vec<Event<Test>> {
	let own = |record: frame_system::EventRecord<RuntimeEvent, _>| match record.event {
		RuntimeEvent::DidRegistry(event) => Some(event),
		RuntimeEvent::Balances(_) => None,
		other => panic!("an event of another pallet: {other:?}"),
	};
	System::events().into_iter().filter_map(own).collect()
}

pub fn last_event() -> Event<Test> {
	events().pop().expect("an event")
}

pub fn document_payload(action: DocumentAction, nonce: u64) -> DocumentAuthorizationPayload<Test> {
	DocumentAuthorizationPayload {
		did: bytes(DID),
		action,
		verification_method: None,
		key_agreement: None,
		service: None,
		id: None,
		nonce,
		valid_until: VALID_UNTIL,
		signer_key_id: bytes(ROOT),
	}
}

pub fn control_payload(action: ControlAction<Test>, nonce: u64) -> ControlAuthorizationPayload<Test> {
	ControlAuthorizationPayload { did: bytes(DID), action, nonce, valid_until: VALID_UNTIL, signer_key_id: bytes(ROOT) }
}

pub fn control(action: ControlAction<Test>, nonce: u64) -> DispatchResult {
	let payload = control_payload(action, nonce).encode();
	let signature = sign(&root(), &payload);
	DidRegistry::apply_control_with_proof(none(), payload, signature, ROOT.to_vec())
}

/// What version 3 says of the chain.
pub fn genesis() -> [u8; 32] {
	DidRegistry::genesis_hash().0
}

/// The signature of version 3 under a payload.
pub fn sign_v3(pair: &ed25519::Pair, domain: Domain, payload: &[u8]) -> Vec<u8> {
	sign(pair, &DidRegistry::authorization_message(domain, &genesis(), payload))
}

/// Takes the root key of a record away, as a chain of the family may have records without one.
pub fn without_key(did: &[u8]) {
	Dids::<Test>::mutate(bytes::<Did<Test>>(did), |record| record.as_mut().unwrap().root_pubkey = None);
}

/// What the pool answers to a call.
pub fn admit(call: Call<Test>) -> Result<ValidTransaction, TransactionValidityError> {
	use frame_support::{pallet_prelude::TransactionSource, traits::Authorize};
	call.authorize(TransactionSource::External).expect("the call brings a proof").map(|(validity, _)| validity)
}
