package conversations_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
)

func TestInbox_ListsWhoWaitsLongestFirst(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		d, u := in.desk(t), in.user("usr_1")
		d.settings(t, &adminv1.InboxSettings{QueueTimeout: durationpb.New(time.Hour), AnswerTimeout: durationpb.New(time.Hour)})
		d.present(t, "anna", 12*time.Hour)
		u.start(t, "msg_0", "the agent's own")
		var want []string
		for i := range 5 {
			in.Clock.Advance(time.Duration(i%2) * time.Second) // some share their time
			want = append(want, u.queued(t, fmt.Sprintf("msg_q%d", i)))
		}
		in.Clock.Advance(time.Second)
		resting, working := u.start(t, "msg_r", "hello").ConversationID, u.start(t, "msg_w", "hello").ConversationID
		d.joined(t, resting, "anna")
		d.joined(t, working, "ben")
		in.Clock.Advance(time.Second)
		u.send(t, working, "", text("msg_w2", strings.Repeat("ä", 300)))
		want = append(want, working, resting)

		all := d.list(t, "")
		require.ElementsMatch(t, want, uids(all.GetItems()))
		require.Equal(t, want[5:], uids(all.GetItems())[5:])
		require.Equal(t, int32(5), all.GetQueued())
		require.Equal(t, int32(2), all.GetWithPeople())
		last := all.GetItems()[5]
		require.Equal(t, strings.Repeat("ä", 200), last.GetLastMessage().GetText())
		require.Equal(t, "user", last.GetLastMessage().GetRole())
		require.Equal(t, in.Clock.Now(), last.GetLastMessageTime().AsTime())
		require.Equal(t, in.Clock.Now(), last.GetConversation().GetWaitingTime().AsTime())
		require.Nil(t, all.GetItems()[6].GetConversation().GetWaitingTime())

		for filter, ids := range map[string][]string{
			`status = "working"`:                   {working},
			`person = "anna"`:                      {resting},
			`person = "ben" AND status = "idle"`:   nil,
			`assignee = "ben"`:                     {working},
			`person = "" AND assignee = "nobody"`:  nil,
			`person = "" AND status = "queued"`:    uids(all.GetItems())[:5],
			` status="queued"  AND  person  = "" `: uids(all.GetItems())[:5],
		} {
			require.Equal(t, ids, uids(d.list(t, filter).GetItems()), filter)
		}
		ctx := in.company.Ctx(t.Context())
		for _, filter := range []string{`status = "closed"`, `person = anna`, `user = "x"`, `person = "a" OR person = "b"`, `person = "a" AND person = "b"`, `person = "a" AND `, "x"} {
			_, err := d.api.ListInboxItems(ctx, &adminv1.ListInboxItemsRequest{Parent: d.inbox(), Filter: filter})
			requireReason(t, err, problem.InvalidRequest)
		}
		var got []string
		for token := ""; ; {
			page, err := d.api.ListInboxItems(ctx, &adminv1.ListInboxItemsRequest{Parent: d.inbox(), PageSize: 2, PageToken: token})
			require.NoError(t, err)
			got = append(got, uids(page.GetItems())...)
			if token = page.GetNextPageToken(); token == "" {
				break
			}
		}
		require.Equal(t, uids(all.GetItems()), got)
		_, err := d.api.ListInboxItems(ctx, &adminv1.ListInboxItemsRequest{Parent: d.inbox(), PageToken: "x"})
		requireReason(t, err, problem.InvalidRequest)
	})
}

