package main

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/test/fixture"
)

// SC-05, GW-02: the token response has every field, in its type.
func TestSC05_SessionStart(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4.2#46", "poppy-0.1/4.2#47", "poppy-0.1/4#1", "poppy-0.1/4#2", "poppy-0.1/4#6", "poppy-0.1/4#9", "poppy-0.1/4#13", "poppy-0.1/4#15", "poppy-0.1/4#18", "poppy-0.1/4#19", "poppy-0.1/4#23", "poppy-0.1/4#31", "poppy-0.1/4#34", "poppy-0.1/4#17",
			"poppy-0.1/4.2#5", "poppy-0.1/4.2#6", "poppy-0.1/4.2#7", "poppy-0.1/4.2#8", "poppy-0.1/4.2#9", "poppy-0.1/4.2#10", "poppy-0.1/4.2#11", "poppy-0.1/4.2#12", "poppy-0.1/4.2#13", "poppy-0.1/4.2#14",
			"poppy-0.1/4.2#15", "poppy-0.1/4.2#16", "poppy-0.1/4.2#17", "poppy-0.1/4.2#18", "poppy-0.1/4.2#23", "poppy-0.1/4.2#24", "poppy-0.1/4.2#25", "poppy-0.1/4.2#26", "poppy-0.1/4.2#27", "poppy-0.1/4.2#28",
			"poppy-0.1/4.2#29", "poppy-0.1/4.2#30", "poppy-0.1/4.2#31", "poppy-0.1/4.2#32", "poppy-0.1/4.2#33", "poppy-0.1/4.2#35", "poppy-0.1/4.2#36", "poppy-0.1/4.2#37", "poppy-0.1/3.2#11",
			"poppy-0.1/4.3#8", "poppy-0.1/4.3#9", "poppy-0.1/4.3#15", "poppy-0.1/4.3#17", "poppy-0.1/4.3#d28")
		co := in.company(t)
		a := in.agent(t)
		got := co.token(t, co.form(t, a, "usr_1"), co.proof(t, fixture.NewKey(t))).is(t, http.StatusOK, "")
		require.Equal(t, "application/json", got.header.Get("Content-Type"))
		require.Equal(t, "no-store", got.header.Get("Cache-Control"))
		require.Len(t, got.body, 6)
		// Random and nothing else: there is nothing in it to be read, or to be encrypted.
		require.Regexp(t, `^pst_[A-Za-z0-9_-]{43}$`, got.str("access_token"))
		require.Equal(t, "DPoP", got.str("token_type"))
		require.InDelta(t, 3600, got.body["expires_in"], 0)
		require.Empty(t, got.str("scope"))
		require.Contains(t, got.body, "scope")
		require.True(t, strings.HasPrefix(got.str("session_id"), "ses_"))
		require.Equal(t, false, got.body["signed_in"])
		kept := co.admin(t, http.MethodGet, co.name+"/sessions/"+got.str("session_id"), nil).is(t, http.StatusOK, "")
		require.Equal(t, "usr_1", kept.str("user"))
		require.Equal(t, a.ClientID, kept.str("client_id"))
		require.Equal(t, false, kept.body["signed_in"])
	})
}

func TestSessions_SeveralAtOnceOfOneUser(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4#3", "poppy-0.1/4#4", "poppy-0.1/4#19", "poppy-0.1/4.2#24", "poppy-0.1/7.2#14", "poppy-0.1/4.3#6")
		co := in.company(t)
		one := co.visitor(t)
		two := one.again(t)
		require.NotEqual(t, one.id, two.id)
		require.NotEqual(t, one.token, two.token)
		id := one.talk(t, "Hello")
		two.read(t, id, "").is(t, http.StatusOK, "")
		two.post(t, messagesPath(id), text("And now this")).is(t, http.StatusAccepted, "")
		// The Company recognises the User in either.
		one.settled(t, id)
		for range 2 {
			require.Equal(t, one.user, co.backend.next(t).body.Data.User.ID)
		}
	})
}

