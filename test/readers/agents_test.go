package readers_test

import (
	"bufio"
	"crypto"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/poppyfield/poppyfield/internal/poppy/dpop"
	"github.com/poppyfield/poppyfield/internal/poppy/jose"
	"github.com/poppyfield/poppyfield/test/fixture"
)

// A holder is a Session with the key that its token is bound to.
type holder struct {
	Token string
	Key   []byte // PKCS #8
}

func (h holder) signer() (*jose.Signer, error) {
	key, err := x509.ParsePKCS8PrivateKey(h.Key)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("the key cannot sign")
	}
	return jose.NewSigner(signer)
}

// proof is a DPoP Proof for a request.
func proof(signer *jose.Signer, method, address, token string) (string, error) {
	claims := map[string]any{"jti": fixture.RandomID(), "htm": method, "htu": address, "iat": time.Now().Unix()}
	if token != "" {
		claims["ath"] = dpop.TokenHash(token)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	return signer.Sign(jose.SignHeader{Typ: "dpop+jwt", EmbedKey: true}, payload)
}

// A reader is one connection that waits for events.
type reader struct {
	Holder int
	URL    string // of the events; empty at the floor
	Cursor string
	Stream bool
}

// A job is what a process of agents does.
type job struct {
	Address string // of the server
	Holders []holder
	Readers []reader
	// From are addresses to connect from: one has too few ports.
	From []string
}

// errBusy is an answer of 503.
var errBusy = errors.New("busy")

// errEnded is the end of a stream that the server ended in order.
var errEnded = errors.New("ended")

// A report is what came of it.
type report struct {
	Arrivals []arrival
	Again    int      // requests that were refused for now, with 503, or ended with their stream, and made again
	Cut      []string // why readers ended before the job did, the first few
}

// An arrival is an event that a stream brought: the stamp it carries, which is that of a
// transaction, and when it came; both nanoseconds.
type arrival struct{ Stamp, At int64 }

// longest is how long a poll waits, in seconds.
const longest = 30

// stamp begins the text of an event that is measured; the time in nanoseconds follows.
const stamp = "sent at "

// fleet is the readers of a process.
type fleet struct {
	job     job
	signers []*jose.Signer
	ending  atomic.Bool
	opening sync.WaitGroup

	mu   sync.Mutex
	came []arrival
	cut  []string

	again atomic.Int64
}

// runAgents opens the readers of a job, says so, and reports for every further line.
func runAgents(in io.Reader, out io.Writer) error {
	debug.SetGCPercent(1000) // its own pauses are no part of what it measures
	lines := bufio.NewReaderSize(in, 1<<20)
	first, err := lines.ReadBytes('\n')
	if err != nil {
		return err
	}
	f := &fleet{}
	if err := json.Unmarshal(first, &f.job); err != nil {
		return err
	}
	for _, h := range f.job.Holders {
		s, err := h.signer()
		if err != nil {
			return err
		}
		f.signers = append(f.signers, s)
	}
	f.open()
	for {
		if err := json.NewEncoder(out).Encode(f.report()); err != nil {
			return err
		}
		_, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			f.ending.Store(true)
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// open opens all readers, some at a time, and returns when each has its head or waits.
func (f *fleet) open() {
	gate := make(chan struct{}, 6)
	for i, r := range f.job.Readers {
		gate <- struct{}{}
		f.opening.Add(1)
		go f.read(r, f.job.From[i%len(f.job.From)], sync.OnceFunc(func() {
			<-gate
			f.opening.Done()
		}))
	}
	f.opening.Wait()
}

func (f *fleet) report() report {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := report{Arrivals: f.came, Cut: f.cut[:min(len(f.cut), 5)], Again: int(f.again.Swap(0))}
	f.came = nil
	return r
}

func (f *fleet) read(r reader, from string, opened func()) {
	defer opened()
	err := f.connect(&r, from, opened)
	for errors.Is(err, errBusy) || errors.Is(err, errEnded) {
		f.again.Add(1)
		if errors.Is(err, errBusy) {
			time.Sleep(time.Second + rand.N(2*time.Second)) // as an agent does
		}
		err = f.connect(&r, from, opened)
	}
	if err != nil && !f.ending.Load() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.cut = append(f.cut, err.Error())
	}
}

func (f *fleet) connect(r *reader, from string, opened func()) error {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 30 * time.Second}
	conn, err := d.Dial("tcp", f.job.Address)
	if err != nil {
		return err
	}
	defer conn.Close()
	in := bufio.NewReaderSize(conn, 1024)
	if r.Stream {
		if err := f.ask(conn, *r, 0); err != nil {
			return err
		}
		return f.stream(in, r, opened)
	}
	// The first one doesn't wait: its answer says when the next connection may be opened. The
	// second waits for a part of the time, since agents don't all come in the same moment.
	for wait, following := 0, 1+rand.N(longest); ; wait, following = following, longest {
		if err := f.ask(conn, *r, wait); err != nil {
			return err
		}
		answer, err := http.ReadResponse(in, nil)
		if err != nil {
			return fmt.Errorf("poll: %w", err)
		}
		body, err := io.ReadAll(answer.Body)
		if err = errors.Join(err, answer.Body.Close()); err != nil {
			return err
		}
		if answer.StatusCode == http.StatusServiceUnavailable {
			return errBusy
		}
		if answer.StatusCode != http.StatusOK || answer.Close {
			return fmt.Errorf("poll: %s %s", answer.Status, body)
		}
		opened()
	}
}

// ask sends the request of a reader; wait is a poll's, in seconds.
func (f *fleet) ask(conn net.Conn, r reader, wait int) error {
	if r.URL == "" {
		_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: floor\r\nAccept: text/event-stream\r\n\r\n")
		return err
	}
	token := f.job.Holders[r.Holder].Token
	signed, err := proof(f.signers[r.Holder], http.MethodGet, r.URL, token)
	if err != nil {
		return err
	}
	u, err := url.Parse(r.URL)
	if err != nil {
		return err
	}
	// Headers as they come from a proxy in front.
	head := "Host: " + u.Host + "\r\nUser-Agent: agents\r\nX-Forwarded-For: 198.51.100.7\r\nX-Forwarded-Proto: https\r\nAuthorization: DPoP " + token + "\r\nDPoP: " + signed + "\r\n"
	query := "?cursor=" + r.Cursor
	if r.Stream {
		head += "Accept: text/event-stream\r\n"
	} else {
		query += "&wait=" + strconv.Itoa(wait)
	}
	_, err = io.WriteString(conn, "GET "+u.Path+query+" HTTP/1.1\r\n"+head+"\r\n")
	return err
}

// stream reads lines, takes the time of events with a stamp, and moves the reader on.
func (f *fleet) stream(in *bufio.Reader, r *reader, opened func()) error {
	status, err := in.ReadString('\n')
	if err == nil && strings.HasPrefix(status, "HTTP/1.1 503 ") {
		return errBusy
	}
	if err != nil || !strings.HasPrefix(status, "HTTP/1.1 200 ") {
		rest, _ := in.Peek(in.Buffered())
		return fmt.Errorf("stream: %q %s: %w", status, rest, errors.Join(err, errors.New("not open")))
	}
	for last := false; ; {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, io.EOF) && last {
			return errEnded
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return fmt.Errorf("stream: %w", err)
		}
		opened()
		if text := strings.TrimSpace(string(line)); text != "" {
			last = text == "0" // of the chunks
			if id, found := strings.CutPrefix(text, "id: "); found {
				r.Cursor = id
			}
		}
		_, after, found := strings.Cut(string(line), stamp)
		if !found {
			continue
		}
		digits, _, _ := strings.Cut(after, `"`)
		sent, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			return err
		}
		now := time.Now().UnixNano()
		f.mu.Lock()
		f.came = append(f.came, arrival{sent, now})
		f.mu.Unlock()
	}
}

// memory is what a process has in memory, in bytes.
func memory(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		var kib int
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			return kib << 10, nil
		}
	}
	return 0, errors.New("no VmRSS")
}
