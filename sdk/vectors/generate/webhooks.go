package main

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
)

type webhookFile struct {
	Now int64 `json:"now"`
	// ToleranceSeconds is how far a timestamp may be off, either way.
	ToleranceSeconds int           `json:"tolerance_seconds"`
	Cases            []webhookCase `json:"cases"`
}

type webhookCase struct {
	Name    string            `json:"name"`
	Keys    []string          `json:"keys"` // whsec_… and whpk_…
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
	Genuine bool              `json:"genuine"`
}

func webhooks() (any, error) {
	seed := func(s string) []byte { sum := sha256.Sum256([]byte(s)); return sum[:] }
	now := time.Unix(proofTime, 0)
	old, err := webhook.NewSecret(seed("the old secret"))
	if err != nil {
		return nil, err
	}
	young, err := webhook.NewSecret(seed("the new secret"))
	if err != nil {
		return nil, err
	}
	private, err := webhook.NewPrivateKey(seed("the signing key"))
	if err != nil {
		return nil, err
	}
	body, err := webhook.ExampleEvent(webhook.EventClosed, now)
	if err != nil {
		return nil, err
	}
	f := webhookFile{Now: proofTime, ToleranceSeconds: int(webhook.Tolerance / time.Second)}
	v1, v1a, both := []webhook.Signer{young}, []webhook.Signer{private}, []webhook.Signer{old, young, private}
	secret, before, public := young.Reveal(), old.Reveal(), private.Public().String()
	for _, c := range []struct {
		name    string
		signers []webhook.Signer
		keys    []string
		at      time.Time
		change  func(*webhookCase)
		genuine bool
	}{
		{"v1", v1, []string{secret}, now, nil, true},
		{"v1a", v1a, []string{public}, now, nil, true},
		{"several signatures, one key known", both, []string{secret}, now, nil, true},
		{"several signatures, the public key known", both, []string{public}, now, nil, true},
		{"during a rotation, signed by the old secret alone", []webhook.Signer{old}, []string{secret, before}, now, nil, true},
		{"after a rotation, signed by the old secret alone", []webhook.Signer{old}, []string{secret}, now, nil, false},
		{"an unknown version beside a good one", v1, []string{secret}, now, func(w *webhookCase) {
			w.Headers[webhook.HeaderSignature] = "v2,AAAA " + w.Headers[webhook.HeaderSignature]
		}, true},
		{"five minutes old", v1, []string{secret}, now.Add(-webhook.Tolerance), nil, true},
		{"older", v1, []string{secret}, now.Add(-webhook.Tolerance - time.Second), nil, false},
		{"five minutes ahead", v1, []string{secret}, now.Add(webhook.Tolerance), nil, true},
		{"further ahead", v1, []string{secret}, now.Add(webhook.Tolerance + time.Second), nil, false},
		{"another body", v1, []string{secret}, now, func(w *webhookCase) { w.Body += " " }, false},
		{"another body, v1a", v1a, []string{public}, now, func(w *webhookCase) { w.Body = strings.Replace(w.Body, "closed", "Closed", 1) }, false},
		{"another timestamp", v1, []string{secret}, now, func(w *webhookCase) {
			w.Headers[webhook.HeaderTimestamp] = strconv.FormatInt(proofTime+1, 10)
		}, false},
		{"another id", v1, []string{secret}, now, func(w *webhookCase) { w.Headers[webhook.HeaderID] = "evt_other" }, false},
		{"a timestamp with a sign", v1, []string{secret}, now, func(w *webhookCase) {
			w.Headers[webhook.HeaderTimestamp] = "+" + w.Headers[webhook.HeaderTimestamp]
		}, false},
		{"no timestamp", v1, []string{secret}, now, func(w *webhookCase) { delete(w.Headers, webhook.HeaderTimestamp) }, false},
		{"no id", v1, []string{secret}, now, func(w *webhookCase) { delete(w.Headers, webhook.HeaderID) }, false},
		{"no signature", v1, []string{secret}, now, func(w *webhookCase) { delete(w.Headers, webhook.HeaderSignature) }, false},
		{"an empty signature", v1, []string{secret}, now, func(w *webhookCase) { w.Headers[webhook.HeaderSignature] = "v1," }, false},
		{"a signature that is cut off", v1, []string{secret}, now, func(w *webhookCase) {
			w.Headers[webhook.HeaderSignature] = w.Headers[webhook.HeaderSignature][:20]
		}, false},
		{"a v1 signature named v1a", v1, []string{secret, public}, now, func(w *webhookCase) {
			w.Headers[webhook.HeaderSignature] = "v1a" + strings.TrimPrefix(w.Headers[webhook.HeaderSignature], "v1")
		}, false},
	} {
		h, err := webhook.Sign("evt_01hxk5c4d3q2w1e0r9t8y7z6m5", c.at, body, c.signers...)
		if err != nil {
			return nil, err
		}
		w := webhookCase{Name: c.name, Keys: c.keys, Body: string(body), Genuine: c.genuine, Headers: map[string]string{
			webhook.HeaderID: h.ID, webhook.HeaderTimestamp: h.Timestamp, webhook.HeaderSignature: h.Signature,
		}}
		if c.change != nil {
			c.change(&w)
		}
		if err := w.check(now); err != nil {
			return nil, err
		}
		f.Cases = append(f.Cases, w)
	}
	return f, nil
}

// check fails where the product decides otherwise than the case says.
func (w webhookCase) check(now time.Time) error {
	var verifiers []webhook.Verifier
	for _, k := range w.Keys {
		if strings.HasPrefix(k, "whpk_") {
			v, err := webhook.ParsePublicKey(k)
			if err != nil {
				return err
			}
			verifiers = append(verifiers, v)
			continue
		}
		v, err := webhook.ParseSecret(k)
		if err != nil {
			return err
		}
		verifiers = append(verifiers, v)
	}
	h := webhook.Headers{ID: w.Headers[webhook.HeaderID], Timestamp: w.Headers[webhook.HeaderTimestamp], Signature: w.Headers[webhook.HeaderSignature]}
	if err := webhook.Verify(h, []byte(w.Body), now, verifiers...); (err == nil) != w.Genuine {
		return fmt.Errorf("%q: the product says %w", w.Name, err)
	}
	return nil
}
