package jose_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
)

func TestParseJWS_ReadsWhatSignerWrote(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.1#d10", "poppy-0.1/4.3#d10")
	for alg, s := range signers(t) {
		t.Run(string(alg), func(t *testing.T) {
			jws := parse(t, sign(t, s, jose.SignHeader{Typ: "x+jwt", KID: `k"1`, EmbedKey: true}, `{"a":1}`))
			require.Equal(t, alg, jws.Header.Alg)
			require.Equal(t, "x+jwt", jws.Header.Typ)
			require.Equal(t, `k"1`, jws.Header.KID)
			require.Equal(t, `{"a":1}`, string(jws.Payload))
			require.True(t, jws.Header.HasKey)
			require.True(t, jws.Header.Key.HasThumbprint(s.Thumbprint()))
			require.NoError(t, jws.Header.Key.VerifyJWS(jws))
		})
	}
}

func TestPK17_OversizedTokensAreRefusedUnread(t *testing.T) {
	for name, raw := range map[string]string{
		"1 MB of dots":       strings.Repeat(".", 1<<20),
		"1 MB payload":       b64(`{"alg":"ES256"}`) + "." + strings.Repeat("A", 1<<20) + ".AA",
		"header of 500 KB":   strings.Repeat("A", 500<<10) + ".AA.AA",
		"one byte too large": strings.Repeat("A", jose.MaxJWT+1),
	} {
		t.Run(name, func(t *testing.T) {
			allocs := testing.AllocsPerRun(10, func() {
				_, err := jose.ParseJWS(raw)
				require.ErrorIs(t, err, jose.ErrTooLarge)
			})
			require.LessOrEqual(t, allocs, 2.0)
		})
	}
}

func TestPK17_DotsWithinTheCapCostNothing(t *testing.T) {
	raw := strings.Repeat(".", jose.MaxJWT)
	allocs := testing.AllocsPerRun(10, func() {
		_, err := jose.ParseJWS(raw)
		require.ErrorIs(t, err, jose.ErrMalformed)
	})
	require.LessOrEqual(t, allocs, 2.0)
}

func TestParseJWS_Malformed(t *testing.T) {
	good := sign(t, es256(t), jose.SignHeader{}, `{}`)
	head, rest, _ := strings.Cut(good, ".")
	for name, raw := range map[string]string{
		"empty":              "",
		"no dot":             head,
		"one dot":            head + ".e30",
		"three dots":         good + ".",
		"padding":            head + "=." + rest,
		"standard alphabet":  head + ".+/+/." + b64("x"),
		"line break":         head + ".\ne30." + b64("x"),
		"space":              " " + good,
		"stray bits":         head + ".e31." + b64("x")[:1],
		"trailing bits":      head + ".e3." + b64("x"),
		"header not JSON":    b64("{") + "." + rest,
		"header not object":  b64("[]") + "." + rest,
		"header repeats alg": b64(`{"alg":"ES256","alg":"none"}`) + "." + rest,
		"typ not a string":   unsigned(`{"alg":"ES256","typ":1}`),
		"kid not a string":   unsigned(`{"alg":"ES256","kid":{}}`),
		"two JWTs":           good + ", " + good,
		"JSON serialisation": `{"payload":"e30","signatures":[]}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := jose.ParseJWS(raw)
			require.ErrorIs(t, err, jose.ErrMalformed)
		})
	}
}

func TestDP20_AlgorithmsOutsideTheListAreRefused(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/4.1#d10", "poppy-0.1/4.3#d10")
	for _, alg := range []string{
		`"none"`, `"NONE"`, `"nOnE"`, `"HS256"`, `"hs256"`, `"HS384"`, `"HS512"`, `"ES256 "`, `" ES256"`, `"es256"`, `"ES256K"`, `"ES512"`,
		`"RS384"`, `"RS512"`, `"PS384"`, `"PS512"`, `"Ed25519"`, `"EdDSA\n"`, `""`, `"unknown"`, `null`, `1`, `["ES256"]`,
	} {
		t.Run(alg, func(t *testing.T) {
			_, err := jose.ParseJWS(unsigned(`{"alg":` + alg + `}`))
			require.ErrorIs(t, err, jose.ErrAlg)
		})
	}
	_, err := jose.ParseJWS(unsigned(`{"typ":"JWT"}`))
	require.ErrorIs(t, err, jose.ErrAlg)
}

func TestParseJWS_CriticalHeaderRefused(t *testing.T) {
	for _, crit := range []string{`["b64"]`, `[]`, `null`} {
		_, err := jose.ParseJWS(unsigned(`{"alg":"ES256","b64":false,"crit":` + crit + `}`))
		require.ErrorIs(t, err, jose.ErrCritical)
	}
}

func TestParseJWS_UnknownHeaderParametersAreIgnored(t *testing.T) {
	jws, err := jose.ParseJWS(unsigned(`{"alg":"ES256","jku":"https://evil.example/","x5c":["AAAA"],"future":{"a":1}}`))
	require.NoError(t, err)
	require.False(t, jws.Header.HasKey)
}

func FuzzParseJWS(f *testing.F) {
	s := es256(f)
	f.Add(sign(f, s, jose.SignHeader{Typ: "dpop+jwt", EmbedKey: true}, `{"jti":"1"}`))
	f.Add(sign(f, s, jose.SignHeader{Typ: "JWT", KID: "1"}, `{}`))
	f.Add(unsigned(`{"alg":"none"}`))
	f.Add("..")
	f.Fuzz(func(t *testing.T, raw string) {
		jws, err := jose.ParseJWS(raw)
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(raw), jose.MaxJWT)
		require.Equal(t, 2, strings.Count(raw, "."))
		require.True(t, strings.HasPrefix(raw, string(jws.SigningInput())+"."))
		require.Contains(t, jose.Algs(), string(jws.Header.Alg))
		if jws.Header.HasKey {
			_ = jws.Header.Key.VerifyJWS(&jws)
			require.True(t, strings.HasPrefix(raw, string(jws.SigningInput())+"."), "verifying changed the token")
		}
	})
}
