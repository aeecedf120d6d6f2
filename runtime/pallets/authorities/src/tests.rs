//! Votes, majorities, and what a session learns.

use crate as pallet_authorities;
use crate::*;
use frame_support::{
	assert_noop, assert_ok, derive_impl,
	dispatch::DispatchResult,
	parameter_types,
	traits::{ConstU32, ConstU64, Hooks, ValidatorRegistration},
};
use pallet_session::SessionManager;
use sp_core::H256;
use sp_runtime::BuildStorage;

type Block = frame_system::mocking::MockBlock<Test>;

frame_support::construct_runtime!(
	pub enum Test {
		System: frame_system,
		Authorities: pallet_authorities,
	}
);

#[derive_impl(frame_system::config_preludes::TestDefaultConfig)]
impl frame_system::Config for Test {
	type Block = Block;
}

parameter_types! {
	/// Who purged his keys.
	pub static Purged: Vec<u64> = Vec::new();
}

/// Accounts from 100 on have no session keys.
pub struct Keys;

impl ValidatorRegistration<u64> for Keys {
	fn is_registered(who: &u64) -> bool {
		*who < 100 && !Purged::get().contains(who)
	}
}

parameter_types! {
	/// The last final blocks with which finality began anew.
	pub static Restarted: Vec<u64> = Vec::new();
}

pub struct Restarts;

impl RestartFinality<u64> for Restarts {
	fn restart(last_final: u64) {
		Restarted::mutate(|restarted| restarted.push(last_final));
	}
}

impl Config for Test {
	type Registration = Keys;
	type MaxAuthorities = ConstU32<4>;
	type VoteLife = ConstU64<10>;
	type UpgradeDelay = ConstU64<5>;
	type Finality = Restarts;
	type WeightInfo = weights::Measured<Self>;
}

fn test(authorities: &[u64], run: impl FnOnce()) {
	let config =
		RuntimeGenesisConfig { authorities: GenesisConfig { authorities: authorities.to_vec() }, ..Default::default() };
	sp_io::TestExternalities::new(config.build_storage().unwrap()).execute_with(|| {
		System::set_block_number(1);
		run();
	});
}

fn vote(who: u64, motion: Motion<Test>) -> DispatchResult {
	Authorities::vote(RuntimeOrigin::signed(who), motion)
}

fn add(authority: u64) -> Motion<Test> {
	Motion::Add { authority }
}

fn remove(authority: u64) -> Motion<Test> {
	Motion::Remove { authority }
}

fn set() -> Vec<u64> {
	crate::Authorities::<Test>::get().into_inner()
}

#[test]
fn more_than_half_add_and_remove() {
	test(&[1, 2, 3], || {
		assert_ok!(vote(1, add(4)));
		assert_eq!(set(), [1, 2, 3]);
		assert_eq!(<Authorities as SessionManager<u64>>::new_session(2), None);
		assert_ok!(vote(2, add(4)));
		assert_eq!(set(), [1, 2, 3, 4]);
		assert_eq!(<Authorities as SessionManager<u64>>::new_session(3), Some(vec![1, 2, 3, 4]));
		// A session learns of a set once.
		assert_eq!(<Authorities as SessionManager<u64>>::new_session(4), None);
		// Half of four is no majority.
		assert_ok!(vote(1, remove(3)));
		assert_ok!(vote(2, remove(3)));
		assert_eq!(set().len(), 4);
		assert_ok!(vote(4, remove(3)));
		assert_eq!(set(), [1, 2, 4]);
		assert_eq!(Votes::<Test>::iter().count(), 0);
	});
}

#[test]
fn an_authority_has_one_vote_at_a_time() {
	test(&[1, 2, 3], || {
		assert_ok!(vote(1, add(4)));
		assert_ok!(vote(1, add(5)));
		assert_ok!(vote(1, add(5)));
		assert_ok!(vote(2, add(4)));
		assert_eq!(set(), [1, 2, 3]);
		assert_ok!(Authorities::withdraw(RuntimeOrigin::signed(2)));
		assert_noop!(Authorities::withdraw(RuntimeOrigin::signed(2)), Error::<Test>::NoVote);
		assert_ok!(vote(3, add(4)));
		assert_eq!(set(), [1, 2, 3]);
	});
}

#[test]
fn votes_end_and_those_of_former_authorities_count_for_nothing() {
	test(&[1, 2, 3], || {
		assert_ok!(vote(1, add(4)));
		System::set_block_number(12);
		assert_ok!(vote(2, add(4)));
		assert_eq!(set(), [1, 2, 3]);
		System::set_block_number(22);
		assert_ok!(vote(3, add(4)));
		assert_eq!(set(), [1, 2, 3, 4]);
	});
	test(&[1, 2, 3], || {
		assert_ok!(vote(3, add(4)));
		assert_ok!(vote(1, remove(3)));
		assert_ok!(vote(2, remove(3)));
		assert_eq!((set(), Votes::<Test>::iter().count()), (vec![1, 2], 0));
		assert_ok!(vote(1, add(4)));
		assert_eq!(set(), [1, 2]);
		assert_noop!(vote(3, add(4)), Error::<Test>::NotAuthority);
	});
}

