// A Waypost client in one file, written from docs/protocol.md: the standard library (Go 1.26) and golang.org/x/crypto.
//
// go run . http://127.0.0.1:7400 makes the whole journey: two identities, a signed text, a file of 20 chunks,
// and both received, checked and acknowledged.
package main

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/hpke"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"math/bits"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sort"
	"strings"
	"time"

	"golang.org/x/crypto/blake2b"
	"golang.org/x/crypto/chacha20poly1305"
	"golang.org/x/crypto/hkdf"
)

const (
	profile  = "svc:cbor-chunk:x25519-hkdf-sha256-chacha20poly1305:v1"
	hybrid   = "svc:sealed:xwing-hkdf-sha256-chacha20poly1305:v2"
	format   = "svc:binary-chunk:v1"
	alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
)

// An agreement of a document that announces key bundles.
const announcedType, announcedValue = "SvcKeyBundle2026", "z25vzkbCDzqroPEXLMgSxXC65"

type object = map[string]any

// ---- text forms

func random(n int) []byte {
	data := make([]byte, n)
	if _, err := rand.Read(data); err != nil {
		panic(err)
	}
	return data
}

func uuid() string {
	b := random(16)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func now() string              { return time.Now().UTC().Format("2006-01-02T15:04:05.000Z") }
func b64(data []byte) string   { return base64.StdEncoding.EncodeToString(data) }
func quote(text string) string { return strings.ReplaceAll(url.QueryEscape(text), "+", "%20") }
func text(o object, name string) string {
	value, _ := o[name].(string)
	return value
}

func number(o object, name string, absent int) int {
	if value, ok := o[name].(float64); ok {
		return int(value)
	}
	if value, ok := o[name].(int); ok {
		return value
	}
	return absent
}

func base58(data []byte) string {
	out, n, mod := "", new(big.Int).SetBytes(data), new(big.Int)
	for n.Sign() > 0 {
		n.DivMod(n, big.NewInt(58), mod)
		out = string(alphabet[mod.Int64()]) + out
	}
	for i := 0; i < len(data) && data[i] == 0; i++ {
		out = "1" + out
	}
	return out
}

// multibaseKey reads 32 bytes, bare or behind a two-byte prefix.
func multibaseKey(text string) ([]byte, error) {
	n := new(big.Int)
	for _, c := range strings.TrimPrefix(text, "z") {
		digit := strings.IndexRune(alphabet, c)
		if digit < 0 {
			return nil, errors.New("not base58")
		}
		n.Add(n.Mul(n, big.NewInt(58)), big.NewInt(int64(digit)))
	}
	data := n.Bytes()
	if len(data) == 34 {
		return data[2:], nil
	}
	if len(data) > 32 {
		return nil, errors.New("not a key")
	}
	return append(make([]byte, 32-len(data)), data...), nil
}

// ---- CBOR, as far as a sealed record needs it

func head(major byte, n uint64) []byte {
	switch {
	case n < 24:
		return []byte{major<<5 | byte(n)}
	case n < 1<<8:
		return []byte{major<<5 | 24, byte(n)}
	case n < 1<<16:
		return binary.BigEndian.AppendUint16([]byte{major<<5 | 25}, uint16(n))
	case n < 1<<32:
		return binary.BigEndian.AppendUint32([]byte{major<<5 | 26}, uint32(n))
	}
	return binary.BigEndian.AppendUint64([]byte{major<<5 | 27}, n)
}

func cbor(value any) []byte {
	switch v := value.(type) {
	case int:
		return head(0, uint64(v))
	case []byte:
		return append(head(2, uint64(len(v))), v...)
	case string:
		return append(head(3, uint64(len(v))), v...)
	case object:
		entries := [][2][]byte{}
		for name, member := range v {
			entries = append(entries, [2][]byte{cbor(name), cbor(member)})
		}
		sort.Slice(entries, func(i, j int) bool { return bytes.Compare(entries[i][0], entries[j][0]) < 0 })
		out := head(5, uint64(len(entries)))
		for _, entry := range entries {
			out = append(append(out, entry[0]...), entry[1]...)
		}
		return out
	}
	panic("a type that records do not hold")
}

func readHead(r *bytes.Reader) (byte, uint64, error) {
	first, err := r.ReadByte()
	if err != nil {
		return 0, 0, err
	}
	n := uint64(first & 31)
	if n < 24 {
		return first >> 5, n, nil
	}
	if n > 27 {
		return 0, 0, errors.New("not a record")
	}
	long := make([]byte, 8)
	_, err = io.ReadFull(r, long[8-(1<<(n-24)):])
	return first >> 5, binary.BigEndian.Uint64(long), err
}

func readValue(r *bytes.Reader) (any, error) {
	if first, err := r.ReadByte(); err == nil && first == 0xf6 {
		return nil, nil
	}
	if err := r.UnreadByte(); err != nil {
		return nil, err
	}
	major, n, err := readHead(r)
	if err != nil || major == 0 {
		return int(n), err
	}
	if major != 2 && major != 3 || n > uint64(r.Len()) {
		return nil, errors.New("not a record")
	}
	part := make([]byte, n)
	_, err = io.ReadFull(r, part)
	if major == 3 {
		return string(part), err
	}
	return part, err
}

func uncbor(data []byte) (object, error) {
	r := bytes.NewReader(data)
	major, count, err := readHead(r)
	if err != nil || major != 5 || count > 100 {
		return nil, errors.New("not a map")
	}
	record := object{}
	for ; count > 0; count-- {
		name, err := readValue(r)
		if err != nil {
			return nil, err
		}
		member, err := readValue(r)
		key, isText := name.(string)
		if err != nil || !isText {
			return nil, errors.New("not a record")
		}
		record[key] = member
	}
	if r.Len() > 0 {
		return nil, errors.New("bytes left over")
	}
	return record, nil
}

// ---- HTTP

// call sends, and sends the same bytes again after a passing failure.
func call(method, address string, body object, headers map[string]string, attempts int) (object, error) {
	var sent []byte
	if body != nil {
		sent, _ = json.Marshal(body)
	}
	client := &http.Client{Timeout: 20 * time.Second}
	for attempt := 1; ; attempt++ {
		request, err := http.NewRequest(method, address, bytes.NewReader(sent))
		if err != nil {
			return nil, err
		}
		request.Header.Set("Accept", "application/json")
		if body != nil {
			request.Header.Set("Content-Type", "application/json")
		}
		for name, value := range headers {
			request.Header.Set(name, value)
		}
		response, err := client.Do(request)
		passing := err != nil
		if err == nil {
			answer, readErr := io.ReadAll(io.LimitReader(response.Body, 96<<20))
			response.Body.Close()
			if response.StatusCode < 300 && readErr == nil {
				out := object{}
				return out, json.Unmarshal(answer, &out)
			}
			code := response.StatusCode
			passing = readErr != nil || code == 429 || code == 502 || code == 503 || code == 507
			err = fmt.Errorf("%s %s: %d %s", method, address, code, answer)
		}
		if !passing || attempt >= attempts {
			return nil, err
		}
		time.Sleep(time.Second << (attempt - 1))
	}
}

// ---- SCALE, as far as the first document needs it

// With the number of parts, or of bytes, in front.
func scaled(n int, data []byte) []byte {
	if n < 64 {
		return append([]byte{byte(n << 2)}, data...)
	}
	return append(binary.LittleEndian.AppendUint16(nil, uint16(n<<2|1)), data...)
}

func scale(data []byte) []byte { return scaled(len(data), data) }

func scaleIDs(ids []string) []byte {
	var out []byte
	for _, id := range ids {
		out = append(out, scale([]byte(id))...)
	}
	return scaled(len(ids), out)
}

func scaleKeys(keys []object) []byte {
	var out []byte
	for _, key := range keys {
		for _, name := range []string{"id", "type", "controller", "publicKeyMultibase"} {
			out = append(out, scale([]byte(text(key, name)))...)
		}
	}
	return scaled(len(keys), out)
}

func scaleDocument(document object) []byte {
	services := document["service"].([]object)
	var out []byte
	for _, service := range services {
		out = bytes.Join([][]byte{out, scale([]byte(text(service, "id"))), scale([]byte(text(service, "type"))),
			scaleIDs(service["serviceEndpoint"].([]string)), {1}, scaleIDs(service["authorization"].([]string)), {0}}, nil)
	}
	return bytes.Join([][]byte{scale([]byte(text(document, "id"))), scaleKeys(document["verificationMethod"].([]object)),
		{1}, scaleIDs(document["authentication"].([]string)), scaleKeys(document["keyAgreement"].([]object)),
		{1}, scaled(len(services), out)}, nil)
}

// ---- an identity

// Identity holds the keys of one DID. Keep them where nobody else reads.
type Identity struct {
	url, did, keyID string
	limits          object
	root            ed25519.PrivateKey
	announces       bool
	seed            []byte
	agreement       *ecdh.PrivateKey
}

// With announces it publishes a key bundle, and is sealed to in the second version.
func newIdentity(address string, announces bool) *Identity {
	_, root, _ := ed25519.GenerateKey(rand.Reader)
	agreement, _ := ecdh.X25519().GenerateKey(rand.Reader)
	me := &Identity{url: strings.TrimRight(address, "/"), root: root, agreement: agreement, announces: announces, seed: random(32)}
	me.limits, _ = call("GET", me.url+"/limits", nil, nil, 4)
	me.did = "did:svc:" + me.address()
	me.keyID = me.did + "#root"
	return me
}

// Whether names are derived from ledger and key, so that others can check them.
func (me *Identity) derived() bool { return me.limits["self_certifying_dids"] == true }

func (me *Identity) public() []byte { return me.root.Public().(ed25519.PublicKey) }

func (me *Identity) hash(name string) []byte {
	value, _ := hex.DecodeString(strings.TrimPrefix(text(me.limits, name), "0x"))
	return value
}

func (me *Identity) address() string {
	if me.derived() {
		digest := sha256.Sum256(bytes.Join([][]byte{[]byte("svc:did:v1|"), me.hash("genesis_hash"), me.public()}, nil))
		return base58(append([]byte{0xc9, 0xf4}, digest[:20]...))
	}
	address := ""
	for len(address) < 16 {
		address = base58(random(16))
	}
	return address
}

// Time and message of the proof: version 3, which a derived name needs, or version 1.
func (me *Identity) registration(document object) (string, []byte) {
	if !me.derived() {
		timestamp := now()
		return timestamp, []byte(me.did + "|" + timestamp)
	}
	expiry := time.Now().UnixMilli() + 300_000
	digest := blake2b.Sum256(scaleDocument(document))
	return fmt.Sprintf("v3:0:%d", expiry), bytes.Join([][]byte{
		[]byte("svc:register:v3|"), scale([]byte(me.did)), {0}, scale(me.public()), digest[:], make([]byte, 8),
		binary.LittleEndian.AppendUint64(nil, uint64(expiry)), me.hash("genesis_hash"), {1}, me.hash("operator_account"),
	}, nil)
}

func (me *Identity) sign(data []byte) string { return b64(ed25519.Sign(me.root, data)) }

func (me *Identity) register() error {
	root := "z" + base58(append([]byte{0xed, 1}, me.root.Public().(ed25519.PublicKey)...))
	agreement := "z" + base58(append([]byte{0xec, 1}, me.agreement.PublicKey().Bytes()...))
	component := func(id, kind, key string) object {
		return object{"id": id, "type": kind, "controller": me.did, "publicKeyMultibase": key}
	}
	service := func(name, kind string) object {
		return object{"id": me.did + "#" + name, "type": kind, "serviceEndpoint": []string{me.url}, "authorization": []string{me.keyID}}
	}
	document := object{
		"id": me.did, "authentication": []string{me.keyID},
		"verificationMethod": []object{component(me.keyID, "Multikey", root)},
		"keyAgreement":       []object{component(me.did+"#x25519-1", "X25519KeyAgreementKey2020", agreement)},
		"service":            []object{service("relay", "SvcRelayService"), service("cache", "SvcCacheService")},
	}
	if me.announces {
		announced := component(me.did+"#keys", announcedType, announcedValue)
		document["keyAgreement"] = append(document["keyAgreement"].([]object), announced)
	}
	timestamp, message := me.registration(document)
	_, err := call("POST", me.url+"/register-did", object{
		"did": me.did, "timestamp": timestamp, "root_pubkey": root, "signature": me.sign(message), "did_document": document,
	}, nil, 4)
	for i := 0; err == nil && i < 240; i++ {
		var status object
		status, err = call("GET", me.url+"/registration-status/"+quote(me.did), nil, nil, 4)
		if text(status, "registration_status") == "confirmed" && me.announces {
			return me.putBundle()
		}
		if text(status, "registration_status") == "confirmed" {
			return nil
		}
		time.Sleep(250 * time.Millisecond)
	}
	return errors.Join(errors.New("the registration did not settle"), err)
}

// putBundle makes the key of this week. Keep the seed until everything sealed to the key has expired.
func (me *Identity) putBundle() error {
	secret, err := xwing.NewPrivateKey(me.seed)
	if err != nil {
		return err
	}
	public, issued := secret.PublicKey().Bytes(), time.Now().UTC()
	bundle := object{"did": me.did, "key_id": digest(public)[:32], "public_key_b64": b64(public), "signer": me.keyID,
		"issued_at": issued.Format(moment), "not_after": issued.Add(7 * 24 * time.Hour).Format(moment)}
	bundle["signature_b64"] = me.sign(bundleText(bundle, public))
	body, err := json.Marshal(bundle)
	if err != nil {
		return err
	}
	_, err = call("PUT", me.url+"/cache/keys/"+quote(me.did), bundle, me.headers("keys", digest(body)), 1)
	return err
}

// ---- sending

// recipientKey is the X-Wing key of a recipient whose document announces one, after every check; nil for others.
func (me *Identity) recipientKey(to string) (found object, key []byte, err error) {
	record, err := call("GET", me.url+"/resolve/"+quote(to), nil, nil, 4)
	if err == nil {
		found, err = call("GET", me.url+"/delivery-resolution/"+quote(to)+"?keys=", nil, nil, 4)
	}
	if err != nil {
		return nil, nil, err
	}
	if text(found, "encryption_profile") != "direct" {
		return nil, nil, errors.New("an unknown profile")
	}
	document, _ := record["document"].(object)
	agreements, _ := document["keyAgreement"].([]any)
	announced := slices.ContainsFunc(agreements, func(one any) bool {
		agreement, _ := one.(object)
		return text(agreement, "type") == announcedType && text(agreement, "publicKeyMultibase") == announcedValue
	})
	if !announced {
		return found, nil, nil
	}
	bundle, _ := found["key_bundle"].(object)
	if bundle == nil {
		return nil, nil, fmt.Errorf("no key bundle now, try later: %s", text(found, "key_bundle_missing"))
	}
	key, err = checkBundle(bundle, to, document)
	return found, key, err
}

func (me *Identity) send(to string, data []byte, name, mediaType string, chunkBytes int) (int, error) {
	found, key, err := me.recipientKey(to)
	if err != nil {
		return 0, err
	}
	// Names the author inside, so that nobody else can sign the ciphertext as their own.
	mediaType += ";waypost=1;from=" + me.did
	total, group, timestamp, whole := max(1, (len(data)+chunkBytes-1)/chunkBytes), "", now(), sha256.Sum256(data)
	if total > 1 {
		group = uuid()
	}
	for sequence := 0; sequence < total; sequence++ {
		part := data[sequence*chunkBytes : min(len(data), (sequence+1)*chunkBytes)]
		envelope := object{"message_id": uuid(), "to": to, "timestamp": timestamp, "ttl": "24h",
			"delivery_hint": "standard", "from": me.did, "sender_key_id": me.keyID}
		if group != "" {
			envelope["delivery_hint"], envelope["message_group_id"] = "chunked", group
			envelope["sequence_number"], envelope["total_chunks"] = sequence, total
		}
		record := object{"format": format, "name": name, "media_type": mediaType, "size_bytes": len(data), "sha256": whole[:],
			"message_group_id": group, "sequence_number": sequence, "total_chunks": total, "data": part}
		var payload object
		if key == nil {
			payload, err = seal(record, envelope, found)
		} else {
			payload, err = sealHybrid(record, envelope, key, total > 1 && len(part) == chunkBytes)
		}
		if err != nil {
			return 0, err
		}
		envelope["payload"] = payload
		envelope["sender_signature"] = me.sign(signedText(envelope))
		result, err := call("POST", me.url+"/relay/"+quote(to), envelope, nil, 4)
		if err != nil {
			return 0, err
		}
		if result["success"] != true {
			return 0, fmt.Errorf("not delivered: %v", result)
		}
	}
	return total, nil
}

// ---- receiving

// proof answers name and value in the order of the signed lines, the signature last.
func (me *Identity) proof(operation, subject string) [][2]string {
	values := [][2]string{{"service_id", me.did + "#cache"}, {"cache_endpoint", me.url}, {"key_id", me.keyID},
		{"timestamp", now()}, {"nonce", uuid()}}
	lines := []string{"svc:cache:retrieval-proof:v1", "operation=" + operation, "did=" + me.did, "device_id="}
	for _, value := range values {
		lines = append(lines, value[0]+"="+value[1])
	}
	lines = append(lines, "subject="+subject)
	return append(values, [2]string{"signature_b64", me.sign([]byte(strings.Join(lines, "\n")))})
}

func (me *Identity) headers(operation, subject string) map[string]string {
	names := map[string]string{"service_id": "X-Service-Id", "cache_endpoint": "X-Cache-Endpoint", "key_id": "X-Key-Id",
		"timestamp": "X-Timestamp", "nonce": "X-Nonce", "signature_b64": "X-Signature"}
	headers := map[string]string{}
	for _, value := range me.proof(operation, subject) {
		headers[names[value[0]]] = value[1]
	}
	return headers
}

func (me *Identity) read(path, operation, subject string) (object, error) {
	return call("GET", me.url+path, nil, me.headers(operation, subject), 1)
}

// Message is a complete message; From is empty unless every signature holds.
type Message struct {
	Name, MediaType, From string
	Data                  []byte
	IDs                   []string
}

func (me *Identity) receive() ([]Message, error) {
	order, groups, query := []string{}, map[string]map[int]object{}, ""
	for {
		page, err := me.read("/cache/messages/"+quote(me.did)+query, "pull", "*")
		if err != nil {
			return nil, err
		}
		entries, _ := page["messages"].([]any)
		for _, entry := range entries {
			envelope, _ := entry.(object)["envelope"].(object)
			name := text(envelope, "message_group_id")
			if name == "" {
				name = text(envelope, "message_id")
			}
			if groups[name] == nil {
				order, groups[name] = append(order, name), map[int]object{}
			}
			groups[name][number(envelope, "sequence_number", 0)] = envelope
		}
		if text(page, "next_cursor") == "" {
			break
		}
		query = "?cursor=" + quote(text(page, "next_cursor"))
	}
	messages := []Message{}
	for _, name := range order {
		message, err := me.join(groups[name])
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s can't be opened: %v\n", name, err)
		} else if message != nil {
			messages = append(messages, *message)
		}
	}
	return messages, nil
}

