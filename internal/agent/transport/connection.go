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
	// runtime is the one that is connected by NRI; nil while none is. hasProxy: a proxy that has asked is connected to
	// the hooks' socket; hadProxy: one was.
	runtime            *nri.Runtime
	hasProxy, hadProxy bool
	attached           bool // a runtime of this process asks
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
	case c.hasProxy || c.attached:
		return "", ""
	case c.runtime == nil:
		text = "neither NRI nor a runtime proxy is connected, cpusets follow after the start"
		if c.lost != nil {
			text += ": " + c.lost.Error()
		}
		return noTransport, text
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

// proxy takes whether a proxy asks.
func (c *connections) proxy(asks bool) (news bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	news = c.hasProxy != asks
	c.hasProxy, c.hadProxy = asks, asks || c.hadProxy
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
