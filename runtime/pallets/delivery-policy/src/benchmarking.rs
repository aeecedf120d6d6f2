//! What each call costs at its dearest: for the largest record that can stand, and with the largest policy. `b` is the bytes of Relays in it.

use crate::*;
use alloc::{vec, vec::Vec};
use frame_benchmarking::v2::*;
use frame_support::{
	traits::{fungible::Mutate, Get},
	BoundedVec,
};
use frame_system::RawOrigin;
use pallet_did_registry::benchmarking::{authorization, did, signer, standing, texts};

fn delivery<T: Config>() -> DeliveryPolicy<T> {
	DeliveryPolicy {
		effective_ttl: T::MaxTtl::get(),
		max_message_bytes: T::MaxMessageBytes::get(),
		cache_eligible: true,
		replication: Some(T::MaxReplication::get()),
		encrypted_header_preview_bytes: Some(T::MaxHeaderPreviewBytes::get()),
		release_pricing: Some(ReleasePricing { base_fee: 1, per_kib_fee: 1 }),
		expiration_behavior: Some(ExpirationBehavior::DeleteOnExpiry),
	}
}

fn relays_bytes<T: Config>() -> u32 {
	T::MaxAllowedRelays::get() * T::MaxRelayIdLen::get()
}

/// With so many bytes of Relays.
fn persona<T: Config>(bytes: u32) -> PersonaPolicy<T> {
	PersonaPolicy {
		release_pricing: Some(PersonaPricing {
			asset: BoundedVec::truncate_from(vec![b'a'; T::MaxAssetLen::get() as usize]),
			amount: 1,
		}),
		expiration_behavior: Some(PersonaExpiration {
			mode: ExpirationBehavior::DeleteOnExpiry,
			retain_until: Some(1),
		}),
		allowed_relays: BoundedVec::truncate_from(texts(bytes, T::MaxRelayIdLen::get())),
	}
}

fn own_did<T: Config>() -> Vec<u8> {
	did::<T>().into_inner()
}

#[benchmarks(where <T as pallet_did_registry::Config>::Currency: Mutate<T::AccountId>)]
mod benchmarks {
	use super::*;

	#[benchmark]
	fn set_delivery_policy() {
		let owner = standing::<T>(0);
		#[extrinsic_call]
		_(RawOrigin::Signed(owner), own_did::<T>(), delivery::<T>());
		assert!(RecipientPolicies::<T>::contains_key(did::<T>()));
	}

	#[benchmark]
	fn clear_delivery_policy() {
		let owner = standing::<T>(0);
		RecipientPolicies::<T>::insert(did::<T>(), delivery::<T>());
		#[extrinsic_call]
		_(RawOrigin::Signed(owner), own_did::<T>());
		assert!(!RecipientPolicies::<T>::contains_key(did::<T>()));
	}

	#[benchmark]
	fn set_tag_policy() {
		let owner = standing::<T>(0);
		#[extrinsic_call]
		_(RawOrigin::Signed(owner), own_did::<T>(), delivery::<T>());
		assert!(TagPolicies::<T>::contains_key(did::<T>()));
	}

	#[benchmark]
	fn clear_tag_policy() {
		let owner = standing::<T>(0);
		TagPolicies::<T>::insert(did::<T>(), delivery::<T>());
		#[extrinsic_call]
		_(RawOrigin::Signed(owner), own_did::<T>());
		assert!(!TagPolicies::<T>::contains_key(did::<T>()));
	}

	#[benchmark]
	fn set_persona_policy(b: Linear<0, { relays_bytes::<T>() }>) {
		let owner = standing::<T>(0);
		#[extrinsic_call]
		_(RawOrigin::Signed(owner), own_did::<T>(), persona::<T>(b));
		assert!(PersonaPolicies::<T>::contains_key(did::<T>()));
	}

	#[benchmark]
	fn clear_persona_policy() {
		let owner = standing::<T>(0);
		PersonaPolicies::<T>::insert(did::<T>(), persona::<T>(relays_bytes::<T>()));
		#[extrinsic_call]
		_(RawOrigin::Signed(owner), own_did::<T>());
		assert!(!PersonaPolicies::<T>::contains_key(did::<T>()));
	}

	/// With the action that brings the most.
	#[benchmark]
	fn apply_policy_with_proof(b: Linear<0, { relays_bytes::<T>() }>) {
		standing::<T>(0);
		let (payload, signature, signer) = authorization::<T>(&PolicyAuthorizationPayload {
			did: did::<T>(),
			action: PolicyAction::SetPersona(persona::<T>(b)),
			nonce: 0,
			valid_until: 1,
			signer_key_id: BoundedVec::truncate_from(signer::<T>().into_inner()),
		});
		#[extrinsic_call]
		_(RawOrigin::None, payload, signature, signer);
		assert!(PersonaPolicies::<T>::contains_key(did::<T>()));
	}
}
