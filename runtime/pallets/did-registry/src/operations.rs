//! What the calls do, each with its checks in the order in which their errors are reported.

use crate::{
	proofs::verifies,
	text::{
		derived_did, is_admissible_key, is_did, is_self_certifying, normal_alias, proof_time, AliasFlaw, ProofTime,
	},
	*,
};
use alloc::vec::Vec;
use codec::{DecodeAll, Encode, MaxEncodedLen};
use frame_support::{
	dispatch::DispatchResult,
	ensure,
	traits::{
		fungible::hold::Mutate as _,
		tokens::{Fortitude, Precision, Restriction},
		Get,
	},
	BoundedVec,
};
use sp_io::hashing::blake2_256;
use sp_runtime::traits::{SaturatedConversion, Saturating};

const REGISTER_V2: &[u8] = b"svc:register:v2|";
const REGISTER_V3: &[u8] = b"svc:register:v3|";
const SET_DOCUMENT_V1: &[u8] = b"svc:set_document:v1|";
const SET_DOCUMENT_V2: &[u8] = b"svc:set_document:v2|";
const SET_DOCUMENT_V3: &[u8] = b"svc:set_document:v3|";

/// The arguments of a registration.
#[derive(Clone, Copy)]
pub(crate) struct Registration<'a> {
	pub did: &'a [u8],
	pub alias: Option<&'a [u8]>,
	pub timestamp: &'a [u8],
	pub pubkey: &'a [u8],
	pub signature: &'a [u8],
	pub doc_blob: &'a [u8],
}

