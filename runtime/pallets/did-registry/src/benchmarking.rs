//! What each call costs at its dearest: on the largest record that can stand, with the arguments at their bounds, by
//! a signer whose key must be found and looked at. Components: `b` is the bytes of texts in the argument, services and key
//! agreements of a document included; `m` is the number of its methods, each with a key to look at.
//! Arguments beyond their bounds end a call before it does any of this.

use crate::*;
use alloc::{format, vec, vec::Vec};
use codec::Encode;
use frame_benchmarking::v2::*;
use frame_support::{
	traits::{
		fungible::{hold::Mutate as _, Inspect, Mutate},
		Get,
	},
	BoundedVec,
};
use frame_system::RawOrigin;
use sp_core::{crypto::KeyTypeId, ed25519};
use sp_runtime::traits::Saturating;

const KEYS: KeyTypeId = KeyTypeId(*b"weig");
/// The clock of the first state stands at 0.
const EXPIRY_MS: u64 = 1;

/// One key is the root key and that of every method. Its secret is 32 bytes 07: a phrase would take long to stretch.
fn key() -> ed25519::Public {
	sp_io::crypto::ed25519_generate(KEYS, Some(format!("0x{}", "07".repeat(32)).into_bytes()))
}

fn sign(message: &[u8]) -> Vec<u8> {
	sp_io::crypto::ed25519_sign(KEYS, &key(), message).expect("the key was made").0.to_vec()
}

/// A text of this length that no other number gives.
fn text<S: Get<u32>>(number: u32, len: u32) -> BoundedVec<u8, S> {
	let mut text = format!("{number:02}").into_bytes();
	text.resize(len as usize, b'a');
	text.try_into().expect("the length is within the bound")
}

fn longest<S: Get<u32>>(number: u32) -> BoundedVec<u8, S> {
	text(number, S::get())
}

fn list<E, S: Get<u32>>(len: u32, entry: impl Fn(u32) -> E) -> BoundedVec<E, S> {
	(0..len).map(entry).collect::<Vec<_>>().try_into().ok().expect("the length is within the bound")
}

/// The longest DID.
pub fn did<T: Config>() -> Did<T> {
	let mut did = b"did:svc:".to_vec();
	did.resize(8 + 96, b'a');
	did.try_into().expect("DIDs are within their bound")
}

fn method<T: Config>(number: u32) -> VerificationMethod<T> {
	let key = [&[0xed, 0x01][..], &key().0].concat();
	VerificationMethod {
		id: longest(number),
		type_: b"Ed25519VerificationKey2020".to_vec().try_into().expect("types are within their bound"),
		controller: did::<T>().into_inner().try_into().expect("controllers are within their bound"),
		public_key_multibase: [b"z", bs58::encode(key).into_vec().as_slice()]
			.concat()
			.try_into()
			.expect("keys are within their bound"),
	}
}

/// How many bytes of texts a key agreement has at most, next to its controller.
fn agreement_bytes<T: Config>() -> u32 {
	T::MaxIdLen::get() + T::MaxKaTypeLen::get() + T::MaxKeyMultibaseLen::get()
}

/// With so many bytes of texts, each of which has some.
fn agreement_of<T: Config>(number: u32, bytes: u32) -> KeyAgreement<T> {
	let type_len = T::MaxKaTypeLen::get().min(bytes).max(1);
	let key_len = T::MaxKeyMultibaseLen::get().min(bytes.saturating_sub(type_len)).max(1);
	KeyAgreement {
		id: text(number, bytes.saturating_sub(type_len + key_len).max(2)),
		type_: text(0, type_len),
		controller: did::<T>().into_inner().try_into().expect("controllers are within their bound"),
		public_key_multibase: text(0, key_len),
	}
}

fn agreement<T: Config>(number: u32) -> KeyAgreement<T> {
	agreement_of(number, agreement_bytes::<T>())
}

