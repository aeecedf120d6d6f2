//! The DID registry: records, aliases, documents, root keys, devices and the counters that make every
//! authorization work once.
//!
//! A record changes in three ways: by a registration proof (it comes to be), by a payload that a key of
//! the DID signed, or by the account that owns it. Calls that carry a proof need no account: the pool
//! admits them only after running the whole call, so a block never holds one that fails, and they pay
//! no fee.
//!
//! Laws: a call changes everything it names or nothing; a counter only grows, also through deletion and
//! new registration; a document time only grows; only admissible keys enter a record.

#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

#[cfg(test)]
mod mock;
mod operations;
mod proofs;
#[cfg(test)]
mod tests;
pub mod text;
pub mod types;

use frame_support::weights::Weight;
pub use pallet::*;
pub use proofs::{proof_failure, Proof};
pub use types::*;

/// Told after a DID was deleted, so that other pallets can let go of what belongs to it.
pub trait OnDidDeleted {
	fn on_did_deleted(did: &[u8]);
}

impl OnDidDeleted for () {
	fn on_did_deleted(_: &[u8]) {}
}

/// One Ed25519 check and the largest number of entries that a call touches: a record, a counter or a
/// document time, nine alias entries and the policies of a deleted DID.
pub fn call_weight<T: Config>() -> Weight {
	use frame_support::traits::Get;
	Weight::from_parts(150_000_000, 0).saturating_add(T::DbWeight::get().reads_writes(8, 6))
}

// The order and the types of call arguments are those of the wire.
#[allow(clippy::too_many_arguments)]
#[frame_support::pallet]
pub mod pallet {
	use super::*;
	use crate::operations::Change;
	use alloc::vec::Vec;
	use frame_support::{pallet_prelude::*, traits::Time};
	use frame_system::{ensure_authorized, ensure_none, ensure_signed, pallet_prelude::*};

	#[pallet::pallet]
	pub struct Pallet<T>(_);

	#[pallet::config]
	pub trait Config: frame_system::Config<RuntimeEvent: From<Event<Self>>> {
		/// The time of the block in milliseconds.
		type Time: Time<Moment = u64>;
		type OnDidDeleted: OnDidDeleted;

		/// DIDs in records and payloads, in bytes.
		#[pallet::constant]
		type MaxDidLen: Get<u32>;
		/// Ids of methods, key agreements and services, controllers, references and signers, in bytes.
		#[pallet::constant]
		type MaxIdLen: Get<u32>;
		#[pallet::constant]
		type MaxVMs: Get<u32>;
		#[pallet::constant]
		type MaxKAs: Get<u32>;
		#[pallet::constant]
		type MaxVMTypeLen: Get<u32>;
		#[pallet::constant]
		type MaxKaTypeLen: Get<u32>;
		#[pallet::constant]
		type MaxServiceTypeLen: Get<u32>;
		#[pallet::constant]
		type MaxKeyMultibaseLen: Get<u32>;
		/// Entries of `authentication`.
		#[pallet::constant]
		type MaxRefsPerRel: Get<u32>;
		#[pallet::constant]
		type MaxServices: Get<u32>;
		/// URLs of one service.
		#[pallet::constant]
		type MaxServiceEndpoints: Get<u32>;
		#[pallet::constant]
		type MaxServiceEndpointUrlLen: Get<u32>;
		#[pallet::constant]
		type MaxServiceAuthorizationKeys: Get<u32>;
		/// An encoded document, in bytes.
		#[pallet::constant]
		type MaxDocLen: Get<u32>;
		#[pallet::constant]
		type MaxAliasLen: Get<u32>;
		#[pallet::constant]
		type MaxAliases: Get<u32>;
		#[pallet::constant]
		type MaxDevices: Get<u32>;
		#[pallet::constant]
		type MaxDeviceIdLen: Get<u32>;
		/// Entries of each list of policy links.
		#[pallet::constant]
		type MaxPolicyRefs: Get<u32>;
		#[pallet::constant]
		type MaxPolicyRefLen: Get<u32>;
		/// How far ahead of the block's time a version 2 proof may expire, in milliseconds.
		#[pallet::constant]
		type MaxProofAheadMs: Get<u64>;
		/// How many blocks a proof-carrying call stays in the pool.
		#[pallet::constant]
		type ProofLongevity: Get<u64>;
	}

