package app_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/discovery/app"
)

const (
	wellKnown = "https://noodle.example/.well-known/poppy.json"
	onWWW     = "https://www.noodle.example/.well-known/poppy.json"
)

func TestCheckDomain_TXT(t *testing.T) {
	for name, c := range map[string]struct {
		values func(want string) []string
		dns    string
		state  string
		seen   string
		detail string
	}{
		"right":               {values: func(w string) []string { return []string{w} }, state: app.Verified, seen: "poppyfield-verify=", detail: "the record is there"},
		"right among others":  {values: func(w string) []string { return []string{"v=spf1 -all", w} }, state: app.Verified, seen: "v=spf1 -all\npoppyfield-verify=", detail: "the record is there"},
		"right, with spaces":  {values: func(w string) []string { return []string{" " + w + " "} }, state: app.Verified, detail: "the record is there"},
		"of another domain":   {values: func(string) []string { return []string{"poppyfield-verify=other"} }, state: app.Pending, seen: "poppyfield-verify=other", detail: "have other values"},
		"upper case":          {values: changed(strings.ToUpper), state: app.Pending, detail: "have other values"},
		"challenge alone":     {values: changed(func(w string) string { return strings.TrimPrefix(w, "poppyfield-verify=") }), state: app.Pending, detail: "have other values"},
		"missing":             {state: app.Pending, detail: "there is no TXT record at _poppyfield.noodle.example"},
		"DNS failing":         {dns: "the look-up of the host failed", state: app.Pending, detail: "the look-up of the host failed"},
		"more than is stored": {values: func(string) []string { return []string{strings.Repeat("ü", 5000)} }, state: app.Pending, seen: "üü", detail: "have other values"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			scope, _ := r.company(t, "noodle")
			d := r.domain(t, scope, "noodle.example")
			require.Equal(t, "_poppyfield.noodle.example", app.TXTName(d.Domain))
			if c.values != nil {
				r.net.txt["_poppyfield.noodle.example"] = c.values(d.TXTValue())
			}
			r.net.dns = c.dns
			r.told()

			_, err := r.CheckDomain(t.Context(), scope, d.ID)
			require.NoError(t, err)
			got, err := r.Domain(t.Context(), scope, d.ID)
			require.NoError(t, err)
			require.Equal(t, c.state, got.State)
			o := got.Observations[0]
			require.Equal(t, app.DNSTXT, o.Method)
			require.Equal(t, o.Expected, d.TXTValue())
			require.Contains(t, o.Seen, c.seen)
			require.Contains(t, o.Detail, c.detail)
			require.Less(t, len(o.Seen), 1100)
			require.Equal(t, c.state == app.Verified, o.OK)
			require.Equal(t, r.clock.Now(), *got.CheckedAt)
			if c.state == app.Verified {
				require.Equal(t, app.DNSTXT, got.ProofMethod)
				require.Equal(t, r.clock.Now(), *got.VerifiedAt)
				require.Nil(t, got.NextCheckAt)
				require.Equal(t, []string{scope.CompanyID()}, r.told())
			} else {
				require.Equal(t, r.clock.Now().Add(time.Minute), *got.NextCheckAt)
				require.Empty(t, r.told())
			}
		})
	}
}

func changed(f func(string) string) func(string) []string {
	return func(s string) []string { return []string{f(s)} }
}

