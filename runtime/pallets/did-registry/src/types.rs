//! What the pallet keeps and what DID keys sign. The order of the fields is the order on the wire.

use crate::{text, Config, Rule};
use alloc::vec::Vec;
use codec::{Decode, DecodeWithMemTracking, Encode, MaxEncodedLen};
use frame_support::{traits::ConstU32, BoundedVec, CloneNoBound, EqNoBound, PartialEqNoBound, RuntimeDebugNoBound};
use scale_info::TypeInfo;
use sp_runtime::RuntimeDebug;

pub type Did<T> = BoundedVec<u8, <T as Config>::MaxDidLen>;
pub type Id<T> = BoundedVec<u8, <T as Config>::MaxIdLen>;
pub type Alias<T> = BoundedVec<u8, <T as Config>::MaxAliasLen>;
pub type DeviceId<T> = BoundedVec<u8, <T as Config>::MaxDeviceIdLen>;
pub type PolicyRef<T> = BoundedVec<u8, <T as Config>::MaxPolicyRefLen>;
/// A root key. The bound is part of the layout; what is stored always has 32 bytes.
pub type RootKey = BoundedVec<u8, ConstU32<32>>;

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
pub struct VerificationMethod<T: Config> {
	pub id: Id<T>,
	pub type_: BoundedVec<u8, T::MaxVMTypeLen>,
	pub controller: Id<T>,
	pub public_key_multibase: BoundedVec<u8, T::MaxKeyMultibaseLen>,
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
pub struct KeyAgreement<T: Config> {
	pub id: Id<T>,
	pub type_: BoundedVec<u8, T::MaxKaTypeLen>,
	pub controller: Id<T>,
	pub public_key_multibase: BoundedVec<u8, T::MaxKeyMultibaseLen>,
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
pub struct Service<T: Config> {
	pub id: Id<T>,
	pub type_: BoundedVec<u8, T::MaxServiceTypeLen>,
	pub service_endpoint: BoundedVec<BoundedVec<u8, T::MaxServiceEndpointUrlLen>, T::MaxServiceEndpoints>,
	pub authorization: Option<BoundedVec<Id<T>, T::MaxServiceAuthorizationKeys>>,
	pub priority: Option<u32>,
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
pub struct DidDocument<T: Config> {
	pub id: Did<T>,
	pub verification_method: BoundedVec<VerificationMethod<T>, T::MaxVMs>,
	pub authentication: Option<BoundedVec<Id<T>, T::MaxRefsPerRel>>,
	pub key_agreement: BoundedVec<KeyAgreement<T>, T::MaxKAs>,
	pub service: Option<BoundedVec<Service<T>, T::MaxServices>>,
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
pub struct DeviceInfo<T: Config> {
	pub device_id: DeviceId<T>,
	pub added_at: u64,
	pub tombstoned: bool,
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
pub struct DeliveryPolicyLinks<T: Config> {
	pub recipient_policy: Option<PolicyRef<T>>,
	pub tag_policies: BoundedVec<PolicyRef<T>, T::MaxPolicyRefs>,
	pub persona_policies: BoundedVec<PolicyRef<T>, T::MaxPolicyRefs>,
}

/// All that is stored of a DID but its counters, which outlive it.
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
pub struct DidRecord<T: Config> {
	pub owner: Option<T::AccountId>,
	pub aliases: Option<BoundedVec<Alias<T>, T::MaxAliases>>,
	pub devices: Option<BoundedVec<DeviceInfo<T>, T::MaxDevices>>,
	pub document: Option<DidDocument<T>>,
	pub version: u64,
	pub updated_at: u64,
	pub root_pubkey: Option<RootKey>,
	pub delivery_policy_links: Option<DeliveryPolicyLinks<T>>,
	pub deactivated: bool,
}

/// For whom an alias is reserved that was released: this life of the DID, until this time.
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
pub struct Reserve<T: Config> {
	pub did: Did<T>,
	pub life: u32,
	pub until_ms: u64,
}

#[derive(Encode, Decode, DecodeWithMemTracking, MaxEncodedLen, TypeInfo, Clone, Copy, PartialEq, Eq, RuntimeDebug)]
pub enum DocumentAction {
	AddVerificationMethod,
	UpdateVerificationMethod,
	RemoveVerificationMethod,
	AddAuthentication,
	RemoveAuthentication,
	AddKeyAgreement,
	UpdateKeyAgreement,
	RemoveKeyAgreement,
	AddService,
	UpdateService,
	RemoveService,
}

#[derive(Encode, Decode, DecodeWithMemTracking, MaxEncodedLen, TypeInfo, Clone, Copy, PartialEq, Eq, RuntimeDebug)]
pub enum AliasAction {
	Add,
	Update,
	Remove,
}

/// `ChangeOwner` is our own, after those of the family, for the call of the account that is to own the record.
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
pub enum ControlAction<T: Config> {
	AddDevice { device_id: DeviceId<T> },
	TombstoneDevice { device_id: DeviceId<T> },
	UpdateDevice { old_device_id: DeviceId<T>, new_device_id: DeviceId<T> },
	RemoveDevice { device_id: DeviceId<T> },
	DeactivateDid,
	SetDeliveryPolicyLinks { links: DeliveryPolicyLinks<T> },
	ClearDeliveryPolicyLinks,
	DeleteDid,
	ChangeOwner { owner: T::AccountId },
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
pub struct DocumentAuthorizationPayload<T: Config> {
	pub did: Did<T>,
	pub action: DocumentAction,
	pub verification_method: Option<VerificationMethod<T>>,
	pub key_agreement: Option<KeyAgreement<T>>,
	pub service: Option<Service<T>>,
	pub id: Option<Id<T>>,
	pub nonce: u64,
	pub valid_until: u64,
	pub signer_key_id: Id<T>,
}

/// Rotation signs a structure of its own: the document payload would not bind the new key.
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
pub struct RootPubkeyAuthorizationPayload<T: Config> {
	pub did: Did<T>,
	pub new_root_pubkey: RootKey,
	pub nonce: u64,
	pub valid_until: u64,
	pub signer_key_id: Id<T>,
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
pub struct AliasAuthorizationPayload<T: Config> {
	pub did: Did<T>,
	pub action: AliasAction,
	pub alias: Option<Alias<T>>,
	pub old_alias: Option<Alias<T>>,
	pub new_alias: Option<Alias<T>>,
	pub nonce: u64,
	pub valid_until: u64,
	pub signer_key_id: Id<T>,
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
pub struct ControlAuthorizationPayload<T: Config> {
	pub did: Did<T>,
	pub action: ControlAction<T>,
	pub nonce: u64,
	pub valid_until: u64,
	pub signer_key_id: Id<T>,
}

fn is_text(bytes: &[u8]) -> bool {
	core::str::from_utf8(bytes).is_ok()
}

impl<T: Config> VerificationMethod<T> {
	/// Non-empty texts, and the DID itself as the controller.
	pub fn is_formed(&self, did: &[u8]) -> bool {
		is_formed_key(did, &self.controller, [&self.id, &self.type_, &self.public_key_multibase])
	}

