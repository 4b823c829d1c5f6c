package transport

import (
	"sync"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/transport/nri"
)

// noTransport is the reason while containers start without the agent: no runtime or proxy asks it.
const noTransport = "NoTransport"

// connections are what is connected. Methods that change them report whether that is news.
type connections struct {
	mu sync.Mutex // guards the fields below
	// runtime is the one that is connected by NRI; nil while none is. proxied: a proxy that has asked is connected to
	// the hooks' socket; hadProxy: one was.
	runtime           *nri.Runtime
	proxied, hadProxy bool
	attached          bool // a runtime of this process asks
	// unfenced: the runtime was seen not to check the annotation that names required plugins.
	unfenced bool
	lost     error // why NRI is not connected; nil while it is, and before the first attempt
}

// degradation says why it cannot be promised that no container starts without the agent: a reason and a sentence; ""
// for both when it can.
func (c *connections) degradation() (reason, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.proxied || c.attached:
		return "", ""
	case c.runtime == nil && c.lost != nil:
		return noTransport, "neither NRI nor a runtime proxy is connected, cpusets follow after the start: " +
			c.lost.Error()
	case c.runtime == nil:
		return noTransport, "neither NRI nor a runtime proxy is connected, cpusets follow after the start"
	}
	if old := c.runtime.Old(); old != "" {
		return "OldRuntime", old
	}
	if c.unfenced {
		return "FenceDisabled", "the runtime does not check the annotation " + annotation.RequiredPlugins +
			": while the agent is not connected, " +
			"containers start without it; set default_validator.enable in the runtime's NRI configuration"
	}
	return "", ""
}

// Attach notes that a runtime of this process asks.
func (c *connections) Attach() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attached = true
}

// tried reports whether it is known how containers come by the agent.
func (c *connections) tried() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.attached || c.hadProxy || c.runtime != nil || c.lost != nil
}

// proxy notes that a proxy asks.
func (c *connections) proxy() (news bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	news = !c.proxied
	c.proxied, c.hadProxy = true, true
	return news
}

// unproxy notes that no proxy is connected.
func (c *connections) unproxy() (news bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	news = c.proxied
	c.proxied = false
	return news
}

func (c *connections) connect(r nri.Runtime) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runtime, c.lost = &r, nil
}

// fence takes whether the runtime checks required plugins.
func (c *connections) fence(checked bool) (news bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	news = c.unfenced == checked
	c.unfenced = !checked
	return news
}

// disconnect notes why NRI is not connected. A failure for the same cause is not news.
func (c *connections) disconnect(err error) (news bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	news = c.runtime != nil || c.lost == nil || c.lost.Error() != err.Error()
	c.runtime, c.lost = nil, err
	return news
}
