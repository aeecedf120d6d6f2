//! Delivery policies of recipients, tags and personas. Each is keyed by a DID and written either by the
//! account that owns the DID, or by a payload that a key of the DID signed.
//!
//! Laws: a policy that is stored keeps the bounds; the policy counter only grows, also through the
//! deletion of the DID, which takes the policies along.

#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

#[cfg(feature = "runtime-benchmarks")]
mod benchmarking;
#[cfg(test)]
mod tests;
pub mod types;
pub mod weights;

pub use pallet::*;
pub use types::*;
pub use weights::WeightInfo;

#[frame_support::pallet]
pub mod pallet {
	use super::*;
	use alloc::vec::Vec;
	use frame_support::{
		pallet_prelude::*,
		storage::{with_transaction, TransactionOutcome},
		traits::Time,
	};
	use frame_system::{ensure_authorized, ensure_none, ensure_signed, pallet_prelude::*};
	use pallet_did_registry::{
		priority, proof_failure, Allowance, Did, Domain, OnDidDeleted, Pallet as Registry, Proof, Rule,
	};
	use sp_runtime::{traits::Zero, transaction_validity::TransactionValidityWithRefund};

	const TAG: &str = "delivery-policy";
	const STORAGE_VERSION: StorageVersion = StorageVersion::new(1);

	#[pallet::pallet]
	#[pallet::storage_version(STORAGE_VERSION)]
	pub struct Pallet<T>(_);

	#[pallet::config]
	pub trait Config: frame_system::Config<RuntimeEvent: From<Event<Self>>> + pallet_did_registry::Config {
		/// The longest `effective_ttl`, in blocks.
		#[pallet::constant]
		type MaxTtl: Get<BlockNumberFor<Self>>;
		#[pallet::constant]
		type MaxMessageBytes: Get<u32>;
		#[pallet::constant]
		type MaxReplication: Get<u8>;
		#[pallet::constant]
		type MaxHeaderPreviewBytes: Get<u32>;
		/// Of each fee, in the smallest unit of the currency.
		#[pallet::constant]
		type MaxReleaseFee: Get<u128>;
		#[pallet::constant]
		type MaxAssetLen: Get<u32>;
		#[pallet::constant]
		type MaxAllowedRelays: Get<u32>;
		#[pallet::constant]
		type MaxRelayIdLen: Get<u32>;
		#[pallet::constant]
		type MaxSignerKeyIdLen: Get<u32>;
		type WeightInfo: WeightInfo;
	}

	#[pallet::storage]
	pub type RecipientPolicies<T: Config> = StorageMap<_, Blake2_128Concat, Did<T>, DeliveryPolicy<T>>;

	#[pallet::storage]
	pub type TagPolicies<T: Config> = StorageMap<_, Blake2_128Concat, Did<T>, DeliveryPolicy<T>>;

	#[pallet::storage]
	pub type PersonaPolicies<T: Config> = StorageMap<_, Blake2_128Concat, Did<T>, PersonaPolicy<T>>;

	#[pallet::storage]
	pub type PolicyNonces<T: Config> = StorageMap<_, Blake2_128Concat, Did<T>, u64, ValueQuery>;

	#[pallet::event]
	#[pallet::generate_deposit(fn deposit_event)]
	pub enum Event<T: Config> {
		PolicySet { scope: PolicyScope, did: Did<T> },
		PolicyCleared { scope: PolicyScope, did: Did<T> },
	}

	#[pallet::error]
	#[derive(PartialEq, Eq)]
	pub enum Error<T> {
		DidTooLong,
		/// The DID does not exist or is deactivated.
		DidNotFound,
		NotPolicyController,
		InvalidTtl,
		MaxMessageSizeExceeded,
		InvalidReplication,
		HeaderPreviewTooLarge,
		ReleaseFeeTooLarge,
		PolicyNotFound,
		InvalidPolicyPayload,
		InvalidPolicyNonce,
		PolicyAuthorizationExpired,
		InvalidSignature,
		/// A text of a persona policy is no UTF-8.
		InvalidConstraints,
	}

	fn relays_length<T: Config>(policy: &PersonaPolicy<T>) -> u32 {
		policy.allowed_relays.iter().map(|relay| relay.len() as u32).sum()
	}

	#[pallet::call]
	impl<T: Config> Pallet<T> {
		#[pallet::call_index(0)]
		#[pallet::weight(<T as Config>::WeightInfo::set_delivery_policy())]
		pub fn set_delivery_policy(origin: OriginFor<T>, did: Vec<u8>, policy: DeliveryPolicy<T>) -> DispatchResult {
			let did = Self::controlled(&ensure_signed(origin)?, &did)?;
			Self::apply(did, PolicyAction::SetRecipient(policy))
		}

		#[pallet::call_index(1)]
		#[pallet::weight(<T as Config>::WeightInfo::clear_delivery_policy())]
		pub fn clear_delivery_policy(origin: OriginFor<T>, did: Vec<u8>) -> DispatchResult {
			let did = Self::controlled(&ensure_signed(origin)?, &did)?;
			Self::apply(did, PolicyAction::ClearRecipient)
		}

