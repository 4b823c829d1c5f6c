package vm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/guest/wire"
)

func twoNodes() Shape {
	return Shape{
		Name: "s", Sockets: 2, Dies: 1, Cores: 2, Threads: 2, MemoryMiB: 512,
		Distance: [][]int{{10, 21}, {21, 10}},
	}
}

func TestShapesThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*Shape)
		want   string
	}{
		"one that can be": {func(*Shape) {}, ""},
		"without a name":  {func(s *Shape) { s.Name = "" }, "must be given"},
		"without CPUs":    {func(s *Shape) { s.Cores = 0 }, "must be given"},
		"more nodes than fit evenly": {
			func(s *Shape) { s.Sockets, s.Cores, s.Threads = 1, 1, 1 },
			"cannot be shared evenly",
		},
		"a row that is too short": {
			func(s *Shape) { s.Distance[1] = []int{21} },
			"row 1 of the distances has 1 values, want 2",
		},
		"a node far from itself": {func(s *Shape) { s.Distance[1][1] = 11 }, "to itself is 10"},
	} {
		s := twoNodes()
		tt.change(&s)
		err := s.check()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

func TestShapeIsPassedToTheEmulator(t *testing.T) {
	t.Parallel()
	s := twoNodes()
	s.Devices = []string{"pcie-root-port,id=r"}
	args := s.arguments()
	for _, want := range []string{
		"8,sockets=2,dies=1,cores=2,threads=2", "1024", "node,nodeid=1,cpus=4-7,memdev=m1", "dist,src=1,dst=0,val=21",
		"pcie-root-port,id=r",
	} {
		if !slices.Contains(args, want) {
			t.Errorf("%q is not among the arguments %q", want, args)
		}
	}
}

func TestTheNetworkOfTheHostIsNotSaved(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ tap, snapshot, want string }{
		{"", "", "user,id=net"},
		{"", snapshotName, "user,id=net"},
		{"guest0", "", "hubport,id=net,hubid=0"},
		{"guest0", snapshotName, "tap,id=net,script=no,downscript=no,vnet_hdr=off,ifname=guest0"},
	} {
		s := twoNodes()
		s.Tap = tt.tap
		args := arguments("", Image{}, s, disks{}, tt.snapshot)
		if i := slices.Index(args, tt.want); i < 0 || args[i-1] != "-netdev" {
			t.Errorf("%+v: the arguments are %q", tt, args)
		}
	}
}

// respond plays a guest that answers in the reverse order of the requests.
func respond(conn net.Conn, requests int) error {
	lines := bufio.NewReader(conn)
	var asked []wire.Request
	for range requests {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return err
		}
		var r wire.Request
		if err := json.Unmarshal(line, &r); err != nil {
			return err
		}
		asked = append(asked, r)
	}
	slices.Reverse(asked)
	for _, r := range asked {
		if err := json.NewEncoder(conn).Encode(wire.Answer{ID: r.ID, Out: r.Run}); err != nil {
			return err
		}
	}
	return nil
}

func TestAnswersFindTheirQuestions(t *testing.T) {
	t.Parallel()
	const scripts = 20
	host, guest := net.Pipe()
	defer guest.Close()
	p := newPort(host)
	defer host.Close()
	played := make(chan error, 1)
	go func() { played <- respond(guest, scripts) }()
	var wait sync.WaitGroup
	for i := range scripts {
		wait.Go(func() {
			text := fmt.Sprint("script ", i)
			if a, err := p.ask(t.Context(), wire.Request{Run: text}); err != nil || a.Out != text {
				t.Errorf("%s was answered with %q, %v", text, a.Out, err)
			}
		})
	}
	wait.Wait()
	if err := <-played; err != nil {
		t.Error(err)
	}
}

func TestWaitingEndsWithTheLineOrTheContext(t *testing.T) {
	t.Parallel()
	host, guest := net.Pipe()
	p := newPort(host)
	go func() {
		_, _ = bufio.NewReader(guest).ReadBytes('\n')
		guest.Close()
	}()
	if _, err := p.ask(t.Context(), wire.Request{Run: "true"}); err == nil ||
		!strings.Contains(err.Error(), "line to the guest broke") {
		t.Errorf("a broken line answers %v", err)
	}
	if _, err := p.ask(t.Context(), wire.Request{Run: "true"}); err == nil {
		t.Error("a line that is broken takes another question")
	}

	host, guest = net.Pipe()
	defer guest.Close()
	p = newPort(host)
	defer host.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = bufio.NewReader(guest).ReadBytes('\n')
		cancel()
	}()
	if _, err := p.ask(ctx, wire.Request{Run: "true"}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled question ends with %v", err)
	}
}

func TestImageNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	i := Image{Dir: t.TempDir()}
	for _, name := range []string{"vmlinuz", "initrd", "root.ext4"} {
		if err := i.Check(); err == nil || !strings.Contains(err.Error(), filepath.Join(i.Dir, name)) {
			t.Errorf("without %s: %v", name, err)
		}
		testkit.Check(t, os.WriteFile(i.file(name), nil, 0o600))
	}
	if err := i.Check(); err != nil {
		t.Errorf("a whole image: %v", err)
	}
}
