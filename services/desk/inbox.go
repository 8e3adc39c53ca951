package desk

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// item is a conversation in the inbox.
type item struct {
	Conversation conversation `json:"conversation"`
	LastMessage  *message     `json:"last_message"`
}

type conversation struct {
	UID           string `json:"uid"`
	Status        string `json:"status"`
	Responder     string `json:"responder"`
	AgentName     string `json:"agent_name"`
	Person        string `json:"person"`
	Assignee      string `json:"assignee"`
	HandoffReason string `json:"handoff_reason"`
}

type message struct {
	Role   string          `json:"role"`
	Sender string          `json:"sender"`
	Text   string          `json:"text"`
	Data   json.RawMessage `json:"data"`
}

type event struct {
	Sequence      int64     `json:"sequence,string"`
	Type          string    `json:"type"`
	CreateTime    time.Time `json:"create_time"`
	Message       *message  `json:"message"`
	Status        string    `json:"status"`
	Responder     string    `json:"responder"`
	Reason        string    `json:"reason"`
	Authorization *struct {
		Error string `json:"error"`
		Scope string `json:"scope"`
	} `json:"authorization"`
}

// shown is an event on one line, "" where there is nothing to show.
func (e event) shown() string {
	at := e.CreateTime.Local().Format(wholeHour)
	switch {
	case e.Message != nil:
		who := "agent"
		switch m := e.Message; {
		case m.Role == companySide && m.Sender == "human":
			who = "you (the company)"
		case m.Role == companySide:
			who = "the company's agent"
		case m.Sender == "human":
			who = "the user"
		}
		text := e.Message.Text
		if len(e.Message.Data) > 0 && string(e.Message.Data) != "null" {
			text += " " + string(e.Message.Data)
		}
		if text == "" {
			return ""
		}
		return fmt.Sprintf("%s  %s: %s", at, who, text)
	case e.Authorization != nil:
		return fmt.Sprintf("%s  asked to sign in: %s %s", at, e.Authorization.Error, e.Authorization.Scope)
	case e.Type == "user_requested":
		return fmt.Sprintf("%s  asked for the user: %s", at, e.Reason)
	case e.Type == "state":
		return fmt.Sprintf("%s  (%s, %s)", at, e.Status, e.Responder)
	}
	return fmt.Sprintf("%s  (%s)", at, e.Type)
}

// items reads the whole inbox.
func (c *client) items(ctx context.Context, company string) ([]item, error) {
	out := []item{}
	for token := ""; ; {
		var page struct {
			Items         []item `json:"items"`
			NextPageToken string `json:"next_page_token"`
		}
		if err := c.get(ctx, company+"/inbox/items", url.Values{"page_size": {"200"}, "page_token": {token}}, &page); err != nil {
			return nil, err
		}
		out = append(out, page.Items...)
		if token = page.NextPageToken; token == "" {
			return out, nil
		}
	}
}

// events reads the events of a conversation after a sequence.
func (c *client) events(ctx context.Context, company, id string, after int64) ([]event, error) {
	var out []event
	for token := ""; ; {
		var page struct {
			Events        []event `json:"events"`
			NextPageToken string  `json:"next_page_token"`
		}
		query := url.Values{"page_size": {"200"}, "page_token": {token}, "after_sequence": {strconv.FormatInt(after, 10)}}
		if err := c.get(ctx, company+"/conversations/"+id+"/events", query, &page); err != nil {
			return nil, err
		}
		out = append(out, page.Events...)
		if token = page.NextPageToken; token == "" {
			return out, nil
		}
	}
}
