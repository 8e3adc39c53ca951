//go:build !windows

package agent

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// tryLock takes the lock of f for this process, or says that another one has it. It
// ends with the process, however that ends.
func tryLock(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
