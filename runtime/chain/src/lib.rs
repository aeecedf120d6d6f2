//! The reference chain: a set of authorities that changes by its own majority, balances, and the two pallets
//! of the service. There is no superuser.
//!
//! Extrinsics that carry a proof travel as general transactions (version 5 without a signature) and are
//! authorized by their call; the transaction extensions below are part of every extrinsic's bytes.

#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

mod apis;
pub mod genesis;
#[cfg(all(test, feature = "try-runtime"))]
mod try_state;

use alloc::borrow::Cow;
#[cfg(not(feature = "std"))]
use alloc::vec::Vec;
use frame_support::{
	derive_impl,
	dispatch::DispatchClass,
	parameter_types,
	traits::{
		fungible::{Balanced, Credit},
		ConstBool, ConstU128, ConstU16, ConstU32, ConstU64, ConstU8, OnUnbalanced, VariantCountOf,
	},
	weights::{
		constants::{RocksDbWeight, WEIGHT_REF_TIME_PER_SECOND},
		ConstantMultiplier, IdentityFee, Weight,
	},
};
use frame_system::limits::{BlockLength, BlockWeights};
use pallet_transaction_payment::{FungibleAdapter, Multiplier, TargetedFeeAdjustment};
use sp_consensus_aura::sr25519::AuthorityId as AuraId;
use sp_consensus_grandpa::AuthorityId as GrandpaId;
use sp_runtime::{
	generic, impl_opaque_keys,
	traits::{BlakeTwo256, ConvertInto, IdentifyAccount, OpaqueKeys, Verify},
	FixedPointNumber, MultiAddress, MultiSignature, Perbill, Perquintill,
};
use sp_version::RuntimeVersion;

pub type Signature = MultiSignature;
pub type AccountId = <<Signature as Verify>::Signer as IdentifyAccount>::AccountId;
pub type Balance = u128;
pub type Nonce = u32;
pub type BlockNumber = u32;
pub type Hash = sp_core::H256;
pub type Address = MultiAddress<AccountId, ()>;
pub type Header = generic::Header<BlockNumber, BlakeTwo256>;
pub type Block = generic::Block<Header, UncheckedExtrinsic>;

/// The order is part of the bytes of every extrinsic. Only the mortal era, the nonce, the tip and the
/// mode of the metadata hash take space.
pub type TxExtension = (
	frame_system::AuthorizeCall<Runtime>,
	frame_system::CheckNonZeroSender<Runtime>,
	frame_system::CheckSpecVersion<Runtime>,
	frame_system::CheckTxVersion<Runtime>,
	frame_system::CheckGenesis<Runtime>,
	frame_system::CheckEra<Runtime>,
	frame_system::CheckNonce<Runtime>,
	frame_system::CheckWeight<Runtime>,
	pallet_transaction_payment::ChargeTransactionPayment<Runtime>,
	frame_metadata_hash_extension::CheckMetadataHash<Runtime>,
	frame_system::WeightReclaim<Runtime>,
);
pub type UncheckedExtrinsic = generic::UncheckedExtrinsic<Address, RuntimeCall, Signature, TxExtension>;
/// What changes the state at an upgrade, before the first block of the new runtime has its extrinsics: the newest
/// ones, in their order. Each checks and raises the `StorageVersion` of its pallet, so that it runs once.
pub type Migrations = ();
pub type Executive =
	frame_executive::Executive<Runtime, Block, frame_system::ChainContext<Runtime>, Runtime, AllPalletsWithSystem>;

/// Blocks without types, for anyone who only passes them on.
pub mod opaque {
	use super::*;
	pub use sp_runtime::OpaqueExtrinsic as UncheckedExtrinsic;
	pub type Block = generic::Block<Header, UncheckedExtrinsic>;

	impl_opaque_keys! {
		pub struct SessionKeys {
			pub aura: Aura,
			pub grandpa: Grandpa,
		}
	}
}

