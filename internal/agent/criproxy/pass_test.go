package criproxy_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/dynamicpb"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tenon-project/tenon/api/runtime/v1alpha1"
	"github.com/tenon-project/tenon/internal/testkit"
)

// methods are all that cri-api has, by full name.
func methods() map[string]protoreflect.MethodDescriptor {
	all := map[string]protoreflect.MethodDescriptor{}
	services := cri.File_staging_src_k8s_io_cri_api_pkg_apis_runtime_v1_api_proto.Services()
	for i := range services.Len() {
		s := services.Get(i)
		for j := range s.Methods().Len() {
			m := s.Methods().Get(j)
			all[fmt.Sprintf("/%s/%s", s.FullName(), m.Name())] = m
		}
	}
	return all
}

// random is a message with every field set, and one unknown field.
func random(r *rand.Rand, d protoreflect.MessageDescriptor) wire {
	m := dynamicpb.NewMessage(d)
	fill(r, m, 4)
	w, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(err)
	}
	return withUnknown(w)
}

// withUnknown adds a field of a later version.
func withUnknown(w wire) wire {
	w = protowire.AppendTag(w, 20000, protowire.BytesType)
	return protowire.AppendString(w, "of a later version")
}

func fill(r *rand.Rand, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.IsMap():
			if f.MapValue().Message() == nil {
				m.Mutable(f).Map().Set(scalar(r, f.MapKey()).MapKey(), scalar(r, f.MapValue()))
			}
		case f.Message() != nil && depth == 0:
		case f.IsList() && f.Message() != nil:
			fill(r, m.Mutable(f).List().AppendMutable().Message(), depth-1)
		case f.IsList():
			m.Mutable(f).List().Append(scalar(r, f))
		case f.Message() != nil:
			fill(r, m.Mutable(f).Message(), depth-1)
		default:
			m.Set(f, scalar(r, f))
		}
	}
}

func scalar(r *rand.Rand, f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(fmt.Sprintf("ü%d", r.Uint64()))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{0xff, byte(r.Uint32()), 0})
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(r.Int32())
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(r.Int64())
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(r.Uint32())
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(r.Uint64())
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(r.Float32())
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(r.Float64())
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(f.Enum().Values().Get(r.IntN(f.Enum().Values().Len())).Number())
	}
	panic("no value for a " + f.Kind().String())
}

func TestEveryMethodPassesByteForByte(t *testing.T) {
	rt := newRuntime(t)
	p := newProxy(t, rt.socket)
	conn := connect(t, p.socket)
	all := methods()
	for _, must := range []string{
		"StreamPodSandboxes", "StreamContainers", "StreamContainerStats", "StreamPodSandboxStats",
		"StreamPodSandboxMetrics",
		"GetContainerEvents", "RuntimeConfig", "UpdatePodSandboxResources",
	} {
		if all["/runtime.v1.RuntimeService/"+must] == nil {
			t.Errorf("cri-api has no method %s: the list of this test is not what it was", must)
		}
	}
	if all["/runtime.v1.ImageService/StreamImages"] == nil {
		t.Error("cri-api has no method StreamImages")
	}
	seed := uint64(1)
	for _, method := range slices.Sorted(keys(all)) {
		t.Run(method[1:], func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			seed++
			d := all[method]
			request := random(r, d.Input())
			answers := []wire{random(r, d.Output())}
			if d.IsStreamingServer() {
				answers = append(answers, wire{}, random(r, d.Output()))
			}
			var got wire
			var md metadata.MD
			rt.on(method, func(s grpc.ServerStream) error {
				if err := s.RecvMsg(&got); err != nil {
					return err
				}
				md, _ = metadata.FromIncomingContext(s.Context())
				if err := s.SetHeader(metadata.Pairs("first", "1", "raw-bin", "\x00\xff")); err != nil {
					return err
				}
				for i := range answers {
					if err := s.SendMsg(&answers[i]); err != nil {
						return err
					}
				}
				s.SetTrailer(metadata.Pairs("last", "a", "last", "b"))
				return nil
			})
			defer rt.on(method, nil)
			ctx := metadata.NewOutgoingContext(t.Context(),
				metadata.Pairs("trace", "x", "trace", "y", "some-bin", "\xfe\x00"))
			out, header, trailer, err := call(ctx, conn, method, request)
			testkit.Check(t, err)
			if !bytes.Equal(got, request) {
				t.Errorf("the runtime got %x, want %x", got, request)
			}
			if len(out) != len(answers) {
				t.Fatalf("got %d answers, want %d", len(out), len(answers))
			}
			for i := range out {
				if !bytes.Equal(out[i], answers[i]) {
					t.Errorf("answer %d: got %x, want %x", i, out[i], answers[i])
				}
			}
			for _, c := range []struct {
				md   metadata.MD
				key  string
				want []string
			}{
				{md, "trace", []string{"x", "y"}},
				{md, "some-bin", []string{"\xfe\x00"}},
				{header, "first", []string{"1"}},
				{header, "raw-bin", []string{"\x00\xff"}},
				{trailer, "last", []string{"a", "b"}},
			} {
				if got := c.md.Get(c.key); !slices.Equal(got, c.want) {
					t.Errorf("metadata %s: got %q, want %q", c.key, got, c.want)
				}
			}
		})
	}
}

