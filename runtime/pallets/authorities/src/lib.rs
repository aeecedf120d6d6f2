//! Who makes and finalizes blocks: a small set of accounts that changes by the vote of more than half of it.
//! The same majority admits a new runtime. There is no superuser.
//!
//! Every authority has one vote at a time: for a motion, and for as long as `VoteLife` blocks. The vote that
//! makes a majority carries the motion; a changed set is the one of the session after the next. A new runtime waits
//! for `UpgradeDelay` after that, so that anyone who relies on the chain sees it coming. When so many keys are lost that
//! no block becomes final, the majority removes their owners and lets finality begin anew.
//!
//! Laws: the set is never empty and never larger than its bound; only authorities vote, each once; a vote of
//! somebody who is no authority any more counts for nothing; who is added has set his session keys, and who has none
//! any more leaves; no runtime is authorized before its time.

#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

#[cfg(feature = "runtime-benchmarks")]
mod benchmarking;
#[cfg(test)]
mod tests;
pub mod weights;

pub use pallet::*;
pub use weights::WeightInfo;

/// Makes finality begin anew with the authorities of the session that starts.
pub trait RestartFinality<BlockNumber> {
	/// `last_final` is the last block that became final.
	fn restart(last_final: BlockNumber);
}

#[frame_support::pallet]
pub mod pallet {
	use super::{RestartFinality, WeightInfo};
	use alloc::vec::Vec;
	use frame_support::{pallet_prelude::*, traits::ValidatorRegistration};
	use frame_system::{ensure_signed, pallet_prelude::*};
	use pallet_session::SessionManager;
	use sp_runtime::traits::Saturating;

	const STORAGE_VERSION: StorageVersion = StorageVersion::new(1);

	#[pallet::pallet]
	#[pallet::storage_version(STORAGE_VERSION)]
	pub struct Pallet<T>(_);

	#[pallet::config]
	pub trait Config: frame_system::Config<RuntimeEvent: From<Event<Self>>> {
		/// Knows who has set session keys.
		type Registration: ValidatorRegistration<Self::AccountId>;
		#[pallet::constant]
		type MaxAuthorities: Get<u32>;
		/// How many blocks a vote counts.
		#[pallet::constant]
		type VoteLife: Get<BlockNumberFor<Self>>;
		/// How many blocks pass between the majority for a runtime and its authorization.
		#[pallet::constant]
		type UpgradeDelay: Get<BlockNumberFor<Self>>;
		type Finality: RestartFinality<BlockNumberFor<Self>>;
		type WeightInfo: WeightInfo;
	}

