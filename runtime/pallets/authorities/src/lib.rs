//! Who makes and finalizes blocks: a small set of accounts that changes by the vote of more than half of it.
//! The same majority admits a new runtime. There is no superuser.
//!
//! Every authority has one vote at a time: for a motion, and for as long as `VoteLife` blocks. The vote that
//! makes a majority carries the motion at once; a changed set is the one of the session after the next.
//!
//! Laws: the set is never empty and never larger than its bound; only authorities vote, each once; a vote of
//! somebody who is no authority any more counts for nothing; who is added has set his session keys.

#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

#[cfg(feature = "runtime-benchmarks")]
mod benchmarking;
#[cfg(test)]
mod tests;
pub mod weights;

pub use pallet::*;
pub use weights::WeightInfo;

#[frame_support::pallet]
pub mod pallet {
	use super::WeightInfo;
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
		/// Anybody can then bring the code by `System.apply_authorized_upgrade`.
		AuthorizeUpgrade {
			code_hash: T::Hash,
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
		Voted { authority: T::AccountId, motion: Motion<T> },
		Carried { motion: Motion<T> },
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
					frame_system::Pallet::<T>::do_authorize_upgrade(*code_hash, true);
				},
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
		/// A set that is the same is not answered again: finality would begin a new round of voters for it.
		fn new_session(_: u32) -> Option<Vec<T::AccountId>> {
			Changed::<T>::take().then(|| Authorities::<T>::get().into_inner())
		}

		fn new_session_genesis(_: u32) -> Option<Vec<T::AccountId>> {
			Some(Authorities::<T>::get().into_inner())
		}

		fn start_session(_: u32) {}

		fn end_session(_: u32) {}
	}
}
