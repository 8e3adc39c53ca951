package conversations_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/poppyfield/poppyfield/internal/platform/resource"
	"github.com/poppyfield/poppyfield/internal/poppy/clause/clausetest"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
)

func (d *desk) presences(t testing.TB) *adminv1.ListPresencesResponse {
	t.Helper()
	got, err := d.api.ListPresences(d.company.Ctx(t.Context()), &adminv1.ListPresencesRequest{Parent: d.inbox()})
	require.NoError(t, err)
	return got
}

const (
	nobodyThere = "company: No person is available at the company right now."
	nobodyCame  = "company: No person at the company could join."
)

func TestInbox_NobodyThere(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.9#5", "poppy-0.1/7.9#6")
		d, u := in.desk(t), in.user("usr_1")
		id := u.start(t, "msg_1", "hello").ConversationID
		before := u.read(t, id, "")
		require.False(t, d.presences(t).GetOpen())
		got := u.handOff(t, id)
		require.Equal(t, "idle", got.State)
		require.Equal(t, "agent", got.Responder)
		require.Equal(t, []string{"=queued", nobodyThere, "=idle"}, u.read(t, id, "?cursor="+before.Cursor).told())
		require.Empty(t, d.list(t, "").GetItems())

		d.present(t, "anna", time.Minute)
		require.True(t, d.presences(t).GetOpen())
		in.Clock.Advance(time.Minute) // presence ends by itself
		require.False(t, d.presences(t).GetOpen())
		require.Empty(t, d.presences(t).GetPresences())
		require.Equal(t, "idle", u.handOff(t, id).State)

		d.settings(t, &adminv1.InboxSettings{QueueWithoutPresence: true})
		require.True(t, d.presences(t).GetOpen())
		require.Equal(t, "queued", u.handOff(t, id).State)
	})
}

func TestInbox_NobodyWithRoom(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		d, u := in.desk(t), in.user("usr_1")
		d.settings(t, &adminv1.InboxSettings{MaxPerPerson: 1})
		d.present(t, "anna", time.Hour)
		first := u.queued(t, "msg_1")
		d.joined(t, first, "anna")
		p := d.presences(t)
		require.False(t, p.GetOpen())
		require.Equal(t, int32(1), p.GetPresences()[0].GetConversations())
		second := u.start(t, "msg_2", "hello").ConversationID
		require.Equal(t, "idle", u.handOff(t, second).State)
		_, err := d.join(t, second, "anna")
		requireReason(t, err, problem.FailedPrecondition)
		d.present(t, "ben", time.Hour)
		require.Equal(t, "queued", u.handOff(t, second).State)
	})
}

func TestInbox_OutsideOfOpeningHours(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.9#5")
		d, u := in.desk(t), in.user("usr_1")
		now := in.Clock.Now()
		tomorrow := int32(now.Weekday())%7 + 1
		d.settings(t, &adminv1.InboxSettings{
			QueueWithoutPresence: true, OpeningHours: []*adminv1.OpeningHours{{Weekday: tomorrow, Start: "00:00", End: "24:00"}},
		})
		d.present(t, "anna", 12*time.Hour)
		id := u.start(t, "msg_1", "hello").ConversationID
		require.Equal(t, "idle", u.handOff(t, id).State, "whoever is there")
		midnight := now.Truncate(24 * time.Hour).Add(24 * time.Hour)
		in.Clock.Advance(midnight.Sub(now) - time.Second)
		require.False(t, d.presences(t).GetOpen())
		in.Clock.Advance(time.Second)
		require.True(t, d.presences(t).GetOpen())
		require.Equal(t, "queued", u.handOff(t, id).State)
	})
}