// join answers nil while chunks are missing.
func (me *Identity) join(parts map[int]object) (*Message, error) {
	message, first, signed := Message{}, object{}, true
	for _, part := range parts {
		if number(part, "total_chunks", 1) != len(parts) {
			return nil, nil
		}
	}
	for i := 0; i < len(parts); i++ {
		envelope, ok := parts[i]
		if !ok {
			return nil, nil
		}
		record, err := me.open(envelope)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			first = record
			message.Name, message.MediaType, message.From = text(record, "name"), text(record, "media_type"), text(envelope, "from")
		}
		if !bytes.Equal(record["sha256"].([]byte), first["sha256"].([]byte)) || text(envelope, "from") != message.From {
			return nil, errors.New("chunks of two files")
		}
		named := author(text(record, "media_type"))
		signed = signed && me.verify(envelope) && (named == "" || named == message.From)
		message.Data = append(message.Data, record["data"].([]byte)...)
		message.IDs = append(message.IDs, text(envelope, "message_id"))
	}
	whole := sha256.Sum256(message.Data)
	if len(message.Data) != first["size_bytes"] || !bytes.Equal(whole[:], first["sha256"].([]byte)) {
		return nil, errors.New("not the file that was sent")
	}
	if !signed {
		message.From = ""
	}
	return &message, nil
}

