package a2a

import (
	"encoding/json"
	"errors"
	"net/url"
	"strings"
)

// Version is a version of the protocol, as the header A2A-Version has it.
type Version string

// The versions that are spoken.
const (
	V1  Version = "1.0"
	V03 Version = "0.3"
)

// HeaderVersion names the version of a request.
const HeaderVersion = "A2A-Version"

// CardPath is where an agent's card is found at its host.
const CardPath = "/.well-known/agent-card.json"

// Interface is where and how an agent is spoken to.
type Interface struct {
	URL     string
	Version Version
	Tenant  string // "" for none
	Stream  bool   // the agent streams
}

// ErrNoInterface is a card without any interface of a kind that is spoken.
var ErrNoInterface = errors.New("the agent card names no JSON-RPC interface of A2A 1.0 or 0.3")

// IsCard reports that a URL names an agent's card rather than its interface.
func IsCard(u *url.URL) bool { return strings.HasSuffix(u.Path, ".json") }

type wireCard struct {
	// Version 1.0.
	SupportedInterfaces []struct {
		URL             string `json:"url"`
		ProtocolBinding string `json:"protocolBinding"`
		ProtocolVersion string `json:"protocolVersion"`
		Tenant          string `json:"tenant"`
	} `json:"supportedInterfaces"`
	// Version 0.3.
	URL                  string `json:"url"`
	PreferredTransport   string `json:"preferredTransport"`
	ProtocolVersion      string `json:"protocolVersion"`
	AdditionalInterfaces []struct {
		URL       string `json:"url"`
		Transport string `json:"transport"`
	} `json:"additionalInterfaces"`

	Capabilities struct {
		Streaming bool `json:"streaming"`
	} `json:"capabilities"`
}

const binding = "JSONRPC"

// ParseCard returns the interfaces of a card that are spoken, the newest version first.
func ParseCard(body []byte) ([]Interface, error) {
	var w wireCard
	if err := json.Unmarshal(body, &w); err != nil {
		return nil, errors.New("the agent card is no JSON object")
	}
	var newer, older []Interface
	add := func(address, version, tenant string) {
		i := Interface{URL: address, Tenant: tenant, Stream: w.Capabilities.Streaming}
		switch {
		case address == "":
		case strings.HasPrefix(version, "1."):
			i.Version = V1
			newer = append(newer, i)
		case version == "0.3" || strings.HasPrefix(version, "0.3."), version == "":
			i.Version = V03
			older = append(older, i)
		}
	}
	for _, i := range w.SupportedInterfaces {
		if strings.EqualFold(i.ProtocolBinding, binding) {
			add(i.URL, i.ProtocolVersion, i.Tenant)
		}
	}
	if w.PreferredTransport == "" || strings.EqualFold(w.PreferredTransport, binding) {
		add(w.URL, w.ProtocolVersion, "")
	}
	for _, i := range w.AdditionalInterfaces {
		if strings.EqualFold(i.Transport, binding) {
			add(i.URL, w.ProtocolVersion, "")
		}
	}
	newer = append(newer, older...)
	if len(newer) == 0 {
		return nil, ErrNoInterface
	}
	return newer, nil
}
