package rpc

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/poppyfield/poppyfield/internal/platform/clock"
	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/conversations/app"
	"github.com/poppyfield/poppyfield/services/conversations/changes"
	"github.com/poppyfield/poppyfield/services/conversations/store"
)

// Inbox implements adminv1.InboxServiceServer.
type Inbox struct {
	adminv1.UnimplementedInboxServiceServer
	App   *app.App
	Store *store.Store
	Now   clock.Clock
	// Changes, Connected, Heartbeat and Stopping are for watches: who tells them of changes,
	// whether anybody does at the moment, how often they say that they live, and when they end.
	Changes   *changes.Hub
	Connected func() bool
	Heartbeat time.Duration
	Stopping  <-chan struct{}
}

// inboxOf returns the scope of the call, whose inbox name has to be.
func inboxOf(ctx context.Context, name, suffix string) (tenancy.Scope, error) {
	scope, err := tenancy.From(ctx)
	if err == nil && name != scope.Name()+suffix {
		err = resource.NotFound()
	}
	return scope, err
}

// settled answers with a conversation, or with what kept a person from acting on it.
func settled(scope tenancy.Scope, c *store.Conversation, err error) (*adminv1.Conversation, error) {
	if err != nil {
		return nil, missing(err)
	}
	return toProto(scope, c)
}

// AssignConversation implements the service.
func (s *Inbox) AssignConversation(ctx context.Context, req *adminv1.AssignConversationRequest) (*adminv1.Conversation, error) {
	scope, id, err := named(ctx, req.GetConversation())
	if err != nil {
		return nil, err
	}
	c, err := s.App.Assign(ctx, scope, id, req.GetPerson())
	return settled(scope, c, err)
}

// JoinConversation implements the service.
func (s *Inbox) JoinConversation(ctx context.Context, req *adminv1.JoinConversationRequest) (*adminv1.Conversation, error) {
	scope, id, err := named(ctx, req.GetConversation())
	if err != nil {
		return nil, err
	}
	c, err := s.App.Join(ctx, scope, id, req.GetPerson())
	return settled(scope, c, err)
}

// TransferConversation implements the service.
func (s *Inbox) TransferConversation(ctx context.Context, req *adminv1.TransferConversationRequest) (*adminv1.Conversation, error) {
	scope, id, err := named(ctx, req.GetConversation())
	if err != nil {
		return nil, err
	}
	c, err := s.App.Transfer(ctx, scope, id, req.GetPerson(), req.GetToPerson())
	return settled(scope, c, err)
}

// HandBackConversation implements the service.
func (s *Inbox) HandBackConversation(ctx context.Context, req *adminv1.HandBackConversationRequest) (*adminv1.Conversation, error) {
	scope, id, err := named(ctx, req.GetConversation())
	if err != nil {
		return nil, err
	}
	c, err := s.App.HandBack(ctx, scope, id, req.GetPerson(), req.GetNote())
	return settled(scope, c, err)
}

// DeclineHandoff implements the service.
func (s *Inbox) DeclineHandoff(ctx context.Context, req *adminv1.DeclineHandoffRequest) (*adminv1.Conversation, error) {
	scope, id, err := named(ctx, req.GetConversation())
	if err != nil {
		return nil, err
	}
	c, err := s.App.DeclineHandoff(ctx, scope, id, req.GetReason())
	return settled(scope, c, err)
}

// SendAsPerson implements the service.
func (s *Inbox) SendAsPerson(ctx context.Context, req *adminv1.SendAsPersonRequest) (*adminv1.RespondResponse, error) {
	scope, id, err := named(ctx, req.GetConversation())
	if err != nil {
		return nil, err
	}
	reply, err := personReply(req)
	if err != nil {
		return nil, err
	}
	c, events, err := s.App.SendAsPerson(ctx, scope, id, req.GetPerson(), reply)
	if err != nil {
		return nil, missing(err)
	}
	return responded(scope, c, events)
}

// personReply checks what a person says and does. That it is a person is ours to say.
func personReply(req *adminv1.SendAsPersonRequest) (conversation.Reply, error) {
	r, err := parseSaid(string(conversation.SenderHuman), req)
	if err != nil {
		return r, err
	}
	return r, r.Check()
}

const (
	maxNote  = 10_000 // characters
	noteKind = "notes"
)