func (me *Identity) open(envelope object) (object, error) {
	if payload, _ := envelope["payload"].(object); text(payload, "profile") == hybrid {
		return unsealHybrid(envelope, me.seed)
	}
	return unseal(envelope, me.agreement)
}

// author is the DID that the sealed record names, "none" for nobody, or empty.
func author(mediaType string) string {
	parts := strings.Split(mediaType, ";")
	for _, part := range parts {
		if named, found := strings.CutPrefix(part, "from="); found && slices.Contains(parts, "waypost=1") {
			return named
		}
	}
	return ""
}

func (me *Identity) verify(envelope object) bool {
	if text(envelope, "from") == "" {
		return false
	}
	record, err := call("GET", me.url+"/resolve/"+quote(text(envelope, "from")), nil, nil, 4)
	if err != nil {
		return false
	}
	document, _ := record["document"].(object)
	signature, err := base64.StdEncoding.DecodeString(text(envelope, "sender_signature"))
	return err == nil && holds(document, text(envelope, "sender_key_id"), signature, signedText(envelope))
}

// holds says whether a method in authentication has signed it.
func holds(document object, keyID string, signature, signed []byte) bool {
	listed, _ := document["authentication"].([]any)
	methods, _ := document["verificationMethod"].([]any)
	for _, id := range listed {
		for _, method := range methods {
			if m, _ := method.(object); id == keyID && text(m, "id") == keyID {
				key, err := multibaseKey(text(m, "publicKeyMultibase"))
				return err == nil && ed25519.Verify(key, signed, signature)
			}
		}
	}
	return false
}