	#[pallet::storage]
	pub type Dids<T: Config> = StorageMap<_, Blake2_128Concat, Did<T>, DidRecord<T>>;

	/// Which DID has an alias. The key is its normal form.
	#[pallet::storage]
	pub type AliasIndex<T: Config> = StorageMap<_, Blake2_128Concat, Alias<T>, Did<T>>;

	#[pallet::storage]
	pub type AliasNonces<T: Config> = StorageMap<_, Blake2_128Concat, Did<T>, u64, ValueQuery>;

	#[pallet::storage]
	pub type DocumentNonces<T: Config> = StorageMap<_, Blake2_128Concat, Did<T>, u64, ValueQuery>;

	#[pallet::storage]
	pub type RootPubkeyNonces<T: Config> = StorageMap<_, Blake2_128Concat, Did<T>, u64, ValueQuery>;

	#[pallet::storage]
	pub type ControlNonces<T: Config> = StorageMap<_, Blake2_128Concat, Did<T>, u64, ValueQuery>;

	/// The time of the last full document in milliseconds. A version 1 proof must be later.
	#[pallet::storage]
	pub type DocumentTimes<T: Config> = StorageMap<_, Blake2_128Concat, Did<T>, u64, ValueQuery>;

	/// The expiry of the last version 2 registration proof. The next one must expire later.
	#[pallet::storage]
	pub type RegistrationExpiries<T: Config> = StorageMap<_, Blake2_128Concat, Did<T>, u64, ValueQuery>;

	#[pallet::event]
	#[pallet::generate_deposit(pub(crate) fn deposit_event)]
	pub enum Event<T: Config> {
		Registered(Did<T>, Option<T::AccountId>),
		AliasSet(Did<T>, Alias<T>),
		AliasAdded(Did<T>, Alias<T>),
		AliasUpdated(Did<T>, Alias<T>, Alias<T>),
		AliasRemoved(Did<T>, Alias<T>),
		/// A registration went through without its alias, because another DID has it.
		AliasConflict(Did<T>, Alias<T>),
		/// A registration went through without its alias, because it is none.
		AliasInvalid(Did<T>),
		DeviceAdded(Did<T>, DeviceId<T>),
		DeviceUpdated(Did<T>, DeviceId<T>, DeviceId<T>),
		DeviceTombstoned(Did<T>, DeviceId<T>),
		DeviceRemoved(Did<T>, DeviceId<T>),
		DocumentSet(Did<T>),
		VerificationMethodAdded(Did<T>, Id<T>),
		VerificationMethodUpdated(Did<T>, Id<T>),
		VerificationMethodRemoved(Did<T>, Id<T>),
		AuthenticationAdded(Did<T>, Id<T>),
		AuthenticationRemoved(Did<T>, Id<T>),
		KeyAgreementAdded(Did<T>, Id<T>),
		KeyAgreementUpdated(Did<T>, Id<T>),
		KeyAgreementRemoved(Did<T>, Id<T>),
		ServiceAdded(Did<T>, Id<T>),
		ServiceUpdated(Did<T>, Id<T>),
		ServiceRemoved(Did<T>, Id<T>),
		RootPubkeyUpdated(Did<T>),
		DeliveryPolicyLinksSet(Did<T>),
		DeliveryPolicyLinksCleared(Did<T>),
		DidDeactivated(Did<T>),
		DidDeleted(Did<T>),
	}

