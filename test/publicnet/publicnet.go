package publicnet

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Addresses of the network. They belong to amateur radio on the real Internet.
const (
	Proxy   = "44.0.0.1" // of the installation's reverse proxy
	Outside = "44.0.0.2" // of agents, websites and backends
)

// inside marks the environment of the test binary that runs within the network.
const inside = "POPPYFIELD_TEST_NETWORK"

// Hosts are names by address.
type Hosts map[string][]string

// Main is for TestMain: it runs the tests inside the network and returns the exit
// code. Before is called outside of it, for what needs the real network.
func Main(m *testing.M, hosts Hosts, before func() error) int {
	if os.Getenv(inside) != "" {
		if err := arrange(hosts); err != nil {
			return fail(fmt.Errorf("arranging the network: %w", err))
		}
		return m.Run()
	}
	if before != nil {
		if err := before(); err != nil {
			return fail(err)
		}
	}
	err := again()
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended):
		return max(ended.ExitCode(), 1)
	case err != nil:
		return fail(fmt.Errorf("a network of its own needs root, or user namespaces that the kernel allows: %w", err))
	}
	return 0
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "publicnet:", err)
	return 1
}

// again runs this binary within new namespaces and waits for it.
func again() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// The death signal comes when the thread that started the child ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		// The same user inside, because PostgreSQL refuses root, with what arrange needs.
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN, unix.CAP_SYS_ADMIN, unix.CAP_NET_BIND_SERVICE}
	}
	return cmd.Run()
}

// arrange brings the loopback interface up, gives it the addresses, and writes the names.
func arrange(hosts Hosts) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mounts: %w", err)
	}
	if err := bringUp("lo"); err != nil {
		return err
	}
	names := "127.0.0.1 localhost\n"
	for i, address := range []string{Proxy, Outside} {
		if err := setAddress(fmt.Sprintf("lo:%d", i+1), address); err != nil {
			return err
		}
		if len(hosts[address]) > 0 {
			names += address + " " + strings.Join(hosts[address], " ") + "\n"
		}
	}
	dir, err := os.MkdirTemp("", "poppyfield-net-")
	if err != nil {
		return err
	}
	return errors.Join(
		cover(dir, "/etc/hosts", names),
		cover(dir, "/etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"),
		os.RemoveAll(dir)) // a mount keeps its file
}

// cover lays a file with text over another, for this mount namespace alone.
func cover(dir, path, text string) error {
	file := filepath.Join(dir, filepath.Base(path))
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	if err := syscall.Mount(file, target, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting over %s: %w", path, err)
	}
	return nil
}

func bringUp(device string) error {
	return control(device, func(fd int, request *unix.Ifreq) error {
		request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
	})
}

// setAddress makes an alias of an interface with an address.
func setAddress(device, address string) error {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return err
	}
	return control(device, func(fd int, request *unix.Ifreq) error {
		if err := request.SetInet4Addr(ip.AsSlice()); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(fd, unix.SIOCSIFADDR, request); err != nil {
			return err
		}
		if err := request.SetInet4Addr([]byte{255, 255, 255, 255}); err != nil {
			return err
		}
		return unix.IoctlIfreq(fd, unix.SIOCSIFNETMASK, request)
	})
}

func control(device string, do func(fd int, request *unix.Ifreq) error) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	request, err := unix.NewIfreq(device)
	if err == nil {
		err = do(fd, request)
	}
	if err != nil {
		return fmt.Errorf("interface %s: %w", device, err)
	}
	return nil
}
