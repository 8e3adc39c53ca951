// Command example is a Company's API of orders and the backend behind its conversations.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"

	poppy "github.com/poppyfield/poppyfield/sdk/go"
)

func main() {
	address := flag.String("grpc", "api.example.net:8444", "gRPC port of the admin API")
	company := flag.String("company", "", "companies/cmp_…")
	base := flag.String("base-url", "https://api.example.com", "where agents find the API")
	listen := flag.String("listen", "127.0.0.1:8080", "where the server listens, behind a proxy that ends TLS")
	flag.Parse()
	if err := run(context.Background(), *address, *company, *base, *listen); err != nil {
		fmt.Fprintln(os.Stderr, "example:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, address, company, base, listen string) error {
	conn, err := poppy.Dial(address, os.Getenv("POPPY_API_KEY"), nil)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	verifier, err := poppy.New(ctx, poppy.Config{Company: company, Conn: conn, BaseURL: base, Local: true})
	if err != nil {
		return err
	}
	defer verifier.Close()
	var hooks *poppy.Webhooks // without a secret there is the API alone
	if secret := os.Getenv("POPPY_WEBHOOK_SECRET"); secret != "" {
		if hooks, err = poppy.NewWebhooks(nil, secret); err != nil {
			return err
		}
	}
	server := &http.Server{Addr: listen, Handler: routes(verifier.Handler, hooks), ReadHeaderTimeout: 10 * time.Second}
	return server.ListenAndServe()
}

// routes puts the API behind judge; the backend's webhooks are judged by their signature.
func routes(judge func(http.Handler) http.Handler, hooks *poppy.Webhooks) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /orders/{id}", judge(http.HandlerFunc(order)))
	mux.Handle("GET /products/{id}", judge(http.HandlerFunc(product)))
	if hooks != nil {
		mux.Handle("POST /agent", hooks.Backend(answer))
	}
	return mux
}

// product is for every agent; signed in or not makes no difference.
func product(w http.ResponseWriter, r *http.Request) {
	write(w, map[string]string{"product": r.PathValue("id")})
}

func write(w http.ResponseWriter, body map[string]string) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(body); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func order(w http.ResponseWriter, r *http.Request) {
	s, ok := poppy.SessionFrom(r.Context())
	if !ok || !s.SignedIn {
		http.Error(w, "not signed in", http.StatusForbidden)
		return
	}
	write(w, map[string]string{"order": r.PathValue("id"), "account": s.Account})
}

func answer(_ context.Context, _ *poppy.Event, m *poppy.Message) (poppy.Reply, error) {
	if !m.Session.SignedIn {
		return poppy.Reply{Authorization: &poppy.Authorization{Error: "sign_in_required"}}, nil
	}
	return poppy.Say("You asked: " + m.Message.Text), nil
}
