// Package setup installs the proxy between a kubelet and its runtime, and removes it: the drop-in of the kubelet's
// configuration that names the proxy's endpoint, and the registration of the agent as a hook server. It only writes
// files, and reports what has to be restarted and what prevents a kubelet from reading the drop-in.
package setup
