// Package transport connects the agent to what starts containers: the container runtime by NRI, a runtime proxy by the
// hooks' socket, or a runtime of the same process. It knows whether containers may start without the agent.
//
// It does not import package nri, which is given to it: what NRI's libraries bring is in the agent's program alone.
package transport