func TestSessions_Renewal(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4#24", "poppy-0.1/4#35", "poppy-0.1/4.2#38", "poppy-0.1/4.2#39", "poppy-0.1/4.2#40", "poppy-0.1/4.3#d29", "poppy-0.1/4.3#17")
		co := in.company(t)
		s := co.visitor(t)
		id := s.talk(t, "Hello")
		key := fixture.NewKey(t)
		got := co.token(t, co.form(t, s.agent, s.user, with("session_id", s.id)), co.proof(t, key)).is(t, http.StatusOK, "")
		require.Equal(t, s.id, got.str("session_id"))
		require.Equal(t, false, got.body["signed_in"])
		require.Empty(t, got.str("scope"))
		require.Contains(t, got.body, "scope")
		require.NotEqual(t, s.token, got.str("access_token"))
		renewed := *s
		renewed.token, renewed.key = got.str("access_token"), key
		renewed.read(t, id, "").is(t, http.StatusOK, "")
		// The earlier token is good until it ends by itself (decision 29).
		s.read(t, id, "").is(t, http.StatusOK, "")
		mixed := *s
		mixed.key = key
		mixed.read(t, id, "").is(t, http.StatusUnauthorized, "invalid_dpop_proof")
	})
}

func TestSessions_RenewalOfWhatIsNotTheCallers(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4.2#34", "poppy-0.1/4.2#43", "poppy-0.1/4.2#54", "poppy-0.1/4.2#55", "poppy-0.1/4.2#42", "poppy-0.1/4#d40")
		clausetest.Refuses(t, "poppy-0.1/4.2#40", "poppy-0.1/4.2#42", "poppy-0.1/4#2", "poppy-0.1/4#24", "poppy-0.1/4.2#34", "poppy-0.1/4.2#38", "poppy-0.1/4.2#39", "poppy-0.1/4.2#43", "poppy-0.1/4.2#54", "poppy-0.1/4.2#55", "poppy-0.1/4#d40", "poppy-0.1/4.2#33", "poppy-0.1/4#35")
		co, other := in.company(t), in.company(t)
		s, foreign := co.visitor(t), other.visitor(t)
		renew := func(co *company, a *fixture.Agent, user, id string) answer {
			return co.token(t, co.form(t, a, user, with("session_id", id)), co.proof(t, s.key))
		}
		unknown := renew(co, s.agent, s.user, "ses_01h00000000000000000000000").is(t, http.StatusBadRequest, "invalid_session")
		for name, got := range map[string]answer{
			"another agent's":   renew(co, in.agent(t), s.user, s.id),
			"another User's":    renew(co, s.agent, "usr_other", s.id),
			"another Company's": renew(co, foreign.agent, foreign.user, foreign.id),
			"no id at all":      renew(co, s.agent, s.user, "x y"),
			"CO-04 NUL":         renew(co, s.agent, s.user, "ses_\x00"),
		} {
			if name == "CO-04 NUL" {
				require.Equal(t, http.StatusBadRequest, got.status, "%s", got.raw)
				continue
			}
			require.Equal(t, unknown.raw, got.is(t, http.StatusBadRequest, "invalid_session").raw, name)
		}
		renew(co, s.agent, s.user, s.id).is(t, http.StatusOK, "")
		co.admin(t, http.MethodPost, co.name+"/sessions/"+s.id+":end", object{}).is(t, http.StatusOK, "")
		renew(co, s.agent, s.user, s.id).is(t, http.StatusBadRequest, "invalid_session")
	})
}

func TestSessions_AnEndedSessionStopsAtTheNextRequest(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4.3#d29", "poppy-0.1/7.2#14", "poppy-0.1/7.13#1")
		clausetest.Refuses(t, "poppy-0.1/4.3#d29", "poppy-0.1/4#9", "poppy-0.1/4.2#43", "poppy-0.1/4.3#d44", "poppy-0.1/7.13#1")
		co := in.company(t)
		s := co.visitor(t)
		id := s.talk(t, "Hello")
		s.settled(t, id)
		newer := *s
		newer.token = co.token(t, co.form(t, s.agent, s.user, with("session_id", s.id)), co.proof(t, s.key)).is(t, http.StatusOK, "").str("access_token")
		newer.read(t, id, "").is(t, http.StatusOK, "")
		co.admin(t, http.MethodPost, co.name+"/sessions/"+s.id+":end", object{}).is(t, http.StatusOK, "")
		newer.read(t, id, "").is(t, http.StatusUnauthorized, "invalid_token").challenged(t, "invalid_token")
		s.read(t, id, "").is(t, http.StatusUnauthorized, "invalid_token").challenged(t, "invalid_token")
		s.post(t, messagesPath(id), text("Hello?")).is(t, http.StatusUnauthorized, "invalid_token")
		// The conversation goes on in the User's next Session.
		s.again(t).post(t, messagesPath(id), text("Hello again")).is(t, http.StatusAccepted, "")
	})
}

