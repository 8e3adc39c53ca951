package web

import (
	"math"
	"sync"
	"syscall"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/clause"
	"github.com/poppyfield/poppyfield/internal/poppy/problem"
	"github.com/poppyfield/poppyfield/services/conversations/app"
)

const readersLimit clause.ID = "poppy-0.1/4.3#46"

// Readers is how many reads may wait at once: polls and streams, and messages whose
// answer is awaited. The zero value is fit for use.
type Readers struct {
	// PerConversation is for one Session in one conversation; 0 is 4. An agent needs one,
	// and another one while it does not know yet that the first has broken.
	PerConversation int
	// PerSession is for all conversations of a Session; 0 is 64.
	PerSession int
	// Most is for the process; 0 is nine tenths of the files that it may have open.
	Most int
}

const (
	defaultPerConversation = 4
	defaultPerSession      = 64
	// A Session's own readers come and go; those of a whole process take longer.
	sessionRetry = 2 * time.Second
	processRetry = 5 * time.Second
)

// seats counts who waits.
type seats struct {
	limit Readers

	mu            sync.Mutex
	all           int
	sessions      map[session]int
	conversations map[place]int
}

type session struct{ company, id string }

type place struct {
	session
	conversation string
}

func newSeats(limit Readers) *seats {
	for _, d := range []struct {
		v        *int
		fallback int
	}{{&limit.PerConversation, defaultPerConversation}, {&limit.PerSession, defaultPerSession}} {
		if *d.v <= 0 {
			*d.v = d.fallback
		}
	}
	if limit.Most <= 0 {
		limit.Most = ofOpenFiles()
	}
	return &seats{limit: limit, sessions: map[session]int{}, conversations: map[place]int{}}
}

// ofOpenFiles leaves a tenth of the open files to everything else.
func ofOpenFiles() int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Cur > math.MaxInt32 {
		return math.MaxInt32
	}
	return max(1, int(files.Cur)/10*9)
}

// take gives a reader of the caller's a seat; leave gives it back, and must be called once.
func (s *seats) take(caller app.Caller, conversation string) (leave func(), err error) {
	at := place{session{caller.Scope.CompanyID(), caller.SessionID}, conversation}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.conversations[at] >= s.limit.PerConversation:
		return nil, tooMany("too many reads of this Session wait for this conversation")
	case s.sessions[at.session] >= s.limit.PerSession:
		return nil, tooMany("too many reads of this Session wait")
	case s.all >= s.limit.Most:
		return nil, problem.New(problem.Unavailable, problem.TemporarilyUnavailable, "", "too many reads wait").WithRetryAfter(processRetry)
	}
	s.all++
	s.sessions[at.session]++
	s.conversations[at]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
		less(s.sessions, at.session)
		less(s.conversations, at)
	}, nil
}

func tooMany(detail string) error {
	return problem.New(problem.RateLimited, problem.RateLimitedReason, readersLimit, "%s", detail).WithRetryAfter(sessionRetry)
}

func less[K comparable](of map[K]int, k K) {
	if of[k]--; of[k] == 0 {
		delete(of, k)
	}
}

// takeAny is take for the wait of a message that was accepted: what a Session sends is
// limited already, so that only the process's limit counts.
func (s *seats) takeAny() (leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= s.limit.Most {
		return nil, false
	}
	s.all++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
	}, true
}