func (me *Identity) ack(ids []string) error {
	sort.Strings(ids)
	body := object{"did": me.did, "message_ids": ids}
	for _, value := range me.proof("ack", strings.Join(ids, ",")) {
		body[value[0]] = value[1]
	}
	_, err := call("POST", me.url+"/cache/ack", body, nil, 1)
	return err
}

// ---- sealing

func additionalData(envelope object) []byte {
	return []byte(fmt.Sprintf("%s|%s|%s|%s|%d|%d", profile, text(envelope, "message_id"), text(envelope, "to"),
		text(envelope, "message_group_id"), number(envelope, "sequence_number", 0), number(envelope, "total_chunks", 1)))
}

func contentKey(shared, aad []byte) ([]byte, error) {
	salt, key := sha256.Sum256(aad), make([]byte, 32)
	_, err := io.ReadFull(hkdf.New(sha256.New, shared, salt[:], []byte(profile)), key)
	return key, err
}

func seal(record, envelope, found object) (object, error) {
	public, err := multibaseKey(text(found, "recipient_public_key_multibase"))
	if err != nil {
		return nil, err
	}
	recipient, err := ecdh.X25519().NewPublicKey(public)
	if err != nil {
		return nil, err
	}
	secret, _ := ecdh.X25519().GenerateKey(rand.Reader)
	shared, err := secret.ECDH(recipient)
	if err != nil {
		return nil, err
	}
	aad, nonce := additionalData(envelope), random(12)
	key, err := contentKey(shared, aad)
	if err != nil {
		return nil, err
	}
	cipher, err := chacha20poly1305.New(key)
	if err != nil {
		return nil, err
	}
	return object{"profile": profile, "key_id": found["recipient_key_id"], "nonce_b64": b64(nonce),
		"ephemeral_x25519_b64": b64(secret.PublicKey().Bytes()), "ciphertext_b64": b64(cipher.Seal(nil, nonce, cbor(record), aad))}, nil
}