func TestSessions_TokensExpire(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4.2#30", "poppy-0.1/4.2#31")
		clausetest.Refuses(t, "poppy-0.1/4#15", "poppy-0.1/4.3#d44", "poppy-0.1/7.13#1", "poppy-0.1/4.2#30", "poppy-0.1/4.2#31", "poppy-0.1/4.2#32")
		co := in.company(t, limits(object{"session_token_lifetime": "1s"}))
		a := in.agent(t)
		key := fixture.NewKey(t)
		got := co.token(t, co.form(t, a, "usr_1"), co.proof(t, key)).is(t, http.StatusOK, "")
		require.InDelta(t, 1, got.body["expires_in"], 0)
		s := &session{co: co, agent: a, user: "usr_1", key: key, id: got.str("session_id"), token: got.str("access_token")}
		until(t, "the token expires", func() bool {
			return s.read(t, "cnv_none", "").status == http.StatusUnauthorized
		})
		s.read(t, "cnv_none", "").is(t, http.StatusUnauthorized, "invalid_token").challenged(t, "invalid_token")
		// Days are not on offer, and neither is a token that never lived.
		for _, life := range []string{"90000s", "-1s"} {
			require.Equal(t, http.StatusBadRequest, co.admin(t, http.MethodPatch, co.name+"/limits?update_mask=session_token_lifetime", object{"session_token_lifetime": life}).status)
		}
	})
}