func TestPJ01_PJ10_CheckDomain_Redirect(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/3#1", "poppy-0.1/3#2", "poppy-0.1/3#3", "poppy-0.1/3#6")
	clausetest.Refuses(t, "poppy-0.1/3#1", "poppy-0.1/3#2", "poppy-0.1/3#6")
	const target = "https://noodle.poppyfield.example/poppy/noodle.example/poppy.json"
	hop := func(n string) string { return "https://noodle.example/" + n }
	for name, c := range map[string]struct {
		set    func(*internet)
		state  string
		seen   string // suffix
		detail string
		gets   int
	}{
		"direct": {func(n *internet) { n.redirect(wellKnown, target) }, app.Verified, wellKnown + ": 302 to " + target, "the redirect is there", 1},
		"301":    {func(n *internet) { n.pages[wellKnown] = app.Page{Status: 301, Location: target} }, app.Verified, "301 to " + target, "the redirect is there", 1},
		"308":    {func(n *internet) { n.pages[wellKnown] = app.Page{Status: 308, Location: target} }, app.Verified, "308 to " + target, "the redirect is there", 1},
		"with a body": {func(n *internet) {
			n.pages[wellKnown] = app.Page{Status: 302, ContentType: "text/html", Location: target}
		}, app.Verified, "302 to " + target, "the redirect is there", 1},
		"via www": {func(n *internet) { n.redirect(wellKnown, onWWW); n.redirect(onWWW, target) }, app.Verified, wellKnown + ": 302 to " + onWWW + "\n" + onWWW + ": 302 to " + target, "the redirect is there", 2},
		"another spelling": {func(n *internet) {
			n.redirect(wellKnown, "HTTPS://Noodle.Poppyfield.Example:443/poppy/noodle.example/poppy.json#x")
		}, app.Verified, "", "the redirect is there", 1},
		"relative, then direct": {func(n *internet) {
			n.redirect(wellKnown, "/a")
			n.redirect(hop("a"), "b/../c")
			n.redirect(hop("c"), target)
		}, app.Verified, hop("c") + ": 302 to " + target, "the redirect is there", 3},
		"without a scheme": {func(n *internet) {
			n.redirect(wellKnown, "//noodle.poppyfield.example/poppy/noodle.example/poppy.json")
		}, app.Verified, "", "the redirect is there", 1},
		"chain of 5": {func(n *internet) {
			n.redirect(wellKnown, hop("1"))
			n.redirect(hop("1"), hop("2"))
			n.redirect(hop("2"), hop("3"))
			n.redirect(hop("3"), hop("4"))
			n.redirect(hop("4"), target)
		}, app.Verified, "", "the redirect is there", 5},
		"chain of 6": {func(n *internet) {
			n.redirect(wellKnown, hop("1"))
			n.redirect(hop("1"), hop("2"))
			n.redirect(hop("2"), hop("3"))
			n.redirect(hop("3"), hop("4"))
			n.redirect(hop("4"), hop("5"))
			n.redirect(hop("5"), target)
		}, app.Pending, "", "more than 5 redirects", 5},
		"to http": {func(n *internet) { n.redirect(wellKnown, strings.Replace(target, "https", "http", 1)) }, app.Pending, "302 to http://noodle.poppyfield.example/poppy/noodle.example/poppy.json", "no https URL", 1},
		"to http on the way": {func(n *internet) {
			n.redirect(wellKnown, "http://noodle.example/a")
			n.redirect("http://noodle.example/a", target)
		}, app.Pending, "", "no https URL", 1},
		"to a script":      {func(n *internet) { n.redirect(wellKnown, "javascript:alert(1)") }, app.Pending, "", "no https URL", 1},
		"with credentials": {func(n *internet) { n.redirect(wellKnown, strings.Replace(target, "https://", "https://u:p@", 1)) }, app.Pending, "", "no https URL", 1},
		"to no URL":        {func(n *internet) { n.redirect(wellKnown, "https://%zz/") }, app.Pending, "", "no https URL", 1},
		"opaque":           {func(n *internet) { n.redirect(wellKnown, "https:noodle") }, app.Pending, "", "no https URL", 1},
		"loop":             {func(n *internet) { n.redirect(wellKnown, onWWW); n.redirect(onWWW, wellKnown) }, app.Pending, "", "the redirects lead back to " + wellKnown, 2},
		"to itself":        {func(n *internet) { n.redirect(wellKnown, wellKnown) }, app.Pending, "", "the redirects lead back to " + wellKnown, 1},
		"document of another one": {func(n *internet) {
			n.redirect(wellKnown, strings.Replace(target, "/noodle.example/", "/other.example/", 1))
		}, app.Pending, "", "the host does not resolve", 2},
		"another Company":     {func(n *internet) { n.redirect(wellKnown, strings.Replace(target, "//noodle.", "//other.", 1)) }, app.Pending, "", "the host does not resolve", 2},
		"without a Location":  {func(n *internet) { n.pages[wellKnown] = app.Page{Status: 302} }, app.Pending, ": 302", "answers 302 instead of redirecting", 1},
		"not a redirect: 304": {func(n *internet) { n.pages[wellKnown] = app.Page{Status: 304, Location: target} }, app.Pending, ": 304", "answers 304 instead of redirecting", 1},
		"not a redirect: 201": {func(n *internet) { n.pages[wellKnown] = app.Page{Status: 201, Location: target} }, app.Pending, ": 201", "answers 201 instead of redirecting", 1},
		"200 HTML (soft 404)": {func(n *internet) { n.pages[wellKnown] = app.Page{Status: 200, ContentType: "text/html"} }, app.Pending, wellKnown + ": 200 with text/html", "not published: " + wellKnown + " answers 200 with text/html", 1},
		"200 JSON":            {func(n *internet) { n.pages[wellKnown] = app.Page{Status: 200, ContentType: "application/json"} }, app.Pending, "200 with application/json", "answers 200 with application/json instead of redirecting", 1},
		"200 empty":           {func(n *internet) { n.pages[wellKnown] = app.Page{Status: 200} }, app.Pending, ": 200", "answers 200 instead of redirecting", 1},
		"404":                 {func(n *internet) { n.pages[wellKnown] = app.Page{Status: 404, ContentType: "text/html"} }, app.Pending, "404 with text/html", "not published: " + wellKnown + " answers 404", 1},
		"failure":             {func(*internet) {}, app.Pending, wellKnown + ": the host does not resolve", wellKnown + ": the host does not resolve", 1},
		"failure of a later host": {func(n *internet) {
			n.redirect(wellKnown, onWWW)
			n.pages[onWWW] = app.Page{Failure: "the address is not on the public Internet"}
		}, app.Pending, "", onWWW + ": the address is not on the public Internet", 2},
		"redirect to private name": {func(n *internet) {
			n.redirect(wellKnown, "https://10.0.0.1/")
			n.pages["https://10.0.0.1/"] = app.Page{Failure: "the address is not on the public Internet"}
		}, app.Pending, "", "not on the public Internet", 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			scope, company := r.company(t, "noodle")
			require.Equal(t, "https://noodle.poppyfield.example", company.Issuer.String())
			d := r.domain(t, scope, "www.Noodle.example.")
			c.set(r.net)

			_, err := r.CheckDomain(t.Context(), scope, d.ID)
			require.NoError(t, err)
			got, err := r.Domain(t.Context(), scope, d.ID)
			require.NoError(t, err)
			require.Equal(t, c.state, got.State)
			o := got.Observations[1]
			require.Equal(t, app.Redirect, o.Method)
			require.Equal(t, target, o.Expected)
			require.True(t, strings.HasSuffix(o.Seen, c.seen), o.Seen)
			require.Contains(t, o.Detail, c.detail)
			require.Equal(t, c.state == app.Verified, o.OK)
			require.Len(t, r.net.gets, c.gets)
			require.NotContains(t, r.net.gets, target, "the document isn't served before the proof")
		})
	}
}