func TestInbox_NobodyJoins(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.9#5", "poppy-0.1/7.9#6")
		d, u := in.desk(t), in.user("usr_1")
		d.settings(t, &adminv1.InboxSettings{QueueTimeout: durationpb.New(30 * time.Second)})
		d.present(t, "anna", 10*time.Second)
		id := u.queued(t, "msg_1")
		before := u.read(t, id, "")
		in.Clock.Advance(29 * time.Second) // anna has gone without a word meanwhile
		require.Empty(t, u.read(t, id, "?cursor="+before.Cursor).Events)
		in.Clock.Advance(time.Second)
		got := u.next(t, before)
		require.Equal(t, []string{nobodyCame, "=idle"}, got.told())
		require.Equal(t, "agent", got.Responder)
		require.Equal(t, "agent", got.Events[0].Message.Sender)
	})
}

func TestInbox_TheLastOneToLeaveEndsTheWaits(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		d, u := in.desk(t), in.user("usr_1")
		d.present(t, "anna", time.Hour)
		d.present(t, "ben", time.Hour)
		first, second := u.queued(t, "msg_1"), u.queued(t, "msg_2")
		with := u.queued(t, "msg_3")
		d.joined(t, with, "anna")
		other := d.of(in.newCompany(t))
		other.present(t, "anna", time.Hour)
		theirs := in.userOf(other.company, agentID, "usr_1").queued(t, "msg_1")

		d.present(t, "ben", 0)
		require.Equal(t, "queued", in.get(t, first).GetStatus(), "anna is there")
		d.present(t, "anna", 0)
		for _, id := range []string{first, second} {
			require.Equal(t, "idle", in.get(t, id).GetStatus())
			got := u.read(t, id, "").told()
			require.Equal(t, []string{nobodyThere, "=idle"}, got[len(got)-2:])
		}
		require.Equal(t, "anna", in.get(t, with).GetPerson(), "what she handles stays hers")
		require.Equal(t, []string{theirs}, uids(other.list(t, "").GetItems()))

		d.settings(t, &adminv1.InboxSettings{QueueWithoutPresence: true})
		third := u.queued(t, "msg_4")
		d.present(t, "anna", 0)
		require.Equal(t, "queued", in.get(t, third).GetStatus())
	})
}

func TestInbox_Decline(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		clausetest.Covers(t, "poppy-0.1/7.9#6")
		d, u := in.desk(t), in.user("usr_1")
		d.present(t, "anna", time.Hour)
		decline := func(id, reason string) error {
			_, err := d.api.DeclineHandoff(d.company.Ctx(t.Context()), &adminv1.DeclineHandoffRequest{Conversation: d.name(id), Reason: reason})
			return err
		}
		id := u.queued(t, "msg_1")
		require.NoError(t, decline(id, "We are all at lunch."))
		got := u.read(t, id, "").told()
		require.Equal(t, []string{"company: We are all at lunch.", "=idle"}, got[len(got)-2:])
		requireReason(t, decline(id, ""), problem.FailedPrecondition)
		u.handOff(t, id)
		require.NoError(t, decline(id, ""))
		got = u.read(t, id, "").told()
		require.Equal(t, nobodyCame, got[len(got)-2])
		requireReason(t, decline("cnv_none", ""), problem.NotFoundReason)
	})
}

func TestInbox_NoticesSpeakTheAgentsLanguage(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		d, u := in.desk(t), in.user("usr_1")
		d.settings(t, &adminv1.InboxSettings{Words: map[string]*adminv1.InboxWords{
			"de": {Nobody: "Gerade ist niemand da."}, "en": {Nobody: "Nobody is in."},
		}})
		for i, c := range []struct{ locale, want string }{{"de-AT", "Gerade ist niemand da."}, {"fr", "Nobody is in."}, {"", "Nobody is in."}} {
			message := strings.Replace(text("msg_"+string(rune('a'+i)), "hello"), `"sender"`, `"context":{"locale":"`+c.locale+`"},"sender"`, 1)
			if c.locale == "" {
				message = text("msg_x", "hello")
			}
			id := u.do(t, "POST", endpoint+"?wait=20", message).ConversationID
			u.handOff(t, id)
			require.Contains(t, u.read(t, id, "").told(), "company: "+c.want)
		}
	})
}