func TestPK13_SessionAssertions(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4.2#53", "poppy-0.1/4.2#d5", "poppy-0.1/4.2#d6", "poppy-0.1/4.2#d7", "poppy-0.1/4.2#d8", "poppy-0.1/4.2#22", "poppy-0.1/4.2#20")
		clausetest.Refuses(t, "poppy-0.1/4.2#6", "poppy-0.1/4.2#12", "poppy-0.1/4.2#14", "poppy-0.1/4.2#15", "poppy-0.1/4.2#16", "poppy-0.1/4.2#17", "poppy-0.1/4.2#18", "poppy-0.1/4.2#20", "poppy-0.1/4.2#22", "poppy-0.1/4.2#23",
			"poppy-0.1/4.2#53", "poppy-0.1/4.2#d5", "poppy-0.1/4.2#d6", "poppy-0.1/4.2#d7", "poppy-0.1/4.2#d8", "poppy-0.1/4.1#15", "poppy-0.1/4.1#d10")
		co, elsewhere := in.company(t), in.company(t)
		a := in.agent(t)
		key := fixture.NewKey(t)
		at := func(d time.Duration) int64 { return now().Add(d).Unix() }
		for name, change := range map[string]fixture.Change{
			"no typ":             fixture.Typ(""),
			"no kid":             fixture.KID(""),
			"jti of 16":          fixture.Claim("jti", fixture.RandomID()[:16]),
			"five minutes":       fixture.Claim("exp", at(299*time.Second)),
			"iat a little ahead": fixture.Claim("iat", at(20*time.Second)),
			"User ID of 256":     fixture.Claim("sub", strings.Repeat("u", 256)),
		} {
			t.Run(name, func(t *testing.T) {
				co.token(t, co.form(t, a, "usr_1", with("assertion", a.SessionAssertion(t, "usr_1", co.tokenEndpoint(), now(), change))), co.proof(t, key)).is(t, http.StatusOK, "")
			})
		}
		for name, change := range map[string]fixture.Change{
			"PK-02 array of one":         fixture.Claim("aud", []string{co.tokenEndpoint()}),
			"PK-02 array of two":         fixture.Claim("aud", []string{co.tokenEndpoint(), "https://other.example/oauth/token"}),
			"PK-01 the issuer":           fixture.Claim("aud", co.issuer),
			"MT-06 another Company's":    fixture.Claim("aud", elsewhere.tokenEndpoint()),
			"other spelling":             fixture.Claim("aud", co.tokenEndpoint()+"/"),
			"no audience":                fixture.Claim("aud", nil),
			"another issuer":             fixture.Claim("iss", in.agent(t).ClientID),
			"no User":                    fixture.Claim("sub", nil),
			"empty User":                 fixture.Claim("sub", ""),
			"User ID of 257":             fixture.Claim("sub", strings.Repeat("u", 257)),
			"CO-04 NUL in the User ID":   fixture.Claim("sub", "usr_\x00"),
			"no jti":                     fixture.Claim("jti", nil),
			"jti of 15":                  fixture.Claim("jti", "123456789012345"),
			"jti of 257":                 fixture.Claim("jti", strings.Repeat("j", 257)),
			"PK-13 no exp":               fixture.Claim("exp", nil),
			"PK-13 no iat":               fixture.Claim("iat", nil),
			"PK-13 a day":                fixture.Claim("exp", at(24*time.Hour)),
			"PK-13 from the future":      func(j *fixture.JWT) { j.Claims["iat"], j.Claims["exp"] = at(10*time.Minute), at(11*time.Minute) },
			"PK-13 expired":              func(j *fixture.JWT) { j.Claims["iat"], j.Claims["exp"] = at(-3*time.Minute), at(-2*time.Minute) },
			"times as strings":           fixture.Claim("iat", strconv.FormatInt(at(0), 10)),
			"typ of a proof":             fixture.Typ("dpop+jwt"),
			"typ of a browser assertion": fixture.Typ("poppy-browser+jwt"),
			"key of nobody":              fixture.SignedBy(fixture.NewKey(t)),
			"unknown kid":                fixture.KID("k9"),
		} {
			t.Run(name, func(t *testing.T) {
				co.token(t, co.form(t, a, "usr_1", with("assertion", a.SessionAssertion(t, "usr_1", co.tokenEndpoint(), now(), change))), co.proof(t, key)).is(t, http.StatusBadRequest, "invalid_grant")
			})
		}
		t.Run("one JWT as both", func(t *testing.T) {
			both := a.ClientAssertion(t, co.tokenEndpoint(), now())
			co.token(t, co.form(t, a, "usr_1", with("assertion", both), with("client_assertion", both)), co.proof(t, key)).is(t, http.StatusBadRequest, "invalid_grant")
		})
		t.Run("a proof", func(t *testing.T) {
			co.token(t, co.form(t, a, "usr_1", with("assertion", co.proof(t, key))), co.proof(t, key)).is(t, http.StatusBadRequest, "invalid_grant")
		})
		t.Run("PK-11 none", func(t *testing.T) {
			none := forge(t, object{"alg": "none"}, co.assertionClaims(a, "usr_1"), unsigned)
			co.token(t, co.form(t, a, "usr_1", with("assertion", none)), co.proof(t, key)).is(t, http.StatusBadRequest, "invalid_grant")
		})
		t.Run("used before", func(t *testing.T) {
			form := co.form(t, a, "usr_1")
			co.token(t, form, co.proof(t, key)).is(t, http.StatusOK, "")
			form.Set("client_assertion", a.ClientAssertion(t, co.tokenEndpoint(), now()))
			co.token(t, form, co.proof(t, key)).is(t, http.StatusBadRequest, "invalid_grant")
		})
		// A request refused for something else has used nothing up (decision 7).
		t.Run("refused before", func(t *testing.T) {
			form := co.form(t, a, "usr_1")
			co.token(t, form, "x").is(t, http.StatusBadRequest, "invalid_dpop_proof")
			co.token(t, form, co.proof(t, key)).is(t, http.StatusOK, "")
		})
	})
}