/// How many bytes of URLs and ids a service holds at most, next to its own id and type.
fn service_bytes<T: Config>() -> u32 {
	let urls = T::MaxServiceEndpoints::get() * T::MaxServiceEndpointUrlLen::get();
	urls + T::MaxServiceAuthorizationKeys::get() * T::MaxIdLen::get()
}

/// So many bytes as texts of this length, the last one shorter.
pub fn texts<B: TryFrom<Vec<u8>>>(bytes: u32, each: u32) -> Vec<B> {
	let lens = (0..bytes.div_ceil(each)).map(|number| each.min(bytes - number * each));
	lens.map(|len| vec![b't'; len as usize].try_into().ok().expect("the length is within the bound")).collect()
}

/// With so many bytes of URLs and then of ids.
fn service<T: Config>(number: u32, bytes: u32) -> Service<T> {
	let url_bytes = bytes.min(T::MaxServiceEndpoints::get() * T::MaxServiceEndpointUrlLen::get());
	let mut urls = texts(url_bytes, T::MaxServiceEndpointUrlLen::get());
	if urls.is_empty() {
		urls.push(Default::default());
	}
	let ids = texts(bytes - url_bytes, T::MaxIdLen::get());
	Service {
		id: longest(number),
		type_: longest(0),
		service_endpoint: BoundedVec::truncate_from(urls),
		authorization: (!ids.is_empty()).then(|| BoundedVec::truncate_from(ids)),
		priority: Some(0),
	}
}

/// How many bytes of texts the services and key agreements of the largest document have.
fn document_bytes<T: Config>() -> u32 {
	T::MaxServices::get() * service_bytes::<T>() + T::MaxKAs::get() * agreement_bytes::<T>()
}

/// With so many methods, and services and then key agreements of so many bytes.
fn document<T: Config>(methods: u32, bytes: u32) -> DidDocument<T> {
	let each = service_bytes::<T>();
	let rest = bytes.saturating_sub(T::MaxServices::get() * each);
	let bytes = bytes - rest;
	let services = bytes.div_ceil(each);
	let agreement_each = agreement_bytes::<T>();
	DidDocument {
		id: did::<T>(),
		verification_method: list(methods, method::<T>),
		// One method signs nothing, so that it can be taken away or be named.
		authentication: (methods > 1).then(|| list(methods - 1, |number| method::<T>(number).id)),
		key_agreement: list(rest.div_ceil(agreement_each), |number| {
			agreement_of(number, agreement_each.min(rest - number * agreement_each))
		}),
		service: (services > 0).then(|| list(services, |number| service::<T>(number, each.min(bytes - number * each)))),
	}
}

/// How many bytes policy links have at most.
fn links_bytes<T: Config>() -> u32 {
	(1 + 2 * T::MaxPolicyRefs::get()) * T::MaxPolicyRefLen::get()
}

/// With so many bytes of references.
fn links<T: Config>(bytes: u32) -> DeliveryPolicyLinks<T> {
	let mut refs = texts(bytes, T::MaxPolicyRefLen::get());
	let recipient_policy = refs.pop();
	let persona_policies = refs.split_off(refs.len().min(T::MaxPolicyRefs::get() as usize));
	DeliveryPolicyLinks {
		recipient_policy,
		tag_policies: BoundedVec::truncate_from(refs),
		persona_policies: BoundedVec::truncate_from(persona_policies),
	}
}

/// As large as it gets but for `spare` places in each list, and with a key.
fn record<T: Config>(owner: T::AccountId, spare: u32) -> DidRecord<T> {
	let mut document = document::<T>(T::MaxVMs::get() - spare, (T::MaxServices::get() - spare) * service_bytes::<T>());
	document.key_agreement = list(T::MaxKAs::get() - spare, agreement::<T>);
	DidRecord {
		owner: Some(owner),
		aliases: Some(list(T::MaxAliases::get() - spare, longest)),
		devices: Some(list(T::MaxDevices::get() - spare, |number| DeviceInfo {
			device_id: longest(number),
			added_at: 0,
			tombstoned: false,
		})),
		document: Some(document),
		version: 1,
		updated_at: 0,
		root_pubkey: Some(key().0.to_vec().try_into().expect("it has 32 bytes")),
		delivery_policy_links: Some(links::<T>(links_bytes::<T>())),
		deactivated: false,
	}
}