func unseal(envelope object, secret *ecdh.PrivateKey) (object, error) {
	payload, _ := envelope["payload"].(object)
	if text(payload, "profile") != profile {
		return nil, errors.New("another profile")
	}
	parts := map[string][]byte{}
	for _, name := range []string{"ephemeral_x25519_b64", "nonce_b64", "ciphertext_b64"} {
		part, err := base64.StdEncoding.DecodeString(text(payload, name))
		if err != nil {
			return nil, err
		}
		parts[name] = part
	}
	public, err := ecdh.X25519().NewPublicKey(parts["ephemeral_x25519_b64"])
	if err != nil {
		return nil, err
	}
	shared, err := secret.ECDH(public)
	if err != nil || len(parts["nonce_b64"]) != 12 {
		return nil, errors.New("its payload is malformed")
	}
	aad := additionalData(envelope)
	key, err := contentKey(shared, aad)
	if err != nil {
		return nil, err
	}
	cipher, err := chacha20poly1305.New(key)
	if err != nil {
		return nil, err
	}
	plain, err := cipher.Open(nil, parts["nonce_b64"], parts["ciphertext_b64"], aad)
	if err != nil {
		return nil, errors.New("it can't be decrypted")
	}
	record, err := uncbor(plain)
	if err != nil {
		return nil, err
	}
	return record, checkRecord(record, envelope)
}

