package gateways_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
)

// envoy does what Envoy's filter ext_authz does: it asks by the published client, with
// what its configuration says, and obeys the answer.
type envoy struct {
	client authv3.AuthorizationClient
	filter *extauthzv3.ExtAuthz
	raw    bool // encode_raw_headers; otherwise one value a name, with commas
	proxy  http.Handler
}

// filterOf reads a bootstrap as Envoy does, and returns its filter ext_authz.
func filterOf(t *testing.T, text string) (*extauthzv3.ExtAuthz, string) {
	t.Helper()
	var tree any
	require.NoError(t, yaml.Unmarshal([]byte(text), &tree))
	raw, err := json.Marshal(tree)
	require.NoError(t, err)
	var bootstrap bootstrapv3.Bootstrap
	require.NoError(t, protojson.Unmarshal(raw, &bootstrap))
	require.NoError(t, bootstrap.ValidateAll())
	address := ""
	for _, c := range bootstrap.GetStaticResources().GetClusters() {
		if c.GetName() == "poppyfield" {
			a := c.GetLoadAssignment().GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress().GetSocketAddress()
			address = net.JoinHostPort(a.GetAddress(), strconv.Itoa(int(a.GetPortValue())))
		}
	}
	var manager hcmv3.HttpConnectionManager
	require.NoError(t, bootstrap.GetStaticResources().GetListeners()[0].GetFilterChains()[0].GetFilters()[0].GetTypedConfig().UnmarshalTo(&manager))
	require.NoError(t, manager.ValidateAll())
	var filter extauthzv3.ExtAuthz
	require.NoError(t, manager.GetHttpFilters()[0].GetTypedConfig().UnmarshalTo(&filter))
	require.NoError(t, filter.ValidateAll())
	require.Equal(t, corev3.ApiVersion_V3, filter.GetTransportApiVersion())
	require.False(t, filter.GetFailureModeAllow())
	require.Equal(t, "poppyfield", filter.GetGrpcService().GetEnvoyGrpc().GetClusterName())
	return &filter, address
}

func startEnvoy(t *testing.T, r *rig, text string, raw bool) {
	t.Helper()
	filter, address := filterOf(t, text)
	require.True(t, filter.GetEncodeRawHeaders())
	cc, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: r.roots, MinVersion: tls.VersionTLS12})))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cc.Close()) })
	serveGateway(t, r, &envoy{client: authv3.NewAuthorizationClient(cc), filter: filter, raw: raw, proxy: pass(behind)})
}

// ServeHTTP implements http.Handler.
func (e *envoy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), e.filter.GetGrpcService().GetTimeout().AsDuration())
	defer cancel()
	md := metadata.MD{}
	for _, m := range e.filter.GetGrpcService().GetInitialMetadata() {
		md.Append(m.GetKey(), m.GetValue())
	}
	got, err := e.client.Check(metadata.NewOutgoingContext(ctx, md), &authv3.CheckRequest{Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{Http: e.attributes(r)}}})
	if err != nil {
		w.WriteHeader(int(e.filter.GetStatusOnError().GetCode()))
		return
	}
	if codes.Code(got.GetStatus().GetCode()) != codes.OK {
		no := got.GetDeniedResponse()
		set(w.Header(), no.GetHeaders())
		w.WriteHeader(int(no.GetStatus().GetCode()))
		_, _ = io.WriteString(w, no.GetBody())
		return
	}
	for _, name := range got.GetOkResponse().GetHeadersToRemove() {
		for there := range r.Header {
			if strings.EqualFold(there, name) {
				delete(r.Header, there)
			}
		}
	}
	set(r.Header, got.GetOkResponse().GetHeaders())
	set(w.Header(), got.GetOkResponse().GetResponseHeadersToAdd())
	e.proxy.ServeHTTP(w, r)
}

func (e *envoy) attributes(r *http.Request) *authv3.AttributeContext_HttpRequest {
	out := &authv3.AttributeContext_HttpRequest{Method: r.Method, Scheme: "https", Host: r.Host, Path: r.RequestURI}
	if e.raw {
		out.HeaderMap = &corev3.HeaderMap{}
	} else {
		out.Headers = map[string]string{}
	}
	for name, values := range r.Header {
		name = strings.ToLower(name)
		if !e.raw {
			out.Headers[name] = strings.Join(values, ",")
			continue
		}
		for _, v := range values {
			out.HeaderMap.Headers = append(out.HeaderMap.Headers, &corev3.HeaderValue{Key: name, RawValue: []byte(v)})
		}
	}
	return out
}

func set(h http.Header, options []*corev3.HeaderValueOption) {
	for _, o := range options {
		h.Set(o.GetHeader().GetKey(), o.GetHeader().GetValue())
	}
}

func TestEnvoy(t *testing.T) {
	r := start(t)
	text := r.configuration(t, "yaml")
	for name, raw := range map[string]bool{"as told": true, "without raw headers": false} {
		t.Run(name, func(t *testing.T) {
			startEnvoy(t, r, text, raw)
			awaitListener(t, r.roots)
			r.everyCase(t)
		})
	}
	r.otherKeys(t, func(t *testing.T, key string) { startEnvoy(t, r, strings.ReplaceAll(text, r.key, key), true) })
}
