// sumdb certificates DIR | log DIR [STRIDE]: certificates and exported logs checked with the code of Go's checksum database
// (golang.org/x/mod/sumdb/note and tlog).
//
// certificates: DIR/cases/*/{envelope.json,proof.tlog}, DIR/trust.txt; prints "<case> ok" or "<case> bad".
// log: DIR is an export (tlog-tiles) with trust.txt beside it. Its tiles are authenticated against the signed root, every entry
// against its tile; then every STRIDE-th single-bit change of an entry must be refused. Prints "whole" and the counts.
package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

type trust struct {
	spki     []byte
	origin   string
	verifier note.Verifier
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func readTrust(path string) trust {
	text, err := os.ReadFile(path)
	must(err)
	var t trust
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		words := strings.Fields(line)
		switch words[0] {
		case "record":
			t.spki, err = hex.DecodeString(words[1])
			must(err)
		case "log":
			t.verifier, err = note.NewVerifier(words[1])
			must(err)
			t.origin = t.verifier.Name()
		}
	}
	return t
}

// The tree that a signed head names.
func openHead(text []byte, t trust) (tlog.Tree, error) {
	opened, err := note.Open(text, note.VerifierList(t.verifier))
	if err != nil {
		return tlog.Tree{}, err
	}
	lines := strings.Split(opened.Text, "\n")
	if len(lines) != 4 || lines[0] != t.origin {
		return tlog.Tree{}, fmt.Errorf("not three lines of this log")
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil {
		return tlog.Tree{}, err
	}
	hash, err := tlog.ParseHash(lines[2])
	return tlog.Tree{N: size, Hash: hash}, err
}

func check(dir string, t trust) error {
	text, err := os.ReadFile(filepath.Join(dir, "envelope.json"))
	if err != nil {
		return err
	}
	var envelope struct {
		Payload     []byte
		PayloadType string
		Signatures  []struct {
			KeyID string
			Sig   []byte
		}
	}
	if err := json.Unmarshal(text, &envelope); err != nil {
		return err
	}
	if len(envelope.Signatures) != 1 || envelope.Signatures[0].KeyID != fmt.Sprintf("%x", sha256.Sum256(t.spki)) {
		return fmt.Errorf("signatures")
	}
	sig := envelope.Signatures[0].Sig
	pae := fmt.Sprintf("DSSEv1 %d %s %d %s", len(envelope.PayloadType), envelope.PayloadType, len(envelope.Payload), envelope.Payload)
	if !ed25519.Verify(t.spki[12:], []byte(pae), sig) {
		return fmt.Errorf("record signature")
	}
	digest := sha256.Sum256([]byte(pae))
	encode := base64.StdEncoding.EncodeToString
	leaf := fmt.Sprintf(`{"apiVersion":"0.0.2","kind":"hashedrekord","spec":{"hashedRekordV002":{"data":{"algorithm":"SHA2_256","digest":"%s"},"signature":{"content":"%s","verifier":{"keyDetails":"PKIX_ED25519","publicKey":{"rawBytes":"%s"}}}}}}`,
		encode(digest[:]), encode(sig), encode(t.spki))
	proofFile, err := os.ReadFile(filepath.Join(dir, "proof.tlog"))
	if err != nil {
		return err
	}
	head, signed, found := bytes.Cut(proofFile, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	if !found || len(lines) < 2 || lines[0] != "c2sp.org/tlog-proof@v1" || !strings.HasPrefix(lines[1], "index ") {
		return fmt.Errorf("proof file")
	}
	index, err := strconv.ParseInt(lines[1][len("index "):], 10, 64)
	if err != nil {
		return err
	}
	var proof tlog.RecordProof
	for _, line := range lines[2:] {
		hash, err := tlog.ParseHash(line)
		if err != nil {
			return err
		}
		proof = append(proof, hash)
	}
	tree, err := openHead(signed, t)
	if err != nil {
		return err
	}
	if index >= tree.N { // tlog.CheckRecord panics on nothing, but says "invalid inputs" only since later versions
		return fmt.Errorf("index")
	}
	return tlog.CheckRecord(proof, tree.N, tree.Hash, index, tlog.RecordHash([]byte(leaf)))
}

func certificates(dir string) {
	t := readTrust(filepath.Join(dir, "trust.txt"))
	cases, err := os.ReadDir(filepath.Join(dir, "cases"))
	must(err)
	sort.Slice(cases, func(i, j int) bool { return cases[i].Name() < cases[j].Name() })
	for _, c := range cases {
		verdict := "ok"
		if check(filepath.Join(dir, "cases", c.Name()), t) != nil {
			verdict = "bad"
		}
		fmt.Println(c.Name(), verdict)
	}
}

// Tiles of an export, for tlog.TileHashReader, which authenticates what it reads.
type exportTiles struct{ dir string }

func (e exportTiles) Height() int                                { return 8 }
func (e exportTiles) SaveTiles(tiles []tlog.Tile, data [][]byte) {}
func (e exportTiles) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	var all [][]byte
	for _, tile := range tiles {
		// tile/8/<level>/<N> in the checksum database is tile/<level>/<N> here.
		path := "tile/" + strings.TrimPrefix(tile.Path(), "tile/8/")
		data, err := os.ReadFile(filepath.Join(e.dir, path))
		if err != nil {
			return nil, err
		}
		all = append(all, data)
	}
	return all, nil
}

func readEntries(dir string, size int64) ([][]byte, error) {
	var entries [][]byte
	for first := int64(0); first < size; first += 256 {
		width := 256
		if size-first < 256 {
			width = int(size - first)
		}
		tile := tlog.Tile{H: 8, L: 0, N: first / 256, W: width}
		data, err := os.ReadFile(filepath.Join(dir, "tile/entries/"+strings.TrimPrefix(tile.Path(), "tile/8/0/")))
		if err != nil {
			return nil, err
		}
		for len(data) >= 2 {
			n := int(data[0])<<8 | int(data[1])
			if len(data) < 2+n {
				return nil, fmt.Errorf("an entry is cut")
			}
			entries = append(entries, data[2:2+n])
			data = data[2+n:]
		}
		if len(data) > 0 {
			return nil, fmt.Errorf("bytes are left over")
		}
	}
	if int64(len(entries)) != size {
		return nil, fmt.Errorf("%d entries, want %d", len(entries), size)
	}
	return entries, nil
}

func checkLog(dir string, stride int64) error {
	t := readTrust(filepath.Join(dir, "trust.txt"))
	text, err := os.ReadFile(filepath.Join(dir, "checkpoint"))
	if err != nil {
		return err
	}
	tree, err := openHead(text, t)
	if err != nil {
		return err
	}
	entries, err := readEntries(dir, tree.N)
	if err != nil {
		return err
	}
	indexes := make([]int64, tree.N)
	for i := range indexes {
		indexes[i] = tlog.StoredHashIndex(0, int64(i))
	}
	hashes, err := tlog.TileHashReader(tree, exportTiles{dir}).ReadHashes(indexes)
	if err != nil {
		return err
	}
	for i, entry := range entries {
		if tlog.RecordHash(entry) != hashes[i] {
			return fmt.Errorf("leaf %d", i)
		}
	}
	mutants, missed := int64(0), 0
	for bit, total := int64(0), tree.N*406*8; bit < total; bit += stride {
		leaf := bit / (406 * 8)
		at, mask := bit%(406*8)/8, byte(1)<<(bit%8)
		entries[leaf][at] ^= mask
		if tlog.RecordHash(entries[leaf]) == hashes[leaf] {
			missed++
		}
		entries[leaf][at] ^= mask
		mutants++
	}
	fmt.Printf("whole %d leaves, %d mutants, %d missed\n", tree.N, mutants, missed)
	return nil
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: sumdb certificates DIR | log DIR [STRIDE]")
		os.Exit(2)
	}
	if os.Args[1] == "certificates" {
		certificates(os.Args[2])
		return
	}
	stride := int64(1)
	if len(os.Args) > 3 {
		var err error
		stride, err = strconv.ParseInt(os.Args[3], 10, 64)
		must(err)
	}
	must(checkLog(os.Args[2], stride))
}
