//! Who may change a record, and when a call that carries a proof enters the pool.

use crate::{
	text::{is_self_certifying, normal_alias},
	*,
};
use alloc::vec::Vec;
use codec::{Decode, DecodeAll, Encode};
use frame_support::{
	dispatch::DispatchResult,
	ensure,
	storage::{with_transaction, TransactionOutcome},
	traits::{Get, Time},
	weights::Weight,
};
use frame_system::pallet_prelude::BlockNumberFor;
use sp_core::ed25519;
use sp_runtime::{
	traits::Saturating,
	transaction_validity::{InvalidTransaction, TransactionValidityWithRefund, ValidTransaction},
	DispatchError,
};

/// The signer id that stands for the root key of the record.
const ROOT: &[u8] = b"root";
const TAG: &str = "did-registry";
const AUTHORIZATION_V3: &[u8] = b"svc:authorization:v3:";

/// What a payload is about. Version 3 signs it along, so that a payload of one kind is never one of another.
#[derive(Clone, Copy)]
pub enum Domain {
	Document,
	RootPubkey,
	Alias,
	Control,
	Policy,
}

impl Domain {
	fn name(self) -> &'static [u8] {
		match self {
			Self::Document => b"document",
			Self::RootPubkey => b"root_pubkey",
			Self::Alias => b"alias",
			Self::Control => b"control",
			Self::Policy => b"policy",
		}
	}
}

/// The order in which calls with a proof leave a full pool, and enter a block. An extrinsic of an account has one for
/// each of its kind that a block holds, at most some thousands, times its tip and one: registrations come after all of
/// these but those of aliases. Those come last, so that no one who sees a registration in the pool takes the alias
/// that it names before it for free.
pub mod priority {
	pub const ROTATION: u64 = 1_000_000;
	pub const CONTROL: u64 = 500_000;
	pub const DOCUMENT: u64 = 200_000;
	pub const ALIAS: u64 = 1;
	pub const POLICY: u64 = 100_000;
}

/// How far a call may draw on the allowance of its DID. No one pays a fee for a call with a proof, so the allowance
/// is what keeps a DID from filling blocks: `ProofsAtOnce` calls, one more for every `ProofInterval` blocks that pass.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Allowance {
	Common,
	/// What saves a DID from a thief, or ends it, has `ProofsInReserve` calls that no other call can use up, and is for
	/// `root` alone where the DID is self-certifying.
	Reserve,
}

/// A payload, its signature, and the name of the key that made it.
#[derive(Clone, Copy)]
pub struct Proof<'a> {
	pub payload: &'a [u8],
	pub signature: &'a [u8],
	pub signer: &'a [u8],
}

impl<'a> Proof<'a> {
	pub fn new(payload: &'a [u8], signature: &'a [u8], signer: &'a [u8]) -> Self {
		Self { payload, signature, signer }
	}

	/// The payload as a structure, if the bytes are its one encoding.
	pub fn decode<P: Encode + Decode>(&self) -> Option<P> {
		let payload = P::decode_all(&mut &self.payload[..]).ok()?;
		(payload.encode() == self.payload).then_some(payload)
	}
}

/// Whether 64 signature bytes verify under a 32-byte key. `false` for any other length.
pub(crate) fn verifies(signature: &[u8], message: &[u8], key: &[u8]) -> bool {
	let (Ok(signature), Ok(key)) = (<[u8; 64]>::try_from(signature), <[u8; 32]>::try_from(key)) else {
		return false;
	};
	let (signature, key) = (ed25519::Signature::from_raw(signature), ed25519::Public::from_raw(key));
	sp_io::crypto::ed25519_verify(&signature, message, &key)
}

/// Why the pool turns a call away: `BadProof` when the error is the one that says so, and else
/// `Custom` with the index of the pallet's error.
pub fn proof_failure(error: DispatchError, bad_signature: DispatchError) -> InvalidTransaction {
	match error {
		DispatchError::Module(module) if error != bad_signature => InvalidTransaction::Custom(module.error[0]),
		_ => InvalidTransaction::BadProof,
	}
}

