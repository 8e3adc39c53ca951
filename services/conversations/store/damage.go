package store

import "errors"

// Damaged is a delivery whose rows don't say what to send. No later attempt could do better.
type Damaged struct {
	ID, ConversationID string
	Err                error
}

type damageError struct{ error }

// Unwrap returns what is wrong.
func (e damageError) Unwrap() error { return e.error }

// damage marks err, if there is one, as that of rows rather than of the database.
func damage(err error) error {
	if err == nil {
		return nil
	}
	return damageError{err}
}

// IsDamage reports whether err is that of rows that don't make sense.
func IsDamage(err error) bool {
	var d damageError
	return errors.As(err, &d)
}