// CreateNote implements the service.
func (s *Inbox) CreateNote(ctx context.Context, req *adminv1.CreateNoteRequest) (*adminv1.Note, error) {
	scope, id, err := named(ctx, req.GetParent())
	if err != nil {
		return nil, err
	}
	n := req.GetNote()
	if len([]rune(n.GetAuthor())) > 200 {
		return nil, resource.Invalid("note.author", "has more than 200 characters")
	}
	if size := len([]rune(n.GetText())); size == 0 || size > maxNote {
		return nil, resource.Invalid("note.text", "has no text, or more than 10,000 characters")
	}
	got, err := s.App.AddNote(ctx, scope, store.Note{ConversationID: id, Author: n.GetAuthor(), Text: n.GetText()})
	if err != nil {
		return nil, missing(err)
	}
	return note(scope, got), nil
}

// ListNotes implements the service.
func (s *Inbox) ListNotes(ctx context.Context, req *adminv1.ListNotesRequest) (*adminv1.ListNotesResponse, error) {
	scope, id, err := named(ctx, req.GetParent())
	if err != nil {
		return nil, err
	}
	now, size := s.Now(), resource.Size(req.GetPageSize())
	at, last, err := timeKey(now, req.GetPageToken(), req.GetParent(), noteKind)
	if err != nil {
		return nil, err
	}
	var page []store.Note
	err = s.Store.Read(ctx, scope, func(ctx context.Context, tx store.Tx) error {
		if _, err := tx.Conversation(ctx, id); err != nil {
			return err
		}
		var err error
		page, err = tx.Notes(ctx, id, store.NotePosition{CreatedAt: at, ID: last}, size+1)
		return err
	})
	if err != nil {
		return nil, missing(err)
	}
	out := &adminv1.ListNotesResponse{}
	if len(page) > size {
		page = page[:size]
		last := page[size-1]
		out.NextPageToken = resource.Token(now, []string{micros(last.CreatedAt), last.ID}, req.GetParent(), noteKind)
	}
	for _, n := range page {
		out.Notes = append(out.Notes, note(scope, n))
	}
	return out, nil
}

func note(scope tenancy.Scope, n store.Note) *adminv1.Note {
	return &adminv1.Note{
		Name:   scope.Name() + "/" + kind + "/" + n.ConversationID + "/" + noteKind + "/" + n.ID,
		Author: n.Author, Text: n.Text, CreateTime: timestamppb.New(n.CreatedAt),
	}
}

// SetPresence implements the service.
func (s *Inbox) SetPresence(ctx context.Context, req *adminv1.SetPresenceRequest) (*adminv1.Presence, error) {
	scope, err := inboxOf(ctx, req.GetParent(), "/inbox")
	if err != nil {
		return nil, err
	}
	p, err := s.App.SetPresence(ctx, scope, req.GetPerson(), req.GetDisplayName(), req.GetTtl().AsDuration())
	if errors.Is(err, store.ErrTaken) {
		return nil, problem.New(problem.Unavailable, problem.TemporarilyUnavailable, "", "the same person, twice at once").WithRetryAfter(time.Second)
	}
	if err != nil {
		return nil, err
	}
	return presence(p), nil
}

// ListPresences implements the service.
func (s *Inbox) ListPresences(ctx context.Context, req *adminv1.ListPresencesRequest) (*adminv1.ListPresencesResponse, error) {
	scope, err := inboxOf(ctx, req.GetParent(), "/inbox")
	if err != nil {
		return nil, err
	}
	people, open, err := s.App.Presences(ctx, scope)
	if err != nil {
		return nil, err
	}
	out := &adminv1.ListPresencesResponse{Open: open}
	for _, p := range people {
		out.Presences = append(out.Presences, presence(p))
	}
	return out, nil
}

func presence(p app.Present) *adminv1.Presence {
	return &adminv1.Presence{
		Person: p.Person, DisplayName: p.DisplayName, UntilTime: timestamppb.New(p.Until),
		Conversations: int32(min(p.Conversations, 1<<30)),
	}
}

var settingsFields = []string{
	"time_zone", "opening_hours", "queue_timeout", "answer_timeout", "queue_without_presence", "max_per_person", "words",
}

