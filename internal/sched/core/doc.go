// Package core builds kube-scheduler with Tenon's parts around it: for the scheduler, for simulations and replays, and
// for the profiles that answer questions. Callers differ in their Options alone.
//
// Each part is a layer. A layer wraps one or more of six seams of kube-scheduler:
//
//	Cache      what kube-scheduler knows of nodes and pods
//	Queue      the pods that wait
//	Next       how the next pod is taken from the queue
//	Schedule   how a node is chosen for the pod
//	Fail       what is done with a pod that has no node
//	Profile    the plugins of one scheduler name
//
// Core.layers lists the layers from the inside out. The type of a layer says what the layer does, and inside names the
// layers that it must surround. New refuses a list in another order.
package core
