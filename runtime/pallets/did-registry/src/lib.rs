//! The DID registry: records, aliases, documents, root keys, devices and the counters that make every
//! authorization work once.
//!
//! A record begins with a registration that an account submits and a key of the DID signed. Keys, documents,
//! aliases and the life of the DID then change by payloads that a key of the DID signed; the owner's account sets a
//! first alias, policy links and policies, and no more. Calls that carry a proof need no account: the pool admits
//! them only after running the whole call, so a block never holds one that fails, and they pay no fee. An
//! allowance for each DID bounds how many of them a time may bring.
//!
//! Laws: a call changes everything it names or nothing; a counter only grows, also through deletion and
//! new registration; a document time only grows; only admissible keys enter a record; a proof of version 3
//! works on one chain alone, and a registration of that version for one account alone; every record holds a
//! deposit from the account that owns it, until it is deleted or given up; an alias that was released is for its last
//! holder alone until its reserve ends; a self-certifying DID is registered once, under the key that it
//! is derived from, takes proofs of version 3 only, and `root` alone rotates its key, deactivates and deletes it.

#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

#[cfg(feature = "runtime-benchmarks")]
pub mod benchmarking;
#[cfg(test)]
mod mock;
mod operations;
mod proofs;
#[cfg(test)]
mod tests;
pub mod text;
pub mod types;
pub mod weights;

pub use pallet::*;
pub use proofs::{priority, proof_failure, Allowance, Domain, Proof};
pub use types::*;
pub use weights::WeightInfo;

/// Called after a DID was deleted or given up, so that other pallets remove what they keep for it.
pub trait OnDidDeleted {
	/// The most bytes that they keep for one DID. The deposit of its record pays for them.
	fn bytes_max() -> usize;
	fn on_did_deleted(did: &[u8]);
}

impl OnDidDeleted for () {
	fn bytes_max() -> usize {
		0
	}
	fn on_did_deleted(_: &[u8]) {}
}

// The order and the types of call arguments are those of the wire.
#[allow(clippy::too_many_arguments)]
#[frame_support::pallet]
pub mod pallet {
	use super::*;
	use crate::operations::{Change, Registration};
	use alloc::vec::Vec;
	use frame_support::{
		pallet_prelude::*,
		traits::{fungible, Time},
	};
	use frame_system::{ensure_authorized, ensure_none, ensure_signed, pallet_prelude::*};

	/// DIDs whose releases a block looks at.
	const SWEPT_DIDS_MAX: u32 = 32;

	const STORAGE_VERSION: StorageVersion = StorageVersion::new(1);

	#[pallet::pallet]
	#[pallet::storage_version(STORAGE_VERSION)]
	pub struct Pallet<T>(_);

	pub(crate) type BalanceOf<T> =
		<<T as Config>::Currency as fungible::Inspect<<T as frame_system::Config>::AccountId>>::Balance;

	/// Why money of an account is held.
	#[pallet::composite_enum]
	pub enum HoldReason {
		/// For a record that stands.
		Registration,
	}

