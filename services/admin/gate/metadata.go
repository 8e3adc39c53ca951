package gate

import (
	"context"
	"net/http"
	"net/netip"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/poppyfield/poppyfield/internal/platform/ids"
	"github.com/poppyfield/poppyfield/internal/platform/limit"
)

// Names of the metadata that calls carry. The last two count only on calls from
// within the process, which is where REST comes from.
const (
	mdAuthorization = "authorization"
	MDRequestID     = "x-request-id"
	MDAddress       = "x-poppyfield-address"
)

type insideKey struct{}

// Inside marks ctx as that of a call from within the process.
func Inside(ctx context.Context) context.Context {
	return context.WithValue(ctx, insideKey{}, true)
}

// FromHTTP returns the ctx of a call that an HTTP request makes with a key.
func (g *Gate) FromHTTP(r *http.Request, key, requestID string) context.Context {
	return metadata.NewIncomingContext(Inside(r.Context()), metadata.Pairs(
		mdAuthorization, "Bearer "+key, MDRequestID, requestID, MDAddress, g.Address(r).String()))
}

func inside(ctx context.Context) bool {
	in, _ := ctx.Value(insideKey{}).(bool)
	return in
}

// Bearer returns the token of an Authorization header; empty for any other scheme.
func Bearer(header string) string {
	scheme, token, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

func bearer(ctx context.Context) string { return Bearer(incoming(ctx, mdAuthorization)) }

// address returns where the call came from.
func (g *Gate) address(ctx context.Context) netip.Addr {
	if inside(ctx) {
		a, err := netip.ParseAddr(incoming(ctx, MDAddress))
		if err != nil {
			return netip.Addr{}
		}
		return a
	}
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return netip.Addr{}
	}
	md, _ := metadata.FromIncomingContext(ctx)
	return limit.ClientAddr(&http.Request{RemoteAddr: p.Addr.String(), Header: http.Header{"X-Forwarded-For": md.Get("x-forwarded-for")}}, g.cfg.TrustedProxies)
}

// Address returns where an HTTP request came from.
func (g *Gate) Address(r *http.Request) netip.Addr {
	return limit.ClientAddr(r, g.cfg.TrustedProxies)
}

func incoming(ctx context.Context, name string) string {
	md, _ := metadata.FromIncomingContext(ctx)
	if v := md.Get(name); len(v) == 1 {
		return v[0]
	}
	return ""
}

type requestIDKey struct{}

func withRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

func requestID(ctx context.Context) string {
	if inside(ctx) {
		if id := incoming(ctx, MDRequestID); id != "" {
			return id
		}
	}
	return ids.New(ids.Request)
}

func requestIDHeader(id string) metadata.MD { return metadata.Pairs(MDRequestID, id) }