	/// What authorities decide.
	#[derive(
		Encode,
		Decode,
		DecodeWithMemTracking,
		MaxEncodedLen,
		TypeInfo,
		CloneNoBound,
		PartialEqNoBound,
		EqNoBound,
		DebugNoBound,
	)]
	#[scale_info(skip_type_params(T))]
	pub enum Motion<T: Config> {
		Add {
			authority: T::AccountId,
		},
		Remove {
			authority: T::AccountId,
		},
		/// After the delay anybody can bring the code by `System.apply_authorized_upgrade`. A later majority for another
		/// one replaces this one, and waits anew.
		AuthorizeUpgrade {
			code_hash: T::Hash,
		},
		/// For when more keys are lost than finality can do without. It begins anew with the session after the next, which
		/// is the one without those who are removed before.
		RestartFinality {
			last_final: BlockNumberFor<T>,
		},
	}

	#[pallet::storage]
	pub type Authorities<T: Config> = StorageValue<_, BoundedVec<T::AccountId, T::MaxAuthorities>, ValueQuery>;

	/// The last vote of an account, and the block it was given in.
	#[pallet::storage]
	pub type Votes<T: Config> = StorageMap<_, Blake2_128Concat, T::AccountId, (Motion<T>, BlockNumberFor<T>)>;

	/// Whether the set changed since the last session was planned.
	#[pallet::storage]
	pub type Changed<T: Config> = StorageValue<_, bool, ValueQuery>;

	/// The code that a majority wants, and the block in which it is authorized.
	#[pallet::storage]
	pub type Upgrade<T: Config> = StorageValue<_, (T::Hash, BlockNumberFor<T>)>;

	/// How many sessions start before finality begins anew, and the last final block.
	#[pallet::storage]
	pub type Restart<T: Config> = StorageValue<_, (u32, BlockNumberFor<T>)>;

	#[pallet::genesis_config]
	#[derive(frame_support::DefaultNoBound)]
	pub struct GenesisConfig<T: Config> {
		pub authorities: Vec<T::AccountId>,
	}

	#[pallet::genesis_build]
	impl<T: Config> BuildGenesisConfig for GenesisConfig<T> {
		fn build(&self) {
			let authorities = self.authorities.clone().try_into();
			Authorities::<T>::put::<BoundedVec<_, _>>(
				authorities.expect("the first authorities are within their bound"),
			);
		}
	}

	#[pallet::event]
	#[pallet::generate_deposit(fn deposit_event)]
	pub enum Event<T: Config> {
		Voted {
			authority: T::AccountId,
			motion: Motion<T>,
		},
		Carried {
			motion: Motion<T>,
		},
		/// An authority that has no session keys any more is none.
		Left {
			authority: T::AccountId,
		},
	}

	#[pallet::error]
	#[derive(PartialEq, Eq)]
	pub enum Error<T> {
		NotAuthority,
		AlreadyAuthority,
		TooManyAuthorities,
		/// The set can't become empty.
		LastAuthority,
		/// Who is to be added has not called `Session.set_keys`.
		NoSessionKeys,
		/// The account has no vote that stands.
		NoVote,
		/// No block of this number can be final yet.
		FutureBlock,
	}

	#[pallet::hooks]
	impl<T: Config> Hooks<BlockNumberFor<T>> for Pallet<T> {
		fn on_initialize(now: BlockNumberFor<T>) -> Weight {
			match Upgrade::<T>::get() {
				Some((code_hash, at)) if at <= now => {
					Upgrade::<T>::kill();
					frame_system::Pallet::<T>::do_authorize_upgrade(code_hash, true);
					T::DbWeight::get().reads_writes(1, 2)
				},
				_ => T::DbWeight::get().reads(1),
			}
		}
	}

	#[pallet::call]
	impl<T: Config> Pallet<T> {
		/// Votes for a motion, in the place of an earlier vote of the same account.
		#[pallet::call_index(0)]
		#[pallet::weight(T::WeightInfo::vote(T::MaxAuthorities::get()))]
		pub fn vote(origin: OriginFor<T>, motion: Motion<T>) -> DispatchResult {
			let who = ensure_signed(origin)?;
			let authorities = Authorities::<T>::get();
			ensure!(authorities.contains(&who), Error::<T>::NotAuthority);
			Self::check(&authorities, &motion)?;
			let now = frame_system::Pallet::<T>::block_number();
			Votes::<T>::insert(&who, (&motion, now));
			Self::deposit_event(Event::Voted { authority: who, motion: motion.clone() });
			let voted = |authority: &&T::AccountId| {
				Votes::<T>::get(authority)
					.is_some_and(|(other, since)| other == motion && now <= since.saturating_add(T::VoteLife::get()))
			};
			if authorities.iter().filter(voted).count() * 2 > authorities.len() {
				for authority in &authorities {
					Votes::<T>::mutate_exists(authority, |vote| {
						if vote.as_ref().is_some_and(|(other, _)| *other == motion) {
							*vote = None;
						}
					});
				}
				Self::carry(authorities, motion)?;
			}
			Ok(())
		}

		/// Takes the own vote back.
		#[pallet::call_index(1)]
		#[pallet::weight(T::WeightInfo::withdraw())]
		pub fn withdraw(origin: OriginFor<T>) -> DispatchResult {
			let who = ensure_signed(origin)?;
			Votes::<T>::take(&who).ok_or(Error::<T>::NoVote)?;
			Ok(())
		}
	}

	impl<T: Config> Pallet<T> {
		/// Whether the motion can be carried as things stand.
		fn check(
			authorities: &BoundedVec<T::AccountId, T::MaxAuthorities>,
			motion: &Motion<T>,
		) -> Result<(), Error<T>> {
			match motion {
				Motion::Add { authority } => {
					ensure!(!authorities.contains(authority), Error::AlreadyAuthority);
					ensure!((authorities.len() as u32) < T::MaxAuthorities::get(), Error::TooManyAuthorities);
					ensure!(T::Registration::is_registered(authority), Error::NoSessionKeys);
				},
				Motion::Remove { authority } => {
					ensure!(authorities.contains(authority), Error::NotAuthority);
					ensure!(authorities.len() > 1, Error::LastAuthority);
				},
				Motion::AuthorizeUpgrade { .. } => {},
				Motion::RestartFinality { last_final } => {
					ensure!(*last_final < frame_system::Pallet::<T>::block_number(), Error::FutureBlock);
				},
			}
			Ok(())
		}

		fn carry(mut authorities: BoundedVec<T::AccountId, T::MaxAuthorities>, motion: Motion<T>) -> DispatchResult {
			match &motion {
				Motion::Add { authority } => {
					authorities.try_push(authority.clone()).map_err(|_| Error::<T>::TooManyAuthorities)?;
					Self::put(authorities);
				},
				Motion::Remove { authority } => {
					authorities.retain(|other| other != authority);
					Votes::<T>::remove(authority);
					Self::put(authorities);
				},
				Motion::AuthorizeUpgrade { code_hash } => {
					let now = frame_system::Pallet::<T>::block_number();
					Upgrade::<T>::put((*code_hash, now.saturating_add(T::UpgradeDelay::get())));
				},
				Motion::RestartFinality { last_final } => Restart::<T>::put((2, *last_final)),
			}
			Self::deposit_event(Event::Carried { motion });
			Ok(())
		}

		fn put(authorities: BoundedVec<T::AccountId, T::MaxAuthorities>) {
			Authorities::<T>::put(authorities);
			Changed::<T>::put(true);
		}
	}

	impl<T: Config> SessionManager<T::AccountId> for Pallet<T> {
		/// A set that is the same is not answered again: finality would begin a new round of voters for it. The session
		/// leaves out who has no keys; then his vote must not count either.
		fn new_session(_: u32) -> Option<Vec<T::AccountId>> {
			let mut authorities = Authorities::<T>::get();
			let (kept, left): (Vec<_>, Vec<_>) = authorities.iter().cloned().partition(T::Registration::is_registered);
			if !kept.is_empty() && !left.is_empty() {
				authorities.retain(|authority| kept.contains(authority));
				Self::put(authorities);
				for authority in left {
					Votes::<T>::remove(&authority);
					Self::deposit_event(Event::Left { authority });
				}
			}
			Changed::<T>::take().then(|| Authorities::<T>::get().into_inner())
		}

		fn new_session_genesis(_: u32) -> Option<Vec<T::AccountId>> {
			Some(Authorities::<T>::get().into_inner())
		}

		/// Called before finality learns of the session's set.
		fn start_session(_: u32) {
			match Restart::<T>::take() {
				Some((sessions, last_final)) if sessions > 1 => Restart::<T>::put((sessions - 1, last_final)),
				Some((_, last_final)) => T::Finality::restart(last_final),
				None => {},
			}
		}

		fn end_session(_: u32) {}
	}
}
