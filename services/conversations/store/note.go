package store

import (
	"context"
	"time"

	"github.com/poppyfield/poppyfield/ent"
	entnote "github.com/poppyfield/poppyfield/ent/note"
)

// Note is what people at the Company wrote beside a conversation.
type Note struct {
	ID             string
	ConversationID string
	Author         string
	Text           string
	CreatedAt      time.Time
}

// NotePosition is a place in the order of notes; the zero NotePosition is its start.
type NotePosition struct {
	CreatedAt time.Time
	ID        string
}

// CreateNote inserts a note.
func (t Tx) CreateNote(ctx context.Context, n Note) error {
	return t.tx.Note.Create().SetID(n.ID).SetConversationID(n.ConversationID).SetAuthor(n.Author).SetText(n.Text).
		SetCreatedAt(n.CreatedAt).SetUpdatedAt(n.CreatedAt).Exec(ctx)
}

// Notes returns the notes of a conversation after a position, the oldest first.
func (t Tx) Notes(ctx context.Context, conversationID string, after NotePosition, limit int) ([]Note, error) {
	q := t.tx.Note.Query().Where(entnote.ConversationID(conversationID))
	if after.ID != "" {
		q.Where(entnote.Or(
			entnote.CreatedAtGT(after.CreatedAt),
			entnote.And(entnote.CreatedAt(after.CreatedAt), entnote.IDGT(after.ID)),
		))
	}
	rows, err := q.Order(entnote.ByCreatedAt(), entnote.ByID()).Limit(limit).All(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Note, 0, len(rows))
	for _, row := range rows {
		out = append(out, noteOf(row))
	}
	return out, nil
}

// PruneNotes deletes the notes from before a time.
func (t Tx) PruneNotes(ctx context.Context, before time.Time) error {
	_, err := t.tx.Note.Delete().Where(entnote.CreatedAtLT(before)).Exec(ctx)
	return err
}

func noteOf(row *ent.Note) Note {
	return Note{ID: row.ID, ConversationID: row.ConversationID, Author: row.Author, Text: row.Text, CreatedAt: row.CreatedAt.UTC()}
}
