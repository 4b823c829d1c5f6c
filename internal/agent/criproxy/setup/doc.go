// Package setup puts the proxy into a kubelet's way and takes it out again: the drop-in of the kubelet's configuration that
// names the proxy's endpoint, and the registration of the agent as a hook server. It writes files only; what has to be
// restarted, and what would keep a kubelet from reading the drop-in, is told.
package setup
