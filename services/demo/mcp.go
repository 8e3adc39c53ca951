package demo

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	mcpPath = "/mcp"
	// maxMCPBody is more than any call of the shop's tools takes.
	maxMCPBody = 64 << 10
)

// mcpServer is the shop's MCP server: two tools on the caller's own orders. Who the caller
// is, and whether they may, Poppyfield says for each request.
type mcpServer struct {
	shop  *shop
	now   func() time.Time
	guard atomic.Pointer[guard]
	tools http.Handler
}

func newMCPServer(s *shop, now func() time.Time) *mcpServer {
	m := &mcpServer{shop: s, now: now}
	m.tools = http.MaxBytesHandler(mcp.NewStreamableHTTPHandler(func(r *http.Request) *mcp.Server {
		account, _ := r.Context().Value(accountKey{}).(string)
		return m.serverOf(account)
	}, &mcp.StreamableHTTPOptions{
		// Every request has been judged, by a token that no page of another site has.
		Stateless: true, JSONResponse: true, DisableLocalhostProtection: true,
	}), maxMCPBody)
	return m
}

type accountKey struct{}

// ServeHTTP has a request judged, and serves it or answers as it is told to.
func (m *mcpServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g := m.guard.Load()
	if g == nil {
		http.Error(w, "the shop is not open yet", http.StatusServiceUnavailable)
		return
	}
	v, err := g.judge(r)
	if err != nil {
		http.Error(w, "nobody can say now whether you may", http.StatusServiceUnavailable)
		return
	}
	for _, h := range v.Headers {
		w.Header().Add(h.Name, h.Value)
	}
	if !v.Allowed {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(v.Status)
		// The client went away: nothing to be done about it.
		_, _ = w.Write([]byte(v.Body))
		return
	}
	m.tools.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), accountKey{}, v.Session.Account)))
}

// What the tools take and give.
type (
	orderList struct {
		Orders []orderView `json:"orders"`
	}
	orderRequest struct {
		Number string `json:"number" jsonschema:"the order's number, such as 1042"`
	}
	orderView struct {
		Number  string    `json:"number"`
		Summary string    `json:"summary"`
		Stage   string    `json:"stage"`
		Total   string    `json:"total"`
		Due     time.Time `json:"due"`
	}
)

func viewOf(o Order) orderView {
	return orderView{Number: o.Number, Summary: o.Summary(), Stage: o.Stage.Label(), Total: o.TotalPrice(), Due: o.Due}
}

// serverOf has the tools of one account.
func (m *mcpServer) serverOf(account string) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: displayName, Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "list_orders", Description: "Lists the customer's orders, the newest first."},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, orderList, error) {
			out := orderList{Orders: []orderView{}}
			for _, o := range m.shop.ordersOf(account, m.now()) {
				out.Orders = append(out.Orders, viewOf(o))
			}
			return nil, out, nil
		})
	mcp.AddTool(s, &mcp.Tool{Name: "get_order", Description: "Says how far one of the customer's orders has come."},
		func(_ context.Context, _ *mcp.CallToolRequest, in orderRequest) (*mcp.CallToolResult, orderView, error) {
			o, ok := m.shop.order(in.Number, m.now())
			if !ok || account == "" || o.Account != account {
				return nil, orderView{}, errNoOrder
			}
			return nil, viewOf(o), nil
		})
	return s
}
