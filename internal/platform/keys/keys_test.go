package keys_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/platform/keys"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
)

func root(b byte) []byte { return bytes.Repeat([]byte{b}, keys.RootSize) }

func ring(t testing.TB, current byte, versions ...byte) *keys.Ring {
	t.Helper()
	roots := map[byte][]byte{}
	for _, v := range versions {
		roots[v] = root(v)
	}
	r, err := keys.NewRing(current, roots)
	require.NoError(t, err)
	return r
}

func TestOpen_WhatSealMade(t *testing.T) {
	r := ring(t, 1, 1)
	for _, plaintext := range [][]byte{{}, []byte("whsec_secret"), bytes.Repeat([]byte("x"), 10_000)} {
		sealed, err := r.Seal("cmp_1", "webhook", "whs_1", plaintext)
		require.NoError(t, err)
		require.Len(t, sealed, len(plaintext)+29)
		if len(plaintext) > 0 {
			require.NotContains(t, string(sealed), string(plaintext))
		}
		opened, err := r.Open("cmp_1", "webhook", "whs_1", sealed)
		require.NoError(t, err)
		require.Equal(t, string(plaintext), string(opened))
	}
}

func TestSeal_NeverTwiceTheSame(t *testing.T) {
	r := ring(t, 1, 1)
	one, err := r.Seal("cmp_1", "webhook", "whs_1", []byte("secret"))
	require.NoError(t, err)
	two, err := r.Seal("cmp_1", "webhook", "whs_1", []byte("secret"))
	require.NoError(t, err)
	require.NotEqual(t, one, two)
}

func TestOpen_RefusesEverythingElse(t *testing.T) {
	r := ring(t, 1, 1)
	sealed, err := r.Seal("cmp_1", "webhook", "whs_1", []byte("secret"))
	require.NoError(t, err)
	for name, args := range map[string][3]string{
		"company":       {"cmp_2", "webhook", "whs_1"},
		"purpose":       {"cmp_1", "signing", "whs_1"},
		"id":            {"cmp_1", "webhook", "whs_2"},
		"other borders": {"cmp_1", "webhookw", "hs_1"},
	} {
		_, err := r.Open(args[0], args[1], args[2], sealed)
		require.ErrorIs(t, err, keys.ErrSealed, name)
	}
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		_, err := r.Open("cmp_1", "webhook", "whs_1", changed)
		require.ErrorIs(t, err, keys.ErrSealed, "byte %d", i)
		_, err = r.Open("cmp_1", "webhook", "whs_1", sealed[:i])
		require.ErrorIs(t, err, keys.ErrSealed, "cut to %d", i)
	}
	other, err := keys.NewRing(1, map[byte][]byte{1: root(9)})
	require.NoError(t, err)
	_, err = other.Open("cmp_1", "webhook", "whs_1", sealed)
	require.ErrorIs(t, err, keys.ErrSealed)
}

func TestRing_Rotation(t *testing.T) {
	before := ring(t, 1, 1)
	sealed, err := before.Seal("cmp_1", "webhook", "whs_1", []byte("secret"))
	require.NoError(t, err)

	during := ring(t, 2, 1, 2)
	opened, err := during.Open("cmp_1", "webhook", "whs_1", sealed)
	require.NoError(t, err)
	require.Equal(t, "secret", string(opened))
	again, err := during.Seal("cmp_1", "webhook", "whs_1", opened)
	require.NoError(t, err)
	require.Equal(t, byte(2), again[0])

	after := ring(t, 2, 2)
	_, err = after.Open("cmp_1", "webhook", "whs_1", again)
	require.NoError(t, err)
	_, err = after.Open("cmp_1", "webhook", "whs_1", sealed)
	require.ErrorIs(t, err, keys.ErrSealed)
}