// GetInboxSettings implements the service.
func (s *Inbox) GetInboxSettings(ctx context.Context, req *adminv1.GetInboxSettingsRequest) (*adminv1.InboxSettings, error) {
	scope, err := inboxOf(ctx, req.GetName(), "/inbox/settings")
	if err != nil {
		return nil, err
	}
	got, row, err := s.App.InboxSettings(ctx, scope)
	if err != nil {
		return nil, err
	}
	return settings(scope, got, row), nil
}

// UpdateInboxSettings implements the service.
func (s *Inbox) UpdateInboxSettings(ctx context.Context, req *adminv1.UpdateInboxSettingsRequest) (*adminv1.InboxSettings, error) {
	in := req.GetSettings()
	scope, err := inboxOf(ctx, in.GetName(), "/inbox/settings")
	if err != nil {
		return nil, err
	}
	present := map[string]bool{
		"time_zone": in.GetTimeZone() != "", "opening_hours": len(in.GetOpeningHours()) > 0, "queue_timeout": in.GetQueueTimeout() != nil,
		"answer_timeout": in.GetAnswerTimeout() != nil, "queue_without_presence": in.GetQueueWithoutPresence(),
		"max_per_person": in.GetMaxPerPerson() != 0, "words": len(in.GetWords()) > 0,
	}
	has, err := resource.Mask(req.GetUpdateMask(), settingsFields, func(f string) bool { return present[f] })
	if err != nil {
		return nil, err
	}
	for _, d := range []*durationpb.Duration{in.GetQueueTimeout(), in.GetAnswerTimeout()} {
		if d != nil && !d.IsValid() {
			return nil, resource.Invalid("settings", "holds a duration that is none")
		}
	}
	got, row, err := s.App.UpdateInboxSettings(ctx, scope, app.InboxChange{
		ETag: in.GetEtag(), ValidateOnly: req.GetValidateOnly(),
		Apply: func(to *app.InboxSettings) { apply(to, in, has) },
	})
	if err != nil {
		return nil, err
	}
	return settings(scope, got, row), nil
}

func apply(to *app.InboxSettings, in *adminv1.InboxSettings, has func(string) bool) {
	if has("time_zone") {
		to.TimeZone = in.GetTimeZone()
	}
	if has("opening_hours") {
		to.OpeningHours = nil
		for _, h := range in.GetOpeningHours() {
			to.OpeningHours = append(to.OpeningHours, app.OpeningHours{Weekday: int(h.GetWeekday()), Start: h.GetStart(), End: h.GetEnd()})
		}
	}
	if has("queue_timeout") {
		to.QueueTimeout = in.GetQueueTimeout().AsDuration()
	}
	if has("answer_timeout") {
		to.AnswerTimeout = in.GetAnswerTimeout().AsDuration()
	}
	if has("queue_without_presence") {
		to.QueueWithoutPresence = in.GetQueueWithoutPresence()
	}
	if has("max_per_person") {
		to.MaxPerPerson = int(in.GetMaxPerPerson())
	}
	if has("words") {
		to.Words = map[string]app.InboxWords{}
		for tag, w := range in.GetWords() {
			to.Words[tag] = app.InboxWords{Nobody: w.GetNobody(), NobodyJoined: w.GetNobodyJoined(), NoAnswer: w.GetNoAnswer()}
		}
	}
}

func settings(scope tenancy.Scope, s app.InboxSettings, row store.InboxRow) *adminv1.InboxSettings {
	out := &adminv1.InboxSettings{
		Name: scope.Name() + "/inbox/settings", TimeZone: s.TimeZone, QueueTimeout: durationpb.New(s.QueueTimeout),
		AnswerTimeout: durationpb.New(s.AnswerTimeout), QueueWithoutPresence: s.QueueWithoutPresence,
		MaxPerPerson: int32(s.MaxPerPerson),
		Etag:         resource.ETag(row.Version),
	}
	for _, h := range s.OpeningHours {
		out.OpeningHours = append(out.OpeningHours, &adminv1.OpeningHours{
			Weekday: int32(h.Weekday), Start: h.Start, End: h.End,
		})
	}
	for tag, w := range s.Words {
		if out.Words == nil {
			out.Words = map[string]*adminv1.InboxWords{}
		}
		out.Words[tag] = &adminv1.InboxWords{Nobody: w.Nobody, NobodyJoined: w.NobodyJoined, NoAnswer: w.NoAnswer}
	}
	if !row.UpdatedAt.IsZero() {
		out.UpdateTime = timestamppb.New(row.UpdatedAt)
	}
	return out
}
