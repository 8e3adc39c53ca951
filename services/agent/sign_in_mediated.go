package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"
)

// mediatedAnswer is a result of Mediated Sign-In (4.7).
type mediatedAnswer struct {
	Status   string `json:"status"`
	SignInID string `json:"sign_in_id"`
	Code     struct {
		SentTo string `json:"sent_to"`
	} `json:"code"`
	Expires time.Time `json:"expires_at"`
}

// mediated is Mediated Sign-In: the agent passes on what the User gives it for this
// Company, to the one place that the Company names for it (4.7).
func (s *signIn) mediated(ctx context.Context) error {
	creds, err := s.askCredentials(ctx)
	if err != nil {
		return err
	}
	in, err := s.sendCredentials(ctx, creds)
	if err != nil {
		return err
	}
	for wrong, moved := false, false; ; wrong = true {
		if errorCode(in) == "account_mismatch" && !moved {
			// Which account it is may show only with the code. poppy-0.1/4.7#20: what was
			// begun in one Session is not finished in another.
			if in, err = s.startOver(ctx, creds, in); err != nil {
				return err
			}
			wrong, moved = false, true
		}
		answer, err := parseMediated(in)
		if err != nil {
			return s.mediatedRefusal(in, creds, err)
		}
		switch answer.Status {
		case "complete":
			return s.complete(ctx, in, "") // there is no resource to ask for here
		case "failed":
			return fail(ExitRefused, "4.7", "%s did not accept this; nothing was changed", s.company.name)
		case "expired":
			return fail(ExitRefused, "4.7", "the code came too late; run the command again")
		}
		if in, err = s.sendCode(ctx, creds, answer, wrong); err != nil {
			return err
		}
	}
}

// askCredentials asks for every field, or takes what was given with the command.
func (s *signIn) askCredentials(ctx context.Context) (*credentials, error) {
	var values map[string]string
	if s.opts.Credentials != nil {
		given, err := s.opts.Credentials(ctx)
		if err != nil {
			return nil, err
		}
		values = given
	} else {
		values = map[string]string{}
		s.person.Show(s.company.name + " asks for these, to sign you in:")
		for _, f := range s.offer.fields {
			v, err := s.person.Ask(ctx, f.Label, f.secret())
			if err != nil {
				return nil, err
			}
			values[f.Name] = v
		}
	}
	if err := checkCredentials(s.offer.fields, values); err != nil {
		return nil, err
	}
	return newCredentials(values), nil
}

func (s *signIn) sendCredentials(ctx context.Context, creds *credentials) (incoming, error) {
	return s.post(ctx, creds, "Pass the User's credentials on", s.offer.endpoint,
		map[string]any{"scope": s.scope.String(), "credentials": creds.values})
}

// startOver sends the credentials in a new Session where the one there was belongs to
// another account (poppy-0.1/4.4#42).
func (s *signIn) startOver(ctx context.Context, creds *credentials, in incoming) (incoming, error) {
	if err := s.replaceSession(ctx, in); err != nil {
		return incoming{}, err
	}
	return s.sendCredentials(ctx, creds)
}

// sendCode asks the User for the one-time code and sends it, without the credentials.
func (s *signIn) sendCode(ctx context.Context, creds *credentials, answer mediatedAnswer, wrong bool) (incoming, error) {
	if wrong {
		s.person.Show("That code was not right.")
	}
	sent := ""
	if answer.Code.SentTo != "" {
		sent = " (" + clip(creds.hide(answer.Code.SentTo)) + ")"
	}
	code, err := s.person.Ask(ctx, "The code that "+s.company.name+" sent you"+sent, false)
	if err != nil {
		return incoming{}, err
	}
	code = strings.TrimSpace(code)
	if code == "" {
		return incoming{}, fail(ExitUsage, "4.7", "no code; nothing was changed")
	}
	creds.addCode(code)
	at := strings.TrimSuffix(s.offer.endpoint, "/") + "/" + answer.SignInID
	return s.post(ctx, creds, "Pass the one-time code on", at, map[string]any{"code": code})
}

// post makes a request of Mediated Sign-In. It is never repeated after a broken
// connection: the Company counts attempts.
func (s *signIn) post(ctx context.Context, creds *credentials, title, url string, body map[string]any) (incoming, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return incoming{}, errors.New("encoding the request")
	}
	return s.call(ctx, "4.7", title, outgoing{
		method: http.MethodPost, url: url, body: string(raw), limit: documentLimit,
		expected: []string{"account_mismatch"}, credentials: creds,
	})
}

// mediatedRefusal is the failure of an answer without a usable status. The Company's
// words may repeat what it was sent.
func (s *signIn) mediatedRefusal(in incoming, creds *credentials, err error) error {
	if in.status == http.StatusOK {
		return fail(ExitRefused, "4.7", "the answer").because(err)
	}
	r := parseRefusal(in, s.agent.clock.Now())
	r.code, r.description, r.scope = creds.hide(r.code), creds.hide(r.description), creds.hide(r.scope)
	return fail(ExitRefused, "4.7", "not signed in").because(r)
}

func parseMediated(in incoming) (mediatedAnswer, error) {
	if in.status != http.StatusOK {
		return mediatedAnswer{}, errors.New("it is an error")
	}
	var head struct {
		Status string `json:"status"`
	}
	if err := parseObject(in.body, &head); err != nil {
		return mediatedAnswer{}, errors.New("it is not one JSON object with a status")
	}
	switch head.Status {
	case "complete", "failed", "expired":
		return mediatedAnswer{Status: head.Status}, nil
	case "code_required":
	default:
		return mediatedAnswer{}, errors.New("its status is none of this protocol")
	}
	var a mediatedAnswer
	if json.Unmarshal(in.body, &a) != nil || !validID(a.SignInID) { // the ID goes into a URL
		return mediatedAnswer{}, errors.New("it asks for a code without a sign_in_id and expires_at of the right form")
	}
	return a, nil
}
