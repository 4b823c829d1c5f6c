// Package inside reaches fields of kube-scheduler that it does not export, where it has no other way to replace a part.
package inside