/// One change to a component of a document.
pub(crate) enum Change<'a, T: Config> {
	AddMethod(&'a VerificationMethod<T>),
	UpdateMethod(&'a VerificationMethod<T>),
	RemoveMethod(&'a [u8]),
	AddAuthentication(&'a [u8]),
	RemoveAuthentication(&'a [u8]),
	AddAgreement(&'a KeyAgreement<T>),
	UpdateAgreement(&'a KeyAgreement<T>),
	RemoveAgreement(&'a [u8]),
	AddService(&'a Service<T>),
	UpdateService(&'a Service<T>),
	RemoveService(&'a [u8]),
}

impl<T: Config> Change<'_, T> {
	fn action(&self) -> DocumentAction {
		match self {
			Self::AddMethod(_) => DocumentAction::AddVerificationMethod,
			Self::UpdateMethod(_) => DocumentAction::UpdateVerificationMethod,
			Self::RemoveMethod(_) => DocumentAction::RemoveVerificationMethod,
			Self::AddAuthentication(_) => DocumentAction::AddAuthentication,
			Self::RemoveAuthentication(_) => DocumentAction::RemoveAuthentication,
			Self::AddAgreement(_) => DocumentAction::AddKeyAgreement,
			Self::UpdateAgreement(_) => DocumentAction::UpdateKeyAgreement,
			Self::RemoveAgreement(_) => DocumentAction::RemoveKeyAgreement,
			Self::AddService(_) => DocumentAction::AddService,
			Self::UpdateService(_) => DocumentAction::UpdateService,
			Self::RemoveService(_) => DocumentAction::RemoveService,
		}
	}

	fn method(&self) -> Option<&VerificationMethod<T>> {
		match self {
			Self::AddMethod(method) | Self::UpdateMethod(method) => Some(method),
			_ => None,
		}
	}

	fn agreement(&self) -> Option<&KeyAgreement<T>> {
		match self {
			Self::AddAgreement(agreement) | Self::UpdateAgreement(agreement) => Some(agreement),
			_ => None,
		}
	}

	fn service(&self) -> Option<&Service<T>> {
		match self {
			Self::AddService(service) | Self::UpdateService(service) => Some(service),
			_ => None,
		}
	}

	/// The id that stands alone in the payload; components carry theirs inside.
	fn id(&self) -> Option<&[u8]> {
		match self {
			Self::RemoveMethod(id)
			| Self::AddAuthentication(id)
			| Self::RemoveAuthentication(id)
			| Self::RemoveAgreement(id)
			| Self::RemoveService(id) => Some(id),
			_ => None,
		}
	}

	/// Whether a missing document is made for this change.
	fn begins_document(&self) -> bool {
		matches!(self, Self::AddMethod(_) | Self::AddAgreement(_) | Self::AddService(_))
	}

	/// Whether the signed payload says exactly this. Members that the action has no use for are none.
	fn matches(&self, did: &[u8], signer: &[u8], payload: &DocumentAuthorizationPayload<T>) -> bool {
		payload.did.as_slice() == did
			&& payload.action == self.action()
			&& payload.verification_method.as_ref() == self.method()
			&& payload.key_agreement.as_ref() == self.agreement()
			&& payload.service.as_ref() == self.service()
			&& payload.id.as_ref().map(|id| id.as_slice()) == self.id()
			&& payload.signer_key_id.as_slice() == signer
	}

	fn check_form(&self, did: &[u8]) -> Result<(), Error<T>> {
		let formed = self.method().map_or(true, |method| method.is_formed(did) && method.is_admitted())
			&& self.agreement().map_or(true, |agreement| agreement.is_formed(did))
			&& self.service().map_or(true, Service::is_formed);
		formed.then_some(()).ok_or(Error::InvalidDocument)
	}

	fn apply(&self, did: Did<T>, document: &mut DidDocument<T>) -> Result<Event<T>, Error<T>> {
		match self {
			Self::AddMethod(method) => {
				ensure!(document.method(&method.id).is_none(), Error::VerificationMethodAlreadyExists);
				append(&mut document.verification_method, method, Error::InvalidDocument)?;
				Ok(Event::VerificationMethodAdded(did, method.id.clone()))
			},
			Self::UpdateMethod(method) => {
				replace(&mut document.verification_method, method, |entry| &entry.id)
					.ok_or(Error::VerificationMethodNotFound)?;
				Ok(Event::VerificationMethodUpdated(did, method.id.clone()))
			},
			Self::RemoveMethod(id) => {
				ensure!(document.method(id).is_some(), Error::VerificationMethodNotFound);
				ensure!(!document.authenticates(id), Error::VerificationMethodInUse);
				let method = take(&mut document.verification_method, |entry| entry.id.as_slice() == *id)
					.ok_or(Error::VerificationMethodNotFound)?;
				Ok(Event::VerificationMethodRemoved(did, method.id))
			},
			Self::AddAuthentication(id) => {
				let id = document.method(id).ok_or(Error::VerificationMethodNotFound)?.id.clone();
				ensure!(!document.authenticates(&id), Error::AuthenticationAlreadyExists);
				append(document.authentication.get_or_insert_default(), &id, Error::InvalidDocument)?;
				Ok(Event::AuthenticationAdded(did, id))
			},
			Self::RemoveAuthentication(id) => {
				let id = take_optional(&mut document.authentication, |entry| entry.as_slice() == *id)
					.ok_or(Error::AuthenticationNotFound)?;
				Ok(Event::AuthenticationRemoved(did, id))
			},
			Self::AddAgreement(agreement) => {
				let known = document.key_agreement.iter().any(|entry| entry.id == agreement.id);
				ensure!(!known, Error::KeyAgreementAlreadyExists);
				append(&mut document.key_agreement, agreement, Error::InvalidDocument)?;
				Ok(Event::KeyAgreementAdded(did, agreement.id.clone()))
			},
			Self::UpdateAgreement(agreement) => {
				replace(&mut document.key_agreement, agreement, |entry| &entry.id)
					.ok_or(Error::KeyAgreementNotFound)?;
				Ok(Event::KeyAgreementUpdated(did, agreement.id.clone()))
			},
			Self::RemoveAgreement(id) => {
				let agreement = take(&mut document.key_agreement, |entry| entry.id.as_slice() == *id)
					.ok_or(Error::KeyAgreementNotFound)?;
				Ok(Event::KeyAgreementRemoved(did, agreement.id))
			},
			Self::AddService(service) => {
				let known = document.service.iter().flatten().any(|entry| entry.id == service.id);
				ensure!(!known, Error::ServiceAlreadyExists);
				append(document.service.get_or_insert_default(), service, Error::ServiceTooLong)?;
				Ok(Event::ServiceAdded(did, service.id.clone()))
			},
			Self::UpdateService(service) => {
				document
					.service
					.as_mut()
					.and_then(|services| replace(services, service, |entry| &entry.id))
					.ok_or(Error::ServiceNotFound)?;
				Ok(Event::ServiceUpdated(did, service.id.clone()))
			},
			Self::RemoveService(id) => {
				let service = take_optional(&mut document.service, |entry| entry.id.as_slice() == *id)
					.ok_or(Error::ServiceNotFound)?;
				Ok(Event::ServiceRemoved(did, service.id))
			},
		}
	}
}

fn append<E: Clone, S: Get<u32>, F>(list: &mut BoundedVec<E, S>, entry: &E, full: F) -> Result<(), F> {
	list.try_push(entry.clone()).map_err(|_| full)
}

/// Puts an entry in the place of the one with its id.
fn replace<E: Clone, S, I: PartialEq>(list: &mut BoundedVec<E, S>, entry: &E, id: impl Fn(&E) -> &I) -> Option<()> {
	let place = list.iter_mut().find(|standing| id(standing) == id(entry))?;
	*place = entry.clone();
	Some(())
}

fn take<E, S>(list: &mut BoundedVec<E, S>, is_it: impl Fn(&E) -> bool) -> Option<E> {
	let at = list.iter().position(is_it)?;
	Some(list.remove(at))
}

/// The last entry takes its list along.
fn take_optional<E, S>(list: &mut Option<BoundedVec<E, S>>, is_it: impl Fn(&E) -> bool) -> Option<E> {
	let entry = take(list.as_mut()?, is_it)?;
	if list.as_ref().is_some_and(|list| list.is_empty()) {
		*list = None;
	}
	Some(entry)
}

impl<T: Config> Pallet<T> {
	// ------------------------------------------------------------------------------- registration

	pub(crate) fn do_register(who: T::AccountId, proof: Registration) -> DispatchResult {
		ensure!(proof.pubkey.len() == 32 && proof.signature.len() == 64, Error::<T>::InvalidSignature);
		let (did, key) = Self::registrable(&who, proof)?;
		let document = Self::checked_document(&did, proof.doc_blob)?;
		let alias = proof.alias.map(|alias| normal_alias(alias, T::MaxAliasLen::get()));
		let (alias, event) = match alias {
			None => (None, None),
			Some(Err(_)) => (None, Some(Event::AliasInvalid(did.clone()))),
			Some(Ok(alias)) => {
				let alias = Self::bounded_alias(alias)?;
				if Self::ensure_free(&did, &alias, None).is_err() {
					(None, Some(Event::AliasConflict(did.clone(), alias)))
				} else {
					(Some(alias.clone()), Some(Event::AliasSet(did.clone(), alias)))
				}
			},
		};
		Self::insert_record(&did, who, alias, key, Some(document))?;
		Self::allow_components(&did);
		Self::deposit_event(Event::DocumentSet(did));
		event.into_iter().for_each(Self::deposit_event);
		Ok(())
	}

	/// Registration without a document. Here a wrong alias fails the call. The keys of a self-certifying DID are proven by
	/// its first document, so it has one from the beginning.
	pub(crate) fn do_register_bare(who: T::AccountId, proof: Registration) -> DispatchResult {
		ensure!(!is_self_certifying(proof.did), Error::<T>::DocumentNeeded);
		ensure!(proof.pubkey.len() == 32, Error::<T>::InvalidRootPubkey);
		ensure!(proof.signature.len() == 64, Error::<T>::InvalidSignature);
		let (did, key) = Self::registrable(&who, proof)?;
		let alias = proof.alias.map(Self::alias).transpose()?;
		alias.as_ref().map_or(Ok(()), |alias| Self::ensure_free(&did, alias, None))?;
		Self::insert_record(&did, who, alias.clone(), key, None)?;
		if let Some(alias) = alias {
			Self::deposit_event(Event::AliasSet(did, alias));
		}
		Ok(())
	}

	/// The DID and its key, once the form of the DID, the time of the proof, its novelty, the key and the
	/// signature are in order. Remembers the time, so that the proof does not work again after a deletion.
	fn registrable(who: &T::AccountId, proof: Registration) -> Result<(Did<T>, RootKey), Error<T>> {
		let did = Self::bounded(proof.did)?;
		ensure!(is_did(&did), Error::InvalidDidFormat);
		let time = Self::taken_time(&did, proof.timestamp)?;
		if let ProofTime::Until { nonce, expiry_ms, .. } = time {
			ensure!(nonce == 0, Error::InvalidProofTimestamp);
			Self::ensure_within(expiry_ms, Error::RegistrationExpired)?;
		}
		ensure!(!Dids::<T>::contains_key(&did), Error::DidAlreadyExists);
		Self::ensure_name(&did, proof.pubkey)?;
		match time {
			ProofTime::At { ms } => Self::advance_document_time(&did, ms)?,
			ProofTime::Until { expiry_ms, .. } => {
				ensure!(expiry_ms > RegistrationExpiries::<T>::get(&did), Error::DocumentStale);
				RegistrationExpiries::<T>::insert(&did, expiry_ms);
				Self::reach_document_time(&did);
			},
		}
		let key = Self::admissible_key(proof.pubkey)?;
		let message = Self::registration_message(&did, &key, Some(who), time, proof)?;
		let unbound = || {
			let message = Self::registration_message(&did, &key, None, time, proof);
			message.is_ok_and(|message| verifies(proof.signature, &message, &key))
		};
		let signed = verifies(proof.signature, &message, &key) || (Rule::SubmitterBound.is_broken() && unbound());
		ensure!(signed, Error::InvalidSignature);
		Ok((did, key))
	}

	/// A self-certifying DID is registered under the key that it is derived from, and once.
	fn ensure_name(did: &Did<T>, key: &[u8]) -> Result<(), Error<T>> {
		if !is_self_certifying(did) {
			ensure!(!SelfCertifyingOnly::<T>::get(), Error::NameNotDerived);
			return Ok(());
		}
		ensure!(Lives::<T>::get(did) == 0, Error::NameRetired);
		ensure!(derived_did(Self::genesis_hash().as_ref(), key) == did.to_vec(), Error::NameNotDerived);
		Ok(())
	}

	/// What the key signs that registers a DID.
	fn registration_message(
		did: &Did<T>,
		key: &RootKey,
		who: Option<&T::AccountId>,
		time: ProofTime,
		proof: Registration,
	) -> Result<Vec<u8>, Error<T>> {
		let ProofTime::Until { bound, nonce, expiry_ms } = time else {
			return Ok([did, &b"|"[..], proof.timestamp].concat());
		};
		// An alias without a normal form can't have been signed.
		let alias = proof.alias.map(|alias| normal_alias(alias, T::MaxAliasLen::get())).transpose();
		let alias = alias.map_err(|_| Error::InvalidSignature)?;
		let tail = (did, alias, key, blake2_256(proof.doc_blob), nonce, expiry_ms);
		Ok(if bound {
			[REGISTER_V3, &(tail, Self::genesis_hash(), who).encode()].concat()
		} else {
			[REGISTER_V2, &tail.encode()].concat()
		})
	}

	/// The time of a proof whose version this chain takes for the DID.
	fn taken_time(did: &Did<T>, timestamp: &[u8]) -> Result<ProofTime, Error<T>> {
		let time = proof_time(timestamp).ok_or(Error::InvalidProofTimestamp)?;
		ensure!(time.is_bound() || Self::takes_plain_proofs(did), Error::ProofVersionRefused);
		if let ProofTime::At { ms } = time {
			let latest_ms = Self::now_ms().saturating_add(T::MaxClockSkewMs::get());
			ensure!(ms <= latest_ms, Error::ProofTooFarAhead);
		}
		Ok(time)
	}

	fn admissible_key(key: &[u8]) -> Result<RootKey, Error<T>> {
		let bytes: [u8; 32] = key.try_into().map_err(|_| Error::InvalidRootPubkey)?;
		ensure!(is_admissible_key(&bytes), Error::InvalidRootPubkey);
		key.to_vec().try_into().map_err(|_| Error::InvalidRootPubkey)
	}

	fn insert_record(
		did: &Did<T>,
		owner: T::AccountId,
		alias: Option<Alias<T>>,
		root_pubkey: RootKey,
		document: Option<DidDocument<T>>,
	) -> Result<(), Error<T>> {
		Self::take_deposit(did, &owner)?;
		if let Some(alias) = &alias {
			Self::take_alias(did, alias);
		}
		let record = DidRecord {
			owner: Some(owner.clone()),
			aliases: alias.map(|alias| BoundedVec::truncate_from(alloc::vec![alias])),
			devices: None,
			document,
			version: 1,
			updated_at: Self::now_ms(),
			root_pubkey: Some(root_pubkey),
			delivery_policy_links: None,
			deactivated: false,
		};
		Dids::<T>::insert(did, record);
		Self::deposit_event(Event::Registered(did.clone(), Some(owner)));
		Ok(())
	}

	fn take_deposit(did: &Did<T>, payer: &T::AccountId) -> Result<(), Error<T>> {
		let deposit = Self::deposit();
		let held = T::Currency::hold(&HoldReason::Registration.into(), payer, deposit);
		held.map_err(|_| Error::DepositUnavailable)?;
		Deposits::<T>::insert(did, (payer, deposit));
		Ok(())
	}

	fn return_deposit(did: &Did<T>) {
		if let Some((payer, deposit)) = Deposits::<T>::take(did) {
			// What is held can be given back; were it not there, the keys of the DID decide all the same.
			let given = T::Currency::release(&HoldReason::Registration.into(), &payer, deposit, Precision::BestEffort);
			debug_assert!(given == Ok(deposit));
		}
	}

	/// What a DID costs while its record stands, whatever its size: its keys let it grow without asking the account
	/// that pays, so that account pays for all that may come, once: the record, its aliases in the index, and what
	/// other pallets keep for a DID. Counters and times, which stay after a deletion, are paid by the fee.
	pub fn deposit() -> BalanceOf<T> {
		let alias = Alias::<T>::max_encoded_len().saturating_add(Did::<T>::max_encoded_len());
		let bytes = DidRecord::<T>::max_encoded_len()
			.saturating_add(alias.saturating_mul(T::MaxAliases::get() as usize))
			.saturating_add(T::OnDidDeleted::bytes_max());
		T::ByteDeposit::get().saturating_mul(bytes.saturated_into()).saturating_add(T::RecordDeposit::get())
	}

	// ---------------------------------------------------------------------------- whole documents

	/// By the owner's account, for a DID without a root key.
	pub(crate) fn do_set_document(who: T::AccountId, did: &[u8], doc_blob: &[u8]) -> DispatchResult {
		let did = Self::bounded(did)?;
		let record = Self::keyless(&who, &did)?;
		let document = Self::checked_document(&did, doc_blob)?;
		Self::reach_document_time(&did);
		Self::put_document(did, record, document);
		Ok(())
	}

	/// By the root key. Version 1 binds the time of the document, the others bind the document counter, and
	/// version 3 binds the chain as well.
	pub(crate) fn do_set_document_with_proof(
		did: &[u8],
		doc_blob: &[u8],
		timestamp: &[u8],
		pubkey: &[u8],
		signature: &[u8],
	) -> DispatchResult {
		ensure!(pubkey.len() == 32 && signature.len() == 64, Error::<T>::InvalidSignature);
		let did = Self::bounded(did)?;
		let time = Self::taken_time(&did, timestamp)?;
		let document = Self::checked_document(&did, doc_blob)?;
		if let ProofTime::Until { expiry_ms, .. } = time {
			Self::ensure_within(expiry_ms, Error::DocumentAuthorizationExpired)?;
		}
		let record = Self::active(&did)?;
		let hash = blake2_256(doc_blob);
		let message = match time {
			ProofTime::At { ms } => {
				Self::advance_document_time(&did, ms)?;
				[SET_DOCUMENT_V1, &did, b"|", &hash, b"|", timestamp].concat()
			},
			ProofTime::Until { bound, nonce, expiry_ms } => {
				ensure!(nonce == DocumentNonces::<T>::get(&did), Error::<T>::InvalidDocumentNonce);
				count(DocumentNonces::<T>::mutate(&did, bump))?;
				Self::reach_document_time(&did);
				let tail = (&did, hash, nonce, expiry_ms);
				if bound {
					[SET_DOCUMENT_V3, &(tail, Self::genesis_hash()).encode()].concat()
				} else {
					[SET_DOCUMENT_V2, &tail.encode()].concat()
				}
			},
		};
		let is_root = record.root_pubkey.as_deref().is_some_and(|key| key == pubkey);
		ensure!(is_root && verifies(signature, &message, pubkey), Error::<T>::InvalidSignature);
		Self::spend(&did, Allowance::Common)?;
		Self::put_document(did, record, document);
		Ok(())
	}

	fn put_document(did: Did<T>, mut record: DidRecord<T>, document: DidDocument<T>) {
		Self::allow_components(&did);
		record.document = Some(document);
		Self::put(&did, record);
		Self::deposit_event(Event::DocumentSet(did));
	}

	/// The document of a blob, if it keeps every rule. Nothing may stand behind it.
	fn checked_document(did: &Did<T>, doc_blob: &[u8]) -> Result<DidDocument<T>, Error<T>> {
		ensure!(doc_blob.len() <= T::MaxDocLen::get() as usize, Error::InvalidDocument);
		let document = DidDocument::<T>::decode_all(&mut &doc_blob[..]).map_err(|_| Error::InvalidDocument)?;
		ensure!(document.id == *did, Error::InvalidDocument);
		let methods = &document.verification_method;
		ensure!(methods.iter().all(|method| method.is_formed(did)), Error::InvalidDocument);
		let twice = repeats(methods.iter().map(|method| method.id.as_slice()));
		ensure!(!twice, Error::VerificationMethodAlreadyExists);
		let entries = || document.authentication.iter().flatten();
		ensure!(entries().all(|id| document.method(id).is_some()), Error::VerificationMethodNotFound);
		ensure!(!repeats(entries().map(|id| id.as_slice())), Error::AuthenticationAlreadyExists);
		let agreements = &document.key_agreement;
		ensure!(agreements.iter().all(|agreement| agreement.is_formed(did)), Error::InvalidDocument);
		let twice = repeats(agreements.iter().map(|agreement| agreement.id.as_slice()));
		ensure!(!twice, Error::KeyAgreementAlreadyExists);
		let services = || document.service.iter().flatten();
		ensure!(services().all(Service::is_formed), Error::InvalidDocument);
		ensure!(!repeats(services().map(|service| service.id.as_slice())), Error::ServiceAlreadyExists);
		ensure!(methods.iter().all(VerificationMethod::is_admitted), Error::InvalidDocument);
		Ok(document)
	}

	/// A proof with an expiry lives at most a fixed time.
	fn ensure_within(expiry_ms: u64, expired: Error<T>) -> Result<(), Error<T>> {
		let now_ms = Self::now_ms();
		ensure!(expiry_ms > now_ms, expired);
		ensure!(expiry_ms <= now_ms.saturating_add(T::MaxProofAheadMs::get()), Error::ProofTooFarAhead);
		Ok(())
	}

	/// A version 1 proof must be later than the document it replaces.
	fn advance_document_time(did: &Did<T>, ms: u64) -> Result<(), Error<T>> {
		ensure!(ms > DocumentTimes::<T>::get(did), Error::DocumentStale);
		DocumentTimes::<T>::insert(did, ms);
		Ok(())
	}

	/// Version 1 proofs from before this block are dead from now on. The time never goes back, so that a
	/// proof from the near future does not work twice.
	fn reach_document_time(did: &Did<T>) {
		DocumentTimes::<T>::mutate(did, |time| *time = (*time).max(Self::now_ms()));
	}

	/// After a whole document, calls that change its components count anew.
	fn allow_components(did: &Did<T>) {
		if is_self_certifying(did) {
			ComponentCallsLeft::<T>::insert(did, T::MaxComponentCalls::get());
		}
	}

	// --------------------------------------------------------------------------------- components

	pub(crate) fn do_component(did: &[u8], change: Change<T>, proof: Proof) -> DispatchResult {
		let did = Self::bounded(did)?;
		ensure!(is_signer_id::<T>(proof.signer), Error::<T>::InvalidDocumentPayload);
		let payload = proof.decode::<DocumentAuthorizationPayload<T>>().ok_or(Error::<T>::InvalidDocumentPayload)?;
		ensure!(change.matches(&did, proof.signer, &payload), Error::<T>::InvalidDocumentPayload);
		let mut record = Self::authorized(
			&did,
			(Domain::Document, &proof, Allowance::Common),
			(payload.valid_until, Error::DocumentAuthorizationExpired),
			(payload.nonce, DocumentNonces::<T>::get(&did), Error::InvalidDocumentNonce),
		)?;
		change.check_form(&did)?;
		if record.document.is_none() && change.begins_document() {
			record.document = Some(DidDocument::empty(did.clone()));
		}
		let document = record.document.as_mut().ok_or(Error::<T>::InvalidDocument)?;
		let event = change.apply(did.clone(), document)?;
		if is_self_certifying(&did) {
			let left = ComponentCallsLeft::<T>::get(&did).checked_sub(1).ok_or(Error::<T>::DocumentNeeded)?;
			ComponentCallsLeft::<T>::insert(&did, left);
		}
		count(DocumentNonces::<T>::mutate(&did, bump))?;
		Self::put(&did, record);
		Self::deposit_event(event);
		Ok(())
	}

	pub(crate) fn do_update_root_pubkey(did: &[u8], new_root_pubkey: &[u8], proof: Proof) -> DispatchResult {
		let did = Self::bounded(did)?;
		ensure!(new_root_pubkey.len() == 32, Error::<T>::InvalidRootPubkey);
		ensure!(is_signer_id::<T>(proof.signer), Error::<T>::InvalidRootPubkeyPayload);
		let payload =
			proof.decode::<RootPubkeyAuthorizationPayload<T>>().ok_or(Error::<T>::InvalidRootPubkeyPayload)?;
		let same = payload.did == did
			&& payload.new_root_pubkey.as_slice() == new_root_pubkey
			&& payload.signer_key_id.as_slice() == proof.signer;
		ensure!(same, Error::<T>::InvalidRootPubkeyPayload);
		let mut record = Self::authorized(
			&did,
			(Domain::RootPubkey, &proof, Allowance::Reserve),
			(payload.valid_until, Error::RootPubkeyAuthorizationExpired),
			(payload.nonce, RootPubkeyNonces::<T>::get(&did), Error::InvalidRootPubkeyNonce),
		)?;
		record.root_pubkey = Some(Self::admissible_key(new_root_pubkey)?);
		if is_self_certifying(&did) {
			ensure!(RootPubkeyNonces::<T>::get(&did) < T::MaxRotations::get(), Error::<T>::TooManyRootKeys);
			// The next document is a whole one of the new key: none of the former key may change components behind it.
			ComponentCallsLeft::<T>::remove(&did);
		}
		count(RootPubkeyNonces::<T>::mutate(&did, bump))?;
		Self::put(&did, record);
		Self::deposit_event(Event::RootPubkeyUpdated(did));
		Ok(())
	}

	// ------------------------------------------------------------------------------------ aliases

	fn alias(alias: &[u8]) -> Result<Alias<T>, Error<T>> {
		match normal_alias(alias, T::MaxAliasLen::get()) {
			Ok(alias) => Self::bounded_alias(alias),
			Err(AliasFlaw::Form) => Err(Error::InvalidAlias),
			Err(AliasFlaw::Length) => Err(Error::AliasTooLong),
		}
	}

	fn bounded_alias(alias: Vec<u8>) -> Result<Alias<T>, Error<T>> {
		alias.try_into().map_err(|_| Error::AliasTooLong)
	}

	/// Gives the DID a first alias. Repeating it changes nothing; without a root key it replaces the whole list.
	pub(crate) fn do_set_alias(who: T::AccountId, did: &[u8], alias: &[u8]) -> DispatchResult {
		let did = Self::bounded(did)?;
		let alias = Self::alias(alias)?;
		let mut record = Self::owned(&who, &did)?;
		let others = || record.aliases.iter().flatten().filter(|standing| **standing != alias);
		ensure!(record.root_pubkey.is_none() || others().next().is_none(), Error::<T>::RootKeyRequired);
		Self::ensure_free(&did, &alias, None)?;
		others().for_each(|standing| Self::release_alias(&did, standing));
		Self::take_alias(&did, &alias);
		record.aliases = Some(BoundedVec::truncate_from(alloc::vec![alias.clone()]));
		Self::put(&did, record);
		Self::deposit_event(Event::AliasSet(did, alias));
		Ok(())
	}

	/// No other DID has the alias or its reserve and, where `own` is an error, neither has this one the alias.
	fn ensure_free(did: &Did<T>, alias: &Alias<T>, own: Option<Error<T>>) -> Result<(), Error<T>> {
		match (AliasIndex::<T>::get(alias), own) {
			(Some(holder), _) if holder != *did => Err(Error::AliasTaken),
			(Some(_), Some(own)) => Err(own),
			(Some(_), None) => Ok(()),
			(None, _) => Self::ensure_not_reserved(did, alias),
		}
	}

	/// Anyone who writes to an alias that is no longer there must not reach somebody else. After a deletion it is reserved
	/// for no one, because another key may register the DID.
	fn ensure_not_reserved(did: &Did<T>, alias: &Alias<T>) -> Result<(), Error<T>> {
		let Some(reserve) = ReleasedAliases::<T>::get(alias) else { return Ok(()) };
		let own = reserve.did == *did && reserve.life == Lives::<T>::get(did);
		let ended = reserve.until_ms <= Self::now_ms() || Rule::AliasReserved.is_broken();
		ensure!(own || ended, Error::AliasTaken);
		Ok(())
	}

	/// Enters an alias that is free into the index. Its reserve ends.
	fn take_alias(did: &Did<T>, alias: &Alias<T>) {
		AliasIndex::<T>::insert(alias, did);
		if let Some(reserve) = ReleasedAliases::<T>::take(alias) {
			ReleasesOf::<T>::mutate_exists(&reserve.did, |list| {
				let mut aliases = list.take().unwrap_or_default();
				aliases.retain(|other| other != alias);
				*list = (!aliases.is_empty()).then_some(aliases);
			});
		}
	}

	/// Takes an alias out of the index and reserves it. A DID's keys release aliases without a fee, so each DID has as
	/// many reserves as it may have aliases: the oldest one ends early.
	fn release_alias(did: &Did<T>, alias: &Alias<T>) {
		AliasIndex::<T>::remove(alias);
		let until_ms = Self::now_ms().saturating_add(T::AliasReserveMs::get());
		ReleasedAliases::<T>::insert(alias, Reserve { did: did.clone(), life: Lives::<T>::get(did), until_ms });
		ReleasesOf::<T>::mutate(did, |aliases| {
			if aliases.is_full() {
				ReleasedAliases::<T>::remove(aliases.remove(0));
			}
			let pushed = aliases.try_push(alias.clone());
			debug_assert!(pushed.is_ok());
		});
	}

	/// Looks at the releases of the next DID, and forgets the reserves that have ended. False behind the last DID: then
	/// the next call begins with the first one.
	pub(crate) fn sweep() -> bool {
		let next = match LastSwept::<T>::get() {
			Some(last) => ReleasesOf::<T>::iter_from_key(last).next(),
			None => ReleasesOf::<T>::iter().next(),
		};
		let Some((did, mut aliases)) = next else {
			LastSwept::<T>::kill();
			return false;
		};
		let now_ms = Self::now_ms();
		let stands = |alias: &Alias<T>| ReleasedAliases::<T>::get(alias).is_some_and(|kept| kept.until_ms > now_ms);
		// They end in their order.
		while aliases.first().is_some_and(|alias| !stands(alias)) {
			ReleasedAliases::<T>::remove(aliases.remove(0));
		}
		if aliases.is_empty() {
			ReleasesOf::<T>::remove(&did);
		} else {
			ReleasesOf::<T>::insert(&did, aliases);
		}
		LastSwept::<T>::put(did);
		true
	}

	pub(crate) fn do_add_alias(did: &[u8], alias: &[u8], proof: Proof) -> DispatchResult {
		let (did, alias) = (Self::bounded(did)?, Self::alias(alias)?);
		let mut record = Self::authorized_alias(&did, &proof, (AliasAction::Add, Some(&alias), None, None))?;
		Self::ensure_free(&did, &alias, Some(Error::AliasAlreadyExists))?;
		append(record.aliases.get_or_insert_default(), &alias, Error::<T>::TooManyAliases)?;
		Self::take_alias(&did, &alias);
		Self::put_aliases(did.clone(), record, Event::AliasAdded(did, alias))
	}

	pub(crate) fn do_update_alias(did: &[u8], old: &[u8], new: &[u8], proof: Proof) -> DispatchResult {
		let did = Self::bounded(did)?;
		let (old, new) = (Self::alias(old)?, Self::alias(new)?);
		let mut record = Self::authorized_alias(&did, &proof, (AliasAction::Update, None, Some(&old), Some(&new)))?;
		ensure!(old != new, Error::<T>::AliasAlreadyExists);
		Self::ensure_free(&did, &new, Some(Error::AliasAlreadyExists))?;
		let place = record.aliases.iter_mut().flatten().find(|alias| **alias == old);
		*place.ok_or(Error::<T>::AliasNotFound)? = new.clone();
		Self::release_alias(&did, &old);
		Self::take_alias(&did, &new);
		Self::put_aliases(did.clone(), record, Event::AliasUpdated(did, old, new))
	}

	pub(crate) fn do_remove_alias(did: &[u8], alias: &[u8], proof: Proof) -> DispatchResult {
		let (did, alias) = (Self::bounded(did)?, Self::alias(alias)?);
		let mut record = Self::authorized_alias(&did, &proof, (AliasAction::Remove, Some(&alias), None, None))?;
		take_optional(&mut record.aliases, |entry| *entry == alias).ok_or(Error::<T>::AliasNotFound)?;
		Self::release_alias(&did, &alias);
		Self::put_aliases(did.clone(), record, Event::AliasRemoved(did, alias))
	}

	/// The payload holds the aliases in normal form, whatever form the arguments have.
	fn authorized_alias(
		did: &Did<T>,
		proof: &Proof,
		(action, alias, old, new): (AliasAction, Option<&Alias<T>>, Option<&Alias<T>>, Option<&Alias<T>>),
	) -> Result<DidRecord<T>, Error<T>> {
		ensure!(is_signer_id::<T>(proof.signer), Error::InvalidAliasPayload);
		let payload = proof.decode::<AliasAuthorizationPayload<T>>().ok_or(Error::InvalidAliasPayload)?;
		let same = payload.did == *did
			&& payload.action == action
			&& payload.alias.as_ref() == alias
			&& payload.old_alias.as_ref() == old
			&& payload.new_alias.as_ref() == new
			&& payload.signer_key_id.as_slice() == proof.signer;
		ensure!(same, Error::InvalidAliasPayload);
		Self::authorized(
			did,
			(Domain::Alias, proof, Allowance::Common),
			(payload.valid_until, Error::AliasAuthorizationExpired),
			(payload.nonce, AliasNonces::<T>::get(did), Error::InvalidAliasNonce),
		)
	}

	fn put_aliases(did: Did<T>, record: DidRecord<T>, event: Event<T>) -> DispatchResult {
		count(AliasNonces::<T>::mutate(&did, bump))?;
		Self::put(&did, record);
		Self::deposit_event(event);
		Ok(())
	}

	// ------------------------------------------------------- devices, links, deactivation, deletion

	/// Calls of the owner's account on devices, for a DID without a root key.
	pub(crate) fn do_own_device(
		who: T::AccountId,
		did: &[u8],
		ids: &[&[u8]],
		action: impl FnOnce(Vec<DeviceId<T>>) -> Option<ControlAction<T>>,
	) -> DispatchResult {
		let did = Self::bounded(did)?;
		let record = Self::keyless(&who, &did)?;
		let ids = ids.iter().map(|id| id.to_vec().try_into().map_err(|_| Error::DidTooLong));
		let ids = ids.collect::<Result<Vec<_>, Error<T>>>()?;
		Self::control(did, record, action(ids).ok_or(Error::<T>::DeviceNotFound)?)
	}

	/// Calls of the owner's account on policy links.
	pub(crate) fn do_own(who: T::AccountId, did: &[u8], action: ControlAction<T>) -> DispatchResult {
		let did = Self::bounded(did)?;
		let record = Self::owned(&who, &did)?;
		Self::control(did, record, action)
	}

	pub(crate) fn do_deactivate(who: T::AccountId, did: &[u8]) -> DispatchResult {
		let did = Self::bounded(did)?;
		let record = Dids::<T>::get(&did).ok_or(Error::<T>::DidNotFound)?;
		ensure!(!record.deactivated, Error::<T>::DidAlreadyDeactivated);
		ensure!(record.owner.as_ref() == Some(&who), Error::<T>::NotDidOwner);
		ensure!(record.root_pubkey.is_none(), Error::<T>::RootKeyRequired);
		Self::control(did, record, ControlAction::DeactivateDid)
	}

	pub(crate) fn do_set_links(
		who: T::AccountId,
		did: &[u8],
		recipient_policy: Option<Vec<u8>>,
		tag_policies: Vec<Vec<u8>>,
		persona_policies: Vec<Vec<u8>>,
	) -> DispatchResult {
		let did = Self::bounded(did)?;
		let record = Self::owned(&who, &did)?;
		let most = T::MaxPolicyRefs::get() as usize;
		ensure!(tag_policies.len() <= most && persona_policies.len() <= most, Error::<T>::TooManyPolicyRefs);
		let links = DeliveryPolicyLinks {
			recipient_policy: recipient_policy.map(policy_ref::<T>).transpose()?,
			tag_policies: policy_refs::<T>(tag_policies)?,
			persona_policies: policy_refs::<T>(persona_policies)?,
		};
		Self::control(did, record, ControlAction::SetDeliveryPolicyLinks { links })
	}

	/// By a key of the DID.
	pub(crate) fn do_control(proof: Proof) -> DispatchResult {
		let payload = proof.decode::<ControlAuthorizationPayload<T>>().ok_or(Error::<T>::InvalidControlPayload)?;
		let same = payload.signer_key_id.as_slice() == proof.signer && payload.action.is_text();
		ensure!(same, Error::<T>::InvalidControlPayload);
		let allowance = match payload.action {
			ControlAction::DeactivateDid | ControlAction::DeleteDid => Allowance::Reserve,
			_ => Allowance::Common,
		};
		let did = payload.did;
		let record = Self::authorized(
			&did,
			(Domain::Control, &proof, allowance),
			(payload.valid_until, Error::ControlAuthorizationExpired),
			(payload.nonce, ControlNonces::<T>::get(&did), Error::InvalidControlNonce),
		)?;
		count(ControlNonces::<T>::mutate(&did, bump))?;
		Self::control(did, record, payload.action)
	}

	/// Anyone who reads a record may take its texts for UTF-8.
	fn control(did: Did<T>, mut record: DidRecord<T>, action: ControlAction<T>) -> DispatchResult {
		ensure!(action.is_text(), Error::<T>::InvalidControlPayload);
		let event = match action {
			ControlAction::DeleteDid => return Self::delete(did, record),
			ControlAction::DeactivateDid => {
				record.deactivated = true;
				Event::DidDeactivated(did.clone())
			},
			ControlAction::SetDeliveryPolicyLinks { links } => {
				record.delivery_policy_links = Some(links);
				Event::DeliveryPolicyLinksSet(did.clone())
			},
			ControlAction::ClearDeliveryPolicyLinks => {
				record.delivery_policy_links = None;
				Event::DeliveryPolicyLinksCleared(did.clone())
			},
			devices => Self::change_devices(did.clone(), &mut record, devices)?,
		};
		Self::put(&did, record);
		Self::deposit_event(event);
		Ok(())
	}

	fn change_devices(did: Did<T>, record: &mut DidRecord<T>, action: ControlAction<T>) -> Result<Event<T>, Error<T>> {
		let device = |record: &'_ DidRecord<T>, id: &DeviceId<T>| {
			record.devices.iter().flatten().position(|device| device.device_id == *id)
		};
		let mut devices = record.devices.clone().unwrap_or_default();
		let event = match action {
			ControlAction::AddDevice { device_id } => {
				match device(record, &device_id) {
					Some(at) => devices[at].tombstoned = false,
					None => {
						let added =
							DeviceInfo { device_id: device_id.clone(), added_at: Self::now_ms(), tombstoned: false };
						append(&mut devices, &added, Error::TooManyDevices)?;
					},
				}
				Event::DeviceAdded(did, device_id)
			},
			ControlAction::TombstoneDevice { device_id } => {
				let at = device(record, &device_id).ok_or(Error::DeviceNotFound)?;
				devices[at].tombstoned = true;
				Event::DeviceTombstoned(did, device_id)
			},
			ControlAction::UpdateDevice { old_device_id, new_device_id } => {
				let at = device(record, &old_device_id).ok_or(Error::DeviceNotFound)?;
				ensure!(device(record, &new_device_id).is_none(), Error::DeviceAlreadyExists);
				devices[at].device_id = new_device_id.clone();
				Event::DeviceUpdated(did, old_device_id, new_device_id)
			},
			ControlAction::RemoveDevice { device_id } => {
				devices.remove(device(record, &device_id).ok_or(Error::DeviceNotFound)?);
				Event::DeviceRemoved(did, device_id)
			},
			_ => return Err(Error::InvalidControlPayload),
		};
		record.devices = (!devices.is_empty()).then_some(devices);
		Ok(event)
	}

	// ------------------------------------------------------------------------------ whose record it is

	pub(crate) fn do_change_owner(who: T::AccountId, did: &[u8], owner: T::AccountId) -> DispatchResult {
		let did = Self::bounded(did)?;
		let record = Self::owned(&who, &did)?;
		if let Some((payer, deposit)) = Deposits::<T>::get(&did) {
			let (reason, on_hold) = (HoldReason::Registration.into(), Restriction::OnHold);
			let (exact, polite) = (Precision::Exact, Fortitude::Polite);
			T::Currency::transfer_on_hold(&reason, &payer, &owner, deposit, exact, on_hold, polite)
				.map_err(|_| Error::<T>::DepositUnavailable)?;
			Deposits::<T>::insert(&did, (&owner, deposit));
		}
		Self::put_owner(did, record, owner);
		Ok(())
	}

	/// By a key of the DID and by the account that is to own it.
	pub(crate) fn do_adopt(who: T::AccountId, proof: Proof) -> DispatchResult {
		let payload = proof.decode::<ControlAuthorizationPayload<T>>().ok_or(Error::<T>::InvalidControlPayload)?;
		let same = payload.signer_key_id.as_slice() == proof.signer
			&& payload.action == ControlAction::ChangeOwner { owner: who.clone() };
		ensure!(same, Error::<T>::InvalidControlPayload);
		let did = payload.did;
		let record = Self::authorized(
			&did,
			(Domain::Control, &proof, Allowance::Common),
			(payload.valid_until, Error::ControlAuthorizationExpired),
			(payload.nonce, ControlNonces::<T>::get(&did), Error::InvalidControlNonce),
		)?;
		count(ControlNonces::<T>::mutate(&did, bump))?;
		Self::return_deposit(&did);
		Self::take_deposit(&did, &who)?;
		Self::put_owner(did, record, who);
		Ok(())
	}

	fn put_owner(did: Did<T>, mut record: DidRecord<T>, owner: T::AccountId) {
		record.owner = Some(owner.clone());
		Self::put(&did, record);
		Self::deposit_event(Event::OwnerChanged(did, owner));
	}

	/// Keys that are alive show it: clients rotate theirs. What remains takes no more room than what a deletion leaves.
	pub(crate) fn do_reclaim_deposit(who: T::AccountId, did: &[u8]) -> DispatchResult {
		let did = Self::bounded(did)?;
		let mut record = Dids::<T>::get(&did).ok_or(Error::<T>::DidNotFound)?;
		ensure!(Deposits::<T>::get(&did).is_some_and(|(payer, _)| payer == who), Error::<T>::NotDidOwner);
		let silent_at = record.updated_at.saturating_add(T::SilenceMs::get());
		ensure!(record.deactivated || silent_at <= Self::now_ms(), Error::<T>::DidInUse);
		for alias in record.aliases.iter().flatten() {
			Self::release_alias(&did, alias);
		}
		(record.aliases, record.devices, record.document, record.delivery_policy_links) = (None, None, None, None);
		if !record.deactivated {
			record.deactivated = true;
			Self::deposit_event(Event::DidDeactivated(did.clone()));
		}
		Self::put(&did, record);
		ProofAllowances::<T>::remove(&did);
		ComponentCallsLeft::<T>::remove(&did);
		Self::return_deposit(&did);
		T::OnDidDeleted::on_did_deleted(&did);
		Self::deposit_event(Event::DepositReturned(did, who));
		Ok(())
	}

	/// Frees the DID, its aliases and its deposit. Counters and times stay, so that what was signed before is
	/// dead, and the next record of this name is another life of it. The allowance begins anew, because another
	/// registration is paid for.
	fn delete(did: Did<T>, record: DidRecord<T>) -> DispatchResult {
		for alias in record.aliases.iter().flatten() {
			if !Rule::AliasesFreed.is_broken() {
				Self::release_alias(&did, alias);
			}
		}
		Dids::<T>::remove(&did);
		ProofAllowances::<T>::remove(&did);
		ComponentCallsLeft::<T>::remove(&did);
		if !Rule::LifeCounted.is_broken() {
			Lives::<T>::mutate(&did, |life| *life = life.saturating_add(1));
		}
		Self::return_deposit(&did);
		T::OnDidDeleted::on_did_deleted(&did);
		if !Rule::DeletionReported.is_broken() {
			Self::deposit_event(Event::DidDeleted(did));
		}
		Ok(())
	}

	/// Stores a changed record as its next version.
	fn put(did: &Did<T>, mut record: DidRecord<T>) {
		record.version = record.version.saturating_add(u64::from(!Rule::VersionRaised.is_broken()));
		record.updated_at = Self::now_ms();
		Dids::<T>::insert(did, record);
	}
}

#[cfg(any(test, feature = "try-runtime", feature = "canary"))]
impl<T: Config> Pallet<T> {
	/// What holds between the maps at the end of every block.
	pub fn do_try_state() -> Result<(), sp_runtime::TryRuntimeError> {
		let mut held: Vec<(T::AccountId, BalanceOf<T>)> = Vec::new();
		for (did, record) in Dids::<T>::iter() {
			for alias in record.aliases.iter().flatten() {
				ensure!(AliasIndex::<T>::get(alias).as_ref() == Some(&did), "an alias of a record leads elsewhere");
			}
			ensure!(record.document.as_ref().map_or(true, |document| document.id == did), "a document of another DID");
			ensure!(record.root_pubkey.as_ref().map_or(true, |key| key.len() == 32), "a root key of another length");
			ensure!(record.version > 0, "a record without a version");
		}
		for (alias, did) in AliasIndex::<T>::iter() {
			let record = Dids::<T>::get(&did).ok_or("an alias of no record")?;
			ensure!(record.aliases.iter().flatten().any(|own| *own == alias), "an alias that its record lacks");
		}
		for (alias, reserve) in ReleasedAliases::<T>::iter() {
			ensure!(!AliasIndex::<T>::contains_key(&alias), "an alias that is reserved and taken");
			ensure!(ReleasesOf::<T>::get(&reserve.did).contains(&alias), "a reserve that nobody ends");
		}
		for (did, aliases) in ReleasesOf::<T>::iter() {
			let reserved = |alias| ReleasedAliases::<T>::get(alias).is_some_and(|reserve| reserve.did == did);
			ensure!(!aliases.is_empty() && aliases.iter().all(reserved), "a release without a reserve");
		}
		for did in ProofAllowances::<T>::iter_keys() {
			ensure!(Dids::<T>::contains_key(&did), "an allowance of no record");
		}
		for did in ComponentCallsLeft::<T>::iter_keys() {
			ensure!(Dids::<T>::contains_key(&did) && is_self_certifying(&did), "a count of calls for no record");
		}
		for (did, (payer, deposit)) in Deposits::<T>::iter() {
			ensure!(Dids::<T>::contains_key(&did), "a deposit for no record");
			match held.iter_mut().find(|(account, _)| *account == payer) {
				Some((_, sum)) => *sum = sum.saturating_add(deposit),
				None => held.push((payer, deposit)),
			}
		}
		for (payer, sum) in held {
			let on_hold = <T::Currency as frame_support::traits::fungible::InspectHold<T::AccountId>>::balance_on_hold(
				&HoldReason::Registration.into(),
				&payer,
			);
			ensure!(on_hold == sum, "what is held differs from the deposits");
		}
		Ok(())
	}
}

fn is_signer_id<T: Config>(signer: &[u8]) -> bool {
	signer.len() <= T::MaxIdLen::get() as usize
}

/// The next counter value, or `false` at the end of u64.
fn bump(counter: &mut u64) -> bool {
	let next = counter.checked_add(u64::from(!Rule::CounterRaised.is_broken()));
	*counter = next.unwrap_or(*counter);
	next.is_some()
}

fn count(counted: bool) -> DispatchResult {
	counted.then_some(()).ok_or(sp_runtime::ArithmeticError::Overflow.into())
}

fn policy_ref<T: Config>(reference: Vec<u8>) -> Result<PolicyRef<T>, Error<T>> {
	reference.try_into().map_err(|_| Error::PolicyRefTooLong)
}

fn policy_refs<T: Config>(references: Vec<Vec<u8>>) -> Result<BoundedVec<PolicyRef<T>, T::MaxPolicyRefs>, Error<T>> {
	let references = references.into_iter().map(policy_ref::<T>).collect::<Result<Vec<_>, _>>()?;
	references.try_into().map_err(|_| Error::TooManyPolicyRefs)
}
