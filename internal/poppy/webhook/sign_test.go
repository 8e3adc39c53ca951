package webhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
)

// The published test vector of Standard Webhooks for v1.
const (
	vectorSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	vectorID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	vectorBody      = `{"test": 2432232314}`
	vectorSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

var vectorTime = time.Unix(1614265330, 0)

func secret(t testing.TB, fill byte) webhook.Secret {
	t.Helper()
	s, err := webhook.NewSecret([]byte(strings.Repeat(string(rune(fill)), 32)))
	require.NoError(t, err)
	return s
}

func privateKey(t testing.TB, fill byte) webhook.PrivateKey {
	t.Helper()
	k, err := webhook.NewPrivateKey([]byte(strings.Repeat(string(rune(fill)), 32)))
	require.NoError(t, err)
	return k
}

func TestSign_StandardWebhooksVector(t *testing.T) {
	s, err := webhook.ParseSecret(vectorSecret)
	require.NoError(t, err)
	h, err := webhook.Sign(vectorID, vectorTime, []byte(vectorBody), s)
	require.NoError(t, err)
	require.Equal(t, webhook.Headers{ID: vectorID, Timestamp: "1614265330", Signature: vectorSignature}, h)
	require.NoError(t, webhook.Verify(h, []byte(vectorBody), vectorTime, s))
}

// sampleVerify is the verification that Standard Webhooks documents, written out.
func sampleVerify(t testing.TB, serialised string, h webhook.Headers, body []byte) bool {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(serialised, "whsec_"))
	require.NoError(t, err)
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", h.ID, h.Timestamp, body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	for _, got := range strings.Split(h.Signature, " ") {
		if got == want {
			return true
		}
	}
	return false
}

func TestWH14_Sign_EverySecretOfARotation(t *testing.T) {
	older, newer, private := secret(t, 'a'), secret(t, 'b'), privateKey(t, 'c')
	body := []byte(`{"a":1}`)
	h, err := webhook.Sign("msg_1", vectorTime, body, older, newer, private)
	require.NoError(t, err)
	parts := strings.Split(h.Signature, " ")
	require.Len(t, parts, 3)
	require.True(t, strings.HasPrefix(parts[0], "v1,") && strings.HasPrefix(parts[1], "v1,") && strings.HasPrefix(parts[2], "v1a,"))
	for _, v := range []webhook.Verifier{older, newer, private.Public()} {
		require.NoError(t, webhook.Verify(h, body, vectorTime, v))
		require.NoError(t, webhook.Verify(h, body, vectorTime, secret(t, 'x'), v))
	}
	require.True(t, sampleVerify(t, older.Reveal(), h, body))
	require.True(t, sampleVerify(t, newer.Reveal(), h, body))

	after, err := webhook.Sign("msg_1", vectorTime, body, newer, private)
	require.NoError(t, err)
	require.True(t, problem.Is(webhook.Verify(after, body, vectorTime, older), webhook.InvalidSignature))
	require.NoError(t, webhook.Verify(after, body, vectorTime, newer))
}

func TestWH13_Sign_FreshTimestampEachAttempt(t *testing.T) {
	s, body := secret(t, 'a'), []byte(`{}`)
	first, err := webhook.Sign("msg_1", vectorTime, body, s)
	require.NoError(t, err)
	later := vectorTime.Add(20 * time.Minute)
	second, err := webhook.Sign("msg_1", later, body, s)
	require.NoError(t, err)
	require.Equal(t, first.ID, second.ID)
	require.NotEqual(t, first.Timestamp, second.Timestamp)
	require.NotEqual(t, first.Signature, second.Signature)
	require.True(t, problem.Is(webhook.Verify(first, body, later, s), webhook.InvalidSignature))
	require.NoError(t, webhook.Verify(second, body, later, s))
}

func TestWH15_Verify_ExactBytes(t *testing.T) {
	s, private := secret(t, 'a'), privateKey(t, 'b')
	for _, body := range []string{"{\"a\":\"\\u00e9\\u2028<>&\",\"n\":1.0,\"b\":12345678901234567890}", "{ \"a\" : 1 }\n", "", "\x00\xff"} {
		h, err := webhook.Sign("msg_1", vectorTime, []byte(body), s, private)
		require.NoError(t, err)
		require.NoError(t, webhook.Verify(h, []byte(body), vectorTime, s))
		require.NoError(t, webhook.Verify(h, []byte(body), vectorTime, private.Public()))
		for _, other := range []string{body + " ", strings.ReplaceAll(body, "1.0", "1") + "x", strings.ReplaceAll(body, `\u00e9`, "é") + "\n"} {
			require.Error(t, webhook.Verify(h, []byte(other), vectorTime, s, private.Public()))
		}
	}
}