/// Raise `spec_version` with every change of behavior, `transaction_version` as well when the bytes of
/// a call or of an extension change.
#[cfg(not(any(feature = "canary", feature = "next")))]
#[sp_version::runtime_version]
pub const VERSION: RuntimeVersion = RuntimeVersion {
	spec_name: Cow::Borrowed("waypost"),
	impl_name: Cow::Borrowed("waypost"),
	authoring_version: 1,
	spec_version: 9,
	impl_version: 1,
	apis: apis::RUNTIME_API_VERSIONS,
	transaction_version: 2,
	system_version: 1,
};

/// The build that breaks rules on command says so in its name. The macro takes literals only, so the rest is here twice.
#[cfg(feature = "canary")]
#[sp_version::runtime_version]
pub const VERSION: RuntimeVersion = RuntimeVersion {
	spec_name: Cow::Borrowed("waypost-canary"),
	impl_name: Cow::Borrowed("waypost-canary"),
	authoring_version: 1,
	spec_version: 9,
	impl_version: 1,
	apis: apis::RUNTIME_API_VERSIONS,
	transaction_version: 2,
	system_version: 1,
};

pub const MILLISECS_PER_BLOCK: u64 = 6_000;
pub const DAY_MS: u64 = 86_400_000;
pub const UNIT: Balance = 1_000_000_000_000;
pub const MICRO_UNIT: Balance = UNIT / 1_000_000;
/// How wallets show amounts and addresses. A chain's specification says the same, and the hash of the metadata binds it.
pub const TOKEN_SYMBOL: &str = "UNIT";
pub const TOKEN_DECIMALS: u8 = 12;
pub const ADDRESS_PREFIX: u16 = 42;
pub const EXISTENTIAL_DEPOSIT: Balance = 1_000_000_000;
/// Half an hour.
pub const SESSION_BLOCKS: BlockNumber = 300;
const NORMAL_DISPATCH_RATIO: Perbill = Perbill::from_percent(75);
/// What calls that no one pays for may use of a block's time.
const UNPAID_DISPATCH_RATIO: Perbill = Perbill::from_percent(10);
const BLOCK_BYTES_MAX: u32 = 5 * 1024 * 1024;

/// Calls with a proof pay no fee. They are operational ones, so that what they use has a bound of its own and counts
/// neither as fullness, which raises fees, nor against those who pay. The length of a call counts as its proof size.
fn block_weights() -> BlockWeights {
	let whole = Weight::from_parts(2 * WEIGHT_REF_TIME_PER_SECOND, u64::MAX);
	// An upgrade is an operational call too: its code, in one extrinsic, must fit into what others leave of a block.
	let unpaid = Weight::from_parts(
		UNPAID_DISPATCH_RATIO * whole.ref_time(),
		u64::from(BLOCK_BYTES_MAX) - NORMAL_DISPATCH_RATIO * u64::from(BLOCK_BYTES_MAX),
	);
	BlockWeights::builder()
		// Each class has its own part of a block, and none takes from another's.
		.for_class(DispatchClass::all(), |class| class.reserved = None)
		.for_class(DispatchClass::Normal, |class| class.max_total = Some(NORMAL_DISPATCH_RATIO * whole))
		.for_class(DispatchClass::Operational, |class| class.max_total = Some(unpaid))
		.build_or_panic()
}

parameter_types! {
	pub const BlockHashCount: BlockNumber = 2_400;
	pub const Version: RuntimeVersion = VERSION;
	pub Weights: BlockWeights = block_weights();
	pub Length: BlockLength = BlockLength::max_with_normal_ratio(BLOCK_BYTES_MAX, NORMAL_DISPATCH_RATIO);
}

