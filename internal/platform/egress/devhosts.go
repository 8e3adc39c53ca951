package egress

import (
	"fmt"
	"net/netip"
	"strings"
)

// DevHost lets one name reach one loopback address.
type DevHost struct {
	Name string // lower-case, without a trailing dot
	Addr netip.Addr
	// Port, unless zero, is dialled whatever port a URL names; zero means the URL's own.
	Port uint16
}

// DevHosts are dev hosts by name.
type DevHosts map[string]DevHost

// ParseDevHost reads NAME=IP[:PORT]; an IPv6 address with a port stands in brackets.
// An IP that is not loopback is an error: the mapping opens this machine, never a network.
func ParseDevHost(s string) (DevHost, error) {
	name, target, ok := strings.Cut(s, "=")
	if !ok {
		return DevHost{}, fmt.Errorf("dev host %q: want NAME=IP[:PORT]", s)
	}
	name, err := canonicalName(name)
	if err != nil {
		return DevHost{}, fmt.Errorf("dev host %q: %w", s, err)
	}
	if looksNumeric(name) {
		return DevHost{}, fmt.Errorf("dev host %q: the name is an address", s)
	}
	h := DevHost{Name: name}
	if ap, err := netip.ParseAddrPort(target); err == nil {
		if ap.Port() == 0 {
			return DevHost{}, fmt.Errorf("dev host %q: port 0", s)
		}
		h.Addr, h.Port = ap.Addr(), ap.Port()
	} else {
		h.Addr, err = netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(target, "["), "]"))
		if err != nil {
			return DevHost{}, fmt.Errorf("dev host %q: %q is neither IP nor IP:PORT", s, target)
		}
	}
	// The mapped form is refused rather than unmapped, so that one address has one spelling.
	if !h.Addr.IsLoopback() || h.Addr.Is4In6() || h.Addr.Zone() != "" {
		return DevHost{}, fmt.Errorf("dev host %q: %s is not a loopback address", s, h.Addr)
	}
	return h, nil
}

// ParseDevHosts reads a list of NAME=IP[:PORT]. A name that comes twice with different targets is an error.
func ParseDevHosts(list []string) (DevHosts, error) {
	if len(list) == 0 {
		return nil, nil
	}
	out := make(DevHosts, len(list))
	for _, s := range list {
		h, err := ParseDevHost(s)
		if err != nil {
			return nil, err
		}
		if old, ok := out[h.Name]; ok && old != h {
			return nil, fmt.Errorf("dev host %q: the name is mapped twice", h.Name)
		}
		out[h.Name] = h
	}
	return out, nil
}

// target returns where a dev host is dialled for a URL with port.
func (h DevHost) target(port uint16) netip.AddrPort {
	if h.Port != 0 {
		port = h.Port
	}
	return netip.AddrPortFrom(h.Addr, port)
}
