// A Waypost client in one file, written from docs/protocol.md: the standard library and golang.org/x/crypto.
//
// go run . http://127.0.0.1:7400 makes the whole journey: two identities, a signed text, a file of 20 chunks,
// and both received, checked and acknowledged.
package main

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
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
	format   = "svc:binary-chunk:v1"
	alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
)

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
	agreement       *ecdh.PrivateKey
}

func newIdentity(address string) *Identity {
	_, root, _ := ed25519.GenerateKey(rand.Reader)
	agreement, _ := ecdh.X25519().GenerateKey(rand.Reader)
	me := &Identity{url: strings.TrimRight(address, "/"), root: root, agreement: agreement}
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
	timestamp, message := me.registration(document)
	_, err := call("POST", me.url+"/register-did", object{
		"did": me.did, "timestamp": timestamp, "root_pubkey": root, "signature": me.sign(message), "did_document": document,
	}, nil, 4)
	for i := 0; err == nil && i < 240; i++ {
		var status object
		status, err = call("GET", me.url+"/registration-status/"+quote(me.did), nil, nil, 4)
		if text(status, "registration_status") == "confirmed" {
			return nil
		}
		time.Sleep(250 * time.Millisecond)
	}
	return errors.Join(errors.New("the registration did not settle"), err)
}

// ---- sending

func (me *Identity) send(to string, data []byte, name, mediaType string, chunkBytes int) (int, error) {
	found, err := call("GET", me.url+"/delivery-resolution/"+quote(to), nil, nil, 4)
	if err != nil {
		return 0, err
	}
	if text(found, "encryption_profile") != "direct" {
		return 0, errors.New("an unknown profile")
	}
	// Names the author inside, so that nobody else can sign the ciphertext as their own.
	mediaType += ";waypost=1;from=" + me.did
	total, group, timestamp, digest := max(1, (len(data)+chunkBytes-1)/chunkBytes), "", now(), sha256.Sum256(data)
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
		payload, err := seal(object{"format": format, "name": name, "media_type": mediaType, "size_bytes": len(data),
			"sha256": digest[:], "message_group_id": group, "sequence_number": sequence, "total_chunks": total, "data": part}, envelope, found)
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

func (me *Identity) read(path, operation, subject string) (object, error) {
	names := map[string]string{"service_id": "X-Service-Id", "cache_endpoint": "X-Cache-Endpoint", "key_id": "X-Key-Id",
		"timestamp": "X-Timestamp", "nonce": "X-Nonce", "signature_b64": "X-Signature"}
	headers := map[string]string{}
	for _, value := range me.proof(operation, subject) {
		headers[names[value[0]]] = value[1]
	}
	return call("GET", me.url+path, nil, headers, 1)
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
		record, err := unseal(envelope, me.agreement)
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
	digest := sha256.Sum256(message.Data)
	if len(message.Data) != first["size_bytes"] || !bytes.Equal(digest[:], first["sha256"].([]byte)) {
		return nil, errors.New("not the file that was sent")
	}
	if !signed {
		message.From = ""
	}
	return &message, nil
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
	keyID := text(envelope, "sender_key_id")
	document, _ := record["document"].(object)
	listed, _ := document["authentication"].([]any)
	methods, _ := document["verificationMethod"].([]any)
	signature, err := base64.StdEncoding.DecodeString(text(envelope, "sender_signature"))
	for _, id := range listed {
		for _, method := range methods {
			if m, _ := method.(object); id == keyID && text(m, "id") == keyID && err == nil {
				key, keyErr := multibaseKey(text(m, "publicKeyMultibase"))
				return keyErr == nil && ed25519.Verify(key, signedText(envelope), signature)
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

// signedText hashes the JCS form of the payload: encoding/json sorts members; nothing may be escaped for HTML.
func signedText(envelope object) []byte {
	canonical := &bytes.Buffer{}
	encoder := json.NewEncoder(canonical)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(envelope["payload"])
	digest := sha256.Sum256(bytes.TrimRight(canonical.Bytes(), "\n"))
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
	lines = append(lines, "header_sha256=", "payload_sha256="+hex.EncodeToString(digest[:]), "key_id="+text(envelope, "sender_key_id"))
	return []byte(strings.Join(lines, "\n"))
}

func journey(address string) error {
	alice, bob := newIdentity(address), newIdentity(address)
	if err := errors.Join(alice.register(), bob.register()); err != nil {
		return err
	}
	if _, err := alice.send(bob.did, []byte("Meet me at noon."), "", "text/plain;charset=utf-8", 1<<20); err != nil {
		return err
	}
	file := random(20 << 20)
	chunks, err := alice.send(bob.did, file, "data.bin", "application/octet-stream", 1<<20)
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
	if err := journey(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