func keys[K comparable, V any](m map[K]V) func(func(K) bool) {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func TestStatusAndDetailsPass(t *testing.T) {
	rt := newRuntime(t)
	conn := connect(t, newProxy(t, rt.socket).socket)
	for _, method := range []string{
		cri.RuntimeService_Status_FullMethodName, cri.RuntimeService_GetContainerEvents_FullMethodName,
		cri.RuntimeService_StartContainer_FullMethodName, cri.RuntimeService_RunPodSandbox_FullMethodName,
	} {
		want, err := status.New(codes.Code(42),
			"a code of tomorrow: ü").WithDetails(&v1alpha1.HugepageLimit{PageSize: "2MB", Limit: 1})
		testkit.Check(t, err)
		rt.on(method, func(s grpc.ServerStream) error {
			s.SetTrailer(metadata.Pairs("why", "so"))
			return want.Err()
		})
		_, _, trailer, err := call(t.Context(), conn, method, nil)
		if diff := cmp.Diff(want.Proto(), status.Convert(err).Proto(), protocmp.Transform()); diff != "" {
			t.Errorf("%s: status (-want +got):\n%s", method, diff)
		}
		if got := trailer.Get("why"); !slices.Equal(got, []string{"so"}) {
			t.Errorf("%s: trailer why: got %q, want so", method, got)
		}
	}
}

func TestAnUnknownServiceStreamsBothWays(t *testing.T) {
	rt := newRuntime(t)
	conn := connect(t, newProxy(t, rt.socket).socket)
	const method = "/of.tomorrow.Service/Talk"
	rt.on(method, func(s grpc.ServerStream) error {
		hello := wire("hello")
		if err := s.SendMsg(&hello); err != nil { // before the caller says anything
			return err
		}
		for {
			var w wire
			if err := s.RecvMsg(&w); err != nil {
				s.SetTrailer(metadata.Pairs("end", err.Error()))
				return nil
			}
			w = append(w, '!')
			if err := s.SendMsg(&w); err != nil {
				return err
			}
		}
	})
	s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method,
		grpc.ForceCodecV2(wireCodec{}))
	testkit.Check(t, err)
	expect := func(want string) {
		t.Helper()
		var w wire
		if err := s.RecvMsg(&w); err != nil || string(w) != want {
			t.Fatalf("got %q, %v, want %q", w, err, want)
		}
	}
	expect("hello")
	for i := range 3 {
		w := wire(fmt.Sprint(i))
		testkit.Check(t, s.SendMsg(&w))
		expect(fmt.Sprintf("%d!", i))
	}
	testkit.Check(t, s.CloseSend())
	var w wire
	_ = s.RecvMsg(&w)
	if got := s.Trailer().Get("end"); !slices.Equal(got, []string{"EOF"}) {
		t.Errorf("the runtime saw the end as %q, want EOF", got)
	}
}

func TestHeadersComeBeforeTheFirstMessage(t *testing.T) {
	rt := newRuntime(t)
	conn := connect(t, newProxy(t, rt.socket).socket)
	release := make(chan struct{})
	rt.on(cri.RuntimeService_GetContainerEvents_FullMethodName, func(s grpc.ServerStream) error {
		if err := s.SendHeader(metadata.Pairs("early", "yes")); err != nil {
			return err
		}
		<-release
		return nil
	})
	s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true},
		cri.RuntimeService_GetContainerEvents_FullMethodName, grpc.ForceCodecV2(wireCodec{}))
	testkit.Check(t, err)
	w := wire{}
	testkit.Check(t, s.SendMsg(&w))
	header, err := s.Header()
	close(release)
	if err != nil || !slices.Equal(header.Get("early"), []string{"yes"}) {
		t.Errorf("got header %v, %v, want early=yes while the stream is open", header, err)
	}
}

