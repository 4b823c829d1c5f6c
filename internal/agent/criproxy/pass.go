package criproxy

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
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

// frame is one message as it travels. It owns its buffers: sending a frame gives them away, so it is sent once.
type frame struct {
	data mem.BufferSlice
}

// bytes returns the message. It stays valid after the frame was sent.
func (f *frame) bytes() []byte { return f.data.Materialize() }

// rawCodec moves frames without looking into them. It calls itself proto, so that peers see the content type of CRI.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("criproxy: cannot send a %T, want a frame", v)
	}
	data := f.data
	f.data = nil
	return data, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("criproxy: cannot receive into a %T, want a frame", v)
	}
	data.Ref()
	f.data.Free()
	f.data = data
	return nil
}

// decode reads a message. Fields that it does not know are kept in m.
func (f *frame) decode(m proto.Message) error { return proto.Unmarshal(f.bytes(), m) }

// encode puts a message in the frame, with the fields that decode did not know.
func (f *frame) encode(m proto.Message) error {
	message, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	f.data.Free()
	f.data = mem.BufferSlice{mem.SliceBuffer(message)}
	return nil
}
