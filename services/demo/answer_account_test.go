package demo

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
)

func TestBackend_SignedOutItSaysWhatSignInIsFor(t *testing.T) {
	b := testBackend(t)
	got := ask(t, b, "1", "Where is my order?", "human", nil)
	require.Contains(t, got.Text, "signed in")
	require.Contains(t, got.Text, "number", "and what it can do without")
	require.Nil(t, got.Data)
	require.Contains(t, ask(t, b, "2", "1042", "human", nil).Text, "Order 1042 is on its way.")
	require.Contains(t, ask(t, b, "3", "What's on the menu?", "human", nil).Text, "Tonkotsu Ramen")
	require.Contains(t, ask(t, b, "4", "Change my address to Torstr. 5, 10119 Berlin", "human", nil).Text, "signed in")
}

func TestBackend_WhatIsInAnOrderIsForItsOwner(t *testing.T) {
	for name, session := range map[string]map[string]any{
		"signed out":                    signedOut(),
		"another customer":              signedIn(ken, scopeRead),
		"its owner without poppy:read":  signedIn(mia, scopeWrite),
		"an account that says it isn't": {"signed_in": false, "account": mia, "scopes": []string{scopeRead}},
	} {
		t.Run(name, func(t *testing.T) {
			got := askIn(t, testBackend(t), session, "1", "Where is order 1042?", "human", nil)
			require.Contains(t, got.Text, "Order 1042 is on its way.")
			require.NotContains(t, got.Text, "Ramen")
			require.NotContains(t, got.Text, "Mika")
			order, ok := got.Data["order"].(map[string]any)
			require.True(t, ok)
			require.NotContains(t, order, "items")
			require.NotContains(t, order, "total_cents")
		})
	}
}

func TestBackend_AnswersByAccountAndScope(t *testing.T) {
	clausetest.Covers(t, "poppy-0.1/4.4#9", "poppy-0.1/4.4#10", "poppy-0.1/4.4#11", "poppy-0.1/4.4#13", "poppy-0.1/4.4#14")
	clausetest.Refuses(t, "poppy-0.1/4.4#9", "poppy-0.1/4.4#10", "poppy-0.1/4.4#11", "poppy-0.1/4.4#14")
	for name, tc := range map[string]struct {
		session    map[string]any
		text, want string
	}{
		"Mia's order":                {signedIn(mia, scopeRead), "Where is my order?", "1042 (2 × Tonkotsu Ramen"},
		"Ken's order":                {signedIn(ken, scopeRead), "Where is my order?", "1043 (1 × Miso Ramen"},
		"somebody without orders":    {signedIn("customer-7", scopeRead), "Where is my order?", "no order of yours"},
		"orders without poppy:read":  {signedIn(mia, scopeWrite, scopeAddresses), "Where is my order?", "“poppy:read”"},
		"address by poppy:read":      {signedIn(mia, scopeRead), "What is my address?", "Kastanienallee 12"},
		"address by addresses":       {signedIn(ken, scopeAddresses), "Which delivery address do you have?", "Sonnenallee 64"},
		"address by poppy:write":     {signedIn(mia, scopeWrite), "What is my address?", "“addresses”"},
		"change by addresses":        {signedIn(mia, scopeAddresses), "Please change my address to Torstr. 5, 10119 Berlin.", "deliver to Torstr. 5, 10119 Berlin."},
		"change by poppy:write":      {signedIn(mia, scopeWrite), "My new address is Torstr. 5, 10119 Berlin", "deliver to Torstr. 5, 10119 Berlin."},
		"change by poppy:read":       {signedIn(mia, scopeRead), "Change my address to Torstr. 5, 10119 Berlin", "“addresses”"},
		"change without an address":  {signedIn(mia, scopeWrite), "I want to change my address", "What is the new address?"},
		"cancelling without write":   {signedIn(ken, scopeRead), "Please cancel order 1043", "without knowing that it is yours"},
		"cancelling with both":       {signedIn(ken, scopeRead, scopeWrite), "Please cancel order 1043", "only the kitchen can stop it"},
		"cancelling somebody else's": {signedIn(mia, scopeRead, scopeWrite), "Please cancel order 1043", "without knowing that it is yours"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, askIn(t, testBackend(t), tc.session, "1", tc.text, "human", nil).Text, tc.want)
		})
	}
}

func TestBackend_ChangesAnAddressForTheAccountAlone(t *testing.T) {
	b := testBackend(t)
	me := signedIn(mia, scopeAddresses)
	require.Contains(t, askIn(t, b, me, "1", "Ich bin umgezogen", "human", map[string]any{"locale": "de"}).Text, "neue Adresse")
	require.Contains(t, askIn(t, b, me, "2", "Torstr. 5, 10119 Berlin", "human", nil).Text, "deliver to Torstr. 5, 10119 Berlin.")
	require.Equal(t, "Torstr. 5, 10119 Berlin", b.shop.address(mia))
	require.Equal(t, "Sonnenallee 64, 12045 Berlin", b.shop.address(ken))
	require.Contains(t, askIn(t, b, signedIn(mia, scopeRead), "3", "Where is my order?", "human", nil).Text, "1042", "a postcode is no order number")
	got := askIn(t, b, signedIn("customer-7", scopeAddresses), "4", "My address is Nowhere 1", "human", nil)
	require.Contains(t, got.Text, "Nowhere 1")
	require.Empty(t, b.shop.address("customer-7"), "who is no customer has none")
}

func TestNewAddress(t *testing.T) {
	require.Equal(t, "Weg 1, Berlin", newAddress("set the address to  Weg 1,\n Berlin!", nil, false))
	require.Equal(t, "Weg 1", newAddress("Meine neue Adresse lautet: Weg 1", nil, false))
	require.Equal(t, "Weg 2", newAddress("", map[string]any{"delivery_address": "Weg 2"}, false))
	require.Equal(t, "Weg 3", newAddress("Weg 3", nil, true))
	require.Empty(t, newAddress("Weg 3", nil, false))
	require.Empty(t, newAddress("change my address to something nicer", nil, true))
	require.Empty(t, newAddress("address: "+string(make([]byte, maxAddress))+"1", nil, false))
}
