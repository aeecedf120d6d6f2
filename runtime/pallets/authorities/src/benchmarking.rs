//! What each call costs at its dearest: the vote that carries a motion and clears those of everybody else.

use crate::*;
use alloc::vec::Vec;
use frame_benchmarking::v2::*;
use frame_support::traits::Get;
use frame_system::RawOrigin;

fn authorities<T: Config>(count: u32) -> Vec<T::AccountId> {
	let authorities: Vec<T::AccountId> = (0..count).map(|number| account("authority", number, 0)).collect();
	Authorities::<T>::put(sp_runtime::BoundedVec::truncate_from(authorities.clone()));
	authorities
}

/// The smallest majority that lacks one vote has voted.
fn nearly_carried<T: Config>(count: u32, motion: &Motion<T>) -> T::AccountId {
	let authorities = authorities::<T>(count);
	let now = frame_system::Pallet::<T>::block_number();
	let majority = authorities.len() / 2;
	for authority in &authorities[..majority] {
		Votes::<T>::insert(authority, (motion, now));
	}
	authorities[majority].clone()
}

#[benchmarks]
mod benchmarks {
	use super::*;

	/// `v` is the number of authorities.
	#[benchmark]
	fn vote(v: Linear<1, { T::MaxAuthorities::get() }>) {
		let motion = Motion::AuthorizeUpgrade { code_hash: T::Hash::default() };
		let voter = nearly_carried::<T>(v, &motion);
		#[extrinsic_call]
		_(RawOrigin::Signed(voter.clone()), motion);
		assert!(Votes::<T>::get(voter).is_none(), "the motion is carried");
	}

	#[benchmark]
	fn withdraw() {
		let motion = Motion::AuthorizeUpgrade { code_hash: T::Hash::default() };
		nearly_carried::<T>(T::MaxAuthorities::get(), &motion);
		let voter: T::AccountId = account("authority", 0, 0);
		#[extrinsic_call]
		_(RawOrigin::Signed(voter.clone()));
		assert!(Votes::<T>::get(voter).is_none());
	}
}