	#[pallet::error]
	#[derive(PartialEq, Eq)]
	pub enum Error<T> {
		InvalidSignature,
		InvalidRootPubkey,
		InvalidRootPubkeyPayload,
		InvalidRootPubkeyNonce,
		RootPubkeyAuthorizationExpired,
		InvalidControlPayload,
		InvalidControlNonce,
		ControlAuthorizationExpired,
		/// Unused; it keeps its place in the order.
		SignatureMismatch,
		/// A DID or a device id is too long.
		DidTooLong,
		DidAlreadyExists,
		DidNotFound,
		DidDeactivated,
		DidAlreadyDeactivated,
		TooManyDevices,
		AliasTooLong,
		TooManyAliases,
		InvalidAlias,
		AliasNotFound,
		InvalidAliasPayload,
		InvalidAliasNonce,
		AliasAuthorizationExpired,
		DeviceNotFound,
		DeviceAlreadyExists,
		AliasTaken,
		AliasAlreadyExists,
		InvalidDocument,
		InvalidDocumentPayload,
		InvalidDocumentNonce,
		DocumentAuthorizationExpired,
		VerificationMethodAlreadyExists,
		VerificationMethodNotFound,
		VerificationMethodInUse,
		AuthenticationAlreadyExists,
		AuthenticationNotFound,
		KeyAgreementAlreadyExists,
		KeyAgreementNotFound,
		ServiceAlreadyExists,
		/// The document has as many services as it may have.
		ServiceTooLong,
		ServiceNotFound,
		NotDidOwner,
		PolicyRefTooLong,
		TooManyPolicyRefs,
		InvalidDidFormat,
		/// Unused; it keeps its place in the order.
		DidControlsApplication,
		/// The `timestamp` of a proof is neither a time nor `v2:<nonce>:<expiry ms>`.
		InvalidProofTimestamp,
		/// A version 2 registration proof has expired.
		RegistrationExpired,
		/// A version 2 proof expires too far ahead.
		ProofTooFarAhead,
		/// A proof of the same or a later time has already been accepted.
		DocumentStale,
	}

	/// The origin of a call that brings its own proof.
	fn ensure_proof<T: Config>(origin: OriginFor<T>) -> DispatchResult {
		ensure_authorized(origin.clone()).or_else(|_| ensure_none(origin)).map_err(Into::into)
	}

	#[pallet::call]
	impl<T: Config> Pallet<T> {
		/// Replaces all aliases of the DID by this one.
		#[pallet::call_index(1)]
		#[pallet::weight(call_weight::<T>())]
		pub fn set_alias(origin: OriginFor<T>, did: Vec<u8>, alias: Vec<u8>) -> DispatchResult {
			Self::do_set_alias(ensure_signed(origin)?, &did, &alias)
		}

		#[pallet::call_index(2)]
		#[pallet::weight(call_weight::<T>())]
		pub fn add_device(origin: OriginFor<T>, did: Vec<u8>, device_id: Vec<u8>) -> DispatchResult {
			let who = ensure_signed(origin)?;
			Self::do_own_device(who, &did, &[&device_id], |mut ids| {
				ids.pop().map(|device_id| ControlAction::AddDevice { device_id })
			})
		}

		#[pallet::call_index(3)]
		#[pallet::weight(call_weight::<T>())]
		pub fn tombstone_device(origin: OriginFor<T>, did: Vec<u8>, device_id: Vec<u8>) -> DispatchResult {
			let who = ensure_signed(origin)?;
			Self::do_own_device(who, &did, &[&device_id], |mut ids| {
				ids.pop().map(|device_id| ControlAction::TombstoneDevice { device_id })
			})
		}

		#[pallet::call_index(4)]
		#[pallet::weight(call_weight::<T>())]
		pub fn set_document(origin: OriginFor<T>, did: Vec<u8>, doc_blob: Vec<u8>) -> DispatchResult {
			Self::do_set_document(ensure_signed(origin)?, &did, &doc_blob)
		}