// MT-06: the same agent, User, jti, key and message id at two Companies in one second.
func TestMT06_SameEverythingAtTwoCompanies(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4#d40", "poppy-0.1/4.1#d7", "poppy-0.1/4.2#d7", "poppy-0.1/4.3#d7", "poppy-0.1/4#2")
		clausetest.Refuses(t, "poppy-0.1/4#d40", "poppy-0.1/7.2#15", "poppy-0.1/7.13#3", "poppy-0.1/7.13#d19")
		one, two := in.company(t), in.company(t)
		a := in.agent(t)
		key := fixture.NewKey(t)
		jti := fixture.Claim("jti", fixture.RandomID())
		open := func(co *company) *session {
			form := co.form(t, a, "usr_1", with("client_assertion", a.ClientAssertion(t, co.tokenEndpoint(), now(), jti)), with("assertion", a.SessionAssertion(t, "usr_1", co.tokenEndpoint(), now(), jti)))
			got := co.token(t, form, co.proof(t, key, jti)).is(t, http.StatusOK, "")
			return &session{co: co, agent: a, user: "usr_1", key: key, id: got.str("session_id"), token: got.str("access_token")}
		}
		s1, s2 := open(one), open(two)
		body := message(object{"id": "msg_same", "text": "Hello"})
		first, second := s1.post(t, conversationsPath, body).is(t, http.StatusCreated, ""), s2.post(t, conversationsPath, body).is(t, http.StatusCreated, "")
		id := first.str("conversation_id")
		require.NotEqual(t, id, second.str("conversation_id"))
		require.Len(t, s1.settled(t, id), 4)
		require.Len(t, s2.settled(t, second.str("conversation_id")), 4)
		// Nothing of the one is known at the other.
		s2.read(t, id, "").is(t, http.StatusNotFound, "conversation_not_found")
		cursor := s1.events(t, id)[0].ID
		s2.read(t, second.str("conversation_id"), "cursor="+cursor).is(t, http.StatusBadRequest, "invalid_cursor")
		stolen := *s1
		stolen.co = two
		stolen.read(t, id, "").is(t, http.StatusUnauthorized, "invalid_token")
	})
}

// GW-08 and the table of 4.2: parameters that are missing, doubled or not on offer.
func TestGW08_TokenRequestsThatAreNotRight(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4.2#48", "poppy-0.1/4.2#49", "poppy-0.1/4.2#58", "poppy-0.1/4.2#59", "poppy-0.1/4.2#60", "poppy-0.1/4.2#65", "poppy-0.1/4.2#66", "poppy-0.1/4.2#d26", "poppy-0.1/4.3#d26")
		clausetest.Refuses(t, "poppy-0.1/4#18", "poppy-0.1/4#33", "poppy-0.1/4.2#48", "poppy-0.1/4.2#49", "poppy-0.1/4#23", "poppy-0.1/4#31", "poppy-0.1/4.2#5", "poppy-0.1/4.2#9", "poppy-0.1/4.2#11", "poppy-0.1/4.2#12", "poppy-0.1/4.2#37", "poppy-0.1/4.2#58", "poppy-0.1/4.2#59", "poppy-0.1/4.2#60",
			"poppy-0.1/4.2#65", "poppy-0.1/4.2#66", "poppy-0.1/4.2#d26", "poppy-0.1/4.3#d26", "poppy-0.1/4.3#35", "poppy-0.1/4.3#36", "poppy-0.1/4.3#45", "poppy-0.1/4.2#36")
		co := in.company(t)
		a := in.agent(t)
		key := fixture.NewKey(t)
		for name, c := range map[string]struct {
			change func(url.Values)
			code   string
		}{
			"no grant_type":             {without("grant_type"), "invalid_request"},
			"unknown grant":             {with("grant_type", "password"), "unsupported_grant_type"},
			"code":                      {with("grant_type", "authorization_code"), "unsupported_grant_type"},
			"refresh token":             {with("grant_type", "refresh_token"), "unsupported_grant_type"},
			"device":                    {with("grant_type", "urn:ietf:params:oauth:grant-type:device_code"), "unsupported_grant_type"},
			"no assertion":              {without("assertion"), "invalid_request"},
			"SC-03 scope":               {with("scope", "poppy:read"), "invalid_scope"},
			"SC-03 unknown scope":       {with("scope", "foo"), "invalid_scope"},
			"SC-03 double space":        {with("scope", "a  b"), "invalid_scope"},
			"unlisted resource":         {with("resource", "https://other.example/"), "invalid_target"},
			"two resources":             {func(f url.Values) { f["resource"] = []string{"https://a.example/", "https://b.example/"} }, "invalid_target"},
			"GW-08 client_id twice":     {twice("client_id"), "invalid_request"},
			"GW-08 scope twice":         {func(f url.Values) { f["scope"] = []string{"", ""} }, "invalid_request"},
			"GW-08 grant_type twice":    {twice("grant_type"), "invalid_request"},
			"GW-08 assertion twice":     {twice("assertion"), "invalid_request"},
			"GW-08 an unknown one":      {func(f url.Values) { f["x"] = []string{"1", "2"} }, "invalid_request"},
			"GW-08 client_secret":       {with("client_secret", "s3cret"), "invalid_request"},
			"GW-08 session_id twice":    {func(f url.Values) { f["session_id"] = []string{"ses_1", "ses_1"} }, "invalid_request"},
			"GW-08 client_assertion x2": {twice("client_assertion"), "invalid_request"},
		} {
			t.Run(name, func(t *testing.T) {
				co.token(t, co.form(t, a, "usr_1", c.change), co.proof(t, key)).is(t, http.StatusBadRequest, c.code)
			})
		}
		for name, change := range map[string]func(*http.Request){
			"JSON":                     header("Content-Type", "application/json"),
			"no content type":          header("Content-Type"),
			"LG-03 a token in the URL": func(r *http.Request) { r.URL.RawQuery = "access_token=pst_x" },
			"parameters in the URL":    func(r *http.Request) { r.URL.RawQuery = "client_assertion=x" },
			"two proofs":               header("DPoP", co.proof(t, key), co.proof(t, key)),
		} {
			t.Run(name, func(t *testing.T) {
				r := co.tokenRequest(t, co.form(t, a, "usr_1"), co.proof(t, key))
				change(r)
				in.do(t, r).is(t, http.StatusBadRequest, "invalid_request")
			})
		}
		t.Run("too large", func(t *testing.T) {
			co.token(t, co.form(t, a, "usr_1", with("x", strings.Repeat("x", 70<<10))), co.proof(t, key)).is(t, http.StatusRequestEntityTooLarge, "request_too_large")
		})
	})
}