func TestInbox_TwoCompaniesKnowNothingOfEachOther(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		ours := in.desk(t)
		theirs := ours.of(in.newCompany(t))
		ours.present(t, "anna", time.Hour)
		require.False(t, theirs.presences(t).GetOpen())
		theirs.present(t, "anna", time.Minute)
		u := in.user("usr_1")
		id := u.queued(t, "msg_1")
		require.Empty(t, theirs.list(t, "").GetItems())
		require.Zero(t, theirs.list(t, "").GetQueued())

		ctx := theirs.company.Ctx(t.Context())
		for _, name := range []string{ours.name(id), theirs.name(id)} {
			for what, call := range map[string]func() error{
				"join": func() error {
					_, err := ours.api.JoinConversation(ctx, &adminv1.JoinConversationRequest{Conversation: name, Person: "anna"})
					return err
				},
				"assign": func() error {
					_, err := ours.api.AssignConversation(ctx, &adminv1.AssignConversationRequest{Conversation: name, Person: "anna"})
					return err
				},
				"send": func() error {
					_, err := ours.api.SendAsPerson(ctx, &adminv1.SendAsPersonRequest{Conversation: name, Person: "anna", Messages: []*adminv1.Message{{Text: "x"}}})
					return err
				},
				"transfer": func() error {
					_, err := ours.api.TransferConversation(ctx, &adminv1.TransferConversationRequest{Conversation: name, Person: "anna"})
					return err
				},
				"hand back": func() error {
					_, err := ours.api.HandBackConversation(ctx, &adminv1.HandBackConversationRequest{Conversation: name, Person: "anna"})
					return err
				},
				"decline": func() error {
					_, err := ours.api.DeclineHandoff(ctx, &adminv1.DeclineHandoffRequest{Conversation: name})
					return err
				},
				"note": func() error {
					_, err := ours.api.CreateNote(ctx, &adminv1.CreateNoteRequest{Parent: name, Note: &adminv1.Note{Author: "anna", Text: "x"}})
					return err
				},
				"notes": func() error {
					_, err := ours.api.ListNotes(ctx, &adminv1.ListNotesRequest{Parent: name})
					return err
				},
			} {
				err := call()
				require.True(t, problem.Is(err, problem.NotFoundReason), "%s: %v", what, err)
			}
		}
		for _, parent := range []string{ours.inbox()} {
			_, err := ours.api.ListInboxItems(ctx, &adminv1.ListInboxItemsRequest{Parent: parent})
			requireReason(t, err, problem.NotFoundReason)
			_, err = ours.api.ListPresences(ctx, &adminv1.ListPresencesRequest{Parent: parent})
			requireReason(t, err, problem.NotFoundReason)
			_, err = ours.api.SetPresence(ctx, &adminv1.SetPresenceRequest{Parent: parent, Person: "eve", Ttl: durationpb.New(time.Hour)})
			requireReason(t, err, problem.NotFoundReason)
		}
		require.Equal(t, "queued", in.get(t, id).GetStatus())
	})
}

func TestInbox_NotesAreKeptForPeople(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		d, u := in.desk(t), in.user("usr_1")
		ctx := in.company.Ctx(t.Context())
		id, other := u.start(t, "msg_1", "hello").ConversationID, u.start(t, "msg_2", "hello").ConversationID
		write := func(id, author, text string) (*adminv1.Note, error) {
			return d.api.CreateNote(ctx, &adminv1.CreateNoteRequest{Parent: d.name(id), Note: &adminv1.Note{Author: author, Text: text}})
		}
		for i := range 5 {
			in.Clock.Advance(time.Duration(i%2) * time.Second)
			n, err := write(id, "anna", fmt.Sprintf("note %d", i))
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(n.GetName(), d.name(id)+"/notes/nte_"))
		}
		_, err := write(other, "ben", strings.Repeat("ü", 10_000))
		require.NoError(t, err)
		for _, bad := range [][2]string{{"anna", ""}, {"anna", strings.Repeat("ü", 10_001)}, {"", "x"}, {strings.Repeat("a", 201), "x"}} {
			_, err := write(id, bad[0], bad[1])
			requireReason(t, err, problem.InvalidRequest)
		}
		_, err = write("cnv_none", "anna", "x")
		requireReason(t, err, problem.NotFoundReason)
		var got []string
		for token := ""; ; {
			page, err := d.api.ListNotes(ctx, &adminv1.ListNotesRequest{Parent: d.name(id), PageSize: 2, PageToken: token})
			require.NoError(t, err)
			for _, n := range page.GetNotes() {
				got = append(got, n.GetText())
			}
			if token = page.GetNextPageToken(); token == "" {
				break
			}
			_, err = d.api.ListNotes(ctx, &adminv1.ListNotesRequest{Parent: d.name(other), PageSize: 2, PageToken: token})
			requireReason(t, err, problem.InvalidRequest)
		}
		require.Equal(t, []string{"note 0", "note 1", "note 2", "note 3", "note 4"}, got)
		for _, e := range u.read(t, id, "").Events {
			require.False(t, e.Message != nil && strings.Contains(e.Message.Text, "note"), "agents never see notes")
		}

		in.company.Snapshot.EventRetention = durationpb.New(24 * time.Hour)
		in.Changed(in.company)
		in.Clock.Advance(25 * time.Hour)
		eventually(t, func() bool {
			page, err := d.api.ListNotes(ctx, &adminv1.ListNotesRequest{Parent: d.name(id)})
			return err == nil && len(page.GetNotes()) == 0
		}, "they go with the conversation's events")
	})
}