func TestTheCallersDeadlineAndCancellationReachTheRuntime(t *testing.T) {
	rt := newRuntime(t)
	conn := connect(t, newProxy(t, rt.socket).socket)
	for _, method := range []string{
		cri.RuntimeService_ExecSync_FullMethodName,
		cri.RuntimeService_StopContainer_FullMethodName,
	} {
		type seen struct {
			deadline time.Time
			ok       bool
		}
		arrived, ended := make(chan seen, 2), make(chan error, 2)
		rt.on(method, func(s grpc.ServerStream) error {
			d, ok := s.Context().Deadline()
			arrived <- seen{d, ok}
			<-s.Context().Done()
			ended <- s.Context().Err()
			return s.Context().Err()
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		want, _ := ctx.Deadline()
		done := make(chan error, 1)
		go func() {
			_, _, _, err := call(ctx, conn, method, wire{})
			done <- err
		}()
		got := <-arrived
		if off := got.deadline.Sub(want).Abs(); !got.ok || off > time.Minute {
			t.Errorf("%s: the runtime sees the deadline %v (%v), want %v", method, got.deadline, got.ok, want)
		}
		cancel()
		if err := <-done; status.Code(err) != codes.Canceled {
			t.Errorf("%s: got %v, want Canceled", method, err)
		}
		select {
		case <-ended:
		case <-time.After(patience):
			t.Errorf("%s: the runtime never learns that the caller is gone", method)
		}
		// Without a deadline there is none.
		ctx, cancel = context.WithCancel(t.Context())
		go func() {
			_, _, _, err := call(ctx, conn, method, wire{})
			done <- err
		}()
		if got := <-arrived; got.ok {
			t.Errorf("%s: the runtime sees a deadline %v, want none", method, got.deadline)
		}
		cancel()
		<-done
		<-ended
	}
}

func TestMessagesOf17MiBPass(t *testing.T) {
	rt := newRuntime(t)
	conn := connect(t, newProxy(t, rt.socket).socket)
	big := wire(bytes.Repeat([]byte("0123456789abcdef"), 17<<20/16))
	for _, method := range []string{
		cri.RuntimeService_ListContainers_FullMethodName,
		cri.RuntimeService_CreateContainer_FullMethodName,
	} {
		request := big
		if method == cri.RuntimeService_CreateContainer_FullMethodName {
			request = withUnknown(must(proto.Marshal(&cri.CreateContainerRequest{
				Config: &cri.ContainerConfig{Annotations: map[string]string{"big": string(big)}},
			})))
		}
		var got wire
		rt.on(method, func(s grpc.ServerStream) error {
			if err := s.RecvMsg(&got); err != nil {
				return err
			}
			return s.SendMsg(&big)
		})
		out, _, _, err := call(t.Context(), conn, method, request)
		rt.on(method, nil)
		testkit.Check(t, err)
		if !bytes.Equal(got, request) || len(out) != 1 || !bytes.Equal(out[0], big) {
			t.Errorf("%s: a message of %d bytes changed on its way", method, len(big))
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestACompressedCallPasses(t *testing.T) {
	rt := newRuntime(t)
	p := newProxy(t, rt.socket)
	c := cri.NewRuntimeServiceClient(connect(t, p.socket, grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name))))
	if v, err := c.Version(t.Context(), &cri.VersionRequest{}); err != nil || v.GetRuntimeName() != "small" {
		t.Errorf("got %v, %v, want the runtime's version", v, err)
	}
}

func TestImagesMayHaveAnotherEndpoint(t *testing.T) {
	rt, images := newRuntime(t), newRuntime(t)
	p := newProxy(t, rt.socket, imagesAt(images.socket))
	conn := connect(t, p.socket)
	answer := wire("from the image service")
	images.on(cri.ImageService_ListImages_FullMethodName, func(s grpc.ServerStream) error { return s.SendMsg(&answer) })
	out, _, _, err := call(t.Context(), conn, cri.ImageService_ListImages_FullMethodName, nil)
	if err != nil || len(out) != 1 || !bytes.Equal(out[0], answer) {
		t.Errorf("got %q, %v, want %q", out, err, answer)
	}
	if _, err := p.kubelet(t).Version(t.Context(), &cri.VersionRequest{}); err != nil ||
		len(images.got(cri.RuntimeService_Version_FullMethodName)) != 0 {
		t.Errorf("Version: %v, and the image service got %d calls of it, want none", err,
			len(images.got(cri.RuntimeService_Version_FullMethodName)))
	}
}

func TestARuntimeThatRestartsIsFoundAgain(t *testing.T) {
	rt := newRuntime(t)
	c := newProxy(t, rt.socket).kubelet(t)
	version := func() error {
		_, err := c.Version(t.Context(), &cri.VersionRequest{})
		return err
	}
	testkit.Check(t, version())
	rt.stop()
	if err := version(); status.Code(err) != codes.Unavailable {
		t.Errorf("without a runtime: got %v, want Unavailable", err)
	}
	rt.start()
	eventually(t, "the runtime answers again", func() error { return version() })
}

// eventually polls until f returns nil.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	deadline := time.After(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%s: never: %v", what, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
