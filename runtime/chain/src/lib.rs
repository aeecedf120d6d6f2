//! The reference chain: one authority set, balances, and the two pallets of the service.
//!
//! Extrinsics that carry a proof travel as general transactions (version 5 without a signature) and are
//! authorized by their call; the transaction extensions below are part of every extrinsic's bytes.

#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

mod apis;

use alloc::{borrow::Cow, vec::Vec};
use frame_support::{
	derive_impl, parameter_types,
	traits::{ConstBool, ConstU128, ConstU16, ConstU32, ConstU64, ConstU8},
	weights::{
		constants::{RocksDbWeight, WEIGHT_REF_TIME_PER_SECOND},
		IdentityFee, Weight,
	},
};
use frame_system::limits::{BlockLength, BlockWeights};
use pallet_transaction_payment::FungibleAdapter;
use sp_consensus_aura::sr25519::AuthorityId as AuraId;
use sp_runtime::{
	generic, impl_opaque_keys,
	traits::{BlakeTwo256, IdentifyAccount, Verify},
	MultiAddress, MultiSignature, Perbill,
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
pub type Executive =
	frame_executive::Executive<Runtime, Block, frame_system::ChainContext<Runtime>, Runtime, AllPalletsWithSystem>;

/// Blocks without types, for whoever only passes them on.
pub mod opaque {
	use super::*;
	pub use sp_runtime::OpaqueExtrinsic as UncheckedExtrinsic;
	pub type Block = generic::Block<Header, UncheckedExtrinsic>;

	impl_opaque_keys! {
		pub struct SessionKeys {
			pub aura: Aura,
		}
	}
}

/// Raise `spec_version` with every change of behaviour, `transaction_version` as well when the bytes of
/// a call or of an extension change.
#[sp_version::runtime_version]
pub const VERSION: RuntimeVersion = RuntimeVersion {
	spec_name: Cow::Borrowed("waypost"),
	impl_name: Cow::Borrowed("waypost"),
	authoring_version: 1,
	spec_version: 1,
	impl_version: 1,
	apis: apis::RUNTIME_API_VERSIONS,
	transaction_version: 1,
	system_version: 1,
};

pub const MILLISECS_PER_BLOCK: u64 = 6_000;
pub const UNIT: Balance = 1_000_000_000_000;
pub const EXISTENTIAL_DEPOSIT: Balance = 1_000_000_000;
const NORMAL_DISPATCH_RATIO: Perbill = Perbill::from_percent(75);

parameter_types! {
	pub const BlockHashCount: BlockNumber = 2_400;
	pub const Version: RuntimeVersion = VERSION;
	pub Weights: BlockWeights = BlockWeights::with_sensible_defaults(
		Weight::from_parts(2 * WEIGHT_REF_TIME_PER_SECOND, u64::MAX),
		NORMAL_DISPATCH_RATIO,
	);
	pub Length: BlockLength = BlockLength::max_with_normal_ratio(5 * 1024 * 1024, NORMAL_DISPATCH_RATIO);
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
	type SS58Prefix = ConstU16<42>;
	type MaxConsumers = ConstU32<16>;
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
	type MaxAuthorities = ConstU32<32>;
	type AllowMultipleBlocksPerSlot = ConstBool<false>;
	type SlotDuration = ConstU64<MILLISECS_PER_BLOCK>;
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
	type MaxFreezes = ConstU32<0>;
	type DoneSlashHandler = ();
}

parameter_types! {
	pub FeeMultiplier: pallet_transaction_payment::Multiplier = sp_runtime::traits::One::one();
}

impl pallet_transaction_payment::Config for Runtime {
	type RuntimeEvent = RuntimeEvent;
	type OnChargeTransaction = FungibleAdapter<Balances, ()>;
	type OperationalFeeMultiplier = ConstU8<5>;
	type WeightToFee = IdentityFee<Balance>;
	type LengthToFee = IdentityFee<Balance>;
	type FeeMultiplierUpdate = pallet_transaction_payment::ConstFeeMultiplier<FeeMultiplier>;
	type WeightInfo = ();
}

impl pallet_sudo::Config for Runtime {
	type RuntimeEvent = RuntimeEvent;
	type RuntimeCall = RuntimeCall;
	type WeightInfo = ();
}

impl pallet_did_registry::Config for Runtime {
	type Time = Timestamp;
	type OnDidDeleted = DeliveryPolicy;
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
	type ProofLongevity = ConstU64<64>;
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

	#[runtime::pallet_index(4)]
	pub type Balances = pallet_balances;

	#[runtime::pallet_index(5)]
	pub type TransactionPayment = pallet_transaction_payment;

	#[runtime::pallet_index(6)]
	pub type Sudo = pallet_sudo;

	#[runtime::pallet_index(8)]
	pub type DidRegistry = pallet_did_registry;

	#[runtime::pallet_index(9)]
	pub type DeliveryPolicy = pallet_delivery_policy;
}

/// The state of a development chain: one account is the authority, the operator and the superuser.
pub fn development_genesis(alice: [u8; 32], others: &[[u8; 32]]) -> RuntimeGenesisConfig {
	let endowed: Vec<[u8; 32]> = [&[alice], others].concat();
	RuntimeGenesisConfig {
		aura: pallet_aura::GenesisConfig { authorities: alloc::vec![sp_core::sr25519::Public::from_raw(alice).into()] },
		balances: pallet_balances::GenesisConfig {
			balances: endowed.into_iter().map(|account| (account.into(), 1_000_000 * UNIT)).collect(),
			..Default::default()
		},
		sudo: pallet_sudo::GenesisConfig { key: Some(alice.into()) },
		..Default::default()
	}
}

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
