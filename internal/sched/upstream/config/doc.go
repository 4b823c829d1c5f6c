// Package config is kube-scheduler's configuration in its internal version, as other packages read and change it. The
// types are data.
package config