	#[pallet::config]
	pub trait Config: frame_system::Config<RuntimeEvent: From<Event<Self>>> {
		/// The time of the block in milliseconds.
		type Time: Time<Moment = u64>;
		type OnDidDeleted: OnDidDeleted;
		/// What deposits are held in.
		type Currency: fungible::hold::Mutate<Self::AccountId, Reason: From<HoldReason>>;
		/// Held from the account that registers a DID, for the entry itself.
		#[pallet::constant]
		type RecordDeposit: Get<BalanceOf<Self>>;
		/// Held for each byte that a record may grow to, since calls with a proof let it grow without a fee.
		#[pallet::constant]
		type ByteDeposit: Get<BalanceOf<Self>>;

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
		/// How far ahead of the block's time a proof with an expiry may expire, in milliseconds.
		#[pallet::constant]
		type MaxProofAheadMs: Get<u64>;
		/// How far ahead of the block's time a version 1 proof may be dated, in milliseconds.
		#[pallet::constant]
		type MaxClockSkewMs: Get<u64>;
		/// How many calls with a proof a DID may make at once.
		#[pallet::constant]
		type ProofsAtOnce: Get<u32>;
		/// How many more of those that rotate the root key, deactivate or delete.
		#[pallet::constant]
		type ProofsInReserve: Get<u32>;
		/// After how many blocks a DID may make one more of these calls.
		#[pallet::constant]
		type ProofInterval: Get<BlockNumberFor<Self>>;
		/// How many calls may change components of a self-certifying DID's document before the next whole one.
		#[pallet::constant]
		type MaxComponentCalls: Get<u32>;
		/// How often the root key of a self-certifying DID may be replaced.
		#[pallet::constant]
		type MaxRotations: Get<u64>;
		/// How long an alias that a DID released stays reserved for it, in milliseconds.
		#[pallet::constant]
		type AliasReserveMs: Get<u64>;
		/// After how long without a change of its record a DID counts as given up, in milliseconds.
		#[pallet::constant]
		type SilenceMs: Get<u64>;
		/// How many blocks a call with a proof stays in the pool.
		#[pallet::constant]
		type ProofLongevity: Get<u64>;
		type WeightInfo: WeightInfo;
	}

	#[pallet::storage]
	pub type Dids<T: Config> = StorageMap<_, Blake2_128Concat, Did<T>, DidRecord<T>>;

	/// Which DID has an alias. The key is its normal form.
	#[pallet::storage]
	pub type AliasIndex<T: Config> = StorageMap<_, Blake2_128Concat, Alias<T>, Did<T>>;

	/// Aliases that were released, and for whom each is reserved.
	#[pallet::storage]
	pub type ReleasedAliases<T: Config> = StorageMap<_, Blake2_128Concat, Alias<T>, Reserve<T>>;

	/// The last aliases that a DID released, the oldest first: more are not reserved for it.
	#[pallet::storage]
	pub type ReleasesOf<T: Config> =
		StorageMap<_, Blake2_128Concat, Did<T>, BoundedVec<Alias<T>, T::MaxAliases>, ValueQuery>;

	/// Whose releases were looked at last for reserves that have ended.
	#[pallet::storage]
	pub type LastSwept<T: Config> = StorageValue<_, Did<T>>;

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

	/// The last expiry of a registration proof. The next one must expire later.
	#[pallet::storage]
	pub type RegistrationExpiries<T: Config> = StorageMap<_, Blake2_128Concat, Did<T>, u64, ValueQuery>;

	/// How often a DID was deleted. What was kept for an earlier life of a name is not for a later one.
	#[pallet::storage]
	pub type Lives<T: Config> = StorageMap<_, Blake2_128Concat, Did<T>, u32, ValueQuery>;

	/// The block at which a DID may make `ProofsAtOnce` calls with a proof again. An absent one is past.
	#[pallet::storage]
	pub type ProofAllowances<T: Config> = StorageMap<_, Blake2_128Concat, Did<T>, BlockNumberFor<T>, ValueQuery>;

	/// How many more calls may change components of a self-certifying DID's document before the next whole one. The
	/// calls since the last whole document are what proves the present one.
	#[pallet::storage]
	pub type ComponentCallsLeft<T: Config> = StorageMap<_, Blake2_128Concat, Did<T>, u32, ValueQuery>;

	/// Whose money is held for a record, and how much.
	#[pallet::storage]
	pub type Deposits<T: Config> = StorageMap<_, Blake2_128Concat, Did<T>, (T::AccountId, BalanceOf<T>)>;

	/// Whether proofs of versions 1 and 2 and payloads that are signed plainly are taken as well as version 3.
	/// They bind neither this chain nor the account that submits them. Set in the chain's first state.
	#[pallet::storage]
	pub type PlainProofs<T: Config> = StorageValue<_, bool, ValueQuery>;