func TestCheckDomain_EitherProofIsEnough(t *testing.T) {
	r := newRig(t)
	scope, c := r.company(t, "noodle")
	d := r.domain(t, scope, "noodle.example")
	r.net.txt["_poppyfield.noodle.example"] = []string{d.TXTValue()}
	r.net.redirect(wellKnown, c.Issuer.DocumentURL(d.Domain))
	got, err := r.CheckDomain(t.Context(), scope, d.ID)
	require.NoError(t, err)
	require.Equal(t, app.DNSTXT, got.ProofMethod)
	require.True(t, got.Observations[0].OK)
	require.True(t, got.Observations[1].OK)
}

func TestCheckDomain_VerifiedStaysVerified(t *testing.T) {
	r := newRig(t)
	scope, _ := r.company(t, "noodle")
	d := r.domain(t, scope, "noodle.example")
	r.net.txt["_poppyfield.noodle.example"] = []string{d.TXTValue()}
	first, err := r.CheckDomain(t.Context(), scope, d.ID)
	require.NoError(t, err)
	delete(r.net.txt, "_poppyfield.noodle.example")
	r.clock.Advance(time.Hour)
	r.told()
	got, err := r.CheckDomain(t.Context(), scope, d.ID)
	require.NoError(t, err)
	require.Equal(t, app.Verified, got.State)
	require.Equal(t, first.VerifiedAt, got.VerifiedAt)
	require.False(t, got.Observations[0].OK, "what is seen now is readable all the same")
	require.Empty(t, r.told())
}