func TestInbox_Settings(t *testing.T) {
	each(t, func(t *testing.T, in *installation) {
		d := in.desk(t)
		ctx := in.company.Ctx(t.Context())
		name := d.inbox() + "/settings"
		got, err := d.api.GetInboxSettings(ctx, &adminv1.GetInboxSettingsRequest{Name: name})
		require.NoError(t, err)
		require.Equal(t, resource.ETag(0), got.GetEtag())
		require.Nil(t, got.GetUpdateTime())

		set := d.settings(t, &adminv1.InboxSettings{
			Etag: got.GetEtag(), TimeZone: "Europe/Berlin", OpeningHours: []*adminv1.OpeningHours{{Weekday: 1, Start: "09:00", End: "24:00"}},
			QueueTimeout: durationpb.New(time.Minute), AnswerTimeout: durationpb.New(2 * time.Minute), QueueWithoutPresence: true, MaxPerPerson: 3,
			Words: map[string]*adminv1.InboxWords{"de": {Nobody: "niemand", NobodyJoined: "keiner", NoAnswer: "nichts"}},
		})
		require.NotNil(t, set.GetUpdateTime())
		got, err = d.api.GetInboxSettings(ctx, &adminv1.GetInboxSettingsRequest{Name: name})
		require.NoError(t, err)
		require.Equal(t, set.String(), got.String())

		_, err = d.api.UpdateInboxSettings(ctx, &adminv1.UpdateInboxSettingsRequest{Settings: &adminv1.InboxSettings{Name: name, Etag: resource.ETag(0), MaxPerPerson: 9}})
		requireReason(t, err, problem.EtagMismatch)
		one := d.settings(t, &adminv1.InboxSettings{TimeZone: "ignored", MaxPerPerson: 0}, "max_per_person")
		require.Equal(t, "Europe/Berlin", one.GetTimeZone())
		require.Zero(t, one.GetMaxPerPerson())
		require.Greater(t, one.GetEtag(), set.GetEtag())

		dry, err := d.api.UpdateInboxSettings(ctx, &adminv1.UpdateInboxSettingsRequest{Settings: &adminv1.InboxSettings{Name: name, MaxPerPerson: 7}, ValidateOnly: true})
		require.NoError(t, err)
		require.Equal(t, int32(7), dry.GetMaxPerPerson())
		for _, s := range []*adminv1.InboxSettings{
			{TimeZone: "Mars"},
			{QueueTimeout: durationpb.New(time.Second)},
			{Words: map[string]*adminv1.InboxWords{"?": {}}},
			{OpeningHours: []*adminv1.OpeningHours{{Weekday: 1, Start: "10:00", End: "09:00"}}},
			{OpeningHours: []*adminv1.OpeningHours{{Weekday: 8, Start: "09:00", End: "10:00"}}},
			{OpeningHours: []*adminv1.OpeningHours{{Weekday: 1, Start: "9:00", End: "10:00"}}},
		} {
			s.Name = name
			_, err = d.api.UpdateInboxSettings(ctx, &adminv1.UpdateInboxSettingsRequest{Settings: s, ValidateOnly: true})
			requireReason(t, err, problem.InvalidRequest)
		}
		got, err = d.api.GetInboxSettings(ctx, &adminv1.GetInboxSettingsRequest{Name: name})
		require.NoError(t, err)
		require.Equal(t, one.String(), got.String(), "nothing of that was kept")

		other := d.of(in.newCompany(t))
		_, err = d.api.GetInboxSettings(ctx, &adminv1.GetInboxSettingsRequest{Name: other.inbox() + "/settings"})
		requireReason(t, err, problem.NotFoundReason)
		require.Empty(t, other.settings(t, &adminv1.InboxSettings{MaxPerPerson: 1}).GetTimeZone())
	})
}