// checkRecord also turns the hex text of the first release into bytes.
func checkRecord(record, envelope object) error {
	if digest, err := hex.DecodeString(text(record, "sha256")); err == nil && len(digest) == 32 {
		record["sha256"] = digest
	}
	digest, hasDigest := record["sha256"].([]byte)
	_, hasData := record["data"].([]byte)
	_, hasSize := record["size_bytes"].(int)
	if text(record, "format") != format || !hasDigest || len(digest) != 32 || !hasData || !hasSize {
		return errors.New("its record is malformed")
	}
	if text(record, "message_group_id") != text(envelope, "message_group_id") ||
		record["sequence_number"] != number(envelope, "sequence_number", 0) ||
		record["total_chunks"] != number(envelope, "total_chunks", 1) {
		return errors.New("the record belongs to another place")
	}
	return nil
}

// jcs is the canonical JSON of an envelope: encoding/json sorts members; nothing may be escaped for HTML.
func jcs(value any) []byte {
	canonical := &bytes.Buffer{}
	encoder := json.NewEncoder(canonical)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value)
	return bytes.TrimRight(canonical.Bytes(), "\n")
}

// ---- sealing, second version

const encBytes, tagBytes, moment = 1120, 16, "2006-01-02T15:04:05.000Z"

var (
	xwing  = hpke.MLKEM768X25519()
	fields = []string{"data", "format", "media_type", "message_group_id", "name", "sequence_number", "sha256", "size_bytes", "total_chunks"}
	inside = []string{"from", "from_key", "proof_sha256", "signature"}
)

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func bundleText(bundle object, public []byte) []byte {
	lines := []string{"svc:key-bundle:v2"}
	for _, name := range []string{"did", "key_id", "issued_at", "not_after"} {
		lines = append(lines, name+"="+text(bundle, name))
	}
	return []byte(strings.Join(append(lines, "key_sha256="+digest(public)), "\n"))
}

// checkBundle answers the public key of a bundle of which everything holds. A program that lives longer also remembers the
// newest one.
func checkBundle(bundle object, to string, document object) ([]byte, error) {
	public, err := base64.StdEncoding.DecodeString(text(bundle, "public_key_b64"))
	signature, signErr := base64.StdEncoding.DecodeString(text(bundle, "signature_b64"))
	issued, issuedErr := time.Parse(moment, text(bundle, "issued_at"))
	ends, endsErr := time.Parse(moment, text(bundle, "not_after"))
	if err := errors.Join(err, signErr, issuedErr, endsErr); err != nil {
		return nil, err
	}
	if text(bundle, "did") != to || len(public) != 1216 || text(bundle, "key_id") != digest(public)[:32] {
		return nil, errors.New("not its bundle")
	}
	if present := time.Now(); present.Before(issued.Add(-5*time.Minute)) || !present.Before(ends) || ends.Sub(issued) > 7*24*time.Hour {
		return nil, errors.New("its time is not now")
	}
	if !holds(document, text(bundle, "signer"), signature, bundleText(bundle, public)) {
		return nil, errors.New("the recipient has not signed it")
	}
	return public, nil
}