func TestDerive_DependsOnEverything(t *testing.T) {
	r := ring(t, 1, 1)
	seen := map[[32]byte]bool{}
	for _, k := range [][32]byte{
		r.Derive("cmp_1", "a"), r.Derive("cmp_2", "a"), r.Derive("cmp_1", "b"), r.Derive("cmp_1a", ""), ring(t, 2, 1, 2).Derive("cmp_1", "a"),
	} {
		require.False(t, seen[k])
		seen[k] = true
	}
	require.True(t, seen[ring(t, 1, 1).Derive("cmp_1", "a")])
}

func TestDeriveAll_CurrentFirstThenTheOthers(t *testing.T) {
	old, both := ring(t, 1, 1, 2), ring(t, 2, 1, 2)
	require.Equal(t, [][32]byte{both.Derive("cmp_1", "a"), old.Derive("cmp_1", "a")}, both.DeriveAll("cmp_1", "a"))
	require.Equal(t, [][32]byte{old.Derive("cmp_1", "a"), both.Derive("cmp_1", "a")}, old.DeriveAll("cmp_1", "a"))
}

func TestNewRing_RefusesBadKeys(t *testing.T) {
	for name, c := range map[string]struct {
		current byte
		roots   map[byte][]byte
	}{
		"none":      {1, nil},
		"short":     {1, map[byte][]byte{1: root(1)[:31]}},
		"version 0": {0, map[byte][]byte{0: root(1)}},
		"missing":   {2, map[byte][]byte{1: root(1)}},
	} {
		_, err := keys.NewRing(c.current, c.roots)
		require.Error(t, err, name)
	}
}

func TestParseRing_HighestVersionIsCurrent(t *testing.T) {
	text := fmt.Sprintf("# keys\n1:%s\n\n 3 : %s \n", base64.StdEncoding.EncodeToString(root(1)), base64.StdEncoding.EncodeToString(root(3)))
	r, err := keys.ParseRing([]byte(text))
	require.NoError(t, err)
	sealed, err := r.Seal("cmp_1", "p", "i", nil)
	require.NoError(t, err)
	require.Equal(t, byte(3), sealed[0])
}

func TestParseRing_ErrorsDoNotShowTheLine(t *testing.T) {
	good := base64.StdEncoding.EncodeToString(root(7))
	for _, text := range []string{
		"", "# only a comment", good, "0:" + good, "256:" + good, "x:" + good, "1:" + good[:40], "1:" + good + "AAAA", "1:" + good + "\n1:" + good, "1:" + strings.ToLower(good)[:20] + "!!!",
	} {
		_, err := keys.ParseRing([]byte(text))
		require.Error(t, err, text)
		require.NotContains(t, err.Error(), good[:20])
	}
}

func FuzzParseRing(f *testing.F) {
	f.Add([]byte("1:" + base64.StdEncoding.EncodeToString(root(7))))
	f.Add([]byte("1:\n2"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := keys.ParseRing(text)
		if err != nil {
			return
		}
		sealed, err := r.Seal("cmp_1", "p", "i", text)
		require.NoError(t, err)
		opened, err := r.Open("cmp_1", "p", "i", sealed)
		require.NoError(t, err)
		require.True(t, bytes.Equal(text, opened))
	})
}

func TestLoadOrCreate_MakesOneKeyForItsOwnerAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "root.key")
	_, err := keys.LoadRing(path)
	require.ErrorIs(t, err, os.ErrNotExist)

	rings := make([]*keys.Ring, 8)
	var wait sync.WaitGroup
	for i := range rings {
		wait.Go(func() {
			r, err := keys.LoadOrCreate(path)
			if err == nil {
				rings[i] = r
			}
		})
	}
	wait.Wait()
	for _, r := range rings {
		require.NotNil(t, r)
		require.Equal(t, rings[0].Derive("cmp_1", "p"), r.Derive("cmp_1", "p"))
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1)
}

func TestLoadOrCreate_KeepsAFileItCannotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "root.key")
	require.NoError(t, os.WriteFile(path, []byte("damaged"), 0o600))
	_, err := keys.LoadOrCreate(path)
	require.Error(t, err)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "damaged", string(text))
	_, err = keys.LoadOrCreate(filepath.Join(t.TempDir(), "missing", "root.key"))
	require.Error(t, err)
}