		/// Replaces the document by a proof of the root key.
		#[pallet::call_index(5)]
		#[pallet::weight(call_weight::<T>())]
		#[pallet::weight_of_authorize(call_weight::<T>())]
		#[pallet::authorize(|_, did, doc_blob, timestamp, pubkey, signature| {
			Pallet::<T>::admit_document(did, timestamp, || {
				Pallet::<T>::do_set_document_with_proof(did, doc_blob, timestamp, pubkey, signature)
			})
		})]
		pub fn set_document_with_proof(
			origin: OriginFor<T>,
			did: Vec<u8>,
			doc_blob: Vec<u8>,
			timestamp: Vec<u8>,
			pubkey: Vec<u8>,
			signature: Vec<u8>,
		) -> DispatchResult {
			ensure_proof::<T>(origin)?;
			Self::do_set_document_with_proof(&did, &doc_blob, &timestamp, &pubkey, &signature)
		}

		/// Registers a DID that no account owns.
		#[pallet::call_index(6)]
		#[pallet::weight(call_weight::<T>())]
		#[pallet::weight_of_authorize(call_weight::<T>())]
		#[pallet::authorize(|_, did, alias, timestamp, pubkey, signature, doc_blob| {
			Pallet::<T>::admit(1000, (b"regdoc", did, timestamp), || {
				Pallet::<T>::do_register(None, did, alias.as_deref(), timestamp, pubkey, signature, doc_blob)
			})
		})]
		pub fn register_with_document_proof(
			origin: OriginFor<T>,
			did: Vec<u8>,
			alias: Option<Vec<u8>>,
			timestamp: Vec<u8>,
			pubkey: Vec<u8>,
			signature: Vec<u8>,
			doc_blob: Vec<u8>,
		) -> DispatchResult {
			ensure_proof::<T>(origin)?;
			Self::do_register(None, &did, alias.as_deref(), &timestamp, &pubkey, &signature, &doc_blob)
		}

		/// Registers a DID; the account that signs the extrinsic owns it.
		#[pallet::call_index(7)]
		#[pallet::weight(call_weight::<T>())]
		pub fn register_with_document_proof_signed(
			origin: OriginFor<T>,
			did: Vec<u8>,
			alias: Option<Vec<u8>>,
			timestamp: Vec<u8>,
			pubkey: Vec<u8>,
			signature: Vec<u8>,
			doc_blob: Vec<u8>,
		) -> DispatchResult {
			let who = ensure_signed(origin)?;
			Self::do_register(Some(who), &did, alias.as_deref(), &timestamp, &pubkey, &signature, &doc_blob)
		}

		#[pallet::call_index(8)]
		#[pallet::weight(call_weight::<T>())]
		pub fn set_delivery_policy_links(
			origin: OriginFor<T>,
			did: Vec<u8>,
			recipient_policy: Option<Vec<u8>>,
			tag_policies: Vec<Vec<u8>>,
			persona_policies: Vec<Vec<u8>>,
		) -> DispatchResult {
			let who = ensure_signed(origin)?;
			Self::do_set_links(who, &did, recipient_policy, tag_policies, persona_policies)
		}

		#[pallet::call_index(9)]
		#[pallet::weight(call_weight::<T>())]
		pub fn clear_delivery_policy_links(origin: OriginFor<T>, did: Vec<u8>) -> DispatchResult {
			Self::do_own(ensure_signed(origin)?, &did, ControlAction::ClearDeliveryPolicyLinks)
		}

		/// Registers a DID without a document. The owner is the account that signs, or without one the
		/// account whose id is the root key.
		#[pallet::call_index(10)]
		#[pallet::weight(call_weight::<T>())]
		#[pallet::weight_of_authorize(call_weight::<T>())]
		#[pallet::authorize(|_, did, alias, timestamp, pubkey, signature| {
			Pallet::<T>::admit(1000, (did, timestamp), || {
				Pallet::<T>::do_register_bare(None, did, alias.as_deref(), timestamp, pubkey, signature)
			})
		})]
		pub fn register_with_proof(
			origin: OriginFor<T>,
			did: Vec<u8>,
			alias: Option<Vec<u8>>,
			timestamp: Vec<u8>,
			pubkey: Vec<u8>,
			signature: Vec<u8>,
		) -> DispatchResult {
			let who = match ensure_signed(origin.clone()) {
				Ok(who) => Some(who),
				Err(_) => ensure_proof::<T>(origin).map(|()| None)?,
			};
			Self::do_register_bare(who, &did, alias.as_deref(), &timestamp, &pubkey, &signature)
		}

		#[pallet::call_index(11)]
		#[pallet::weight(call_weight::<T>())]
		#[pallet::weight_of_authorize(call_weight::<T>())]
		#[pallet::authorize(|_, did, alias, signed_payload, signature, signer_key_id| {
			let proof = Proof::new(signed_payload, signature, signer_key_id);
			Pallet::<T>::admit_alias(did, || Pallet::<T>::do_add_alias(did, alias, proof))
		})]
		pub fn add_alias(
			origin: OriginFor<T>,
			did: Vec<u8>,
			alias: Vec<u8>,
			signed_payload: Vec<u8>,
			signature: Vec<u8>,
			signer_key_id: Vec<u8>,
		) -> DispatchResult {
			ensure_proof::<T>(origin)?;
			Self::do_add_alias(&did, &alias, Proof::new(&signed_payload, &signature, &signer_key_id))
		}

		#[pallet::call_index(12)]
		#[pallet::weight(call_weight::<T>())]
		#[pallet::weight_of_authorize(call_weight::<T>())]
		#[pallet::authorize(|_, did, old_alias, new_alias, signed_payload, signature, signer_key_id| {
			let proof = Proof::new(signed_payload, signature, signer_key_id);
			Pallet::<T>::admit_alias(did, || Pallet::<T>::do_update_alias(did, old_alias, new_alias, proof))
		})]
		pub fn update_alias(
			origin: OriginFor<T>,
			did: Vec<u8>,
			old_alias: Vec<u8>,
			new_alias: Vec<u8>,
			signed_payload: Vec<u8>,
			signature: Vec<u8>,
			signer_key_id: Vec<u8>,
		) -> DispatchResult {
			ensure_proof::<T>(origin)?;
			let proof = Proof::new(&signed_payload, &signature, &signer_key_id);
			Self::do_update_alias(&did, &old_alias, &new_alias, proof)
		}

		#[pallet::call_index(13)]
		#[pallet::weight(call_weight::<T>())]
		#[pallet::weight_of_authorize(call_weight::<T>())]
		#[pallet::authorize(|_, did, alias, signed_payload, signature, signer_key_id| {
			let proof = Proof::new(signed_payload, signature, signer_key_id);
			Pallet::<T>::admit_alias(did, || Pallet::<T>::do_remove_alias(did, alias, proof))
		})]
		pub fn remove_alias(
			origin: OriginFor<T>,
			did: Vec<u8>,
			alias: Vec<u8>,
			signed_payload: Vec<u8>,
			signature: Vec<u8>,
			signer_key_id: Vec<u8>,
		) -> DispatchResult {
			ensure_proof::<T>(origin)?;
			Self::do_remove_alias(&did, &alias, Proof::new(&signed_payload, &signature, &signer_key_id))
		}

		#[pallet::call_index(14)]
		#[pallet::weight(call_weight::<T>())]
		#[pallet::weight_of_authorize(call_weight::<T>())]
		#[pallet::authorize(|_, did, method, signed_payload, signature, signer_key_id| {
			let proof = Proof::new(signed_payload, signature, signer_key_id);
			Pallet::<T>::admit_component(did, || Pallet::<T>::do_component(did, Change::AddMethod(method), proof))
		})]
		pub fn add_verification_method(
			origin: OriginFor<T>,
			did: Vec<u8>,
			method: VerificationMethod<T>,
			signed_payload: Vec<u8>,
			signature: Vec<u8>,
			signer_key_id: Vec<u8>,
		) -> DispatchResult {
			ensure_proof::<T>(origin)?;
			let proof = Proof::new(&signed_payload, &signature, &signer_key_id);
			Self::do_component(&did, Change::AddMethod(&method), proof)
		}

		#[pallet::call_index(15)]
		#[pallet::weight(call_weight::<T>())]
		#[pallet::weight_of_authorize(call_weight::<T>())]
		#[pallet::authorize(|_, did, method, signed_payload, signature, signer_key_id| {
			let proof = Proof::new(signed_payload, signature, signer_key_id);
			Pallet::<T>::admit_component(did, || Pallet::<T>::do_component(did, Change::UpdateMethod(method), proof))
		})]
		pub fn update_verification_method(
			origin: OriginFor<T>,
			did: Vec<u8>,
			method: VerificationMethod<T>,
			signed_payload: Vec<u8>,
			signature: Vec<u8>,
			signer_key_id: Vec<u8>,
		) -> DispatchResult {
			ensure_proof::<T>(origin)?;
			let proof = Proof::new(&signed_payload, &signature, &signer_key_id);
			Self::do_component(&did, Change::UpdateMethod(&method), proof)
		}

		#[pallet::call_index(16)]
		#[pallet::weight(call_weight::<T>())]
		#[pallet::weight_of_authorize(call_weight::<T>())]
		#[pallet::authorize(|_, did, method_id, signed_payload, signature, signer_key_id| {
			let proof = Proof::new(signed_payload, signature, signer_key_id);
			Pallet::<T>::admit_component(did, || Pallet::<T>::do_component(did, Change::RemoveMethod(method_id), proof))
		})]
		pub fn remove_verification_method(
			origin: OriginFor<T>,
			did: Vec<u8>,
			method_id: Vec<u8>,
			signed_payload: Vec<u8>,
			signature: Vec<u8>,
			signer_key_id: Vec<u8>,
		) -> DispatchResult {
			ensure_proof::<T>(origin)?;
			let proof = Proof::new(&signed_payload, &signature, &signer_key_id);
			Self::do_component(&did, Change::RemoveMethod(&method_id), proof)
		}

		#[pallet::call_index(17)]
		#[pallet::weight(call_weight::<T>())]
		#[pallet::weight_of_authorize(call_weight::<T>())]
		#[pallet::authorize(|_, did, method_id, signed_payload, signature, signer_key_id| {
			let proof = Proof::new(signed_payload, signature, signer_key_id);
			Pallet::<T>::admit_component(did, || Pallet::<T>::do_component(did, Change::AddAuthentication(method_id), proof))
		})]
		pub fn add_authentication(
			origin: OriginFor<T>,
			did: Vec<u8>,
			method_id: Vec<u8>,
			signed_payload: Vec<u8>,
			signature: Vec<u8>,
			signer_key_id: Vec<u8>,
		) -> DispatchResult {
			ensure_proof::<T>(origin)?;
			let proof = Proof::new(&signed_payload, &signature, &signer_key_id);
			Self::do_component(&did, Change::AddAuthentication(&method_id), proof)
		}

		#[pallet::call_index(18)]
		#[pallet::weight(call_weight::<T>())]
		#[pallet::weight_of_authorize(call_weight::<T>())]
		#[pallet::authorize(|_, did, method_id, signed_payload, signature, signer_key_id| {
			let proof = Proof::new(signed_payload, signature, signer_key_id);
			Pallet::<T>::admit_component(did, || Pallet::<T>::do_component(did, Change::RemoveAuthentication(method_id), proof))
		})]
		pub fn remove_authentication(
			origin: OriginFor<T>,
			did: Vec<u8>,
			method_id: Vec<u8>,
			signed_payload: Vec<u8>,
			signature: Vec<u8>,
			signer_key_id: Vec<u8>,
		) -> DispatchResult {
			ensure_proof::<T>(origin)?;
			let proof = Proof::new(&signed_payload, &signature, &signer_key_id);
			Self::do_component(&did, Change::RemoveAuthentication(&method_id), proof)
		}

		#[pallet::call_index(19)]
		#[pallet::weight(call_weight::<T>())]
		#[pallet::weight_of_authorize(call_weight::<T>())]
		#[pallet::authorize(|_, did, key_agreement, signed_payload, signature, signer_key_id| {
			let proof = Proof::new(signed_payload, signature, signer_key_id);
			Pallet::<T>::admit_component(did, || Pallet::<T>::do_component(did, Change::AddAgreement(key_agreement), proof))
		})]
		pub fn add_key_agreement(
			origin: OriginFor<T>,
			did: Vec<u8>,
			key_agreement: KeyAgreement<T>,
			signed_payload: Vec<u8>,
			signature: Vec<u8>,
			signer_key_id: Vec<u8>,
		) -> DispatchResult {
			ensure_proof::<T>(origin)?;
			let proof = Proof::new(&signed_payload, &signature, &signer_key_id);
			Self::do_component(&did, Change::AddAgreement(&key_agreement), proof)
		}

		#[pallet::call_index(20)]
		#[pallet::weight(call_weight::<T>())]
		#[pallet::weight_of_authorize(call_weight::<T>())]
		#[pallet::authorize(|_, did, key_agreement, signed_payload, signature, signer_key_id| {
			let proof = Proof::new(signed_payload, signature, signer_key_id);
			Pallet::<T>::admit_component(did, || Pallet::<T>::do_component(did, Change::UpdateAgreement(key_agreement), proof))
		})]
		pub fn update_key_agreement(
			origin: OriginFor<T>,
			did: Vec<u8>,
			key_agreement: KeyAgreement<T>,
			signed_payload: Vec<u8>,
			signature: Vec<u8>,
			signer_key_id: Vec<u8>,
		) -> DispatchResult {
			ensure_proof::<T>(origin)?;
			let proof = Proof::new(&signed_payload, &signature, &signer_key_id);
			Self::do_component(&did, Change::UpdateAgreement(&key_agreement), proof)
		}

		#[pallet::call_index(21)]
		#[pallet::weight(call_weight::<T>())]
		#[pallet::weight_of_authorize(call_weight::<T>())]
		#[pallet::authorize(|_, did, key_agreement_id, signed_payload, signature, signer_key_id| {
			let proof = Proof::new(signed_payload, signature, signer_key_id);
			Pallet::<T>::admit_component(did, || Pallet::<T>::do_component(did, Change::RemoveAgreement(key_agreement_id), proof))
		})]
		pub fn remove_key_agreement(
			origin: OriginFor<T>,
			did: Vec<u8>,
			key_agreement_id: Vec<u8>,
			signed_payload: Vec<u8>,
			signature: Vec<u8>,
			signer_key_id: Vec<u8>,
		) -> DispatchResult {
			ensure_proof::<T>(origin)?;
			let proof = Proof::new(&signed_payload, &signature, &signer_key_id);
			Self::do_component(&did, Change::RemoveAgreement(&key_agreement_id), proof)
		}

		#[pallet::call_index(22)]
		#[pallet::weight(call_weight::<T>())]
		#[pallet::weight_of_authorize(call_weight::<T>())]
		#[pallet::authorize(|_, did, service, signed_payload, signature, signer_key_id| {
			let proof = Proof::new(signed_payload, signature, signer_key_id);
			Pallet::<T>::admit_component(did, || Pallet::<T>::do_component(did, Change::AddService(service), proof))
		})]
		pub fn add_service(
			origin: OriginFor<T>,
			did: Vec<u8>,
			service: Service<T>,
			signed_payload: Vec<u8>,
			signature: Vec<u8>,
			signer_key_id: Vec<u8>,
		) -> DispatchResult {
			ensure_proof::<T>(origin)?;
			let proof = Proof::new(&signed_payload, &signature, &signer_key_id);
			Self::do_component(&did, Change::AddService(&service), proof)
		}

		#[pallet::call_index(23)]
		#[pallet::weight(call_weight::<T>())]
		#[pallet::weight_of_authorize(call_weight::<T>())]
		#[pallet::authorize(|_, did, service, signed_payload, signature, signer_key_id| {
			let proof = Proof::new(signed_payload, signature, signer_key_id);
			Pallet::<T>::admit_component(did, || Pallet::<T>::do_component(did, Change::UpdateService(service), proof))
		})]
		pub fn update_service(
			origin: OriginFor<T>,
			did: Vec<u8>,
			service: Service<T>,
			signed_payload: Vec<u8>,
			signature: Vec<u8>,
			signer_key_id: Vec<u8>,
		) -> DispatchResult {
			ensure_proof::<T>(origin)?;
			let proof = Proof::new(&signed_payload, &signature, &signer_key_id);
			Self::do_component(&did, Change::UpdateService(&service), proof)
		}

		#[pallet::call_index(24)]
		#[pallet::weight(call_weight::<T>())]
		#[pallet::weight_of_authorize(call_weight::<T>())]
		#[pallet::authorize(|_, did, service_id, signed_payload, signature, signer_key_id| {
			let proof = Proof::new(signed_payload, signature, signer_key_id);
			Pallet::<T>::admit_component(did, || Pallet::<T>::do_component(did, Change::RemoveService(service_id), proof))
		})]
		pub fn remove_service(
			origin: OriginFor<T>,
			did: Vec<u8>,
			service_id: Vec<u8>,
			signed_payload: Vec<u8>,
			signature: Vec<u8>,
			signer_key_id: Vec<u8>,
		) -> DispatchResult {
			ensure_proof::<T>(origin)?;
			let proof = Proof::new(&signed_payload, &signature, &signer_key_id);
			Self::do_component(&did, Change::RemoveService(&service_id), proof)
		}

		#[pallet::call_index(25)]
		#[pallet::weight(call_weight::<T>())]
		#[pallet::weight_of_authorize(call_weight::<T>())]
		#[pallet::authorize(|_, did, new_root_pubkey, signed_payload, signature, signer_key_id| {
			let proof = Proof::new(signed_payload, signature, signer_key_id);
			Pallet::<T>::admit_root_pubkey(did, || Pallet::<T>::do_update_root_pubkey(did, new_root_pubkey, proof))
		})]
		pub fn update_root_pubkey(
			origin: OriginFor<T>,
			did: Vec<u8>,
			new_root_pubkey: Vec<u8>,
			signed_payload: Vec<u8>,
			signature: Vec<u8>,
			signer_key_id: Vec<u8>,
		) -> DispatchResult {
			ensure_proof::<T>(origin)?;
			let proof = Proof::new(&signed_payload, &signature, &signer_key_id);
			Self::do_update_root_pubkey(&did, &new_root_pubkey, proof)
		}

		#[pallet::call_index(26)]
		#[pallet::weight(call_weight::<T>())]
		pub fn deactivate_did(origin: OriginFor<T>, did: Vec<u8>) -> DispatchResult {
			Self::do_deactivate(ensure_signed(origin)?, &did)
		}

		#[pallet::call_index(27)]
		#[pallet::weight(call_weight::<T>())]
		pub fn update_device(
			origin: OriginFor<T>,
			did: Vec<u8>,
			old_device_id: Vec<u8>,
			new_device_id: Vec<u8>,
		) -> DispatchResult {
			let who = ensure_signed(origin)?;
			Self::do_own_device(who, &did, &[&old_device_id, &new_device_id], |mut ids| {
				let new_device_id = ids.pop()?;
				ids.pop().map(|old_device_id| ControlAction::UpdateDevice { old_device_id, new_device_id })
			})
		}

		#[pallet::call_index(28)]
		#[pallet::weight(call_weight::<T>())]
		pub fn remove_device(origin: OriginFor<T>, did: Vec<u8>, device_id: Vec<u8>) -> DispatchResult {
			let who = ensure_signed(origin)?;
			Self::do_own_device(who, &did, &[&device_id], |mut ids| {
				ids.pop().map(|device_id| ControlAction::RemoveDevice { device_id })
			})
		}

		/// Devices, deactivation, policy links and deletion by a key of the DID. The DID stands in the payload.
		#[pallet::call_index(29)]
		#[pallet::weight(call_weight::<T>())]
		#[pallet::weight_of_authorize(call_weight::<T>())]
		#[pallet::authorize(|_, signed_payload, signature, signer_key_id| {
			Pallet::<T>::admit_control(Proof::new(signed_payload, signature, signer_key_id))
		})]
		pub fn apply_control_with_proof(
			origin: OriginFor<T>,
			signed_payload: Vec<u8>,
			signature: Vec<u8>,
			signer_key_id: Vec<u8>,
		) -> DispatchResult {
			ensure_proof::<T>(origin)?;
			Self::do_control(Proof::new(&signed_payload, &signature, &signer_key_id))
		}
	}
}

mod canary;
pub use canary::Rule;
