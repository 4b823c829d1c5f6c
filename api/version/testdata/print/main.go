// Command print writes the version that it was built from.
package main

import (
	"os"

	"github.com/tenon-project/tenon/api/version"
)

func main() { _, _ = os.Stdout.WriteString(version.String()) }
