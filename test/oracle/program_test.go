//go:build oracle

package oracle

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// patience is how long the kubelet may think about one request.
const patience = 10 * time.Second

// goModMinor is the minor whose modules kubelet/go.mod names; the others have a file of their own beside it.
const goModMinor = "1.37"

// build compiles the program of a minor ("1.37") as the tests of the main module are compiled, so that both use one
// build cache, and returns its path.
func build(t *testing.T, minor string) string {
	t.Helper()
	if *programs != "" {
		return *programs
	}
	name := "k1" + minor[2:]
	out := filepath.Join(t.TempDir(), name)
	args := []string{"build", "-tags", "nomsgpack," + name, "-o", out}
	if minor != goModMinor {
		args = append(args, "-modfile", name+".mod")
	}
	cmd := exec.Command("go", append(args, ".")...)
	cmd.Dir = "kubelet"
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, text)
	}
	return out
}

// program is a running program, started again after a hang or a panic.
type program struct {
	path  string
	dir   string // for its temporary files
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan []byte
	note  string
}

func (p *program) Ask(r *Request) (*Answer, error) {
	if p.cmd == nil {
		if r.Start == nil {
			return nil, errors.New("the program has no machine")
		}
		if err := p.start(); err != nil {
			return nil, err
		}
	}
	line, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return nil, fmt.Errorf("write to %s: %w", p.path, err)
	}
	a, err := p.read()
	if err != nil || a.Hung || a.Panic != "" {
		p.stop()
	}
	return a, err
}

func (p *program) start() error {
	p.cmd = exec.Command(p.path)
	p.cmd.Stderr = os.Stderr
	p.cmd.Env = append(os.Environ(), "TMPDIR="+p.dir)
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.in, p.lines = in, make(chan []byte)
	go func(lines chan<- []byte) {
		defer close(lines)
		for r := bufio.NewReaderSize(out, 1<<20); ; {
			line, err := r.ReadBytes('\n')
			if err != nil {
				return
			}
			lines <- line
		}
	}(p.lines)
	hello, err := p.read()
	if err != nil {
		return err
	}
	p.note = hello.Note
	return nil
}

func (p *program) read() (*Answer, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case line, ok := <-p.lines:
		if !ok {
			return nil, fmt.Errorf("%s ended", p.path)
		}
		a := &Answer{}
		if err := json.Unmarshal(line, a); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", p.path, line, err)
		}
		return a, nil
	case <-timer.C:
		return &Answer{Hung: true}, nil
	}
}

// ready starts the program if it does not run, and takes out of a case what it cannot do here.
func (p *program) ready(c *Case) error {
	if p.cmd == nil {
		if err := p.start(); err != nil {
			return err
		}
	}
	if p.note != "" {
		c.Machine.Devices = nil
	}
	return nil
}

// stop kills the program; the isolated part of it dies with its parent.
func (p *program) stop() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	_ = p.in.Close()
	for range p.lines { // ends when the pipe closes
	}
	_ = p.cmd.Wait()
	p.cmd = nil
}
