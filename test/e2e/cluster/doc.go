// Package installed tests what a cluster has after helm install: the chart with its default values and the images of a
// release, on the stage of package stage, with the real kubelet.
//
//	helm install ──► API server ◄── 10.0.0.1:443, handed on ──────────┐
//	                   │   └── endpoints of the webhooks' Service ──► manager, scheduler (pods with a network)
//	                   └── kubelet ── containerd ── NRI ──────────────► agent (pod on the host's network)
//
// The cluster's own scheduler is kube-scheduler, which places Tenon's pods. The first node has the machine's CPUs; the
// second one, which joins later, is a virtual machine of package guest on a network of the stage.
//
// The tests need the tag e2e_install and root. With -short only those run that every change needs; the others install
// the release before this one too: the last tag, or the commit that the file previous names. Beside the environment of
// package stage they read:
//
//	TENON_IMAGES  folder of images; without it they are built into .cache/node/images
package installed