impl<T: Config> Pallet<T> {
	pub(crate) fn now_ms() -> u64 {
		T::Time::now()
	}

	/// The DID within its bound.
	pub fn bounded(did: &[u8]) -> Result<Did<T>, Error<T>> {
		did.to_vec().try_into().map_err(|_| Error::DidTooLong)
	}

	/// The record of a DID that exists and is not deactivated.
	pub fn active(did: &Did<T>) -> Result<DidRecord<T>, Error<T>> {
		let record = Dids::<T>::get(did).ok_or(Error::DidNotFound)?;
		ensure!(!record.deactivated, Error::DidDeactivated);
		Ok(record)
	}

	/// The active record of a DID that the account owns.
	pub(crate) fn owned(who: &T::AccountId, did: &Did<T>) -> Result<DidRecord<T>, Error<T>> {
		let record = Self::active(did)?;
		ensure!(record.owner.as_ref() == Some(who), Error::NotDidOwner);
		Ok(record)
	}

	/// The active record of a DID that the account owns and no key of its own speaks for.
	pub(crate) fn keyless(who: &T::AccountId, did: &Did<T>) -> Result<DidRecord<T>, Error<T>> {
		let record = Self::owned(who, did)?;
		ensure!(record.root_pubkey.is_none(), Error::RootKeyRequired);
		Ok(record)
	}

	/// What proofs of version 3 say of the chain they are for.
	pub fn genesis_hash() -> T::Hash {
		frame_system::Pallet::<T>::block_hash(BlockNumberFor::<T>::default())
	}

	/// Whether proofs that name no chain count for the DID. A self-certifying one is bound to its chain.
	pub(crate) fn takes_plain_proofs(did: &[u8]) -> bool {
		PlainProofs::<T>::get() && !is_self_certifying(did)
	}

	/// Whether the signer may take over or end the identity: for a self-certifying DID only `root`.
	pub(crate) fn ensure_root(did: &[u8], signer: &[u8]) -> Result<(), Error<T>> {
		ensure!(signer == ROOT || !is_self_certifying(did), Error::OnlyRootSigns);
		Ok(())
	}

	/// What version 3 signs for a payload.
	pub fn authorization_message(domain: Domain, genesis: &[u8], payload: &[u8]) -> Vec<u8> {
		[AUTHORIZATION_V3, domain.name(), b"|", genesis, payload].concat()
	}

	/// Whether a key that may sign for the DID signed the payload: the root key, or a method that the
	/// document lists in `authentication`.
	pub fn is_signed(did: &Did<T>, record: &DidRecord<T>, domain: Domain, proof: &Proof) -> bool {
		let key = if proof.signer == ROOT {
			record.root_pubkey.as_ref().and_then(|key| key.to_vec().try_into().ok())
		} else {
			record.document.as_ref().and_then(|document| document.signer(did, proof.signer))
		};
		let Some(key): Option<[u8; 32]> = key else { return false };
		let signed = |genesis: &[u8]| {
			verifies(proof.signature, &Self::authorization_message(domain, genesis, proof.payload), &key)
		};
		signed(Self::genesis_hash().as_ref())
			|| (Self::takes_plain_proofs(did) && verifies(proof.signature, proof.payload, &key))
			|| (Rule::ChainBound.is_broken() && signed(&[0; 32]))
	}

	/// Expiry, existence, activity, counter, signature and allowance, in this order.
	pub(crate) fn authorized(
		did: &Did<T>,
		(domain, proof, allowance): (Domain, &Proof, Allowance),
		(valid_until, expired): (u64, Error<T>),
		(nonce, expected, wrong_nonce): (u64, u64, Error<T>),
	) -> Result<DidRecord<T>, Error<T>> {
		ensure!(valid_until > Self::now_ms() || Rule::AuthorizationEnd.is_broken(), expired);
		let record = Self::active(did)?;
		ensure!(nonce == expected, wrong_nonce);
		if allowance == Allowance::Reserve {
			Self::ensure_root(did, proof.signer)?;
		}
		ensure!(Self::is_signed(did, &record, domain, proof), Error::InvalidSignature);
		Self::spend(did, allowance)?;
		Ok(record)
	}

