// Command stream-backend is a Company's backend that opens a stream instead of having
// a URL. It repeats what it is told:
//
//	POPPYFIELD_KEY=pfk_… stream-backend api.example.net:8443 companies/cmp_…
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"log"
	"os"
	"os/signal"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	adminv1 "github.com/poppyfield/poppyfield/proto/gen/go/poppyfield/admin/v1"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: stream-backend ADDRESS companies/ID")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	conn, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})))
	if err != nil {
		log.Print(err)
		return
	}
	defer func() { _ = conn.Close() }()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+os.Getenv("POPPYFIELD_KEY"))
	for ctx.Err() == nil {
		if err := serve(ctx, adminv1.NewBackendStreamServiceClient(conn), os.Args[2]); err != nil {
			log.Print(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// serve answers deliveries until the stream ends. What it had not answered comes again on the next one.
func serve(ctx context.Context, client adminv1.BackendStreamServiceClient, company string) error {
	stream, err := client.Connect(ctx)
	if err != nil {
		return err
	}
	hello := &adminv1.BackendHello{Company: company}
	if err := stream.Send(&adminv1.ConnectRequest{Frame: &adminv1.ConnectRequest_Hello{Hello: hello}}); err != nil {
		return err
	}
	for {
		in, err := stream.Recv()
		if err != nil {
			return err
		}
		if r := in.GetReceipt(); r != nil && !r.GetRecorded() {
			log.Printf("the answer to %s was not recorded: %s", r.GetDelivery(), r.GetReason())
		}
		e := in.GetEvent()
		if e == nil {
			continue
		}
		if err := stream.Send(&adminv1.ConnectRequest{Frame: &adminv1.ConnectRequest_Answer{Answer: answer(e)}}); err != nil {
			return err
		}
	}
}

func answer(e *adminv1.BackendEvent) *adminv1.BackendAnswer {
	var told struct {
		Data struct {
			Message struct {
				Text string `json:"text"`
			} `json:"message"`
		} `json:"data"`
	}
	if err := json.Unmarshal(e.GetBody(), &told); err != nil {
		return &adminv1.BackendAnswer{Delivery: e.GetDelivery(), Failure: err.Error()}
	}
	return &adminv1.BackendAnswer{Delivery: e.GetDelivery(), Messages: []*adminv1.Message{{Text: "You said: " + told.Data.Message.Text}}}
}
