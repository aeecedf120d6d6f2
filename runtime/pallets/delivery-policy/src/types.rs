//! Policies and what a DID key signs to set them. The order of the fields is the order on the wire.

use crate::Config;
use codec::{Decode, DecodeWithMemTracking, Encode, MaxEncodedLen};
use frame_support::{BoundedVec, CloneNoBound, EqNoBound, PartialEqNoBound, RuntimeDebugNoBound};
use frame_system::pallet_prelude::BlockNumberFor;
use pallet_did_registry::Did;
use scale_info::TypeInfo;
use sp_runtime::RuntimeDebug;

#[derive(Encode, Decode, DecodeWithMemTracking, MaxEncodedLen, TypeInfo, Clone, Copy, PartialEq, Eq, RuntimeDebug)]
pub enum ExpirationBehavior {
	DeleteOnExpiry,
	KeepHeaderPreview,
	TombstoneReference,
}

/// Fees in the smallest unit of the currency.
#[derive(Encode, Decode, DecodeWithMemTracking, MaxEncodedLen, TypeInfo, Clone, Copy, PartialEq, Eq, RuntimeDebug)]
pub struct ReleasePricing {
	pub base_fee: u128,
	pub per_kib_fee: u128,
}

/// What a recipient or a tag asks of Relays and Caches. `effective_ttl` counts blocks.
#[derive(
	Encode,
	Decode,
	DecodeWithMemTracking,
	MaxEncodedLen,
	TypeInfo,
	CloneNoBound,
	PartialEqNoBound,
	EqNoBound,
	RuntimeDebugNoBound,
)]
#[scale_info(skip_type_params(T))]
#[codec(mel_bound())]
pub struct DeliveryPolicy<T: Config> {
	pub effective_ttl: BlockNumberFor<T>,
	pub max_message_bytes: u32,
	pub cache_eligible: bool,
	pub replication: Option<u8>,
	pub encrypted_header_preview_bytes: Option<u32>,
	pub release_pricing: Option<ReleasePricing>,
	pub expiration_behavior: Option<ExpirationBehavior>,
}

#[derive(
	Encode,
	Decode,
	DecodeWithMemTracking,
	MaxEncodedLen,
	TypeInfo,
	CloneNoBound,
	PartialEqNoBound,
	EqNoBound,
	RuntimeDebugNoBound,
)]
#[scale_info(skip_type_params(T))]
#[codec(mel_bound())]
pub struct PersonaPricing<T: Config> {
	pub asset: BoundedVec<u8, T::MaxAssetLen>,
	pub amount: u128,
}

/// `retain_until` is in milliseconds.
#[derive(Encode, Decode, DecodeWithMemTracking, MaxEncodedLen, TypeInfo, Clone, Copy, PartialEq, Eq, RuntimeDebug)]
pub struct PersonaExpiration {
	pub mode: ExpirationBehavior,
	pub retain_until: Option<u64>,
}

/// What a persona adds to the policy that applies. `allowed_relays` holds public ids of Relays.
#[derive(
	Encode,
	Decode,
	DecodeWithMemTracking,
	MaxEncodedLen,
	TypeInfo,
	CloneNoBound,
	PartialEqNoBound,
	EqNoBound,
	RuntimeDebugNoBound,
)]
#[scale_info(skip_type_params(T))]
#[codec(mel_bound())]
pub struct PersonaPolicy<T: Config> {
	pub release_pricing: Option<PersonaPricing<T>>,
	pub expiration_behavior: Option<PersonaExpiration>,
	pub allowed_relays: BoundedVec<BoundedVec<u8, T::MaxRelayIdLen>, T::MaxAllowedRelays>,
}

#[derive(Encode, Decode, DecodeWithMemTracking, MaxEncodedLen, TypeInfo, Clone, Copy, PartialEq, Eq, RuntimeDebug)]
pub enum PolicyScope {
	Recipient,
	Tag,
	Persona,
}

#[derive(
	Encode,
	Decode,
	DecodeWithMemTracking,
	MaxEncodedLen,
	TypeInfo,
	CloneNoBound,
	PartialEqNoBound,
	EqNoBound,
	RuntimeDebugNoBound,
)]
#[scale_info(skip_type_params(T))]
#[codec(mel_bound())]
pub enum PolicyAction<T: Config> {
	SetRecipient(DeliveryPolicy<T>),
	ClearRecipient,
	SetTag(DeliveryPolicy<T>),
	SetPersona(PersonaPolicy<T>),
	ClearTag,
	ClearPersona,
}

#[derive(
	Encode,
	Decode,
	DecodeWithMemTracking,
	MaxEncodedLen,
	TypeInfo,
	CloneNoBound,
	PartialEqNoBound,
	EqNoBound,
	RuntimeDebugNoBound,
)]
#[scale_info(skip_type_params(T))]
#[codec(mel_bound())]
pub struct PolicyAuthorizationPayload<T: Config> {
	pub did: Did<T>,
	pub action: PolicyAction<T>,
	pub nonce: u64,
	pub valid_until: u64,
	pub signer_key_id: BoundedVec<u8, T::MaxSignerKeyIdLen>,
}

impl<T: Config> PersonaPolicy<T> {
	pub fn is_text(&self) -> bool {
		let assets = self.release_pricing.iter().map(|pricing| pricing.asset.as_slice());
		let relays = self.allowed_relays.iter().map(|relay| relay.as_slice());
		assets.chain(relays).all(|bytes| core::str::from_utf8(bytes).is_ok())
	}
}
