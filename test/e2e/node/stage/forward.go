//go:build linux

package stage

import (
	"context"
	"io"
	"net"
)

// Forward hands every connection at an address on to another one until the test ends, as kube-proxy does for the
// ClusterIP of a Service.
func (s *Stage) Forward(from, to string) {
	s.t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(s.t.Context(), "tcp", from)
	must(s.t, err)
	s.t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return // it was closed
			}
			go handOn(in, to)
		}
	}()
}

// handOn copies in both directions until one side has ended.
func handOn(in net.Conn, to string) {
	defer in.Close()
	out, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", to)
	if err != nil {
		return // as a Service whose endpoint is away
	}
	defer out.Close()
	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		go func() {
			_, _ = io.Copy(way[0], way[1]) // also when a connection ends
			ended <- struct{}{}
		}()
	}
	<-ended
}
