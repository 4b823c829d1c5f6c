//go:build nolocal

package main

import "github.com/spf13/cobra"

// localVerbs: kubectl-tenon has no control plane in it.
func localVerbs() []*cobra.Command { return nil }
