package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/access"
	"github.com/poppyfield/poppyfield/internal/poppy/dpop"
	"github.com/poppyfield/poppyfield/internal/poppy/oauth"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/refusal"
)

const (
	proofTime  = 1796203800
	proofToken = "st_3x4mpl3T0k3n0fTh3V3ct0rs"
	proofURL   = "https://api.example.com/orders/7"
)

type proofFile struct {
	Now   int64          `json:"now"`
	Token tokenOfVectors `json:"token"`
	Cases []proofCase    `json:"cases"`
}

type tokenOfVectors struct {
	Value string `json:"value"`
	JKT   string `json:"jkt"`
}

type proofCase struct {
	Name          string   `json:"name"`
	Method        string   `json:"method"`
	URL           string   `json:"url"`
	Authorization []string `json:"authorization"`
	DPoP          []string `json:"dpop"`
	// Again says that the case is judged after one with the same proof was served.
	Again bool `json:"again,omitempty"`
	Want  want `json:"want"`
}

// draft is a proof about to be signed.
type draft struct {
	typ, alg, jwk string // of the header; "-" leaves typ or jwk out
	more          string // further members of the header, with a comma before them
	claims        map[string]string
	order         []string
	extra         string // further members of the payload, with a comma before them
	signer        key
	damage        bool
}

func (d draft) build() (string, error) {
	header := `{"alg":"` + d.alg + `"`
	if d.typ != "-" {
		header += `,"typ":"` + d.typ + `"`
	}
	if d.jwk != "-" {
		header += `,"jwk":` + d.jwk
	}
	var members []string
	for _, name := range d.order {
		if value, ok := d.claims[name]; ok {
			members = append(members, `"`+name+`":`+value)
		}
	}
	raw, err := d.signer.jws(header+d.more+"}", "{"+strings.Join(members, ",")+d.extra+"}")
	if d.damage {
		at := strings.LastIndex(raw, ".") + 1
		flipped := byte('A')
		if raw[at] == 'A' {
			flipped = 'B'
		}
		raw = raw[:at] + string(flipped) + raw[at+1:]
	}
	return raw, err
}