func TestVerify_Refused(t *testing.T) {
	s, private := secret(t, 'a'), privateKey(t, 'b')
	body := []byte(`{}`)
	good, err := webhook.Sign("msg_1", vectorTime, body, s, private)
	require.NoError(t, err)
	v1, v1a, _ := strings.Cut(good.Signature, " ")
	require.NoError(t, webhook.Verify(webhook.Headers{ID: "msg_1", Timestamp: good.Timestamp, Signature: "v2,xx  v1 v1,!! " + v1a + " " + v1}, body, vectorTime, s))
	for _, skew := range []time.Duration{-5 * time.Minute, 5 * time.Minute} {
		require.NoError(t, webhook.Verify(good, body, vectorTime.Add(skew), s))
		require.Error(t, webhook.Verify(good, body, vectorTime.Add(skew+skew/300), s))
	}
	for name, h := range map[string]webhook.Headers{
		"other id":         {ID: "msg_2", Timestamp: good.Timestamp, Signature: good.Signature},
		"no id":            {Timestamp: good.Timestamp, Signature: good.Signature},
		"other time":       {ID: "msg_1", Timestamp: "1614265331", Signature: good.Signature},
		"no time":          {ID: "msg_1", Signature: good.Signature},
		"respelled time":   {ID: "msg_1", Timestamp: "+1614265330", Signature: good.Signature},
		"huge time":        {ID: "msg_1", Timestamp: "9223372036854775807", Signature: good.Signature},
		"no signature":     {ID: "msg_1", Timestamp: good.Timestamp},
		"swapped versions": {ID: "msg_1", Timestamp: good.Timestamp, Signature: "v1a" + strings.TrimPrefix(v1, "v1") + " v1" + strings.TrimPrefix(v1a, "v1a")},
		"bare signature":   {ID: "msg_1", Timestamp: good.Timestamp, Signature: strings.TrimPrefix(v1, "v1,")},
		"cut signature":    {ID: "msg_1", Timestamp: good.Timestamp, Signature: v1[:len(v1)-4]},
		"too long":         {ID: "msg_1", Timestamp: good.Timestamp, Signature: strings.Repeat("v2,x ", 1000) + v1},
		"too many":         {ID: "msg_1", Timestamp: good.Timestamp, Signature: strings.Repeat("v2,x ", 30) + v1},
	} {
		err := webhook.Verify(h, body, vectorTime, s, private.Public())
		require.True(t, problem.Is(err, webhook.InvalidSignature), name)
	}
	require.Error(t, webhook.Verify(good, body, vectorTime))
	require.Error(t, webhook.Verify(good, body, vectorTime, webhook.Secret{}, webhook.PublicKey{}, secret(t, 'z'), privateKey(t, 'z').Public()))
}

func TestSign_Refused(t *testing.T) {
	s := secret(t, 'a')
	for _, id := range []string{"", "a.b", "a b", "a\n", "é", strings.Repeat("a", 257)} {
		_, err := webhook.Sign(id, vectorTime, nil, s)
		require.True(t, problem.Is(err, problem.InvalidRequest), "%q", id)
	}
	_, err := webhook.Sign("msg_1", vectorTime, nil)
	require.True(t, problem.Is(err, webhook.InvalidKey))
	for _, signer := range []webhook.Signer{webhook.Secret{}, webhook.PrivateKey{}} {
		_, err := webhook.Sign("msg_1", vectorTime, nil, signer)
		require.True(t, problem.Is(err, webhook.InvalidKey))
	}
}