func TestMT09_CheckDomain_SameDomainAtTwoCompanies(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/3#d1")
	r := newRig(t)
	a, _ := r.company(t, "a")
	b, bc := r.company(t, "b")
	first := r.domain(t, a, "noodle.example")
	r.net.txt["_poppyfield.noodle.example"] = []string{first.TXTValue()}
	_, err := r.CheckDomain(t.Context(), a, first.ID)
	require.NoError(t, err)
	for _, spelling := range []string{"www.noodle.example", "NOODLE.example", "noodle.example."} {
		second, err := r.CreateDomain(t.Context(), b, spelling, false)
		require.NoError(t, err)
		require.Equal(t, "noodle.example", second.Domain.String())
		require.NotEqual(t, first.Challenge, second.Challenge)

		// The record of the first proves nothing for the second.
		got, err := r.CheckDomain(t.Context(), b, second.ID)
		require.NoError(t, err)
		require.Equal(t, app.Pending, got.State)

		// Nor does control of the redirect, while the first has the domain.
		r.net.redirect(wellKnown, bc.Issuer.DocumentURL(second.Domain))
		got, err = r.CheckDomain(t.Context(), b, second.ID)
		require.NoError(t, err)
		require.Equal(t, app.Taken, got.State)
		require.True(t, got.Observations[1].OK)
		docs, err := r.Documents(t.Context(), b)
		require.NoError(t, err)
		require.Empty(t, docs.ByDomain)
		require.NotContains(t, string(docs.Metadata), "noodle.example")
		delete(r.net.pages, wellKnown)
		require.NoError(t, r.DeleteDomain(t.Context(), b, second.ID))
	}
	require.Contains(t, r.state(t, a).Issuer.String(), "a.")
}

func TestMT09_Subdomain_NeedsItsOwnProof(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/3#d39")
	clausetest.Refuses(t, "poppy-0.1/3#d39")
	r := newRig(t)
	a, _ := r.company(t, "a")
	b, _ := r.company(t, "b")
	parent := r.domain(t, a, "noodle.example")
	r.net.txt["_poppyfield.noodle.example"] = []string{parent.TXTValue()}
	_, err := r.CheckDomain(t.Context(), a, parent.ID)
	require.NoError(t, err)
	sub := r.domain(t, b, "shop.noodle.example")
	r.net.txt["_poppyfield.noodle.example"] = []string{parent.TXTValue(), sub.TXTValue()}
	got, err := r.CheckDomain(t.Context(), b, sub.ID)
	require.NoError(t, err)
	require.Equal(t, app.Pending, got.State, "a record of the parent isn't one of the subdomain")
	r.net.txt["_poppyfield.shop.noodle.example"] = []string{sub.TXTValue()}
	got, err = r.CheckDomain(t.Context(), b, sub.ID)
	require.NoError(t, err)
	require.Equal(t, app.Verified, got.State)
}

func TestCheckDomain_EgressAwayIsNoAnswerOfTheDomain(t *testing.T) {
	r := newRig(t)
	scope, _ := r.company(t, "noodle")
	d := r.domain(t, scope, "noodle.example")
	r.net.down[wellKnown] = errRelay
	_, err := r.CheckDomain(t.Context(), scope, d.ID)
	require.ErrorIs(t, err, errRelay)
	got, err := r.Domain(t.Context(), scope, d.ID)
	require.NoError(t, err)
	require.Nil(t, got.CheckedAt)
	require.Empty(t, got.Observations)
}

func TestCheckDomain_SlowSiteIsSeenAsSlow(t *testing.T) {
	r := newRigWith(t, app.Config{HostedDomain: "poppyfield.example", Bounds: app.DefaultBounds(), LookTime: 20 * time.Millisecond})
	scope, _ := r.company(t, "noodle")
	d := r.domain(t, scope, "noodle.example")
	r.net.hang[wellKnown], r.net.txt["_poppyfield.noodle.example"] = true, []string{"other"}
	got, err := r.CheckDomain(t.Context(), scope, d.ID)
	require.NoError(t, err)
	require.Equal(t, app.Pending, got.State)
	require.Equal(t, "no answer within 20ms", got.Observations[1].Detail)
	require.Equal(t, "other", got.Observations[0].Seen)
}