func twice(name string) func(url.Values) {
	return func(f url.Values) { f[name] = []string{f.Get(name), f.Get(name)} }
}

// Every limit answers 429 with Retry-After, and where it can't be shut out of.
func TestSessions_StartsAreLimitedByClient(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4.1#21", "poppy-0.1/4.2#67", "poppy-0.1/4.2#68", "poppy-0.1/4.3#46")
		clausetest.Refuses(t, "poppy-0.1/4.1#21", "poppy-0.1/4.2#67", "poppy-0.1/4.2#68", "poppy-0.1/4.3#46")
		co := in.company(t, limits(object{"session_starts_per_minute": 3}))
		a := in.agent(t)
		for range 3 {
			co.open(t, a, "usr_1")
		}
		form := co.form(t, a, "usr_1")
		got := co.token(t, form, co.proof(t, fixture.NewKey(t))).is(t, http.StatusTooManyRequests, "rate_limited")
		wait, err := strconv.Atoi(got.header.Get("Retry-After"))
		require.NoError(t, err)
		require.Positive(t, wait)
		require.LessOrEqual(t, wait, 60)
		co.open(t, in.agent(t), "usr_1")
	})
}

// CO-05: what a client says about its address counts for nothing.
func TestCO05_ForwardedAddressesOfStrangersDoNotCount(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/4.3#46")
		clausetest.Refuses(t, "poppy-0.1/4.3#46")
		co := in.company(t)
		limited := false
		for i := range 3000 {
			r := request(t, http.MethodPost, co.tokenEndpoint(), "grant_type=x", header("Content-Type", "application/x-www-form-urlencoded"),
				header("X-Forwarded-For", "203.0.113."+strconv.Itoa(i%250)), header("Forwarded", "for=198.51.100."+strconv.Itoa(i%250)))
			got := in.do(t, r)
			if got.status == http.StatusTooManyRequests {
				require.NotEmpty(t, got.header.Get("Retry-After"))
				require.GreaterOrEqual(t, i, 300)
				limited = true
				break
			}
			require.Equal(t, http.StatusUnauthorized, got.status)
		}
		require.True(t, limited)
		// Another Company's clients aren't held back by it.
		other := in.company(t)
		other.visitor(t)
	})
}
