package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/term"
)

const lineLimit = 64 << 10

// terminal is the User at the command's input and output.
type terminal struct {
	in  *bufio.Reader
	tty *os.File // the input where it is a terminal, nil where it is not
	out io.Writer
}

func newTerminal(in io.Reader, out io.Writer) *terminal {
	t := &terminal{in: bufio.NewReaderSize(in, lineLimit), out: out}
	if f, ok := in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		t.tty = f
	}
	return t
}

// Show prints text as a paragraph.
func (t *terminal) Show(text string) {
	_, _ = fmt.Fprintf(t.out, "\n%s\n", printable(text))
}

// Ask prints label and reads a line.
func (t *terminal) Ask(ctx context.Context, label string, secret bool) (string, error) {
	_, _ = fmt.Fprintf(t.out, "%s: ", clip(label))
	type result struct {
		line string
		err  error
	}
	read := t.readLine
	restore := func() {}
	if secret && t.tty != nil {
		fd := int(t.tty.Fd())
		before, err := term.GetState(fd)
		if err != nil {
			return "", fail(ExitUsage, "", "the terminal can't hide what is typed").because(err)
		}
		restore = func() { _ = term.Restore(fd, before); _, _ = fmt.Fprintln(t.out) }
		read = func() (string, error) {
			line, err := term.ReadPassword(fd)
			return string(line), err
		}
	}
	got := make(chan result, 1)
	go func() { // a read can't be broken off: it ends with the process
		line, err := read()
		got <- result{line, err}
	}()
	select {
	case r := <-got:
		restore()
		if r.err != nil {
			return "", fail(ExitUsage, "", "there is no answer to %q", clip(label)).because(r.err)
		}
		return r.line, nil
	case <-ctx.Done():
		restore() // or the shell would go on without echo
		return "", ctx.Err()
	}
}

func (t *terminal) readLine() (string, error) {
	line, err := t.in.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return "", errors.New("the line is too long")
	case err != nil && len(line) == 0:
		return "", err
	}
	return strings.TrimRight(string(line), "\r\n"), nil
}

// readObject reads one JSON object from the input and leaves what follows it to Ask.
func (t *terminal) readObject() ([]byte, error) {
	dec := json.NewDecoder(io.LimitReader(t.in, lineLimit))
	var raw json.RawMessage
	err := dec.Decode(&raw)
	rest, _ := io.ReadAll(dec.Buffered())
	t.in = bufio.NewReaderSize(io.MultiReader(strings.NewReader(strings.TrimLeft(string(rest), " \t\r\n")), t.in), lineLimit)
	if err != nil {
		return nil, errors.New("there is no JSON object on the standard input") // the cause would quote it
	}
	return raw, nil
}

// Browse opens url in the User's browser.
func (t *terminal) Browse(ctx context.Context, url string) error {
	if _, err := httpsURL(url); err != nil { // nothing that the opener could take for an option or a file
		return err
	}
	name, args := "xdg-open", []string{url}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", url}
	default:
		if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
			return errors.New("there is no graphical display") // a text browser would take the terminal
		}
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), name, args...) //nolint:gosec // an https URL, checked above
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // some openers last as long as the browser
	return nil
}