fn operator<T: Config<Currency: Mutate<T::AccountId>>>() -> T::AccountId {
	rich::<T>(0)
}

fn other_operator<T: Config<Currency: Mutate<T::AccountId>>>() -> T::AccountId {
	rich::<T>(1)
}

/// An account that can pay two deposits.
fn rich<T: Config<Currency: Mutate<T::AccountId>>>(number: u32) -> T::AccountId {
	let operator: T::AccountId = account("operator", number, 0);
	let amount = T::Currency::minimum_balance().saturating_add(Pallet::<T>::deposit()).saturating_mul(2u32.into());
	T::Currency::mint_into(&operator, amount).expect("money can be made in a benchmark");
	operator
}

/// Puts the record in its place with everything that belongs to it, and returns whose it is.
pub fn standing<T: Config<Currency: Mutate<T::AccountId>>>(spare: u32) -> T::AccountId {
	let owner = operator::<T>();
	let record = record::<T>(owner.clone(), spare);
	for alias in record.aliases.iter().flatten() {
		AliasIndex::<T>::insert(alias, did::<T>());
	}
	reserves::<T>(&did::<T>(), 70, u64::MAX);
	let deposit = Pallet::<T>::deposit();
	T::Currency::hold(&HoldReason::Registration.into(), &owner, deposit).expect("the account has the money");
	Deposits::<T>::insert(did::<T>(), (&owner, deposit));
	Dids::<T>::insert(did::<T>(), record);
	owner
}

/// As many reserves as a DID may have, with these numbers as aliases.
fn reserves<T: Config>(did: &Did<T>, numbers_from: u32, until_ms: u64) {
	let aliases: BoundedVec<Alias<T>, T::MaxAliases> =
		list(T::MaxAliases::get(), |number| longest(numbers_from + number));
	for alias in &aliases {
		ReleasedAliases::<T>::insert(alias, Reserve { did: did.clone(), life: 0, until_ms });
	}
	ReleasesOf::<T>::insert(did, aliases);
}

/// An alias that another DID released so long ago that it is free.
fn free_alias<T: Config>() -> Alias<T> {
	let other: Did<T> = b"did:svc:other".to_vec().try_into().expect("DIDs are within their bound");
	reserves::<T>(&other, 90, 0);
	longest(90)
}

/// The same without a root key, as chains of the family may have records.
fn keyless<T: Config<Currency: Mutate<T::AccountId>>>(spare: u32) -> T::AccountId {
	let owner = standing::<T>(spare);
	Dids::<T>::mutate(did::<T>(), |record| record.as_mut().expect("it stands").root_pubkey = None);
	owner
}

/// The method that signs: one that the document lists.
pub fn signer<T: Config>() -> Id<T> {
	method::<T>(0).id
}

/// The payload, its signature and the signer. A plain signature, on a chain that takes it, is the dearer one: the
/// other form of the message is tried first.
pub fn authorization<T: Config>(payload: &impl Encode) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
	PlainProofs::<T>::put(true);
	let payload = payload.encode();
	let signature = sign(&payload);
	(payload, signature, signer::<T>().into_inner())
}

/// What signs one component: the payload with the argument in its place.
fn component<T: Config>(
	action: DocumentAction,
	fill: impl FnOnce(&mut DocumentAuthorizationPayload<T>),
) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
	let mut payload = DocumentAuthorizationPayload {
		did: did::<T>(),
		action,
		verification_method: None,
		key_agreement: None,
		service: None,
		id: None,
		nonce: 0,
		valid_until: EXPIRY_MS,
		signer_key_id: signer::<T>(),
	};
	fill(&mut payload);
	authorization::<T>(&payload)
}

fn named<T: Config>(action: DocumentAction, id: &Id<T>) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
	component::<T>(action, |payload| payload.id = Some(id.clone()))
}

