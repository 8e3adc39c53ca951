package child

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// watchdog reads the child's process id, then waits. A second line means that the
// child was waited for and its id may belong to somebody else by now; end of file
// without one means that the test binary is gone. A zombie has ended, whoever should
// have waited for it. $1 is the signal, $2 a folder to remove or the empty string.
const watchdog = `
read -r pid || exit 0
read -r _ && exit 0
kill -s "$1" "$pid" 2>/dev/null
n=0
while [ $n -lt 200 ] && kill -0 "$pid" 2>/dev/null; do
  case $(cat "/proc/$pid/stat" 2>/dev/null) in *') Z '*) break ;; esac
  sleep 0.05
  n=$((n+1))
done
kill -s KILL "$pid" 2>/dev/null
[ -z "$2" ] || rm -rf -- "$2"
`

// Spec says what to start.
type Spec struct {
	Path string
	Args []string
	// Dir and Env are as in exec.Cmd: empty means those of the test binary.
	Dir string
	Env []string
	// Output receives what the child writes to both its streams; nil throws it away.
	Output *os.File
	// Credential makes the child run as somebody else; only root can ask for that.
	Credential *syscall.Credential
	// StopSignal ends the child in Stop and when the test binary is gone. Zero means
	// SIGTERM.
	StopSignal syscall.Signal
	// Scratch is removed once the child has ended because the test binary is gone.
	Scratch string
}

// A Process is a running child.
type Process struct {
	cmd  *exec.Cmd
	stop syscall.Signal
	guard
	done chan struct{}
	err  error
}

type guard struct {
	cmd *exec.Cmd
	pen io.WriteCloser
}

// Start starts a child. Its caller ends it with Stop or Kill, or waits for it; a
// child still running when the test binary ends is ended then.
func Start(s Spec) (*Process, error) {
	if s.StopSignal == 0 {
		s.StopSignal = syscall.SIGTERM
	}
	g, err := startGuard(s)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(s.Path, s.Args...)
	cmd.Dir, cmd.Env = s.Dir, s.Env
	if s.Output != nil { // an *os.File is handed over as it is, so nothing has to copy
		cmd.Stdout, cmd.Stderr = s.Output, s.Output
	}
	// A group of its own keeps the terminal's Ctrl-C for the test binary.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: s.Credential}
	if err := cmd.Start(); err != nil {
		g.dismiss()
		return nil, fmt.Errorf("starting %s: %w", s.Path, err)
	}
	if _, err := io.WriteString(g.pen, strconv.Itoa(cmd.Process.Pid)+"\n"); err != nil {
		err = errors.Join(err, cmd.Process.Kill(), cmd.Wait())
		g.dismiss()
		return nil, fmt.Errorf("telling the watchdog: %w", err)
	}
	p := &Process{cmd: cmd, stop: s.StopSignal, guard: g, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		p.dismiss()
		close(p.done)
	}()
	return p, nil
}

func startGuard(s Spec) (guard, error) {
	name, ok := signalNames[s.StopSignal]
	if !ok {
		return guard{}, fmt.Errorf("no name for %v", s.StopSignal)
	}
	cmd := exec.Command("/bin/sh", "-c", watchdog, "watchdog", name, s.Scratch)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pen, err := cmd.StdinPipe()
	if err != nil {
		return guard{}, err
	}
	if err := cmd.Start(); err != nil {
		return guard{}, fmt.Errorf("starting the watchdog: %w", err)
	}
	return guard{cmd: cmd, pen: pen}, nil
}

var signalNames = map[syscall.Signal]string{
	syscall.SIGTERM: "TERM", syscall.SIGINT: "INT", syscall.SIGQUIT: "QUIT", syscall.SIGKILL: "KILL",
}

// dismiss ends the watchdog without its doing anything.
func (g guard) dismiss() {
	_, _ = io.WriteString(g.pen, "\n\n")
	_ = g.pen.Close()
	_ = g.cmd.Wait()
}

// PID is the child's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed once the child has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits until the child has ended and says how, as exec.Cmd.Wait does.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Signal sends a signal to the child; one that has ended gets none.
func (p *Process) Signal(s syscall.Signal) error {
	err := p.cmd.Process.Signal(s)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Kill ends the child with SIGKILL and waits for its end.
func (p *Process) Kill() error {
	err := p.Signal(syscall.SIGKILL)
	<-p.done
	return err
}

// Stop asks the child to end and waits for that, at most for grace; after it the
// child is killed and Stop returns an error.
func (p *Process) Stop(grace time.Duration) error {
	if err := p.Signal(p.stop); err != nil {
		return err
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		return errors.Join(fmt.Errorf("%s did not end within %s", p.cmd.Path, grace), p.Kill())
	}
}