#[derive_impl(frame_system::config_preludes::SolochainDefaultConfig)]
impl frame_system::Config for Runtime {
	type Block = Block;
	type BlockWeights = Weights;
	type BlockLength = Length;
	type AccountId = AccountId;
	type Lookup = sp_runtime::traits::AccountIdLookup<AccountId, ()>;
	type Nonce = Nonce;
	type Hash = Hash;
	type BlockHashCount = BlockHashCount;
	type DbWeight = RocksDbWeight;
	type Version = Version;
	type AccountData = pallet_balances::AccountData<Balance>;
	type SS58Prefix = ConstU16<ADDRESS_PREFIX>;
	type MaxConsumers = ConstU32<16>;
	type SingleBlockMigrations = Migrations;
}

impl pallet_timestamp::Config for Runtime {
	type Moment = u64;
	type OnTimestampSet = Aura;
	type MinimumPeriod = ConstU64<{ MILLISECS_PER_BLOCK / 2 }>;
	type WeightInfo = ();
}

impl pallet_aura::Config for Runtime {
	type AuthorityId = AuraId;
	type DisabledValidators = ();
	type MaxAuthorities = MaxAuthorities;
	type AllowMultipleBlocksPerSlot = ConstBool<false>;
	type SlotDuration = ConstU64<MILLISECS_PER_BLOCK>;
}

impl pallet_grandpa::Config for Runtime {
	type RuntimeEvent = RuntimeEvent;
	type WeightInfo = ();
	type MaxAuthorities = MaxAuthorities;
	type MaxNominators = ConstU32<0>;
	type MaxSetIdSessionEntries = ConstU64<0>;
	/// Nothing is at stake that an equivocation could lose: the other authorities vote its author out.
	type KeyOwnerProof = sp_core::Void;
	type EquivocationReportSystem = ();
}

impl pallet_authorship::Config for Runtime {
	type FindAuthor = pallet_session::FindAccountFromAuthorIndex<Self, Aura>;
	type EventHandler = ();
}

impl pallet_authorities::Config for Runtime {
	type Registration = Session;
	type MaxAuthorities = MaxAuthorities;
	/// Seven days.
	type VoteLife = ConstU32<100_800>;
	/// A day.
	type UpgradeDelay = ConstU32<14_400>;
	type Finality = Finality;
	type WeightInfo = pallet_authorities::weights::Measured<Self>;
}

pub struct Finality;

impl pallet_authorities::RestartFinality<BlockNumber> for Finality {
	/// Blocks that are not final carry the news of the new set, so they get time to settle; the change is done before the
	/// next session.
	fn restart(last_final: BlockNumber) {
		let noted = Grandpa::note_stalled(frame_system::RawOrigin::Root.into(), SESSION_BLOCKS * 2 / 3, last_final);
		debug_assert!(noted.is_ok());
	}
}

impl pallet_session::Config for Runtime {
	type RuntimeEvent = RuntimeEvent;
	type ValidatorId = AccountId;
	type ValidatorIdOf = ConvertInto;
	type ShouldEndSession = pallet_session::PeriodicSessions<ConstU32<SESSION_BLOCKS>, ConstU32<0>>;
	type NextSessionRotation = pallet_session::PeriodicSessions<ConstU32<SESSION_BLOCKS>, ConstU32<0>>;
	type SessionManager = Authorities;
	type SessionHandler = <opaque::SessionKeys as OpaqueKeys>::KeyTypeIdProviders;
	type Keys = opaque::SessionKeys;
	type DisablingStrategy = ();
	type WeightInfo = ();
	type Currency = Balances;
	type KeyDeposit = ConstU128<UNIT>;
}

impl pallet_balances::Config for Runtime {
	type RuntimeEvent = RuntimeEvent;
	type RuntimeHoldReason = RuntimeHoldReason;
	type RuntimeFreezeReason = RuntimeFreezeReason;
	type WeightInfo = ();
	type Balance = Balance;
	type DustRemoval = ();
	type ExistentialDeposit = ConstU128<EXISTENTIAL_DEPOSIT>;
	type AccountStore = System;
	type ReserveIdentifier = [u8; 8];
	type FreezeIdentifier = RuntimeFreezeReason;
	type MaxLocks = ConstU32<50>;
	type MaxReserves = ConstU32<50>;
	type MaxFreezes = VariantCountOf<RuntimeFreezeReason>;
	type DoneSlashHandler = ();
}

