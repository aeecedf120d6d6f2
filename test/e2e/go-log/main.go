// Verifies a log and the cosignature of a witness with the packages of Go's own checksum database:
// verify <url of the log> <vkey of the log> <vkey of the witness> <an earlier size>.
package main

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Println("FAILED:", err)
		os.Exit(1)
	}
	return value
}

func get(url string) ([]byte, error) {
	answer, err := http.Get(url)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != 200 {
		return nil, fmt.Errorf("%s answers %d", url, answer.StatusCode)
	}
	return io.ReadAll(answer.Body)
}

// A witness key: c2sp.org/tlog-cosignature.
type witness struct {
	name string
	hash uint32
	key  ed25519.PublicKey
	time uint64
}

func parseWitness(vkey string) (*witness, error) {
	parts := strings.SplitN(vkey, "+", 3)
	hash, err := strconv.ParseUint(parts[1], 16, 32)
	if err != nil {
		return nil, err
	}
	key, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil || len(key) != 33 || key[0] != 4 {
		return nil, fmt.Errorf("not a key of a witness: %s", vkey)
	}
	return &witness{name: parts[0], hash: uint32(hash), key: key[1:]}, nil
}

func (w *witness) Name() string    { return w.name }
func (w *witness) KeyHash() uint32 { return w.hash }
func (w *witness) Verify(msg, sig []byte) bool {
	if len(sig) != 72 {
		return false
	}
	w.time = binary.BigEndian.Uint64(sig)
	signed := fmt.Sprintf("cosignature/v1\ntime %d\n%s", w.time, msg)
	return ed25519.Verify(w.key, []byte(signed), sig[8:])
}

// Tiles under the paths of c2sp.org/tlog-tiles, which have no height.
type tiles struct{ url string }

func (t tiles) Height() int { return 8 }
func (t tiles) ReadTiles(wanted []tlog.Tile) ([][]byte, error) {
	var all [][]byte
	for _, tile := range wanted {
		data, err := get(t.url + "/tile/" + strings.TrimPrefix(tile.Path(), "tile/8/"))
		if err != nil {
			return nil, err
		}
		all = append(all, data)
	}
	return all, nil
}
func (t tiles) SaveTiles([]tlog.Tile, [][]byte) {}

func main() {
	url := os.Args[1]
	logKey := must(note.NewVerifier(os.Args[2]))
	cosigner := must(parseWitness(os.Args[3]))
	earlier := must(strconv.ParseInt(os.Args[4], 10, 64))
	opened := must(note.Open(must(get(url+"/checkpoint")), note.VerifierList(logKey, cosigner)))
	if len(opened.Sigs) != 2 {
		must(0, fmt.Errorf("%d signatures hold", len(opened.Sigs)))
	}
	lines := strings.Split(opened.Text, "\n")
	if len(lines) != 4 || lines[0] != logKey.Name() {
		must(0, fmt.Errorf("not a checkpoint of the log: %q", opened.Text))
	}
	size := must(strconv.ParseInt(lines[1], 10, 64))
	root := must(tlog.ParseHash(lines[2]))
	tree := tlog.Tree{N: size, Hash: root}
	// The reader checks every tile against the root.
	reader := tlog.TileHashReader(tree, tiles{url})
	if must(tlog.TreeHash(size, reader)) != root {
		must(0, fmt.Errorf("the tiles lead to another root"))
	}
	entries := 0
	for start := int64(0); start < size; start += 256 {
		tile := tlog.Tile{H: 8, L: 0, N: start / 256, W: int(min(256, size-start))}
		bundle := must(get(url + "/tile/entries/" + strings.TrimPrefix(tile.Path(), "tile/8/0/")))
		for index := start; len(bundle) > 0; index++ {
			length := int(binary.BigEndian.Uint16(bundle))
			entry := bundle[2 : 2+length]
			bundle = bundle[2+length:]
			proof := must(tlog.ProveRecord(size, index, reader))
			must(0, tlog.CheckRecord(proof, size, root, index, tlog.RecordHash(entry)))
			entries++
		}
	}
	if int64(entries) != size {
		must(0, fmt.Errorf("%d entries of %d", entries, size))
	}
	before := must(tlog.TreeHash(earlier, reader))
	proof := must(tlog.ProveTree(size, earlier, reader))
	must(0, tlog.CheckTree(proof, size, root, earlier, before))
	fmt.Printf("{\"size\":%d,\"time\":%d}\n", size, cosigner.time)
}