fn on_alias<T: Config>(action: AliasAction, aliases: [Option<Alias<T>>; 3]) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
	let [alias, old_alias, new_alias] = aliases;
	let payload = AliasAuthorizationPayload::<T> {
		did: did::<T>(),
		action,
		alias,
		old_alias,
		new_alias,
		nonce: 0,
		valid_until: EXPIRY_MS,
		signer_key_id: signer::<T>(),
	};
	authorization::<T>(&payload)
}

fn control<T: Config>(action: ControlAction<T>) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
	let payload = ControlAuthorizationPayload {
		did: did::<T>(),
		action,
		nonce: 0,
		valid_until: EXPIRY_MS,
		signer_key_id: signer::<T>(),
	};
	authorization::<T>(&payload)
}

fn timestamp() -> Vec<u8> {
	format!("v3:0:{EXPIRY_MS}").into_bytes()
}

fn registration<T: Config>(who: &T::AccountId, alias: &Alias<T>, blob: &[u8]) -> Vec<u8> {
	let tail = (did::<T>(), Some(alias), key().0.to_vec(), sp_io::hashing::blake2_256(blob), 0u64, EXPIRY_MS);
	sign(&[b"svc:register:v3|", &(tail, Pallet::<T>::genesis_hash(), Some(who)).encode()[..]].concat())
}

fn version<T: Config>() -> Option<u64> {
	Dids::<T>::get(did::<T>()).map(|record| record.version)
}

#[benchmarks(where T::Currency: Mutate<T::AccountId>)]
mod benchmarks {
	use super::*;

	#[benchmark]
	fn set_alias() {
		let owner = keyless::<T>(0);
		let alias = free_alias::<T>().into_inner();
		#[extrinsic_call]
		_(RawOrigin::Signed(owner), did::<T>().into_inner(), alias);
		assert_eq!(version::<T>(), Some(2));
	}

	#[benchmark]
	fn add_device() {
		let owner = keyless::<T>(1);
		#[extrinsic_call]
		_(RawOrigin::Signed(owner), did::<T>().into_inner(), longest::<T::MaxDeviceIdLen>(90).into_inner());
		assert_eq!(version::<T>(), Some(2));
	}

	#[benchmark]
	fn tombstone_device() {
		let owner = keyless::<T>(0);
		let last = longest::<T::MaxDeviceIdLen>(T::MaxDevices::get() - 1);
		#[extrinsic_call]
		_(RawOrigin::Signed(owner), did::<T>().into_inner(), last.into_inner());
		assert_eq!(version::<T>(), Some(2));
	}

	#[benchmark]
	fn update_device() {
		let owner = keyless::<T>(0);
		let last = longest::<T::MaxDeviceIdLen>(T::MaxDevices::get() - 1).into_inner();
		#[extrinsic_call]
		_(RawOrigin::Signed(owner), did::<T>().into_inner(), last, longest::<T::MaxDeviceIdLen>(90).into_inner());
		assert_eq!(version::<T>(), Some(2));
	}

	#[benchmark]
	fn remove_device() {
		let owner = keyless::<T>(0);
		#[extrinsic_call]
		_(RawOrigin::Signed(owner), did::<T>().into_inner(), longest::<T::MaxDeviceIdLen>(0).into_inner());
		assert_eq!(version::<T>(), Some(2));
	}

	#[benchmark]
	fn deactivate_did() {
		let owner = keyless::<T>(0);
		#[extrinsic_call]
		_(RawOrigin::Signed(owner), did::<T>().into_inner());
		assert_eq!(version::<T>(), Some(2));
	}

	#[benchmark]
	fn set_document(b: Linear<0, { document_bytes::<T>() }>, m: Linear<0, { T::MaxVMs::get() }>) {
		let owner = keyless::<T>(0);
		let blob = document::<T>(m, b).encode();
		#[extrinsic_call]
		_(RawOrigin::Signed(owner), did::<T>().into_inner(), blob);
		assert_eq!(version::<T>(), Some(2));
	}