func TestNonces_CurrentAndPreviousWindow(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.3#24")
	n := keys.NewNonces(ring(t, 1, 1))
	start := time.Unix(1_800_000_000, 0).Truncate(keys.NonceWindow)
	nonce := n.Current("cmp_1", start)
	require.Len(t, nonce, 22)
	require.Equal(t, nonce, n.Current("cmp_1", start.Add(keys.NonceWindow-time.Second)))
	for _, at := range []time.Duration{0, keys.NonceWindow - 1, keys.NonceWindow, 2*keys.NonceWindow - 1} {
		require.Contains(t, n.Accepted("cmp_1", start.Add(at)), nonce, "%v", at)
	}
	require.NotContains(t, n.Accepted("cmp_1", start.Add(2*keys.NonceWindow)), nonce)
	require.NotContains(t, n.Accepted("cmp_1", start.Add(-time.Second)), nonce)
	require.Equal(t, n.Current("cmp_1", start), n.Accepted("cmp_1", start)[0])
	require.NotContains(t, n.Accepted("cmp_2", start), nonce)
}

func TestNonces_AnotherProcessAfterARotation(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	old, both := keys.NewNonces(ring(t, 1, 1, 2)), keys.NewNonces(ring(t, 2, 1, 2))
	require.Contains(t, both.Accepted("cmp_1", now), old.Current("cmp_1", now))
	require.Contains(t, old.Accepted("cmp_1", now), both.Current("cmp_1", now))
}

func TestRandomToken_PrefixAndLength(t *testing.T) {
	one, two := keys.RandomToken("pfk"), keys.RandomToken("pfk")
	require.NotEqual(t, one, two)
	require.Regexp(t, `^pfk_[A-Za-z0-9_-]{43}$`, one)
}

func TestHashToken_BelongsToACompany(t *testing.T) {
	h := keys.HashToken("cmp_1", "pst_x")
	require.Len(t, h, 43)
	require.Equal(t, h, keys.HashToken("cmp_1", "pst_x"))
	require.NotEqual(t, h, keys.HashToken("cmp_2", "pst_x"))
	require.NotEqual(t, h, keys.HashToken("cmp_1p", "st_x"))
}

func TestSecret_ShowsOnlyToReveal(t *testing.T) {
	const text = "the canary"
	s := keys.NewSecret(text)
	require.Equal(t, text, s.Reveal())
	require.False(t, s.IsZero())
	require.True(t, keys.Secret{}.IsZero())
	var out strings.Builder
	for _, verb := range []string{"%s", "%v", "%+v", "%#v", "%q", "%x", "%d", "%T"} {
		fmt.Fprintf(&out, verb+" ", s)
		fmt.Fprintf(&out, verb+" ", struct{ S keys.Secret }{s})
		fmt.Fprintf(&out, verb+" ", struct{ s keys.Secret }{s})
		fmt.Fprintf(&out, verb+" ", []keys.Secret{s})
		fmt.Fprintf(&out, verb+" ", &s)
	}
	enc, err := json.Marshal(map[string]any{"s": s, "list": []keys.Secret{s}})
	require.NoError(t, err)
	out.Write(enc)
	enc, err = json.Marshal(map[keys.Secret]int{s: 1})
	require.NoError(t, err)
	out.Write(enc)
	log := slog.New(slog.NewTextHandler(&out, nil))
	log.Info("x", "s", s, "struct", struct{ S keys.Secret }{s})
	log = slog.New(slog.NewJSONHandler(&out, nil))
	log.Info("x", "s", s, "struct", struct{ S keys.Secret }{s})
	require.NotContains(t, out.String(), "canary")
	require.NotContains(t, out.String(), fmt.Sprintf("%x", text))
	require.Contains(t, out.String(), "[redacted]")
}
