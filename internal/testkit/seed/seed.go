package seed

import (
	"flag"

	_ "pgregory.net/rapid" // registers the flag before this package sets it
)

// fixed is the seed of every property test unless -rapid.seed is set.
const fixed = "1"

// The testing package parses the command line after all packages are initialized, so -rapid.seed replaces this value.
func init() {
	if err := flag.Set("rapid.seed", fixed); err != nil {
		panic(err)
	}
}
