package criproxy

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// stream describes every method: what is sent once passes through a stream in both directions as well.
var stream = grpc.StreamDesc{ClientStreams: true, ServerStreams: true}

// pass copies a call to the runtime and its answers back: messages, headers, trailers and status. Deadline and
// cancellation of the caller are those of the context.
func (p *Proxy) pass(method string, down grpc.ServerStream) error {
	ctx, cancel := context.WithCancel(outgoing(down.Context()))
	defer cancel()
	up, err := p.upstream(method).NewStream(ctx, &stream, method, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		return err
	}
	// It ends no later than the call: the end of the call ends what it waits for.
	go func() {
		if !send(down, up) {
			cancel()
		}
	}()
	return receive(up, down)
}

// send copies what the caller sends. It returns false when the caller is gone.
func send(down grpc.ServerStream, up grpc.ClientStream) bool {
	for {
		var f frame
		switch err := down.RecvMsg(&f); {
		case errors.Is(err, io.EOF):
			_ = up.CloseSend() // never fails
			return true
		case err != nil:
			return false
		}
		if err := up.SendMsg(&f); err != nil {
			return true // the runtime has ended the call: receive learns how
		}
	}
}

// receive copies what the runtime answers and returns its status.
func receive(up grpc.ClientStream, down grpc.ServerStream) error {
	header, err := up.Header()
	if err == nil && header != nil {
		if err := down.SendHeader(header); err != nil {
			return err
		}
	}
	for {
		var f frame
		switch err := up.RecvMsg(&f); {
		case errors.Is(err, io.EOF):
			down.SetTrailer(up.Trailer())
			return nil
		case err != nil:
			down.SetTrailer(up.Trailer())
			return err
		}
		if err := down.SendMsg(&f); err != nil {
			return err
		}
	}
}

// outgoing carries the caller's metadata on. What belongs to one connection does not travel.
func outgoing(ctx context.Context) context.Context {
	in, ok := metadata.FromIncomingContext(ctx)
	if !ok {
		return ctx
	}
	for _, own := range []string{
		":authority", "content-type", "user-agent", "te", "grpc-accept-encoding",
		"grpc-encoding",
	} {
		in.Delete(own)
	}
	return metadata.NewOutgoingContext(ctx, in)
}