func sealInfo(envelope object, public []byte) []byte {
	named := maps.Clone(envelope)
	delete(named, "payload")
	delete(named, "sender_signature")
	for other, name := range map[string]string{"recipient": "to", "created_at": "timestamp"} {
		if value, found := named[other]; found {
			delete(named, other)
			named[name] = value
		}
	}
	return []byte(strings.Join([]string{hybrid, "to=" + text(named, "to"), "key_sha256=" + digest(public),
		"envelope_sha256=" + digest(jcs(named))}, "\n"))
}

// padded is the record, a mark, and zeros up to Padmé's length; a full chunk has none.
func padded(record []byte, full bool, limit int) []byte {
	size := len(record) + 1
	exponent := bits.Len(uint(size)) - 1
	unit := 1 << max(0, exponent-bits.Len(uint(exponent)))
	wanted := max(size, min((size+unit-1)/unit*unit, limit-tagBytes))
	if full {
		wanted = size
	}
	return append(append(bytes.Clone(record), 0x80), make([]byte, wanted-size)...)
}

func sealHybrid(record, envelope object, public []byte, full bool) (object, error) {
	key, err := xwing.NewPublicKey(public)
	if err != nil {
		return nil, err
	}
	plain := padded(cbor(record), full, 1<<20+4096)
	sealed, err := hpke.Seal(key, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), sealInfo(envelope, public), plain)
	if err != nil {
		return nil, err
	}
	return object{"profile": hybrid, "key_id": digest(public)[:32], "enc_b64": b64(sealed[:encBytes]),
		"ciphertext_b64": b64(sealed[encBytes:])}, nil
}

func unsealHybrid(envelope object, seed []byte) (object, error) {
	secret, err := xwing.NewPrivateKey(seed)
	if err != nil {
		return nil, err
	}
	payload, _ := envelope["payload"].(object)
	public := secret.PublicKey().Bytes()
	if text(payload, "profile") != hybrid || text(payload, "key_id") != digest(public)[:32] {
		return nil, errors.New("another profile or key")
	}
	enc, encErr := base64.StdEncoding.DecodeString(text(payload, "enc_b64"))
	ciphertext, err := base64.StdEncoding.DecodeString(text(payload, "ciphertext_b64"))
	if err != nil || encErr != nil || len(enc) != encBytes || len(payload) != 4 {
		return nil, errors.New("its payload is malformed")
	}
	info := sealInfo(envelope, public)
	plain, err := hpke.Open(secret, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), info, append(enc, ciphertext...))
	if err != nil {
		return nil, errors.New("it can't be decrypted")
	}
	marked := bytes.TrimRight(plain, "\x00")
	unpadded, found := bytes.CutSuffix(marked, []byte{0x80})
	if !found {
		return nil, errors.New("nothing ends it before its padding")
	}
	record, err := uncbor(unpadded)
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(record))
	signed := slices.Sorted(slices.Values(append(slices.Clone(fields), inside...)))
	if !slices.Equal(names, fields) && !slices.Equal(names, signed) || !bytes.Equal(cbor(record), unpadded) {
		return nil, errors.New("not a record")
	}
	if signature, _ := record["signature"].([]byte); record["signature"] != nil && len(signature) != 64 {
		return nil, errors.New("not a record")
	}
	return record, checkRecord(record, envelope)
}

// sealedSenderText is what the signature in a record covers.
func sealedSenderText(record, envelope object, public []byte) []byte {
	unsigned := maps.Clone(record)
	delete(unsigned, "signature")
	lines := []string{"svc:sealed-sender:v2", "from=" + text(record, "from"), "key_id=" + text(record, "from_key")}
	lines = append(lines, strings.Split(string(sealInfo(envelope, public)), "\n")[1:]...)
	return []byte(strings.Join(append(lines, "record_sha256="+digest(cbor(unsigned))), "\n"))
}