	#[benchmark]
	fn set_document_with_proof(b: Linear<0, { document_bytes::<T>() }>, m: Linear<0, { T::MaxVMs::get() }>) {
		standing::<T>(0);
		let blob = document::<T>(m, b).encode();
		let tail = (did::<T>(), sp_io::hashing::blake2_256(&blob), 0u64, EXPIRY_MS);
		let message = [b"svc:set_document:v3|", &(tail, Pallet::<T>::genesis_hash()).encode()[..]].concat();
		#[extrinsic_call]
		_(RawOrigin::None, did::<T>().into_inner(), blob, timestamp(), key().0.to_vec(), sign(&message));
		assert_eq!(version::<T>(), Some(2));
	}

	#[benchmark]
	fn register_with_document_proof_signed(
		b: Linear<0, { document_bytes::<T>() }>,
		m: Linear<0, { T::MaxVMs::get() }>,
	) {
		let who = operator::<T>();
		let alias = free_alias::<T>();
		let blob = document::<T>(m, b).encode();
		let signature = registration::<T>(&who, &alias, &blob);
		let (did, alias, key) = (did::<T>().into_inner(), Some(alias.into_inner()), key().0.to_vec());
		#[extrinsic_call]
		_(RawOrigin::Signed(who), did, alias, timestamp(), key, signature, blob);
		assert_eq!(version::<T>(), Some(1));
	}

	#[benchmark]
	fn register_with_proof() {
		let who = operator::<T>();
		let alias = free_alias::<T>();
		let signature = registration::<T>(&who, &alias, &[]);
		let (did, alias, key) = (did::<T>().into_inner(), Some(alias.into_inner()), key().0.to_vec());
		#[extrinsic_call]
		_(RawOrigin::Signed(who), did, alias, timestamp(), key, signature);
		assert_eq!(version::<T>(), Some(1));
	}

	#[benchmark]
	fn set_delivery_policy_links(b: Linear<0, { links_bytes::<T>() }>) {
		let owner = standing::<T>(0);
		let links = links::<T>(b);
		let refs = |refs: BoundedVec<PolicyRef<T>, T::MaxPolicyRefs>| refs.into_iter().map(BoundedVec::into_inner);
		let tags = refs(links.tag_policies).collect();
		let personas = refs(links.persona_policies).collect();
		let recipient = links.recipient_policy.map(BoundedVec::into_inner);
		#[extrinsic_call]
		_(RawOrigin::Signed(owner), did::<T>().into_inner(), recipient, tags, personas);
		assert_eq!(version::<T>(), Some(2));
	}

	#[benchmark]
	fn clear_delivery_policy_links() {
		let owner = standing::<T>(0);
		#[extrinsic_call]
		_(RawOrigin::Signed(owner), did::<T>().into_inner());
		assert_eq!(version::<T>(), Some(2));
	}

	#[benchmark]
	fn add_alias() {
		standing::<T>(1);
		let alias = free_alias::<T>();
		let (payload, signature, signer) = on_alias::<T>(AliasAction::Add, [Some(alias.clone()), None, None]);
		#[extrinsic_call]
		_(RawOrigin::None, did::<T>().into_inner(), alias.into_inner(), payload, signature, signer);
		assert_eq!(version::<T>(), Some(2));
	}

	#[benchmark]
	fn update_alias() {
		standing::<T>(0);
		let (old, new) = (longest(T::MaxAliases::get() - 1), free_alias::<T>());
		let aliases = [None, Some(old.clone()), Some(new.clone())];
		let (payload, signature, signer) = on_alias::<T>(AliasAction::Update, aliases);
		#[extrinsic_call]
		_(RawOrigin::None, did::<T>().into_inner(), old.into_inner(), new.into_inner(), payload, signature, signer);
		assert_eq!(version::<T>(), Some(2));
	}

	#[benchmark]
	fn remove_alias() {
		standing::<T>(0);
		let alias = longest(0);
		let (payload, signature, signer) = on_alias::<T>(AliasAction::Remove, [Some(alias.clone()), None, None]);
		#[extrinsic_call]
		_(RawOrigin::None, did::<T>().into_inner(), alias.into_inner(), payload, signature, signer);
		assert_eq!(version::<T>(), Some(2));
	}

