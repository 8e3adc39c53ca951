package store

import (
	"bytes"
	"context"
	"time"

	"github.com/poppyfield/poppyfield/ent"
	"github.com/poppyfield/poppyfield/ent/answeredrequest"
	"github.com/poppyfield/poppyfield/internal/platform/db"
)

// Answers keeps the first answers to requests, by the id that caller and request_id make.
type Answers struct{ db *db.DB }

// NewAnswers makes a store on d.
func NewAnswers(d *db.DB) *Answers { return &Answers{db: d} }

// Standing is what is known of a request.
type Standing uint8

// The standings.
const (
	Claimed  Standing = iota + 1 // nobody had it: it is the caller's to answer now
	Pending                      // somebody is at it
	Answered                     // here is the answer
	Other                        // the id was used for another request
)

// Claim takes a request or says who has it. A claim made before abandoned is taken
// over, and an answer made before forgotten counts no longer.
func (s *Answers) Claim(ctx context.Context, id, method string, hash []byte, now, abandoned, forgotten time.Time) (Standing, []byte, error) {
	var standing Standing
	var response []byte
	err := s.db.SystemWrite(ctx, db.AnswerRepeats, func(ctx context.Context, tx *ent.Tx) error {
		response = nil
		row, err := tx.AnsweredRequest.Get(ctx, id)
		switch {
		case ent.IsNotFound(err):
		case err != nil:
			return err
		case row.CreatedAt.Before(forgotten), !answered(row) && row.CreatedAt.Before(abandoned) && same(row, method, hash):
			if err := tx.AnsweredRequest.DeleteOneID(id).Exec(ctx); err != nil {
				return err
			}
		case !same(row, method, hash):
			standing = Other
			return nil
		case !answered(row):
			standing = Pending
			return nil
		default:
			standing, response = Answered, *row.Response
			return nil
		}
		standing = Claimed
		return tx.AnsweredRequest.Create().SetID(id).SetMethod(method).SetRequestHash(hash).SetCreatedAt(now).Exec(ctx)
	})
	if ent.IsConstraintError(err) || ent.IsNotFound(err) { // somebody was first, and is at it
		return Pending, nil, nil
	}
	return standing, response, err
}

func same(row *ent.AnsweredRequest, method string, hash []byte) bool {
	return row.Method == method && bytes.Equal(row.RequestHash, hash)
}

// answered reports whether row holds an answer; NULL is read as a pointer to nothing.
func answered(row *ent.AnsweredRequest) bool { return row.Response != nil && len(*row.Response) > 0 }

// Save keeps the sealed answer to a claimed request.
func (s *Answers) Save(ctx context.Context, id string, response []byte) error {
	return s.db.SystemWrite(ctx, db.AnswerRepeats, func(ctx context.Context, tx *ent.Tx) error {
		return tx.AnsweredRequest.Update().Where(answeredrequest.ID(id)).SetResponse(response).Exec(ctx)
	})
}

// Drop gives a claim back: the request may be made again.
func (s *Answers) Drop(ctx context.Context, id string) error {
	return s.db.SystemWrite(ctx, db.AnswerRepeats, func(ctx context.Context, tx *ent.Tx) error {
		_, err := tx.AnsweredRequest.Delete().Where(answeredrequest.ID(id), answeredrequest.ResponseIsNil()).Exec(ctx)
		return err
	})
}

// Prune forgets what was made before a time.
func (s *Answers) Prune(ctx context.Context, before time.Time) (int, error) {
	n := 0
	err := s.db.SystemWrite(ctx, db.Prune, func(ctx context.Context, tx *ent.Tx) error {
		var err error
		n, err = tx.AnsweredRequest.Delete().Where(answeredrequest.CreatedAtLT(before)).Exec(ctx)
		return err
	})
	return n, err
}
