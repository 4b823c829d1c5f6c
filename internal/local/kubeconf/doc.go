// Package kubeconf writes the kubeconfig files of a local cluster: one for its user, one for each component.
package kubeconf
