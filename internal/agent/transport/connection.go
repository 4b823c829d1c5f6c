package transport

import (
	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/transport/nri"
)

// noTransport is the reason while containers start without the agent: no runtime or proxy asks it.
const noTransport = "NoTransport"

// connections are what is connected.
type connections struct {
	runtime  *nri.Runtime // the one that is connected by NRI; nil while none is
	lost     string       // why none is; "" while one is, and before the first attempt
	unfenced bool         // it was seen not to check the annotation that names required plugins
	// proxied: a proxy that has asked is connected to the hooks' socket; hadProxy: one was.
	proxied, hadProxy bool
	attached          bool // a runtime of this process asks
}

// degradation says why it cannot be promised that no container starts without the agent: a reason and a sentence; ""
// for both when it can.
func (c connections) degradation() (reason, text string) {
	switch {
	case c.proxied || c.attached:
		return "", ""
	case c.runtime == nil:
		text = "neither NRI nor a runtime proxy is connected, cpusets follow after the start"
		if c.lost != "" {
			text += ": " + c.lost
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

// tried reports whether it is known how containers come by the agent.
func (c connections) tried() bool {
	return c.attached || c.hadProxy || c.runtime != nil || c.lost != ""
}
