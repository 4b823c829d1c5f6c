//go:build !nvml || !cgo

package inventory

import "github.com/tenon-project/tenon/internal/agent/host"

// NVML returns no driver: builds with the tag nvml alone use the library of NVIDIA's driver.
func NVML(host.Root) []Driver { return nil }
