package egress

import (
	"net/netip"
)

// GuardConfig says what differs from the built-in policy.
type GuardConfig struct {
	// DevHosts are names that reach a loopback address, for development only.
	DevHosts DevHosts
	// Deny lists further ranges that are never dialled, such as the public
	// addresses of our own nodes.
	Deny []netip.Prefix
}

// Guard decides which URLs and addresses may be reached. It does no I/O and is safe for concurrent use.
type Guard struct {
	dev    DevHosts
	v4, v6 []block
	// global is the only space IANA assigns IPv6 unicast addresses from; nat64 the
	// well-known translation prefix in front of an IPv4 address.
	global, nat64 netip.Prefix
}

// NewGuard makes a Guard. A config without dev hosts lets nothing reach loopback.
func NewGuard(cfg GuardConfig) *Guard {
	g := &Guard{
		dev:    make(DevHosts, len(cfg.DevHosts)),
		v4:     blocksV4(),
		v6:     blocksV6(),
		global: netip.MustParsePrefix("2000::/3"),
		nat64:  netip.MustParsePrefix("64:ff9b::/96"),
	}
	for _, h := range cfg.DevHosts {
		g.dev[h.Name] = h
	}
	for _, p := range cfg.Deny {
		b := block{prefix: p.Masked(), name: "denied by configuration"}
		if p.Addr().Is4() {
			g.v4 = append(g.v4, b)
		} else {
			g.v6 = append(g.v6, b)
		}
	}
	return g
}

// CheckAddr reports with an [Error] of kind Blocked that addr is not globally
// reachable. Addresses with a zone and IPv4-mapped ones are always refused; a
// resolver's answers have to be unmapped before.
func (g *Guard) CheckAddr(addr netip.Addr) error {
	if name := g.refusal(addr); name != "" {
		return newError(Blocked, "the address is not on the public Internet", refusedError{addr: addr, name: name})
	}
	return nil
}

// refusal names the range because of which addr is not dialled, "" when it may be.
func (g *Guard) refusal(addr netip.Addr) string {
	switch {
	case !addr.IsValid():
		return "not an address"
	case addr.Zone() != "":
		return "an address with a zone"
	case addr.Is4():
		return find(g.v4, addr)
	default:
		return g.refusalV6(addr)
	}
}

func (g *Guard) refusalV6(addr netip.Addr) string {
	if name := find(g.v6, addr); name != "" {
		return name
	}
	b := addr.As16()
	if g.nat64.Contains(addr) {
		// In IPv6-only networks every IPv4 host is seen behind this prefix, so the
		// address that the translator will dial is the one to judge.
		if name := g.refusal(netip.AddrFrom4([4]byte(b[12:]))); name != "" {
			return "NAT64 of " + name
		}
		return ""
	}
	if !g.global.Contains(addr) {
		return "outside of global unicast 2000::/3 (RFC 4291)"
	}
	// An ISATAP interface identifier (RFC 5214) carries an IPv4 address that the
	// next router would tunnel to.
	if (b[8] == 0x00 || b[8] == 0x02) && b[9] == 0x00 && b[10] == 0x5e && b[11] == 0xfe {
		return "ISATAP (RFC 5214), hides an IPv4 address"
	}
	return ""
}

func find(list []block, addr netip.Addr) string {
	for _, b := range list {
		if b.prefix.Contains(addr) {
			return b.name
		}
	}
	return ""
}

// refusedError tells the log which address was refused and why.
type refusedError struct {
	addr netip.Addr
	name string
}

func (e refusedError) Error() string { return e.addr.String() + " is " + e.name }
