package criproxy

import (
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

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