		#[pallet::call_index(2)]
		#[pallet::weight(<T as Config>::WeightInfo::set_tag_policy())]
		pub fn set_tag_policy(origin: OriginFor<T>, tag_did: Vec<u8>, policy: DeliveryPolicy<T>) -> DispatchResult {
			let did = Self::controlled(&ensure_signed(origin)?, &tag_did)?;
			Self::apply(did, PolicyAction::SetTag(policy))
		}

		#[pallet::call_index(3)]
		#[pallet::weight(<T as Config>::WeightInfo::set_persona_policy(relays_length(policy)))]
		pub fn set_persona_policy(
			origin: OriginFor<T>,
			persona_did: Vec<u8>,
			policy: PersonaPolicy<T>,
		) -> DispatchResult {
			let did = Self::controlled(&ensure_signed(origin)?, &persona_did)?;
			Self::apply(did, PolicyAction::SetPersona(policy))
		}

		/// Any of these by a key of the DID, which stands in the payload.
		#[pallet::call_index(4)]
		#[pallet::weight((<T as Config>::WeightInfo::apply_policy_with_proof(signed_payload.len() as u32), DispatchClass::Operational))]
		#[pallet::weight_of_authorize(<T as Config>::WeightInfo::apply_policy_with_proof(signed_payload.len() as u32))]
		#[pallet::authorize(|_, signed_payload, signature, signer_key_id| {
			Pallet::<T>::admit(Proof::new(signed_payload, signature, signer_key_id))
		})]
		pub fn apply_policy_with_proof(
			origin: OriginFor<T>,
			signed_payload: Vec<u8>,
			signature: Vec<u8>,
			signer_key_id: Vec<u8>,
		) -> DispatchResult {
			ensure_authorized(origin.clone()).or_else(|_| ensure_none(origin))?;
			Self::apply_proof(Proof::new(&signed_payload, &signature, &signer_key_id))
		}

		/// The family has other calls under 5 to 18.
		#[pallet::call_index(19)]
		#[pallet::weight(<T as Config>::WeightInfo::clear_tag_policy())]
		pub fn clear_tag_policy(origin: OriginFor<T>, tag_did: Vec<u8>) -> DispatchResult {
			let did = Self::controlled(&ensure_signed(origin)?, &tag_did)?;
			Self::apply(did, PolicyAction::ClearTag)
		}

		#[pallet::call_index(20)]
		#[pallet::weight(<T as Config>::WeightInfo::clear_persona_policy())]
		pub fn clear_persona_policy(origin: OriginFor<T>, persona_did: Vec<u8>) -> DispatchResult {
			let did = Self::controlled(&ensure_signed(origin)?, &persona_did)?;
			Self::apply(did, PolicyAction::ClearPersona)
		}
	}

	#[pallet::hooks]
	impl<T: Config> Hooks<BlockNumberFor<T>> for Pallet<T> {
		#[cfg(feature = "try-runtime")]
		fn try_state(_: BlockNumberFor<T>) -> Result<(), sp_runtime::TryRuntimeError> {
			Self::do_try_state()
		}
	}

	impl<T: Config> Pallet<T> {
		/// The DID, if it is active and the account owns it.
		fn controlled(who: &T::AccountId, did: &[u8]) -> Result<Did<T>, Error<T>> {
			let did = Registry::<T>::bounded(did).map_err(|_| Error::DidTooLong)?;
			let record = Registry::<T>::active(&did).map_err(|_| Error::DidNotFound)?;
			ensure!(record.owner.as_ref() == Some(who), Error::NotPolicyController);
			Ok(did)
		}

		fn apply(did: Did<T>, action: PolicyAction<T>) -> DispatchResult {
			let scope = match action {
				PolicyAction::SetRecipient(policy) => {
					RecipientPolicies::<T>::insert(&did, Self::checked(policy)?);
					PolicyScope::Recipient
				},
				PolicyAction::SetTag(policy) => {
					TagPolicies::<T>::insert(&did, Self::checked(policy)?);
					PolicyScope::Tag
				},
				PolicyAction::SetPersona(policy) => {
					ensure!(policy.is_text(), Error::<T>::InvalidConstraints);
					PersonaPolicies::<T>::insert(&did, policy);
					PolicyScope::Persona
				},
				PolicyAction::ClearRecipient => {
					RecipientPolicies::<T>::take(&did).ok_or(Error::<T>::PolicyNotFound)?;
					return Self::cleared(PolicyScope::Recipient, did);
				},
				PolicyAction::ClearTag => {
					TagPolicies::<T>::take(&did).ok_or(Error::<T>::PolicyNotFound)?;
					return Self::cleared(PolicyScope::Tag, did);
				},
				PolicyAction::ClearPersona => {
					PersonaPolicies::<T>::take(&did).ok_or(Error::<T>::PolicyNotFound)?;
					return Self::cleared(PolicyScope::Persona, did);
				},
			};
			Self::deposit_event(Event::PolicySet { scope, did });
			Ok(())
		}

		fn cleared(scope: PolicyScope, did: Did<T>) -> DispatchResult {
			Self::deposit_event(Event::PolicyCleared { scope, did });
			Ok(())
		}

		/// The policy itself, if it keeps the bounds. The bounds of a persona policy are in its type.
		fn checked(policy: DeliveryPolicy<T>) -> Result<DeliveryPolicy<T>, Error<T>> {
			let ttl = policy.effective_ttl;
			ensure!(!ttl.is_zero() && ttl <= T::MaxTtl::get(), Error::InvalidTtl);
			let bytes = policy.max_message_bytes;
			ensure!(bytes > 0 && bytes <= T::MaxMessageBytes::get(), Error::MaxMessageSizeExceeded);
			let copies = policy.replication.unwrap_or(1);
			ensure!(copies > 0 && copies <= T::MaxReplication::get(), Error::InvalidReplication);
			let preview = policy.encrypted_header_preview_bytes.unwrap_or_default();
			ensure!(preview <= T::MaxHeaderPreviewBytes::get(), Error::HeaderPreviewTooLarge);
			let fee = policy.release_pricing.map_or(0, |pricing| pricing.base_fee.max(pricing.per_kib_fee));
			ensure!(fee <= T::MaxReleaseFee::get() || Rule::FeeBound.is_broken(), Error::ReleaseFeeTooLarge);
			Ok(policy)
		}

		/// Checks: payload, expiry, DID, counter, signature, allowance, then the policy.
		fn apply_proof(proof: Proof) -> DispatchResult {
			let payload = proof.decode::<PolicyAuthorizationPayload<T>>().ok_or(Error::<T>::InvalidPolicyPayload)?;
			ensure!(payload.signer_key_id.as_slice() == proof.signer, Error::<T>::InvalidPolicyPayload);
			let now_ms = <T as pallet_did_registry::Config>::Time::now();
			ensure!(payload.valid_until > now_ms, Error::<T>::PolicyAuthorizationExpired);
			let record = Registry::<T>::active(&payload.did).map_err(|_| Error::<T>::DidNotFound)?;
			let nonce = PolicyNonces::<T>::get(&payload.did);
			ensure!(payload.nonce == nonce, Error::<T>::InvalidPolicyNonce);
			let signed = Registry::<T>::is_signed(&payload.did, &record, Domain::Policy, &proof);
			ensure!(signed, Error::<T>::InvalidSignature);
			Registry::<T>::spend(&payload.did, Allowance::Common)?;
			let next = nonce.checked_add(1).ok_or(sp_runtime::ArithmeticError::Overflow)?;
			PolicyNonces::<T>::insert(&payload.did, next);
			Self::apply(payload.did, payload.action)
		}

		/// Runs the call and undoes it. Only a call that would succeed now enters the pool or a block.
		fn admit(proof: Proof) -> TransactionValidityWithRefund {
			with_transaction(|| TransactionOutcome::Rollback(Self::apply_proof(proof)))
				.map_err(|error| proof_failure(error, Error::<T>::InvalidSignature.into()))?;
			let payload = proof.decode::<PolicyAuthorizationPayload<T>>().ok_or(InvalidTransaction::BadProof)?;
			let validity = ValidTransaction::with_tag_prefix(TAG)
				.priority(priority::POLICY)
				.and_provides((payload.did, payload.nonce))
				.longevity(T::ProofLongevity::get())
				.propagate(true)
				.build()?;
			Ok((validity, Weight::zero()))
		}
	}

	#[cfg(any(test, feature = "try-runtime"))]
	impl<T: Config> Pallet<T> {
		/// A policy belongs to a DID that stands.
		pub(crate) fn do_try_state() -> Result<(), sp_runtime::TryRuntimeError> {
			let dids = RecipientPolicies::<T>::iter_keys()
				.chain(TagPolicies::<T>::iter_keys())
				.chain(PersonaPolicies::<T>::iter_keys());
			for did in dids {
				ensure!(pallet_did_registry::Dids::<T>::contains_key(&did), "a policy of no DID");
			}
			Ok(())
		}
	}

	impl<T: Config> OnDidDeleted for Pallet<T> {
		fn bytes_max() -> usize {
			let (delivery, persona) = (DeliveryPolicy::<T>::max_encoded_len(), PersonaPolicy::<T>::max_encoded_len());
			delivery.saturating_mul(2).saturating_add(persona)
		}

		fn on_did_deleted(did: &[u8]) {
			let Ok(did) = Registry::<T>::bounded(did) else { return };
			RecipientPolicies::<T>::remove(&did);
			TagPolicies::<T>::remove(&did);
			PersonaPolicies::<T>::remove(&did);
		}
	}
}