parameter_types! {
	pub const MaxAuthorities: u32 = 32;
	pub const TransactionByteFee: Balance = MICRO_UNIT;
	/// Blocks that are fuller than this make the next ones dearer, emptier ones cheaper.
	pub const TargetBlockFullness: Perquintill = Perquintill::from_percent(25);
	/// Full blocks double the fees in about three and a half hours.
	pub AdjustmentVariable: Multiplier = Multiplier::saturating_from_rational(45, 100_000);
	/// Fees never fall below what weights and lengths ask for.
	pub MinimumMultiplier: Multiplier = Multiplier::from_u32(1);
	/// A bound on what a flood can make others pay.
	pub MaximumMultiplier: Multiplier = Multiplier::from_u32(100);
}

/// Fees and tips go to the author of the block.
pub struct ToAuthor;

impl OnUnbalanced<Credit<AccountId, Balances>> for ToAuthor {
	fn on_nonzero_unbalanced(amount: Credit<AccountId, Balances>) {
		if let Some(author) = Authorship::author() {
			// What can't be credited, such as less than the existential deposit to a new account, is burnt.
			let _burnt = Balances::resolve(&author, amount);
		}
	}
}

impl pallet_transaction_payment::Config for Runtime {
	type RuntimeEvent = RuntimeEvent;
	type OnChargeTransaction = FungibleAdapter<Balances, ToAuthor>;
	type OperationalFeeMultiplier = ConstU8<5>;
	type WeightToFee = IdentityFee<Balance>;
	type LengthToFee = ConstantMultiplier<Balance, TransactionByteFee>;
	type FeeMultiplierUpdate =
		TargetedFeeAdjustment<Self, TargetBlockFullness, AdjustmentVariable, MinimumMultiplier, MaximumMultiplier>;
	type WeightInfo = ();
}

impl pallet_did_registry::Config for Runtime {
	type Time = Timestamp;
	type OnDidDeleted = DeliveryPolicy;
	type Currency = Balances;
	type RecordDeposit = ConstU128<{ 10_000 * MICRO_UNIT }>;
	type ByteDeposit = ConstU128<MICRO_UNIT>;
	type MaxDidLen = ConstU32<128>;
	type MaxIdLen = ConstU32<192>;
	type MaxVMs = ConstU32<5>;
	type MaxKAs = ConstU32<5>;
	type MaxVMTypeLen = ConstU32<64>;
	type MaxKaTypeLen = ConstU32<64>;
	type MaxServiceTypeLen = ConstU32<64>;
	type MaxKeyMultibaseLen = ConstU32<128>;
	type MaxRefsPerRel = ConstU32<4>;
	type MaxServices = ConstU32<4>;
	type MaxServiceEndpoints = ConstU32<5>;
	type MaxServiceEndpointUrlLen = ConstU32<128>;
	type MaxServiceAuthorizationKeys = ConstU32<8>;
	type MaxDocLen = ConstU32<16_384>;
	type MaxAliasLen = ConstU32<64>;
	type MaxAliases = ConstU32<8>;
	type MaxDevices = DeviceBound<10>;
	type MaxDeviceIdLen = ConstU32<64>;
	type MaxPolicyRefs = ConstU32<8>;
	type MaxPolicyRefLen = ConstU32<128>;
	type MaxProofAheadMs = ConstU64<3_600_000>;
	type MaxClockSkewMs = ConstU64<300_000>;
	type ProofLongevity = ConstU64<64>;
	type ProofsAtOnce = ConstU32<16>;
	type ProofsInReserve = ConstU32<4>;
	/// Ten minutes.
	type ProofInterval = ConstU32<100>;
	type MaxComponentCalls = ConstU32<8>;
	type MaxRotations = ConstU64<200>;
	/// Thirty days.
	type AliasReserveMs = ConstU64<{ 30 * DAY_MS }>;
	/// A year.
	type SilenceMs = ConstU64<{ 365 * DAY_MS }>;
	type WeightInfo = pallet_did_registry::weights::Measured<Self>;
}

