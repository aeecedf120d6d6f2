/*
 * Log, map, witness, restore and clients, as docs/trust.md describes them. `bun run model` checks it: each `check` must
 * hold, and each `run` must find what goes wrong without one of the rules.
 *
 * The log is whatever its operator makes of it, except where `honest` is said. A client accepts a value of a key at a
 * head that the witness cosigned. Hashes and signatures are perfect: a head is what it commits to. Sizes count batches.
 * Left out: times (freshness), standard witnesses, more than one witness, and the bytes of proofs (property tests have
 * those).
 */
module log

enum Rule {
  Durable,           -- the witness writes before its signature leaves
  RootIsLeaf,        -- the root of the map is a leaf, not an extension line of the checkpoint
  Replays,           -- the witness replays the leaves and compares the map
  LooksBeforeSigning -- the log compares its store, the last head beside its key and the witness before it signs
}
one sig Rules { on: set Rule }

sig Key, Value {}

sig Head {
  earlier: lone Head,
  added: Key -> lone Value, -- the leaves of the last batch
  shown: Key -> lone Value  -- the map under the root that it shows
}
fact { no h: Head | h in h.^earlier }
fact { all g, h: Head | g.earlier = h.earlier and g.added = h.added and g.shown = h.shown implies g = h }

fun size[h: Head]: Int { #(h.*earlier) }

-- What the leaves say: the last value of each key.
fun replayed[h: Head]: Key -> Value {
  { k: Key, v: Value | some g: h.*earlier | k -> v in g.added and no f: h.*earlier - g.*earlier | some f.added[k] }
}

one sig Witness { var disk, answering: lone Head }
one sig Log { var store, file: lone Head, var signed: set Head }
one sig Clients { var cosigned: set Head } -- heads whose cosignature somebody has

-- An extension line is not part of what a witness states: then heads with the same leaves pass for each other.
fun accepted: set Head {
  RootIsLeaf in Rules.on
    implies Clients.cosigned
    else { h: Head | some c: Clients.cosigned | c.earlier = h.earlier and c.added = h.added }
}

fact begins { no Witness.disk and no Witness.answering and no Clients.cosigned and no Log.store and no Log.file and no Log.signed }

------------------------------------------------------------------------------------------------------------ witness

pred offer[h: Head] {
  no Witness.answering
  Witness.disk in h.*earlier
  Replays in Rules.on implies all g: h.*earlier - Witness.disk.*earlier | g.shown = replayed[g]
  answering' = Witness -> h
  Durable in Rules.on implies disk' = Witness -> h else disk' = disk
  cosigned' = cosigned and log_stays
}
pred leave { -- the signature leaves
  some Witness.answering
  cosigned' = cosigned + Clients -> Witness.answering
  disk' = disk and log_stays
  Durable in Rules.on implies no answering' else answering' = answering
}
pred write { -- too late
  Durable not in Rules.on and Witness.answering in Clients.cosigned and some Witness.answering
  disk' = answering and no answering'
  cosigned' = cosigned and log_stays
}
pred killed { no answering' and disk' = disk and cosigned' = cosigned and log_stays }
pred witness_stays { answering' = answering and disk' = disk and cosigned' = cosigned }

---------------------------------------------------------------------------------------------------------------- log

pred append[h: Head] {
  h.earlier = Log.store and h.shown = replayed[h]
  store' = Log -> h and file' = file and signed' = signed and witness_stays
}
pred sign_head {
  some Log.store
  LooksBeforeSigning in Rules.on implies Log.file + Witness.disk in Log.store.*earlier
  signed' = signed + Log -> Log.store and file' = store and store' = store and witness_stays
}
pred restore { -- of a backup of the store; the file beside the key is not in it
  store' in Log -> Log.store.*earlier and lone store'
  file' = file and signed' = signed and witness_stays
}
pred log_stays { store' = store and file' = file and signed' = signed }

fact moves {
  always (
    (some h: Head | offer[h] or append[h]) or leave or write or killed or sign_head or restore
    or (witness_stays and log_stays)
  )
}
-- A witness gets from an honest log what it signed.
pred honest { always all h: Head | offer[h] implies h in Log.signed }

------------------------------------------------------------------------------------------------------- what must hold

pred one_value { all g, h: accepted | size[g] = size[h] implies g.shown = h.shown }
pred true_value { all h: accepted | h.shown = replayed[h] }
pred no_fork { all g, h: Log.signed | g in h.*earlier or h in g.*earlier }
pred never_accused { some Log.store and Log.store in Log.signed implies Witness.disk in Log.store.*earlier or Log.store in Witness.disk.*earlier }

-- Clients that share an honest replaying witness accept one value for a key and a size, whatever the log does.
OneValue: check { Rules.on = Rule implies always one_value } for 4 but exactly 1 Key, 2 Value, 8 steps
-- It is the value that the leaves give: who watches the leaves misses nothing.
TrueValue: check { Rules.on = Rule implies always true_value } for 4 but 2 Key, 2 Value, 7 steps
-- An honest log signs one chain of heads, through restores.
NoFork: check { Rules.on = Rule and honest implies always (no_fork and never_accused) } for 4 but 1 Key, 2 Value, 9 steps

-- Nothing above holds because nothing can happen.
Lives: run { Rules.on = Rule and honest and eventually (some h: accepted | size[h] = 3) } for 4 but 1 Key, 2 Value, 12 steps
-- Each rule is needed.
NotDurable: run { Rules.on = Rule - Durable and eventually not one_value } for 4 but 1 Key, 2 Value, 8 steps
RootBesideTree: run { Rules.on = Rule - RootIsLeaf and eventually not one_value } for 4 but 1 Key, 2 Value, 8 steps
NoReplay: run { Rules.on = Rule - Replays and eventually not true_value } for 4 but 1 Key, 2 Value, 8 steps
SignsBlindly: run { Rules.on = Rule - LooksBeforeSigning and honest and eventually not no_fork } for 4 but 1 Key, 2 Value, 8 steps
