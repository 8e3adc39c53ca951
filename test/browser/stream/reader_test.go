package stream_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/textproto"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/whole"
)

// An item of a stream is an event, a piece of a message, or a comment.
type item struct {
	ID, Event, Data string
	Comment         bool

	round int
	at    time.Time
}

// A head is what an answer says before its body.
type head struct {
	Status int
	Header map[string]string // names in lower case

	at time.Time
}

// An end is how a stream ended: cut is empty where it was complete.
type end struct {
	Cut string

	at time.Time
}

// A reader is somebody who follows a stream, and what they saw of it.
type reader interface {
	// follow begins to follow it, after the last event that was handled.
	follow(t *testing.T)
	seen() *record
}

// A record is kept of all streams of a reader, one for each round.
type record struct {
	name string

	mu     sync.Mutex
	items  []item
	heads  []head
	ends   []end
	failed string
	wake   chan struct{} // closed with the next change
}

func newRecord(name string) *record { return &record{name: name, wake: make(chan struct{})} }

func (r *record) seen() *record { return r }

func (r *record) change(with func(now time.Time)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	with(time.Now())
	close(r.wake)
	r.wake = make(chan struct{})
}

func (r *record) begin(h head) {
	r.change(func(now time.Time) {
		h.at = now
		r.heads = append(r.heads, h)
	})
}

func (r *record) add(i item) {
	r.change(func(now time.Time) {
		i.round, i.at = len(r.heads), now
		r.items = append(r.items, i)
	})
}

func (r *record) finish(e end) {
	r.change(func(now time.Time) {
		e.at = now
		r.ends = append(r.ends, e)
	})
}

func (r *record) fail(why string) { r.change(func(time.Time) { r.failed = why }) }

// await waits until enough is true, which is called with the record locked.
func (r *record) await(t *testing.T, what string, enough func() bool) {
	t.Helper()
	timeout := time.NewTimer(20 * time.Second)
	defer timeout.Stop()
	for {
		r.mu.Lock()
		wake, done, failed := r.wake, enough(), r.failed
		r.mu.Unlock()
		require.Empty(t, failed, r.name)
		if done {
			return
		}
		select {
		case <-wake:
		case <-timeout.C:
			t.Fatalf("%s did not see %s, but %+v", r.name, what, r.all())
		}
	}
}

// curl follows with the agent's own key.
type curl struct {
	*record
	agent        *whole.Agent
	address      string
	certificates string
}

func (c *curl) follow(t *testing.T) {
	t.Helper()
	path, err := exec.LookPath("curl")
	require.NoError(t, err, "run `make setup`")
	args := []string{
		"--silent", "--show-error", "--no-buffer", "--include", "--compressed", "--http1.1", "--cacert", c.certificates,
		"--header", "Accept: text/event-stream", "--header", "Authorization: DPoP " + c.agent.Token,
		"--header", "DPoP: " + c.agent.Proof("GET", c.address, c.agent.Token),
	}
	if last := lastID(c.all()); last != "" {
		args = append(args, "--header", "Last-Event-ID: "+last)
	}
	cmd := exec.CommandContext(t.Context(), path, append(args, c.address)...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	go func() {
		err := c.read(bufio.NewReader(out))
		if waited := cmd.Wait(); waited != nil {
			c.finish(end{Cut: waited.Error() + ": " + complaints.String()})
			return
		}
		if err != nil {
			c.fail(err.Error())
		}
		c.finish(end{})
	}()
}

// read reads what curl writes: the answer's head, and its body.
func (c *curl) read(b *bufio.Reader) error {
	text := textproto.NewReader(b)
	line, err := text.ReadLine()
	if err != nil {
		return err
	}
	fields, err := text.ReadMIMEHeader()
	if err != nil {
		return err
	}
	h := head{Header: map[string]string{}}
	_, status, _ := strings.Cut(line, " ")
	h.Status, _ = strconv.Atoi(strings.Fields(status)[0])
	for name := range fields {
		h.Header[strings.ToLower(name)] = fields.Get(name)
	}
	c.begin(h)
	var i item
	for {
		line, err := b.ReadString('\n')
		if errors.Is(err, io.EOF) { // a part of a line is nothing
			return nil
		}
		if err != nil {
			return err
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "\n":
			if i.Data != "" {
				c.add(i)
			}
			i = item{}
		case name == "":
			c.add(item{Comment: true})
		case name == "id":
			i.ID = value
		case name == "event":
			i.Event = value
		case name == "data":
			i.Data = value
		}
	}
}

// page is the agent in Chromium, with a key of its own.
type page struct {
	*record
	address string
	said    int // how often something other than of a stream
	stdin   io.WriteCloser
}

// openPage opens the page and has it start a Session.
func openPage(t *testing.T, at, address, tokenEndpoint string, form url.Values) *page {
	t.Helper()
	node, err := exec.LookPath("node")
	require.NoError(t, err, "the browser is driven by Node.js: run `make setup`")
	chromium, err := exec.LookPath("chromium")
	require.NoError(t, err, "run `make setup`")
	require.DirExists(t, "../node_modules", "run `make setup`")
	p := &page{record: newRecord("Chromium"), address: address}
	cmd := exec.Command(node, "stream.mjs", at, chromium)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	p.stdin, err = cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.read(out)
	}()
	t.Cleanup(func() {
		_ = p.stdin.Close() // which ends it
		<-read
		require.NoError(t, cmd.Wait(), "%s", &complaints)
		if t.Failed() {
			t.Logf("Chromium complained:\n%s", &complaints)
		}
	})
	p.await(t, "its key", func() bool { return p.said == 1 })
	values := map[string]string{}
	for name := range form {
		values[name] = form.Get(name)
	}
	p.command(t, map[string]any{"command": "startSession", "endpoint": tokenEndpoint, "form": values})
	p.await(t, "a Session", func() bool { return p.said == 2 })
	return p
}

func (p *page) command(t *testing.T, command any) {
	t.Helper()
	line, err := json.Marshal(command)
	require.NoError(t, err)
	_, err = p.stdin.Write(append(line, '\n'))
	require.NoError(t, err)
}

func (p *page) follow(t *testing.T) {
	t.Helper()
	p.command(t, map[string]any{"command": "follow", "address": p.address})
}

func (p *page) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var said struct {
			Ready   bool
			Session *struct {
				Status    int
				Type, Why string
			}
			Head   *head
			Item   *item
			End    *end
			Failed string
		}
		err := json.Unmarshal(lines.Bytes(), &said)
		switch {
		case err != nil || said.Failed != "" || said.Session != nil && said.Session.Type != "DPoP":
			p.fail(lines.Text())
		case said.Head != nil:
			p.begin(*said.Head)
		case said.Item != nil:
			p.add(*said.Item)
		case said.End != nil:
			p.finish(*said.End)
		default:
			p.change(func(time.Time) { p.said++ })
		}
	}
}