// inboxStream is an open watch.
type inboxStream struct {
	frames chan *adminv1.WatchInboxResponse
	end    chan error
	stop   context.CancelFunc
}

func (d *desk) watch(t testing.TB) *inboxStream {
	t.Helper()
	ctx, stop := context.WithCancel(d.company.Ctx(t.Context()))
	stream, err := d.api.WatchInbox(ctx, &adminv1.WatchInboxRequest{Parent: d.inbox()})
	require.NoError(t, err)
	w := &inboxStream{make(chan *adminv1.WatchInboxResponse, 1024), make(chan error, 1), stop}
	go func() {
		for {
			f, err := stream.Recv()
			if err != nil {
				w.end <- err
				return
			}
			w.frames <- f
		}
	}()
	t.Cleanup(stop)
	return w
}

// next returns the next frame that is no heartbeat.
func (w *inboxStream) next(t testing.TB) *adminv1.WatchInboxResponse {
	t.Helper()
	for {
		select {
		case f := <-w.frames:
			if f.GetHeartbeat() == nil {
				return f
			}
		case err := <-w.end:
			require.FailNow(t, "the watch ended", "%v", err)
		case <-time.After(patience):
			require.FailNow(t, "no frame came")
		}
	}
}

func TestInbox_WatchListsAndTellsChanges(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		d, u := in.desk(t), in.user("usr_1")
		there, _ := d.other(t)
		d.present(t, "anna", time.Hour)
		first := u.queued(t, "msg_1")
		for _, w := range []*inboxStream{d.watch(t), there.watch(t)} {
			require.Equal(t, first, w.next(t).GetItem().GetConversation().GetUid())
			require.True(t, w.next(t).GetListed())
			w.stop()
		}
		w := there.watch(t)
		w.next(t)
		w.next(t)
		until := func(id string, done func(i *adminv1.InboxItem) bool) {
			for {
				i := w.next(t).GetItem()
				require.Equal(t, id, i.GetConversation().GetUid())
				if done(i) {
					return
				}
			}
		}
		// Neither the agent's own conversations nor those of others are news.
		u.start(t, "msg_own", "hello")
		other := d.of(in.newCompany(t))
		other.present(t, "anna", time.Hour)
		in.userOf(other.company, agentID, "usr_1").queued(t, "msg_1")

		second := u.queued(t, "msg_2")
		until(second, func(i *adminv1.InboxItem) bool { return i.GetConversation().GetStatus() == "queued" })
		_, err := d.assign(t, second, "ben")
		require.NoError(t, err)
		until(second, func(i *adminv1.InboxItem) bool { return i.GetConversation().GetAssignee() == "ben" })
		d.joined(t, second, "anna")
		until(second, func(i *adminv1.InboxItem) bool { return i.GetConversation().GetPerson() == "anna" })
		u.send(t, second, "", text("msg_3", "a question"))
		until(second, func(i *adminv1.InboxItem) bool { return i.GetLastMessage().GetText() == "a question" })
		u.close(t, second)
		require.Equal(t, d.name(second), w.next(t).GetRemoved())
		d.present(t, "anna", 0)
		require.Equal(t, d.name(first), w.next(t).GetRemoved())
	})
}

func TestInbox_WatchLivesUntilTheDrain(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		d := in.desk(t)
		cfg := impatient
		cfg.Heartbeat = 10 * time.Millisecond
		there, s := d.otherWith(t, cfg)
		w := there.watch(t)
		require.True(t, w.next(t).GetListed())
		for range 3 {
			select {
			case f := <-w.frames:
				require.Equal(t, in.Clock.Now(), f.GetHeartbeat().AsTime())
			case <-time.After(patience):
				require.FailNow(t, "no heartbeat came")
			}
		}
		require.NoError(t, s.Stop(t.Context()))
		select {
		case err := <-w.end:
			require.ErrorIs(t, err, io.EOF)
		case <-time.After(patience):
			require.FailNow(t, "the watch goes on")
		}
		stream, err := d.api.WatchInbox(d.company.Ctx(t.Context()), &adminv1.WatchInboxRequest{Parent: "companies/cmp_x/inbox"})
		require.NoError(t, err)
		_, err = stream.Recv()
		requireReason(t, err, problem.NotFoundReason)
	})
}
