package criproxy

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/mem"

	"github.com/tenon-project/tenon/internal/testkit"
)

func FuzzRawCodec(f *testing.F) {
	f.Add([]byte(nil), 0)
	f.Add([]byte("a message in two pieces"), 5)
	f.Add(bytes.Repeat([]byte{0xff}, 5000), 4999)
	f.Fuzz(func(t *testing.T, message []byte, cut int) {
		cut = max(0, min(cut, len(message)))
		pool := mem.DefaultBufferPool()
		received := mem.BufferSlice{mem.Copy(message[:cut], pool), mem.Copy(message[cut:], pool)}
		var codec rawCodec
		var fr frame
		testkit.Check(t, codec.Unmarshal(received, &fr))
		received.Free() // as gRPC does
		if got := fr.bytes(); !bytes.Equal(got, message) {
			t.Fatalf("received %x, want %x", got, message)
		}
		sent, err := codec.Marshal(&fr)
		testkit.Check(t, err)
		if got := sent.Materialize(); !bytes.Equal(got, message) {
			t.Errorf("sent %x, want %x", got, message)
		}
		sent.Free() // a frame that gave its buffers away and kept them would free them twice: that panics
		if len(fr.bytes()) != 0 {
			t.Error("a frame that was sent still has its message")
		}
	})
}

func TestTheRawCodecMovesFramesOnly(t *testing.T) {
	if _, err := (rawCodec{}).Marshal("text"); err == nil {
		t.Error("sent a string")
	}
	if err := (rawCodec{}).Unmarshal(nil, new(string)); err == nil {
		t.Error("received into a string")
	}
}
