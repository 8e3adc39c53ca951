package desk

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	lineLimit   = 64 << 10
	presence    = time.Minute // how long the person counts as there without saying so again
	renew       = 20 * time.Second
	leaveTime   = 5 * time.Second
	lookBack    = 30 // events of a conversation that are shown to who joins
	wholeHour   = "15:04"
	companySide = "company"
)

// Desk is one person at their inbox.
type Desk struct {
	api     *client
	company string
	person  string
	out     io.Writer
	// scripted says that nobody sits there: a command that fails ends it, and what a
	// command needs is waited for.
	scripted bool
	wait     time.Duration

	items   []item         // the inbox as it was last seen
	numbers map[string]int // of conversations, by id, from 1
	current string         // id of the conversation that the person talks in
	seen    int64          // sequence of the newest event of it that was shown
	heard   bool           // the agent said something since the person's last command
	away    bool
	rung    chan struct{}
}

// errQuit ends the desk.
var errQuit = errors.New("quit")

// Run works off the lines of in, until its end, "quit", or the end of ctx, and shows
// meanwhile what happens.
func (d *Desk) Run(ctx context.Context, in io.Reader) error {
	d.numbers, d.rung = map[string]int{}, make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := d.present(ctx, presence); err != nil {
		return err
	}
	defer d.leave(ctx)
	watched := make(chan error, 1)
	go func() { watched <- d.api.watch(ctx, d.company, d.ring) }()
	d.say("You are %s, and there. help shows what to type.", d.person)
	if err := d.refresh(ctx); err != nil {
		return err
	}
	d.list()
	lines := readLines(ctx, in)
	tick := time.NewTicker(renew)
	defer tick.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case err = <-watched:
			return err
		case <-d.rung:
			err = d.refresh(ctx)
		case <-tick.C:
			if !d.away {
				err = d.present(ctx, presence)
			}
		case line, more := <-lines:
			if !more {
				return nil
			}
			err = d.obey(ctx, line)
		}
		switch {
		case errors.Is(err, errQuit):
			return nil
		case err != nil && (d.scripted || ctx.Err() != nil):
			return err
		case err != nil:
			d.say("! %s", err)
		}
	}
}

func readLines(ctx context.Context, in io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		s := bufio.NewScanner(in)
		s.Buffer(nil, lineLimit)
		for s.Scan() {
			select {
			case lines <- s.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	return lines
}

func (d *Desk) ring() {
	select {
	case d.rung <- struct{}{}:
	default: // it is known already
	}
}

func (d *Desk) present(ctx context.Context, ttl time.Duration) error {
	return d.api.post(ctx, d.company+"/inbox:setPresence", map[string]any{
		"person": d.person, "display_name": d.person, "ttl": fmt.Sprintf("%ds", int(ttl.Seconds())),
	})
}

// leave says that the person has gone; what they handle stays theirs.
func (d *Desk) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
	defer cancel()
	if err := d.present(ctx, 0); err != nil && !d.away {
		d.say("! the inbox doesn't know that you left: %s", err)
	}
	if d.current != "" {
		d.say("Conversation %d stays yours.", d.numbers[d.current])
	}
}

// refresh looks at the inbox and shows what is new.
func (d *Desk) refresh(ctx context.Context) error {
	items, err := d.api.items(ctx, d.company)
	if err != nil {
		return err
	}
	before := map[string]item{}
	for _, i := range d.items {
		before[i.Conversation.UID] = i
	}
	first := d.items == nil
	d.items = items
	there := map[string]bool{}
	for _, i := range items {
		id := i.Conversation.UID
		there[id] = true
		if d.numbers[id] == 0 {
			d.numbers[id] = len(d.numbers) + 1
		}
		old, known := before[id]
		if !first && id != d.current && (!known || old.Conversation.Status != i.Conversation.Status || old.Conversation.Person != i.Conversation.Person) {
			d.say("> %s", d.line(i))
		}
	}
	if d.current == "" {
		return nil
	}
	if err := d.follow(ctx); err != nil {
		return err
	}
	i, ok := d.find(d.current)
	switch {
	case !ok:
		d.say("> Conversation %d has left the inbox.", d.numbers[d.current])
		d.current = ""
	case i.Conversation.Person != d.person:
		d.say("> %s", d.line(i))
		d.current = ""
	}
	return nil
}

// follow shows the new events of the conversation that the person talks in.
func (d *Desk) follow(ctx context.Context) error {
	events, err := d.api.events(ctx, d.company, d.current, d.seen)
	if err != nil {
		return err
	}
	if d.seen == 0 && len(events) > lookBack {
		d.say("  … %d events before", len(events)-lookBack)
		events = events[len(events)-lookBack:]
	}
	for _, e := range events {
		d.seen = e.Sequence
		if s := e.shown(); s != "" {
			d.say("  %s", s)
		}
		d.heard = d.heard || e.Message != nil && e.Message.Role != companySide
	}
	return nil
}

func (d *Desk) find(id string) (item, bool) {
	for _, i := range d.items {
		if i.Conversation.UID == id {
			return i, true
		}
	}
	return item{}, false
}

func (d *Desk) list() {
	if len(d.items) == 0 {
		d.say("Nobody waits.")
	}
	for _, i := range d.items {
		d.say("%s", d.line(i))
	}
}

// line is an item on one line.
func (d *Desk) line(i item) string {
	c := i.Conversation
	state := c.Status
	switch {
	case c.Person == d.person:
		state += ", yours"
	case c.Person != "":
		state += ", with " + c.Person
	case c.Assignee != "":
		state += ", for " + c.Assignee
	}
	s := fmt.Sprintf("%d  %s  [%s]", d.numbers[c.UID], c.AgentName, state)
	if c.HandoffReason != "" {
		s += "  " + c.HandoffReason
	}
	if m := i.LastMessage; m != nil && m.Text != "" {
		s += "  “" + cut(m.Text, 80) + "”"
	}
	return s
}

func (d *Desk) say(format string, args ...any) {
	_, _ = fmt.Fprintln(d.out, printable(fmt.Sprintf(format, args...))) // a terminal that has gone shows nothing
}

// printable takes out what would steer the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r < ' ', r >= 0x7f && r < 0xa0, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
			return '�'
		}
		return r
	}, s)
}

func cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}
