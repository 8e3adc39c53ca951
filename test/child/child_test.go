package child_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/poppyfield/poppyfield/test/child"
)

// asParent makes the test binary a parent that starts a child and waits to be killed.
const asParent = "POPPYFIELD_CHILD_TEST_SCRATCH"

func TestMain(m *testing.M) {
	if scratch := os.Getenv(asParent); scratch != "" {
		p, err := child.Start(child.Spec{Path: "/bin/sleep", Args: []string{"600"}, Scratch: scratch})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(p.PID())
		select {}
	}
	os.Exit(m.Run())
}

func TestStart_ChildEndsWhenItsParentIsKilled(t *testing.T) {
	scratch := filepath.Join(t.TempDir(), "scratch")
	require.NoError(t, os.Mkdir(scratch, 0o700))
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), asParent+"="+scratch)
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	line, _, err := bufio.NewReader(out).ReadLine()
	require.NoError(t, err)
	pid, err := strconv.Atoi(string(line))
	require.NoError(t, err, "%s", line)
	require.NoError(t, syscall.Kill(pid, 0))

	require.NoError(t, parent.Process.Kill())
	require.Error(t, parent.Wait())

	require.Eventually(t, func() bool {
		_, err := os.Stat(scratch)
		return ended(pid) && os.IsNotExist(err)
	}, 10*time.Second, 10*time.Millisecond)
}

// ended says whether no such process runs; one that nobody waited for yet has ended.
func ended(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return true
	}
	return bytes.Contains(stat, []byte("State:\tZ"))
}

func TestStop_EndsTheChildAndKeepsItsFolder(t *testing.T) {
	scratch := t.TempDir()
	p, err := child.Start(child.Spec{Path: "/bin/sleep", Args: []string{"600"}, Scratch: scratch})
	require.NoError(t, err)
	require.NoError(t, p.Stop(10*time.Second))
	require.Error(t, p.Wait(), "ended by a signal")
	require.DirExists(t, scratch)
}

func TestStop_KillsAChildThatDoesNotListen(t *testing.T) {
	out, err := os.CreateTemp(t.TempDir(), "out")
	require.NoError(t, err)
	p, err := child.Start(child.Spec{
		Path: "/bin/sh", Args: []string{"-c", `trap "" TERM; echo ready; while :; do sleep 1; done`}, Output: out,
	})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(out.Name())
		return err == nil && string(text) == "ready\n"
	}, 10*time.Second, 5*time.Millisecond)
	require.ErrorContains(t, p.Stop(50*time.Millisecond), "did not end within")
}

func TestStart_NoSuchProgram(t *testing.T) {
	_, err := child.Start(child.Spec{Path: "/no/such/program"})
	require.ErrorContains(t, err, "/no/such/program")
}
