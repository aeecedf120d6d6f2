/**
 * The rules of control actions: devices, deactivation, deletion, and the links to delivery policies.
 * Source: docs/ledger.md 1.4, 1.5 and 2.6, decisions section 10.
 */

import type { Did } from "../codec/did.ts";
import type { DeliveryPolicyLinks } from "../message/policy.ts";
import type { DidRecord } from "./account.ts";
import type { ControlAction } from "./authorization.ts";
import { type LedgerBounds, longerThan, scaleBounds } from "./bounds.ts";
import type { Change, LedgerInput } from "./change.ts";
import { type LedgerRefusal, refuse } from "./refusal.ts";

export function control(input: LedgerInput, action: ControlAction, record: DidRecord): Change | LedgerRefusal {
  const { did } = input.call;
  switch (action.kind) {
    case "add_device":
      return addDevice(input, action.deviceId, record);
    case "tombstone_device":
      return tombstoneDevice(did, action.deviceId, record);
    case "update_device":
      return updateDevice(did, action, record);
    case "remove_device":
      return removeDevice(did, action.deviceId, record);
    case "deactivate_did":
      return { record: { deactivated: true }, events: [{ name: "DidDeactivated", did }] };
    case "set_delivery_policy_links":
      return setLinks(did, action.links, input.bounds);
    case "clear_delivery_policy_links":
      return { record: { links: null }, events: [{ name: "DeliveryPolicyLinksCleared", did }] };
    case "delete_did":
      return deleteDid(did, record);
  }
}

/** Frees the DID, its aliases and its policies. Its counters are not part of the record and stand. */
function deleteDid(did: Did, record: DidRecord): Change {
  return {
    record: null,
    aliases: { set: [], removed: record.aliases },
    policies: [
      { scope: "recipient", key: did, policy: null },
      { scope: "tag", key: did, policy: null },
      { scope: "persona", key: did, policy: null },
    ],
    events: [{ name: "DidDeleted", did }],
  };
}

export function setLinks(did: Did, links: DeliveryPolicyLinks, bounds: LedgerBounds): Change | LedgerRefusal {
  const { recipientPolicy, tagPolicies, personaPolicies } = links;
  if (tagPolicies.length > bounds.policyRefs || personaPolicies.length > bounds.policyRefs) {
    return refuse("TooManyPolicyRefs");
  }
  for (const ref of [recipientPolicy ?? "", ...tagPolicies, ...personaPolicies]) {
    if (longerThan(ref, bounds.policyRefBytes)) return refuse("PolicyRefTooLong");
  }
  return {
    record: { links: { recipientPolicy, tagPolicies, personaPolicies } },
    events: [{ name: "DeliveryPolicyLinksSet", did }],
  };
}

/** Adding a device that is there clears its tombstone. */
function addDevice(input: LedgerInput, deviceId: string, record: DidRecord): Change | LedgerRefusal {
  const { did } = input.call;
  const events = [{ name: "DeviceAdded", did, deviceId }] as const;
  if (holdsDevice(record, deviceId)) {
    const devices = record.devices.map((held) => (held.deviceId === deviceId ? { ...held, tombstoned: false } : held));
    return { record: { devices }, events };
  }
  if (record.devices.length >= scaleBounds.devices) return refuse("TooManyDevices");
  const device = { deviceId, addedAtMs: BigInt(input.nowMs), tombstoned: false };
  return { record: { devices: [...record.devices, device] }, events };
}

function tombstoneDevice(did: Did, deviceId: string, record: DidRecord): Change | LedgerRefusal {
  if (!holdsDevice(record, deviceId)) return refuse("DeviceNotFound");
  const devices = record.devices.map((held) => (held.deviceId === deviceId ? { ...held, tombstoned: true } : held));
  return { record: { devices }, events: [{ name: "DeviceTombstoned", did, deviceId }] };
}

type UpdateDevice = Extract<ControlAction, { readonly kind: "update_device" }>;

/** Renames a device; the rest of its entry stands. */
function updateDevice(did: Did, action: UpdateDevice, record: DidRecord): Change | LedgerRefusal {
  const { oldDeviceId, newDeviceId } = action;
  if (!holdsDevice(record, oldDeviceId)) return refuse("DeviceNotFound");
  if (holdsDevice(record, newDeviceId)) return refuse("DeviceAlreadyExists");
  const devices = record.devices.map((held) =>
    held.deviceId === oldDeviceId ? { ...held, deviceId: newDeviceId } : held,
  );
  return { record: { devices }, events: [{ name: "DeviceUpdated", did, oldDeviceId, newDeviceId }] };
}

function removeDevice(did: Did, deviceId: string, record: DidRecord): Change | LedgerRefusal {
  if (!holdsDevice(record, deviceId)) return refuse("DeviceNotFound");
  const devices = record.devices.filter((held) => held.deviceId !== deviceId);
  return { record: { devices }, events: [{ name: "DeviceRemoved", did, deviceId }] };
}

function holdsDevice(record: DidRecord, deviceId: string): boolean {
  return record.devices.some((held) => held.deviceId === deviceId);
}
