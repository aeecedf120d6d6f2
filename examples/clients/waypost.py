"""A Waypost client in one file, written from docs/protocol.md: Python 3.10 and the package `cryptography` 47 or later.

python3 waypost.py http://127.0.0.1:7400 makes the whole journey: two identities, a signed text, a file of
20 chunks, and both received, checked and acknowledged.
"""
import base64, hashlib, json, os, sys, time, urllib.error, urllib.parse, urllib.request, uuid
from datetime import datetime, timedelta, timezone
from cryptography.hazmat.primitives import hashes, hpke
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

PROFILE = "svc:cbor-chunk:x25519-hkdf-sha256-chacha20poly1305:v1"
HYBRID = "svc:sealed:xwing-hkdf-sha256-chacha20poly1305:v2"
ANNOUNCED = {"type": "SvcKeyBundle2026", "publicKeyMultibase": "z25vzkbCDzqroPEXLMgSxXC65"}
CHUNK_BYTES = 1 << 20
ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


# ---- text forms

def b64(data): return base64.b64encode(data).decode()
def unb64(text): return base64.b64decode(text, validate=True)
def iso(moment): return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
def now(): return iso(datetime.now(timezone.utc))
def sha256(data): return hashlib.sha256(data).hexdigest()
def jcs(value): return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
def quote(text): return urllib.parse.quote(text, safe="")
def raw_public(secret): return secret.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def base58(data):
    number, text = int.from_bytes(data, "big"), ""
    while number:
        number, digit = divmod(number, 58)
        text = ALPHABET[digit] + text
    return "1" * (len(data) - len(data.lstrip(b"\0"))) + text


