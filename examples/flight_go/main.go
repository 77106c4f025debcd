// Arrow Flight from Go, with Arrow's own module: publish, consume, scan.
//
//	mqueue serve
//	go run . 127.0.0.1:9000 [token]
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

func main() {
	plain := grpc.WithTransportCredentials(insecure.NewCredentials())
	client, err := flight.NewClientWithMiddleware(os.Args[1], nil, nil, plain)
	check(err)
	defer client.Close()
	ctx := context.Background()
	if len(os.Args) > 2 {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+os.Args[2])
	}
	publish(ctx, client)
	consume(ctx, client)
	scan(ctx, client)
}

// publish sends one record batch and waits for its receipt: then it is durable.
func publish(ctx context.Context, client flight.Client) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "payload", Type: arrow.BinaryTypes.Binary}}, nil)
	builder := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer builder.Release()
	for _, payload := range []string{"tea", "rice", "salt"} {
		builder.Field(0).(*array.BinaryBuilder).Append([]byte(payload))
	}
	batch := builder.NewRecordBatch()
	defer batch.Release()

	stream, err := client.DoPut(ctx)
	check(err)
	writer := flight.NewRecordWriter(stream, ipc.WithSchema(schema))
	writer.SetFlightDescriptor(path("orders"))
	check(writer.Write(batch))
	told, err := stream.Recv()
	check(err)
	var receipt struct{ Count int }
	check(json.Unmarshal(told.AppMetadata, &receipt))
	check(writer.Close())
	check(stream.CloseSend())
	fmt.Println("published:", receipt.Count)
}

// consume receives two messages and acks them.
func consume(ctx context.Context, client flight.Client) {
	stream, err := client.DoExchange(ctx)
	check(err)
	check(stream.Send(&flight.FlightData{FlightDescriptor: path("orders")}))
	command, _ := json.Marshal(map[string]any{"receive": map[string]any{"limit": 2, "wait": "10s"}})
	check(stream.Send(&flight.FlightData{AppMetadata: command}))
	reader, err := flight.NewRecordReader(stream)
	check(err)
	defer reader.Release()
	if !reader.Next() {
		log.Fatal(reader.Err())
	}
	payloads := reader.RecordBatch().Column(reader.Schema().FieldIndices("payload")[0]).(*array.Binary)
	fmt.Printf("received: %s %s\n", payloads.Value(0), payloads.Value(1))

	var given struct{ Receive struct{ Lease string } }
	check(json.Unmarshal(reader.LatestAppMetadata(), &given))
	command, _ = json.Marshal(map[string]any{"ack": map[string]any{"lease": given.Receive.Lease}})
	check(stream.Send(&flight.FlightData{AppMetadata: command}))
	answer, err := stream.Recv()
	check(err)
	fmt.Printf("told: %s\n", answer.AppMetadata)
	check(stream.CloseSend())
}

// scan reads the log, endpoint by endpoint.
func scan(ctx context.Context, client flight.Client) {
	info, err := client.GetFlightInfo(ctx, path("orders"))
	check(err)
	rows := int64(0)
	for _, endpoint := range info.Endpoint {
		stream, err := client.DoGet(ctx, endpoint.Ticket)
		check(err)
		reader, err := flight.NewRecordReader(stream)
		check(err)
		for reader.Next() {
			rows += reader.RecordBatch().NumRows()
		}
		check(reader.Err())
		reader.Release()
	}
	fmt.Println("scanned:", rows)
}

func path(topic string) *flight.FlightDescriptor {
	return &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{topic}}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