	/// Whether every DID must be self-certifying. Set in the chain's first state.
	#[pallet::storage]
	pub type SelfCertifyingOnly<T: Config> = StorageValue<_, bool, ValueQuery>;

	#[pallet::genesis_config]
	#[derive(frame_support::DefaultNoBound)]
	pub struct GenesisConfig<T: Config> {
		pub plain_proofs: bool,
		pub self_certifying_only: bool,
		#[serde(skip)]
		pub _config: core::marker::PhantomData<T>,
	}

	#[pallet::genesis_build]
	impl<T: Config> BuildGenesisConfig for GenesisConfig<T> {
		fn build(&self) {
			PlainProofs::<T>::put(self.plain_proofs);
			SelfCertifyingOnly::<T>::put(self.self_certifying_only);
		}
	}

	#[pallet::hooks]
	impl<T: Config> Hooks<BlockNumberFor<T>> for Pallet<T> {
		/// Each block looks at the releases of as many DIDs as what is left of it holds, so that reserves that have ended
		/// leave the state sooner than deletions can make new ones.
		fn on_idle(_: BlockNumberFor<T>, remaining: Weight) -> Weight {
			let one = T::WeightInfo::sweep();
			let mut used = Weight::zero();
			for _ in 0..SWEPT_DIDS_MAX {
				let with_next = used.saturating_add(one);
				if !remaining.all_gte(with_next) {
					break;
				}
				used = with_next;
				if !Self::sweep() {
					break;
				}
			}
			used
		}