func TestCheckDue_OneThatFailsDoesNotStopTheOthers(t *testing.T) {
	r := newRig(t)
	a, _ := r.company(t, "a")
	b, bc := r.company(t, "b")
	broken := r.domain(t, a, "broken.example")
	r.net.down["_poppyfield.broken.example"] = errRelay
	r.clock.Advance(time.Second)
	good := r.domain(t, b, "noodle.example")
	r.net.redirect(wellKnown, bc.Issuer.DocumentURL(good.Domain))

	// One at a time: the broken one is first, and must not be first for ever.
	require.ErrorIs(t, r.CheckDue(t.Context(), 1), errRelay)
	require.NoError(t, r.CheckDue(t.Context(), 1))
	got, err := r.Domain(t.Context(), b, good.ID)
	require.NoError(t, err)
	require.Equal(t, app.Verified, got.State)
	got, err = r.Domain(t.Context(), a, broken.ID)
	require.NoError(t, err)
	require.Equal(t, r.clock.Now().Add(time.Minute), *got.NextCheckAt)
}

func TestCheckDue_LooksLessAndLessOften(t *testing.T) {
	r := newRig(t)
	scope, _ := r.company(t, "noodle")
	d := r.domain(t, scope, "noodle.example")
	begin := r.clock.Now()
	looks, longest := 0, time.Duration(0)
	for r.clock.Now().Sub(begin) < 7*24*time.Hour {
		require.NoError(t, r.CheckDue(t.Context(), 10))
		got, err := r.Domain(t.Context(), scope, d.ID)
		require.NoError(t, err)
		wait := got.NextCheckAt.Sub(r.clock.Now())
		require.GreaterOrEqual(t, wait, time.Minute)
		longest = max(longest, wait)
		looks++
		r.clock.Advance(wait - time.Millisecond)
		gets := len(r.net.gets)
		require.NoError(t, r.CheckDue(t.Context(), 10))
		require.Len(t, r.net.gets, gets, "not before it is due")
		r.clock.Advance(time.Millisecond)
	}
	require.Equal(t, 6*time.Hour, longest)
	require.Less(t, looks, 60)
}

func TestCheckDomain_DeletedMeanwhile(t *testing.T) {
	r := newRig(t)
	scope, _ := r.company(t, "noodle")
	d := r.domain(t, scope, "noodle.example")
	require.NoError(t, r.DeleteDomain(t.Context(), scope, d.ID))
	_, err := r.CheckDomain(t.Context(), scope, d.ID)
	requireReason(t, err, problem.NotFoundReason)
	require.NoError(t, r.CheckDue(t.Context(), 10))
}

func TestCreateDomain_RefusesWhatIsNoDomain(t *testing.T) {
	clausetest.Refuses(t, "poppy-0.1/3.1#d1")
	r := newRig(t)
	scope, _ := r.company(t, "noodle")
	for _, name := range []string{"", "localhost", "10.0.0.1", "https://noodle.example", "noodle.example:443", "noodle.example/x", "a b.example", "-a.example", "www.www.example"} {
		_, err := r.CreateDomain(t.Context(), scope, name, false)
		requireReason(t, err, problem.InvalidRequest, "domain.domain")
	}
}

func TestCreateDomain_ValidateOnly(t *testing.T) {
	r := newRig(t)
	scope, _ := r.company(t, "noodle")
	got, err := r.CreateDomain(t.Context(), scope, "BÜCHER.example", true)
	require.NoError(t, err)
	require.Equal(t, "xn--bcher-kva.example", got.Domain.String())
	list, err := r.ListDomains(t.Context(), scope, "", 10)
	require.NoError(t, err)
	require.Empty(t, list)
	r.domain(t, scope, "bücher.example")
	_, err = r.CreateDomain(t.Context(), scope, "bücher.example", true)
	requireReason(t, err, problem.AlreadyExists, "domain.domain")
}
