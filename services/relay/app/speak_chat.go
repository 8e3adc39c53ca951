package app

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/poppyfield/poppyfield/internal/platform/egress"
	"github.com/poppyfield/poppyfield/internal/platform/pieces"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/poppy/webhook"
	"github.com/poppyfield/poppyfield/services/relay/chat"
)

// speakChat asks a chat model. A server that refuses the request with tools is asked
// once more without them, within the same attempt.
func (a *App) speakChat(ctx context.Context, q Question, t told, p *pieces.Joiner) Spoken {
	r := chatRequest(q, t)
	out := a.askModel(ctx, q, r, t, p)
	if refusesTools(out.Response) {
		r.WithoutTools = true
		out = a.askModel(ctx, q, r, t, p)
	}
	return out
}

func chatRequest(q Question, t told) chat.Request {
	r := chat.Request{Model: q.Endpoint.Model, Instructions: q.Endpoint.Instructions, About: chat.About{
		Human: t.Message.Sender == "human", Direct: t.Conversation.Direct,
		SignedIn: t.Session.SignedIn, Account: t.Session.Account, Scopes: t.Session.Scopes, Context: t.Context,
	}}
	for _, turn := range q.History {
		r.Turns = append(r.Turns, chat.Turn{Company: turn.Role == "company", Text: turn.Text, Data: turn.Data})
	}
	if len(r.Turns) == 0 {
		r.Turns = []chat.Turn{{Text: t.Message.Text, Data: t.Message.Data}}
	}
	return r
}

// refusesTools reports a refusal that may be of the tools alone.
func refusesTools(res egress.Response) bool {
	switch res.Status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return true
	case http.StatusInternalServerError, http.StatusNotImplemented:
		return bytes.Contains(bytes.ToLower(res.Body), []byte("tool"))
	}
	return false
}

func (a *App) askModel(ctx context.Context, q Question, r chat.Request, t told, p *pieces.Joiner) Spoken {
	body, err := r.Build()
	if err != nil {
		return Spoken{Err: problem.New(problem.Internal, problem.ServerError, "", "the request can't be built").WithCause(err)}
	}
	res, err := a.ask(ctx, q, request{url: q.Endpoint.URL, header: unsigned(q.Header), body: body, accept: streamType + ", " + jsonType})
	if err != nil {
		return Spoken{Response: res.Answer(nil), Err: err}
	}
	defer res.Body.Close()
	if !success(res.Status) {
		out := refused(res)
		out.Reason = chatRefusal(out.Response)
		return out
	}
	var answer chat.Answer
	var seen []byte
	if res.ContentType == streamType {
		stream := chat.NewStream(p.Add)
		if seen, err = follow(res, stream); err == nil {
			answer, err = stream.Close()
		}
	} else if seen, err = readWhole(res); err == nil {
		answer, err = chat.ParseAnswer(seen)
	}
	return chatSpoken(res.Answer(evidence(seen)), answer, err, t.Session.SignedIn)
}

func chatSpoken(res egress.Response, answer chat.Answer, err error, signedIn bool) Spoken {
	out := Spoken{Response: res}
	var reported *chat.Error
	switch {
	case errors.Is(err, chat.ErrCut):
		out.Err = &egress.Error{Kind: egress.Protocol, Detail: "the answer broke off"}
	case errors.As(err, &reported):
		out.Reason = "the model's server reports an error"
		if reported.Code != "" {
			out.Reason += ": " + reported.Code
		}
		out.Err = badAnswer(err)
	case egress.KindOf(err) != "":
		out.Err = err
	case err != nil:
		out.Err = badAnswer(err)
	default:
		reply, err := answer.Reply(signedIn)
		if err != nil {
			out.Err = err
			break
		}
		out.Answer = webhook.Answer{Reply: reply}
		if answer.Filtered {
			out.Reason = "delivered; the model's content filter stopped it"
		}
	}
	return out
}

// chatRefusal says what a status means at a chat endpoint, "" where it says enough itself.
func chatRefusal(res egress.Response) string {
	status := strconv.Itoa(res.Status)
	switch code := chat.ErrorCode(res.Body); {
	case res.Status == http.StatusUnauthorized || res.Status == http.StatusForbidden:
		return "the API key is refused with status " + status
	case res.Status == http.StatusNotFound:
		return "no such model or address: status " + status
	case code == "insufficient_quota":
		return "the quota at the model's server is used up: status " + status
	case code == "context_length_exceeded":
		return "the conversation is too long for the model: status " + status
	case res.Status == http.StatusBadRequest && code != "":
		return "status " + status + ": " + code
	}
	return ""
}

func badAnswer(err error) error {
	return problem.New(problem.Invalid, webhook.InvalidAnswer, "", "%s", err.Error()).WithCause(err)
}