	#[benchmark]
	fn add_verification_method() {
		standing::<T>(1);
		let method = method::<T>(90);
		let (payload, signature, signer) = component::<T>(DocumentAction::AddVerificationMethod, |payload| {
			payload.verification_method = Some(method.clone())
		});
		#[extrinsic_call]
		_(RawOrigin::None, did::<T>().into_inner(), method, payload, signature, signer);
		assert_eq!(version::<T>(), Some(2));
	}

	#[benchmark]
	fn update_verification_method() {
		standing::<T>(0);
		let method = method::<T>(T::MaxVMs::get() - 1);
		let (payload, signature, signer) = component::<T>(DocumentAction::UpdateVerificationMethod, |payload| {
			payload.verification_method = Some(method.clone())
		});
		#[extrinsic_call]
		_(RawOrigin::None, did::<T>().into_inner(), method, payload, signature, signer);
		assert_eq!(version::<T>(), Some(2));
	}

	#[benchmark]
	fn remove_verification_method() {
		standing::<T>(0);
		let id = method::<T>(T::MaxVMs::get() - 1).id;
		let (payload, signature, signer) = named::<T>(DocumentAction::RemoveVerificationMethod, &id);
		#[extrinsic_call]
		_(RawOrigin::None, did::<T>().into_inner(), id.into_inner(), payload, signature, signer);
		assert_eq!(version::<T>(), Some(2));
	}

	#[benchmark]
	fn add_authentication() {
		standing::<T>(1);
		let id = method::<T>(T::MaxVMs::get() - 2).id;
		let (payload, signature, signer) = named::<T>(DocumentAction::AddAuthentication, &id);
		#[extrinsic_call]
		_(RawOrigin::None, did::<T>().into_inner(), id.into_inner(), payload, signature, signer);
		assert_eq!(version::<T>(), Some(2));
	}

	#[benchmark]
	fn remove_authentication() {
		standing::<T>(0);
		let id = method::<T>(1).id;
		let (payload, signature, signer) = named::<T>(DocumentAction::RemoveAuthentication, &id);
		#[extrinsic_call]
		_(RawOrigin::None, did::<T>().into_inner(), id.into_inner(), payload, signature, signer);
		assert_eq!(version::<T>(), Some(2));
	}

	#[benchmark]
	fn add_key_agreement() {
		standing::<T>(1);
		let agreement = agreement::<T>(90);
		let (payload, signature, signer) =
			component::<T>(DocumentAction::AddKeyAgreement, |payload| payload.key_agreement = Some(agreement.clone()));
		#[extrinsic_call]
		_(RawOrigin::None, did::<T>().into_inner(), agreement, payload, signature, signer);
		assert_eq!(version::<T>(), Some(2));
	}

	#[benchmark]
	fn update_key_agreement() {
		standing::<T>(0);
		let agreement = agreement::<T>(T::MaxKAs::get() - 1);
		let (payload, signature, signer) = component::<T>(DocumentAction::UpdateKeyAgreement, |payload| {
			payload.key_agreement = Some(agreement.clone())
		});
		#[extrinsic_call]
		_(RawOrigin::None, did::<T>().into_inner(), agreement, payload, signature, signer);
		assert_eq!(version::<T>(), Some(2));
	}

	#[benchmark]
	fn remove_key_agreement() {
		standing::<T>(0);
		let id = agreement::<T>(0).id;
		let (payload, signature, signer) = named::<T>(DocumentAction::RemoveKeyAgreement, &id);
		#[extrinsic_call]
		_(RawOrigin::None, did::<T>().into_inner(), id.into_inner(), payload, signature, signer);
		assert_eq!(version::<T>(), Some(2));
	}