func proofs() (any, error) {
	mine, err := p256("the agent's key")
	if err != nil {
		return nil, err
	}
	other, err := p256("another key")
	if err != nil {
		return nil, err
	}
	f := proofFile{Now: proofTime, Token: tokenOfVectors{proofToken, mine.thumbprint()}}
	right := func() *draft {
		return &draft{typ: "dpop+jwt", alg: "ES256", jwk: mine.jwk, signer: mine, order: []string{"jti", "htm", "htu", "iat", "ath"}, claims: map[string]string{
			"jti": "", "htm": `"GET"`, "htu": strconv.Quote(proofURL), "iat": strconv.Itoa(proofTime), "ath": strconv.Quote(dpop.TokenHash(proofToken)),
		}}
	}
	claim := func(name, value string) func(*draft) {
		return func(d *draft) {
			if value == "" {
				delete(d.claims, name)
				return
			}
			d.claims[name] = value
		}
	}
	seconds := func(off int) func(*draft) { return claim("iat", strconv.Itoa(proofTime+off)) }
	htu := func(u string) func(*draft) { return claim("htu", strconv.Quote(u)) }
	const bad = "invalid_dpop_proof"
	for i, c := range []struct {
		name   string
		change func(*draft)
		err    string // "" for a request that is served
		header func(*proofCase)
	}{
		{"a right one", nil, "", nil},
		{"htu with a query", htu(proofURL + "?a=1"), "", nil},
		{"htu with a fragment", htu(proofURL + "#x"), "", nil},
		{"htu with scheme and host in capitals", htu("HTTPS://API.Example.COM/orders/7"), "", nil},
		{"htu with the default port", htu("https://api.example.com:443/orders/7"), "", nil},
		{"htu with an escape that is not needed", htu("https://api.example.com/%6Frders/7"), "", nil},
		{"the request has a query", nil, "", func(p *proofCase) { p.URL += "?page=2" }},
		{"iat at the end of the window", seconds(-60), "", nil},
		{"iat as far ahead as is allowed", seconds(10), "", nil},
		{"a fraction of a second", claim("iat", strconv.Itoa(proofTime)+".5"), "", nil},
		{"jti of 256 characters", claim("jti", strconv.Quote(strings.Repeat("j", 256))), "", nil},
		{"unknown claims and header members", func(d *draft) { d.more, d.extra = `,"x":[1,{"y":null}]`, `,"x":{"jti":"other"}` }, "", nil},
		{"the scheme in small letters", nil, "", func(p *proofCase) { p.Authorization[0] = "dpop " + proofToken }},
		{"typ is another", func(d *draft) { d.typ = "JWT" }, bad, nil},
		{"typ is missing", func(d *draft) { d.typ = "-" }, bad, nil},
		{"alg none", func(d *draft) { d.alg = "none" }, bad, nil},
		{"alg is symmetric", func(d *draft) { d.alg = "HS256" }, bad, nil},
		{"alg is not the key's", func(d *draft) { d.alg = "ES384" }, bad, nil},
		{"no jwk", func(d *draft) { d.jwk = "-" }, bad, nil},
		{"jwk with the private key", func(d *draft) { d.jwk = mine.withPrivate() }, bad, nil},
		{"crit", func(d *draft) { d.more = `,"crit":["exp"],"exp":1` }, bad, nil},
		{"a damaged signature", func(d *draft) { d.damage = true }, bad, nil},
		{"signed by another key than jwk", func(d *draft) { d.signer = other }, bad, nil},
		{"another key than the token is bound to", func(d *draft) { d.signer, d.jwk = other, other.jwk }, bad, nil},
		{"a claim twice", func(d *draft) { d.extra = `,"htm":"GET"` }, bad, nil},
		{"a header member twice", func(d *draft) { d.more = `,"typ":"dpop+jwt"` }, bad, nil},
		{"htm is another method", claim("htm", `"POST"`), bad, nil},
		{"htm in small letters", claim("htm", `"get"`), bad, nil},
		{"htm is missing", claim("htm", ""), bad, nil},
		{"htu is another path", htu("https://api.example.com/orders/8"), bad, nil},
		{"htu has the path in another case", htu("https://api.example.com/Orders/7"), bad, nil},
		{"htu has a slash at the end", htu(proofURL + "/"), bad, nil},
		{"htu is another host", htu("https://other.example.com/orders/7"), bad, nil},
		{"htu is http", htu("http://api.example.com/orders/7"), bad, nil},
		{"htu has another port", htu("https://api.example.com:8443/orders/7"), bad, nil},
		{"htu has user information", htu("https://a@api.example.com/orders/7"), bad, nil},
		{"htu is relative", htu("/orders/7"), bad, nil},
		{"htu is missing", claim("htu", ""), bad, nil},
		{"ath is missing", claim("ath", ""), bad, nil},
		{"ath is of another token", claim("ath", strconv.Quote(dpop.TokenHash("another"))), bad, nil},
		{"iat is too old", seconds(-61), bad, nil},
		{"iat is too far ahead", seconds(11), bad, nil},
		{"iat is missing", claim("iat", ""), bad, nil},
		{"iat is a string", claim("iat", strconv.Quote(strconv.Itoa(proofTime))), bad, nil},
		{"jti is missing", claim("jti", ""), bad, nil},
		{"jti is empty", claim("jti", `""`), bad, nil},
		{"jti is too long", claim("jti", strconv.Quote(strings.Repeat("j", 257))), bad, nil},
		{"no proof", nil, bad, func(p *proofCase) { p.DPoP = []string{} }},
		{"no JWT", nil, bad, func(p *proofCase) { p.DPoP = []string{"proof"} }},
		{"two proofs", nil, "invalid_request", func(p *proofCase) { p.DPoP = append(p.DPoP, p.DPoP[0]) }},
		{"no Authorization", nil, "invalid_token", func(p *proofCase) { p.Authorization = []string{} }},
		{"another scheme", nil, "invalid_token", func(p *proofCase) { p.Authorization[0] = "Basic YTpi" }},
		{"a bound token as a Bearer token", nil, "invalid_token", func(p *proofCase) { p.Authorization[0] = "Bearer " + proofToken }},
		{"two Authorization fields", nil, "invalid_request", func(p *proofCase) { p.Authorization = append(p.Authorization, p.Authorization[0]) }},
		{"two tokens in one field", nil, "invalid_request", func(p *proofCase) { p.Authorization[0] += ", DPoP " + proofToken }},
	} {
		d := right()
		d.claims["jti"] = strconv.Quote(fmt.Sprintf("vector-%d", i))
		if c.change != nil {
			c.change(d)
		}
		raw, err := d.build()
		if err != nil {
			return nil, err
		}
		p := proofCase{Name: c.name, Method: "GET", URL: proofURL, Authorization: []string{"DPoP " + proofToken}, DPoP: []string{raw}}
		if c.header != nil {
			c.header(&p)
		}
		if p.Want, err = p.judge(f, c.err); err != nil {
			return nil, err
		}
		f.Cases = append(f.Cases, p)
	}
	again := f.Cases[0]
	again.Name, again.Again = "a proof that was used before", true
	again.Want = refused(problem.New(problem.Unauthenticated, problem.InvalidDPoPProof, "", "the DPoP proof was used before"))
	ed := edwards("an Ed25519 key")
	d := right()
	d.alg, d.jwk, d.signer, d.claims["jti"] = "EdDSA", ed.jwk, ed, `"vector-ed25519"`
	raw, err := d.build()
	if err != nil {
		return nil, err
	}
	stranger := proofCase{Name: "EdDSA, by a key that the token is not bound to", Method: "GET", URL: proofURL, Authorization: []string{"DPoP " + proofToken}, DPoP: []string{raw}}
	if stranger.Want, err = stranger.judge(f, bad); err != nil {
		return nil, err
	}
	f.Cases = append(f.Cases, again, stranger)
	return f, nil
}

// judge has the product decide, and fails where it decides otherwise than expected.
func (p proofCase) judge(f proofFile, expected string) (want, error) {
	err := func() error {
		auth, err := oauth.ParseAuthorization(p.Authorization)
		if err != nil {
			return err
		}
		raw, _, err := dpop.ParseHeader(p.DPoP)
		if err != nil {
			return err
		}
		if err := access.CheckToken(access.Token{JKT: f.Token.JKT}, auth.Scheme, access.Service{}); err != nil {
			return err
		}
		_, err = dpop.CheckProof(raw, dpop.Request{
			Method: p.Method, URL: p.URL, TokenHash: dpop.TokenHash(auth.Token), KeyThumbprint: f.Token.JKT,
		}, time.Unix(f.Now, 0), dpop.Policy{})
		return err
	}()
	got := want{Allowed: true}
	if err != nil {
		got = refused(err)
	}
	if got.Error != expected {
		return want{}, fmt.Errorf("%q: the product says %q, not %q", p.Name, got.Error, expected)
	}
	return got, nil
}

func refused(err error) want {
	a := refusal.OAuth(err, refusal.Resource, "")
	out := want{Error: problem.As(err).Reason.Wire(), Status: a.Status, Headers: map[string]string{}, Body: string(a.Body)}
	for name := range a.Header {
		out.Headers[name] = a.Header.Get(name)
	}
	return out
}