		#[cfg(feature = "try-runtime")]
		fn try_state(_: BlockNumberFor<T>) -> Result<(), sp_runtime::TryRuntimeError> {
			Self::do_try_state()
		}
	}

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
		OwnerChanged(Did<T>, T::AccountId),
		/// The deposit of a deactivated DID, or of one that was given up, is its owner's again.
		DepositReturned(Did<T>, T::AccountId),
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
		/// The `timestamp` of a proof is neither a time nor `v2:` or `v3:` and `<nonce>:<expiry ms>`.
		InvalidProofTimestamp,
		/// A registration proof has expired.
		RegistrationExpired,
		/// A proof expires, or is dated, too far ahead.
		ProofTooFarAhead,
		/// A proof of the same or a later time has already been accepted.
		DocumentStale,
		/// The DID has a root key: its keys decide this, and not the account that owns the record.
		RootKeyRequired,
		/// This chain takes proofs of version 3 only.
		ProofVersionRefused,
		/// The account can't pay the deposit of a record.
		DepositUnavailable,
		/// The allowance of the DID is used up; blocks bring it back.
		TooManyProofs,
		/// A DID of the self-certifying form is not derived from this chain and this root key, or has not that form where
		/// every DID must have it.
		NameNotDerived,
		/// The DID was deleted, which is final for the self-certifying form.
		NameRetired,
		/// Only `root` rotates the root key of a self-certifying DID, deactivates it and deletes it.
		OnlyRootSigns,
		/// The next change of the document must be a whole document; a self-certifying DID is registered with one.
		DocumentNeeded,
		/// The DID has had as many root keys as it may.
		TooManyRootKeys,
		/// The DID is not deactivated, and its record has changed not long ago.
		DidInUse,
	}

	fn length(bytes: &[u8]) -> u32 {
		bytes.len() as u32
	}

	/// The fewest bytes that a method can have: four lengths, two ids, a type and a key.
	const METHOD_BYTES_MIN: u32 = 64;

	/// Of `ControlAction`.
	const DELETE_DID: u8 = 7;

	/// Methods that a document of this length can bring.
	fn methods<T: Config>(doc_blob: &[u8]) -> u32 {
		(length(doc_blob) / METHOD_BYTES_MIN).min(T::MaxVMs::get())
	}

	fn links_length(recipient: &Option<Vec<u8>>, tags: &[Vec<u8>], personas: &[Vec<u8>]) -> u32 {
		let refs = recipient.iter().chain(tags).chain(personas);
		refs.fold(0, |sum, reference| sum.saturating_add(length(reference)))
	}

	/// The byte after the DID says which action a payload holds. A deletion is dearer than every other one.
	fn control_weight<T: Config>(signed_payload: &[u8]) -> Weight {
		let mut input = signed_payload;
		let did = Vec::<u8>::decode(&mut input);
		if did.is_ok() && input.first() == Some(&DELETE_DID) {
			T::WeightInfo::deletion_with_proof()
		} else {
			T::WeightInfo::links_with_proof(length(signed_payload))
		}
	}

	/// The origin of a call that brings its own proof.
	fn ensure_proof<T: Config>(origin: OriginFor<T>) -> DispatchResult {
		ensure_authorized(origin.clone()).or_else(|_| ensure_none(origin)).map_err(Into::into)
	}

	#[pallet::call]
	impl<T: Config> Pallet<T> {
		/// Gives the DID its first alias. Where a root key speaks for it, only that changes an alias.
		#[pallet::call_index(1)]
		#[pallet::weight(T::WeightInfo::set_alias())]
		pub fn set_alias(origin: OriginFor<T>, did: Vec<u8>, alias: Vec<u8>) -> DispatchResult {
			Self::do_set_alias(ensure_signed(origin)?, &did, &alias)
		}

		/// By the owner's account, for a DID without a root key. So are the other owner calls that the law of
		/// this pallet leaves to the keys: 3, 4 and 26 to 28.
		#[pallet::call_index(2)]
		#[pallet::weight(T::WeightInfo::add_device())]
		pub fn add_device(origin: OriginFor<T>, did: Vec<u8>, device_id: Vec<u8>) -> DispatchResult {
			let who = ensure_signed(origin)?;
			Self::do_own_device(who, &did, &[&device_id], |mut ids| {
				ids.pop().map(|device_id| ControlAction::AddDevice { device_id })
			})
		}

		#[pallet::call_index(3)]
		#[pallet::weight(T::WeightInfo::tombstone_device())]
		pub fn tombstone_device(origin: OriginFor<T>, did: Vec<u8>, device_id: Vec<u8>) -> DispatchResult {
			let who = ensure_signed(origin)?;
			Self::do_own_device(who, &did, &[&device_id], |mut ids| {
				ids.pop().map(|device_id| ControlAction::TombstoneDevice { device_id })
			})
		}

		#[pallet::call_index(4)]
		#[pallet::weight(T::WeightInfo::set_document(length(doc_blob), methods::<T>(doc_blob)))]
		pub fn set_document(origin: OriginFor<T>, did: Vec<u8>, doc_blob: Vec<u8>) -> DispatchResult {
			Self::do_set_document(ensure_signed(origin)?, &did, &doc_blob)
		}

		/// Replaces the document by a proof of the root key.
		#[pallet::call_index(5)]
		#[pallet::weight((T::WeightInfo::set_document_with_proof(length(doc_blob), methods::<T>(doc_blob)), DispatchClass::Operational))]
		#[pallet::weight_of_authorize(T::WeightInfo::set_document_with_proof(length(doc_blob), methods::<T>(doc_blob)))]
		#[pallet::authorize(|_, did, doc_blob, timestamp, pubkey, signature| {
			Pallet::<T>::admit_component(did, || {
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

		/// Registers a DID; the account that signs the extrinsic owns it and pays the deposit. The family's
		/// call 6, which no account signs, is left out: anyone who writes for good has paid for it.
		#[pallet::call_index(7)]
		#[pallet::weight(T::WeightInfo::register_with_document_proof_signed(length(doc_blob), methods::<T>(doc_blob)))]
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
			let proof = Registration {
				did: &did,
				alias: alias.as_deref(),
				timestamp: &timestamp,
				pubkey: &pubkey,
				signature: &signature,
				doc_blob: &doc_blob,
			};
			Self::do_register(who, proof)
		}

		#[pallet::call_index(8)]
		#[pallet::weight(T::WeightInfo::set_delivery_policy_links(links_length(
			recipient_policy,
			tag_policies,
			persona_policies
		)))]
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
		#[pallet::weight(T::WeightInfo::clear_delivery_policy_links())]
		pub fn clear_delivery_policy_links(origin: OriginFor<T>, did: Vec<u8>) -> DispatchResult {
			Self::do_own(ensure_signed(origin)?, &did, ControlAction::ClearDeliveryPolicyLinks)
		}

		/// Registers a DID, not of the self-certifying form, without a document; the account that signs the extrinsic owns it.
		#[pallet::call_index(10)]
		#[pallet::weight(T::WeightInfo::register_with_proof())]
		pub fn register_with_proof(
			origin: OriginFor<T>,
			did: Vec<u8>,
			alias: Option<Vec<u8>>,
			timestamp: Vec<u8>,
			pubkey: Vec<u8>,
			signature: Vec<u8>,
		) -> DispatchResult {
			let who = ensure_signed(origin)?;
			let proof = Registration {
				did: &did,
				alias: alias.as_deref(),
				timestamp: &timestamp,
				pubkey: &pubkey,
				signature: &signature,
				doc_blob: &[],
			};
			Self::do_register_bare(who, proof)
		}

		#[pallet::call_index(11)]
		#[pallet::weight((T::WeightInfo::add_alias(), DispatchClass::Operational))]
		#[pallet::weight_of_authorize(T::WeightInfo::add_alias())]
		#[pallet::authorize(|_, did, alias, signed_payload, signature, signer_key_id| {
			let proof = Proof::new(signed_payload, signature, signer_key_id);
			Pallet::<T>::admit_alias(did, Some(alias), || Pallet::<T>::do_add_alias(did, alias, proof))
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
		#[pallet::weight((T::WeightInfo::update_alias(), DispatchClass::Operational))]
		#[pallet::weight_of_authorize(T::WeightInfo::update_alias())]
		#[pallet::authorize(|_, did, old_alias, new_alias, signed_payload, signature, signer_key_id| {
			let proof = Proof::new(signed_payload, signature, signer_key_id);
			Pallet::<T>::admit_alias(did, Some(new_alias), || {
				Pallet::<T>::do_update_alias(did, old_alias, new_alias, proof)
			})
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
		#[pallet::weight((T::WeightInfo::remove_alias(), DispatchClass::Operational))]
		#[pallet::weight_of_authorize(T::WeightInfo::remove_alias())]
		#[pallet::authorize(|_, did, alias, signed_payload, signature, signer_key_id| {
			let proof = Proof::new(signed_payload, signature, signer_key_id);
			Pallet::<T>::admit_alias(did, None, || Pallet::<T>::do_remove_alias(did, alias, proof))
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
		#[pallet::weight((T::WeightInfo::add_verification_method(), DispatchClass::Operational))]
		#[pallet::weight_of_authorize(T::WeightInfo::add_verification_method())]
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
		#[pallet::weight((T::WeightInfo::update_verification_method(), DispatchClass::Operational))]
		#[pallet::weight_of_authorize(T::WeightInfo::update_verification_method())]
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
		#[pallet::weight((T::WeightInfo::remove_verification_method(), DispatchClass::Operational))]
		#[pallet::weight_of_authorize(T::WeightInfo::remove_verification_method())]
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
		#[pallet::weight((T::WeightInfo::add_authentication(), DispatchClass::Operational))]
		#[pallet::weight_of_authorize(T::WeightInfo::add_authentication())]
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
		#[pallet::weight((T::WeightInfo::remove_authentication(), DispatchClass::Operational))]
		#[pallet::weight_of_authorize(T::WeightInfo::remove_authentication())]
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
		#[pallet::weight((T::WeightInfo::add_key_agreement(), DispatchClass::Operational))]
		#[pallet::weight_of_authorize(T::WeightInfo::add_key_agreement())]
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
		#[pallet::weight((T::WeightInfo::update_key_agreement(), DispatchClass::Operational))]
		#[pallet::weight_of_authorize(T::WeightInfo::update_key_agreement())]
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
		#[pallet::weight((T::WeightInfo::remove_key_agreement(), DispatchClass::Operational))]
		#[pallet::weight_of_authorize(T::WeightInfo::remove_key_agreement())]
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
		#[pallet::weight((T::WeightInfo::add_service(length(signed_payload)), DispatchClass::Operational))]
		#[pallet::weight_of_authorize(T::WeightInfo::add_service(length(signed_payload)))]
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
		#[pallet::weight((T::WeightInfo::update_service(length(signed_payload)), DispatchClass::Operational))]
		#[pallet::weight_of_authorize(T::WeightInfo::update_service(length(signed_payload)))]
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
		#[pallet::weight((T::WeightInfo::remove_service(), DispatchClass::Operational))]
		#[pallet::weight_of_authorize(T::WeightInfo::remove_service())]
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
		#[pallet::weight((T::WeightInfo::update_root_pubkey(), DispatchClass::Operational))]
		#[pallet::weight_of_authorize(T::WeightInfo::update_root_pubkey())]
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
		#[pallet::weight(T::WeightInfo::deactivate_did())]
		pub fn deactivate_did(origin: OriginFor<T>, did: Vec<u8>) -> DispatchResult {
			Self::do_deactivate(ensure_signed(origin)?, &did)
		}

		#[pallet::call_index(27)]
		#[pallet::weight(T::WeightInfo::update_device())]
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
		#[pallet::weight(T::WeightInfo::remove_device())]
		pub fn remove_device(origin: OriginFor<T>, did: Vec<u8>, device_id: Vec<u8>) -> DispatchResult {
			let who = ensure_signed(origin)?;
			Self::do_own_device(who, &did, &[&device_id], |mut ids| {
				ids.pop().map(|device_id| ControlAction::RemoveDevice { device_id })
			})
		}

		/// Devices, deactivation, policy links and deletion by a key of the DID. The DID stands in the payload.
		#[pallet::call_index(29)]
		#[pallet::weight((control_weight::<T>(signed_payload), DispatchClass::Operational))]
		#[pallet::weight_of_authorize(control_weight::<T>(signed_payload))]
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

		/// Gives the record, with its deposit, to another account. The family has no calls from here on.
		#[pallet::call_index(30)]
		#[pallet::weight(T::WeightInfo::change_owner())]
		pub fn change_owner(origin: OriginFor<T>, did: Vec<u8>, owner: T::AccountId) -> DispatchResult {
			Self::do_change_owner(ensure_signed(origin)?, &did, owner)
		}

		/// Makes the account that signs the extrinsic the owner, as a key of the DID says in a control payload. The
		/// account pays a deposit of its own, and the one before gets its own back.
		#[pallet::call_index(31)]
		#[pallet::weight(T::WeightInfo::adopt())]
		pub fn adopt(
			origin: OriginFor<T>,
			signed_payload: Vec<u8>,
			signature: Vec<u8>,
			signer_key_id: Vec<u8>,
		) -> DispatchResult {
			Self::do_adopt(ensure_signed(origin)?, Proof::new(&signed_payload, &signature, &signer_key_id))
		}

		/// Returns the deposit of a DID that is deactivated, or whose record has not changed for `SilenceMs`, to the
		/// account that paid it. What stays says that the DID is deactivated, so that no one else takes its name.
		#[pallet::call_index(32)]
		#[pallet::weight(T::WeightInfo::reclaim_deposit())]
		pub fn reclaim_deposit(origin: OriginFor<T>, did: Vec<u8>) -> DispatchResult {
			Self::do_reclaim_deposit(ensure_signed(origin)?, &did)
		}
	}
}

mod canary;
pub use canary::Rule;
