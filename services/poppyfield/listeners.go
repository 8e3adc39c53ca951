package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// devState is what stays the same over restarts of a data directory: issuers hold the port.
type devState struct {
	Listen  string `json:"listen"`
	GRPC    string `json:"grpc"`
	Metrics string `json:"metrics"`
	Demo    string `json:"demo"`
	Agent   string `json:"agent"`
}

type listeners struct {
	state                      devState
	https, grpc, metrics, demo net.Listener
}

// devListeners opens the ports of a data directory: those it had before, or else the
// one that was asked for and the ones after it, as far as they are free.
func devListeners(dir, listen string) (l listeners, err error) {
	file := filepath.Join(dir, "dev.json")
	raw, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := l.open(listen); err != nil {
			return l, errors.Join(err, l.close())
		}
	case err != nil:
		return l, err
	default:
		if err := l.reopen(raw, listen); err != nil {
			return l, errors.Join(fmt.Errorf("%s: %w", file, err), l.close())
		}
		return l, nil
	}
	if raw, err = json.MarshalIndent(l.state, "", "  "); err == nil {
		err = writeWhole(file, append(raw, '\n'))
	}
	if err != nil {
		return l, errors.Join(err, l.close())
	}
	return l, nil
}

// open chooses the ports of a new data directory.
func (l *listeners) open(listen string) error {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return err
	}
	first, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return fmt.Errorf("--listen %s: not a port", listen)
	}
	if l.https, err = listenOn(listen, &l.state.Listen); err != nil {
		return err
	}
	next := func(offset uint64, addr *string) net.Listener {
		if err != nil {
			return nil
		}
		var lis net.Listener
		if first != 0 && first+offset < 1<<16 {
			if lis, err = listenOn(net.JoinHostPort(host, strconv.FormatUint(first+offset, 10)), addr); err == nil {
				return lis
			}
		}
		lis, err = listenOn(net.JoinHostPort(host, "0"), addr)
		return lis
	}
	l.demo = next(1, &l.state.Demo)
	// The agent's port is only chosen here: the agent listens there itself.
	if agent := next(2, &l.state.Agent); agent != nil {
		err = agent.Close()
	}
	l.grpc, l.metrics = next(3, &l.state.GRPC), next(4, &l.state.Metrics)
	return err
}

// reopen opens the ports that the data directory had before.
func (l *listeners) reopen(raw []byte, listen string) error {
	if err := json.Unmarshal(raw, &l.state); err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(listen)
	if err != nil {
		return err
	}
	if port != "0" && listen != l.state.Listen {
		return fmt.Errorf("this data directory serves %s: its Companies' issuers name that port and never change; use it or another --data-dir", l.state.Listen)
	}
	for addr, lis := range map[*string]*net.Listener{
		&l.state.Listen: &l.https, &l.state.Demo: &l.demo, &l.state.GRPC: &l.grpc, &l.state.Metrics: &l.metrics,
	} {
		if *lis, err = listenOn(*addr, addr); err != nil {
			return err
		}
	}
	return nil
}

func listenOn(addr string, actual *string) (net.Listener, error) {
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	*actual = lis.Addr().String()
	return lis, nil
}

func (l listeners) close() error {
	var errs []error
	for _, lis := range []net.Listener{l.https, l.grpc, l.metrics, l.demo} {
		if lis == nil {
			continue
		}
		if err := lis.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