def unbase58(text):
    number = 0
    for character in text:
        number = number * 58 + ALPHABET.index(character)
    zeros = len(text) - len(text.lstrip("1"))
    return b"\0" * zeros + number.to_bytes((number.bit_length() + 7) // 8, "big")


def multibase_key(text):
    key = unbase58(text[1:])
    return key if len(key) == 32 else key[2:]


# ---- CBOR, as far as a sealed record needs it

def cbor_head(major, n):
    for code, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if n < 24: return bytes([major << 5 | n])
        if n < 1 << (8 * size): return bytes([major << 5 | code]) + n.to_bytes(size, "big")
    raise ValueError("too large")


def cbor(value):
    if isinstance(value, int): return cbor_head(0, value)
    if isinstance(value, bytes): return cbor_head(2, len(value)) + value
    if isinstance(value, str): return cbor_head(3, len(value.encode())) + value.encode()
    entries = sorted((cbor(name), cbor(member)) for name, member in value.items())
    return cbor_head(5, len(entries)) + b"".join(key + member for key, member in entries)


def uncbor(data):
    def head(at):
        major, n, at = data[at] >> 5, data[at] & 31, at + 1
        if n < 24: return major, n, at
        size = 1 << (n - 24)
        return major, int.from_bytes(data[at:at + size], "big"), at + size

    def value(at):
        if data[at] == 0xf6: return None, at + 1
        major, n, at = head(at)
        if major == 0: return n, at
        if major not in (2, 3) or at + n > len(data): raise ValueError("not a record")
        part = data[at:at + n]
        return (part if major == 2 else part.decode()), at + n

    major, count, at = head(0)
    if major != 5: raise ValueError("not a map")
    record = {}
    for _ in range(count):
        name, at = value(at)
        record[name], at = value(at)
    if at != len(data): raise ValueError("bytes left over")
    return record


# ---- SCALE, as far as the first document needs it

def scale(value):
    """Text, bytes or a list, with its length in front."""
    if isinstance(value, str): value = value.encode()
    n = len(value)
    head = bytes([n << 2]) if n < 64 else (n << 2 | 1).to_bytes(2, "little")
    return head + (value if isinstance(value, bytes) else b"".join(value))


def scale_document(document):
    key = lambda k: b"".join(scale(k[name]) for name in ("id", "type", "controller", "publicKeyMultibase"))
    ids = lambda listed: b"\1" + scale([scale(one) for one in listed])
    service = lambda s: (scale(s["id"]) + scale(s["type"]) + scale([scale(url) for url in s["serviceEndpoint"]])
                         + ids(s["authorization"]) + b"\0")
    return (scale(document["id"]) + scale([key(k) for k in document["verificationMethod"]]) + ids(document["authentication"])
            + scale([key(k) for k in document["keyAgreement"]]) + b"\1" + scale([service(s) for s in document["service"]]))


# ---- HTTP

def call(method, url, body=None, headers=None, attempts=4):
    """The answer's JSON. Passing failures are tried again with the same bytes."""
    request = urllib.request.Request(url, method=method, data=body, headers={
        "Accept": "application/json", **({"Content-Type": "application/json"} if body else {}), **(headers or {})})
    for attempt in range(attempts):
        try:
            with urllib.request.urlopen(request, timeout=20) as response:
                return json.loads(response.read())
        except urllib.error.HTTPError as error:
            answer = error.read().decode(errors="replace")
            if error.code not in (429, 502, 503, 507) or attempt == attempts - 1:
                raise RuntimeError(f"{method} {url}: {error.code} {answer}") from None
        except urllib.error.URLError:
            if attempt == attempts - 1: raise
        time.sleep(2 ** attempt)


class Identity:
    """Keys of one DID, and what it does with them. Keep the keys where nobody else reads."""

    def __init__(self, url, announces=False):
        """With `announces` it publishes a key bundle, and is sealed to in the second version."""
        self.url, self.announces = url.rstrip("/"), announces
        self.root, self.agreement, self.seed = Ed25519PrivateKey.generate(), X25519PrivateKey.generate(), os.urandom(32)
        self.limits = call("GET", self.url + "/limits")
        self.did = "did:svc:" + self.address()
        self.key_id = self.did + "#root"

    def address(self):
        """Derived from ledger and key, so that others can check it; random where the ledger has no such names."""
        if self.limits.get("self_certifying_dids"):
            genesis = bytes.fromhex(self.limits["genesis_hash"][2:])
            return base58(b"\xc9\xf4" + hashlib.sha256(b"svc:did:v1|" + genesis + raw_public(self.root)).digest()[:20])
        address = ""
        while len(address) < 16: address = base58(os.urandom(16))
        return address

    def sign(self, data): return b64(self.root.sign(data))

    def register(self):
        root = "z" + base58(b"\xed\x01" + raw_public(self.root))
        agreement = "z" + base58(b"\xec\x01" + raw_public(self.agreement))
        service = lambda name, kind: {"id": f"{self.did}#{name}", "type": kind, "serviceEndpoint": [self.url],
                                      "authorization": [self.key_id]}
        document = {
            "id": self.did, "authentication": [self.key_id],
            "verificationMethod": [{"id": self.key_id, "type": "Multikey", "controller": self.did,
                                    "publicKeyMultibase": root}],
            "keyAgreement": [{"id": self.did + "#x25519-1", "type": "X25519KeyAgreementKey2020",
                              "controller": self.did, "publicKeyMultibase": agreement},
                             *([{"id": self.did + "#keys", "controller": self.did, **ANNOUNCED}] if self.announces else [])],
            "service": [service("relay", "SvcRelayService"), service("cache", "SvcCacheService")],
        }
        timestamp, message = self.registration(document)
        call("POST", self.url + "/register-did", json.dumps({
            "did": self.did, "timestamp": timestamp, "root_pubkey": root, "signature": self.sign(message),
            "did_document": document}).encode())
        for _ in range(240):
            if call("GET", f"{self.url}/registration-status/{quote(self.did)}")["registration_status"] == "confirmed":
                return self.put_bundle() if self.announces else None
            time.sleep(0.25)
        raise RuntimeError("the registration did not settle")

    def registration(self, document):
        """Time and message of the proof: version 3, which a derived name needs, or version 1."""
        if not self.limits.get("self_certifying_dids"):
            timestamp = now()
            return timestamp, f"{self.did}|{timestamp}".encode()
        expiry = int(time.time() * 1000) + 300_000
        genesis, operator = (bytes.fromhex(self.limits[name][2:]) for name in ("genesis_hash", "operator_account"))
        return f"v3:0:{expiry}", b"".join([
            b"svc:register:v3|", scale(self.did), b"\0", scale(raw_public(self.root)),
            hashlib.blake2b(scale_document(document), digest_size=32).digest(),
            bytes(8), expiry.to_bytes(8, "little"), genesis, b"\1", operator])

    def put_bundle(self):
        """Makes the key of this week. Keep the seed until everything sealed to the key has expired."""
        public, issued = xwing_public(self.seed), datetime.now(timezone.utc)
        bundle = {"did": self.did, "key_id": sha256(public)[:32], "public_key_b64": b64(public), "issued_at": iso(issued),
                  "not_after": iso(issued + timedelta(days=7)), "signer": self.key_id}
        body = json.dumps(bundle | {"signature_b64": self.sign(bundle_text(bundle, public))}).encode()
        call("PUT", f"{self.url}/cache/keys/{quote(self.did)}", body, self.headers("keys", sha256(body)), attempts=1)

    # ---- sending

    def recipient_key(self, to):
        """The document that is believed, and the bundle that counts, where the document announces one."""
        document = call("GET", f"{self.url}/resolve/{quote(to)}")["document"]
        found = call("GET", f"{self.url}/delivery-resolution/{quote(to)}?keys=")
        if found["encryption_profile"] != "direct": raise RuntimeError("an unknown profile")
        if not any(ANNOUNCED.items() <= agreement.items() for agreement in document["keyAgreement"]): return found, None
        bundle = found.get("key_bundle")
        if bundle is None: raise RuntimeError(f"no key bundle now, try later: {found.get('key_bundle_missing')}")
        return found, check_bundle(bundle, to, document)

    def send(self, to, data, name="", media_type="text/plain;charset=utf-8", chunk_bytes=CHUNK_BYTES):
        found, bundled = self.recipient_key(to)
        total = max(1, -(-len(data) // chunk_bytes))
        # Names the author inside, so that nobody else can sign the ciphertext as their own.
        media_type += f";waypost=1;from={self.did}"
        facts = {"name": name, "media_type": media_type, "size_bytes": len(data), "sha256": hashlib.sha256(data).digest()}
        group, timestamp = str(uuid.uuid4()) if total > 1 else "", now()
        for sequence in range(total):
            part = data[sequence * chunk_bytes:(sequence + 1) * chunk_bytes]
            envelope = {"message_id": str(uuid.uuid4()), "to": to, "timestamp": timestamp, "ttl": "24h",
                        "delivery_hint": "chunked" if group else "standard", "from": self.did, "sender_key_id": self.key_id}
            if group: envelope |= {"message_group_id": group, "sequence_number": sequence, "total_chunks": total}
            record = {"format": "svc:binary-chunk:v1", **facts, "message_group_id": group,
                      "sequence_number": sequence, "total_chunks": total, "data": part}
            is_full = total > 1 and len(part) == chunk_bytes
            envelope["payload"] = seal_hybrid(record, envelope, bundled, is_full) if bundled else seal(record, envelope, found)
            envelope["sender_signature"] = self.sign(signed_text(envelope))
            result = call("POST", f"{self.url}/relay/{quote(to)}", json.dumps(envelope).encode())
            if result["success"] is not True: raise RuntimeError(result)
        return total

    # ---- receiving

    def proof(self, operation, subject):
        values = {"service_id": self.did + "#cache", "cache_endpoint": self.url, "key_id": self.key_id,
                  "timestamp": now(), "nonce": str(uuid.uuid4())}
        lines = ["svc:cache:retrieval-proof:v1", f"operation={operation}", f"did={self.did}", "device_id=",
                 *(f"{name}={value}" for name, value in values.items()), f"subject={subject}"]
        return values | {"signature_b64": self.sign("\n".join(lines).encode())}

    def headers(self, operation, subject):
        proof = self.proof(operation, subject)
        names = {"service_id": "X-Service-Id", "cache_endpoint": "X-Cache-Endpoint", "key_id": "X-Key-Id",
                 "timestamp": "X-Timestamp", "nonce": "X-Nonce", "signature_b64": "X-Signature"}
        return {names[name]: value for name, value in proof.items()}

    def read(self, path, operation, subject):
        return call("GET", self.url + path, headers=self.headers(operation, subject), attempts=1)

    def receive(self):
        """Every complete message as (facts, data, sender or None, ids). What can't be opened is reported."""
        path, query, envelopes = f"/cache/messages/{quote(self.did)}", "", []
        while True:
            page = self.read(path + query, "pull", "*")
            envelopes += [entry["envelope"] for entry in page["messages"]]
            if not page.get("next_cursor"): break
            query = "?cursor=" + quote(page["next_cursor"])
        groups = {}
        for envelope in envelopes:
            name = envelope.get("message_group_id") or envelope["message_id"]
            groups.setdefault(name, {})[envelope.get("sequence_number", 0)] = envelope
        for name, parts in groups.items():
            total = next(iter(parts.values())).get("total_chunks", 1)
            if len(parts) < total: continue
            try:
                yield self.join([parts[i] for i in range(total)])
            except (ValueError, KeyError, RuntimeError) as error:
                print(f"{name} can't be opened: {error}", file=sys.stderr)

    def join(self, envelopes):
        records = [self.open(envelope) for envelope in envelopes]
        data, facts = b"".join(record["data"] for record in records), records[0]
        if any(record["sha256"] != facts["sha256"] for record in records): raise ValueError("chunks of two files")
        if len(data) != facts["size_bytes"] or hashlib.sha256(data).digest() != facts["sha256"]:
            raise ValueError("not the file that was sent")
        named = {author(record["media_type"]) for record in records} - {None}
        verified = all(self.verify(envelope) and named <= {envelope["from"]} for envelope in envelopes)
        sender = envelopes[0].get("from") if verified else None
        return facts, data, sender, [envelope["message_id"] for envelope in envelopes]

    def open(self, envelope):
        if envelope["payload"].get("profile") == HYBRID: return unseal_hybrid(envelope, self.seed)
        return unseal(envelope, self.agreement)

    def verify(self, envelope):
        if "from" not in envelope: return False
        document = call("GET", f"{self.url}/resolve/{quote(envelope['from'])}")["document"]
        return holds(document, envelope["sender_key_id"], unb64(envelope["sender_signature"]), signed_text(envelope))

    def ack(self, ids):
        ids = sorted(set(ids))
        body = {"did": self.did, "message_ids": ids, **self.proof("ack", ",".join(ids))}
        return call("POST", self.url + "/cache/ack", json.dumps(body).encode(), attempts=1)["acked"]


def holds(document, key_id, signature, signed):
    """Whether a method in `authentication` has signed it."""
    if key_id not in document["authentication"]: return False
    method = next(m for m in document["verificationMethod"] if m["id"] == key_id)
    try:
        Ed25519PublicKey.from_public_bytes(multibase_key(method["publicKeyMultibase"])).verify(signature, signed)
        return True
    except Exception:
        return False


def author(media_type):
    """The DID that the sealed record names, "none" for nobody, or None."""
    parts = media_type.split(";")
    named = [part[5:] for part in parts if part.startswith("from=")] if "waypost=1" in parts else []
    return named[0] if named else None


# ---- sealing

def additional_data(envelope):
    return "|".join([PROFILE, envelope["message_id"], envelope["to"], envelope.get("message_group_id") or "",
                     str(envelope.get("sequence_number", 0)), str(envelope.get("total_chunks", 1))]).encode()


def content_key(shared, aad):
    return HKDF(hashes.SHA256(), 32, salt=hashlib.sha256(aad).digest(), info=PROFILE.encode()).derive(shared)


def seal(record, envelope, found):
    secret, nonce, aad = X25519PrivateKey.generate(), os.urandom(12), additional_data(envelope)
    recipient = X25519PublicKey.from_public_bytes(multibase_key(found["recipient_public_key_multibase"]))
    sealed = ChaCha20Poly1305(content_key(secret.exchange(recipient), aad)).encrypt(nonce, cbor(record), aad)
    return {"profile": PROFILE, "key_id": found["recipient_key_id"], "nonce_b64": b64(nonce),
            "ephemeral_x25519_b64": b64(raw_public(secret)), "ciphertext_b64": b64(sealed)}


def unseal(envelope, secret):
    payload, aad = envelope["payload"], additional_data(envelope)
    if payload.get("profile") != PROFILE: raise ValueError("another profile")
    shared = secret.exchange(X25519PublicKey.from_public_bytes(unb64(payload["ephemeral_x25519_b64"])))
    try:
        plain = ChaCha20Poly1305(content_key(shared, aad)).decrypt(
            unb64(payload["nonce_b64"]), unb64(payload["ciphertext_b64"]), aad)
    except Exception:
        raise ValueError("it can't be decrypted") from None
    return checked(uncbor(plain), envelope)


def checked(record, envelope):
    if isinstance(record["sha256"], str): record["sha256"] = bytes.fromhex(record["sha256"])
    if record["format"] != "svc:binary-chunk:v1" or not isinstance(record["data"], bytes): raise ValueError("not a record")
    placed = (record["message_group_id"] or "", record["sequence_number"], record["total_chunks"])
    if placed != (envelope.get("message_group_id") or "", envelope.get("sequence_number", 0), envelope.get("total_chunks", 1)):
        raise ValueError("the record belongs to another place")
    return record


# ---- sealing, second version

SUITE = hpke.Suite(hpke.KEM.MLKEM768_X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.CHACHA20_POLY1305)
ENC_BYTES, TAG_BYTES = 1120, 16
RECORD = {"format", "name", "media_type", "size_bytes", "sha256", "message_group_id", "sequence_number", "total_chunks", "data"}
SIGNED = {"from", "from_key", "proof_sha256", "signature"}


def xwing_secret(seed):
    expanded = hashlib.shake_256(seed).digest(96)
    return hpke.MLKEM768X25519PrivateKey(MLKEM768PrivateKey.from_seed_bytes(expanded[:64]),
                                         X25519PrivateKey.from_private_bytes(expanded[64:]))


def xwing_public(seed):
    expanded = hashlib.shake_256(seed).digest(96)
    return (MLKEM768PrivateKey.from_seed_bytes(expanded[:64]).public_key().public_bytes_raw()
            + raw_public(X25519PrivateKey.from_private_bytes(expanded[64:])))


def bundle_text(bundle, public):
    lines = [f"{name}={bundle[name]}" for name in ("did", "key_id", "issued_at", "not_after")]
    return "\n".join(["svc:key-bundle:v2", *lines, f"key_sha256={sha256(public)}"]).encode()


def check_bundle(bundle, to, document):
    """The public key of a bundle of which everything holds. A program that lives longer also remembers the newest one."""
    public, moment = unb64(bundle["public_key_b64"]), lambda name: datetime.fromisoformat(bundle[name].replace("Z", "+00:00"))
    issued, ends, present = moment("issued_at"), moment("not_after"), datetime.now(timezone.utc)
    if bundle["did"] != to or len(public) != 1216 or bundle["key_id"] != sha256(public)[:32]: raise RuntimeError("not its bundle")
    if not issued - timedelta(minutes=5) <= present < ends or ends - issued > timedelta(days=7): raise RuntimeError("its time is not now")
    if not holds(document, bundle["signer"], unb64(bundle["signature_b64"]), bundle_text(bundle, public)):
        raise RuntimeError("the recipient has not signed it")
    return public


def seal_info(envelope, public):
    named = {{"recipient": "to", "created_at": "timestamp"}.get(name, name): value for name, value in envelope.items()
             if name not in ("payload", "sender_signature")}
    return "\n".join([HYBRID, f"to={named['to']}", f"key_sha256={sha256(public)}", f"envelope_sha256={sha256(jcs(named))}"]).encode()


def padded(record, is_full, limit=CHUNK_BYTES + 4096):
    """The record, a mark, and zeros up to Padmé's length; a full chunk has none."""
    size = len(record) + 1
    exponent = size.bit_length() - 1
    unit = 1 << max(0, exponent - exponent.bit_length())
    wanted = size if is_full else max(size, min(-(-size // unit) * unit, limit - TAG_BYTES))
    return record + b"\x80" + bytes(wanted - size)


def seal_hybrid(record, envelope, public, is_full):
    key = hpke.MLKEM768X25519PublicKey(MLKEM768PublicKey.from_public_bytes(public[:1184]), X25519PublicKey.from_public_bytes(public[1184:]))
    sealed = SUITE.encrypt(padded(cbor(record), is_full), key, info=seal_info(envelope, public))
    return {"profile": HYBRID, "key_id": sha256(public)[:32], "enc_b64": b64(sealed[:ENC_BYTES]), "ciphertext_b64": b64(sealed[ENC_BYTES:])}


def unseal_hybrid(envelope, seed):
    payload, public = envelope["payload"], xwing_public(seed)
    if payload.get("profile") != HYBRID or payload.get("key_id") != sha256(public)[:32]: raise ValueError("another profile or key")
    if set(payload) != {"profile", "key_id", "enc_b64", "ciphertext_b64"}: raise ValueError("its payload is malformed")
    enc, ciphertext = unb64(payload["enc_b64"]), unb64(payload["ciphertext_b64"])
    if len(enc) != ENC_BYTES: raise ValueError("its payload is malformed")
    try:
        plain = SUITE.decrypt(enc + ciphertext, xwing_secret(seed), info=seal_info(envelope, public))
    except Exception:
        raise ValueError("it can't be decrypted") from None
    plain = plain.rstrip(b"\0")
    if not plain.endswith(b"\x80"): raise ValueError("nothing ends it before its padding")
    record = uncbor(plain[:-1])
    if cbor(record) != plain[:-1] or set(record) not in (RECORD, RECORD | SIGNED): raise ValueError("not a record")
    if len(record.get("signature", bytes(64))) != 64: raise ValueError("not a record")
    return checked(record, envelope)


def sealed_sender_text(record, envelope, public):
    """What `signature` in a record covers."""
    unsigned = cbor({name: value for name, value in record.items() if name != "signature"})
    place = seal_info(envelope, public).decode().split("\n")[1:]
    return "\n".join(["svc:sealed-sender:v2", f"from={record['from']}", f"key_id={record['from_key']}", *place,
                      f"record_sha256={sha256(unsigned)}"]).encode()


def signed_text(envelope):
    canonical = jcs(envelope["payload"])
    names = ["message_id", "from", "to", "timestamp", "ttl", "delivery_hint", "tag", "message_group_id",
             "sequence_number", "total_chunks"]
    return "\n".join(["svc:envelope-signature:v1", *(f"{name}={envelope.get(name, '')}" for name in names),
                      "header_sha256=", f"payload_sha256={hashlib.sha256(canonical).hexdigest()}",
                      f"key_id={envelope['sender_key_id']}"]).encode()


def check_vectors(path):
    for vector in json.load(open(path)):
        envelope = {"message_id": vector["message_id"], "to": vector["to"], "payload": vector["payload"],
                    "sequence_number": vector["sequence_number"], "total_chunks": vector["total_chunks"],
                    "message_group_id": vector["message_group_id"]}
        secret = X25519PrivateKey.from_private_bytes(bytes.fromhex(vector["recipient_secret"]))
        if vector["opens"]: assert unseal(envelope, secret)["data"].hex() == vector["opens"]["data"], vector["name"]
    print("vectors hold")


def check_hybrid(path):
    """What should open opens to what it says, what should not does not, and every text is the one that is written here."""
    vectors = json.load(open(path))
    for vector in vectors["keys"]:
        public = xwing_public(bytes.fromhex(vector["seed"]))
        assert (public.hex(), sha256(public)[:32]) == (vector["public_key"], vector["key_id"])
    for vector in vectors["padding"]:
        limit = vector["bytes_max"] + TAG_BYTES
        assert len(padded(bytes(vector["bytes"]), False, limit)) == vector["padded"], vector
    opened = 0
    for vector in vectors["envelopes"]:
        envelope, seed, name = vector["envelope"], bytes.fromhex(vector["seed"]), vector["name"]
        public = xwing_public(seed)
        try:
            record = unseal_hybrid(envelope, seed)
        except (ValueError, KeyError):
            assert vector["opens"] is None, name
            continue
        assert vector["opens"] is not None and record["data"].hex() == vector["opens"]["data"], name
        assert seal_info(envelope, public).decode() == vector["info"] and cbor(record).hex() == vector["record_cbor"], name
        if vector["signer"]:
            text = sealed_sender_text(record, envelope, public)
            assert text.decode() == vector["signer"]["text"], name
            Ed25519PublicKey.from_public_bytes(bytes.fromhex(vector["signer"]["public_key"])).verify(record["signature"], text)
        opened += 1
    print(f"{opened} of {len(vectors['envelopes'])} open")


def main(url):
    alice, bob = Identity(url), Identity(url, announces=True)
    alice.register(), bob.register()
    # Bob announces a key of the second version, Alice doesn't.
    bob.send(alice.did, b"Back at one.")
    assert [data for _, data, sender, _ in alice.receive() if sender == bob.did] == [b"Back at one."]
    alice.send(bob.did, "Meet me at noon.".encode())
    # Bob does not know Alice yet: all of it must fit where a stranger may write.
    part = 256 << 10
    file = os.urandom(20 * part)
    chunks = alice.send(bob.did, file, name="data.bin", media_type="application/octet-stream", chunk_bytes=part)
    got = list(bob.receive())
    for facts, data, sender, ids in got: bob.ack(ids)
    assert [sender for _, _, sender, _ in got] == [alice.did] * 2, "both are signed by alice"
    assert got[0][1].decode() == "Meet me at noon." and got[1][1] == file, "both arrived as they were sent"
    assert list(bob.receive()) == [], "nothing is left"
    print(json.dumps({"text": got[0][1].decode(), "chunks": chunks, "bytes": len(got[1][1]), "did": bob.did}))


if __name__ == "__main__":
    if len(sys.argv) == 4: {"vectors": check_vectors, "hybrid": check_hybrid}[sys.argv[2]](sys.argv[3])
    else: main(sys.argv[1])