	/// Uses up one call of the DID's allowance. What is kept is one number, the block at which the allowance is
	/// whole again: none means that it is.
	pub fn spend(did: &Did<T>, allowance: Allowance) -> Result<(), Error<T>> {
		let now = frame_system::Pallet::<T>::block_number();
		let calls = match allowance {
			Allowance::Common => T::ProofsAtOnce::get(),
			Allowance::Reserve => T::ProofsAtOnce::get().saturating_add(T::ProofsInReserve::get()),
		};
		let interval = T::ProofInterval::get();
		let whole_at = ProofAllowances::<T>::get(did).max(now).saturating_add(interval);
		ensure!(whole_at.saturating_sub(now) <= interval.saturating_mul(calls.into()), Error::TooManyProofs);
		ProofAllowances::<T>::insert(did, whole_at);
		Ok(())
	}

	fn unfit(error: DispatchError) -> InvalidTransaction {
		proof_failure(error, Error::<T>::InvalidSignature.into())
	}

	/// Runs a call and undoes it. Only a call that would succeed now enters the pool or a block.
	pub(crate) fn admit(
		priority: u64,
		(provides, claims): (impl Encode, Option<Vec<u8>>),
		run: impl FnOnce() -> DispatchResult,
	) -> TransactionValidityWithRefund {
		with_transaction(|| TransactionOutcome::Rollback(run())).map_err(Self::unfit)?;
		let validity = ValidTransaction::with_tag_prefix(TAG).priority(priority).and_provides(provides);
		let validity = match claims {
			Some(alias) => validity.and_provides((b"claim", alias)),
			None => validity,
		};
		let validity = validity.longevity(T::ProofLongevity::get()).propagate(true).build()?;
		Ok((validity, Weight::zero()))
	}

	/// Calls that use up one counter value collide, whatever they do.
	fn admit_counted(
		priority: u64,
		did: &[u8],
		(domain, nonce): (&'static [u8], fn(&Did<T>) -> u64),
		run: impl FnOnce() -> DispatchResult,
	) -> TransactionValidityWithRefund {
		let bounded = Self::bounded(did).map_err(|error| Self::unfit(error.into()))?;
		Self::admit(priority, ((did, domain, nonce(&bounded)), None), run)
	}

	pub(crate) fn admit_component(did: &[u8], run: impl FnOnce() -> DispatchResult) -> TransactionValidityWithRefund {
		Self::admit_counted(priority::DOCUMENT, did, (b"document", |did| DocumentNonces::<T>::get(did)), run)
	}

	/// Calls that take one alias collide as well: of two, the one that was there first stays in the pool.
	pub(crate) fn admit_alias(
		did: &[u8],
		taken: Option<&Vec<u8>>,
		run: impl FnOnce() -> DispatchResult,
	) -> TransactionValidityWithRefund {
		let bounded = Self::bounded(did).map_err(|error| Self::unfit(error.into()))?;
		let claims = taken.and_then(|alias| normal_alias(alias, T::MaxAliasLen::get()).ok());
		Self::admit(priority::ALIAS, ((did, b"alias", AliasNonces::<T>::get(&bounded)), claims), run)
	}

	pub(crate) fn admit_root_pubkey(did: &[u8], run: impl FnOnce() -> DispatchResult) -> TransactionValidityWithRefund {
		Self::admit_counted(priority::ROTATION, did, (b"root-pubkey", |did| RootPubkeyNonces::<T>::get(did)), run)
	}

	pub(crate) fn admit_control(proof: Proof) -> TransactionValidityWithRefund {
		let payload: ControlAuthorizationPayload<T> =
			proof.decode().ok_or_else(|| Self::unfit(Error::<T>::InvalidControlPayload.into()))?;
		let counter = (&b"control"[..], (|did| ControlNonces::<T>::get(did)) as fn(&Did<T>) -> u64);
		Self::admit_counted(priority::CONTROL, &payload.did, counter, || Self::do_control(proof))
	}
}