func TestKeys_Serialisation(t *testing.T) {
	s, private := secret(t, 'a'), privateKey(t, 'b')
	back, err := webhook.ParseSecret(s.Reveal())
	require.NoError(t, err)
	require.Equal(t, s, back)
	again, err := webhook.ParsePrivateKey(private.Reveal())
	require.NoError(t, err)
	require.Equal(t, private, again)
	seedOnly, err := webhook.ParsePrivateKey("whsk_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("b", 32))))
	require.NoError(t, err)
	require.Equal(t, private, seedOnly)
	public, err := webhook.ParsePublicKey(private.Public().String())
	require.NoError(t, err)
	require.Equal(t, private.Public(), public)
	require.Len(t, s.Reveal(), len("whsec_")+44)
	require.Equal(t, webhook.PublicKey{}, webhook.PrivateKey{}.Public())

	// The key pair of Standard Webhooks' own examples.
	pair, err := webhook.ParsePrivateKey("whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==")
	require.NoError(t, err)
	require.Equal(t, "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=", pair.Public().String())
}

func TestKeys_Refused(t *testing.T) {
	b64 := func(n int) string { return base64.StdEncoding.EncodeToString(make([]byte, n)) }
	for _, raw := range []string{"", "whsec_", b64(32), "whsk_" + b64(32), "whsec_" + b64(23), "whsec_" + b64(65), "whsec_!", "WHSEC_" + b64(32), "whsec_" + b64(32) + "\n", "whsec_" + b64(32)[:43]} {
		_, err := webhook.ParseSecret(raw)
		require.True(t, problem.Is(err, webhook.InvalidKey), "%q", raw)
	}
	for _, raw := range []string{"", "whsk_", "whsk_" + b64(31), "whsk_" + b64(64), "whpk_" + b64(32), "whsk_" + b64(200)} {
		_, err := webhook.ParsePrivateKey(raw)
		require.True(t, problem.Is(err, webhook.InvalidKey), "%q", raw)
	}
	for _, raw := range []string{"", "whpk_" + b64(31), "whpk_" + b64(33), "whsk_" + b64(32)} {
		_, err := webhook.ParsePublicKey(raw)
		require.True(t, problem.Is(err, webhook.InvalidKey), "%q", raw)
	}
	_, err := webhook.NewPrivateKey(make([]byte, 64))
	require.Error(t, err)
}

func TestKeys_AreNotPrinted(t *testing.T) {
	s, private := secret(t, 'a'), privateKey(t, 'b')
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		out := fmt.Sprintf(format+format, s, private)
		require.NotContains(t, out, s.Reveal()[6:])
		require.NotContains(t, out, private.Reveal()[5:40])
		require.NotContains(t, out, "97")
	}
}

func TestKeySet(t *testing.T) {
	a, b := privateKey(t, 'a').Public(), privateKey(t, 'b').Public()
	keys := []webhook.PublishedKey{{ID: "key_2", Key: b}, {ID: "key_1", Key: a}}
	raw, err := webhook.BuildKeySet(keys)
	require.NoError(t, err)
	require.JSONEq(t, `{"keys":[{"id":"key_2","public_key":"`+b.String()+`"},{"id":"key_1","public_key":"`+a.String()+`"}]}`, string(raw))
	got, err := webhook.ParseKeySet(raw)
	require.NoError(t, err)
	require.Equal(t, keys, got)
	got, err = webhook.ParseKeySet([]byte(`{"keys":[1,{},{"public_key":"future"},{"id":"k","public_key":"` + a.String() + `","x":1}],"x":1}`))
	require.NoError(t, err)
	require.Equal(t, []webhook.PublishedKey{{ID: "k", Key: a}}, got)
	empty, err := webhook.BuildKeySet(nil)
	require.NoError(t, err)
	requireBytes(t, `{"keys":[]}`, empty)
	_, err = webhook.BuildKeySet([]webhook.PublishedKey{{ID: "k"}})
	require.Error(t, err)
	for _, raw := range []string{``, `[]`, `{}`, `{"keys":{}}`, `{"keys":[],"keys":[]}`, `{"x":"` + strings.Repeat("x", webhook.MaxKeySet) + `"}`} {
		_, err := webhook.ParseKeySet([]byte(raw))
		require.True(t, problem.Is(err, webhook.InvalidKey))
	}
}

func FuzzVerify(f *testing.F) {
	f.Add(vectorID, "1614265330", vectorSignature, []byte(vectorBody))
	f.Add("msg_1", "x", "v1a,AAAA v1,AAAA", []byte{})
	s, _ := webhook.ParseSecret(vectorSecret)
	f.Fuzz(func(t *testing.T, id, timestamp, signature string, body []byte) {
		err := webhook.Verify(webhook.Headers{ID: id, Timestamp: timestamp, Signature: signature}, body, vectorTime, s)
		if err == nil {
			require.Equal(t, vectorID+"."+"1614265330"+"."+vectorBody, id+"."+timestamp+"."+string(body))
		}
	})
}
