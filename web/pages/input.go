package pages

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// input is a field of the login form as a browser's password manager and keyboard
// want it.
type input struct {
	ID, Name, Label, Value        string
	Type, Autocomplete, InputMode string
	Invalid, Focus                bool
}

// Inputs are those of the login form.
func (v view) Inputs() []input {
	login, _ := v.Page.(Login)
	var user, secret bool // whether there was one: a form has one of each for the password manager
	inputs := make([]input, 0, len(login.Fields))
	for i, f := range login.Fields {
		in := input{
			ID: "field-" + strconv.Itoa(i), Name: "field." + f.Name, Label: f.Label,
			Type: "text", Autocomplete: "off", InputMode: "text",
			Invalid: v.Culprit() != "",
			// After a failed try it is mostly the first empty field that is wanted.
			Focus: f.Value == "" && !slices.ContainsFunc(inputs, func(in input) bool { return in.Focus }),
		}
		words := wordsOf(f.Name)
		switch {
		case isOneTimeCode(words):
			in.Autocomplete = "one-time-code"
		case f.Secret:
			in.Type = "password"
			if !secret {
				in.Autocomplete = "current-password"
			}
			secret = true
			if slices.Contains(words, "pin") {
				in.InputMode = "numeric"
			}
		default:
			in.Value = f.Value
			if !user {
				in.Autocomplete = "username"
			}
			user = true
			in.InputMode = keyboardOf(words)
		}
		inputs = append(inputs, in)
	}
	return inputs
}

// wordsOf splits a field's name such as "accountNumber" or "account_number".
func wordsOf(name string) []string {
	var b strings.Builder
	for _, r := range name {
		if unicode.IsUpper(r) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return strings.FieldsFunc(b.String(), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

func isOneTimeCode(words []string) bool {
	return slices.Contains(words, "otp") || slices.Contains(words, "totp") ||
		slices.Contains(words, "time") && slices.Contains(words, "code")
}

// keyboardOf leaves the type of an input at text: a Company may take an email address
// and a user name in the same field, and type=email would refuse the latter.
func keyboardOf(words []string) string {
	switch {
	case slices.Contains(words, "email"), slices.Contains(words, "mail"):
		return "email"
	case slices.Contains(words, "phone"), slices.Contains(words, "mobile"), slices.Contains(words, "tel"):
		return "tel"
	default:
		return "text"
	}
}
