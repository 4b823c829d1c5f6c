// Package web contains the pages of the console as `make generate` bundles them from src. What they draw is
// answered by internal/view, whose types src/view.ts repeats.
package web