#[test]
fn every_refusal() {
	test(&[1], || {
		assert_noop!(vote(9, add(4)), Error::<Test>::NotAuthority);
		assert_noop!(Authorities::vote(RuntimeOrigin::none(), add(4)), sp_runtime::DispatchError::BadOrigin);
		assert_noop!(vote(1, add(1)), Error::<Test>::AlreadyAuthority);
		assert_noop!(vote(1, add(100)), Error::<Test>::NoSessionKeys);
		assert_noop!(vote(1, remove(2)), Error::<Test>::NotAuthority);
		assert_noop!(vote(1, remove(1)), Error::<Test>::LastAuthority);
		assert_eq!(set(), [1]);
	});
	test(&[1, 2, 3, 4], || {
		assert_noop!(vote(1, add(5)), Error::<Test>::TooManyAuthorities);
	});
}

#[test]
fn a_majority_admits_a_runtime() {
	test(&[1, 2, 3], || {
		let motion = || Motion::AuthorizeUpgrade { code_hash: H256([7; 32]) };
		assert_ok!(vote(1, motion()));
		assert!(System::authorized_upgrade().is_none());
		assert_ok!(vote(3, motion()));
		assert!(System::authorized_upgrade().is_none());
		let carried = Event::<Test>::Carried { motion: motion() };
		assert_eq!(System::events().last().unwrap().event, RuntimeEvent::Authorities(carried));
		assert_eq!(<Authorities as SessionManager<u64>>::new_session(2), None);
		// It waits, and is authorized in its block and not again.
		for (now, authorized) in [(2, false), (5, false), (6, true), (7, true)] {
			System::set_block_number(now);
			Authorities::on_initialize(now);
			assert_eq!(System::authorized_upgrade().is_some(), authorized, "block {now}");
		}
		assert!(Upgrade::<Test>::get().is_none());
	});
}

#[test]
fn a_later_upgrade_replaces_one_that_waits() {
	test(&[1, 2, 3], || {
		let motion = |code| Motion::AuthorizeUpgrade { code_hash: H256([code; 32]) };
		for who in [1, 2] {
			assert_ok!(vote(who, motion(7)));
		}
		System::set_block_number(5);
		for who in [2, 3] {
			assert_ok!(vote(who, motion(8)));
		}
		System::set_block_number(6);
		Authorities::on_initialize(6);
		assert!(System::authorized_upgrade().is_none());
		System::set_block_number(10);
		Authorities::on_initialize(10);
		assert_eq!(*System::authorized_upgrade().expect("it is its time").code_hash(), H256([8; 32]));
	});
}

#[test]
fn finality_begins_anew_with_the_set_that_remains() {
	test(&[1, 2, 3], || {
		let session = |index| {
			<Authorities as SessionManager<u64>>::start_session(index);
			<Authorities as SessionManager<u64>>::new_session(index + 1)
		};
		System::set_block_number(100);
		let restart = |last_final| Motion::RestartFinality { last_final };
		assert_noop!(vote(1, restart(100)), Error::<Test>::FutureBlock);
		assert_ok!(vote(1, remove(3)));
		assert_ok!(vote(2, remove(3)));
		assert_ok!(vote(1, restart(40)));
		assert_ok!(vote(2, restart(40)));
		// The session that begins next was planned with all three.
		assert_eq!((session(1), Restarted::get()), (Some(vec![1, 2]), vec![]));
		assert_eq!((session(2), Restarted::get()), (None, vec![40]));
		assert_eq!((session(3), Restarted::get()), (None, vec![40]));
	});
}

#[test]
fn who_purges_his_keys_leaves_the_majority_too() {
	test(&[1, 2, 3], || {
		assert_ok!(vote(3, add(5)));
		Purged::set(vec![3]);
		assert_eq!(<Authorities as SessionManager<u64>>::new_session(2), Some(vec![1, 2]));
		assert_eq!(System::events().last().unwrap().event, RuntimeEvent::Authorities(Event::Left { authority: 3 }));
		assert_eq!((set(), Votes::<Test>::iter().count()), (vec![1, 2], 0));
		assert_ok!(vote(1, add(5)));
		assert_ok!(vote(2, add(5)));
		assert_eq!(set(), [1, 2, 5]);
		// The set is never empty.
		Purged::set(vec![1, 2, 5]);
		let planned = <Authorities as SessionManager<u64>>::new_session(3);
		assert_eq!((planned, set()), (Some(vec![1, 2, 5]), vec![1, 2, 5]));
	});
}
