//! The checks that a node with `try-runtime` runs between blocks and around an upgrade, on the runtime itself: they
//! pass on a state that calls have made, and each notices when that state is damaged.

use crate::*;
use codec::Encode;
use frame_support::traits::{TryState, TryStateSelect, UpgradeCheckSelect};
use pallet_did_registry::{Alias, Did, DidDocument};
use sp_core::{ed25519, storage::Storage, Pair};

const DID: &[u8] = b"did:svc:1111111111111111111111";
const NOW: u64 = 1_800_000_000_000;

fn bounded<B: TryFrom<Vec<u8>>>(bytes: &[u8]) -> B {
	B::try_from(bytes.to_vec()).ok().expect("within the bound")
}

/// On a chain with one record, an alias and a policy of it.
fn on_chain(run: impl FnOnce(AccountId)) {
	let top = genesis::first_state("local_testnet").expect("the preset is known");
	sp_io::TestExternalities::new(Storage { top, ..Default::default() }).execute_with(|| {
		pallet_timestamp::Now::<Runtime>::put(NOW);
		let operator = genesis::ALICE.account();
		register(&operator);
		let policy = pallet_delivery_policy::DeliveryPolicy {
			effective_ttl: 1,
			max_message_bytes: 1,
			cache_eligible: true,
			replication: None,
			encrypted_header_preview_bytes: None,
			release_pricing: None,
			expiration_behavior: None,
		};
		let origin = RuntimeOrigin::signed(operator.clone());
		DeliveryPolicy::set_delivery_policy(origin, DID.to_vec(), policy).expect("the owner sets a policy");
		run(operator);
	});
}

fn register(operator: &AccountId) {
	let root = ed25519::Pair::from_seed(&[7; 32]);
	let blob = DidDocument::<Runtime>::empty(bounded(DID)).encode();
	let (key, expiry_ms) = (root.public().0.to_vec(), NOW + 1);
	let hash = sp_io::hashing::blake2_256(&blob);
	let alias = Some(b"team".to_vec());
	let tail = (DID.to_vec(), alias, &key, hash, 0u64, expiry_ms, DidRegistry::genesis_hash(), Some(operator));
	let signature = root.sign(&[b"svc:register:v3|", &tail.encode()[..]].concat()).0.to_vec();
	DidRegistry::register_with_document_proof_signed(
		RuntimeOrigin::signed(operator.clone()),
		DID.to_vec(),
		Some(b"team".to_vec()),
		format!("v3:0:{expiry_ms}").into_bytes(),
		key,
		signature,
		blob,
	)
	.expect("the registration is signed for this chain and account");
}

fn checked() -> Result<(), sp_runtime::TryRuntimeError> {
	AllPalletsWithSystem::try_state(System::block_number(), TryStateSelect::All)
}

#[test]
fn a_state_that_calls_have_made_is_whole() {
	on_chain(|_| assert_eq!(checked(), Ok(())));
}

#[test]
fn an_upgrade_keeps_the_state_whole() {
	on_chain(|_| {
		Executive::try_runtime_upgrade(UpgradeCheckSelect::All).expect("both states are whole");
	});
}

/// What calls made of the state on the version before: `bun run before` in test/chain wrote it, with the runtime that was
/// kept then.
const BEFORE: &str = include_str!("../before/8.json");

fn state_before() -> Storage {
	let bytes = |hex: &str| {
		let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex digits");
		(2..hex.len()).step_by(2).map(digits).collect::<Vec<u8>>()
	};
	let entries: std::collections::BTreeMap<String, String> = serde_json::from_str(BEFORE).expect("one object");
	let top = entries.iter().map(|(key, value)| (bytes(key), bytes(value))).collect();
	Storage { top, ..Default::default() }
}

#[test]
fn the_state_of_the_version_before_is_upgraded_whole() {
	sp_io::TestExternalities::new(state_before()).execute_with(|| {
		let version = || System::last_runtime_upgrade_spec_version();
		let records = || pallet_did_registry::Dids::<Runtime>::iter().collect::<Vec<_>>();
		let before = records();
		assert_eq!((version(), before.len()), (VERSION.spec_version - 1, 3));
		Executive::try_runtime_upgrade(UpgradeCheckSelect::All).expect("the state is whole before and after");
		assert_eq!(version(), VERSION.spec_version);
		assert_eq!(records().encode(), before.encode());
		assert_eq!(checked(), Ok(()));
	});
}

#[test]
fn every_damage_is_noticed() {
	let damages: [fn(AccountId); 8] = [
		|_| pallet_did_registry::AliasIndex::<Runtime>::remove(bounded::<Alias<Runtime>>(b"team")),
		|_| pallet_did_registry::Dids::<Runtime>::remove(bounded::<Did<Runtime>>(DID)),
		|_| {
			pallet_did_registry::Dids::<Runtime>::mutate(bounded::<Did<Runtime>>(DID), |record| {
				record.as_mut().expect("it stands").version = 0;
			})
		},
		|operator| pallet_did_registry::Deposits::<Runtime>::insert(bounded::<Did<Runtime>>(DID), (operator, 1)),
		|_| {
			let reserve = pallet_did_registry::Reserve { did: bounded(DID), life: 0, until_ms: 1 };
			pallet_did_registry::ReleasedAliases::<Runtime>::insert(bounded::<Alias<Runtime>>(b"free"), reserve)
		},
		|_| {
			pallet_did_registry::ReleasesOf::<Runtime>::insert(
				bounded::<Did<Runtime>>(DID),
				sp_runtime::BoundedVec::truncate_from(vec![bounded(b"free")]),
			)
		},
		|_| pallet_did_registry::ProofAllowances::<Runtime>::insert(bounded::<Did<Runtime>>(b"did:svc:none"), 1),
		|_| {
			let policy = pallet_delivery_policy::RecipientPolicies::<Runtime>::get(bounded::<Did<Runtime>>(DID));
			let other = bounded::<Did<Runtime>>(b"did:svc:none");
			pallet_delivery_policy::RecipientPolicies::<Runtime>::set(other, policy)
		},
	];
	for (number, damage) in damages.into_iter().enumerate() {
		on_chain(|operator| {
			damage(operator);
			assert!(checked().is_err(), "damage {number}");
		});
	}
}