// signedText is what a signature outside covers.
func signedText(envelope object) []byte {
	payload := sha256.Sum256(jcs(envelope["payload"]))
	lines := []string{"svc:envelope-signature:v1"}
	for _, name := range []string{"message_id", "from", "to", "timestamp", "ttl", "delivery_hint", "tag", "message_group_id"} {
		lines = append(lines, name+"="+text(envelope, name))
	}
	for _, name := range []string{"sequence_number", "total_chunks"} {
		line := name + "="
		if _, present := envelope[name]; present {
			line += fmt.Sprint(number(envelope, name, 0))
		}
		lines = append(lines, line)
	}
	lines = append(lines, "header_sha256=", "payload_sha256="+hex.EncodeToString(payload[:]), "key_id="+text(envelope, "sender_key_id"))
	return []byte(strings.Join(lines, "\n"))
}

// checkHybrid: what should open opens to what it says, what should not does not, and every text is the one that is written here.
func checkHybrid(path string) error {
	var vectors struct {
		Keys    []object
		Padding []struct {
			Bytes, Padded int
			BytesMax      int64 `json:"bytes_max"`
		}
		Envelopes []object
	}
	file, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(file, &vectors)
	}
	if err != nil {
		return err
	}
	bytesIn := func(o object, name string) []byte {
		value, _ := hex.DecodeString(text(o, name))
		return value
	}
	for _, vector := range vectors.Keys {
		secret, err := xwing.NewPrivateKey(bytesIn(vector, "seed"))
		if err != nil || hex.EncodeToString(secret.PublicKey().Bytes()) != text(vector, "public_key") {
			return errors.Join(errors.New("another key"), err)
		}
	}
	for _, vector := range vectors.Padding {
		if len(padded(make([]byte, vector.Bytes), false, int(min(vector.BytesMax, 1<<40))+tagBytes)) != vector.Padded {
			return fmt.Errorf("%d bytes have another padding", vector.Bytes)
		}
	}
	opened := 0
	for _, vector := range vectors.Envelopes {
		envelope, _ := vector["envelope"].(object)
		opens, _ := vector["opens"].(object)
		record, err := unsealHybrid(envelope, bytesIn(vector, "seed"))
		if (err == nil) != (opens != nil) {
			return fmt.Errorf("%s: %v", text(vector, "name"), err)
		}
		if err != nil {
			continue
		}
		secret, _ := xwing.NewPrivateKey(bytesIn(vector, "seed"))
		public := secret.PublicKey().Bytes()
		data, _ := record["data"].([]byte)
		if hex.EncodeToString(data) != text(opens, "data") || string(sealInfo(envelope, public)) != text(vector, "info") {
			return errors.New(text(vector, "name"))
		}
		if signer, _ := vector["signer"].(object); signer != nil {
			signed, signature := sealedSenderText(record, envelope, public), record["signature"].([]byte)
			if string(signed) != text(signer, "text") || !ed25519.Verify(bytesIn(signer, "public_key"), signed, signature) {
				return errors.New(text(vector, "name") + ": another signature")
			}
		}
		opened++
	}
	fmt.Printf("%d of %d open\n", opened, len(vectors.Envelopes))
	return nil
}

func journey(address string) error {
	alice, bob := newIdentity(address, false), newIdentity(address, true)
	if err := errors.Join(alice.register(), bob.register()); err != nil {
		return err
	}
	// Bob announces a key of the second version, Alice doesn't.
	if _, err := bob.send(alice.did, []byte("Back at one."), "", "text/plain;charset=utf-8", 1<<20); err != nil {
		return err
	}
	if first, err := alice.receive(); err != nil || len(first) != 1 || string(first[0].Data) != "Back at one." || first[0].From != bob.did {
		return errors.Join(errors.New("not what Bob sent"), err)
	}
	if _, err := alice.send(bob.did, []byte("Meet me at noon."), "", "text/plain;charset=utf-8", 1<<20); err != nil {
		return err
	}
	// Bob does not know Alice yet: all of it must fit where a stranger may write.
	file := random(20 * 256 << 10)
	chunks, err := alice.send(bob.did, file, "data.bin", "application/octet-stream", 256<<10)
	if err != nil {
		return err
	}
	got, err := bob.receive()
	if err != nil {
		return err
	}
	for _, message := range got {
		if message.From != alice.did {
			return errors.New("a signature does not hold")
		}
		if err := bob.ack(message.IDs); err != nil {
			return err
		}
	}
	if len(got) != 2 || string(got[0].Data) != "Meet me at noon." || !bytes.Equal(got[1].Data, file) {
		return errors.New("not what was sent")
	}
	if left, err := bob.receive(); err != nil || len(left) != 0 {
		return errors.Join(errors.New("something is left"), err)
	}
	fmt.Printf("{\"text\": %q, \"chunks\": %d, \"bytes\": %d}\n", got[0].Data, chunks, len(got[1].Data))
	return nil
}

func main() {
	work := func() error { return journey(os.Args[1]) }
	if len(os.Args) == 4 && os.Args[2] == "hybrid" {
		work = func() error { return checkHybrid(os.Args[3]) }
	}
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
