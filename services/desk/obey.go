package desk

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const help = `list              who waits, and who is with whom
join N            take conversation N over
TEXT              say it in the conversation you joined; say TEXT for what begins with a command
wait              wait until the agent says something
user REASON       ask for the user themselves
note TEXT         write a note beside it, which only your colleagues see
back [NOTE]       give it back to the company's agent, which gets the note
give NAME         give it to a colleague
queue             put it back into the queue
close             close it for good
decline N [TEXT]  tell a waiting agent that nobody will come
away, here        count as gone, or as there
quit              leave; what you handle stays yours`

// obey does what a line says.
func (d *Desk) obey(ctx context.Context, line string) error {
	word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	rest = strings.TrimSpace(rest)
	switch word {
	case "":
		return nil
	case "help":
		for _, s := range strings.Split(help, "\n") {
			d.say("%s", s)
		}
		return nil
	case "list":
		if err := d.refresh(ctx); err != nil {
			return err
		}
		d.list()
		return nil
	case "quit":
		return errQuit
	case "away":
		d.away = true
		return d.present(ctx, 0)
	case "here":
		d.away = false
		return d.present(ctx, presence)
	case "join":
		return d.join(ctx, rest)
	case "decline":
		n, reason, _ := strings.Cut(rest, " ")
		return d.decline(ctx, n, strings.TrimSpace(reason))
	}
	return d.act(ctx, word, rest, line)
}

// act does something in the conversation that the person joined.
func (d *Desk) act(ctx context.Context, word, rest, line string) error {
	if d.current == "" {
		return errors.New("join a conversation first: join N")
	}
	at := d.company + "/conversations/" + d.current
	me := func(more map[string]any) map[string]any {
		more["person"] = d.person
		return more
	}
	var err error
	switch word {
	case "wait":
		return d.await(ctx, "the agent has said nothing", func() bool { return d.heard || d.current == "" })
	case "user":
		err = d.api.post(ctx, at+":sendAsPerson", me(map[string]any{"request_user": rest}))
	case "note":
		if err = d.api.post(ctx, at+"/notes", map[string]any{"note": map[string]any{"author": d.person, "text": rest}}); err == nil {
			d.say("Noted.")
		}
		return err
	case "back":
		err = d.api.post(ctx, at+":handBack", me(map[string]any{"note": rest}))
	case "give":
		if rest == "" {
			return errors.New("give it to whom? queue is for nobody in particular")
		}
		err = d.api.post(ctx, at+":transfer", me(map[string]any{"to_person": rest}))
	case "queue":
		err = d.api.post(ctx, at+":transfer", me(map[string]any{}))
	case "close":
		err = d.api.post(ctx, at+":sendAsPerson", me(map[string]any{"close": true}))
	case "say":
		err = d.reply(ctx, at, rest)
	default:
		err = d.reply(ctx, at, strings.TrimSpace(line))
	}
	if err != nil {
		return err
	}
	return d.refresh(ctx)
}

func (d *Desk) reply(ctx context.Context, at, text string) error {
	d.heard = false
	return d.api.post(ctx, at+":sendAsPerson", map[string]any{
		"person": d.person, "messages": []map[string]any{{"text": text, "sender": "human"}},
	})
}

func (d *Desk) join(ctx context.Context, n string) error {
	id, err := d.numbered(ctx, n)
	if err != nil {
		return err
	}
	if err := d.api.post(ctx, d.company+"/conversations/"+id+":join", map[string]any{"person": d.person}); err != nil {
		return err
	}
	d.current, d.seen, d.heard = id, 0, false
	d.say("You handle conversation %s.", n)
	err = d.refresh(ctx)
	d.heard = false // what was said before is no answer
	return err
}

func (d *Desk) decline(ctx context.Context, n, reason string) error {
	id, err := d.numbered(ctx, n)
	if err != nil {
		return err
	}
	if err := d.api.post(ctx, d.company+"/conversations/"+id+":declineHandoff", map[string]any{"reason": reason}); err != nil {
		return err
	}
	return d.refresh(ctx)
}

// numbered finds the conversation that a number means. A script waits for it.
func (d *Desk) numbered(ctx context.Context, n string) (string, error) {
	number, err := strconv.Atoi(n)
	if err != nil || number < 1 {
		return "", fmt.Errorf("%q is no number of the list", n)
	}
	id := ""
	look := func() bool {
		for _, i := range d.items {
			if d.numbers[i.Conversation.UID] == number {
				id = i.Conversation.UID
			}
		}
		return id != ""
	}
	if look() {
		return id, nil
	}
	missing := "there is no conversation " + n
	if !d.scripted {
		return "", errors.New(missing)
	}
	return id, d.await(ctx, missing, look)
}

// await looks at every change until done says so.
func (d *Desk) await(ctx context.Context, otherwise string, done func() bool) error {
	limit := time.NewTimer(d.wait)
	defer limit.Stop()
	tick := time.NewTicker(renew)
	defer tick.Stop()
	for {
		if err := d.refresh(ctx); err != nil {
			return err
		}
		if done() {
			return nil
		}
		select {
		case <-d.rung:
		case <-tick.C:
			if !d.away {
				if err := d.present(ctx, presence); err != nil {
					return err
				}
			}
		case <-limit.C:
			return errors.New(otherwise)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
