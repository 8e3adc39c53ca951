package rpc

import (
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
	"github.com/poppyfield/poppyfield/services/relay/app"
)

const wholePolicy = "policy"

// policyFields are the paths of an update mask below policy, and policy itself.
var policyFields = []string{
	wholePolicy, "policy.schedule", "policy.max_in_flight", "policy.rate", "policy.burst", "policy.headers", "policy.client_certificate",
	"policy.client_key", "policy.disable_after",
}

// policyHas reports whether a field of the policy is set, where there is no mask.
func policyHas(p *adminv1.DeliveryPolicy, field string) bool {
	switch strings.TrimPrefix(field, wholePolicy+".") {
	case "schedule":
		return len(p.GetSchedule()) > 0
	case "max_in_flight":
		return p.GetMaxInFlight() != 0
	case "rate":
		return p.GetRate() != 0
	case "burst":
		return p.GetBurst() != 0
	case "headers":
		return len(p.GetHeaders()) > 0
	case "client_certificate":
		return p.GetClientCertificate() != ""
	case "client_key":
		return p.GetClientKey() != ""
	case "disable_after":
		return p.GetDisableAfter() != nil
	}
	return false
}

func policyChange(p *adminv1.DeliveryPolicy, has func(string) bool) app.PolicyChange {
	in := func(field string) bool { return has(wholePolicy) || has(wholePolicy+"."+field) }
	var ch app.PolicyChange
	if in("schedule") {
		waits := make([]time.Duration, len(p.GetSchedule()))
		for i, d := range p.GetSchedule() {
			waits[i] = d.AsDuration()
		}
		ch.Schedule = &waits
	}
	if in("max_in_flight") {
		n := int(p.GetMaxInFlight())
		ch.MaxInFlight = &n
	}
	if in("rate") {
		r := p.GetRate()
		ch.Rate = &r
	}
	if in("burst") {
		n := int(p.GetBurst())
		ch.Burst = &n
	}
	if in("headers") {
		if ch.Headers = p.GetHeaders(); ch.Headers == nil {
			ch.Headers = map[string]string{}
		}
	}
	if in("client_certificate") {
		c := p.GetClientCertificate()
		ch.Certificate = &c
	}
	if in("client_key") {
		k := p.GetClientKey()
		ch.ClientKey = &k
	}
	if in("disable_after") {
		d := p.GetDisableAfter().AsDuration()
		ch.DisableAfter = &d
	}
	return ch
}

func policy(e app.Endpoint) *adminv1.DeliveryPolicy {
	p := e.Policy
	out := &adminv1.DeliveryPolicy{
		MaxInFlight: int32(p.MaxInFlight), Rate: p.Rate, Burst: int32(p.Burst), ClientCertificate: p.Certificate,
	}
	for _, d := range p.Schedule {
		out.Schedule = append(out.Schedule, durationpb.New(d))
	}
	for _, name := range p.HeaderNames {
		if out.Headers == nil {
			out.Headers = map[string]string{}
		}
		out.Headers[name] = app.Hidden
	}
	if p.DisableAfter > 0 {
		out.DisableAfter = durationpb.New(p.DisableAfter)
	}
	return out
}

func health(h app.Health) *adminv1.EndpointHealth {
	return &adminv1.EndpointHealth{
		SuccessRate: h.SuccessRate, Attempts: int32(h.Attempts), Breaker: h.Breaker, BreakerUntilTime: stamp(h.BreakerUntil),
		FailuresInSeries: int32(h.Failures), FailingSinceTime: maybe(h.FailingSince), LastSuccessTime: maybe(h.LastSuccessAt),
		P50: lasting(h.P50), P95: lasting(h.P95), Pending: int64(h.Pending), OldestPendingTime: maybe(h.OldestPending),
	}
}

func lasting(d time.Duration) *durationpb.Duration { return durationpb.New(d) }