	#[benchmark]
	fn add_service(b: Linear<0, { service_bytes::<T>() }>) {
		standing::<T>(1);
		let service = service::<T>(90, b);
		let (payload, signature, signer) =
			component::<T>(DocumentAction::AddService, |payload| payload.service = Some(service.clone()));
		#[extrinsic_call]
		_(RawOrigin::None, did::<T>().into_inner(), service, payload, signature, signer);
		assert_eq!(version::<T>(), Some(2));
	}

	#[benchmark]
	fn update_service(b: Linear<0, { service_bytes::<T>() }>) {
		standing::<T>(0);
		let service = service::<T>(T::MaxServices::get() - 1, b);
		let (payload, signature, signer) =
			component::<T>(DocumentAction::UpdateService, |payload| payload.service = Some(service.clone()));
		#[extrinsic_call]
		_(RawOrigin::None, did::<T>().into_inner(), service, payload, signature, signer);
		assert_eq!(version::<T>(), Some(2));
	}

	#[benchmark]
	fn remove_service() {
		standing::<T>(0);
		let id = service::<T>(0, 0).id;
		let (payload, signature, signer) = named::<T>(DocumentAction::RemoveService, &id);
		#[extrinsic_call]
		_(RawOrigin::None, did::<T>().into_inner(), id.into_inner(), payload, signature, signer);
		assert_eq!(version::<T>(), Some(2));
	}

	#[benchmark]
	fn update_root_pubkey() {
		standing::<T>(0);
		let payload = RootPubkeyAuthorizationPayload::<T> {
			did: did::<T>(),
			new_root_pubkey: key().0.to_vec().try_into().expect("it has 32 bytes"),
			nonce: 0,
			valid_until: EXPIRY_MS,
			signer_key_id: signer::<T>(),
		};
		let (payload, signature, signer) = authorization::<T>(&payload);
		#[extrinsic_call]
		_(RawOrigin::None, did::<T>().into_inner(), key().0.to_vec(), payload, signature, signer);
		assert_eq!(version::<T>(), Some(2));
	}

	/// The control action that brings the most.
	#[benchmark]
	fn links_with_proof(b: Linear<0, { links_bytes::<T>() }>) {
		standing::<T>(0);
		let (payload, signature, signer) = control::<T>(ControlAction::SetDeliveryPolicyLinks { links: links::<T>(b) });
		#[extrinsic_call]
		apply_control_with_proof(RawOrigin::None, payload, signature, signer);
		assert_eq!(version::<T>(), Some(2));
	}

	/// The control action that writes the most.
	#[benchmark]
	fn deletion_with_proof() {
		standing::<T>(0);
		let (payload, signature, signer) = control::<T>(ControlAction::DeleteDid);
		#[extrinsic_call]
		apply_control_with_proof(RawOrigin::None, payload, signature, signer);
		assert_eq!(version::<T>(), None);
	}

	#[benchmark]
	fn change_owner() {
		let owner = standing::<T>(0);
		let next = other_operator::<T>();
		#[extrinsic_call]
		_(RawOrigin::Signed(owner), did::<T>().into_inner(), next);
		assert_eq!(version::<T>(), Some(2));
	}

	#[benchmark]
	fn adopt() {
		standing::<T>(0);
		let owner = other_operator::<T>();
		let (payload, signature, signer) = control::<T>(ControlAction::ChangeOwner { owner: owner.clone() });
		#[extrinsic_call]
		_(RawOrigin::Signed(owner), payload, signature, signer);
		assert_eq!(version::<T>(), Some(2));
	}

	#[benchmark]
	fn reclaim_deposit() {
		let owner = standing::<T>(0);
		Dids::<T>::mutate(did::<T>(), |record| record.as_mut().expect("it stands").deactivated = true);
		#[extrinsic_call]
		_(RawOrigin::Signed(owner), did::<T>().into_inner());
		assert_eq!(version::<T>(), Some(2));
	}

	/// All reserves of the DID have ended.
	#[benchmark]
	fn sweep() {
		reserves::<T>(&did::<T>(), 0, 0);
		#[block]
		{
			Pallet::<T>::sweep();
		}
		assert!(!ReleasesOf::<T>::contains_key(did::<T>()));
	}
}
