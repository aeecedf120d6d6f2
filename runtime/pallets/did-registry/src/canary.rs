//! Rules that a build with the feature `canary` breaks on command, one at a time, so that the differential
//! test can show that it would notice. In every other build the question is the constant `false`: the
//! runtime that is kept for use holds nothing of this.

/// The rules of both pallets that can be broken, by the number that selects them.
#[derive(Clone, Copy)]
pub enum Rule {
	/// A DID has as many devices as the bound says. Broken: one.
	DeviceBound = 1,
	/// The fees of a policy have a bound. Broken: they have none.
	FeeBound = 2,
	/// An authorization ends at its time. Broken: it never ends.
	AuthorizationEnd = 3,
	/// Only methods in `authentication` sign. Broken: every method does.
	ListedSigner = 4,
	/// What an authorization allowed uses up its counter value. Broken: it does not.
	CounterRaised = 5,
	/// A deletion is reported. Broken: its event is missing.
	DeletionReported = 6,
	/// A change is the record's next version. Broken: the version stays.
	VersionRaised = 7,
	/// A deletion frees the aliases. Broken: they stay taken.
	AliasesFreed = 8,
	/// A registration names the account that submits it. Broken: one that names none is taken as well.
	SubmitterBound = 9,
	/// A payload is signed for this chain. Broken: for the chain whose genesis hash is zero as well.
	ChainBound = 10,
	/// A deletion begins another life of the name. Broken: it does not.
	LifeCounted = 11,
	/// A released alias is reserved for its last holder. Broken: it is free.
	AliasReserved = 12,
}

#[cfg(feature = "canary")]
impl Rule {
	/// Where the number of the broken rule stands, as one byte; a test puts it there from outside.
	const KEY: &'static [u8] = b":canary";

	pub fn is_broken(self) -> bool {
		frame_support::storage::unhashed::get::<u8>(Self::KEY) == Some(self as u8)
	}
}

#[cfg(not(feature = "canary"))]
impl Rule {
	pub const fn is_broken(self) -> bool {
		false
	}
}
