//go:build linux

package stage

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// agentState is where the agent keeps what must outlive it. It is a place of the machine's, so there is one agent at a
// time, and a new stage finds none.
const agentState = "/var/lib/tenon-agent"

// healthAddress is where the agent of a stage serves its metrics.
const healthAddress = "127.0.0.1:10271"

// AgentOptions are what an agent is started with.
type AgentOptions struct {
	// Node and Kubeconfig are needed.
	Node, Kubeconfig string
	// NoNRI and NoHooks leave a transport out.
	NoNRI, NoHooks bool
	// Flags come after those of the stage.
	Flags []string
	// Resync is the time between two passes over the whole tree; default 1 s.
	Resync time.Duration
}

// Agent is a running tenon-agent.
type Agent struct {
	*Process
	s *Stage
	o AgentOptions
}

// Agent starts the agent and waits until it is ready.
func (s *Stage) Agent(o AgentOptions) *Agent {
	s.t.Helper()
	a := &Agent{s: s, o: o}
	a.Start()
	return a
}

// HookSocket is where the agent answers the CRI proxy.
func (s *Stage) HookSocket() string { return s.Path("hooks.sock") }

// Start starts the agent again after Kill or Stop and waits until it is ready.
func (a *Agent) Start() {
	a.s.t.Helper()
	must(a.s.t, a.Restarted())
	a.Ready()
}

// Restarted starts the agent again and does not wait for it.
func (a *Agent) Restarted() error {
	resync, nri, hooks := a.o.Resync, a.s.NRISocket(), a.s.HookSocket()
	if resync == 0 {
		resync = time.Second
	}
	if a.o.NoNRI {
		nri = ""
	}
	if a.o.NoHooks {
		hooks = ""
	}
	p, err := a.s.run(Command{Name: "agent", Path: Binary("tenon-agent"), Args: append([]string{
		"run", "--node-name=" + a.o.Node, "--kubeconfig=" + a.o.Kubeconfig, "--nri-socket=" + nri,
		"--hook-socket=" + hooks,
		"--cgroup-root=" + a.s.Group(), "--health-address=" + healthAddress, "--resync=" + resync.String(),
	}, a.o.Flags...)})
	a.Process = p
	return err
}

// Ready waits until the agent says that it is ready.
func (a *Agent) Ready() {
	a.s.t.Helper()
	Await(a.s.t, "the agent", func() error {
		if !a.Running() {
			a.s.t.Fatalf("the agent ended: %v\n%s", a.Err(), a.Log())
		}
		_, err := a.get("/readyz")
		return err
	})
}

// Metric returns the sum of the samples of a metric whose labels contain all of a list, such as `code="X"`.
func (a *Agent) Metric(name string, labels ...string) (float64, error) {
	text, err := a.get("/metrics")
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, line := range strings.Split(text, "\n") {
		sample, value, _ := strings.Cut(line, " ")
		if sample != name && !strings.HasPrefix(sample, name+"{") {
			continue
		}
		matches := true
		for _, l := range labels {
			matches = matches && strings.Contains(sample, l)
		}
		var v float64
		if _, err := fmt.Sscan(value, &v); matches && err == nil {
			sum += v
		}
	}
	return sum, nil
}

func (a *Agent) get(path string) (string, error) {
	ctx, cancel := timeout(2 * time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+healthAddress+path, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, answer.Status, text)
	}
	return string(text), err
}

// forgetAgent removes what an agent kept.
func forgetAgent() error { return os.RemoveAll(agentState) }

// timeout is a context for what must also happen after a test has ended.
func timeout(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