impl pallet_delivery_policy::Config for Runtime {
	/// Thirty days.
	type MaxTtl = ConstU32<432_000>;
	type MaxMessageBytes = ConstU32<16_777_216>;
	type MaxReplication = ConstU8<4>;
	type MaxHeaderPreviewBytes = ConstU32<4_096>;
	type MaxReleaseFee = ConstU128<1_000_000_000_000_000>;
	type MaxAssetLen = ConstU32<32>;
	type MaxAllowedRelays = ConstU32<16>;
	type MaxRelayIdLen = ConstU32<128>;
	type MaxSignerKeyIdLen = ConstU32<256>;
	type WeightInfo = pallet_delivery_policy::weights::Measured<Self>;
}

#[frame_support::runtime]
mod runtime {
	#[runtime::runtime]
	#[runtime::derive(
		RuntimeCall,
		RuntimeEvent,
		RuntimeError,
		RuntimeOrigin,
		RuntimeFreezeReason,
		RuntimeHoldReason,
		RuntimeSlashReason,
		RuntimeLockId,
		RuntimeTask,
		RuntimeViewFunction
	)]
	pub struct Runtime;

	#[runtime::pallet_index(0)]
	pub type System = frame_system;

	#[runtime::pallet_index(1)]
	pub type Timestamp = pallet_timestamp;

	#[runtime::pallet_index(2)]
	pub type Aura = pallet_aura;

	#[runtime::pallet_index(3)]
	pub type Grandpa = pallet_grandpa;

	#[runtime::pallet_index(4)]
	pub type Balances = pallet_balances;

	#[runtime::pallet_index(5)]
	pub type TransactionPayment = pallet_transaction_payment;

	#[runtime::pallet_index(8)]
	pub type DidRegistry = pallet_did_registry;

	#[runtime::pallet_index(9)]
	pub type DeliveryPolicy = pallet_delivery_policy;

	// The family has pallets of other areas under 10, 11 and 13. The set of authorities must be there before
	// the first session is made of it.
	#[runtime::pallet_index(12)]
	pub type Authorities = pallet_authorities;

	#[runtime::pallet_index(14)]
	pub type Session = pallet_session;

	#[runtime::pallet_index(15)]
	pub type Authorship = pallet_authorship;
}

#[cfg(feature = "runtime-benchmarks")]
frame_benchmarking::define_benchmarks!(
	[pallet_did_registry, DidRegistry]
	[pallet_delivery_policy, DeliveryPolicy]
	[pallet_authorities, Authorities]
);

#[cfg(not(feature = "canary"))]
type DeviceBound<const N: u32> = ConstU32<N>;

/// The bound, or one where the rule is broken.
#[cfg(feature = "canary")]
pub struct DeviceBound<const N: u32>;

#[cfg(feature = "canary")]
impl<const N: u32> frame_support::traits::Get<u32> for DeviceBound<N> {
	fn get() -> u32 {
		if pallet_did_registry::Rule::DeviceBound.is_broken() {
			1
		} else {
			N
		}
	}
}

/// What an upgrade is tried with: nothing but the version number differs.
#[cfg(feature = "next")]
#[sp_version::runtime_version]
pub const VERSION: RuntimeVersion = RuntimeVersion {
	spec_name: Cow::Borrowed("waypost"),
	impl_name: Cow::Borrowed("waypost"),
	authoring_version: 1,
	spec_version: 10,
	impl_version: 1,
	apis: apis::RUNTIME_API_VERSIONS,
	transaction_version: 2,
	system_version: 1,
};