	/// Methods of types that name no Ed25519 key have keys that can't be checked here.
	pub fn is_admitted(&self) -> bool {
		!text::KEY_TYPES.contains(&self.type_.as_slice()) || self.key().is_some()
	}

	pub fn key(&self) -> Option<[u8; 32]> {
		text::method_key(&self.type_, &self.public_key_multibase)
	}
}

impl<T: Config> KeyAgreement<T> {
	pub fn is_formed(&self, did: &[u8]) -> bool {
		is_formed_key(did, &self.controller, [&self.id, &self.type_, &self.public_key_multibase])
	}
}

fn is_formed_key(did: &[u8], controller: &[u8], texts: [&[u8]; 3]) -> bool {
	controller == did && texts.iter().all(|bytes| !bytes.is_empty() && is_text(bytes))
}

impl<T: Config> Service<T> {
	pub fn is_formed(&self) -> bool {
		let named = [self.id.as_slice(), &self.type_].iter().all(|bytes| !bytes.is_empty() && is_text(bytes));
		let reachable = !self.service_endpoint.is_empty() && self.service_endpoint.iter().all(|url| is_text(url));
		let keys = self.authorization.iter().flatten();
		named && reachable && keys.into_iter().all(|id| !id.is_empty() && is_text(id))
	}
}

impl<T: Config> DidDocument<T> {
	pub fn empty(did: Did<T>) -> Self {
		Self {
			id: did,
			verification_method: Default::default(),
			authentication: None,
			key_agreement: Default::default(),
			service: None,
		}
	}

	pub fn method(&self, id: &[u8]) -> Option<&VerificationMethod<T>> {
		self.verification_method.iter().find(|method| method.id.as_slice() == id)
	}

	pub fn authenticates(&self, id: &[u8]) -> bool {
		self.authentication.iter().flatten().any(|entry| entry.as_slice() == id)
	}

	/// The key that may sign for the DID under this method id.
	pub fn signer(&self, did: &[u8], id: &[u8]) -> Option<[u8; 32]> {
		let method = self.method(id).filter(|method| method.controller.as_slice() == did)?;
		(self.authenticates(id) || Rule::ListedSigner.is_broken()).then(|| method.key()).flatten()
	}
}

impl<T: Config> DeliveryPolicyLinks<T> {
	pub fn is_text(&self) -> bool {
		let refs = self.tag_policies.iter().chain(&self.persona_policies).chain(&self.recipient_policy);
		refs.into_iter().all(|reference| is_text(reference))
	}
}

impl<T: Config> ControlAction<T> {
	pub fn is_text(&self) -> bool {
		match self {
			Self::AddDevice { device_id } | Self::TombstoneDevice { device_id } | Self::RemoveDevice { device_id } => {
				is_text(device_id)
			},
			Self::UpdateDevice { old_device_id, new_device_id } => is_text(old_device_id) && is_text(new_device_id),
			Self::SetDeliveryPolicyLinks { links } => links.is_text(),
			Self::DeactivateDid | Self::ClearDeliveryPolicyLinks | Self::DeleteDid | Self::ChangeOwner { .. } => true,
		}
	}
}

/// Whether an identifier stands twice in a list. The lists have at most a handful of entries.
pub fn repeats<'a>(ids: impl Iterator<Item = &'a [u8]>) -> bool {
	let ids: Vec<&[u8]> = ids.collect();
	(1..ids.len()).any(|at| ids[..at].contains(&ids[at]))
}
